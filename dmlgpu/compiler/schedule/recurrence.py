"""Recurrent networks: time steps, vectorized if layout and the number of invocations allow it."""

from __future__ import annotations

import math

from dmlgpu.compiler.plan import PlanTensor, Recurrence
from dmlgpu.compiler.rewrites.packing import UNIT, pack_tensor, packs_tensor
from dmlgpu.compiler.schedule.gemm import CHUNK
from dmlgpu.compiler.schedule.launch import Launch, fold
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.products import ScheduledRecurrence
from dmlgpu.compiler.target import Profile, Target

STATE, ROW, INNER = 3, 2, 3
"""Dimensions: of a state along which its elements lie; of the weights that says of which element, and of which one
before, a weight is."""

MOST_ROWS = 8
"""Sequences that an invocation takes at once."""

BUSY = {Profile.CPU: 64, Profile.INTEGRATED: 1 << 12, Profile.DISCRETE: 1 << 14}
"""Invocations that keep an adapter busy."""


@schedule_step.register
def _recurrence(step: Recurrence, target: Target) -> ScheduledSteps:
    hidden, weights, output = step.hidden, step.weights, step.output
    wide, along = _is_wide(weights, output, target), False
    if wide:
        weights = pack_tensor(weights, ROW, UNIT)
    elif packs_tensor(weights, INNER, UNIT) and packs_tensor(hidden, STATE, UNIT):
        weights, hidden, along = pack_tensor(weights, INNER, UNIT), pack_tensor(hidden, STATE, UNIT), True
    rows = _rows(output, UNIT if wide else 1, target)
    _, directions, sequences, _ = output.sizes
    units = weights.sizes[ROW]
    groups = -(-sequences // rows)
    workgroup = min(8 if target.profile is Profile.CPU else 64, 1 << (units - 1).bit_length())
    tiles = -(-units // workgroup)
    total = directions * groups * tiles
    launch = Launch(workgroup, 1, fold(total, target), total)
    kernel = ScheduledRecurrence(
        step.label, launch, output, hidden, weights, step.sums, step.states, along, rows, groups, tiles, CHUNK
    )
    how = "four elements of a state" if wide else "an element of a state, summed in units" if along else "an element"
    return ScheduledSteps((kernel,)).because(
        f"an invocation takes {how}, of {rows} sequences that read the same weights"
    )


def _is_wide(weights: PlanTensor, output: PlanTensor, target: Target) -> bool:
    """Return whether an invocation takes four elements of a state: CPU adapters like that, GPUs where there are
    enough."""
    enough = target.profile is Profile.CPU or math.prod(output.sizes[1:]) >= UNIT * BUSY[target.profile]
    return enough and packs_tensor(weights, ROW, UNIT)


def _rows(output: PlanTensor, wide: int, target: Target) -> int:
    """Return as many sequences at once as leave enough invocations: they read the same weights."""
    _, directions, sequences, elements = output.sizes
    rows, invocations = 1, directions * sequences * elements // wide
    while 2 * rows <= min(MOST_ROWS, sequences) and invocations >= 2 * rows * BUSY[target.profile]:
        rows *= 2
    return rows
