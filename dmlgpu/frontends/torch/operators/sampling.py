"""Sampling of images and volumes at the positions of a grid, and its gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.torch.operators.embedding import summed_rows
from dmlgpu.frontends.torch.operators.registry import aten, decomposes
from dmlgpu.ops import directml
from dmlgpu.ops.creation import sequence
from dmlgpu.ops.shape import joined
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.gradients.rules import total
from dmlgpu.tensors.tensor import Tensor

_BILINEAR, _NEAREST, _BICUBIC = range(3)
"""PyTorch's values of interpolation modes."""

_ZEROS, _BORDER, _REFLECTION = range(3)
"""PyTorch's values of padding modes."""

_CUBIC = -0.75

decomposes("affine_grid_generator")


class _Tap(NamedTuple):
    """A pixel along an axis that a place of the grid reads."""

    pixel: Tensor
    weight: Tensor | None
    """None for 1."""
    slope: Tensor | None
    """Derivative of the weight with respect to the grid; None for 0."""


def _floor(x: Tensor) -> Tensor:
    result: Tensor = directml.element_wise_floor(x)
    return result


def _reflected(x: Tensor, size: int, align_corners: bool) -> tuple[Tensor, Tensor]:
    """Return places reflected at the borders, and the sign of their derivative."""
    twice_low, twice_high = (0, 2 * (size - 1)) if align_corners else (-1, 2 * size - 1)
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    if not span:
        zeros = x * 0.0
        return zeros, zeros
    offset = x - low
    distance = abs(offset)
    flips = _floor(distance * (1 / span))
    extra = distance - flips * span
    is_even = (flips - _floor(flips * 0.5) * 2.0) == 0
    sign = filled(x, (1,) * x.ndim, 1.0).broadcast_to(x.sizes)
    sign = sign._chosen(offset >= 0, -1.0)
    return (extra + low)._chosen(is_even, (span + low) - extra), sign._chosen(is_even, -sign)


def _padded(x: Tensor, size: int, padding: int, align_corners: bool) -> tuple[Tensor, Tensor | None]:
    """Return places inside of the image, and the factor of their derivative, None for 1."""
    if padding == _ZEROS:
        return x, None
    factor = None
    if padding == _REFLECTION:
        x, factor = _reflected(x, size, align_corners)
    is_inside = (x > 0) & (x < size - 1)
    inside = is_inside.astype(x.data_type)
    clipped: Tensor = directml.element_wise_clip1(x, min=0.0, max=float(size - 1))
    return clipped, inside if factor is None else inside * factor


def _taps(grid: Tensor, size: int, mode: int, padding: int, align_corners: bool) -> list[_Tap]:
    """Return the pixels that the positions {N, ...} of a grid read along an axis."""
    scale = (size - 1) / 2 if align_corners else size / 2
    position = (grid + 1.0) * scale if align_corners else (grid + 1.0) * scale - 0.5
    if mode == _BICUBIC:
        base = _floor(position)
        fraction = position - base
        taps = []
        for step in (-1, 0, 1, 2):
            index, _ = _padded(base + float(step), size, padding, align_corners)
            weight, slope = _cubic_weight(abs(fraction - float(step)), near=step in (0, 1))
            sign = -1.0 if step > 0 else 1.0  # the derivative of |fraction - step|
            taps.append(_Tap(index, weight, slope * (scale * sign)))
        return taps
    position, factor = _padded(position, size, padding, align_corners)
    if mode == _NEAREST:
        nearest: Tensor = directml.element_wise_round(position, rounding_mode="halves_to_nearest_even")
        return [_Tap(nearest, None, None)]
    base = _floor(position)
    fraction = position - base
    slope = (
        filled(position, (1,) * position.ndim, scale).broadcast_to(position.sizes) if factor is None else factor * scale
    )
    return [_Tap(base, 1.0 - fraction, -slope), _Tap(base + 1.0, fraction, slope)]


def _cubic_weight(x: Tensor, *, near: bool) -> tuple[Tensor, Tensor]:
    """Return the weight of a pixel at a distance, and its derivative."""
    if near:
        a, b = _CUBIC + 2, -(_CUBIC + 3)
        return (x * a + b) * x * x + 1.0, (x * (3 * a) + 2 * b) * x
    weight = ((x * _CUBIC - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC
    return weight, (x * (3 * _CUBIC) - 10 * _CUBIC) * x + 8 * _CUBIC


class _Corner(NamedTuple):
    """A pixel that each place of the grid {N, places} reads."""

    row: Tensor
    """Row of the pixel in all images {N * H * W, C}."""
    inside: Tensor
    """1, or 0 for pixels beyond the image, which count as 0."""
    weights: list[Tensor | None]
    slopes: list[Tensor | None]

    def weight(self, without: int | None = None) -> Tensor:
        """Return the weight of the pixel, or its derivative with respect to the place along an axis."""
        result = self.inside
        for axis, weight in enumerate(self.weights):
            factor = self.slopes[axis] if axis == without else weight
            result = result if factor is None else result * factor
        return result


def _corners(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> list[_Corner]:
    rank = x.ndim - 2
    batch, spatial = x.sizes[0], x.sizes[2:]
    flat = grid.reshape(batch, -1, rank)
    axes = [_taps(flat[:, :, rank - 1 - axis], spatial[axis], mode, padding, align_corners) for axis in range(rank)]
    first = sequence(batch, 0, math.prod(spatial), DataType.INT32, x.device).expand_dims(1)
    corners = []
    for taps in itertools.product(*axes):
        is_inside: Any = None
        position: Any = None
        for tap, size in zip(taps, spatial, strict=True):
            inside = (tap.pixel >= 0) & (tap.pixel <= size - 1)
            is_inside = inside if is_inside is None else is_inside & inside
            step = tap.pixel._chosen(inside, 0.0).astype(DataType.INT32)
            position = step if position is None else position * size + step
        corners.append(
            _Corner(
                position + first,
                is_inside.astype(x.data_type),
                [tap.weight for tap in taps],
                [tap.slope for tap in taps],
            )
        )
    return corners


def _pixels(x: Tensor) -> Tensor:
    """Return {N * H * W, C} for {N, C, H, W}."""
    return x.transpose(0, *range(2, x.ndim), 1).reshape(-1, x.sizes[1])


@aten("grid_sampler_2d", "grid_sampler_3d", wide=True, fused=True)
def grid_sample(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    """Return the pixels of images or volumes at the places of a grid."""
    sizes = (*x.sizes[:2], *grid.sizes[1:-1])
    if 0 in sizes:
        return filled(x, sizes)
    pixels = _pixels(x)
    result: Any = None
    for corner in _corners(x, grid, mode, padding, align_corners):
        values = pixels._taken(corner.row.reshape(-1), 0, "grid_sampler") * corner.weight().reshape(-1, 1)
        result = values if result is None else result + values
    rows: Tensor = result.reshape(x.sizes[0], *grid.sizes[1:-1], x.sizes[1])
    return rows.transpose(0, rows.ndim - 1, *range(1, rows.ndim - 1))


@aten("grid_sampler_2d_backward", "grid_sampler_3d_backward", wide=True)
def grid_sample_backward(
    gradient: Tensor,
    x: Tensor,
    grid: Tensor,
    mode: int,
    padding: int,
    align_corners: bool,
    mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of the images and of the grid of `grid_sampler_2d` or `grid_sampler_3d`."""
    rank = x.ndim - 2
    if not gradient.size:
        return filled(x, x.sizes), filled(grid, grid.sizes)
    pixels, rows = _pixels(x), _pixels(gradient)
    corners = _corners(x, grid, mode, padding, align_corners)
    of_input = of_grid = None
    if mask[0]:
        keys = joined([corner.row.reshape(-1) for corner in corners], 0)
        shares = joined([rows * corner.weight().reshape(-1, 1) for corner in corners], 0)
        sums = summed_rows(shares, keys, pixels.sizes[0]).reshape(x.sizes[0], *x.sizes[2:], x.sizes[1])
        of_input = sums.transpose(0, x.ndim - 1, *range(1, x.ndim - 1))
    if mask[1]:
        slopes: list[Any] = [None] * rank
        for corner in corners if mode != _NEAREST else ():
            values = total(pixels._taken(corner.row.reshape(-1), 0, "grid_sampler") * rows, (1,)).squeeze(1)
            for axis in range(rank):
                product = values * corner.weight(axis).reshape(-1)
                slopes[axis] = product if slopes[axis] is None else slopes[axis] + product
        if mode == _NEAREST:
            of_grid = filled(grid, (1,) * grid.ndim).broadcast_to(grid.sizes)
        else:
            of_grid = joined([slope.expand_dims(1) for slope in reversed(slopes)], 1).reshape(grid.sizes)
    return of_input, of_grid
