"""The library of functions in ``shaders/lib``: each that a kernel needs is in its text once."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from dmlgpu.compiler.wgsl import templates


@functools.cache
def declarations() -> dict[str, str]:
    """Return every declaration of ``shaders/lib``, by name."""
    result: dict[str, str] = {}
    for file in templates.files("lib"):
        text = templates.source(file)
        starts = [(match[1], match.start()) for match in templates.DECLARATION.finditer(text)]
        for (name, start), (_, end) in itertools.pairwise([*starts, ("", len(text))]):
            assert name not in result, f"{name} stands twice in shaders/lib"
            result[name] = _strip_trailing_comments(text[start:end])
    return result


@functools.cache
def _files() -> dict[str, str]:
    """Return the file of each declaration of ``shaders/lib``."""
    return {name: file for file in templates.files("lib") for name in templates.declared(file)}


def files(used: Iterable[str]) -> tuple[str, ...]:
    """Return the files of ``shaders/lib`` that declare some of the identifiers, by name."""
    declared = _files()
    return tuple(sorted({declared[name] for name in used if name in declared}))


def _strip_trailing_comments(chunk: str) -> str:
    """Return a declaration without the comment lines that belong to the next one."""
    lines = chunk.rstrip().split("\n")
    while lines and (not lines[-1].strip() or lines[-1].startswith("//")):
        lines.pop()
    return "\n".join(lines)


@functools.cache  # bounded by the declarations in shaders/lib
def uses(name: str) -> frozenset[str]:
    """Return the declarations and the identifiers of WGSL (``templates.NOTED``) that a declaration uses."""
    return templates.identifiers(declarations()[name]) & (templates.NOTED | declarations().keys()) - {name}


def mentioned(text: str) -> frozenset[str]:
    """Return the functions of the library that a hand-written text uses."""
    return templates.identifiers(text) & declarations().keys()


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
