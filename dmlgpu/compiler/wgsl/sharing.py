"""Storage variables: their element types, and kernels whose slots share variables."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.aliasing import known_bindings
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Bindings, Program, RenderedKernel, Slot
from dmlgpu.compiler.wgsl import templates

WORDS: Final = {"u32": 1, "atomic<u32>": 1, "vec2<u32>": 2, "u64": 2, "vec4<u32>": 4, "vec2<u64>": 4, "vec4<u64>": 8}
"""Number of 32-bit words of each block."""

PAIR: Final = "vec4<u64>"
"""Block of two units of 16 bytes, which adapters with 64-bit words read and write at once."""

DOUBLE: Final = {"vec2<u32>": "u64", "vec4<u32>": "vec2<u64>"}
"""Blocks of words as 64-bit numbers."""


@dataclass(frozen=True)
class Variable:
    """A storage variable: its name, and the element type of its array."""

    name: str
    block: str

    @property
    def function(self) -> str:
        """Suffix of the functions ``load_`` and ``store_`` that load and store its blocks."""
        return f"{self.name}_{self.block.partition('<')[0]}"


def stored_as(block: str, doubles: bool) -> str:
    """Return the declared block of a variable: ``doubles`` makes 64-bit numbers of pairs of words."""
    return DOUBLE.get(block, block) if doubles else block


def through_functions(text: str, variable: Variable) -> str:
    """Return the text with ``name[at]`` as a call of ``load_name``, and ``name[at] = block;`` as one of ``store_name``.

    Accesses are replaced from last to first, so that nested accesses come before the enclosing one.
    """
    for access in reversed(list(re.finditer(rf"\b{variable.name}\[", text))):
        end = _closing(text, access.end())
        at, rest = text[access.end() : end], text[end + 1 :]
        if stored := re.match(r" = ([^;]*);", rest):
            call = f"store_{variable.function}({at}, {stored[1]});"
            rest = rest[stored.end() :]
        else:
            call = f"load_{variable.function}({at})"
        text = text[: access.start()] + call + rest
    return text


def is_stored(text: str, variable: Variable) -> bool:
    """Return whether a kernel writes to a variable."""
    accesses = re.finditer(rf"\b{variable.name}\[", text)
    return any(text.startswith(" = ", _closing(text, access.end()) + 1) for access in accesses)


def accessors(variable: Variable, shared: Variable) -> str:
    """Return functions that load and store a variable's blocks in a variable with wider or narrower blocks."""
    return templates.render(
        f"access/{'part' if WORDS[shared.block] > WORDS[variable.block] else 'shared'}",
        function=variable.function,
        block=variable.block,
        words=WORDS[variable.block],
        parts=WORDS[shared.block] // WORDS[variable.block],
        components=int(shared.block[3]) if shared.block.startswith("vec") else 1,
        shared=shared.name,
        doubled="u64" in shared.block,
        atomic=shared.block == "atomic<u32>",
    )


def in_doubles(text: str, variables: Sequence[Variable], doubles: bool) -> str:
    """Return a kernel's source for variables declared ``stored_as``; the caller adds the declarations."""
    functions = ""
    for variable in variables:
        if stored_as(variable.block, doubles) == variable.block:
            continue
        stores = is_stored(text, variable)
        text = through_functions(text, variable)
        function = variable.function
        functions += templates.render(
            "access/doubles",
            function=function,
            block=variable.block,
            shared=variable.name,
            loads=f"load_{function}(" in text,
            stores=stores,
        )
    return text + functions


def _closing(text: str, start: int) -> int:
    """Return the position of the bracket that closes one opened before ``start``."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"[": 1, "]": -1}.get(text[position], 0)
        if not depth:
            return position
    raise ValueError("a bracket is never closed")


STORAGE = re.compile(r"@group\(0\) @binding\(\d+\) var<storage, read_write> (\w+): array<(.+)>;\n")
UNIFORM = re.compile(r"(?<=@group\(0\) @binding\()\d+(?=\) var<uniform>)")

shared_texts: Final[Cache[tuple[str, Bindings, Bindings, frozenset[tuple[int, int]]], str]] = Cache(
    CacheLimits(entries=1024, size=16 << 20)
)
"""Recently used variants of sources, by the original source and its bindings."""


def share_known(program: Program) -> Program:
    """Return the program with one binding for slots whose ranges always overlap."""

    def shared(kernels: tuple[RenderedKernel, ...]) -> tuple[RenderedKernel, ...]:
        return tuple(share(program.operator, kernel, known_bindings(kernel.slots)) for kernel in kernels)

    return replace(program, kernels=shared(program.kernels), initialization=shared(program.initialization))


def share(operator: str, kernel: RenderedKernel, bindings: Bindings) -> RenderedKernel:
    """Return the kernel with other bindings, in which more slots share.

    Raises:
        NotSupported: when slots with incompatible blocks of a resource would share.
    """
    if bindings == kernel.bindings:
        return kernel
    try:
        key = kernel.wgsl, kernel.bindings, bindings, _whole(kernel.slots, bindings)
        text = shared_texts.get_or_make(
            key, lambda: _share(*key), lambda result: sys.getsizeof(key[0]) + sys.getsizeof(result)
        )
        return replace(kernel, wgsl=text, bindings=bindings)
    except NotSupported as error:
        raise NotSupported(f"{operator}: kernel {kernel.label!r}: {error}") from None


def _whole(slots: Sequence[Slot], bindings: Bindings) -> frozenset[tuple[int, int]]:
    """Return the bindings of one resource, and the widest block, in bytes, of which each holds a whole number. (Offsets
    are multiples of 16, and of 256 where blocks of more are read.)"""
    resources: dict[int, set[tuple[Role, int]]] = {}
    ends: dict[int, int] = {}
    for slot, binding in zip(slots, bindings, strict=True):
        resources.setdefault(binding, set()).add((slot.role, slot.index))
        ends[binding] = max(ends.get(binding, 0), slot.offset + slot.size)
    widths = ((index, math.gcd(end, 4 * max(WORDS.values()))) for index, end in ends.items())
    return frozenset((index, width) for index, width in widths if len(resources[index]) == 1)


def _share(text: str, before: Bindings, bindings: Bindings, whole: frozenset[tuple[int, int]]) -> str:
    variables = [Variable(*match) for match in STORAGE.findall(text)]
    widths = dict(whole)
    groups: dict[int, dict[Variable, None]] = {}
    for slot, binding in enumerate(bindings):
        groups.setdefault(binding, {})[variables[before[slot] if before else slot]] = None
    first = STORAGE.search(text)
    assert first is not None
    above, below = text[: first.start()], STORAGE.sub("", text[first.start() :])
    declarations = ""
    functions = []
    for binding, group in groups.items():
        owner, *_ = group
        block = _common_block(text, tuple(group), widths.get(binding, 0))
        shared = Variable(owner.name, block)
        declarations += f"@group(0) @binding({binding}) var<storage, read_write> {owner.name}: array<{block}>;\n"
        for variable in group:
            if variable.block == shared.block:
                below = re.sub(rf"\b{variable.name}\b", shared.name, below)
            else:
                below = through_functions(below, variable)
                functions.append(accessors(variable, shared))
    joined = above + declarations + below + "".join(functions)
    return UNIFORM.sub(str(len(groups)), joined)


def _common_block(text: str, variables: Sequence[Variable], width: int) -> str:
    """Return the element type of a shared array.

    The widest type if it holds whole blocks of the others and narrower ones are only read, because storing part of a
    vector may write all of it. Else words, of which all other types can be composed. ``width`` is the size in bytes of
    the widest whole blocks.
    """
    blocks = {variable.block: None for variable in variables}
    if len(blocks) == 1:
        return variables[0].block
    if not blocks.keys() <= WORDS.keys():
        raise NotSupported(f"overlapping ranges must have accessors of one type, got {' and '.join(blocks)}")
    if "atomic<u32>" in blocks:
        return "atomic<u32>"
    widest = max(blocks, key=WORDS.__getitem__)
    parts = [variable for variable in variables if variable.block != widest]
    return widest if width >= 4 * WORDS[widest] and not any(is_stored(text, part) for part in parts) else "u32"
