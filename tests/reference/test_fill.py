"""Operators that fill a tensor, against exact arithmetic and ONNX's evaluator."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference import oracles
from tests.reference.helpers import ALL_TYPES, bits, run
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

INTEGERS = [t for t in ALL_TYPES if not t.is_float]
FLOATS = [DataType.FLOAT16, DataType.FLOAT32]


def constant(data_type, value, sizes=(2, 3)):
    desc = descs.FillValueConstant(output_tensor=TensorDesc(data_type, sizes), value_data_type=data_type, value=value)
    return run(desc)


def sequence(data_type, start, delta, sizes=(2, 3)):
    desc = descs.FillValueSequence(
        output_tensor=TensorDesc(data_type, sizes), value_data_type=data_type, value_start=start, value_delta=delta
    )
    return run(desc)


@pytest.mark.parametrize("data_type", ALL_TYPES)
@given(data=st.data())
def test_constants_keep_all_bits(data_type, data):
    value = data.draw(hnp.from_dtype(data_type.numpy, allow_nan=False)).item()
    assert bits(constant(data_type, value)).tolist() == [[int(bits(np.array([value], data_type.numpy))[0])] * 3] * 2


def test_constants_are_rounded_to_the_type():
    assert constant(DataType.FLOAT16, 0.1)[0, 0] == oracles.round_to_float(0.1, np.float16)
    assert math.isnan(constant(DataType.FLOAT32, math.nan)[0, 0])


@pytest.mark.parametrize("data_type", INTEGERS)
@given(data=st.data())
def test_sequences_of_integers_wrap(data_type, data):
    start, delta = (data.draw(hnp.from_dtype(data_type.numpy)).item() for _ in "ab")
    expected = [oracles.wrap(start + delta * place, data_type.numpy) for place in range(6)]
    assert sequence(data_type, start, delta).ravel().tolist() == expected


def test_sequences_of_unsigned_numbers_may_decrease():
    assert sequence(DataType.UINT64, 3, -2).ravel().tolist() == [3, 1, 2**64 - 1, 2**64 - 3, 2**64 - 5, 2**64 - 7]


@pytest.mark.parametrize("data_type", FLOATS)
@given(data=st.data())
def test_sequences_of_floats_are_rounded_once(data_type, data):
    """With few digits, so that float64 holds the exact numbers."""
    start, delta = (data.draw(st.integers(-1000, 1000)) / 8 for _ in "ab")
    for place, number in enumerate(sequence(data_type, start, delta).flat):
        assert number == oracles.round_to_float(Fraction(start) + place * Fraction(delta), data_type.numpy)


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("data_type", [DataType.FLOAT32, DataType.INT32, DataType.INT64])
def test_sequences_agree_with_onnx(data_type, evaluate):
    start, delta = (data_type.numpy.type(number) for number in (7, -3))
    limit = data_type.numpy.type(7 - 3 * 12)
    expected = evaluate("Range", [start, limit, delta])
    np.testing.assert_array_equal(sequence(data_type, 7, -3, (12,)), expected)
