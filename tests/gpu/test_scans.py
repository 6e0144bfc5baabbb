"""Every schedule of scans on every adapter, forced by the target's profile: near misses of packing, blocks, tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import AxisDirection, DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.schedule import scan
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.runtime.executor import Range, Resources
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc

CPU, GPU = Profile.CPU, Profile.DISCRETE
F32, F16, I32, I64, U64, U32, U8 = (
    DataType[name] for name in ("FLOAT32", "FLOAT16", "INT32", "INT64", "UINT64", "UINT32", "UINT8")
)
LARGE = 1 << 24


def target_for(backend: GpuBackend, profile: Profile) -> Target:
    return replace(backend.target.exact, profile=profile)


def summation(
    data_type: DataType,
    sizes: tuple[int, ...],
    axis: int,
    *,
    decreasing: bool = False,
    exclusive: bool = False,
    strides: tuple[int, ...] | None = None,
) -> Any:
    return descs.CumulativeSummation(
        input_tensor=TensorDesc(data_type, sizes),
        output_tensor=TensorDesc(data_type, sizes, strides),
        axis=axis,
        axis_direction=AxisDirection(int(decreasing)),
        has_exclusive_sum=exclusive,
    )


def product(data_type: DataType, sizes: tuple[int, ...], axis: int, *, decreasing: bool = False) -> Any:
    return descs.CumulativeProduct(
        input_tensor=TensorDesc(data_type, sizes),
        output_tensor=TensorDesc(data_type, sizes),
        axis=axis,
        axis_direction=AxisDirection(int(decreasing)),
        has_exclusive_product=False,
    )


def nonzero(data_type: DataType, sizes: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
    return descs.NonzeroCoordinates(
        input_tensor=TensorDesc(data_type, sizes, strides),
        output_count_tensor=TensorDesc(U32, (1,)),
        output_coordinates_tensor=TensorDesc(U32, (int(np.prod(sizes)), len(sizes))),
    )


def running_sums(x: Any, axis: int, *, decreasing: bool, exclusive: bool) -> Any:
    """NumPy's sums of integers that a float holds exactly, too."""
    lines = np.flip(x, axis) if decreasing else x
    sums = lines.cumsum(axis, np.int64) - (lines if exclusive else 0)
    return (np.flip(sums, axis) if decreasing else sums).astype(x.dtype)


SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "one element": ((1,), 0),
    "short": ((5, 7), 1),
    "a unit": ((5, 4), 1),
    "just above serial": ((3, 33), 1),
    "across": ((2, 20, 12), 1),
    "pairs across": ((2, 20, 6), 1),
    "a narrow workgroup": ((3, 132), 1),
    "a tile less one": ((2, 1023), 1),
    "a tile": ((2, 4096), 1),
    "a tile and one unit": ((2, 4100), 1),
    "many tiles": ((3, 30004), 1),
    "blocks": ((40004,), 0),
    "odd blocks": ((40001,), 0),
    "blocks of lines across": ((9001, 4), 0),
    "blocks of odd lines across": ((9001, 3), 0),
}


FEW = ("a unit", "across", "a narrow workgroup", "odd blocks", "blocks of odd lines across")


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize(
    ("data_type", "name"),
    [(F32, name) for name in SHAPES] + [(data_type, name) for data_type in (F16, I64) for name in FEW],
)
def test_every_schedule_of_sums(backend: GpuBackend, name: str, data_type: DataType, profile: Profile) -> None:
    sizes, axis = SHAPES[name]
    rng = np.random.default_rng(1)
    x = rng.integers(-1, 2, sizes).astype(data_type.numpy)
    decreasing, exclusive = bool(rng.integers(2)), bool(rng.integers(2))
    desc = summation(data_type, sizes, axis, decreasing=decreasing, exclusive=exclusive)
    (got,) = run_desc(backend, desc, [x], target_for(backend, profile))
    np.testing.assert_array_equal(got, running_sums(x, axis, decreasing=decreasing, exclusive=exclusive))


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("name", ["short", "a unit", "across", "a tile and one unit", "blocks", "odd blocks"])
@pytest.mark.parametrize("data_type", [F32, U64], ids=lambda t: t.name)
def test_every_schedule_of_products(backend: GpuBackend, name: str, data_type: DataType, profile: Profile) -> None:
    sizes, axis = SHAPES[name]
    rng = np.random.default_rng(2)
    choices = [0.5, -1, 2, 1] if data_type is F32 else [3, 5, 2**40 + 1]
    x = rng.choice(np.array(choices, data_type.numpy), sizes)
    decreasing = bool(rng.integers(2))
    (got,) = run_desc(
        backend, product(data_type, sizes, axis, decreasing=decreasing), [x], target_for(backend, profile)
    )
    lines = np.flip(x, axis) if decreasing else x
    want = lines.cumprod(axis, np.float64 if data_type is F32 else data_type.numpy).astype(data_type.numpy)
    np.testing.assert_array_equal(got, np.flip(want, axis) if decreasing else want)


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("data_type", [F32, F16], ids=lambda t: t.name)
def test_totals_of_totals(
    backend: GpuBackend, data_type: DataType, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As lines of more than 2^28 elements take them, with everything smaller."""
    monkeypatch.setattr(scan, "LONGEST_WALK", 16)
    monkeypatch.setattr(scan, "MAX_TILES", 1)
    monkeypatch.setattr(scan, "WORKGROUPS", 2)
    x = np.random.default_rng(3).integers(-1, 2, (5, 20011)).astype(data_type.numpy)
    desc = summation(data_type, x.shape, 1)
    (got,) = run_desc(backend, desc, [x], target_for(backend, profile))
    np.testing.assert_array_equal(got, running_sums(x, 1, decreasing=False, exclusive=False))


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("strides", [(1, 70), (9001, 2), (9003, 3)])
def test_float16_stores_leave_adjacent_elements_alone(
    backend: GpuBackend, strides: tuple[int, int], profile: Profile
) -> None:
    """Lines and blocks of float16 that end in the middle of a word."""
    x = np.random.default_rng(4).integers(-1, 2, (61, 131)).astype(np.float16)
    desc = summation(F16, x.shape, 1, strides=strides)
    (got,) = run_desc(backend, desc, [x], target_for(backend, profile))
    np.testing.assert_array_equal(got, running_sums(x, 1, decreasing=False, exclusive=False))


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("name", ["across", "a tile and one unit", "odd blocks", "blocks of lines across"])
@pytest.mark.parametrize("data_type", [F32, F16], ids=lambda t: t.name)
def test_sums_in_the_inputs_place(backend: GpuBackend, name: str, data_type: DataType, profile: Profile) -> None:
    sizes, axis = SHAPES[name]
    x = np.random.default_rng(8).integers(-1, 2, sizes).astype(data_type.numpy)
    desc = summation(data_type, sizes, axis, exclusive=True)
    executable = backend.prepare(compiler.compile_operator(desc, target_for(backend, profile)))
    tensor = desc.input_tensor
    data, temporary = (
        Range(backend.create_buffer(size, "in place"), 0, size)
        for size in (tensor.byte_size, max(executable.temporary_size, 4))
    )
    backend.write(data.buffer, 0, tensor.encode(x))
    memory = temporary if executable.temporary_size else None
    backend.submit(executable.bind(Resources((data,), (data,), memory)))
    got = tensor.decode(backend.read(data.buffer, 0, data.size))
    np.testing.assert_array_equal(got, running_sums(x, axis, decreasing=False, exclusive=True))
    for used in (data, temporary):
        backend.destroy_buffer(used.buffer)


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("decreasing", [False, True])
def test_sixteen_million_ones(backend: GpuBackend, decreasing: bool, profile: Profile) -> None:
    (got,) = run_desc(
        backend,
        summation(F32, (LARGE,), 0, decreasing=decreasing),
        [np.ones(LARGE, np.float32)],
        target_for(backend, profile),
    )
    want = np.arange(1, LARGE + 1, dtype=np.float32)
    np.testing.assert_array_equal(got, want[::-1] if decreasing else want)


@pytest.mark.parametrize("profile", [CPU, GPU])
def test_sixteen_million_numbers_are_as_good_as_exact_and_always_the_same(
    backend: GpuBackend, profile: Profile
) -> None:
    x = np.random.default_rng(5).random(LARGE, np.float32)
    desc, target = summation(F32, x.shape, 0), target_for(backend, profile)
    (got,) = run_desc(backend, desc, [x], target)
    want = x.cumsum(dtype=np.float64)
    assert (np.abs(got - want) <= np.spacing(want.astype(np.float32))).all()
    (again,) = run_desc(backend, desc, [x], target)
    np.testing.assert_array_equal(again, got)


@pytest.mark.parametrize("profile", [CPU, GPU])
def test_a_long_product_comes_back_from_beyond_every_limit(backend: GpuBackend, profile: Profile) -> None:
    exponents = np.repeat([100, -100, 100], [20000, 40000, 20000])
    x = np.ldexp(np.float32(1), exponents)
    (got,) = run_desc(backend, product(F32, x.shape, 0), [x], target_for(backend, profile))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, np.ldexp(np.float32(1), exponents.cumsum()))


@pytest.mark.parametrize("data_type", [F32, F16], ids=lambda t: t.name)
def test_products_of_subnormal_numbers(backend: GpuBackend, data_type: DataType) -> None:
    """They count in full, and results are rounded at most twice, also on adapters that flush them in arithmetic."""
    limits = np.finfo(data_type.numpy)
    tiny, normal, unit = float(limits.smallest_subnormal), float(limits.smallest_normal), 1.0
    x = np.array([[tiny, 1 / normal, 4, 0.5], [3 * tiny, -unit, 3, 1 / normal], [normal, 0.75, 0.5, 0.25]])
    x = x.astype(data_type.numpy)
    (got,) = run_desc(backend, product(data_type, x.shape, 1), [x], backend.target.exact)
    np.testing.assert_array_equal(got, x.astype(np.float64).cumprod(1).astype(data_type.numpy))


# ---- NONZERO_COORDINATES


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("sizes", [(1,), (3, 5), (7, 1, 300), (40, 1001), (123, 1024)])
@pytest.mark.parametrize("data_type", [U8, F16, I32], ids=lambda t: t.name)
@pytest.mark.parametrize("transposed", [False, True])
def test_every_schedule_of_coordinates(
    backend: GpuBackend, sizes: tuple[int, ...], data_type: DataType, transposed: bool, profile: Profile
) -> None:
    x = np.random.default_rng(6).integers(0, 2, sizes).astype(data_type.numpy)
    strides = tuple(int(np.prod(sizes[:axis])) for axis in range(len(sizes))) if transposed else None
    count, places = run_desc(backend, nonzero(data_type, sizes, strides), [x], target_for(backend, profile))
    want = np.argwhere(x)
    assert count.item() == len(want)
    np.testing.assert_array_equal(places[: len(want)], want)
    np.testing.assert_array_equal(places[len(want) :], 0)


@pytest.mark.parametrize("profile", [CPU, GPU])
def test_sixteen_million_coordinates(backend: GpuBackend, profile: Profile) -> None:
    x = np.random.default_rng(7).integers(0, 3, (4096, 4096)).astype(np.uint8)
    count, places = run_desc(backend, nonzero(U8, x.shape), [x], target_for(backend, profile))
    want = np.argwhere(x)
    assert count.item() == len(want)
    np.testing.assert_array_equal(places[: len(want)], want)
    assert not places[len(want) :].any()
