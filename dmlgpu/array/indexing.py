"""Elements that integers name along an axis."""

from __future__ import annotations

from dmlgpu.array.operands import run, tensor
from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.tensors.calls import caller, named
from dmlgpu.tensors.layout import broadcast_sizes, checked_axis
from dmlgpu.tensors.tensor import Tensor

__all__ = ["take", "take_along_axis"]


def indices_of(x: Tensor) -> Tensor:
    """Return integers as GATHER takes them: of 32 bits at least."""
    return x if x.data_type.bits >= 32 else x.astype(DataType.INT32)


@named
def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return the parts along an axis that integers name; their dimensions stand where the axis was.

    Args:
        x: what is taken from.
        indices: integers, negative ones from the back; outside of the axis they take zeros.
        axis: None for an array of one dimension.

    Raises:
        InvalidArgument: no integers, an axis out of range, or None where there are several.
    """
    given, named_ones = tensor("x", x), tensor("indices", indices, "integer")
    if axis is None:
        if given.ndim != 1:
            raise InvalidArgument(f"{caller()}: axis must be given for {given.ndim} dimensions")
        axis = 0
    return given._taken(indices_of(named_ones), checked_axis(caller(), "axis", axis, given.ndim), caller())


@named
def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return one element per integer, which says where along the axis; other coordinates are the integer's own.

    Raises:
        InvalidArgument: no integers, other numbers of dimensions, sizes that do not broadcast, or an axis out of range.
    """
    given, places = tensor("x", x), tensor("indices", indices, "integer")
    number = checked_axis(caller(), "axis", axis, given.ndim)
    if places.ndim != given.ndim:
        raise InvalidArgument(f"{caller()}: indices must have {given.ndim} dimensions, as x, got {places.ndim}")
    around = [(*one.sizes[:number], 1, *one.sizes[number + 1 :]) for one in (given, places)]
    sizes = broadcast_sizes(caller(), [("x", around[0]), ("indices", around[1])])
    given, places = (
        one.broadcast_to((*sizes[:number], one.sizes[number], *sizes[number + 1 :])) for one in (given, places)
    )
    if not places.size:
        return given._nothing(places.sizes)
    return run(descs.GatherElements, input_tensor=given, indices_tensor=indices_of(places), axis=number)
