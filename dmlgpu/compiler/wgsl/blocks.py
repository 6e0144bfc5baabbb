"""Blocks that storage variables are arrays of, and kernels that see a variable in other blocks than its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dmlgpu.compiler.wgsl import templates

WORDS: Final = {"u32": 1, "atomic<u32>": 1, "vec2<u32>": 2, "u64": 2, "vec4<u32>": 4, "vec2<u64>": 4, "vec4<u64>": 8}
"""The 32-bit words of each block that others can be put together from."""

PAIR: Final = "vec4<u64>"
"""Two units of 16 bytes, which adapters that move doubles read and write at once."""

DOUBLE: Final = {"vec2<u32>": "u64", "vec4<u32>": "vec2<u64>"}
"""Blocks of words as 64-bit numbers."""


@dataclass(frozen=True)
class Variable:
    """A storage variable: its name, and the type that it is an array of."""

    name: str
    block: str

    @property
    def function(self) -> str:
        """What follows ``load_`` and ``store_`` in the names of the functions that give and take its blocks."""
        return f"{self.name}_{self.block.partition('<')[0]}"


def stored_as(block: str, doubles: bool) -> str:
    """Return the block that a variable is declared with: ``doubles`` makes 64-bit numbers of pairs of words."""
    return DOUBLE.get(block, block) if doubles else block


def through_functions(text: str, variable: Variable) -> str:
    """Return the text with ``name[at]`` as a call of ``load_name``, and ``name[at] = block;`` as one of ``store_name``.

    From the last access to the first, so that accesses within an access are done before it.
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
    """Return whether a kernel writes through a variable."""
    accesses = re.finditer(rf"\b{variable.name}\[", text)
    return any(text.startswith(" = ", _closing(text, access.end()) + 1) for access in accesses)


def accessors(variable: Variable, shared: Variable) -> str:
    """Return the functions that load and store a variable's blocks in one with wider or narrower blocks."""
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
    """Return a kernel's text, with the declarations left to the caller, for variables declared ``stored_as``."""
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
