"""``interpolate``: signals, images and volumes in other sizes, with PyTorch's meaning of modes and corners."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import AxisDirection, InterpolationMode
from dmlgpu.common.coercion import argument, as_index, between, boolean, real, tuple_of
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.compiler.sizes.arithmetic import value_of
from dmlgpu.ops import directml
from dmlgpu.tensors.calls import FLOATING, Array, Operand, Where, caller, check_kind, eager, tensor_of, word
from dmlgpu.tensors.tensor import Tensor, matmul
from dmlgpu.tensors.types import is_number

__all__ = ["interpolate"]

Mode: TypeAlias = Literal["nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"]

_MODES = ("nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area")
_RANKS = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
_SIZES = tuple_of(between(1, 2**32 - 1), "integers")
_FACTORS = tuple_of(real, "numbers")
_CUBIC = -0.75
"""The parameter of the cubic kernel, PyTorch's."""


@eager
def interpolate(
    x: Operand,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: Mode = "nearest",
    align_corners: bool | None = None,
    *,
    device: Where = None,
) -> Array:
    """Resample signals (N, C, W), images (N, C, H, W) or volumes (N, C, D, H, W), as PyTorch's function does.

    Args:
        x: Tensor or array of float32 or float16; also of int8 or uint8 for the nearest modes.
        size: Spatial sizes of the result: a number for all spatial axes, or one for each.
        scale_factor: Factors of the spatial sizes, which are rounded down, in place of ``size``.
        mode: ``"nearest"``, ``"nearest-exact"``, ``"linear"`` for signals, ``"bilinear"`` or ``"bicubic"`` for images,
            ``"trilinear"`` for volumes, or ``"area"``: means of the pixels that a pixel of the result covers.
        align_corners: Whether the centers of corner pixels coincide, else their corners; for linear and cubic modes.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the dtype of `x` (an array if `x` is one), of shape (N, C, *sizes).

    Raises:
        InvalidArgument: If neither or both of ``size`` and ``scale_factor`` are given, the mode is for another rank, or
            a size is 0.

    Examples:
        >>> x = np.array([[[0, 2, 4]]], np.float32)
        >>> ops.interpolate(x, size=5, mode="linear", align_corners=True).tolist()
        [[[0.0, 1.0, 2.0, 3.0, 4.0]]]

    See also:
        ``resize``, which takes sizes of all axes and antialiases.

    Computed by RESAMPLE3 (`ns-directml-dml_resample3_operator_desc`); ``"bicubic"`` and ``"area"`` by a product with a
    matrix of weights along each axis.
    """
    tensor, kind = tensor_of("x", x), word("mode", mode, _MODES)
    spatial = tensor.sizes[2:]
    if not 1 <= len(spatial) <= 3 or 0 in tensor.sizes:
        raise InvalidArgument(
            f"{caller()}: x must have sizes {{N, C, W}}, {{N, C, H, W}} or {{N, C, D, H, W}} of at least 1, got "
            f"{list(tensor.sizes)}"
        )
    if _RANKS.get(kind, len(spatial)) != len(spatial):
        fitting = ["nearest", "nearest-exact", "area", *(name for name, rank in _RANKS.items() if rank == len(spatial))]
        raise InvalidArgument(
            f"{caller()}: mode must be one of {', '.join(fitting)} for x of rank {tensor.ndim}, got {shown(mode)}"
        )
    if align_corners is not None and kind not in _RANKS:
        raise InvalidArgument(
            f"{caller()}: align_corners must be None for mode {shown(mode)}, got {shown(align_corners)}"
        )
    aligned = align_corners is not None and argument(caller(), "align_corners", boolean, align_corners)
    sizes, factors = _sizes(spatial, size, scale_factor)
    if not kind.startswith("nearest"):
        check_kind("x", tensor, FLOATING)
    flat = tensor.reshape(-1, *spatial)
    if kind in ("bicubic", "area"):
        for axis, (old, new, factor) in enumerate(zip(spatial, sizes, factors, strict=True), 1):
            known = value_of(old), value_of(new)
            weights = cubic_weights(*known, factor, aligned) if kind == "bicubic" else area_weights(*known)
            flat = weighted(flat, weights, axis)
        return flat.reshape(*tensor.sizes[:2], *sizes)
    axes = [
        resample_coordinates(kind, old, new, factor, aligned)
        for old, new, factor in zip(spatial, sizes, factors, strict=True)
    ]
    scales, before, after = zip((1.0, 0.0, 0.0), *axes, strict=True)
    is_nearest = kind.startswith("nearest")
    result: Tensor = directml.resample3(
        flat,
        interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR if is_nearest else InterpolationMode.LINEAR,
        rounding_direction=AxisDirection.DECREASING,
        scales=scales,
        input_pixel_offsets=before,
        output_pixel_offsets=after,
        antialiased=False,
        output_sizes=(flat.sizes[0], *sizes),
    )
    return result._renamed((*tensor.sizes[:2], *sizes))


def _sizes(spatial: tuple[int, ...], size: Any, scale_factor: Any) -> tuple[tuple[int, ...], list[float | None]]:
    """Return the spatial sizes of the result, and the factors if the caller gave them."""
    if (size is None) == (scale_factor is None):
        raise InvalidArgument(
            f"{caller()}: either size or scale_factor must be given, got {'neither' if size is None else 'both'}"
        )
    count = len(spatial)
    name, value = ("size", size) if scale_factor is None else ("scale_factor", scale_factor)
    is_single = is_number(value) if scale_factor is not None else as_index(value) is not None
    listed = (value,) * count if is_single else value
    entries: tuple[Any, ...] = argument(caller(), name, _SIZES if scale_factor is None else _FACTORS, listed)
    if len(entries) != count:
        raise InvalidArgument(f"{caller()}: {name} must be a number, or {count} of them, got {shown(value)}")
    if scale_factor is None:
        return entries, [None] * count
    sizes = [old * factor if 0 < factor < 2**32 else 0 for old, factor in zip(spatial, entries, strict=True)]
    if any(not 1 <= new < 2**32 for new in sizes):
        raise InvalidArgument(f"{caller()}: scale_factor must lead to sizes of at least 1, got {shown(value)}")
    return tuple(math.floor(new) for new in sizes), list(entries)


def resample_coordinates(
    kind: str, old: int, new: int, factor: float | None, aligned: bool
) -> tuple[float, float, float]:
    """Return scale, input offset and output offset of RESAMPLE along an axis.

    It reads at (place - output offset) / scale - input offset, which the nearest modes round down.
    """
    if aligned:
        return ((new - 1) / (old - 1) if new > 1 and old > 1 else float(max(new, 1))), 0.0, 0.0
    scale = new / old if factor is None else factor
    if kind in _RANKS:
        return (1.0 if old == new else scale), 0.5, -0.5  # PyTorch copies along an axis whose size stays
    # Values to be rounded down are multiples of 1 / (2 * new): half of that keeps integers from falling below.
    nudge = -0.25 / new if factor is None else 0.0
    return scale, nudge, -0.5 if kind == "nearest-exact" else 0.0


def cubic_weights(old: int, new: int, factor: float | None, aligned: bool) -> NDArray[Any]:
    """Return the weight of each old pixel in each new one, by cubic convolution."""
    places = np.arange(new, dtype=np.float64)
    if aligned:
        places = places * ((old - 1) / (new - 1) if new > 1 else 0.0)
    else:
        places = (places + 0.5) * (old / new if factor is None else 1 / factor) - 0.5
    first = np.floor(places).astype(np.int64)
    weights = np.zeros((new, old))
    for step in (-1, 0, 1, 2):
        distance = np.abs(places - first - step)
        near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1
        far = ((distance - 5) * distance + 8) * distance * _CUBIC - 4 * _CUBIC
        np.add.at(weights, (np.arange(new), np.clip(first + step, 0, old - 1)), np.where(distance <= 1, near, far))
    return weights


def area_weights(old: int, new: int) -> NDArray[Any]:
    """Return the weight of each old pixel in each new one, the mean of those that it covers."""
    places, pixels = np.arange(new)[:, None], np.arange(old)
    begin, end = places * old // new, -(-(places + 1) * old // new)
    return ((begin <= pixels) & (pixels < end)) / (end - begin)


def weighted(x: Tensor, weights: NDArray[Any], axis: int) -> Tensor:
    """Return sums along an axis with the weights of each row of a matrix."""
    matrix = x._beside(weights.T.astype(x.dtype))
    order = [i for i in range(x.ndim) if i != axis]
    rows = x.transpose(*order, axis)
    result = matmul(rows, matrix, caller())
    return result.transpose(*(order.index(i) if i != axis else x.ndim - 1 for i in range(x.ndim)))
