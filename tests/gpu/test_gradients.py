"""Gradients on every adapter: those of the reference, eager and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Device, Tensor, ops
from dmlgpu.runtime.wgpu import GpuBackend


@pytest.fixture(scope="module")
def plain(backend: GpuBackend) -> Device:
    """A device on each adapter."""
    return Device.from_backend(backend)


def loss(parameters: Any, images: Any) -> Any:
    """A bit of everything: convolution in groups, pooling, views, products, attention, indices."""
    values = ops.conv2d(images, parameters["filters"], parameters["bias"], stride=2, padding=1, groups=2)
    values = ops.max_pool2d(ops.relu(values), 2, 1)
    rows = ops.layer_norm(values.reshape(2, 4, -1), eps=0.1) @ parameters["weights"]
    rows = rows + ops.attention(rows, rows, rows, 2)
    chosen = ops.take(rows, np.array([0, 2, 0], np.int32), axis=1)
    return ops.mean(ops.gelu(chosen) ** 2) + ops.mean(rows[:, 1:3, ::2].T * 2) - ops.mean(ops.log_softmax(rows)[:, 0])


@pytest.mark.slow
def test_gradients_are_those_of_the_reference(plain: Device) -> None:
    rng = np.random.default_rng(0)
    sizes = {"filters": (4, 2, 3, 3), "bias": (4,), "weights": (4, 8)}
    parameters = {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    images = rng.standard_normal((2, 4, 6, 6)).astype(np.float32)

    def tensors(device: Any) -> Any:
        return {name: Tensor(array, device=device) for name, array in parameters.items()}, Tensor(images, device=device)

    function = dmlgpu.value_and_grad(loss, (0, 1))
    value, (expected, of_images) = function(*tensors("numpy"))
    for differentiated in (function, dmlgpu.compile(function)):
        result, (gradients, gradient) = differentiated(*tensors(plain))
        np.testing.assert_allclose(result.numpy(), value.numpy(), rtol=1e-4)
        np.testing.assert_allclose(gradient.numpy(), of_images.numpy(), rtol=1e-3, atol=1e-5)
        for name, tensor in gradients.items():
            np.testing.assert_allclose(tensor.numpy(), expected[name].numpy(), rtol=1e-3, atol=1e-5)
