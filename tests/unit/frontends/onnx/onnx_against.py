"""Small models, run on the adapter numpy and by onnxruntime's CPU provider or ONNX's reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dmlgpu.frontends.onnx import load

ELEMENTS = {np.dtype(kind): helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for kind in "fdeiqBb?ILhHl"}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers of a normal distribution, float32."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def model_of_node(
    op_type: str,
    inputs: Sequence[np.ndarray | None],
    outputs: list[str],
    *,
    weights: tuple[int, ...] = (),
    domain: str = "",
    version: int = 22,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model of one node and its feeds; inputs whose indices are in ``weights`` are initializers."""
    names = ["" if array is None else f"x{index}" for index, array in enumerate(inputs)]
    node = helper.make_node(op_type, names, outputs, domain=domain, name="it", **attributes)
    feeds = {f"x{index}": array for index, array in enumerate(inputs) if array is not None and index not in weights}
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(name, ELEMENTS[array.dtype], array.shape) for name, array in feeds.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs if name],
        [numpy_helper.from_array(first, f"x{index}") for index in weights if (first := inputs[index]) is not None],
    )
    sets = [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10), feeds


def quantized(array: np.ndarray, kind: Any, *, per_gate: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quantize weights {directions, inputs, gates} to 8 bits; return also scales and zero points, equal as in
    onnxruntime."""
    scale = (np.abs(array).max((1,) if per_gate else (1, 2), keepdims=True) / 100).astype(np.float32)
    zero = 120 if kind is np.uint8 else 0 if per_gate else 3
    entries = (len(array), -1) if per_gate else (len(array),)
    return (
        (np.rint(array / scale) + zero).astype(kind),
        scale.reshape(entries),
        np.full(scale.size, zero, kind).reshape(entries),
    )


def dequantized(array: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Dequantize the results of ``quantized``."""
    entries = (len(array), 1, -1)
    floats: np.ndarray = (array - zero.astype(np.float32).reshape(entries)) * scale.reshape(entries)
    return floats


def expected_of(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of onnxruntime's CPU provider, without its optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results: list[np.ndarray] = session.run(None, feeds)
    return results


def check_node(op_type: str, inputs: list[Any], outputs: list[str], *, tolerance: float = 1e-5, **rest: Any) -> None:
    """Compare all outputs of a node with onnxruntime's."""
    model, feeds = model_of_node(op_type, inputs, outputs, **rest)
    results = load(model, "numpy").run(feeds)
    expected = expected_of(model, feeds)
    for (name, result), other in zip(results.items(), expected, strict=True):
        assert result.shape == other.shape, name
        assert result.dtype == other.dtype, name
        np.testing.assert_allclose(
            result.astype(np.float32), other.astype(np.float32), rtol=tolerance, atol=tolerance, err_msg=name
        )


def check_reference(
    op_type: str, inputs: list[Any], outputs: list[str], *, tolerance: float = 1e-5, **rest: Any
) -> None:
    """Compare all outputs of a node with those of ONNX's reference."""
    model, feeds = model_of_node(op_type, inputs, outputs, **rest)
    results = load(model, "numpy").run(feeds)
    for result, expected in zip(results.values(), ReferenceEvaluator(model).run(None, feeds), strict=True):
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


def model_of(
    nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, int], weights: dict[str, Any] | None = None
) -> onnx.ModelProto:
    """A model of nodes; inputs by name with type and shape, outputs by name with type."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
