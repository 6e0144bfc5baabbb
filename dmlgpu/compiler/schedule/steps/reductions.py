"""Reductions, rows and scans."""

from __future__ import annotations

import enum
import functools
import math
from dataclasses import dataclass

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Body, Constants, PlanTensor, RegisterValue, Scanning, Source, Stage
from dmlgpu.compiler.schedule.launch import Walk
from dmlgpu.compiler.schedule.steps.base import KernelStep


class ReduceSchedule(enum.StrEnum):
    """Distribution of the work of a reduction among invocations."""

    SERIAL = "serial"  # one invocation per output element
    TREE = "tree"  # one workgroup per output element
    SUBGROUP = "subgroup"  # one subgroup per row, which it holds in registers
    PARTIAL = "partial"  # many invocations per output element, each leaving one accumulator in a temporary tensor


@dataclass(frozen=True)
class ScheduledReduce(KernelStep):
    """A reduction of the rows of the source.

    Attributes:
        file: the shader with ``acc_t``, ``lift``, ``merge`` and ``finish``.
        element: type of the reduced elements.
        source: reduced source, or (``of_partials``) a PARTIAL step's accumulators, along their last dimension.
        axes: the reduced dimensions of the source, the last ones.
        output: has size 1 along the axes; for a PARTIAL step the accumulators, one more dimension at the end.
        walk: over the rows; over those that invocations walk side by side where ``across`` is given.
        portable: as for ``Body``.
        across: the kept dimension that is contiguous in memory (SERIAL and PARTIAL): an invocation walks ``width`` rows
            of units side by side, and the lanes of a packed source belong to adjacent rows; those of the output too if
            it is packed alike. None: an invocation walks one row, to which all lanes belong.
        together: PARTIAL: how many neighboring invocations share a run of units, stepping side by side; 0: all of a
            row's.
        epilogue: as for ``plan.Reduce``; its units are single elements.
        group: units that an invocation lifts at once; 0: one after the other.
        compared: how many units of a row are compared with the best one so far at once, by the shader that has the
            file's name and ``_unit``; 0: elements are merged one by one.
        ahead: units that an invocation reads before it merges the first of them.
        walks_in_loop: no compiler unrolls the walk along a row (SERIAL), which CPU adapters compile faster; GPUs would
            wait for each element.
    """

    file: str
    element: DataType
    source: Source
    axes: tuple[int, ...]
    schedule: ReduceSchedule
    walk: Walk
    of_partials: bool = False
    constants: Constants = ()
    portable: bool = False
    across: int | None = None
    width: int = 1
    together: int = 0
    epilogue: Body | None = None
    group: int = 0
    compared: int = 0
    ahead: int = 1
    walks_in_loop: bool = False

    @property
    def template(self) -> str:
        if self.across is not None:
            return "schedules/reduce_across"
        return "schedules/reduce_tree" if self.schedule is ReduceSchedule.TREE else "schedules/map"

    @property
    def atomic(self) -> bool:
        return self.walk.exchange

    @property
    def lanes(self) -> int:
        return 1 if self.of_partials else self.source.lanes

    @property
    def keeps_loop_bounds(self) -> bool:
        return self.schedule is ReduceSchedule.SERIAL


TILE = 32
"""Number of units that one invocation merges before it merges their sum into that of the row."""


@dataclass(frozen=True)
class ScheduledRows(KernelStep):
    """Rows reduced in stages, and each of their elements computed, all in one kernel.

    Attributes:
        stages: the reductions, in order; a single one if it takes its numbers ``group`` units at a time.
        source: the reduced source; a row lies along ``axes``, its last dimensions.
        body: computes an element.
        element: the leaf of the body that represents an element of the source.
        fixed, shared: leaves of the body, by name, that are read once for a row, or for all rows that are stored
            together.
        output: its units are whole words.
        schedule: SERIAL, TREE or SUBGROUP.
        walk: over the rows.
        across: the lanes of a unit belong to neighboring rows, not to one (SERIAL only).
        held: units of a row that each invocation of a workgroup or subgroup keeps in registers; 0 if they are read
            again.
        group: units that an invocation merges, or lifts, at once; 0: one after the other.
        together: how many invocations of a subgroup, or twice as many in large ones, store their rows together, unit by
            unit, and read once what is the same in all of them (SERIAL only, not across); 0: each stores its own.
        tile: units that an invocation merges before it merges their sum into that of the row (SERIAL).
        runs: per stage the shader that says how an invocation takes numbers in turn.
        statistics: values of a row that are stored: the body, and the output, whose units are whole words. Both have
            size 1 along the axes.
    """

    stages: tuple[Stage, ...]
    source: Source
    axes: tuple[int, ...]
    body: Body
    element: PlanTensor | RegisterValue
    fixed: tuple[tuple[str, PlanTensor], ...]
    shared: tuple[tuple[str, PlanTensor], ...]
    schedule: ReduceSchedule
    walk: Walk
    across: bool = False
    held: int = 0
    group: int = 0
    together: int = 0
    tile: int = TILE
    runs: tuple[str, ...] = ()
    statistics: tuple[tuple[Body, PlanTensor], ...] = ()

    reads = (("input", "source"),)

    @property
    def template(self) -> str:
        return f"schedules/rows_{self.schedule}"

    @property
    def keeps_loop_bounds(self) -> bool:
        return self.schedule is ReduceSchedule.SERIAL

    @functools.cached_property  # a size that a template names once
    def units(self) -> int:
        """Number of units of a row."""
        return math.prod(self.output.sizes[axis] for axis in self.axes)

    @property
    def groups(self) -> list[range]:
        """Indices of the units that an invocation of a subgroup lifts at once: units that all invocations have, and the
        last one separately if only some have it (SUBGROUP)."""
        if self.schedule is not ReduceSchedule.SUBGROUP:
            return []
        everyones = self.units // self.launch.workgroup
        groups = [range(first, min(first + self.group, everyones)) for first in range(0, everyones, self.group)]
        return groups + ([range(everyones, self.held)] if everyones < self.held else [])

    @property
    def counts(self) -> tuple[int, ...]:
        """Counts of numbers that a stage takes at once: of a group of units, and of a unit if there is a remainder."""
        if self.schedule is ReduceSchedule.SUBGROUP:
            return tuple(sorted({len(group) * self.output.lanes for group in self.groups}))
        of_unit = 1 if self.across else self.output.lanes
        rest = (of_unit,) if self.group > 1 and self.units % self.group else ()
        return (self.group * of_unit, *rest) if self.group else ()


TOTAL = "schedules/scan_total"
"""Shader that merges each unit, if only the total is requested."""


class ScanSchedule(enum.StrEnum):
    """Unit of execution that takes a block."""

    SERIAL = "serial"  # one invocation, from start to end
    TREE = "tree"  # one workgroup, tile by tile


@dataclass(frozen=True)
class ScheduledScan(KernelStep):
    """A walk over the lines of the source, each in blocks, merging element after element (see shaders/scanning).

    All tensors have one rank of at least 2. Lines lie along ``axes``, the last dimensions, in row-major order; blocks
    are numbered in the order of traversal.

    Attributes:
        scanning: the operation.
        element: type of the scanned elements.
        source: the scanned source. Tensors may be packed, along lines or (``across``) over neighboring ones.
        axes: the dimensions along which a line lies.
        output: of the source's sizes and packed alike; or (TOTAL) the accumulators of all blocks: all lines along
            the first dimension, blocks along the last one; or what ``advance`` takes it for.
        schedule: SERIAL or TREE.
        walk: over the lines.
        length: units of a block; the last one may be shorter or empty.
        held: units of a block that each invocation of a workgroup holds at once.
        blocks: how many blocks a line consists of.
        advance: the shader for each unit.
        starts: the accumulators of everything before each block; None where there is but one.
        of_totals: the elements are accumulators already.
        across: the lanes of a unit belong to neighboring lines (SERIAL only).
        constants: values for ``advance``.
        paired: adjacent invocations swap half of their results by subgroup operations and store units side by side.
    """

    scanning: Scanning
    element: DataType
    source: Source
    axes: tuple[int, ...]
    schedule: ScanSchedule
    walk: Walk
    length: int
    held: int
    blocks: int
    advance: str
    starts: PlanTensor | None = None
    of_totals: bool = False
    across: bool = False
    constants: Constants = ()
    paired: bool = False

    reads = (("input", "source"), ("starts", "starts"))

    @property
    def template(self) -> str:
        of_tree = "tree_total" if self.is_total else "tree"
        return f"schedules/scan_{of_tree if self.schedule is ScanSchedule.TREE else self.schedule}"

    @property
    def portable(self) -> bool:
        return self.scanning.portable

    @property
    def lanes(self) -> int:
        return 1 if self.of_totals else self.source.lanes

    @property
    def is_total(self) -> bool:
        """Whether the output holds the accumulators of all blocks."""
        return self.advance == TOTAL

    @functools.cached_property  # a size that a template names once
    def lines(self) -> int:
        """Number of lines; lines packed in a unit count as one."""
        return math.prod(size for axis, size in enumerate(self.source.sizes) if axis not in self.axes)

    @functools.cached_property  # a size that a template names once
    def units(self) -> int:
        """Number of units of a line."""
        return math.prod(self.source.sizes[axis] for axis in self.axes)
