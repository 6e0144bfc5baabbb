"""Descriptions and arrays for tests of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dmlgpu import reference
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc

ALL_TYPES = [t for t in DataType if t is not DataType.UNKNOWN and t.bits >= 8]
INDEX_TYPES = [DataType.INT64, DataType.INT32, DataType.UINT64, DataType.UINT32]


def tensor(array: Any) -> TensorDesc:
    """Return the packed description of an array."""
    return TensorDesc(DataType.from_numpy(array.dtype), array.shape)


def run(desc: OperatorDesc, *inputs: Any) -> Any:
    """Return the only output of an operator."""
    (output,) = reference.evaluate(desc, inputs)
    want = desc.outputs[0].tensor
    assert output.shape == want.sizes and output.dtype == want.data_type.numpy
    return output


def sizes(most_dimensions: int = 5, largest: int = 5, fewest: int = 1) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw tensor sizes."""
    return hnp.array_shapes(min_dims=fewest, max_dims=most_dimensions, min_side=1, max_side=largest)


def samples(dtype: Any, count: int = 40) -> Any:
    """Return finite numbers of a type, always the same: its limits, small ones, and ``count`` of random bits."""
    dtype = np.dtype(dtype)
    random = np.random.default_rng(count).bytes(2 * count * dtype.itemsize)
    drawn = np.frombuffer(random, dtype)
    if dtype.kind == "f":
        limits, drawn = np.finfo(dtype), drawn[np.isfinite(drawn)]
        ends = [limits.max, limits.smallest_normal, limits.smallest_subnormal, limits.eps, 0, 1, 1 + limits.eps, 1.5, 3]
        edges = np.array([*ends, *(-end for end in ends)], dtype)
    else:
        limits = np.iinfo(dtype)
        near_zero = [n for n in range(-3, 4) if n >= limits.min]
        edges = np.array([limits.min, limits.min + 1, limits.max - 1, limits.max, *near_zero], dtype)
    return np.concatenate([edges, drawn[:count]])


def all_pairs(dtype: Any, count: int = 40) -> tuple[Any, Any]:
    """Return all pairs of samples of a type, as two arrays."""
    values = samples(dtype, count)
    return np.repeat(values, len(values)), np.tile(values, len(values))


def numbered(shape: tuple[int, ...], data_type: DataType = DataType.INT32) -> Any:
    """Return an array whose elements are their row-major indices."""
    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(data_type.numpy)


def bits(array: Any) -> Any:
    """View the elements as unsigned integers."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
