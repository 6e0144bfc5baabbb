"""Import graph of the Python files, read from their source."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

from .names import ROOT

LIGHT = frozenset(
    (
        *("cffi", "gguf", "hypothesis", "jinja2", "llguidance", "markdown_it", "ml_dtypes", "numpy", "onnx"),
        *("packaging", "pytest", "rich", "scipy", "segno", "starlette", "tokenizers", "typer", "uvicorn"),
        *("websockets", "wgpu", "yaml"),
    )
)
"""Packages that the extra `check` installs, as Python imports them."""

LOCAL = ("", "scripts", "tests/gpu")
"""Folders from which tests import."""

TORCH = "dmlgpu/frontends/torch"
"""Files that need PyTorch begin so."""


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Return the modules that a Python file imports, as files of this checkout: ``dmlgpu/catalog/tensor_desc.py``."""
    names = {name for node in ast.walk(_tree(path)) for name in _modules(node)}
    return frozenset(file for name in names if (file := _file(name)))


@functools.cache
def heavy(file: str) -> frozenset[str]:
    """Return the packages beyond LIGHT without which a test module cannot be imported, or is skipped."""
    names = {name for node in _executed(_tree(ROOT / file).body) for name in (*_modules(node), *_skips(node))}
    packages: set[str] = set()
    for name in names:
        package = name.partition(".")[0]
        local = _file(name)
        if local.startswith(TORCH) or name == "dmlgpu.torch":
            packages.add("torch")
        elif local.startswith("tests/") and local != file:
            packages |= heavy(local)
        elif not local and not _is_local(package) and package not in sys.stdlib_module_names:
            packages.add(package)
    return frozenset(packages - LIGHT)


def importers(file: str, folder: Path) -> list[str]:
    """Return the Python files below a folder that import a file."""
    path = Path(file)
    word = path.parent.name if path.stem == "__init__" else path.stem
    candidates = (path for path in sorted(folder.rglob("*.py")) if word in _text(path))
    return [path.relative_to(ROOT).as_posix() for path in candidates if file in imports(path)]


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file; an empty one if it has a syntax error, which its lint reports."""
    try:
        return ast.parse(_text(path))
    except SyntaxError:
        return ast.Module([], [])


def _executed(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes of a module that run when it is imported."""
    for statement in body:
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield from ast.walk(statement)


def _modules(node: ast.AST) -> Iterator[str]:
    """Yield names that may be modules, including imported members, which may be submodules."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def _skips(node: ast.AST) -> Iterator[str]:
    """Yield the module that ``pytest.importorskip`` names."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "importorskip" and node.args:
        yield str(getattr(node.args[0], "value", ""))


@functools.cache
def _file(module: str) -> str:
    path = module.replace(".", "/")
    return next((candidate for candidate in (f"{path}.py", f"{path}/__init__.py") if (ROOT / candidate).is_file()), "")


@functools.cache
def _is_local(package: str) -> bool:
    return any((ROOT / folder / f"{package}{suffix}").exists() for folder in LOCAL for suffix in ("", ".py"))
