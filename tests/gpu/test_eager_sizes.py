"""Eager calls of each family of operators with many sizes, on each adapter and under both profiles: few pipelines."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmlgpu import Device, Tensor, ops
from dmlgpu.compiler.target import Profile
from dmlgpu.conformance.cases import families
from dmlgpu.ops import directml as dml
from dmlgpu.runtime.specialization import Specialize, Specializer
from dmlgpu.runtime.wgpu import GpuBackend

RNG = np.random.default_rng(37)


def elements(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


WEIGHT, TABLE, TAPS, GATES = elements(16, 24), elements(64, 16), elements(4, 3, 3, 3), elements(1, 32, 8)
SCALE, ZERO = np.full((1, 1), 0.1, np.float32), np.zeros((1, 1), np.uint8)
PICTURE = elements(1, 2, 16, 16)
STEP = np.array([1], np.uint32)


def attention(size: int) -> tuple[Any, ...]:
    return ops.attention, elements(1, 2, size, 8), elements(1, 2, size, 8), elements(1, 2, size, 8)


def regions(size: int) -> tuple[Any, ...]:
    def align(x: Any, boxes: Any, batches: Any) -> Any:
        return dml.roi_align1(
            x, boxes, batches, reduction_function="average", interpolation_mode="linear", minimum_samples_per_output=1,
            maximum_samples_per_output=2, output_sizes=(size, 2, 2, 2),
        )  # fmt: skip

    return align, PICTURE, np.abs(elements(size, 4)), np.zeros(size, np.uint32)


def training(size: int) -> tuple[Any, ...]:
    def adam(*operands: Any) -> Any:
        return dml.adam_optimizer(*operands, STEP, learning_rate=0.1, beta1=0.9, beta2=0.99, epsilon=1e-6)[0]

    return adam, *(np.abs(elements(1, 1, size, 4)) for _ in range(4))


Call = Callable[[int], tuple[Any, ...]]

FAMILIES: dict[str, tuple[Call, int, int]] = {
    "activation": (lambda size: (ops.gelu, elements(size, 16)), 1000, 8),
    "arithmetic": (lambda size: (lambda x, y: x * y + 1, elements(size, 16), elements(16)), 1000, 16),
    "attention": (attention, 48, 24),
    "convolution": (lambda size: (lambda x, y: ops.conv2d(x, y, padding=1), elements(1, 3, 5, size + 2), TAPS), 24, 40),
    "elementwise": (lambda size: (ops.exp, elements(3, size)), 1000, 8),
    "fill": (lambda size: (lambda x: ops.zeros(size, device=x.device) + x[0, 0], elements(1, 1)), 1000, 48),
    "indexing": (lambda size: (lambda x, y: ops.take(x, y, axis=0), TABLE, np.arange(size) % 64), 1000, 8),
    "layout": (
        lambda size: (lambda x, y: ops.concatenate([x.T, y.T], axis=1), elements(size, 4), elements(3, 4)),
        1000,
        12,
    ),
    "matrix": (lambda size: (ops.matmul, elements(size, 16), WEIGHT), 1000, 16),
    "normalization": (lambda size: (ops.layer_norm, elements(3, size)), 1000, 32),
    "pooling": (lambda size: (lambda x: ops.max_pool2d(x, 2), elements(1, 2, 4, size + 2)), 400, 24),
    "quantization": (lambda size: (dml.element_wise_quantize_linear, elements(size, 16), SCALE, ZERO), 1000, 12),
    "recurrent": (lambda size: (lambda x, *y: ops.lstm(x, *y)[0], elements(3, size, 8), GATES, GATES), 24, 48),
    "reduction": (lambda size: (lambda x: ops.sum(x, axis=0), elements(size, 16)), 1000, 20),
    "regions": (regions, 400, 12),
    "resampling": (lambda size: (lambda x: ops.interpolate(x, scale_factor=2), elements(1, 2, 4, size)), 400, 16),
    "training": (training, 1000, 12),
}
"""Function and operands by size, the largest size, and the most pipelines, of a call of each family."""

SAMPLED = 10
"""Sizes of a family; with ``--profile full``, all."""


def test_each_family_has_a_call() -> None:
    assert sorted(FAMILIES) == sorted(module.name for module in pkgutil.iter_modules(families.__path__))


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_share_pipelines(
    fresh: GpuBackend, family: str, profile: Profile, request: pytest.FixtureRequest
) -> None:
    call, largest, most = FAMILIES[family]
    fresh.target = replace(fresh.target, profile=profile)
    fresh.specializer = Specializer(Specialize.AUTO)
    device, reference = Device.from_backend(fresh), Device("numpy")
    is_full = request.config.getoption("--profile") == "full"
    sizes = range(1, largest + 1) if is_full else sorted({*np.geomspace(1, largest, SAMPLED).astype(int).tolist()})
    for index, size in enumerate(sizes):
        function, *operands = call(size)
        result = function(*(Tensor(operand, device=device) for operand in operands))
        if index % (50 if is_full else 4) == 0:
            expected = function(*(Tensor(operand, device=reference) for operand in operands))
            np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-3, atol=1e-3)
    assert device.pipeline_cache.info.misses <= most
    device.remove()
