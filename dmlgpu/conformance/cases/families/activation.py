"""Cases of the activations, and of softmax, its logarithm, and the place of the largest element.

If an activation composes functions, the errors of its float32 steps add up, each multiplied by the sensitivity of the
result. The bound is a fixed number of ULP if that factor is bounded. Otherwise (a sum that cancels; the tail of an
exponential, where the argument's relative error is multiplied by the argument), ``magnitude`` returns, per element, the
sum of the errors in units of 2**-24, and one ULP of the result is added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dmlgpu import reference
from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.conformance.cases.case import Array, Arrays, Case, of_first
from dmlgpu.conformance.cases.contents import any_bits, few, mixed, numbers
from dmlgpu.conformance.cases.discriminating import DiscriminatingInputs, Rows
from dmlgpu.conformance.cases.families.arithmetic import SPECIAL
from dmlgpu.conformance.cases.families.elementwise import accuracy, within
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_axes, draw_tensors, register
from dmlgpu.conformance.cases.tolerance import CORRECTLY_ROUNDED, EXACT, Accumulated, Bound, Tolerance, Ulp, flush

Wide = NDArray[np.float64]
Attributes = dict[str, float]
Ranges = dict[str, tuple[float, float]]


def at_bends(desc: Any) -> Rows:
    """Zeros, and plus and minus the attributes: there activations change their manner."""
    values = [value for value in vars(desc).values() if isinstance(value, float) and math.isfinite(value)]
    return [(0.0,), (-0.0,), (1.0,), (-1.0,), *((sign * value,) for value in values for sign in (1, -1))]


class _ActivationCases(OperatorCases):
    """An activation of one tensor.

    Attributes:
        ulps: The error allowed in FLOAT32.
        interval: Interval of half of the inputs.
        ranges: What each attribute is drawn from.
    """

    standard_count = 16
    ulps: ClassVar[float] = 2
    interval: ClassVar[tuple[float, float]] = (-6.0, 6.0)
    ranges: ClassVar[Ranges] = {}
    discriminating = (DiscriminatingInputs("bends that belong to the other side", ("input_tensor",), at_bends),)
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, SPECIAL)

    def draw_attributes(self, rng: np.random.Generator) -> Attributes:
        """Return a value of each attribute: sometimes the usual one, a float32 in any case."""
        usual = self.schema.defaults
        fields = {field.python_name: field.name for field in self.schema.python_fields}
        drawn = {name: rng.uniform(*interval) for name, interval in self.ranges.items()}
        if rng.random() < 0.3:
            drawn |= {name: usual[fields[name]] for name in drawn if fields[name] in usual}
        return {name: float(np.float32(value)) for name, value in drawn.items()}

    def allowed(self, data_type: DataType) -> Tolerance:
        """Return the tolerance."""
        return accuracy(data_type, self.ulps)

    def magnitude(self, x: Wide, attributes: Attributes) -> Bound | None:
        """Sum of the errors per element in units of 2**-24, for the tolerance ``Accumulated``."""
        return None

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type, sizes = key.types[0], key.sizes
        tensors, attributes = self.uniform_tensors(key, rng), self.draw_attributes(rng)
        desc = self.desc_class(**tensors, **attributes)

        def fill(contents: np.random.Generator) -> Arrays:
            if key.variant == SPECIAL:
                return (_with_bends(contents, mixed(contents, data_type, sizes), attributes),)
            if data_type.is_float:
                return (within(contents, data_type, sizes, self.interval),)
            return (numbers(contents, data_type, sizes),)

        def magnitude(array: Array) -> Bound:
            x = array.astype(np.float64)
            with np.errstate(all="ignore"):
                errors = self.magnitude(x, attributes)
            assert errors is not None
            return np.where(np.isfinite(x), errors, 0.0)

        tolerance = self.allowed(data_type)
        return Case(
            name, desc, fill, tolerance, magnitude=of_first(magnitude) if isinstance(tolerance, Accumulated) else None
        )


def _with_bends(rng: np.random.Generator, array: Array, attributes: Attributes) -> Array:
    """Return the numbers with some at plus or minus the attributes: there activations change their manner."""
    if not attributes or array.dtype.kind != "f":
        return array
    critical_points = np.array([sign * value for value in attributes.values() for sign in (1, -1)], array.dtype)
    return np.where(rng.random(array.shape) < 0.1, rng.choice(critical_points, array.shape), array)


@dataclass(frozen=True)
class FlushedWithin(Ulp):
    """Tolerance in ULP that also accepts 0 for the smallest numbers, where a factor of the result may be flushed."""

    def accepts(self, expected: Array, got: Array, magnitude: Bound | None) -> NDArray[np.bool_]:
        """Near enough, both NaN, or flushed: the other factors are at most 4."""
        flushed = (got == 0) & (np.abs(expected.astype(np.float64)) < 4 * np.finfo(np.float32).smallest_normal)
        return super().accepts(expected, got, magnitude) | flushed


class _ComposedCases(_ActivationCases):
    """An activation of several factors."""

    def allowed(self, data_type: DataType) -> Tolerance:
        """Accept results as other cases do, or with intermediate results flushed."""
        return FlushedWithin(1 if data_type is DataType.FLOAT16 else self.ulps)


class _SummedCases(_ActivationCases):
    """An activation whose error is given element by element."""

    def allowed(self, data_type: DataType) -> Tolerance:
        """Return the sum of the errors, and one ULP."""
        return Accumulated(1)


def _line_errors(x: Wide, attributes: Attributes) -> Wide:
    """Return the errors of ``alpha * x + beta``: rounding of the product and of the sum."""
    product = np.abs(attributes["alpha"] * x)
    return product + np.abs(attributes["alpha"] * x + attributes["beta"])


def _sigmoid(t: Wide) -> Wide:
    return 1 / (1 + np.exp(-t))


def _rounding(factor: float, t: Wide) -> Wide:
    """Return the error of the product ``t`` of a factor and an element: none if the factor is a power of two."""
    return np.zeros_like(t) if abs(math.frexp(factor)[0]) == 0.5 else np.abs(t)


# 2 ULP of e^x - 1, and a product
register(_ActivationCases, descs.ActivationElu, ulps=3, ranges={"alpha": (-0.5, 3.0)})
# 2 ULP of e^t - 1, one of the quotient t (never more, for positive alpha), a product
register(_ComposedCases, descs.ActivationCelu, ulps=4, ranges={"alpha": (0.1, 3.0)})
# 2 ULP of e^x - 1, and two products
register(_ComposedCases, descs.ActivationScaledElu, ulps=4, ranges={"alpha": (0.1, 3.0), "gamma": (-2.0, 2.0)})


@cases(descs.ActivationHardSigmoid)
class HardSigmoidCases(_SummedCases):
    """ACTIVATION_HARD_SIGMOID: the error of the line if it is not cut off."""

    ranges: ClassVar[Ranges] = {"alpha": (-1.0, 1.0), "beta": (-1.0, 1.0)}

    def magnitude(self, x: Wide, attributes: Attributes) -> Bound:
        """Return the magnitude of the linear part; if it is not clamped, it differs from beta by at most 1."""
        return np.minimum(_line_errors(x, attributes), 3 + abs(attributes["beta"]))


@cases(descs.ActivationHardSwish)
class HardSwishCases(_SummedCases):
    """ACTIVATION_HARD_SWISH: the error of the line if it is not cut off, times the input."""

    ranges: ClassVar[Ranges] = {"alpha": (-1.0, 1.0), "beta": (-1.0, 1.0)}

    def magnitude(self, x: Wide, attributes: Attributes) -> Bound:
        """Return the magnitude of HARD_SIGMOID times the input, plus the rounding of a product."""
        line = np.minimum(_line_errors(x, attributes), 3 + abs(attributes["beta"]))
        cut = np.clip(attributes["alpha"] * x + attributes["beta"], 0, 1)
        return np.abs(x) * (np.where((cut > 0) & (cut < 1), line, np.minimum(line, 2.0**-20)) + cut)


@cases(descs.ActivationIdentity)
class ActivationIdentityCases(_ActivationCases):
    """ACTIVATION_IDENTITY: a copy of bits."""

    variant_names: ClassVar[tuple[str, ...]] = (PLAIN,)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        desc = self.desc_class(**self.uniform_tensors(key, rng))
        return Case(name, desc, lambda contents: (any_bits(contents, key.types[0], key.sizes),), EXACT)


# one product
register(_ActivationCases, descs.ActivationLeakyRelu, ulps=1, ranges={"alpha": (-1.0, 1.0)})


@cases(descs.ActivationLinear)
class LinearCases(_SummedCases):
    """ACTIVATION_LINEAR: a product and a sum."""

    ranges: ClassVar[Ranges] = {"alpha": (-2.0, 2.0), "beta": (-2.0, 2.0)}

    def magnitude(self, x: Wide, attributes: Attributes) -> Bound:
        return _line_errors(x, attributes)


@cases(descs.ActivationParametricSoftplus)
class ParametricSoftplusCases(_SummedCases):
    """ACTIVATION_PARAMETRIC_SOFTPLUS: the rounding of beta * x, 2 ULP of the softplus, a product."""

    interval = (-30.0, 30.0)
    ranges: ClassVar[Ranges] = {"alpha": (-2.0, 2.0), "beta": (-1.0, 1.0)}

    def magnitude(self, x: Wide, attributes: Attributes) -> Bound:
        """Return the slope of the softplus times its argument, and 2.5 ULP."""
        t = attributes["beta"] * x
        return abs(attributes["alpha"]) * (_rounding(attributes["beta"], t) * _sigmoid(t) + 5 * np.logaddexp(0, t))


@cases(descs.ActivationRelu)
class ReluCases(_ActivationCases):
    """ACTIVATION_RELU: floats keep their bits, -0 becomes 0."""

    standard_count = 48

    def allowed(self, data_type: DataType) -> Tolerance:
        return CORRECTLY_ROUNDED


# 2 ULP of the tangent, one from beta * x (it never counts more), a product
register(_ComposedCases, descs.ActivationScaledTanh, ulps=4, ranges={"alpha": (-2.0, 2.0), "beta": (-1.0, 1.0)})
register(_ActivationCases, descs.ActivationSigmoid, interval=(-105.0, 30.0))


@cases(descs.ActivationSoftplus)
class SoftplusCases(_SummedCases):
    """ACTIVATION_SOFTPLUS: the rounding of steepness * x, 2 ULP of the softplus, a quotient. Steepness below 1 too."""

    interval = (-30.0, 30.0)
    ranges: ClassVar[Ranges] = {"steepness": (0.2, 4.0)}

    def magnitude(self, x: Wide, attributes: Attributes) -> Bound:
        """Return the slope of the softplus times its argument, and 2.5 ULP."""
        steepness = attributes["steepness"]
        t = steepness * x
        return (_rounding(steepness, t) * _sigmoid(t) + 5 * np.logaddexp(0, t)) / steepness


# a sum and a quotient
register(_ActivationCases, descs.ActivationSoftsign)


@cases(descs.ActivationSwish)
class SwishCases(_SummedCases):
    """ACTIVATION_SWISH: the rounding of the sigmoid's argument, an exponential twice, five roundings."""

    interval = (-110.0, 30.0)
    ranges: ClassVar[Ranges] = {"sigmoid_input_scale": (-1.0, 2.0)}

    def magnitude(self, x: Wide, attributes: Attributes) -> Bound:
        """Return the sensitivity to the argument, and 8 units of 2**-24 for the other steps."""
        t = attributes["sigmoid_input_scale"] * x
        return np.abs(x) * _sigmoid(t) * (_rounding(attributes["sigmoid_input_scale"], t) * _sigmoid(-t) + 8)


register(_ActivationCases, descs.ActivationTanh)


@cases(descs.ActivationThresholdedRelu)
class ThresholdedReluCases(_ActivationCases):
    """ACTIVATION_THRESHOLDED_RELU: floats keep their bits."""

    ranges: ClassVar[Ranges] = {"alpha": (-2.0, 2.0)}

    def allowed(self, data_type: DataType) -> Tolerance:
        return CORRECTLY_ROUNDED


# one sum, which FLOAT16 rounds twice
register(
    _ActivationCases,
    descs.ActivationShrink,
    standard_count=24,
    ulps=1,
    ranges={"bias": (-3.0, 3.0), "threshold": (-1.0, 3.0)},
)
# its negative tail as well
register(_ActivationCases, descs.ActivationGelu, interval=(-14.0, 6.0))


class _PairCases(OperatorCases):
    """An activation of two tensors: the input, and one more. Floats are rounded once."""

    standard_count = 48
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, SPECIAL)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type, sizes = key.types[0], key.sizes
        desc = self.desc_class(**self.uniform_tensors(key, rng))
        draw = mixed if key.variant == SPECIAL else numbers

        def fill(contents: np.random.Generator) -> Arrays:
            return draw(contents, data_type, sizes), draw(contents, data_type, sizes)

        return Case(name, desc, fill, CORRECTLY_ROUNDED if data_type.is_float else EXACT)


@cases(descs.ActivationParameterizedRelu)
class ParameterizedReluCases(_PairCases):
    """ACTIVATION_PARAMETERIZED_RELU."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        """Build the case of a key. The product may flush numbers that the comparison does not."""

        def flushed_product(inputs: Arrays) -> tuple[Array, ...]:
            x, slope = inputs
            assert x is not None and slope is not None
            with np.errstate(all="ignore"):
                return (np.where(x >= 0, x, flush(slope) * flush(x)),)

        case = super().build(key, name, rng)
        return replace(case, alternatives=flushed_product) if key.types[0] is DataType.FLOAT32 else case


register(_PairCases, descs.ActivationReluGrad)


INNER = "inner"  # the last axis alone
OUTER = "outer"  # the first axis alone
EVERY = "every"  # all axes
MASKED = "masked"  # many elements are negative infinity, in some rows all
PEAKED = "peaked"  # one element far above the rest, so that the logarithm of its weight is near 0
TIES = "ties"
LARGE = "large"  # numbers whose powers would overflow

REFERENCE_ERROR = 2.0**-50 / 2.0**-24
"""An error of float64 near 1, in the unit that magnitudes are counted in."""


def _contents(rng: np.random.Generator, key: Key, sizes: tuple[int, ...]) -> Array:
    """Draw elements of a row's kind; whole rows along the last axis are special, others mixed."""
    data_type = key.types[0]
    values = (4 * rng.standard_normal(sizes)).astype(data_type.numpy)
    line = (*sizes[:-1], 1)
    if key.variant == MASKED:
        values[rng.random(sizes) < 0.5] = -math.inf
        values[np.broadcast_to(rng.random(line) < 0.3, sizes)] = -math.inf
    if key.variant == SPECIAL:
        for value in (math.inf, -math.inf, math.nan):
            values[(rng.random(sizes) < 0.2) & (rng.random(line) < 0.3)] = value
    if key.variant == PEAKED:
        values.ravel()[:: max(1, values.size // 7)] += 20
    if key.variant == TIES:
        return few(rng, data_type, sizes)
    if key.variant == LARGE:
        with np.errstate(over="ignore"):  # infinities are welcome
            return numbers(rng, data_type, sizes) * data_type.numpy.type(500)
    return values


class _SoftmaxRowCases(OperatorCases):
    """Any axes; short rows, rows of some thousands, rows of a million."""

    long_sizes: ClassVar[SizesList] = (
        (1_000_003,),
        (3, 20011),
        (20011, 3),
        (70, 4096),
        (260, 4096),
        (80, 20000),
        (2, 70001),
        (1, 65540, 2),
    )
    large_sizes: ClassVar[SizesList] = ((4_200_000,), (65537, 129))
    example: ClassVar[Tolerance] = EXACT
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, INNER, OUTER, EVERY, MASKED, SPECIAL, PEAKED, TIES, LARGE)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        axes = draw_axes(key, rng)
        return self.case_along(key, name, rng, key.sizes, axes, axes=axes)

    def case_along(
        self,
        key: Key,
        name: str,
        rng: np.random.Generator,
        sizes: tuple[int, ...],
        along: tuple[int, ...],
        **fields: Any,
    ) -> Case:
        """Return the case of a key whose rows lie ``along`` some axes."""
        data_type = key.types[0]
        source, output = draw_tensors(key, rng, (data_type, sizes, False), (data_type, sizes, True))
        desc = self.desc_class(input_tensor=source, output_tensor=output, **fields)
        count = math.prod(sizes[axis] for axis in along)

        return Case(
            name,
            desc,
            lambda contents: (_contents(contents, key, sizes),),
            self.tolerance_of(count),
            magnitude=of_first(lambda x: self.magnitude(desc, x, along)),
        )

    def tolerance_of(self, count: int) -> Tolerance:
        """Return the tolerance for rows of ``count`` elements."""
        return Accumulated(count)

    def magnitude(self, desc: OperatorDesc, values: Array, axes: tuple[int, ...]) -> Bound:
        """Return the total effect of errors of one ULP of float32, per element."""
        raise NotImplementedError

    def tolerance(self, desc: OperatorDesc) -> Tolerance:
        """Return tolerance of the documented examples."""
        return self.example


def _shifted(values: Array, axes: tuple[int, ...]) -> Bound:
    """Return the distance of each element from the largest of its row."""
    with np.errstate(invalid="ignore"):
        return values.max(axes, keepdims=True).astype(np.float64) - values


class _SoftmaxCases(_SoftmaxRowCases):
    """An error of 0.5 ULP in x - maximum causes one of |x - maximum| / 2 ULP in its exponential; exponentials and
    quotient add some."""

    example = Ulp(4)
    added_keys: ClassVar[tuple[Key, ...]] = (
        Key((DataType.FLOAT32,), (70, 131), TensorLayout.PACKED, SPECIAL),
        Key((DataType.FLOAT32,), (130, 256), TensorLayout.PACKED),
        Key((DataType.FLOAT32,), (140, 244), TensorLayout.PACKED, SPECIAL),
    )
    """Rows of odd length, enough for adjacent threads to store theirs together, and enough for subgroups."""

    def magnitude(self, desc: OperatorDesc, values: Array, axes: tuple[int, ...]) -> Bound:
        """Return the result times 4 + |x - maximum|."""
        (result,) = reference.evaluate(desc, [values])
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(result.astype(np.float64) * (4 + _shifted(values, axes)))


class _LogSoftmaxCases(_SoftmaxRowCases):
    """Cases of LOG_SOFTMAX. Far from 0, x - maximum and the logarithm are rounded; near 0, the weight of the other
    elements dominates, down to the precision of the reference."""

    example = Accumulated(8)
    added_keys: ClassVar[tuple[Key, ...]] = (Key((DataType.FLOAT32,), (140, 244), TensorLayout.PACKED, PEAKED),)
    """Enough rows for subgroups to hold them."""

    def magnitude(self, desc: OperatorDesc, values: Array, axes: tuple[int, ...]) -> Bound:
        """Return twice |x - maximum|, four times the logarithm of the total, and the reference's own error."""
        below = _shifted(values, axes)
        with np.errstate(invalid="ignore"):
            weights = np.exp(-below)
            total = weights.sum(axes, keepdims=True)
            weighted = np.nan_to_num(below * weights).sum(axes, keepdims=True) / total
            return np.nan_to_num(2 * below + 8 * np.log(total) + 2 * weighted + REFERENCE_ERROR, posinf=0.0)

    def documented(self, case: Case) -> Case:
        """The examples need the sum of absolute values too."""
        axes = case.desc.axes  # type: ignore[attr-defined]

        return replace(case, magnitude=of_first(lambda x: self.magnitude(case.desc, x, axes)))


class _HardmaxCases(_SoftmaxRowCases):
    """Places are exact."""

    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, INNER, OUTER, EVERY, MASKED, SPECIAL, TIES)

    def tolerance_of(self, count: int) -> Tolerance:
        return EXACT

    def magnitude(self, desc: OperatorDesc, values: Array, axes: tuple[int, ...]) -> Bound:
        return np.zeros(values.shape)


register(_SoftmaxCases, descs.ActivationSoftmax1)
register(_LogSoftmaxCases, descs.ActivationLogSoftmax1)
register(_HardmaxCases, descs.ActivationHardmax1)


class _LastAxis(_SoftmaxRowCases):
    """The older operators: rows along the last dimension, all but the last two dimensions of size 1."""

    long_sizes: ClassVar[SizesList] = ((1_000_003,), (3, 20011), (70, 4096))
    large_sizes: ClassVar[SizesList] = ((65537, 129),)

    def variants(self, types: Types) -> tuple[str, ...]:
        """Variants of a case; the axes are not varied."""
        return tuple(variant for variant in super().variants(types) if variant not in (INNER, OUTER, EVERY))

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        """Return the case of a key; of its sizes the last two count."""
        rank = len(key.sizes)
        sizes = (1,) * (rank - 2) + key.sizes[-2:]
        return self.case_along(key, name, rng, sizes, (rank - 1,))


@cases(descs.ActivationSoftmax)
class SoftmaxCases(_LastAxis, _SoftmaxCases):
    """ACTIVATION_SOFTMAX."""


@cases(descs.ActivationLogSoftmax)
class LogSoftmaxCases(_LastAxis, _LogSoftmaxCases):
    """ACTIVATION_LOG_SOFTMAX."""


@cases(descs.ActivationHardmax)
class HardmaxCases(_LastAxis, _HardmaxCases):
    """ACTIVATION_HARDMAX."""
