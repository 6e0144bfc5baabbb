"""Windows, samples and resampling over spatial dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.onnx.expressions import (
    add,
    cast,
    choose,
    multiply,
    number_like,
    reshaped,
    spread,
    subtract,
    transposed,
)
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.values import Shape
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor


@dataclass(frozen=True)
class SlidingWindow:
    """Windows over spatial dimensions; each attribute has one number per dimension.

    Attributes:
        sizes: Sizes of the kernel.
        strides: Distances between windows.
        dilations: Distances between elements of a window.
        start, end: Padding before and after the input.
    """

    sizes: Shape
    strides: Shape
    dilations: Shape
    start: Shape
    end: Shape

    def outputs(self, spatial: Shape, ceil: bool = False) -> Shape:
        """Return the number of windows along each dimension."""
        counts = []
        for size, kernel, stride, dilation, before, behind in zip(
            spatial, self.sizes, self.strides, self.dilations, self.start, self.end, strict=True
        ):
            room = size + before + behind - (dilation * (kernel - 1) + 1)
            count = (-(-room // stride) if ceil else room // stride) + 1
            if ceil and (count - 1) * stride >= size + before:
                count -= 1  # a window that would begin in the end padding
            counts.append(count)
        return tuple(counts)

    def reaching(self, spatial: Shape, counts: Shape) -> SlidingWindow:
        """Return the windows with end padding for a number of outputs."""
        end = tuple(
            max((count - 1) * stride + dilation * (kernel - 1) + 1 - size - before, 0)
            for count, stride, dilation, kernel, size, before in zip(
                counts, self.strides, self.dilations, self.sizes, spatial, self.start, strict=True
            )
        )
        return replace(self, end=end)

    def with_leading(self, count: int) -> SlidingWindow:
        """Return the windows with dimensions of size 1 before the others."""
        ones, zeros = (1,) * count, (0,) * count
        return SlidingWindow(
            ones + self.sizes, ones + self.strides, ones + self.dilations, zeros + self.start, zeros + self.end
        )


def window_of(node: OnnxNode, sizes: Shape, spatial: Shape) -> SlidingWindow:
    """Return the windows that a node's attributes describe over an input's spatial sizes."""
    rank = len(sizes)
    strides = node.integers("strides") or (1,) * rank
    dilations = node.integers("dilations") or (1,) * rank
    pads = node.integers("pads") or (0,) * (2 * rank)
    if not (len(strides) == len(dilations) == rank == len(spatial) and len(pads) == 2 * rank):
        raise node.rejection(f"kernel_shape, strides, dilations and pads must be of {len(spatial)} dimensions")
    if any(size < 1 for size in (*strides, *dilations, *sizes)):
        raise node.rejection("kernel_shape, strides and dilations must be at least 1")
    mode = node.text("auto_pad", "NOTSET")
    start, end = pads[:rank], pads[rank:]
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max((-(-size // stride) - 1) * stride + dilation * (kernel - 1) + 1 - size, 0)
            for size, stride, dilation, kernel in zip(spatial, strides, dilations, sizes, strict=True)
        ]
        small, large = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
        start, end = (small, large) if mode == "SAME_UPPER" else (large, small)
    elif mode == "VALID":
        start = end = (0,) * rank
    if any(size < 0 for size in (*start, *end)):
        raise node.rejection("negative padding is not supported")
    return SlidingWindow(sizes, strides, dilations, start, end)


def with_dimensions(x: Tensor, rank: int) -> Tensor:
    """Return {N, C, ...} with spatial dimensions of size 1 put before the others, up to a rank."""
    return reshaped(x, (*x.sizes[:2], *(1,) * (rank - len(x.sizes)), *x.sizes[2:]))


# ---- samples at coordinates ------------------------------------------------------------------------------------------


_CUBIC = -0.75
"""The coefficient of cubic convolution."""


def sample(x: Tensor, coordinates: Sequence[Tensor], *, mode: str, padding: str, aligned: bool = False) -> Tensor:
    """Return elements {N, M, C} of images {N, C, ...} at coordinates.

    Args:
        x: The images, of a float type.
        coordinates: One {N, M} of FLOAT32 per spatial dimension, counted in elements.
        mode: ``"nearest"``, ``"linear"`` or ``"cubic"``.
        padding: Values beyond the borders: ``"zeros"``, ``"border"`` or ``"reflection"``. NaN counts as beyond for
            zeros, else as 0, as in onnxruntime and PyTorch.
        aligned: Whether the border that reflects goes through the middle of the outermost elements.
    """
    batch, channels, *spatial = x.sizes
    rows = transposed(reshaped(x, (batch, channels, math.prod(spatial))), (0, 2, 1))
    taps = [
        _taps(coordinate, size, mode=mode, padding=padding, aligned=aligned)
        for coordinate, size in zip(coordinates, spatial, strict=True)
    ]
    total: Tensor | None = None
    for chosen in itertools.product(*taps):
        position, weight = chosen[0]
        for (other, factor), size in zip(chosen[1:], spatial[1:], strict=True):
            position = add(multiply(position, size), other)
            weight = weight if factor is None else factor if weight is None else multiply(weight, factor)
        picked = directml.gather_nd1(
            rows,
            reshaped(position, (*position.sizes, 1)),
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
    coordinate: Tensor, size: int, *, mode: str, padding: str, aligned: bool
) -> list[tuple[Tensor, Tensor | None]]:
    """Return positions along a dimension and their weights, None for 1."""
    if mode == "nearest":
        coordinate = dml.round(coordinate)
    if padding == "reflection":
        coordinate = _reflected(coordinate, size, aligned)
    if padding != "zeros":
        # One beyond the border, the taps of every mode are at the border, and positions are exact integers.
        coordinate = dml.clip(coordinate, -1.0, float(size))
        coordinate = choose(dml.is_nan(coordinate), number_like(coordinate, 0.0), coordinate)
    base = coordinate if mode == "nearest" else dml.floor(coordinate)
    offsets = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[mode]
    taps = []
    for offset in offsets:
        position = base if offset == 0 else add(base, offset)
        weight = None
        if mode != "nearest":
            distance = dml.abs(subtract(position, coordinate))
            weight = subtract(1, distance) if mode == "linear" else _cubic_weights(distance, near=offset in (0, 1))
        if padding == "zeros":
            inside = dml.logical_and(
                spread(dml.greater_than_or_equal, position, 0), spread(dml.less_than_or_equal, position, size - 1)
            )
            weight = choose(inside, 1.0 if weight is None else weight, number_like(position, 0.0))
        elif padding == "reflection":
            position = _reflected(position, size, aligned)
        taps.append((dml.cast(dml.clip(position, 0.0, size - 1.0), DataType.INT32), weight))
    return taps


def _cubic_weights(distance: Tensor, *, near: bool) -> Tensor:
    """Return the weight of cubic convolution at a distance below 1, or between 1 and 2."""
    a = _CUBIC
    if near:
        inner = multiply(subtract(multiply(distance, a + 2), a + 3), multiply(distance, distance))
        return add(inner, 1)
    inner = multiply(add(multiply(subtract(multiply(distance, a), 5 * a), distance), 8 * a), distance)
    return subtract(inner, 4 * a)


def _reflected(place: Tensor, size: int, aligned: bool) -> Tensor:
    """Return coordinates mirrored at the borders."""
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    extent = high - low
    if not extent:
        return multiply(place, 0.0)
    turned = spread(dml.modulus_floor, subtract(place, low), 2 * extent)
    return subtract(high, dml.abs(subtract(turned, extent)))


# ---- resampling ------------------------------------------------------------------------------------------------------


Array = NDArray[Any]


class ResizedAxis(NamedTuple):
    """The resampling of one axis, by numbers that may be symbolic; functions below take it unpacked and plain.

    Attributes:
        size, output_size: Elements of input and output.
        scale: Scale of the axis; ``output_size`` may differ from ``size * scale``.
        transformation: ONNX's ``coordinate_transformation_mode``.
        rounding: ONNX's ``nearest_mode``.
        begin, end: Fractions of the axis, for ``tf_crop_and_resize``.
    """

    size: int
    output_size: int
    scale: float
    transformation: str
    rounding: str = "round_prefer_floor"
    begin: float = 0.0
    end: float = 1.0

    @property
    def moves_nothing(self) -> bool:
        """Whether each output element is the input element of the same index."""
        return self.size == self.output_size and self.scale == 1 and self.begin == 0 and self.end == 1

    def coordinates(self) -> Array:
        """Return the input coordinate of each output element."""
        places = np.arange(self.output_size, dtype=np.float64)
        exact = self.size * self.scale
        coordinates = (places + 0.5) / self.scale - 0.5
        match self.transformation:
            case "align_corners":
                coordinates = places * 0 if exact == 1 else places * (self.size - 1) / (exact - 1)
            case "asymmetric":
                coordinates = places / self.scale
            case "tf_half_pixel_for_nn":
                coordinates = (places + 0.5) / self.scale
            case "pytorch_half_pixel" if self.output_size == 1:
                coordinates = places
            case "half_pixel_symmetric":
                coordinates = self.size / 2 * (1 - self.output_size / exact) + (places + 0.5) / self.scale - 0.5
            case "tf_crop_and_resize":
                # in float32, as the region is, so that integral starts are exact
                begin, end = (float(np.float32(edge) * np.float32(self.size - 1)) for edge in (self.begin, self.end))
                step = 0 if exact == 1 else (end - begin) / (exact - 1)
                coordinates = ((begin + end) / 2 if exact == 1 else begin) + places * step
        return coordinates

    def outside(self) -> Array:
        """Return a mask of the output elements beyond the input, for ``tf_crop_and_resize``."""
        coordinates = self.coordinates()
        return ((coordinates < 0) | (coordinates > self.size - 1)).astype(np.uint8)


TRANSFORMATIONS = (
    "align_corners",
    "asymmetric",
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)

ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""ONNX's ``nearest_mode``."""


def outside(*fields: Any) -> Array:
    """Return ``ResizedAxis.outside`` of an axis."""
    return ResizedAxis(*fields).outside()


def reaches_outside(*fields: Any) -> bool:
    """Return whether output elements of an axis are beyond the input."""
    return bool(outside(*fields).any())


def nearest(*fields: Any) -> Array:
    """Return the index of the input element of an axis that each output element copies."""
    axis = ResizedAxis(*fields)
    return np.clip(ROUNDINGS[axis.rounding](axis.coordinates()), 0, axis.size - 1).astype(np.int32)


class Interpolation(NamedTuple):
    """Weights of linear or cubic interpolation.

    Attributes:
        cubic: The coefficient of cubic interpolation; None for linear.
        antialias: Whether the kernel is stretched if the axis shrinks.
        exclude_outside: Whether elements beyond the input have weight 0; else they are those at its edge.
    """

    cubic: float | None
    antialias: bool
    exclude_outside: bool

    def reach(self, scale: float) -> int:
        """Return the number of terms to each side of a coordinate."""
        stretch = min(scale, 1.0) if self.antialias else 1.0
        return -int(np.floor((-1 if self.cubic is None else -2) / stretch))

    def places(self, *fields: Any) -> Array:
        """Return the places of the terms of each element of the output, {output size, 2 * reach}."""
        axis = ResizedAxis(*fields)
        reach = self.reach(axis.scale)
        return np.floor(axis.coordinates()[:, None]) + np.arange(1 - reach, 1 + reach)

    def indices(self, *fields: Any) -> Array:
        """Return the elements at ``places``."""
        axis = ResizedAxis(*fields)
        return np.clip(self.places(*axis), 0, axis.size - 1).astype(np.int32)

    def weights(self, *fields: Any) -> Array:
        """Return the weights of ``indices``."""
        axis = ResizedAxis(*fields)
        places = self.places(*axis)
        distances = np.abs(places - axis.coordinates()[:, None]) * (min(axis.scale, 1.0) if self.antialias else 1.0)
        weights = np.clip(1 - distances, 0, 1) if self.cubic is None else _cubic(distances, self.cubic)
        if self.exclude_outside:
            weights = np.where((places < 0) | (places >= axis.size), 0, weights)
        if self.exclude_outside or self.antialias:
            total = weights.sum(axis=1, keepdims=True)
            weights = weights / np.where(total == 0, 1, total)
        return weights.astype(np.float32)


def _cubic(distances: Array, a: float) -> Array:
    """Return the weights of cubic convolution at distances."""
    near = ((a + 2) * distances - (a + 3)) * distances**2 + 1
    far = ((a * distances - 5 * a) * distances + 8 * a) * distances - 4 * a
    return np.where(distances <= 1, near, np.where(distances < 2, far, 0))
