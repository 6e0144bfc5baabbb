"""Softmax and quantization by every schedule, on every adapter, and near misses of fast paths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.special

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, QuantizationType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.schedule.steps.maps import ScheduledMap, ScheduledRuns
from dmlgpu.compiler.schedule.steps.reductions import ReduceSchedule, ScheduledReduce, ScheduledRows
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc
from tests.schedules import steps_of

F32, F16 = DataType.FLOAT32, DataType.FLOAT16
CPU, GPU = Profile.CPU, Profile.DISCRETE
SERIAL, TREE, SUBGROUP = ReduceSchedule.SERIAL, ReduceSchedule.TREE, ReduceSchedule.SUBGROUP
SOFTMAX, LOG_SOFTMAX, HARDMAX = descs.ActivationSoftmax1, descs.ActivationLogSoftmax1, descs.ActivationHardmax1

# sizes, axes, type, profile -> schedule, lanes, across; None where it takes a kernel per stage
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], DataType, Profile, tuple[Any, ...] | None]] = {
    "packed rows": ((100, 64), (1,), F32, CPU, (SERIAL, 4, False)),
    "rows of pairs": ((100, 62), (1,), F32, CPU, (SERIAL, 2, False)),
    "odd rows": ((100, 63), (1,), F32, CPU, (SERIAL, 1, False)),
    "packed across": ((3, 50, 64), (1,), F32, CPU, (SERIAL, 4, True)),
    "pairs across": ((3, 50, 66), (1,), F32, CPU, (SERIAL, 2, True)),
    "odd across": ((3, 50, 65), (1,), F32, CPU, (SERIAL, 1, False)),
    "many odd rows": ((101, 83), (1,), F32, CPU, (SERIAL, 1, False)),
    "many rows of pairs": ((131, 130), (1,), F32, CPU, (SERIAL, 2, False)),
    "many odd rows, apart": ((70, 5, 2, 29), (1, 3), F32, CPU, (SERIAL, 1, False)),
    "halves": ((100, 64), (1,), F16, CPU, (SERIAL, 4, False)),
    "pairs of float16": ((100, 62), (1,), F16, CPU, (SERIAL, 2, False)),
    "odd float16": ((100, 63), (1,), F16, CPU, None),
    "float16 across": ((3, 50, 64), (1,), F16, CPU, (SERIAL, 4, True)),
    "two axes": ((70, 3, 8, 4), (3, 1), F32, CPU, (SERIAL, 4, False)),
    "few rows": ((3, 5000), (1,), F32, CPU, None),
    "one element each": ((100, 1), (1,), F32, CPU, (SERIAL, 4, True)),
    "short rows": ((100, 64), (1,), F32, GPU, (SERIAL, 4, False)),
    "a row per workgroup": ((9, 256), (1,), F32, GPU, (TREE, 4, False)),
    "odd row per workgroup": ((9, 257), (1,), F32, GPU, (TREE, 1, False)),
    "rows held": ((3, 8192), (1,), F32, GPU, (TREE, 4, False)),
    "rows held in part": ((3, 7012), (1,), F32, GPU, (TREE, 4, False)),
    "rows read again": ((3, 8196), (1,), F32, GPU, (TREE, 4, False)),
    "odd rows read again": ((2, 10001), (1,), F32, GPU, (TREE, 1, False)),
    "float16 held": ((5, 3000), (1,), F16, GPU, (TREE, 4, False)),
    "odd float16 on a GPU": ((5, 301), (1,), F16, GPU, None),
    "columns on a GPU": ((300, 20), (0,), F32, GPU, (TREE, 1, False)),
    "short columns on a GPU": ((20, 300), (0,), F32, GPU, (SERIAL, 4, True)),
    "a long row on a GPU": ((2, 300_000), (1,), F32, GPU, None),
}


def target_for(backend: GpuBackend, profile: Profile) -> Target:
    return replace(backend.target.exact, profile=profile)


def desc_of(desc_class: Any, data_type: DataType, sizes: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    tensor = TensorDesc(data_type, sizes)
    return desc_class(input_tensor=tensor, output_tensor=tensor, axes=axes)


@pytest.mark.parametrize("name", SHAPES)
def test_the_schedule_is_the_expected_one(name: str) -> None:
    sizes, axes, data_type, profile, expected = SHAPES[name]
    steps = steps_of(desc_of(SOFTMAX, data_type, sizes, axes), Target("any", profile))
    if expected is None:
        *reductions, last = steps
        assert isinstance(last, ScheduledMap | ScheduledRuns) and len(reductions) >= 2
        assert all(isinstance(step, ScheduledReduce) for step in reductions)
        return
    (step,) = steps
    assert isinstance(step, ScheduledRows)
    assert (step.schedule, step.output.lanes, step.across) == expected


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("desc_class", [SOFTMAX, LOG_SOFTMAX], ids=lambda c: c.operator)
def test_every_schedule_of_softmax(backend: GpuBackend, desc_class: Any, name: str) -> None:
    sizes, axes, data_type, profile, _ = SHAPES[name]
    x = (3 * np.random.default_rng(1).standard_normal(sizes)).astype(data_type.numpy)
    desc = desc_of(desc_class, data_type, sizes, axes)
    (got,) = run_desc(backend, desc, [x], target_for(backend, profile))
    function = scipy.special.softmax if desc_class is SOFTMAX else scipy.special.log_softmax
    want = function(x.astype(np.float64), axis=axes)
    relative, absolute = (3e-6, 1e-12) if data_type is F32 else (6e-4, 6e-8)
    np.testing.assert_allclose(got, want, relative, absolute)


@pytest.mark.parametrize("name", SHAPES)
def test_every_schedule_of_hardmax(backend: GpuBackend, name: str) -> None:
    sizes, axes, data_type, profile, _ = SHAPES[name]
    x = np.random.default_rng(2).integers(0, 99, sizes).astype(data_type.numpy)
    (got,) = run_desc(backend, desc_of(HARDMAX, data_type, sizes, axes), [x], target_for(backend, profile))
    across = [axis for axis in range(x.ndim) if axis not in axes]
    order = (*across, *sorted(axes))
    rows = x.transpose(order).reshape(*(sizes[axis] for axis in across), -1)
    want = np.arange(rows.shape[-1]) == rows.argmax(-1)[..., np.newaxis]
    np.testing.assert_array_equal(got.transpose(order).reshape(want.shape), want)


# sizes, axes, type -> lanes, units that an invocation holds, rows that a subgroup takes in turn
HELD: dict[str, tuple[tuple[int, ...], tuple[int, ...], DataType, tuple[int, int, int]]] = {
    "all hold as many": ((130, 256), (1,), F32, (4, 8, 4)),
    "some hold one less": ((140, 244), (1,), F32, (4, 8, 4)),
    "pairs": ((260, 130), (1,), F32, (2, 9, 8)),
    "odd rows": ((131, 127), (1,), F32, (1, 16, 4)),
    "halves": ((140, 256), (1,), F16, (4, 8, 4)),
    "two axes": ((90, 4, 3, 32), (1, 3), F32, (4, 4, 8)),
    "as much as can be held": ((513, 1024), (1,), F32, (4, 32, 16)),
}


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("desc_class", [SOFTMAX, LOG_SOFTMAX], ids=lambda c: c.operator)
def test_rows_that_subgroups_hold(backend: GpuBackend, desc_class: Any, name: str) -> None:
    sizes, axes, data_type, (lanes, held, each) = HELD[name]
    desc = desc_of(desc_class, data_type, sizes, axes)
    (step,) = steps_of(desc, Target("in step", CPU, features=frozenset({"subgroup"}), subgroup_lanes=8))
    assert isinstance(step, ScheduledRows)
    assert (step.schedule, step.output.lanes, step.held, step.launch.items_per_invocation) == (
        SUBGROUP,
        lanes,
        held,
        each,
    )
    x = (3 * np.random.default_rng(1).standard_normal(sizes)).astype(data_type.numpy)
    flat = x.reshape(-1)
    flat[::7], flat[5], flat[-1] = -np.inf, 80, 70  # weights of 0, rows of one large element
    (got,) = run_desc(backend, desc, [x], target_for(backend, CPU))
    function = scipy.special.softmax if desc_class is SOFTMAX else scipy.special.log_softmax
    want = function(x.astype(np.float64), axis=axes)
    relative, absolute = (3e-6, 1e-12) if data_type is F32 else (6e-4, 6e-8)
    np.testing.assert_allclose(got, want, relative, absolute)


@pytest.mark.parametrize(
    ("desc", "target"),
    [
        (desc_of(SOFTMAX, F32, (1024, 1028), (1,)), {}),  # more than can be held
        (desc_of(SOFTMAX, F32, (511, 1024), (1,)), {}),  # too few to pay for compiling
        (desc_of(SOFTMAX, F16, (1024, 1024), (1,)), {}),  # which float16 do longer
        (desc_of(SOFTMAX, F32, (256, 1024), (0,)), {}),  # columns
        (desc_of(SOFTMAX, F32, (130, 256), (1,)), {"subgroup_lanes": 4}),
        (desc_of(SOFTMAX, F32, (130, 256), (1,)), {"features": frozenset()}),
        (desc_of(SOFTMAX, F32, (130, 256), (1,)), {"profile": GPU}),
    ],
    ids=["long", "few", "halves", "columns", "narrow", "no feature", "GPU"],
)
def test_rows_that_subgroups_do_not_hold(desc: Any, target: dict[str, Any]) -> None:
    options: dict[str, Any] = {"profile": CPU, "features": frozenset({"subgroup"}), "subgroup_lanes": 8, **target}
    steps = steps_of(desc, Target("in step", **options))
    assert all(getattr(step, "schedule", None) is not SUBGROUP for step in steps)


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("count", [1, 4, 31, 300, 20000])
@pytest.mark.parametrize("desc_class", [SOFTMAX, LOG_SOFTMAX], ids=lambda c: c.operator)
def test_rows_of_infinities_and_nan(backend: GpuBackend, desc_class: Any, count: int, profile: Profile) -> None:
    kinds = np.array([0.0, -np.inf, np.inf, np.nan, 0.0], np.float32)
    x = np.repeat(kinds[:, np.newaxis], count, 1)
    x[4, 1:] = -np.inf
    for row in (1, 2, 3):
        x[row, : count // 2] = 1.0 if row > 1 else -np.inf
    (got,) = run_desc(backend, desc_of(desc_class, F32, x.shape, (1,)), [x], target_for(backend, profile))
    assert np.isnan(got[1:4]).all()
    weights = got if desc_class is SOFTMAX else np.exp(got)
    np.testing.assert_allclose(weights[0], 1 / count, 1e-6)
    np.testing.assert_array_equal(weights[4], np.arange(count) == 0)


@pytest.mark.parametrize("step", [0.03, -0.03, 0.6, 30.0])
@pytest.mark.parametrize("count", [15, 16, 999])
def test_rows_whose_maximum_grows_repeatedly(backend: GpuBackend, count: int, step: float) -> None:
    """An invocation that takes a row alone scales its sum whenever the maximum grows by more than 1."""
    x = (step * np.arange(count, dtype=np.float32))[np.newaxis].repeat(9, 0)
    x[8, : count // 2] = -np.inf
    (got,) = run_desc(backend, desc_of(SOFTMAX, F32, x.shape, (1,)), [x], target_for(backend, CPU))
    np.testing.assert_allclose(got, scipy.special.softmax(x.astype(np.float64), axis=1), 3e-6, 1e-12)


@pytest.mark.parametrize("profile", [CPU, GPU])
def test_a_row_of_a_million_equal_elements(backend: GpuBackend, profile: Profile) -> None:
    """Adding 0.3 a million times in float32 alone would lose three digits."""
    x = np.full((1, 1_000_003), -1.2, np.float32)
    x[0, 77] = 0
    (got,) = run_desc(backend, desc_of(SOFTMAX, F32, x.shape, (1,)), [x], target_for(backend, profile))
    want = scipy.special.softmax(x.astype(np.float64), axis=1)
    np.testing.assert_allclose(got, want, 4e-7)


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("count", [5, 300, 50_000])
def test_the_logarithm_of_a_weight_near_1_keeps_its_digits(backend: GpuBackend, count: int, profile: Profile) -> None:
    x = np.full((2, count), -30.0, np.float32)
    x[:, 3] = 0
    (got,) = run_desc(backend, desc_of(LOG_SOFTMAX, F32, x.shape, (1,)), [x], target_for(backend, profile))
    np.testing.assert_allclose(got[:, 3], -np.log1p((count - 1) * np.exp(-30.0)), 1e-5)


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("count", [1, 77, 70_001])
@pytest.mark.parametrize("data_type", [DataType.UINT8, DataType.INT8], ids=lambda t: t.name)
def test_dynamic_quantization_of_any_length(
    backend: GpuBackend, data_type: DataType, count: int, profile: Profile
) -> None:
    x = np.random.default_rng(3).uniform(-3, 5, count).astype(np.float32)
    scalar = (1,)
    desc = descs.DynamicQuantizeLinear(
        input_tensor=TensorDesc(F32, (count,)),
        output_tensor=TensorDesc(data_type, (count,)),
        output_scale_tensor=TensorDesc(F32, scalar),
        output_zero_point_tensor=TensorDesc(data_type, scalar),
    )
    elements, scale, zero = run_desc(backend, desc, [x], target_for(backend, profile))
    low, high = np.iinfo(data_type.numpy).min, np.iinfo(data_type.numpy).max
    smallest, largest = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    want_scale = (largest - smallest) / np.float32(255)
    assert scale[0] == want_scale
    assert zero[0] == np.clip(np.rint(np.float32(low) - smallest / want_scale), low, high)
    np.testing.assert_array_equal(elements, np.clip(np.rint(x / want_scale) + int(zero[0]), low, high))


def test_quantized_addition_needs_few_buffers() -> None:
    scalar, many = TensorDesc(F32, (1, 1)), TensorDesc(DataType.UINT8, (8, 8))
    zero = TensorDesc(DataType.UINT8, (1, 1))
    desc = descs.ElementWiseQuantizedLinearAdd(
        a_tensor=many,
        a_scale_tensor=scalar,
        a_zero_point_tensor=zero,
        b_tensor=many,
        b_scale_tensor=scalar,
        b_zero_point_tensor=zero,
        output_scale_tensor=scalar,
        output_zero_point_tensor=zero,
        output_tensor=many,
    )
    first, second = compiler.compile_operator(desc, Target("any", max_storage_buffers=8)).kernels
    assert (len(first.slots), len(second.slots)) == (7, 4)


@pytest.mark.parametrize("profile", [CPU, GPU])
def test_block_wise_4_bit_weights_are_packed(backend: GpuBackend, profile: Profile) -> None:
    rng = np.random.default_rng(4)
    weights = rng.integers(-8, 8, (16, 128)).astype(np.int8)
    scale = rng.random((16, 4)).astype(np.float32)
    desc = descs.Dequantize(
        input_tensor=TensorDesc(DataType.INT4, weights.shape),
        quantization_type=QuantizationType.SCALE,
        quantization_tensors=(TensorDesc(F32, scale.shape),),
        output_tensor=TensorDesc(F32, weights.shape),
    )
    target = target_for(backend, profile)
    (kernel,) = compiler.compile_operator(desc, target).kernels
    assert kernel.label == "dequantize map x4"
    (got,) = run_desc(backend, desc, [weights, scale], target)
    np.testing.assert_array_equal(got, weights * np.repeat(scale, 32, 1))
