"""Operators that compare or choose, against plain Python, ONNX's evaluator and onnxruntime."""

import itertools
import math
import operator

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, IsInfinityMode
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference.helpers import ALL_TYPES, bits, run, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

TRUTHS = [np.uint8, np.uint32]
RELATIONS = [
    (descs.ElementWiseLogicalEquals, "Equal", operator.eq),
    (descs.ElementWiseLogicalGreaterThan, "Greater", operator.gt),
    (descs.ElementWiseLogicalLessThan, "Less", operator.lt),
    (descs.ElementWiseLogicalGreaterThanOrEqual, "GreaterOrEqual", operator.ge),
    (descs.ElementWiseLogicalLessThanOrEqual, "LessOrEqual", operator.le),
]
CONNECTIVES = [
    (descs.ElementWiseLogicalAnd, "And", lambda a, b: bool(a) and bool(b)),
    (descs.ElementWiseLogicalOr, "Or", lambda a, b: bool(a) or bool(b)),
    (descs.ElementWiseLogicalXor, "Xor", lambda a, b: bool(a) != bool(b)),
]


def of_two(desc_class, a, b, truth=np.uint8):
    output = TensorDesc(DataType.from_numpy(np.dtype(truth)), a.shape)
    return run(desc_class(a_tensor=tensor(a), b_tensor=tensor(b), output_tensor=output), a, b)


def of_one(desc_class, x, truth, **attributes):
    output = TensorDesc(DataType.from_numpy(np.dtype(truth)), x.shape)
    return run(desc_class(input_tensor=tensor(x), output_tensor=output, **attributes), x)


def pairs(values, dtype):
    a, b = zip(*itertools.product(values, values), strict=True)
    return np.array(a, dtype), np.array(b, dtype)


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(("desc_class", "_", "relation"), RELATIONS)
def test_relations_of_floats(desc_class, _, relation, dtype, truth):
    tiny = float(np.finfo(dtype).smallest_subnormal)
    a, b = pairs([math.nan, math.inf, -math.inf, 0.0, -0.0, tiny, -tiny, 1.0, -1.0], dtype)
    expected = [relation(float(x), float(y)) for x, y in zip(a, b, strict=True)]
    assert of_two(desc_class, a, b, truth).tolist() == expected


@pytest.mark.parametrize("dtype", [t.numpy for t in ALL_TYPES if not t.is_float], ids=str)
@pytest.mark.parametrize(("desc_class", "_", "relation"), RELATIONS)
def test_relations_of_integers(desc_class, _, relation, dtype):
    limits = np.iinfo(dtype)
    a, b = pairs([limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max], dtype)
    expected = [relation(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert of_two(desc_class, a, b).tolist() == expected


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize(("desc_class", "_", "connective"), CONNECTIVES)
def test_anything_but_zero_is_true(desc_class, _, connective, truth):
    a, b = pairs([0, 1, 2, 255], truth)
    expected = [connective(x, y) for x, y in zip(a, b, strict=True)]
    assert of_two(desc_class, a, b, truth).tolist() == expected
    assert of_one(descs.ElementWiseLogicalNot, a, truth).tolist() == [x == 0 for x in a]


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize(("desc_class", "name", "_"), RELATIONS)
def test_relations_agree_with_onnx(desc_class, name, _, evaluate):
    a, b = pairs([math.nan, math.inf, -1.5, 0.0, -0.0, 2.0], np.float32)
    np.testing.assert_array_equal(of_two(desc_class, a, b), evaluate(name, [a, b], np.bool_))


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize(("desc_class", "name", "_"), CONNECTIVES)
def test_connectives_agree_with_onnx(desc_class, name, _, evaluate):
    a, b = pairs([0, 1], np.uint8)
    np.testing.assert_array_equal(of_two(desc_class, a, b), evaluate(name, [a.astype(bool), b.astype(bool)]))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("truth", TRUTHS)
def test_is_nan(dtype, truth):
    x = np.array([math.nan, -math.nan, math.inf, -math.inf, 0.0, 1.0], dtype)
    assert of_one(descs.ElementWiseIsNan, x, truth).tolist() == [1, 1, 0, 0, 0, 0]


def test_is_nan_sees_every_payload():
    x = np.array([0x7F800001, 0x7FC00000, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0x7F7FFFFF], np.uint32).view(np.float32)
    assert of_one(descs.ElementWiseIsNan, x, np.uint32).tolist() == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("evaluate", [onnx_reference, onnx_runtime])
@pytest.mark.parametrize(
    ("mode", "attributes", "expected"),
    [
        (IsInfinityMode.EITHER, {}, [0, 1, 1, 0]),
        (IsInfinityMode.POSITIVE, {"detect_negative": 0}, [0, 1, 0, 0]),
        (IsInfinityMode.NEGATIVE, {"detect_positive": 0}, [0, 0, 1, 0]),
    ],
)
def test_is_infinity(mode, attributes, expected, evaluate):
    x = np.array([math.nan, math.inf, -math.inf, 3e38], np.float32)
    result = of_one(descs.ElementWiseIsInfinity, x, np.uint8, infinity_mode=mode)
    assert result.tolist() == expected
    np.testing.assert_array_equal(result, evaluate("IsInf", [x], np.bool_, **attributes))


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_if_moves_bits(data_type):
    rng = np.random.default_rng(41)
    a, b = (rng.integers(0, 256, (300, data_type.bits // 8), np.uint8).view(data_type.numpy)[:, 0] for _ in "ab")
    condition = rng.integers(0, 3, 300).astype(np.uint8)
    desc = descs.ElementWiseIf(
        condition_tensor=tensor(condition), a_tensor=tensor(a), b_tensor=tensor(b), output_tensor=tensor(a)
    )
    expected = [x if c else y for c, x, y in zip(condition, bits(a), bits(b), strict=True)]
    assert bits(run(desc, condition, a, b)).tolist() == expected
