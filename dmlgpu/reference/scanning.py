"""Scans along an axis, nonzero coordinates, and sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import AxisDirection
from dmlgpu.reference.elementwise import as_bits
from dmlgpu.reference.registry import Array, reference

AT_ONCE = 512
"""Significands from 1/2 to 1 whose product a float64 surely holds."""


def _scanned(
    array: Array, axis: int, direction: AxisDirection, running: Callable[[Array], Array], *, start: int, exclusive: bool
) -> Array:
    """What ``running`` makes of lines along the last axis, visited in a direction; the element itself omitted if
    exclusive."""
    lines = np.moveaxis(array, axis, -1)
    if direction is AxisDirection.DECREASING:
        lines = lines[..., ::-1]
    if exclusive:
        lines = np.concatenate([np.full((*lines.shape[:-1], 1), start, lines.dtype), lines[..., :-1]], -1)
    results = running(lines)
    if direction is AxisDirection.DECREASING:
        results = results[..., ::-1]
    return np.moveaxis(results, -1, axis).astype(array.dtype)


def _sums(lines: Array) -> Array:
    """Running sums from 0 on: floats in float64, integers wrap."""
    if lines.dtype.kind == "f":
        return 0.0 + lines.cumsum(-1, np.float64)
    return lines.cumsum(-1, lines.dtype)


def _products(lines: Array) -> Array:
    """Running products: floats as significands in float64 and exponents apart, integers wrap."""
    if lines.dtype.kind != "f":
        return lines.cumprod(-1, lines.dtype)
    significands, exponents = np.frexp(lines.astype(np.float64))
    exponents = exponents.astype(np.int64).cumsum(-1)
    carried, shift = np.ones((*lines.shape[:-1], 1)), np.zeros((*lines.shape[:-1], 1), np.int64)
    for first in range(0, lines.shape[-1], AT_ONCE):
        block = significands[..., first : first + AT_ONCE]
        products, more = np.frexp(carried * block.cumprod(-1))
        significands[..., first : first + AT_ONCE] = products
        exponents[..., first : first + AT_ONCE] += shift + more
        carried, shift = products[..., -1:], shift + more[..., -1:]
    return np.ldexp(significands, np.clip(exponents, -5000, 5000).astype(np.int32))


@reference(descs.CumulativeSummation)
def cumulative_summation(desc: descs.CumulativeSummation, input_tensor: Array) -> Array:
    """Running sums along an axis."""
    return _scanned(input_tensor, desc.axis, desc.axis_direction, _sums, start=0, exclusive=desc.has_exclusive_sum)


@reference(descs.CumulativeProduct)
def cumulative_product(desc: descs.CumulativeProduct, input_tensor: Array) -> Array:
    """Running products along an axis."""
    return _scanned(
        input_tensor, desc.axis, desc.axis_direction, _products, start=1, exclusive=desc.has_exclusive_product
    )


@reference(descs.NonzeroCoordinates)
def nonzero_coordinates(desc: descs.NonzeroCoordinates, input_tensor: Array) -> tuple[Array, Array]:
    """How many elements are not zero, and their last coordinates in row-major order; rows of 0 after them."""
    coordinates = np.zeros(desc.output_coordinates_tensor.sizes, np.uint32)
    nonzero = np.argwhere(input_tensor != 0)
    coordinates.reshape(coordinates.shape[-2:])[: len(nonzero)] = nonzero[:, -coordinates.shape[-1] :]
    return np.full(desc.output_count_tensor.sizes, len(nonzero), np.uint32), coordinates


def _places(array: Array, axis: int, direction: AxisDirection) -> NDArray[np.intp]:
    """Return the stable order of every line. NaN is larger than all numbers, and equal to NaN.

    A stable sort of a line read backwards, read backwards itself, has the largest element first and of equal ones that
    with the lower index.
    """
    if direction is AxisDirection.INCREASING:
        return np.argsort(array, axis, kind="stable")
    last = array.shape[axis] - 1
    return last - np.flip(np.argsort(np.flip(array, axis), axis, kind="stable"), axis)


def _first(desc: Any, array: Array, direction: AxisDirection) -> tuple[Array, Array]:
    """Return the first K values of every line, bit for bit, and their places."""
    places = np.take(_places(array, desc.axis, direction), np.arange(desc.k), desc.axis)
    values = np.take_along_axis(as_bits(array), places, desc.axis).view(array.dtype)
    return values, places.astype(desc.output_index_tensor.data_type.numpy)


@reference(descs.TopK1)
def top_k1(desc: descs.TopK1, input_tensor: Array) -> tuple[Array, Array]:
    """The first K elements along the axis in the order of the direction, and their places."""
    return _first(desc, input_tensor, desc.axis_direction)


@reference(descs.TopK)
def top_k(desc: descs.TopK, input_tensor: Array) -> tuple[Array, Array]:
    """The largest K elements along the axis, and their places."""
    return _first(desc, input_tensor, AxisDirection.DECREASING)
