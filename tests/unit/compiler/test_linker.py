"""The linker: sizes, base offsets, divisions, and the accessors of buffers however they are bound."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.linker import DOUBLE, BufferInterface, Interface, link, slots_of
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import KernelSource, RenderedKernel, Slot, parameter_bytes
from dmlgpu.compiler.target import MAX_SLOTS
from dmlgpu.compiler.wgsl import names
from dmlgpu.compiler.wgsl.parameters import LARGEST_DIVIDED
from tests.unit.compiler.linked_functions import Unsigned, arrays, from_words, functions, to_words, words_of

WORD = BufferInterface("u32", "u32", stores=True)
BODY = "fn main() {}\n"


def wgsl(**fields: Any) -> str:
    """Return the linked text of a body with one buffer of words, which it stores, without accessors."""
    constants = fields.pop("constants", None)
    text = link(BODY, Interface((replace(WORD, loads=False),), **fields), constants=constants)
    return text.replace("fn store0(at: u32, block: u32) { buffer0[at] = block; }\n", "")


# ---- sizes and base offsets

BASES = "bases: vec4<u32>, more_bases: vec4<u32>, other_bases: vec4<u32>, last_bases: vec3<u32>, zero: u32"
BLOCK = f"struct Params {{ {BASES} }}\n"
IMMEDIATES = BLOCK + "var<immediate> params: Params;\n"
FUNCTIONS = (
    "fn load_sizes() {}\n"
    "fn opaque_zero() -> u32 { return params.zero; }\n"
    "fn base0() -> u32 { return params.bases.x; }\n"
)
BUFFER = "@group(0) @binding(0) var<storage, read_write> buffer0: array<u32>;\n"


def test_a_kernel_without_sizes_has_the_parameter_block_only():
    assert wgsl() == IMMEDIATES + FUNCTIONS + BUFFER + BODY
    uniform = BLOCK + "@group(0) @binding(1) var<uniform> params: Params;\n"
    assert wgsl(immediates=False) == uniform + FUNCTIONS + BUFFER + BODY


def test_sizes_are_copied_from_a_uniform_once():
    assert wgsl(sizes=2) == (
        IMMEDIATES
        + "struct Sizes { s0u: u32, s1u: u32 }\n"
        + "@group(0) @binding(1) var<uniform> given: Sizes;\n"
        + "var<private> sizes: Sizes;\n"
        + FUNCTIONS.replace("load_sizes() {}", "load_sizes() { sizes = given; }")
        + BUFFER
        + BODY
    )


def test_kernels_with_barriers_read_sizes_in_place():
    """Private variables are not uniform."""
    assert wgsl(sizes=1, has_barriers=True) == (
        IMMEDIATES
        + "struct Sizes { s0u: u32 }\n"
        + "@group(0) @binding(1) var<uniform> sizes: Sizes;\n"
        + FUNCTIONS
        + BUFFER
        + BODY
    )


@pytest.mark.parametrize(("has_barriers", "variable"), [(False, "given"), (True, "sizes")])
def test_without_immediates_sizes_follow_the_base_offsets(has_barriers, variable):
    text = wgsl(sizes=1, immediates=False, has_barriers=has_barriers)
    assert f"struct Sizes {{ {BASES}, s0u: u32 }}\n" in text
    assert f"@group(0) @binding(1) var<uniform> {variable}: Sizes;\n" in text
    assert f"fn opaque_zero() -> u32 {{ return {variable}.zero; }}\n" in text
    assert f"fn base0() -> u32 {{ return {variable}.bases.x; }}\n" in text
    assert "params" not in text and "Params" not in text
    assert text.count("@group") == 2
    assert ("fn load_sizes() { sizes = given; }" in text) is not has_barriers


@pytest.mark.parametrize("immediates", [True, False])
@pytest.mark.parametrize("has_barriers", [True, False])
def test_constant_sizes_need_no_uniform(immediates, has_barriers):
    """Words after the sizes are multipliers, which constants need not."""
    interface = {"sizes": 2, "divisors": (1,), "immediates": immediates, "has_barriers": has_barriers}
    text = wgsl(**interface, constants=(5, 4294967289, 7, 8))
    assert text == (
        wgsl(immediates=immediates)
        .replace(
            "fn load_sizes", "struct Sizes { s0u: u32, s1u: u32 }\nconst sizes = Sizes(5u, 4294967289u);\nfn load_sizes"
        )
        .replace(
            BUFFER,
            "fn div_s1(number: u32) -> u32 { return number / sizes.s1u; }\n"
            "fn mod_s1(number: u32) -> u32 { return number % sizes.s1u; }\n" + BUFFER,
        )
    )


def test_base_offsets_are_the_components_of_vectors_before_the_zero():
    text = link(BODY, Interface((WORD,) * MAX_SLOTS))
    returned = re.findall(r"fn base\d+\(\) -> u32 \{ return params\.(\w+)\.([xyzw]); \}", text)
    sizes = re.findall(r"(\w+): vec(\d)<u32>", BASES)
    assert returned == [(name, component) for name, size in sizes for component in "xyzw"[: int(size)]]
    assert struct.unpack("<16I", parameter_bytes(range(1, MAX_SLOTS + 3))) == (*range(1, MAX_SLOTS + 1), 0)


def test_extensions_are_enabled_first():
    text = wgsl(extensions=("f16", "wgpu_cooperative_matrix"))
    assert text.startswith("enable f16;\nenable wgpu_cooperative_matrix;\nstruct Params")


# ---- divisions


def division(divisor: int, has_u64: bool) -> Callable[[int], tuple[int, int]]:
    """Return the function that computes quotient and remainder as a kernel of general sizes does."""
    own = names.Names()
    own.divisors[own.add_size(divisor)] = None
    text = wgsl(sizes=1, divisors=(0,), has_u64=has_u64)
    assert "/" not in text and "%" not in text
    value, multiplier, shift = own.parameters
    sizes = type("Sizes", (), {"s0u": Unsigned(value), "m0": Unsigned(multiplier), "h0": Unsigned(shift)})
    linked = functions("\n".join(line for line in text.splitlines() if "base" not in line), sizes=sizes, given=sizes)
    return lambda number: (linked["div_s0"](Unsigned(number)), linked["mod_s0"](Unsigned(number)))


DIVISORS = (1, 2, 3, 7, 24, 641, 65535, 65536, 65537, 2**30 - 1, 2**30, 2**30 + 1, LARGEST_DIVIDED - 1)


@pytest.mark.parametrize("has_u64", [True, False])
@pytest.mark.parametrize("divisor", DIVISORS)
def test_divisions_by_multiplication_are_exact(divisor, has_u64):
    largest, divided = LARGEST_DIVIDED - 1, division(divisor, has_u64)
    near = [largest // divisor * divisor + distance for distance in (-1, 0, 1)]
    for number in (0, 1, divisor - 1, divisor, divisor + 1, 2 * divisor, 65535, 65536, *near, largest):
        if 0 <= number <= largest:
            assert divided(number) == divmod(number, divisor)


@given(st.integers(1, LARGEST_DIVIDED - 1), st.integers(0, LARGEST_DIVIDED - 1), st.booleans())
def test_divisions_of_any_numbers_are_exact(divisor, number, has_u64):
    assert division(divisor, has_u64)(number) == divmod(number, divisor)


def test_multipliers_follow_the_sizes_in_the_uniform():
    text = wgsl(sizes=3, divisors=(2, 0))
    assert "struct Sizes { s0u: u32, s1u: u32, s2u: u32, m2: u32, h2: u32, m0: u32, h0: u32 }\n" in text
    assert "fn div_s2(number: u32) -> u32 { return quotient_by(number, sizes.m2, sizes.h2); }\n" in text
    assert "fn mod_s2(number: u32) -> u32 { return number - div_s2(number) * sizes.s2u; }\n" in text
    assert "div_s1" not in text and text.count("fn quotient_by(") == 1
    own = names.Names()
    for size in (10, 20, 3):
        own.add_size(size)
    own.divisors.update({2: None, 0: None})
    assert own.parameters[:3] == (10, 20, 3) and len(own.parameters) == 7
    for divisor, (multiplier, shift) in ((3, own.parameters[3:5]), (10, own.parameters[5:])):
        assert (2 * 29 * multiplier >> 32) >> shift == 29 // divisor


def test_only_adapters_with_64_bits_multiply_in_64_bits():
    assert "u64" in wgsl(sizes=1, divisors=(0,), has_u64=True)
    assert "u64" not in wgsl(sizes=1, divisors=(0,))


# ---- accessors

PLAIN = ("u32", "vec2<u32>", "vec4<u32>", "u64", "vec2<u64>", "vec4<u64>")
SINGLE = [BufferInterface(block, block) for block in PLAIN[:3]]
"""Blocks of words, as adapters without 64-bit integers, and GPUs, bind them."""

AS_DOUBLES = [
    *(BufferInterface(block, DOUBLE.get(block, block)) for block in PLAIN[:3]),
    *(BufferInterface(block, block) for block in PLAIN[3:]),
]
"""All blocks of CPU adapters, which move words as 64-bit numbers."""

ATOMIC = BufferInterface("atomic<u32>", "atomic<u32>", loads=False)
NUMBER_OF_WORDS = 16


def linked_accessors(text: str, memories: dict[int, list[int]]) -> dict[str, Callable[..., Any]]:
    """Return the accessors of a text whose bindings are some memories."""
    return functions(text.partition("@group")[2].partition("\n")[2], **arrays(text, memories))


def check_accessors(text: str, buffers: tuple[BufferInterface, ...]) -> None:
    """Check that every accessor moves the words of its block, and no others, in one memory."""
    memory = [0] * NUMBER_OF_WORDS
    linked = linked_accessors(text, {0: memory})
    for index, buffer in enumerate(buffers):
        width = words_of(buffer.block)
        for at in range(NUMBER_OF_WORDS // width):
            memory[:] = [0x01000193 * (number + 1) % 2**32 for number in range(NUMBER_OF_WORDS)]
            part = slice(at * width, (at + 1) * width)
            if buffer.loads:
                loaded = linked[f"load{index}"](Unsigned(at))
                assert to_words(buffer.block, loaded) == memory[part]
            if buffer.stores:
                expected, words = list(memory), [0xF0000000 + number for number in range(width)]
                expected[part] = words
                linked[f"store{index}"](Unsigned(at), from_words(buffer.block, words))
                assert memory == expected


def shared(*buffers: BufferInterface, width: int = 0) -> str:
    """Return the text of buffers that share a binding, of whole blocks of a width in bytes."""
    whole = frozenset({(0, width)}) if width else frozenset[tuple[int, int]]()
    return link("", Interface(buffers), (0,) * len(buffers), whole)


def array_of(text: str) -> str:
    (block,) = re.findall(r"var<storage, read_write> \w+: array<(.+)>;", text)
    return block


@pytest.mark.parametrize("buffer", [*SINGLE, *AS_DOUBLES], ids=lambda buffer: f"{buffer.block} in {buffer.stored}")
def test_a_buffer_alone_has_its_own_type(buffer):
    buffer = replace(buffer, stores=True)
    text = shared(buffer)
    assert array_of(text) == buffer.stored
    check_accessors(text, (buffer,))


@pytest.mark.parametrize("blocks", [SINGLE, AS_DOUBLES], ids=["words", "doubles"])
@pytest.mark.parametrize("width", [0, 4, 8, 16, 32])
def test_buffers_of_any_two_blocks_share_a_binding(blocks, width):
    """Accessors move their own words, for all ranges and regardless of stores."""
    for first, second in itertools.product(blocks, repeat=2):
        for is_stored, second_is_stored in itertools.product((False, True), repeat=2):
            buffers = replace(first, stores=is_stored), replace(second, stores=second_is_stored)
            text = shared(*buffers, width=width)
            assert words_of(array_of(text)) <= max(width // 4, 1) or first.stored == second.stored
            check_accessors(text, buffers)


@pytest.mark.parametrize("blocks", [SINGLE, AS_DOUBLES], ids=["words", "doubles"])
def test_buffers_of_three_blocks_share_a_binding(blocks):
    for buffers in itertools.combinations(blocks, 3):
        for width in (0, 32):
            check_accessors(shared(*buffers, width=width), buffers)


@pytest.mark.parametrize("blocks", [SINGLE, AS_DOUBLES], ids=["words", "doubles"])
def test_buffers_share_a_binding_with_atomics(blocks):
    """The array bears the name that the body updates atomically."""
    for buffer in blocks:
        buffers = replace(buffer, stores=True), ATOMIC
        text = shared(*buffers, width=32)
        assert BUFFER.replace("buffer0", "buffer1").replace("u32", "atomic<u32>") in text
        assert "load1" not in text and "store1" not in text
        assert re.search(r"buffer1\[", text) and text.count("atomicStore(&") == words_of(buffer.block)
        assert text.count("atomicLoad(&") == words_of(buffer.block)
        check_accessors(text, buffers)


def test_wide_arrays_are_kept_if_narrow_blocks_are_only_read():
    word, wide = SINGLE[0], replace(SINGLE[2], stores=True)
    text = shared(word, wide, width=16)
    assert array_of(text) == "vec4<u32>"
    assert "fn load0(at: u32) -> u32 { return buffer0[at / 4u][at % 4u]; }\n" in text
    assert "fn store1(at: u32, block: vec4<u32>) { buffer0[at] = block; }\n" in text
    assert array_of(shared(replace(word, stores=True), wide, width=16)) == "u32"
    assert array_of(shared(word, wide, width=8)) == "u32"  # a ragged end


def test_only_accessors_that_the_body_calls_are_written():
    text = shared(BufferInterface("u32", "u32", loads=False, stores=True), SINGLE[0])
    assert re.findall(r"fn ((?:load|store)\d)", text) == ["store0", "load1"]


def test_incompatible_blocks_cannot_share():
    with pytest.raises(NotSupported) as caught:
        shared(BufferInterface("f64", "f64"), WORD)
    assert str(caught.value) == "overlapping ranges must have accessors of one type, got f64 and u32"


def test_the_uniform_follows_shared_bindings():
    text = link("", Interface((WORD,) * 3, sizes=1), (0, 1, 0))
    assert re.findall(r"@binding\((\d)\) var<\w+(?:, \w+)?> (\w+)", text) == [
        ("2", "given"),
        ("0", "buffer0"),
        ("1", "buffer1"),
    ]


RANGES = [Slot(Role.INPUT, 0, 0, 64), Slot(Role.INPUT, 0, 0, 64)]


@pytest.mark.parametrize(
    ("slots", "block"),
    [
        (RANGES, "vec4<u32>"),
        ([RANGES[0], Slot(Role.INPUT, 0, 48, 32)], "vec4<u32>"),
        ([RANGES[0], Slot(Role.INPUT, 0, 0, 60)], "vec4<u32>"),
        ([RANGES[0], Slot(Role.INPUT, 0, 16, 60)], "u32"),  # the range ends with part of a block
        ([RANGES[0], Slot(Role.INPUT, 1, 0, 64)], "u32"),  # where another resource ends is not known
    ],
)
def test_ranges_decide_whether_narrow_blocks_are_read_from_wide_ones(slots, block):
    source = KernelSource("", Interface((SINGLE[0], SINGLE[2])))
    kernel = RenderedKernel("k", source, tuple(slots), (1, 1, 1), (0, 0))
    assert array_of(kernel.wgsl) == block


# ---- parts


def test_first_parts_are_slots_of_their_buffers():
    assert slots_of([1, 3, 2]) == ((0, 0), (1, 0), (2, 0), (1, 1), (1, 2), (2, 1))
    assert slots_of([1, 1]) == ((0, 0), (1, 0))


@pytest.mark.parametrize("buffer", AS_DOUBLES, ids=lambda buffer: f"{buffer.block} in {buffer.stored}")
@pytest.mark.parametrize("parts", [2, 3, 4, 5])
def test_blocks_of_parts_are_chosen_by_address(buffer, parts):
    width, part_blocks = words_of(buffer.block), 4
    spread = replace(buffer, stores=True, part_blocks=part_blocks, parts=parts)
    text = link("", Interface((spread,)))
    size = part_blocks * width
    memories = {part: [part * 1000 + word for word in range(size)] for part in range(parts)}
    memories[parts - 1] = memories[parts - 1][:width]  # the last part is short
    linked = linked_accessors(text, memories)
    assert re.findall(r"@binding\((\d)\) var<storage, read_write> (\w+)", text) == [
        (str(part), f"buffer0_{part}") for part in range(parts)
    ]
    for at in range((parts - 1) * part_blocks + 1):
        part, start = at // part_blocks, at % part_blocks * width
        loaded = linked["load0"](Unsigned(at))
        assert to_words(buffer.block, loaded) == memories[part][start : start + width]
        written = [9_000_000 + at * 8 + word for word in range(width)]
        linked["store0"](Unsigned(at), from_words(buffer.block, written))
        assert memories[part][start : start + width] == written


def test_a_part_shares_a_binding_with_another_buffer():
    spread = BufferInterface("vec2<u32>", "vec2<u32>", stores=True, part_blocks=2, parts=2)
    text = link("", Interface((spread, WORD)), (0, 1, 1))
    assert re.findall(r"@binding\((\d)\) var<storage, read_write> (\w+): array<(.+)>", text) == [
        ("0", "buffer0_0", "vec2<u32>"),
        ("1", "buffer1", "u32"),
    ]
    memories = {0: list(range(4)), 1: list(range(10, 14))}
    linked = linked_accessors(text, memories)
    assert linked["load0"](Unsigned(1)) == (2, 3) and linked["load0"](Unsigned(3)) == (12, 13)
    assert linked["load1"](Unsigned(1)) == 11


def test_choices_of_parts_are_balanced():
    """A load takes two comparisons for four parts."""
    spread = BufferInterface("u32", "u32", part_blocks=64, parts=4)
    text = link("", Interface((spread,)))
    assert (
        "fn load0(at: u32) -> u32 { var block: u32; if (at < 128u) { "
        "if (at < 64u) { block = load0_0(at); } else { block = load0_1(at - 64u); } } else { "
        "if (at < 192u) { block = load0_2(at - 128u); } else { block = load0_3(at - 192u); } } return block; }\n"
    ) in text
