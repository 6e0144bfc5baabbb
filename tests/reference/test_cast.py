"""CAST against exact conversions, NumPy, ONNX's evaluator and onnxruntime (where they define the result)."""

import itertools
import math
from fractions import Fraction

import numpy as np
import onnx
import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference import oracles
from tests.reference.helpers import ALL_TYPES, run, samples, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

TYPE_PAIRS = [
    pytest.param(source, target, id=f"{source.name}-{target.name}".lower())
    for source, target in itertools.product(ALL_TYPES, ALL_TYPES)
]


def cast(array, data_type):
    return run(descs.Cast(input_tensor=tensor(array), output_tensor=TensorDesc(data_type, array.shape)), array)


def exactly(value, dtype):
    """Convert one element without NumPy's conversions."""
    target = np.dtype(dtype)
    if target.kind != "f":
        return oracles.saturate(value, dtype) if isinstance(value, float) else oracles.wrap(value, dtype)
    return oracles.round_to_float(value if isinstance(value, float) else Fraction(value), dtype)


def same(a, b):
    """Return whether numbers are equal, with zeros of equal sign, or both NaN."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return a == b


def elements(data_type):
    """Return samples of a type; for floats also special values, and integers and ties around the limits of integers."""
    numbers = samples(data_type.numpy, 100)
    if not data_type.is_float:
        return numbers
    largest = float(np.finfo(data_type.numpy).max)
    powers = [sign * 2.0**n for n in (0, 7, 8, 15, 16, 31, 32, 63, 64) for sign in (-1, 1)]
    near = [power + difference for power in powers for difference in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)]
    expected = [math.inf, -math.inf, math.nan, *(number for number in near if abs(number) <= largest)]
    return np.concatenate([numbers, np.array(expected, data_type.numpy)])


@pytest.mark.parametrize(("source", "target"), TYPE_PAIRS)
def test_every_pair_of_types(source, target):
    array = elements(source)
    for value, result in zip(array.tolist(), cast(array, target).tolist(), strict=True):
        assert same(result, exactly(value, target.numpy)), value


@pytest.mark.parametrize(
    ("values", "target", "expected"),
    [
        ([-1.5, -0.5, 0.5, 1.5, 254.9, 255.5, 256, math.nan], DataType.UINT8, [0, 0, 0, 1, 254, 255, 255, 0]),
        ([-129, -128.9, 127.9, 128, math.inf, -math.inf], DataType.INT8, [-128, -128, 127, 127, 127, -128]),
        ([2147483520.0, 2147483648.0, -2147483648.0], DataType.INT32, [2147483520, 2**31 - 1, -(2**31)]),
        ([4294967040.0, 4294967296.0], DataType.UINT32, [4294967040, 2**32 - 1]),
        ([2.0**63, -(2.0**63), 2.0**63 - 2.0**39], DataType.INT64, [2**63 - 1, -(2**63), 2**63 - 2**39]),
        ([2.0**63, 2.0**64, 2.0**64 - 2.0**40], DataType.UINT64, [2**63, 2**64 - 1, 2**64 - 2**40]),
    ],
)
def test_floats_truncate_and_saturate(values, target, expected):
    assert cast(np.array(values, np.float32), target).tolist() == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1 + 2.0**-11, 1.0),
        (1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-10),  # through float32 the last digits would be lost, and with them the way
        (1 + 3 * 2.0**-11, 1 + 2.0**-9),
        (2.0**-25, 0.0),
        (2.0**-25 + 2.0**-60, 2.0**-24),
        (65519.999999999, 65504.0),
        (65520.0, math.inf),
    ],
)
def test_float64_to_float16_rounds_once(value, expected):
    assert cast(np.array([value]), DataType.FLOAT16)[0] == expected


@pytest.mark.parametrize(
    ("values", "source", "target", "expected"),
    [
        ([300, -1, -129], np.int16, DataType.INT8, [44, -1, 127]),
        ([-1], np.int8, DataType.UINT64, [2**64 - 1]),
        ([2**40 + 5], np.int64, DataType.UINT16, [5]),
        ([2**24 + 1, 2**24 + 3], np.int32, DataType.FLOAT32, [2.0**24, 2.0**24 + 4]),
        ([2**63 + 2**39 + 1], np.uint64, DataType.FLOAT32, [2.0**63 + 2.0**40]),
        ([2049, 65519, 65520], np.int64, DataType.FLOAT16, [2048, 65504, math.inf]),
    ],
)
def test_integers_wrap_or_round(values, source, target, expected):
    assert cast(np.array(values, source), target).tolist() == expected


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize(("source", "target"), TYPE_PAIRS)
def test_agrees_with_onnx(source, target, evaluate):
    """On numbers in the range of both types: beyond it ONNX leaves conversions to integers open.

    onnxruntime converts FLOAT64 to FLOAT16 through FLOAT32, so no number here needs more digits than FLOAT32 has.
    """
    values = [0, 1, 2, 5, 100, 126.75, 3.5, 2.5, 0.1]
    values += [-1, -100.5, -3.5] if source.is_signed and target.is_signed else []
    array = np.array(values, np.float32).astype(source.numpy)
    expected = evaluate("Cast", [array], target.numpy, to=onnx.helper.np_dtype_to_tensor_dtype(target.numpy))
    np.testing.assert_array_equal(cast(array, target), expected)
