"""Lowering of arithmetic, comparison, bits and fills, as plans and as text."""

from __future__ import annotations

import math
import re

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, IsInfinityMode, RoundingMode
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.operators.elementwise import activated
from dmlgpu.compiler.operators.lowering import bits_of, converted, words_of
from dmlgpu.compiler.target import Target
from tests.kernel_sources import with_values

PLAIN = Target("Plain GPU")
WIDE = Target("Wide GPU", features=frozenset({"shader-int64", "shader-f64"}))
HALF = Target("Half GPU", features=frozenset({"shader-f16"}))
F16, F32, F64 = DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64
I8, I64, U8, U64 = DataType.INT8, DataType.INT64, DataType.UINT8, DataType.UINT64


def tensor(data_type: DataType, *sizes: int) -> TensorDesc:
    return TensorDesc(data_type, sizes or (8,))


def binary(desc_class, data_type, output_type=None, sizes=(8,)):
    a = tensor(data_type, *sizes)
    return desc_class(a_tensor=a, b_tensor=a, output_tensor=tensor(output_type or data_type, *sizes))


def unary(desc_class, data_type, **attributes):
    x = tensor(data_type)
    return desc_class(input_tensor=x, output_tensor=x, **attributes)


def returned(desc, target=PLAIN):
    """Return the expression that the operator's own body returns."""
    (kernel,) = compiler.compile_operator(desc, target).kernels
    text = with_values(kernel)
    body = text[text.index(f"// ---- shaders/{operators.shader_files(desc.operator)[0]}.wgsl") :]
    match = re.search(r"return (.*);", body)
    assert match is not None
    return re.sub(r"\bapply\d+_", "", match[1])


# ---- numbers in attributes


@pytest.mark.parametrize(
    ("number", "data_type", "expected"),
    [
        (2.9, I8, 2),
        (-2.9, I8, -2),
        (300.0, I8, 127),
        (-math.inf, I8, -128),
        (math.nan, U8, 0),
        (-5.0, U8, 0),
        (2**53 + 1, I64, 2**53 + 1),
        (1e30, U64, 2**64 - 1),
        (0.1, F32, 0.10000000149011612),
        (0.1, F16, 0.0999755859375),
        (70000.0, F16, math.inf),
    ],
)
def test_numbers_are_converted_as_cast_does(number, data_type, expected):
    assert converted(number, data_type) == expected


@pytest.mark.parametrize(
    ("number", "data_type", "words"),
    [
        (-1, I8, (0xFF,)),
        (1.0, F16, (0x3C00,)),
        (-0.0, F32, (0x80000000,)),
        (math.inf, F32, (0x7F800000,)),
        (-2, I64, (0xFFFFFFFE, 0xFFFFFFFF)),
        (2**63 + 1, U64, (1, 0x80000000)),
        (1.0, F64, (0, 0x3FF00000)),
    ],
)
def test_bits_of_numbers(number, data_type, words):
    assert words_of(number, data_type) == words
    assert bits_of(number, data_type) == sum(word << 32 * place for place, word in enumerate(words))


# ---- bounds


@pytest.mark.parametrize("data_type", [F16, I8, I64])
def test_clip_upgrades_to_clip1_with_bounds_of_the_tensors_type(data_type):
    desc = unary(descs.ElementWiseClip, data_type, scale_bias=None, min=-2.9, max=1000.1)
    expected = {F16: (-2.900390625, 1000.0), I8: (-2, 127), I64: (-2, 1000)}[data_type]
    newest = operators.upgrade(desc)
    assert isinstance(newest, descs.ElementWiseClip1)
    assert (newest.min_max_data_type, newest.min, newest.max) == (data_type, *expected)


def test_clip_grad_upgrades_to_clip_grad1():
    x = tensor(U8)
    desc = descs.ElementWiseClipGrad(
        input_tensor=x, input_gradient_tensor=x, output_gradient_tensor=x, min=-1.0, max=math.inf
    )
    newest = operators.upgrade(desc)
    assert isinstance(newest, descs.ElementWiseClipGrad1)
    assert (newest.min_max_data_type, newest.min, newest.max) == (U8, 0, 255)


def test_bounds_of_64_bits_reach_the_shader_exactly():
    desc = unary(descs.ElementWiseClip1, I64, scale_bias=None, min_max_data_type=I64, min=-(2**63), max=2**53 + 1)
    for target in (PLAIN, WIDE):
        text = compiler.compile_operator(desc, target).kernels[0].wgsl
        assert "vec2<u32>(0u, 2147483648u)" in text and "vec2<u32>(1u, 2097152u)" in text


# ---- fused activations


def test_an_activation_reads_the_rounded_sum():
    a = tensor(F16)
    relu = descs.ActivationRelu()
    desc = descs.ElementWiseAdd1(a_tensor=a, b_tensor=a, output_tensor=a, fused_activation=relu)
    (kernel,) = compiler.compile_operator(desc, PLAIN).kernels
    assert "round_to_half4(" in kernel.wgsl


def test_clip_can_be_fused():
    total = operators.lower(binary(descs.ElementWiseAdd, F32)).steps[0].body
    body = activated(total, descs.ElementWiseClip(input_tensor=None, output_tensor=None, min=-1.0, max=2.5))
    assert (body.file, dict(body.constants)) == ("elementwise/element_wise_clip1", {"min": -1.0, "max": 2.5})
    assert activated(total, None) is total


# ---- text


@pytest.mark.parametrize(
    ("desc", "target", "text"),
    [
        (binary(descs.ElementWiseDivide, F32), PLAIN, "divide_f32(a, b)"),
        (binary(descs.ElementWiseDivide, U8), PLAIN, "narrow_quotient_u32(a, b)"),
        (binary(descs.ElementWiseDivide, DataType.INT32), PLAIN, "quotient_i32(a, b)"),
        (binary(descs.ElementWiseDivide, I64), WIDE, "quotient_i64(a, b)"),
        (binary(descs.ElementWiseDivide, I64), PLAIN, "quotient_i64_words(a, b)"),
        (binary(descs.ElementWiseModulusTruncate, F32), PLAIN, "fmod_f32(a, b)"),
        (binary(descs.ElementWiseModulusFloor, DataType.INT16), PLAIN, "narrow_floor_mod_i32(a, b)"),
        (binary(descs.ElementWiseMin, F16), HALF, "f16(min_f32(f32(a), f32(b)))"),
        (binary(descs.ElementWiseMin, DataType.UINT32), PLAIN, "select(a, b, (b < a))"),
        (binary(descs.ElementWiseMax, I64), PLAIN, "select(a, b, less_i64_words(a, b))"),
        (binary(descs.ElementWiseLogicalLessThan, F32, U8), PLAIN, "select(0u, 1u, less_f32(a, b))"),
        (binary(descs.ElementWiseLogicalGreaterThanOrEqual, F16, U8), HALF,
         "select(0u, 1u, less_equal_f32(f32(b), f32(a)))"),
        (binary(descs.ElementWiseLogicalEquals, U64, U8), PLAIN, "select(0u, 1u, all(a == b))"),
        (binary(descs.ElementWiseLogicalXor, U8), PLAIN, "select(0u, 1u, !(((0u < a) == (0u < b))))"),
        (binary(descs.ElementWiseBitAnd, F64), WIDE, "(a & b)"),
        (binary(descs.ElementWiseBitShiftLeft, U64), WIDE, "shift_left_u64_words(a, b)"),
        (unary(descs.ElementWiseRecip, F32, scale_bias=None), PLAIN, "divide_f32(1.0f, input)"),
        (unary(descs.ElementWiseRound, F32, rounding_mode=RoundingMode.TOWARD_INFINITY), PLAIN,
         "round_half_away_f32(input)"),
        (unary(descs.ElementWiseAbs, I8, scale_bias=None), PLAIN, "select(input, (-input), (input < 0))"),
    ],
)  # fmt: skip
def test_bodies(desc, target, text):
    assert returned(desc, target) == text


def test_infinities_are_detected_by_their_bits():
    x = tensor(F32)
    desc = descs.ElementWiseIsInfinity(input_tensor=x, output_tensor=tensor(U8), infinity_mode=IsInfinityMode.NEGATIVE)
    assert returned(desc) == "select(0u, 1u, is_negative_infinity_f32(input))"


@pytest.mark.parametrize("data_type", [F64, F32, F16, I64, I8])
def test_choices_copy_bits(data_type):
    """No float and no signed type of 64 bits touches the elements; units of memory may be moved as u64."""
    a = tensor(data_type)
    desc = descs.ElementWiseIf(condition_tensor=tensor(U8), a_tensor=a, b_tensor=a, output_tensor=a)
    text = compiler.compile_operator(desc, WIDE).kernels[0].wgsl
    assert not re.search(r"\b(f16|f32|f64|i64)\b", text)


def test_small_elements_are_packed():
    for desc in (binary(descs.ElementWiseAdd, U8, sizes=(64,)), binary(descs.ElementWiseMax, F32, sizes=(64,))):
        assert compiler.compile_operator(desc, PLAIN).kernels[0].label.endswith(" x4")


# ---- fills


def test_a_constant_is_bits():
    desc = descs.FillValueConstant(output_tensor=tensor(F64, 3), value_data_type=F64, value=1.0)
    assert returned(desc) == "output_s(0u, 1072693248u)"


def test_places_of_a_permuted_tensor():
    output = TensorDesc(F32, (4, 8), (1, 4))
    desc = descs.FillValueSequence(output_tensor=output, value_data_type=F32, value_start=1.0, value_delta=2.0)
    (kernel,) = compiler.compile_operator(desc, PLAIN).kernels
    assert kernel.label == "fill_value_sequence fill x4"
    text = with_values(kernel)
    assert "place += at[0] * 32u;" in text  # 4 rows to a unit
    assert "(place + 0u, place + 8u, place + 16u, place + 24u)" in text
    assert returned(desc) == "(1.0f + (2.0f * u32_to_f32(place)))"
