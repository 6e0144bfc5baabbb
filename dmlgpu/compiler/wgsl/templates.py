"""Shader files: their folder, and their strict template language."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, MutableMapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import jinja2

from dmlgpu.common import symbols
from dmlgpu.compiler.program_cache import without_files

SUFFIX = ".wgsl"


@functools.cache
def root() -> Traversable:
    """Return the folder ``shaders/``: inside the package when installed, next to it in a checkout."""
    packaged = resources.files("dmlgpu") / "shaders"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[3] / "shaders"


def exists(file: str) -> bool:
    """Return whether a shader file with a path (below ``shaders/``, without suffix) exists."""
    return root().joinpath(*f"{file}{SUFFIX}".split("/")).is_file()


@functools.cache  # bounded by the files
def original(file: str) -> str:
    """Return the text of a shader file on disk."""
    return root().joinpath(*f"{file}{SUFFIX}".split("/")).read_text(encoding="utf-8")


_replaced: dict[str, str] = {}


def source(file: str) -> str:
    """Return the text of a shader file."""
    return _replaced.get(file) or original(file)


@contextlib.contextmanager
def replaced(file: str, text: str) -> Iterator[None]:
    """Replace the text of a shader file within the context, by a mutant for tests of tests."""
    _replaced[file] = text
    try:
        with without_files():
            yield
    finally:
        del _replaced[file]


@functools.cache  # bounded by the folders
def files(folder: str) -> tuple[str, ...]:
    """Return the shader files directly in a folder, by path without suffix."""
    names = (entry.name for entry in root().joinpath(folder).iterdir())
    return tuple(sorted(f"{folder}/{name.removesuffix(SUFFIX)}" for name in names if name.endswith(SUFFIX)))


@functools.cache
def folders() -> tuple[str, ...]:
    """Return the folders of shader files."""
    return tuple(sorted(entry.name for entry in root().iterdir() if entry.is_dir()))


_HEADER = re.compile(r"\A(?://[^\n]*\n)+")


def _load(name: str) -> tuple[str, None, Callable[[], bool]] | None:
    """Return a template without its header comment, which describes the file, not the shader it becomes part of."""
    if not exists(name):
        return None
    text = source(name)
    return _HEADER.sub("", text), None, lambda: source(name) == text


class _Environment(jinja2.Environment):
    """Context of Jinja2 that is faster for many small templates."""

    def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
        """Return a plain dictionary: every rendering copies it, which is slow for Jinja2's chain of maps."""
        return {**self.globals, **(d or {})}


@functools.cache
def environment() -> jinja2.Environment:
    """Return the environment of all templates, with its tests and filters."""
    return _Environment(
        loader=jinja2.FunctionLoader(_load),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        cache_size=-1,  # bounded by the files: no limit, hence no order of use to track
        line_statement_prefix="# ",
    )


def render(file: str, **values: Any) -> str:
    """Render a shader file with values, after a line with its name.

    Raises:
        jinja2.UndefinedError: when the file uses an undefined value.
    """
    text = symbols.settled(environment().get_template(file).render(values))
    return f"// ---- shaders/{file}{SUFFIX}\n{text.strip()}\n"


def header(file: str) -> str:
    """Return a shader file's header comment: name, formula, special properties."""
    match = _HEADER.match(source(file))
    return "\n".join(line.removeprefix("//").strip() for line in match.group(0).splitlines()) if match else ""
