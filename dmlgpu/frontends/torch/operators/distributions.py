"""Variates of gamma, Dirichlet, Poisson and binomial distributions.

Methods of rejection draw a fixed number of candidates for each element at once, and take the first that is accepted.
With a probability below 1e-10 for gamma variates and 1e-7 for others, none is accepted, and the result is the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from dmlgpu.catalog.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.frontends.torch.operators.random import drawn, positive_uniform, rounded_to
from dmlgpu.frontends.torch.operators.registry import Unsupported, aten
from dmlgpu.frontends.torch.operators.transcendental import log1p, polynomial
from dmlgpu.ops import directml
from dmlgpu.ops.creation import sequence
from dmlgpu.ops.reductions import argmax, reduced
from dmlgpu.ops.shape import joined
from dmlgpu.tensors.layout import broadcast_sizes
from dmlgpu.tensors.tensor import Tensor

_IF = directml.element_wise_if
_LOG, _EXP, _SQRT = directml.element_wise_log, directml.element_wise_exp, directml.element_wise_sqrt

_GAMMA_CANDIDATES, _CANDIDATES = 8, 12
"""Candidates of an element: 95 % of gamma candidates are accepted, at least 75 % of others."""


def _first(values: Any, is_accepted: Any, otherwise: Any) -> Any:
    """Return the first accepted candidate {candidates, ...} of each element, or another value if there is none."""
    index = argmax(is_accepted.astype(DataType.FLOAT32), 0, True)
    first = directml.gather_elements(values, index, axis=0).squeeze(0)
    is_any = reduced(is_accepted.astype(DataType.FLOAT32), ReduceFunction.MAX, 0, False) > 0.5
    return _IF(is_any, first, otherwise)


def _check_float(x: Tensor, name: str) -> None:
    if not x.data_type.is_float:
        raise Unsupported(f"{name} takes floats")


# ---- gamma -----------------------------------------------------------------------------------------------------------


def _log_gammas(shape: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return logarithms of gamma variates, by Marsaglia's and Tsang's method (2000); those of shapes below 1 are
    smaller ones of the shape + 1."""
    is_small = shape < 1.0
    d = _IF(is_small, shape + 1.0, shape) - 1 / 3
    normals = drawn(shape.device, generator, "standard_normal", (_GAMMA_CANDIDATES, *shape.sizes))
    root = normals / _SQRT(d * 9.0) + 1.0
    log_cube = _LOG(directml.element_wise_max(root, 1e-30)) * 3.0
    bound = normals * normals * 0.5 + d * (1.0 - root * root * root + log_cube)
    is_accepted = (root > 0.0) & (_LOG(positive_uniform(shape, generator, normals.sizes)) < bound)
    result: Tensor = _first(log_cube, is_accepted, 0.0) + _LOG(d)
    return (result + _LOG(positive_uniform(shape, generator)) / shape)._chosen(is_small, result)


@aten("_standard_gamma")
def standard_gamma(shape: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return gamma variates of scale 1."""
    _check_float(shape, "_standard_gamma")
    return rounded_to(_EXP(_log_gammas(shape.float(), generator)), shape) if shape.size else shape.copy()


@aten("_sample_dirichlet")
def dirichlet(shape: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return Dirichlet variates: shares of gamma variates, whose logarithms do not underflow."""
    _check_float(shape, "_sample_dirichlet")
    if not shape.size:
        return shape.copy()
    logarithms = _log_gammas(shape.float(), generator)
    return rounded_to(directml.activation_softmax1(logarithms, axes=(shape.ndim - 1,)), shape)


# ---- counts ----------------------------------------------------------------------------------------------------------

_SMALL_MEAN = 10.0
"""Means below which the distribution function is inverted."""

_MAX_COUNTS = 32
"""Counts that have a probability of 2 ** -24 for such means."""


def _inverted(uniform: Any, log_probability: Any, log_ratios: Any) -> Any:
    """Return counts whose distribution function exceeds a uniform number.

    Args:
        uniform: Numbers in (0, 1].
        log_probability: Logarithms of the probability of 0.
        log_ratios: Logarithms of the probabilities of 1, 2 ... {counts, ...}, each divided by the one before.
    """
    logarithms = directml.cumulative_summation(log_ratios, axis=0) + log_probability
    probabilities = joined([_EXP(log_probability).expand_dims(0), _EXP(logarithms)], 0)
    rest = directml.cumulative_summation(probabilities, axis=0, axis_direction=AxisDirection.DECREASING)
    is_reached = (rest[1:] >= uniform) & (probabilities[:-1] > 0.0)
    return reduced(is_reached.astype(DataType.FLOAT32), ReduceFunction.SUM, 0, False)


def _counts(x: Tensor) -> Any:
    """Return 1, 2 ... as {counts, 1, ...}."""
    return sequence(_MAX_COUNTS, 1, 1, DataType.FLOAT32, x.device).reshape(_MAX_COUNTS, *(1,) * x.ndim)


def _deviance(count: Any, mean: Any) -> Any:
    """Return count log(count / mean) - count + mean."""
    excess = (count - mean) / mean
    general = mean * ((excess + 1.0) * log1p(excess) - excess)
    return _IF(count < 0.5, mean, general)


def _log_factorial_rest(count: Any) -> Any:
    """Return log(count!) - count log(count) + count, by Stirling's series."""
    inverse = 1.0 / directml.element_wise_max(count, 1.0)
    series = polynomial(inverse * inverse, (1 / 1260, -1 / 360, 1 / 12)) * inverse
    return _IF(count < 0.5, 0.0, series - _LOG(inverse * (1 / (2 * math.pi))) * 0.5)


class _Hat(NamedTuple):
    """A transformed rejection of W. Hörmann (1993): candidates for counts, and the bounds of their probabilities."""

    slope: Any
    width: Any
    center: Any
    squeeze: Any
    log_area: Any

    def first(self, uniforms: Any, log_probability: Callable[[Any], Any], last: Any, mean: Any) -> Any:
        """Return the first candidate from 0 to a last count that is accepted.

        Args:
            uniforms: Uniform numbers {2, candidates, ...}.
            log_probability: Returns logarithms of the probabilities of counts.
            last: Largest count.
            mean: Result if no candidate is accepted.
        """
        position, height = uniforms[0] - 0.5, uniforms[1]
        edge = directml.element_wise_max(0.5 - directml.element_wise_abs(position), 1e-7)
        count = directml.element_wise_floor((self.slope * 2.0 / edge + self.width) * position + self.center)
        is_inside = (edge >= 0.07) & (height <= self.squeeze)
        is_valid = (count >= 0.0) & (count <= last) & ((edge >= 0.013) | (height <= edge))
        safe = directml.element_wise_min(directml.element_wise_max(count, 0.0), last)
        bound = log_probability(safe) - self.log_area + _LOG(self.slope / (edge * edge) + self.width)
        is_accepted = is_inside | (is_valid & (_LOG(height) <= bound))
        return _first(count, is_accepted, directml.element_wise_round(mean))


@aten("poisson")
def poisson(rate: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return Poisson variates."""
    _check_float(rate, "poisson")
    if not rate.size:
        return rate.copy()
    rates, uniforms = rate.float(), _uniforms(rate, rate.sizes, generator)
    inverted = _inverted(uniforms[0, 0], -rates, _LOG(rates / _counts(rates)))
    mean = directml.element_wise_max(rates, _SMALL_MEAN)
    width = _SQRT(mean) * 2.53 + 0.931
    hat = _Hat(
        slope=width * 0.02483 - 0.059,
        width=width,
        center=mean + 0.43,
        squeeze=0.9277 - 3.6224 / (width - 2.0),
        log_area=_LOG(1.1328 / (width - 3.4) + 1.1239),
    )
    large = hat.first(uniforms, lambda count: -_deviance(count, mean) - _log_factorial_rest(count), math.inf, mean)
    return rounded_to(_IF(rates < _SMALL_MEAN, inverted, large), rate)


def _uniforms(x: Tensor, sizes: Sequence[int], generator: torch.Generator | None) -> Tensor:
    return positive_uniform(x, generator, (2, _CANDIDATES, *sizes))


@aten("binomial")
def binomial(count: Tensor, prob: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return numbers of successes of trials."""
    _check_float(count, "binomial")
    sizes = broadcast_sizes("binomial", [("count", count.sizes), ("prob", prob.sizes)])
    if 0 in sizes:
        return count.broadcast_to(sizes).copy()
    numbers, probabilities = (x.float().broadcast_to(sizes) for x in (count, prob))
    uniforms = _uniforms(count, sizes, generator)
    is_flipped = probabilities > 0.5
    success = _IF(is_flipped, 1.0 - probabilities, probabilities)
    failure, expected = 1.0 - success, numbers * success
    terms = _counts(success)
    ratios = directml.element_wise_max(numbers + 1.0 - terms, 0.0) * (success / failure) / terms
    inverted = _inverted(uniforms[0, 0], numbers * log1p(-success), _LOG(ratios))
    mean = directml.element_wise_max(expected, _SMALL_MEAN)
    trials = directml.element_wise_max(numbers, 2 * _SMALL_MEAN)
    missed, deviation = trials * failure, _SQRT(mean * failure)
    width = deviation * 2.53 + 1.15

    def log_probability(successes: Any) -> Any:
        rest = trials - successes
        deviances = _deviance(successes, mean) + _deviance(rest, missed)
        return -deviances - _log_factorial_rest(successes) - _log_factorial_rest(rest)

    mode = directml.element_wise_floor((trials + 1.0) * success)
    hat = _Hat(
        slope=width * 0.0248 + success * 0.01 - 0.0873,
        width=width,
        center=mean + 0.5,
        squeeze=0.92 - 4.2 / width,
        log_area=_LOG((5.1 / width + 2.83) * deviation) + log_probability(mode),
    )
    large = hat.first(uniforms, log_probability, trials, mean)
    result = _IF(expected < _SMALL_MEAN, inverted, large)
    return rounded_to(_IF(is_flipped, numbers - result, result), count)
