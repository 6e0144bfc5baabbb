"""Scheduling of reductions: schedule, units and kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS, packed_strides
from dmlgpu.compiler.plan import Body, PlanTensor, Reduce, Reduction, Source
from dmlgpu.compiler.rewrites.collapse import merge_tensor, merge_tree, row_groups
from dmlgpu.compiler.rewrites.packing import (
    UNIT,
    pack_source,
    pack_tensor,
    packs_source,
    packs_tensor,
    running_dimension,
)
from dmlgpu.compiler.rewrites.sources import computed, fold_views, is_elementwise, leaves
from dmlgpu.compiler.schedule.launch import Launch, Walk, choose_walk, loop_launch, map_launch, row_launch
from dmlgpu.compiler.schedule.registry import YES, Condition, Schedule, at_most, choose, no, register
from dmlgpu.compiler.schedule.scheduling import StepProblem, schedule_step
from dmlgpu.compiler.schedule.splitting import Cut, piece, pieces, tightened
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.reductions import ReduceSchedule, ScheduledReduce
from dmlgpu.compiler.schedule.units import REDUCED, reads_single
from dmlgpu.compiler.target import Target

SHORT = 4
"""Maximum units of a row for which one invocation takes several rows, as in a map."""

RANKED_IN_UNITS = ("reduction/argmin",)
"""Reductions that find an element: a loop determines which of several it is only at its end."""

ABSORBING = ("reduction/reduce_l1_float", "reduction/reduce_sum_float")
"""Reductions whose shaders also have ``run_t``, 0 to begin with, to which ``absorb`` adds an array of ``at_once``
numbers, and of which ``close`` makes an accumulator: that costs less than to lift and merge each, and needs float64."""

COMPARED = 8
"""Number of units whose best is compared with the previous best: fewer iterations are faster on CPU adapters."""

WORTH_COMPARING = 256
"""Minimum elements of a row without units for which comparing several at once is faster."""


@schedule_step.register
def _reduce(step: Reduce, target: Target) -> ScheduledSteps:
    """Return one kernel if a row is short enough for its schedule, else two: partial results, then their reduction."""
    if step.reduction.longest is not None:
        target = limited(target, 4 * step.reduction.longest)
    source = fold_views(step.source)
    axes, output, epilogue = step.axes, step.output, step.epilogue
    if is_elementwise(source):
        ordered = step.reduction.ordered
        source, axes, output, epilogue = canonical(source, axes, output, ordered=ordered, epilogue=epilogue)
    return canonical_reduce(replace(step, source=source, axes=axes, output=output, epilogue=epilogue), target)


def limited(target: Target, loop_limit: int) -> Target:
    """Return the target with a loop limit of at most a number of iterations."""
    return replace(target, loop_limit=min(loop_limit, target.loop_limit or loop_limit))


def canonical_reduce(step: Reduce, target: Target) -> ScheduledSteps:
    """Schedule a reduction along the last dimensions, already merged, of a source whose views are folded."""
    axis = step.axes[0]
    for unit in (PIECE_UNIT, 1):
        cuts = pieces([step.source], axis, unit, target)
        if len(cuts) > 1:
            return _in_pieces(step, [(axis, *cut) for cut in cuts], target)
    problem = ReduceProblem(step, target)
    return _kernels(problem, choose(REDUCE_SCHEDULES, problem))


PIECE_UNIT = 64
"""Elements of which the lengths of pieces of a row are multiples, so that they begin at units."""


def _in_pieces(step: Reduce, cuts: Sequence[Cut], target: Target) -> ScheduledSteps:
    """Return kernels that reduce pieces of rows, each of which binds only one piece, and one that combines their
    partial results."""
    behind = math.prod(step.source.sizes[axis] for axis in step.axes[1:])
    problems = [ReduceProblem(_piece(step, cut, behind), target, is_piece=True) for cut in cuts]
    chosen = [choose(REDUCE_SCHEDULES, problem) for problem in problems]
    partials = _partials(step.reduction, step.output, sum(units.parts for units in chosen), is_outermost=True)
    steps, first = ScheduledSteps(), 0
    for problem, units in zip(problems, chosen, strict=True):
        sizes = (*step.output.sizes, units.parts)
        own = tightened(replace(partials, sizes=sizes, offset=partials.offset + first * partials.strides[-1]))
        kernel = _ReduceKernel(problem.step, units.source, own, ReduceSchedule.PARTIAL)
        reason = f"one of {len(cuts)} pieces of each row, which exceeds what a kernel can bind"
        steps += ScheduledSteps((kernel.scheduled(target, units),)).because(reason)
        first += units.parts
    return steps + _combined(step, partials, target)


def _piece(step: Reduce, cut: Cut, behind: int) -> Reduce:
    """Return the reduction of a piece of each row, whose elements have their indices in the row."""
    source = piece(step.source, cut)
    reduction = step.reduction
    if reduction.ordered:
        reduction = replace(reduction, constants=(*reduction.constants, ("first", cut[1] * behind)))
    return replace(step, source=source, reduction=reduction)


def _combined(step: Reduce, partials: PlanTensor, target: Target) -> ScheduledSteps:
    """Return the kernel that combines the partial results of each row."""
    rows, parts = math.prod(step.output.sizes), partials.sizes[-1]
    schedule = choose_schedule(rows, parts, target, outer=partials.strides[-1] > 1)
    kernel = _ReduceKernel(step, partials, step.output, schedule, of_partials=True)
    return ScheduledSteps((kernel.scheduled(target),)).because(f"combines the {parts} partial results of each row")


@dataclass(frozen=True)
class ReduceProblem(StepProblem[Reduce]):
    """A reduction along the last dimensions, already merged, of a source whose views are folded, and its target.

    Attributes:
        is_piece: Whether the rows are pieces, of which partial results are computed.
    """

    is_piece: bool = False

    @property
    def is_single(self) -> bool:
        """Whether elements that have words of their own are read one by one."""
        source = self.step.source
        return source.data_type.bits >= WORD_BITS and reads_single(1, math.prod(source.sizes), REDUCED, self.target)

    def rows_and_count(self, sizes: tuple[int, ...]) -> tuple[int, int]:
        """Return the number of rows in a source of some sizes, and the units in each."""
        return math.prod(sizes[: self.step.axes[0]]), math.prod(sizes[axis] for axis in self.step.axes)


REDUCE_SCHEDULES: tuple[Schedule[ReduceProblem, _ReduceUnits], ...] = register(
    Schedule(
        "reduce",
        "along",
        lambda problem: _along(problem, _packed(problem, problem.step.source, problem.step.axes[-1])),
        "rows that lie in memory in units: an invocation or a workgroup takes a row unit by unit, or a part of one",
    ),
    Schedule(
        "reduce",
        "across",
        lambda problem: _across(problem, _outer_dimension(problem)),
        "adjacent elements in memory belong to different rows: an invocation walks several rows side by side",
    ),
    Schedule(
        "reduce",
        "elements",
        lambda problem: _along(problem, problem.step.source),
        "an invocation or a workgroup takes a row element by element, or a part of one",
    ),
)
"""Schedules of reductions, in the order in which they are tried: the units of their first kernel. Each takes two
kernels, partial results and theirs, if rows are too long for one or too few to keep the adapter busy."""


def _kernels(problem: ReduceProblem, units: _ReduceUnits) -> ScheduledSteps:
    """Return the kernel that reduces rows in some units, or the kernels with partial results."""
    step, target = problem.step, problem.target
    reduction, output = step.reduction, step.output
    if output.lanes > 1 and units.across is not None and units.parts == 1:
        # A result of several numbers is stored by an invocation that takes a single row.
        units = replace(units, source=step.source, output=output, across=None, width=1)
    first = _ReduceKernel(step, units.source, units.output, units.schedule)
    reason = _why(step, units)
    if units.parts == 1:
        return ScheduledSteps((first.scheduled(target, units),)).because(reason)
    partials = _partials(reduction, output, units.parts, is_outermost=units.across is not None)
    first = replace(first, output=partials, schedule=ReduceSchedule.PARTIAL)
    return ScheduledSteps((first.scheduled(target, units),)).because(reason) + _combined(step, partials, target)


def _why(step: Reduce, units: _ReduceUnits) -> str:
    """Return the reason for the units and parts of a row."""
    rows = math.prod(step.output.sizes)
    count = math.prod(units.source.sizes[axis] for axis in step.axes)
    what = f"{rows:,} rows of {count:,} units"
    beside = "; adjacent elements belong to different rows, walked side by side" if units.across is not None else ""
    if units.parts > 1:
        return f"{what}: {units.parts} partial results of each keep the adapter busy and walks short{beside}"
    alone = (
        "are short enough for one invocation each"
        if units.schedule is ReduceSchedule.SERIAL
        else "take a workgroup each"
    )
    return f"{what} {alone}{beside}"


@dataclass(frozen=True)
class _ReduceKernel:
    """One of the kernels of a reduction."""

    step: Reduce
    source: Source
    output: PlanTensor
    schedule: ReduceSchedule
    of_partials: bool = False

    def scheduled(self, target: Target, units: _ReduceUnits | None = None) -> ScheduledReduce:
        """Return the kernel with its walk and its launch."""
        step, across = self.step, None if units is None else units.across
        if units is not None and across is not None:
            walk = choose_walk(self._walkers(across, -(-self.source.sizes[across] // units.width)))
            launch = loop_launch(walk.count, target)
        else:
            walk = choose_walk(self.output)
            launch = self._launch(walk, target)
        label = f"{self.schedule.value}{' of partials' if self.of_partials else ''}"
        return ScheduledReduce(
            f"{step.label} {label}".strip(),
            launch,
            self.output,
            step.reduction.file,
            step.source.data_type,
            computed(self.source),
            step.axes,
            self.schedule,
            walk,
            self.of_partials,
            step.reduction.constants,
            step.reduction.portable,
            across,
            1 if units is None else units.width,
            units.together if units is not None and self.schedule is ReduceSchedule.PARTIAL else 0,
            None if self.schedule is ReduceSchedule.PARTIAL else step.epilogue,
            self._group(target) if across is None else 0,
            self._compared() if across is None else 0,
            self._ahead(across, target),
            not target.needs_many_invocations,
        )

    def _ahead(self, across: int | None, target: Target) -> int:
        """Return the units that an invocation reads before it merges them."""
        if not target.needs_many_invocations:
            return 1
        walks_partials = self.of_partials and self.schedule is ReduceSchedule.SERIAL
        return AHEAD_ON_GPU if across is not None else PARTIALS_AHEAD_ON_GPU if walks_partials else 1

    def _group(self, target: Target) -> int:
        """Return the units that an invocation of a CPU adapter lifts at once: if it reads a tensor along its row,
        iterates long enough, and has float64."""
        is_plain = isinstance(self.source, PlanTensor) and not self.of_partials
        is_fit = target.runs_in_lockstep and target.has("shader-f64")
        if not (self.step.reduction.file in ABSORBING and is_plain and is_fit):
            return 0
        units = math.prod(self.source.sizes[axis] for axis in self.step.axes)
        walkers = self.output.sizes[-1] if self.schedule is ReduceSchedule.PARTIAL else 1
        group = AT_ONCE // self.source.lanes
        return group if units >= 2 * group * walkers else 0

    def _compared(self) -> int:
        """Return the units that a loop along a row compares at once; 0 if it merges elements."""
        if self.of_partials or self.step.reduction.file not in RANKED_IN_UNITS:
            return 0
        count = math.prod(self.source.sizes[axis] for axis in self.step.axes)
        in_units = self.source.lanes > 1
        several = self.schedule is ReduceSchedule.SERIAL and count >= (COMPARED if in_units else WORTH_COMPARING)
        return COMPARED if several else int(in_units)

    def _launch(self, walk: Walk, target: Target) -> Launch:
        items, axes = walk.items(self.output), self.step.axes
        count = self.source.sizes[-1] if self.of_partials else math.prod(self.source.sizes[axis] for axis in axes)
        if self.schedule is ReduceSchedule.TREE:
            return row_launch(items, count, target)
        is_light = count <= SHORT and not walk.by_words and not self.of_partials  # few partial sums remain
        return (map_launch if is_light else loop_launch)(items, target)

    def _walkers(self, across: int, count: int) -> PlanTensor:
        """Return the partial results as units of a tensor: those of adjacent rows are adjacent, those of a row far
        apart."""
        sizes = (*self.output.sizes[:across], count, *self.output.sizes[across + 1 :])
        others = (dimension for dimension in range(len(self.source.sizes)) if dimension != across)
        partials = range(len(self.source.sizes), len(sizes))
        strides, reach = [0] * len(sizes), 1
        for dimension in (across, *reversed(tuple(others)), *partials):
            strides[dimension], reach = reach, reach * sizes[dimension]
        return PlanTensor(self.output.binding, DataType.UINT32, sizes, tuple(strides))


def canonical(
    source: Source, axes: Sequence[int], output: PlanTensor, *, ordered: bool = True, epilogue: Body | None = None
) -> tuple[Source, tuple[int, ...], PlanTensor, Body | None]:
    """Return the same reduction of an element-wise tree with merged dimensions: kept ones first, reduced ones last.

    Args:
        ordered: the row-major order over the axes, and so the numbers that ARGMIN gives, stay as they are. Else the
            axes are in memory order, so that more of them merge.
        epilogue: a tree over the output.
    """
    reduced = sorted(axes)
    if not ordered and isinstance(source, PlanTensor):
        reduced.sort(key=lambda axis: -abs(source.strides[axis]))
    beside = () if epilogue is None else leaves(epilogue)
    others, rows = row_groups(source.sizes, reduced, list(leaves(source)), [output, *beside])
    merged = merge_tensor(output, others)
    return (
        merge_tree(source, others + rows),
        tuple(range(len(others), len(others) + len(rows))),
        replace(merged, sizes=merged.sizes + (1,) * len(rows), strides=merged.strides + (0,) * len(rows)),
        None if epilogue is None else merge_tree(epilogue, others + rows),
    )


# ---- units


@dataclass(frozen=True)
class _ReduceUnits:
    """A reduction in the units of its first kernel.

    Attributes:
        source: packed if possible.
        output: packed like the source if its lanes lie across rows and there are no partial results.
        across, width, together: as for ``plan.Reduce``.
        parts, schedule: partial results per row, and the schedule if one is enough.
    """

    source: Source
    output: PlanTensor
    parts: int
    schedule: ReduceSchedule
    together: int
    across: int | None = None
    width: int = 1


def _along(problem: ReduceProblem, source: Source | None) -> _ReduceUnits | Condition:
    """Return the units of kernels whose invocations, or groups of them, reduce one row each."""
    if source is None:
        return no("elements of a row are no whole units in memory")
    rows, count = problem.rows_and_count(source.sizes)
    in_units = -(-count // UNIT) if problem.is_single else count
    parts, together = _shares(choose_parts(rows, in_units, problem.target), SIDE_BY_SIDE, problem.target)
    schedule = ReduceSchedule.PARTIAL if parts > 1 else choose_schedule(rows, count, problem.target)
    return _ReduceUnits(source, problem.step.output, parts, schedule, together)


def _across(problem: ReduceProblem, across: int | None) -> _ReduceUnits | Condition:
    """Return the units of kernels whose invocations reduce several rows each, along a dimension, if they can store
    results without tearing a word."""
    if across is None:
        return no("no dimension across rows is contiguous in memory")
    source, output, epilogue = problem.step.source, problem.step.output, problem.step.epilogue
    packed = _packed(problem, source, across) or source
    width = _width(problem, packed, across)
    sizes = (*packed.sizes[:across], -(-packed.sizes[across] // width), *packed.sizes[across + 1 :])
    rows, count = problem.rows_and_count(sizes)
    parts = choose_parts(rows, count, problem.target, outer=True)
    parts, together = _shares(parts, max(1, SIDE_BY_SIDE // rows), problem.target)
    units = _ReduceUnits(packed, output, parts, ReduceSchedule.SERIAL, together, across, width)
    bits = output.data_type.bits
    if parts > 1 or problem.is_piece:
        return units
    whole_words = packed.lanes * bits >= WORD_BITS  # else adjacent units would share words
    is_packed = packed.lanes > 1 and epilogue is None and bits < 64 and whole_words
    if is_packed and packs_tensor(output, across, packed.lanes):
        return replace(units, output=pack_tensor(output, across, packed.lanes))
    return units if bits >= WORD_BITS else no("results of adjacent rows share words")


def _outer_dimension(problem: ReduceProblem) -> int | None:
    """Return the dimension that is contiguous in memory if it is not reduced, else None."""
    source, axes = problem.step.source, problem.step.axes
    if isinstance(source, PlanTensor):
        running = running_dimension(source)
        return running if running is not None and running < axes[0] else None
    return next((d for d in reversed(range(axes[0])) if _packed(problem, source, d) is not None), None)


def _packed(problem: ReduceProblem, source: Source, dimension: int) -> Source | None:
    """Return the source in units along a dimension."""
    if problem.is_single:
        return None
    if isinstance(source, PlanTensor) and not source.strides[dimension]:
        return None  # one repeated element is not a unit
    for lanes in (4, 2):
        if packs_source(source, dimension, lanes):
            return pack_source(source, dimension, lanes)
    return None


def _width(problem: ReduceProblem, source: Source, dimension: int) -> int:
    """Return the number of adjacent units per invocation: on CPU adapters 64 bytes, a cache line, if that is worth a
    larger kernel. Accumulators beyond what registers hold would cost more than they gain."""
    if problem.target.needs_many_invocations or math.prod(source.sizes) < WORTH_WIDTH:
        return 1
    line = LINE_BITS // (source.data_type.bits * source.lanes)
    held = REGISTERS // (source.lanes * problem.step.reduction.lanes)
    return max(1, min(line, held, source.sizes[dimension]))


def _shares(parts: int, together: int, target: Target) -> tuple[int, int]:
    """Return the number of partial results, rounded to whole runs, and the number per run: on GPUs all of a row."""
    if not target.runs_in_lockstep:
        return parts, parts
    together = min(parts, together)
    return -(-parts // together) * together, together


def _partials(reduction: Reduction, output: PlanTensor, parts: int, *, is_outermost: bool) -> PlanTensor:
    """Return the accumulators of every row: adjacent are those of a row, or those of adjacent rows."""
    sizes = (*output.sizes, parts)
    strides = (*packed_strides(output.sizes), math.prod(output.sizes)) if is_outermost else packed_strides(sizes)
    return PlanTensor.temporary("partial results", reduction.accumulator, sizes, strides, lanes=reduction.lanes)


# ---- sizes


SERIAL_ON_CPU = 16384
"""Maximum row length for one invocation on a CPU adapter."""

SERIAL_ON_GPU = 32
TREE_ON_GPU = 65536
PARTS_IN_FLIGHT = 1024
"""Number of partial results that fill the lanes and threads of a CPU adapter."""

SIDE_BY_SIDE = 8
"""Number of invocations that a CPU adapter runs in lockstep. They should access adjacent memory, not different
pages."""

LINE_BITS = 512
REGISTERS = 32
"""Maximum numbers in the accumulators of an invocation that fit in registers of a CPU adapter."""

WORTH_WIDTH = 1 << 15
"""Minimum units of a tensor for which reading cache lines saves a CPU adapter more than the larger kernel takes to
compile."""

WORTH_PARTS = 2048
"""Maximum units that one kernel reduces about as fast as two on a CPU adapter."""

AT_ONCE = 16
"""Count of numbers that an invocation of a CPU adapter takes at once."""

WORTH_SHARING = 1024
"""Minimum units of a row (a few pages of memory) for which invocations of a CPU adapter should interleave."""

WALKS_ON_GPU = 1 << 17
"""Number of invocations on interleaved rows that fill a GPU."""

AHEAD_ON_GPU, PARTIALS_AHEAD_ON_GPU = 4, 8
"""Units, and partial results, that each of them reads at once, to hide memory latency."""


def choose_parts(rows: int, count: int, target: Target, *, outer: bool = False) -> int:
    """Return the number of partial results per row; 1 means that a single step is enough.

    Args:
        count: Units in a row.
        outer: Whether adjacent elements in memory belong to different rows, so that invocations should interleave rows
            instead of sharing one.
    """
    if not target.needs_many_invocations:
        few = rows < 64 and rows * count > WORTH_PARTS
        for_lanes = min(-(-count // 64), PARTS_IN_FLIGHT // rows) if few else 1
        is_long = count >= WORTH_SHARING and rows * count >= WORTH_WIDTH
        for_pages = SIDE_BY_SIDE if is_long and not outer else 1
        parts = max(-(-count // _longest_walk(target)), for_lanes, for_pages)
    elif outer:
        parts = max(-(-count // SERIAL_ON_CPU), min(-(-count // SERIAL_ON_GPU), -(-WALKS_ON_GPU // rows)))
    else:
        parts = 1 if count <= TREE_ON_GPU else min(TREE_ON_GPU, -(-count // 256))
    return max(1, min(parts, count))


def _longest_walk(target: Target) -> int:
    """Return the maximum units per invocation: a few such loops stay below the target's loop limit."""
    return SERIAL_ON_CPU if target.loop_limit is None else min(SERIAL_ON_CPU, target.loop_limit // 4)


def choose_schedule(rows: int, count: int, target: Target, *, outer: bool = False) -> ReduceSchedule:
    """Return whether an invocation or a workgroup reduces a row."""
    return choose(ROW_SCHEDULES, RowProblem(rows, count, outer, target))


@dataclass(frozen=True)
class RowProblem:
    """Rows that are reduced as a whole.

    Attributes:
        rows: Number of rows.
        count: Units in each.
        outer: As for ``choose_parts``.
    """

    rows: int
    count: int
    outer: bool
    target: Target
    label: str = ""


def _walks_to_the_end(problem: RowProblem) -> Condition:
    limit = problem.target.loop_limit
    return YES if limit is None else at_most(problem.count, limit // 4, "units of a row, because the driver ends loops")


def _pays_serial(problem: RowProblem) -> Condition:
    """Return whether rows are enough, or short."""
    walks = not problem.target.needs_many_invocations or (problem.outer and problem.rows >= PARTS_IN_FLIGHT)
    return at_most(problem.count, SERIAL_ON_CPU if walks else SERIAL_ON_GPU, "units of a row")


ROW_SCHEDULES: tuple[Schedule[RowProblem, ReduceSchedule], ...] = register(
    Schedule(
        "row",
        "serial",
        lambda problem: ReduceSchedule.SERIAL,
        "an invocation takes a row",
        fits=_walks_to_the_end,
        pays=_pays_serial,
    ),
    Schedule("row", "tree", lambda problem: ReduceSchedule.TREE, "a workgroup takes a row"),
)
"""Schedules of a row that is reduced as a whole, in the order in which they are tried."""
