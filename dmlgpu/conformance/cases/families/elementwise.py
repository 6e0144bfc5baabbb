"""Cases of the operators that compare or choose, and of the functions of analysis.

Comparisons and choices are exact: booleans are integers, and choosing moves bits. FLOAT32 results of functions are
allowed the error of the math library (docs/accuracy.md): 2 ULP, 4 for tangents and powers. FLOAT16 results come from
float32, so at most the neighbor of the nearest number is right.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, IsInfinityMode
from dmlgpu.catalog.operator_desc import ScaleBias
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.contents import any_bits, few, mixed, numbers
from dmlgpu.conformance.cases.discriminating import EQUAL_PAIRS, SMALL_POWERS, DiscriminatingInputs, draw_scale_bias
from dmlgpu.conformance.cases.families.arithmetic import OPERANDS, SCALED, SPECIAL, VariedCases, of_both_signs
from dmlgpu.conformance.cases.keys import INPLACE, PLAIN, Key, Types
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors, register
from dmlgpu.conformance.cases.tolerance import EXACT, Tolerance, Ulp

Interval = tuple[float, float]


class _RelationCases(VariedCases):
    """Two tensors of one type, and booleans of another."""

    discriminating = (DiscriminatingInputs("< for <=, zeros of either sign that differ", OPERANDS, EQUAL_PAIRS),)

    type_fields = ("ATensor", "OutputTensor")
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, SPECIAL)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type, truth = key.types
        a, b, output = draw_tensors(
            key, rng, (data_type, key.sizes, False), (data_type, key.sizes, False), (truth, key.sizes, True)
        )

        def fill(contents: np.random.Generator) -> Arrays:
            draw = of_both_signs if key.variant == SPECIAL else numbers
            a, b = (draw(contents, data_type, key.sizes) for _ in "ab")
            return a, np.where(contents.random(key.sizes) < 0.3, a, b)  # equal elements are rare otherwise

        return Case(name, self.desc_class(a_tensor=a, b_tensor=b, output_tensor=output), fill)


register(
    _RelationCases,
    descs.ElementWiseLogicalEquals,
    descs.ElementWiseLogicalGreaterThan,
    descs.ElementWiseLogicalLessThan,
    descs.ElementWiseLogicalGreaterThanOrEqual,
    descs.ElementWiseLogicalLessThanOrEqual,
)


def draw_booleans(rng: np.random.Generator, data_type: DataType, sizes: tuple[int, ...]) -> Array:
    """Zeros, ones and other numbers that count as true."""
    return np.where(rng.random(sizes) < 0.4, data_type.numpy.type(0), few(rng, data_type, sizes) * 51)


class _LogicalCases(OperatorCases):
    """Booleans of one type."""

    standard_count = 20
    type_fields = ("OutputTensor",)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        desc = self.desc_class(**self.uniform_tensors(key, rng))

        def fill(contents: np.random.Generator) -> Arrays:
            return tuple(draw_booleans(contents, key.types[0], key.sizes) for _ in desc.inputs)

        return Case(name, desc, fill)


register(
    _LogicalCases,
    descs.ElementWiseLogicalAnd,
    descs.ElementWiseLogicalOr,
    descs.ElementWiseLogicalXor,
    descs.ElementWiseLogicalNot,
)


class _ClassCases(VariedCases):
    """Floats, and whether they are of a kind."""

    type_fields = ("InputTensor", "OutputTensor")
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, SPECIAL)

    def attributes(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw values of all fields except the tensors."""
        return {}

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type, truth = key.types
        source, output = draw_tensors(key, rng, (data_type, key.sizes, False), (truth, key.sizes, True))
        draw = of_both_signs if key.variant == SPECIAL else any_bits
        desc = self.desc_class(input_tensor=source, output_tensor=output, **self.attributes(rng))
        return Case(name, desc, lambda contents: (draw(contents, data_type, key.sizes),))


register(_ClassCases, descs.ElementWiseIsNan)


@cases(descs.ElementWiseIsInfinity)
class IsInfinityCases(_ClassCases):
    """ELEMENT_WISE_IS_INFINITY."""

    def attributes(self, rng: np.random.Generator) -> dict[str, Any]:
        return {"infinity_mode": IsInfinityMode(int(rng.integers(len(IsInfinityMode))))}


@cases(descs.ElementWiseIf)
class IfCases(OperatorCases):
    """ELEMENT_WISE_IF: bits of every type."""

    standard_count = 40
    type_fields = ("ATensor",)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type, sizes = key.types[0], key.sizes
        condition, a, b, output = draw_tensors(
            key,
            rng,
            (DataType.UINT8, sizes, False),
            *((data_type, sizes, is_output) for is_output in (False, False, True)),
        )

        def fill(contents: np.random.Generator) -> Arrays:
            choices = draw_booleans(contents, DataType.UINT8, sizes)
            return choices, any_bits(contents, data_type, sizes), any_bits(contents, data_type, sizes)

        desc = descs.ElementWiseIf(condition_tensor=condition, a_tensor=a, b_tensor=b, output_tensor=output)
        return Case(name, desc, fill)


# ---- functions of analysis


def accuracy(data_type: DataType, ulps: float) -> Tolerance:
    """Return tolerance of ``ulps`` in FLOAT32 and of the nearest or an adjacent number in FLOAT16; exact for
    integers."""
    if not data_type.is_float:
        return EXACT
    return Ulp(1 if data_type is DataType.FLOAT16 else ulps)


def within(rng: np.random.Generator, data_type: DataType, sizes: tuple[int, ...], interval: Interval) -> Array:
    """Floats, half of them spread over an interval, the others of all orders of magnitude."""
    largest = float(np.finfo(data_type.numpy).max)
    spread = np.clip(rng.uniform(*interval, sizes), -largest, largest).astype(data_type.numpy)
    return np.where(rng.random(sizes) < 0.5, spread, numbers(rng, data_type, sizes))


def sixteenths(rng: np.random.Generator, data_type: DataType, sizes: tuple[int, ...]) -> Array:
    """Draw multiples of 1/16 between -4 and 4, to which a ScaleBias adds no error; small integers."""
    step = 16 if data_type.is_float else 1
    low = 0 if not data_type.is_signed else -64
    return (rng.integers(low, 65, sizes) / step).astype(data_type.numpy)


SCALES = (-1.0, 0.5, 2.0)
"""Scales of few digits."""


class _FunctionCases(OperatorCases):
    """A function of one number.

    Attributes:
        ulps: The error allowed in FLOAT32.
        interval: Interval of half of the inputs.
    """

    standard_count = 16
    ulps: ClassVar[float] = 2
    interval: ClassVar[Interval] = (-4.0, 4.0)
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, SPECIAL, SCALED)

    def attributes(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw values of all fields except the tensors and the ScaleBias."""
        return {}

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type, sizes = key.types[0], key.sizes
        tensors = self.uniform_tensors(key, rng)
        scaling = draw_scale_bias(rng, SCALES) if key.variant == SCALED else None
        attributes = self.attributes(rng)
        desc = self.desc_class(**tensors, scale_bias=scaling, **attributes)

        def fill(contents: np.random.Generator) -> Arrays:
            if key.variant == SPECIAL:
                return (mixed(contents, data_type, sizes),)
            if key.variant == SCALED:
                return (sixteenths(contents, data_type, sizes),)
            return (within(contents, data_type, sizes, self.interval),)

        return Case(name, desc, fill, accuracy(data_type, self.ulps))


register(_FunctionCases, descs.ElementWiseAcos, descs.ElementWiseAsin, interval=(-1.0, 1.0))
register(_FunctionCases, descs.ElementWiseAtan)
register(_FunctionCases, descs.ElementWiseCos, descs.ElementWiseSin, interval=(-1e5, 1e5))
register(_FunctionCases, descs.ElementWiseTan, ulps=4, interval=(-1e5, 1e5))
register(_FunctionCases, descs.ElementWiseExp, interval=(-105.0, 90.0))
register(_FunctionCases, descs.ElementWiseLog, interval=(0.0, 3.0))
register(_FunctionCases, descs.ElementWiseErf)
register(_FunctionCases, descs.ElementWiseSinh, descs.ElementWiseCosh, interval=(-90.0, 90.0))
register(_FunctionCases, descs.ElementWiseTanh, descs.ElementWiseAsinh)
register(_FunctionCases, descs.ElementWiseAcosh, interval=(1.0, 4.0))
register(_FunctionCases, descs.ElementWiseAtanh, interval=(-1.0, 1.0))


@cases(descs.ElementWiseConstantPow)
class ConstantPowCases(_FunctionCases):
    """ELEMENT_WISE_CONSTANT_POW: integer exponents, multiples of 0.5, arbitrary and special ones."""

    standard_count = 24
    ulps = 4
    interval = (0.0, 4.0)

    def attributes(self, rng: np.random.Generator) -> dict[str, Any]:
        special = [0.0, -0.0, 1.0, 2.0, 3.0, -1.0, 0.5, -0.5, 16777216.0, 16777215.0, np.inf, -np.inf, np.nan]
        return {"exponent": float(rng.choice(special) if rng.random() < 0.6 else rng.normal(0, 4))}


@cases(descs.ElementWiseAtanYx)
class AtanYxCases(OperatorCases):
    """ELEMENT_WISE_ATAN_YX: also if both are zeros, whose signs choose the angle."""

    standard_count = 16
    type_fields = ("ATensor",)
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, SPECIAL)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type, sizes = key.types[0], key.sizes
        draw = mixed if key.variant == SPECIAL else numbers
        desc = descs.ElementWiseAtanYx(**self.uniform_tensors(key, rng))
        return Case(
            name,
            desc,
            lambda contents: (draw(contents, data_type, sizes), draw(contents, data_type, sizes)),
            accuracy(data_type, 2),
        )


@cases(descs.ElementWisePow)
class PowCases(OperatorCases):
    """ELEMENT_WISE_POW: every pair of types.

    Integers to the power of floats draw small integers and multiples of 0.5, whose powers are far enough from other
    integers to be truncated correctly.
    """

    standard_count = 64
    type_fields = ("InputTensor", "ExponentTensor")
    discriminating = (
        DiscriminatingInputs(
            "powers of 0, 1 and -1 that are like others", ("input_tensor", "exponent_tensor"), SMALL_POWERS
        ),
    )

    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, SPECIAL, SCALED)

    def discriminating_of(self, key: Key) -> tuple[DiscriminatingInputs, ...]:
        """None if a ScaleBias must stay exact."""
        return () if key.variant == SCALED else self.discriminating

    def allowed_variants(self, types: Types, layout: TensorLayout) -> tuple[str, ...]:
        """Allow in-place variants only if the exponent has the output's type, since any input may be chosen for it."""
        variants = super().allowed_variants(types, layout)
        return variants if types[0] is types[1] else tuple(variant for variant in variants if variant != INPLACE)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        base, exponent = key.types
        source, power, output = draw_tensors(
            key, rng, (base, key.sizes, False), (exponent, key.sizes, False), (base, key.sizes, True)
        )
        scaling = draw_scale_bias(rng, SCALES) if key.variant == SCALED else None
        if scaling and not base.is_float:
            scaling = ScaleBias(scaling.scale, 4 * scaling.bias)
        desc = descs.ElementWisePow(
            input_tensor=source, exponent_tensor=power, output_tensor=output, scale_bias=scaling
        )
        return Case(name, desc, lambda contents: (_bases(contents, key), _exponents(contents, key)), accuracy(base, 4))


def _bases(rng: np.random.Generator, key: Key) -> Array:
    base, exponent = key.types
    if key.variant == SCALED or (exponent.is_float and not base.is_float):
        return sixteenths(rng, base, key.sizes)
    if key.variant == SPECIAL:
        return mixed(rng, base, key.sizes)
    if not base.is_float:
        return np.where(rng.random(key.sizes) < 0.5, sixteenths(rng, base, key.sizes), numbers(rng, base, key.sizes))
    near_one = (1 + rng.choice([-1, 1], key.sizes) * 2.0 ** rng.integers(-24, 0, key.sizes)).astype(base.numpy)
    return np.where(rng.random(key.sizes) < 0.3, near_one, within(rng, base, key.sizes, (0.0, 4.0)))


def _exponents(rng: np.random.Generator, key: Key) -> Array:
    base, exponent = key.types
    if exponent.is_float and not base.is_float:
        special = [np.nan, np.inf, -np.inf, -0.0] if key.variant == SPECIAL else [0.0]
        return rng.choice([-1.0, -0.5, 0.5, 1.0, 1.5, 2.0, 3.0, *special], key.sizes).astype(exponent.numpy)
    if key.variant == SPECIAL:
        return mixed(rng, exponent, key.sizes)
    drawn = numbers(rng, exponent, key.sizes)
    small = rng.integers(-4 if exponent.is_signed else 0, 8, key.sizes).astype(exponent.numpy)
    return np.where(rng.random(key.sizes) < 0.5, small, drawn)
