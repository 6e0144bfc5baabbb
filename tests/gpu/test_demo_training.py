"""Training on GPUs: the losses of a few steps are those of the NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest

from dmlgpu.demo.training import Digits, Trainer, batch_order, initial_parameters
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend


@pytest.mark.slow
def test_steps_are_the_references(backend: GpuBackend) -> None:
    draw = np.random.default_rng(1)
    images, labels = draw.random((16, 1, 8, 8), np.float32), draw.integers(0, 10, 16).astype(np.uint32)
    digits, order, start = (
        Digits(images, labels, images, labels),
        batch_order(16, 4, 8, 0),
        initial_parameters(0, (4, 4)),
    )
    ours, expected = (
        Trainer(device, digits, order, start) for device in (Device.from_backend(backend), Device("numpy"))
    )
    for trainer in (ours, expected):
        trainer.advance(4)
    np.testing.assert_allclose(ours.losses(), expected.losses(), rtol=1e-3)
    for name, parameter in ours.parameters().items():
        np.testing.assert_allclose(parameter, expected.parameters()[name], atol=1e-3, err_msg=name)
