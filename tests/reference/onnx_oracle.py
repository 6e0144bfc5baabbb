"""One ONNX operator, evaluated by ONNX's own reference or by onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

OPSET = 18


def _model(operator: str, inputs: list[Any], output_type: Any, attributes: dict[str, Any]) -> onnx.ModelProto:
    names = [f"input{index}" for index in range(len(inputs))]
    node = helper.make_node(operator, names, ["output"], **attributes)
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, inputs, strict=True)
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(output_type))
    output = helper.make_tensor_value_info("output", kind, None)
    graph = helper.make_graph([node], operator, declared, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def _evaluate(run: Any, operator: str, inputs: list[Any], output_type: Any, attributes: dict[str, Any]) -> Any:
    inputs = [np.asarray(array) for array in inputs]
    model = _model(operator, inputs, output_type or inputs[0].dtype, attributes)
    return run(model, {f"input{index}": array for index, array in enumerate(inputs)})


def onnx_reference(operator: str, inputs: list[Any], output_type: Any = None, **attributes: Any) -> Any:
    """Evaluate by ONNX's reference evaluator."""
    return _evaluate(
        lambda model, feed: ReferenceEvaluator(model).run(None, feed)[0], operator, inputs, output_type, attributes
    )


def seven_bits(weights: Any) -> Any:
    """Halve INT8 weights: on CPUs without VNNI instructions, onnxruntime adds pairs of their products with UINT8 in 16
    bits, which overflow with eight."""
    return weights // 2 if weights.dtype == np.int8 else weights


def onnx_runtime(operator: str, inputs: list[Any], output_type: Any = None, **attributes: Any) -> Any:
    """Evaluate by onnxruntime, on the CPU."""

    def run(model: onnx.ModelProto, feed: dict[str, Any]) -> Any:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(None, feed)[0]

    return _evaluate(run, operator, inputs, output_type, attributes)
