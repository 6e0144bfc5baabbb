"""ONE_HOT, DIAGONAL_MATRIX, DIAGONAL_MATRIX1: validation, upgrades, plans."""

from __future__ import annotations

import math

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.catalog.validation import validate
from dmlgpu.compiler import operators
from dmlgpu.compiler.plan import Body
from dmlgpu.compiler.target import Target
from tests.schedules import steps_of
from tests.unit.rejections import rejection

F32, F64, I8, I32, I64, U8, U32 = (
    DataType[name] for name in ("FLOAT32", "FLOAT64", "INT8", "INT32", "INT64", "UINT8", "UINT32")
)
ANY = Target("any")


def tensor(data_type, *sizes, strides=None):
    return TensorDesc(data_type, sizes, strides)


def one_hot(**changes):
    fields = {
        "indices_tensor": tensor(I64, 4, 1, 6),
        "values_tensor": tensor(F32, 1, 2, 1),
        "output_tensor": tensor(F32, 4, 8, 6),
        "axis": 1,
    }
    return descs.OneHot(**fields | changes)


def diagonal(begin=0, end=1, sizes=(2, 4, 5), data_type=F32, **changes):
    fields = {
        "input_tensor": tensor(data_type, *sizes),
        "output_tensor": tensor(data_type, *sizes),
        "value_data_type": data_type,
        "value": 7,
        "diagonal_fill_begin": begin,
        "diagonal_fill_end": end,
    }
    return descs.DiagonalMatrix1(**fields | changes)


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (one_hot(axis=3), "ONE_HOT: axis must be below indices_tensor's dimension count (3), got 3"),
        (
            one_hot(indices_tensor=tensor(I64, 4, 2, 6)),
            "ONE_HOT: indices_tensor.sizes must be [4, 1, 6] (output_tensor.sizes with 1 on axis 1), got [4, 2, 6]",
        ),
        (
            one_hot(values_tensor=tensor(F32, 1, 1, 1)),
            "ONE_HOT: values_tensor.sizes must hold at least two elements (off and on), got [1, 1, 1]",
        ),
        (
            diagonal(input_tensor=tensor(F32, 2, 5, 4)),
            "DIAGONAL_MATRIX1: output_tensor.sizes must be [2, 5, 4] (input_tensor.sizes), got [2, 4, 5]",
        ),
    ],
)
def test_invalid_descriptions_are_rejected(desc, message):
    assert rejection(desc) == message


def step_of(desc):
    (step,) = operators.lower(desc).steps
    return step, dict(step.body.inputs)


@pytest.mark.parametrize(
    ("values", "stride"),
    [
        (tensor(F32, 1, 2, 1), 1),
        (tensor(F32, 2, 1, 1), 1),
        (tensor(F32, 3, 4, 1), 1),
        (tensor(F32, 3, 4, 1, strides=(1, 3, 9)), 3),
        (tensor(F32, 1, 2, 1, strides=(9, 0, 1)), 0),
    ],
)
def test_the_on_value_is_the_second_element(values, stride):
    _, inputs = step_of(one_hot(values_tensor=values))
    assert (inputs["off"].offset, inputs["on"].offset) == (0, stride)
    assert inputs["on"].strides == inputs["off"].strides == (0, 0, 0)


def test_one_hot_merges_before_and_after_its_axis():
    desc = one_hot(
        indices_tensor=tensor(U32, 2, 3, 1, 4, 6),
        values_tensor=tensor(F32, 1, 1, 1, 1, 2),
        output_tensor=tensor(F32, 2, 3, 5, 4, 6),
        axis=2,
    )
    (step,) = steps_of(desc, ANY)
    assert (step.output.sizes, step.lanes) == ((6, 5, 6), 4)


def band(begin, end):
    step, inputs = step_of(diagonal(begin, end))
    (filled,) = (name for name, source in inputs.items() if isinstance(source, Body) and source.file != "fill/place")
    return tuple(dict(step.body.constants).values()), filled


@pytest.mark.parametrize(
    ("begin", "end", "first", "count", "filled"),
    [
        (0, 1, 0, 1, "inside"),
        (-1, 2, -1, 3, "inside"),
        (2, 2, 2, 0, "inside"),
        (1, 0, 0, 1, "outside"),
        (-(1 << 31), 1, -3, 4, "inside"),
        (0, (1 << 31) - 1, 0, 5, "inside"),
        ((1 << 31) - 1, -(1 << 31), -3, 8, "outside"),
        (-(1 << 31), -9, -3, 0, "inside"),
        (6, 9, 5, 0, "inside"),
    ],
)
def test_bands_are_cut_to_the_matrix(begin, end, first, count, filled):
    assert band(begin, end) == ((first, count), filled)


@pytest.mark.parametrize(
    ("data_type", "value", "converted"),
    [
        (F32, 10.6, 10.600000381469727),
        (F64, 0.1, 0.10000000149011612),
        (I32, 10.6, 10),
        (I8, -10.6, -10),
        (I8, 300.0, 127),
        (U8, -1.5, 0),
        (I32, math.nan, 0),
        (U32, math.inf, 2**32 - 1),
    ],
)
def test_an_older_description_becomes_a_band_of_one_diagonal(data_type, value, converted):
    older = descs.DiagonalMatrix(output_tensor=tensor(data_type, 4, 5), offset=-2, value=value)
    newer = operators.upgrade(older)
    assert newer == descs.DiagonalMatrix1(
        input_tensor=None,
        output_tensor=tensor(data_type, 4, 5),
        value_data_type=data_type,
        value=converted,
        diagonal_fill_begin=-2,
        diagonal_fill_end=-1,
    )


def test_the_last_diagonal_that_an_offset_can_name():
    older = descs.DiagonalMatrix(output_tensor=tensor(F32, 4, 5), offset=(1 << 31) - 1, value=1.0)
    validate(older, FeatureLevel.LEVEL_6_4)
    (step,) = operators.lower(older).steps
    assert dict(step.body.constants) == {"first": 5, "count": 0}
