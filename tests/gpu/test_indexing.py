"""Gathers and scatters by every schedule, near misses of fast paths, updates that share words or places."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc

CPU, GPU = Profile.CPU, Profile.DISCRETE
F32, F16, F64, I8, I16, U32 = (DataType[name] for name in ("FLOAT32", "FLOAT16", "FLOAT64", "INT8", "INT16", "UINT32"))
STEMS = (
    "gather",
    "gather_elements",
    "gather_nd1",
    "scatter_elements",
    "scatter_nd",
    "one_hot",
    "reverse_subsequences",
    "diagonal_matrix1",
)
SOME = 6


def target_for(backend: GpuBackend, profile: Profile, deterministic: bool = False) -> Target:
    return replace(backend.target.exact, profile=profile).with_policies(deterministic=deterministic)


@pytest.mark.parametrize("stem", STEMS)
def test_cases_with_the_schedules_of_gpus(backend: GpuBackend, stem: str) -> None:
    names = [name for name in OPERATOR_CASES[stem].names("standard") if "-owned-" not in name and "-dup" not in name]
    for name in names[-SOME:]:
        case = OPERATOR_CASES[stem].case(name)
        inputs = case.inputs()
        arrays = [array for array in inputs if array is not None]
        (got,) = run_desc(backend, case.desc, arrays, target_for(backend, GPU))
        (want,) = case.expected(inputs)
        np.testing.assert_array_equal(got.view(np.uint8), np.ascontiguousarray(want).view(np.uint8), name)


# sizes of the input, axis, picks, type, strides of the output -> whether blocks are copied as such
BLOCKS: dict[str, tuple[tuple[int, ...], int, int, DataType, tuple[int, ...] | None, bool]] = {
    "units of 4": ((90, 256), 0, 300, F32, None, True),
    "units of 2": ((90, 130), 0, 300, F32, None, True),
    "single units": ((90, 131), 0, 300, F32, None, True),
    "the shortest block": ((90, 128), 0, 256, F32, None, True),
    "too short a block": ((90, 124), 0, 256, F32, None, False),
    "too few blocks": ((90, 256), 0, 255, F32, None, False),
    "the longest block": ((9, 4096), 0, 256, F32, None, True),
    "too long a block": ((9, 4100), 0, 256, F32, None, False),
    "halves": ((90, 512), 0, 300, F16, None, True),
    "odd float16": ((90, 511), 0, 300, F16, None, False),
    "bytes": ((90, 1024), 0, 300, I8, None, True),
    "doubles": ((90, 66), 0, 300, F64, None, True),
    "batches": ((7, 40, 132), 1, 50, F32, None, True),
    "padded rows": ((90, 256), 0, 300, F32, (260, 1), True),
    "badly padded rows": ((90, 256), 0, 300, F32, (257, 1), True),
    "columns": ((90, 256), 1, 300, F32, None, False),
    "rows stored as columns": ((90, 256), 0, 300, F32, (1, 300), False),
    "two window dimensions": ((40, 3, 132), 0, 100, F32, (3 * 140, 140, 1), True),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_gathers_of_blocks(backend: GpuBackend, name: str) -> None:
    sizes, axis, picks, data_type, strides, by_blocks = BLOCKS[name]
    rng = np.random.default_rng(3)
    raw = rng.integers(0, 256, (*sizes, data_type.bits // 8), np.uint8)
    source = raw.view(data_type.numpy)[..., 0]
    indices = rng.integers(-sizes[axis] - 5, sizes[axis] + 5, picks, np.int32)
    output = (*sizes[:axis], picks, *sizes[axis + 1 :])
    desc = descs.Gather(
        input_tensor=TensorDesc(data_type, sizes),
        indices_tensor=TensorDesc(DataType.INT32, (1,) * (len(sizes) - 1) + (picks,)),
        output_tensor=TensorDesc(data_type, output, strides),
        axis=axis,
        index_dimensions=1,
    )
    inside = (indices >= -sizes[axis]) & (indices < sizes[axis])
    want = np.take(raw, np.where(inside, indices, 0), axis)
    want[(slice(None),) * axis + (~inside,)] = 0
    for profile in (CPU, GPU):
        target = target_for(backend, profile)
        (kernel,) = compiler.compile_operator(desc, target).kernels
        assert ("schedules/map_blocks" in kernel.wgsl) == (by_blocks and profile is CPU)
        (got,) = run_desc(backend, desc, [source, indices.reshape(desc.indices_tensor.sizes)], target)
        np.testing.assert_array_equal(np.ascontiguousarray(got).view(np.uint8).reshape(want.shape), want)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("data_type", [I8, I16])
@pytest.mark.parametrize("desc_class", [descs.ScatterElements, descs.ScatterNd], ids=lambda c: c.operator)
def test_no_neighbor_is_torn(
    backend: GpuBackend, desc_class: Any, data_type: DataType, profile: Profile, *, deterministic: bool
) -> None:
    count, rng = 260_003, np.random.default_rng(7)
    source, updates = (rng.integers(-128, 128, count).astype(data_type.numpy) for _ in "ab")
    order = rng.permutation(count)[: count // 2 + 1]
    desc = scatter(desc_class, data_type, count, order.size)
    target = target_for(backend, profile, deterministic=deterministic)
    (got,) = run_desc(backend, desc, arrays_of(desc, source, order, updates[: order.size]), target)
    want = source.copy()
    want[order] = updates[: order.size]
    np.testing.assert_array_equal(got.ravel(), want)


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("data_type", [I8, I16, F32, F64])
@pytest.mark.parametrize("desc_class", [descs.ScatterElements, descs.ScatterNd], ids=lambda c: c.operator)
def test_many_updates_of_few_places(
    backend: GpuBackend, desc_class: Any, data_type: DataType, profile: Profile
) -> None:
    """Of all updates of a place one wins; on a deterministic device the last."""
    places, count, rng = 67, 130_003, np.random.default_rng(7)
    source = np.zeros(places, data_type.numpy)
    order, updates = rng.integers(0, places - 2, count), rng.integers(1, 100, count).astype(data_type.numpy)
    desc = scatter(desc_class, data_type, places, count)
    arrays = arrays_of(desc, source, order, updates)
    (got,) = run_desc(backend, desc, arrays, target_for(backend, profile))
    allowed = np.zeros((places, 100), bool)
    allowed[order, updates.astype(int)] = True
    allowed[places - 2 :, 0] = True
    assert allowed[np.arange(places), got.ravel().astype(int)].all()
    (got,) = run_desc(backend, desc, arrays, target_for(backend, profile, deterministic=True))
    last = count - 1 - np.unique(order[::-1], return_index=True)[1]
    np.testing.assert_array_equal(got.ravel(), [*updates[last], 0, 0])


def scatter(desc_class: Any, data_type: DataType, places: int, count: int) -> Any:
    """A scatter of single elements into a line."""
    whole, updates = TensorDesc(data_type, (1, places)), TensorDesc(data_type, (1, count))
    if desc_class is descs.ScatterElements:
        indices = TensorDesc(U32, (1, count))
        return descs.ScatterElements(
            input_tensor=whole, indices_tensor=indices, updates_tensor=updates, output_tensor=whole, axis=1
        )
    return descs.ScatterNd(
        input_tensor=whole,
        indices_tensor=TensorDesc(U32, (count, 1)),
        updates_tensor=updates,
        output_tensor=whole,
        input_dimension_count=1,
        indices_dimension_count=2,
    )


def arrays_of(desc: Any, source: Any, order: Any, updates: Any) -> list[Any]:
    """The inputs of such a scatter."""
    arrays = (source, order.astype(np.uint32), updates)
    return [array.reshape(slot.tensor.sizes) for array, slot in zip(arrays, desc.inputs, strict=True)]


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("width", [32, 24, 22, 21])
@pytest.mark.parametrize("data_type", [I8, F16, F32, F64])
def test_scattered_blocks(backend: GpuBackend, data_type: DataType, width: int, profile: Profile) -> None:
    """Blocks in units of 16 bytes and fewer, down to pairs of bytes that share words with neighbors."""
    rng = np.random.default_rng(width)
    source, updates = (
        rng.integers(0, 256, (rows, width, data_type.bits // 8), np.uint8).view(data_type.numpy)[..., 0]
        for rows in (500, 300)
    )
    order = rng.permutation(500)[:300].astype(np.uint32)
    desc = descs.ScatterNd(
        input_tensor=TensorDesc(data_type, (500, width)),
        indices_tensor=TensorDesc(U32, (300, 1)),
        updates_tensor=TensorDesc(data_type, (300, width)),
        output_tensor=TensorDesc(data_type, (500, width)),
        input_dimension_count=2,
        indices_dimension_count=2,
    )
    want = source.view(np.uint8).copy()
    want[order] = updates.view(np.uint8)
    for deterministic in (False, True):
        target = target_for(backend, profile, deterministic=deterministic)
        (got,) = run_desc(backend, desc, [source, order[:, np.newaxis], updates], target)
        np.testing.assert_array_equal(got.view(np.uint8), want)


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("width", [256, 260])
def test_many_updates_in_lines(backend: GpuBackend, width: int, profile: Profile) -> None:
    """Those that an invocation takes are of one line, or of two."""
    rng = np.random.default_rng(width)
    source, updates = (rng.random((512, width), np.float32) for _ in "ab")
    order = np.argsort(rng.random((512, width)), 0).astype(np.uint32)
    whole, indices = TensorDesc(F32, source.shape), TensorDesc(U32, source.shape)
    desc = descs.ScatterElements(
        input_tensor=whole, indices_tensor=indices, updates_tensor=whole, output_tensor=whole, axis=0
    )
    order[5, 7] = 512  # outside
    (got,) = run_desc(backend, desc, [source, order, updates], target_for(backend, profile))
    want = source.copy()
    row, column = np.nonzero(order < 512)
    want[order[row, column], column] = updates[row, column]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("profile", [CPU, GPU])
def test_many_scattered_blocks(backend: GpuBackend, profile: Profile) -> None:
    """An invocation takes neighboring units of one block."""
    rng = np.random.default_rng(3)
    source, updates = rng.random((5000, 128), np.float32), rng.random((4100, 128), np.float32)
    order = rng.permutation(5000)[:4100].astype(np.uint32)
    desc = descs.ScatterNd(
        input_tensor=TensorDesc(F32, source.shape),
        indices_tensor=TensorDesc(U32, (4100, 1)),
        updates_tensor=TensorDesc(F32, updates.shape),
        output_tensor=TensorDesc(F32, source.shape),
        input_dimension_count=2,
        indices_dimension_count=2,
    )
    (got,) = run_desc(backend, desc, [source, order[:, np.newaxis], updates], target_for(backend, profile))
    want = source.copy()
    want[order] = updates
    np.testing.assert_array_equal(got, want)
