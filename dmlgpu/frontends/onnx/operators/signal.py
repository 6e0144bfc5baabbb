"""Spectra as products with matrices of sines and cosines: DFT, STFT; MelWeightMatrix."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import MAX_ELEMENTS
from dmlgpu.frontends.onnx.elements import DATA_TYPES
from dmlgpu.frontends.onnx.expressions import add, cast, multiply, reshaped, sequence, transposed
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

Array = NDArray[Any]

_MOST_LENGTH = 4096
"""Longest transform: its matrix has the square of that many elements."""


@lru_cache(maxsize=16)
def _transform(length: int, known: int, bins: int, parts: int, *, inverse: bool) -> Array:
    """Return the matrix {known * parts, bins * 2} that transforms real or complex signals.

    One object for equal arguments, so that a session uploads it once.

    Args:
        length: Of the transform.
        known: Number of elements of the signal; others are 0.
        bins: Number of frequencies.
        parts: 1 for real signals, 2 for complex ones, real and imaginary parts in turn.
        inverse: Whether to transform frequencies into a signal.
    """
    turns = np.outer(np.arange(known), np.arange(bins)) % length
    angles = turns * (2 * math.pi / length)
    cosines, sines = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    real = np.stack([cosines, sines], axis=-1)
    matrix = real[:, None] if parts == 1 else np.stack([real, np.stack([-sines, cosines], axis=-1)], axis=1)
    return (matrix.reshape(known * parts, bins * 2) / (length if inverse else 1)).astype(np.float32)


@lru_cache(maxsize=16)
def _inverse_of_half(length: int, known: int) -> Array:
    """Return the matrix {known * 2, length} that transforms half of a spectrum into a real signal."""
    whole = _transform(length, known, length, 2, inverse=True).reshape(known, 2, length, 2)[..., 0]
    twice = np.array([1 if frequency == 0 or 2 * frequency == length else 2 for frequency in range(known)])
    return (whole * twice[:, None, None]).reshape(known * 2, length).astype(np.float32)


def _multiplied(node: OnnxNode, rows: Tensor, matrix: Array) -> Tensor:
    """Return rows {n, a} times a matrix {a, b}."""
    factor = node.expression(OnnxValue.of_array(matrix, is_weight=True))
    return cast(directml.gemm(cast(rows, DataType.FLOAT32), factor), rows.data_type)


def _check_length(node: OnnxNode, length: int) -> None:
    if not 1 <= length <= _MOST_LENGTH:
        raise node.refusal(f"the length of a transform must be between 1 and {_MOST_LENGTH}, got {length}")


@operator("DFT", since=17, host=(1, 2))
def discrete_fourier_transform(node: OnnxNode) -> OnnxValue:
    """Transform an axis of real or complex numbers, whose parts are the last dimension."""
    shape, inverse, half = node.shape(0), node.flag("inverse"), node.flag("onesided")
    axis = node.integer("axis", 1 if node.version < 20 else -2)
    axis = node.axis(node.host_integer(2) if node.has(2) else axis, len(shape))
    parts = shape[-1]
    if axis == len(shape) - 1 or parts not in (1, 2):
        raise node.refusal(f"the last dimension must hold 1 or 2 parts of a number, got {list(shape)} and axis {axis}")
    size = shape[axis]
    usual = 2 * (size - 1) if inverse and half else size
    length = node.host_integer(1) if node.has(1) else usual
    _check_length(node, length)
    x = node.tensor(0)
    if inverse and half:
        if parts == 1:
            x = dml.join([x, multiply(x, 0)], len(shape) - 1)
        known, bins, behind = min(size, length // 2 + 1), length, 1
        matrix = _inverse_of_half(length, known)
        parts = 2
    else:
        known, bins, behind = min(size, length), length // 2 + 1 if half else length, 2
        matrix = _transform(length, known, bins, parts, inverse=inverse)
    order = (*(other for other in range(len(shape) - 1) if other != axis), axis, len(shape) - 1)
    extent = [known if dimension == axis else number for dimension, number in enumerate(x.sizes)]
    x = x if known == size else dml.slice(x, (0,) * len(shape), extent)
    rest = [shape[dimension] for dimension in order[:-2]]
    result = _multiplied(node, reshaped(transposed(x, order), (math.prod(rest), known * parts)), matrix)
    result = reshaped(result, (*rest, bins, behind))
    back = [order.index(dimension) for dimension in range(len(shape))]
    return node.valued(transposed(result, back))


@operator("STFT", since=17, host=(1, 3))
def short_time_fourier_transform(node: OnnxNode) -> OnnxValue:
    """Transform windows of signals {batch, length, parts}."""
    shape, step = node.shape(0), node.host_integer(1)
    shape = shape if len(shape) == 3 else (*shape, 1)
    if len(shape) != 3 or shape[2] not in (1, 2) or step < 1:
        raise node.refusal(f"signals must be {{batch, length, 1 or 2}}, the step at least 1, got {list(shape)}, {step}")
    batch, size, parts = shape
    length = node.host_integer(3) if node.has(3) else node.shape(2)[0] if node.has(2) else size
    _check_length(node, length)
    if length > size:
        raise node.refusal(f"windows must be at most as long as the signal of {size}, got {length}")
    frames = 1 + (size - length) // step
    half = node.flag("onesided", True)
    bins = length // 2 + 1 if half else length
    x = reshaped(node.tensor(0), shape)
    where = add(
        sequence(x, (frames, 1), DataType.INT32, 0, step), sequence(x, (1, length), DataType.INT32)
    )  # {frames, length}
    columns = transposed(x, (1, 0, 2))
    cut = directml.gather(
        reshaped(columns, (1, size, batch * parts)),
        reshaped(where, (1, 1, frames * length)),
        axis=1,
        index_dimensions=1,
    )
    cut = transposed(reshaped(cut, (frames, length, batch, parts)), (2, 0, 1, 3))
    if node.has(2):
        cut = multiply(cut, reshaped(node.tensor(2), (1, 1, length, 1)))
    rows = reshaped(cut, (batch * frames, length * parts))
    spectra = _multiplied(node, rows, _transform(length, length, bins, parts, inverse=False))
    return node.valued(spectra, (batch, frames, bins, 2))


@operator("MelWeightMatrix", since=17, host=range(5))
def mel_weight_matrix(node: OnnxNode) -> OnnxValue:
    """Return triangular weights that sum frequencies into mel bands, computed on the host."""
    bands, length, rate = (node.host_integer(number) for number in range(3))
    low, high = (node.host_number(number) for number in (3, 4))
    if bands < 0 or length < 1 or rate < 1 or bands * length > MAX_ELEMENTS // 64:
        raise node.refusal(
            f"length and rate must be positive, bands at least 0, and not too many, got {bands}, {length}, {rate}"
        )
    with np.errstate(all="ignore"):
        mels = 2595 * np.log10(1 + np.array([low, high]) / 700)
    edges = mels[0] + np.arange(bands + 2) * ((mels[1] - mels[0]) / (bands + 2))
    with np.errstate(all="ignore"):
        edges = (length + 1) * (700 * (10 ** (edges / 2595) - 1)) // rate
    weights = np.zeros((length // 2 + 1, bands))
    if not (edges.min() >= 0 and edges.max() <= len(weights)):
        raise node.refusal(f"edges must be between 0 and half the rate, got {low} and {high} of {rate}")
    edges = edges.astype(np.int64)
    for band, (begin, middle, end) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        if begin == middle:
            weights[middle, band] = 1
        else:
            weights[begin : middle + 1, band] = np.arange(middle - begin + 1) / (middle - begin)
        if middle < end:
            weights[middle:end, band] = np.arange(end - middle, 0, -1) / (end - middle)
    data_type = DATA_TYPES.get(node.integer("output_datatype", 1))
    if data_type is None:
        raise node.refusal(f"elements of type {node.integer('output_datatype')} are not supported")
    if not bands:
        return node.known(weights.astype(data_type.numpy))
    return node.valued(cast(node.constant(weights.astype(np.float32), DataType.FLOAT32), data_type))
