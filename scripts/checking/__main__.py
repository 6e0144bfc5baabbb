"""The command: prints one line per check with its time, and the full output of failures."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path

from .names import ROOT, Targets, UnknownTarget, resolve
from .plugin import selections_file
from .tests import ON_ADAPTERS, Selection, extra_of, has_code, missing, needs_driver, select_for_file

MAX_CASES = 8
"""Maximum cases of an operator or a shader; more would take longer than half a minute on two cores."""

MAX_CASES_OF_MODULE = 3
"""Maximum cases of a module of the compiler, in addition to its tests."""

GENERATORS = {
    "generate --check stubs": "dmlgpu/catalog/",
    "generate --check counts": "dmlgpu/conformance/",
    "fit_math.py --check": "shaders/lib/math_",
    "speed_page.py --check": "dmlgpu/bench/",
    "survey_page.py --check": "benchmarks/results/surveys/",
    "draw_readme.py --check": "dmlgpu/bench/",
}
"""Commands that fail if generated files are out of date, and where the paths of these files' sources begin."""

OPERATOR_FILES = ("shaders/", "dmlgpu/catalog/", "dmlgpu/compiler/", "dmlgpu/conformance/cases/", "dmlgpu/reference/")
"""Files of which the parts of an operator or a schedule consist begin so."""


WITH_CASES = (
    *("shaders/", "docs/examples/", "dmlgpu/compiler/", "dmlgpu/conformance/", "dmlgpu/reference/"),
    "dmlgpu/runtime/wgpu/",
)
"""Files that cases run begin so."""


@dataclass(frozen=True)
class Check:
    """Something that is checked by a process of its own."""

    name: str
    command: tuple[str, ...]
    shows: bool = False
    """Whether its output is of interest if it passes, too."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the process, in addition to those of this one."""

    def run(self) -> tuple[bool, str, float]:
        """Return whether it passed, what it printed, and the seconds that it took."""
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *self.command],
            cwd=ROOT,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode == 0, done.stdout.rstrip(), time.perf_counter() - start


def main() -> int:
    """Check the operators and files that the command line names, or all that changed."""
    parser = argparse.ArgumentParser(
        prog="scripts/check",
        description="Check everything that operators or files affect: by default the files that changed.",
    )
    parser.add_argument("target", nargs="*", metavar="OPERATOR|FILE", help="gather_nd1, relu or a path")
    start = time.perf_counter()
    try:
        targets = resolve(parser.parse_args().target, Path.cwd())
    except UnknownTarget as error:
        parser.error(str(error))
    if not (targets.operators or targets.files or targets.deleted):
        print("nothing to check: nothing has changed")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        checks, failures = plan(targets, Path(folder))
        for failure in failures:
            print(f"FAILED {failure}")
        passed = run(checks) and not failures
    print(f"{'all passed' if passed else 'FAILED'} in {time.perf_counter() - start:.0f} s")
    return int(not passed)


def plan(targets: Targets, folder: Path) -> tuple[list[Check], list[str]]:
    """Return the checks of some targets, and messages about those that cannot be checked.

    Args:
        targets: Operators and files.
        folder: A folder for the selection of tests.
    """
    failures = [
        f"{file} was deleted, and no test of a deleted file is known; run scripts/test" for file in targets.deleted
    ]
    if targets.origin:
        print(f"{len(targets.files)} files {targets.origin}")
    selections = dict[str, Selection]()
    cases: list[str] = []
    for operator in targets.operators:
        from . import parts  # noqa: PLC0415 - imports the operators

        print("\n".join(parts.lines(operator)))
        cases += parts.cases_of(operator, MAX_CASES)
        selections[operator] = parts.selection(operator)
    for file in targets.files:
        print(file)
        selection, failure = installed(file, select_for_file(file))
        if not needs_driver(Targets(files=(file,))):
            selection = selection.part(on_adapters=False)
        own_cases = cases_of(file)
        cases += own_cases
        if selection.modules():
            selections[file] = selection
        elif not (own_cases and file.startswith("shaders/")) and (not file.endswith(".py") or has_code(file)):
            failures.append(failure or f"no test of {file} is known; run scripts/test")
    checks = [
        *lints(targets.files),
        *generated(targets),
        *on_drivers(list(dict.fromkeys(cases)), needs_driver(targets)),
    ]
    return [*checks, *run_tests(selections, folder)], failures


def installed(target: str, selection: Selection) -> tuple[Selection, str]:
    """Return the tests whose packages are installed, and why none is left if there were some."""
    needs = {name: missing(name.partition("::")[0]) for name in selection.whole}
    whole = tuple(name for name, packages in needs.items() if not packages)
    packages = sorted({package for absent in needs.values() for package in absent})
    if packages and not whole:
        extra = extra_of(target)
        return replace(selection, whole=()), (
            f"no test of {target} runs without {', '.join(packages)}: pip install -e '.[{extra}]'"
        )
    if packages:
        omitted = len(selection.whole) - len(whole)
        print(f"  omitted: {omitted} of {len(needs)} tests, which need {', '.join(packages)}; scripts/test runs them")
    return replace(selection, whole=whole), ""


def lints(files: Sequence[str]) -> Iterator[Check]:
    """Return the checks of style and words."""
    modules = [file for file in files if file.endswith(".py") or file == "scripts/generate"]
    if modules:
        yield Check("lint", ("-m", "ruff", "check", *modules))
        yield Check("format", ("-m", "ruff", "format", "--check", *modules))
    if any(file.endswith((".py", ".md")) for file in files):
        yield Check("words", ("scripts/lint_language.py", *files))


def cases_of(file: str) -> list[str]:
    """Return the cases of a file."""
    if not file.startswith(WITH_CASES):
        return []
    from .cases import cases_of_file  # noqa: PLC0415 - imports the cases

    return cases_of_file(file, MAX_CASES if file.startswith(("shaders/", "docs/")) else MAX_CASES_OF_MODULE)


def on_drivers(cases: Sequence[str], required: bool) -> Iterator[Check]:
    """Return the check of some cases on all drivers of the machine.

    Args:
        cases: Names of cases.
        required: Whether it fails if there is no driver.
    """
    if cases:
        operators = {case.partition("-")[0] for case in cases}
        of_operators = f" of {len(operators)} operators" if len(operators) > 1 else ""
        options = ("--require-driver",) if required else ()
        yield Check(f"{len(cases)} cases{of_operators}", ("-m", "checking.cases", *options, *cases), shows=True)


def run_tests(selections: Mapping[str, Selection], folder: Path) -> Iterator[Check]:
    """Return the checks of the selected tests: those on the adapters of the machine, and the others on ``numpy``."""
    for name, on_adapters in (("tests", False), ("tests on adapters", True)):
        parts = {target: selection.part(on_adapters) for target, selection in selections.items()}
        modules = dict.fromkeys(
            module
            for part in parts.values()
            for module in part.modules()
            if module.startswith(ON_ADAPTERS) == on_adapters
        )
        if modules:
            file = folder / f"{name}.json"
            file.write_text(selections_file({target: part for target, part in parts.items() if part.modules()}))
            options = ("-q", "--no-header", "-p", "no:cacheprovider", "-p", "checking.plugin", f"--selections={file}")
            command = ("-m", "pytest", *options, *modules)
            environment = {} if on_adapters else {"DMLGPU_ADAPTER": "numpy"}
            yield Check(f"{name} of {', '.join(parts)}", command, shows=True, environment=environment)


def generated(targets: Targets) -> Iterator[Check]:
    """Return the checks that generated files are up to date and that no part is missing, if targets affect them."""
    for command, source in GENERATORS.items():
        if any(file.startswith(source) for file in targets.files):
            yield Check(f"scripts/{command}", tuple(f"scripts/{command}".split()))
    if targets.operators or any(file.startswith(OPERATOR_FILES) for file in targets.files):
        yield Check("parts of operators and schedules", ("-m", "checking.parts"))


def run(checks: Iterable[Check]) -> bool:
    """Run checks side by side, print how each went, and return whether all passed."""
    passed = True
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        running = {pool.submit(check.run): check for check in sorted(checks, key=lambda check: not check.shows)}
        for done in as_completed(running):
            check, (ok, output, seconds) = running[done], done.result()
            passed &= ok
            print(f"{'ok' if ok else 'FAILED':6} {seconds:5.1f} s  {check.name}", flush=True)
            if output and not ok:
                print(output)
            elif check.shows:
                print("\n".join(f"                 {line}" for line in summary(output)))
    return passed


def summary(output: str) -> list[str]:
    """Return what to show of the output of a command that passed: pytest's last line, or the table of adapters."""
    lines = output.splitlines()
    heading = next((index for index, line in enumerate(lines) if line.startswith("adapter ")), len(lines) - 1)
    return lines[heading:]


if __name__ == "__main__":
    sys.exit(main())
