"""Models of one or a few nodes, and comparisons with onnxruntime's CPU provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from dmlgpu.frontends.onnx import load

MICROSOFT = "com.microsoft"


def model_of(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Any],
    outputs: Mapping[str, int],
    weights: Mapping[str, Any] | None = None,
    opset: int = 21,
) -> onnx.ModelProto:
    """Return a model of nodes: inputs as the arrays that feed them, outputs with their types, tensors it holds."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), np.shape(array))
        for name, array in feeds.items()
    ]
    graph = helper.make_graph(
        list(nodes),
        "test",
        inputs,
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [
            array if isinstance(array, onnx.TensorProto) else numpy_helper.from_array(np.asarray(array), name)
            for name, array in (weights or {}).items()
        ],
    )
    versions = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def onnxruntime_outputs(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """Return the outputs of onnxruntime's CPU provider, without rewriting the model."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def check(
    model: onnx.ModelProto, feeds: Mapping[str, Any], rtol: float = 1e-5, atol: float = 1e-6, steps: int = 0
) -> list[Any]:
    """Run a model in dmlgpu and onnxruntime, and compare; integers may differ by ``steps``. Return dmlgpu's outputs."""
    results = list(load(model, "numpy").run(dict(feeds)).values())
    for result, expected in zip(results, onnxruntime_outputs(model, feeds), strict=True):
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        if expected.dtype.kind in "biu":
            assert np.abs(result.astype(np.int64) - expected.astype(np.int64)).max(initial=0) <= steps
        else:
            np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)
    return results


def check_node(
    name: str,
    arrays: Sequence[Any],
    *kinds: int,
    domain: str = "",
    opset: int = 21,
    weights: Sequence[int] = (),
    limits: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> list[Any]:
    """Run one node on arrays, None for an absent input; inputs whose indices are in ``weights`` are initializers."""
    names = ["" if array is None else f"i{index}" for index, array in enumerate(arrays)]
    settings = {tensor: np.asarray(array) for tensor, array in zip(names, arrays, strict=True) if tensor}
    held = {f"i{index}": settings.pop(f"i{index}") for index in weights}
    outputs = {f"o{index}": kind for index, kind in enumerate(kinds)}
    node = helper.make_node(name, names, list(outputs), domain=domain, **attributes)
    return check(model_of([node], settings, outputs, held, opset), settings, **(limits or {}))
