"""Scripts and benchmarks import only names that the package has: few tests run them, and mypy does not check them."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    path
    for folder in ("scripts", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix == ".py" or (path.suffix == "" and path.is_file() and "python" in path.read_text("utf-8")[:40])
]


def imports(path: Path) -> list[tuple[str, str]]:
    """The modules of the package that a script imports from, and the names."""
    return [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "dmlgpu"
        for alias in node.names
    ]


def is_there(module: str, name: str) -> bool:
    """Return whether a module has a name; also if it needs a package that tests do not install."""
    try:
        return hasattr(importlib.import_module(module), name) or find_spec(f"{module}.{name}") is not None
    except ModuleNotFoundError as error:
        return not (error.name or "").startswith("dmlgpu")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_scripts_import_what_the_package_has(path: Path) -> None:
    assert [f"{module}.{name}" for module, name in imports(path) if not is_there(module, name)] == []


def test_scripts_are_found() -> None:
    assert len(SCRIPTS) > 40 and sum(len(imports(path)) for path in SCRIPTS) > 100
