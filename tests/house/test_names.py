"""Names of the package: class names are unique, and variables and fields name what they hold."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dmlgpu"
FOLDERS = ("dmlgpu", "tests", "scripts", "benchmarks")

EMPTY = frozenset({"one", "found", "given", "made", "wanted", "told", "asked", "kept", "here", "so_far"})
"""Names of variables and fields that do not describe their contents."""

MIRRORED = "pydirectml has a class of this name, and dmlgpu.frontends.pydirectml mirrors that package"

SHARED_CLASS_NAMES = dict.fromkeys(
    (
        "ConvolutionDirection",
        "ConvolutionMode",
        "Device",
        "ExecutionFlags",
        "InterpolationMode",
        "MatrixTransform",
        "PaddingMode",
        "RecurrentNetworkDirection",
        "Size2D",
        "TensorDesc",
        "TensorFlags",
    ),
    MIRRORED,
) | {"Generator": "dmlgpu.random mirrors numpy.random; that of dmlgpu.onnx has onnxruntime-genai's name"}
"""Class names that several modules of the package define, with the reason."""


def empty_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each variable, parameter, field and attribute with an empty name."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.arg(arg=name)
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.ExceptHandler(name=str(name))
                | ast.Attribute(attr=name, ctx=ast.Store())
            ) if name.strip("_") in EMPTY:
                yield node.lineno, name


def class_names(source: str) -> Iterator[str]:
    """Yield the name of each class that a module defines, nested ones included."""
    return (node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))


def python_files(folder: Path) -> list[Path]:
    files = sorted(folder.rglob("*.py"))
    assert files
    return files


@pytest.mark.parametrize("folder", FOLDERS)
def test_variables_name_what_they_hold(folder: str) -> None:
    assert [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in python_files(ROOT / folder)
        for line, name in empty_names(file.read_text(encoding="utf-8"))
    ] == [], "use the noun of the variable's value"


@pytest.mark.parametrize(
    "source",
    [
        "one = 1",
        "(given := 1)",
        "def f(given): ...",
        "lambda *, told=1: 0",
        "[found for found in x]",
        "for made, _ in x: ...",
        "with x as kept: ...",
        "try: ...\nexcept E as found: ...",
        "match x:\n    case [asked, *_]: ...",
        "match x:\n    case [_, *wanted]: ...",
        "class A:\n    kept: int",
        "self._found = 1",
    ],
)
def test_empty_names_are_recognized(source: str) -> None:
    assert len(list(empty_names(source))) == 1


def test_other_names_pass() -> None:
    assert list(empty_names("tensor = one(given).found")) == []


def test_class_names_are_unique() -> None:
    modules = defaultdict(list)
    for file in python_files(PACKAGE):
        for name in class_names(file.read_text(encoding="utf-8")):
            modules[name].append(str(file.relative_to(ROOT)))
    shared = {name: files for name, files in modules.items() if len(files) > 1}
    assert {name: files for name, files in shared.items() if name not in SHARED_CLASS_NAMES} == {}, "rename one"
    assert sorted(SHARED_CLASS_NAMES.keys() - shared) == [], "no longer shared: remove them from SHARED_CLASS_NAMES"


def test_no_class_name_has_the_words_of_another() -> None:
    names = defaultdict(set)
    for file in python_files(PACKAGE):
        for name in class_names(file.read_text(encoding="utf-8")):
            words = re.findall(r"[A-Z][a-z0-9]*", name)
            names[tuple(sorted(words))].add(name.strip("_"))
    assert [sorted(group) for words, group in names.items() if words and len(group) > 1] == [], "rename one"
