"""Sizes and strides of views, as NumPy has them, and of tensors of graphs (DirectMLX: TensorPolicy)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dmlgpu.catalog.enums import DataType, TensorFlags
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, MAX_ELEMENTS, TensorDesc, packed_strides
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.compiler.sizes.arithmetic import is_broadcastable, is_same_size, is_symbolic

Sizes: TypeAlias = tuple[int, ...]

_SIZES = coercion.tuple_of(coercion.integer, "integers")


class InvalidIndex(InvalidArgument, IndexError):
    """An index is out of range, or a mask has another shape than the axes that it selects from."""


@dataclass(frozen=True)
class Selection:
    """Result of basic indexing.

    Attributes:
        sizes, strides: Sizes and strides of the view, in elements.
        offset: elements from the first of the array to the first of the view.
        reversed_axes: axes of the view that run backwards, which strides cannot express.
    """

    sizes: Sizes
    strides: Sizes
    offset: int
    reversed_axes: Sizes = ()


def as_integers(caller: str, name: str, values: Any) -> Sizes:
    """Return several integers, or the only one.

    Raises:
        InvalidArgument: neither.
    """
    return coercion.argument(caller, name, _SIZES, (values,) if coercion.as_index(values) is not None else values)


def checked_sizes(caller: str, name: str, sizes: Any) -> Sizes:
    """Return sizes that a tensor can have.

    Raises:
        InvalidArgument: no integers, a size below 0, more than 8 dimensions or 2^32 - 1 elements.
    """
    shape = as_integers(caller, name, sizes)
    if any(size < 0 for size in shape):
        raise InvalidArgument(f"{caller}: {name} must be at least 0 each, got {shown(list(shape))}")
    if len(shape) > MAX_DIMENSIONS:
        raise InvalidArgument(f"{caller}: {name} must have at most {MAX_DIMENSIONS} dimensions, got {len(shape)}")
    if math.prod(shape) > MAX_ELEMENTS:
        raise InvalidArgument(
            f"{caller}: {name} must have at most 2^32 - 1 elements, got {shown(list(shape))}, "
            f"{shown(math.prod(shape))} elements"
        )
    return shape


def checked_axis(caller: str, name: str, axis: Any, rank: int) -> int:
    """Return an axis counted from the front; negative ones count from the back.

    Raises:
        InvalidArgument: no integer, or out of range.
    """
    index = coercion.as_index(axis)
    if index is None or not -rank <= index < rank:
        expected = (
            f"an integer between {-rank} and {rank - 1}, for {rank} dimensions" if rank else "absent for a scalar"
        )
        raise InvalidArgument(f"{caller}: {name} must be {expected}, got {shown(axis)}")
    return index % rank


def checked_axes(caller: str, name: str, axes: Any, rank: int) -> Sizes:
    """Return one axis or several, each once, counted from the front.

    Raises:
        InvalidArgument: no integers, out of range, or one twice.
    """
    numbers = as_integers(caller, name, axes)
    checked = tuple(checked_axis(caller, name, axis, rank) for axis in numbers)
    if len(set(checked)) < len(checked):
        raise InvalidArgument(f"{caller}: {name} must name each axis once, got {list(numbers)}")
    return checked


def broadcast_sizes(caller: str, operands: Sequence[tuple[str, Sizes]]) -> Sizes:
    """Return the shape to which named operands broadcast, by NumPy's rule.

    Raises:
        InvalidArgument: sizes differ where neither is 1; names the operands.
    """
    rank = max(len(sizes) for _, sizes in operands)
    result = [1] * rank
    for _, sizes in operands:
        for axis, size in enumerate(sizes, rank - len(sizes)):
            if is_same_size(size, 1):
                continue
            if is_broadcastable(result[axis], size):
                result[axis] = size
            elif size != 1:
                listing = " and ".join(f"{list(shape)} of {name}" for name, shape in operands)
                raise InvalidArgument(f"{caller}: sizes must be equal or 1 to broadcast, got {listing}")
    return tuple(result)


def broadcast_strides(sizes: Sizes, strides: Sizes, shape: Sizes) -> Sizes | None:
    """Return strides that broadcast a view to a shape, 0 for broadcast dimensions; None if the shape does not fit."""
    new = len(shape) - len(sizes)
    if new < 0 or not all(map(is_broadcastable, sizes, shape[new:])):
        return None
    dimensions = zip(sizes, strides, shape[new:], strict=True)
    return (0,) * new + tuple(stride if is_same_size(has, want) else 0 for has, stride, want in dimensions)


def resolved_sizes(caller: str, sizes: Any, count: int) -> Sizes:
    """Return the sizes to which ``count`` elements are reshaped; one -1 is inferred.

    Raises:
        InvalidArgument: the sizes do not hold as many elements.
    """
    shape = as_integers(caller, "sizes", sizes)
    if shape.count(-1) == 1:
        known = math.prod(size for size in shape if size != -1)
        left = count // known if known > 0 else 0
        shape = tuple(left if size == -1 else size for size in shape)
    if any(size < 0 for size in shape) or math.prod(shape) != count:
        raise InvalidArgument(f"{caller}: sizes must hold the tensor's {count} elements, got {shown(sizes)}")
    return checked_sizes(caller, "sizes", shape)


def reshaped_strides(sizes: Sizes, strides: Sizes, shape: Sizes) -> Sizes | None:
    """Return the strides of a reshaped view; None if reshaping takes a copy."""
    if 0 in shape:
        return packed_strides(shape)
    merged: list[tuple[int, int]] = []  # runs of elements that are evenly spaced, outermost first
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = merged[-1][0] * size, stride
        else:
            merged.append((size, stride))
    result: list[int] = []
    left, stride = merged.pop() if merged else (1, 1)
    for size in reversed(shape):
        if size > 1 and left == 1 and merged:
            left, stride = merged.pop()
        if left % size:
            return None
        result.append(stride)
        left, stride = left // size, stride * size
    return tuple(reversed(result))


def select(caller: str, sizes: Sizes, strides: Sizes, index: tuple[Any, ...]) -> Selection:
    """Select by integers, slices, None and Ellipsis.

    Raises:
        InvalidArgument: too many indices, or one out of range or of another kind.
    """
    taken = sum(entry is not None and entry is not Ellipsis for entry in index)
    if taken > len(sizes):
        raise InvalidArgument(f"{caller}: at most {len(sizes)} indices must be given for {list(sizes)}, got {taken}")
    ellipses = sum(entry is Ellipsis for entry in index)
    if ellipses > 1:
        raise InvalidArgument(f"{caller}: at most one Ellipsis must be given, got {ellipses}")
    if not ellipses:
        index = (*index, Ellipsis)
    place = next(i for i, entry in enumerate(index) if entry is Ellipsis)
    unindexed = (slice(None),) * (len(sizes) - taken)
    new_sizes, new_strides, backwards, offset, axis = list[int](), list[int](), list[int](), 0, 0
    for entry in (*index[:place], *unindexed, *index[place + 1 :]):
        if entry is None:
            new_sizes.append(1)
            new_strides.append(0)
            continue
        size, stride = sizes[axis], strides[axis]
        if isinstance(entry, slice):
            start, count, step = _slice(caller, entry, size, axis)
            if step < 0:
                backwards.append(len(new_sizes))
                start, step = start + (count - 1) * step, -step
            offset += start * stride
            new_sizes.append(count)
            new_strides.append(step * stride)
        else:
            offset += _index(caller, entry, size, axis) * stride
        axis += 1
    return Selection(tuple(new_sizes), tuple(new_strides), offset, tuple(backwards))


def _slice(caller: str, entry: slice, size: int, axis: int) -> tuple[int, int, int]:
    """Return first position, count and step of a slice; sizes may be symbolic."""
    try:
        if not any(map(is_symbolic, (size, entry.start, entry.stop, entry.step))):
            chosen = range(*entry.indices(size))
            return (chosen.start, len(chosen), chosen.step) if chosen else (0, 0, 1)
        step = 1 if entry.step is None else _integer(entry.step)
        low, high = (-1, size - 1) if step < 0 else (0, size)
        first, last = (high, low) if step < 0 else (low, high)
        start = first if entry.start is None else _clamped(_integer(entry.start), low, high, size)
        stop = last if entry.stop is None else _clamped(_integer(entry.stop), low, high, size)
        count = max(-((start - stop) // step), 0)
    except Exception:  # bounds that are no integers, or a step of 0
        raise InvalidArgument(
            f"{caller}: a slice must have integers and a step other than 0, got {shown(entry)} for axis {axis}"
        ) from None
    return (start, count, step) if count else (0, 0, 1)


def _integer(value: Any) -> int:
    return value if is_symbolic(value) else operator.index(value)


def _clamped(place: int, low: int, high: int, size: int) -> int:
    """Return a bound of a slice between the least and the greatest position; negative ones count from the end."""
    return min(max(place + size if place < 0 else place, low), high)


def _index(caller: str, entry: Any, size: int, axis: int) -> int:
    try:
        index = None if isinstance(entry, bool) else _integer(entry)
    except Exception:  # whatever a foreign __index__ raises
        index = None
    if index is None:
        raise InvalidArgument(
            f"{caller}: an index must be an integer, a slice, None, Ellipsis or a Tensor of integers, "
            f"got {type(entry).__name__}"
        )
    if not -size <= index < size:
        raise InvalidIndex(
            f"{caller}: an index must be between {-size} and {size - 1} for axis {axis}, got {shown(index)}"
        )
    return index % size


Policy: TypeAlias = Callable[[DataType, TensorFlags, Sizes], TensorDesc]
"""Maps type, flags and sizes to a description with these and any strides, byte size and alignment."""


def packed(data_type: DataType, flags: TensorFlags, sizes: Sizes) -> TensorDesc:
    """Return a packed row-major description, the default."""
    return TensorDesc(data_type, sizes, flags=flags)


def interleaved_channel(data_type: DataType, flags: TensorFlags, sizes: Sizes) -> TensorDesc:
    """Return a description with channels innermost: {N, C, H, W} is stored as {N, H, W, C}. Rank 1 is packed."""
    if len(sizes) < 2:
        return packed(data_type, flags, sizes)
    batch, channels, *spatial = sizes
    first, *rest, last = packed_strides((batch, *spatial, channels))
    return TensorDesc(data_type, sizes, (first, last, *rest), flags)


POLICIES: Mapping[str, Policy] = {"default": packed, "interleaved_channel": interleaved_channel}


def as_policy(policy: str | Policy) -> Policy:
    """Return a policy by name, or the function itself.

    Raises:
        InvalidArgument: If the name is unknown, or the argument is not callable.
    """
    if callable(policy):
        return policy
    named = POLICIES.get(policy) if isinstance(policy, str) else None
    if named is None:
        raise InvalidArgument(f"Graph: policy must be a function or one of {', '.join(POLICIES)}, got {shown(policy)}")
    return named
