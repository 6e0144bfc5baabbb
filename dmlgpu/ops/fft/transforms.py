"""Discrete Fourier transforms of rows, computed by GEMM. ``dmlgpu.ops.fft`` and ONNX's DFT and STFT are these.

Signals and spectra are {rows, length, parts}: one part of real numbers, or the real and the imaginary part. A transform
of up to 256 elements is a product with a matrix of sines and cosines. A longer one of a * b elements is transforms of a
elements, a rotation of each result, and transforms of b elements (Cooley and Tukey). Lengths without such a divisor are
convolutions, computed by longer transforms (Bluestein).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.compiler.sizes.arithmetic import value_of
from dmlgpu.ops.shape import joined
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.tensor import Tensor, matmul

Array = NDArray[Any]

Constant: TypeAlias = Callable[[Array], Tensor]
"""Returns a float32 array of the host as a tensor."""

MAX_LENGTH = 2**22
"""Longest transform: its rotations are computed on the host."""

_DENSE = 256
"""Longest transform by one matrix, which has four times the square of that many elements."""


@lru_cache(maxsize=16)
def _matrix(length: int, known: int, bins: int, parts: int, inverse: bool, scale: float) -> Array:
    """Return the matrix {known * parts, bins * 2} that transforms rows; one object for equal arguments.

    Args:
        length: Of the transform, at most ``_DENSE``.
        known: Number of elements of a row; others are 0.
        bins: Number of results.
        parts: 1 for real rows, 2 for complex ones, real and imaginary parts in turn.
        inverse: Whether to transform a spectrum into a signal.
        scale: Factor of the results.
    """
    turns = np.outer(np.arange(known), np.arange(bins)) % length
    angles = turns * (2 * math.pi / length)
    cosines, sines = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    real = np.stack([cosines, sines], axis=-1)
    matrix = real[:, None] if parts == 1 else np.stack([real, np.stack([-sines, cosines], axis=-1)], axis=1)
    return (matrix.reshape(known * parts, bins * 2) * scale).astype(np.float32)


@lru_cache(maxsize=16)
def _real_matrix(length: int, known: int, scale: float) -> Array:
    """Return the matrix {known * 2, length} that transforms half of a spectrum into a real signal."""
    matrix = _matrix(length, known, length, 2, True, scale).reshape(known, 2, length, 2)[..., 0]
    twice = np.array([1 if frequency == 0 or 2 * frequency == length else 2 for frequency in range(known)])
    return (matrix * twice[:, None, None]).reshape(known * 2, length).astype(np.float32)


def _times(x: Tensor, factors: NDArray[np.complex128], constant: Constant) -> Tensor:
    """Return the products of {rows, ..., parts} with complex numbers {...}, as {rows, ..., 2}."""
    sizes = (*x.sizes[:-1], 2)

    def scaled(part: Tensor, real: Array, imaginary: Array) -> Tensor:
        pairs = constant(np.stack([real, imaginary], axis=-1).astype(np.float32))
        return part.broadcast_to(sizes) * pairs.broadcast_to(sizes)

    if x.sizes[-1] == 1:
        return scaled(x, factors.real, factors.imag)
    return scaled(x[..., :1], factors.real, factors.imag) + scaled(x[..., 1:], -factors.imag, factors.real)


def _roots(turns: Array, length: int, inverse: bool) -> NDArray[np.complex128]:
    """Return the roots of unity for these numbers of turns by 1/length."""
    return np.exp((2j if inverse else -2j) * math.pi / length * (turns % length))


def spectrum(
    x: Tensor, length: int, bins: int, *, constant: Constant, inverse: bool = False, scale: float = 1.0
) -> Tensor:
    """Return the first results {rows, bins, 2} of the transforms of rows.

    Args:
        x: Rows {rows, known, parts} of float32, at least one, with at most ``length`` elements; others are 0.
        length: Of the transform.
        bins: Number of results, at most ``length``.
        constant: Returns arrays as tensors.
        inverse: Whether to transform spectra into signals, without the division by the length.
        scale: Factor of the results.
    """
    rows, known, parts = x.sizes
    known, length, bins, scale = map(value_of, (known, length, bins, scale))  # the host computes the rotations
    if length <= _DENSE:
        matrix = constant(_matrix(length, known, bins, parts, inverse, scale))
        return matmul(x.reshape(rows, known * parts), matrix).reshape(rows, bins, 2)
    first = max(divisor for divisor in range(1, min(_DENSE, math.isqrt(length)) + 1) if length % divisor == 0)
    if first == 1:
        return _by_convolution(x, length, bins, constant, inverse, scale)
    second = length // first
    x = _extended(x, length).reshape(rows, first, second, parts).transpose(0, 2, 1, 3)
    x = spectrum(x.reshape(rows * second, first, parts), first, first, constant=constant, inverse=inverse, scale=scale)
    x = x.reshape(rows, second, first, 2)
    x = _times(x, _roots(np.outer(np.arange(second), np.arange(first)), length, inverse), constant)
    x = x.transpose(0, 2, 1, 3).reshape(rows * first, second, 2)
    x = spectrum(x, second, second, constant=constant, inverse=inverse)
    x = x.reshape(rows, first, second, 2).transpose(0, 2, 1, 3).reshape(rows, length, 2)
    return x if bins == length else x[:, :bins]


def _extended(x: Tensor, length: int) -> Tensor:
    """Return rows continued by zeros."""
    rows, known, parts = x.sizes
    return x if known == length else joined([x, filled(x, (rows, length - known, parts))], 1)


def _by_convolution(x: Tensor, length: int, bins: int, constant: Constant, inverse: bool, scale: float) -> Tensor:
    """Return transforms as the convolution of rotated rows with rotations: j * k is (j² + k² - (k - j)²) / 2."""
    known = value_of(x.sizes[1])
    numbers = np.arange(length)
    rotations = _roots(numbers * numbers, 2 * length, inverse)
    size = 2 ** math.ceil(math.log2(2 * length - 1))
    kernel = np.zeros(size, np.complex128)
    kernel[:length] = rotations.conj()
    kernel[size - length + 1 :] = rotations[:0:-1].conj()
    x = spectrum(_times(x, rotations[:known], constant), size, size, constant=constant)
    x = _times(x, np.fft.fft(kernel) * (scale / size), constant)
    return _times(spectrum(x, size, bins, constant=constant, inverse=True), rotations[:bins], constant)


def real_signal(x: Tensor, length: int, *, constant: Constant, scale: float = 1.0) -> Tensor:
    """Return the real signals {rows, length, 1} of one-sided spectra.

    Args:
        x: Spectra {rows, known, 2} of float32, at least one, with at most length // 2 + 1 elements; others are 0.
        length: Of the signals.
        constant: Returns arrays as tensors.
        scale: Factor of the results.
    """
    rows, known, length, scale = x.sizes[0], value_of(x.sizes[1]), value_of(length), value_of(scale)
    if length <= _DENSE:
        matrix = constant(_real_matrix(length, known, scale))
        return matmul(x.reshape(rows, known * 2), matrix).reshape(rows, length, 1)
    x = _extended(x, length // 2 + 1)
    mirrored = x[:, 1 : length - length // 2].flip(1)
    conjugated = mirrored * constant(np.array([1, -1], np.float32)).broadcast_to(mirrored.sizes)
    return spectrum(joined([x, conjugated], 1), length, length, constant=constant, inverse=True, scale=scale)[..., :1]
