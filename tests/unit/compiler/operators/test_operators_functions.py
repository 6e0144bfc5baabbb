"""Lowering of elementary functions, as text and data."""

import re

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import ScaleBias
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.target import Target
from tests.kernel_sources import without_library

BARE = Target("Bare")
HALF = Target("Half", features=frozenset({"shader-f16", "shader-int64", "shader-f64"}))
F16, F32 = DataType.FLOAT16, DataType.FLOAT32
FLOATS = (F32, F16)
INTEGERS = tuple(DataType[f"{sign}INT{bits}"] for sign in ("", "U") for bits in (8, 16, 32))
NAMES = [
    "acos",
    "asin",
    "atan",
    "cos",
    "sin",
    "tan",
    "exp",
    "log",
    "erf",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
]


def tensor(data_type):
    return TensorDesc(data_type, (2, 3))


def unary(name, data_type=F32, **fields):
    return descs.by_name(f"ELEMENT_WISE_{name.upper()}")(
        input_tensor=tensor(data_type), output_tensor=tensor(data_type), **fields
    )


def power(base, exponent, **fields):
    return descs.ElementWisePow(
        input_tensor=tensor(base), exponent_tensor=tensor(exponent), output_tensor=tensor(base), **fields
    )


def body(desc):
    (step,) = operators.lower(desc).steps
    return step.body


def text(desc, target=BARE):
    """Return the shader without the library's functions."""
    (kernel,) = compiler.compile_operator(desc, target).kernels
    return without_library(kernel)


@pytest.mark.parametrize("data_type", FLOATS)
@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_one_call_of_the_library(name, data_type):
    assert f"return {name}_f32(input);" in text(unary(name, data_type))


def test_angles_take_y_first():
    desc = descs.ElementWiseAtanYx(a_tensor=tensor(F32), b_tensor=tensor(F32), output_tensor=tensor(F32))
    assert "return atan2_f32(a, b);" in text(desc)


@pytest.mark.parametrize("name", NAMES)
def test_float16_is_computed_in_float32_on_every_adapter(name):
    assert not re.search(r"\bf16\b", text(unary(name, F16), HALF))


def test_scale_and_bias_are_applied_in_float32():
    assert "(input * 2.0f) + 0.5f" in text(unary("exp", F16, scale_bias=ScaleBias(2.0, 0.5)))


@pytest.mark.parametrize("base", FLOATS + INTEGERS)
@pytest.mark.parametrize("exponent", FLOATS + INTEGERS)
def test_powers_choose_their_body_by_the_pair_of_types(base, exponent):
    if exponent.is_float or (base.is_float and exponent.bits < 32):
        expected = "elementwise/element_wise_pow"
    elif base.is_float:
        expected = "elementwise/element_wise_pow_wide_exponent"
    else:
        expected = "elementwise/element_wise_pow_integers"
    assert body(power(base, exponent)).file == expected


@pytest.mark.parametrize(
    ("base", "exponent", "expected"),
    [
        (F32, F16, "return pow_f32(input, exponent);"),
        (F16, DataType.INT8, "return pow_f32(input, f32(exponent));"),
        (DataType.INT32, F32, "return f32_to_i32(pow_f32(i32_to_f32(input), exponent));"),
        (DataType.UINT8, F32, "return clamp(f32_to_u32(pow_f32(f32(input), exponent)), u32(0), u32(255));"),
        (DataType.UINT32, DataType.INT8, "if ((exponent < 0)) {"),
    ],
)
def test_powers_convert_as_their_types_need(base, exponent, expected):
    assert expected in text(power(base, exponent))


def test_a_constant_exponent_is_an_exact_literal():
    assert "return pow_f32(input, 0.10000000149011612f);" in text(unary("constant_pow", exponent=0.1))


def test_a_constant_exponent_of_two_is_a_product():
    assert "return (input * input);" in text(unary("constant_pow", exponent=2.0))


@pytest.mark.parametrize("exponent", [float("inf"), float("nan")])
def test_a_constant_exponent_may_be_nan(exponent):
    operators.check(unary("constant_pow", exponent=exponent))
    assert "opaque_zero())" in text(unary("constant_pow", exponent=exponent))
