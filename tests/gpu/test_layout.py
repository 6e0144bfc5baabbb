"""Operators that only move, to the bit: many pieces, every schedule, near misses of fast paths, moves of arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dmlgpu import descs, reference
from dmlgpu.catalog.enums import DataType, DepthSpaceOrder, PaddingMode
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.plan import AffineView, Map
from dmlgpu.compiler.target import Profile
from dmlgpu.conformance.cases.contents import any_bits
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc
from tests.gpu.fusion import Inputs, Node, assert_same, run_map, subtract

U8, F16, F32, I64, F64 = (DataType[n] for n in ("UINT8", "FLOAT16", "FLOAT32", "INT64", "FLOAT64"))


def check(backend: GpuBackend, desc: OperatorDesc, profile: Profile = Profile.CPU) -> None:
    """Run on random bits; every output must have those of the reference."""
    rng = np.random.default_rng(7)
    tensors = [slot.tensor for slot in desc.inputs if slot.tensor is not None]
    arrays = [tensor.decode(tensor.encode(any_bits(rng, tensor.data_type, tensor.sizes))) for tensor in tensors]
    got = run_desc(backend, desc, arrays, replace(backend.target.exact, profile=profile))
    for result, want in zip(got, reference.evaluate(desc, arrays), strict=True):
        np.testing.assert_array_equal(bits(result), bits(want))


def bits(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def tensors(data_type: DataType, sizes: Sequence[int], axis: int, extents: Sequence[int]) -> tuple[TensorDesc, ...]:
    """A tensor and its pieces along an axis."""
    pieces = [(*sizes[:axis], extent, *sizes[axis + 1 :]) for extent in extents]
    whole = (*sizes[:axis], sum(extents), *sizes[axis + 1 :])
    return tuple(TensorDesc(data_type, tensor_sizes) for tensor_sizes in (whole, *pieces))


def split(whole: TensorDesc, *pieces: TensorDesc, axis: int) -> descs.Split:
    return descs.Split(input_tensor=whole, output_tensors=pieces, axis=axis)


def join(whole: TensorDesc, *pieces: TensorDesc, axis: int) -> descs.Join:
    return descs.Join(input_tensors=pieces, output_tensor=whole, axis=axis)


@pytest.mark.parametrize("data_type", [U8, F32])
def test_a_hundred_pieces(backend: GpuBackend, data_type: DataType) -> None:
    extents = [1 + index % 3 for index in range(100)]
    whole = tensors(data_type, (3, 0), 1, extents)
    check(backend, split(*whole, axis=1))
    check(backend, join(*whole, axis=1))


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
@pytest.mark.parametrize(
    ("sizes", "axis", "extents"),
    [
        pytest.param((0,), 0, (1, 2, 4, 5, 1, 7, 64, 3), id="within words"),
        pytest.param((0, 3), 0, (1, 5, 16, 2), id="odd rows"),
        pytest.param((5, 0), 1, (4, 8, 16), id="whole words"),
        pytest.param((5, 0), 1, (2, 6, 4), id="half words"),
        pytest.param((5, 0), 1, (3, 6, 2), id="columns within words"),
        pytest.param((40, 0), 1, (61, 1, 1), id="columns far apart"),
        pytest.param((3, 0, 7), 1, (1, 4, 2), id="middle"),
    ],
)
def test_pieces_of_small_types_meet_within_words(
    backend: GpuBackend,
    sizes: tuple[int, ...],
    axis: int,
    extents: tuple[int, ...],
    profile: Profile,
) -> None:
    for data_type in (U8, F16):
        check(backend, join(*tensors(data_type, sizes, axis, extents), axis=axis), profile)


@pytest.mark.parametrize("strides", [(1, 5), (17, 2), (9, 10)], ids=["transposed", "gaps", "interleaved"])
@pytest.mark.parametrize("axis", [0, 1])
def test_pieces_of_small_types_go_into_any_layout(backend: GpuBackend, axis: int, strides: tuple[int, int]) -> None:
    whole, *pieces = tensors(U8, (5, 8), axis, (2, 3) if axis == 0 else (1, 4, 3))
    check(backend, join(replace(whole, strides=strides, total_tensor_size_in_bytes=None), *pieces, axis=axis))


@pytest.mark.parametrize(
    ("extents", "stride", "file"),
    [
        pytest.param((37, 64, 35), 136, "map_rows", id="words of their own"),
        pytest.param((129, 35), 164, "map_rows", id="two pieces"),
        pytest.param((51, 41, 63, 333), 488, "map_rows", id="far apart"),
        pytest.param((37, 64, 35), 144, "map_rows", id="gaps between rows"),
        pytest.param((33, 32, 34, 32), 131, "map_words", id="words of two rows"),
        pytest.param((37, 64, 35), 137, "map_words", id="gaps within words"),
        pytest.param((67, 130), 197, "map_words", id="several words at once"),
    ],
)
def test_runs_of_bytes_move_by_words(backend: GpuBackend, extents: tuple[int, ...], stride: int, file: str) -> None:
    whole, *pieces = tensors(U8, (3, 5, 0), 2, extents)
    whole = replace(whole, strides=(5 * stride, stride, 1), total_tensor_size_in_bytes=None)
    desc = join(whole, *pieces, axis=2)
    kernels = compiler.compile_operator(desc, replace(backend.target.exact, profile=Profile.CPU)).kernels
    assert all(f"schedules/{file}" in kernel.wgsl for kernel in kernels)
    check(backend, desc)
    check(backend, split(whole, *pieces, axis=2))


@pytest.mark.parametrize("stride", [256, 272], ids=["packed", "gaps between rows"])
def test_runs_of_bytes_move_by_blocks(backend: GpuBackend, stride: int) -> None:
    whole, *pieces = tensors(U8, (8, 5, 0), 2, (61, 66, 129))
    whole = replace(whole, strides=(5 * stride, stride, 1), total_tensor_size_in_bytes=None)
    desc = join(whole, *pieces, axis=2)
    target = replace(backend.target.exact, profile=Profile.CPU)
    for kernel in compiler.compile_operator(desc, target).kernels:
        assert ("schedules/map_wide_rows" in kernel.wgsl) == target.has("shader-int64")
    check(backend, desc)


def padding1(
    mode: PaddingMode, sizes: tuple[int, ...], start: tuple[int, ...], end: tuple[int, ...], data_type: DataType
) -> descs.Padding1:
    padded = tuple(map(sum, zip(sizes, start, end, strict=True)))
    return descs.Padding1(
        input_tensor=TensorDesc(data_type, sizes),
        output_tensor=TensorDesc(data_type, padded),
        padding_mode=mode,
        padding_value_data_type=data_type,
        padding_value=-1.5 if data_type.is_float else 77,
        start_padding=start,
        end_padding=end,
    )


@pytest.mark.parametrize(
    ("data_type", "profile"),
    [(U8, Profile.CPU), (F16, Profile.DISCRETE), (F32, Profile.CPU), (F64, Profile.DISCRETE)],
)
@pytest.mark.parametrize("mode", PaddingMode)
def test_padding_near_whole_units(
    backend: GpuBackend, mode: PaddingMode, data_type: DataType, profile: Profile
) -> None:
    for start, end in ((4, 4), (4, 3), (3, 5), (2, 6), (16, 0), (0, 1)):
        check(backend, padding1(mode, (3, 16), (1, start), (0, end), data_type), profile)
    check(backend, padding1(mode, (3, 5, 16), (1, 2, 0), (3, 0, 0), data_type), profile)
    check(backend, padding1(mode, (1, 2, 1), (0, 9, 4), (0, 7, 2), data_type), profile)


@pytest.mark.parametrize("order", DepthSpaceOrder)
@pytest.mark.parametrize("data_type", [U8, F32, I64])
@pytest.mark.parametrize("block", [1, 3, 4, 8])
def test_blocks_of_every_size(backend: GpuBackend, block: int, data_type: DataType, order: DepthSpaceOrder) -> None:
    space, depth = TensorDesc(data_type, (2, 3, 4 * block, 8 * block)), TensorDesc(data_type, (2, 3 * block**2, 4, 8))
    fields: dict[str, Any] = {"block_size": block, "order": order}
    check(backend, descs.SpaceToDepth1(input_tensor=space, output_tensor=depth, **fields))
    check(backend, descs.DepthToSpace1(input_tensor=depth, output_tensor=space, **fields))


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
@pytest.mark.parametrize("data_type", [U8, F16, F32, I64])
@pytest.mark.parametrize("count", [2, 3, 7])
def test_planes_and_groups(backend: GpuBackend, count: int, data_type: DataType, profile: Profile) -> None:
    """Channels of images, innermost or outermost, of sizes that whole units divide and that they do not."""
    for height, width in ((3, 8), (5, 7), (1, 4)):
        pixels, sizes = height * width, (2, count, height, width)
        planes = TensorDesc(data_type, sizes)
        groups = TensorDesc(data_type, sizes, (pixels * count, 1, width * count, count))
        check(backend, descs.ElementWiseIdentity(input_tensor=groups, output_tensor=planes), profile)
        check(backend, descs.ElementWiseIdentity(input_tensor=planes, output_tensor=groups), profile)


def viewed(node: Node, desc: OperatorDesc) -> Node:
    """An operator's move of something computed, over its space, which has the order of the output's elements."""
    (step,) = operators.lower(desc).steps
    assert isinstance(step, Map)
    (view,) = step.body.children
    assert isinstance(view, AffineView)
    (result,) = reference.evaluate(desc, [node.value])
    return Node(replace(view, source=node.source), result.reshape(view.sizes))


def test_a_tile_of_arithmetic(backend: GpuBackend) -> None:
    rng, inputs = np.random.default_rng(8), Inputs()
    x, y = (inputs.add(rng.standard_normal((3, 8)).astype(np.float32)) for _ in range(2))
    tile = descs.Tile(input_tensor=TensorDesc(F32, (3, 8)), output_tensor=TensorDesc(F32, (6, 24)), repeats=(2, 3))
    node = viewed(subtract(x, y), tile)
    assert node.value.shape == (2, 3, 3, 8)
    assert_same(run_map(backend, inputs, node), node.value)


@pytest.mark.parametrize("order", DepthSpaceOrder)
def test_blocks_of_arithmetic(backend: GpuBackend, order: DepthSpaceOrder) -> None:
    rng, inputs = np.random.default_rng(9), Inputs()
    x, y = (inputs.add(rng.standard_normal((1, 2, 4, 8)).astype(np.float32)) for _ in range(2))
    desc = descs.SpaceToDepth1(
        input_tensor=TensorDesc(F32, (1, 2, 4, 8)),
        output_tensor=TensorDesc(F32, (1, 8, 2, 4)),
        block_size=2,
        order=order,
    )
    node = viewed(subtract(x, y), desc)
    assert_same(run_map(backend, inputs, node), node.value)
