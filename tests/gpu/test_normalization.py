"""Normalizations by every schedule, far from 0, and maps along runs with their near misses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
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
SERIAL, TREE = ReduceSchedule.SERIAL, ReduceSchedule.TREE
EPSILON = 1e-5

# sizes, axes, type, profile -> schedule, lanes, across; None where it takes a kernel per stage
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], DataType, Profile, tuple[Any, ...] | None]] = {
    "packed rows": ((100, 64), (1,), F32, CPU, (SERIAL, 4, False)),
    "rows in tiles": ((70, 1040), (1,), F32, CPU, (SERIAL, 4, False)),
    "odd rows in tiles": ((70, 259), (1,), F32, CPU, (SERIAL, 1, False)),
    "packed across": ((3, 50, 64), (1,), F32, CPU, (SERIAL, 4, True)),
    "halves": ((100, 64), (1,), F16, CPU, (SERIAL, 4, False)),
    "odd float16": ((100, 63), (1,), F16, CPU, None),
    "two axes": ((70, 3, 8, 4), (3, 1), F32, CPU, (SERIAL, 4, False)),
    "few rows": ((3, 5000), (1,), F32, CPU, None),
    "short columns": ((20, 304), (0,), F32, GPU, (SERIAL, 4, True)),
    "a row per workgroup": ((9, 256), (1,), F32, GPU, (TREE, 4, False)),
    "rows held in part": ((3, 7012), (1,), F32, GPU, (TREE, 4, False)),
    "odd rows read again": ((2, 10001), (1,), F32, GPU, (TREE, 1, False)),
    "a long row": ((2, 300_000), (1,), F32, GPU, None),
}


def target_for(backend: GpuBackend, profile: Profile) -> Target:
    return replace(backend.target.exact, profile=profile)


def rows(
    sizes: tuple[int, ...], axes: tuple[int, ...], data_type: DataType = F32, *, use_mean: bool = True
) -> descs.MeanVarianceNormalization2:
    whole = TensorDesc(data_type, sizes)
    scale = TensorDesc(data_type, tuple(size if axis in axes else 1 for axis, size in enumerate(sizes)))
    return descs.MeanVarianceNormalization2(
        input_tensor=whole,
        scale_tensor=scale,
        output_tensor=whole,
        axes=axes,
        use_mean=use_mean,
        use_variance=True,
        epsilon=EPSILON,
    )


@pytest.mark.parametrize("name", SHAPES)
def test_the_schedule_is_the_expected_one(name: str) -> None:
    sizes, axes, data_type, profile, expected = SHAPES[name]
    steps = steps_of(rows(sizes, axes, data_type), Target("any", profile))
    if expected is None:
        *reductions, last = steps
        assert isinstance(last, ScheduledMap | ScheduledRuns) and reductions
        assert all(isinstance(step, ScheduledReduce) for step in reductions)
        return
    (step,) = steps
    assert isinstance(step, ScheduledRows)
    assert (step.schedule, step.output.lanes, step.across) == expected


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("use_mean", [True, False])
def test_every_schedule(backend: GpuBackend, name: str, use_mean: bool) -> None:
    sizes, axes, data_type, profile, _ = SHAPES[name]
    rng = np.random.default_rng(1)
    desc = rows(sizes, axes, data_type, use_mean=use_mean)
    assert desc.scale_tensor is not None
    x = (3 * rng.standard_normal(sizes) + 1).astype(data_type.numpy)
    scale = rng.standard_normal(desc.scale_tensor.sizes).astype(data_type.numpy)
    (got,) = run_desc(backend, desc, [x, scale], target_for(backend, profile))
    wide = x.astype(np.float64)
    centered = wide - wide.mean(axes, keepdims=True) if use_mean else wide
    want = scale * centered / np.sqrt(np.square(centered).mean(axes, keepdims=True) + EPSILON)
    relative, absolute = (2e-6, 2e-6) if data_type is F32 else (2e-3, 2e-3)
    np.testing.assert_allclose(got, want, relative, absolute)


def training(sizes: tuple[int, ...], axes: tuple[int, ...], data_type: DataType) -> descs.BatchNormalizationTraining:
    whole = TensorDesc(data_type, sizes)
    small = TensorDesc(data_type, tuple(1 if axis in axes else size for axis, size in enumerate(sizes)))
    return descs.BatchNormalizationTraining(
        input_tensor=whole,
        scale_tensor=small,
        bias_tensor=small,
        output_tensor=whole,
        output_mean_tensor=small,
        output_variance_tensor=small,
        epsilon=EPSILON,
    )


STATISTICS: dict[str, tuple[tuple[int, ...], tuple[int, ...], DataType, Target, tuple[Any, ...] | None]] = {
    **{
        name: (sizes, axes, data_type, Target("any", profile), expected if data_type is F32 else None)
        for name, (sizes, axes, data_type, profile, expected) in SHAPES.items()
    },
    "rows stored together": (
        (100, 1023),
        (1,),
        F32,
        Target("in step", CPU, features=frozenset({"subgroup"})),
        (SERIAL, 1, False),
    ),
    "rows held by subgroups": (
        (130, 256),
        (1,),
        F32,
        Target("in step", CPU, features=frozenset({"subgroup"}), subgroup_lanes=8),
        (ReduceSchedule.SUBGROUP, 4, False),
    ),
    "channels of images": ((3, 6, 5, 7), (0, 2, 3), F32, Target("any", CPU), (SERIAL, 1, False)),
    "each element by itself": ((5, 6), (), F32, Target("any", GPU), (SERIAL, 2, True)),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_mean_and_variance_by_every_schedule(backend: GpuBackend, name: str) -> None:
    """One kernel stores them with the normalized rows, unless several share a word."""
    sizes, axes, data_type, target, expected = STATISTICS[name]
    desc = training(sizes, axes, data_type)
    steps = steps_of(desc, target)
    if expected is None:
        assert not any(isinstance(step, ScheduledRows) for step in steps)
    else:
        (step,) = steps
        assert isinstance(step, ScheduledRows) and len(step.statistics) == 2
        assert (step.schedule, step.output.lanes, step.across) == expected
    rng = np.random.default_rng(2)
    x = (3 * rng.standard_normal(sizes) + 1).astype(data_type.numpy)
    scale, bias = (rng.standard_normal(desc.scale_tensor.sizes).astype(data_type.numpy) for _ in range(2))
    got, got_mean, got_variance = run_desc(backend, desc, [x, scale, bias], target_for(backend, target.profile))
    wide = x.astype(np.float64)
    mean, variance = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    want = scale * (wide - mean) / np.sqrt(variance + EPSILON) + bias
    relative, absolute = (3e-6, 3e-6) if data_type is F32 else (2e-3, 3e-3)
    np.testing.assert_allclose(got_mean, mean, relative, absolute)
    np.testing.assert_allclose(got_variance, variance, relative, absolute)
    np.testing.assert_allclose(got, want, relative, absolute)


@pytest.mark.parametrize("sizes", [(130, 256), (140, 244), (131, 127)])
@pytest.mark.parametrize("mean", [None, 0, 1e4])
def test_rows_that_subgroups_hold(backend: GpuBackend, sizes: tuple[int, int], mean: float | None) -> None:
    """By their mean and variance, or by the mean of their squares; each row has a scale of its own."""
    whole, scales = TensorDesc(F32, sizes), TensorDesc(F32, (sizes[0], 1))
    desc = descs.MeanVarianceNormalization2(
        input_tensor=whole,
        scale_tensor=scales,
        output_tensor=whole,
        axes=(1,),
        use_mean=mean is not None,
        use_variance=True,
        epsilon=EPSILON,
    )
    (step,) = steps_of(desc, Target("in step", CPU, features=frozenset({"subgroup"}), subgroup_lanes=8))
    assert isinstance(step, ScheduledRows) and step.schedule is ReduceSchedule.SUBGROUP
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(sizes) + (mean or 0)).astype(np.float32)
    scale = rng.standard_normal(scales.sizes).astype(np.float32)
    (got,) = run_desc(backend, desc, [x, scale], target_for(backend, CPU))
    centered = x.astype(np.float64) - (0 if mean is None else x.mean(1, np.float64, keepdims=True))
    want = scale * centered / np.sqrt(np.square(centered).mean(1, keepdims=True) + EPSILON)
    np.testing.assert_allclose(got, want, 3e-6, 2e-6 if not mean else 2e-5)


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("sizes", [(64, 1024), (3, 20_001), (1, 300_000)])
def test_a_deviation_of_1_about_a_mean_of_10000(backend: GpuBackend, sizes: tuple[int, int], profile: Profile) -> None:
    """A mean in float32 alone would be off by 5e-4, a variance from sums of squares by anything."""
    x = (np.random.default_rng(2).standard_normal(sizes) + 1e4).astype(np.float32)
    scale = np.ones((1, sizes[1]), np.float32)
    (got,) = run_desc(backend, rows(sizes, (1,)), [x, scale], target_for(backend, profile))
    centered = x - x.mean(1, np.float64, keepdims=True)
    np.testing.assert_allclose(got, centered / np.sqrt(np.square(centered).mean(1, keepdims=True) + EPSILON), 0, 1e-5)


def test_numbers_taken_at_once_cost_no_digits(backend: GpuBackend) -> None:
    """The sum of thousands of squared deviations carries what its additions lose, all of them in one direction.

    WGSL allows a square root 4.5 ULP, and the quotient of 1 by it 2.5.
    """
    deviations = np.random.default_rng(5).uniform(1, 2, (64, 1))
    x = (deviations * np.where(np.arange(4000) % 2, 1, -1)).astype(np.float32)
    scale = np.ones((1, x.shape[1]), np.float32)
    (got,) = run_desc(backend, rows(x.shape, (1,)), [x, scale], target_for(backend, CPU))
    centered = x - x.mean(1, np.float64, keepdims=True)
    expected = centered / np.sqrt(np.square(centered).mean(1, keepdims=True) + EPSILON)
    np.testing.assert_allclose(got, expected, 8 * 2.0**-23)


@pytest.mark.parametrize("profile", [CPU, GPU])
@pytest.mark.parametrize("sizes", [(2, 3, 501), (30, 40, 5)])
def test_the_statistics_of_a_batch_far_from_0(backend: GpuBackend, sizes: tuple[int, ...], profile: Profile) -> None:
    x = (np.random.default_rng(3).standard_normal(sizes) + 1e4).astype(np.float32)
    small = (1, sizes[1], 1)
    channel = TensorDesc(F32, small)
    whole = TensorDesc(F32, sizes)
    desc = descs.BatchNormalizationTraining(
        input_tensor=whole,
        scale_tensor=channel,
        bias_tensor=channel,
        output_tensor=whole,
        output_mean_tensor=channel,
        output_variance_tensor=channel,
        epsilon=EPSILON,
    )
    scale, bias = np.ones(small, np.float32), np.zeros(small, np.float32)
    output, mean, variance = run_desc(backend, desc, [x, scale, bias], target_for(backend, profile))
    wide = x.astype(np.float64)
    want_mean, want_variance = wide.mean((0, 2), keepdims=True), wide.var((0, 2), keepdims=True)
    np.testing.assert_array_equal(mean, want_mean.astype(np.float32))
    np.testing.assert_allclose(variance, want_variance, 2e-6)
    np.testing.assert_allclose(output, (wide - want_mean) / np.sqrt(want_variance + EPSILON), 0, 1e-5)


# Sizes of a batch and the strides of its two dimensions next to the channels, or None if it is packed.
RUNS = {
    "packed": ((2, 16, 64), None),
    "pairs": ((2, 16, 66), None),
    "odd": ((2, 16, 65), None),
    "too short": ((2, 16, 15), None),
    "cut": ((2, 3, 2048), None),
    "channels last": ((2, 16, 64), (1024, 1, 16)),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("data_type", [F32, F16], ids=lambda t: t.name)
def test_a_batch_along_runs(backend: GpuBackend, name: str, data_type: DataType) -> None:
    sizes, strides = RUNS[name]
    whole, small = TensorDesc(data_type, sizes, strides), TensorDesc(data_type, (1, sizes[1], 1))
    fields = ("mean_tensor", "variance_tensor", "scale_tensor", "bias_tensor")
    desc = descs.BatchNormalization(
        input_tensor=whole, output_tensor=whole, spatial=True, epsilon=EPSILON, **dict.fromkeys(fields, small)
    )
    rng = np.random.default_rng(4)
    x = rng.standard_normal(sizes).astype(data_type.numpy)
    mean, scale, bias = (rng.standard_normal(small.sizes).astype(data_type.numpy) for _ in range(3))
    variance = (rng.random(small.sizes) + 0.5).astype(data_type.numpy)
    (got,) = run_desc(backend, desc, [x, mean, variance, scale, bias], target_for(backend, CPU))
    wide, m, v, s, b = (array.astype(np.float64) for array in (x, mean, variance, scale, bias))
    relative, absolute = (2e-6, 2e-6) if data_type is F32 else (2e-3, 2e-3)
    np.testing.assert_allclose(got, s * (wide - m) / np.sqrt(v + EPSILON) + b, relative, absolute)


def test_runs_read_the_parameters_of_a_channel_outside_the_loop() -> None:
    whole, small = TensorDesc(F32, (32, 64, 56, 56)), TensorDesc(F32, (1, 64, 1, 1))
    fields = ("mean_tensor", "variance_tensor", "scale_tensor", "bias_tensor")
    desc = descs.BatchNormalization(
        input_tensor=whole, output_tensor=whole, spatial=True, epsilon=EPSILON, **dict.fromkeys(fields, small)
    )
    (on_cpu,) = compiler.compile_operator(desc, Target("any", CPU)).kernels
    (on_gpu,) = compiler.compile_operator(desc, Target("any", GPU)).kernels
    loop = on_cpu.wgsl.partition("for (var index")
    assert "fixed3_load(at)" in loop[0] and "_load(at)" not in loop[2]
    assert "for (var index" not in on_gpu.wgsl


# ---- norms whose sums or squares leave float32


@pytest.mark.parametrize("count", [7, 5000])
@pytest.mark.parametrize("epsilon", [0.0, 1e-12])
@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization_where_the_norm_exceeds_float32(
    backend: GpuBackend, p: int, epsilon: float, count: int
) -> None:
    """Rows of numbers of one size, from the smallest normal ones to the largest, both signs."""
    sizes = np.array([2e-38, 1e-25, 1.0, 1e10, 1e15, 1e25, 3.4e38])
    signs = np.where(np.arange(count) % 3, 1.0, -1.0)
    x = (sizes[:, None] * signs).astype(np.float32)
    tensor = TensorDesc(F32, x.shape)
    desc = descs.LpNormalization(input_tensor=tensor, output_tensor=tensor, axis=1, epsilon=epsilon, p=p)
    norm = np.abs(x[:, :1].astype(np.float64)) * count ** (1 / p)
    (got,) = run_desc(backend, desc, [x], backend.target.exact)
    np.testing.assert_allclose(got, x / np.maximum(norm, np.float32(epsilon)), 1e-6)


@pytest.mark.parametrize("p", [1, 2, 3, 8, 100])
def test_lp_pooling_where_powers_leave_float32(backend: GpuBackend, p: int) -> None:
    """Windows of three equal numbers and a 0; the last ones of zeros, and with an infinity."""
    numbers = np.array([2e-38, 1e-25, 1.0, 1e15, 1e25, 1e38, 0.0, np.inf], np.float32)
    x = np.repeat(numbers[:, None], 4, axis=1)
    x[:, 3] = 0
    tensors = TensorDesc(F32, (1, 1, *x.shape)), TensorDesc(F32, (1, 1, len(x), 1))
    desc = descs.LpPooling(
        input_tensor=tensors[0],
        output_tensor=tensors[1],
        strides=(1, 4),
        window_size=(1, 4),
        start_padding=(0, 0),
        end_padding=(0, 0),
        p=p,
    )
    (got,) = run_desc(backend, desc, [x[None, None]], backend.target.exact)
    np.testing.assert_allclose(got.ravel(), numbers.astype(np.float64) * 3 ** (1 / p), 1e-6)
