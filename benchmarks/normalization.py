"""Normalisations against the fastest hand-written copy of the same bytes, as interleaved ratios with their intervals.

    python benchmarks/normalization.py [ADAPTER] [-k PART]

Prints a table of time of ours over time of the copy and exits with 1 when a target is missed: batch normalisation in at
most 1.5 times the copy, layer normalisation of 4096 rows of 1024 in at most 3 times. The other lines have no target.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from harness import Bench, Call, Result, fastest_copy, main, open_backend
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.enums import DataType
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.tensor import TensorDesc

Array = NDArray[np.float32]
FLOAT = DataType.FLOAT32
BATCH = (32, 64, 56, 56)


def tensor(sizes: tuple[int, ...], order: tuple[int, ...] | None = None) -> TensorDesc:
    """A packed tensor, its dimensions in memory in another order, outermost first."""
    strides, stride = [0] * len(sizes), 1
    for dimension in reversed(order or range(len(sizes))):
        strides[dimension] = stride
        stride *= sizes[dimension]
    return TensorDesc(FLOAT, sizes, tuple(strides) if order else None)


def against_copy(bench: Bench, copy: Call, name: str, desc: OperatorDesc, at_most: float | None = None) -> Result:
    """A line: an operator on random numbers, over the copy of its first input."""
    rng = np.random.default_rng(1)
    arrays = [rng.random(slot.tensor.sizes, np.float32) for slot in desc.inputs if slot.tensor is not None]
    return Result(name, ratio(bench.operator(desc, *arrays), copy), at_most=at_most)


def batch(order: tuple[int, ...] | None) -> descs.BatchNormalization:
    whole, one = tensor(BATCH, order), tensor((1, BATCH[1], 1, 1))
    names = ("mean_tensor", "variance_tensor", "scale_tensor", "bias_tensor")
    return descs.BatchNormalization(
        input_tensor=whole, output_tensor=whole, spatial=True, epsilon=1e-5, **dict.fromkeys(names, one)
    )


def batch_normalization(adapter: str) -> Iterator[Result]:
    """With given statistics, over both usual layouts, and with the batch's own."""
    bench = Bench(open_backend(adapter))
    copy = fastest_copy(bench, np.ones(BATCH, np.float32))
    yield against_copy(bench, copy, "batch normalisation 32x64x56x56", batch(None), 1.5)
    yield against_copy(bench, copy, "batch normalisation 32x64x56x56, NHWC", batch((0, 2, 3, 1)), 1.5)
    whole, one = tensor(BATCH), tensor((1, BATCH[1], 1, 1))
    fields = ("scale_tensor", "bias_tensor", "output_mean_tensor", "output_variance_tensor")
    training = descs.BatchNormalizationTraining(
        input_tensor=whole, output_tensor=whole, epsilon=1e-5, **dict.fromkeys(fields, one)
    )
    yield against_copy(bench, copy, "batch normalisation, training", training)


def rows(sizes: tuple[int, ...], axes: tuple[int, ...], *, use_mean: bool) -> descs.MeanVarianceNormalization2:
    whole, one = tensor(sizes), tensor(tuple(size if axis in axes else 1 for axis, size in enumerate(sizes)))
    return descs.MeanVarianceNormalization2(
        input_tensor=whole,
        scale_tensor=one,
        bias_tensor=one if use_mean else None,
        output_tensor=whole,
        axes=axes,
        use_mean=use_mean,
        use_variance=True,
        epsilon=1e-5,
    )


LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], bool, float | None]] = {
    "layer normalisation 4096x1024": ((4096, 1024), (1,), True, 3.0),
    "layer normalisation 4096x1023": ((4096, 1023), (1,), True, None),
    "layer normalisation 1024x4096": ((1024, 4096), (1,), True, None),
    "layer normalisation 16x262144": ((16, 1 << 18), (1,), True, None),
    "layer normalisation 64x1024x64, axis 1": ((64, 1024, 64), (1,), True, None),
    "RMS normalisation 4096x1024": ((4096, 1024), (1,), False, None),
}


def layer_normalization(adapter: str) -> Iterator[Result]:
    """Rows of many lengths."""
    bench = Bench(open_backend(adapter))
    for name, (sizes, axes, use_mean, at_most) in LAYERS.items():
        copy = fastest_copy(bench, np.ones(-(-np.prod(sizes) // 4) * 4, np.float32))
        yield against_copy(bench, copy, name, rows(sizes, axes, use_mean=use_mean), at_most)


def others(adapter: str) -> Iterator[Result]:
    """Norms along an axis, and of neighbours."""
    bench = Bench(open_backend(adapter))
    whole = tensor(BATCH)
    copy = fastest_copy(bench, np.ones(BATCH, np.float32))
    flat = tensor((4096, 1024))
    lp = descs.LpNormalization(input_tensor=flat, output_tensor=flat, axis=1, epsilon=1e-5, p=2)
    yield against_copy(bench, fastest_copy(bench, np.ones(flat.sizes, np.float32)), "L2 normalisation 4096x1024", lp)
    for crossed in (True, False):
        local = descs.LocalResponseNormalization(
            input_tensor=whole, output_tensor=whole, cross_channel=crossed, local_size=5, alpha=1e-4, beta=0.75, bias=1
        )
        name = f"local response, 5 {'channels' if crossed else 'x 5'}, 32x64x56x56"
        yield against_copy(bench, copy, name, local)


PARTS = {
    "batch_normalization": batch_normalization,
    "layer_normalization": layer_normalization,
    "others": others,
}


if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
