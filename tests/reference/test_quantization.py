"""Quantization against exact fractions, ONNX's evaluator and onnxruntime."""

import math
from fractions import Fraction

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from dmlgpu import descs, reference
from dmlgpu.catalog.enums import DataType, QuantizationType
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference.helpers import run, tensor

F32 = DataType.FLOAT32
LIMITS = {
    DataType.INT8: (-128, 127),
    DataType.UINT8: (0, 255),
    DataType.INT4: (-8, 7),
    DataType.UINT4: (0, 15),
}
ONNX_TYPES = {
    DataType.INT8: onnx.TensorProto.INT8,
    DataType.UINT8: onnx.TensorProto.UINT8,
    DataType.INT4: onnx.TensorProto.INT4,
    DataType.UINT4: onnx.TensorProto.UINT4,
}


def quantize(values, scale, zero, data_type):
    tensors = [TensorDesc(DataType.from_numpy(scale.dtype), scale.shape), TensorDesc(data_type, scale.shape)]
    desc = descs.Quantize(
        input_tensor=tensor(values),
        quantization_type=QuantizationType.SCALE if zero is None else QuantizationType.SCALE_ZERO_POINT,
        quantization_tensors=tensors[: 1 if zero is None else 2],
        output_tensor=TensorDesc(data_type, values.shape),
    )
    return run(desc, values, scale, *([] if zero is None else [zero]))


def dequantize(values, scale, zero, data_type):
    tensors = [TensorDesc(DataType.from_numpy(scale.dtype), scale.shape), TensorDesc(data_type, scale.shape)]
    desc = descs.Dequantize(
        input_tensor=TensorDesc(data_type, values.shape),
        quantization_type=QuantizationType.SCALE if zero is None else QuantizationType.SCALE_ZERO_POINT,
        quantization_tensors=tensors[: 1 if zero is None else 2],
        output_tensor=TensorDesc(tensors[0].data_type, values.shape),
    )
    return run(desc, values, scale, *([] if zero is None else [zero]))


def integers(rng, data_type, shape):
    low, high = LIMITS[data_type]
    return np.asarray(rng.integers(low, high, shape, endpoint=True), data_type.numpy)


@given(
    st.sampled_from(list(LIMITS)),
    st.integers(-3000, 3000),
    st.integers(-3, 3),
    st.data(),
)
def test_ties_round_to_even_and_large_quotients_saturate(data_type, sixteenths, power, data):
    """Scales are powers of two, so that quotients are exact; Python rounds ties of fractions to even."""
    low, high = LIMITS[data_type]
    zero = data.draw(st.integers(low, high))
    scale = Fraction(2) ** power
    value = Fraction(sixteenths, 16) * scale
    expected = min(max(round(value / scale) + zero, low), high)
    given_values = np.array([float(value)], np.float32), np.array([float(scale)], np.float32)
    assert quantize(*given_values, np.array([zero], data_type.numpy), data_type)[0] == expected


def test_special_quotients():
    values = np.array([math.nan, math.inf, -math.inf, 0.0, 3e38], np.float32)
    scale, zero = np.array([1e-3], np.float32), np.array([5], np.uint8)
    np.testing.assert_array_equal(quantize(values, scale, zero, DataType.UINT8), [5, 255, 0, 5, 255])
    nothing = np.array([0.0], np.float32)
    np.testing.assert_array_equal(quantize(values[1:4], nothing, zero, DataType.UINT8), [255, 0, 5])


def onnx_model(operator, inputs, **attributes):
    """A model with its inputs as initializers, since NumPy has no 4-bit arrays to feed."""
    names = [f"input{index}" for index in range(len(inputs))]
    result = [
        helper.make_tensor(name, kind, array.shape, array.ravel().tolist())
        for name, (array, kind) in zip(names, inputs, strict=True)
    ]
    node = helper.make_node(operator, names, ["quantized"], **attributes)
    cast = helper.make_node("Cast", ["quantized"], ["output"], to=onnx.TensorProto.FLOAT)
    output = helper.make_tensor_value_info("output", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node, cast], operator, [], [output], result)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def by_onnxruntime(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {})[0]


def by_onnx(model):
    return ReferenceEvaluator(model).run(None, {})[0]


# the scale's shape in ONNX and in DirectML, for an input of 4 x 6
SHAPES = {
    "one scale": ((), (1, 1), {}),
    "an axis": ((6,), (1, 6), {"axis": 1}),
    "blocks": ((4, 3), (4, 3), {"axis": 1, "block_size": 2}),
}


@pytest.mark.parametrize("evaluate", [by_onnx, by_onnxruntime])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("data_type", LIMITS, ids=lambda t: t.name)
def test_quantize_agrees_with_onnx(data_type, name, evaluate):
    shape, sizes, attributes = SHAPES[name]
    rng = np.random.default_rng(7)
    scale = np.asarray(2.0 ** rng.integers(-2, 3, shape), np.float32)
    zero = integers(rng, data_type, shape)
    values = (rng.integers(-600, 600, (4, 6)) / 4).astype(np.float32)
    if data_type.bits == 4:
        values /= 16
    kind = ONNX_TYPES[data_type]
    inputs = [(values, 1), (scale, 1), (zero, kind)]
    want = evaluate(onnx_model("QuantizeLinear", inputs, **attributes))
    got = quantize(values, scale.reshape(sizes), zero.reshape(sizes), data_type)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("evaluate", [by_onnx, by_onnxruntime])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("data_type", LIMITS, ids=lambda t: t.name)
def test_dequantize_agrees_with_onnx(data_type, name, evaluate):
    shape, sizes, attributes = SHAPES[name]
    rng = np.random.default_rng(8)
    scale = np.asarray(rng.random(shape), np.float32)
    zero = integers(rng, data_type, shape)
    values = integers(rng, data_type, (4, 6))
    kind = ONNX_TYPES[data_type]
    want = evaluate(onnx_model("DequantizeLinear", [(values, kind), (scale, 1), (zero, kind)], **attributes))
    np.testing.assert_array_equal(dequantize(values, scale.reshape(sizes), zero.reshape(sizes), data_type), want)


def test_element_wise_operators_take_a_scale_per_element():
    rng = np.random.default_rng(9)
    values, scale = rng.normal(0, 90, (3, 5)).astype(np.float32), rng.random((3, 5)).astype(np.float32) + 1
    zero = rng.integers(0, 256, (3, 5)).astype(np.uint8)
    fields = {"scale_tensor": tensor(scale), "zero_point_tensor": tensor(zero)}
    desc = descs.ElementWiseQuantizeLinear(input_tensor=tensor(values), output_tensor=tensor(zero), **fields)
    elements = zip(values.ravel(), scale.ravel(), zero.ravel(), strict=True)
    want = [quantize(*(number.reshape(1) for number in element), DataType.UINT8)[0] for element in elements]
    quantized = run(desc, values, scale, zero)
    np.testing.assert_array_equal(quantized.ravel(), want)
    desc = descs.ElementWiseDequantizeLinear(input_tensor=tensor(zero), output_tensor=tensor(scale), **fields)
    difference = quantized.astype(np.int64) - zero
    np.testing.assert_array_equal(
        run(desc, quantized, scale, zero), (difference * scale.astype(np.float64)).astype("f4")
    )


def test_differences_of_32_bit_integers_do_not_wrap():
    low, high = np.array([-(2**31)], np.int32), np.array([2**31 - 1], np.int32)
    unit = np.array([1], np.float32)
    desc = descs.ElementWiseDequantizeLinear(
        input_tensor=tensor(low), scale_tensor=tensor(unit), zero_point_tensor=tensor(high), output_tensor=tensor(unit)
    )
    assert run(desc, low, unit, high)[0] == np.float32(-(2**32))


@given(st.integers(0, 2**32 - 1))
def test_quantized_addition_follows_the_formula(seed):
    """Scales are sixteenths and the output's is a power of two, so that everything is exact."""
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(0, 256, 9).astype(np.uint8) for _ in range(2))
    scales = [np.array([n], np.float32) for n in (int(rng.integers(1, 60)) / 16, int(rng.integers(1, 60)) / 16, 4.0)]
    zeros = [rng.integers(0, 256, 1).astype(np.uint8) for _ in range(3)]
    desc = descs.ElementWiseQuantizedLinearAdd(
        a_tensor=tensor(a),
        a_scale_tensor=tensor(scales[0]),
        a_zero_point_tensor=tensor(zeros[0]),
        b_tensor=tensor(b),
        b_scale_tensor=tensor(scales[1]),
        b_zero_point_tensor=tensor(zeros[1]),
        output_scale_tensor=tensor(scales[2]),
        output_zero_point_tensor=tensor(zeros[2]),
        output_tensor=tensor(a),
    )
    got = run(desc, a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2])
    for place in range(9):
        parts = zip((a, b), scales, zeros, strict=False)
        total = sum((int(x[place]) - int(zero[0])) * Fraction(float(scale[0])) for x, scale, zero in parts)
        assert got[place] == min(max(round(total / 4) + int(zeros[2][0]), 0), 255)


def dynamic(values, data_type=DataType.UINT8):
    single = (1,) * values.ndim
    desc = descs.DynamicQuantizeLinear(
        input_tensor=tensor(values),
        output_tensor=TensorDesc(data_type, values.shape),
        output_scale_tensor=TensorDesc(F32, single),
        output_zero_point_tensor=TensorDesc(data_type, single),
    )
    return reference.evaluate(desc, [values])


RANGES = {"both signs": (-3, 5), "positive": (2, 5), "negative": (-7, -1)}


@pytest.mark.parametrize("evaluate", [ReferenceEvaluator, None], ids=["onnx", "onnxruntime"])
@pytest.mark.parametrize("name", RANGES)
def test_dynamic_quantization_agrees_with_onnx(name, evaluate):
    values = np.random.default_rng(10).uniform(*RANGES[name], (7, 9)).astype(np.float32)
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    outputs = [helper.make_tensor_value_info(n, kind, None) for n, kind in (("y", 2), ("scale", 1), ("zero", 2))]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 1, values.shape)], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    runner = evaluate(model) if evaluate else onnxruntime.InferenceSession(model.SerializeToString())
    want, scale, zero = runner.run(None, {"x": values})
    elements, got_scale, got_zero = dynamic(values)
    np.testing.assert_array_max_ulp(got_scale[0, 0], scale, 1)
    assert got_zero[0, 0] == zero
    np.testing.assert_array_equal(elements, want)


@pytest.mark.parametrize(("data_type", "zero"), [(DataType.UINT8, 0), (DataType.INT8, -128)])
def test_an_empty_range_has_scale_1(data_type, zero):
    elements, scale, zero_point = dynamic(np.zeros((2, 3), np.float32), data_type)
    assert (scale.tolist(), zero_point.tolist()) == ([[1]], [[zero]])
    assert set(elements.ravel().tolist()) == {zero}


def test_nan_does_not_count_for_the_range():
    elements, scale, zero = dynamic(np.array([math.nan, -1, 4.1], np.float32))
    assert scale[0] == np.float32(np.float32(4.1) + 1) / np.float32(255)
    assert elements.tolist() == [zero[0], 0, 255]


def test_an_infinite_range_has_an_infinite_scale():
    elements, scale, zero = dynamic(np.array([1, math.inf, -1], np.float32))
    assert (scale.tolist(), zero.tolist(), elements.tolist()) == ([math.inf], [0], [0, 0, 0])
