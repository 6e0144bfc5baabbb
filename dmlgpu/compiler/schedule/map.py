"""Maps: element by element, with special schedules for transposes, gathers of blocks, and contiguous runs."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import Body, Map, PlanTensor, View, constants, element
from dmlgpu.compiler.rewrites.collapse import collapse
from dmlgpu.compiler.rewrites.packing import UNIT, WIDEST_UNIT_BITS, pack, running_dimension
from dmlgpu.compiler.rewrites.resampling import split_repeats
from dmlgpu.compiler.rewrites.sources import (
    HARDMAX,
    HARDMAX_FLAT,
    MERGE,
    cast,
    computed,
    fold_views,
    is_cheap,
    is_costly,
    leaves,
    nodes,
)
from dmlgpu.compiler.rewrites.windows import WINDOW_SUM
from dmlgpu.compiler.schedule.copies import (
    blocks_pay,
    find_interleave,
    find_transpose,
    find_word_rows,
    has_blocks,
    run_of_words,
    schedule_blocks,
    tighten_binding,
)
from dmlgpu.compiler.schedule.launch import (
    FULL_CARD,
    Launch,
    Walk,
    choose_walk,
    loop_launch,
    map_launch,
    strided_launch,
)
from dmlgpu.compiler.schedule.quantized import find_dequantized
from dmlgpu.compiler.schedule.registry import (
    CPU,
    GPUS,
    Condition,
    Schedule,
    at_least,
    choose,
    found,
    only_if,
    register,
)
from dmlgpu.compiler.schedule.resampling import find_antialiased, find_downsample, find_upsample
from dmlgpu.compiler.schedule.runs import can_run, runs_pay, schedule_runs
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.steps.base import KernelStep, ScheduledSteps
from dmlgpu.compiler.schedule.steps.maps import WORDS, ScheduledMap
from dmlgpu.compiler.schedule.units import LOOPED, MAPS, ONCE, reads_single
from dmlgpu.compiler.target import Target


class MapProblem:
    """A map and its target, in the forms that schedules inspect."""

    def __init__(self, step: Map, target: Target):
        self.step, self.target, self.label = step, target, step.label

    @functools.cached_property
    def split(self) -> tuple[Body, PlanTensor]:
        """Body and output with views folded into strides, and a dimension for elements that are repeated."""
        return split_repeats(fold_views(self.step.body), self.step.output)

    @functools.cached_property
    def merged(self) -> tuple[Body, PlanTensor]:
        """The same with dimensions merged."""
        folded, output = self.split
        merged = collapse(folded if folded.moves else computed(folded), output, keeps_ones=self.step.is_once)
        return tighten_binding(*merged)

    @functools.cached_property
    def packed(self) -> tuple[Body, PlanTensor]:
        """Body and output with elements packed into units."""
        body, output = self.merged
        if not self.is_single:
            body, output = pack(body, output)
        return body, replace(output, view=View.RAW if body.moves else View.COMPUTE)

    @functools.cached_property
    def is_single(self) -> bool:
        """Whether elements that have words of their own are read one by one."""
        output = self.merged[1]
        run, elements = running_dimension(output), math.prod(output.sizes)
        repeats = self.split[1].rank > self.step.output.rank  # as often for all sizes
        if run is None or output.data_type.bits < WORD_BITS or repeats:
            return False
        if self.step.is_once:
            return reads_single(1, elements, ONCE, self.target)
        return reads_single(output.sizes[run], elements, MAPS, self.target)

    @functools.cached_property
    def run(self) -> int | Condition:
        """Dimension along which a copy of bytes can move whole words."""
        return run_of_words(*self.packed)

    @functools.cached_property
    def walk(self) -> Walk:
        """Order in which the units of the output are visited."""
        return choose_walk(self.packed[1], self.step.keeps_neighbors)

    @property
    def items(self) -> int:
        """Number of words or units of the output."""
        return self.walk.items(self.packed[1])

    @functools.cached_property
    def is_light(self) -> bool:
        """Whether an invocation may take several units, which are compiled one by one: not if the map runs once, or
        sums in a loop."""
        body = self.packed[0]
        merges = any(isinstance(node, Body) and node.file == MERGE for node in nodes(body))
        return not (self.step.is_once or is_costly(body) or merges)

    def launch(self, items: int) -> Launch:
        """Return the launch for a number of words or units."""
        if not self.is_light:
            return loop_launch(items, self.target)
        return replace(map_launch(items, self.target), in_loop=reads_single(1, items, LOOPED, self.target))

    @property
    def strided(self) -> int:
        """Number of units of narrow types that an invocation takes at once."""
        widest = max((tensor.unit_bits for tensor in leaves(self.packed[0])), default=WIDEST_UNIT_BITS)
        return max(1, WIDEST_UNIT_BITS // widest)


def _owns_all_bits(problem: MapProblem) -> Condition:
    return only_if(not problem.step.keeps_neighbors, "bits between its elements belong to other steps")


def _can_be_strided(problem: MapProblem) -> Condition:
    """Return whether invocations may take units a workgroup apart."""
    is_dense = problem.packed[1].unit_bits >= WORD_BITS and not problem.walk.exchange
    return only_if(problem.is_light, "it runs once, or sums in a loop") and only_if(is_dense, "units share words")


def _pays_strided(problem: MapProblem) -> Condition:
    """Return whether invocations with several units read them faster, and still fill a GPU."""
    return (
        only_if(is_cheap(problem.packed[0]), "elements are expensive")
        and only_if(problem.strided > 1, "units have 16 bytes")
        and at_least(problem.items, FULL_CARD * problem.strided, "units")
    )


MAP_SCHEDULES: tuple[Schedule[MapProblem, KernelStep | ScheduledSteps], ...] = register(
    Schedule(
        "map",
        "upsample",
        lambda problem: find_upsample(problem.step, problem.target),
        "resampling by whole factors: every output element of an input element has constant weights",
    ),
    Schedule(
        "map",
        "downsample",
        lambda problem: find_downsample(problem.step, problem.target),
        "antialiased resampling by a whole factor: all output elements have the same weights",
    ),
    Schedule(
        "map",
        "antialiased",
        lambda problem: find_antialiased(problem.step, problem.target),
        "other antialiased resampling: weights are computed once for several elements",
        profiles=CPU,
    ),
    Schedule(
        "map",
        "transpose",
        lambda problem: find_transpose(problem.label, *problem.merged, problem.target, keeps_ones=problem.step.is_once),
        "plain copies between memory along different dimensions: square tiles in registers",
        pays=lambda problem: only_if(not problem.is_single, "sizes vary, and its elements are few"),
    ),
    Schedule(
        "map",
        "interleave",
        lambda problem: find_interleave(problem.label, *problem.merged, problem.target),
        "plain copies between planes and groups of few elements: whole units on both sides",
    ),
    Schedule(
        "map",
        "dequantize",
        lambda problem: find_dequantized(problem.step, problem.target),
        "words of quantized columns into memory contiguous across columns: each word is read once",
    ),
    Schedule(
        "map",
        "blocks",
        lambda problem: schedule_blocks(problem.label, *problem.packed, problem.target),
        "lookups of whole blocks: where a block lies is computed once",
        fits=lambda problem: has_blocks(*problem.packed),
        pays=lambda problem: blocks_pay(problem.packed[1]),
        profiles=CPU,
    ),
    Schedule(
        "map",
        "runs",
        lambda problem: schedule_runs(problem.label, *problem.packed, problem.target),
        "arithmetic with operands that are the same along a dimension: these are read once",
        fits=lambda problem: _owns_all_bits(problem) and can_run(*problem.packed),
        pays=lambda problem: runs_pay(*problem.packed),
        profiles=CPU,
    ),
    Schedule(
        "map",
        "word-rows",
        lambda problem: find_word_rows(problem.step, *problem.packed, problem.run, problem.target),
        "copies of bytes in rows that have words of their own: whole words are copied",
        profiles=CPU,
    ),
    Schedule(
        "map",
        "words",
        lambda problem: _units(problem, problem.launch(-(-problem.items // WORDS)), by_words=True),
        "copies of bytes whose rows share words: an invocation copies several whole words",
        fits=lambda problem: found(problem.run) and only_if(problem.walk.by_words, "words are far apart"),
        profiles=CPU,
    ),
    Schedule(
        "map",
        "strided",
        lambda problem: _units(problem, strided_launch(problem.items, problem.strided, problem.target)),
        "cheap arithmetic on narrow types: an invocation reads several units before it writes one, and waits once",
        fits=_can_be_strided,
        pays=_pays_strided,
        profiles=GPUS,
    ),
    Schedule(
        "map",
        "map",
        lambda problem: _units(problem, problem.launch(problem.items)),
        "every unit by itself",
    ),
)
"""Schedules of maps, in the order in which they are tried."""


@schedule_step.register
def _map(step: Map, target: Target) -> ScheduledSteps:
    _check_loops(step.body, target)
    body, output = _flat_hardmax(step.body, step.output)
    scheduled = choose(MAP_SCHEDULES, MapProblem(replace(step, body=body, output=output), target))
    return scheduled if isinstance(scheduled, ScheduledSteps) else ScheduledSteps((scheduled,))


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
    return cast(ones, output.data_type), flat


def _units(problem: MapProblem, launch: Launch, *, by_words: bool = False) -> ScheduledMap:
    """Return the map unit by unit."""
    step, (body, output), walk = problem.step, problem.packed, problem.walk
    run = problem.run if by_words else None
    assert not isinstance(run, Condition)
    together = "an invocation reads several units before it writes one, so that it waits once" * launch.strided
    reason = "; ".join(filter(None, (_why_units(output), walk.reason, together)))
    least_copy = problem.target.least_copy
    return ScheduledMap(
        step.label, launch, output, body, walk, is_costly(body), run, least_copy=least_copy, reason=reason
    )


def _why_units(output: PlanTensor) -> str:
    if output.lanes > 1:
        return f"{output.lanes} elements are contiguous in all tensors, and become one unit"
    return "no unit of several elements fits all tensors"
