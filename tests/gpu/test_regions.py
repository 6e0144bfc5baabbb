"""Regions of interest by the schedules of GPUs, in the shares that drivers with short loops get, and far off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmlgpu import descs, reference
from dmlgpu.catalog.enums import DataType, InterpolationMode, ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc, Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.target import Profile
from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from dmlgpu.conformance.running.outcome import compare
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc
from tests.schedules import steps_of

STEMS = ("roi_pooling", "roi_align1", "roi_align_grad")
SOME = 2
SHORT = 1100
"""A limit on loops that cuts the samples of one output element into several shares."""

RNG = np.random.default_rng(8)
IMAGE = RNG.integers(-3, 4, (2, 3, 6, 7)).astype(np.float32)
REGIONS = np.array([[0, 0, 7, 6], [-2, 1.5, 9, 8], [0.5, 5, 6.5, 1], [3, 3, 3, 3], [20, 0, 26, 6]], np.float32)
BATCHES = np.array([0, 1, 1, 0, 1], np.uint32)
FORWARD = TensorDesc(DataType.FLOAT32, (5, 3, 2, 1))


def of(array: Any) -> TensorDesc:
    return TensorDesc(DataType.from_numpy(array.dtype), array.shape)


def sampling(**changes: Any) -> dict[str, Any]:
    """Attributes with which all coordinates, and so all interpolated numbers, are exact."""
    return {
        "roi_tensor": of(REGIONS),
        "batch_indices_tensor": of(BATCHES),
        "reduction_function": ReduceFunction.AVERAGE,
        "interpolation_mode": InterpolationMode.LINEAR,
        "spatial_scale_x": 1.0,
        "spatial_scale_y": 1.0,
        "input_pixel_offset": 0.5,
        "output_pixel_offset": -0.5,
        "minimum_samples_per_output": 8,
        "maximum_samples_per_output": 8,
        "align_regions_to_corners": False,
    } | changes


def align(**changes: Any) -> OperatorDesc:
    fields = {"out_of_bounds_input_value": -0.5, **sampling(**changes)}
    return descs.RoiAlign1(input_tensor=of(IMAGE), output_tensor=FORWARD, **fields)


def gradient(**changes: Any) -> OperatorDesc:
    return descs.RoiAlignGrad(
        input_tensor=of(IMAGE),
        input_gradient_tensor=FORWARD,
        output_gradient_tensor=of(IMAGE),
        output_roi_gradient_tensor=of(REGIONS),
        **sampling(**changes),
    )


def check(backend: GpuBackend, desc: OperatorDesc, inputs: list[Any], **changes: Any) -> None:
    target = replace(backend.target.exact, **changes)
    expected = reference.evaluate(desc, inputs)
    for got, want in zip(run_desc(backend, desc, inputs, target), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("stem", STEMS)
def test_cases_with_the_schedules_of_gpus(backend: GpuBackend, stem: str) -> None:
    names = [name for name in OPERATOR_CASES[stem].names("standard") if "-owned-" not in name]
    cases = [OPERATOR_CASES[stem].case(name) for name in names]
    complete = [case for case in cases if all(slot.tensor is not None for slot in case.desc.outputs)]
    for case in complete[-SOME:]:
        inputs = case.inputs()
        arrays = [array for array in inputs if array is not None]
        results = run_desc(backend, case.desc, arrays, replace(backend.target.exact, profile=Profile.DISCRETE))
        for got, want, magnitude in zip(results, case.expected(inputs), case.magnitudes(inputs), strict=True):
            verdict = compare(want, got, case.tolerance, magnitude)
            assert verdict.ok, f"{case.name}: {verdict}"


@pytest.mark.parametrize("function", [ReduceFunction.AVERAGE, ReduceFunction.MAX])
def test_samples_in_shares(backend: GpuBackend, function: ReduceFunction) -> None:
    desc = align(reduction_function=function)
    target = replace(backend.target.exact, loop_limit=SHORT // 2)
    assert len(steps_of(desc, target)) > 1
    check(backend, desc, [IMAGE, REGIONS, BATCHES], loop_limit=SHORT // 2)


@pytest.mark.parametrize("function", [ReduceFunction.AVERAGE, ReduceFunction.MAX])
def test_gradients_in_shares(backend: GpuBackend, function: ReduceFunction) -> None:
    desc = gradient(reduction_function=function)
    upstream = RNG.standard_normal(FORWARD.sizes).astype(np.float32)
    target = replace(backend.target.exact, loop_limit=SHORT // 2)
    labels = [step.label for step in steps_of(desc, target)]
    assert ("share 1" in labels) == (function is ReduceFunction.MAX)
    check(backend, desc, [IMAGE, upstream, REGIONS, BATCHES], loop_limit=SHORT // 2)


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
@pytest.mark.parametrize("loop_limit", [None, 4000])
@pytest.mark.parametrize("function", [ReduceFunction.AVERAGE, ReduceFunction.MAX])
def test_gradients_of_more_regions_channels_and_outputs_than_one_invocation_takes(
    backend: GpuBackend, function: ReduceFunction, loop_limit: int | None, profile: Profile
) -> None:
    image = RNG.standard_normal((2, 35, 4, 9)).astype(np.float32)
    regions = np.sort(RNG.integers(-2, 20, (40, 2, 2)), 1).reshape(40, 4).astype(np.float32) / 2
    batches = RNG.integers(0, 3, 40).astype(np.uint32)
    upstream = RNG.integers(-3, 4, (40, 35, 2, 64)).astype(np.float32)
    desc = descs.RoiAlignGrad(
        input_tensor=of(image),
        input_gradient_tensor=of(upstream),
        output_gradient_tensor=of(image),
        output_roi_gradient_tensor=of(regions),
        **sampling(roi_tensor=of(regions), batch_indices_tensor=of(batches), reduction_function=function)
        | {"minimum_samples_per_output": 2, "maximum_samples_per_output": 2},
    )
    inputs = [image, upstream, regions, batches]
    target = replace(backend.target.exact, loop_limit=loop_limit, profile=profile)
    expected = reference.evaluate(desc, inputs)
    for got, want in zip(run_desc(backend, desc, inputs, target), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-2)


def test_bins_in_shares(backend: GpuBackend) -> None:
    rois = np.concatenate([BATCHES[:, None].astype(np.float32), REGIONS], 1)[None, None]
    desc = descs.RoiPooling(
        input_tensor=of(IMAGE),
        roi_tensor=of(rois),
        output_tensor=FORWARD,
        spatial_scale=1.0,
        pooled_size=Size2D(1, 2),
    )
    target = replace(backend.target.exact, loop_limit=320)
    assert len(steps_of(desc, target)) > 2
    check(backend, desc, [IMAGE, rois], loop_limit=320)


@pytest.mark.parametrize("function", [ReduceFunction.AVERAGE, ReduceFunction.MAX])
def test_regions_far_larger_than_the_input_are_no_longer_work(backend: GpuBackend, function: ReduceFunction) -> None:
    regions = np.array([[-5e8, -5e8, 5e8, 5e8]] * 5, np.float32)
    desc = align(reduction_function=function, maximum_samples_per_output=2**32 - 1)
    (got,) = run_desc(backend, desc, [IMAGE, regions, BATCHES], backend.target.exact)
    # Of some 10^17 samples nearly all lie outside.
    assert np.isfinite(got).all()
    if function is ReduceFunction.AVERAGE:
        np.testing.assert_allclose(got, -0.5)
    else:
        assert (got >= -0.5).all()


def test_gradients_do_not_depend_on_the_run(backend: GpuBackend) -> None:
    upstream = RNG.standard_normal(FORWARD.sizes).astype(np.float32)
    inputs = [IMAGE, upstream, REGIONS, BATCHES]
    first, second = (run_desc(backend, gradient(), inputs, backend.target.exact) for _ in range(2))
    for result, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(result, other)
