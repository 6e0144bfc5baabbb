"""A pytest plugin that runs selected tests, and fails if none of a target's ran.

pytest -p checking.plugin --selections FILE

The file maps each target to its tests (`whole`) and to the words that other tests must mention (`words`).
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from dmlgpu.compiler.target import AdapterInfo

from .names import ROOT
from .tests import Selection, mentions, spread

MAX_MENTIONS = 40
"""Maximum tests that only mention a target."""


class Plugin:
    """Deselects other tests, and notes which of each target's run."""

    def __init__(self, selections: dict[str, dict[str, Any]]) -> None:
        self._selections = selections
        self._tests: dict[str, set[str]] = {}
        self._ran: set[str] = set()
        self._skipped: dict[str, str] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect tests of no target."""
        names = {item.nodeid: f"{item.path.relative_to(ROOT).as_posix()}::{canonical(item)}" for item in items}
        for target, selection in self._selections.items():
            whole = set(selection["whole"])
            known = {test for test, name in names.items() if not whole.isdisjoint((name, name.partition("::")[0]))}
            words = selection["words"]
            others = [item.nodeid for item in items if item.nodeid not in known and mentioning(item, words)]
            if len(others) > MAX_MENTIONS:
                print(f"{MAX_MENTIONS} of {len(others)} tests of other modules that mention {words[0]}")
            self._tests[target] = known | set(spread(others, MAX_MENTIONS))
        selected = set().union(*self._tests.values())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in selected])
        items[:] = [item for item in items if item.nodeid in selected]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which tests passed or failed, and why others were skipped."""
        if report.outcome == "skipped":
            self._skipped[report.nodeid] = _reason(report.longrepr)
        elif report.when == "call":
            self._ran.add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note why whole modules were skipped."""
        if report.outcome == "skipped":
            self._skipped[report.nodeid] = _reason(report.longrepr)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail if no test of a target ran."""
        without = self.without_tests()
        if without:
            print("\n" + "\n".join(without))
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK

    def without_tests(self) -> list[str]:
        """Return a message for each target of which no test ran."""
        reasons = "; ".join(sorted(set(self._skipped.values())))
        why = f"all were skipped: {reasons}" if reasons else "none was found; the record may be out of date"
        return [
            f"no test of {target} ran: {why}; run scripts/test"
            for target, selection in self._selections.items()
            if selection["required"] and self._ran.isdisjoint(self._tests.get(target, ()))
        ]


def canonical(item: pytest.Item) -> str:
    """Return a test's name within its module, with ``*`` for the adapter on which it runs."""
    adapter = getattr(item, "callspec", None) and item.callspec.params.get("adapter")
    if not isinstance(adapter, AdapterInfo):
        return item.nodeid.partition("::")[2]
    name = re.escape(f"{adapter.backend}-{adapter.name.split(' (')[0].replace(' ', '_')}")
    return re.sub(rf"(?<=[\[-]){name}(?=[-\]])", "*", item.nodeid.partition("::")[2], count=1)


def mentioning(item: pytest.Item, words: Collection[str]) -> bool:
    """Return whether a test's name, parameters or code has one of some words."""
    function = getattr(item, "function", None)
    return bool(words) and (mentions(item.name, words) or (function is not None and mentions(_source(function), words)))


_source = functools.cache(inspect.getsource)


def _reason(representation: object) -> str:
    """Return the reason of a skip."""
    return str(representation[2] if isinstance(representation, tuple) else representation).removeprefix("Skipped: ")


def selections_file(selections: Mapping[str, Selection]) -> str:
    """Return the content of a file for ``--selections``: the tests and words of each target.

    Tests that only mention an operator are not required: modules that test every operator need not.
    """
    return json.dumps(
        {
            target: {"whole": each.whole, "words": each.words, "required": bool(each.whole) or not each.operator}
            for target, each in selections.items()
        }
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the selections."""
    parser.addoption("--selections", type=Path, help="file with the tests of each target")


def pytest_configure(config: pytest.Config) -> None:
    """Select tests."""
    file = config.getoption("--selections")
    if file is not None:
        config.pluginmanager.register(Plugin(json.loads(file.read_text(encoding="utf-8"))), "selections")
