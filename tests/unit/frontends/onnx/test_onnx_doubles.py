"""float64 in ONNX models: moved and cast as by DirectML, never computed, on the adapter numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlgpu import NotSupported
from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.onnx_against import expected_of, model_of_node

NUMBERS = np.array([1.1, -2.2, 3e30, np.nan, 5], np.float64)
FLOATS = np.array([0.1, -0.2, 1e30, 4, 5], np.float32)


def model_of(nodes: list[onnx.NodeProto], kind: int, output: int, **weights: Any) -> onnx.ModelProto:
    """A model of an input x of 5 elements and an output y."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", kind, [5])],
        [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_constants_that_are_cast() -> None:
    """Scalars and tables of float64, as exported from Python, become float32 before use."""
    nodes = [
        helper.make_node("Constant", [], ["number"], value=numpy_helper.from_array(np.float64(0.3))),
        helper.make_node("Mul", ["number", "two"], ["both"]),
        helper.make_node("Cast", ["both"], ["factor"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["table"], ["row"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "factor"], ["scaled"]),
        helper.make_node("Add", ["scaled", "row"], ["y"]),
    ]
    model = model_of(nodes, TensorProto.FLOAT, TensorProto.FLOAT, two=np.float64(2), table=np.linspace(0, 1, 5))
    result = load(model, "numpy").run({"x": FLOATS})["y"]
    np.testing.assert_allclose(result, expected_of(model, {"x": FLOATS})[0], rtol=1e-6)


def test_results_that_are_cast() -> None:
    model = model_of([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.DOUBLE)], TensorProto.FLOAT, 11)
    result = load(model, "numpy").run({"x": FLOATS})["y"]
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, FLOATS.astype(np.float64))


@pytest.mark.slow
def test_casts_between_all_types() -> None:
    """Cast every type to every other, at the ends of their ranges, against onnxruntime."""
    floats = [0.5, -0.5, 0.0, -0.0, np.nan, 5e-324, -1e-310, np.inf, 1e-45, 6e-8, 3.7, -3.7, 100.0, 7e4, 1 + 2.0**-52]
    limits = {dtype: np.iinfo(dtype) for dtype in "bhilBHIL"}
    values = {dtype: [0, 1, 5, limit.min, limit.max, limit.max - 1] for dtype, limit in limits.items()}
    with np.errstate(all="ignore"):
        arrays = [np.array(numbers, dtype) for dtype, numbers in values.items()]
        arrays += [np.array(floats).astype(dtype) for dtype in "efd"] + [np.array([True, False])]
    for array in arrays:
        for target in map(np.dtype, [*"bhilBHILefd?"]):
            elements = array
            if array.dtype.kind == "f" and target.kind in "iu":  # C++ leaves others undefined
                least = -1 if target.kind == "u" else -128
                elements = array[(array > least) & (array < 127)]
            model, feeds = model_of_node(
                "Cast", [elements], ["y"], version=21, to=helper.np_dtype_to_tensor_dtype(target)
            )
            result, (expected,) = load(model, "numpy").run(feeds)["y"], expected_of(model, feeds)
            assert result.dtype == target
            np.testing.assert_array_equal(result, expected, err_msg=f"{elements} to {target}")


@pytest.mark.parametrize(
    ("op_type", "others", "attributes"),
    [
        ("Identity", [], {}),
        ("Reshape", [np.array([5, 1])], {}),
        ("Concat", [NUMBERS], {"axis": 0}),
        ("Gather", [np.array([4, 0])], {}),
        ("Slice", [np.array([1]), np.array([4])], {}),
        ("Transpose", [], {}),
        ("ScatterElements", [np.array([1]), np.array([7.7])], {}),
        ("Pad", [np.array([1, 0])], {}),
    ],
)
def test_moving(op_type: str, others: list[np.ndarray], attributes: dict[str, Any]) -> None:
    """All bits stay."""
    model, feeds = model_of_node(op_type, [NUMBERS, *others], ["y"], version=17, **attributes)
    result = load(model, "numpy").run(feeds)["y"]
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, expected_of(model, feeds)[0])


@pytest.mark.parametrize("op_type", ["Add", "Pow", "Det", "Resize", "Softmax", "ReduceSum"])
def test_computing_is_rejected(op_type: str) -> None:
    inputs = ["x", "x"] if op_type in ("Add", "Pow") else ["x", "", "scales"] if op_type == "Resize" else ["x"]
    model = model_of([helper.make_node(op_type, inputs, ["y"], name="it")], 11, 11, scales=np.ones(1, np.float32))
    message = f"{op_type} 'it': float64 can be moved and cast, but not computed with, got float64 in input 0"
    with pytest.raises(NotSupported, match=message):
        load(model, "numpy").run({"x": NUMBERS})


def test_making_doubles_is_rejected() -> None:
    names = ["bands", "length", "rate", "low", "high"]
    node = helper.make_node("MelWeightMatrix", names, ["y"], name="it", output_datatype=TensorProto.DOUBLE)
    integers = {"bands": np.int64(4), "length": np.int64(16), "rate": np.int64(8000)}
    model = model_of([node], TensorProto.FLOAT, 11, **integers, low=np.float32(0), high=np.float32(4000))
    with pytest.raises(NotSupported, match=r"'it': float64 can be moved and cast, .* got float64 in output 0"):
        load(model, "numpy").run({"x": FLOATS})
