"""Products of 8-bit integers in words of four: exact for all types, zero points, strides and sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import stages
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc

I8, U8 = np.int8, np.uint8


def integers(rng: np.random.Generator, kind: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """All numbers of a type, the least and the largest more often."""
    limits = np.iinfo(kind)
    extreme = rng.choice([limits.min, limits.max], shape)
    return np.where(rng.random(shape) < 0.3, extreme, rng.integers(limits.min, limits.max + 1, shape)).astype(kind)


def tensor(array: NDArray[Any], strides: tuple[int, ...] | None = None) -> TensorDesc:
    return TensorDesc(DataType.from_numpy(array.dtype), array.shape, strides=strides)


def exact(backend: GpuBackend, schedule: str = "packed") -> Target:
    return replace(backend.target.exact, profile=Profile.DISCRETE).with_overrides(schedule=schedule)


def label(desc: OperatorDesc, target: Target) -> str:
    return stages.compile_operator(desc, target).kernels[-1].label


# rows, inner, columns, types, zero points (none, one, or one per row and column), columns of A and rows of B contiguous
PRODUCTS: dict[str, tuple[tuple[int, int, int], Any, Any, tuple[int, int], tuple[bool, bool]]] = {
    "signed": ((64, 64, 64), I8, I8, (0, 0), (False, False)),
    "unsigned": ((64, 64, 64), U8, U8, (0, 0), (False, False)),
    "unsigned with zero points": ((68, 132, 36), U8, U8, (1, 2), (False, False)),
    "mixed without zero points": ((64, 96, 64), U8, I8, (0, 0), (False, False)),
    "mixed": ((17, 31, 300), I8, U8, (2, 2), (False, False)),
    "mixed the other way": ((65, 130, 70), U8, I8, (2, 2), (False, False)),
    "one zero point": ((33, 40, 36), I8, I8, (0, 1), (False, True)),
    "words along the inner dimension": ((128, 260, 64), I8, U8, (1, 1), (False, True)),
    "transposed": ((20, 36, 68), U8, I8, (2, 1), (True, True)),
    "transposed, odd": ((21, 35, 67), U8, U8, (2, 2), (True, True)),
    "A transposed": ((33, 7, 66), I8, U8, (1, 2), (True, False)),
}


def product(name: str) -> tuple[descs.MatrixMultiplyInteger, list[NDArray[Any]], NDArray[Any]]:
    """A description, its inputs, and what NumPy computes."""
    (rows, inner, columns), a_type, b_type, zeros, turned = PRODUCTS[name]
    rng = np.random.default_rng(len(name))
    a, b = integers(rng, a_type, (rows, inner)), integers(rng, b_type, (inner, columns))
    shapes = ((1, 1), (rows, 1)), ((1, 1), (1, columns))
    a_zero, b_zero = (
        integers(rng, kind, shapes[index][count - 1]) if count else None
        for index, (kind, count) in enumerate(zip((a_type, b_type), zeros, strict=True))
    )
    strides = [(1, x.shape[0]) if is_turned else None for x, is_turned in zip((a, b), turned, strict=True)]
    desc = descs.MatrixMultiplyInteger(
        a_tensor=tensor(a, strides[0]),
        a_zero_point_tensor=None if a_zero is None else tensor(a_zero),
        b_tensor=tensor(b, strides[1]),
        b_zero_point_tensor=None if b_zero is None else tensor(b_zero),
        output_tensor=TensorDesc(DataType.INT32, (rows, columns)),
    )
    expected = a.astype(np.int64) - (0 if a_zero is None else a_zero)
    expected = expected @ (b.astype(np.int64) - (0 if b_zero is None else b_zero))
    return desc, [x for x in (a, a_zero, b, b_zero) if x is not None], expected


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_exact(backend: GpuBackend, name: str) -> None:
    desc, inputs, expected = product(name)
    (result,) = run_desc(backend, desc, inputs, exact(backend))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixed", "transposed, odd"])
def test_products_with_sizes_as_parameters_are_exact(backend: GpuBackend, name: str) -> None:
    desc, inputs, expected = product(name)
    (result,) = run_desc(backend, desc, inputs, exact(backend).general)
    np.testing.assert_array_equal(result, expected)


def test_parts_have_counts_of_their_own(backend: GpuBackend) -> None:
    """1,030 products in parts: the last one ends within a word."""
    rng = np.random.default_rng(5)
    a, b = integers(rng, U8, (20, 1030)), integers(rng, I8, (1030, 24))
    zeros = integers(rng, U8, (20, 1)), integers(rng, I8, (1, 24))
    desc = descs.MatrixMultiplyInteger(
        a_tensor=tensor(a),
        a_zero_point_tensor=tensor(zeros[0]),
        b_tensor=tensor(b),
        b_zero_point_tensor=tensor(zeros[1]),
        output_tensor=TensorDesc(DataType.INT32, (20, 24)),
    )
    target = exact(backend, "packed-split")
    assert label(desc, target) != label(desc, exact(backend))
    (result,) = run_desc(backend, desc, [a, zeros[0], b, zeros[1]], target)
    np.testing.assert_array_equal(result, (a.astype(np.int64) - zeros[0]) @ (b.astype(np.int64) - zeros[1]))


@pytest.mark.slow
def test_sums_wrap_around(backend: GpuBackend) -> None:
    """33,026 products of 255 by 255 are beyond 2**31."""
    a, b = np.full((16, 33_032), 255, U8), np.full((33_032, 16), 255, U8)
    desc = descs.MatrixMultiplyInteger(
        a_tensor=tensor(a),
        a_zero_point_tensor=None,
        b_tensor=tensor(b),
        b_zero_point_tensor=None,
        output_tensor=TensorDesc(DataType.INT32, (16, 16)),
    )
    (result,) = run_desc(backend, desc, [a, b], exact(backend))
    assert np.all(result == 33_032 * 255 * 255 - 2**32)


def seen(x: NDArray[Any], size: int, stride: int, padding: int) -> NDArray[Any]:
    """What windows of a size see of images whose channels come second: (batch, channels, window.., positions..)."""
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))[:, :, ::stride, ::stride]
    return windows.transpose(0, 1, 4, 5, 2, 3)


@pytest.mark.parametrize(
    ("kinds", "channels", "window"),
    [((U8, I8), 8, (3, 1, 1)), ((I8, U8), 5, (3, 2, 1)), ((U8, U8), 16, (1, 1, 0)), ((I8, I8), 7, (2, 1, 0))],
    ids=str,
)
def test_convolutions_are_exact(
    backend: GpuBackend, kinds: tuple[Any, Any], channels: int, window: tuple[int, int, int]
) -> None:
    """Padding stands for the zero point."""
    size, stride, padding = window
    if size > 1 and "SwiftShader" in backend.info.name:
        pytest.skip(
            "SwiftShader needs gigabytes and minutes to compile windows of packed integers, which GPUs multiply"
        )
    rng = np.random.default_rng(7)
    x, filters = integers(rng, kinds[0], (2, channels, 9, 12)), integers(rng, kinds[1], (20, channels, size, size))
    x_zero, zeros = integers(rng, kinds[0], (1, 1, 1, 1)), integers(rng, kinds[1], (1, 20, 1, 1))
    windows = seen(x.astype(np.int64) - x_zero, size, stride, padding)
    weights = filters.astype(np.int64) - zeros.reshape(-1, 1, 1, 1)
    expected = np.einsum("bcuvyx,ocuv->boyx", windows, weights)
    desc = descs.ConvolutionInteger(
        input_tensor=tensor(x),
        input_zero_point_tensor=tensor(x_zero),
        filter_tensor=tensor(filters),
        filter_zero_point_tensor=tensor(zeros),
        output_tensor=TensorDesc(DataType.INT32, expected.shape),
        strides=(stride, stride),
        dilations=(1, 1),
        start_padding=(padding, padding),
        end_padding=(padding, padding),
    )
    assert "packed" in label(desc, exact(backend))
    (result,) = run_desc(backend, desc, [x, x_zero, filters, zeros], exact(backend))
    np.testing.assert_array_equal(result, expected)
