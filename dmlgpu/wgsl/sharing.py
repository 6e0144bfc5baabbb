"""Kernels whose slots share storage variables, made from the text of those in which each slot has its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dmlgpu.aliasing import known_bindings
from dmlgpu.cache import Cache, CacheLimits
from dmlgpu.errors import NotSupported
from dmlgpu.plan import Role
from dmlgpu.program import Bindings, Kernel, Program, Slot
from dmlgpu.wgsl import templates

_STORAGE = re.compile(r"@group\(0\) @binding\(\d+\) var<storage, read_write> (\w+): array<(.+)>;\n")
_UNIFORM = re.compile(r"(?<=@group\(0\) @binding\()\d+(?=\) var<uniform>)")
_WORDS = {"u32": 1, "atomic<u32>": 1, "vec2<u32>": 2, "vec4<u32>": 4}

_shared: Final[Cache[tuple[str, Bindings, Bindings, frozenset[int]], str]] = Cache(
    CacheLimits(entries=1024, size=16 << 20)
)


def share_known(program: Program) -> Program:
    """Return the program with one binding for slots that meet wherever its resources lie."""

    def shared(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        return tuple(share(program.operator, kernel, known_bindings(kernel.slots)) for kernel in kernels)

    return replace(program, kernels=shared(program.kernels), initialization=shared(program.initialization))


def share(operator: str, kernel: Kernel, bindings: Bindings) -> Kernel:
    """Return the kernel with these bindings: its own ones and more slots that share.

    Raises:
        NotSupported: when slots shall share that see a resource in blocks which nothing has in common.
    """
    if bindings == kernel.bindings:
        return kernel
    try:
        key = kernel.wgsl, kernel.bindings, bindings, _whole(kernel.slots, bindings)
        text = _shared.get_or_make(key, lambda: _share(*key), lambda made: sys.getsizeof(key[0]) + sys.getsizeof(made))
        return replace(kernel, wgsl=text, bindings=bindings)
    except NotSupported as error:
        raise NotSupported(f"{operator}: kernel {kernel.label!r}: {error}") from None


def _whole(slots: Sequence[Slot], bindings: Bindings) -> frozenset[int]:
    """The bindings of one resource whose bytes are whole blocks of any width. (Offsets are multiples of 16.)"""
    resources: dict[int, set[tuple[Role, int]]] = {}
    ends: dict[int, int] = {}
    for slot, binding in zip(slots, bindings, strict=True):
        resources.setdefault(binding, set()).add((slot.role, slot.index))
        ends[binding] = max(ends.get(binding, 0), slot.offset + slot.size)
    return frozenset(number for number, end in ends.items() if end % 16 == 0 and len(resources[number]) == 1)


@dataclass(frozen=True)
class _Variable:
    """A storage variable: its name, and the type that it is an array of."""

    name: str
    block: str


def _share(text: str, before: Bindings, bindings: Bindings, whole: frozenset[int]) -> str:
    variables = [_Variable(*found) for found in _STORAGE.findall(text)]
    groups: dict[int, dict[_Variable, None]] = {}
    for slot, binding in enumerate(bindings):
        groups.setdefault(binding, {})[variables[before[slot] if before else slot]] = None
    first = _STORAGE.search(text)
    assert first is not None
    above, below = text[: first.start()], _STORAGE.sub("", text[first.start() :])
    declarations = ""
    accessors = []
    for binding, group in groups.items():
        owner, *_ = group
        block = _common_block(text, tuple(group), binding in whole)
        shared = _Variable(owner.name, block)
        declarations += f"@group(0) @binding({binding}) var<storage, read_write> {owner.name}: array<{block}>;\n"
        for variable in group:
            if variable.block == shared.block:
                below = re.sub(rf"\b{variable.name}\b", shared.name, below)
            else:
                below = _through_functions(below, variable)
                accessors.append(_accessors(variable, shared))
    joined = above + declarations + below + "".join(accessors)
    return _UNIFORM.sub(str(len(groups)), joined)


def _common_block(text: str, variables: Sequence[_Variable], whole: bool) -> str:
    """Return the type that a shared variable is an array of.

    The widest where it holds whole ones of them and narrower ones are only read: storing part of a vector may touch all
    of it. Else words, from which all others can be put together.
    """
    blocks = {variable.block: None for variable in variables}
    if len(blocks) == 1:
        return variables[0].block
    if not blocks.keys() <= _WORDS.keys():
        raise NotSupported(f"ranges that meet are seen as {' and '.join(blocks)}")
    if "atomic<u32>" in blocks:
        return "atomic<u32>"
    widest = max(blocks, key=_WORDS.__getitem__)
    parts = [variable for variable in variables if variable.block != widest]
    return widest if whole and not any(_is_stored(text, part) for part in parts) else "u32"


def _is_stored(text: str, variable: _Variable) -> bool:
    """Return whether a kernel writes through a variable."""
    accesses = re.finditer(rf"\b{variable.name}\[", text)
    return any(text.startswith(" = ", _closing(text, access.end()) + 1) for access in accesses)


def _through_functions(text: str, variable: _Variable) -> str:
    """Return the text with ``name[at]`` as a call of ``load_name``, and ``name[at] = block;`` as one of ``store_name``.

    From the last access to the first, so that accesses within an access are done before it.
    """
    function = _function(variable)
    for found in reversed(list(re.finditer(rf"\b{variable.name}\[", text))):
        end = _closing(text, found.end())
        at, rest = text[found.end() : end], text[end + 1 :]
        if stored := re.match(r" = ([^;]*);", rest):
            call = f"store_{function}({at}, {stored[1]});"
            rest = rest[stored.end() :]
        else:
            call = f"load_{function}({at})"
        text = text[: found.start()] + call + rest
    return text


def _closing(text: str, start: int) -> int:
    """Return the position of the bracket that closes one opened before ``start``."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"[": 1, "]": -1}.get(text[position], 0)
        if not depth:
            return position
    raise ValueError("a bracket is never closed")


def _function(variable: _Variable) -> str:
    return f"{variable.name}_{variable.block.partition('<')[0]}"


def _accessors(variable: _Variable, shared: _Variable) -> str:
    return templates.render(
        f"access/{'part' if _WORDS[shared.block] > _WORDS[variable.block] else 'shared'}",
        function=_function(variable),
        block=variable.block,
        words=_WORDS[variable.block],
        parts=_WORDS[shared.block] // _WORDS[variable.block],
        shared=shared.name,
        atomic=shared.block == "atomic<u32>",
    )
