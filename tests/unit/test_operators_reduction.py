"""ARGMIN, ARGMAX and REDUCE: what they refuse, output sizes, upgrades, plans."""

from __future__ import annotations

import pytest

from dmlgpu import descs, operators
from dmlgpu.enums import AxisDirection, DataType, FeatureLevel, ReduceFunction
from dmlgpu.errors import InvalidDescription
from dmlgpu.operators.lowering import lowering
from dmlgpu.plan import ReduceSchedule
from dmlgpu.target import Profile, Target
from dmlgpu.tensor import TensorDesc
from dmlgpu.validation import validate
from tests.unit.refusals import refusal

F32, F16, I32, U32, I64, U64 = (DataType[name] for name in ("FLOAT32", "FLOAT16", "INT32", "UINT32", "INT64", "UINT64"))
ANY = Target("any")


def argmin(data_type=F32, axes=(1,), sizes=(4, 5, 6), *, desc_class=descs.Argmin, direction=0, output=None):
    reduced = tuple(1 if axis in axes else size for axis, size in enumerate(sizes))
    return desc_class(
        input_tensor=TensorDesc(data_type, sizes),
        output_tensor=TensorDesc(I64, output or reduced),
        axes=axes,
        axis_direction=AxisDirection(direction),
    )


def reduce(function, data_type=F32, axes=(1,), sizes=(4, 5, 6), output_type=None):
    reduced = tuple(1 if axis in axes else size for axis, size in enumerate(sizes))
    return descs.Reduce(
        function=function,
        input_tensor=TensorDesc(data_type, sizes),
        output_tensor=TensorDesc(output_type or data_type, reduced),
        axes=axes,
    )


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (argmin(axes=()), "ARGMIN: axes must name at least one axis, got none"),
        (argmin(axes=(1, 3)), "ARGMIN: axes[1] must be below input_tensor's dimension count (3), got 3"),
        (argmin(axes=(2, 1, 2)), "ARGMIN: axes[2] must not repeat an axis, got 2 again"),
        (
            argmin(axes=(2, 0), output=(4, 1, 1), desc_class=descs.Argmax),
            "ARGMAX: output_tensor.sizes must be [1, 5, 1] (input_tensor.sizes with 1 along axes), got [4, 1, 1]",
        ),
        (reduce(ReduceFunction.SUM, axes=()), "REDUCE: axes must name at least one axis, got none"),
    ],
)
def test_what_is_refused(desc, message):
    assert refusal(desc) == message


@pytest.mark.parametrize(("axes", "sizes"), [((1,), (4, 1, 6)), ((2, 0), (1, 5, 1)), ((0, 1, 2), (1, 1, 1))])
def test_output_sizes(axes, sizes):
    operators.check(argmin(axes=axes))
    assert lowering("ARGMIN").output_sizes(argmin(axes=axes)) == {"output_tensor": sizes}


@pytest.mark.parametrize(
    ("function", "desc_class"), [(ReduceFunction.ARGMIN, descs.Argmin), (ReduceFunction.ARGMAX, descs.Argmax)]
)
def test_reduce_finds_places_as_the_operators_of_their_own_do(function, desc_class):
    older = reduce(function, output_type=I64)
    assert operators.upgrade(older) == argmin(desc_class=desc_class, direction=AxisDirection.INCREASING)


def test_sums_are_not_upgraded():
    desc = reduce(ReduceFunction.SUM)
    assert operators.upgrade(desc) is desc


@pytest.mark.parametrize(
    ("desc", "constants"),
    [
        (argmin(), {"order": "ascending", "decreasing": False}),
        (argmin(direction=1), {"order": "ascending", "decreasing": True}),
        (argmin(desc_class=descs.Argmax), {"order": "descending", "decreasing": False}),
    ],
)
def test_argmin_and_argmax_are_one_body_in_two_orders(desc, constants):
    plan = operators.lower(desc, ANY)
    (step,) = plan.steps
    assert (plan.operator, step.file, step.words) == (desc.operator, "reduction/argmin", True)
    assert dict(step.constants) == constants


@pytest.mark.parametrize("data_type", [I64, U64])
def test_64_bit_elements_are_ranked_by_two_words(data_type):
    (step,) = operators.lower(argmin(data_type), ANY).steps
    assert step.file == "reduction/argmin_wide" and step.words


FLOAT_FILES = {
    "AVERAGE": ("reduce_average", F32, 128),
    "L1": ("reduce_l1_float", F32, 64),
    "L2": ("reduce_l2", F32, 128),
    "LOG_SUM": ("reduce_log_sum", F32, 128),
    "LOG_SUM_EXP": ("reduce_log_sum_exp", F32, 128),
    "MAX": ("reduce_max", F32, 32),
    "MIN": ("reduce_min", F32, 32),
    "MULTIPLY": ("reduce_multiply_float", U32, 128),
    "SUM": ("reduce_sum_float", F32, 64),
    "SUM_SQUARE": ("reduce_sum_square_float", F32, 128),
}
INTEGER_FILES = {
    "L1": "reduce_l1",
    "MAX": "reduce_max",
    "MIN": "reduce_min",
    "MULTIPLY": "reduce_multiply",
    "SUM": "reduce_sum",
    "SUM_SQUARE": "reduce_sum_square",
}


def long_plan(function, data_type):
    """The plan of a row so long that it takes partial results."""
    desc = reduce(ReduceFunction[function], data_type, (0,), (1 << 20,))
    plan = operators.lower(desc, Target("any", Profile.DISCRETE))
    first, second = plan.steps
    assert (first.schedule, second.schedule) == (ReduceSchedule.PARTIAL, ReduceSchedule.TREE)
    assert second.element is data_type and second.output.data_type is data_type
    assert plan.temporaries == (first.output.sizes[-1] * first.output.unit_bits // 8,)
    return first


@pytest.mark.parametrize("function", FLOAT_FILES)
@pytest.mark.parametrize("data_type", [F32, F16])
def test_floats_are_accumulated_in_float32(function, data_type):
    step = long_plan(function, data_type)
    file, accumulator, bits = FLOAT_FILES[function]
    assert (step.file, step.output.data_type) == (f"reduction/{file}", accumulator)
    assert (step.output.unit_bits, step.words) == (bits, True)
    assert step.constants == ((("terms", 1 << 20),) if function == "AVERAGE" else ())


@pytest.mark.parametrize("function", INTEGER_FILES)
@pytest.mark.parametrize("data_type", [I32, U32, I64, U64])
def test_integers_are_accumulated_in_their_own_type(function, data_type):
    step = long_plan(function, data_type)
    unsigned = function == "L1" and not data_type.is_signed
    assert step.file == f"reduction/{'reduce_sum' if unsigned else INTEGER_FILES[function]}"
    assert (step.output.data_type, step.output.unit_bits, step.words) == (data_type, data_type.bits, False)


@pytest.mark.parametrize(
    ("data_type", "accumulator"),
    [(DataType.INT8, I32), (DataType.INT16, I32), (DataType.UINT8, U32), (DataType.UINT16, U32)],
)
@pytest.mark.parametrize("function", ["MIN", "MAX"])
def test_narrow_extremes_are_accumulated_in_32_bits(function, data_type, accumulator):
    assert long_plan(function, data_type).output.data_type is accumulator


# The types that a function takes, by the feature level from which it takes them (the page's tables).
NEW_TYPES = {
    ("ARGMIN", "ARGMAX"): {
        "1_0": "FLOAT32 FLOAT16",
        "2_1": "INT32 INT16 INT8 UINT32 UINT16 UINT8",
        "4_1": "INT64 UINT64",
    },
    ("AVERAGE", "L2", "LOG_SUM", "LOG_SUM_EXP"): {"1_0": "FLOAT32 FLOAT16"},
    ("L1", "SUM_SQUARE"): {"1_0": "FLOAT32 FLOAT16", "5_0": "INT64 INT32 UINT64 UINT32"},
    ("MIN", "MAX"): {
        "1_0": "FLOAT32 FLOAT16",
        "2_1": "INT32 UINT32",
        "3_0": "INT16 INT8 UINT16 UINT8",
        "5_0": "INT64 UINT64",
    },
    ("MULTIPLY", "SUM"): {"1_0": "FLOAT32 FLOAT16", "2_1": "INT32 UINT32", "5_0": "INT64 UINT64"},
}
FIRST_LEVELS = [
    (function, DataType[data_type], FeatureLevel[f"LEVEL_{level}"])
    for functions, levels in NEW_TYPES.items()
    for level, types in levels.items()
    for data_type in types.split()
    for function in functions
]


@pytest.mark.parametrize(
    ("function", "data_type", "first"), FIRST_LEVELS, ids=lambda value: getattr(value, "name", value)
)
def test_types_by_feature_level(function, data_type, first):
    output_type = U32 if function.startswith("ARG") else data_type
    desc = reduce(ReduceFunction[function], data_type, sizes=(2, 4, 5, 6), output_type=output_type)
    for level in FeatureLevel:
        if level >= first:
            validate(desc, level)
        else:
            with pytest.raises(InvalidDescription):
                validate(desc, level)


@pytest.mark.parametrize("function", ReduceFunction, ids=lambda function: function.name)
def test_every_function_takes_the_types_of_its_table_and_no_others(function):
    allowed = {data_type for name, data_type, _ in FIRST_LEVELS if name == function.name}
    for data_type in DataType:
        if data_type is DataType.UNKNOWN or data_type in allowed:
            continue
        output_type = U32 if function.name.startswith("ARG") else data_type
        with pytest.raises(InvalidDescription):
            validate(reduce(function, data_type, output_type=output_type), FeatureLevel.LEVEL_6_4)


def test_ranks_other_than_4_need_3_0():
    validate(reduce(ReduceFunction.SUM), FeatureLevel.LEVEL_3_0)
    with pytest.raises(InvalidDescription):
        validate(reduce(ReduceFunction.SUM), FeatureLevel.LEVEL_2_1)
