"""Cost estimates from a kernel's WGSL: instructions, workgroup memory, barriers, loops."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass

_COMMENT = re.compile(r"//[^\n]*")
_FUNCTION = re.compile(r"\bfn (\w+)\([^{]*\{")
_ENTRY = re.compile(r"@compute[^{]*?\bfn (\w+)\(")
_CALL = re.compile(r"\b(\w+)\(")
_OPERATION = re.compile(
    r"[-+*/%]|<<|>>|&&?|\|\|?|\^|[<>]=?|[!=]="
    r"|\b(?:fma|select|min|max|abs|exp2?|log2?|sqrt|floor|round|dot|bitcast|clamp)\b"
)
_SHARED = re.compile(r"var<workgroup>\s+\w+\s*:\s*([^;=]+);")
_CONSTANT = re.compile(r"\bconst (\w+)\s*(?::\s*\w+\s*)?=\s*(\d+)u?;")
_ALIAS = re.compile(r"\balias (\w+)\s*=\s*([^;]+);")
_STRUCTURE = re.compile(r"\bstruct (\w+)\s*\{([^}]*)\}")
_MEMBER = re.compile(r"\w+\s*:\s*([\w<>, ]+?)\s*(?:,\s*(?=\w+\s*:|$)|$)")

ALWAYS = 12
"""Instructions of every kernel: for its coordinates and its end."""

_SCALAR_BYTES = {"f32": 4, "u32": 4, "i32": 4, "f16": 2, "f64": 8, "u64": 8, "i64": 8, "bool": 4}


@dataclass(frozen=True)
class KernelText:
    """Facts about a kernel from its source.

    Attributes:
        instructions: Estimated instructions of an invocation if loops run once: one per operator and built-in function
            of the entry point and its callees.
        shared_bytes: Bytes of workgroup memory.
        barriers: Barriers in the text.
        has_loop: Whether it has loops.
    """

    instructions: int
    shared_bytes: int
    barriers: int
    has_loop: bool


@functools.lru_cache(maxsize=64)
def read_kernel_text(wgsl: str) -> KernelText:
    """Return the facts about the first entry point of a source."""
    source = _COMMENT.sub("", wgsl)
    bodies = {match[1]: _body(source, match.end()) for match in _FUNCTION.finditer(source)}
    entry = _ENTRY.search(source)
    counted: dict[str, int] = {}

    def operations(name: str) -> int:
        if name not in counted:
            counted[name] = 0  # WGSL has no recursion; a text that has it ends all the same
            calls = (call for call in _CALL.findall(bodies[name]) if call in bodies)
            counted[name] = len(_OPERATION.findall(bodies[name])) + sum(map(operations, calls))
        return counted[name]

    types = _Types(
        {name: int(value) for name, value in _CONSTANT.findall(source)},
        dict(_ALIAS.findall(source)),
        dict(_STRUCTURE.findall(source)),
    )
    return KernelText(
        ALWAYS + (operations(entry[1]) if entry else 0),
        sum(types.bytes(kind) for kind in _SHARED.findall(source)),
        source.count("workgroupBarrier()"),
        bool(re.search(r"\b(?:for|while|loop)\b", source)),
    )


def _body(source: str, start: int) -> str:
    """Return the text from a place after an opening brace to the closing one."""
    depth = 1
    for end in range(start, len(source)):
        depth += {"{": 1, "}": -1}.get(source[end], 0)
        if not depth:
            return source[start:end]
    return source[start:]


@dataclass(frozen=True)
class _Types:
    """The named types of a source, by name, and its integer constants."""

    constants: dict[str, int]
    aliases: dict[str, str]
    structures: dict[str, str]

    def bytes(self, kind: str) -> int:
        """Return the bytes of a type, structures without padding; 0 if it is unknown."""
        kind = kind.strip()
        if kind in self.aliases:
            return self.bytes(self.aliases[kind])
        if kind in self.structures:
            return sum(map(self.bytes, _MEMBER.findall(" ".join(self.structures[kind].split()))))
        if array := re.fullmatch(r"array<(.+),\s*(\w+)>", kind):
            count = array[2].rstrip("u")
            elements = int(count) if count.isdecimal() else self.constants.get(array[2], 0)
            return elements * self.bytes(array[1])
        if vector := re.fullmatch(r"vec([234])<(\w+)>", kind):
            return math.ceil(int(vector[1]) / 2) * 2 * self.bytes(vector[2])
        if atomic := re.fullmatch(r"atomic<(\w+)>", kind):
            return self.bytes(atomic[1])
        return _SCALAR_BYTES.get(kind, 0)
