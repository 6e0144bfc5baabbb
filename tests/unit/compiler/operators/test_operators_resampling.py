"""Resampling: validation, upgrades of older operators, plans."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgpu import descs
from dmlgpu.catalog.enums import AxisDirection, DataType, FeatureLevel, InterpolationMode
from dmlgpu.catalog.operator_desc import Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.catalog.validation import validate
from dmlgpu.common.errors import DmlError, NotSupported
from dmlgpu.compiler import operators
from dmlgpu.compiler.plan import PlanTensor, Role, View
from dmlgpu.compiler.rewrites import resampling
from dmlgpu.compiler.rewrites.resampling import ResampledAxis, Rounding
from dmlgpu.compiler.schedule.resampling import FEW_TAPS, find_pattern, find_stencil
from dmlgpu.compiler.schedule.steps.maps import ScheduledDownsample, ScheduledMap, ScheduledUpsample, Stencil, Tap
from dmlgpu.compiler.schedule.steps.products import ScheduledTiles
from dmlgpu.compiler.schedule.steps.reductions import ScheduledReduce
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Profile, Target
from tests.schedules import steps_of
from tests.unit.rejections import rejection, table_rejection

FLOAT, BYTE = DataType.FLOAT32, DataType.UINT8
LINEAR, NEAREST = InterpolationMode.LINEAR, InterpolationMode.NEAREST_NEIGHBOR
UP, DOWN = AxisDirection.INCREASING, AxisDirection.DECREASING
TARGET = Target("any", profile=Profile.CPU)


def resample3(counts, sizes=(1, 2, 6, 8), **changes):
    data_type, rank = changes.pop("data_type", FLOAT), len(sizes)
    values = {
        "input_tensor": TensorDesc(data_type, sizes),
        "output_tensor": TensorDesc(data_type, counts),
        "interpolation_mode": LINEAR,
        "rounding_direction": DOWN,
        "scales": tuple(count / size for count, size in zip(counts, sizes, strict=True)),
        "input_pixel_offsets": (0.5,) * rank,
        "output_pixel_offsets": (-0.5,) * rank,
        "antialiased": False,
    }
    return descs.Resample3(**(values | changes))


def resample_grad1(mode=NEAREST, **changes):
    values = {
        "input_gradient_tensor": TensorDesc(FLOAT, (3, 4)),
        "output_gradient_tensor": TensorDesc(FLOAT, (6, 2)),
        "interpolation_mode": mode,
        "rounding_direction": DOWN,
        "scales": (0.5, 2.0),
        "input_pixel_offsets": (0.0, 0.0),
        "output_pixel_offsets": (0.0, 0.0),
    }
    return descs.ResampleGrad1(**(values | changes))


def upsample(scale, sizes=(1, 2, 3, 4), counts=None, mode=LINEAR):
    output_sizes = (*sizes[:-2], sizes[-2] * scale.height, sizes[-1] * scale.width) if counts is None else counts
    return descs.Upsample2d(
        input_tensor=TensorDesc(FLOAT, sizes),
        output_tensor=TensorDesc(FLOAT, output_sizes),
        scale_size=scale,
        interpolation_mode=mode,
    )


def steps(desc):
    operators.check(desc)
    return steps_of(desc, TARGET)


# ---- validation


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scales": (1.0, 1.0, 0.0, 2.0)}, "scales[2] must be a positive normal float, got 0.0"),
        ({"scales": (1.0, -2.0, 1.0, 2.0)}, "scales[1] must be a positive normal float, got -2.0"),
        ({"scales": (1.0, 1.0, 1.0, float("inf"))}, "scales[3] must be a positive normal float, got inf"),
        ({"scales": (1.0, 1.0, 1e39, 1.0)}, "scales[2] must be a positive normal float, got 1e+39"),
        ({"scales": (1.0, 1.0, 1.0, float("nan"))}, "scales[3] must be a positive normal float, got nan"),
        (
            {"input_pixel_offsets": (float("nan"), 0.0, 0.0, 0.0)},
            "input_pixel_offsets[0] must be a finite float, got nan",
        ),
        (
            {"output_pixel_offsets": (0.0, 0.0, 0.0, float("-inf"))},
            "output_pixel_offsets[3] must be a finite float, got -inf",
        ),
    ],
)
def test_parameters_without_finite_coordinates_are_rejected(changes, message):
    assert rejection(resample3((1, 2, 12, 16), **changes)) == f"RESAMPLE3: {message}"


def test_gradients_are_checked_as_resampling_is():
    assert (
        rejection(resample_grad1(scales=(0.5, 0.0)))
        == "RESAMPLE_GRAD1: scales[1] must be a positive normal float, got 0.0"
    )
    message = "input_pixel_offsets must have 2 entries, one per dimension of input_gradient_tensor, got 1"
    assert table_rejection(resample_grad1(input_pixel_offsets=(0.5,))) == f"RESAMPLE_GRAD1: {message}"


def test_upsampled_sizes_follow_from_the_scales():
    message = "must be [1, 2, 9, 8] (height and width multiplied by scale_size), got [1, 2, 9, 9]"
    assert (
        rejection(upsample(Size2D(width=2, height=3), counts=(1, 2, 9, 9)))
        == f"UPSAMPLE_2D: output_tensor.sizes {message}"
    )
    assert rejection(upsample(Size2D(width=0, height=3))) == "UPSAMPLE_2D: scale_size.width must be at least 1, got 0"


@pytest.mark.parametrize(
    ("desc", "level"),
    [
        (upsample(Size2D(2, 2)), FeatureLevel.LEVEL_1_0),
        (resample_grad1(), FeatureLevel.LEVEL_5_1),
        (resample3((1, 2, 12, 16), data_type=BYTE), FeatureLevel.LEVEL_6_4),
    ],
    ids=lambda value: getattr(value, "operator", value),
)
def test_the_first_feature_level(desc, level):
    validate(desc, level)
    below = [lower for lower in FeatureLevel if lower < level]
    if below:
        with pytest.raises(DmlError, match=desc.operator):
            validate(desc, below[-1])


# ---- older operators


def older(desc_class, mode, **more):
    tensors = {"input_tensor": TensorDesc(FLOAT, (4,)), "output_tensor": TensorDesc(FLOAT, (2,))}
    return desc_class(interpolation_mode=mode, scales=(0.5,), **tensors, **more)


@pytest.mark.parametrize(("mode", "offset"), [(LINEAR, 0.5), (NEAREST, 0.0)])
def test_older_operators_round_ties_up(mode, offset):
    offsets = {"input_pixel_offsets": (0.5,), "output_pixel_offsets": (-0.5,)}
    for desc in (older(descs.Resample, mode), older(descs.Resample1, mode, **offsets)):
        newest = operators.upgrade(desc)
        assert newest == older(
            descs.Resample3,
            mode,
            rounding_direction=DOWN,
            input_pixel_offsets=(offset,),
            output_pixel_offsets=(-0.5,),
            antialiased=False,
        )
        operators.check(newest)


def test_resample2_is_not_antialiased():
    offsets = {"input_pixel_offsets": (0.25,), "output_pixel_offsets": (1.0,), "rounding_direction": UP}
    desc = older(descs.Resample2, NEAREST, **offsets)
    assert operators.upgrade(desc) == older(descs.Resample3, NEAREST, **offsets, antialiased=False)


@pytest.mark.parametrize(("mode", "offset"), [(LINEAR, 0.25), (NEAREST, -0.25)])
def test_older_gradients_round_ties_up(mode, offset):
    newest = resample_grad1(mode, input_pixel_offsets=(offset, offset))
    fields = {name: getattr(newest, name) for name in newest.field_names if name != "rounding_direction"}
    desc = descs.ResampleGrad(**(fields | {"input_pixel_offsets": (0.25, 0.25)}))
    assert operators.upgrade(desc) == newest


# ---- schedules


def test_descriptions_without_resampling_are_copies():
    for mode in (LINEAR, NEAREST):
        (step,) = steps(resample3((1, 2, 6, 8), interpolation_mode=mode))
        assert step.body.moves and step.output.sizes == (24,)
    (step,) = steps(upsample(Size2D(1, 1)))
    assert step.body.moves


def test_only_dimensions_with_other_coordinates_are_resampled():
    (step,) = steps(resample3((1, 2, 4, 8), interpolation_mode=NEAREST))
    assert [axis.dimension for axis in dict(step.body.constants)["axes"]] == [2]
    assert step.lanes == 4


def test_interpolation_goes_along_two_axes_at_a_time():
    kernels = steps(resample3((3, 5, 7, 11)))
    assert [type(step) for step in kernels] == [ScheduledMap, ScheduledMap]
    assert [[axis.dimension for axis in dict(step.body.constants)["axes"]] for step in kernels] == [[2, 3], [1, 0]]


def test_antialiasing_sums_axis_by_axis():
    """A scale of a tenth has more elements under a triangle than a body sums, a half has four."""
    tenth, half = steps(resample3((1, 2, 2, 3), sizes=(1, 2, 20, 6), antialiased=True))
    assert isinstance(tenth, ScheduledReduce) and tenth.source.sizes[-1] > FEW_TAPS
    assert (half.body.file, dict(half.body.constants)["taps"]) == (resampling.ANTIALIASED_SUM, 4)
    assert (
        steps(resample3((1, 2, 3, 2), antialiased=True, interpolation_mode=NEAREST))[0].body.file == resampling.NEAREST
    )


def test_long_sums_take_two_steps():
    desc = resample3((1, 1), sizes=(1, 1 << 20), antialiased=True)
    assert [step.label for step in steps(desc)] == ["partial", "serial of partials"]


OFFSETS = st.sampled_from([1.0, 1e3, 1e9]).flatmap(
    lambda most: st.one_of(st.sampled_from([0.0, 0.5, -0.5]), st.floats(-3, 3, width=32).map(lambda x: x * most))
)
AXES = st.builds(
    lambda **fields: ResampledAxis.of(*fields.values()),
    dimension=st.just(0),
    size=st.integers(1, 60),
    count=st.integers(1, 200),
    scale=st.one_of(st.sampled_from([0.5, 1.0, 2.0]), st.floats(0.0625, 16, width=32)),
    input_offset=OFFSETS,
    output_offset=OFFSETS,
)
ROUNDINGS = st.sampled_from([None, Rounding(increasing=True), Rounding(increasing=False)])


@settings(max_examples=150)
@given(AXES, ROUNDINGS)
def test_estimated_users_include_all_enumerated_users(axis, rounding):
    places = axis.places(rounding)
    line, taps = resampling.estimated_line(axis, rounding)
    for element in range(axis.size):
        users = np.flatnonzero(np.abs(places - element) < (1 if rounding is None else 0.5))
        first = int(line.at(np.array([element]))[0])
        assert all(first <= user < first + taps for user in users)


def test_estimated_users_of_an_upsampled_axis_are_few():
    axis = ResampledAxis.of(0, 1 << 12, 1 << 14, 4.0, 0.5, -0.5)
    exact = resampling.line_below(axis, *resampling.users(axis, None))
    assert exact[1] == 8 <= resampling.estimated_line(axis, None)[1] <= 11


def antialiased_taps(axis):
    source = PlanTensor.of(Role.INPUT, 0, TensorDesc(FLOAT, (axis.size,)), View.COMPUTE)
    return dict(resampling.antialiased(source, axis).constants)["taps"]


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 0.5, 1 / 3, 1.0, 4.0])
def test_estimated_triangles_include_enumerated_elements(scale, monkeypatch):
    axis = ResampledAxis.of(0, 5000, 4000, scale, 0.5, -0.5)
    exact = antialiased_taps(axis)
    monkeypatch.setattr(resampling, "LONGEST_LISTED", 1000)
    assert exact <= antialiased_taps(axis) <= exact + 5


def test_too_many_pairs_are_rejected():
    far = {"input_pixel_offsets": (-1e9,), "scales": (1.0,)}
    sizes = {name: TensorDesc(FLOAT, (1 << 20,)) for name in ("input_gradient_tensor", "output_gradient_tensor")}
    desc = resample_grad1(LINEAR, output_pixel_offsets=(0.0,), **far, **sizes)
    with pytest.raises(NotSupported) as error:
        operators.lower(desc)
    assert str(error.value) == (
        "scales[0] (1) and its pixel offsets make 1048576 elements look at 1048576 others each,"
        " beyond 1073741824 pairs in all"
    )


@pytest.mark.parametrize(
    ("size", "count", "fields", "converted"),
    [
        (4, 1 << 24, {"interpolation_mode": NEAREST}, "number"),
        (1 << 24, 4, {}, "low0"),
        ((1 << 23) - 1, 4, {"antialiased": True}, "here"),
    ],
    ids=["outputs", "inputs", "inputs under triangles"],
)
def test_indices_are_converted_in_integers_where_float32_is_not_exact(size, count, fields, converted):
    """Conversions of larger numbers may round in other ways on other adapters."""
    for longer in (0, 8):
        grown = (size + longer, count) if size > count else (size, count + longer)
        scale = 2.0 ** round(math.log2(count / size))
        desc = resample3((grown[1],), (grown[0],), data_type=BYTE, scales=(scale,), **fields)
        text = "".join(kernel.wgsl for kernel in compile_operator(desc, TARGET).kernels)
        assert f"{'u32_to_f32' if longer else 'f32'}({converted})" in text
        assert (f"u32_to_f32({converted})" in text) == (longer > 0)


def test_whole_factors_are_written_in_whole_units():
    (step,) = steps(resample3((1, 2, 12, 16)))
    assert isinstance(step, ScheduledUpsample) and (step.columns.factor, step.rows.factor) == (2, 2)
    for mode in (LINEAR, NEAREST):
        (step,) = steps(upsample(Size2D(width=2, height=1), mode=mode))
        assert isinstance(step, ScheduledUpsample) and step.rows is None
    for other in (resample3((1, 2, 9, 16)), resample3((1, 2, 12, 14), sizes=(1, 2, 6, 7)), resample3((1, 2, 12, 8))):
        assert [type(step) for step in steps(other)] == [ScheduledMap]


def test_adjacent_invocations_of_gpus_write_adjacent_units():
    desc = resample3((1, 2, 12, 16))
    (step,) = steps_of(desc, Target("any", profile=Profile.DISCRETE))
    assert (step.split, step.walk.count) == (True, 2 * 6 * 4)
    (step,) = steps_of(desc, Target("any", profile=Profile.CPU))
    assert (step.split, step.walk.count) == (False, 2 * 6 * 2)


def test_antialiasing_by_whole_factors_is_written_in_whole_units():
    down, along = steps(resample3((1, 2, 5, 8), sizes=(1, 2, 10, 16), antialiased=True))
    assert isinstance(down, ScheduledDownsample) and (down.stencil.dimension, down.rows, down.walk.count) == (2, 4, 16)
    assert isinstance(along, ScheduledDownsample) and (along.stencil.dimension, along.rows) == (3, 1)
    fields = {"sizes": (1, 2, 10, 16), "antialiased": True}
    (step,) = steps_of(resample3((1, 2, 5, 16), **fields), Target("any", profile=Profile.DISCRETE))
    assert isinstance(step, ScheduledDownsample) and step.rows == 1
    for counts, sizes in [((1, 2, 5, 9), (1, 2, 10, 9)), ((1, 2, 5, 6), (1, 2, 5, 12)), ((1, 2, 4, 8), (1, 2, 10, 8))]:
        (step,) = steps(resample3(counts, sizes=sizes, antialiased=True))
        assert not isinstance(step, ScheduledDownsample)


def test_elements_at_one_coordinate_share_weights():
    """Two units in a row; four elements in four rows along the last axis; four in a row if units do not fit."""
    for counts, sizes, tile in [
        ((1, 2, 4, 16), (1, 2, 10, 16), (1, 1, 1, 8)),
        ((1, 2, 6, 4), (1, 2, 6, 10), (1, 1, 4, 1)),
        ((1, 2, 4, 9), (1, 2, 10, 9), (1, 1, 1, 4)),
    ]:
        desc = resample3(counts, sizes=sizes, antialiased=True)
        (step,) = steps(desc)
        assert isinstance(step, ScheduledTiles) and step.tile == tile
        (step,) = steps_of(desc, Target("any", profile=Profile.DISCRETE))
        assert isinstance(step, ScheduledMap)
    for counts, sizes in [((1, 2, 4, 4), (1, 2, 10, 4)), ((1, 1, 2, 4), (1, 1, 2, 10)), ((4,), (10,))]:
        assert [type(step) for step in steps(resample3(counts, sizes=sizes, antialiased=True))] == [ScheduledMap]
    halves = resample3((1, 2, 4, 16), sizes=(1, 2, 10, 16), antialiased=True, data_type=DataType.FLOAT16)
    assert [type(step) for step in steps(halves)] == [ScheduledMap]


def test_antialiased_axes_that_grow_are_interpolated():
    (grown,) = steps(resample3((1, 2, 7, 10), antialiased=True))
    assert grown.body.file == resampling.LINEAR
    shrunk, grown = steps(resample3((1, 2, 7, 6), antialiased=True))
    assert (shrunk.body.file, grown.body.file) == (resampling.ANTIALIASED_TILE, resampling.LINEAR)


# ---- axes


def axis(size, count, scale, input_offset=0.5, output_offset=-0.5):
    return ResampledAxis.of(0, size, count, scale, input_offset, output_offset)


def test_coordinates():
    assert axis(4, 8, 2.0).coordinates().tolist() == [-0.25, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.25]
    assert axis(4, 2, 0.5).places(None).tolist() == [0.5, 2.5]
    assert axis(4, 3, 1.0, 2.0, 0.0).places(None).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("scale", "inverse"), [(2.0, 0.5), (0.25, 4.0), (1.0, 1.0), (3.0, None), (1.5, None), (2.0**-126, 2.0**126)]
)
def test_powers_of_two_are_multiplied(scale, inverse):
    expected = 0 if inverse is None else int(np.float32(inverse).view(np.uint32))
    assert axis(4, 4, scale).inverse_bits == expected


@pytest.mark.parametrize(
    ("scale", "offsets", "rounding", "expected"),
    [
        (1.0, (0.5, -0.5), None, True),
        (1.0, (0.0, -0.5), None, False),
        (1.0, (0.0, -0.5), Rounding(increasing=False), True),
        (1.0, (0.0, -0.5), Rounding(increasing=True), False),
        (2.0, (0.5, -0.5), None, False),
    ],
)
def test_resampling_without_effect(scale, offsets, rounding, expected):
    assert axis(4, 4, scale, *offsets).moves_nothing(rounding) is expected


@pytest.mark.parametrize("rounding", [None, Rounding(increasing=True), Rounding(increasing=False)])
@pytest.mark.parametrize("scale", [0.01, 0.3, 0.5, 1.0, 1.7, 3.0, 50.0])
@pytest.mark.parametrize("offset", [-40.0, 0.0, 0.5, 3.25])
def test_a_line_below_finds_all_users(scale, offset, rounding):
    line_axis = axis(23, 31, scale, offset, 0.0)
    begin, end = resampling.users(line_axis, rounding)
    line, taps = resampling.line_below(line_axis, begin, end)
    used = end > begin
    first = line.at(np.arange(line_axis.size))
    assert used.any() and (first[used] <= begin[used]).all() and (end[used] <= first[used] + taps).all()


def test_users_of_linear_interpolation_reach_to_the_next_elements():
    begin, end = resampling.users(axis(3, 6, 2.0), None)
    assert list(zip(begin.tolist(), end.tolist(), strict=True)) == [(0, 3), (1, 5), (3, 6)]
    begin, end = resampling.users(axis(3, 2, 0.5, 0.0, 0.0), Rounding(increasing=False))
    assert (end - begin).tolist() == [1, 0, 1]


def test_patterns_of_whole_factors():
    pattern = find_pattern(axis(4, 8, 2.0))
    assert pattern is not None
    assert pattern.taps == (Tap(-1, 0.75), Tap(0, 0.25)) and pattern.neighbors == (-1, 0, 1)
    pattern = find_pattern(axis(4, 8, 2.0, 0.0, 0.0))
    assert pattern is not None
    assert pattern.taps == (Tap(0, 0.0), Tap(0, 0.5)) and pattern.neighbors == (0, 1)
    pattern = find_pattern(axis(4, 12, 3.0, 0.0, 0.0), Rounding(increasing=False))
    assert pattern is not None
    assert pattern.taps == (Tap(0, 0.0),) * 3


@pytest.mark.parametrize(
    "other",
    [axis(4, 7, 2.0), axis(4, 8, 1.9), axis(4, 32, 8.0), axis(4, 8, 2.0, 5.0), axis(7, 21, 3.0), axis(8, 4, 0.5)],
)
def test_other_axes_have_no_pattern(other):
    assert find_pattern(other) is None


def test_stencils_of_whole_factors():
    assert find_stencil(axis(8, 4, 0.5)) == Stencil(0, 8, 2, -1, (0.125, 0.375, 0.375, 0.125))
    assert find_stencil(axis(8, 4, 0.5, 0.0, 0.0)) == Stencil(0, 8, 2, -1, (0.25, 0.5, 0.25))
    third = find_stencil(axis(9, 4, 0.5, -1.0, 0.0))
    assert third is not None and (third.first, third.taps(2)) == (0, (4, 5, 6))


@pytest.mark.parametrize("other", [axis(8, 4, 0.4), axis(40, 4, 0.1), axis(1 << 18, 1 << 17, 0.5), axis(9, 3, 0.3)])
def test_other_axes_have_no_stencil(other):
    assert find_stencil(other) is None
