"""Reading and writing of elements in words: the text for every data type and number of lanes."""

from __future__ import annotations

import pytest

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import PlanBinding, Role, View
from dmlgpu.compiler.rewrites.packing import PackedTensor
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.types import Scalar, access, block_of, decode, edge, encode, raw_lane, raw_unit, scalar_of

PLAIN = Target("Plain GPU")
WIDE = Target("Wide GPU", features=frozenset({"shader-int64", "shader-f64"}))
HALF = Target("Half GPU", features=frozenset({"shader-f16"}))


def accessed(name, lanes=1, view=View.COMPUTE, target=PLAIN, portable=False):
    """Return the access to a tensor in units of some lanes; negative for one element repeated in the lanes."""
    binding, count = PlanBinding(Role.INPUT, 0), abs(lanes)
    tensor = PackedTensor(binding, DataType[name], (8,), (1,), view, lanes=count, broadcast=lanes < 0)
    return access(tensor, target, portable)


@pytest.mark.parametrize(
    ("name", "lanes", "text"),
    [
        ("FLOAT32", 1, "bitcast<f32>(word)"),
        ("FLOAT32", 2, "vec2<f32>(bitcast<f32>(word.x), bitcast<f32>(word.y))"),
        ("UINT32", 1, "word"),
        ("INT32", 1, "bitcast<i32>(word)"),
        ("FLOAT16", 1, "f32_of_half(extractBits(word, shift, 16u))"),
        ("FLOAT16", 2, "vec2<f32>(f32_of_half(extractBits(word, 0u, 16u)), f32_of_half(extractBits(word, 16u, 16u)))"),
        (
            "FLOAT16",
            4,
            "vec4<f32>(f32_of_half(extractBits(word.x, 0u, 16u)), f32_of_half(extractBits(word.x, 16u, 16u)),"
            " f32_of_half(extractBits(word.y, 0u, 16u)), f32_of_half(extractBits(word.y, 16u, 16u)))",
        ),
        ("INT16", 1, "extractBits(bitcast<i32>(word), shift, 16u)"),
        ("UINT16", 1, "extractBits(word, shift, 16u)"),
        ("INT8", 1, "extractBits(bitcast<i32>(word), shift, 8u)"),
        (
            "INT8",
            2,
            "vec2<i32>(extractBits(bitcast<i32>(word), shift, 8u), extractBits(bitcast<i32>(word), shift + 8u, 8u))",
        ),
        (
            "UINT8",
            4,
            "vec4<u32>(extractBits(word, 0u, 8u), extractBits(word, 8u, 8u), extractBits(word, 16u, 8u),"
            " extractBits(word, 24u, 8u))",
        ),
        ("INT4", 1, "extractBits(bitcast<i32>(word), shift, 4u)"),
        ("UINT4", 2, "vec2<u32>(extractBits(word, shift, 4u), extractBits(word, shift + 4u, 4u))"),
        ("INT64", 1, "word"),
        ("UINT64", 1, "word"),
        ("FLOAT32", -4, "vec4<f32>(bitcast<f32>(word))"),
        ("INT8", -4, "vec4<i32>(extractBits(bitcast<i32>(word), shift, 8u))"),
    ],
)
def test_decoding(name, lanes, text):
    assert decode(accessed(name, lanes)) == text


@pytest.mark.parametrize(
    ("name", "lanes", "text"),
    [
        ("FLOAT32", 1, "bitcast<u32>(value)"),
        ("FLOAT32", 2, "vec2<u32>(bitcast<u32>(value.x), bitcast<u32>(value.y))"),
        ("UINT32", 1, "value"),
        ("INT32", 1, "bitcast<u32>(value)"),
        ("FLOAT16", 1, "half_of_f32(value)"),
        ("FLOAT16", 2, "half_of_f32(value.x) | (half_of_f32(value.y) << 16u)"),
        (
            "FLOAT16",
            4,
            "vec2<u32>(half_of_f32(value.x) | (half_of_f32(value.y) << 16u),"
            " half_of_f32(value.z) | (half_of_f32(value.w) << 16u))",
        ),
        ("INT8", 1, "extractBits(bitcast<u32>(value), 0u, 8u)"),
        ("UINT16", 1, "extractBits(bitcast<u32>(value), 0u, 16u)"),
        ("INT8", 2, "extractBits(bitcast<u32>(value.x), 0u, 8u) | (extractBits(bitcast<u32>(value.y), 0u, 8u) << 8u)"),
        ("INT4", 1, "extractBits(bitcast<u32>(value), 0u, 4u)"),
        ("INT64", 1, "value"),
    ],
)
def test_encoding(name, lanes, text):
    assert encode(accessed(name, lanes)) == text


@pytest.mark.parametrize(
    ("name", "read", "written", "block"),
    [
        ("INT64", "i64_of_words(word)", "words_of_i64(value)", "vec2<u32>"),
        ("UINT64", "u64_of_words(word)", "words_of_u64(value)", "vec2<u32>"),
        ("FLOAT64", "word", "value", "f64"),
    ],
)
def test_native_64_bits(name, read, written, block):
    native = accessed(name, target=WIDE)
    assert (decode(native), encode(native), native.block, native.base_shift) == (read, written, block, 1)
    pairs = accessed(name, target=WIDE, portable=True)
    assert (decode(pairs), encode(pairs), pairs.block, pairs.unit) == ("word", "value", "vec2<u32>", "vec2<u32>")


def test_native_float16_only_if_the_body_requests_it():
    assert decode(accessed("FLOAT16", target=HALF)) == "f16_of_half(extractBits(word, shift, 16u))"
    assert encode(accessed("FLOAT16", target=HALF)) == "half_of_f16(value)"
    assert accessed("FLOAT16", 4, target=HALF).unit == "vec4<f16>"
    assert accessed("FLOAT16", 4, target=HALF, portable=True).unit == "vec4<f32>"


@pytest.mark.parametrize(
    ("name", "lanes", "block", "shift", "text"),
    [
        ("UINT8", 1, "u32", 0, "extractBits(word, shift, 8u)"),
        ("FLOAT16", 1, "u32", 0, "extractBits(word, shift, 16u)"),
        ("INT4", 4, "u32", 0, "extractBits(word, shift, 16u)"),
        ("FLOAT16", 2, "u32", 0, "word"),
        ("FLOAT32", 1, "u32", 0, "word"),
        ("UINT8", 8, "vec2<u32>", 1, "word"),
        ("FLOAT64", 1, "vec2<u32>", 1, "word"),
        ("FLOAT32", 4, "vec4<u32>", 2, "word"),
        ("UINT8", 16, "vec4<u32>", 2, "word"),
    ],
)
def test_raw_units_are_copied_unchanged(name, lanes, block, shift, text):
    raw = accessed(name, lanes, View.RAW)
    assert (raw.block, raw.unit, raw.scalar, raw.base_shift, decode(raw)) == (block, block, block, shift, text)
    assert encode(raw) == "value"


@pytest.mark.parametrize(
    ("name", "plain", "wide"),
    [
        ("INT4", Scalar.I32, Scalar.I32),
        ("UINT8", Scalar.U32, Scalar.U32),
        ("INT32", Scalar.I32, Scalar.I32),
        ("FLOAT16", Scalar.F32, Scalar.F32),
        ("INT64", Scalar.I64_WORDS, Scalar.I64),
        ("UINT64", Scalar.U64_WORDS, Scalar.U64),
    ],
)
def test_types_in_bodies(name, plain, wide):
    assert scalar_of(DataType[name], PLAIN, portable=False) is plain
    assert scalar_of(DataType[name], WIDE, portable=False) is wide
    assert scalar_of(DataType[name], WIDE, portable=True) is plain


def test_float64_is_words_only_if_the_body_requests_it():
    assert scalar_of(DataType.FLOAT64, PLAIN, portable=True) is Scalar.F64_WORDS
    assert scalar_of(DataType.FLOAT64, WIDE, portable=False) is Scalar.F64
    with pytest.raises(NotSupported) as caught:
        scalar_of(DataType.FLOAT64, PLAIN, portable=False)
    assert str(caught.value) == "FLOAT64 arithmetic needs the adapter feature shader-f64, which 'Plain GPU' lacks"


@pytest.mark.parametrize(("bits", "block"), [(8, "u32"), (32, "u32"), (64, "vec2<u32>"), (128, "vec4<u32>")])
def test_blocks(bits, block):
    assert block_of(bits) == block


@pytest.mark.parametrize(
    ("name", "kind", "lanes", "text"),
    [
        ("FLOAT32", Scalar.F32, 1, "x"),
        ("INT64", Scalar.I64_WORDS, 1, "x"),
        ("FLOAT16", Scalar.F32, 1, "round_to_half(x)"),
        ("FLOAT16", Scalar.F32, 2, "round_to_half2(x)"),
        ("FLOAT16", Scalar.F32, 4, "round_to_half4(x)"),
        ("FLOAT16", Scalar.F16, 4, "x"),
        ("INT8", Scalar.I32, 4, "extractBits(x, 0u, 8u)"),
        ("UINT4", Scalar.U32, 1, "extractBits(x, 0u, 4u)"),
    ],
)
def test_edges_round_and_wrap(name, kind, lanes, text):
    assert edge(DataType[name], kind, lanes, "x") == text


def test_lanes_of_raw_units():
    assert raw_lane("row0", 1, 8, 32) == "extractBits(row0, 8u, 8u)"
    assert raw_lane("row0", 3, 16, 64) == "extractBits(row0.y, 16u, 16u)"
    assert raw_unit(["a", "b"], 64) == "vec4<u32>(a, b)"
