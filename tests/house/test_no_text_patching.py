"""WGSL is written once: nothing searches or changes the text of a kernel after templates and linker have written it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "dmlgpu"

MAY_IMPORT_RE = {
    "compiler/cards.py": "searches names of adapters for names of graphics cards",
    "compiler/quirks.py": "compares names and versions of drivers with patterns",
    "compiler/tuned_files.py": "makes file names of names of adapters",
    "compiler/wgsl/templates.py": "finds identifiers in templates as they are loaded",
    "runtime/adapters.py": "reads indices of adapters in arguments",
    "runtime/browser/facts.py": "cleans strings that browsers report",
    "runtime/browser/server.py": "reads paths of requests",
    "runtime/rendered.py": "names the template of a faulty line in error messages",
    "runtime/shader_source.py": "reads shaders that users wrote",
    "runtime/wgpu/adapter.py": "reads the width of vectors in names of drivers",
    "runtime/wgpu/dawn.py": "removes warnings of Dawn from the standard error",
    "runtime/wgpu/errors.py": "reads error messages of naga and Tint",
}
"""Modules of compiler and runtime that may import ``re``, and what for."""


SEARCHES = {
    *("count", "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "replace", "rfind"),
    *("rindex", "rpartition", "rsplit", "split", "startswith", "translate"),
}


def modules() -> list[Path]:
    return sorted(file for room in ("compiler", "runtime") for file in (PACKAGE / room).rglob("*.py"))


def path_of(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


def imports_re(source: str) -> bool:
    """Return whether a module imports a module of regular expressions anywhere."""
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        if {"re", "regex", "fnmatch"} & set(names):
            return True
    return False


def is_text(node: ast.AST) -> bool:
    """Return whether an expression is the text of a kernel: ``kernel.wgsl``, ``source.body``, or a call of ``link``."""
    if isinstance(node, ast.Call):
        function = node.func
        return getattr(function, "attr", getattr(function, "id", "")) == "link"
    if isinstance(node, ast.Attribute):
        owner = getattr(node.value, "attr", getattr(node.value, "id", ""))
        return (node.attr == "wgsl" and owner != "kind") or (node.attr == "body" and owner == "source")
    return False


def searches(source: str) -> Iterator[int]:
    """Yield the lines in which a module searches or changes the text of a kernel by methods of strings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in SEARCHES and is_text(node.value):
            yield node.lineno
        if (
            isinstance(node, ast.Compare)
            and isinstance(node.ops[0], ast.In | ast.NotIn)
            and is_text(node.comparators[0])
        ):
            yield node.lineno


def test_only_these_modules_use_regular_expressions():
    assert len(modules()) > 150
    assert {path_of(file) for file in modules() if imports_re(file.read_text(encoding="utf-8"))} == set(MAY_IMPORT_RE)


def test_no_module_searches_the_text_of_a_kernel():
    lines = [f"{path_of(file)}:{line}" for file in modules() for line in searches(file.read_text(encoding="utf-8"))]
    assert lines == []


@pytest.mark.parametrize("source", ["import re", "def f():\n    from re import compile", "import ast, re as r"])
def test_imports_are_found(source: str):
    assert imports_re(source)
    assert not imports_re(source.replace("re", "json"))


@pytest.mark.parametrize(
    "source",
    [
        "x = kernel.wgsl.replace('a', 'b')",
        "x = self.source.body.split()",
        "x = 'sizes' in kernel.wgsl",
        "x = 'sizes' not in link(source)",
        "x = kernel.link().partition(';')",
    ],
)
def test_searches_are_found(source: str):
    assert list(searches(source)) == [1]


@pytest.mark.parametrize(
    "source", ["x = len(kernel.wgsl)", "x = step.body.replace(a)", "x = kernel in kernels", "x = {kernel.wgsl: 1}"]
)
def test_other_uses_are_none(source: str):
    assert list(searches(source)) == []
