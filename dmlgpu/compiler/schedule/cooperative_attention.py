"""Attention of float16 by cooperative matrices, on adapters with matrix units (``Target.matrices``).

Scores and sums of values are float32; weights are rounded to float16 for the second product. Few rows, and heads that
are not in units of four, keep the schedules of ``attention``.
"""

from __future__ import annotations

from dataclasses import dataclass

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Attend, RegisterValue, Source
from dmlgpu.compiler.rewrites.packing import UNIT, pack_source, packs_source
from dmlgpu.compiler.rewrites.sources import cast, is_plain
from dmlgpu.compiler.schedule.launch import Launch, fold
from dmlgpu.compiler.schedule.operands import pack_output
from dmlgpu.compiler.schedule.registry import Condition, at_least, at_most, no, only_if
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.cooperative import PADDING, SUBGROUPS, ScheduledCooperativeAttend
from dmlgpu.compiler.schedule.steps.products import Operand, OperandLayout
from dmlgpu.compiler.sizes import value_of
from dmlgpu.compiler.target import Matrices, Target

FLOAT16, FLOAT32 = DataType.FLOAT16, DataType.FLOAT32

BLOCK = 32
"""Keys of a block: whole matrices of all adapters."""

MAX_HELD = 16
"""Matrices of queries and of sums that a subgroup holds in registers: half of them on RDNA and NVIDIA."""

MIN_KEYS = 32
"""Minimum keys: a whole block."""

_SMALL = 16
"""Bytes of workgroup memory in addition to arrays: votes, the keys that rows see."""


@dataclass(frozen=True)
class MatrixTile:
    """Tile of a workgroup: four subgroups, ``down`` matrices along the rows of each."""

    down: int


def fits_attention(step: Attend, target: Target) -> Condition:
    """Return whether an adapter has matrix units, and attention is of float16 in units of four elements of a head."""
    matrices = target.matrices
    if matrices is None:
        return no("the adapter has no usable matrix units")
    sources = (step.query, step.key, step.value)
    return (
        only_if(not target.keeps_digits, "float16 loses digits, which the device forbids")
        and only_if(BLOCK % matrices.columns == 0, "blocks of keys are no whole matrices")
        and at_least(target.max_workgroup_invocations, SUBGROUPS * matrices.lanes, "invocations of a workgroup")
        and only_if(target.loop_limit is None, "the driver stops long loops")
        and only_if(
            all(is_plain(source) and source.data_type is FLOAT16 for source in sources),
            "queries, keys or values are not float16",
        )
        and only_if(all(map(_packs_along, sources)), "heads are not in units of {}", UNIT)
        and only_if(_down(step, matrices, target), "heads are too wide for the registers of a subgroup")
    )


def fills_attention(step: Attend, target: Target) -> Condition:
    """Return whether rows fill half a tile or more, and keys a block."""
    assert target.matrices is not None
    rows = SUBGROUPS * target.matrices.rows
    return at_least(step.rows, rows // 2, "rows") and at_least(step.keys, MIN_KEYS, "keys")


def matrix_tile(step: Attend, target: Target) -> MatrixTile:
    """Return the tile."""
    assert target.matrices is not None
    return MatrixTile(_down(step, target.matrices, target))


def _down(step: Attend, matrices: Matrices, target: Target) -> int:
    """Return the matrices along the rows of a subgroup, two if rows, registers and memory suffice; 0 if none fits."""
    head, columns = value_of(step.query.sizes[-1]), value_of(step.output.sizes[-1])
    held = -(-head // matrices.steps) + -(-columns // matrices.columns)
    for down in (2, 1):
        rows = SUBGROUPS * down * matrices.rows
        shares = SUBGROUPS * matrices.lanes % rows == 0 and BLOCK // UNIT % (SUBGROUPS * matrices.lanes // rows) == 0
        is_filled = down == 1 or step.rows > rows // 2
        few = at_most(down * held, MAX_HELD, "matrices") and at_most(
            _memory(matrices, rows, head, columns), target.max_workgroup_storage, "bytes of workgroup memory"
        )
        if shares and is_filled and few:
            return down
    return 0


def _memory(matrices: Matrices, rows: int, head: int, columns: int) -> int:
    """Return the bytes of workgroup memory for scores, weights, and keys or values of a block."""
    head = -(-head // matrices.steps) * matrices.steps
    columns = -(-columns // matrices.columns) * matrices.columns
    values = columns * (BLOCK + PADDING) if matrices.turns else BLOCK * (columns + PADDING)
    slab = max(BLOCK * (head + PADDING), values)
    return 4 * rows * BLOCK + 2 * (rows * (BLOCK + PADDING) + slab) + _SMALL


def _packs_along(source: Source) -> bool:
    last = len(source.sizes) - 1
    return source.sizes[last] % UNIT == 0 and packs_source(source, last, UNIT)


def cooperative_attention(step: Attend, tile: MatrixTile, target: Target) -> ScheduledSteps:
    """Return the kernel of attention on matrix units."""
    assert target.matrices is not None
    matrices, output = target.matrices, step.output
    rows = SUBGROUPS * tile.down * matrices.rows
    epilogue, packed_output = pack_output(cast(RegisterValue.product(FLOAT32, output.sizes), output.data_type), output)
    total = step.batches * -(-step.rows // rows)
    size = f"{matrices.rows} x {matrices.columns} x {matrices.steps}"
    kernel = ScheduledCooperativeAttend(
        "cooperative attention",
        Launch(SUBGROUPS * matrices.lanes, 1, fold(total, target), total),
        packed_output,
        _along(step.query),
        _along(step.key),
        pack_source(step.value, len(step.value.sizes) - 1, UNIT),
        step.score,
        step.visible,
        epilogue,
        step.is_plain,
        matrices,
        tile.down,
        BLOCK,
        value_of(step.query.sizes[-1]),
        value_of(output.sizes[-1]),
        reason=f"the adapter multiplies matrices of float16, {size}: four subgroups take {rows} rows, {BLOCK} keys "
        "at a time",
    )
    return ScheduledSteps((kernel,))


def _along(source: Source) -> Operand:
    """Return queries or keys in units of four along the head."""
    last = len(source.sizes) - 1
    return Operand(pack_source(source, last, UNIT), OperandLayout.ALONG, source.sizes[:2], source.sizes[2:last], True)
