"""Elements in order."""

from __future__ import annotations

from typing import Any

from dmlgpu.array.operands import NUMERIC, tensor
from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import AxisDirection, DataType
from dmlgpu.common.coercion import argument, boolean
from dmlgpu.tensors.calls import caller, named
from dmlgpu.tensors.execution import call_op
from dmlgpu.tensors.layout import checked_axis
from dmlgpu.tensors.tensor import Tensor

__all__ = ["argsort", "sort"]


def ordered(x: Tensor, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """Return the elements along an axis in order, equal ones as they came, and where they were, INT64.

    Raises:
        InvalidArgument: an axis out of range.
    """
    number = checked_axis(caller(), "axis", axis, x.ndim)
    if not x.size:
        return x._same(), x._nothing(x.sizes).astype(DataType.INT64)
    values = {
        "input_tensor": x,
        "axis": number,
        "k": x.sizes[number],
        "axis_direction": AxisDirection.DECREASING if descending else AxisDirection.INCREASING,
    }
    found, places = call_op(descs.TopK1, values)
    return found, places.astype(DataType.INT64)


def _ordered(x: Any, axis: int, descending: bool, stable: bool) -> tuple[Tensor, Tensor]:
    argument(caller(), "stable", boolean, stable)
    return ordered(tensor("x", x, NUMERIC), axis, argument(caller(), "descending", boolean, descending))


@named
def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the numbers along an axis in order; equal ones stay as they came, ``stable`` or not.

    Raises:
        InvalidArgument: no numbers, or an axis out of range.
    """
    return _ordered(x, axis, descending, stable)[0]


@named
def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return where the numbers along an axis were before they were put in order, int64; equal ones stay as they came.

    Raises:
        InvalidArgument: no numbers, or an axis out of range.
    """
    return _ordered(x, axis, descending, stable)[1]
