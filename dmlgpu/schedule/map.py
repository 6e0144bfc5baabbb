"""Maps: every element by itself; plain transposes, gathers of blocks and runs of neighbours in ways of their own."""

from __future__ import annotations

from dataclasses import replace

from dmlgpu.enums import DataType
from dmlgpu.kernels.collapse import collapse
from dmlgpu.kernels.packing import UNIT, pack, running_dimension
from dmlgpu.kernels.regions import is_costly
from dmlgpu.kernels.repeats import split_repeats
from dmlgpu.kernels.sources import computed, fold_views, is_identity
from dmlgpu.plan import Body, Map, Source, Tensor, View
from dmlgpu.schedule.antialiased import find_antialiased
from dmlgpu.schedule.blocks import find_blocks
from dmlgpu.schedule.downsample import find_downsample
from dmlgpu.schedule.launch import loop_launch, map_launch
from dmlgpu.schedule.ranges import near_copy
from dmlgpu.schedule.runs import find_runs
from dmlgpu.schedule.scheduling import schedule_step
from dmlgpu.schedule.steps import ScheduledMap, ScheduledWordRows, Steps
from dmlgpu.schedule.steps.maps import WORDS
from dmlgpu.schedule.transpose import find_transpose
from dmlgpu.schedule.upsample import find_upsample
from dmlgpu.schedule.walk import choose_walk
from dmlgpu.target import Profile, Target
from dmlgpu.tensor import WORD_BITS


@schedule_step.register
def _map(step: Map, target: Target) -> Steps:
    """Return the rewriting of the tree, in this order: views become strides, dimensions merge, elements become
    units."""
    resampled = _resampled(step, target)
    if resampled is not None:
        return resampled
    folded, output = split_repeats(fold_views(step.body), step.output)
    body, output = near_copy(*collapse(folded if folded.moves else computed(folded), output))
    transpose = find_transpose(step.label, body, output, target)
    if transpose is not None:
        return Steps((transpose,))
    body, output = pack(body, output)
    output = replace(output, view=View.RAW if body.moves else View.COMPUTE)
    blocks = find_blocks(step.label, body, output, target)
    if blocks is not None:
        return Steps((blocks,))
    runs = None if step.keeps_neighbours else find_runs(step.label, body, output, target)
    if runs is not None:
        return Steps((runs,))
    run = _run_of_words(body, output, target)
    rows = None if run is None else _rows_of_words(step, body, output, run, target)
    if rows is not None:
        return Steps((rows,))
    walk = choose_walk(output, step.keeps_neighbours)
    run = run if walk.by_words else None
    items = walk.items(output)
    costly = is_costly(body)
    launch = (loop_launch if costly else map_launch)(items if run is None else -(-items // WORDS), target)
    reason = "; ".join(filter(None, (_why_units(output), walk.reason)))
    return Steps((ScheduledMap(step.label, launch, output, body, walk, costly, run, reason=reason),))


def _resampled(step: Map, target: Target) -> Steps | None:
    """Return the kernel of a map that resamples in one of the ways that are its own."""
    found = find_upsample(step, target) or find_downsample(step, target)
    return find_antialiased(step, target) if found is None else Steps((found,))


SHORTEST_RUN = 8
"""Words of a run below which too many lie at its ends."""


def _run_of_words(body: Body, output: Tensor, target: Target) -> int | None:
    """Return the dimension along which a copy of bytes finds whole words; None where it finds few, for halves of words,
    where that gains nothing, and on GPUs."""
    run, is_bytes = running_dimension(output), WORD_BITS // output.unit_bits == UNIT
    if target.profile is not Profile.CPU or not is_bytes or run is None or not is_identity(body):
        return None
    source = body.children[0]
    if not isinstance(source, Tensor) or source.strides[run] != 1 or source.unit_bits != output.unit_bits:
        return None
    return run if output.sizes[run] >= SHORTEST_RUN * UNIT else None


def _rows_of_words(step: Map, body: Body, output: Tensor, run: int, target: Target) -> ScheduledWordRows | None:
    """Return the copy row by row; None where rows share words. It goes through no word that is not its own, however
    many lie between the rows."""
    blocks, words = _own_blocks(output, run, WORDS * UNIT), _own_blocks(output, run, UNIT)
    wide = blocks is not None and target.has("shader-int64") and _ends_in_blocks(body.children[0], output)
    walked = blocks if wide else words
    if walked is None:
        return None
    units = WORDS * UNIT if wide else UNIT
    sizes = walked.sizes if wide else tuple(-(-n // WORDS) if d == run else n for d, n in enumerate(walked.sizes))
    walk = choose_walk(replace(walked, sizes=sizes))
    first = output.offset % units
    rows = ScheduledWordRows(
        step.label, map_launch(walk.count, target), output, body, walk, run, first, step.keeps_neighbours, wide
    )
    count, what = walked.sizes[run], "blocks of 16 bytes" if wide else "words"
    at_once = "" if wide else f", {WORDS} of which an invocation copies at once"
    return replace(rows, reason=f"each row has {count} {what} of its own{at_once}")


def _own_blocks(output: Tensor, run: int, units: int) -> Tensor | None:
    """Return a tensor of bytes as one of blocks of so many; None where its rows share blocks."""
    count = -(-(output.offset % units + output.sizes[run]) // units)
    reach = count
    strides = [0] * output.rank
    others = (d for d in range(output.rank) if d != run and output.sizes[d] > 1)
    for dimension in sorted(others, key=lambda d: output.strides[d]):
        strides[dimension], rest = divmod(output.strides[dimension], units)
        if rest or strides[dimension] < reach:
            return None
        reach += (output.sizes[dimension] - 1) * strides[dimension]
    strides[run] = 1
    sizes = tuple(count if d == run else size for d, size in enumerate(output.sizes))
    return Tensor(output.binding, DataType.UINT32, sizes, tuple(strides))


def _ends_in_blocks(source: Source, output: Tensor) -> bool:
    """Return whether what is bound holds whole 64-bit numbers of the source, and whole blocks of the output."""
    assert isinstance(source, Tensor)
    return source.reach % 8 == 0 and output.reach % 16 == 0


def _why_units(output: Tensor) -> str:
    if output.lanes > 1:
        return f"{output.lanes} neighbours lie together in all tensors, and become one unit"
    return "no unit of several elements fits all tensors"
