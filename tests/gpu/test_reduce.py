"""REDUCE by every schedule and packing, on every adapter; exact sums; extreme numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.special

from dmlgpu import descs
from dmlgpu.catalog.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.catalog.tensor_desc import TensorDesc, packed_strides
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.schedule.steps.reductions import ReduceSchedule, ScheduledReduce
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.cases.tolerance import ulp_distance
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc
from tests.schedules import steps_of

F32, F16, I64, U8 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT64, DataType.UINT8
CPU, GPU = Profile.CPU, Profile.DISCRETE
SERIAL, TREE, PARTIAL = ReduceSchedule.SERIAL, ReduceSchedule.TREE, ReduceSchedule.PARTIAL

# sizes, axes, type, profile -> schedules, lanes, whether the lanes lie across rows
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], DataType, Profile, tuple[Any, ...]]] = {
    "packed rows": ((100, 64), (1,), F32, CPU, ([SERIAL], 4, False)),
    "rows of pairs": ((100, 62), (1,), F32, CPU, ([SERIAL], 2, False)),
    "odd rows": ((100, 63), (1,), F32, CPU, ([SERIAL], 1, False)),
    "one unit per row": ((5000, 4), (1,), F32, CPU, ([SERIAL], 4, False)),
    "one element per row": ((5000, 1), (1,), F32, CPU, ([SERIAL], 4, True)),
    "packed columns": ((50, 400), (0,), F32, CPU, ([SERIAL], 4, True)),
    "pairs of columns": ((50, 402), (0,), F32, CPU, ([SERIAL], 2, True)),
    "odd columns": ((50, 401), (0,), F32, CPU, ([SERIAL], 1, True)),
    "lines of columns": ((2048, 80), (0,), F32, CPU, ([PARTIAL, SERIAL], 4, True)),
    "lines of columns, many of them": ((40, 4096), (0,), F32, CPU, ([SERIAL], 4, True)),
    "ragged lines of columns": ((2048, 84), (0,), F32, CPU, ([PARTIAL, SERIAL], 4, True)),
    "ragged lines of odd columns": ((24, 1501), (0,), F32, CPU, ([SERIAL], 1, True)),
    "lines of columns of float16": ((40, 4096), (0,), F16, CPU, ([SERIAL], 4, True)),
    "odd columns of float16": ((24, 1501), (0,), F16, CPU, ([SERIAL], 1, False)),
    "halves": ((100, 64), (1,), F16, CPU, ([SERIAL], 4, False)),
    "odd float16": ((101, 63), (1,), F16, CPU, ([SERIAL], 1, False)),
    "columns of float16": ((50, 400), (0,), F16, CPU, ([SERIAL], 4, True)),
    "two axes in memory order": ((3, 40, 5, 8), (1, 3), F32, CPU, ([SERIAL], 4, False)),
    "two axes across": ((9, 40, 5, 64), (0, 2), F32, CPU, ([SERIAL], 4, True)),
    "few rows": ((3, 20000), (1,), F32, CPU, ([PARTIAL, SERIAL], 4, False)),
    "few odd rows": ((3, 20001), (1,), F32, CPU, ([PARTIAL, SERIAL], 1, False)),
    "few columns": ((20000, 8), (0,), F32, CPU, ([PARTIAL, SERIAL], 4, True)),
    "few columns, two of them": ((20000, 2), (0,), F32, CPU, ([PARTIAL, SERIAL], 2, True)),
    "few odd columns": ((20001, 3), (0,), F32, CPU, ([PARTIAL, SERIAL], 1, True)),
    "few columns between kept ones": ((4, 5000, 2, 8), (1,), F32, CPU, ([PARTIAL, SERIAL], 4, True)),
    "few columns of float16": ((20000, 8), (0,), F16, CPU, ([PARTIAL, SERIAL], 4, True)),
    "short rows on a GPU": ((100, 64), (1,), F32, GPU, ([SERIAL], 4, False)),
    "a row per workgroup": ((9, 256), (1,), F32, GPU, ([TREE], 4, False)),
    "odd row per workgroup": ((9, 257), (1,), F32, GPU, ([TREE], 1, False)),
    "odd float16 on a GPU": ((5, 301), (1,), F16, GPU, ([TREE], 1, False)),
    "long rows on a GPU": ((2, 300_000), (1,), F32, GPU, ([PARTIAL, TREE], 4, False)),
    "columns on a GPU": ((500, 64), (0,), F32, GPU, ([PARTIAL, SERIAL], 4, True)),
    "odd columns on a GPU": ((500, 65), (0,), F32, GPU, ([PARTIAL, SERIAL], 1, True)),
    "short columns on a GPU": ((30, 64), (0,), F32, GPU, ([SERIAL], 4, True)),
    "long columns on a GPU": ((40000, 8), (0,), F32, GPU, ([PARTIAL, TREE], 4, True)),
}


def target_for(backend: GpuBackend, profile: Profile) -> Target:
    return replace(backend.target.exact, profile=profile)


def reduce_desc(
    function: str, sizes: tuple[int, ...], axes: tuple[int, ...], data_type: DataType = F32, strides: Any = None
) -> descs.Reduce:
    reduced = tuple(1 if axis in axes else size for axis, size in enumerate(sizes))
    return descs.Reduce(
        function=ReduceFunction[function],
        input_tensor=TensorDesc(data_type, sizes, strides),
        output_tensor=TensorDesc(data_type, reduced),
        axes=axes,
    )


def reduced(
    backend: GpuBackend, function: str, x: Any, axes: tuple[int, ...], profile: Profile = CPU, *, strides: Any = None
) -> Any:
    desc = reduce_desc(function, x.shape, axes, DataType.from_numpy(x.dtype), strides)
    (got,) = run_desc(backend, desc, [x], target_for(backend, profile))
    return got


@pytest.mark.parametrize("name", SHAPES)
def test_the_schedule_is_the_expected_one(name: str) -> None:
    sizes, axes, data_type, profile, (schedules, lanes, across) = SHAPES[name]
    kernels = steps_of(reduce_desc("SUM", sizes, axes, data_type), Target("any", profile))
    steps = [step for step in kernels if isinstance(step, ScheduledReduce)]
    assert [step.schedule for step in steps] == schedules
    assert (steps[0].lanes, steps[0].across is not None) == (lanes, across)


@pytest.mark.parametrize("name", SHAPES)
def test_every_schedule_of_sums_and_places(backend: GpuBackend, name: str) -> None:
    sizes, axes, data_type, profile, _ = SHAPES[name]
    x = np.random.default_rng(1).integers(-9, 10, sizes).astype(data_type.numpy)
    got = reduced(backend, "SUM", x, axes, profile)
    np.testing.assert_array_equal(got, x.astype(np.float64).sum(axes, keepdims=True).astype(x.dtype))
    desc = descs.Argmax(
        input_tensor=TensorDesc(data_type, sizes),
        output_tensor=TensorDesc(I64 if "columns" in name and profile is CPU else DataType.UINT32, got.shape),
        axes=axes,
        axis_direction=AxisDirection.DECREASING,
    )
    (place,) = run_desc(backend, desc, [x], target_for(backend, profile))
    others = [axis for axis in range(x.ndim) if axis not in axes]
    rows = x.transpose(*others, *axes).reshape(*(sizes[axis] for axis in others), -1)
    want = rows.shape[-1] - 1 - rows[..., ::-1].argmax(-1)
    np.testing.assert_array_equal(place.reshape(want.shape), want)


@pytest.mark.parametrize("columns", [12, 32, 44, 62, 4096])
@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("direction", AxisDirection)
@pytest.mark.parametrize("kind", [descs.Argmin, descs.Argmax])
def test_places_among_special_numbers(
    backend: GpuBackend, kind: Any, direction: AxisDirection, profile: Profile, columns: int
) -> None:
    """NaN of both signs come last, zeros of both signs are equal, and so are numbers of the same value; some rows have
    only NaN or one sign."""
    some = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3e38, -3e38], np.float32)
    rng = np.random.default_rng(columns)
    x = np.stack([rng.choice(rng.choice(some, 1 + row % 4, replace=False), columns) for row in range(96)])
    desc = kind(
        input_tensor=TensorDesc(F32, x.shape),
        output_tensor=TensorDesc(DataType.UINT32, (96, 1)),
        axes=(1,),
        axis_direction=direction,
    )
    (place,) = run_desc(backend, desc, [x], target_for(backend, profile))
    ordered = np.clip(x.astype(np.float64), -1e299, 1e299) * (1 if kind is descs.Argmin else -1)
    ranks = np.where(np.isnan(x), 1e300, ordered)
    want = ranks.argmin(1)
    if direction is AxisDirection.DECREASING:
        want = columns - 1 - ranks[:, ::-1].argmin(1)
    np.testing.assert_array_equal(place[:, 0], want)


@pytest.mark.parametrize("name", ["ragged lines of columns", "few rows", "long rows on a GPU"])
@pytest.mark.parametrize("function", ["AVERAGE", "L1", "L2", "LOG_SUM", "LOG_SUM_EXP", "MAX", "MIN", "SUM_SQUARE"])
def test_every_schedule_of_the_other_functions(backend: GpuBackend, function: str, name: str) -> None:
    sizes, axes, _, profile, _ = SHAPES[name]
    x = np.random.default_rng(2).uniform(0.5, 3, sizes).astype(np.float32)
    y = x.astype(np.float64)
    want = {
        "AVERAGE": y.mean(axes, keepdims=True),
        "L1": y.sum(axes, keepdims=True),
        "L2": np.sqrt((y * y).sum(axes, keepdims=True)),
        "LOG_SUM": np.log(y.sum(axes, keepdims=True)),
        "LOG_SUM_EXP": scipy.special.logsumexp(y, axes, keepdims=True),
        "MAX": y.max(axes, keepdims=True),
        "MIN": y.min(axes, keepdims=True),
        "SUM_SQUARE": (y * y).sum(axes, keepdims=True),
    }[function]
    got = reduced(backend, function, x, axes, profile)
    assert ulp_distance(want.astype(np.float32), got).max() <= 2


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("strides", ["permuted", "padded", "broadcast"])
@pytest.mark.parametrize("axes", [(0,), (1, 3), (2,), (0, 1, 2, 3)])
def test_any_layout(backend: GpuBackend, axes: tuple[int, ...], strides: str, profile: Profile) -> None:
    sizes = (6, 8, 12, 16)
    layout = {
        "permuted": (1, 6, 6 * 8 * 16, 6 * 8),
        "padded": packed_strides((6, 8, 12, 20)),
        "broadcast": (16, 0, 0, 1),
    }[strides]
    x = np.random.default_rng(3).integers(-9, 10, sizes).astype(np.float32)
    if strides == "broadcast":
        x = np.broadcast_to(x[:, :1, :1], sizes)
    got = reduced(backend, "SUM", x, axes, profile, strides=layout)
    np.testing.assert_array_equal(got, x.sum(axes, keepdims=True))


# ---- exact sums


@pytest.mark.parametrize("profile", [CPU, GPU])
def test_sixteen_million_ones(backend: GpuBackend, profile: Profile) -> None:
    assert reduced(backend, "SUM", np.ones(1 << 24, np.float32), (0,), profile)[0] == 16_777_216


@pytest.mark.parametrize("function", ["SUM", "L1"])
def test_sixteen_million_uniform_numbers(backend: GpuBackend, function: str) -> None:
    x = np.random.default_rng(4).random(1 << 24, np.float32)
    got = reduced(backend, function, x, (0,))
    assert ulp_distance(np.float32([x.sum(dtype=np.float64)]), got)[0] <= 2


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_sums_that_cancel(backend: GpuBackend, axes: tuple[int, ...], profile: Profile) -> None:
    """Numbers over 20 orders of magnitude; the error is at most 2^-23 of the sum of their absolute values."""
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((600, 700)) * 10.0 ** rng.integers(-10, 10, (600, 700))).astype(np.float32)
    got = reduced(backend, "SUM", x, axes, profile)
    y = x.astype(np.float64)
    error = np.abs(got - y.sum(axes, keepdims=True))
    assert (error <= 2.0**-23 * np.abs(y).sum(axes, keepdims=True)).all()
    assert (error <= 2.0**-24 * np.abs(got) + 2.0**-44 * np.abs(y).sum(axes, keepdims=True)).all()


# ---- extreme numbers

HUGE, TINY = np.float32(3e38), np.float32(1e-37)


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("count", [3, 64, 5001])
def test_nothing_overflows_or_underflows_before_the_result(backend: GpuBackend, count: int, profile: Profile) -> None:
    huge, tiny = np.full((2, count), HUGE), np.full((2, count), TINY)
    tiny[1, ::2] = -TINY

    def result(function: str, x: Any) -> Any:
        return reduced(backend, function, x, (1,), profile)[:, 0].astype(np.float64)

    small = huge / np.float32(1000)
    np.testing.assert_allclose(result("L2", small / 1000), math.sqrt(count) * float(HUGE) / 1e6, 3e-7)
    np.testing.assert_allclose(result("L2", tiny), math.sqrt(count) * float(TINY), 3e-7)
    np.testing.assert_allclose(result("AVERAGE", huge), [HUGE, HUGE], 2e-7)
    np.testing.assert_allclose(result("LOG_SUM", huge), math.log(count) + math.log(float(HUGE)), 3e-7)
    np.testing.assert_allclose(result("LOG_SUM_EXP", huge), [HUGE, HUGE], 2e-7)
    np.testing.assert_allclose(result("LOG_SUM_EXP", -huge), [-HUGE, -HUGE], 2e-7)
    np.testing.assert_allclose(result("LOG_SUM_EXP", tiny + 500), 500 + math.log(count), 2e-7)
    np.testing.assert_allclose(result("SUM_SQUARE", np.full((2, count), np.float32(1e-19))), count * 1e-38, 1e-6)
    pairs = np.concatenate([huge, tiny], 1)  # each factor of 3e38 meets one of +-1e-37
    signs = np.where(np.arange(count) % 2 == 0, -1.0, 1.0).prod()
    product = 30.0 ** min(count, 99)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(result("MULTIPLY", pairs), np.float32([product, signs * product]), 1e-4)


@pytest.mark.parametrize("function", [f.name for f in ReduceFunction if not f.name.startswith("ARG")])
@pytest.mark.parametrize(("sizes", "profile"), [((5, 7), CPU), ((5, 4096), GPU)])
def test_nan_comes_through(backend: GpuBackend, sizes: tuple[int, int], function: str, profile: Profile) -> None:
    x = np.ones(sizes, np.float32)
    x[1, -1] = x[2, 0] = math.nan
    x[3, sizes[1] // 2] = math.nan
    x[3, 0] = math.inf
    got = reduced(backend, function, x, (1,), profile)
    assert np.isnan(got[:, 0]).tolist() == [False, True, True, True, False]


@pytest.mark.parametrize("profile", [CPU, GPU])
def test_infinities(backend: GpuBackend, profile: Profile) -> None:
    x = np.ones((3, 300), np.float32)
    x[0, 5], x[1, 7], x[2, 5], x[2, 250] = math.inf, -math.inf, math.inf, -math.inf
    nan, infinity = math.nan, math.inf
    want = {
        "SUM": [infinity, -infinity, nan],
        "AVERAGE": [infinity, -infinity, nan],
        "L1": [infinity] * 3,
        "L2": [infinity] * 3,
        "SUM_SQUARE": [infinity] * 3,
        "LOG_SUM": [infinity, nan, nan],
        "LOG_SUM_EXP": [infinity, 1 + math.log(299), infinity],
        "MULTIPLY": [infinity, -infinity, -infinity],
        "MIN": [1, -infinity, -infinity],
        "MAX": [infinity, 1, infinity],
    }
    for function, expected in want.items():
        got = reduced(backend, function, x, (1,), profile)[:, 0]
        np.testing.assert_allclose(got, expected, 2e-7, err_msg=function)
    nothing = np.full((1, 40), -math.inf, np.float32)
    assert reduced(backend, "LOG_SUM_EXP", nothing, (1,), profile)[0, 0] == -math.inf


@pytest.mark.parametrize("profile", [CPU, GPU])
def test_signed_zeros_are_distinguished(backend: GpuBackend, profile: Profile) -> None:
    x = np.zeros((2, 40), np.float32)
    x[0, 17] = -0.0
    x[1] = -0.0
    x[1, 3] = 0.0
    assert np.signbit(reduced(backend, "MIN", x, (1,), profile)).all()
    assert not np.signbit(reduced(backend, "MAX", x, (1,), profile)).any()


@pytest.mark.parametrize("step", [1e-6, 1e-3, 0.4, 3.0])
def test_a_growing_maximum_costs_no_precision(backend: GpuBackend, step: float) -> None:
    x = (np.arange(20_000) * step).astype(np.float32)[np.newaxis]
    got = reduced(backend, "LOG_SUM_EXP", np.repeat(x, 64, 0), (1,))
    want = scipy.special.logsumexp(x.astype(np.float64))
    np.testing.assert_allclose(got, np.full((64, 1), want), 2e-7)


def test_a_single_large_weight_keeps_the_digits_of_the_rest(backend: GpuBackend) -> None:
    x = np.full((2, 300), -30.0, np.float32)
    x[:, 3] = 0
    np.testing.assert_allclose(reduced(backend, "LOG_SUM_EXP", x, (1,)), 299 * math.exp(-30.0), 1e-6)


def test_a_long_product_is_rounded_once(backend: GpuBackend) -> None:
    rng = np.random.default_rng(6)
    x = np.exp2(rng.uniform(-0.01, 0.01, 1 << 20)).astype(np.float32)
    want = np.exp2(np.log2(x.astype(np.longdouble)).sum()).astype(np.float32)
    assert ulp_distance(np.float32([want]), reduced(backend, "MULTIPLY", x, (0,)))[0] <= 1


# ---- integers


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("function", ["SUM", "L1", "SUM_SQUARE", "MULTIPLY", "MIN", "MAX"])
@pytest.mark.parametrize("data_type", [I64, DataType.UINT64], ids=lambda t: t.name)
def test_64_bit_integers_wrap_with_and_without_64_bit_arithmetic(
    backend: GpuBackend, data_type: DataType, function: str, native: bool
) -> None:
    x = np.random.default_rng(7).integers(0, 256, (70, 130, data_type.bits // 8), np.uint8)
    x = x.view(data_type.numpy)[..., 0] | data_type.numpy.type(1)
    x[0, 0] = np.iinfo(x.dtype).min
    expected = {
        "SUM": lambda: x.sum(1, dtype=x.dtype),
        "L1": lambda: np.abs(x).sum(1, dtype=x.dtype),
        "SUM_SQUARE": lambda: (x * x).sum(1, dtype=x.dtype),
        "MULTIPLY": lambda: x.prod(1, dtype=x.dtype),
        "MIN": lambda: x.min(1),
        "MAX": lambda: x.max(1),
    }
    target = target_for(backend, GPU)
    features = target.features if native else target.features - {"shader-int64"}
    desc = reduce_desc(function, x.shape, (1,), data_type)
    (got,) = run_desc(backend, desc, [x], replace(target, features=features))
    np.testing.assert_array_equal(got[:, 0], expected[function]())


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("data_type", [U8, DataType.INT8, DataType.UINT16, DataType.INT16], ids=lambda t: t.name)
@pytest.mark.parametrize(("sizes", "axes"), [((33, 61), (1,)), ((61, 36), (0,)), ((3, 5000), (1,)), ((9, 8, 7), (1,))])
def test_narrow_extremes(
    backend: GpuBackend, sizes: tuple[int, ...], axes: tuple[int, ...], data_type: DataType, profile: Profile
) -> None:
    limits = np.iinfo(data_type.numpy)
    x = np.random.default_rng(8).integers(limits.min, limits.max, sizes, data_type.numpy, endpoint=True)
    np.testing.assert_array_equal(reduced(backend, "MIN", x, axes, profile), x.min(axes, keepdims=True))
    np.testing.assert_array_equal(reduced(backend, "MAX", x, axes, profile), x.max(axes, keepdims=True))


def test_a_reduction_names_its_lanes() -> None:
    (kernel,) = compiler.compile_operator(reduce_desc("SUM", (100, 64), (1,)), Target("any")).kernels
    assert kernel.label == "reduce serial x4"
