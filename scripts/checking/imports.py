"""Import graph of the Python files, read from their source."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from .parts import ROOT


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Return the modules that a Python file imports, as files of this checkout: ``dmlgpu/catalog/tensor_desc.py``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {name for node in ast.walk(tree) for name in _modules(node)}
    return frozenset(file for name in names if (file := _file(name)))


def _modules(node: ast.AST) -> Iterator[str]:
    """Names that may be modules: what is imported from a package may be one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def _file(module: str) -> str:
    path = module.replace(".", "/")
    return next((candidate for candidate in (f"{path}.py", f"{path}/__init__.py") if (ROOT / candidate).is_file()), "")


def importing(file: str, folder: Path) -> set[str]:
    """Return a file and those in a folder that import it, directly or not."""
    files = {str(path.relative_to(ROOT)): imports(path) for path in folder.rglob("*.py")}
    importers = {file}
    while more := {other for other, imported in files.items() if imported & importers} - importers:
        importers |= more
    return importers
