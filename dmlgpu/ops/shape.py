"""Elements put elsewhere, under NumPy's names: joined, cut, padded, repeated, looked up."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlgpu.catalog.enums import PaddingMode
from dmlgpu.common import coercion as kinds
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, filled, tensor_of
from dmlgpu.tensors.layout import checked_axes, checked_axis
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tensor import take as gathered
from dmlgpu.tensors.types import TypeLike, as_data_type, as_number

__all__ = [
    "broadcast_to",
    "concatenate",
    "expand_dims",
    "flip",
    "moveaxis",
    "one_hot",
    "pad",
    "reshape",
    "roll",
    "split",
    "squeeze",
    "stack",
    "take",
    "take_along_axis",
    "transpose",
]

_INTEGERS = kinds.tuple_of(kinds.integer, "integers")


@eager
def reshape(x: Operand, sizes: Sequence[int] | int, copy: bool | None = None, *, device: Where = None) -> Array:
    """The elements, in order, with other sizes; see ``Tensor.reshape``."""
    return tensor_of("x", x).reshape(sizes, copy=copy)


@eager
def transpose(x: Operand, axes: Sequence[int] | None = None, *, device: Where = None) -> Array:
    """The dimensions in another order; None reverses them."""
    return tensor_of("x", x).transpose(axes)


@eager
def broadcast_to(x: Operand, sizes: Sequence[int], *, device: Where = None) -> Array:
    """The elements repeated along dimensions of size 1 and new leading ones."""
    return tensor_of("x", x).broadcast_to(sizes)


@eager
def expand_dims(x: Operand, axis: int | Sequence[int], *, device: Where = None) -> Array:
    """The elements with new dimensions of size 1."""
    return tensor_of("x", x).expand_dims(axis)


@eager
def squeeze(x: Operand, axis: int | Sequence[int] | None = None, *, device: Where = None) -> Array:
    """The elements without dimensions of size 1."""
    return tensor_of("x", x).squeeze(axis)


@eager
def concatenate(arrays: Sequence[Operand], axis: int = 0, *, device: Where = None) -> Array:
    """Tensors of one type in a row along an axis; other sizes are equal."""
    tensors = _several(arrays)
    return _joined(tensors, checked_axis(caller(), "axis", axis, tensors[0].ndim))


@eager
def stack(arrays: Sequence[Operand], axis: int = 0, *, device: Where = None) -> Array:
    """Tensors of equal sizes and types in a row along a new axis."""
    tensors = _several(arrays)
    number = checked_axis(caller(), "axis", axis, tensors[0].ndim + 1)
    return _joined([one.expand_dims(number) for one in tensors], number)


def _joined(tensors: list[Tensor], axis: int) -> Tensor:
    """Join tensors along an axis; those without elements add nothing, and must fit all the same."""
    parts = [one for one in tensors if one.size]
    if len(parts) != len(tensors):
        forms = {(one.data_type, one.sizes[:axis], one.sizes[axis + 1 :]) for one in tensors}
        if len(forms) > 1:
            listed = ", ".join(f"{one.data_type.name} {list(one.sizes)}" for one in tensors)
            raise InvalidArgument(f"{caller()}: arrays must have one type, and equal sizes beside axis, got {listed}")
    if not parts:
        total = sum(one.sizes[axis] for one in tensors)
        return filled(tensors[0], (*tensors[0].sizes[:axis], total, *tensors[0].sizes[axis + 1 :]))
    result: Tensor = directml.join(parts, axis=axis)
    return result


def _several(arrays: Any) -> list[Tensor]:
    if not isinstance(arrays, list | tuple) or not arrays:
        raise InvalidArgument(f"{caller()}: arrays must be a list of Tensors or arrays, at least one")
    tensors = [tensor_of(f"arrays[{number}]", one) for number, one in enumerate(arrays)]
    if not all(one.ndim == tensors[0].ndim for one in tensors):
        ranks = ", ".join(str(one.ndim) for one in tensors)
        raise InvalidArgument(f"{caller()}: arrays must have as many dimensions each, got {ranks}")
    return tensors


@eager
def split(x: Operand, sections: int | Sequence[int], axis: int = 0, *, device: Where = None) -> tuple[Array, ...]:
    """Views of parts along an axis.

    Args:
        x: what is cut.
        sections: how many equal parts, or where to cut.
        axis: along which.

    Raises:
        InvalidArgument: parts that are not equal, or empty.
    """
    tensor = tensor_of("x", x)
    number = checked_axis(caller(), "axis", axis, tensor.ndim)
    size = tensor.sizes[number]
    count = kinds.as_index(sections)
    if count is not None:
        if count < 1 or size % count:
            raise InvalidArgument(f"{caller()}: sections must divide the axis of size {size}, got {shown(sections)}")
        cuts = [number * (size // count) for number in range(count + 1)]
    else:
        cuts = [0, *kinds.argument(caller(), "sections", _INTEGERS, sections), size]
        if any(low >= high for low, high in itertools.pairwise(cuts)):
            raise InvalidArgument(f"{caller()}: sections must grow from 1 to {size - 1}, got {shown(sections)}")
    before = (slice(None),) * number
    return tuple(tensor[(*before, slice(low, high))] for low, high in itertools.pairwise(cuts))


@eager
def pad(
    x: Operand, widths: Any, mode: PaddingMode | str = "constant", value: float = 0, *, device: Where = None
) -> Array:
    """The elements with more around them.

    Args:
        x: what is padded.
        widths: how many before and after: a number for all, a pair for all axes, or a pair per axis.
        mode: constant, edge, reflection or symmetric.
        value: what constant padding holds.

    Raises:
        InvalidArgument: widths of another form, or a value that the type does not hold.
    """
    tensor = tensor_of("x", x)
    try:
        pairs = np.broadcast_to(np.asarray(widths), (tensor.ndim, 2))
    except Exception:  # ragged lists, more pairs than axes
        pairs = np.array(None)
    if pairs.dtype.kind not in "iu" or pairs.min() < 0:
        raise InvalidArgument(
            f"{caller()}: widths must be an integer of at least 0, a pair, or a pair for each of {tensor.ndim} axes, "
            f"got {shown(widths)}"
        )
    filler = as_number(f"{caller()}: value", value, tensor.data_type)
    if not tensor.size:
        sizes = [int(size + before + behind) for size, (before, behind) in zip(tensor.sizes, pairs, strict=True)]
        if mode not in ("constant", PaddingMode.CONSTANT) and 0 not in sizes:
            raise InvalidArgument(f"{caller()}: x must have elements to repeat, got sizes {list(tensor.sizes)}")
        return filled(tensor, sizes, filler)
    return directml.padding1(
        tensor,
        padding_mode=mode,
        padding_value=filler,
        start_padding=pairs[:, 0].tolist(),
        end_padding=pairs[:, 1].tolist(),
    )


@eager
def flip(x: Operand, axis: int | Sequence[int] | None = None, *, device: Where = None) -> Array:
    """The elements in reverse order along all axes, or some."""
    return tensor_of("x", x).flip(axis)


@eager
def roll(x: Operand, shift: int, axis: int | None = None, *, device: Where = None) -> Array:
    """The elements moved along an axis; what leaves at its end comes in again. None moves all in a row."""
    tensor = tensor_of("x", x)
    if axis is None:
        return _rolled(tensor.reshape(-1), shift, 0).reshape(tensor.sizes)
    return _rolled(tensor, shift, checked_axis(caller(), "axis", axis, tensor.ndim))


def _rolled(x: Tensor, shift: int, axis: int) -> Tensor:
    by = kinds.argument(caller(), "shift", kinds.integer, shift) % (x.sizes[axis] or 1)
    if not by or not x.size:
        return x
    before = (slice(None),) * axis
    found: Tensor = directml.join([x[(*before, slice(-by, None))], x[(*before, slice(None, -by))]], axis=axis)
    return found


@eager
def take(x: Operand, indices: Operand, axis: int | None = None, *, device: Where = None) -> Array:
    """Parts along an axis that indices name, of INT32, INT64, UINT32 or UINT64; their dimensions stand where the axis
    was. None takes elements of all in a row. Indices outside give zeros; negative ones count from the back."""
    tensor, named = tensor_of("x", x), tensor_of("indices", indices)
    if axis is None:
        return gathered(tensor.reshape(-1), named, 0, caller())
    return gathered(tensor, named, checked_axis(caller(), "axis", axis, tensor.ndim), caller())


@eager
def take_along_axis(x: Operand, indices: Operand, axis: int = -1, *, device: Where = None) -> Array:
    """One element per index, which says where along the axis; other coordinates are the index's own."""
    tensor, named = tensor_of("x", x), tensor_of("indices", indices)
    if not named.size and named.ndim == tensor.ndim:
        return filled(tensor, named.sizes)
    return directml.gather_elements(tensor, named, axis=checked_axis(caller(), "axis", axis, tensor.ndim))


@eager
def one_hot(
    indices: Operand,
    depth: int,
    axis: int = -1,
    data_type: TypeLike = "float32",
    on: float = 1,
    off: float = 0,
    *,
    device: Where = None,
) -> Array:
    """A new axis of ``depth`` elements, ``on`` where the index says, ``off`` elsewhere.

    Raises:
        InvalidArgument: a depth below 1, or values that the type does not hold.
    """
    named = tensor_of("indices", indices)
    count = kinds.argument(caller(), "depth", kinds.between(1, 2**32 - 1), depth)
    number = checked_axis(caller(), "axis", axis, named.ndim + 1)
    kind = as_data_type(caller(), "data_type", data_type)
    values = np.array([as_number(caller(), off, kind), as_number(caller(), on, kind)], kind.numpy)
    places = named.expand_dims(number)
    if not places.size:
        return filled(named, (*places.sizes[:number], count, *places.sizes[number + 1 :]), data_type=kind)
    rank = places.ndim
    return directml.one_hot(
        places,
        Tensor(values, kind, device=named.device).reshape((1,) * (rank - 1) + (2,)),
        axis=number,
        output_sizes=(*places.sizes[:number], count, *places.sizes[number + 1 :]),
    )


@eager
def moveaxis(
    x: Operand, source: int | Sequence[int], destination: int | Sequence[int], *, device: Where = None
) -> Array:
    """The view with some axes elsewhere, the others in order."""
    tensor = tensor_of("x", x)
    old = checked_axes(caller(), "source", source, tensor.ndim)
    new = checked_axes(caller(), "destination", destination, tensor.ndim)
    if len(old) != len(new):
        raise InvalidArgument(f"{caller()}: destination must have {len(old)} axes, as source, got {len(new)}")
    order = [axis for axis in range(tensor.ndim) if axis not in old]
    for place, axis in sorted(zip(new, old, strict=True)):
        order.insert(place, axis)
    return tensor.transpose(order)
