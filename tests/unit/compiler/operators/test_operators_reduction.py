"""ARGMIN, ARGMAX and REDUCE: validation, output sizes, upgrades, types by feature level."""

from __future__ import annotations

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import AxisDirection, DataType, FeatureLevel, ReduceFunction
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.catalog.validation import validate
from dmlgpu.common.errors import InvalidDescription
from dmlgpu.compiler import operators
from dmlgpu.compiler.operators.lowering import lowering
from tests.unit.rejections import rejection

F32, F16, I32, U32, I64, U64 = (DataType[name] for name in ("FLOAT32", "FLOAT16", "INT32", "UINT32", "INT64", "UINT64"))


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
def test_invalid_descriptions_are_rejected(desc, message):
    assert rejection(desc) == message


@pytest.mark.parametrize(("axes", "sizes"), [((1,), (4, 1, 6)), ((2, 0), (1, 5, 1)), ((0, 1, 2), (1, 1, 1))])
def test_output_sizes(axes, sizes):
    operators.check(argmin(axes=axes))
    assert lowering("ARGMIN").output_sizes(argmin(axes=axes)) == {"output_tensor": sizes}


@pytest.mark.parametrize(
    ("function", "desc_class"), [(ReduceFunction.ARGMIN, descs.Argmin), (ReduceFunction.ARGMAX, descs.Argmax)]
)
def test_reduce_finds_indices_as_argmin_and_argmax_do(function, desc_class):
    older = reduce(function, output_type=I64)
    assert operators.upgrade(older) == argmin(desc_class=desc_class, direction=AxisDirection.INCREASING)


def test_sums_are_not_upgraded():
    desc = reduce(ReduceFunction.SUM)
    assert operators.upgrade(desc) is desc


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
