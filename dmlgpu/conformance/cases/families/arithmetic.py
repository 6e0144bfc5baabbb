"""Cases of element-wise arithmetic, of copies, and of the operators on bits.

Integers and bits are exact. Floats are correctly rounded in FLOAT32, and in FLOAT16 from it; only the square of a
rounded difference is further off. If an adapter flushes subnormals, results may be flushed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, RoundingMode
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias
from dmlgpu.conformance.cases.case import Array, Arrays, Case, of_first
from dmlgpu.conformance.cases.contents import any_bits, few, mixed, numbers, specials
from dmlgpu.conformance.cases.discriminating import (
    BOTH_SIGNS,
    HALVES,
    HUGE_PAIRS,
    ODD_SUMS,
    DiscriminatingInputs,
    Rows,
    draw_scale_bias,
)
from dmlgpu.conformance.cases.keys import PLAIN, Combination, Key, Types
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors, register
from dmlgpu.conformance.cases.tolerance import CORRECTLY_ROUNDED, EXACT, Accumulated, Tolerance, Ulp

OPERANDS = ("a_tensor", "b_tensor")

SPECIAL = "special"
"""Variant: limits, zeros, infinities, NaN, subnormals among the inputs."""
SCALED = "scaled"
"""Variant: with a ScaleBias, on numbers for which it is exact."""
FUSED = "fused"
"""Variant: with a fused activation."""
CROSSED = "crossed"
"""Variant: bounds the wrong way round, or special values as bounds."""


class VariedCases(OperatorCases):
    """Operators whose variants matter for every type."""

    standard_count = 32

    def standard_keys(self) -> Iterator[Key]:
        """Yield a covering selection, then one key for every special variant of every type."""
        yield from super().standard_keys()
        first: dict[tuple[Types, str], Combination] = {}
        for combination in self.combinations():
            if combination.variant != PLAIN and combination.variant in self.variants(combination.types):
                first.setdefault((combination.types, combination.variant), combination)
        yield from map(self.key_of, first.values())


class ElementWiseCases(VariedCases):
    """Tensors of one type and one size.

    Attributes:
        tolerance_of_floats: For FLOAT32 and FLOAT16; integers are exact.
    """

    tolerance_of_floats: ClassVar[Tolerance] = CORRECTLY_ROUNDED

    def variants(self, types: Types) -> tuple[str, ...]:
        scalable = any(field.type == "SCALE_BIAS" for field in self.schema.python_fields)
        return (PLAIN, SPECIAL, SCALED) if scalable else (PLAIN, SPECIAL)

    def discriminating_of(self, key: Key) -> tuple[DiscriminatingInputs, ...]:
        """None if a ScaleBias must stay exact."""
        return () if key.variant == SCALED else self.discriminating

    def attributes(self, key: Key, rng: np.random.Generator) -> dict[str, Any]:
        """Draw values of all fields except the tensors and the ScaleBias."""
        return {}

    def draw(self, key: Key, contents: np.random.Generator) -> Arrays:
        """Draw contents of the inputs."""
        data_type, sizes = key.types[0], key.sizes
        if key.variant == SCALED:
            return (eighths(contents, data_type, sizes),)
        draw = of_both_signs if key.variant in (SPECIAL, CROSSED) else numbers
        return tuple(draw(contents, data_type, sizes) for _ in self.input_fields)

    @property
    def input_fields(self) -> tuple[str, ...]:
        """Fields of the inputs."""
        return tuple(field.python_name for field in self.schema.tensor_fields if field.kind == "input")

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type = key.types[0]
        tensors = self.uniform_tensors(key, rng)
        attributes = self.attributes(key, rng)
        if key.variant == SCALED:
            attributes["scale_bias"] = draw_scale_bias(rng, (-2.0, 0.5, 0.0))
        desc = self.desc_class(**tensors, **attributes)
        tolerance = self.tolerance_of_floats if data_type.is_float else EXACT
        return Case(name, desc, lambda contents: self.draw(key, contents), tolerance)


def of_both_signs(rng: np.random.Generator, data_type: DataType, sizes: tuple[int, ...]) -> Array:
    """Draw ordinary numbers and special values; NaN has either sign, too."""
    values = mixed(rng, data_type, sizes)
    return np.where(rng.random(sizes) < 0.5, values, -values) if data_type.is_float else values


def eighths(rng: np.random.Generator, data_type: DataType, sizes: tuple[int, ...]) -> Array:
    """Draw multiples of 1/8, which a scale and a bias of few digits keep exact; integers of a byte."""
    if data_type.is_float:
        return (rng.integers(-256, 257, sizes) / 8).astype(data_type.numpy)
    return rng.integers(-128 if data_type.is_signed else 0, 128, sizes).astype(data_type.numpy)


register(
    ElementWiseCases,
    descs.ElementWiseAdd,
    added_keys=(Key((DataType.FLOAT32,), ((1 << 20) + 7,), TensorLayout.PACKED),),
)  # enough single elements for GPUs to take several per invocation
register(
    ElementWiseCases,
    descs.ElementWiseSubtract,
    descs.ElementWiseMultiply,
    descs.ElementWiseRecip,
    descs.ElementWiseSqrt,
    descs.ElementWiseAbs,
    descs.ElementWiseNegate,
    descs.ElementWiseMin,
    descs.ElementWiseMax,
)
# the difference is rounded before it is squared, which triples its error
register(ElementWiseCases, descs.ElementWiseDifferenceSquare, tolerance_of_floats=Ulp(3))
register(
    ElementWiseCases,
    descs.ElementWiseMean,
    discriminating=(
        DiscriminatingInputs("a half that is floored for truncated", OPERANDS, ODD_SUMS),
        DiscriminatingInputs("a sum that overflows before it is halved", OPERANDS, HUGE_PAIRS),
    ),
)
register(
    ElementWiseCases,
    descs.ElementWiseSign,
    discriminating=(DiscriminatingInputs("a sign of zero", ("input_tensor",), ((0,), (-0.0,), (1,), (-1,))),),
)


@cases(descs.ElementWiseAdd1)
class Add1Cases(ElementWiseCases):
    """ELEMENT_WISE_ADD1, with activations that add no error of their own and with none."""

    activations: ClassVar[tuple[OperatorDesc, ...]] = (
        descs.ActivationRelu(),
        descs.ActivationIdentity(),
        descs.ActivationThresholdedRelu(alpha=0.5),
        descs.ActivationLeakyRelu(alpha=0.25),
    )

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, SPECIAL, FUSED)

    def attributes(self, key: Key, rng: np.random.Generator) -> dict[str, Any]:
        if key.variant != FUSED:
            return {"fused_activation": None}
        return {"fused_activation": self.activations[rng.integers(len(self.activations))]}


class _QuotientCases(ElementWiseCases):
    """Division: small divisors, zeros and -1 among them."""

    discriminating = (
        DiscriminatingInputs(
            "quotients that are truncated for floored, exact multiples moved by one", OPERANDS, BOTH_SIGNS
        ),
    )

    def draw(self, key: Key, contents: np.random.Generator) -> Arrays:
        """Draw dividends of the whole range; half of the divisors small."""
        data_type, sizes = key.types[0], key.sizes
        a, b = super().draw(key, contents)
        assert b is not None
        small = few(contents, data_type, sizes) if data_type.is_float else contents.integers(-3, 8, sizes)
        return a, np.where(contents.random(sizes) < 0.5, small.astype(data_type.numpy), b)


# the truncated remainder is exact, the floored one is rounded once where the signs differ
register(_QuotientCases, descs.ElementWiseDivide, descs.ElementWiseModulusTruncate, descs.ElementWiseModulusFloor)


def _at_bounds(desc: Any) -> Rows:
    """Return the bounds of a description, and both sides of them."""
    bounds = [
        bound for bound in (desc.min, getattr(desc, "max", desc.min)) if np.isfinite(bound) and abs(bound) < 2**62
    ]
    return [(type(bound)(bound + step),) for bound in bounds for step in (0, -1, 1)]


class _BoundedCases(ElementWiseCases):
    """Bounds given as float32, in range and far beyond it."""

    discriminating = (DiscriminatingInputs("inclusive for exclusive bounds", ("input_tensor",), _at_bounds),)

    def variants(self, types: Types) -> tuple[str, ...]:
        return (*super().variants(types), CROSSED)

    def attributes(self, key: Key, rng: np.random.Generator) -> dict[str, Any]:
        if key.variant == CROSSED:
            choices = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -1e-42, 77.7, -300.5]
            if rng.integers(2):  # the minimum is applied last, which shows where it is the larger one
                return {"min": 77.7, "max": float(rng.choice([-300.5, 0.0, 3.9]))}
            return {"min": float(rng.choice(choices)), "max": float(rng.choice(choices))}
        low, high = sorted(float(bound) for bound in rng.choice([-300.0, -2.75, -1.0, 0.0, 0.5, 3.9, 100.0, 1e10], 2))
        return {"min": low, "max": high}


register(_BoundedCases, descs.ElementWiseClip, descs.ElementWiseClipGrad)


@cases(descs.ElementWiseThreshold)
class ThresholdCases(_BoundedCases):
    """ELEMENT_WISE_THRESHOLD."""

    def attributes(self, key: Key, rng: np.random.Generator) -> dict[str, Any]:
        return {"min": super().attributes(key, rng)["min"]}


class _TypedBoundCases(_BoundedCases):
    """Bounds of the tensor's type, with all their digits."""

    def attributes(self, key: Key, rng: np.random.Generator) -> dict[str, Any]:
        data_type = key.types[0]
        if key.variant == CROSSED:
            low, high = (scalar(specials(data_type), rng) for _ in "ab")
            if rng.integers(2):  # the minimum is applied last, which shows where it is the larger one
                low, high = data_type.numpy.type(9).item(), data_type.numpy.type(4).item()
        else:
            low, high = sorted(scalar(numbers(rng, data_type, (9,)), rng) for _ in "ab")
        return {"min_max_data_type": data_type, "min": low, "max": high}


def scalar(choices: Array, rng: np.random.Generator) -> Any:
    """One of some numbers, as a Python number."""
    return choices[rng.integers(choices.size)].item()


register(_TypedBoundCases, descs.ElementWiseClip1, descs.ElementWiseClipGrad1)


# ---- rounding


class _RoundingCases(ElementWiseCases):
    """Many ties between integers, and one off."""

    discriminating = (
        DiscriminatingInputs("ties that are rounded to even, away from zero, up, down", ("input_tensor",), HALVES),
    )

    def draw(self, key: Key, contents: np.random.Generator) -> Arrays:
        """Half of the inputs are rounding ties (integers divided by 2) or adjacent floats."""
        (x,) = super().draw(key, contents)
        if x is None or key.variant == SCALED:
            return (x,)
        dtype = key.types[0].numpy
        halves = (contents.integers(-40, 41, key.sizes) / 2).astype(dtype)
        neighbors = np.nextafter(halves, dtype.type(contents.choice([-50, 50])))
        near = np.where(contents.random(key.sizes) < 0.3, neighbors, halves)
        return (np.where(contents.random(key.sizes) < 0.5, near, x),)


register(_RoundingCases, descs.ElementWiseCeil, descs.ElementWiseFloor)


@cases(descs.ElementWiseRound)
class RoundCases(_RoundingCases):
    """ELEMENT_WISE_ROUND."""

    def attributes(self, key: Key, rng: np.random.Generator) -> dict[str, Any]:
        return {"rounding_mode": RoundingMode(int(rng.integers(len(RoundingMode))))}


# ---- IDENTITY --------------------------------------------------------------------------------------------------------


@cases(descs.ElementWiseIdentity)
class IdentityCases(OperatorCases):
    """ELEMENT_WISE_IDENTITY: a copy of bits into any layout; with ScaleBias arithmetic in every type."""

    large_sizes = ((16_700_001,), (65537, 129))
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, SCALED)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type = key.types[0]
        tensors = self.uniform_tensors(key, rng)
        if key.variant != SCALED:
            desc = descs.ElementWiseIdentity(**tensors)
            return Case(name, desc, lambda contents: (any_bits(contents, data_type, key.sizes),))
        scale, bias = _scale_bias(rng, data_type)
        desc = descs.ElementWiseIdentity(**tensors, scale_bias=ScaleBias(scale, bias))

        return Case(
            name,
            desc,
            lambda contents: (numbers(contents, data_type, key.sizes),),
            Accumulated(2) if data_type.is_float else EXACT,
            magnitude=of_first(lambda x: np.abs(x.astype(np.float64) * scale) + abs(bias)),
            needs="shader-f64" if data_type is DataType.FLOAT64 else None,
        )


def _scale_bias(rng: np.random.Generator, data_type: DataType) -> tuple[float, float]:
    """Any scale for floats. Powers of two for integers: their products are exact, whether or not an adapter fuses."""
    if data_type.is_float:
        return float(np.float32(rng.normal())), float(np.float32(rng.normal()))
    return float(rng.choice([-2.0, -1.0, 0.25, 0.5, 1.0, 4.0])), float(rng.integers(-40, 40)) / 4


# ---- bits ------------------------------------------------------------------------------------------------------------


class _BitCases(OperatorCases):
    """Random bits of one type."""

    standard_count = 44

    def draw(self, key: Key, contents: np.random.Generator, count: int) -> Arrays:
        """Draw contents of ``count`` inputs."""
        return tuple(any_bits(contents, key.types[0], key.sizes) for _ in range(count))

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        desc = self.desc_class(**self.uniform_tensors(key, rng))
        return Case(name, desc, lambda contents: self.draw(key, contents, len(desc.inputs)))


register(_BitCases, descs.ElementWiseBitAnd, descs.ElementWiseBitOr, descs.ElementWiseBitXor, descs.ElementWiseBitNot)


class _ShiftCases(_BitCases):
    """Counts below, at and beyond the width."""

    def draw(self, key: Key, contents: np.random.Generator, count: int) -> Arrays:
        bits, any_count = super().draw(key, contents, count)
        assert any_count is not None
        small = contents.integers(0, 130, key.sizes).astype(any_count.dtype)
        return bits, np.where(contents.random(key.sizes) < 0.8, small, any_count)


register(_ShiftCases, descs.ElementWiseBitShiftLeft, descs.ElementWiseBitShiftRight)


@cases(descs.ElementWiseBitCount)
class BitCountCases(OperatorCases):
    """ELEMENT_WISE_BIT_COUNT: every type, and both types of the count."""

    standard_count = 40
    type_fields = ("InputTensor", "OutputTensor")

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        source, output = draw_tensors(key, rng, *((t, key.sizes, i == 1) for i, t in enumerate(key.types)))
        desc = descs.ElementWiseBitCount(input_tensor=source, output_tensor=output)
        return Case(name, desc, lambda contents: (any_bits(contents, key.types[0], key.sizes),))
