"""Types of ONNX that DirectML lacks: bfloat16, floats of 8 and 4 bits, integers of 2 bits; against ml_dtypes and ONNX's
reference, on the adapter numpy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dmlgpu import InvalidArgument, NotSupported
from dmlgpu.frontends.onnx import load
from dmlgpu.onnxruntime import InferenceSession

FLOAT, HALF, BFLOAT16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
FLOATS = {
    TensorProto.BFLOAT16: ml_dtypes.bfloat16,
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
}


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, int],
    outputs: dict[str, int],
    weights: dict[str, np.ndarray] | None = None,
    *,
    opset: int = 25,
    rank: int = 1,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "codes",
        [helper.make_tensor_value_info(name, kind, [None] * rank) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=12)


def bits(array: Any) -> np.ndarray:
    """Return the bits of elements, of all NaNs the same."""
    held = np.asarray(array)
    nans = np.isnan(held.astype(np.float32))
    return np.where(nans, 0xABCD, held.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[held.itemsize]))


def hard_floats() -> np.ndarray:
    """Return float32 around every 16-bit float: exact, adjacent, midpoints, and random ones between."""
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    rest = np.random.default_rng(0).integers(0, 1 << 16, high.size).astype(np.uint32)
    return np.concatenate([(high | low).view(np.float32) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, rest)])


@pytest.mark.parametrize("element", FLOATS)
def test_casts_to_and_from_floats(element: int) -> None:
    """All codes and some 450,000 numbers, saturated and not."""
    dtype = FLOATS[element]
    x = hard_floats()
    saturates = element not in (BFLOAT16, TensorProto.FLOAT4E2M1)
    for saturate in (0, 1) if saturates else (1,):
        node = helper.make_node("Cast", ["x"], ["y"], to=element, **({"saturate": saturate} if saturates else {}))
        result = load(model_of([node], {"x": FLOAT}, {"y": element}), "numpy").run({"x": x})["y"]
        assert result.dtype == dtype
        with np.errstate(all="ignore"):
            limit = float(ml_dtypes.finfo(dtype).max)
            expected = (np.clip(x, -limit, limit) if saturate and saturates else x).astype(dtype)
        np.testing.assert_array_equal(bits(result), bits(expected))
    codes = np.arange(1 << (16 if element == BFLOAT16 else 4 if element == TensorProto.FLOAT4E2M1 else 8))
    values = codes.astype(np.uint16 if element == BFLOAT16 else np.uint8).view(dtype)
    for kind, target in ((FLOAT, np.float32), (HALF, np.float16), (TensorProto.DOUBLE, np.float64)):
        node = helper.make_node("Cast", ["x"], ["y"], to=kind)
        result = load(model_of([node], {"x": element}, {"y": kind}), "numpy").run({"x": values})["y"]
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(result, values.astype(np.float32).astype(target))
    for kind, target in ((TensorProto.INT32, np.int32), (TensorProto.BOOL, np.bool_)):
        small = values[np.abs(values.astype(np.float32)) < 2**31]
        node = helper.make_node("Cast", ["x"], ["y"], to=kind)
        result = load(model_of([node], {"x": element}, {"y": kind}), "numpy").run({"x": small})["y"]
        np.testing.assert_array_equal(result, small.astype(np.float32).astype(target))


def test_scales_and_small_integers() -> None:
    """FLOAT8E8M0 in its three roundings, and integers of 2 bits, which wrap."""
    x = hard_floats()
    for rounding in ("up", "down", "nearest"):
        attributes = {"to": TensorProto.FLOAT8E8M0, "round_mode": rounding}
        model = model_of([helper.make_node("Cast", ["x"], ["y"], **attributes)], {"x": FLOAT}, {"y": attributes["to"]})
        result = load(model, "numpy").run({"x": x})["y"]
        expected = numpy_helper.to_float8e8m0(x, True, rounding)
        finite = np.isfinite(x) & (np.abs(x) >= np.finfo(np.float32).tiny) & (x > 0)
        np.testing.assert_array_equal(result.view(np.uint8)[finite], expected.view(np.uint8)[finite])
    for element, low in ((TensorProto.INT2, -2), (TensorProto.UINT2, 0)):
        numbers = np.arange(-9, 9).astype(np.float32) + np.float32(0.25)
        nodes = [
            helper.make_node("Cast", ["x"], ["small"], to=element),
            helper.make_node("Cast", ["small"], ["y"], to=FLOAT),
        ]
        model = model_of(nodes, {"x": FLOAT}, {"y": FLOAT, "small": element})
        results = load(model, "numpy").run({"x": numbers})
        expected = (np.trunc(numbers) - low) % 4 + low
        np.testing.assert_array_equal(results["y"], expected)
        np.testing.assert_array_equal(results["small"], expected.astype(results["small"].dtype))
        assert results["small"].dtype == (np.int8 if low else np.uint8)
        typed = expected.astype(np.int8).astype(ml_dtypes.int2 if low else ml_dtypes.uint2)
        back = model_of([helper.make_node("Cast", ["x"], ["y"], to=FLOAT)], {"x": element}, {"y": FLOAT})
        np.testing.assert_array_equal(load(back, "numpy").run({"x": typed})["y"], expected)


def rounded(x: Any) -> np.ndarray:
    """Return numbers rounded to bfloat16, as float32."""
    result: np.ndarray = np.asarray(x, np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)
    return result


def test_networks_of_bfloat16() -> None:
    """Every node computes in float32 and rounds once; weights, constants and small arithmetic included."""
    rng = np.random.default_rng(0)
    w, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((8, 16), (16,)))
    third = numpy_helper.from_array(np.array(1 / 3, ml_dtypes.bfloat16))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Constant", [], ["third"], value=third),
        helper.make_node("Mul", ["a", "third"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[1, 0]),
        helper.make_node("Softmax", ["t"], ["p"], axis=0),
        helper.make_node("ReduceMean", ["p"], ["mean"], keepdims=0),
        helper.make_node("Less", ["p", "mean"], ["below"]),
        helper.make_node("Where", ["below", "p", "mean"], ["y"]),
        helper.make_node("Mul", ["third", "third"], ["ninth"]),
        helper.make_node("TopK", ["y", "k"], ["top", "places"], axis=0),
    ]
    outputs = {"y": BFLOAT16, "ninth": BFLOAT16, "top": BFLOAT16, "places": TensorProto.INT64}
    model = model_of(nodes, {"x": BFLOAT16}, outputs, {"w": w, "b": b, "k": np.array([2])}, opset=24, rank=2)
    session = load(model, "numpy")
    for rows in (3, 5, 3):
        x = rng.standard_normal((rows, 8)).astype(ml_dtypes.bfloat16)
        results = session.run({"x": x})
        wide = [array.astype(np.float32) for array in (x, w, b)]
        s = rounded(rounded(rounded(wide[0] @ wide[1]) + wide[2]) * rounded(1 / 3))
        t = np.maximum(s, 0).T
        p = rounded(np.exp(t - t.max(0)) / np.exp(t - t.max(0)).sum(0))
        mean = rounded(p.mean())
        expected = np.where(p < mean, p, mean)
        assert results["y"].dtype == ml_dtypes.bfloat16
        np.testing.assert_allclose(results["y"].astype(np.float32), expected, rtol=2**-7)
        assert results["ninth"].astype(np.float32) == rounded(rounded(1 / 3) ** 2)
        np.testing.assert_array_equal(results["top"], np.take_along_axis(results["y"], results["places"], 0))
    with pytest.raises(InvalidArgument, match="input 'x' must be of bfloat16, got float32"):
        session.run({"x": np.ones((3, 8), np.float32)})


def test_operators_of_bfloat16_against_the_reference() -> None:
    """Elements that are exact in bfloat16, so that the reference's own roundings do not matter."""
    x = (np.arange(24).reshape(2, 3, 4) - 9).astype(ml_dtypes.bfloat16)
    cases: list[tuple[str, list[np.ndarray], dict[str, Any]]] = [
        ("Neg", [x], {}),
        ("Abs", [x], {}),
        ("Concat", [x, x], {"axis": 1}),
        ("Pad", [x, np.array([0, 1, 0, 0, 0, 2]), np.array(7, ml_dtypes.bfloat16)], {}),
        ("ReduceMax", [x, np.array([1])], {}),
        ("ReduceSum", [x, np.array([2])], {}),
        ("Gather", [x, np.array([1, 0])], {"axis": 1}),
        ("ScatterElements", [x, np.zeros((2, 1, 4), np.int64), x[:, :1]], {"axis": 1, "reduction": "add"}),
        ("Slice", [x, np.array([1]), np.array([3]), np.array([2])], {}),
        ("Clip", [x, np.array(-3, ml_dtypes.bfloat16), np.array(4, ml_dtypes.bfloat16)], {}),
        ("Equal", [x, x], {}),
        ("Max", [x, -x], {}),
        ("IsNaN", [x], {}),
        ("Tile", [x, np.array([1, 2, 1])], {}),
        ("Reshape", [x, np.array([6, -1])], {}),
        ("ReduceSum", [x[:, :0], np.array([1])], {}),
        ("Concat", [x[:, :0], x], {"axis": 1}),
        ("Neg", [x[:0]], {}),
    ]
    for op_type, arrays, attributes in cases:
        names = [f"i{index}" for index in range(len(arrays))]
        node = helper.make_node(op_type, names, ["y"], name="it", **attributes)
        feeds = dict(zip(names, arrays, strict=True))
        result_type = TensorProto.BOOL if op_type in ("Equal", "IsNaN") else BFLOAT16
        constants = {name: feeds[name] for name in names[1:]}
        model = model_of([node], {"i0": BFLOAT16}, {"y": result_type}, constants, rank=3)
        expected = ReferenceEvaluator(model).run(None, feeds)[0]
        fed = model_of([node], {"i0": BFLOAT16}, {"y": result_type}, rank=3)
        for name in names[1:]:
            kind = helper.np_dtype_to_tensor_dtype(feeds[name].dtype)
            fed.graph.input.append(helper.make_tensor_value_info(name, kind, [None] * feeds[name].ndim))
        for variant, inputs in ((fed, feeds), (model, {"i0": arrays[0]})):
            result = load(variant, "numpy").run(inputs)["y"]
            assert (result.dtype, result.shape) == (expected.dtype, expected.shape), op_type
            np.testing.assert_array_equal(result.astype(np.float32), expected.astype(np.float32), err_msg=op_type)


def gelu(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    return result


def normalized(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return result


@pytest.mark.parametrize(
    ("op_type", "domain", "count", "function"),
    [
        ("Gelu", "", 1, gelu),
        ("Gelu", "com.microsoft", 1, gelu),
        ("Softplus", "", 1, lambda x: np.log1p(np.exp(x))),
        ("LayerNormalization", "", 3, lambda x, w, b: normalized(x) * w + b),
        ("RMSNormalization", "", 2, lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w),
        ("ReduceLogSumExp", "", 1, lambda x: np.log(np.exp(x).sum((0, 1), keepdims=True))),
        ("Sum", "", 3, lambda x, w, b: x + w + b),
    ],
)
def test_operators_of_bfloat16_against_formulas(op_type: str, domain: str, count: int, function: Any) -> None:
    """One rounding of bfloat16 is 2^-9; normalizations round, as ONNX defines them, before they scale and shift."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((64, 48), (48,), (48,))[:count]]
    names = [f"i{index}" for index in range(count)]
    model = model_of([helper.make_node(op_type, names, ["y"], domain=domain)], {}, {"y": BFLOAT16}, opset=24)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    for name, array in zip(names, arrays, strict=True):
        model.graph.input.append(helper.make_tensor_value_info(name, BFLOAT16, array.shape))
    result = load(model, "numpy").run(dict(zip(names, arrays, strict=True)))["y"]
    expected = function(*(array.astype(np.float64) for array in arrays))
    assert result.dtype == ml_dtypes.bfloat16
    roundings = 3 * np.abs(expected).max() if "Normalization" in op_type else 1e-3
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=2**-8, atol=roundings * 2**-9)


def test_loops_and_files(tmp_path: Path) -> None:
    """Codes as states of loops, and in external files."""
    step = [helper.make_node("Add", ["before", "w"], ["after"]), helper.make_node("Identity", ["go"], ["goes"])]
    body = helper.make_graph(
        step,
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", BFLOAT16, None),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", BFLOAT16, None),
        ],
    )
    nodes = [
        helper.make_node("Loop", ["count", "", "x"], ["grown"], body=body),
        helper.make_node("Concat", ["grown", "x", "w"], ["y"], axis=0),
    ]
    rng = np.random.default_rng(0)
    w = rng.standard_normal(400).astype(ml_dtypes.bfloat16)
    model = model_of(nodes, {"x": BFLOAT16}, {"y": BFLOAT16}, {"w": w, "count": np.array(12)}, opset=24)
    data = model.SerializeToString()
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=16)
    x = rng.standard_normal(400).astype(ml_dtypes.bfloat16)
    grown = x.astype(np.float32)
    for _ in range(12):
        grown = rounded(grown + w.astype(np.float32))
    expected = np.concatenate([grown.astype(ml_dtypes.bfloat16), x, w])
    for source in (data, tmp_path / "m.onnx"):
        np.testing.assert_array_equal(bits(load(source, "numpy").run({"x": x})["y"]), bits(expected))


def test_quantization_by_blocks() -> None:
    """Weights of 8-bit floats with a scale per block, which a node dequantizes before a product."""
    rng = np.random.default_rng(0)
    for element, dtype in FLOATS.items():
        if element == BFLOAT16:
            continue
        q = (rng.standard_normal((32, 6)) * 2).astype(dtype)
        scale = rng.uniform(0.5, 2, (2, 6)).astype(np.float32)
        nodes = [
            helper.make_node("DequantizeLinear", ["q", "scale"], ["w"], axis=0, block_size=16),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ]
        model = model_of(nodes, {"x": FLOAT}, {"y": FLOAT}, {"q": q, "scale": scale}, rank=2)
        x = rng.standard_normal((3, 32)).astype(np.float32)
        expected = x @ (q.astype(np.float32) * scale.repeat(16, 0))
        np.testing.assert_allclose(load(model, "numpy").run({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)


def test_rejected_models() -> None:
    x = np.ones(3, ml_dtypes.float8_e4m3fn)
    add = helper.make_node("Mod", ["x", "x"], ["y"], name="it")
    with pytest.raises(NotSupported, match=r"'it': input 0 \(A\) must be of type .*, got float8e4m3fn"):
        load(model_of([add], {"x": TensorProto.FLOAT8E4M3FN}, {"y": TensorProto.FLOAT8E4M3FN}), "numpy").run({"x": x})
    fast = helper.make_node("FastGelu", ["x"], ["y"], name="it", domain="com.microsoft")
    model = model_of([fast], {"x": TensorProto.FLOAT8E4M3FN}, {"y": TensorProto.FLOAT8E4M3FN})
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(NotSupported, match=r"'it': float8e4m3fn can be moved, .* but not computed with"):
        load(model, "numpy").run({"x": x})


@pytest.mark.parametrize("kind", ["int32", "int64", "float64"])
def test_casts_to_bfloat16_round_to_float32_first(kind: str) -> None:
    """Those of constants, too, which are folded: ml_dtypes 0.7 rounds once."""
    x = np.array([1 + 2**-8 + 2**-40, 1 + 3 * 2**-8 - 2**-40] if kind == "float64" else [16842753, -16842753]).astype(
        kind
    )
    nodes = [
        helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["y"], ["z"], to=1),
    ]
    output, element = helper.make_tensor_value_info("z", 1, [2]), helper.np_dtype_to_tensor_dtype(x.dtype)
    for is_constant in (False, True):
        inputs = [] if is_constant else [helper.make_tensor_value_info("x", element, [2])]
        constants = [numpy_helper.from_array(x, "x")] if is_constant else []
        model = helper.make_model(helper.make_graph(nodes, "casts", inputs, [output], constants))
        (result,) = InferenceSession(model.SerializeToString()).run(None, {} if is_constant else {"x": x})
        assert result.tolist() == ([1, 1.015625] if kind == "float64" else [2**24, -(2**24)])
