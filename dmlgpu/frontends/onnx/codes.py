"""Convert element types that no operator computes with to float32 and back: 8- and 4-bit floats, 2-bit integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.onnx.expressions import add, reshaped, same
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.tensor_proto import CODED, DeferredArray, as_coded, as_typed, is_float_code, type_name
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

Array = NDArray[Any]
Load = Callable[[OnnxValue], Tensor]
FLOAT32, UINT32 = DataType.FLOAT32, DataType.UINT32

MOVING = frozenset(
    (
        *("Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
        *("Identity", "Reshape", "ReverseSequence", "Shape", "Size", "Slice", "SpaceToDepth", "Split", "Squeeze"),
        *("Tile", "Transpose", "Unsqueeze", "Where"),
    )
)
"""Operators whose results are elements of their inputs, regardless of their meaning."""

CONVERTING = frozenset(("Cast", "CastLike", "DequantizeLinear", "QuantizeLinear"))
"""Operators that convert codes themselves."""

_MAX_AT_ONCE = 1 << 16
"""Maximum number of elements of a weight that is converted when a node reads it, and not when it is uploaded."""


def check_computed(node: OnnxNode) -> None:
    """Raise NotSupported if a node computes with inputs that are codes."""
    if not node.proto.domain and node.op_type in MOVING | CONVERTING:
        return
    for value in node.inputs:
        if value is not None and value.has_codes:
            raise node.rejection(
                f"{type_name(value.coded)} can be moved, cast, quantized and dequantized, but not computed with"
            )


def floats_of(value: OnnxValue) -> OnnxValue:
    """Convert a value with codes to float32; return other values unchanged. Known elements are converted on the host,
    once."""
    if not value.has_codes:
        return value
    if value.floats is None and value.array is not None:
        value.floats = OnnxValue(value.shape, FLOAT32, 0, _host_floats(value), value.is_weight)
    return value.floats or OnnxValue(value.shape, FLOAT32, codes=value)


def _host_floats(value: OnnxValue) -> Any:
    array, data_type, coded = value.array, value.data_type, value.coded
    assert array is not None

    def floats(rows: Array) -> Array:
        return as_typed(rows, data_type, coded).astype(np.float32)

    if array.size <= _MAX_AT_ONCE or not array.shape:
        return floats(array)
    return DeferredArray(array.shape, np.float32, lambda span: floats(array[span]))


# ---- graphs ----------------------------------------------------------------------------------------------------------


def decoded(load: Load, x: Tensor, coded: int) -> Tensor:
    """Return codes of a type as float32; ``load`` returns a weight as an expression."""
    if not is_float_code(coded):
        return dml.cast(x, FLOAT32)
    return _looked_up(load, _floats(coded), dml.cast(x, UINT32))


def encoded(load: Load, x: Tensor, coded: int, *, saturates: bool = True, rounding: str = "up") -> Tensor:
    """Return float32 as codes, rounded half to even.

    Args:
        load: Returns a weight as an expression of the graph.
        x: The elements.
        coded: ONNX's number of the type.
        saturates: Whether 8-bit floats saturate at the largest number, instead of NaN or infinity.
        rounding: Rounding of FLOAT8E8M0: ``up``, ``down`` or ``nearest``.
    """
    if not is_float_code(coded):
        low = -2 if coded == TensorProto.INT2 else 0
        integers = dml.cast(x, DataType.INT32)
        return dml.cast(add(dml.modulus_floor(add(integers, -low), same(integers, 4)), low), CODED[coded])
    words = _as_bits(x, UINT32)
    high = dml.bit_shift_right(words, same_bits(words, 16))
    # Rounded to odd, 16 bits decide: no code, and no middle between two, has more than 7 of their 8 bits.
    rest = dml.bit_and(words, same_bits(words, 0xFFFF))
    sticky = dml.cast(dml.logical_not(dml.equals(rest, same(rest, 0))), UINT32)
    return _looked_up(load, _codes(coded, saturates, rounding), dml.bit_or(high, sticky))


def same_bits(like: Tensor, number: int) -> Tensor:
    """Return a UINT32 constant broadcast to the sizes of a tensor."""
    return dml.fill_value_constant(like.graph, like.sizes, UINT32, number)


def _as_bits(x: Tensor, data_type: DataType) -> Tensor:
    return dml.identity(x).reinterpret(x.sizes, None, data_type)


def _looked_up(load: Load, table: OnnxValue, places: Tensor) -> Tensor:
    """Return the entries of a table at places."""
    column, row = (table.shape[0], 1), (1, math.prod(places.sizes))
    entries = directml.gather(reshaped(load(table), column), reshaped(places, row), axis=0, index_dimensions=1)
    return reshaped(entries, places.sizes)


@lru_cache(maxsize=len(CODED))
def _floats(coded: int) -> OnnxValue:
    """Return the float32 of each code."""
    codes = np.arange(256, dtype=np.uint8)
    return OnnxValue.of_weight(as_typed(codes, DataType.UINT8, coded).astype(np.float32))


@lru_cache(maxsize=4 * len(CODED))
def _codes(coded: int, saturates: bool, rounding: str) -> OnnxValue:
    """Return the code of each float32 whose lower half is 0."""
    floats = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    held, _, _ = as_coded(_as_type(floats, coded, saturates, rounding))
    return OnnxValue.of_weight(held)


def _as_type(floats: Array, coded: int, saturates: bool = True, rounding: str = "up") -> Array:
    """Return float32 in another type, as ONNX defines Cast."""
    dtype = helper.tensor_dtype_to_np_dtype(coded)
    with np.errstate(all="ignore"):
        if coded == getattr(TensorProto, "FLOAT8E8M0", None):
            return np.asarray(numpy_helper.to_float8e8m0(floats, saturates, rounding)).astype(dtype)
        if saturates and TensorProto.DataType.Name(coded).startswith("FLOAT8"):
            return np.asarray(numpy_helper.saturate_cast(floats, dtype))
        return floats.astype(dtype)
