"""Spectra by the transforms of ``dmlgpu.ops.fft``: DFT, STFT; MelWeightMatrix."""

from __future__ import annotations

import math

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import MAX_ELEMENTS
from dmlgpu.frontends.onnx.expressions import cast, multiply, reshaped, transposed
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.tensor_proto import DATA_TYPES
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.ops.fft.short_time import windowed_spectra
from dmlgpu.ops.fft.transforms import MAX_LENGTH, Constant, real_signal, spectrum
from dmlgpu.tensors import directmlx as dml


def _constant(node: OnnxNode) -> Constant:
    """Return a function that makes arrays weights, which a session uploads once per object."""
    return lambda array: node.expression(OnnxValue.of_array(array, is_weight=True))


@operator("DFT", since=17, host=(1, 2))
def discrete_fourier_transform(node: OnnxNode) -> OnnxValue:
    """Transform an axis of real or complex numbers, whose parts are the last dimension."""
    shape, inverse, half = node.shape(0), node.flag("inverse"), node.flag("onesided")
    axis = node.integer("axis", 1 if node.version < 20 else -2)
    axis = node.axis(node.host_integer(2) if node.has(2) else axis, len(shape))
    parts = shape[-1]
    if axis == len(shape) - 1 or parts not in (1, 2):
        raise node.rejection(
            f"the last dimension must hold 1 or 2 parts of a number, got {list(shape)} and axis {axis}"
        )
    size = shape[axis]
    usual = 2 * (size - 1) if inverse and half else size
    length = node.host_integer(1) if node.has(1) else usual
    if not 1 <= length <= MAX_LENGTH:
        raise node.rejection(f"the length of a transform must be between 1 and {MAX_LENGTH}, got {length}")
    x = node.tensor(0)
    if inverse and half and parts == 1:
        x = dml.join([x, multiply(x, 0)], len(shape) - 1)
    count = min(size, length // 2 + 1 if inverse and half else length)
    extent = [count if dimension == axis else full for dimension, full in enumerate(x.sizes)]
    x = x if count == size else dml.slice(x, (0,) * len(shape), extent)
    order = (*(other for other in range(len(shape) - 1) if other != axis), axis, len(shape) - 1)
    rest = [shape[dimension] for dimension in order[:-2]]
    rows = cast(reshaped(transposed(x, order), (math.prod(rest), count, x.sizes[-1])), DataType.FLOAT32)
    scale = 1 / length if inverse else 1.0
    if inverse and half:
        result = real_signal(rows, length, constant=_constant(node), scale=scale)
    else:
        bins = length // 2 + 1 if half else length
        result = spectrum(rows, length, bins, constant=_constant(node), inverse=inverse, scale=scale)
    result = reshaped(cast(result, x.data_type), (*rest, *result.sizes[1:]))
    back = [order.index(dimension) for dimension in range(len(shape))]
    return node.valued(transposed(result, back))


@operator("STFT", since=17, host=(1, 3))
def short_time_fourier_transform(node: OnnxNode) -> OnnxValue:
    """Transform windows of signals {batch, length, parts}."""
    shape, step = node.shape(0), node.host_integer(1)
    shape = shape if len(shape) == 3 else (*shape, 1)
    if len(shape) != 3 or shape[2] not in (1, 2) or step < 1:
        raise node.rejection(
            f"signals must be {{batch, length, 1 or 2}}, the step at least 1, got {list(shape)}, {step}"
        )
    size = shape[1]
    length = node.host_integer(3) if node.has(3) else node.shape(2)[0] if node.has(2) else size
    if not 1 <= length <= min(size, MAX_LENGTH):
        raise node.rejection(f"windows must have 1 to {min(size, MAX_LENGTH)} elements, got {length}")
    half = node.flag("onesided", True)
    x = reshaped(node.tensor(0), shape)
    window = cast(node.tensor(2), DataType.FLOAT32) if node.has(2) else None
    bins = length // 2 + 1 if half else length
    spectra = windowed_spectra(cast(x, DataType.FLOAT32), length, step, bins, window, constant=_constant(node))
    return node.valued(cast(spectra, x.data_type))


@operator("MelWeightMatrix", since=17, host=range(5))
def mel_weight_matrix(node: OnnxNode) -> OnnxValue:
    """Return triangular weights that sum frequencies into mel bands, computed on the host."""
    bands, length, rate = (node.host_integer(index) for index in range(3))
    low, high = (node.host_number(index) for index in (3, 4))
    if bands < 0 or length < 1 or rate < 1 or bands * length > MAX_ELEMENTS // 64:
        raise node.rejection(
            f"length and rate must be positive, bands at least 0, and not too many, got {bands}, {length}, {rate}"
        )
    with np.errstate(all="ignore"):
        mels = 2595 * np.log10(1 + np.array([low, high]) / 700)
    edges = mels[0] + np.arange(bands + 2) * ((mels[1] - mels[0]) / (bands + 2))
    with np.errstate(all="ignore"):
        edges = (length + 1) * (700 * (10 ** (edges / 2595) - 1)) // rate
    weights = np.zeros((length // 2 + 1, bands))
    if not (edges.min() >= 0 and edges.max() <= len(weights)):
        raise node.rejection(f"edges must be between 0 and half the rate, got {low} and {high} of {rate}")
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
        raise node.rejection(f"elements of type {node.integer('output_datatype')} are not supported")
    if not bands:
        return node.known(weights.astype(data_type.numpy))
    return node.valued(cast(node.constant(weights.astype(np.float32), DataType.FLOAT32), data_type))
