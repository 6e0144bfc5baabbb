"""Frequencies of discrete Fourier transforms, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.coercion import argument, real
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops.creation import sequence
from dmlgpu.ops.fft.operands import holds_pairs, length_of
from dmlgpu.ops.shape import roll
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, named, tensor_of
from dmlgpu.tensors.layout import checked_axes
from dmlgpu.tensors.tensor import Tensor

__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]


@named
def fftfreq(n: int, d: float = 1.0, *, device: Where = None) -> Tensor:
    """Return the frequencies of `fft`, in cycles per unit of the sample spacing.

    Args:
        n: Length of the transform.
        d: Sample spacing, the inverse of the sampling rate; defaults to 1.
        device: Device or adapter name; defaults to the default device.

    Returns:
        Tensor {n} of float32: 0, 1, ..., then the negative ones ... -2, -1, divided by n * d.

    Raises:
        InvalidArgument: If `n` is not a positive integer, or `d` not a number other than 0.

    Examples:
        >>> ops.fft.fftfreq(4, 0.5).tolist()
        [0.0, 0.5, -1.0, -0.5]

    See also:
        `rfftfreq`, `fftshift`.

    Computed by FILL_VALUE_SEQUENCE (`ns-directml-dml_fill_value_sequence_operator_desc`) and elementwise operators.
    """
    length = length_of("n", n, 0)
    numbers = sequence(length, 0, 1, DataType.FLOAT32, device)
    turns = numbers._chosen(numbers < (length + 1) // 2, numbers - float(length))
    return turns * _step(length, d)


@named
def rfftfreq(n: int, d: float = 1.0, *, device: Where = None) -> Tensor:
    """Return the frequencies of `rfft`, in cycles per unit of the sample spacing.

    Args:
        n: Length of the transform.
        d: Sample spacing, the inverse of the sampling rate; defaults to 1.
        device: Device or adapter name; defaults to the default device.

    Returns:
        Tensor {n // 2 + 1} of float32: 0, 1, ..., n // 2, divided by n * d.

    Raises:
        InvalidArgument: If `n` is not a positive integer, or `d` not a number other than 0.

    Examples:
        >>> ops.fft.rfftfreq(4, 0.5).tolist()
        [0.0, 0.5, 1.0]

    See also:
        `fftfreq`, `rfft`.

    Computed by FILL_VALUE_SEQUENCE (`ns-directml-dml_fill_value_sequence_operator_desc`) and elementwise operators.
    """
    length = length_of("n", n, 0)
    return sequence(length // 2 + 1, 0, 1, DataType.FLOAT32, device) * _step(length, d)


def _step(length: int, d: Any) -> float:
    spacing = argument(caller(), "d", real, d)
    if not spacing:
        raise InvalidArgument(f"{caller()}: d must be a number other than 0, got {shown(d)}")
    return 1.0 / (length * spacing)


@eager
def fftshift(
    x: Operand, axes: int | Sequence[int] | None = None, *, pairs: bool | None = None, device: Where = None
) -> Array:
    """Return frequencies in ascending order: with 0 moved from the beginning of an axis to its middle.

    Args:
        x: Tensor or array of any dtype.
        axes: Axis or axes, not counting that of the parts; negative axes count from the end. Defaults to None, all.
        pairs: Whether the last axis of `x` holds real and imaginary parts. Defaults to None: it does not, but its size
            must not be 2 if there are others.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, or `pairs` is needed or does not fit.

    Examples:
        >>> ops.fft.fftshift(ops.fft.fftfreq(4)).tolist()
        [-0.5, -0.25, 0.0, 0.25]

    See also:
        `ifftshift`, `fftfreq`, `dmlgpu.ops.roll`.

    Computed by JOIN (`ns-directml-dml_join_operator_desc`) of views.
    """
    return _shifted(tensor_of("x", x), axes, pairs, False)


@eager
def ifftshift(
    x: Operand, axes: int | Sequence[int] | None = None, *, pairs: bool | None = None, device: Where = None
) -> Array:
    """Return frequencies in the order of `fft`: the inverse of `fftshift`.

    Args:
        x: Tensor or array of any dtype.
        axes: Axis or axes, not counting that of the parts; negative axes count from the end. Defaults to None, all.
        pairs: Whether the last axis of `x` holds real and imaginary parts. Defaults to None: it does not, but its size
            must not be 2 if there are others.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one).

    Raises:
        InvalidArgument: If an axis is out of range, or `pairs` is needed or does not fit.

    Examples:
        >>> ops.fft.ifftshift([-2, -1, 0, 1])
        array([ 0,  1, -2, -1])

    See also:
        `fftshift`.

    Computed by JOIN (`ns-directml-dml_join_operator_desc`) of views.
    """
    return _shifted(tensor_of("x", x), axes, pairs, True)


def _shifted(x: Tensor, axes: Any, pairs: Any, inverse: bool) -> Tensor:
    rank = x.ndim - holds_pairs(x, pairs)
    numbers = tuple(range(rank)) if axes is None else checked_axes(caller(), "axes", axes, rank)
    shifts = [-(x.sizes[axis] // 2) if inverse else x.sizes[axis] // 2 for axis in numbers]
    return roll(x, shifts, numbers)
