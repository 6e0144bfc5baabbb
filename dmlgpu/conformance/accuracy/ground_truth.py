"""Results of operators in float64, and the magnitudes relative to which their errors are measured.

Each function takes the inputs of its operator in float64 with the attributes of ``workloads.py``, and returns the true
result and the sum of the absolute values of its terms. If a result is not a sum, the latter is the magnitude of
intermediate results that are rounded, times the amplification by the last function.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from dmlgpu.conformance.accuracy.functions import Doubles

Truth: TypeAlias = tuple[Doubles, Doubles]


def product(a: Doubles, b: Doubles) -> Truth:
    """Return a matrix product."""
    return a @ b, np.abs(a) @ np.abs(b)


# ---- convolutions with windows of 3 x 3 and a border of one


def convolution(images: Doubles, filters: Doubles) -> Truth:
    """Return a convolution; one input channel per filter where filters have one."""
    return _windows(images, filters), _windows(np.abs(images), np.abs(filters))


def transposed(images: Doubles, filters: Doubles) -> Truth:
    """Return a transposed convolution: the windows of one with turned filters, whose inputs and outputs are
    exchanged."""
    return convolution(images, filters.swapaxes(0, 1)[..., ::-1, ::-1])


def _windows(images: Doubles, filters: Doubles) -> Doubles:
    _, _, height, width = images.shape
    bordered = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    across = "nchw,oc->nohw" if filters.shape[1] == images.shape[1] else "nchw,cd->nchw"
    return np.asarray(
        sum(
            np.einsum(across, bordered[..., i : i + height, j : j + width], filters[..., i, j])
            for i in range(3)
            for j in range(3)
        )
    )


# ---- normalizations


def mean_variance(x: Doubles) -> Truth:
    """Return rows with mean 0 and variance 1, epsilon being 1e-5."""
    centered = x - x.mean(-1, keepdims=True)
    normalized = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + _EPSILON)
    return normalized, 1 + np.abs(normalized)


def batch(x: Doubles, mean: Doubles, variance: Doubles, scale: Doubles, bias: Doubles) -> Truth:
    """Return normalization by given statistics, epsilon being 1e-5."""
    factor = scale / np.sqrt(variance + _EPSILON)
    return (x - mean) * factor + bias, (np.abs(x) + np.abs(mean)) * np.abs(factor) + np.abs(bias)


_EPSILON = float(np.float32(1e-5))


def local_response(x: Doubles) -> Truth:
    """x / (1 + 0.5 * mean of the squares of 5 channels) ^ 0.75; channels outside count as zeros."""
    squares = np.pad(x**2, ((0, 0), (2, 2), (0, 0), (0, 0)))
    means = sum(squares[:, i : i + x.shape[1]] for i in range(5)) / 5
    normalized = x / (1 + 0.5 * means) ** 0.75
    return normalized, np.abs(normalized)


def lp(x: Doubles) -> Truth:
    """Return rows with a sum of squares of 1."""
    normalized = x / np.sqrt((x**2).sum(-1, keepdims=True))
    return normalized, np.abs(normalized)


# ---- softmax, attention


def softmax(x: Doubles) -> Truth:
    """Return softmax of rows; the exponential makes of a rounded exponent an error in proportion to it."""
    exponents = x - x.max(-1, keepdims=True)
    weights = np.exp(exponents)
    shares = weights / weights.sum(-1, keepdims=True)
    return shares, shares * (1 - exponents)


def log_softmax(x: Doubles) -> Truth:
    """Return the logarithm of softmax."""
    exponents = x - x.max(-1, keepdims=True)
    mass = np.log(np.exp(exponents).sum(-1, keepdims=True))
    return exponents - mass, mass - exponents


def attention(query: Doubles, key: Doubles, value: Doubles) -> Truth:
    """Return softmax of (query key^T / 8), times value, of two heads."""
    queries, keys, values = (np.stack(np.split(x[0], 2, axis=-1)) for x in (query, key, value))
    scores = queries @ keys.swapaxes(1, 2) / 8
    sizes = np.abs(queries) @ np.abs(keys).swapaxes(1, 2) / 8
    weights, _ = softmax(scores)
    summed, terms = weights @ values, (weights * (1 + sizes)) @ np.abs(values)
    return np.concatenate(list(summed), axis=-1)[None], np.concatenate(list(terms), axis=-1)[None]


# ---- reductions of rows


def total(x: Doubles) -> Truth:
    """Return the sum."""
    return x.sum(-1, keepdims=True), np.abs(x).sum(-1, keepdims=True)


def average(x: Doubles) -> Truth:
    """Return the mean."""
    return x.mean(-1, keepdims=True), np.abs(x).mean(-1, keepdims=True)


def sum_square(x: Doubles) -> Truth:
    """Return the sum of squares."""
    return total(x**2)


def l2(x: Doubles) -> Truth:
    """Return the square root of the sum of squares."""
    norm = np.sqrt((x**2).sum(-1, keepdims=True))
    return norm, norm


def log_sum_exp(x: Doubles) -> Truth:
    """Return the logarithm of the sum of exponentials."""
    top = x.max(-1, keepdims=True)
    mass = np.log(np.exp(x - top).sum(-1, keepdims=True))
    return top + mass, np.abs(top) + mass


def multiply(x: Doubles) -> Truth:
    """Return the product."""
    product = x.prod(-1, keepdims=True)
    return product, np.abs(product)


def running_sum(x: Doubles) -> Truth:
    """Return the sums of all elements up to each."""
    return x.cumsum(-1), np.abs(x).cumsum(-1)


def average_pooling(x: Doubles) -> Truth:
    """Return the means of windows of 7 x 7."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (7, 7), axis=(2, 3))
    return windows.mean((-1, -2)), np.abs(windows).mean((-1, -2))
