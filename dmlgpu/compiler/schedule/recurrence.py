"""Recurrent networks: time steps, vectorized if layout and the number of invocations allow it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dmlgpu.common.errors import counted
from dmlgpu.compiler.plan import PlanTensor, Recurrence
from dmlgpu.compiler.rewrites.packing import UNIT, pack_tensor, packs_tensor
from dmlgpu.compiler.schedule.gemm import CHUNK
from dmlgpu.compiler.schedule.launch import Launch, fold
from dmlgpu.compiler.schedule.registry import GPUS, Condition, Schedule, by_profile, choose, no, register
from dmlgpu.compiler.schedule.scheduling import StepProblem, schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.products import ScheduledRecurrence
from dmlgpu.compiler.target import Profile, Target

STATE, ROW, INNER = 3, 2, 3
"""Dimensions: of the elements of a state; of the weights by element, and by
previous element."""

MAX_ROWS = 8
"""Maximum number of sequences that an invocation computes at once."""

BUSY = {Profile.CPU: 64, Profile.INTEGRATED: 1 << 12, Profile.DISCRETE: 1 << 14}
"""Number of invocations that keep an adapter busy."""

WORKGROUP = by_profile(cpu=8, gpus=64)
"""Maximum invocations of a workgroup that compute whole sums."""

MAX_PARTS = 16
"""Number of invocations that share the products of a unit: each adds one vector per sum to workgroup memory."""

ACROSS = 8
"""Units per workgroup whose products are divided: adjacent weights, a cache line of vectors."""


@dataclass(frozen=True)
class Layout:
    """A time step with its tensors in units.

    Attributes:
        wide: Whether units of weights lie along the elements of a state; an invocation then computes four of them.
        along: Whether units of weights and hidden states lie along the summed dimension.
    """

    step: Recurrence
    target: Target
    hidden: PlanTensor
    weights: PlanTensor
    wide: bool = False
    along: bool = False

    @classmethod
    def of(cls, step: Recurrence, target: Target, *, wide: bool) -> Layout:
        """Return the layout in units that the memory of the tensors allows."""
        hidden, weights = step.hidden, step.weights
        if wide and packs_tensor(weights, ROW, UNIT):
            return cls(step, target, hidden, pack_tensor(weights, ROW, UNIT), wide=True)
        if packs_tensor(weights, INNER, UNIT) and packs_tensor(hidden, STATE, UNIT):
            return cls(step, target, pack_tensor(hidden, STATE, UNIT), pack_tensor(weights, INNER, UNIT), along=True)
        return cls(step, target, hidden, weights)

    @property
    def unit(self) -> int:
        """Number of elements of a state that an invocation computes."""
        return UNIT if self.wide else 1

    def rows(self, most: int, share: int = 1) -> int:
        """Return the maximum number of sequences per invocation that leaves enough invocations: they share loads of
        weights.

        Args:
            most: Maximum result.
            share: Number of invocations that share the products of a unit.
        """
        _, directions, sequences, elements = self.step.output.sizes
        rows, invocations = 1, share * directions * sequences * elements // self.unit
        while 2 * rows <= min(most, sequences) and invocations >= 2 * rows * BUSY[self.target.profile]:
            rows *= 2
        return rows

    def scheduled(self, rows: int, workgroup: int, parts: int = 1) -> ScheduledRecurrence:
        """Return the kernel whose invocations compute a unit of some sequences, or a part of its products."""
        step, across = self.step, workgroup // parts
        _, directions, sequences, _ = step.output.sizes
        groups, tiles = -(-sequences // rows), -(-self.weights.sizes[ROW] // across)
        total = directions * groups * tiles
        launch = Launch(workgroup, 1, fold(total, self.target), total)
        return ScheduledRecurrence(
            step.label,
            launch,
            step.output,
            self.hidden,
            self.weights,
            step.sums,
            step.states,
            self.along,
            rows,
            groups,
            tiles,
            CHUNK,
            parts,
            across,
        )


def _split(problem: StepProblem[Recurrence]) -> ScheduledSteps | Condition:
    """Return the kernel that divides sums among invocations, on GPUs that one invocation per unit would leave idle."""
    step, target = problem.step, problem.target
    layout = Layout.of(step, target, wide=True)
    if layout.wide and packs_tensor(layout.hidden, STATE, UNIT):
        layout = replace(layout, hidden=pack_tensor(layout.hidden, STATE, UNIT))
    rows = layout.rows(MAX_ROWS // 2, MAX_PARTS)
    invocations = math.prod(step.output.sizes[1:]) // (layout.unit * rows)
    max_parts = min(MAX_PARTS, layout.hidden.sizes[STATE] // 2, BUSY[target.profile] // max(invocations, 1))
    if max_parts < 2:
        return no("{:,} invocations with whole sums keep the adapter busy", invocations)
    parts, across = 1 << (max_parts.bit_length() - 1), ACROSS
    bytes_of_sum = 4 * layout.weights.lanes * len(step.sums) * rows
    while across > 1 and across * parts * bytes_of_sum > target.max_workgroup_storage:
        across //= 2
    if across * parts * bytes_of_sum > target.max_workgroup_storage:
        return no("{:,} bytes of sums exceed workgroup memory", across * parts * bytes_of_sum)
    elements = "four elements of a state" if layout.wide else "an element of a state"
    of = f"{elements}, of {counted(rows, 'sequence')}"
    reason = f"{parts} invocations divide the sums of {of}, and add them in workgroup memory"
    return ScheduledSteps((layout.scheduled(rows, across * parts, parts),)).because(reason)


def _single(problem: StepProblem[Recurrence]) -> ScheduledSteps:
    """Return the kernel whose invocations compute whole sums."""
    step, target = problem.step, problem.target
    is_busy = not target.needs_many_invocations or math.prod(step.output.sizes[1:]) >= UNIT * BUSY[target.profile]
    layout = Layout.of(step, target, wide=is_busy)
    workgroup = min(WORKGROUP[target.profile], 1 << (layout.weights.sizes[ROW] - 1).bit_length())
    alone = "an element of a state, summed in units" if layout.along else "an element"
    how = "four elements of a state" if layout.wide else alone
    rows = layout.rows(MAX_ROWS)
    reason = f"an invocation takes {how}, of {rows} sequences that read the same weights"
    return ScheduledSteps((layout.scheduled(rows, workgroup),)).because(reason)


RECURRENCE_SCHEDULES: tuple[Schedule[StepProblem[Recurrence], ScheduledSteps], ...] = register(
    Schedule(
        "recurrence",
        "split",
        _split,
        "few states: more invocations, each with a part of a sum, read at the same time",
        profiles=GPUS,
    ),
    Schedule(
        "recurrence",
        "single",
        _single,
        "an invocation computes whole sums of a unit of some sequences",
    ),
)
"""Schedules of a time step, tried in order."""


@schedule_step.register
def _recurrence(step: Recurrence, target: Target) -> ScheduledSteps:
    return choose(RECURRENCE_SCHEDULES, StepProblem(step, target))
