"""Typed expressions of element-wise bodies, conversions, literals."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.expressions import TypedValue, attribute_literal, f32_literal
from dmlgpu.compiler.wgsl.types import Scalar, scalar_of

PLAIN = Target("Plain GPU")
WIDE = Target("Wide GPU", features=frozenset({"shader-int64", "shader-f64"}))


def value(text, name, target=PLAIN, portable=False):
    data_type = DataType[name]
    return TypedValue(text, scalar_of(data_type, target, portable), data_type, target)


@pytest.mark.parametrize("name", ["FLOAT32", "FLOAT16", "INT8", "UINT16", "INT32"])
def test_arithmetic_is_native_if_wgsl_has_the_type(name):
    a, b = value("a", name), value("b", name)
    assert str((a - b) * (a + b)) == "((a - b) * (a + b))"


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [
        ("FLOAT32", 0.5, "(-0.5f)"),
        ("FLOAT32", -0.5, "0.5f"),
        ("FLOAT32", -0.0, "(-bitcast<f32>(0x80000000u))"),
        ("FLOAT32", -1e30, "(-bitcast<f32>(0xf149f2cau))"),
        ("INT32", 3, "(-3)"),
        ("INT32", -3, "(-bitcast<i32>(4294967293u))"),
        ("UINT32", 3, "(0u - 3u)"),
    ],
)
def test_a_sign_before_a_literal(name, number, text):
    """WGSL parses two minus signs as a decrement."""
    assert str(-value("x", name).constant(number)) == text


@pytest.mark.parametrize("name", ["INT64", "UINT64"])
def test_arithmetic_on_pairs_of_words_calls_functions(name):
    a, b = value("a", name), value("b", name)
    assert str((a - b) * (a + b)) == "multiply_words(subtract_words(a, b), add_words(a, b))"
    assert str(value("a", name, WIDE) - value("b", name, WIDE)) == "(a - b)"


def test_float64_as_words_is_rejected():
    with pytest.raises(NotSupported) as caught:
        value("a", "FLOAT64", portable=True) * value("b", "FLOAT64", portable=True)
    assert str(caught.value) == "FLOAT64 arithmetic (*) needs the adapter feature shader-f64, which 'Plain GPU' lacks"


def test_mixed_types_are_an_error():
    with pytest.raises(TypeError) as caught:
        value("a", "FLOAT32") - value("b", "INT32")
    assert str(caught.value) == "f32 and i32: a body mixes types"


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ("FLOAT32", "FLOAT16", "x"),  # rounded at the store
        ("FLOAT16", "FLOAT32", "x"),
        ("INT8", "INT32", "x"),
        ("INT32", "INT8", "x"),  # wrapped at the store
        ("INT8", "UINT16", "i32_to_u32(x)"),
        ("UINT8", "FLOAT32", "f32(x)"),
        ("INT16", "FLOAT16", "f32(x)"),
        ("INT32", "FLOAT32", "i32_to_f32(x)"),
        ("UINT32", "FLOAT16", "u32_to_f32(x)"),
        ("FLOAT32", "INT32", "f32_to_i32(x)"),
        ("FLOAT32", "INT8", "clamp(f32_to_i32(x), i32(-128), i32(127))"),
        ("FLOAT16", "UINT16", "clamp(f32_to_u32(x), u32(0), u32(65535))"),
        ("FLOAT64", "INT16", "clamp(f64_words_to_i32(x), i32(-32768), i32(32767))"),
        ("FLOAT64", "FLOAT32", "f64_words_to_f32(x)"),
        ("FLOAT64", "FLOAT16", "f64_words_to_f32_odd(x)"),
        ("FLOAT32", "FLOAT64", "f32_to_f64_words(x)"),
        ("INT64", "FLOAT32", "i64_words_to_f32(x)"),
        ("INT64", "UINT64", "i64_words_to_u64_words(x)"),
        ("UINT8", "INT64", "u32_to_i64_words(x)"),
        ("UINT64", "INT8", "u64_words_to_i32(x)"),
    ],
)
@pytest.mark.parametrize("adapter", [PLAIN, WIDE], ids=lambda target: target.name)
def test_conversions(source, target, text, adapter):
    assert str(value("x", source, adapter, portable=True).to(DataType[target])) == text


def test_a_converted_value_has_its_type():
    converted = value("x", "INT64", portable=True).to(DataType.FLOAT16)
    assert (converted.kind, converted.data_type) == (Scalar.F32, DataType.FLOAT16)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1.0f"),
        (-0.5, "-0.5f"),
        (0.1, "0.10000000149011612f"),
        (0.0, "0.0f"),
        (-0.0, "bitcast<f32>(0x80000000u)"),
        (1e-40, "bitcast<f32>(0x000116c2u)"),
        (1e30, "bitcast<f32>(0x7149f2cau)"),
        (float("inf"), "bitcast<f32>(0x7f800000u | opaque_zero())"),
        (float("-inf"), "bitcast<f32>(0xff800000u | opaque_zero())"),
        (float("nan"), "bitcast<f32>(0x7fc00000u | opaque_zero())"),
        (1e300, "bitcast<f32>(0x7f800000u | opaque_zero())"),
    ],
)
def test_literals(number, text):
    with np.errstate(over="ignore"):
        assert f32_literal(number) == text


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_literals_are_exact_to_the_bit(number):
    text = f32_literal(number)
    if match := re.fullmatch(r"bitcast<f32>\((0x\w{8})u\)", text):
        bits = int(match[1], 16)
    else:
        assert re.fullmatch(r"-?\d+\.\d+f", text)
        bits = int(np.float32(text[:-1]).view(np.uint32))
    assert bits == int(np.float32(number).view(np.uint32))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "bitcast<f32>(opaque_zero())"),
        (1e-300, "bitcast<f32>(opaque_zero())"),
        (-0.0, "bitcast<f32>(0x80000000u | opaque_zero())"),
        (1e-40, "bitcast<f32>(0x000116c2u | opaque_zero())"),
        (float("inf"), "bitcast<f32>(0x7f800000u | opaque_zero())"),
        (1e300, "bitcast<f32>(0x7f800000u | opaque_zero())"),
        (float("nan"), "bitcast<f32>(0x7fc00000u | opaque_zero())"),
    ],
)
def test_attributes_that_compilers_would_fold_are_hidden(number, text):
    assert attribute_literal(number, Scalar.F32) == text
    assert attribute_literal(number, Scalar.F64) == f"f64({text})"


@pytest.mark.parametrize("number", [1.0, -1.0, 0.1, 1e30, float(np.finfo(np.float32).smallest_normal)])
def test_ordinary_attributes_are_literals(number):
    assert attribute_literal(number, Scalar.F32) == f32_literal(number)
    assert "params" not in f32_literal(number)


@pytest.mark.parametrize(
    ("number", "product", "quotient"),
    [
        (2.0, "(2.0f * x)", "divide_f32(x, 2.0f)"),
        (0.0, "(bitcast<f32>(opaque_zero()) * opaque(x))", "divide_f32(opaque(x), bitcast<f32>(opaque_zero()))"),
    ],
)
def test_results_with_hidden_attributes_are_hidden(number, product, quotient):
    attribute, x = TypedValue.attribute(number, DataType.FLOAT32, Target("any")), value("x", "FLOAT32")
    assert (str(attribute * x), str(x / attribute)) == (product, quotient)
    assert str(x + attribute) == f"(x + {attribute})"
