"""Elements between those of a picture, at coordinates that the device computes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.onnx.compose import add, cast, choose, multiply, number_like, spread, subtract
from dmlgpu.frontends.onnx.node import reshaped, transposed
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression

_CUBIC = -0.75
"""The coefficient of cubic convolution."""


def sample(
    x: Expression, coordinates: Sequence[Expression], *, mode: str, padding: str, aligned: bool = False
) -> Expression:
    """Return elements {N, M, C} of pictures {N, C, ...} at coordinates.

    Args:
        x: the pictures, of a float type.
        coordinates: one {N, M} of FLOAT32 per spatial dimension, counted in elements.
        mode: ``"nearest"``, ``"linear"`` or ``"cubic"``.
        padding: what lies beyond: ``"zeros"``, ``"border"`` or ``"reflection"``.
        aligned: whether the border that reflects goes through the middle of the outermost elements.
    """
    batch, channels, *spatial = x.sizes
    rows = transposed(reshaped(x, (batch, channels, math.prod(spatial))), (0, 2, 1))
    taps = [
        _taps(one, size, mode=mode, padding=padding, aligned=aligned)
        for one, size in zip(coordinates, spatial, strict=True)
    ]
    total: Expression | None = None
    for chosen in itertools.product(*taps):
        place, weight = chosen[0]
        for (other, factor), size in zip(chosen[1:], spatial[1:], strict=True):
            place = add(multiply(place, size), other)
            weight = weight if factor is None else factor if weight is None else multiply(weight, factor)
        picked = functions.gather_nd1(
            rows,
            reshaped(place, (*place.sizes, 1)),
            input_dimension_count=3,
            indices_dimension_count=3,
            batch_dimension_count=1,
        )
        if weight is not None:
            picked = multiply(cast(picked, DataType.FLOAT32), reshaped(weight, (*weight.sizes, 1)))
        total = picked if total is None else add(total, picked)
    assert total is not None
    return cast(total, x.data_type)


def _taps(
    coordinate: Expression, size: int, *, mode: str, padding: str, aligned: bool
) -> list[tuple[Expression, Expression | None]]:
    """Return places along a dimension and their weights, None for 1."""
    if mode == "nearest":
        coordinate = dml.round(coordinate)
    if padding == "border" and mode != "cubic":
        coordinate = dml.clip(coordinate, 0.0, size - 1.0)
    elif padding == "reflection":
        coordinate = _reflected(coordinate, size, aligned)
    base = coordinate if mode == "nearest" else dml.floor(coordinate)
    offsets = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[mode]
    found = []
    for offset in offsets:
        place = base if offset == 0 else add(base, offset)
        weight = None
        if mode != "nearest":
            distance = dml.abs(subtract(place, coordinate))
            weight = subtract(1, distance) if mode == "linear" else _cubic(distance, near=offset in (0, 1))
        if padding == "zeros":
            inside = dml.logical_and(
                spread(dml.greater_than_or_equal, place, 0), spread(dml.less_than_or_equal, place, size - 1)
            )
            weight = choose(inside, 1.0 if weight is None else weight, number_like(place, 0.0))
        elif padding == "reflection":
            place = _reflected(place, size, aligned)
        found.append((dml.cast(dml.clip(place, 0.0, size - 1.0), DataType.INT32), weight))
    return found


def _cubic(distance: Expression, *, near: bool) -> Expression:
    """Return the weight of cubic convolution at a distance below 1, or between 1 and 2."""
    a = _CUBIC
    if near:
        inner = multiply(subtract(multiply(distance, a + 2), a + 3), multiply(distance, distance))
        return add(inner, 1)
    inner = multiply(add(multiply(subtract(multiply(distance, a), 5 * a), distance), 8 * a), distance)
    return subtract(inner, 4 * a)


def _reflected(place: Expression, size: int, aligned: bool) -> Expression:
    """Return coordinates mirrored at the borders as often as it takes."""
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    extent = high - low
    if not extent:
        return multiply(place, 0.0)
    turned = spread(dml.modulus_floor, subtract(place, low), 2 * extent)
    return subtract(high, dml.abs(subtract(turned, extent)))
