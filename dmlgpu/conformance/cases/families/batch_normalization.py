"""Cases of batch normalisation and its gradients."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.conformance.cases.case import Arrays, Case
from dmlgpu.conformance.cases.contents import mixed
from dmlgpu.conformance.cases.families.normalization import (
    ACTIVATIONS,
    FAR,
    FUSED,
    NormalizationCases,
    Wide,
    deviation_errors,
    elements,
    normalized_errors,
    statistic_sizes,
    wide,
)
from dmlgpu.conformance.cases.keys import PLAIN, Key, SizesList, Types
from dmlgpu.conformance.cases.operator_cases import cases, register
from dmlgpu.conformance.cases.tolerance import Accumulated, Bound

CHANNELS = "channels"  # the statistics have the second dimension only
WHOLE = "whole"  # the statistics are as large as the input
SINGLE = "single"  # the statistics are one element
SPECIAL = "special"  # limits, infinities and NaN among the elements


def _sizes_of(key: Key, rng: np.random.Generator) -> tuple[int, ...]:
    """Sizes of a statistic."""
    kept = {CHANNELS: [1], WHOLE: range(len(key.sizes)), SINGLE: []}.get(key.variant)
    if math.prod(key.sizes) > 20000:
        kept = [int(np.argmin(key.sizes))]
    return statistic_sizes(key.sizes, rng, kept)


def _positive(rng: np.random.Generator, sizes: tuple[int, ...]) -> Wide:
    return rng.random(sizes) + 0.25


@cases(descs.BatchNormalization)
class BatchNormalizationCases(NormalizationCases):
    """BATCH_NORMALIZATION; each of its parameters broadcasts in its own way."""

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, CHANNELS, WHOLE, FUSED, SPECIAL, FAR)

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
            mean, scale, bias = (contents.standard_normal(inputs[fields[number]]) for number in (0, 2, 3))
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

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, CHANNELS, WHOLE, SINGLE, FUSED, FAR)

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
        return Case(name, desc, fill, Accumulated(count), magnitude=lambda given: _of_training(given, axes, epsilon))


def _of_training(arrays: Arrays, axes: tuple[int, ...], epsilon: float) -> tuple[Bound, ...]:
    """Errors of the output, the mean and the variance."""
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
    """What both gradients share."""

    standard_count: ClassVar[int] = 24
    long_sizes: ClassVar[SizesList] = ((300_003,), (3, 20011), (20011, 3))

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, CHANNELS, WHOLE, SINGLE, FAR)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        """The case of a key; the mean is somewhere near that of the input."""
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

    def magnitudes(self, given: _Operands, axes: tuple[int, ...]) -> tuple[Bound, ...]:
        """Errors of the gradients of input, scale and bias."""
        products = (given.gradient * np.abs(given.x - given.mean)).sum(axes, keepdims=True)
        return (
            8 * given.gradient * np.abs(given.scale) / np.sqrt(given.squared),
            8 * products / np.sqrt(given.squared),
            given.gradient.sum(axes, keepdims=True),
        )


register(_GradientCases, descs.BatchNormalizationGrad)


@cases(descs.BatchNormalizationTrainingGrad)
class BatchNormalizationTrainingGradCases(_GradientCases):
    """BATCH_NORMALIZATION_TRAINING_GRAD."""

    def magnitudes(self, given: _Operands, axes: tuple[int, ...]) -> tuple[Bound, ...]:
        """Each element's gradient is a sum of three; the scale's takes the difference of two means."""
        errors = deviation_errors(given.x, given.x.mean(axes, keepdims=True), axes)
        slope = (given.gradient * errors).mean(axes, keepdims=True) / given.squared
        total = given.gradient + given.gradient.mean(axes, keepdims=True) + errors * slope
        _, of_scale, of_bias = super().magnitudes(given, axes)
        own = (given.gradient * errors).sum(axes, keepdims=True)
        deviation = np.sqrt(given.squared)
        return 8 * np.abs(given.scale) / deviation * total, of_scale + 8 * own / deviation, of_bias
