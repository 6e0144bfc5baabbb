"""Workloads in plain NumPy, as a user would write them: the baseline of a device."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from dmlgpu.bench.counting import count
from dmlgpu.bench.prepared import Init, Readiness, ResultCheck, Sample, set_count
from dmlgpu.bench.workload import Array, Workload
from dmlgpu.catalog import descs
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import NotSupported

Formula: TypeAlias = Callable[[Any, tuple[Any, ...]], Any]
"""Computes an operator from its description and its inputs."""


def _softmax(desc: descs.ActivationSoftmax1, inputs: tuple[Array, ...]) -> Array:
    (x,) = inputs
    y = x - x.max(desc.axes, keepdims=True)
    np.exp(y, out=y)
    y /= y.sum(desc.axes, keepdims=True)
    return y


def _log_softmax(desc: descs.ActivationLogSoftmax1, inputs: tuple[Array, ...]) -> Array:
    (x,) = inputs
    y = x - x.max(desc.axes, keepdims=True)
    y -= np.log(np.exp(y).sum(desc.axes, keepdims=True))
    return y


def _hardmax(desc: descs.ActivationHardmax1, inputs: tuple[Array, ...]) -> Array:
    (x,), (axis,) = inputs, desc.axes
    y = np.zeros_like(x)
    np.put_along_axis(y, x.argmax(axis, keepdims=True), 1, axis)
    return y


def _convolution(desc: descs.Convolution, inputs: tuple[Array, ...]) -> Array:
    """Compute depthwise convolutions as sums of shifted images, others as products of windows, an image at a time."""
    x, taps = inputs
    edges = zip(desc.start_padding, desc.end_padding, strict=True)
    padded = np.pad(x, ((0, 0), (0, 0), *edges))
    assert desc.output_tensor is not None
    rows, columns = desc.output_tensor.sizes[2:]
    (down, right), (filters, each, *window) = desc.strides, taps.shape
    views = [
        padded[:, :, row : row + down * rows : down, column : column + right * columns : right][:, :, :rows, :columns]
        for row, column in np.ndindex(*window)
    ]
    if desc.group_count == x.shape[1] == filters:
        result: Array = np.zeros((x.shape[0], filters, rows, columns), x.dtype)
        for view, (row, column) in zip(views, np.ndindex(*window), strict=True):
            result += view * taps[:, :, row, column].reshape(filters, 1, 1)
        return result
    groups = desc.group_count
    weights = taps.reshape(groups, filters // groups, each * len(views))
    images = []
    for image in range(x.shape[0]):
        laid_out = np.stack([view[image] for view in views], 1).reshape(groups, each * len(views), rows * columns)
        images.append((weights @ laid_out).reshape(filters, rows, columns))
    return np.stack(images)


def _attention(desc: descs.MultiheadAttention, inputs: tuple[Array, ...]) -> Array:
    heads = desc.head_count
    query, key, value = (array.reshape(*array.shape[:2], heads, -1).swapaxes(1, 2) for array in inputs)
    scores = query @ key.swapaxes(2, 3) * np.float32(desc.scale)
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return (scores @ value).swapaxes(1, 2).reshape(inputs[0].shape)


def _layer_normalization(desc: descs.MeanVarianceNormalization2, inputs: tuple[Array, ...]) -> Array:
    x, scale, bias = inputs
    y = x - x.mean(desc.axes, keepdims=True)
    y /= np.sqrt(np.square(y).mean(desc.axes, keepdims=True) + np.float32(desc.epsilon))
    return y * scale + bias


def _scatter_nd(desc: descs.ScatterNd, inputs: tuple[Array, ...]) -> Array:
    table, indices, updates = inputs
    y = table.copy()
    y[indices[:, 0]] = updates
    return y


def _scatter_elements(desc: descs.ScatterElements, inputs: tuple[Array, ...]) -> Array:
    table, indices, updates = inputs
    y = table.copy()
    np.put_along_axis(y, indices, updates, desc.axis)
    return y


def _top_k(desc: descs.TopK1, inputs: tuple[Array, ...]) -> Array:
    (x,) = inputs
    first = np.argpartition(-x, desc.k - 1, desc.axis)[:, : desc.k]
    return np.take_along_axis(x, first, desc.axis)


def _slice(desc: descs.Slice1, inputs: tuple[Array, ...]) -> Array:
    return inputs[0][tuple(slice(None, None, step) for step in desc.input_window_strides)].copy()


def _max_pooling(desc: descs.MaxPooling2, inputs: tuple[Array, ...]) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(inputs[0], desc.window_size, (2, 3))
    return windows[:, :, :: desc.strides[0], :: desc.strides[1]].max((4, 5))


FORMULAS: Mapping[str, Formula] = {
    "GEMM": lambda desc, inputs: inputs[0] @ inputs[1],
    "ELEMENT_WISE_IDENTITY": lambda desc, inputs: np.ascontiguousarray(inputs[0]).copy(),
    "ELEMENT_WISE_ADD": lambda desc, inputs: inputs[0] + inputs[1],
    "ELEMENT_WISE_SUBTRACT": lambda desc, inputs: inputs[0] - inputs[1],
    "ELEMENT_WISE_MULTIPLY": lambda desc, inputs: inputs[0] * inputs[1],
    "ELEMENT_WISE_DIVIDE": lambda desc, inputs: inputs[0] / inputs[1],
    "ELEMENT_WISE_EXP": lambda desc, inputs: np.exp(inputs[0]),
    "ELEMENT_WISE_TANH": lambda desc, inputs: np.tanh(inputs[0]),
    "ACTIVATION_RELU": lambda desc, inputs: np.maximum(inputs[0], 0),
    "ACTIVATION_SIGMOID": lambda desc, inputs: 1 / (1 + np.exp(-inputs[0])),
    "REDUCE": lambda desc, inputs: inputs[0].sum(desc.axes, keepdims=True),
    "ARGMIN": lambda desc, inputs: inputs[0].argmin(desc.axes[0], keepdims=True),
    "ARGMAX": lambda desc, inputs: inputs[0].argmax(desc.axes[0], keepdims=True),
    "ACTIVATION_SOFTMAX1": _softmax,
    "ACTIVATION_LOG_SOFTMAX1": _log_softmax,
    "ACTIVATION_HARDMAX1": _hardmax,
    "MEAN_VARIANCE_NORMALIZATION2": _layer_normalization,
    "GATHER": lambda desc, inputs: inputs[0][inputs[1][0]],
    "GATHER_ELEMENTS": lambda desc, inputs: np.take_along_axis(inputs[0], inputs[1], desc.axis),
    "SCATTER_ELEMENTS": _scatter_elements,
    "SCATTER_ND": _scatter_nd,
    "TOP_K1": _top_k,
    "SLICE1": _slice,
    "JOIN": lambda desc, inputs: np.concatenate(inputs, desc.axis),
    "TILE": lambda desc, inputs: np.tile(inputs[0], desc.repeats),
    "CUMULATIVE_SUMMATION": lambda desc, inputs: inputs[0].cumsum(desc.axis),
    "MAX_POOLING2": _max_pooling,
    "CONVOLUTION": _convolution,
    "MULTIHEAD_ATTENTION": _attention,
}
"""NumPy formulas of the samples. They hold for the descriptions of the samples only."""


def has_formula(workload: Workload) -> bool:
    """Return whether a workload has a NumPy formula."""
    if workload.kernel is not None:
        return bool(workload.kernel.references)
    return bool(workload.sizes) and workload.operator in FORMULAS


class NumpyBaseline:
    """A workload in NumPy.

    Raises:
        NotSupported: If it has no NumPy formula.
    """

    def __init__(self, workload: Workload, *, clock: Callable[[], float] = time.perf_counter):
        if not has_formula(workload):
            raise NotSupported(f"{workload.name} has no NumPy formula")
        assert isinstance(workload.desc, OperatorDesc)
        self._clock, self._formula, self._desc = clock, FORMULAS[workload.operator], workload.desc
        arrays = workload.inputs()
        size = sum(array.nbytes for array in arrays if array is not None)
        sets = set_count(size, workload.cache)
        tensors = workload.input_tensors
        self._sets = [
            tuple(
                # As the tensor lies in memory: a transposed one stays a transposed view.
                tensor.decode(tensor.encode(array)) if tensor.is_packed else _view(tensor, array)
                for tensor, array in zip(tensors, arrays, strict=True)
                if tensor is not None and array is not None
            )
            for _ in range(sets)
        ]
        self._number = 0
        start = clock()
        self.compute()
        self.readiness = Readiness(
            Init(0.0),
            clock() - start,
            ResultCheck("unchecked"),
            count(workload.desc),
            ("NumPy",),
            sets,
            sets * size,
        )

    def round(self, calls: int) -> Sample:
        """Compute the workload a number of times."""
        cpu, start = time.thread_time(), self._clock()
        for _ in range(calls):
            self.compute()
        return Sample(None, (self._clock() - start) / calls, (time.thread_time() - cpu) / calls)

    def close(self) -> None:
        """Release the arrays."""
        self._sets.clear()

    def compute(self) -> Any:
        """Compute the workload once on the next set of inputs; return the result."""
        inputs = self._sets[self._number % len(self._sets)]
        self._number += 1
        with np.errstate(all="ignore"):
            return self._formula(self._desc, inputs)


def _view(tensor: Any, array: Array) -> Array:
    """Return a view with the tensor's strides on new memory."""
    raw = tensor.encode(array)
    elements = raw[: tensor.physical_element_count * array.itemsize].view(array.dtype)
    strides = tuple(stride * array.itemsize for stride in tensor.element_strides)
    return np.lib.stride_tricks.as_strided(elements, tensor.sizes, strides)
