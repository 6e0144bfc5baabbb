"""The library of functions in ``shaders/lib``: each that a kernel needs is in its text once."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from dmlgpu.compiler.wgsl import templates

_DECLARATION = re.compile(r"^(?:fn|const|struct|alias)\s+(\w+)")
_IDENTIFIER = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_COMMENT = re.compile(r"//[^\n]*")


@functools.cache
def declarations() -> dict[str, str]:
    """Return every declaration of ``shaders/lib``, by name."""
    result: dict[str, str] = {}
    for file in templates.files("lib"):
        for chunk in re.split(r"^(?=(?:fn|const|struct|alias)\s)", templates.source(file), flags=re.MULTILINE):
            match = _DECLARATION.match(chunk)
            if match:
                assert match[1] not in result, f"{match[1]} stands twice in shaders/lib"
                result[match[1]] = _strip_trailing_comments(chunk)
    return result


def _strip_trailing_comments(chunk: str) -> str:
    """Return a declaration without the comment lines that belong to the next one."""
    lines = chunk.rstrip().split("\n")
    while lines and (not lines[-1].strip() or lines[-1].startswith("//")):
        lines.pop()
    return "\n".join(lines)


@functools.cache  # bounded by the declarations in shaders/lib
def uses(name: str) -> frozenset[str]:
    """Return the declarations and the identifiers of WGSL (``templates.NOTED``) that a declaration uses."""
    identifiers = set(_IDENTIFIER.findall(_COMMENT.sub("", declarations()[name]))) - {name}
    return frozenset(identifier for identifier in identifiers if identifier in templates.NOTED | declarations().keys())


def mentioned(text: str) -> frozenset[str]:
    """Return the functions of the library that a hand-written text uses."""
    return frozenset(_IDENTIFIER.findall(_COMMENT.sub("", text))) & declarations().keys()


def with_needs(used: Iterable[str], instead: Mapping[str, str] = MappingProxyType({})) -> set[str]:
    """Return identifiers, and all that the functions among them use, directly or indirectly.

    Args:
        used: Functions of the library, and identifiers of WGSL.
        instead: Functions of the library, and the functions that replace them.
    """
    needed: set[str] = set()
    pending = list(used)
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending.extend(uses(instead.get(name, name)) if name in declarations() else ())
    return needed


def text_of(needed: Iterable[str], instead: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the declarations of functions, given with all that they use (``with_needs``)."""
    names = sorted(name for name in needed if name in declarations())
    parts = [declaration(name, instead.get(name, name)) for name in names]
    return "\n".join(["// ---- shaders/lib", *parts, ""]) if parts else ""


def declaration(name: str, body: str) -> str:
    """Return a declaration of the library, with the body of another one if they differ."""
    text = declarations()[body]
    return text if name == body else text.replace(f"fn {body}(", f"fn {name}(", 1)
