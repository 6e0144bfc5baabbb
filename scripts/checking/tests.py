"""Find the tests that an operator or a file affects: the recorded ones, and others by name, import and mention.

`tests/coverage.json` lists, for each file, tests that run its functions (see `checking.record`).
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from .imports import TORCH, heavy, importers
from .names import ROOT, Targets
from .storage import decode

RECORD = ROOT / "tests" / "coverage.json"

MAX_SECONDS = 10.0
"""Maximum recorded time of the tests of a file that are not its only ones."""

MAX_TESTS = 20
"""Maximum recorded tests of a file."""

MAX_MODULES = 6
"""Maximum test modules that import a file of which no test is recorded."""

RUN_ANYWAY = "tests/gpu/test_cases.py"
"""Tests of the cases, which are run on all drivers in addition to the selected tests."""

FOR_EACH = re.compile(r"OPERATOR_CASES|implemented\(\)|catalog\(\)")
"""Found in modules that test every operator."""

ON_ADAPTERS = "tests/gpu/"
"""Tests that need a driver begin so."""

OPERATOR_FOLDERS = ("tests/unit/", "tests/reference/", "tests/gpu/")
"""Folders of tests that an operator's name selects."""

AnyItem = TypeVar("AnyItem")


@dataclass(frozen=True)
class Selection:
    """Tests.

    Attributes:
        whole: Test modules, and tests as ``MODULE::NAME``, with ``*`` for an adapter.
        words: Words, one of which tests of other modules must mention.
        operator: Whether the words name an operator, so that modules that test every operator may have its tests.
    """

    whole: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    operator: bool = False

    def modules(self) -> list[str]:
        """Return the test modules to collect; of those that only mention a word, the ones that can be imported."""
        folders = OPERATOR_FOLDERS if self.operator else ("tests/",)
        candidates = (path for path in test_modules() if path.startswith(folders)) if self.words else ()
        some = [path for path in candidates if self._may_mention(path) and not missing(path)]
        return list(dict.fromkeys([*(name.partition("::")[0] for name in self.whole), *some]))

    def part(self, on_adapters: bool) -> Selection:
        """Return the tests that run on the adapters of the machine, or the others."""
        whole = tuple(name for name in self.whole if name.startswith(ON_ADAPTERS) == on_adapters)
        return replace(self, whole=whole, words=self.words if self.operator or not on_adapters else ())

    def _may_mention(self, path: str) -> bool:
        text = (ROOT / path).read_text(encoding="utf-8")
        return mentions(text, self.words) or (self.operator and FOR_EACH.search(text) is not None)


def select_for_file(file: str) -> Selection:
    """Return a test module itself, or the tests that are known to run or to mention a file."""
    path = Path(file)
    if path.parts[0] == "tests" and path.name.startswith("test_") and path.suffix == ".py":
        return Selection((file,))
    if path.suffix not in (".py", ".wgsl"):
        return Selection(words=(path.name, file) if path.suffix else (file,))
    known = recorded(file)
    seconds = sum(_seconds(module) * len(names) / max(1, _count(module)) for module, names in known.items())
    whole = [f"{module}::{name}" for module, names in known.items() for name in names]
    for module in mirrored(path):
        if not known or seconds + _seconds(module) <= MAX_SECONDS:
            whole = [name for name in whole if not name.startswith(f"{module}::")] + [module]
            seconds += _seconds(module)
    if not whole and path.suffix == ".py":
        whole = spread([test for test in importers(file, ROOT / "tests") if "/test_" in test], MAX_MODULES)
        whole = whole or tests_of_importers(file)
    is_known = bool(whole) and path.parts[0] == "dmlgpu"
    return Selection(tuple(whole), () if is_known or path.suffix == ".wgsl" else mentioned_as(path))


def mentioned_as(path: Path) -> tuple[str, ...]:
    """Return the words by which tests name a Python file that they run in another process, or read."""
    if path.parts[0] != "dmlgpu":
        return (path.name,)
    module = ".".join(path.with_suffix("").parts)
    package = module.removesuffix(".__main__")
    return (module,) if package == module else (f'"-m", "{package}"', f"-m {package}")


def select_for_operator(names: Sequence[str], family: str, shaders: Iterable[str]) -> Selection:
    """Return the modules of an operator's family that fit the budget, its shaders' tests, and those that mention it.

    Args:
        names: The operator's names: DirectML's, its stem and its class.
        family: The module of its class.
        shaders: Its shader files.
    """
    candidates = [f"unit/compiler/operators/test_operators_{family}.py", f"reference/test_{family}.py"]
    modules = [module for name in candidates if (ROOT / (module := f"tests/{name}")).is_file()]
    whole = [module for module in modules if _seconds(module) <= MAX_SECONDS]
    tests = (f"{module}::{name}" for file in shaders for module, names in recorded(file).items() for name in names)
    others = dict.fromkeys(test for test in tests if test.partition("::")[0] not in whole)
    return Selection((*whole, *others), tuple(names), operator=True)


def recorded(file: str) -> Mapping[str, Sequence[str]]:
    """Return the recorded tests of a file whose modules still exist, by module."""
    tests: Mapping[str, Sequence[str]] = record()["tests"].get(file, {})
    return {module: names for module, names in tests.items() if (ROOT / module).is_file()}


@functools.cache
def record() -> dict[str, Any]:
    """Return the content of the record."""
    if not RECORD.is_file():
        return {"commit": "", "modules": {}, "tests": {}, "cases": {}}
    return decode(RECORD.read_text(encoding="utf-8"))


def mirrored(path: Path) -> list[str]:
    """Return the test modules named after a module, in the folder of its package or of one around it."""
    packages, names = path.with_suffix("").parts[1:-1], path.with_suffix("").parts[1:]
    titles = {"_".join(names[start:]): None for start in range(len(names))}
    titles |= {f"{part}_{names[-1]}": None for part in packages}  # test_onnx_indexing.py for onnx/operators/indexing.py
    modules: list[str] = []
    for top in ("unit", "reference") if path.parts[0] == "dmlgpu" else (f"unit/{path.parts[0]}",):
        for depth in range(len(packages), -1, -1):
            folder = ROOT / "tests" / top / Path(*packages[:depth])
            tests = (folder / f"test_{name}.py" for name in titles)
            modules += [test.relative_to(ROOT).as_posix() for test in tests if test.is_file()]
    return list(dict.fromkeys(modules))


def tests_of_importers(file: str) -> list[str]:
    """Return recorded tests of the modules that import a file, directly or not: of the nearest that have any."""
    seen, level = {file}, [file]
    while level:
        level = [path for each in level for path in importers(each, ROOT / Path(file).parts[0]) if path not in seen]
        seen.update(level)
        tests = [f"{module}::{name}" for path in level for module, names in recorded(path).items() for name in names]
        if tests:
            return spread(list(dict.fromkeys(tests)), MAX_TESTS)
    return []


def has_code(file: str) -> bool:
    """Return whether a Python file has anything that a test could run: more than docstrings and imports."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    passive = (ast.Import, ast.ImportFrom)
    return any(
        not isinstance(node, passive) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in tree.body
    )


def test_modules() -> list[str]:
    """Return all test modules but the one whose cases run anyway."""
    paths = (path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "tests").rglob("test_*.py")))
    return [path for path in paths if path != RUN_ANYWAY]


def mentions(text: str, words: Iterable[str]) -> bool:
    """Return whether a text has one of the words, not as part of another."""
    return _pattern(tuple(words)).search(text) is not None


@functools.cache
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern that matches any of the words; nothing if there are none."""
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)" if words else r"(?!)")


def spread(items: Sequence[AnyItem], most: int) -> list[AnyItem]:
    """Return at most ``most`` items, in even steps."""
    step = max(1.0, len(items) / most)
    return [items[int(index * step)] for index in range(min(most, len(items)))]


def missing(module: str) -> list[str]:
    """Return the packages that a test module needs and that are not installed."""
    return [package for package in sorted(heavy(module)) if importlib.util.find_spec(package) is None]


def _seconds(module: str) -> float:
    """Return the recorded time of a test module; 0 if it is new."""
    return float(record()["modules"].get(module, (0.0, 1))[0])


def _count(module: str) -> int:
    """Return the recorded number of a module's tests."""
    return int(record()["modules"].get(module, (0.0, 1))[1])


# ---- the environment -------------------------------------------------------------------------------------------------

EXTRAS: Mapping[str, frozenset[str]] = {"check": frozenset(), "check-onnx": frozenset(["onnxruntime", "flatbuffers"])}
"""Extras of dmlgpu that run some tests, the smaller first, and the packages beyond LIGHT that they install."""

ALL_EXTRA = "test"
"""The extra that runs every test."""

NEEDS = {TORCH: ALL_EXTRA, "dmlgpu/frontends/onnx/": "check-onnx"}
"""Extras that files need by the beginnings of their paths, because most of their tests do."""


def extra(targets: Targets) -> str:
    """Return the smallest extra with which each target has a test."""
    order = [*EXTRAS, ALL_EXTRA]
    return max((extra_of(file) for file in targets.files), key=order.index, default=order[0])


def needs_driver(targets: Targets) -> bool:
    """Return whether a check runs kernels: of an operator, a shader, or a file without other known tests."""
    return bool(targets.operators) or any(map(_needs_driver, targets.files))


def _needs_driver(file: str) -> bool:
    whole = select_for_file(file).whole
    return file.startswith("shaders/") or (bool(whole) and all(name.startswith(ON_ADAPTERS) for name in whole))


def extra_of(file: str) -> str:
    """Return the smallest extra with which a test of a file runs."""
    modules = {name.partition("::")[0] for name in select_for_file(file).whole}
    enough = (name for name, packages in EXTRAS.items() if any(heavy(module) <= packages for module in modules))
    smallest = next(enough, ALL_EXTRA if modules else "check")
    needed = (name for start, name in NEEDS.items() if file.startswith(start))
    return max((smallest, *needed), key=[*EXTRAS, ALL_EXTRA].index)
