"""Cases of normalizations by a tensor's own statistics or given ones, and of norms along an axis.

Errors of float32 are relative to the summed terms: the error of a deviation is a few units of the deviation itself and
of the mean deviation of its row, for any mean.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.contents import mixed
from dmlgpu.conformance.cases.discriminating import SHARE
from dmlgpu.conformance.cases.keys import OWNED, PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors, register
from dmlgpu.conformance.cases.tolerance import Accumulated, Bound, Ulp
from dmlgpu.reference import evaluate

Wide = NDArray[np.float64]

FUSED = "fused"  # with a fused activation
FAR = "far"  # elements with a deviation of 1 around a mean of 10,000 (in halves 100)
NAN = "nan"  # some elements are NaN
LAYER = "layer"  # over the last axis, scale and bias as long as it
BARE = "bare"  # neither scale nor bias

EPSILONS = (1e-5, 1e-3, 0.1)

ACTIVATIONS: tuple[OperatorDesc, ...] = (
    descs.ActivationRelu(),
    descs.ActivationIdentity(),
    descs.ActivationLeakyRelu(alpha=0.25),
)
"""Activations that make no error larger."""


def four(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Four dimensions of as many elements: leading ones added, or leading dimensions merged."""
    return (1,) * (4 - len(sizes)) + sizes if len(sizes) <= 4 else (math.prod(sizes[:-3]), *sizes[-3:])


def statistic_sizes(
    sizes: Sequence[int], rng: np.random.Generator, varying: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Draw sizes that broadcast to others: 1 but along the varying dimensions, or, randomly, along any."""
    chosen = [d for d in range(len(sizes)) if rng.integers(2)] if varying is None else varying
    return tuple(size if dimension in chosen else 1 for dimension, size in enumerate(sizes))


def elements(rng: np.random.Generator, key: Key, sizes: tuple[int, ...]) -> Array:
    """Draw elements of a case's kind."""
    dtype = key.types[0].numpy
    values = 2 * rng.standard_normal(sizes) + 1
    if key.variant == FAR:
        values = rng.standard_normal(sizes) + (1e4 if dtype == np.float32 else 1e2)
    if key.variant == NAN:
        values[rng.random(sizes) < 0.01] = math.nan
    return values.astype(dtype)


def wide(array: Array | None, absent: float = 0) -> Wide:
    """Return an input in float64, or the number ``absent`` if there is none."""
    return np.array(absent, np.float64) if array is None else array.astype(np.float64)


def deviation_errors(x: Wide, mean: Wide, axes: tuple[int, ...]) -> Bound:
    """Return errors of ``x - mean``: of the difference, and of the mean, which is as good as the other differences
    are."""
    centered = np.abs(x - mean)
    return centered + centered.mean(axes, keepdims=True)


def normalized_errors(errors: Wide, factor: Wide, bias: Wide) -> Bound:
    """Return errors of ``factor * centered + bias``, the factor having gone through a root and a quotient."""
    result: Bound = np.nan_to_num(8 * errors * np.abs(factor) + 2 * np.abs(bias))
    return result


class NormalizationCases(OperatorCases):
    """float16 and float32; random, ordinary numbers."""

    standard_count: ClassVar[int] = 28
    random_count: ClassVar[int] = 60
    large_sizes: ClassVar[SizesList] = ((65537, 129),)

    def describe(
        self,
        key: Key,
        rng: np.random.Generator,
        inputs: dict[str, tuple[int, ...]],
        outputs: dict[str, tuple[int, ...]],
    ) -> dict[str, Any]:
        """Return tensor descriptions of these sizes by field, in the key's layout."""
        data_type = key.types[0]
        tensors = [(data_type, sizes, False) for sizes in inputs.values()]
        tensors += [(data_type, sizes, True) for sizes in outputs.values()]
        return dict(zip((*inputs, *outputs), draw_tensors(key, rng, *tensors), strict=True))

    @staticmethod
    def epsilon(rng: np.random.Generator) -> float:
        """One of a few."""
        return float(rng.choice(EPSILONS))


class _Statistics(NamedTuple):
    """Statistics of a case: how it normalizes."""

    axes: tuple[int, ...]
    use_mean: bool
    use_variance: bool
    epsilon: float


class _RowCases(NormalizationCases):
    """Normalization by the statistics of rows; scale and bias are there or not, and broadcast in any way."""

    long_sizes: ClassVar[SizesList] = ((300_003,), (3, 20011), (2003, 3), (70, 4096), (2, 70001))
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, LAYER, BARE, FUSED, FAR, NAN)

    def row_sizes(self, key: Key) -> tuple[int, ...]:
        """Return sizes of the input."""
        return key.sizes

    @abstractmethod
    def statistics(
        self, key: Key, sizes: tuple[int, ...], rng: np.random.Generator
    ) -> tuple[_Statistics, dict[str, Any]]:
        """Return the statistics of a case, and the fields that specify them."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        sizes = self.row_sizes(key)
        how, attributes = self.statistics(key, sizes, rng)
        present = self._parameters(key, rng)
        dimensions = how.axes if key.variant == LAYER else None
        inputs = {"input_tensor": sizes} | {field: statistic_sizes(sizes, rng, dimensions) for field in present}
        tensors = self.describe(key, rng, inputs, {"output_tensor": sizes})
        activation = ACTIVATIONS[rng.integers(len(ACTIVATIONS))] if key.variant == FUSED else None
        desc = self.desc_class(**tensors, **attributes, fused_activation=activation)

        def fill(contents: np.random.Generator) -> Arrays:
            x = elements(contents, key, sizes)
            parameters = {field: contents.standard_normal(inputs[field]).astype(x.dtype) for field in present}
            return (x, parameters.get("scale_tensor"), parameters.get("bias_tensor"))

        count = math.prod(sizes[axis] for axis in how.axes)
        return Case(name, desc, fill, Accumulated(count), magnitude=lambda arrays: self._magnitude(how, *arrays))

    @staticmethod
    def _parameters(key: Key, rng: np.random.Generator) -> tuple[str, ...]:
        """Draw which of scale and bias are present."""
        both = ("scale_tensor", "bias_tensor")
        if key.variant == BARE:
            return ()
        return both if key.variant == LAYER else ((), both, both[:1], both[1:])[rng.integers(4)]

    @staticmethod
    def _magnitude(how: _Statistics, x: Array | None, scale: Array | None, bias: Array | None) -> Bound:
        """Return errors of the deviations, and those of the factor."""
        values = wide(x)
        mean = values.mean(how.axes, keepdims=True) if how.use_mean else np.zeros(1)
        variance = np.square(values - mean).mean(how.axes, keepdims=True)
        factor = wide(scale, 1) / (np.sqrt(variance + how.epsilon) if how.use_variance else 1)
        errors = deviation_errors(values, mean, how.axes) if how.use_mean else np.abs(values)
        return normalized_errors(errors, factor, wide(bias))


def any_axes(key: Key, rng: np.random.Generator) -> tuple[int, ...]:
    """Return a set of axes in any order; of large tensors the longest."""
    rank = len(key.sizes)
    if key.variant == LAYER:
        return (rank - 1,)
    if math.prod(key.sizes) > 20000:
        return (int(np.argmax(key.sizes)),)
    return tuple(int(axis) for axis in rng.permutation(rank)[: rng.integers(1, rank + 1)])


@cases(descs.MeanVarianceNormalization2)
class MeanVarianceNormalization2Cases(_RowCases):
    """MEAN_VARIANCE_NORMALIZATION2, with each of its switches on and off."""

    added_keys: ClassVar[tuple[Key, ...]] = (
        Key((DataType.FLOAT32,), (3, 40), TensorLayout.PACKED, FAR),
        Key((DataType.FLOAT32,), (69, 500), TensorLayout.PACKED),
        Key((DataType.FLOAT32,), (140, 244), TensorLayout.PACKED, FAR),
        Key((DataType.FLOAT32,), (140, 244), TensorLayout.PACKED, "rms", 1),
        Key((DataType.FLOAT32,), (7, 70, 31), TensorLayout.SLACK, NAN, 1),
        Key((DataType.FLOAT32,), (264, 128), TensorLayout.PACKED, "layer"),
        Key((DataType.FLOAT32,), (2, 70001), TensorLayout.PACKED, "rms"),
    )
    """Rows of floats far from 0, for which every digit of the mean matters, and enough rows for adjacent invocations to
    store theirs together, or for subgroups to hold them; a mean square of partial results."""

    def variants(self, types: Types) -> tuple[str, ...]:
        return (*super().variants(types), "rms", "centered", "neither")

    def statistics(
        self, key: Key, sizes: tuple[int, ...], rng: np.random.Generator
    ) -> tuple[_Statistics, dict[str, Any]]:
        use_mean, use_variance = {"rms": (False, True), "centered": (True, False), "neither": (False, False)}.get(
            key.variant, (True, True)
        )
        how = _Statistics(any_axes(key, rng), use_mean, use_variance, self.epsilon(rng))
        return how, how._asdict()


def _with_mean(how: _Statistics) -> dict[str, Any]:
    return {"normalize_variance": how.use_variance, "epsilon": how.epsilon}


@cases(descs.MeanVarianceNormalization1)
class MeanVarianceNormalization1Cases(_RowCases):
    """MEAN_VARIANCE_NORMALIZATION1."""

    standard_count: ClassVar[int] = 20
    long_sizes: ClassVar[SizesList] = ()

    def statistics(
        self, key: Key, sizes: tuple[int, ...], rng: np.random.Generator
    ) -> tuple[_Statistics, dict[str, Any]]:
        """Draw statistics with or without the variance."""
        how = _Statistics(any_axes(key, rng), True, bool(rng.integers(4)), self.epsilon(rng))
        return how, {"axes": how.axes, **_with_mean(how)}


@cases(descs.MeanVarianceNormalization)
class MeanVarianceNormalizationCases(_RowCases):
    """MEAN_VARIANCE_NORMALIZATION, of four dimensions."""

    standard_count: ClassVar[int] = 20
    long_sizes: ClassVar[SizesList] = ()

    def row_sizes(self, key: Key) -> tuple[int, ...]:
        return four(key.sizes)

    def statistics(
        self, key: Key, sizes: tuple[int, ...], rng: np.random.Generator
    ) -> tuple[_Statistics, dict[str, Any]]:
        """Channels crossed or not, with the variance or without, randomly."""
        crossed = bool(rng.integers(2))
        how = _Statistics((1, 2, 3) if crossed else (2, 3), True, bool(rng.integers(4)), self.epsilon(rng))
        return how, {"cross_channel": crossed, **_with_mean(how)}


ZEROS = "zeros"  # some rows are zero
LARGE = "large"  # squares exceed float32
TINY = "tiny"  # norms below epsilon


@cases(descs.LpNormalization)
class LpNormalizationCases(NormalizationCases):
    """LP_NORMALIZATION."""

    long_sizes: ClassVar[SizesList] = ((300_003,), (3, 20011), (2003, 3))
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, ZEROS, LARGE, TINY, NAN)
    added_keys: ClassVar[tuple[Key, ...]] = (
        Key((DataType.FLOAT32,), (3, 300), TensorLayout.PACKED),
        Key((DataType.FLOAT32,), (2, 70001), TensorLayout.PACKED, PLAIN, 1),
    )
    """Sums of absolute values of long rows, without an epsilon, and with one of partial results."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        tensors = self.describe(key, rng, {"input_tensor": key.sizes}, {"output_tensor": key.sizes})
        axis = int(np.argmax(key.sizes) if math.prod(key.sizes) > 20000 else rng.integers(len(key.sizes)))
        p, epsilon = int(rng.integers(1, 3)), self.epsilon(rng)
        if key.variant in (PLAIN, LARGE) and rng.random() < 0.5:
            epsilon = 0.0  # norms are summed up in another way
        desc: Any = self.desc_class(**tensors, axis=axis, p=p, epsilon=epsilon)
        return Case(name, desc, lambda contents: (self._contents(contents, key, desc),), Ulp(4))

    @staticmethod
    def _contents(rng: np.random.Generator, key: Key, desc: Any) -> Array:
        """A third of the rows have norms near epsilon, so that max(norm, epsilon) differs from norm + epsilon. Without
        an epsilon, rows sum one large number and small ones that are lost unless the sum is compensated."""
        values, axis, epsilon = elements(rng, key, key.sizes), desc.axis, desc.epsilon
        row = tuple(1 if d == axis else size for d, size in enumerate(key.sizes))
        if key.variant in (PLAIN, OWNED) and epsilon:
            near = np.broadcast_to(rng.random(row) < SHARE, key.sizes)
            values = np.where(near, values * values.dtype.type(epsilon), values)
        if key.variant == PLAIN and not epsilon and values.dtype == np.float32:
            first = np.arange(key.sizes[axis]).reshape(-1, *(1,) * (len(key.sizes) - axis - 1)) == 0
            values = np.where(first, np.float32(1), np.copysign(np.float32(2 ** (-24.5 / desc.p)), values))
        if key.variant == ZEROS:
            values[np.broadcast_to(rng.random(row) < 0.5, key.sizes)] = 0
        factor = {LARGE: {2: 1e3, 4: 1e30}, TINY: {2: 1e-3, 4: 1e-10}}.get(key.variant, {2: 1, 4: 1})
        return values * values.dtype.type(factor[values.dtype.itemsize])


@cases(descs.ValueScale2d)
class ValueScale2dCases(NormalizationCases):
    """VALUE_SCALE_2D."""

    standard_count: ClassVar[int] = 16

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        """Return the case of a key: one channel or three."""
        batch, _, *image = four(key.sizes)
        sizes = (batch, int(rng.choice([1, 3])), *image)
        tensors = self.describe(key, rng, {"input_tensor": sizes}, {"output_tensor": sizes})
        bias = rng.standard_normal(sizes[1]).astype(np.float32)
        scale = float(np.float32(rng.standard_normal()))
        desc = self.desc_class(**tensors, scale=scale, bias=tuple(map(float, bias)))

        def magnitude(arrays: Arrays) -> Bound:
            result: Bound = np.abs(scale * wide(arrays[0])) + np.abs(bias.astype(np.float64)).reshape(1, -1, 1, 1)
            return result

        return Case(name, desc, lambda contents: (elements(contents, key, sizes),), Accumulated(2), magnitude=magnitude)


# ---- batch normalization and its gradients ---------------------------------------------------------------------------


CHANNELS = "channels"  # the statistics have the second dimension only
WHOLE = "whole"  # the statistics are as large as the input
SINGLE = "single"  # the statistics are one element
SPECIAL = "special"  # limits, infinities and NaN among the elements


def _sizes_of(key: Key, rng: np.random.Generator) -> tuple[int, ...]:
    """Draw sizes of a statistic."""
    dimensions = {CHANNELS: [1], WHOLE: range(len(key.sizes)), SINGLE: []}.get(key.variant)
    if math.prod(key.sizes) > 20000:
        dimensions = [int(np.argmin(key.sizes))]
    return statistic_sizes(key.sizes, rng, dimensions)


def _positive(rng: np.random.Generator, sizes: tuple[int, ...]) -> Wide:
    return rng.random(sizes) + 0.25


@cases(descs.BatchNormalization)
class BatchNormalizationCases(NormalizationCases):
    """BATCH_NORMALIZATION; each of its parameters broadcasts in its own way."""

    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, CHANNELS, WHOLE, FUSED, SPECIAL, FAR)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        fields = ("mean_tensor", "variance_tensor", "scale_tensor", "bias_tensor")
        inputs = {"input_tensor": key.sizes} | {field: _sizes_of(key, rng) for field in fields}
        tensors = self.describe(key, rng, inputs, {"output_tensor": key.sizes})
        epsilon = self.epsilon(rng)
        activation = ACTIVATIONS[rng.integers(len(ACTIVATIONS))] if key.variant == FUSED else None
        desc = self.desc_class(**tensors, spatial=bool(rng.integers(2)), epsilon=epsilon, fused_activation=activation)

        def fill(contents: np.random.Generator) -> Arrays:
            special = key.variant == SPECIAL
            x = mixed(contents, key.types[0], key.sizes) if special else elements(contents, key, key.sizes)
            mean, scale, bias = (contents.standard_normal(inputs[fields[index]]) for index in (0, 2, 3))
            far = round(float(x.mean())) if key.variant == FAR else 0
            variance = _positive(contents, inputs["variance_tensor"])
            return (x, *(array.astype(x.dtype) for array in (mean + far, variance, scale, bias)))

        def magnitude(arrays: Arrays) -> Bound:
            x, mean, variance, scale, bias = map(wide, arrays)
            with np.errstate(all="ignore"):
                return normalized_errors(np.abs(x - mean), scale / np.sqrt(variance + epsilon), bias)

        return Case(name, desc, fill, Accumulated(1), magnitude=magnitude)


@cases(descs.BatchNormalizationTraining)
class BatchNormalizationTrainingCases(NormalizationCases):
    """BATCH_NORMALIZATION_TRAINING."""

    long_sizes: ClassVar[SizesList] = ((300_003,), (3, 20011), (20011, 3), (40, 5, 321))
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, CHANNELS, WHOLE, SINGLE, FUSED, FAR)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        small = _sizes_of(key, rng)
        inputs = {"input_tensor": key.sizes, "scale_tensor": small, "bias_tensor": small}
        if rng.integers(2):
            inputs["fused_add_tensor"] = key.sizes
        outputs = {"output_tensor": key.sizes, "output_mean_tensor": small, "output_variance_tensor": small}
        tensors = self.describe(key, rng, inputs, outputs)
        epsilon = self.epsilon(rng)
        activation = ACTIVATIONS[rng.integers(len(ACTIVATIONS))] if key.variant == FUSED else None
        desc = self.desc_class(**tensors, epsilon=epsilon, fused_activation=activation)

        def fill(contents: np.random.Generator) -> Arrays:
            x = elements(contents, key, key.sizes)
            more = [contents.standard_normal(sizes).astype(x.dtype) for sizes in list(inputs.values())[1:]]
            return (x, *more, *([None] if len(more) == 2 else []))

        axes = tuple(axis for axis, size in enumerate(small) if size == 1)
        count = math.prod(key.sizes[axis] for axis in axes)
        return Case(name, desc, fill, Accumulated(count), magnitude=lambda arrays: _of_training(arrays, axes, epsilon))


def _of_training(arrays: Arrays, axes: tuple[int, ...], epsilon: float) -> tuple[Bound, ...]:
    """Return errors of the output, the mean and the variance."""
    x, scale, bias = map(wide, arrays[:3])
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    errors = deviation_errors(x, mean, axes)
    added = np.abs(bias) + np.abs(wide(arrays[3]))
    return (
        normalized_errors(errors, scale / np.sqrt(variance + epsilon), added),
        errors.mean(axes, keepdims=True),
        4 * variance,
    )


class _Operands(NamedTuple):
    """Inputs of a gradient: of the gradient the absolute values, of the variance the sum with epsilon."""

    x: Wide
    gradient: Wide
    mean: Wide
    squared: Wide
    scale: Wide


class _GradientCases(NormalizationCases):
    """Base class of both gradients."""

    standard_count: ClassVar[int] = 24
    long_sizes: ClassVar[SizesList] = ((300_003,), (3, 20011), (20011, 3))
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, CHANNELS, WHOLE, SINGLE, FAR)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        """Return the case of a key; the mean is somewhere near that of the input."""
        small = _sizes_of(key, rng)
        inputs = dict.fromkeys(("input_tensor", "input_gradient_tensor"), key.sizes)
        inputs |= dict.fromkeys(("mean_tensor", "variance_tensor", "scale_tensor"), small)
        outputs = {"output_gradient_tensor": key.sizes}
        outputs |= dict.fromkeys(("output_scale_gradient_tensor", "output_bias_gradient_tensor"), small)
        tensors = self.describe(key, rng, inputs, outputs)
        epsilon = self.epsilon(rng)
        desc = self.desc_class(**tensors, epsilon=epsilon)
        axes = tuple(axis for axis, size in enumerate(small) if size == 1)

        def fill(contents: np.random.Generator) -> Arrays:
            x = elements(contents, key, key.sizes)
            mean = wide(x).mean(axes, keepdims=True) + contents.standard_normal(small) / 8
            others = (contents.standard_normal(key.sizes), mean, _positive(contents, small))
            return (x, *(array.astype(x.dtype) for array in (*others, contents.standard_normal(small))))

        count = math.prod(key.sizes[axis] for axis in axes)

        def magnitude(arrays: Arrays) -> tuple[Bound, ...]:
            x, gradient, mean, variance, scale = map(wide, arrays)
            return self.magnitudes(_Operands(x, np.abs(gradient), mean, variance + epsilon, scale), axes)

        return Case(name, desc, fill, Accumulated(count), magnitude=magnitude)

    def magnitudes(self, operands: _Operands, axes: tuple[int, ...]) -> tuple[Bound, ...]:
        """Return errors of the gradients of input, scale and bias."""
        products = (operands.gradient * np.abs(operands.x - operands.mean)).sum(axes, keepdims=True)
        return (
            8 * operands.gradient * np.abs(operands.scale) / np.sqrt(operands.squared),
            8 * products / np.sqrt(operands.squared),
            operands.gradient.sum(axes, keepdims=True),
        )


register(_GradientCases, descs.BatchNormalizationGrad)


@cases(descs.BatchNormalizationTrainingGrad)
class BatchNormalizationTrainingGradCases(_GradientCases):
    """BATCH_NORMALIZATION_TRAINING_GRAD."""

    def magnitudes(self, operands: _Operands, axes: tuple[int, ...]) -> tuple[Bound, ...]:
        """Each element's gradient is a sum of three; the scale's takes the difference of two means."""
        errors = deviation_errors(operands.x, operands.x.mean(axes, keepdims=True), axes)
        slope = (operands.gradient * errors).mean(axes, keepdims=True) / operands.squared
        total = operands.gradient + operands.gradient.mean(axes, keepdims=True) + errors * slope
        _, of_scale, of_bias = super().magnitudes(operands, axes)
        own = (operands.gradient * errors).sum(axes, keepdims=True)
        deviation = np.sqrt(operands.squared)
        return 8 * np.abs(operands.scale) / deviation * total, of_scale + 8 * own / deviation, of_bias


# ---- local response normalization and its gradient -------------------------------------------------------------------


CROSSED = "crossed"  # regions across channels
WITHIN = "within"  # regions of height and width
WIDE = "wide"  # regions wider than the tensor


class _LocalResponseCases(NormalizationCases):
    """Regions of any size; numbers of which every part of the formula matters."""

    standard_count: ClassVar[int] = 24
    large_sizes: ClassVar[SizesList] = ((3, 5, 200, 300),)
    inputs: ClassVar[tuple[str, ...]]
    output: ClassVar[str]

    variant_names: ClassVar[tuple[str, ...]] = (CROSSED, WITHIN, WIDE)
    added_keys: ClassVar[tuple[Key, ...]] = (Key((DataType.FLOAT32,), (1, 140, 1, 150), TensorLayout.PACKED, WIDE, 2),)
    """Windows of several tiles of 64 elements."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        sizes = four(key.sizes)
        tensors = self.describe(key, rng, dict.fromkeys(self.inputs, sizes), {self.output: sizes})
        crossed = key.variant == CROSSED or (key.variant == WIDE and bool(rng.integers(2)))
        local = int(rng.integers(1, 8)) if key.variant != WIDE else int(rng.choice([64, 1000, 2**32 - 1]))
        beta = float(rng.choice([0.5, 0.75, 1.0, 2.0]))
        attributes = {"local_size": local, "alpha": 0.25 * min(local, 1000), "beta": beta, "bias": 1.5}
        desc = self.desc_class(**tensors, cross_channel=crossed, **attributes)

        def fill(contents: np.random.Generator) -> Arrays:
            return tuple(elements(contents, key, sizes) for _ in self.inputs)

        terms = sizes[1] if crossed else sizes[2] * sizes[3]
        return Case(name, desc, fill, Accumulated(terms), magnitude=lambda arrays: self.magnitude(desc, arrays))

    def magnitude(self, desc: Any, arrays: Arrays) -> Bound:
        """Sum of the terms, times the factor by which the power scales an error."""
        sizes = [np.abs(wide(array)) for array in arrays]
        (result,) = evaluate(desc, sizes)
        return (8 + 4 * desc.beta) * self.terms(result, *sizes)

    @abstractmethod
    def terms(self, result: Bound, *sizes: Bound) -> Bound:
        """Sum of the terms, from the result for absolute values."""


@cases(descs.LocalResponseNormalization)
class LocalResponseNormalizationCases(_LocalResponseCases):
    """LOCAL_RESPONSE_NORMALIZATION."""

    inputs = ("input_tensor",)
    output = "output_tensor"

    def terms(self, result: Bound, *sizes: Bound) -> Bound:
        return result


@cases(descs.LocalResponseNormalizationGrad)
class LocalResponseNormalizationGradCases(_LocalResponseCases):
    """LOCAL_RESPONSE_NORMALIZATION_GRAD."""

    inputs = ("input_tensor", "input_gradient_tensor")
    output = "output_gradient_tensor"

    def terms(self, result: Bound, *sizes: Bound) -> Bound:
        """Return the gradient times a power below 1 (the bias is above 1), less the sum over the region."""
        return 2 * sizes[1] - result
