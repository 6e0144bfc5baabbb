"""Convolutions: checks, and plans as data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dmlgpu import TensorDesc, descs, evaluate
from dmlgpu.catalog.enums import ConvolutionDirection, ConvolutionMode, DataType, FeatureLevel, TensorFlags
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.schedule.steps.products import OperandLayout, ScheduledContract
from dmlgpu.compiler.target import Overrides, Profile, Target
from tests.schedules import steps_of
from tests.unit.rejections import rejection

F32, F16, U8, I8, I32 = DataType.FLOAT32, DataType.FLOAT16, DataType.UINT8, DataType.INT8, DataType.INT32
FORWARD, BACKWARD = ConvolutionDirection.FORWARD, ConvolutionDirection.BACKWARD
CPU, GPU = Target("CPU"), Target("GPU", Profile.DISCRETE)
OWNED = TensorFlags.OWNED_BY_DML


def convolution(**changes: Any) -> descs.Convolution:
    """3 x 3, 16 to 32 channels, on 8 x 8."""
    fields: dict[str, Any] = {
        "input_tensor": TensorDesc(F32, (2, 16, 8, 8)),
        "filter_tensor": TensorDesc(F32, (32, 16, 3, 3)),
        "bias_tensor": None,
        "output_tensor": TensorDesc(F32, (2, 32, 8, 8)),
        "mode": ConvolutionMode.CROSS_CORRELATION,
        "direction": FORWARD,
        "strides": (1, 1),
        "dilations": (1, 1),
        "start_padding": (1, 1),
        "end_padding": (1, 1),
        "output_padding": (0, 0),
        "group_count": 1,
    }
    return descs.Convolution(**fields | changes)


def transposed(**changes: Any) -> descs.Convolution:
    """3 x 3, 16 to 32 channels, 8 x 8 to 15 x 15."""
    fields = {
        "direction": BACKWARD,
        "filter_tensor": TensorDesc(F32, (16, 32, 3, 3)),
        "output_tensor": TensorDesc(F32, (2, 32, 15, 15)),
        "strides": (2, 2),
    }
    return convolution(**fields | changes)


def pointwise(**changes: Any) -> descs.Convolution:
    """1 x 1, 16 to 32 channels, on 8 x 8."""
    fields = {"filter_tensor": TensorDesc(F32, (32, 16, 1, 1)), "start_padding": (0, 0), "end_padding": (0, 0)}
    return convolution(**fields | changes)


# ---- checks


def test_good_convolutions_are_accepted() -> None:
    for desc in (convolution(), transposed(), pointwise()):
        operators.check(desc)
    operators.check(convolution(bias_tensor=TensorDesc(F32, (1, 32, 1, 1))))
    operators.check(convolution(group_count=4, filter_tensor=TensorDesc(F32, (32, 4, 3, 3))))
    operators.check(transposed(output_padding=(1, 0), output_tensor=TensorDesc(F32, (2, 32, 16, 15))))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strides": (1, 0)}, "strides[1] must be at least 1, got 0"),
        ({"dilations": (0, 1)}, "dilations[0] must be at least 1, got 0"),
        ({"group_count": 3}, "group_count must be a divisor of the channels of input_tensor (16), got 3"),
        ({"group_count": 0}, "group_count must be a divisor of the channels of input_tensor (16), got 0"),
        (
            {"filter_tensor": TensorDesc(F32, (32, 8, 3, 3))},
            "filter_tensor.sizes[1] must be 16 (16 channels of input_tensor in 1 groups), got 8",
        ),
        (
            {"group_count": 4, "filter_tensor": TensorDesc(F32, (30, 4, 3, 3))},
            "filter_tensor.sizes[0] must be a multiple of group_count (4), got 30",
        ),
        (
            {"filter_tensor": TensorDesc(F32, (32, 16, 3, 11))},
            "filter_tensor.sizes[3] must reach no further than the padded input (10), but it reaches over 11",
        ),
        (
            {"output_tensor": TensorDesc(F32, (2, 32, 8, 9))},
            "output_tensor.sizes must be [2, 32, 8, 8] (determined by input, filter, strides, dilations and padding),"
            " got [2, 32, 8, 9]",
        ),
        (
            {"bias_tensor": TensorDesc(F32, (1, 16, 1, 1))},
            "bias_tensor.sizes must be [1, 32, 1, 1] (one element per channel of output_tensor), got [1, 16, 1, 1]",
        ),
        ({"output_padding": (0, 1)}, "output_padding must be 0 with direction FORWARD, got [0, 1]"),
    ],
)
def test_bad_convolutions_are_rejected(changes: dict[str, Any], message: str) -> None:
    assert rejection(convolution(**changes)) == f"CONVOLUTION: {message}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"filter_tensor": TensorDesc(F32, (32, 16, 3, 3))},
            "filter_tensor.sizes[0] must be 16 (channels of input_tensor), got 32",
        ),
        (
            {"start_padding": (9, 1), "end_padding": (8, 1)},
            "start_padding[0] + end_padding[0] must leave at least 1 of the 17 elements of the output, got 17",
        ),
        (
            {"group_count": 2},
            "output_tensor.sizes must be [2, 64, 15, 15], at most [2, 64, 16, 16] (determined by input, filter,"
            " strides, dilations and padding), got [2, 32, 15, 15]",
        ),
        (
            {"output_tensor": TensorDesc(F32, (2, 32, 15, 17))},
            "output_tensor.sizes must be [2, 32, 15, 15], at most [2, 32, 16, 16] (determined by input, filter,"
            " strides, dilations and padding), got [2, 32, 15, 17]",
        ),
        (
            {"output_tensor": TensorDesc(F32, (2, 32, 14, 15))},
            "output_tensor.sizes must be [2, 32, 15, 15], at most [2, 32, 16, 16] (determined by input, filter,"
            " strides, dilations and padding), got [2, 32, 14, 15]",
        ),
        (
            {"strides": (1, 1), "output_tensor": TensorDesc(F32, (2, 32, 8, 9))},
            "output_tensor.sizes must be [2, 32, 8, 8] (determined by input, filter, strides, dilations and padding),"
            " got [2, 32, 8, 9]",
        ),
    ],
)
def test_bad_transposed_convolutions_are_rejected(changes: dict[str, Any], message: str) -> None:
    assert rejection(transposed(**changes)) == f"CONVOLUTION: {message}"


@pytest.mark.parametrize("more", [(0, 1), (1, 0), (1, 1)])
def test_a_transposed_output_that_is_larger_is_padded(more: tuple[int, int]) -> None:
    """As long as a forward convolution of it has the sizes of the input."""
    output = TensorDesc(F32, (2, 32, 15 + more[0], 15 + more[1]))
    larger, padded = transposed(output_tensor=output), transposed(output_tensor=output, output_padding=more)
    forward = convolution(
        input_tensor=output,
        filter_tensor=TensorDesc(F32, (16, 32, 3, 3)),
        output_tensor=larger.input_tensor,
        strides=(2, 2),
    )
    operators.check(forward)
    texts = []
    for desc in (larger, padded):
        operators.check(desc)
        texts.append([kernel.wgsl for kernel in compiler.compile_operator(desc, GPU).kernels])
    assert texts[0] == texts[1]
    rng = np.random.default_rng(1)
    operands = larger.input_tensor, larger.filter_tensor
    arrays = [rng.standard_normal(tensor.sizes).astype(np.float32) for tensor in operands]
    (got,), (expected,) = (evaluate(desc, arrays, "numpy") for desc in (larger, padded))
    assert np.array_equal(got, expected)


def test_the_level_of_a_fused_softplus_is_checked() -> None:
    desc = convolution(fused_activation=descs.ActivationSoftplus(steepness=0.5))
    operators.check(desc)
    assert rejection(desc, FeatureLevel.LEVEL_6_3) == (
        "CONVOLUTION: fused_activation.steepness must be at least 1 below feature level 6_4, got 0.5"
    )


def integer(**changes: Any) -> descs.ConvolutionInteger:
    fields: dict[str, Any] = {
        "input_tensor": TensorDesc(U8, (1, 4, 8)),
        "input_zero_point_tensor": None,
        "filter_tensor": TensorDesc(I8, (6, 4, 3)),
        "filter_zero_point_tensor": None,
        "output_tensor": TensorDesc(I32, (1, 6, 6)),
        "strides": (1,),
        "dilations": (1,),
        "start_padding": (0,),
        "end_padding": (0,),
        "group_count": 1,
    }
    return descs.ConvolutionInteger(**fields | changes)


@pytest.mark.parametrize("sizes", [(1,), (6,), (1, 6), (1, 6, 1), (1, 6, 1, 1), (1, 1, 1, 1)])
def test_zero_points_of_the_filter(sizes: tuple[int, ...]) -> None:
    operators.check(integer(filter_zero_point_tensor=TensorDesc(I8, sizes)))


def test_zero_points_elsewhere_are_rejected() -> None:
    assert rejection(integer(filter_zero_point_tensor=TensorDesc(I8, (1, 4, 1)))) == (
        "CONVOLUTION_INTEGER: filter_zero_point_tensor.sizes must be [1, 1, 1] (one for all) or [1, 6, 1]"
        " (one per channel), got [1, 4, 1]"
    )
    assert rejection(integer(input_zero_point_tensor=TensorDesc(U8, (1, 4, 1)))) == (
        "CONVOLUTION_INTEGER: input_zero_point_tensor.sizes must be [1, 1, 1] (one for all), got [1, 4, 1]"
    )


# ---- plans


def contracts(desc: descs.Convolution, target: Target) -> list[ScheduledContract]:
    return [step for step in steps_of(desc, target) if isinstance(step, ScheduledContract)]


def labels(program: Program) -> list[str]:
    return [kernel.label.removeprefix("convolution ") for kernel in program.kernels]


def holds(program: Program, file: str) -> bool:
    """Return whether the source of some kernel contains a shader file."""
    return any(f"// ---- shaders/{file}.wgsl" in kernel.wgsl for kernel in program.kernels)


def by(schedule: str, profile: Profile = Profile.CPU) -> Target:
    return Target("Adapter", profile, overrides=Overrides(schedule=schedule))


def nhwc(sizes: tuple[int, int, int, int]) -> TensorDesc:
    _, channels, height, width = sizes
    return TensorDesc(F32, sizes, (channels * height * width, 1, channels * width, channels))


NHWC = {"input_tensor": nhwc((2, 16, 8, 8)), "output_tensor": nhwc((2, 32, 8, 8))}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (by("small"), ["small"]),
        (by("register"), ["lay out b", "register x4"]),
        (by("shared", Profile.DISCRETE), ["shared x4"]),
    ],
    ids=["small", "register", "shared"],
)
def test_nhwc_is_read_in_place(target: Target, expected: list[str]) -> None:
    """The input is not copied; only the filter is repacked, for tiles in registers."""
    assert labels(compiler.compile_operator(convolution(**NHWC), target)) == expected


def test_nhwc_is_read_in_units_along_the_channels() -> None:
    (step,) = contracts(convolution(**NHWC), by("shared", Profile.DISCRETE))
    assert (step.space.rows, step.space.columns, step.space.inner) == ((2, 8, 8), (32,), (3, 3, 16))
    assert step.a.layout is OperandLayout.ALONG and step.output.lanes == 4


def test_windows_are_columns_if_memory_is_contiguous_along_positions() -> None:
    (step,) = contracts(convolution(), by("shared", Profile.DISCRETE))
    assert (step.space.rows, step.space.columns, step.space.inner) == ((32,), (2, 8, 8), (16, 3, 3))


def test_gpus_read_filters_in_units_and_windows_without_branches() -> None:
    desc, target = (
        convolution(strides=(2, 2), output_tensor=TensorDesc(F32, (2, 32, 4, 4))),
        by("shared", Profile.DISCRETE),
    )
    (step,) = contracts(desc, target)
    assert (step.a.layout, step.a.inner, step.a.source.sizes) == (OperandLayout.ALONG, 1, (1, 32, 36))
    assert (step.b.layout, step.b.inner, step.b.source.sizes) == (OperandLayout.SEEN, 3, (2, 1, 16, 8, 8))
    assert not holds(compiler.compile_operator(desc, target), "window/taken")


def test_parts_of_a_filter_begin_at_units() -> None:
    """9 elements of a channel: units of four begin with every fourth channel."""
    desc = convolution(
        input_tensor=TensorDesc(F32, (1, 500, 8, 8)),
        filter_tensor=TensorDesc(F32, (32, 500, 3, 3)),
        output_tensor=TensorDesc(F32, (1, 32, 8, 8)),
    )
    (step,) = contracts(desc, by("shared-split", Profile.DISCRETE))
    assert step.a.layout is OperandLayout.ALONG and step.parts > 1 and step.share % 4 == 0
    (step,) = contracts(desc, by("shared", Profile.DISCRETE).with_policies(precise=True))
    assert step.chunk == 112


def test_a_window_of_one_element_is_a_view() -> None:
    stepped = pointwise(strides=(2, 3), output_tensor=TensorDesc(F32, (2, 32, 4, 3)))
    for desc in (pointwise(), stepped):
        program = compiler.compile_operator(desc, by("small"))
        assert labels(program) == ["small"] and not holds(program, "window/taken")


def test_a_window_of_one_element_with_padding_is_no_view() -> None:
    desc = pointwise(start_padding=(1, 0), output_tensor=TensorDesc(F32, (2, 32, 9, 8)))
    assert holds(compiler.compile_operator(desc, by("small")), "window/taken")


@pytest.mark.parametrize(
    ("desc", "expected"),
    [
        (convolution(filter_tensor=TensorDesc(F32, (32, 16, 3, 3), flags=OWNED)), 1),
        (transposed(filter_tensor=TensorDesc(F32, (16, 32, 3, 3), flags=OWNED)), 4),
    ],
    ids=["plain", "in phases"],
)
def test_an_owned_filter_is_laid_out_once(desc: descs.Convolution, expected: int) -> None:
    """Each phase of a transposed convolution has its elements of the filter in a separate tensor."""
    program = compiler.compile_operator(desc, by("register"))
    assert len(program.initialization) == expected
    assert program.persistent_size == 4 * 32 * 16 * 9
    slots = [slot for kernel in program.kernels for slot in kernel.slots]
    assert {slot.index for slot in slots if slot.role is Role.INPUT} == {0}


def test_a_flipped_filter_is_a_view() -> None:
    assert labels(compiler.compile_operator(convolution(mode=ConvolutionMode.CONVOLUTION), by("small"))) == ["small"]


def test_a_transposed_convolution_is_a_product_per_phase() -> None:
    """Of 3 x 3 elements with strides of 2, phases use 4, 2, 2 and 1."""
    places = [math.prod(step.space.inner[1:]) for step in contracts(transposed(), by("shared", Profile.DISCRETE))]
    assert sorted(places) == [1, 2, 2, 4]
    assert compiler.compile_operator(transposed(), by("small")).temporary_size == 0


def apart(steps: int, side: int = 8, **changes: Any) -> descs.Convolution:
    """Return a transposed convolution whose windows do not overlap."""
    filters, output = TensorDesc(F32, (16, 32, steps, steps)), TensorDesc(F32, (2, 32, steps * 8, steps * side))
    padding = {"start_padding": (0, 0), "end_padding": (0, 0), "strides": (steps, steps)}
    tensors = {"input_tensor": TensorDesc(F32, (2, 16, 8, side)), "filter_tensor": filters, "output_tensor": output}
    return transposed(**tensors | padding | changes)


@pytest.mark.parametrize("steps", [2, 4])
@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
def test_windows_that_do_not_overlap_are_one_product(target: Target, steps: int) -> None:
    """Rows are outputs by taps; those of the last dimension are contiguous in whole units of the output."""
    (step,) = contracts(apart(steps), target)
    assert (step.space.rows, step.space.columns, step.space.inner) == ((32, steps, steps), (2, 8, 8), (16,))
    assert (step.interleaved, step.output.lanes, step.output.sizes) == (steps, 4, (1, 32, steps, 2, 8, 2 * steps))


@pytest.mark.parametrize(
    ("desc", "target"),
    [
        (apart(3), CPU),
        (apart(2, 7), CPU),
        (apart(2), by("small")),
        (apart(2), by("register-split")),
        (apart(2, filter_tensor=TensorDesc(F32, (16, 32, 2, 2)), dilations=(2, 2), end_padding=(1, 1)), CPU),
        (apart(2, output_tensor=TensorDesc(F32, (2, 32, 16, 16), (32 * 512, 512, 32, 2))), CPU),
    ],
    ids=["three steps", "half a unit", "small", "split", "dilated", "no units"],
)
def test_other_transposed_windows_are_a_product_per_phase(desc: descs.Convolution, target: Target) -> None:
    operators.check(desc)
    assert all(step.interleaved == 1 for step in contracts(desc, target))
    assert len(steps_of(desc, target)) >= 4


def test_windows_are_read_row_by_row_on_cpus() -> None:
    """An iteration takes a row of the window, and loads each unit of the input once."""
    desc = convolution(strides=(2, 2), output_tensor=TensorDesc(F32, (2, 32, 4, 4)))
    (step,) = contracts(desc, by("register"))
    assert (step.b.layout, step.steps, step.b.source.sizes) == (OperandLayout.WINDOW, 3, (2, 1, 16, 8, 2))
    text = compiler.compile_operator(desc, by("register")).kernels[-1].wgsl
    assert text.count("= b_load(source)") == 3 and "window/taken" not in text
    (on_gpu,) = contracts(desc, by("register", Profile.DISCRETE))
    assert (on_gpu.b.layout, on_gpu.steps) == (OperandLayout.SINGLE, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"end_padding": (1, 0), "output_tensor": TensorDesc(F32, (2, 32, 8, 7))},
        {"filter_tensor": TensorDesc(F32, (32, 16, 9, 9)), "start_padding": (4, 4), "end_padding": (4, 4)},
    ],
    ids=["no whole units", "nine places"],
)
def test_other_windows_are_read_one_by_one(changes: dict[str, Any]) -> None:
    (step,) = contracts(convolution(**changes), by("register"))
    assert step.b.layout is OperandLayout.SINGLE


def test_elements_without_taps_are_computed_too() -> None:
    """1 x 1 with strides of 2: three of four phases have only the bias."""
    fields = {"filter_tensor": TensorDesc(F32, (16, 32, 1, 1)), "start_padding": (0, 0), "end_padding": (0, 0)}
    program = compiler.compile_operator(transposed(**fields), by("small"))
    assert labels(program) == ["small", *["nothing to sum"] * 3]


@pytest.mark.parametrize(("stride", "side", "is_spread"), [(1, 8, False), (4, 29, False), (5, 36, True)])
def test_very_many_phases_become_a_spread_input(stride: int, side: int, is_spread: bool) -> None:
    output = TensorDesc(F32, (2, 32, side, side))
    desc = transposed(strides=(stride, stride), output_tensor=output)
    assert holds(compiler.compile_operator(desc, by("small")), "layout/slice_grad") is is_spread


def test_float16_is_summed_in_float32() -> None:
    tensors = {
        "input_tensor": TensorDesc(F16, (2, 16, 8, 8)),
        "filter_tensor": TensorDesc(F16, (32, 16, 3, 3)),
        "output_tensor": TensorDesc(F16, (2, 32, 8, 8)),
    }
    (step,) = contracts(convolution(**tensors), CPU)
    assert step.accumulator is F32


def test_a_quantized_convolution_binds_at_most_eight_buffers() -> None:
    scale, sizes = TensorDesc(F32, (1, 1, 1, 1)), (1, 8, 9, 9)
    desc = descs.QuantizedLinearConvolution(
        input_tensor=TensorDesc(U8, sizes),
        input_scale_tensor=scale,
        input_zero_point_tensor=TensorDesc(U8, (1, 1, 1, 1)),
        filter_tensor=TensorDesc(I8, (8, 8, 3, 3)),
        filter_scale_tensor=TensorDesc(F32, (1, 8, 1, 1)),
        filter_zero_point_tensor=TensorDesc(I8, (1, 8, 1, 1)),
        bias_tensor=TensorDesc(I32, (1, 8, 1, 1)),
        output_scale_tensor=scale,
        output_zero_point_tensor=TensorDesc(U8, (1, 1, 1, 1)),
        output_tensor=TensorDesc(U8, sizes),
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(1, 1),
        end_padding=(1, 1),
        group_count=1,
    )
    operators.check(desc)
    for schedule in ("small", "register", "shared"):
        program = compiler.compile_operator(desc, by(schedule))
        assert max(len(kernel.slots) for kernel in program.kernels) <= 8


def test_an_unknown_schedule_is_rejected() -> None:
    with pytest.raises(
        InvalidArgument, match=r"a schedule must be one of .*implicit-gemm \(convolution\).*, got 'fast'"
    ):
        compiler.compile_operator(convolution(), by("fast"))
