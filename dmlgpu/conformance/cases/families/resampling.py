"""Cases of resampling and its gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import AxisDirection, DataType, InterpolationMode
from dmlgpu.catalog.operator_desc import Size2D
from dmlgpu.conformance.cases.case import Array, Arrays, Case, evaluate_in_float32, of_first
from dmlgpu.conformance.cases.contents import any_bits, numbers
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors, register
from dmlgpu.conformance.cases.tolerance import EXACT, Accumulated, Bound, Tolerance

LINEAR = "linear"
SHIFTED = "shifted"  # linear or nearest, far off the input or cropped
ALIGNED = "aligned"  # linear, with both edges on the input's
WHOLE = "whole"  # linear or nearest, by whole factors
TIES = "ties"  # nearest, every coordinate halfway between elements or on one
SPECIAL = "special"  # linear, with infinities and NaN
ANTIALIASED = "antialiased"

MAX_ELEMENTS = 3000
"""Elements of a case's output, so that the reference stays quick."""

SCALES = (0.1, 1 / 3, 0.4, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class RoundedSum(Tolerance):
    """Integers rounded from sums of floats: the same, or the next one where the sum lies at a half.

    The magnitude is the sum's distance from there.
    """

    def accepts(self, expected: Array, got: Array, magnitude: Bound | None) -> NDArray[np.bool_]:
        """Equal, or next to it at a half."""
        assert magnitude is not None
        apart = np.abs(expected.astype(np.int64) - got.astype(np.int64))
        return np.asarray((apart == 0) | ((apart == 1) & (magnitude < 1e-4)))

    def __str__(self) -> str:
        return "rounded"


class _ResamplingCases(OperatorCases):
    """The key has the sizes of the forward operator's input."""

    standard_count = 24
    ranks = (1, 2, 3, 4)
    long_sizes: ClassVar[SizesList] = ((70001,), (3, 1025))
    large_sizes: ClassVar[SizesList] = ((3, 2, 1025, 1031),)

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, LINEAR, SHIFTED, ALIGNED, WHOLE, TIES, *([SPECIAL] if types[0].is_float else []))

    def has(self, name: str) -> bool:
        """Return whether the operator has a field."""
        return any(field.python_name == name for field in self.schema.python_fields)

    def fields(self, key: Key, rng: np.random.Generator) -> tuple[dict[str, Any], Sizes]:
        """Return the attributes of a case, and the sizes of the forward operator's output."""
        is_linear = key.variant in (LINEAR, ALIGNED, SPECIAL, ANTIALIASED)
        is_linear |= key.variant in (SHIFTED, WHOLE) and bool(rng.integers(2))
        fields: dict[str, Any] = {"interpolation_mode": InterpolationMode(int(is_linear))}
        if self.has("rounding_direction"):
            fields["rounding_direction"] = AxisDirection(int(rng.integers(2)))
        drawn, room = [], max(MAX_ELEMENTS // math.prod(key.sizes), 2)
        for size in key.sizes:
            drawn.append(_draw_axis(key, rng, size, room))
            room = max(room * size // drawn[-1][0], 1)
        counts, *values = (tuple(column) for column in zip(*drawn, strict=True))
        names = [name for name in ("scales", "input_pixel_offsets", "output_pixel_offsets") if self.has(name)]
        return fields | dict(zip(names, values, strict=False)), counts


def _draw_axis(key: Key, rng: np.random.Generator, size: int, room: int) -> tuple[int, float, float, float]:
    """Draw elements of the output, scale, offsets of input and output."""
    scale = float(rng.choice([value for value in SCALES if value <= room]))
    if rng.integers(4) == 0:
        scale = float(np.float32(min(rng.uniform(0.1, 4), room)))
    count = max(int(size * scale), 1)
    if key.variant == ALIGNED and min(size, count) > 1:
        return count, (count - 1) / (size - 1), 0.0, 0.0
    if key.variant == SHIFTED:
        count = max(count + int(rng.integers(-3, 4)), 1)
        return count, scale, float(rng.uniform(-size, size)), float(rng.uniform(-3, 3))
    if key.variant == TIES:
        scale = float(rng.choice([0.5, 1.0, 2.0]))
        scale = min(scale, float(room))
        return max(int(size * scale), 1), scale, float(rng.choice([0.0, 0.5])), float(rng.choice([0.0, -0.5, -1.0]))
    if key.variant == WHOLE:
        factor = int(rng.choice([factor for factor in (1, 2, 4) if factor <= room]))
        count, scale = size * factor, float(factor)
    center = 0.5 * int(rng.integers(4) > 0)
    return count, scale, center, -center


def _contents(rng: np.random.Generator, key: Key, sizes: Sizes, desc: Any) -> Array:
    """Draw random bits if elements are only moved, else numbers."""
    (data_type,) = key.types
    if desc.interpolation_mode is InterpolationMode.NEAREST_NEIGHBOR and "GRAD" not in desc.operator:
        return any_bits(rng, data_type, sizes)
    values = numbers(rng, data_type, sizes)
    if key.variant == SPECIAL:
        values = np.where(rng.random(sizes) < 0.2, rng.choice([np.inf, -np.inf, np.nan], sizes), values)
    return values.astype(data_type.numpy)


def _case(key: Key, name: str, desc: Any, input_sizes: Sizes, terms: int) -> Case:
    """Return a case over one input of ``input_sizes``, each of whose results is a sum of ``terms``."""

    def fill(contents: np.random.Generator) -> Arrays:
        return (_contents(contents, key, input_sizes, desc),)

    def magnitude(array: Array) -> Bound:
        if not key.types[0].is_float:
            (exact,) = evaluate_in_float32(desc, (array,))
            return np.abs(exact % 1 - 0.5)
        sizes = np.abs(np.where(np.isfinite(array), array, 0))
        (total,) = evaluate_in_float32(desc, (sizes,))
        return 2 * (total + float(sizes.max()) * (key.variant == ANTIALIASED))

    if desc.interpolation_mode is InterpolationMode.NEAREST_NEIGHBOR and "GRAD" not in desc.operator:
        return Case(name, desc, fill, EXACT)
    tolerance = Accumulated(terms) if key.types[0].is_float else RoundedSum()
    return Case(name, desc, fill, tolerance, magnitude=of_first(magnitude))


class _ResampleCases(_ResamplingCases):
    """Nearest neighbor of any bits, interpolation of numbers."""

    packed_sizes: ClassVar[SizesList] = ((40,), (3, 16), (7, 2, 12), (2, 3, 5, 8))
    """Sizes that whole factors upsample in whole units."""

    def standard_keys(self) -> Iterator[Key]:
        """Also whole factors for these."""
        yield from super().standard_keys()
        for sizes, (types, seed) in zip(self.packed_sizes, itertools.product(self.types, range(2)), strict=False):
            yield Key(types, sizes, TensorLayout.PACKED, WHOLE, seed)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        fields, counts = self.fields(key, rng)
        source, output = draw_tensors(key, rng, (key.types[0], key.sizes, False), (key.types[0], counts, True))
        if self.has("antialiased"):
            fields["antialiased"] = key.variant == ANTIALIASED or (
                key.variant in (PLAIN, TIES) and bool(rng.integers(2))
            )
        desc = self.desc_class(input_tensor=source, output_tensor=output, **fields)
        return _case(key, name, desc, key.sizes, 64)


@cases(descs.Resample3)
class Resample3Cases(_ResampleCases):
    """RESAMPLE3: also antialiased."""

    standard_count = 28
    added_keys: ClassVar[tuple[Key, ...]] = (
        Key((DataType.INT8,), (4096, 2, 1), TensorLayout.EXPLICIT, ANTIALIASED, 1),
    )
    """An axis of one element."""

    def variants(self, types: Types) -> tuple[str, ...]:
        return (*super().variants(types), ANTIALIASED)

    def standard_keys(self) -> Iterator[Key]:
        """Also two that shrink to a tenth, so that many elements of the input lie under each of the output, some that
        shrink by whole factors, to whole units, and two by others, of which tiles have weights in common."""
        yield from super().standard_keys()
        yield Key((DataType.FLOAT16,), (3, 200), TensorLayout.PACKED, ANTIALIASED)
        yield Key((DataType.FLOAT32,), (40, 50), TensorLayout.PACKED, ANTIALIASED, 16)
        for data_type, seed in ((DataType.FLOAT32, 0), (DataType.FLOAT16, 96), (DataType.UINT8, 14)):
            yield Key((data_type,), (14, 32), TensorLayout.PACKED, ANTIALIASED, seed)
        yield Key((DataType.FLOAT32,), (48, 96), TensorLayout.PACKED, ANTIALIASED, 84)
        for seed in (28, 36):
            yield Key((DataType.FLOAT32,), (3, 20, 44), TensorLayout.PACKED, ANTIALIASED, seed)


register(_ResampleCases, descs.Resample1, standard_count=12)
register(
    _ResampleCases,
    descs.Resample2,
    standard_count=12,
    added_keys=(Key((DataType.FLOAT32,), (400, 1), TensorLayout.PACKED, WHOLE),),
)  # elements beside each other that are copied


@cases(descs.Resample)
class ResampleCases(_ResampleCases):
    """RESAMPLE: pixel centers only."""

    standard_count = 12

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, LINEAR, SHIFTED, WHOLE)


class _ResampleGradCases(_ResamplingCases):
    """Sums of all that used an element."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        fields, counts = self.fields(key, rng)
        gradient, output = draw_tensors(key, rng, (key.types[0], counts, False), (key.types[0], key.sizes, True))
        desc = self.desc_class(input_gradient_tensor=gradient, output_gradient_tensor=output, **fields)
        return _case(key, name, desc, counts, math.prod(counts))


register(_ResampleGradCases, descs.ResampleGrad1)
register(_ResampleGradCases, descs.ResampleGrad, standard_count=24)


@cases(descs.Upsample2d)
class Upsample2dCases(OperatorCases):
    """UPSAMPLE_2D."""

    standard_count = 16
    ranks = (4, 5)
    long_sizes: ClassVar[SizesList] = ((1, 2, 65, 64), (2, 1, 3, 7, 128))
    large_sizes: ClassVar[SizesList] = ((3, 2, 513, 515),)
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, LINEAR, SPECIAL)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        most = 4 if math.prod(key.sizes) <= MAX_ELEMENTS else 2
        width, height = (int(rng.integers(1, most + 1)) for _ in range(2))
        counts = (*key.sizes[:-2], key.sizes[-2] * height, key.sizes[-1] * width)
        source, output = draw_tensors(key, rng, (key.types[0], key.sizes, False), (key.types[0], counts, True))
        desc = descs.Upsample2d(
            input_tensor=source,
            output_tensor=output,
            scale_size=Size2D(width, height),
            interpolation_mode=InterpolationMode(int(key.variant != PLAIN)),
        )
        return _case(key, name, desc, key.sizes, 4)
