"""Attention by cooperative matrices, on adapters with matrix units (``Target.matrices``).

Scores and sums of values are float32. Queries, keys, values and weights have the type of the matrices, as the operands
of products have (``cooperative``). Keys and values are computed on the way to workgroup memory, such as dequantized
integers. Few rows, and heads that are not in units of four, keep the schedules of ``attention``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.cards import card_of
from dmlgpu.compiler.plan import Attend, Body, RegisterValue, Source
from dmlgpu.compiler.rewrites.packing import UNIT, pack_source, packs_source
from dmlgpu.compiler.rewrites.sources import CONVERT, JOINED, cast
from dmlgpu.compiler.schedule.cooperative import float_units
from dmlgpu.compiler.schedule.cost import rounds
from dmlgpu.compiler.schedule.launch import Launch, fold, shuffling_lanes
from dmlgpu.compiler.schedule.operands import pack_output
from dmlgpu.compiler.schedule.registry import Condition, at_least, no, only_if
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.cooperative import PADDING, SUBGROUPS, ScheduledCooperativeAttend
from dmlgpu.compiler.schedule.steps.products import Operand, OperandLayout
from dmlgpu.compiler.sizes.arithmetic import decided, value_of
from dmlgpu.compiler.target import Matrices, Target

FLOAT16, FLOAT32 = DataType.FLOAT16, DataType.FLOAT32

BLOCK = 32
"""Keys of a block: whole matrices of all adapters."""

TILES = ((2, 1), (2, 2), (1, 1), (1, 2))
"""Matrices along the rows of a subgroup, and subgroups that share rows, the largest tile first. Each matrix of keys or
values that is loaded is multiplied by all matrices of rows. If two subgroups share rows, each has half of the keys of a
block, and sums of half of the columns. If registers suffice for all columns, each sums the values of its own keys,
because it needs no weights of others then, and the sums are added at the end."""

MAX_HELD = 24
"""Matrices of queries and of sums that a subgroup holds in registers: two thirds of them on RDNA, half on NVIDIA."""

MIN_KEYS = 32
"""Minimum keys: a whole block."""

_SMALL = 16
"""Bytes of workgroup memory in addition to arrays: votes, the keys that rows see."""


@dataclass(frozen=True)
class MatrixTile:
    """Tile of a workgroup of four subgroups.

    Attributes:
        down: Matrices along the rows of a subgroup.
        across: Subgroups that share rows.
    """

    down: int
    across: int

    def rows(self, matrices: Matrices) -> int:
        """Return the rows of a workgroup."""
        return SUBGROUPS // self.across * self.down * matrices.rows


def fits_attention(step: Attend, target: Target) -> Condition:
    """Return whether an adapter has matrix units for attention, and heads are in units of four elements."""
    matrices = _units_of(step, target)
    if matrices is None:
        return no("the adapter has no usable matrix units for its numbers")
    sources = (step.query, step.key, step.value)
    return (
        only_if(not target.keeps_digits, "matrix units may lose digits, which the device forbids")
        and only_if(BLOCK % matrices.columns == 0, "blocks of keys are no whole matrices")
        and at_least(target.max_workgroup_invocations, SUBGROUPS * matrices.lanes, "invocations of a workgroup")
        and only_if(target.loop_limit is None, "the driver stops long loops")
        and only_if(
            all(source.data_type in (FLOAT16, FLOAT32) for source in sources),
            "queries, keys or values are neither float16 nor float32",
        )
        and only_if(all(map(packs_along, sources)), "heads are not in units of {}", UNIT)
        and only_if(_tiles(step, target), "heads are too wide for the registers of a subgroup")
    )


def _units_of(step: Attend, target: Target) -> Matrices | None:
    return float_units((step.query, step.key, step.value), target)


def fills_attention(step: Attend, target: Target) -> Condition:
    """Return whether rows fill half a tile or more, and keys a block."""
    matrices = _units_of(step, target)
    assert matrices is not None
    rows = SUBGROUPS * matrices.rows
    return at_least(step.rows, rows // 2, "rows") and at_least(step.keys, MIN_KEYS, "keys")


def matrix_tile(step: Attend, target: Target) -> MatrixTile:
    """Return the tile that takes the least time on the target's card."""
    head, columns = value_of(step.query.sizes[-1]), value_of(step.output.sizes[-1])
    tiles: tuple[MatrixTile, ...] = tuple(_tiles(step, target))
    work = step.batches, step.rows, head, columns
    return decided(_fastest, target, _units_of(step, target), tiles, *work)


def _tiles(step: Attend, target: Target) -> list[MatrixTile]:
    """Return the tiles for which registers and memory suffice."""
    matrices = _units_of(step, target)
    assert matrices is not None
    return [
        tile
        for tile in (MatrixTile(*tile) for tile in TILES)
        if _shares(tile, matrices)
        and _held(tile, step, matrices) <= MAX_HELD
        and _memory(tile, step, matrices) <= target.max_workgroup_storage
    ]


def _fastest(target: Target, matrices: Matrices, tiles: Sequence[MatrixTile], *work: int) -> MatrixTile:
    """Return the tile with the lowest cost, the first one of equal ones. Large ones multiply more per load, but may
    leave cores of the card idle.

    Args:
        target: The compile target.
        matrices: Its matrix units that multiply.
        tiles: Tiles that fit.
        work: Batches and heads, rows of each, and elements of a query and of a value.
    """
    card, (batches, rows, head, columns) = card_of(target), work

    def cost(tile: MatrixTile) -> float:
        """Return the number of matrices that a subgroup multiplies and loads per block, and of units of scores that an
        invocation reads, of all workgroups of the busiest core: each takes about as long as the others."""
        groups = batches * -(-rows // tile.rows(matrices))
        keys, weights = BLOCK // (tile.across * matrices.columns), BLOCK // matrices.steps
        scored = keys * -(-head // matrices.steps)
        weighted = weights * -(-columns // (tile.across * matrices.columns))
        parts = tile.across if _splits_keys(tile, matrices, head, columns) else 1
        loads = scored + weighted + weights // parts * tile.down + BLOCK // UNIT
        return float(rounds(groups, card.cores, card) * (tile.down * (scored + weighted) + loads))

    return min(tiles, key=cost)


def _shares(tile: MatrixTile, matrices: Matrices) -> bool:
    """Return whether the invocations of a workgroup share the scores of its rows evenly, in units of four keys, and
    subgroups that share rows the keys of a block."""
    workgroup, rows = SUBGROUPS * matrices.lanes, tile.rows(matrices)
    is_whole = BLOCK % (tile.across * matrices.columns) == 0
    return is_whole and workgroup % rows == 0 and BLOCK // UNIT % (workgroup // rows) == 0


def _splits_keys(tile: MatrixTile, matrices: Matrices, head: int, columns: int) -> bool:
    """Return whether subgroups that share rows sum the values of their own keys, and all columns: if they save loads of
    several matrices of weights, have registers for the sums, and all invocations of a row have sums to add."""
    held = tile.down * (-(-head // matrices.steps) + -(-columns // matrices.columns))
    sharing = SUBGROUPS * matrices.lanes // tile.rows(matrices)
    are_whole = BLOCK // tile.across % matrices.steps == 0 and BLOCK // UNIT % (sharing * tile.across) == 0
    return tile.across > 1 and tile.down > 1 and held <= MAX_HELD and are_whole


def _held(tile: MatrixTile, step: Attend, matrices: Matrices) -> int:
    """Return the matrices of queries and of sums of a subgroup."""
    head, columns = value_of(step.query.sizes[-1]), value_of(step.output.sizes[-1])
    return tile.down * (-(-head // matrices.steps) + -(-columns // (tile.across * matrices.columns)))


def _memory(tile: MatrixTile, step: Attend, matrices: Matrices) -> int:
    """Return the bytes of workgroup memory for scores, weights, and keys or values of a block."""
    head, columns = value_of(step.query.sizes[-1]), value_of(step.output.sizes[-1])
    parts = tile.across if _splits_keys(tile, matrices, head, columns) else 1
    rows, width, line = tile.rows(matrices), tile.across // parts * matrices.columns, BLOCK + parts * PADDING
    head, columns = -(-head // matrices.steps) * matrices.steps, -(-columns // width) * width
    values = columns * line if matrices.turns else BLOCK * (columns + tile.across // parts * PADDING)
    slab = max(BLOCK * (head + PADDING), values)
    return 4 * rows * BLOCK + matrices.element_bytes * (rows * line + slab) + _SMALL


def packs_along(source: Source) -> bool:
    """Return whether units of four along the last dimension can be read at once."""
    last = len(source.sizes) - 1
    return source.sizes[last] % UNIT == 0 and packs_source(source, last, UNIT)


def cooperative_attention(step: Attend, tile: MatrixTile, target: Target) -> ScheduledSteps:
    """Return the kernel of attention on matrix units."""
    matrices, output = _units_of(step, target), step.output
    assert matrices is not None
    rows = tile.rows(matrices)
    epilogue, packed_output = pack_output(cast(RegisterValue.product(FLOAT32, output.sizes), output.data_type), output)
    total = step.batches * -(-step.rows // rows)
    kernel = ScheduledCooperativeAttend(
        "cooperative attention",
        Launch(SUBGROUPS * matrices.lanes, 1, fold(total, target), total, shuffling_lanes(target)),
        packed_output,
        _along(step.query, matrices),
        _along(step.key, matrices),
        _in_units(step.value, matrices),
        step.score,
        step.visible,
        epilogue,
        step.is_plain,
        matrices,
        tile.down,
        tile.across,
        BLOCK,
        value_of(step.query.sizes[-1]),
        value_of(output.sizes[-1]),
        _splits_keys(tile, matrices, value_of(step.query.sizes[-1]), value_of(output.sizes[-1])),
        reason=f"the adapter multiplies matrices of {matrices.numbers}, {matrices.size}: four subgroups take "
        f"{rows} rows, {BLOCK} keys at a time",
    )
    return ScheduledSteps((kernel,))


def _along(source: Source, matrices: Matrices) -> Operand:
    """Return queries or keys in units of four along the head."""
    last = len(source.sizes) - 1
    return Operand(_in_units(source, matrices), OperandLayout.ALONG, source.sizes[:2], source.sizes[2:last], True)


def _in_units(source: Source, matrices: Matrices) -> Source:
    """Return an operand in units of four along its last dimension, in the type in which it is computed."""
    read = _unrounded(source) if matrices.component == "f16" else source
    return pack_source(read, len(source.sizes) - 1, UNIT)


def _unrounded(source: Source) -> Source:
    """Return a source without its conversion to float16, which elements undergo again on the way to matrices."""
    if not isinstance(source, Body) or source.data_type is not FLOAT16 or source.file not in (CONVERT, JOINED):
        return source
    (child,) = source.children
    if source.file == CONVERT:
        return child if child.data_type is FLOAT32 else source
    read = _unrounded(child)
    return replace(source.over([read]), data_type=read.data_type)
