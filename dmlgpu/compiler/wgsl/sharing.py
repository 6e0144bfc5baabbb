"""Kernels whose slots share storage variables, made from the text of those in which each slot has its own."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.aliasing import known_bindings
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Bindings, Kernel, Program, Slot
from dmlgpu.compiler.wgsl.blocks import WORDS, Variable, accessors, is_stored, through_functions
from dmlgpu.compiler.wgsl.spreading import STORAGE, UNIFORM

shared_texts: Final[Cache[tuple[str, Bindings, Bindings, frozenset[tuple[int, int]]], str]] = Cache(
    CacheLimits(entries=1024, size=16 << 20)
)
"""The texts that were asked for last, by those they are made from."""


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
        text = shared_texts.get_or_make(
            key, lambda: _share(*key), lambda result: sys.getsizeof(key[0]) + sys.getsizeof(result)
        )
        return replace(kernel, wgsl=text, bindings=bindings)
    except NotSupported as error:
        raise NotSupported(f"{operator}: kernel {kernel.label!r}: {error}") from None


def _whole(slots: Sequence[Slot], bindings: Bindings) -> frozenset[tuple[int, int]]:
    """The bindings of one resource, and the widest block, in bytes, of which each holds whole ones. (Offsets are
    multiples of 16, and of 256 where blocks of more are read.)"""
    resources: dict[int, set[tuple[Role, int]]] = {}
    ends: dict[int, int] = {}
    for slot, binding in zip(slots, bindings, strict=True):
        resources.setdefault(binding, set()).add((slot.role, slot.index))
        ends[binding] = max(ends.get(binding, 0), slot.offset + slot.size)
    widths = ((number, math.gcd(end, 4 * max(WORDS.values()))) for number, end in ends.items())
    return frozenset((number, width) for number, width in widths if len(resources[number]) == 1)


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
    """Return the type that a shared variable is an array of.

    The widest where it holds whole ones of them and narrower ones are only read: storing part of a vector may touch all
    of it. Else words, from which all others can be put together. ``width`` says how many bytes the widest whole blocks
    have.
    """
    blocks = {variable.block: None for variable in variables}
    if len(blocks) == 1:
        return variables[0].block
    if not blocks.keys() <= WORDS.keys():
        raise NotSupported(f"ranges that meet are seen as {' and '.join(blocks)}")
    if "atomic<u32>" in blocks:
        return "atomic<u32>"
    widest = max(blocks, key=WORDS.__getitem__)
    parts = [variable for variable in variables if variable.block != widest]
    return widest if width >= 4 * WORDS[widest] and not any(is_stored(text, part) for part in parts) else "u32"
