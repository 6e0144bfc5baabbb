"""Maps: element by element, with special schedules for transposes, gathers of blocks, and contiguous runs."""

from __future__ import annotations

import functools
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import Body, Map, PlanTensor, View, apply, constants, element
from dmlgpu.compiler.rewrites.collapse import collapse
from dmlgpu.compiler.rewrites.packing import UNIT, WIDEST_UNIT_BITS, pack
from dmlgpu.compiler.rewrites.resampling import split_repeats
from dmlgpu.compiler.rewrites.sources import (
    CONVERT,
    HARDMAX,
    HARDMAX_FLAT,
    MERGE,
    computed,
    fold_views,
    is_cheap,
    is_costly,
    leaves,
    nodes,
)
from dmlgpu.compiler.rewrites.windows import WINDOW_SUM
from dmlgpu.compiler.schedule.copies import (
    find_blocks,
    find_interleave,
    find_transpose,
    find_word_rows,
    run_of_words,
    tighten_binding,
)
from dmlgpu.compiler.schedule.launch import Launch, Walk, choose_walk, loop_launch, map_launch, strided_launch
from dmlgpu.compiler.schedule.quantized import find_dequantized
from dmlgpu.compiler.schedule.resampling import find_antialiased, find_downsample, find_upsample
from dmlgpu.compiler.schedule.runs import find_runs
from dmlgpu.compiler.schedule.scheduling import Candidate, first_fitting, schedule_step
from dmlgpu.compiler.schedule.steps.base import KernelStep, ScheduledSteps
from dmlgpu.compiler.schedule.steps.maps import WORDS, ScheduledMap
from dmlgpu.compiler.target import Profile, Target


class MapProblem:
    """A map and its target, in the forms that schedules inspect."""

    def __init__(self, step: Map, target: Target):
        self.step, self.target = step, target

    @functools.cached_property
    def merged(self) -> tuple[Body, PlanTensor]:
        """Body and output with views folded into strides and dimensions merged."""
        folded, output = split_repeats(fold_views(self.step.body), self.step.output)
        merged = collapse(folded if folded.moves else computed(folded), output, keeps_ones=self.step.is_once)
        return tighten_binding(*merged)

    @functools.cached_property
    def packed(self) -> tuple[Body, PlanTensor]:
        """Body and output with elements packed into units."""
        body, output = pack(*self.merged)
        return body, replace(output, view=View.RAW if body.moves else View.COMPUTE)

    @functools.cached_property
    def run(self) -> int | None:
        """Dimension along which a copy of bytes can move whole words."""
        return run_of_words(*self.packed, self.target)


def _single(kernel: KernelStep | None) -> ScheduledSteps | None:
    return None if kernel is None else ScheduledSteps((kernel,))


MAP_SCHEDULES: tuple[Candidate[MapProblem, ScheduledSteps], ...] = (
    Candidate(
        "upsample",
        "resampling by whole factors: every output element of an input element has constant weights",
        lambda problem: _single(find_upsample(problem.step, problem.target)),
    ),
    Candidate(
        "downsample",
        "antialiased resampling by a whole factor: all output elements have the same weights",
        lambda problem: _single(find_downsample(problem.step, problem.target)),
    ),
    Candidate(
        "antialiased",
        "other antialiased resampling on CPU adapters: weights are computed once for several elements",
        lambda problem: find_antialiased(problem.step, problem.target),
    ),
    Candidate(
        "transpose",
        "plain copies between memory along different dimensions: square tiles in registers",
        lambda problem: _single(
            find_transpose(problem.step.label, *problem.merged, problem.target, keeps_ones=problem.step.is_once)
        ),
    ),
    Candidate(
        "interleave",
        "plain copies between planes and groups of few elements: whole units on both sides",
        lambda problem: _single(find_interleave(problem.step.label, *problem.merged, problem.target)),
    ),
    Candidate(
        "dequantize",
        "words of quantized columns into memory contiguous across columns: each word is read once",
        lambda problem: _single(find_dequantized(problem.step, problem.target)),
    ),
    Candidate(
        "blocks",
        "lookups of whole blocks on CPU adapters: where a block lies is computed once",
        lambda problem: _single(find_blocks(problem.step.label, *problem.packed, problem.target)),
    ),
    Candidate(
        "runs",
        "arithmetic on CPU adapters with operands that are the same along a dimension: these are read once",
        lambda problem: (
            None
            if problem.step.keeps_neighbors
            else _single(find_runs(problem.step.label, *problem.packed, problem.target))
        ),
    ),
    Candidate(
        "word rows",
        "copies of bytes on CPU adapters in rows that have words of their own: whole words are copied",
        lambda problem: _single(find_word_rows(problem.step, *problem.packed, problem.run, problem.target)),
    ),
    Candidate("map", "everything else: every unit by itself", lambda problem: ScheduledSteps((_units(problem),))),
)
"""Schedules of maps, in the order in which they are tried."""


@schedule_step.register
def _map(step: Map, target: Target) -> ScheduledSteps:
    _check_loops(step.body, target)
    body, output = _flat_hardmax(step.body, step.output)
    return first_fitting(MAP_SCHEDULES, MapProblem(replace(step, body=body, output=output), target))


def _check_loops(body: Body, target: Target) -> None:
    """Raise NotSupported if the driver would stop the loop over a window before its end."""
    limit = target.loop_limit
    for node in nodes(body) if limit is not None else ():
        if isinstance(node, Body) and node.file == WINDOW_SUM:
            axis, before, after = (dict(node.constants)[name] for name in ("axis", "before", "after"))
            longest = min(before + after + 1, node.sizes[axis])
            if limit is not None and longest > limit:
                raise NotSupported(
                    f"a region of {longest} elements in a row exceeds the loops that {target.name!r} runs to their end"
                    f" ({limit})"
                )


def _flat_hardmax(body: Body, output: PlanTensor) -> tuple[Body, PlanTensor]:
    """Return the body that compares indices in rows that no unit divides, and the output as one row, which units
    divide; other maps unchanged."""
    if body.file != HARDMAX or output.rank != 2 or dict(body.constants)["axes"] != (1,):
        return body, output
    rows, columns = output.sizes
    divides = columns % UNIT == 0 or rows * columns % UNIT != 0
    if divides or columns < UNIT or output.strides != (columns, 1):
        return body, output
    (first,) = body.children
    assert isinstance(first, PlanTensor)
    places = replace(first, sizes=(rows,), strides=first.strides[:1], view=View.INDEX)
    flat = replace(output, sizes=(rows * columns,), strides=(1,))
    values = constants(columns=columns)
    ones = element(HARDMAX_FLAT, DataType.UINT32, flat.sizes, portable=True, values=values, first=places)
    return apply(CONVERT, output.data_type, flat.sizes, portable=True, input=ones), flat


def _units(problem: MapProblem) -> ScheduledMap:
    """Return the map unit by unit."""
    step, target, (body, output) = problem.step, problem.target, problem.packed
    walk, costly = choose_walk(output, step.keeps_neighbors), is_costly(body)
    run = problem.run if walk.by_words else None
    items = walk.items(output)
    launch = _launch(step, walk, (body, output), items if run is None else -(-items // WORDS), target)
    together = "an invocation reads several units before it writes one, so that it waits once" * launch.strided
    reason = "; ".join(filter(None, (_why_units(output), walk.reason, together)))
    return ScheduledMap(
        step.label, launch, output, body, walk, costly, run, least_copy=target.least_copy, reason=reason
    )


def _launch(step: Map, walk: Walk, packed: tuple[Body, PlanTensor], items: int, target: Target) -> Launch:
    """Return the launch of a map; GPUs take several units of narrow types at once, if computing on them is cheap. A map
    that runs once, or sums in a loop, takes one unit at a time: several would be compiled one by one."""
    body, output = packed
    if step.is_once or is_costly(body) or any(isinstance(node, Body) and node.file == MERGE for node in nodes(body)):
        return loop_launch(items, target)
    is_dense = output.unit_bits >= WORD_BITS and not walk.exchange
    if target.profile is Profile.CPU or not is_dense or not is_cheap(body):
        return map_launch(items, target)
    widest = max((tensor.unit_bits for tensor in leaves(body)), default=WIDEST_UNIT_BITS)
    return strided_launch(items, max(1, WIDEST_UNIT_BITS // widest), target)


def _why_units(output: PlanTensor) -> str:
    if output.lanes > 1:
        return f"{output.lanes} elements are contiguous in all tensors, and become one unit"
    return "no unit of several elements fits all tensors"
