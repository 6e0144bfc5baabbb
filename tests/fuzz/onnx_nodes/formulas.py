"""Nodes that neither onnxruntime's CPU provider nor ONNX's reference computes: by formulas, or of other types."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tests.fuzz.onnx_nodes.draw import Array, NodeCase
from tests.fuzz.onnx_nodes.models import Drawn, build
from tests.fuzz.onnx_nodes.oracles import Answer, reference, runtime

_ERF = np.vectorize(math.erf, otypes=["float64"])


def by_formula(drawn: Drawn) -> Answer:
    """What the formula of a node's operator says."""
    (case,) = drawn.cases
    formula = _FORMULAS.get(case.label)
    if formula is None:
        return Answer(None, "no formula")
    inputs = [None if array is None else array.astype("float64") for array in case.inputs]
    try:
        with np.errstate(all="ignore"):
            results = formula(case, *inputs)
    except Exception as error:  # any exception of NumPy for malformed values
        return Answer(None, f"{type(error).__name__}: {error}")
    dtype = case.inputs[0].dtype if case.inputs and case.inputs[0] is not None else np.dtype("float32")
    return Answer([np.asarray(result, dtype) for result in results])


def widened(drawn: Drawn) -> Answer:
    """What oracles compute with float32 in the place of float16, rounded."""
    (case,) = drawn.cases
    if not any(array is not None and array.dtype == "float16" for array in case.inputs):
        return Answer(None, "no float16")
    inputs = [
        array.astype("float32") if array is not None and array.dtype == "float16" else array for array in case.inputs
    ]
    wide = build([replace(case, inputs=inputs)], random.Random(0))
    for oracle in (runtime, reference):
        answer = oracle(wide)
        if answer.outputs is not None:
            with np.errstate(all="ignore"):
                outputs = [
                    array.astype("float16") if array.dtype == "float32" else array
                    for array in map(np.asarray, answer.outputs)
                ]
            return Answer(outputs)
    return Answer(None, "nor with float32")


_WEIGHTS: dict[str, tuple[int, int | None, int]] = {
    "ConvInteger": (1, None, 3),
    "MatMulInteger": (1, None, 3),
    "QLinearConv": (3, 4, 5),
    "QLinearMatMul": (3, 4, 5),
    "com.microsoft.DynamicQuantizeMatMul": (1, 2, 3),
    "com.microsoft.MatMulIntegerToFloat": (1, 3, 5),
    "com.microsoft.QGemm": (3, 4, 5),
    "com.microsoft.QLinearConv": (3, 4, 5),
}
"""Indices of weights, of their scales and of their zero points."""


def unsigned(drawn: Drawn) -> Answer:
    """What onnxruntime computes of int8 weights and zero points moved to uint8, which changes no product.

    Its kernels for CPUs without VNNI saturate sums of two uint8 x int8 products at 16 bits, and no others.
    """
    (case,) = drawn.cases
    inputs = list(case.inputs)
    factor, scale, zero = _WEIGHTS.get(case.label, (len(inputs), None, 0))
    weights = inputs[factor] if factor < len(inputs) else None
    if weights is None or weights.dtype != "int8":
        return Answer(None, "no int8 weights")
    inputs += [None] * (zero + 1 - len(inputs))
    shape = () if scale is None or inputs[scale] is None else np.shape(inputs[scale])
    zeros = np.zeros(shape, "int8") if inputs[zero] is None else inputs[zero]
    inputs[factor], inputs[zero] = (np.asarray(x.astype("int16") + 128, "uint8") for x in (weights, zeros))
    return runtime(build([replace(case, inputs=inputs)], random.Random(0)))


def _nhwc_conv(case: NodeCase, x: Array, weight: Array, bias: Array | None = None) -> list[Array]:
    inputs = [np.moveaxis(x, -1, 1), np.moveaxis(weight, -1, 1), bias]
    narrow = [None if array is None else np.ascontiguousarray(array, "float32") for array in inputs]
    answer = runtime(build([replace(case, op_type="Conv", domain="", inputs=narrow)], random.Random(0)))
    if answer.outputs is None:
        raise ValueError(answer.reason)
    return [np.moveaxis(answer.outputs[0], 1, -1)]


def _bias_add(case: NodeCase, x: Array, bias: Array, skip: Array) -> list[Array]:
    return [x + bias + skip]


def _bias_split_gelu(case: NodeCase, x: Array, bias: Array) -> list[Array]:
    left, right = np.split(x + bias, 2, -1)
    return [left * right * (1 + _ERF(right / math.sqrt(2))) / 2]


def _group_norm(case: NodeCase, x: Array, gamma: Array, beta: Array, *added: Array) -> list[Array]:
    total = sum((array if array.ndim == 4 else array[None, None, None] for array in added), x)
    groups = case.attributes["groups"]
    parts = total.reshape(len(x), -1, groups, x.shape[-1] // groups)
    mean, variance = parts.mean((1, 3), keepdims=True), parts.var((1, 3), keepdims=True)
    y = ((parts - mean) / np.sqrt(variance + case.attributes["epsilon"])).reshape(x.shape) * gamma + beta
    y = y / (1 + np.exp(-y)) if case.attributes["activation"] else y
    return [y, total][: case.outputs]


def _layer_norm(case: NodeCase, x: Array, gamma: Array, beta: Array | float = 0.0) -> list[Array]:
    y = x - x.mean(-1, keepdims=True) if case.op_type == "LayerNormalization" else x
    return [y / np.sqrt((y * y).mean(-1, keepdims=True) + case.attributes["epsilon"]) * gamma + beta]


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Tanh": np.tanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def _matmul_activation(case: NodeCase, a: Array, b: Array) -> list[Array]:
    a = np.swapaxes(a, -1, -2) if case.attributes.get("transA") else a
    b = np.swapaxes(b, -1, -2) if case.attributes.get("transB") else b
    return [_ACTIVATIONS[case.attributes["activation"]](np.matmul(a, b) * case.attributes.get("alpha", 1.0))]


_FORMULAS: dict[str, Callable[..., list[Array]]] = {
    f"com.microsoft.{name}": formula
    for name, formula in {
        "BiasAdd": _bias_add,
        "BiasSplitGelu": _bias_split_gelu,
        "FusedMatMulActivation": _matmul_activation,
        "GroupNorm": _group_norm,
        "LayerNormalization": _layer_norm,
        "NhwcConv": _nhwc_conv,
        "SimplifiedLayerNormalization": _layer_norm,
        "SkipGroupNorm": _group_norm,
    }.items()
}
