"""Operators that fill a tensor: constants, sequences, diagonals, random numbers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import as_elements
from dmlgpu.reference.elementwise import as_bits, convert
from dmlgpu.reference.registry import Array, reference


@reference(descs.FillValueConstant)
def fill_value_constant(desc: descs.FillValueConstant) -> Array:
    """The same value in every element."""
    return np.full(desc.output_tensor.sizes, as_elements(desc.output_tensor.data_type, desc.value))


@reference(descs.FillValueSequence)
def fill_value_sequence(desc: descs.FillValueSequence) -> Array:
    """``start + delta * place`` in row-major order; floats in float64, rounded once; integers wrap."""
    dtype, sizes = desc.output_tensor.data_type.numpy, desc.output_tensor.sizes
    count = math.prod(sizes)
    if dtype.kind == "f":
        start, delta = (float(dtype.type(number)) for number in (desc.value_start, desc.value_delta))
        return (start + delta * np.arange(count, dtype=np.float64)).astype(dtype).reshape(sizes)
    start_bits, delta_bits = (np.uint64(int(number) % (1 << 64)) for number in (desc.value_start, desc.value_delta))
    return (start_bits + delta_bits * np.arange(count, dtype=np.uint64)).astype(dtype).reshape(sizes)


def _distances(sizes: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the offset of each matrix element from the main diagonal: x - y."""
    return np.arange(sizes[-1])[None, :] - np.arange(sizes[-2])[:, None]


@reference(descs.DiagonalMatrix1)
def diagonal_matrix1(desc: descs.DiagonalMatrix1, input_tensor: Array | None) -> Array:
    """A value in a band of diagonals, or outside it if the band ends before it begins; else the input, or zero."""
    sizes, dtype = desc.output_tensor.sizes, desc.output_tensor.data_type.numpy
    begin, end = desc.diagonal_fill_begin, desc.diagonal_fill_end
    distance = _distances(sizes)
    filled = (end >= begin) ^ (distance >= begin) ^ (distance < end)
    matrices = np.zeros(sizes, dtype) if input_tensor is None else input_tensor
    value = np.full((), desc.value, dtype)
    return np.where(filled, as_bits(value), as_bits(matrices)).view(dtype)


@reference(descs.DiagonalMatrix)
def diagonal_matrix(desc: descs.DiagonalMatrix) -> Array:
    """A value if ``y + offset == x``, else zero; the value, a float32, is converted as by CAST."""
    sizes, dtype = desc.output_tensor.sizes, desc.output_tensor.data_type.numpy
    value = convert(np.full((), desc.value, np.float32), dtype)
    on_diagonal = _distances(sizes) == desc.offset
    return np.where(np.broadcast_to(on_diagonal, sizes), value, dtype.type(0))


_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def _blocks(counters: list[Array], key: list[int]) -> list[Array]:
    """Compute Philox 4x32-10 of many counters: four arrays of 32-bit words in uint64."""
    a, b, c, d = counters
    for turn in range(10):
        first, second = ((word + turn * step) & _WORD for word, step in zip(key, _KEY_STEPS, strict=True))
        p, q = (np.uint64(factor) * word for factor, word in zip(_MULTIPLIERS, (a, c), strict=True))
        a, b, c, d = (
            (q >> np.uint64(32)) ^ b ^ np.uint64(first),
            q & np.uint64(_WORD),
            (p >> np.uint64(32)) ^ d ^ np.uint64(second),
            p & np.uint64(_WORD),
        )
    return [a, b, c, d]


def _counters(start: int, count: int) -> list[Array]:
    """Return the words, lowest first, of ``count`` consecutive 128-bit integers from ``start``."""
    low = np.uint64(start % (1 << 64)) + np.arange(count, dtype=np.uint64)
    high = np.uint64(start >> 64) + (low < np.uint64(start % (1 << 64))).astype(np.uint64)
    return [half >> np.uint64(shift) & np.uint64(_WORD) for half in (low, high) for shift in (0, 32)]


@reference(descs.RandomGenerator)
def random_generator(desc: descs.RandomGenerator, input_state_tensor: Array) -> tuple[Array, Array]:
    """Block i is the Philox 4x32-10 of ``counter + i``; the counter of the next state is that after the last block."""
    words = [int(word) for word in input_state_tensor.ravel()]
    sizes = desc.output_tensor.sizes
    count = math.prod(sizes)
    blocks = -(-count // 4)
    start = sum(word << 32 * index for index, word in enumerate(words[:4]))
    output = np.stack(_blocks(_counters(start, blocks), words[4:]), axis=1).astype(np.uint32)
    end = (start + blocks) % (1 << 128)
    state = [*((end >> 32 * index) & _WORD for index in range(4)), *words[4:]]
    return output.ravel()[:count].reshape(sizes), np.array(state, np.uint32).reshape(input_state_tensor.shape)
