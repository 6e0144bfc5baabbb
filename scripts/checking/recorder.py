"""A pytest plugin that records which functions of the checkout, and which lines of shader templates, each test runs.

pytest -p checking.recorder --record-into FOLDER

Calls are seen by `sys.settrace` without tracing lines, except in templates, whose branches are lines. A function whose
result is cached runs only in the first test that needs it. The cache of programs is cleared before each test, because
templates are rendered only for a program that is not cached.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from dmlgpu.compiler.program_cache import programs
from dmlgpu.compiler.wgsl import library, templates

from .plugin import canonical

ROOT = Path(__file__).parents[2]
FOLDERS = ("dmlgpu/", "scripts/", "benchmarks/", "examples/", "shaders/")
"""Folders of the recorded files."""

TEMPLATE = "<template>"
"""Name that Jinja gives the source of a template that has no file."""

COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>"}


class Recorder:
    """What ran since the last call of `take`."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()
        self._lines: set[tuple[CodeType, int]] = set()
        self._declarations: set[str] = set()
        self._templates: dict[CodeType, str] = {}
        self._items: dict[CodeType, str | None] = {}
        self._files = {
            name: f"shaders/{file}{templates.SUFFIX}"
            for file in templates.files("lib")
            for name in templates.declared(file)
        }

    def start(self) -> None:
        """Record calls from here on, in this thread and those that it starts."""
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def stop(self) -> None:
        """Stop recording."""
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def take(self) -> frozenset[str]:
        """Return what ran: ``FILE::FUNCTION``, ``SHADER::LINE`` of a compiled template, ``SHADER::DECLARATION``."""
        names = {name for code in self._codes if (name := self._name(code))}
        names |= {f"{self._templates[code]}::{line}" for code, line in self._lines}
        names |= {f"{self._files[name]}::{name}" for name in self._declarations}
        self._codes, self._lines, self._declarations = set(), set(), set()
        return frozenset(names)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code not in self._codes:
            self._codes.add(code)
            if code.co_filename == TEMPLATE:
                self._templates.setdefault(code, f"shaders/{frame.f_globals.get('name')}{templates.SUFFIX}")
        if code is library.declaration.__code__:
            self._declarations.add(frame.f_locals["body"])
        return self._trace_lines if code in self._templates else None

    def _trace_lines(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._lines.add((frame.f_code, frame.f_lineno))
        return self._trace_lines

    def _name(self, code: CodeType) -> str | None:
        if code not in self._items:
            self._items[code] = _item(code)
        return self._items[code]


def _item(code: CodeType) -> str | None:
    """Return the name of a function of a recorded file, or None."""
    path = Path(code.co_filename)
    if code.co_name in COMPREHENSIONS or not path.is_relative_to(ROOT):
        return None
    file = path.relative_to(ROOT).as_posix()
    return f"{file}::{code.co_qualname}" if file.startswith(FOLDERS) else None


class Module:
    """The tests of one module that passed, and what they ran."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.seconds = 0.0
        self._numbers: dict[str, int] = {}
        self._tests: dict[str, tuple[float, list[int]]] = {}

    def add(self, test: str, seconds: float, items: Iterable[str]) -> None:
        """Add a test that passed."""
        numbers = sorted(self._numbers.setdefault(item, len(self._numbers)) for item in items)
        self._tests[test] = (round(seconds, 3), numbers)

    def write(self, folder: Path) -> None:
        """Write the module's file."""
        content = {"seconds": round(self.seconds, 2), "items": list(self._numbers), "tests": self._tests}
        file = folder / f"{self.path.replace('/', '__')}.json"
        file.write_text(json.dumps({"module": self.path} | content), encoding="utf-8")


class Plugin:
    """Records each test, and writes a file per test module."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._recorder = Recorder()
        self._module: Module | None = None
        self._passed = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Record one test."""
        path = item.path.relative_to(ROOT).as_posix()
        if self._module is None or self._module.path != path:
            self._finish()
            self._module = Module(path)
        programs.clear()
        self._passed, start = False, time.perf_counter()
        self._recorder.start()
        try:
            return (yield)
        finally:
            self._recorder.stop()
            seconds = time.perf_counter() - start
            self._module.seconds += seconds
            items = self._recorder.take()
            if self._passed:
                self._module.add(canonical(item), seconds, items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember whether the test passed; a skipped or failed one is not recorded."""
        if report.when == "call":
            self._passed = report.outcome == "passed" and not hasattr(report, "wasxfail")

    def pytest_sessionfinish(self) -> None:
        """Write the last module."""
        self._finish()

    def _finish(self) -> None:
        if self._module is not None:
            self._module.write(self._folder)
            self._module = None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the folder."""
    parser.addoption("--record-into", type=Path, help="folder of the recordings, a file per test module")


def pytest_configure(config: pytest.Config) -> None:
    """Record, in the processes that run tests."""
    folder = config.getoption("--record-into")
    is_controller = getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput")
    if folder is not None and not is_controller:
        folder.mkdir(parents=True, exist_ok=True)
        config.pluginmanager.register(Plugin(folder), "recorder")
