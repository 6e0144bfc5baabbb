"""Recurrent networks as planned for either profile, for one step and many, and with time taken in parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmlgpu import reference
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.schedule import unrolling
from dmlgpu.compiler.schedule.steps.base import ScheduledRepeat
from dmlgpu.compiler.target import Profile
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc
from tests.networks import BOTH, FORWARD, GATES, network
from tests.schedules import steps_of

F32, F16 = DataType.FLOAT32, DataType.FLOAT16
Sizes = tuple[int, int, int, int]
"""Time steps, sequences, inputs, hidden elements."""


def contents(desc: Any) -> list[Any]:
    """Numbers small enough for errors to fade over time steps."""
    rng = np.random.default_rng(7)
    steps = desc.input_tensor.sizes[1]

    def drawn(field: str, tensor: TensorDesc) -> Any:
        if field == "sequence_lengths_tensor":
            return rng.integers(1, steps + 1, tensor.sizes).astype(np.uint32)
        scale = 1.0 if field == "input_tensor" else 1 / np.sqrt(desc.recurrence_tensor.sizes[3])
        return (scale * rng.uniform(-1, 1, tensor.sizes)).astype(tensor.data_type.numpy)

    return [drawn(slot.field, slot.tensor) for slot in desc.inputs]


def check(backend: GpuBackend, desc: Any, profile: Profile) -> None:
    inputs = contents(desc)
    target = replace(backend.target, profile=profile)
    tolerance = {F32: 2e-5, F16: 2e-3}[desc.input_tensor.data_type]
    expected, results = reference.evaluate(desc, inputs), run_desc(backend, desc, inputs, target)
    for result, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(result.astype(np.float64), other, atol=tolerance)


SIZES: dict[str, Sizes] = {
    "one step, units along the sums": (1, 2, 5, 16),
    "several rows": (5, 19, 4, 64),
    "few steps, odd": (3, 3, 4, 7),
    "many steps, odd": (20, 1, 4, 13),
}


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("operator", ["LSTM", "GRU"])
def test_every_form_of_a_step(backend: GpuBackend, operator: str, name: str, profile: Profile) -> None:
    check(backend, network(operator, SIZES[name], BOTH), profile)


def test_sums_of_four_sequences_in_parts(backend: GpuBackend) -> None:
    """So many sequences that more elements than invocations of a workgroup are computed from its sums."""
    check(backend, network("RNN", (4, 130, 2, 128), FORWARD), Profile.DISCRETE)


def test_units_on_a_large_gpu(backend: GpuBackend) -> None:
    """So many elements that an invocation of a GPU takes four of several sequences."""
    check(backend, network("GRU", (4, 1060, 2, 128), FORWARD), Profile.DISCRETE)


def test_sums_longer_than_a_chunk(backend: GpuBackend) -> None:
    check(backend, network("RNN", (4, 1, 2, 1030), FORWARD), Profile.CPU)


@pytest.mark.parametrize(("operator", "data_type"), [("RNN", F32), ("LSTM", F16), ("GRU", F32)])
def test_time_taken_in_parts(
    backend: GpuBackend, operator: str, data_type: DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of four steps or less; odd numbers of float16, so that parts meet within a word."""
    desc = network(operator, (11, 3, 2, 5), BOTH, data_type)
    rows = 4 * 2 * 3 * 5 * max(GATES[operator], 2 if operator == "LSTM" else 1)
    monkeypatch.setattr(unrolling, "LARGEST", 5 * rows)
    assert [step.turns for step in steps_of(desc, backend.target) if isinstance(step, ScheduledRepeat)] == [4, 4, 3]
    check(backend, desc, Profile.CPU)
