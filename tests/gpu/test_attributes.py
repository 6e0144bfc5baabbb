"""Special values of attributes on every adapter. Without ``--profile`` those that drivers once computed wrongly, and a
sample, by the schedules for CPUs and for GPUs in turn; with it, all cases of the profile by both."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog.enums import DataType, InterpolationMode, ReduceFunction
from dmlgpu.compiler.target import Profile
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.suites.attributes import AttributeSuite
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.evaluate import evaluate
from dmlgpu.runtime.wgpu import GpuBackend

SUITE = AttributeSuite()
SCHEDULES = (Profile.CPU, Profile.DISCRETE)

ONCE_WRONG = (
    "activation_elu-attributes-float32-alpha-tiny",  # 0 * x has a sign
    "activation_leaky_relu-attributes-float32-alpha-zero",  # 0 * NaN is NaN
    "activation_softplus-attributes-float32-steepness-zero",  # x / 0 is infinite; nothing was stored
    "adam_optimizer-attributes-float32-beta1-one",  # 1 - 1^step is 0, not -0
    "convolution-attributes-float32-fused_activation.element_wise_clip.scale_bias.scale-tiny",  # a fused ScaleBias
    "element_wise_atan-attributes-float32-scale_bias.bias-zero",  # -0 + 0 is 0
    "element_wise_ceil-attributes-float32-scale_bias.scale-negative_zero",
    "diagonal_matrix-attributes-float32-value-minus_one",  # a choice between -1 and 0 is none between -1 and -0
    "fill_value_sequence-attributes-float32-value_delta-nan",  # NaN * 0 is NaN
    "gemm-attributes-float32-alpha-negative_zero",
    "local_response_normalization_grad-attributes-float32-beta-negative_zero",
    "mean_variance_normalization1-attributes-float32-fused_activation.activation_softplus.steepness-negative_infinity",
)

SHARE = 300
"""Of how many standard cases the sample takes one; those of recurrent operators have dozens of kernels."""


def sampled(profile: str | None) -> Iterator[tuple[str, Profile]]:
    """The cases to run, and by which schedules."""
    if profile is not None:
        yield from ((name, schedules) for name in SUITE.names(profile) for schedules in SCHEDULES)
        return
    quick_to_compile = (name for name in SUITE.names("standard") if "activation_descs" not in name)
    sample = (name for name in quick_to_compile if zlib.crc32(name.encode()) % SHARE == 0)
    for index, name in enumerate(dict.fromkeys((*ONCE_WRONG, *sample))):
        yield name, SCHEDULES[index % len(SCHEDULES)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case_name" in metafunc.fixturenames:
        metafunc.parametrize(("case_name", "schedules"), list(sampled(metafunc.config.getoption("--profile"))))


@pytest.fixture
def schedules_of(backend: GpuBackend, schedules: Profile) -> Iterator[Device]:
    """A device with the schedules."""
    usual = backend.target
    backend.target = replace(usual, profile=schedules)
    yield Device.from_backend(backend)
    backend.target = usual


def test_a_case_passes(schedules_of: Device, case_name: str) -> None:
    outcome = SUITE.run(case_name, schedules_of)
    assert outcome.status is Status.PASS, outcome


@pytest.mark.parametrize(
    ("data_type", "value"), [(DataType.FLOAT32, -1.0), (DataType.INT32, -1082130432), (DataType.UINT64, 0xBF800000)]
)
def test_a_diagonal_of_the_word_of_minus_one_lies_over_zeros(
    backend: GpuBackend, data_type: DataType, value: float
) -> None:
    output = TensorDesc(data_type, (3, 3))
    desc = descs.DiagonalMatrix1(
        input_tensor=None,
        output_tensor=output,
        value_data_type=data_type,
        value=value,
        diagonal_fill_begin=0,
        diagonal_fill_end=1,
    )
    (got,) = evaluate(desc, [None], device=Device.from_backend(backend))
    expected = np.eye(3, dtype=bool) * np.array(value, data_type.numpy)
    assert np.array_equal(got, np.where(np.eye(3, dtype=bool), expected, 0))
    assert not np.signbit(got[~np.eye(3, dtype=bool)].astype(np.float64)).any()


def test_a_scale_of_0_makes_an_infinite_region_nan(backend: GpuBackend) -> None:
    """Infinity times 0 is NaN: samples of such a region lie outside the input, whose value is taken."""
    desc = descs.RoiAlign1(
        input_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 4, 4)),
        roi_tensor=TensorDesc(DataType.FLOAT32, (2, 4)),
        batch_indices_tensor=TensorDesc(DataType.UINT32, (2,)),
        output_tensor=TensorDesc(DataType.FLOAT32, (2, 1, 2, 2)),
        reduction_function=ReduceFunction.AVERAGE,
        interpolation_mode=InterpolationMode.LINEAR,
        spatial_scale_x=0.0,
        spatial_scale_y=-0.0,
        input_pixel_offset=0.0,
        output_pixel_offset=0.0,
        out_of_bounds_input_value=7.0,
        minimum_samples_per_output=1,
        maximum_samples_per_output=2,
        align_regions_to_corners=False,
    )
    regions = np.array([[0, 0, np.inf, np.inf], [0, 0, 3, 3]], np.float32)
    image = np.arange(5, 21, dtype=np.float32).reshape(1, 1, 4, 4)
    (got,) = evaluate(desc, [image, regions, np.zeros(2, np.uint32)], device=Device.from_backend(backend))
    assert np.array_equal(got[0], np.full((1, 2, 2), 7)) and np.array_equal(got[1], np.full((1, 2, 2), 5))
