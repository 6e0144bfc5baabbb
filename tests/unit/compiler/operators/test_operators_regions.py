"""Regions of interest: validation, the upgrade of ROI_ALIGN, and plans for targets with short loops."""

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, InterpolationMode, ReduceFunction
from dmlgpu.catalog.operator_desc import Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.operators.regions import sampling_of
from dmlgpu.compiler.schedule.regions import Shares
from dmlgpu.compiler.schedule.steps.maps import ScheduledMap
from dmlgpu.compiler.schedule.steps.products import ScheduledTiles
from dmlgpu.compiler.schedule.steps.reductions import ScheduledReduce
from dmlgpu.compiler.target import Profile, Target
from tests.schedules import steps_of
from tests.unit.rejections import rejection

ANY = 2**32 - 1
TARGET = Target("any")
LIMITED = Target("limited", loop_limit=65535)


def tensor(*sizes, data_type=DataType.FLOAT32):
    return TensorDesc(data_type, sizes)


SAMPLING = {
    "roi_tensor": tensor(5, 4),
    "batch_indices_tensor": tensor(5, data_type=DataType.UINT32),
    "reduction_function": ReduceFunction.AVERAGE,
    "interpolation_mode": InterpolationMode.LINEAR,
    "spatial_scale_x": 0.5,
    "spatial_scale_y": 0.25,
    "minimum_samples_per_output": 1,
    "maximum_samples_per_output": ANY,
}
NEWER = {"input_pixel_offset": 0.5, "output_pixel_offset": -0.5, "align_regions_to_corners": False}


def align(**changes):
    values = {
        "input_tensor": tensor(2, 3, 20, 30),
        "output_tensor": tensor(5, 3, 7, 6),
        "out_of_bounds_input_value": 1.0,
    }
    return descs.RoiAlign1(**(values | SAMPLING | NEWER | changes))


def gradient(**changes):
    values = {
        "input_tensor": tensor(2, 3, 20, 30),
        "input_gradient_tensor": tensor(5, 3, 7, 6),
        "output_gradient_tensor": tensor(2, 3, 20, 30),
        "output_roi_gradient_tensor": tensor(5, 4),
    }
    return descs.RoiAlignGrad(**(values | SAMPLING | NEWER | changes))


def pooling(**changes):
    values = {
        "input_tensor": tensor(2, 3, 20, 30),
        "roi_tensor": tensor(1, 1, 5, 5),
        "output_tensor": tensor(5, 3, 7, 6),
        "spatial_scale": 0.0625,
        "pooled_size": Size2D(6, 7),
    }
    return descs.RoiPooling(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"roi_tensor": tensor(1, 2, 5, 5)},
            "roi_tensor.sizes must be [1, 1, 5, 5] (1, 1, regions, 5 numbers of each), got [1, 2, 5, 5]",
        ),
        (
            {"roi_tensor": tensor(1, 1, 5, 4)},
            "roi_tensor.sizes must be [1, 1, 5, 5] (1, 1, regions, 5 numbers of each), got [1, 1, 5, 4]",
        ),
        (
            {"output_tensor": tensor(5, 3, 6, 7)},
            "output_tensor.sizes must be [5, 3, 7, 6] (regions, channels, pooled_size), got [5, 3, 6, 7]",
        ),
        ({"spatial_scale": float("inf")}, "spatial_scale must be finite, got inf"),
        (
            {"pooled_size": Size2D(6, 65537), "output_tensor": tensor(5, 3, 65537, 6)},
            "pooled_size.height must be at most 65536, got 65537",
        ),
    ],
)
def test_bad_bins_are_rejected(changes, message):
    assert rejection(pooling(**changes)) == f"ROI_POOLING: {message}"


BAD_SAMPLES = [
    (
        {"roi_tensor": tensor(2, 5, 4)},
        "roi_tensor.sizes must be [1, 5, 4] (leading 1s, regions, 4 numbers of each), got [2, 5, 4]",
    ),
    (
        {"roi_tensor": tensor(5, 5)},
        "roi_tensor.sizes must be [5, 4] (leading 1s, regions, 4 numbers of each), got [5, 5]",
    ),
    (
        {"batch_indices_tensor": tensor(1, 4, data_type=DataType.UINT32)},
        "batch_indices_tensor.sizes must be [1, 5] (leading 1s, one index per region), got [1, 4]",
    ),
    ({"reduction_function": ReduceFunction.SUM}, "reduction_function must be AVERAGE or MAX, got SUM"),
    ({"spatial_scale_y": float("nan")}, "spatial_scale_y must be finite, got nan"),
    (
        {"minimum_samples_per_output": 0, "maximum_samples_per_output": 0},
        "maximum_samples_per_output must be at least 1, got 0",
    ),
    (
        {"minimum_samples_per_output": 257},
        "minimum_samples_per_output must be at most 256, got 257",
    ),
    (
        {"minimum_samples_per_output": 3, "maximum_samples_per_output": 2},
        "minimum_samples_per_output must be at most maximum_samples_per_output (2), got 3",
    ),
]


@pytest.mark.parametrize(("changes", "message"), BAD_SAMPLES)
def test_bad_sampling_is_rejected(changes, message):
    assert rejection(align(**changes)) == f"ROI_ALIGN1: {message}"
    assert rejection(gradient(**changes)) == f"ROI_ALIGN_GRAD: {message}"


@pytest.mark.parametrize("output", [tensor(4, 3, 7, 6), tensor(5, 2, 7, 6)])
def test_outputs_have_a_batch_per_region_and_the_channels(output):
    expected = "[5, 3, 7, 6]"
    message = f"must be {expected} (regions, channels, any height and width), got {list(output.sizes)}"
    assert rejection(align(output_tensor=output)) == f"ROI_ALIGN1: output_tensor.sizes {message}"
    assert rejection(gradient(input_gradient_tensor=output)) == f"ROI_ALIGN_GRAD: input_gradient_tensor.sizes {message}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"output_gradient_tensor": None, "output_roi_gradient_tensor": None},
            "output_gradient_tensor must be given where output_roi_gradient_tensor is not, got None",
        ),
        ({"input_tensor": None}, "input_tensor must be given where output_roi_gradient_tensor is, got None"),
        (
            {"input_tensor": None, "output_roi_gradient_tensor": None, "reduction_function": ReduceFunction.MAX},
            "input_tensor must be given where reduction_function is MAX, got None",
        ),
        (
            {"input_tensor": tensor(2, 3, 20, 31)},
            "input_tensor.sizes must be [2, 3, 20, 30] (output_gradient_tensor.sizes), got [2, 3, 20, 31]",
        ),
        (
            {"output_roi_gradient_tensor": tensor(1, 5, 4)},
            "output_roi_gradient_tensor.sizes must be [5, 4] (roi_tensor.sizes), got [1, 5, 4]",
        ),
    ],
)
def test_bad_gradients_are_rejected(changes, message):
    assert rejection(gradient(**changes)) == f"ROI_ALIGN_GRAD: {message}"


def test_the_older_operator_upgrades_to_pixels_at_their_centers():
    newer = align(output_tensor=tensor(5, 3, 2, 2))
    older = descs.RoiAlign(**{name: getattr(newer, name) for name in descs.RoiAlign.field_names})
    operators.check(older)
    assert operators.upgrade(older) == newer
    older = older.replace(reduction_function=ReduceFunction.L1)
    assert rejection(older) == "ROI_ALIGN: reduction_function must be AVERAGE or MAX, got L1"


# ---- schedules


def labels(desc, target=TARGET):
    operators.check(desc)
    return [(type(step), step.label) for step in steps_of(desc, target)]


@pytest.mark.parametrize("function", [ReduceFunction.AVERAGE, ReduceFunction.MAX])
def test_sampling_is_one_map(function):
    assert labels(align(reduction_function=function)) == [(ScheduledMap, "share 0")]


def test_pooling_finds_positions_and_gathers_their_elements():
    assert labels(pooling()) == [(ScheduledMap, "share 0"), (ScheduledMap, "take")]


def test_gradients_are_gathered():
    tables = [(ScheduledTiles, "weights"), (ScheduledMap, "map"), (ScheduledMap, "map")]
    rows = labels(gradient())
    assert rows[:3] == tables
    assert rows[6:] == [
        (ScheduledTiles, "input gradient"),
        (ScheduledTiles, "region gradient"),
        (ScheduledReduce, "serial"),
    ]
    largest = labels(gradient(reduction_function=ReduceFunction.MAX))
    assert largest.count((ScheduledTiles, "share 0")) == 1
    nearest = gradient(interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR, output_gradient_tensor=None)
    assert labels(nearest) == [(ScheduledMap, "zeros")]


def test_adjacent_invocations_sum_for_different_channels():
    """On CPU adapters they iterate over the same regions in lockstep; maxima for several elements in a row, too."""
    channels, wide = 1, {"input_tensor": tensor(2, 9, 20, 30), "output_gradient_tensor": tensor(2, 9, 20, 30)}
    wide |= {"input_gradient_tensor": tensor(5, 9, 7, 6), "output_roi_gradient_tensor": None}

    def summed(profile, function):
        steps = steps_of(gradient(**wide, reduction_function=function), Target("any", profile=profile))
        (gradient_step,) = (step for step in steps if step.label == "input gradient")
        return gradient_step.tile, gradient_step.walk.digits[-1].dimension

    assert summed(Profile.CPU, ReduceFunction.MAX) == ((1, 4, 1, 4), channels)
    assert summed(Profile.CPU, ReduceFunction.AVERAGE) == ((1, 8, 1, 1), channels)
    assert summed(Profile.DISCRETE, ReduceFunction.MAX) == ((1, 4, 1, 1), 3)


def test_invocations_take_fewer_regions_if_there_are_few_of_them():
    """Some hundred elements of an image, and thousands of regions, then keep an adapter busy."""
    regions = 4000
    values = {
        "input_tensor": tensor(1, 1, 8, 8),
        "output_gradient_tensor": tensor(1, 1, 8, 8),
        "input_gradient_tensor": tensor(regions, 1, 7, 6),
        "roi_tensor": tensor(regions, 4),
        "batch_indices_tensor": tensor(regions, data_type=DataType.UINT32),
        "output_roi_gradient_tensor": None,
    }
    *_, shares, summed = steps_of(gradient(**values), TARGET)
    assert (shares.output.sizes, summed.output.sizes) == ((1, 1, 8, 8, 125), (64, 1))


@pytest.mark.parametrize("function", [ReduceFunction.AVERAGE, ReduceFunction.MAX])
@pytest.mark.parametrize("make", [align, gradient])
def test_no_kernel_has_more_than_eight_buffers(make, function):
    program = compiler.compile_operator(make(reduction_function=function), TARGET)
    assert max(len(kernel.slots) for kernel in program.kernels) <= 8


@pytest.mark.parametrize(
    ("fewest", "most", "longest"),
    [(0, 1, (1, 1)), (2, 3, (3, 3)), (1, ANY, (28, 38)), (100, ANY, (100, 100)), (5, 30, (28, 30))],
)
def test_samples_on_the_input_are_bounded(fewest, most, longest):
    desc = align(minimum_samples_per_output=fewest, maximum_samples_per_output=most)
    sampling = sampling_of(desc, (20, 30), (7, 6))
    assert tuple(axis.longest for axis in sampling.axes) == longest
    assert (sampling.fewest, sampling.most) == (max(fewest, 1), most)


@pytest.mark.parametrize(("corners", "range_"), [(False, ((-1, 20), (-1, 30))), (True, ((0, 19), (0, 29)))])
def test_where_samples_are_on_the_input(corners, range_):
    sampling = sampling_of(align(align_regions_to_corners=corners), (20, 30), (7, 6))
    assert tuple((axis.lowest, axis.highest) for axis in sampling.axes) == range_


def test_shares_cover_a_block_within_the_limit():
    for rows, columns in [(1, 1), (28, 38), (300, 400), (1, 2000), (1500, 3)]:
        shares = Shares.of(rows, columns, LIMITED)
        assert shares.across * shares.columns >= columns
        assert shares.count // shares.across * shares.rows >= rows
        assert 16 * (shares.rows * (shares.columns + 1) + rows + columns) <= LIMITED.loop_limit
    assert Shares.of(300, 400, TARGET) == Shares(300, 400, 1, 1)


def test_large_inputs_take_several_maps_if_loops_are_limited():
    large = {"input_tensor": tensor(1, 1, 100, 100), "output_tensor": tensor(5, 1, 1, 1)}
    rows = labels(align(**large), LIMITED)
    assert len(rows) > 1
    assert rows == [(ScheduledMap, f"share {index}") for index in range(len(rows))]
    assert labels(align(**large)) == [(ScheduledMap, "share 0")]
    large["pooled_size"] = Size2D(1, 1)
    assert len(labels(pooling(**large), LIMITED)) > 2


@pytest.mark.parametrize("make", [align, gradient])
def test_too_many_samples_are_rejected_if_loops_are_limited(make):
    desc = make(minimum_samples_per_output=5000)
    with pytest.raises(NotSupported) as caught:
        steps_of(desc, LIMITED)
    assert str(caught.value) == (
        "5000 x 5000 input elements of one output element exceed the loops that 'limited' runs to their end (65535)"
    )
    steps_of(desc, TARGET)


@pytest.mark.slow
@pytest.mark.parametrize("loop_limit", [None, 65535])
def test_regions_are_bound_in_parts_or_rejected(loop_limit):
    target = Target("small", max_binding_size=16384, loop_limit=loop_limit)
    sampled = compiler.compile_operator(align(output_tensor=tensor(5, 3, 40, 60)), target)
    assert len(sampled.kernels) > 1
    assert max(slot.size for kernel in sampled.kernels for slot in kernel.slots) <= 16384
    with pytest.raises(NotSupported, match="split the tensors"):
        compiler.compile_operator(pooling(output_tensor=tensor(5, 3, 400, 600), pooled_size=Size2D(600, 400)), target)
