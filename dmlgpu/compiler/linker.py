"""The linker: writes a kernel's WGSL from its body and its interface.

A *body*, as templates give it, reads and writes blocks of its buffers by ``load0(at)`` and ``store0(at, block)``, and
their base offsets by ``base0()``. It names sizes ``sizes.s3u``, divides by them by ``div_s3(number)`` and
``mod_s3(number)``, and hides numbers from compilers by ``opaque_zero()``. Its entry point calls ``load_sizes()`` first.

The linker declares all these. It alone knows which buffers share a binding, take several, or are bound as other types,
and whether sizes are constants.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dmlgpu.common.errors import NotSupported

Bindings: TypeAlias = tuple[int, ...]
"""Binding index of each slot, ascending from 0 by first use; empty if each slot has its own binding."""

WORDS: Final = {"u32": 1, "atomic<u32>": 1, "vec2<u32>": 2, "u64": 2, "vec4<u32>": 4, "vec2<u64>": 4, "vec4<u64>": 8}
"""Number of 32-bit words of each block."""

DOUBLE: Final = {"vec2<u32>": "u64", "vec4<u32>": "vec2<u64>"}
"""Blocks of words as 64-bit numbers, by which CPU adapters read and write them faster."""

_LOW: Final = "4294967295lu"


@dataclass(frozen=True)
class BufferInterface:
    """A buffer of a kernel.

    Attributes:
        block: WGSL type that the body reads and writes.
        stored: Element type of the bound array.
        loads, stores: Whether the body reads and writes blocks.
        part_blocks: Blocks of each part but the last, if it takes several bindings; else 0.
        parts: Number of bindings.
    """

    block: str
    stored: str
    loads: bool = True
    stores: bool = False
    part_blocks: int = 0
    parts: int = 1


@dataclass(frozen=True)
class Interface:
    """What a body needs.

    Attributes:
        buffers: Its buffers; first parts are slots of the same indices, other parts follow.
        sizes: Number of its sizes.
        divisors: Indices of sizes by which it divides.
        immediates: Whether base offsets come as immediates; else with the uniform.
        has_barriers: Whether control flow must be uniform, which private variables are not.
        has_u64: Whether the adapter has 64-bit integers.
        extensions: WGSL extensions to enable.
    """

    buffers: tuple[BufferInterface, ...]
    sizes: int = 0
    divisors: tuple[int, ...] = ()
    immediates: bool = True
    has_barriers: bool = False
    has_u64: bool = False
    extensions: tuple[str, ...] = ()

    @functools.cached_property
    def slots(self) -> tuple[tuple[int, int], ...]:
        """BufferInterface and part of each slot."""
        return slots_of([buffer.parts for buffer in self.buffers])


def slots_of(parts: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return buffer and part of each slot, given the number of parts of each buffer: first parts, then the others."""
    first = tuple((index, 0) for index in range(len(parts)))
    return first + tuple((index, part) for index, count in enumerate(parts) for part in range(1, count))


def link(
    body: str,
    interface: Interface,
    bindings: Bindings = (),
    whole: frozenset[tuple[int, int]] = frozenset(),
    constants: Sequence[int] | None = None,
) -> str:
    """Return the WGSL of a kernel.

    Args:
        body: Its body.
        interface: What the body needs.
        bindings: Binding of each slot.
        whole: Bindings of one resource, and the widest block, in bytes, of which each holds a whole number.
        constants: Its sizes, if they are constants; they are read from a uniform otherwise.

    Raises:
        NotSupported: If slots with incompatible blocks of a resource would share a binding.
    """
    count = max(bindings) + 1 if bindings else len(interface.slots)
    return "".join(
        (
            *(f"enable {extension};\n" for extension in interface.extensions),
            _parameters(interface, count, constants),
            _buffers(interface, bindings or tuple(range(count)), dict(whole)),
            body,
        )
    )


# ---- sizes and base offsets

_BASES: Final = "bases: vec4<u32>, more_bases: vec4<u32>, other_bases: vec4<u32>, last_bases: vec3<u32>, zero: u32"
_GROUPS: Final = ("bases", "more_bases", "other_bases", "last_bases")


def _parameters(interface: Interface, binding: int, constants: Sequence[int] | None) -> str:
    """Return the declarations of base offsets and sizes; ``binding`` is that of the uniform."""
    is_given = bool(interface.sizes) and constants is None
    fields = [f"s{index}u: u32" for index in range(interface.sizes)]
    if is_given:
        fields += [f"{letter}{index}: u32" for index in interface.divisors for letter in "mh"]
    uniform = f"@group(0) @binding({binding}) var<uniform>"
    block = "given" if is_given and not interface.immediates else "params"
    text = ""
    if interface.immediates:
        text += f"struct Params {{ {_BASES} }}\nvar<immediate> params: Params;\n"
    elif is_given:
        fields.insert(0, _BASES)
    else:
        text += f"struct Params {{ {_BASES} }}\n{uniform} params: Params;\n"
    begin = ""
    if interface.sizes:
        text += f"struct Sizes {{ {', '.join(fields)} }}\n"
    if is_given and interface.has_barriers:
        block = "sizes" if block == "given" else block
        text += f"{uniform} sizes: Sizes;\n"
    elif is_given:
        # Copied once: CPU drivers do not hoist reads out of loops.
        text += f"{uniform} given: Sizes;\nvar<private> sizes: Sizes;\n"
        begin = " sizes = given; "
    elif constants is not None and interface.sizes:
        values = ", ".join(f"{value}u" for value in constants[: interface.sizes])
        text += f"const sizes = Sizes({values});\n"
    text += f"fn load_sizes() {{{begin}}}\nfn opaque_zero() -> u32 {{ return {block}.zero; }}\n"
    for index in range(len(interface.buffers)):
        field = f"{_GROUPS[index // 4]}.{'xyzw'[index % 4]}"
        text += f"fn base{index}() -> u32 {{ return {block}.{field}; }}\n"
    return text + _divisions(interface, is_given=is_given)


def _divisions(interface: Interface, *, is_given: bool) -> str:
    """Return the functions that divide by sizes: by multiplication, unless these are constants.

    A multiplier is 2 ** (31 + shift) // divisor + 1, which is exact for numbers below 2 ** 31. Numbers are doubled, so
    that multipliers for a divisor of 1 have 32 bits as well.
    """
    text = ""
    for index in interface.divisors:
        size = f"sizes.s{index}u"
        if is_given:
            div = f"quotient_by(number, sizes.m{index}, sizes.h{index})"
            mod = f"number - div_s{index}(number) * {size}"
        else:
            div, mod = f"number / {size}", f"number % {size}"
        text += f"fn div_s{index}(number: u32) -> u32 {{ return {div}; }}\n"
        text += f"fn mod_s{index}(number: u32) -> u32 {{ return {mod}; }}\n"
    if not (text and is_given):
        return text
    return (_QUOTIENT_BY_U64 if interface.has_u64 else _QUOTIENT_BY) + text


_QUOTIENT_BY_U64: Final = """\
fn quotient_by(number: u32, multiplier: u32, shift: u32) -> u32 {
    return u32((u64(number << 1u) * u64(multiplier)) >> 32u) >> shift;
}
"""

_QUOTIENT_BY: Final = """\
fn quotient_by(number: u32, multiplier: u32, shift: u32) -> u32 {
    let low = (number << 1u) & 0xffffu;
    let high = (number << 1u) >> 16u;
    let first = high * (multiplier & 0xffffu) + ((low * (multiplier & 0xffffu)) >> 16u);
    let second = low * (multiplier >> 16u) + (first & 0xffffu);
    return (high * (multiplier >> 16u) + (first >> 16u) + (second >> 16u)) >> shift;
}
"""


# ---- buffers


def _buffers(interface: Interface, bindings: Bindings, widths: dict[int, int]) -> str:
    """Return the declarations of arrays, and the functions that read and write blocks."""
    groups: dict[int, dict[tuple[int, int], None]] = {}
    for slot, binding in zip(interface.slots, bindings, strict=True):
        groups.setdefault(binding, {})[slot] = None
    declarations, functions = "", ""
    for binding, members in groups.items():
        buffers = [interface.buffers[index] for index, _ in members]
        stored = _common_block(buffers, widths.get(binding, 0))
        owner = next((slot for slot in members if "atomic" in interface.buffers[slot[0]].stored), next(iter(members)))
        array = f"buffer{_suffix(interface, owner)}"
        declarations += f"@group(0) @binding({binding}) var<storage, read_write> {array}: array<{stored}>;\n"
        for slot, buffer in zip(members, buffers, strict=True):
            functions += _accessors(_suffix(interface, slot), buffer, array, stored)
    for index, buffer in enumerate(interface.buffers):
        functions += _spread_accessors(index, buffer) if buffer.parts > 1 else ""
    return declarations + functions


def _suffix(interface: Interface, slot: tuple[int, int]) -> str:
    """Return the end of the names of a slot: the index of its buffer, and of its part if there are several."""
    index, part = slot
    return f"{index}_{part}" if interface.buffers[index].parts > 1 else f"{index}"


def _common_block(buffers: Sequence[BufferInterface], width: int) -> str:
    """Return the element type of an array that buffers share.

    The widest type if it holds whole blocks of the others and narrower ones are only read, because storing part of a
    vector may write all of it. Else words, of which all other types can be composed. ``width`` is the size in bytes of
    the widest whole blocks.
    """
    blocks = {buffer.stored: None for buffer in buffers}
    if len(blocks) == 1:
        return buffers[0].stored
    if not blocks.keys() <= WORDS.keys():
        raise NotSupported(f"overlapping ranges must have accessors of one type, got {' and '.join(blocks)}")
    if "atomic<u32>" in blocks:
        return "atomic<u32>"
    widest = max(blocks, key=WORDS.__getitem__)
    is_whole = width >= 4 * WORDS[widest] and len({WORDS[block] for block in blocks}) == len(blocks)
    return widest if is_whole and not any(each.stores for each in buffers if each.stored != widest) else "u32"


def _accessors(suffix: str, buffer: BufferInterface, array: str, stored: str) -> str:
    """Return the functions that load and store blocks of a buffer in an array of elements of some type."""
    text = ""
    if buffer.loads:
        body = _loading(buffer, array, stored)
        text += f"fn load{suffix}(at: u32) -> {buffer.block} {{ {body} }}\n"
    if buffer.stores:
        body = _storing(buffer, array, stored)
        text += f"fn store{suffix}(at: u32, block: {buffer.block}) {{ {body} }}\n"
    return text


def _loading(buffer: BufferInterface, array: str, stored: str) -> str:
    """Return the statements that load a block."""
    if stored == buffer.stored:
        return _as_block(f"{array}[at]", buffer)
    if WORDS[stored] <= WORDS[buffer.stored]:
        return _as_block(_composed(buffer.stored, array, stored), buffer)
    parts = WORDS[stored] // WORDS[buffer.stored]
    components = int(stored[3]) if stored.startswith("vec") else 1
    if "u64" in stored and WORDS[buffer.stored] == 1:
        component = f"[at / 2u % {components}u]" if components > 1 else ""
        double = f"let double = {array}[at / {parts}u]{component};"
        return f"{double} return u32((double >> (32u * (at % 2u))) & {_LOW});"
    if parts == components:
        return _as_block(f"{array}[at / {parts}u][at % {parts}u]", buffer)
    both = f"let both = {array}[at / 2u]; "
    return both + _as_block("select(both.xy, both.zw, at % 2u == 1u)", buffer)


def _as_block(value: str, buffer: BufferInterface) -> str:
    """Return the statements that return a value of a buffer's stored type as a block."""
    if buffer.stored == buffer.block:
        return f"return {value};"
    halves = (".x", ".y") if buffer.block == "vec4<u32>" else ("",)
    words = ", ".join(f"u32(double{half} & {_LOW}), u32(double{half} >> 32u)" for half in halves)
    return f"let double = {value}; return {buffer.block}({words});"


def _composed(block: str, array: str, stored: str) -> str:
    """Return the expression of a block whose words are elements of an array."""
    words = WORDS[block]
    elements = [f"{array}[at * {words}u + {index}u]" for index in range(words)]
    if stored == "atomic<u32>":
        elements = [f"atomicLoad(&{element})" for element in elements]
    if "u64" in block:
        pairs = zip(elements[::2], elements[1::2], strict=True)
        elements = [f"(u64({high}) << 32u) | u64({low})" for low, high in pairs]
    return f"{block}({', '.join(elements)})"


def _storing(buffer: BufferInterface, array: str, stored: str) -> str:
    """Return the statements that store a block."""
    value = "block"
    if buffer.stored != buffer.block:
        halves = ("xy", "zw") if buffer.block == "vec4<u32>" else ("xy",)
        doubles = [f"(u64(block.{half[1]}) << 32u) | u64(block.{half[0]})" for half in halves]
        value = f"{buffer.stored}({', '.join(doubles)})"
    if stored == buffer.stored:
        return f"{array}[at] = {value};"
    words = WORDS[buffer.stored]
    text = f"let value = {value};"
    for index in range(words):
        element = f"{array}[at * {words}u + {index}u]"
        if "u64" in buffer.stored:
            double = f"value.{'xyzw'[index // 2]}" if words > 2 else "value"
            word = f"u32({double} >> 32u)" if index % 2 else f"u32({double} & {_LOW})"
        else:
            word = f"value.{'xyzw'[index]}" if words > 1 else "value"
        text += f" atomicStore(&{element}, {word});" if stored == "atomic<u32>" else f" {element} = {word};"
    return text


def _spread_accessors(index: int, buffer: BufferInterface) -> str:
    """Return the functions that load and store blocks of a buffer in several bindings, chosen by the address."""

    def chosen(first: int, end: int, access: str) -> str:
        if end - first == 1:
            return access.format(part=f"{index}_{first}", at=f"at - {first * buffer.part_blocks}u" if first else "at")
        middle = (first + end) // 2
        low, high = chosen(first, middle, access), chosen(middle, end, access)
        return f"if (at < {middle * buffer.part_blocks}u) {{ {low} }} else {{ {high} }}"

    text = ""
    if buffer.loads:
        text += f"fn load{index}(at: u32) -> {buffer.block} {{ var block: {buffer.block}; "
        text += chosen(0, buffer.parts, "block = load{part}({at});") + " return block; }\n"
    if buffer.stores:
        text += f"fn store{index}(at: u32, block: {buffer.block}) {{ "
        text += chosen(0, buffer.parts, "store{part}({at}, block);") + " }\n"
    return text
