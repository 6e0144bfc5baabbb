"""Products of 8-bit integers on GPUs: operands packed in words, four products per instruction.

An operand is a tensor of 8-bit integers, optionally less zero points, or windows of one. Workgroup memory holds
words of four steps along the inner dimension of each row and column. They are read as words where memory is contiguous
along the inner dimension, transposed from words where it is contiguous along rows or columns, and else composed of
single elements.

With a zero point the products are those of the integers themselves, corrected by sums:

    sum((a - p) * (b - q)) = sum(a * b) - p * sum(b) - q * (sum(a) - count * p)

Each invocation sums the words that it brings into workgroup memory, so the sums of rows and columns take no other pass
over memory. Integers of different signs are multiplied as signed ones: the unsigned ones are shifted by 128, which
flips a bit, and so are their zero points. Sums wrap around beyond 2**31, as those of int32 do.

Rows and columns that are quantized in blocks (``quantized``) are multiplied likewise: the sum of a block is scaled
and added to a total in float32. Zero points of columns take away multiples of the sums of a row's block.

CPU adapters, which have no such instruction, take 2.6 to 4.1 (lavapipe) and 5.2 (SwiftShader) times as long as with
the schedule ``register``. On GPUs without it, such as vega10, the loop has 13 to 15 % more instructions per
multiplication than with ``shared``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Apply, PlanTensor, Product, Sizes, Source, View
from dmlgpu.compiler.rewrites.packing import UNIT
from dmlgpu.compiler.rewrites.sources import CONVERT, is_plain, leaves
from dmlgpu.compiler.rewrites.windows import seen_by
from dmlgpu.compiler.schedule.operands import flat, packed, packs
from dmlgpu.compiler.schedule.quantized import quantized_columns, quantized_rows
from dmlgpu.compiler.schedule.steps.packed_products import (
    PackedOperand,
    ScheduledBlockContract,
    ScheduledPackedContract,
)
from dmlgpu.compiler.schedule.steps.products import Operand, OperandLayout, ScheduledContract

SLAB = 16
"""Elements of the shortest slab: a slab is a block, or pairs of slabs divide it."""

DIFFERENCE = "matrix/difference"

_TYPES = (DataType.INT8, DataType.UINT8)


@dataclass(frozen=True)
class PackedOperands:
    """Operands of a product of 8-bit integers, in words of four steps.

    Attributes:
        a, b: the words.
        kernel_class: kernel that multiplies them.
        numbers: its fields that tell the numbers that the words stand for.
        block: words of a block whose sum is scaled; 0 if there are no blocks.
    """

    a: Operand
    b: Operand
    kernel_class: type[ScheduledContract]
    numbers: dict[str, Any]
    block: int = 0

    def kernel(self, contract: ScheduledContract) -> ScheduledContract:
        """Return the kernel that multiplies the integers of these operands, which a contract has."""
        values = {each.name: getattr(contract, each.name) for each in fields(contract)}
        return self.kernel_class(**values, **self.numbers)


def packed_operands(product: Product) -> PackedOperands | None:
    """Return the operands of a product as packed integers; None if they are not integers of 8 bits or less."""
    if product.accumulator is DataType.FLOAT32:
        return _block_operands(product)
    if product.accumulator is not DataType.INT32:
        return None
    space = product.space
    a = _operand(product.a, space.batch, space.rows, own_first=True)
    b = _seen(product) or _operand(product.b, space.batch, space.columns, own_first=False)
    if a is None or b is None:
        return None
    return PackedOperands(a[0], b[0], ScheduledPackedContract, {"a_integers": a[1], "b_integers": b[1]})


def _block_operands(product: Product) -> PackedOperands | None:
    """Return the operands of a product over blocks and their elements, if both are quantized."""
    space = product.space
    if len(space.inner) != 2 or (space.inner[-1] != SLAB and space.inner[-1] % (2 * SLAB) != 0):
        return None
    columns = quantized_columns(product.b, len(space.batch) + 1)
    rows = None if columns is None or columns.is_e2m1 else quantized_rows(product.a, len(product.a.sizes) - 1, UNIT)
    if columns is None or rows is None:
        return None
    words = columns.in_words(len(space.batch) + 1)
    a = Operand(rows.words, OperandLayout.ALONG, space.batch, space.rows, own_first=True)
    b = Operand(words, OperandLayout.ALONG, space.batch, space.columns, own_first=False)
    numbers = {"scale": rows.scale, "columns": columns}
    return PackedOperands(a, b, ScheduledBlockContract, numbers, space.inner[-1] // UNIT)


def _operand(source: Source, batch: Sizes, own: Sizes, *, own_first: bool) -> tuple[Operand, PackedOperand] | None:
    """Return an operand as words, in the fastest layout, or as single integers."""
    first = len(batch) + len(own) if own_first else len(batch)
    last = len(source.sizes) if own_first else len(source.sizes) - len(own)
    integers = _integers(source, range(first, last))
    if integers is None:
        return None
    bits, how = integers
    operand = flat(Operand(bits, OperandLayout.SINGLE, batch, own, own_first))
    layouts = (OperandLayout.ALONG, OperandLayout.ACROSS)
    return packed(operand, next((each for each in layouts if packs(operand, each)), OperandLayout.SINGLE)), how


def _seen(product: Product) -> tuple[Operand, PackedOperand] | None:
    """Return columns that are windows of integers with a common zero point."""
    seen = seen_by(product.b)
    if seen is None:
        return None
    source, windows = seen
    integers = _integers(source, range(len(source.sizes)))
    if integers is None:
        return None
    bits, how = integers
    space = product.space
    return Operand(bits, OperandLayout.SEEN, space.batch, space.columns, own_first=False, windows=windows), how


def _integers(source: Source, fixed: range) -> tuple[PlanTensor, PackedOperand] | None:
    """Return the bits of a tree that converts 8-bit integers or subtracts their zero points; None for other trees.

    Args:
        fixed: the dimensions along which zero points are constant.
    """
    if not isinstance(source, Apply) or source.file not in (CONVERT, DIFFERENCE):
        return None
    operands = dict(source.inputs)
    values, zero_point = operands["input"], operands.get("zero_point")
    if not isinstance(values, PlanTensor) or values.data_type not in _TYPES:
        return None
    if zero_point is not None:
        moving = any(
            leaf.strides[dimension] and leaf.sizes[dimension] > 1 for leaf in leaves(zero_point) for dimension in fixed
        )
        if moving or not is_plain(zero_point) or zero_point.data_type is not values.data_type:
            return None
    return replace(values, view=View.RAW), PackedOperand(values.data_type.is_signed, zero_point)
