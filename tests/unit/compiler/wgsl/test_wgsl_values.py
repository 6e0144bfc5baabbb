"""Typed values of elementwise bodies: the text of each operation for each type."""

from __future__ import annotations

import pytest

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.expressions import TypedValue
from dmlgpu.compiler.wgsl.types import Scalar, scalar_of

PLAIN = Target("Plain GPU")
WIDE = Target("Wide GPU", features=frozenset({"shader-int64", "shader-f64", "shader-f16"}))


def value(text, name, target=PLAIN, portable=False):
    data_type = DataType[name]
    return TypedValue(text, scalar_of(data_type, target, portable), data_type, target)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (1 + value("a", "FLOAT32"), "(1.0f + a)"),
        (2 - value("a", "INT32"), "(2 - a)"),
        (3 * value("a", "UINT8"), "(3u * a)"),
        (1 / value("a", "FLOAT32"), "divide_f32(1.0f, a)"),
        (7 / value("a", "INT32"), "quotient_i32(7, a)"),
        (-value("a", "UINT32"), "(0u - a)"),
        (-value("a", "INT64"), "negate_words(a)"),
        (value("a", "FLOAT32") < 0.5, "less_f32(a, 0.5f)"),
        (value("a", "FLOAT32") > 0.5, "less_f32(0.5f, a)"),
        (value("a", "FLOAT32") <= 0.5, "less_equal_f32(a, 0.5f)"),
        (value("a", "FLOAT16", WIDE) >= 0.5, "less_equal_f32(f32(f16(0.5f)), f32(a))"),
        (value("a", "INT8") > -1, "(bitcast<i32>(4294967295u) < a)"),
        (value("a", "UINT64") <= 5, "less_equal_u64_words(a, vec2<u32>(5u, 0u))"),
        (value("a", "INT64", WIDE) < 0, "(a < i64_of_words(vec2<u32>(0u, 0u)))"),
        (value("a", "FLOAT32").equals(0.5), "equal_f32(a, 0.5f)"),
        (value("a", "FLOAT32").test("is_nan"), "is_nan_f32(a)"),
        (value("a", "FLOAT16", WIDE).test("is_nan"), "is_nan_f32(f32(a))"),
        (value("a", "FLOAT16", WIDE).call("floor"), "f16(floor_f32(f32(a)))"),
        (value("a", "INT64").bits_inverted(), "(~a)"),
        (value("a", "UINT16").bits_xor(3), "(a ^ 3u)"),
        (value("a", "UINT64", portable=True).bit_count(), "bit_count_u64_words(a)"),
        (value("a", "FLOAT32").clipped(-1, 1), "clip_f32(a, -1.0f, 1.0f)"),
        (value("a", "UINT32").clipped(2, 5), "select(select(a, 5u, (5u < a)), 2u, (select(a, 5u, (5u < a)) < 2u))"),
        (value("a", "FLOAT32").absolute(), "size_of_f32(a)"),
    ],
)
def test_operations(expression, text):
    assert str(expression) == text


def test_comparisons_are_booleans():
    truth = (value("a", "INT64") < 0).both(value("b", "FLOAT32") < 0)
    assert truth.kind is Scalar.BOOL
    assert str(truth.to(DataType.UINT8)) == (
        "select(0u, 1u, (less_i64_words(a, vec2<u32>(0u, 0u)) && less_f32(b, 0.0f)))"
    )


def test_counts_are_of_32_bits():
    count = value("a", "UINT64", portable=True).bit_count()
    assert (count.kind, count.data_type) == (Scalar.U32, DataType.UINT32)


@pytest.mark.parametrize(("operation", "what"), [(lambda a: a / 2, "arithmetic (/)"), (lambda a: a < 2, "comparison")])
def test_float64_as_words_is_rejected(operation, what):
    with pytest.raises(NotSupported) as caught:
        operation(value("a", "FLOAT64", portable=True))
    assert str(caught.value) == f"FLOAT64 {what} needs the adapter feature shader-f64, which 'Plain GPU' lacks"
