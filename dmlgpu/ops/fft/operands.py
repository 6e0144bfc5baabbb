"""Operands of ``dmlgpu.ops.fft``: complex numbers as pairs in the last axis, transforms along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS
from dmlgpu.common.coercion import argument, as_index, boolean, optional
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops.fft.transforms import MAX_LENGTH, real_signal, spectrum
from dmlgpu.tensors.calls import caller, filled
from dmlgpu.tensors.layout import checked_axis
from dmlgpu.tensors.tensor import Tensor

NORMS = ("backward", "ortho", "forward")
"""Normalizations: the inverse transform is divided by the length, both by its root, or the forward one by the
length."""


def holds_pairs(x: Tensor, pairs: Any) -> bool:
    """Return whether the last axis holds real and imaginary parts.

    Raises:
        InvalidArgument: If the operand could be read both ways, or has no such axis.
    """
    is_complex = argument(caller(), "pairs", optional(boolean), pairs)
    if is_complex is None and x.ndim > 1 and x.sizes[-1] == 2:
        raise InvalidArgument(
            f"{caller()}: pairs must be True if the last axis of x, of size 2, holds real and imaginary parts, else "
            f"False, got None for sizes {list(x.sizes)}"
        )
    if is_complex:
        check_pairs("x", x)
    return bool(is_complex)


def check_pairs(name: str, x: Tensor) -> None:
    """Check that the last axis can hold real and imaginary parts.

    Raises:
        InvalidArgument: If its size is not 2.
    """
    if not x.ndim or x.sizes[-1] != 2:
        raise InvalidArgument(
            f"{caller()}: {name} must have real and imaginary parts in a last axis of size 2, got sizes "
            f"{list(x.sizes)}; ops.stack([real, imaginary], -1) joins them"
        )


def with_parts(x: Tensor, is_complex: bool) -> Tensor:
    """Return {..., parts}: a real tensor with a last axis of size 1."""
    if is_complex:
        return x
    if x.ndim == MAX_DIMENSIONS:
        raise InvalidArgument(f"{caller()}: x must have at most {MAX_DIMENSIONS - 1} dimensions, got {x.ndim}")
    return x.expand_dims(-1)


def length_of(name: str, value: Any, default: int) -> int:
    """Return the length of a transform, by default that of the axis.

    Raises:
        InvalidArgument: If it is not an integer from 1 to ``MAX_LENGTH``.
    """
    length = default if value is None else as_index(value)
    if length is None or not 1 <= length <= MAX_LENGTH:
        got = shown(value) if value is not None else f"an axis of size {default}"
        raise InvalidArgument(f"{caller()}: {name} must be an integer from 1 to {MAX_LENGTH}, got {got}")
    return length


def scale_of(norm: Any, length: int, inverse: bool) -> float:
    """Return the factor of a transform's results.

    Raises:
        InvalidArgument: If `norm` is none of the modes.
    """
    if norm is not None and (not isinstance(norm, str) or norm not in NORMS):
        raise InvalidArgument(f"{caller()}: norm must be None, 'backward', 'ortho' or 'forward', got {shown(norm)}")
    if norm == "ortho":
        return 1 / math.sqrt(length)
    return 1 / length if (norm == "forward") is not inverse else 1.0


def axis_of(axis: Any, x: Tensor) -> int:
    """Return an axis of {..., parts}, counted from the front among those before the parts."""
    return checked_axis(caller(), "axis", axis, x.ndim - 1)


def _along(x: Tensor, axis: int, known: int, length: int, parts: int, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function of rows {rows, size, parts} along an axis of {..., parts}.

    Args:
        x: Tensor {..., parts}.
        axis: Axis of the rows, from the front.
        known: Most elements of a row that are read.
        length: Number of results of a row.
        parts: Number of parts of the results.
        function: Transforms rows, at least one.
    """
    order = [*(i for i in range(x.ndim - 1) if i != axis), axis, x.ndim - 1]
    rest = [x.sizes[i] for i in order[:-2]]
    if not x.size:
        sizes = [*x.sizes[:-1], parts]
        sizes[axis] = length
        return filled(x, sizes)
    rows = x.transpose(order)[..., :known, :] if x.sizes[axis] > known else x.transpose(order)
    result = function(rows.reshape(-1, *rows.sizes[-2:])).reshape(*rest, length, parts)
    return result.transpose([order.index(i) for i in range(x.ndim)])


def transformed(
    x: Tensor, axis: int, length: int, norm: Any, *, inverse: bool = False, bins: int | None = None
) -> Tensor:
    """Return the transforms of {..., parts} along an axis as pairs, the first ``bins`` of their results."""
    count, scale = length if bins is None else bins, scale_of(norm, length, inverse)

    def function(rows: Tensor) -> Tensor:
        return spectrum(rows, length, count, constant=rows._beside, inverse=inverse, scale=scale)

    return _along(x, axis, length, count, 2, function)


def real_inverse(x: Tensor, axis: int, length: int, norm: Any) -> Tensor:
    """Return the real signals {...} of one-sided spectra {..., 2} along an axis."""
    scale = scale_of(norm, length, True)

    def function(rows: Tensor) -> Tensor:
        return real_signal(rows, length, constant=rows._beside, scale=scale)

    return _along(x, axis, length // 2 + 1, length, 1, function).squeeze(-1)


def axes_of(s: Any, axes: Any, x: Tensor) -> list[tuple[int, Any]]:
    """Return the axes of {..., parts} that a transform of several runs along, from the front, each with its length.

    Args:
        s: Lengths, None for those of the axes.
        axes: Axes, None for the last ones, as many as lengths, all without.
        x: Tensor {..., parts}.

    Raises:
        InvalidArgument: If an axis is out of range or named twice, or there are more lengths than axes.
    """
    for name, value in (("s", s), ("axes", axes)):
        if value is not None and (isinstance(value, str | bytes) or not isinstance(value, Sequence)):
            raise InvalidArgument(f"{caller()}: {name} must be a sequence of integers or None, got {shown(value)}")
    rank = x.ndim - 1
    if axes is None:
        count = rank if s is None else len(s)
        if count > rank:
            raise InvalidArgument(f"{caller()}: s must have at most {rank} lengths, got {shown(s)}")
        axes = range(rank - count, rank)
    numbers = [checked_axis(caller(), "axes", axis, rank) for axis in axes]
    if len(set(numbers)) < len(numbers):
        raise InvalidArgument(f"{caller()}: axes must name each axis once, got {shown(axes)}")
    if not numbers:
        raise InvalidArgument(f"{caller()}: axes must name at least one axis, got {shown(axes)}")
    lengths = [None] * len(numbers) if s is None else list(s)
    if len(lengths) != len(numbers):
        raise InvalidArgument(f"{caller()}: s must have a length for each of {len(numbers)} axes, got {shown(s)}")
    return list(zip(numbers, lengths, strict=True))
