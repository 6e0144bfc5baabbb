"""Integers, bits and booleans in ONNX models: exact results, on the adapter numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from dmlgpu.common.errors import NotSupported
from dmlgpu.frontends.onnx import load
from tests.unit.frontends.onnx.onnx_models import check_node, model_of

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
WIDE = [np.int32, np.int64, np.uint32, np.uint64]
"""Integers that ONNX allows in reductions and PRelu."""
BOOL, FLOAT = TensorProto.BOOL, TensorProto.FLOAT


def kind_of(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def integers(dtype: Any, *shape: int, most: int | None = None, seed: int = 0) -> np.ndarray:
    held = np.iinfo(dtype)
    low, high = (held.min, held.max) if most is None else (max(held.min, -most), min(held.max, most))
    return np.random.default_rng(seed).integers(low, high, shape, dtype, endpoint=True)


def run(name: str, arrays: list[Any], kind: int, opset: int = 21, **attributes: Any) -> np.ndarray:
    """Run one node with dmlgpu only: NumPy's integers give the expected result."""
    feeds = {f"i{index}": array for index, array in enumerate(arrays)}
    model = model_of([helper.make_node(name, list(feeds), ["y"], **attributes)], feeds, {"y": kind}, opset=opset)
    result: np.ndarray = load(model, "numpy").run(feeds)["y"]
    return result


# ---- arithmetic


@pytest.mark.parametrize("dtype", INTEGERS)
def test_arithmetic_wraps(dtype: Any) -> None:
    a, b = integers(dtype, 3, 5), integers(dtype, 5, seed=1)
    with np.errstate(over="ignore"):
        for name, function in (("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply)):
            np.testing.assert_array_equal(run(name, [a, b], kind_of(dtype)), function(a, b))
    for name, function in (("Min", np.minimum), ("Max", np.maximum)):
        np.testing.assert_array_equal(run(name, [a, b], kind_of(dtype)), function(a, b))
    np.testing.assert_array_equal(run("Sign", [a], kind_of(dtype)), np.sign(a))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_remainders(dtype: Any) -> None:
    a, b = integers(dtype, 3, 4), np.array([-3, 7, -11, 9]).astype(dtype)
    np.testing.assert_array_equal(run("Mod", [a, b], kind_of(dtype)), np.mod(a, b))
    np.testing.assert_array_equal(run("Mod", [a, b], kind_of(dtype), fmod=1), np.fmod(a, b))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_products(dtype: Any) -> None:
    a, b, c = integers(dtype, 4, 3), integers(dtype, 5, 4, seed=1), integers(dtype, 5, seed=2)
    kind = kind_of(dtype)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(run("MatMul", [a.T.copy(), b.T.copy()], kind), a.T @ b.T)
        result = run("Gemm", [a, b, c], kind, transA=1, transB=1, alpha=2.0, beta=3.0)
        np.testing.assert_array_equal(result, (a.T @ b.T) * dtype(2) + c * dtype(3))


def test_gemm_of_integers_rejects_fractions() -> None:
    a = integers(np.int32, 3, 3)
    with pytest.raises(NotSupported, match="alpha and beta must be integers"):
        run("Gemm", [a, a], TensorProto.INT32, alpha=0.5)


@pytest.mark.parametrize("known", [True, False])
def test_powers_of_64_bits(known: bool) -> None:
    base = np.array([3, -3, 7, -1, 1, 0, 2, 10, -2, 5])
    exponent = np.array([39, 39, 22, 101, 1000, 5, 62, 18, 63, 0])
    weights = (1,) if known else ()
    feeds = {"x": base} if known else {"x": base, "e": exponent}
    node = helper.make_node("Pow", ["x", "e"], ["y"])
    model = model_of([node], feeds, {"y": TensorProto.INT64}, {"e": exponent} if weights else None)
    np.testing.assert_array_equal(load(model, "numpy").run(feeds)["y"], base**exponent)


def test_negative_powers() -> None:
    base, exponent = np.array([1, -1, -1, 5, -2]), np.array([-3, -3, -4, -1, -2])
    np.testing.assert_array_equal(run("Pow", [base, exponent], TensorProto.INT64), [1, -1, 1, 0, 0])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_powers_by_floats(dtype: Any) -> None:
    base = np.array([46341, 3, 10, 100], dtype)
    result = run("Pow", [base, np.array([2, 19, 9, 0.5], np.float32)], kind_of(dtype))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result[:3], base[:3] ** np.array([2, 19, 9], dtype))
    assert result[3] == 10
    x = np.array([0.5, -1.5, 2.5], np.float32)
    check_node("Pow", [x, np.array([3, 2, -1])], FLOAT)


# ---- reductions


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("name", ["ReduceSum", "ReduceProd", "ReduceL1", "ReduceSumSquare", "ReduceMean", "ReduceL2"])
def test_reductions(name: str, dtype: Any) -> None:
    bits = min(np.iinfo(dtype).bits, 40)
    x = np.random.default_rng(0).integers(0, 1 << (bits - 4), (2, 3, 4)).astype(dtype)
    x = x // 32 if name == "ReduceL2" and bits > 16 else x
    exact = x.astype(object)
    expected = {
        "ReduceSum": lambda: exact.sum(1),
        "ReduceProd": lambda: exact.prod(1),
        "ReduceL1": lambda: exact.sum(1),
        "ReduceSumSquare": lambda: (exact * exact).sum(1),
        "ReduceMean": lambda: exact.sum(1) // 3,
        "ReduceL2": lambda: np.vectorize(math.isqrt)((exact * exact).sum(1).astype(np.uint64)),
    }[name]()
    result = run(name, [x], kind_of(dtype), opset=11, axes=[1], keepdims=0)
    assert not np.any((expected.astype(object) - result.astype(object)) % (1 << np.iinfo(dtype).bits))


def test_extremes_of_no_elements() -> None:
    empty = np.zeros((2, 0, 3))
    for dtype, low, high in ((np.float32, -np.inf, np.inf), (np.int32, -(2**31), 2**31 - 1), (np.bool_, False, True)):
        x = empty.astype(dtype)
        for name, expected in (("ReduceMax", low), ("ReduceMin", high)):
            result = run(name, [x, np.array([1])], kind_of(dtype), opset=20, keepdims=0)
            assert result.shape == (2, 3)
            assert (result == expected).all()


# ---- bits


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(dtype: Any) -> None:
    x, count = integers(dtype, 4, 6), np.array([0, 1, 7, 40, 100, 127]).astype(dtype)
    bits = np.iinfo(dtype).bits
    inside = (count >= 0) & (count < bits)
    safe = np.where(inside, count, 0).astype(dtype)
    left = np.where(inside, np.left_shift(x, safe), 0).astype(dtype)
    right = np.where(inside, np.right_shift(x, safe), np.where(x < 0, -1, 0).astype(dtype))
    np.testing.assert_array_equal(run("BitShift", [x, count], kind_of(dtype), 28, direction="LEFT"), left)
    np.testing.assert_array_equal(run("BitShift", [x, count], kind_of(dtype), 28, direction="RIGHT"), right)


@pytest.mark.parametrize(("dtype", "expected"), [(np.float32, np.int32), (np.int16, np.uint16), (np.int64, np.uint64)])
def test_bit_cast(dtype: Any, expected: Any) -> None:
    x = np.arange(-6, 6).reshape(3, 4).astype(dtype)
    np.testing.assert_array_equal(run("BitCast", [x], kind_of(expected), 26, to=kind_of(expected)), x.view(expected))


# ---- conversions


@pytest.mark.parametrize("expected", [*INTEGERS, np.float16, np.float32])
def test_casts_of_floats(expected: Any) -> None:
    x = np.array([0.0, 1.9, 2.5, 100.7, 0.4], np.float32)
    x = x if np.dtype(expected).kind == "u" else np.concatenate([x, -x])
    check_node("Cast", [x], kind_of(expected), to=kind_of(expected))
    check_node("Cast", [x.astype(np.float16)], kind_of(expected), to=kind_of(expected))


@pytest.mark.parametrize("dtype", [*INTEGERS, np.bool_])
def test_casts_of_integers(dtype: Any) -> None:
    x = np.array([True, False]) if dtype is np.bool_ else integers(dtype, 9)
    for expected in (*INTEGERS, np.float32, np.bool_):
        check_node("Cast", [x], kind_of(expected), to=kind_of(expected))


def test_truth_of_floats() -> None:
    x = np.array([0.0, -0.0, 0.1, np.nan, np.inf], np.float32)
    check_node("Cast", [x], BOOL, to=BOOL)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
def test_4_bits_wrap(kind: int) -> None:
    x = np.array([-9.7, -8, -1, 0, 3.6, 7, 8, 15, 16, 100], np.float32)
    nodes = [helper.make_node("Cast", ["x"], ["1"], to=kind), helper.make_node("Cast", ["1"], ["y"], to=FLOAT)]
    whole = np.trunc(x).astype(np.int32) & 15
    expected = np.where((kind == TensorProto.INT4) & (whole > 7), whole - 16, whole)
    fed = load(model_of(nodes, {"x": x}, {"y": FLOAT}), "numpy").run({"x": x})["y"]
    held = load(model_of(nodes, {}, {"y": FLOAT}, {"x": x}), "numpy").run({})["y"]
    np.testing.assert_array_equal(fed, expected)
    np.testing.assert_array_equal(held, expected)


# ---- activations


@pytest.mark.parametrize("dtype", INTEGERS)
def test_activations_of_integers(dtype: Any) -> None:
    """DirectML's activations lack unsigned and 64-bit integers, which ONNX's support."""
    x, slope = integers(dtype, 3, 5, most=90), integers(dtype, 5, most=3, seed=1)
    if dtype in WIDE:
        np.testing.assert_array_equal(run("PRelu", [x, slope], kind_of(dtype)), np.where(x < 0, x * slope, x))
    np.testing.assert_array_equal(
        run("Shrink", [x], kind_of(dtype), lambd=40.5, bias=2.0),
        np.where(np.abs(x.astype(np.int64)) > 40, x.astype(np.int64) - 2 * np.sign(x.astype(np.int64)), 0).astype(
            dtype
        ),
    )
    if np.iinfo(dtype).min < 0:
        wide = integers(dtype, 3, 5)
        np.testing.assert_array_equal(run("Relu", [wide], kind_of(dtype)), np.maximum(wide, 0))
