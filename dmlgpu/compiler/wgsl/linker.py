"""A small linker: adds each called library function once and keeps the names of inlined bodies apart."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType

from dmlgpu.compiler.wgsl import templates

_DECLARATION = re.compile(r"^(?:fn|alias|const|struct|var(?:<\w+>)?)\s+(\w+)", re.MULTILINE)
_IDENTIFIER = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_ARRAY = re.compile(r"^alias (\w+) = (array<.*>);\n", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*")


def declared(text: str) -> frozenset[str]:
    """Return the names that a source declares at module level."""
    return frozenset(_DECLARATION.findall(text))


def prefix(text: str, namespace: str) -> str:
    """Return the text with a prefix on every name it declares at module level."""
    if not namespace:
        return text
    names = declared(text)
    return _IDENTIFIER.sub(lambda match: namespace + match[0] if match[0] in names else match[0], text)


@functools.cache
def library() -> dict[str, str]:
    """Return every declaration of ``shaders/lib``, by name."""
    declarations: dict[str, str] = {}
    for file in templates.files("lib"):
        for chunk in re.split(r"^(?=(?:fn|const|struct|alias)\s)", templates.source(file), flags=re.MULTILINE):
            match = _DECLARATION.match(chunk)
            if match:
                assert match[1] not in declarations, f"{match[1]} stands twice in shaders/lib"
                declarations[match[1]] = _strip_trailing_comments(chunk)
    return declarations


def _strip_trailing_comments(chunk: str) -> str:
    """Return a declaration without the comment lines that belong to the next one."""
    lines = chunk.rstrip().split("\n")
    while lines and (not lines[-1].strip() or lines[-1].startswith("//")):
        lines.pop()
    return "\n".join(lines)


@functools.cache  # bounded by the declarations in shaders/lib
def calls(name: str) -> tuple[str, ...]:
    """Return the declarations of the library that one of its declarations uses."""
    return _used(library()[name], frozenset([name]))


def _used(text: str, excluded: frozenset[str]) -> tuple[str, ...]:
    names = dict.fromkeys(_IDENTIFIER.findall(_COMMENT.sub("", text)))
    return tuple(name for name in names if name in library() and name not in excluded)


def link(text: str, instead: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the source after every library declaration that it needs, directly or indirectly, once.

    Args:
        text: Source of a kernel.
        instead: Functions of the library, and the library functions that replace them.
    """
    own = declared(text)
    needed: dict[str, None] = {}
    pending = list(_used(text, own))
    while pending:
        name = pending.pop()
        if name not in needed:
            needed[name] = None
            pending.extend(calls(instead.get(name, name)))
    parts = [declaration(name, instead.get(name, name)) for name in sorted(needed)]
    return "\n".join(["// ---- shaders/lib", *parts, text]) if parts else text


def declaration(name: str, body: str) -> str:
    """Return a declaration of the library, with the body of another one if they differ."""
    return library()[body] if name == body else library()[body].replace(f"fn {body}(", f"fn {name}(", 1)


def expand_arrays(text: str) -> str:
    """Return the text with array types instead of their aliases.

    In WGSL, an alias is the type that it names. wgpu's compiler (naga) writes a SPIR-V type for each alias of an
    array, and passes arrays of one such type to functions that declare another, which is invalid SPIR-V.
    """
    types: dict[str, str] = {}

    def expanded(match: re.Match[str]) -> str:
        return types.get(match[0], match[0])

    for name, array in _ARRAY.findall(text):
        types[name] = _IDENTIFIER.sub(expanded, array)
    if not types:
        return text
    return re.sub(rf"\b(?:{'|'.join(types)})\b", expanded, _ARRAY.sub("", text))
