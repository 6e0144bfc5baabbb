"""Kernels that bind a tensor in parts, because it exceeds the adapter's largest binding. Each part is a separate
storage variable of its own. Every access of the tensor's variable becomes a call of a function that chooses the part by
the address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.aliasing import OFFSET_ALIGNMENT
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.sharing import STORAGE, UNIFORM, WORDS, Variable, is_stored, through_functions


@dataclass(frozen=True)
class Part:
    """Range of a binding, in bytes; ``is_continued`` if another part follows."""

    offset: int
    size: int
    is_continued: bool = False


def parts_of(size: int, limit: int) -> tuple[Part, ...]:
    """Return the parts in which ``size`` bytes are bound; all but the last have the maximum size."""
    if size <= limit:
        return (Part(0, size),)
    whole = limit // OFFSET_ALIGNMENT * OFFSET_ALIGNMENT
    starts = range(0, size, whole)
    return tuple(Part(start, min(whole, size - start), start + whole < size) for start in starts)


def slots_of(parts: Sequence[Sequence[Part]]) -> list[tuple[int, int]]:
    """Return variable and part of each slot: the first parts of all variables, then the others."""
    first = [(index, 0) for index in range(len(parts))]
    return first + [(index, part) for index, every in enumerate(parts) for part in range(1, len(every))]


def spread(text: str, parts: Sequence[Sequence[Part]]) -> str:
    """Return a kernel's source with its variables, in order, bound in parts.

    Raises:
        NotSupported: If a variable in several parts is updated atomically.
    """
    variables = [Variable(*match) for match in STORAGE.findall(text)]
    first = STORAGE.search(text)
    assert first is not None
    above, below = text[: first.start()], STORAGE.sub("", text[first.start() :])
    functions = ""
    for variable, every in zip(variables, parts, strict=True):
        if len(every) == 1:
            continue
        if variable.block not in WORDS or "atomic" in variable.block:
            raise NotSupported(f"a tensor that is updated atomically must fit one binding, got {len(every)} parts")
        stores = is_stored(below, variable)
        below = through_functions(below, variable)
        functions += templates.render(
            "access/spread",
            function=variable.function,
            block=variable.block,
            names=[_name(variable, part) for part in range(len(every))],
            count=every[0].size // (4 * WORDS[variable.block]),
            loads=f"load_{variable.function}(" in below,
            stores=stores,
        )
    slots = slots_of(parts)
    declarations = "".join(
        f"@group(0) @binding({slot}) var<storage, read_write> "
        f"{_name(variables[index], part) if len(parts[index]) > 1 else variables[index].name}: "
        f"array<{variables[index].block}>;\n"
        for slot, (index, part) in enumerate(slots)
    )
    return UNIFORM.sub(str(len(slots)), above + declarations + below + functions)


def _name(variable: Variable, part: int) -> str:
    return f"{variable.name}_part{part}"
