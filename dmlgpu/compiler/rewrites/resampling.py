"""Resampling along axes: input coordinates of output elements, bodies that read or gather there, and nearest
neighbor by whole factors as strides.

Coordinates are float32 numbers, each step of their formula rounded, here as in shaders: so both agree on every element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import (
    Affine,
    AffineView,
    Apply,
    Body,
    Constants,
    Element,
    Lookup,
    PlanTensor,
    Source,
    View,
    constants,
)
from dmlgpu.compiler.rewrites.sources import identity, is_identity
from dmlgpu.compiler.sizes.arithmetic import computed, decided

NEAREST = "resampling/nearest"
LINEAR = "resampling/linear"
ANTIALIASED = "resampling/antialiased"
ANTIALIASED_SUM = "resampling/antialiased_sum"
ANTIALIASED_TILE = "resampling/antialiased_tile"
GRADIENT = "resampling/gradient"

SMALLEST, LARGEST = float(np.finfo(np.float32).smallest_normal), float(np.finfo(np.float32).max)
"""The positive normal float32 numbers."""

LONGEST_LISTED = 1 << 18
"""Maximum size of an axis whose coordinates are enumerated; those of longer axes are estimated."""

MAX_PAIRS = 1 << 30
"""Maximum of elements along an axis times the taps of each; exceeded only for at most 9 taps."""

COORDINATE_ERROR = 2.0**-21
"""Rounding errors of a coordinate, at most, in parts of the largest number that it is computed from: four operations,
each rounded to 24 bits."""

LARGEST_COORDINATE = 2**126
"""Coordinates below it cannot overflow float32."""

Coordinates = NDArray[np.float32]
Sizes = tuple[int, ...]


@dataclass(frozen=True)
class ResampledAxis:
    """Resampling of one dimension.

    Attributes:
        dimension: of the tensors.
        size: elements of the input.
        count: elements of the output.
        scale_bits, input_offset_bits, output_offset_bits: bits of float32 numbers, which kernels read like sizes;
            output coordinate o lies at ``(o - output_offset) / scale - input_offset``.
        inverse_bits: bits of 1 / scale if it is a power of two and normal, else 0.
    """

    dimension: int
    size: int
    count: int
    scale_bits: int
    input_offset_bits: int
    output_offset_bits: int
    inverse_bits: int

    @classmethod
    def of(cls, dimension: int, size: int, count: int, *numbers: float) -> ResampledAxis:
        """Return the resampling by a scale, an input's offset and an output's offset, plain or symbolic."""
        scale, before, behind = (computed(bits_of_float, number) for number in numbers)
        return cls(dimension, size, count, scale, before, behind, computed(_inverse_bits, scale))

    @property
    def numbers(self) -> tuple[int, ...]:
        """All fields but the dimension, for functions whose results are ``decided`` or ``computed``."""
        offsets = self.input_offset_bits, self.output_offset_bits
        return self.size, self.count, self.scale_bits, *offsets, self.inverse_bits

    @property
    def scale(self) -> float:
        """The scale."""
        scale: float = computed(float_of_bits, self.scale_bits)
        return scale

    @property
    def input_offset(self) -> float:
        """The input's offset."""
        return float_of_bits(self.input_offset_bits)

    @property
    def output_offset(self) -> float:
        """The output's offset."""
        return float_of_bits(self.output_offset_bits)

    def coordinates(self) -> Coordinates:
        """Return the coordinates of all output elements on the input, ascending."""
        numbers = np.arange(self.count, dtype=np.uint32).astype(np.float32)
        with np.errstate(over="ignore"):
            scaled = (numbers - np.float32(self.output_offset)) / np.float32(self.scale)
        return np.asarray(scaled - np.float32(self.input_offset))

    def places(self, rounding: Rounding | None) -> Coordinates:
        """Return the coordinates, rounded if there is a rounding, clamped to the input."""
        places = self.coordinates() if rounding is None else rounding.of(self.coordinates())
        return np.clip(places, np.float32(0), np.float32(self.size - 1))

    def moves_nothing(self, rounding: Rounding | None) -> bool:
        """Return whether every output element is the input element of the same index."""
        shift = np.float32(-self.output_offset) - np.float32(self.input_offset)
        place = shift if rounding is None else rounding.of(shift)
        return bool(self.size == self.count and self.scale == 1 and place == 0)


def by_reduction(axes: Iterable[ResampledAxis]) -> list[ResampledAxis]:
    """Return axes that are resampled one after the other, those with the largest reduction first."""
    return sorted(axes, key=lambda axis: axis.count / axis.size)


@dataclass(frozen=True)
class Rounding:
    """Rounding of nearest neighbor: up or down."""

    increasing: bool

    def of(self, coordinates: Any) -> Any:
        """Return rounded coordinates."""
        return np.ceil(coordinates) if self.increasing else np.floor(coordinates)


def bits_of_float(value: float) -> int:
    """Return the bits of a float32 number."""
    return int(np.float32(value).view(np.uint32))


def float_of_bits(bits: int) -> float:
    """Return the float32 number of bits."""
    return float(np.uint32(bits).view(np.float32))


def _inverse_bits(scale_bits: int) -> int:
    """Return ``ResampledAxis.inverse_bits``."""
    inverse = 1 / float_of_bits(scale_bits)
    return bits_of_float(inverse) if np.frexp(inverse)[0] == 0.5 and SMALLEST <= inverse <= LARGEST else 0


# ---- bodies that read


def nearest(source: Source, axes: Sequence[ResampledAxis], rounding: Rounding) -> Body:
    """Return the nearest element along every axis, moved bit by bit."""
    values = constants(axes=tuple(axes), increasing=rounding.increasing)
    follows = (_follows(len(source.sizes), axes),)
    sizes = _resized(source.sizes, axes)
    return Lookup(NEAREST, source.data_type, sizes, (("input", source),), values, follows=follows)


def linear(source: Source, axes: Sequence[ResampledAxis]) -> Body:
    """Linear interpolation along every axis, in float32."""
    follows, values = (_follows(len(source.sizes), axes),), constants(axes=tuple(axes))
    sizes = _resized(source.sizes, axes)
    return Element(LINEAR, DataType.FLOAT32, sizes, (("input", source),), values, follows=follows, portable=True)


def _resized(sizes: Sizes, axes: Sequence[ResampledAxis]) -> Sizes:
    counts = {axis.dimension: axis.count for axis in axes}
    return tuple(counts.get(dimension, size) for dimension, size in enumerate(sizes))


def _follows(rank: int, axes: Sequence[ResampledAxis]) -> tuple[int | None, ...]:
    moved = {axis.dimension for axis in axes}
    return tuple(None if dimension in moved else dimension for dimension in range(rank))


# ---- bodies with a last dimension of taps, which is summed


def antialiased(source: Source, axis: ResampledAxis) -> Body:
    """Return the weighted elements under a triangle along one axis: {output sizes.., taps}.

    The triangle is as wide as an output element, at least as two elements of the input. Its weights are normalized;
    those of positions beyond an edge go to the edge's element, as without antialiasing.
    """
    taps = computed(_most_under, *axis.numbers)
    words = {f"{name}_bits": computed(_triangle_bits, name, axis.size, axis.scale_bits) for name in Triangle._fields}
    values = constants(axes=(axis,), taps=taps, **words)
    return _tapped(ANTIALIASED, source, axis, (axis.count, taps), values)


def antialiased_sum(terms: Element) -> Element:
    """Return the sum of the terms of ``antialiased``, computed by the body itself."""
    follows = tuple(followed[:-1] for followed in terms.follows)
    return replace(terms, file=ANTIALIASED_SUM, sizes=terms.sizes[:-1], follows=follows)


class Triangle(NamedTuple):
    """The triangle of antialiasing.

    Attributes:
        reach: Half of its width.
        slope: Of its sides.
        lowest, highest: Coordinates to which others are clamped.
    """

    reach: np.float32
    slope: np.float32
    lowest: np.float32
    highest: np.float32

    @classmethod
    def of(cls, size: int, scale_bits: int) -> Triangle:
        """Return the triangle of an axis with a size and a scale."""
        scale, unit = np.uint32(scale_bits).view(np.float32), np.float32(1)
        reach = np.maximum(unit / scale, unit)
        return cls(reach, np.minimum(scale, unit), -reach, np.float32(size - 1) + reach)


def _triangle_bits(name: str, size: int, scale_bits: int) -> int:
    """Return the bits of an attribute of a triangle."""
    return bits_of_float(getattr(Triangle.of(size, scale_bits), name))


def _most_under(*numbers: int) -> int:
    """Return the maximum number of input elements under a triangle, exactly, or a few more for a long axis."""
    axis = ResampledAxis(0, *numbers)
    reach, _, lowest, highest = Triangle.of(axis.size, axis.scale_bits)
    if axis.count > LONGEST_LISTED:
        return min(axis.size, math.ceil(2 * float(reach) * (1 + COORDINATE_ERROR)) + 3)
    x, edge = np.clip(axis.coordinates(), lowest, highest), np.float32(axis.size - 1)
    first, last = np.clip(np.ceil(x - reach), 0, edge), np.clip(np.floor(x + reach), 0, edge)
    return int((last - first).max()) + 1


def gradient(source: Source, axis: ResampledAxis, rounding: Rounding | None) -> Body:
    """Return the contribution of each output element of the forward operator to the gradient of an input element along
    one
    axis: {input sizes.., taps}.

    Args:
        rounding: rounding of nearest neighbor; None for linear interpolation.
    """
    if axis.size + axis.count > LONGEST_LISTED:
        line, taps = estimated_line(axis, rounding)
    else:
        line, taps = line_below(axis, *users(axis, rounding))
    values = constants(
        axes=(axis,), line=line, nearest=rounding is not None, increasing=rounding is not None and rounding.increasing
    )
    return _tapped(GRADIENT, source, axis, (axis.size, taps), values)


def _tapped(file: str, source: Source, axis: ResampledAxis, counts: Sizes, values: Constants) -> Body:
    """Return a body with a size and a number of taps (``counts``) in the place of an axis.

    Raises:
        NotSupported: If scale and offsets result in too many pairs of elements and taps.
    """
    size, taps = counts
    if size * taps > max(MAX_PAIRS, 9 * (axis.size + axis.count)):
        raise NotSupported(
            f"scales[{axis.dimension}] ({axis.scale:g}) and its pixel offsets make {size} elements look at {taps}"
            f" others each, beyond {MAX_PAIRS} pairs in all"
        )
    sizes = tuple(size if dimension == axis.dimension else n for dimension, n in enumerate(source.sizes))
    follows = ((*_follows(len(sizes), [axis]), None),)
    inputs = (("input", source),)
    return Element(file, DataType.FLOAT32, (*sizes, taps), inputs, values, follows=follows, portable=True)


# ---- output elements that use an element of the input


def users(axis: ResampledAxis, rounding: Rounding | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First output element that uses each input element, and the one after the last."""
    elements = np.arange(axis.size)
    x = axis.places(rounding)
    if rounding is not None:
        return np.searchsorted(x, elements, "left"), np.searchsorted(x, elements, "right")
    return np.searchsorted(x, elements - 1, "right"), np.searchsorted(x, elements + 1, "left")


@dataclass(frozen=True)
class IntegerLine:
    """Whole numbers ``max(step * i + start, 0) / divisor``, rounded down, in 32-bit integers."""

    step: int
    start: int
    divisor: int

    def at(self, elements: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the values at some elements."""
        return np.maximum(elements * self.step + self.start, 0) // self.divisor


def _slope(axis: ResampledAxis) -> Fraction | None:
    """Return a ratio close to the scale whose line stays within 32-bit integers, or None."""
    limit = int(min(4096, (1 << 29) / max(axis.count, axis.size * axis.scale, 1.0)))
    return Fraction(axis.scale).limit_denominator(limit) if limit >= 1 else None


def estimated_line(axis: ResampledAxis, rounding: Rounding | None) -> tuple[IntegerLine, int]:
    """Return an equally close line as ``line_below``, and a slightly larger count, without enumerating all elements.

    The users of element i are the output elements whose coordinates lie between ``i + low`` and ``i + high``. Exact
    coordinates differ from those in float32 by ``error`` at most, so that users lie between two parallel lines.
    """
    scale, before, behind = (Fraction(value) for value in (axis.scale, axis.input_offset, axis.output_offset))
    largest = (axis.count + abs(behind)) / scale + abs(before)
    ratio = _slope(axis)
    if ratio is None or largest > LARGEST_COORDINATE:
        return IntegerLine(0, 0, 1), axis.count
    error = Fraction(COORDINATE_ERROR) * largest
    low = -1 if rounding is None or rounding.increasing else 0
    high = 1 if rounding is None or not rounding.increasing else 0
    divisor, drift = ratio.denominator, scale - ratio
    ends = (0, axis.size - 1)
    first = (low - error + before) * scale + behind
    start = min(0, math.floor(min(element * drift + first for element in ends) * divisor))
    line = IntegerLine(ratio.numerator, max(start, -(axis.size - 1) * ratio.numerator), divisor)
    past = (high + error + before) * scale + behind + 1  # after the last user of element 0
    inner = max(element * drift + past - Fraction(line.start, divisor) for element in ends) + 1
    edge = axis.count - int(
        line.at(np.array([axis.size - 1]))[0]
    )  # all coordinates beyond the input use its last element
    return line, min(axis.count, max(math.ceil(inner), edge, 1))


def line_below(axis: ResampledAxis, begin: NDArray[np.int64], end: NDArray[np.int64]) -> tuple[IntegerLine, int]:
    """Return a line close to the first user of every input element and never after it, and the number of output
    elements from there to the last user."""
    used = np.flatnonzero(end > begin)
    ratio = _slope(axis)
    line = IntegerLine(0, 0, 1)
    if ratio is not None:
        inner = used[used > 0]
        starts = begin[inner] * ratio.denominator - inner * ratio.numerator
        line = IntegerLine(ratio.numerator, int(starts.min(initial=0)), ratio.denominator)
    return line, int((end[used] - line.at(used)).max())


Factors = Mapping[int, int]
"""Repetition count of each element by dimension, for dimensions that are split."""

_INTEGERS = {8: DataType.UINT8, 16: DataType.UINT16, 32: DataType.UINT32}
"""Data types by bits whose elements are copied unchanged and, like numbers, can be repeated in a unit."""


def split_repeats(body: Body, output: PlanTensor) -> tuple[Body, PlanTensor]:
    """Rewrite an element-wise tree that has nearest-neighbor upsampling by whole factors among its leaves: split the
    dimensions of leaves and output, and repeat with strides of 0. Other trees, and those that repeat whole contiguous
    runs, are returned unchanged."""
    factors: dict[int, int] = {}
    if not _gather(body, factors, set()) or not any(output.strides[dimension] == 1 for dimension in factors):
        return body, output
    body = body if _keeps_coordinates(body) else identity(body)
    sizes = _split(output.sizes, factors, lambda size, factor: (size // factor, factor))
    split_output = replace(output, sizes=sizes, strides=_split(output.strides, factors, _steps))
    body = _over_split(body, sizes, factors, {})
    if body.moves:
        return _as_integers(body, {}), _integer(split_output)
    return body, split_output


def _gather(source: Source, factors: dict[int, int], seen: set[int]) -> bool:
    """Collect the factors of nearest-neighbor upsampling; return whether ``split_repeats`` can rewrite the tree with a
    single factor along each dimension."""
    if id(source) in seen:
        return True
    seen.add(id(source))
    if isinstance(source, PlanTensor):
        return source.view is not View.INDEX
    if _keeps_coordinates(source):
        return all(_gather(child, factors, seen) for child in source.children)
    repeats = _factors(source)
    return repeats is not None and all(factors.setdefault(dimension, n) == n for dimension, n in repeats.items())


def _keeps_coordinates(source: Source) -> TypeGuard[Body]:
    return isinstance(source, Apply) or is_identity(source)


def _factors(source: Source) -> Factors | None:
    """Return the factors by which nearest neighbor, or an affine view of it, repeats the elements of a tensor in
    memory; None for other sources, and if elements are repeated unequally often."""
    view, lookup = _view_of(source)
    if not isinstance(lookup, Body) or lookup.file != NEAREST or not isinstance(lookup.children[0], PlanTensor):
        return None
    values, factors = dict(lookup.constants), {}
    for axis in values["axes"]:
        row, start = view.steps[axis.dimension], view.start[axis.dimension]
        columns = [column for column, step in enumerate(row) if step]
        factor = _factor(axis, Rounding(values["increasing"]))
        if factor is None or start or len(columns) != 1 or row[columns[0]] != 1 or columns[0] in factors:
            return None
        others = (other for dimension, other in enumerate(view.steps) if dimension != axis.dimension)
        if source.sizes[columns[0]] != axis.count or any(other[columns[0]] for other in others):
            return None
        factors[columns[0]] = factor
    return factors


def _view_of(source: Source) -> tuple[Affine, Source]:
    """Return source and map of a view; for other sources, the source and the identity map."""
    if isinstance(source, AffineView):
        return source.affine, source.source
    return Affine.box((0,) * len(source.sizes)), source


def _factor(axis: ResampledAxis, rounding: Rounding) -> int | None:
    """Return the factor by which nearest neighbor repeats each element of an axis, if it is the same for all."""
    return decided(_whole_factor, rounding, *axis.numbers)


def _whole_factor(rounding: Rounding, *numbers: int) -> int | None:
    """Return the factor for the plain numbers of an axis."""
    axis = ResampledAxis(0, *numbers)
    factor = axis.count // axis.size
    if factor * axis.size != axis.count or axis.count > LONGEST_LISTED:
        return None
    return factor if np.array_equal(axis.places(rounding), np.arange(axis.count) // factor) else None


def _steps(stride: int, factor: int) -> tuple[int, int]:
    return stride * factor, stride


def _split(values: Sequence[int], factors: Factors, parts: Callable[[int, int], tuple[int, int]]) -> tuple[int, ...]:
    """Return entries of dimensions, with two in place of each dimension that is split."""
    numbers: list[int] = []
    for dimension, value in enumerate(values):
        numbers += parts(value, factors[dimension]) if dimension in factors else (value,)
    return tuple(numbers)


def _over_split(source: Source, sizes: tuple[int, ...], factors: Factors, memo: dict[int, Source]) -> Any:
    """Return a tree over the split dimensions; shared parts stay shared."""
    if id(source) in memo:
        return memo[id(source)]
    result: Source
    if isinstance(source, PlanTensor):
        result = replace(source, sizes=sizes, strides=_split(source.strides, factors, _steps))
    elif _keeps_coordinates(source):
        body = source.over([_over_split(child, sizes, factors, memo) for child in source.children])
        result = replace(body, sizes=sizes)
        if isinstance(result, Element):  # an identity
            result = replace(result, follows=(tuple(range(len(sizes))),))
    else:
        result = _repeated(source, sizes, factors)
    memo[id(source)] = result
    return result


def _repeated(source: Source, sizes: tuple[int, ...], factors: Factors) -> PlanTensor:
    """Return the tensor that nearest neighbor, or a view of it, reads, over the split dimensions."""
    view, lookup = _view_of(source)
    assert isinstance(lookup, Body)
    axes = [axis.dimension for axis in dict(lookup.constants)["axes"]]
    moved = {view.steps[axis].index(1) for axis in axes}  # all other entries of the column are 0
    (tensor,) = lookup.children
    assert isinstance(tensor, PlanTensor)
    seen = view.of(tensor, source.sizes)
    strides: list[int] = []
    for dimension, stride in enumerate(seen.strides):
        if dimension in moved:
            strides += (stride, 0)
        else:
            strides += _steps(stride, factors[dimension]) if dimension in factors else (stride,)
    return replace(seen, sizes=sizes, strides=tuple(strides))


def _as_integers(source: Source, memo: dict[int, Source]) -> Any:
    """Return a tree that copies elements, on integers with their bits."""
    if isinstance(source, PlanTensor):
        return _integer(source)
    assert isinstance(source, Body)
    if id(source) not in memo:
        data_type = _INTEGERS.get(source.data_type.bits, source.data_type)
        memo[id(source)] = replace(
            source.over([_as_integers(child, memo) for child in source.children]), data_type=data_type
        )
    return memo[id(source)]


def _integer(tensor: PlanTensor) -> PlanTensor:
    if tensor.data_type.bits not in _INTEGERS:
        return tensor
    return replace(tensor, data_type=_INTEGERS[tensor.data_type.bits], view=View.COMPUTE)
