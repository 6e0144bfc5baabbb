"""Blocks of words in variables of 64-bit numbers: conditions and accessors."""

from __future__ import annotations

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.compiler.wgsl.sharing import PAIR, Variable, accessors, in_doubles, stored_as

CPU = Target("CPU", Profile.CPU, frozenset({"shader-int64"}))


@pytest.mark.parametrize(
    ("target", "stored"),
    [
        (CPU, ["u32", "u64", "vec2<u64>", "atomic<u32>", "f64"]),
        (Target("CPU"), ["u32", "vec2<u32>", "vec4<u32>", "atomic<u32>", "f64"]),
        (Target("GPU", Profile.DISCRETE, CPU.features), ["u32", "vec2<u32>", "vec4<u32>", "atomic<u32>", "f64"]),
    ],
    ids=["doubles", "no 64 bits", "a GPU"],
)
def test_cpu_adapters_with_64_bits_store_doubles(target, stored):
    blocks = ("u32", "vec2<u32>", "vec4<u32>", "atomic<u32>", "f64")
    assert [stored_as(block, target.moves_doubles) for block in blocks] == stored


def test_accesses_go_through_functions_and_only_those_that_are_called_are_written():
    variables = [Variable("buffer0", "vec4<u32>"), Variable("buffer1", "vec2<u32>"), Variable("buffer2", "u32")]
    text = in_doubles("buffer0[a[0]] = vec4<u32>(buffer1[1], buffer1[buffer2[0]]);", variables, True)
    assert text.startswith("store_buffer0_vec4(a[0], vec4<u32>(load_buffer1_vec2(1), load_buffer1_vec2(buffer2[0])));")
    assert "(u64(block.w) << 32u) | u64(block.z)" in text
    assert "return vec2<u32>(u32(doubles & 4294967295lu), u32(doubles >> 32u));" in text
    assert "fn load_buffer0_vec4" not in text and "fn store_buffer1_vec2" not in text and "buffer2_u32" not in text


def test_a_kernel_reads_and_writes_units_as_doubles():
    tensor = TensorDesc(DataType.FLOAT32, (64,))
    desc = descs.ElementWiseSqrt(input_tensor=tensor, output_tensor=tensor)
    (kernel,) = compiler.compile_operator(desc, CPU).kernels
    assert kernel.wgsl.count(": array<vec2<u64>>;") == 2
    assert "buffer1[at]" in kernel.wgsl and "buffer0[at] = vec2<u64>(" in kernel.wgsl


@pytest.mark.parametrize(
    ("block", "load"),
    [
        ("u32", "let double = buffer0[at / 8u][at / 2u % 4u];"),
        ("u64", "return buffer0[at / 4u][at % 4u];"),
        ("vec2<u64>", "let both = buffer0[at / 2u];\n    return select(both.xy, both.zw, at % 2u == 1u);"),
    ],
)
def test_blocks_are_parts_of_pairs(block, load):
    assert load in accessors(Variable("buffer1", block), Variable("buffer0", PAIR))


def test_pairs_are_composed_of_words():
    text = accessors(Variable("buffer1", PAIR), Variable("buffer0", "u32"))
    assert "(u64(buffer0[at * 8u + 7u]) << 32u) | u64(buffer0[at * 8u + 6u]));" in text
    assert "buffer0[at * 8u + 7u] = u32(block.w >> 32u);" in text
    assert "buffer0[at * 8u + 2u] = u32(block.y & 4294967295lu);" in text
    text = accessors(Variable("buffer1", "u64"), Variable("buffer0", "u32"))
    assert "return u64((u64(buffer0[at * 2u + 1u]) << 32u) | u64(buffer0[at * 2u + 0u]));" in text
    assert "buffer0[at * 2u + 1u] = u32(block >> 32u);" in text
