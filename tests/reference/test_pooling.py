"""Pooling against onnxruntime and ONNX's evaluator, gradients against central differences of the forward operators."""

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from dmlgpu import descs, reference
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from tests.reference.helpers import bits, run, tensor
from tests.reference.onnx_oracle import onnx_reference, onnx_runtime

SHAPES = {
    "two axes": (
        (2, 3, 9, 11),
        {"window_size": (3, 2), "strides": (2, 3), "start_padding": (1, 0), "end_padding": (2, 1)},
    ),
    "three axes": (
        (1, 2, 5, 6, 7),
        {"window_size": (2, 3, 3), "strides": (1, 2, 3), "start_padding": (1, 1, 0), "end_padding": (0, 2, 1)},
    ),
    "whole": ((2, 4, 6, 5), {"window_size": (6, 5), "strides": (1, 1), "start_padding": (0, 0), "end_padding": (0, 0)}),
}
DILATIONS = {2: (2, 1), 3: (1, 2, 2)}


def numbers(sizes, dtype=np.float32):
    values = np.random.default_rng(sum(sizes)).standard_normal(sizes) * 10
    return values.astype(dtype)


def pooled(sizes, fields, dilations):
    values = (fields[name] for name in ("window_size", "strides", "start_padding", "end_padding"))
    axes = zip(sizes[2:], *values, dilations, strict=True)
    return (*sizes[:2], *((n + a + b - (k - 1) * d - 1) // s + 1 for n, k, s, a, b, d in axes))


def describe(cls, source, fields, dilations=None, **others):
    """A description with packed tensors."""
    if dilations is not None:
        others["dilations"] = dilations
    output = np.empty(pooled(source.shape, fields, dilations or (1,) * (source.ndim - 2)), source.dtype)
    return cls(input_tensor=tensor(source), output_tensor=tensor(output), **fields, **others)


def attributes(fields, dilations=None):
    """Return the attributes of ONNX's operator."""
    words = {
        "kernel_shape": fields["window_size"],
        "strides": fields["strides"],
        "pads": fields["start_padding"] + fields["end_padding"],
    }
    return words | ({"dilations": dilations} if dilations else {})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("include_padding", [False, True])
@pytest.mark.parametrize("dilated", [False, True])
def test_average_pooling_like_onnx(shape, include_padding, dilated):
    sizes, fields = SHAPES[shape]
    dilations = DILATIONS[len(sizes) - 2] if dilated and shape != "whole" else None
    x = numbers(sizes)
    words = attributes(fields, dilations) | {"count_include_pad": int(include_padding)}
    if dilations is None:
        expected = onnx_runtime("AveragePool", [x], **words)
        got = run(describe(descs.AveragePooling, x, fields, include_padding=include_padding), x)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    got = run(
        describe(descs.AveragePooling1, x, fields, dilations or (1,) * (x.ndim - 2), include_padding=include_padding), x
    )
    session = opset_session("AveragePool", x, words, 19)
    np.testing.assert_allclose(got, session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)


def opset_session(operator, x, words, opset, outputs=("y",)):
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    value_info = helper.make_tensor_value_info("x", kind, x.shape)
    result = [
        helper.make_tensor_value_info(name, kind if name == "y" else onnx.TensorProto.INT64, None) for name in outputs
    ]
    graph = helper.make_graph(
        [helper.make_node(operator, ["x"], list(outputs), **words)], operator, [value_info], result
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("dilated", [False, True])
def test_lp_pooling_like_onnxruntime(shape, p, dilated):
    sizes, fields = SHAPES[shape]
    dilations = DILATIONS[len(sizes) - 2] if dilated and shape != "whole" else None
    x = numbers(sizes)
    expected = opset_session("LpPool", x, attributes(fields, dilations) | {"p": p}, 18).run(None, {"x": x})[0]
    got = run(describe(descs.LpPooling1, x, fields, dilations or (1,) * (x.ndim - 2), p=p), x)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    if dilations is None:
        np.testing.assert_array_equal(run(describe(descs.LpPooling, x, fields, p=p), x), got)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dilated", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint8])
def test_max_pooling_and_its_indices_like_onnxruntime(shape, dilated, dtype):
    sizes, fields = SHAPES[shape]
    dilations = DILATIONS[len(sizes) - 2] if dilated and shape != "whole" else None
    x = numbers(sizes, np.float32).astype(np.int8).astype(dtype)  # with ties
    words = attributes(fields, dilations)
    values, places = opset_session("MaxPool", x, words, 12, ("y", "i")).run(None, {"x": x})
    desc = describe(descs.MaxPooling2, x, fields, dilations or (1,) * (x.ndim - 2))
    desc = desc.replace(output_indices_tensor=TensorDesc(DataType.UINT64, desc.output_tensor.sizes))
    got_values, got_places = reference.evaluate(desc, [x])
    np.testing.assert_array_equal(got_values, values)
    np.testing.assert_array_equal(got_places, places)
    if dilations is None:
        np.testing.assert_array_equal(run(describe(descs.MaxPooling, x, fields), x), values)
        older = describe(descs.MaxPooling1, x, fields).replace(output_indices_tensor=desc.output_indices_tensor)
        np.testing.assert_array_equal(reference.evaluate(older, [x])[1], places)


def test_max_pooling_moves_bits_and_skips_nan():
    x = np.array([1, np.nan, 2, np.nan, np.nan, np.nan, -np.inf, np.nan, -np.inf, 0.0, -0.0, -1], np.float32)
    x = x.reshape(1, 1, 1, 12)
    fields = {"window_size": (1, 3), "strides": (1, 3), "start_padding": (0, 0), "end_padding": (0, 0)}
    got = run(describe(descs.MaxPooling, x, fields), x)
    np.testing.assert_array_equal(bits(got), bits(np.array([2, np.nan, -np.inf, 0.0], np.float32).reshape(1, 1, 1, 4)))


def test_max_unpooling_undoes_max_pooling_like_onnx():
    x = np.random.default_rng(0).permutation(2 * 3 * 6 * 8).astype(np.float32).reshape(2, 3, 6, 8)
    fields = {"window_size": (2, 2), "strides": (2, 2), "start_padding": (0, 0), "end_padding": (0, 0)}
    desc = describe(descs.MaxPooling1, x, fields)
    desc = desc.replace(output_indices_tensor=TensorDesc(DataType.UINT32, desc.output_tensor.sizes))
    values, places = reference.evaluate(desc, [x])
    unpooling = descs.MaxUnpooling(input_tensor=tensor(values), indices_tensor=tensor(places), output_tensor=tensor(x))
    got = run(unpooling, values, places)
    words = {"kernel_shape": [2, 2], "strides": [2, 2]}
    expected = onnx_reference("MaxUnpool", [values, places.astype(np.int64)], np.float32, **words)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(got[got != 0], x[got != 0])


def by_differences(forward, x, gradient, step=1e-3):
    """Return the gradient of sum(forward(x) * gradient), by central differences."""
    result = np.zeros(x.shape)
    for place in itertools.product(*map(range, x.shape)):
        moved = np.zeros_like(x)
        moved[place] = step
        result[place] = ((forward(x + moved) - forward(x - moved)) * gradient).sum() / (2 * step)
    return result


GRADIENTS = ((1, 2, 5, 6), {"window_size": (3, 2), "strides": (2, 1), "start_padding": (1, 1), "end_padding": (1, 0)})


@pytest.mark.parametrize("include_padding", [False, True])
def test_average_pooling_grad_is_the_derivative(include_padding):
    sizes, fields = GRADIENTS
    x = np.random.default_rng(1).standard_normal(sizes)
    float64 = TensorDesc(DataType.FLOAT64, sizes)
    forward_desc = describe(descs.AveragePooling, x.astype(np.float32), fields, include_padding=include_padding)
    forward = reference.find("AVERAGE_POOLING")
    gradient = np.random.default_rng(2).standard_normal(forward_desc.output_tensor.sizes)
    expected = by_differences(lambda moved: forward(forward_desc, moved), x, gradient)
    desc = descs.AveragePoolingGrad(
        input_gradient_tensor=tensor(gradient),
        output_gradient_tensor=float64,
        include_padding=include_padding,
        **fields,
    )
    np.testing.assert_allclose(run(desc, gradient), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dilations", [(1, 1), (2, 1)])
def test_max_pooling_grad_is_the_derivative(dilations):
    sizes, fields = GRADIENTS
    if dilations == (2, 1):
        fields = fields | {"window_size": (2, 2)}
    x = np.random.default_rng(1).permutation(np.arange(60.0)).reshape(sizes)
    forward_desc = describe(descs.MaxPooling2, x.astype(np.float32), fields, dilations)
    forward = reference.find("MAX_POOLING2")
    gradient = np.random.default_rng(2).standard_normal(forward_desc.output_tensor.sizes)
    expected = by_differences(lambda moved: forward(forward_desc, moved)[0], x, gradient)
    desc = descs.MaxPoolingGrad(
        input_tensor=tensor(x),
        input_gradient_tensor=tensor(gradient),
        output_gradient_tensor=tensor(x),
        dilations=dilations,
        **fields,
    )
    np.testing.assert_allclose(run(desc, x, gradient), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("include_padding", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_quantized_average_pooling_dequantizes_averages_and_quantizes(include_padding, dtype):
    sizes, fields = SHAPES["two axes"]
    rng = np.random.default_rng(3)
    q = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, sizes).astype(dtype)
    scales = [np.full((1, 1, 1, 1), value, np.float32) for value in (0.125, 0.0625)]
    zeros = [np.full((1, 1, 1, 1), value, dtype) for value in (7, 100)]
    real = onnx_runtime("DequantizeLinear", [q, scales[0].reshape(()), zeros[0].reshape(())], np.float32)
    words = attributes(fields) | {"count_include_pad": int(include_padding)}
    averages = onnx_runtime("AveragePool", [real], **words)
    expected = onnx_runtime("QuantizeLinear", [averages, scales[1].reshape(()), zeros[1].reshape(())], dtype)
    desc = descs.QuantizedLinearAveragePooling(
        input_tensor=tensor(q),
        input_scale_tensor=tensor(scales[0]),
        input_zero_point_tensor=tensor(zeros[0]),
        output_scale_tensor=tensor(scales[1]),
        output_zero_point_tensor=tensor(zeros[1]),
        output_tensor=TensorDesc(DataType.from_numpy(np.dtype(dtype)), pooled(sizes, fields, (1, 1))),
        dilations=(1, 1),
        include_padding=include_padding,
        **fields,
    )
    got = run(desc, q, scales[0], zeros[0], scales[1], zeros[1])
    # Quotients that lie on a half may fall to either side: averages of three or six are rounded before they are scaled.
    assert np.abs(got.astype(int) - expected.astype(int)).max() <= 1
    assert (got == expected).mean() > 0.99


@pytest.mark.parametrize(
    ("input_scale", "output_scale", "expected"),
    [
        (1e38, 3e38, 255),  # 127 * 1e38 is infinite; the scale of the output is not
        (-1e38, 3e38, 0),
        (np.inf, np.inf, 3),  # NaN counts as 0
        (np.nan, 1.0, 3),
        (1.0, np.nan, 3),
        (1.0, np.inf, 3),
        (1.0, 0.0, 255),
        (0.0, 0.0, 3),
        (np.inf, 0.5, 255),
    ],
)
def test_quantized_average_pooling_by_steps_in_float32(input_scale, output_scale, expected):
    """The average is 127, not its sum over two scales of the output."""
    q, zero = np.full((1, 1, 1, 2), 255, np.uint8), np.full((1, 1, 1, 1), 128, np.uint8)
    scales = [np.full((1, 1, 1, 1), value, np.float32) for value in (input_scale, output_scale)]
    shift = np.full((1, 1, 1, 1), 3, np.uint8)
    desc = descs.QuantizedLinearAveragePooling(
        input_tensor=tensor(q),
        input_scale_tensor=tensor(scales[0]),
        input_zero_point_tensor=tensor(zero),
        output_scale_tensor=tensor(scales[1]),
        output_zero_point_tensor=tensor(shift),
        output_tensor=TensorDesc(DataType.UINT8, (1, 1, 1, 1)),
        strides=(1, 1),
        window_size=(1, 2),
        start_padding=(0, 0),
        end_padding=(0, 0),
        dilations=(1, 1),
        include_padding=False,
    )
    assert run(desc, q, scales[0], zero, scales[1], shift).item() == expected
