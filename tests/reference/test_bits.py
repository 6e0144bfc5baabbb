"""Operators on bits against plain Python integers, ONNX's evaluator and onnxruntime."""

import operator

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference.helpers import ALL_TYPES, bits, run, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
FUNCTIONS = [
    (descs.ElementWiseBitAnd, "BitwiseAnd", operator.and_),
    (descs.ElementWiseBitOr, "BitwiseOr", operator.or_),
    (descs.ElementWiseBitXor, "BitwiseXor", operator.xor),
]
SHIFTS = [
    (descs.ElementWiseBitShiftLeft, "LEFT", operator.lshift),
    (descs.ElementWiseBitShiftRight, "RIGHT", operator.rshift),
]


def anything(data_type, seed):
    raw = np.random.default_rng(seed).integers(0, 256, (200, data_type.bits // 8), np.uint8)
    return raw.view(data_type.numpy)[:, 0]


def binary(desc_class, a, b):
    return run(desc_class(a_tensor=tensor(a), b_tensor=tensor(b), output_tensor=tensor(a)), a, b)


@pytest.mark.parametrize("data_type", ALL_TYPES)
@pytest.mark.parametrize(("desc_class", "_", "function"), FUNCTIONS)
def test_bit_by_bit(desc_class, _, function, data_type):
    a, b = anything(data_type, 1), anything(data_type, 2)
    expected = [function(int(x), int(y)) for x, y in zip(bits(a), bits(b), strict=True)]
    assert bits(binary(desc_class, a, b)).tolist() == expected


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_not(data_type):
    x = anything(data_type, 3)
    result = run(descs.ElementWiseBitNot(input_tensor=tensor(x), output_tensor=tensor(x)), x)
    assert bits(result).tolist() == [(1 << data_type.bits) - 1 - int(value) for value in bits(x)]


@pytest.mark.parametrize("count", [DataType.UINT8, DataType.UINT32])
@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_count(data_type, count):
    x = anything(data_type, 4)
    bits(x)[:2] = [0, 2**data_type.bits - 1]
    desc = descs.ElementWiseBitCount(input_tensor=tensor(x), output_tensor=TensorDesc(count, x.shape))
    assert run(desc, x).tolist() == [f"{int(value):b}".count("1") for value in bits(x)]


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize(("desc_class", "_", "function"), SHIFTS)
def test_shifts_at_and_beyond_the_width(desc_class, _, function, dtype):
    width = np.dtype(dtype).itemsize * 8
    modulus = max(width, 32)
    b = np.array([0, 1, width - 1, width, width + 1, 31, 32, 33, 63, 64, 65, 127, 128, 255], dtype)
    a = np.full(b.shape, (1 << width) - 2, dtype)
    expected = [function(int(x), int(y) % modulus) % (1 << width) for x, y in zip(a, b, strict=True)]
    assert binary(desc_class, a, b).tolist() == expected


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int64])
@pytest.mark.parametrize(("desc_class", "name", "_"), FUNCTIONS)
def test_functions_agree_with_onnx(desc_class, name, _, dtype, evaluate):
    a, b = (anything(DataType.from_numpy(np.dtype(dtype)), seed) for seed in (5, 6))
    np.testing.assert_array_equal(binary(desc_class, a, b), evaluate(name, [a, b]))


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64])
@pytest.mark.parametrize(("desc_class", "direction", "_"), SHIFTS)
def test_shifts_agree_with_onnx_below_the_width(desc_class, direction, _, dtype, evaluate):
    a = anything(DataType.from_numpy(np.dtype(dtype)), 7)
    b = (np.arange(a.size) % (8 * a.dtype.itemsize)).astype(dtype)
    np.testing.assert_array_equal(binary(desc_class, a, b), evaluate("BitShift", [a, b], direction=direction))
