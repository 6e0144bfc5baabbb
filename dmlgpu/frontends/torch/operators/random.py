"""Random numbers, for the seed of the device that `torch.manual_seed` sets, or of a CPU generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.torch.dtypes import cast, dtype_of
from dmlgpu.frontends.torch.generators import DRAWING, next_seed, next_state
from dmlgpu.frontends.torch.operators.registry import aten, composes
from dmlgpu.ops import directml
from dmlgpu.ops.random import Generator
from dmlgpu.ops.reductions import ordered, reduced
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.calls import filled, widened
from dmlgpu.tensors.memory import recorder
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tracing import compiled

_sources: dict[Device, _SeededDraws] = {}

_SMALLEST = 2.0**-24
"""Smallest positive result of a uniform draw."""


class _CallSeeds(Generator):
    """Random numbers in a graph: each call takes the next seed of the device, like an eager call."""

    def __init__(self, device: Device):
        super().__init__(0, device=device)
        self._trace = None

    def next_value(self, count: int, device: Device) -> Tensor:
        """Return the state in the format of RANDOM_GENERATOR."""
        self.state = 0, next_seed(device)
        return super().next_value(count, device)


class _SeededDraws(Generator):
    """Random numbers of eager calls, each with the next seed of the device or of a generator.

    Attributes:
        generator: The generator; None for the device's state.
    """

    generator: torch.Generator | None = None

    def next_value(self, count: int, device: Device) -> Tensor:
        """Return the state in the format of RANDOM_GENERATOR."""
        return next_state(device, self.generator)


def drawn(device: Device, generator: torch.Generator | None, distribution: str, *args: Any) -> Tensor:
    """Draw numbers by a method of `dmlgpu.random.Generator`, with the next seed of the device or of a generator."""
    if recorder() is not None:
        numbers: Tensor = getattr(_CallSeeds(device), distribution)(*args)
        return numbers
    with DRAWING:
        source = _sources.setdefault(device, _SeededDraws(0, device=device))
        source.generator = generator
        result: Tensor = getattr(source, distribution)(*args)
    return result


def uniform_of(x: Tensor, generator: torch.Generator | None, sizes: tuple[int, ...] | None = None) -> Tensor:
    """Return float32 numbers in [0, 1)."""
    return drawn(x.device, generator, "random", x.sizes if sizes is None else sizes)


def positive_uniform(x: Tensor, generator: torch.Generator | None, sizes: tuple[int, ...] | None = None) -> Tensor:
    """Return float32 numbers in (0, 1]."""
    return 1.0 - uniform_of(x, generator, sizes)


def _log(x: Tensor) -> Tensor:
    result: Tensor = directml.element_wise_log(x)
    return result


def rounded_to(values: Tensor, x: Tensor) -> Tensor:
    """Return values in the dtype of a tensor."""
    return cast(values, dtype_of(x))


# ---- distributions ---------------------------------------------------------------------------------------------------


@aten("uniform")
def uniform(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: torch.Generator | None = None) -> Tensor:
    """Return numbers uniformly distributed in [low, high)."""
    draws = uniform_of(x, generator)
    if x.data_type is DataType.FLOAT32 and (low, high) == (0, 1):
        return draws
    return _below(high, rounded_to(draws * float(high - low) + float(low), x), low)


def _below(high: float, values: Tensor, low: float) -> Tensor:
    """Return values with the bound `low` in place of those that rounding took to `high`."""
    return filled(values, (1,) * values.ndim, low)._chosen(
        values.astype(DataType.FLOAT32) >= float(np.float32(high)), values
    )


@aten("rand")
def rand(size: Sequence[int], *, dtype: torch.dtype | None = None, device: Device) -> Tensor:
    """Return numbers uniformly distributed in [0, 1)."""
    kind = dtype or torch.get_default_dtype()
    draws = drawn(device, None, "random", tuple(size))
    return draws if kind is torch.float32 else _below(1.0, cast(draws, kind), 0.0)


@aten("randn")
def randn(size: Sequence[int], *, dtype: torch.dtype | None = None, device: Device) -> Tensor:
    """Return numbers of the standard normal distribution."""
    draws = drawn(device, None, "standard_normal", tuple(size))
    return cast(draws, dtype or torch.get_default_dtype())


@aten("normal_functional")
def normal(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: torch.Generator | None = None) -> Tensor:
    """Return numbers of a normal distribution."""
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    draws = drawn(x.device, generator, "standard_normal", x.sizes)
    return rounded_to(draws if (mean, std) == (0, 1) else draws * float(std) + float(mean), x)


@aten("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def normal_of_tensors(mean: Any, std: Any = 1.0, *, generator: torch.Generator | None = None) -> Tensor:
    """Return a number of each normal distribution."""
    if isinstance(std, float | int) and std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    like = mean if isinstance(mean, Tensor) else std
    sizes = torch.broadcast_shapes(*(x.sizes for x in (mean, std) if isinstance(x, Tensor)))
    draws = cast(drawn(like.device, generator, "standard_normal", tuple(sizes)), dtype_of(like))
    return draws * std + mean


@aten("exponential")
def exponential(x: Tensor, lambd: float = 1.0, *, generator: torch.Generator | None = None) -> Tensor:
    """Return numbers of an exponential distribution."""
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return rounded_to(_log(positive_uniform(x, generator)) * (-1.0 / lambd), x)


@aten("log_normal")
def log_normal(x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: torch.Generator | None = None) -> Tensor:
    """Return exponentials of numbers of a normal distribution."""
    draws = drawn(x.device, generator, "standard_normal", x.sizes) * float(std) + float(mean)
    return rounded_to(directml.element_wise_exp(draws), x)


@aten("cauchy")
def cauchy(x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: torch.Generator | None = None) -> Tensor:
    """Return numbers of a Cauchy distribution."""
    draws: Tensor = directml.element_wise_tan((uniform_of(x, generator) - 0.5) * math.pi)
    return rounded_to(draws * float(sigma) + float(median), x)


@aten("geometric")
def geometric(x: Tensor, p: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Return numbers of trials up to the first success."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    trials: Tensor = directml.element_wise_ceil(_log(positive_uniform(x, generator)) * (1 / math.log1p(-p)))
    return rounded_to(directml.element_wise_max(trials, 1.0), x)


# ---- integers, booleans ----------------------------------------------------------------------------------------------

_WHOLE = {torch.float32: 2**24, torch.float16: 2**11, torch.bfloat16: 2**8, torch.bool: 1}
"""Largest integer up to which a floating-point dtype represents all integers."""


@aten("random.from")
def random_from(x: Tensor, low: int, high: int | None, *, generator: torch.Generator | None = None) -> Tensor:
    """Return integers in [low, high)."""
    end = _largest(x) + 1 if high is None else high
    if low >= end:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={end}")
    return rounded_to(drawn(x.device, generator, "integers", low, end, x.sizes), x)


@aten("random.to")
def random_to(x: Tensor, high: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Return integers in [0, high)."""
    return random_from(x, 0, high, generator=generator)


@aten("random")
def random(x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Return integers in the range of the dtype, but not negative ones."""
    return random_from(x, 0, None, generator=generator)


def _largest(x: Tensor) -> int:
    dtype = dtype_of(x)
    if dtype in _WHOLE:
        return _WHOLE[dtype]
    return min(torch.iinfo(dtype).max, 2**63 - 2)


@aten("bernoulli.p")
def bernoulli_p(x: Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> Tensor:
    """Return 1 with a probability, else 0."""
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return rounded_to(uniform_of(x, generator) < float(p), x)


@aten("bernoulli")
def bernoulli(x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Return 1 with the probability that each element is, else 0."""
    return rounded_to(uniform_of(x, generator) < x.astype(DataType.FLOAT32), x)


@aten("bernoulli.Tensor")
def bernoulli_of_tensor(x: Tensor, p: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Return 1 with the probabilities of another tensor, else 0."""
    return rounded_to(uniform_of(x, generator) < p.astype(DataType.FLOAT32), x)


@aten("native_dropout")
def native_dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Zero elements at random and scale the others up; return also a mask of those."""
    if train is False or not p:
        return x, filled(x, (1,) * x.ndim, 1).broadcast_to(x.sizes) != 0
    if p == 1:
        return x * 0.0, filled(x, (1,) * x.ndim, 0).broadcast_to(x.sizes) != 0
    scale = 1 / (1 - p)
    if x.graph is not None:
        return _dropped(x, uniform_of(x, None), float(p), scale)
    # in memory, since a number is a constant of the compiled function
    return _dropped(x, uniform_of(x, None), *(filled(x, (), number, DataType.FLOAT32) for number in (p, scale)))


@compiled.compile
def _dropped(x: Tensor, draws: Tensor, p: Any, scale: Any) -> tuple[Tensor, Tensor]:
    """Return elements scaled where draws are at least `p`, else 0, and the mask of those."""
    mask = draws >= p
    return (widened(x) * scale)._chosen(mask, 0.0).astype(x.data_type), mask


@aten("native_dropout_backward", wide=True)
def native_dropout_backward(gradient: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Return the gradient of the input of `native_dropout`."""
    return gradient * mask.astype(gradient.data_type) * float(scale)


@composes("rrelu_with_noise")
def rrelu_with_noise(
    x: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Multiply negative elements by random slopes, which `noise` keeps for the gradient, or by their mean."""
    if not training:
        return torch.nn.functional.leaky_relu(x, (lower + upper) / 2)
    slopes = torch.empty_like(x).uniform_(lower, upper, generator=generator)
    noise.copy_(torch.where(x <= 0, slopes, 1.0))
    return x * noise


# ---- orders and choices ----------------------------------------------------------------------------------------------


@aten("randperm", "randperm.generator")
def randperm(
    n: int, *, generator: torch.Generator | None = None, dtype: torch.dtype | None = None, device: Device
) -> Tensor:
    """Return 0 to n - 1 in random order."""
    return cast(drawn(device, generator, "permutation", n), dtype or torch.int64)


@aten("multinomial")
def multinomial(
    x: Tensor, num_samples: int, replacement: bool = False, *, generator: torch.Generator | None = None
) -> Tensor:
    """Return indices drawn with the probabilities of each row."""
    rows = x.astype(DataType.FLOAT32)
    rows = rows if rows.ndim == 2 else rows.expand_dims(0)
    if replacement and num_samples > 1:
        sums: Tensor = directml.cumulative_summation(rows, axis=1)
        total = sums[:, -1:]
        draws = uniform_of(x, generator, (rows.sizes[0], num_samples)) * total
        passed = sums.expand_dims(1) <= draws.expand_dims(2)
        result = reduced(passed.astype(DataType.INT64), ReduceFunction.SUM, 2, False)
        last = reduced((sums < total).astype(DataType.INT64), ReduceFunction.SUM, 1, True)
        result = directml.element_wise_min(result, last)
    else:
        waits = -_log(positive_uniform(rows, generator)) + _SMALLEST
        result = ordered(rows / waits, num_samples, 1, True).indices.astype(DataType.INT64)
    return result if x.ndim == 2 else result.squeeze(0)
