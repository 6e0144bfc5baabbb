"""Differences between versions of ONNX's operator set from 7 on, against onnxruntime's CPU provider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.unit.frontends.onnx.onnx_models import check_node

FLOAT, HALF, INT64, BOOL = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL
VERSIONS = (7, 9, 10, 11, 13, 15, 18, 24)
LOOSE = {"rtol": 2e-3, "atol": 2e-3}

versions = pytest.mark.parametrize("opset", VERSIONS)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 3).astype(np.float32)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


X = floats(2, 3, 4)


@versions
@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"])
def test_reductions(name: str, opset: int) -> None:
    as_input = opset >= (13 if name == "Sum" else 18)
    x, name = np.abs(X), f"Reduce{name}"
    for axes in ([1], [2, 0], None):
        for keeps in (0, 1):
            arrays = [x, integers(*axes)] if axes and as_input else [x]
            attributes = {"axes": axes} if axes and not as_input else {}
            weights = range(1, len(arrays))
            check_node(name, arrays, FLOAT, opset=opset, weights=tuple(weights), keepdims=keeps, **attributes)
    if as_input:
        check_node(name, [x], FLOAT, opset=opset, noop_with_empty_axes=1)
        check_node(name, [x, integers()], FLOAT, opset=opset, weights=(1,), noop_with_empty_axes=1)


@versions
def test_axes_of_shapes(opset: int) -> None:
    z = floats(1, 3, 1, 4)
    check_node("Squeeze", [z], FLOAT, opset=opset)
    check_node("Split", [X], *[FLOAT] * 2, opset=opset, axis=2, **({"num_outputs": 2} if opset >= 18 else {}))
    if opset >= 13:
        check_node("Squeeze", [z, integers(0, -2)], FLOAT, opset=opset, weights=(1,))
        check_node("Unsqueeze", [X, integers(0, -1)], FLOAT, opset=opset, weights=(1,))
        check_node("Split", [X, integers(1, 2)], FLOAT, FLOAT, opset=opset, weights=(1,), axis=1)
    else:
        check_node("Squeeze", [z], FLOAT, opset=opset, axes=[0, 2])
        check_node("Unsqueeze", [X], FLOAT, opset=opset, axes=[0, 4])
        check_node("Split", [X], FLOAT, FLOAT, opset=opset, axis=1, split=[1, 2])
    for axis in (0, 1, 3, *([-1] if opset >= 11 else [])):
        check_node("Flatten", [X], FLOAT, opset=opset, axis=axis)


@versions
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
def test_along_axes(name: str, opset: int) -> None:
    check_node(name, [X], FLOAT, opset=opset)
    for axis in (0, 1, 2, *([-1, -2] if opset >= 11 else [])):
        check_node(name, [X], FLOAT, opset=opset, axis=axis)


@versions
def test_clip(opset: int) -> None:
    low, high = np.float32(1), np.float32(2)
    half = X.astype(np.float16)
    if opset < 11:
        for attributes in ({}, {"max": 1.0}, {"min": -1.0}, {"min": -1.0, "max": 1.0}):
            check_node("Clip", [X], FLOAT, opset=opset, **attributes)
        return
    for weights in ((1, 2), ()):
        check_node("Clip", [X, -low, low], FLOAT, opset=opset, weights=weights)
        check_node("Clip", [X, high, low], FLOAT, opset=opset, weights=weights)
        check_node("Clip", [X, None, low], FLOAT, opset=opset, weights=weights[1:])
    if opset >= 12:
        check_node("Clip", [half, np.float16(-1)], HALF, opset=opset, weights=(1,))
        check_node("Clip", [integers(-5, 0, 5), integers(2)[0]], INT64, opset=opset)


@versions
def test_batch_normalization(opset: int) -> None:
    parameters = [np.abs(floats(3, seed=seed)) + np.float32(0.1) for seed in range(4)]
    check_node("BatchNormalization", [floats(2, 3, 4, 5), *parameters], FLOAT, opset=opset, epsilon=1e-3)
    check_node("BatchNormalization", [floats(2, 3), *parameters], FLOAT, opset=opset)
    if opset < 9:
        places = [np.abs(floats(3, 4, seed=seed)) + np.float32(0.1) for seed in range(4)]
        check_node("BatchNormalization", [X, *places], FLOAT, opset=opset, spatial=0)
    if opset >= 15:
        halves = [X.astype(np.float16), *(array.astype(np.float16) for array in parameters[:2])]
        check_node("BatchNormalization", [*halves, *parameters[2:]], HALF, opset=opset, limits=LOOSE)


@versions
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad(mode: str, opset: int) -> None:
    pads = [0, 1, 1, 0, 2, 1]
    if opset < 11:
        attributes: dict[str, Any] = {"value": 2.5} if mode == "constant" else {}
        check_node("Pad", [X], FLOAT, opset=opset, pads=pads, mode=mode, **attributes)
        check_node("Pad", [X], FLOAT, opset=opset, pads=[0, -1, 1, 0, 0, -2])
        return
    check_node("Pad", [X, integers(*pads), np.float32(2.5)], FLOAT, opset=opset, weights=(1,), mode=mode)
    if opset >= 18:
        arrays = [X, integers(1, 2), None, integers(-1)]
        check_node("Pad", arrays, FLOAT, opset=opset, weights=(1, 3), mode=mode)
    if opset >= 13 and mode == "constant":
        arrays = [X > 0, integers(*pads), np.bool_(True)]
        check_node("Pad", arrays, BOOL, opset=opset, weights=(1, 2))


@versions
def test_slice(opset: int) -> None:
    if opset < 10:
        check_node("Slice", [X], FLOAT, opset=opset, starts=[0, -2], ends=[1, 1000], axes=[0, 2])
        check_node("Slice", [X], FLOAT, opset=opset, starts=[0, 1], ends=[1, -1])
        return
    inputs = [X, integers(3, 2), integers(-1000, 0), integers(2, 1), integers(-2, -1)]
    check_node("Slice", inputs, FLOAT, opset=opset, weights=(1, 2, 3, 4))
    check_node("Slice", [X, np.array([0, 1], np.int32), np.array([1, 2], np.int32)], FLOAT, opset=opset)
    # The starts of slices are known only in a run; the second slice reverses a dimension.
    backwards = [X, np.array([1, -1]), np.array([2, -(2**31)]), np.array([0, 2]), np.array([1, -1])]
    check_node("Slice", backwards, FLOAT, opset=opset, weights=(3, 4))


@versions
def test_top_k(opset: int) -> None:
    if opset < 10:
        check_node("TopK", [X], FLOAT, INT64, opset=opset, k=2, axis=1)
        return
    check_node("TopK", [X, integers(2)], FLOAT, INT64, opset=opset, weights=(1,), axis=1)
    if opset >= 11:
        check_node("TopK", [X, integers(2)], FLOAT, INT64, opset=opset, largest=0)


@versions
def test_gemm(opset: int) -> None:
    a, b = floats(3, 4), floats(4, 5, seed=1)
    for c in (floats(5), floats(3, 1), floats(3, 5), floats(1), np.float32(2)):
        check_node("Gemm", [a, b, c], FLOAT, opset=opset, alpha=0.5, beta=2.0)
    if opset >= 11:
        check_node("Gemm", [a.T.copy(), b], FLOAT, opset=opset, transA=1)


@pytest.mark.parametrize("opset", [7, 10])
def test_dropout(opset: int) -> None:
    check_node("Dropout", [X], FLOAT, opset=opset, ratio=0.3)


@versions
def test_several(opset: int) -> None:
    for name in ("Max", "Min", "Sum", "Mean"):
        check_node(name, [X], FLOAT, opset=opset)
        if opset >= 8:
            check_node(name, [X, floats(4), floats(3, 1)], FLOAT, opset=opset)


ACTIVATIONS: dict[str, tuple[int, dict[str, float]]] = {
    "Elu": (7, {"alpha": 0.5}),
    "Selu": (7, {}),
    "LeakyRelu": (7, {}),
    "HardSigmoid": (7, {}),
    "Softplus": (7, {}),
    "Softsign": (7, {}),
    "Relu": (7, {}),
    "Sigmoid": (7, {}),
    "Tanh": (7, {}),
    "Shrink": (9, {"lambd": 0.4, "bias": 0.2}),
    "Erf": (9, {}),
    "ThresholdedRelu": (10, {"alpha": 0.3}),
    "Celu": (12, {"alpha": 2.0}),
    "HardSwish": (14, {}),
    "Mish": (18, {}),
    "Gelu": (20, {}),
    "Swish": (24, {"alpha": 0.7}),
}


@versions
def test_activations(opset: int) -> None:
    for name, (since, attributes) in ACTIVATIONS.items():
        if opset >= since:
            check_node(name, [X], FLOAT, opset=opset, **attributes)
    if opset >= 16:
        check_node("PRelu", [X, floats(3, 1, seed=2)], FLOAT, opset=opset)


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Exp": np.exp,
    "Floor": np.floor,
    "Neg": np.negative,
    "Reciprocal": np.reciprocal,
    "Relu": lambda x: np.maximum(x, 0),
    "Round": np.rint,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sign": np.sign,
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "Tanh": np.tanh,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_halves(name: str) -> None:
    x = X.astype(np.float16)
    (result,) = check_node(name, [x], HALF, limits=LOOSE)
    np.testing.assert_allclose(result, FUNCTIONS[name](x.astype(np.float32)), rtol=1e-3, atol=1e-3)


def test_special_numbers() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 2.5, 0.5, 1e-5], np.float32)
    a, b = (array.reshape(-1) for array in np.meshgrid(x, x))
    for name in ("Sign", "Round", "Sqrt", "Reciprocal", "Relu", "Sigmoid", "Tanh", "Erf", "Softplus", "Elu", "Log"):
        check_node(name, [x], FLOAT)
    for name in ("Max", "Min", "Mul", "Div", "Pow"):
        check_node(name, [a, b], FLOAT)
    for name in ("Equal", "Less", "GreaterOrEqual"):
        check_node(name, [a, b], BOOL)
    for name in ("IsNaN", "IsInf"):
        check_node(name, [x], BOOL)
