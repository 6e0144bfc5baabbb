"""Kernels whose slots share storage variables, made from the text of those in which each slot has its own."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dmlgpu.aliasing import known_bindings
from dmlgpu.errors import NotSupported
from dmlgpu.program import Bindings, Kernel, Program
from dmlgpu.wgsl import templates

_STORAGE = re.compile(r"@group\(0\) @binding\(\d+\) var<storage, read_write> (\w+): array<(.+)>;\n")
_UNIFORM = re.compile(r"(?<=@group\(0\) @binding\()\d+(?=\) var<uniform>)")
_WORDS = {"u32": 1, "atomic<u32>": 1, "vec2<u32>": 2, "vec4<u32>": 4}


def share_known(program: Program) -> Program:
    """The program with one binding for slots that meet wherever its resources lie."""

    def shared(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        return tuple(share(program.operator, kernel, known_bindings(kernel.slots)) for kernel in kernels)

    return replace(program, kernels=shared(program.kernels), initialization=shared(program.initialization))


def share(operator: str, kernel: Kernel, bindings: Bindings) -> Kernel:
    """The kernel with these bindings: its own ones and more slots that share.

    Raises:
        NotSupported: when slots shall share that see a resource in blocks which nothing has in common.
    """
    if bindings == kernel.bindings:
        return kernel
    try:
        return replace(kernel, wgsl=_share(kernel.wgsl, kernel.bindings, bindings), bindings=bindings)
    except NotSupported as error:
        raise NotSupported(f"{operator}: kernel {kernel.label!r}: {error}") from None


@dataclass(frozen=True)
class _Variable:
    """A storage variable: its name, and the type that it is an array of."""

    name: str
    block: str


@functools.lru_cache(maxsize=1024)
def _share(text: str, before: Bindings, bindings: Bindings) -> str:
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
        block = _common_block([variable.block for variable in group])
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


def _common_block(blocks: Sequence[str]) -> str:
    """The type that blocks of all these types can be put together from."""
    if len(set(blocks)) == 1:
        return blocks[0]
    if not set(blocks) <= _WORDS.keys():
        raise NotSupported(f"ranges that meet are seen as {' and '.join(dict.fromkeys(blocks))}")
    return "atomic<u32>" if "atomic<u32>" in blocks else "u32"


def _through_functions(text: str, variable: _Variable) -> str:
    """The text with ``name[at]`` as a call of ``load_name``, and ``name[at] = block;`` as one of ``store_name``.

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
    """The position of the bracket that closes one opened before ``start``."""
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
        "access/shared",
        function=_function(variable),
        block=variable.block,
        words=_WORDS[variable.block],
        shared=shared.name,
        atomic=shared.block == "atomic<u32>",
    )
