"""Sorts, whose records are tensors of two or four words per unit, and scatters."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from dmlgpu.compiler.plan import Constants, PlanTensor
from dmlgpu.compiler.schedule.launch import Walk
from dmlgpu.compiler.schedule.steps.base import Scheduled


class SortSchedule(enum.StrEnum):
    """What an invocation or a workgroup does with its part of a line."""

    BEST = "best"  # one invocation finds the first record of a group, whose elements are spread evenly over the line
    REGISTERS = "registers"  # one invocation sorts a tile by a network
    WORKGROUP = "workgroup"  # one workgroup sorts a tile by a bitonic network
    SUBGROUPS = "subgroups"  # the same, with records in registers, which subgroups exchange


@dataclass(frozen=True)
class ScheduledSort(Scheduled):
    """The parts of every line sorted, each for itself.

    Attributes:
        source: elements or (``of_records``) records, lines along the last dimension.
        output: records; the dimensions of ``source`` but the last, the parts of a line, the records kept of each.
        schedule: how.
        walk: over the parts.
        width: elements of a part.
        decreasing: the largest element comes first.
        network: REGISTERS: the pairs of records that are put in order, one after the other.
    """

    source: PlanTensor
    schedule: SortSchedule
    walk: Walk
    width: int
    decreasing: bool
    of_records: bool
    network: tuple[tuple[int, int], ...] = ()

    @property
    def lanes(self) -> int:
        return 1


@dataclass(frozen=True)
class ScheduledCandidates(Scheduled):
    """Records of all elements of the groups that some records come from.

    Attributes:
        source: elements, lines along the last dimension.
        best: records of different groups, lines along the last dimension.
        output: records; ``group`` of them for each of ``best``.
        walk: over the output.
        group: elements of a group.
        decreasing: the largest element comes first.
    """

    source: PlanTensor
    best: PlanTensor
    walk: Walk
    group: int
    decreasing: bool

    @property
    def lanes(self) -> int:
        return 1


@dataclass(frozen=True)
class ScheduledMerge(Scheduled):
    """Pairwise merge of adjacent runs of records, truncated to the length of the output.

    Attributes:
        source, output: records; lines, runs of a line, records of a run.
        share: records of a merged run that one invocation takes.
    """

    source: PlanTensor
    share: int

    @property
    def lanes(self) -> int:
        return 1


class ScatterSchedule(enum.StrEnum):
    """What a scatter does at the place its body computes."""

    STORE = "store"  # any one of several updates of a place wins
    MARK = "mark"  # leave the number of the last update, in row-major order, of each place (plus one) in the output
    STORE_MARKED = "store_marked"  # store where the marks name this update


@dataclass(frozen=True)
class ScheduledScatter(Scheduled):
    """Every unit of the source at the place that the shader computes (see ``plan.Scatter``).

    For MARK the output is a packed UINT32 tensor; STORE_MARKED reads it as the input ``marks``.

    Attributes:
        run: the dimensions of source and output along which all units of an invocation lie, so that one place is looked
            up for all of them; None where each is looked up.
    """

    file: str
    source: PlanTensor
    inputs: tuple[tuple[str, PlanTensor], ...]
    schedule: ScatterSchedule
    constants: Constants = ()
    run: tuple[int, int] | None = None

    @property
    def lanes(self) -> int:
        return self.source.lanes
