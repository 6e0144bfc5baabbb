"""Cases of the operators that put elements in order."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import AxisDirection, DataType
from dmlgpu.conformance.cases.case import Array, Case
from dmlgpu.conformance.cases.contents import any_bits, few, numbers, specials
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors, register
from dmlgpu.conformance.cases.telling import with_rivals
from dmlgpu.conformance.cases.tolerance import EXACT, as_bits

INNER = "inner"  # the last axis
OUTER = "outer"  # the first axis
WHOLE = "whole"  # K is the whole axis
FIRST = "first"  # K is 1
TIES = "ties"
BITS = "bits"  # anything the type can hold: the ends of its range, NaN of both signs and any payload, subnormals


class _SortCases(OperatorCases):
    """Any axis, any K, ties, NaN; short lines, and lines that take several kernels."""

    long_sizes: ClassVar[SizesList] = ((70001,), (3, 20011), (3000, 7), (2, 4099, 3))
    large_sizes: ClassVar[SizesList] = ((1 << 20,), (65537, 129), (3, 1_000_003))
    type_fields = ("InputTensor", "OutputIndexTensor")

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, INNER, OUTER, WHOLE, FIRST, TIES, BITS)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        axis = _axis(key, rng)
        count = _count(key, key.sizes[axis], rng)
        sizes = tuple(count if dimension == axis else size for dimension, size in enumerate(key.sizes))
        source, values, places = draw_tensors(
            key, rng, (key.types[0], key.sizes, False), (key.types[0], sizes, True), (key.types[1], sizes, True)
        )
        fields = {"input_tensor": source, "output_value_tensor": values, "output_index_tensor": places}
        desc: Any = self.desc_class(**fields, axis=axis, k=count, **self.direction(rng))
        return Case(name, desc, lambda contents: (_contents(contents, key),), EXACT)

    def direction(self, rng: np.random.Generator) -> dict[str, Any]:
        """The fields that only one of the operators has."""
        return {}


def _axis(key: Key, rng: np.random.Generator) -> int:
    """The axis to sort along; of many elements the longest."""
    if key.variant in (INNER, OUTER):
        return len(key.sizes) - 1 if key.variant == INNER else 0
    if math.prod(key.sizes) > 20000:
        return int(np.argmax(key.sizes))
    return int(rng.integers(len(key.sizes)))


def _count(key: Key, length: int, rng: np.random.Generator) -> int:
    """How many elements are asked for: small counts more often."""
    if key.variant in (WHOLE, FIRST):
        return length if key.variant == WHOLE else 1
    return min(length, int((length + 1) ** rng.random()))


def _contents(rng: np.random.Generator, key: Key) -> Array:
    """Elements to sort."""
    data_type, sizes = key.types[0], key.sizes
    if key.variant == TIES:
        return few(rng, data_type, sizes)
    if key.variant == BITS:
        return _with_special_values(rng, data_type, sizes)
    return with_rivals(rng, numbers(rng, data_type, sizes))


def _with_special_values(rng: np.random.Generator, data_type: DataType, sizes: tuple[int, ...]) -> Array:
    """Few numbers, special ones, any bits; a third of floats' any bits are NaN."""
    kind = rng.random(sizes)
    values = np.where(kind < 0.4, few(rng, data_type, sizes), rng.choice(specials(data_type), sizes))
    noise = any_bits(rng, data_type, sizes)
    if data_type.is_float:
        exponent = np.array(np.inf, data_type.numpy).view(as_bits(noise).dtype)
        noise = np.where(rng.random(sizes) < 0.33, as_bits(noise) | exponent, as_bits(noise)).view(noise.dtype)
    return np.where(kind < 0.8, values, noise)


@cases(descs.TopK1)
class TopK1Cases(_SortCases):
    """TOP_K1: both directions."""

    standard_count = 40

    def direction(self, rng: np.random.Generator) -> dict[str, Any]:
        """Either."""
        return {"axis_direction": AxisDirection(int(rng.integers(2)))}


register(_SortCases, descs.TopK, standard_count=40, long_sizes=((3, 20011),), large_sizes=((65537, 129),))
