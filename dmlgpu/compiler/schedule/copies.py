"""Copies that are faster by tiles, blocks or rows than unit by unit.

- Transposed copies: the contiguous dimension differs from the source's. Element by element, such a copy touches a cache
  line per element; a square tile of units, in registers, is read and written in whole units.
- Interleaved copies: planes on one side, groups of their elements on the other (channels of pixels). A unit of each
  plane, and the units of their groups, are read and written as such.
- Gathers of blocks: on a CPU adapter an invocation copies a whole block and looks up its index once.
- Rows of words: copies of bytes on CPU adapters read and write whole words.

Copies bind only the range that they touch, from near the first element of each tensor on. Views that differ only in
their offset then have kernels of equal source, compiled once, and a part of a tensor that is too large for one binding
can be copied as well.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import Body, Lookup, Map, PlanTensor, Source, View, row_sizes
from dmlgpu.compiler.rewrites.packing import UNIT, pack_tensor, packs_tensor, running_dimension
from dmlgpu.compiler.rewrites.sources import is_identity
from dmlgpu.compiler.schedule.launch import choose_walk, item_launch, loop_launch, map_launch
from dmlgpu.compiler.schedule.registry import Condition, at_least, at_most, no, only_if
from dmlgpu.compiler.schedule.splitting import tightened
from dmlgpu.compiler.schedule.steps.maps import (
    WORDS,
    ScheduledBlocks,
    ScheduledInterleave,
    ScheduledTranspose,
    ScheduledWordRows,
    TileDigit,
)
from dmlgpu.compiler.target import Target

SQUARE = 8
"""Tiles along each side of the square of tiles that adjacent invocations handle."""

_LANES = {8: 4, 16: 4, 32: 4, 64: 2}
"""Largest unit by the bits of an element."""

NO_COPY = no("it is no plain copy of a tensor")
NOT_TRANSPOSED = no("both sides are contiguous along the same dimension, or along none")


def find_transpose(
    label: str, body: Body, output: PlanTensor, target: Target, *, keeps_ones: bool = False
) -> ScheduledTranspose | Condition:
    """Return the copy as tiles, if it is a plain one whose two running dimensions differ and divide into tiles.

    Args:
        label, body, output, target: of the copy.
        keeps_ones: whether its kernel has the same source where a dimension has a single tile.
    """
    if not is_identity(body) or not isinstance(source := body.inputs[0][1], PlanTensor) or source.view is not View.RAW:
        return NO_COPY
    widest = _LANES.get(bits := output.data_type.bits)
    inner, outer = running_dimension(output), running_dimension(source)
    if widest is None or inner is None or outer is None or inner == outer:
        return NOT_TRANSPOSED
    units = [lanes for lanes in (widest, 2) if lanes * bits >= WORD_BITS]
    whole = (lanes for lanes in units if packs_tensor(source, outer, lanes) and packs_tensor(output, inner, lanes))
    if (lanes := next(whole, None)) is None:
        return no("rows are no whole units of {} elements", units[-1])
    if lanes < widest and not isinstance(find_interleave(label, body, output, target), Condition):
        return no("planes and groups of few elements are copied in larger units")
    tiles = {d: size // lanes if d in (inner, outer) else size for d, size in enumerate(output.sizes)}
    launch = item_launch(math.prod(tiles.values()), target)
    packed = replace(pack_tensor(output, inner, lanes), view=View.RAW)
    digits = tuple(digit for digit in _digits(tiles, outer, inner) if keeps_ones or digit.count > 1)
    source = pack_tensor(source, outer, lanes)
    reason = f"a plain copy from memory along dimension {outer} to memory along {inner}: square tiles in registers"
    return ScheduledTranspose(label, launch, packed, source, outer, inner, digits, reason=reason)


def _digits(tiles: dict[int, int], outer: int, inner: int) -> tuple[TileDigit, ...]:
    """Squares of tiles first, so that adjacent invocations share cache lines of input and output; then the rest.

    Consecutive invocations write to the same cache line and read from different rows: partial writes of a line cost
    more than partial reads, most of all if row strides are powers of two and rows compete for the same cache sets.
    """
    near = {d: min(tiles[d] & -tiles[d], SQUARE) for d in (outer, inner)}  # powers of two
    digits = [TileDigit(d, near[d], 1) for d in (inner, outer)]
    digits += [TileDigit(d, tiles[d] // near[d], near[d]) for d in (outer, inner)]
    digits += [TileDigit(d, tiles[d], 1) for d in sorted(tiles, reverse=True) if d not in (outer, inner)]
    return tuple(digits)


MAX_PLANES = 8
"""Planes of which an invocation holds a unit each in registers. Copies of 2 to 7 planes take 0.37 to 0.7 of the time on
lavapipe, for elements of 8 to 64 bits."""


def find_interleave(label: str, body: Body, output: PlanTensor, target: Target) -> ScheduledInterleave | Condition:
    """Return the copy in whole units, if it is a plain one between planes and dense groups of one element per plane."""
    if not is_identity(body) or not isinstance(source := body.inputs[0][1], PlanTensor) or source.view is not View.RAW:
        return NO_COPY
    inner, outer, lanes = running_dimension(output), running_dimension(source), _LANES.get(output.data_type.bits)
    if lanes is None or inner is None or outer is None or inner == outer:
        return NOT_TRANSPOSED
    for splits, planar, grouped, dimension, planes in (
        (True, output, source, inner, outer),
        (False, source, output, outer, inner),
    ):
        count, joined = grouped.sizes[planes], _joined(grouped, dimension, planes)
        if count > MAX_PLANES or grouped.strides[dimension] != count:
            continue
        if packs_tensor(planar, dimension, lanes) and packs_tensor(joined, dimension, lanes):
            units, groups = (replace(pack_tensor(t, dimension, lanes), view=View.RAW) for t in (planar, joined))
            written, read = (units, groups) if splits else (groups, units)
            walk = choose_walk(replace(units, sizes=row_sizes(units.sizes, (planes,))))
            what = f"groups of {count} become planes" if splits else f"{count} planes become groups"
            why = f"a plain copy, {what}: an invocation reads and writes {count} whole units"
            launch = item_launch(walk.count, target)
            return ScheduledInterleave(label, launch, written, read, walk, dimension, planes, count, splits, reason=why)
    return no("neither side is dense groups of at most {} elements in whole units of {}", MAX_PLANES, lanes)


def _joined(grouped: PlanTensor, dimension: int, planes: int) -> PlanTensor:
    """Return the elements of all groups in sequence, along the dimension of the groups."""
    count = grouped.sizes[planes]
    sizes = tuple({dimension: n * count, planes: 1}.get(d, n) for d, n in enumerate(grouped.sizes))
    return replace(
        grouped, sizes=sizes, strides=tuple(1 if d == dimension else n for d, n in enumerate(grouped.strides))
    )


SHORTEST_BLOCK, LONGEST_BLOCK = 32, 1024
"""Units of a block below which a single lookup gains nothing, and above which lookups cost nothing."""

MIN_BLOCKS = 256
"""Number of blocks that keep all threads and lanes of an adapter busy."""


def has_blocks(body: Body, output: PlanTensor) -> Condition:
    """Return whether a packed body copies blocks as a whole."""
    if not isinstance(body, Lookup) or output.unit_bits < WORD_BITS:
        return no("it is no lookup of whole words")
    return only_if(body.follows[0][_innermost(output)] is not None, "elements are looked up one by one")


def blocks_pay(output: PlanTensor) -> Condition:
    """Return whether blocks are so long that a single lookup gains, and enough."""
    inner = _innermost(output)
    units, count = output.sizes[inner], math.prod(row_sizes(output.sizes, (inner,)))
    return (
        at_least(units, SHORTEST_BLOCK, "units of a block")
        and at_most(units, LONGEST_BLOCK, "units of a block")
        and at_least(count, MIN_BLOCKS, "blocks")
    )


def _innermost(output: PlanTensor) -> int:
    wide = [dimension for dimension in range(output.rank) if output.sizes[dimension] > 1]
    return min(wide, key=lambda dimension: output.strides[dimension], default=0)


def schedule_blocks(label: str, body: Body, output: PlanTensor, target: Target) -> ScheduledBlocks:
    """Return the blocks that a packed body copies."""
    assert isinstance(body, Lookup)
    inner = _innermost(output)
    followed = body.follows[0][inner]
    assert followed is not None
    walk = choose_walk(replace(output, sizes=row_sizes(output.sizes, (inner,))))
    reason = (
        f"{walk.count:,} blocks of {output.sizes[inner]} units, on a CPU adapter: where a block lies is looked up once"
    )
    launch = loop_launch(walk.count, target)
    return ScheduledBlocks(label, launch, output, body, walk, inner, followed, reason=reason)


# ---- rows of words


SHORTEST_WORD_RUN = 8
"""Minimum words of a run, so that few of them are at its ends."""


def run_of_words(body: Body, output: PlanTensor) -> int | Condition:
    """Return the dimension along which a copy of bytes can move whole words, if there are enough. 16-bit elements gain
    nothing."""
    run, is_bytes = running_dimension(output), WORD_BITS // output.unit_bits == UNIT
    if not is_bytes or run is None or not is_identity(body):
        return no("it is no copy of contiguous bytes")
    source = body.children[0]
    if not isinstance(source, PlanTensor) or source.strides[run] != 1 or source.unit_bits != output.unit_bits:
        return no("bytes are not contiguous on both sides")
    return at_least(output.sizes[run], SHORTEST_WORD_RUN * UNIT, "bytes of a row") and run


def find_word_rows(
    step: Map, body: Body, output: PlanTensor, run: int | Condition, target: Target
) -> ScheduledWordRows | Condition:
    """Return the copy row by row, if no rows share words. It touches no word that is not its own, regardless of the
    distance between rows."""
    if isinstance(run, Condition):
        return run
    blocks, words = _own_blocks(output, run, WORDS * UNIT), _own_blocks(output, run, UNIT)
    wide = blocks is not None and target.has("shader-int64") and _ends_in_blocks(body.children[0], output)
    walked = blocks if wide else words
    if walked is None:
        return no("rows share words")
    units = WORDS * UNIT if wide else UNIT
    sizes = walked.sizes if wide else tuple(-(-n // WORDS) if d == run else n for d, n in enumerate(walked.sizes))
    walk = choose_walk(replace(walked, sizes=sizes))
    first = output.offset % units
    rows = ScheduledWordRows(
        step.label, map_launch(walk.count, target), output, body, walk, run, first, step.keeps_neighbors, wide
    )
    count, description = walked.sizes[run], "blocks of 16 bytes" if wide else "words"
    at_once = "" if wide else f", {WORDS} of which an invocation copies at once"
    return replace(rows, reason=f"each row has {count} {description} of its own{at_once}")


def _own_blocks(output: PlanTensor, run: int, units: int) -> PlanTensor | None:
    """Return a tensor of bytes as one of blocks of ``units`` bytes; None if its rows share blocks."""
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
    return PlanTensor(output.binding, DataType.UINT32, sizes, tuple(strides))


def _ends_in_blocks(source: Source, output: PlanTensor) -> bool:
    """Return whether the bound ranges hold whole 64-bit numbers of the source, and whole blocks of the output."""
    assert isinstance(source, PlanTensor)
    return source.reach % 8 == 0 and output.reach % 16 == 0


# ---- bindings


def tighten_binding(body: Body, output: PlanTensor) -> tuple[Body, PlanTensor]:
    """Return a plain copy with both tensors bound close to their first elements; other trees unchanged."""
    if not is_identity(body) or not isinstance(source := body.inputs[0][1], PlanTensor):
        return body, output
    if source.binding == output.binding:
        return body, output
    return body.over([tightened(source)]), tightened(output)
