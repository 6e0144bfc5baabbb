"""What DirectML's operators lack for integers, composed of those that there are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.tensors.types import value_range

if TYPE_CHECKING:
    from dmlgpu.tensors.tensor import Tensor

UNSIGNED = {
    DataType.INT8: DataType.UINT8,
    DataType.INT16: DataType.UINT16,
    DataType.INT32: DataType.UINT32,
    DataType.INT64: DataType.UINT64,
    DataType.FLOAT16: DataType.UINT16,
    DataType.FLOAT32: DataType.UINT32,
}
"""The type of as many bits, to read a number's bits."""


def shifted(caller: str, kind: type[OperatorDesc], a: Tensor, b: Tensor) -> Tensor:
    """Return integers with their bits moved up or down, also by as many as they have and more; DirectML moves those of
    unsigned ones, by fewer.

    Moved down, negative numbers are inverted before and after, so that their sign comes in from above.
    """
    data_type = a.data_type
    unsigned = UNSIGNED.get(data_type, data_type)
    by = b._same(unsigned)
    is_arithmetic = data_type.is_signed and kind is descs.ElementWiseBitShiftRight
    flips = -(a < 0).astype(data_type) if is_arithmetic else a
    bits = ((a ^ flips) if is_arithmetic else a)._same(unsigned)
    moved = a._operator(caller, kind, a_tensor=bits, b_tensor=by)
    result = moved._chosen(by < data_type.bits, 0)._same(data_type)
    return result ^ flips if is_arithmetic else result


def power(a: Tensor, b: Tensor) -> Tensor:
    """Return integers to the power of integers that are not negative, by squares: exponents count modulo 64, since
    higher powers of all but 0, 1 and -1 overflow."""
    product: Tensor | None = None
    square = a
    for bit in range(6):
        is_set = (b & (1 << bit)) != 0
        factor = square._chosen(is_set, 1)
        product = factor if product is None else product * factor
        square = square * square
    assert product is not None
    return product._chosen((a != 0) | (b == 0), 0)


def wrapped(x: Tensor, data_type: DataType) -> Tensor:
    """Return integers in a narrower type, without the bits that it lacks."""
    low, high = value_range(data_type)
    span = high - low + 1
    result: Tensor = ((x - low) % span + low).astype(data_type)
    return result


def total(caller: str, x: Tensor, function: ReduceFunction, axes: tuple[int, ...]) -> Tensor:
    """Return sums or products of numbers along axes, which stay with size 1, in their own type; DirectML's reductions
    have none of 8 and 16 bits."""
    data_type = x.data_type
    narrow = (
        not data_type.is_float and data_type.bits < 32 and function in (ReduceFunction.SUM, ReduceFunction.MULTIPLY)
    )
    wide = x.astype(DataType.INT32 if data_type.is_signed else DataType.UINT32) if narrow else x
    result = x._operator(caller, descs.Reduce, input_tensor=wide, function=function, axes=axes)
    return wrapped(result, data_type) if narrow else result


def matrix_product(caller: str, a: Tensor, b: Tensor) -> Tensor:
    """Return the product of stacks of matrices of integers, which GEMM does not take."""
    stack = a.sizes[:-2]
    count = math.prod(stack)
    left, right = (matrix.reshape(count, *matrix.sizes[-2:]) for matrix in (a, b))
    products: Any = left.expand_dims(3) * right.expand_dims(1)
    return total(caller, products, ReduceFunction.SUM, (2,))._renamed((*stack, a.sizes[-2], b.sizes[-1]))
