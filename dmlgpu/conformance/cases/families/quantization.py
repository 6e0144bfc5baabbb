"""Cases of casts, and of the operators that quantize numbers to small integers and back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, FeatureLevel, QuantizationType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.contents import any_bits, conversion_edges, mixed, numbers
from dmlgpu.conformance.cases.discriminating import SHARE
from dmlgpu.conformance.cases.keys import OWNED, PLAIN, Key, Types
from dmlgpu.conformance.cases.layouts import TensorLayout, draw_tensor
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors
from dmlgpu.conformance.cases.tolerance import CORRECTLY_ROUNDED, EXACT, Tolerance, Ulp

BARE = "bare"  # without zero points
TIES = "ties"  # quotients halfway between integers
SPECIAL = "special"  # infinities, NaN, quotients far beyond the type
ZERO = "zero"  # nothing but zeros
POSITIVE = "positive"  # a range that must be widened to contain 0
NEGATIVE = "negative"  # nor has a range of numbers below zero

Sizes = tuple[int, ...]


def _limits(data_type: DataType) -> tuple[int, int]:
    low = -(2 ** (data_type.bits - 1)) if data_type.is_signed else 0
    return low, low + 2**data_type.bits - 1


def _integers(rng: np.random.Generator, data_type: DataType, sizes: Sizes) -> Array:
    """Draw integers over the whole range of a type (4 bits take a byte each); half of those of 32 bits small."""
    low, high = _limits(data_type)
    values = rng.integers(low, high, sizes, np.int64, endpoint=True)
    if data_type.bits == 32:
        values = np.where(rng.random(sizes) < 0.5, rng.integers(max(low, -999), 1000, sizes), values)
    return values.astype(data_type.numpy)


def _scales(rng: np.random.Generator, data_type: DataType, sizes: Sizes, *, round_ones: bool = False) -> Array:
    """Draw positive scales over some orders of magnitude; round ones are powers of two, as a third of all are."""
    powers = 2.0 ** rng.integers(-4, 4, sizes)
    factors = np.where(rng.random(sizes) < SHARE, 1.0, 1 + rng.random(sizes))
    return (powers if round_ones else powers * factors).astype(data_type.numpy)


def _quotients(rng: np.random.Generator, output: DataType, sizes: Sizes, *, ties: bool) -> Array:
    """Draw the quotients of numbers and their scale: over the range of the type, and beyond; a third of them, or all,
    halfway between integers."""
    reach = 1.5 * 2**output.bits
    values = rng.uniform(-reach, reach, sizes)
    return np.where(ties | (rng.random(sizes) < SHARE), np.floor(values) + 0.5, values)


class _QuantizingCases(OperatorCases):
    """Integers are exact."""

    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, BARE, TIES, SPECIAL)


def _numbers(rng: np.random.Generator, key: Key, output: DataType, scales: Array) -> Array:
    """Draw numbers to quantize."""
    data_type, sizes = key.types[0], scales.shape
    if key.variant == SPECIAL:
        return mixed(rng, data_type, sizes)
    if not data_type.is_float:
        return _integers(rng, data_type, sizes)
    return (_quotients(rng, output, sizes, ties=key.variant == TIES) * scales).astype(data_type.numpy)


@cases(descs.ElementWiseQuantizeLinear)
class ElementWiseQuantizeLinearCases(_QuantizingCases):
    """ELEMENT_WISE_QUANTIZE_LINEAR."""

    @property
    def types(self) -> tuple[Types, ...]:
        """Input, scale, output: all combinations that the newest feature level allows."""
        table = self.schema.support_at(FeatureLevel.LEVEL_6_4)
        pairs = [(t, t if t.is_float else DataType.FLOAT32) for t in table["InputTensor"].types]
        return tuple((*pair, output) for pair, output in itertools.product(pairs, table["OutputTensor"].types))

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        input_type, scale_type, output_type = key.types
        sizes = key.sizes
        source, scale, zero, output = draw_tensors(
            key, rng, *((t, sizes, False) for t in (input_type, scale_type, output_type)), (output_type, sizes, True)
        )
        bare = key.variant == BARE

        def fill(contents: np.random.Generator) -> Arrays:
            scales = _scales(contents, scale_type, sizes, round_ones=key.variant == TIES)
            stored = scale.decode(scale.encode(scales))  # equal along dimensions of stride 0
            values = _numbers(contents, key, output_type, stored)
            return values, scales, None if bare else _integers(contents, output_type, sizes)

        desc = descs.ElementWiseQuantizeLinear(
            input_tensor=source, scale_tensor=scale, zero_point_tensor=None if bare else zero, output_tensor=output
        )
        return Case(name, desc, fill)


def _product_tolerance(quantized: DataType, real: DataType) -> Tolerance:
    """One rounding; two where 32-bit integers become float32 first, or float16 is computed in float32."""
    return Ulp(1) if quantized.bits == 32 or real is DataType.FLOAT16 else CORRECTLY_ROUNDED


@cases(descs.ElementWiseDequantizeLinear)
class ElementWiseDequantizeLinearCases(OperatorCases):
    """ELEMENT_WISE_DEQUANTIZE_LINEAR."""

    type_fields = ("InputTensor", "OutputTensor")
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, BARE, SPECIAL)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        quantized, real = key.types
        sizes = key.sizes
        source, scale, zero, output = draw_tensors(
            key, rng, *((t, sizes, False) for t in (quantized, real, quantized)), (real, sizes, True)
        )
        bare = key.variant == BARE

        def fill(contents: np.random.Generator) -> Arrays:
            draw = mixed if key.variant == SPECIAL else _scales
            values, zeros = (_integers(contents, quantized, sizes) for _ in range(2))
            return values, draw(contents, real, sizes), None if bare else zeros

        desc = descs.ElementWiseDequantizeLinear(
            input_tensor=source, scale_tensor=scale, zero_point_tensor=None if bare else zero, output_tensor=output
        )
        return Case(name, desc, fill, _product_tolerance(quantized, real))


def _blocks(rng: np.random.Generator, sizes: Sizes) -> Sizes:
    """Draw the number of blocks along each axis: one, all single elements, or any divisor."""
    choices = ([n for n in range(1, size + 1) if size % n == 0] for size in sizes)
    return tuple(
        int(rng.choice([1, size, int(rng.choice(divisors))])) for size, divisors in zip(sizes, choices, strict=True)
    )


class _BlockwiseCases(OperatorCases):
    """Scales by blocks."""

    type_fields = ("InputTensor", "OutputTensor")

    def tensors(
        self, key: Key, rng: np.random.Generator, real: DataType, quantized: DataType
    ) -> tuple[dict[str, Any], Sizes]:
        """Return the fields of a description, and the sizes of the scale."""
        blocks = _blocks(rng, key.sizes)
        scale, zero = draw_tensors(key, rng, (real, blocks, False), (quantized, blocks, False))
        source, output = draw_tensors(key, rng, (key.types[0], key.sizes, False), (key.types[1], key.sizes, True))
        bare = key.variant == BARE
        fields = {
            "input_tensor": source,
            "quantization_type": QuantizationType.SCALE if bare else QuantizationType.SCALE_ZERO_POINT,
            "quantization_tensors": (scale,) if bare else (scale, zero),
            "output_tensor": output,
        }
        return fields, blocks


def _enlarged(scale: TensorDesc, scales: Array, sizes: Sizes) -> Array:
    """Return the scale of every element, as the scale's tensor holds it."""
    stored = scale.decode(scale.encode(scales))
    for axis, size in enumerate(sizes):
        stored = np.repeat(stored, size // stored.shape[axis], axis)
    return stored


@cases(descs.Quantize)
class QuantizeCases(_BlockwiseCases):
    """QUANTIZE."""

    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, BARE, TIES, SPECIAL)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        real, quantized = key.types
        fields, blocks = self.tensors(key, rng, real, quantized)
        scale = fields["quantization_tensors"][0]

        def fill(contents: np.random.Generator) -> Arrays:
            scales = _scales(contents, real, blocks, round_ones=key.variant == TIES)
            values = _numbers(contents, key, quantized, _enlarged(scale, scales, key.sizes))
            zeros = () if key.variant == BARE else (_integers(contents, quantized, blocks),)
            return values, scales, *zeros

        return Case(name, descs.Quantize(**fields), fill)


@cases(descs.Dequantize)
class DequantizeCases(_BlockwiseCases):
    """DEQUANTIZE."""

    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, BARE, SPECIAL)
    added_keys = (Key((DataType.UINT4, DataType.FLOAT32), (16, 128), TensorLayout.PERMUTED, OWNED, 1),)
    """Transposed rows of several words of integers without a sign."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        quantized, real = key.types
        fields, blocks = self.tensors(key, rng, real, quantized)

        def fill(contents: np.random.Generator) -> Arrays:
            draw = mixed if key.variant == SPECIAL else _scales
            zeros = () if key.variant == BARE else (_integers(contents, quantized, blocks),)
            return _integers(contents, quantized, key.sizes), draw(contents, real, blocks), *zeros

        return Case(name, descs.Dequantize(**fields), fill, _product_tolerance(quantized, real))


@cases(descs.ElementWiseQuantizedLinearAdd)
class QuantizedLinearAddCases(OperatorCases):
    """ELEMENT_WISE_QUANTIZED_LINEAR_ADD. Scales have few digits, so that products are exact whether or not an adapter
    fuses them with the addition."""

    type_fields = ("ATensor", "BTensor", "OutputTensor")
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, BARE, TIES)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        single = (1,) * len(key.sizes)
        fields: dict[str, Any] = {}
        for operand, data_type in zip(("a", "b", "output"), key.types, strict=True):
            fields[f"{operand}_tensor"] = draw_tensor(data_type, key.sizes, key.layout, rng, output=operand == "output")
            fields[f"{operand}_scale_tensor"] = draw_tensor(DataType.FLOAT32, single, key.layout, rng)
            zero = draw_tensor(data_type, single, key.layout, rng)
            fields[f"{operand}_zero_point_tensor"] = None if key.variant == BARE else zero

        def fill(contents: np.random.Generator) -> Arrays:
            def operand(data_type: DataType) -> Arrays:
                steps = (
                    2 ** contents.integers(0, 4, single) if key.variant == TIES else contents.integers(1, 60, single)
                )
                zero = None if key.variant == BARE else _integers(contents, data_type, single)
                return (steps / 16).astype(np.float32), zero

            a, b, output = key.types
            return (
                *(_integers(contents, a, key.sizes), *operand(a)),
                *(_integers(contents, b, key.sizes), *operand(b)),
                *operand(output),
            )

        return Case(name, descs.ElementWiseQuantizedLinearAdd(**fields), fill, EXACT)


@cases(descs.DynamicQuantizeLinear)
class DynamicQuantizeLinearCases(OperatorCases):
    """DYNAMIC_QUANTIZE_LINEAR."""

    long_sizes = ((1_000_003,), (3, 20011), (260, 1030))
    added_keys = (Key((DataType.FLOAT32, DataType.UINT8), (70001,), TensorLayout.PACKED),)
    """A range of partial results."""
    large_sizes = ((16_700_001,),)
    type_fields = ("InputTensor", "OutputTensor")
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, ZERO, POSITIVE, NEGATIVE, SPECIAL, TIES)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        real, quantized = key.types
        single = (1,) * len(key.sizes)
        source, output, scale, zero = draw_tensors(
            key,
            rng,
            (real, key.sizes, False),
            (quantized, key.sizes, True),
            (DataType.FLOAT32, single, True),
            (quantized, single, True),
        )
        desc = descs.DynamicQuantizeLinear(
            input_tensor=source, output_tensor=output, output_scale_tensor=scale, output_zero_point_tensor=zero
        )
        return Case(name, desc, lambda contents: (_ranged(contents, key),), CORRECTLY_ROUNDED)


def _halfway_steps(rng: np.random.Generator, sizes: Sizes) -> Array:
    """Draw numbers halfway between two of 255 steps of 1/8, as the zero point is, and the largest, which may be rounded
    to a step too many."""
    below = rng.integers(0, 255)
    steps = rng.integers(-below, 254 - below, sizes, endpoint=True).astype(np.float64)
    ends = steps.reshape(-1)
    ends[rng.permutation(ends.size)[:2]] = (-below, 254 - below)[: ends.size]
    return (steps + np.where(steps == -below, -0.5, 0.5)) / 8


def _ranged(rng: np.random.Generator, key: Key) -> Array:
    """Draw numbers of a range of the variant's kind."""
    if key.variant == TIES:
        return _halfway_steps(rng, key.sizes).astype(key.types[0].numpy)
    values = rng.standard_normal(key.sizes) * 2.0 ** rng.integers(-3, 4)
    if key.variant == ZERO:
        values = values * 0
    if key.variant == POSITIVE:
        values = 3 + np.abs(values)
    if key.variant == NEGATIVE:
        values = -3 - np.abs(values)
    if key.variant == SPECIAL:
        values[rng.random(key.sizes) < 0.1] = math.nan
        if rng.integers(2):
            values.ravel()[rng.integers(values.size)] = rng.choice([math.inf, -math.inf])
    return values.astype(key.types[0].numpy)


# ---- CAST ------------------------------------------------------------------------------------------------------------


@cases(descs.Cast)
class CastCases(OperatorCases):
    """CAST: all pairs of types, on random bits, ordinary numbers and every edge of the conversion."""

    standard_count = 40

    def standard_keys(self) -> Iterator[Key]:
        """Yield a covering selection, then one key for every pair of types."""
        yield from super().standard_keys()
        combinations = list(self.combinations())
        order = np.random.default_rng(len(combinations)).permutation(len(combinations))
        yield from map(self.key_of, {combinations[i].types: combinations[i] for i in order}.values())

    type_fields = ("InputTensor", "OutputTensor")

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        source_type, target_type = key.types
        source, output = draw_tensors(key, rng, (source_type, key.sizes, False), (target_type, key.sizes, True))

        def fill(contents: np.random.Generator) -> Arrays:
            edges = contents.permutation(conversion_edges(source_type, target_type))
            count = math.prod(key.sizes)
            values = np.where(
                contents.random(count) < 0.5,
                any_bits(contents, source_type, (count,)),
                numbers(contents, source_type, (count,)),
            )
            values[: edges.size] = edges[:count]
            return (contents.permutation(values).reshape(key.sizes),)

        desc = descs.Cast(input_tensor=source, output_tensor=output)
        return Case(name, desc, fill, CORRECTLY_ROUNDED if target_type.is_float else EXACT)
