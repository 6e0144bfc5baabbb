"""Rows: reductions of each row and then each of its elements (softmax, normalizations). If a row is short enough for
one invocation or subgroup (CPU adapters) or one workgroup (GPUs), one kernel does it all. Else each stage becomes a
separate reduction, with partial results, and a map ends it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import TypeAlias

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import (
    Body,
    Map,
    PlanTensor,
    RegisterValue,
    Rows,
    Source,
    Stage,
    apply,
    reduce_stage,
    row_sizes,
)
from dmlgpu.compiler.rewrites.collapse import merge_tensor, merge_tree, row_groups
from dmlgpu.compiler.rewrites.packing import pack_along, pack_source, pack_tensor, packs_source, packs_tensor
from dmlgpu.compiler.rewrites.sources import is_elementwise, leaves, rewrite, sameness
from dmlgpu.compiler.schedule.launch import Launch, Walk, choose_walk, fold, loop_launch, row_launch
from dmlgpu.compiler.schedule.reduce import AT_ONCE, canonical_reduce, choose_parts, choose_schedule, limited
from dmlgpu.compiler.schedule.registry import CPU, Condition, Schedule, at_least, at_most, choose, no, only_if, register
from dmlgpu.compiler.schedule.runs import fixed_leaves
from dmlgpu.compiler.schedule.scheduling import schedule_in_parts, schedule_step
from dmlgpu.compiler.schedule.splitting import exceeds_binding
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.reductions import ReduceSchedule, ScheduledRows
from dmlgpu.compiler.schedule.units import MAPS, reads_single
from dmlgpu.compiler.target import Target

_Named: TypeAlias = tuple[tuple[str, PlanTensor], ...]

SUBGROUP = 8
"""Number of invocations of a workgroup that store rows together: a subgroup, or two of half the size; or that hold
them, if all are one subgroup."""

LIFTS_MANY = (
    "normalization/mean_square",
    "normalization/moments",
    "softmax/log_total",
    "softmax/maximum",
    "softmax/total",
)
"""Stages whose shaders also have ``lift<count>`` for each ``count`` in ``counts``, which lifts an array of ``count``
numbers: that costs less than to lift and merge each."""

AT_ONCE_STAGES = {
    ("softmax/maximum", "softmax/total"): Stage("weights", "softmax/weights", 3, parts=("maximum", "total")),
    ("normalization/moments",): Stage(
        "moments", "normalization/moments_at_once", 4, parts=("mean", "lack", "variance"), longest=1024
    ),
}
"""Stage that computes the results of several stages in one pass over the row, by their shaders, for an invocation that
takes a whole row. Its shader has ``run_t``, ``open``, ``finish`` and, for each ``count`` in ``counts``,
``absorb<count>``, which takes ``count`` numbers. Without it an invocation computes one stage after the other."""

RUN, RUNS = "reduction/run", {"normalization/moments": "normalization/moments_run"}
"""Shader with ``run_t``, ``open``, ``absorb`` and ``close``, with which one invocation takes a few numbers
sequentially; and, by the shaders of stages, others. ``close`` gives an ``acc_t``."""

WORTH_TOGETHER = 1 << 13
"""Minimum units of all rows for which storing rows together saves more time than it takes to compile."""

WIDE = 4
"""Elements of a unit that an invocation stores about as fast without help."""

MAX_HELD = 32
"""Maximum numbers of a row in registers of one invocation."""

MAX_HELD_BY_SUBGROUP = 128
"""Maximum numbers for an invocation of a subgroup on a CPU adapter; half as many for float16. Numbers spilled from
registers stay in the nearest cache, and compile time is proportional to their number."""

MIN_HELD_BY_SUBGROUP = 2
"""Minimum units per invocation, below which a subgroup spends its time on exchanging results."""

WORTH_HOLDING = 4
"""Minimum rows for each number that an invocation holds, below which compile time outweighs the gain."""

ROWS_OF_A_SUBGROUP, WORKGROUPS = 32, 32
"""Maximum rows that a subgroup takes sequentially, which amortizes the start of a kernel, and the workgroups that
keep CPUs busy."""


class RowsProblem:
    """Rows with merged dimensions, and their target."""

    def __init__(self, step: Rows, target: Target):
        self.rows, self.target, self.label = _merged(step), target, step.label

    @functools.cached_property
    def packed(self) -> tuple[Rows, int | None]:
        """Rows with elements packed into units, and the dimension of these."""
        rows = self.rows
        body, output, dimension = _pack(rows, self.target)
        packed = replace(rows, body=body, output=output)
        if dimension is None:
            return packed, None
        packed = replace(packed, source=pack_source(rows.source, dimension, output.lanes))
        if dimension < rows.axes[0]:
            statistics = tuple(pack_source(tree, dimension, output.lanes) for tree in rows.statistics)
            outputs = tuple(pack_tensor(stored, dimension, output.lanes) for stored in rows.statistic_outputs)
            packed = replace(packed, statistics=statistics, statistic_outputs=outputs)
        return packed, dimension

    @property
    def is_single(self) -> bool:
        """Whether elements are read one by one because rows are short."""
        output = self.rows.output
        return reads_single(output.sizes[self.rows.axes[-1]], math.prod(output.sizes), MAPS, self.target)

    @property
    def is_along(self) -> bool:
        """Whether the lanes of a unit belong to one row."""
        dimension = self.packed[1]
        return dimension is None or dimension >= self.rows.axes[0]

    @property
    def count(self) -> int:
        """Number of rows, or of units of adjacent rows."""
        rows, _ = self.packed
        return math.prod(rows.source.sizes[: rows.axes[0]])

    @property
    def units(self) -> int:
        """Units of a row."""
        rows, _ = self.packed
        return math.prod(rows.source.sizes[axis] for axis in rows.axes)

    @functools.cached_property
    def walk(self) -> Walk:
        """Order in which the rows of the output are visited."""
        rows, _ = self.packed
        return choose_walk(replace(rows.output, sizes=row_sizes(rows.output.sizes, rows.axes)))


def _merged(step: Rows) -> Rows:
    """Return the rows with merged dimensions: those across rows first, those along them last, in their order."""
    tensors = [*leaves(step.source), step.output, *leaves(step.body)]
    of_rows = [*step.statistic_outputs, *(leaf for tree in step.statistics for leaf in leaves(tree))]
    across, along = row_groups(step.source.sizes, sorted(step.axes), tensors, of_rows)
    groups = across + along
    return replace(
        step,
        source=merge_tree(step.source, groups),
        axes=tuple(range(len(across), len(groups))),
        body=merge_tree(step.body, groups),
        output=merge_tensor(step.output, groups),
        statistics=tuple(merge_tree(tree, groups) for tree in step.statistics),
        statistic_outputs=tuple(merge_tensor(stored, groups) for stored in step.statistic_outputs),
    )


# ---- one kernel


def _fits_whole(problem: RowsProblem) -> Condition:
    """Return whether rows are short enough for one kernel, and share no words of the output."""
    rows, _ = problem.packed
    if not (words := _has_whole_words(rows)):
        return words
    is_whole = choose_parts(problem.count, problem.units, problem.target) == 1
    return only_if(is_whole, "{:,} x {:,} units: rows are too few, or too long", problem.count, problem.units)


def _can_store_together(problem: RowsProblem) -> Condition:
    """Return whether the invocations of a subgroup can store their rows together."""
    (rows, _), target = problem.packed, problem.target
    if not (whole := _fits_whole(problem)):
        return whole
    if choose_schedule(problem.count, problem.units, target) is not ReduceSchedule.SERIAL or not problem.is_along:
        return no("an invocation does not take one row")
    if problem.is_single:
        return no("rows are short, and sizes vary")
    if not (target.runs_in_lockstep and target.has("subgroup")):
        return no("a workgroup is not a subgroup")
    contiguous = rows.output.strides[rows.axes[-1]] == 1 and not problem.walk.gaps
    return only_if(is_elementwise(rows.body) and contiguous, "rows are not contiguous, or read other elements")


def _pays_to_store_together(problem: RowsProblem) -> Condition:
    """Return whether there is enough work, and rows share operands or their units are small."""
    rows, _ = problem.packed
    least = max(WORTH_TOGETHER, SUBGROUP * problem.walk.count)
    return at_least(math.prod(rows.output.sizes), least, "units") and only_if(
        rows.output.lanes < WIDE or shared_leaves(rows.body, rows.axes), "rows share no operand, and units are wide"
    )


def _whole_rows(problem: RowsProblem, *, together: bool = False) -> ScheduledSteps:
    """Return a single kernel.

    Args:
        problem: The rows.
        together: Whether the invocations of a subgroup store their rows together.
    """
    (rows, _), along, target = problem.packed, problem.is_along, problem.target
    source, body, output, axes, units = rows.source, rows.body, rows.output, rows.axes, problem.units
    schedule, walk = choose_schedule(problem.count, units, target), problem.walk
    across, held, group, stages = not along, 0, 0, rows.stages
    if schedule is ReduceSchedule.SERIAL:
        launch = loop_launch(walk.count, target)
        at_once = AT_ONCE_STAGES.get(tuple(stage.file for stage in stages))
        if at_once is not None and target.runs_in_lockstep:
            group, stages = min(AT_ONCE // output.lanes, units), (at_once,)
    else:
        launch = row_launch(walk.count, units, target)
        held = -(-units // launch.workgroup)
        held = held if held * output.lanes <= MAX_HELD else 0
    who = "an invocation" if schedule is ReduceSchedule.SERIAL else "a workgroup"
    reason = f"rows of {units:,} units are short enough for {who} to reduce and store in one kernel"
    if together:
        gain = "and read once what these share" if shared_leaves(body, axes) else "whose units are small"
        reason += f"; adjacent invocations store their rows together, {gain}"
    kernel = ScheduledRows(
        schedule.value,
        launch,
        output,
        stages,
        source,
        axes,
        *_read_once(source, body, axes, together=together),
        schedule,
        walk,
        across,
        held,
        group,
        SUBGROUP // 2 if together else 0,
        runs=tuple(RUNS.get(stage.file, RUN) for stage in stages),
        statistics=_statistics(rows),
        reason=reason + ("; it keeps them in registers" if held else ""),
    )
    return ScheduledSteps((kernel,))


def _can_be_held(problem: RowsProblem) -> Condition:
    """Return whether subgroups can hold rows in registers, and read only what their lanes hold."""
    (rows, _), target = problem.packed, problem.target
    output, body, axes = rows.output, rows.body, rows.axes
    if not _has_whole_words(rows) or not problem.is_along:
        return no("units of a row are no whole words")
    if problem.is_single:
        return no("rows are short, and sizes vary")
    if not (target.has("subgroup") and target.subgroup_lanes >= SUBGROUP):
        return no("no subgroups of {} lanes", SUBGROUP)
    if output.strides[axes[-1]] != 1 or not all(stage.file in LIFTS_MANY for stage in rows.stages):
        return no("rows are not contiguous, or no shader lifts many elements at once")
    simple = not problem.walk.gaps and is_elementwise(body) and not shared_leaves(body, axes)
    return only_if(simple, "rows have gaps, or share parameters")


def _pays_to_hold(problem: RowsProblem) -> Condition:
    """Return whether rows are neither too long for registers nor so few that compilation takes longer."""
    units, output = problem.units, problem.packed[0].output
    numbers, limit = -(-units // SUBGROUP) * output.lanes, MAX_HELD_BY_SUBGROUP * output.data_type.bits // WORD_BITS
    return (
        at_least(units, MIN_HELD_BY_SUBGROUP * SUBGROUP, "units of a row")
        and at_most(numbers, limit, "numbers per invocation")
        and at_least(problem.walk.count, WORTH_HOLDING * numbers, "rows")
        and at_least(problem.walk.count * units, WORTH_TOGETHER, "units of all rows")
    )


def _held_by_subgroups(problem: RowsProblem) -> ScheduledSteps:
    """Return the kernel whose subgroups hold rows in registers: loaded elements, and values that several stages compute
    from an element, are shared by all stages."""
    (rows, _), units, walk, target = problem.packed, problem.units, problem.walk, problem.target
    output, body, axes = rows.output, rows.body, rows.axes
    turns = max(1, min(ROWS_OF_A_SUBGROUP, walk.count // WORKGROUPS))
    launch = Launch(SUBGROUP, turns, fold(-(-walk.count // turns), target), walk.count)
    kernel = ScheduledRows(
        "subgroup",
        launch,
        output,
        rows.stages,
        rows.source,
        axes,
        *_read_once(rows.source, body, axes, together=False),
        ReduceSchedule.SUBGROUP,
        walk,
        held=-(-units // SUBGROUP),
        group=max(1, AT_ONCE // output.lanes),
        statistics=_statistics(rows),
        reason=f"subgroups of {SUBGROUP} keep rows of {units:,} units in registers, and take {turns} of them in turn",
    )
    return ScheduledSteps((kernel,))


def _read_once(
    source: Source, body: Body, axes: tuple[int, ...], *, together: bool
) -> tuple[Body, PlanTensor | RegisterValue, _Named, _Named]:
    """Return the body on the reduced source, the leaf that represents it, and the leaves that are read once for a row
    and for rows that are stored together."""
    if isinstance(source, PlanTensor | RegisterValue):
        element: PlanTensor | RegisterValue = source
    else:
        same = sameness()
        element = RegisterValue("unit", source.data_type, source.sizes, lanes=source.lanes)
        body = rewrite(body, lambda node: element if same(node, source) else node)
    fixed = tuple((name, leaf) for name, leaf in fixed_leaves(body, axes) if leaf != element)
    shared = tuple((name, leaf) for name, leaf in shared_leaves(body, axes) if leaf != element) if together else ()
    return body, element, fixed, shared


def shared_leaves(body: Body, axes: tuple[int, ...]) -> list[tuple[str, PlanTensor]]:
    """Return name and tensor of each leaf in memory that varies along a row, but is the same in all rows."""
    alone = {leaf for _, leaf in fixed_leaves(body, axes)}
    shared = [leaf for _, leaf in fixed_leaves(body, range(axes[0])) if leaf not in alone]
    return [(f"shared{index}", leaf) for index, leaf in enumerate(shared)]


def _statistics(rows: Rows) -> tuple[tuple[Body, PlanTensor], ...]:
    return tuple(zip(rows.statistics, rows.statistic_outputs, strict=True))


def _has_whole_words(rows: Rows) -> Condition:
    """Return whether no two units of the output, or of a statistic, share a word."""
    outputs = (rows.output, *rows.statistic_outputs)
    return only_if(all(stored.unit_bits >= WORD_BITS for stored in outputs), "elements share words")


def _pack(rows: Rows, target: Target) -> tuple[Body, PlanTensor, int | None]:
    """Return body and output in units along the rows, or else, for invocations that take whole rows, across them; and
    the dimension of these units."""
    body, output, axes = rows.body, rows.output, rows.axes
    dimensions = [axes[-1]]
    if axes[0] and choose_schedule(1, math.prod(output.sizes[axis] for axis in axes), target) is ReduceSchedule.SERIAL:
        dimensions.append(axes[0] - 1)
    for dimension in dimensions:
        is_whole = output.data_type.bits >= WORD_BITS
        if is_whole and reads_single(output.sizes[dimension], math.prod(output.sizes), MAPS, target):
            continue
        packed = pack_along(body, output, dimension)
        if packed is not None and (dimension >= axes[0] or _packs_statistics(rows, dimension, packed[1].lanes)):
            return *packed, dimension
    return body, output, None


def _packs_statistics(rows: Rows, dimension: int, lanes: int) -> bool:
    """Return whether statistics can be stored in units across rows."""
    trees = all(packs_source(tree, dimension, lanes) for tree in rows.statistics)
    return trees and all(packs_tensor(stored, dimension, lanes) for stored in rows.statistic_outputs)


# ---- a kernel per stage


def _split_rows(problem: RowsProblem) -> ScheduledSteps:
    """Return a reduction per stage with results in temporary tensors, and a map."""
    rows, target = problem.rows, problem.target
    steps = ScheduledSteps()
    results: dict[str, Source] = {}
    for stage in rows.stages:
        source: Source = rows.source
        if stage.prepare:
            inputs = {"input": rows.source, **results}
            source = apply(stage.prepare, DataType.FLOAT32, rows.source.sizes, portable=True, values=(), **inputs)
        step, result = reduce_stage(stage, source, rows.axes)
        longest = step.reduction.longest
        steps += canonical_reduce(step, target if longest is None else limited(target, 4 * longest))
        results |= result

    def replaced(node: Source) -> Source:
        return replace(results[node.name], sizes=node.sizes) if isinstance(node, RegisterValue) else node

    stored = zip((rows.body, *rows.statistics), (rows.output, *rows.statistic_outputs), strict=True)
    maps = [Map("map", rewrite(tree, replaced), output) for tree, output in stored]
    split = "rows are long, or share words of the output: each stage is a reduction of its own, then maps"
    return sum((schedule_in_parts(each, target) for each in maps), steps).because(split)


# ---- the choice


ROWS_SCHEDULES: tuple[Schedule[RowsProblem, ScheduledSteps], ...] = register(
    Schedule(
        "rows",
        "subgroup",
        _held_by_subgroups,
        "many rows of moderate length: a subgroup holds a row in registers and reads it once",
        fits=_can_be_held,
        pays=_pays_to_hold,
        profiles=CPU,
    ),
    Schedule(
        "rows",
        "together",
        lambda problem: _whole_rows(problem, together=True),
        "rows that share operands, or of small units: the invocations of a subgroup store their rows together",
        fits=_can_store_together,
        pays=_pays_to_store_together,
        profiles=CPU,
    ),
    Schedule(
        "rows",
        "whole",
        _whole_rows,
        "rows that one invocation or one workgroup reduces and stores in one kernel",
        fits=_fits_whole,
    ),
    Schedule(
        "rows",
        "split",
        _split_rows,
        "long rows, and rows that share words of the output: each stage is a reduction of its own, then maps",
    ),
)
"""Schedules of rows, in the order in which they are tried."""


@schedule_step.register
def _rows(step: Rows, target: Target) -> ScheduledSteps:
    problem = RowsProblem(step, target)
    return _split_rows(problem) if exceeds_binding(step, target) else choose(ROWS_SCHEDULES, problem)
