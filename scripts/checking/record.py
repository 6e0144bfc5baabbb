"""Write `tests/coverage.json`: which tests, and which test cases, run each file.

python -m checking.record [--workers N] [TEST|FOLDER]...    run the tests, or only some, and write the record
python -m checking.record --new [TEST|FOLDER]...            run those of them that the record lacks
python -m checking.record --from-recordings                 write it from the recordings in .cache/coverage

Each file gets tests that together run as many of its functions, or lines of a template, as possible in little time:
a greedy set cover. Tests of the file's package are preferred, and tests that run little else. Tests that were not run
again keep their places, under the new names of files that were renamed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.stages import compile_operator, programs
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.cases.keys import quick_names
from dmlgpu.conformance.cases.registry import case_by_name

from .imports import heavy, importers
from .names import ROOT
from .recorder import Recorder
from .storage import encode
from .tests import (
    MAX_MODULES,
    MAX_SECONDS,
    MAX_TESTS,
    ON_ADAPTERS,
    RECORD,
    has_code,
    mirrored,
    record,
    spread,
    test_modules,
)

RECORDINGS = ROOT / ".cache" / "coverage"
TESTS = ("unit", "reference", "house", "docs", "gpu")
"""Folders of tests that are run. Those of tests/gpu run on every adapter, the others on the adapter ``numpy``."""

MAX_CASES = 8
"""Cases of a file; more would take longer than half a minute on two cores."""

TARGETS = (
    Target("CPU", Profile.CPU, frozenset({"immediates", "shader-int64", "shader-f64"})),
    Target("GPU", Profile.DISCRETE),
)
"""Adapters for which cases are compiled, to see what they use."""

GAINS = (1.0, 0.3, 0.1)
"""Value of a test that runs a function, by how many chosen tests run it already."""

MODULE_SECONDS = 0.3
"""Time to import a test module."""

HEAVY_SECONDS = 5.0
"""Price of a test module that needs a driver, or packages beyond the extra `check`."""


@dataclass(frozen=True)
class Candidate:
    """A test of a file.

    Attributes:
        module: The test module.
        name: The test's name within its module.
        seconds: Its time.
        items: The functions or lines of the file that it runs.
        breadth: How many functions and lines of all files it runs.
        startup: Time to import its module.
    """

    module: str
    name: str
    seconds: float
    items: frozenset[str]
    breadth: int = 0
    startup: float = 0.0


def choose(file: str, candidates: Collection[Candidate]) -> list[Candidate]:
    """Return tests that together run as much of a file as possible in MAX_SECONDS, the most valuable first."""
    pool, chosen, covered, spent = list(candidates), list[Candidate](), Counter[str](), 0.0
    modules: set[str] = set()

    def value(candidate: Candidate) -> float:
        gain = sum(GAINS[covered[item]] for item in candidate.items if covered[item] < len(GAINS))
        startup = 0.0 if candidate.module in modules else candidate.startup
        cost = 0.02 + candidate.seconds + startup
        return gain / (cost * (1 + candidate.breadth / 500)) * (1 + closeness(file, candidate.module))

    while pool and len(chosen) < MAX_TESTS:
        fitting = [candidate for candidate in pool if not chosen or spent + candidate.seconds <= MAX_SECONDS]
        values = [(value(candidate), candidate) for candidate in fitting]
        pool = [candidate for worth, candidate in values if worth > 0]
        best = max(values, key=lambda pair: pair[0], default=None)
        if best is None or best[0] == 0:
            break
        chosen.append(best[1])
        pool.remove(best[1])
        covered.update(best[1].items)
        modules.add(best[1].module)
        spent += best[1].seconds
    return chosen


def closeness(file: str, module: str) -> int:
    """Return how many folders a test module shares with a file, and 3 more if it is named after the file.

    Only tests on adapters see the results of a shader: they count as if they shared 4.
    """
    if file.startswith("shaders/"):
        return 4 * module.startswith(ON_ADAPTERS)
    of_file, of_test = Path(file).parts[1:-1], Path(module).parts[2:-1]
    shared = next((n for n, pair in enumerate(zip(of_file, of_test, strict=False)) if pair[0] != pair[1]), None)
    depth = min(len(of_file), len(of_test)) if shared is None else shared
    named = set(Path(file).stem.split("_")) <= set(Path(module).stem.removeprefix("test_").split("_"))
    return depth + 3 * named


def distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the three fastest of the tests of a module that run the same functions."""
    groups: dict[tuple[str, frozenset[str]], list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        groups[candidate.module, candidate.items].append(candidate)
    return [test for group in groups.values() for test in sorted(group, key=lambda each: each.seconds)[:3]]


def recordings(folder: Path) -> Iterator[tuple[str, float, list[Candidate], list[str]]]:
    """Yield module, time, tests with all that they run, and the files, of each recording."""
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if (ROOT / content["module"]).is_file():
            yield content["module"], content["seconds"], content["items"], content["tests"]


def candidates_by_file(
    items: list[str], module: str, tests: Mapping[str, tuple[float, list[int]]]
) -> dict[str, list[Candidate]]:
    """Return the distinct tests of a module for each file that they run."""
    files: dict[str, list[Candidate]] = defaultdict(list)
    is_heavy = bool(heavy(module)) or module.startswith(ON_ADAPTERS)
    for name, (seconds, indices) in tests.items():
        own: dict[str, list[str]] = defaultdict(list)
        for index in indices:
            file, _, item = items[index].partition("::")
            own[file].append(item)
        for file, held in own.items():
            startup = MODULE_SECONDS + HEAVY_SECONDS * (is_heavy and not file.startswith("shaders/"))
            files[file].append(Candidate(module, name, seconds, frozenset(held), len(indices), startup))
    return {file: distinct(held) for file, held in files.items()}


def build(folder: Path, before: Mapping[str, Any]) -> dict[str, object]:
    """Return the record made of the recordings in a folder, and of the entries of another record for other modules."""
    modules: dict[str, tuple[float, int]] = dict(before["modules"])
    files: dict[str, list[Candidate]] = defaultdict(list)
    again: set[str] = set()
    for module, seconds, items, tests in recordings(folder):
        again.add(module)
        modules[module] = (round(seconds, 1), len(tests))
        for file, candidates in candidates_by_file(items, module, tests).items():
            files[file] += candidates
    for file, entries in before["tests"].items():
        files[file] += [
            Candidate(module, name, 0.0, frozenset([name]))
            for module, names in entries.items()
            if module not in again and (ROOT / module).is_file()
            for name in names
        ]
    present = {file: candidates for file, candidates in sorted(files.items()) if (ROOT / file).is_file()}
    tests_of = {file: by_module(choose(file, candidates)) for file, candidates in present.items()}
    return {
        "commit": _git("rev-parse", "HEAD"),
        "modules": {module: entry for module, entry in sorted(modules.items()) if (ROOT / module).is_file()},
        "tests": {file: entries for file, entries in tests_of.items() if entries},
        "cases": cases(),
    }


def renamed(before: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a record with the present names of files.

    Args:
        before: The record.
        names: Present paths of renamed files by the previous ones.
    """

    def present(path: str) -> str:
        return names.get(path, path)

    return {
        "commit": before.get("commit", ""),
        "modules": {present(module): entry for module, entry in before["modules"].items()},
        "tests": {
            present(file): {present(module): tests for module, tests in entries.items()}
            for file, entries in before["tests"].items()
        },
        "cases": {present(file): entry for file, entry in before["cases"].items()},
    }


def changes(kind: str) -> list[tuple[str, ...]]:
    """Return the paths of files that changed since the record was last committed: of a pair, the previous one first.

    Args:
        kind: Letter of git's ``--diff-filter``: A for added files, R for renamed ones.
    """
    commit = _git("log", "-1", "--format=%H", "--", RECORD.relative_to(ROOT).as_posix())
    lines = _git("diff", "--name-status", "--find-renames", f"--diff-filter={kind}", commit).splitlines()
    return [tuple(line.split("\t")[1:]) for line in lines]


def missing_modules(paths: Iterable[str], added: Iterable[str], before: Mapping[str, Any]) -> list[str]:
    """Return the test modules below some paths that a record lacks, and those that may run added files.

    For a file these are the modules that are named after it, else a few of those that import it.
    """
    below = tuple(paths)
    modules = [module for module in test_modules() if module.startswith(below)]
    missing = {module for module in modules if module not in before["modules"]}
    for file in added:
        if file.startswith("dmlgpu/") and file.endswith(".py") and file not in before["tests"] and has_code(file):
            named = mirrored(Path(file)) or spread(importers(file, ROOT / "tests"), MAX_MODULES)
            missing.update(set(modules).intersection(named))
    return sorted(missing)


def by_module(candidates: Iterable[Candidate]) -> dict[str, list[str]]:
    """Return the names of tests by module, sorted."""
    names: dict[str, list[str]] = defaultdict(list)
    for candidate in candidates:
        names[candidate.module].append(candidate.name)
    return {module: sorted(names[module]) for module in sorted(names)}


def cases() -> dict[str, list[str]]:
    """Return quick cases that together run as much as possible of each file of the compiler and each shader."""
    recorder, files = Recorder(), defaultdict[str, list[Candidate]](list)
    for name in (name for names in quick_names().values() for name in names):
        desc = case_by_name(name).desc
        programs.clear()
        recorder.start()
        for target in TARGETS:
            try:
                compile_operator(desc, target)
            except NotSupported:
                continue
        recorder.stop()
        items = recorder.take()
        own: dict[str, list[str]] = defaultdict(list)
        for item in items:
            file, _, rest = item.partition("::")
            own[file].append(rest)
        for file, held in own.items():
            files[file].append(Candidate("", name, 1.0, frozenset(held), len(items)))
    chosen = {
        file: [candidate.name for candidate in choose(file, distinct(candidates))[:MAX_CASES]]
        for file, candidates in sorted(files.items())
        if file.startswith(("shaders/", "dmlgpu/compiler/"))
    }
    return {file: names for file, names in chosen.items() if names}


def run(paths: list[str], workers: int) -> None:
    """Run tests with the recorder: those of tests/gpu on the adapters of the machine, the others on ``numpy``."""
    on_adapters = [path for path in paths if path.startswith("tests/gpu")]
    for some, adapter in (([path for path in paths if path not in on_adapters], "numpy"), (on_adapters, "")):
        if some:
            options = ["-n", str(workers), "--dist", "loadfile"] if workers > 1 else []
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "scripts"), str(ROOT)))}
            environment |= {"DMLGPU_ADAPTER": adapter} if adapter else {}
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "checking.recorder",
                "-m",
                "not slow",
            ]
            # A test that fails under the recorder, such as one that measures time, is not recorded.
            subprocess.run(
                [*command, "--record-into", RECORDINGS, *options, *some], cwd=ROOT, env=environment, check=False
            )


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Run tests with the recorder, and write the record."""
    parser = argparse.ArgumentParser(prog="scripts/record_coverage", description="Record which tests run each file.")
    parser.add_argument("paths", nargs="*", metavar="TEST|FOLDER", help="tests to record again; all if omitted")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that run tests")
    parser.add_argument("--from-recordings", action="store_true", help="run no test: use what was recorded before")
    parser.add_argument("--new", action="store_true", help="run only test modules that the record lacks")
    arguments = parser.parse_args()
    before = renamed(record(), dict(changes("R")))
    paths = arguments.paths or [f"tests/{folder}" for folder in TESTS]
    if arguments.new:
        paths = missing_modules(paths, (path for (path,) in changes("A")), before)
    if not arguments.from_recordings:
        if not (arguments.paths or arguments.new):
            shutil.rmtree(RECORDINGS, ignore_errors=True)
        run(paths, arguments.workers)
    RECORD.write_text(encode(build(RECORDINGS, before)), encoding="utf-8")


if __name__ == "__main__":
    main()
