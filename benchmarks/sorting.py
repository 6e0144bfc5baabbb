"""The first elements along an axis against NumPy on the same machine, as interleaved ratios with their intervals.

    python benchmarks/sorting.py [ADAPTER] [-k PART]

Prints a table of time of ours over time of NumPy and exits with 1 when the target is missed: the 50 largest of each of
256 lines of 4096 float32 in at most 15 times the time of NumPy's argpartition and sort. The others have no target.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from harness import Bench, Part, Result, main, open_backend
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.enums import AxisDirection, DataType
from dmlgpu.tensor import TensorDesc

Array = NDArray[Any]
TARGET = 15.0
FLOAT, LONG = DataType.FLOAT32, DataType.INT64
SIZES = (256, 4096)
MILLION = (1 << 20,)


def top(data_type: DataType, sizes: tuple[int, ...], axis: int, k: int) -> descs.TopK1:
    """The largest k along an axis."""
    first = tuple(k if dimension == axis else size for dimension, size in enumerate(sizes))
    return descs.TopK1(
        input_tensor=TensorDesc(data_type, sizes),
        output_value_tensor=TensorDesc(data_type, first),
        output_index_tensor=TensorDesc(DataType.UINT32, first),
        axis=axis,
        k=k,
        axis_direction=AxisDirection.DECREASING,
    )


def partition(x: Array, axis: int, k: int) -> tuple[Array, Array]:
    """NumPy's way for few of many: the largest k in any order, then these sorted."""
    places = np.take(np.argpartition(x, -k, axis), np.arange(-k, 0), axis)
    values = np.take_along_axis(x, places, axis)
    order = np.flip(np.argsort(values, axis), axis)
    return np.take_along_axis(values, order, axis), np.take_along_axis(places, order, axis)


def sort(x: Array, axis: int, k: int) -> tuple[Array, Array]:
    """NumPy's way for whole lines."""
    places = np.flip(np.argsort(x, axis), axis)
    return np.take_along_axis(x, places, axis), places


def values_of(data_type: DataType, sizes: tuple[int, ...]) -> Array:
    """Numbers over the whole range, most of them different."""
    rng = np.random.default_rng(1)
    if data_type.is_float:
        return rng.standard_normal(sizes, np.float32)
    return rng.integers(np.iinfo(np.int64).min, np.iinfo(np.int64).max, sizes)


def against_numpy(
    bench: Bench, desc: descs.TopK1, by_numpy: Callable[[Array, int, int], object], name: str, target: float | None
) -> Result:
    """Time of ours over time of NumPy."""
    values = values_of(desc.input_tensor.data_type, desc.input_tensor.sizes)
    copies = [values.copy() for _ in range(bench.sets)]
    ours = bench.operator(desc, values)
    measured = ratio(ours, lambda number: by_numpy(copies[number % len(copies)], desc.axis, desc.k))
    return Result(name, measured, at_most=target)


def target(adapter: str) -> Iterator[Result]:
    """The one with a target."""
    bench = Bench(open_backend(adapter))
    yield against_numpy(bench, top(FLOAT, SIZES, 1, 50), partition, "50 of [256, 4096] float32", TARGET)


def few(adapter: str) -> Iterator[Result]:
    """Few of many elements."""
    bench = Bench(open_backend(adapter))
    yield against_numpy(bench, top(LONG, SIZES, 1, 50), partition, "50 of [256, 4096] int64", None)
    yield against_numpy(bench, top(FLOAT, SIZES[::-1], 0, 50), partition, "50 of [4096, 256] float32, axis 0", None)
    yield against_numpy(bench, top(FLOAT, MILLION, 0, 50), partition, "50 of 1M float32", None)
    yield against_numpy(bench, top(FLOAT, (65536, 64), 1, 4), partition, "4 of [65536, 64] float32", None)


def whole(adapter: str) -> Iterator[Result]:
    """Whole lines."""
    bench = Bench(open_backend(adapter))
    yield against_numpy(bench, top(FLOAT, MILLION, 0, MILLION[0]), sort, "all of 1M float32", None)
    yield against_numpy(bench, top(LONG, MILLION, 0, MILLION[0]), sort, "all of 1M int64", None)
    yield against_numpy(bench, top(FLOAT, SIZES, 1, SIZES[1]), sort, "all of [256, 4096] float32", None)


PARTS: dict[str, Part] = {"target": target, "few": few, "whole": whole}

if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
