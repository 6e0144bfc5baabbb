"""Find the tests that an operator or a file affects; a pytest plugin that selects them.

A test module is selected as a whole, or only its tests that mention certain words in their name, parameters or code.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dmlgpu.catalog.descs import by_name

from .cases import PARTS, spread
from .imports import imports
from .parts import ROOT, family

FOLDERS = ("unit", "reference", "gpu")
MAX_MODULES = 6
"""Maximum modules that import a file, in addition to those named after it."""

MAX_TESTS = 40
"""Tests of other modules that mention an operator."""

FOR_EACH = re.compile(r"OPERATOR_CASES|implemented\(\)|catalog\(\)")
"""What modules say that test every operator."""

RUN_ANYWAY = "tests/gpu/test_cases.py"
"""Tests of the cases, which are run on all drivers in addition to the selected tests."""


@dataclass(frozen=True)
class Selection:
    """Tests.

    Attributes:
        whole: modules that are taken whole.
        words: what the tests of other modules must mention.
    """

    whole: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """Return the arguments for pytest; none where there is nothing to run."""
        some = [path for path in _modules() if path not in self.whole and self._may_mention(path)]
        if not self.whole and not some:
            return []
        options = [text for word in self.words for text in ("--mentions", word)]
        return [*options, *(text for path in self.whole for text in ("--whole", path)), *self.whole, *some]

    def _may_mention(self, path: str) -> bool:
        text = (ROOT / path).read_text(encoding="utf-8")
        names_operator = any(word.isupper() for word in self.words)
        return mentions(text, self.words) or (names_operator and FOR_EACH.search(text) is not None)


def select_for_operator(name: str) -> Selection:
    """Return the modules of an operator's family, and the tests elsewhere that mention it."""
    return Selection(_named(family(name)), (name, name.lower(), by_name(name).__name__))


def select_for_file(file: str) -> Selection:
    """Return a module of tests itself, those named after a file or importing it, the tests that mention it."""
    path = Path(file)
    if path.parts[0] == "tests" and path.name.startswith("test_"):
        return Selection((file,))
    if path.suffix == ".wgsl":
        return Selection(words=("/".join(path.with_suffix("").parts[1:]),))
    if path.suffix != ".py":
        return Selection(words=(path.name,))
    importers = [test for test in _modules() if file in imports(ROOT / test)]
    named = _named(path.stem) if path.parent.as_posix() in PARTS else _named_after(path)
    others = [test for test in importers if test not in named and "/gpu/" not in test]
    return Selection((*named, *spread(others, MAX_MODULES)), (path.name,) if path.parts[0] == "scripts" else ())


def _modules() -> list[str]:
    candidates = (path for folder in FOLDERS for path in sorted((ROOT / "tests" / folder).glob("test_*.py")))
    return [path for each in candidates if (path := str(each.relative_to(ROOT))) != RUN_ANYWAY]


def _named_after(path: Path) -> tuple[str, ...]:
    """Modules of tests named after a module, with or without the rooms that it is in."""
    parts = path.with_suffix("").parts
    return tuple(test for start in range(1, len(parts)) for test in _named("_".join(parts[start:])))


def _named(name: str) -> tuple[str, ...]:
    """Modules of tests without a GPU that are named after a family or a module."""
    paths = ("unit/test_operators_{}.py", "unit/test_{}.py", "reference/test_{}.py")
    candidates = (f"tests/{path.format(name)}" for path in paths)
    return tuple(path for path in candidates if (ROOT / path).is_file())


def mentions(text: str, words: Iterable[str]) -> bool:
    """Return whether a text has one of the words, not as part of another."""
    return _pattern(tuple(words)).search(text) is not None


@functools.cache
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """What finds one of some words; nothing finds none."""
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)" if words else r"(?!)")


# ---- the plugin -----------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that select tests."""
    parser.addoption("--mentions", action="append", default=[], help="select tests that mention this word")
    parser.addoption("--whole", action="append", default=[], help="select all tests of this module")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not concerned."""
    words = config.getoption("--mentions")
    whole = {ROOT / path for path in config.getoption("--whole")}
    others = [item for item in items if item.path not in whole and _mentions(item, words)]
    few = set(spread([item.nodeid for item in others], MAX_TESTS))
    if len(few) < len(others):
        print(f"{len(few)} of {len(others)} tests of other modules that mention {words[0]}")
    taken = [item.path in whole or item.nodeid in few for item in items]
    config.hook.pytest_deselected(items=list(itertools.compress(items, map(operator.not_, taken))))
    items[:] = itertools.compress(items, taken)


def _mentions(item: pytest.Item, words: Iterable[str]) -> bool:
    function = getattr(item, "function", None)
    return mentions(item.name, words) or (function is not None and mentions(_source(function), words))


_source = functools.cache(inspect.getsource)
