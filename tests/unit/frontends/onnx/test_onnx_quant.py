"""Quantized operators of ONNX and of com.microsoft, on the adapter numpy against onnxruntime's CPU provider."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from dmlgpu.common.errors import NotSupported
from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.onnx_against import check_reference
from tests.unit.frontends.onnx.onnx_models import MICROSOFT, check, check_node, model_of, onnxruntime_outputs

FLOAT, UINT8, INT8, INT32 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32
SCALE, ZERO = np.float32(0.05), np.uint8(120)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(*shape: int, dtype: Any = np.uint8, seed: int = 0) -> np.ndarray:
    held = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(held.min, held.max, shape, dtype, endpoint=True)


def halves(*shape: int, dtype: Any = np.int8, seed: int = 0) -> np.ndarray:
    """Return integers of half the range, since onnxruntime's products of uint8 by int8 saturate on some CPUs."""
    return (integers(*shape, dtype=dtype, seed=seed) // 2).astype(dtype)


# ---- QuantizeLinear, DequantizeLinear


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_quantize_and_dequantize(dtype: Any, axis: int | None) -> None:
    x = np.concatenate([floats(3, 4) * 100, [[0.25, -0.25, 0.75, 1e9]]]).astype(np.float32)
    scale = SCALE * 10 if axis is None else np.linspace(0.1, 1, 4, dtype=np.float32)
    zero = np.full(np.shape(scale), 3, dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    attributes = {} if axis is None else {"axis": axis}
    (result,) = check_node("QuantizeLinear", [x, scale, zero], kind, **attributes)
    check_node("DequantizeLinear", [result, scale, zero], FLOAT, **attributes)


@pytest.mark.parametrize("version", [21, 23])
def test_integers_by_a_scale_of_integers(version: int) -> None:
    x, scale = np.array([10, -1, 0, 250, 301, -300, 5, 7], np.int32), np.array(2, np.int32)
    for zero in (np.uint8(3), np.int8(-5)):
        check_reference("QuantizeLinear", [x, scale, np.array(zero)], ["y"], version=version)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
@pytest.mark.parametrize("columns", [8, 7])
def test_blocks(dtype: Any, columns: int) -> None:
    x, scale = floats(3, columns, 2) * 10, np.abs(floats(3, 2, 2, seed=1)) + 0.1
    zero = np.abs(integers(3, 2, 2, dtype=np.int8) // 2).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    attributes = {"axis": 1, "block_size": 4}
    (result,) = check_node("QuantizeLinear", [x, scale, zero], kind, **attributes)
    check_node("DequantizeLinear", [result, scale, zero], FLOAT, **attributes)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize(("shape", "block"), [((2, 2), 4), ((2, 3), 3), ((2,), 0), ((), 0)])
def test_four_bits(kind: int, shape: tuple[int, ...], block: int) -> None:
    x, scale = floats(2, 8) * 10, np.abs(floats(*shape, seed=1)) + np.float32(0.5)
    attributes = {"axis": 1, "block_size": block} if block else {"axis": 0}
    zero = helper.make_tensor("zero", kind, shape, np.full(shape, 2).reshape(-1))
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], **attributes),
    ]
    model = model_of(nodes, {"x": x}, {"y": FLOAT}, {"scale": scale, "zero": zero})
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(load(model, "numpy").run({"x": x})["y"], expected, rtol=1e-6)


def test_int32_and_types_of_results() -> None:
    check_node("DequantizeLinear", [integers(5, dtype=np.int32), SCALE], FLOAT)
    check_node("QuantizeLinear", [floats(9), SCALE], INT8, output_dtype=INT8)
    x = floats(9).astype(np.float16)
    (result,) = check_node("QuantizeLinear", [x, np.float16(0.1), ZERO], UINT8)
    check_node("DequantizeLinear", [result, np.float16(0.1), ZERO], TensorProto.FLOAT16)


def test_integers_of_32_bits() -> None:
    x = np.arange(-9, 9, dtype=np.int32)
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"])
    model = model_of([node], {"x": x}, {"y": INT8}, {"scale": np.float32(0.3), "zero": np.int8(5)}, opset=13)
    result = load(model, "numpy").run({"x": x})["y"]
    np.testing.assert_array_equal(result, np.rint(x.astype(np.float32) / np.float32(0.3)) + 5)


def test_dynamic_quantization() -> None:
    check_node("DynamicQuantizeLinear", [floats(3, 5)], UINT8, FLOAT, UINT8, limits={"steps": 1})
    check_node("DynamicQuantizeLinear", [floats(3, 5) + 9], UINT8, FLOAT, UINT8, limits={"steps": 1})


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16])
def test_microsoft_versions(dtype: Any) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    (result,) = check_node("QuantizeLinear", [floats(9), SCALE, dtype(7)], kind, domain=MICROSOFT)
    check_node("DequantizeLinear", [result, SCALE, dtype(7)], FLOAT, domain=MICROSOFT)


# ---- products


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 2, 3, 4), (3, 2, 4, 5)), ((4,), (4, 5))],
)
def test_integer_products(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = integers(*left), halves(*right, seed=1)
    check_node("MatMulInteger", [a, b], INT32)
    check_node("MatMulInteger", [a, b, np.uint8(9), np.int8(-3)], INT32)
    if len(right) == 2:
        check_node("MatMulInteger", [a, b, np.uint8(9), halves(5, seed=2)], INT32)


def test_zero_points_of_every_matrix() -> None:
    a, b = integers(2, 3, 4), integers(2, 4, 5, seed=1)
    zeros = integers(2, 3, 1, seed=2), integers(2, 1, 5, seed=3)
    node = helper.make_node("MatMulInteger", ["a", "b", "c", "d"], ["y"])
    feeds = {"a": a, "b": b, "c": zeros[0], "d": zeros[1]}
    result = load(model_of([node], feeds, {"y": INT32}), "numpy").run(feeds)["y"]
    wide = [array.astype(np.int32) for array in (a, zeros[0], b, zeros[1])]
    np.testing.assert_array_equal(result, (wide[0] - wide[1]) @ (wide[2] - wide[3]))


@pytest.mark.parametrize("columns", [False, True])
def test_quantized_products(columns: bool) -> None:
    a, b = integers(2, 3, 8), halves(8, 5, seed=1)
    scale = np.linspace(0.01, 0.05, 5, dtype=np.float32) if columns else np.float32(0.02)
    zero = np.zeros(5, np.int8) if columns else np.int8(3)
    arrays = [a, SCALE, ZERO, b, scale, zero, np.float32(0.5), ZERO]
    check_node("QLinearMatMul", arrays, UINT8, weights=(3, 4, 5), limits={"steps": 1})


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantized_convolution(dtype: Any) -> None:
    x, filters = integers(1, 4, 7, 6), halves(6, 2, 3, 3, dtype=dtype, seed=1)
    scales = np.linspace(0.01, 0.03, 6, dtype=np.float32)
    zeros = np.full(6, 128 if dtype is np.uint8 else 0, dtype)
    bias = np.arange(-300, 300, 100, dtype=np.int32)
    arrays = [x, SCALE, ZERO, filters, scales, zeros, np.float32(0.5), ZERO, bias]
    attributes = {"group": 2, "pads": [1, 1, 0, 2], "strides": [2, 1]}
    check_node("QLinearConv", arrays, UINT8, weights=(3, 4, 5), limits={"steps": 1}, **attributes)
    check_node("ConvInteger", [x, filters[:, :, :, :2], ZERO, dtype(5)], INT32, **attributes)


def test_quantized_convolution_of_rows() -> None:
    arrays = [integers(2, 3, 9), SCALE, ZERO, integers(4, 3, 3, seed=1), SCALE, ZERO, np.float32(0.9), ZERO]
    check_node("QLinearConv", arrays, UINT8, limits={"steps": 1})
    check_node("ConvInteger", [arrays[0], arrays[3], ZERO], INT32, auto_pad="SAME_UPPER")


def test_three_dimensions_are_rejected() -> None:
    arrays = integers(1, 1, 3, 3, 3), integers(1, 1, 2, 2, 2)
    with pytest.raises(NotSupported, match="1 or 2 spatial dimensions"):
        check_node("ConvInteger", arrays, INT32)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_gemm(dtype: Any) -> None:
    a, b, c = integers(5, 3, dtype=dtype), halves(4, 5, seed=1), np.arange(4, dtype=np.int32)
    arrays = [a, SCALE, dtype(3), b, np.float32(0.02), np.int8(0), c]
    attributes: dict[str, Any] = {"domain": MICROSOFT, "transA": 1, "transB": 1, "alpha": 1.5}
    check_node("QGemm", arrays, FLOAT, **attributes)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    check_node("QGemm", [*arrays, np.float32(0.3), dtype(1)], kind, limits={"steps": 1}, **attributes)


def test_a_scale_of_rows_in_two_dimensions_is_rejected() -> None:
    """onnxruntime takes a scalar or a vector, and computes something else from a matrix."""
    arrays = [integers(2, 3), integers(3, 2), np.full((1, 1), 0.5, np.float32), SCALE]
    with pytest.raises(NotSupported, match="input 2 must have 0 or 1 dimensions"):
        check_node("MatMulIntegerToFloat", arrays, FLOAT, domain=MICROSOFT)


@pytest.mark.parametrize(
    ("place", "array", "reason"),
    [
        (8, None, "y_scale and y_zero_point must be given together"),
        (7, None, "y_scale and y_zero_point must be given together"),
        (3, np.ones(3, np.uint8), "input 3 must have 2 dimensions"),
        (0, np.ones(3, np.uint8), "input 0 must have 2 dimensions"),
    ],
)
def test_gemm_of_shapes_that_do_not_match(place: int, array: Any, reason: str) -> None:
    zero = np.uint8(1)
    arrays: list[Any] = [integers(2, 3), SCALE, zero, integers(3, 2), SCALE, zero, None, SCALE, zero]
    arrays[place] = array
    with pytest.raises(NotSupported, match=reason):
        check_node("QGemm", arrays, TensorProto.UINT8, domain=MICROSOFT, transA=1, transB=1)


def test_products_to_floats() -> None:
    a, b, bias = integers(2, 3, 8), integers(8, 5, seed=1), floats(5)
    scales = np.linspace(0.01, 0.03, 5, dtype=np.float32)
    arrays = [a, b, SCALE, scales, ZERO, integers(5, seed=2), bias]
    check_node("MatMulIntegerToFloat", arrays, FLOAT, domain=MICROSOFT, limits={"atol": 1e-4})
    arrays = [floats(2, 3, 8), b, scales, integers(5, seed=2), bias]
    check_node("DynamicQuantizeMatMul", arrays, FLOAT, domain=MICROSOFT, weights=(1, 2, 3), limits={"atol": 1e-3})
    arrays[3] = arrays[3][None]  # zero points of columns as a matrix
    check_node("DynamicQuantizeMatMul", arrays, FLOAT, domain=MICROSOFT, weights=(1, 2, 3), limits={"atol": 1e-3})


@pytest.mark.parametrize("inner", [64, 96, 40])
@pytest.mark.parametrize(("bits", "zeros"), [(4, None), (4, "packed"), (4, "floats"), (8, None), (8, "packed")])
def test_matrix_of_few_bits(inner: int, bits: int, zeros: str | None) -> None:
    columns, block = 6, 32
    count = -(-inner // block)
    arrays: list[Any] = [floats(2, 3, inner), integers(columns, count, block * bits // 8, seed=1)]
    arrays.append(np.abs(floats(columns * count, seed=2)))
    if zeros == "packed":
        arrays.append(integers(columns * -(-count * bits // 8), seed=3))
    elif zeros == "floats":
        arrays.append(floats(columns * count, seed=3) + 8)
    arrays += [None] * (5 - len(arrays)) + [floats(columns)]
    attributes = {"K": inner, "N": columns, "bits": bits, "block_size": block}
    weights = [index for index in range(1, 4) if arrays[index] is not None]
    check_node(
        "MatMulNBits",
        arrays,
        FLOAT,
        domain=MICROSOFT,
        weights=weights,
        limits={"rtol": 1e-4, "atol": 2e-2},
        **attributes,
    )


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("bits", "inner", "block", "has_zeros"), [(4, 64, 32, False), (4, 200, 64, True), (8, 256, 16, True)]
)
def test_rows_of_integers_are_rounded_as_by_onnxruntime(
    kind: Any, bits: int, inner: int, block: int, has_zeros: bool
) -> None:
    columns, count = 6, -(-inner // block)
    rows = floats(3, inner).astype(kind)
    rows[1, :block] = 0
    weights = {"b": integers(columns, count, block * bits // 8, seed=1)}
    weights["s"] = np.abs(floats(columns * count, seed=2)).astype(kind)
    if has_zeros:
        weights["z"] = integers(columns * -(-count * bits // 8), seed=3)
    attributes = {"K": inner, "N": columns, "bits": bits, "block_size": block}

    def model(**more: Any) -> onnx.ModelProto:
        node = helper.make_node("MatMulNBits", ["x", *weights], ["y"], domain=MICROSOFT, **attributes, **more)
        return model_of([node], {"x": rows}, {"y": helper.np_dtype_to_tensor_dtype(np.dtype(kind))}, weights)

    (expected,) = onnxruntime_outputs(model(accuracy_level=4), {"x": rows})
    (exact,) = (load(model(), "numpy").run({"x": rows})).values()
    (result,) = (load(model(activations="int8"), "numpy").run({"x": rows})).values()
    largest = np.abs(exact).max()
    assert np.abs(exact - expected).max() > 2e-3 * largest
    np.testing.assert_allclose(result, expected, rtol=0, atol=(1e-6 if kind is np.float32 else 2e-3) * largest)


def test_rows_are_floats_or_integers_of_8_bits() -> None:
    node = helper.make_node(
        "MatMulNBits", ["x", "b", "s"], ["y"], domain=MICROSOFT, K=32, N=1, block_size=32, activations="int4"
    )
    weights = {"b": integers(1, 1, 16), "s": floats(1)}
    model = model_of([node], {"x": floats(1, 32)}, {"y": FLOAT}, weights)
    with pytest.raises(NotSupported, match="activations must be \"int8\" or absent, got 'int4'"):
        load(model, "numpy").run({"x": floats(1, 32)})


def test_halves_by_a_matrix_of_few_bits() -> None:
    rows, weights = floats(3, 64).astype(np.float16), integers(6, 2, 16, seed=1)
    arrays = [rows, weights, np.abs(floats(12, seed=2)).astype(np.float16), integers(6, seed=3)]
    attributes: dict[str, Any] = {"K": 64, "N": 6, "bits": 4, "block_size": 32, "limits": {"rtol": 1e-2, "atol": 0.3}}
    check_node("MatMulNBits", arrays, TensorProto.FLOAT16, domain=MICROSOFT, weights=(1, 2, 3), **attributes)


@pytest.mark.parametrize("kind", [TensorProto.UINT4, TensorProto.INT4, UINT8])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_gather_of_blocks(kind: int, has_zeros: bool) -> None:
    columns = 16 if kind == UINT8 else 32
    data = integers(10, columns)
    table: Any = data
    zeros: Any = integers(10, 1, seed=4)
    if kind != UINT8:
        table = onnx.TensorProto(name="t", data_type=kind, dims=(10, 32), raw_data=integers(160).tobytes())
        zeros = onnx.TensorProto(name="z", data_type=kind, dims=(10, 2), raw_data=integers(10, seed=4).tobytes())
    names = ["t", "i", "s", *(["z"] if has_zeros else [])]
    node = helper.make_node("GatherBlockQuantized", names, ["y"], domain=MICROSOFT, block_size=16, quantize_axis=1)
    weights = {"t": table, "s": np.abs(floats(10, 2)), **({"z": zeros} if has_zeros else {})}
    feeds = {"i": np.array([[3, 0], [9, 3]])}
    check(model_of([node], feeds, {"y": FLOAT}, weights), feeds)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("indices", [np.array([[3, 0], [9, -1]]), np.array(4)])
def test_gather_of_blocks_in_three_dimensions(bits: int, indices: Any) -> None:
    inputs = [integers(10, 3, 32 * bits // 8), indices, np.abs(floats(10, 3, 1))]
    attributes = {"bits": bits, "block_size": 32, "gather_axis": 0, "quantize_axis": 2}
    check_node("GatherBlockQuantized", inputs, FLOAT, domain=MICROSOFT, weights=(0, 2), **attributes)


def test_gather_of_blocks_with_other_scales() -> None:
    inputs = [integers(10, 32), np.array([1]), np.ones((10, 2), np.float32)]
    with pytest.raises(NotSupported, match=r"scales of shape \[10, 2\] do not fit \[10, 32\] in blocks of 32"):
        check_node("GatherBlockQuantized", inputs, FLOAT, domain=MICROSOFT, bits=8, block_size=32)


@pytest.mark.parametrize("attributes", [{"block_size": 0}, {"block_size": -16}, {"block_size": 24}, {"bits": 3}])
def test_blocks_that_do_not_fit(attributes: dict[str, int]) -> None:
    inputs = [integers(2, 16), np.array([1]), np.ones((2, 1), np.float32)]
    with pytest.raises(NotSupported, match="bits must be 4 or 8 and block_size a power of 2 from 16 on"):
        check_node("GatherBlockQuantized", inputs, FLOAT, domain=MICROSOFT, **{"bits": 8, **attributes})


# ---- elements


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantized_elements(dtype: Any) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    a, b = integers(2, 3, 4, 4, dtype=dtype), integers(3, 1, 4, dtype=dtype, seed=1)
    first, other, result = [SCALE, dtype(3)], [np.float32(0.03), dtype(9)], [np.float32(0.2), dtype(5)]
    attributes: dict[str, Any] = {"domain": MICROSOFT, "limits": {"steps": 1}}
    for name in ("QLinearAdd", "QLinearMul"):
        check_node(name, [a, *first, b, *other, *result], kind, **attributes)
    small = [np.float32(1 / 256), dtype(0)]
    check_node("QLinearSigmoid", [a, *first, *small], kind, weights=(1, 2, 3, 4), **attributes)
    check_node("QLinearLeakyRelu", [a, *first, *other], kind, weights=(1, 2, 3, 4), alpha=0.2, **attributes)
    check_node("QLinearConcat", [*result, a, *first, a, *other], kind, axis=1, weights=(0, 1, 3, 4, 6, 7), **attributes)
    condition = integers(3, 4, 1, seed=4) > 128
    check_node("QLinearWhere", [condition, a, *first, b, *other, *result], kind, **attributes)


def test_quantized_softmax() -> None:
    x = integers(2, 3, 4)
    for opset, axis in ((13, -1), (13, 1), (12, 1)):
        arrays = [x, SCALE, ZERO, np.float32(1 / 256), np.uint8(0)]
        node = helper.make_node(
            "QLinearSoftmax", ["x", "a", "b", "c", "d"], ["y"], domain=MICROSOFT, axis=axis, opset=opset
        )
        weights = dict(zip("abcd", arrays[1:], strict=True))
        check(model_of([node], {"x": x}, {"y": UINT8}, weights, 13), {"x": x}, steps=1)


@pytest.mark.parametrize("last", [0, 1])
def test_quantized_pools(last: int) -> None:
    x = integers(2, 7, 6, 3) if last else integers(2, 3, 7, 6)
    arrays = [x, SCALE, ZERO, np.float32(0.04), np.uint8(100)]
    attributes: dict[str, Any] = {
        "domain": MICROSOFT,
        "channels_last": last,
        "weights": (1, 2, 3, 4),
        "limits": {"steps": 1},
    }
    check_node("QLinearGlobalAveragePool", arrays, UINT8, **attributes)
    for ceil in (0, 1):
        window = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0], "ceil_mode": ceil}
        check_node("QLinearAveragePool", arrays, UINT8, **window, **attributes)
    check_node(
        "QLinearAveragePool", arrays, UINT8, kernel_shape=[2, 3], count_include_pad=1, pads=[1, 1, 0, 1], **attributes
    )
