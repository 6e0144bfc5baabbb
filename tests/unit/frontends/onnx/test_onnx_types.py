"""Types of inputs that the schemas of the model's operator set allow, against ONNX's own inference."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.shape_inference import InferenceError, infer_shapes

from dmlgpu import NotSupported
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.signatures import check_inputs
from dmlgpu.frontends.onnx.values import OnnxValue
from tests.unit.frontends.onnx.onnx_models import onnxruntime_outputs

KINDS = "efdbhilBHIL?"
UNARY = "Abs Celu Elu Erf Exp Floor GlobalAveragePool HardSwish IsNaN Neg Not Relu Round Sign Softmax Sqrt Tanh"
BINARY = "Add And BitwiseAnd Div Equal Greater Max Mod Pow PRelu"
WHERE = "Clip Where"


def model_of(op_type: str, arrays: list[np.ndarray], version: int) -> onnx.ModelProto:
    names = [f"x{index}" for index in range(len(arrays))]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, arrays, strict=True)
    ]
    node = helper.make_node(op_type, names, ["y"], name="it")
    graph = helper.make_graph([node], "types", inputs, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)


def is_allowed(model: onnx.ModelProto) -> bool:
    """Return whether ONNX's own inference accepts the types."""
    try:
        infer_shapes(model, check_type=True, strict_mode=True)
    except InferenceError:
        return False
    return True


def versions_of(op_type: str) -> list[int]:
    """Return the versions from 7 on in which an operator changed."""
    all_ = {schema.since_version for schema in onnx.defs.get_all_schemas_with_history() if schema.name == op_type}
    return sorted({max(7, version) for version in all_})


def is_accepted(model: onnx.ModelProto, arrays: list[np.ndarray], version: int) -> bool:
    (node,) = model.graph.node
    values = [OnnxValue.of_array(array) for array in arrays]
    try:
        check_inputs(OnnxNode(node, name="it", version=version, inputs=values, context=None))
    except NotSupported as error:
        assert "must be of type" in str(error), error
        return False
    return True


@pytest.mark.slow
def test_types_of_every_version() -> None:
    count = rejected = 0
    for op_type, operands in (
        *((name, 1) for name in UNARY.split()),
        *((name, 2) for name in BINARY.split()),
        *((name, 3) for name in WHERE.split()),
    ):
        for version in versions_of(op_type):
            for kind, other in itertools.product(KINDS, KINDS if operands > 1 else "f"):
                kinds = ("?", kind, other) if op_type == "Where" else (kind, other)
                arrays = [np.ones((1, 1, 1), np.dtype(kind)) for kind in kinds[:operands]]
                if op_type == "Clip":
                    if version < 11:
                        arrays = arrays[:1]
                    else:
                        arrays = [arrays[0], *(array.reshape(()) for array in (arrays[1], arrays[1]))]
                model = model_of(op_type, arrays, version)
                expected = is_allowed(model)
                assert is_accepted(model, arrays, version) == expected, f"{op_type} {version} {kinds}"
                count, rejected = count + 1, rejected + (not expected)
    assert count > 2000
    assert rejected > 1000


def test_types_that_came_with_later_versions() -> None:
    """A model is rejected by its name and that of the set; of the newer set, it is not rounded to float32."""
    x = np.linspace(-2, 2, 5, dtype=np.float16)
    with pytest.raises(
        NotSupported, match=r"'it': input 0 \(X\) must be of type float in operator set 13, got float16"
    ):
        load(model_of("Celu", [x], 13), "numpy").run({"x0": x})
    result = load(model_of("Celu", [x], 28), "numpy").run({"x0": x})["y"]
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, np.where(x > 0, x, np.expm1(x.astype(np.float32))), rtol=2e-3)
    pair = [np.ones(3, np.float32), np.ones(3, np.float16)]
    model = model_of("Add", pair, 20)
    with pytest.raises(NotSupported, match=r"input 1 \(B\) must be of type float as an input before it, got float16"):
        load(model, "numpy").run({"x0": pair[0], "x1": pair[1]})


def test_types_in_bodies_and_functions() -> None:
    inner = helper.make_node("Celu", ["a"], ["b"], name="inner")
    function = helper.make_function("local", "Local", ["a"], ["b"], [inner], [helper.make_opsetid("", 12)])
    x = np.ones(3, np.float16)
    model = model_of("Identity", [x], 20)
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("Local", ["x0"], ["y"], domain="local", name="call"))
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.append(function)
    with pytest.raises(NotSupported, match=r"'call/inner': input 0 \(X\) must be of type float in operator set 12"):
        load(model, "numpy").run({"x0": x})


def test_mixed_types_that_schemas_allow() -> None:
    """Inputs of different type variables, as onnxruntime accepts them."""
    x, scale = np.ones((2, 3), np.float16), np.full(3, 2, np.float32)
    cases: list[tuple[Any, dict[str, np.ndarray]]] = [
        (helper.make_node("Pow", ["x", "p"], ["y"]), {"p": np.full((2, 3), 2, np.int64)}),
        (helper.make_node("Gather", ["x", "i"], ["y"]), {"i": np.array([1, 0], np.int32)}),
    ]
    for node, weights in cases:
        graph = helper.make_graph(
            [node],
            "mixed",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in weights.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        feeds = {"x": x.astype(np.float32) * scale}
        (expected,) = onnxruntime_outputs(model, feeds)
        np.testing.assert_allclose(load(model, "numpy").run(feeds)["y"], expected)
