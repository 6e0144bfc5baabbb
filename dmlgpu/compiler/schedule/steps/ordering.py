"""Sorts, whose records are tensors of two or four words per unit, and scatters."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from dmlgpu.compiler.plan import Constants, PlanTensor, Source
from dmlgpu.compiler.schedule.launch import Walk
from dmlgpu.compiler.schedule.steps.base import KernelStep


class SortSchedule(enum.StrEnum):
    """Algorithm of an invocation or a workgroup for its part of a line."""

    BEST = "best"  # one invocation finds the first record of a group, whose elements are spread evenly over the line
    REGISTERS = "registers"  # one invocation sorts a tile by a network
    WORKGROUP = "workgroup"  # one workgroup sorts a tile by a bitonic network
    SUBGROUPS = "subgroups"  # like WORKGROUP, with records in registers that subgroups exchange


@dataclass(frozen=True)
class ScheduledSort(KernelStep):
    """Sort of the parts of every line, independently.

    Attributes:
        source: elements or (``of_records``) records, lines along the last dimension.
        output: records; the dimensions of ``source`` but the last, the parts of a line, the records kept of each.
        schedule: algorithm.
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
    def template(self) -> str:
        return f"schedules/sort_{self.schedule}"

    lanes = 1


@dataclass(frozen=True)
class ScheduledCandidates(KernelStep):
    """Records of all elements of the groups of some records.

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

    template = "schedules/sort_candidates"
    lanes = 1


@dataclass(frozen=True)
class ScheduledMerge(KernelStep):
    """Pairwise merge of adjacent runs of records, truncated to the length of the output.

    Attributes:
        source, output: records; lines, runs of a line, records of a run.
        share: records of a merged run per invocation.
    """

    source: PlanTensor
    share: int

    template = "schedules/sort_merge"
    lanes = 1


class ScatterSchedule(enum.StrEnum):
    """Action of a scatter at the position that its body computes."""

    STORE = "store"  # any of several updates of a position wins
    MARK = "mark"  # store the index plus one of the last update, in row-major order, of each position in the output
    STORE_MARKED = "store_marked"  # store if the marks name this update


@dataclass(frozen=True)
class ScheduledScatter(KernelStep):
    """Every unit of the source at the position that the shader computes (see ``plan.Scatter``).

    For MARK the output is a packed UINT32 tensor; STORE_MARKED reads it as the input ``marks``.

    Attributes:
        run: the dimensions of source and output along which all units of an invocation lie, so that one position is
            looked up for all of them; None if each is looked up.
        in_word: elements along the last dimension that an invocation computes and stores as one word.
    """

    file: str
    source: Source
    inputs: tuple[tuple[str, PlanTensor], ...]
    schedule: ScatterSchedule
    constants: Constants = ()
    run: tuple[int, int] | None = None
    in_word: int = 1

    reads = (("source", "source"),)

    @property
    def template(self) -> str:
        ends = {ScatterSchedule.STORE: "", ScatterSchedule.MARK: "_mark", ScatterSchedule.STORE_MARKED: "_marked"}
        return f"schedules/scatter{ends[self.schedule]}"

    @property
    def atomic(self) -> bool:
        return self.schedule is ScatterSchedule.MARK or (super().atomic and self.in_word == 1)

    @property
    def computes(self) -> bool:
        """Whether the source is computed, not moved as raw bits."""
        return not isinstance(self.source, PlanTensor)

    @property
    def lanes(self) -> int:
        return self.source.lanes
