"""Schedules of the time steps of recurrent layers."""

from __future__ import annotations

import pytest

from dmlgpu.compiler import operators
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.schedule.steps.base import ScheduledRepeat
from dmlgpu.compiler.schedule.steps.products import ScheduledRecurrence
from dmlgpu.compiler.target import Profile, Target
from tests.networks import FORWARD, network


def step(
    sizes: tuple[int, int, int, int], profile: Profile, operator: str = "LSTM", **limits: int
) -> ScheduledRecurrence:
    """Return the kernel of a time step of a layer: time steps, sequences, inputs, hidden elements."""
    chosen = schedule(operators.lower(network(operator, sizes, FORWARD)), Target("GPU", profile, **limits))
    repeat, *_ = (kernel for kernel in chosen.steps if isinstance(kernel, ScheduledRepeat))
    kernel = repeat.steps[-1]
    assert isinstance(kernel, ScheduledRecurrence)
    return kernel


@pytest.mark.parametrize(
    ("sequences", "hidden", "parts", "rows"),
    [(8, 256, 16, 1), (8, 32, 4, 1), (64, 512, 8, 4), (1024, 512, 1, 8), (1, 4, 1, 1)],
)
def test_invocations_divide_sums_until_a_gpu_is_busy(sequences: int, hidden: int, parts: int, rows: int) -> None:
    kernel = step((16, sequences, 4, hidden), Profile.DISCRETE)
    assert (kernel.parts, kernel.rows) == (parts, rows)
    assert kernel.parts == 1 or kernel.hidden.lanes == kernel.weights.lanes == 4


def test_partial_sums_fit_workgroup_memory() -> None:
    kernel = step((16, 64, 4, 256), Profile.DISCRETE)
    assert (kernel.parts, kernel.across, kernel.rows) == (16, 4, 4)
    gates, bytes_of_unit = 4, 16
    assert kernel.parts * kernel.across * kernel.rows * gates * bytes_of_unit == 16384


def test_cpu_adapters_compute_whole_sums() -> None:
    assert step((16, 8, 4, 256), Profile.CPU).parts == 1
