"""Pooling and folding: validation, upgrades of older operators, plans."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.plan import Pool
from dmlgpu.compiler.plan.windows import WindowAxis, windows_over
from dmlgpu.compiler.target import Profile, Target
from tests.schedules import steps_of
from tests.unit.rejections import rejection, table_rejection

FLOAT = DataType.FLOAT32
FIELDS = {"strides": (2, 1), "window_size": (3, 2), "start_padding": (1, 0), "end_padding": (0, 1)}
SOURCE = TensorDesc(FLOAT, (1, 2, 6, 5))
RESULT = TensorDesc(FLOAT, (1, 2, 3, 5))


def average(**changes):
    values = {"input_tensor": SOURCE, "output_tensor": RESULT, "include_padding": False, **FIELDS}
    return descs.AveragePooling(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"output_tensor": TensorDesc(FLOAT, (1, 2, 3, 4))},
            "output_tensor.sizes must be [1, 2, 3, 5] (what input_tensor, window_size, strides and padding give),"
            " got [1, 2, 3, 4]",
        ),
        ({"strides": (0, 1)}, "strides[0] must be at least 1, got 0"),
        ({"window_size": (3, 0)}, "window_size[1] must be at least 1, got 0"),
        (
            {"window_size": (3, 9)},
            "window_size[1] must reach no further than the padded input (6), but it reaches over 9",
        ),
        (
            {"start_padding": (4, 0), "output_tensor": TensorDesc(FLOAT, (1, 2, 4, 5))},
            "start_padding[0], end_padding[0] must leave every window an element of the input,"
            " but at position 0 there is none",
        ),
    ],
)
def test_bad_windows_are_rejected(changes, message):
    assert rejection(average(**changes)) == f"AVERAGE_POOLING: {message}"


HUGE = 1 << 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"start_padding": (HUGE, 0), "window_size": (HUGE, 2)},
            "window_size must have at most 1048576 elements, 1048576 or as many as input_tensor has in space,"
            " got 2097152",
        ),
        (
            {"start_padding": (0, 2**31 - 6)},
            "start_padding[1] + end_padding[1] must give a padded dimension of at most 2147483647 elements,"
            " got 2147483648",
        ),
    ],
)
def test_windows_that_are_mostly_padding_are_rejected(changes, message):
    assert rejection(average(**changes)) == f"AVERAGE_POOLING: {message}"


def test_windows_as_large_as_the_input_are_accepted():
    whole, single = TensorDesc(FLOAT, (1, 1, HUGE, 3)), TensorDesc(FLOAT, (1, 1, 1, 1))
    none = {"strides": (1, 1), "start_padding": (0, 0), "end_padding": (0, 0)}
    operators.check(average(input_tensor=whole, output_tensor=single, window_size=(HUGE, 3), **none))


AXES = st.builds(
    WindowAxis,
    spatial=st.integers(1, 9),
    positions=st.integers(1, 40),
    size=st.integers(1, 12),
    stride=st.integers(1, 40),
    dilation=st.integers(1, 40),
    start=st.integers(0, 200),
)


@settings(max_examples=200)
@given(AXES)
def test_the_first_empty_window_agrees_with_enumeration(axis):
    places = [
        [p * axis.stride + k * axis.dilation - axis.start for k in range(axis.size)] for p in range(axis.positions)
    ]
    empty = (p for p, seen in enumerate(places) if not any(0 <= place < axis.spatial for place in seen))
    assert axis.first_empty == next(empty, None)


def test_a_norm_of_order_0_is_rejected():
    desc = descs.LpPooling(input_tensor=SOURCE, output_tensor=RESULT, p=0, **FIELDS)
    assert rejection(desc) == "LP_POOLING: p must be at least 1, got 0"


def test_indices_have_the_outputs_sizes():
    indices = TensorDesc(DataType.UINT32, (1, 2, 3, 6))
    desc = descs.MaxPooling1(input_tensor=SOURCE, output_tensor=RESULT, output_indices_tensor=indices, **FIELDS)
    message = "output_indices_tensor.sizes must be [1, 2, 3, 5] (output_tensor.sizes), got [1, 2, 3, 6]"
    assert rejection(desc) == f"MAX_POOLING1: {message}"


def test_scales_have_one_element_or_one_per_channel():
    byte = TensorDesc(DataType.UINT8, SOURCE.sizes)
    desc = descs.QuantizedLinearAveragePooling(
        input_tensor=byte,
        input_scale_tensor=TensorDesc(FLOAT, (1, 3, 1, 1)),
        output_scale_tensor=TensorDesc(FLOAT, (1, 1, 1, 1)),
        output_tensor=TensorDesc(DataType.UINT8, RESULT.sizes),
        dilations=(1, 1),
        include_padding=True,
        **FIELDS,
    )
    message = "must be [1, 1, 1, 1] (one for all) or [1, 2, 1, 1] (one per channel), got [1, 3, 1, 1]"
    assert rejection(desc) == f"QUANTIZED_LINEAR_AVERAGE_POOLING: input_scale_tensor.sizes {message}"


@pytest.mark.parametrize(
    ("desc", "newest"),
    [
        (average(), "AVERAGE_POOLING1"),
        (descs.LpPooling(input_tensor=SOURCE, output_tensor=RESULT, p=2, **FIELDS), "LP_POOLING1"),
        (descs.MaxPooling(input_tensor=SOURCE, output_tensor=RESULT, **FIELDS), "MAX_POOLING2"),
    ],
    ids=lambda value: getattr(value, "operator", value),
)
def test_older_operators_have_no_dilations(desc, newest):
    upgraded = operators.upgrade(desc)
    assert (upgraded.operator, upgraded.dilations) == (newest, (1, 1))
    operators.check(upgraded)


def test_large_windows_are_reduced_in_two_steps():
    whole = TensorDesc(FLOAT, (1, 2, 1024, 1024))
    desc = average(
        input_tensor=whole,
        output_tensor=TensorDesc(FLOAT, (1, 2, 1, 1)),
        window_size=(1024, 1024),
        start_padding=(0, 0),
        end_padding=(0, 0),
    )
    operators.check(desc)
    assert [step.label for step in steps_of(desc, Target("any", profile=Profile.CPU))] == [
        "partial",
        "serial of partials",
    ]


@pytest.mark.parametrize(
    ("window", "stride", "tile", "workgroup"),
    [
        (2, 2, (1, 1, 1, 4), 256),  # a unit for each invocation
        (3, 2, (1, 1, 4, 8), 32),  # adjacent positions share reads
        (4, 4, (1, 1, 4, 4), 32),  # many places
    ],
)
def test_tiles_of_disjoint_windows_are_units(window, stride, tile, workgroup):
    positions = (16 - window) // stride + 1
    desc = descs.MaxPooling(
        input_tensor=TensorDesc(FLOAT, (1, 2, 16, 16)),
        output_tensor=TensorDesc(FLOAT, (1, 2, positions, positions)),
        strides=(stride, stride),
        window_size=(window, window),
        start_padding=(0, 0),
        end_padding=(0, 0),
    )
    (step,) = steps_of(desc, Target("any", profile=Profile.CPU))
    assert (step.tile, step.launch.workgroup) == (tile, workgroup)


@pytest.mark.parametrize(
    ("target", "kernels"),
    [
        (Target("any", Profile.CPU), ["largest"]),
        (Target("any", Profile.DISCRETE), ["largest"]),
        (Target("any", Profile.CPU, loop_limit=6), ["partial", "tree of partials", "maximum"]),
    ],
    ids=["CPU", "GPU", "short loops"],
)
def test_schedules_choose_how_the_largest_element_is_found(target, kernels):
    desc = operators.upgrade(descs.MaxPooling(input_tensor=SOURCE, output_tensor=RESULT, **FIELDS))
    (pool,) = operators.lower(desc).steps
    assert isinstance(pool, Pool)
    assert [step.label for step in steps_of(desc, target)] == kernels
    program = compiler.stages(desc, target).program
    assert [kernel.label.removeprefix("max_pooling2 ").partition(" x")[0] for kernel in program.kernels] == kernels


@pytest.mark.parametrize(
    ("axis", "position", "places"),
    [
        (WindowAxis(5, 5, 3, 1, 1, 1), 0, range(1, 3)),
        (WindowAxis(5, 5, 3, 1, 1, 1), 4, range(0, 2)),
        (WindowAxis(5, 3, 3, 2, 2, 3), 0, range(2, 3)),
        (WindowAxis(1, 1, 2, 1, 3, 1), 0, range(1, 1)),
    ],
)
def test_window_elements_on_the_input(axis, position, places):
    first = position * axis.stride - axis.start
    assert [k for k in range(axis.size) if 0 <= first + k * axis.dilation < axis.spatial] == list(places)
    assert axis.inside(position) == places


def test_positions_of_padded_windows():
    (axis,) = windows_over([7], size=[3], strides=[2], dilations=[2], start=[1], end=[2])
    assert axis == WindowAxis(7, 3, 3, 2, 2, 1)
    assert axis.reach == 5


def test_columns_must_fit_the_image():
    fields = {
        "window_sizes": (2, 2),
        "strides": (1, 1),
        "dilations": (1, 1),
        "start_padding": (0, 0),
        "end_padding": (0, 0),
    }
    image = TensorDesc(FLOAT, (1, 2, 3, 4))
    columns = TensorDesc(FLOAT, (1, 8, 7))
    message = "must be [1, 8, 6] (batch, channels * places of the window, positions), got [1, 8, 7]"
    desc = descs.Unfold(input_tensor=image, output_tensor=columns, **fields)
    assert rejection(desc) == f"UNFOLD: output_tensor.sizes {message}"
    desc = descs.Fold(input_tensor=columns, output_tensor=image, **fields)
    assert rejection(desc) == f"FOLD: input_tensor.sizes {message}"
    desc = descs.Fold(input_tensor=columns, output_tensor=image, **(fields | {"strides": (1,)}))
    message = "must have 2 entries, one per spatial dimension of output_tensor (4 - 2), got 1"
    assert table_rejection(desc) == f"FOLD: strides {message}"


@pytest.mark.parametrize(
    ("data_type", "size", "window", "is_tiled"),
    [
        (FLOAT, 40, 8, True),
        (FLOAT, 40, 9, False),  # an invocation would read 81 elements per position
        (DataType.FLOAT16, 40, 2, True),
        (DataType.FLOAT16, 42, 2, False),  # 21 positions are no whole words
        (DataType.INT64, 40, 2, False),
    ],
)
def test_gpus_pool_in_tiles_for_short_windows_and_whole_words(data_type, size, window, is_tiled):
    positions = (size - window) // 2 + 1
    desc = descs.MaxPooling2(
        input_tensor=TensorDesc(data_type, (1, 2, size, size)),
        output_tensor=TensorDesc(data_type, (1, 2, positions, positions)),
        strides=(2, 2),
        window_size=(window, window),
        start_padding=(0, 0),
        end_padding=(0, 0),
        dilations=(1, 1),
    )
    labels = [step.label for step in steps_of(desc, Target("any", Profile.DISCRETE))]
    assert (labels == ["largest"]) is is_tiled


@pytest.mark.parametrize(
    ("data_type", "include", "kernels"),
    [
        (FLOAT, True, ["serial"]),  # divides where it sums
        (FLOAT, False, ["serial", "average"]),  # by other numbers at the edges
        (DataType.FLOAT16, True, ["serial", "average"]),
    ],
)
def test_averages_of_whole_windows_take_one_kernel(data_type, include, kernels):
    desc = descs.AveragePooling1(
        input_tensor=TensorDesc(data_type, (1, 2, 16, 16)),
        output_tensor=TensorDesc(data_type, (1, 2, 9, 9)),
        strides=(2, 2),
        window_size=(2, 2),
        start_padding=(1, 1),
        end_padding=(1, 1),
        dilations=(1, 1),
        include_padding=include,
    )
    assert [step.label for step in steps_of(desc, Target("any", Profile.DISCRETE))] == kernels
