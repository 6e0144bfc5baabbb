"""The command: prints one line per check with its time, and the full output of failures."""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from dmlgpu import catalog as schema
from dmlgpu.catalog.descs import by_name
from dmlgpu.common.errors import InvalidArgument

from .cases import cases_of_file, cases_of_operator
from .parts import ROOT, lacking, lacking_schedules, parts, planned_steps, scheduled_steps
from .tests import Selection, select_for_file, select_for_operator

MAX_CASES = 8
"""Cases of an operator or a file; more would take longer than a minute on two cores, with LSTM on three drivers."""

GENERATORS = {
    "generate --check stubs": "",
    "generate --check counts": "dmlgpu/conformance/",
    "fit_math.py --check": "shaders/lib/math_",
    "speed_page.py --check": "dmlgpu/bench/",
    "draw_readme.py --check": "dmlgpu/bench/",
}
"""Commands that fail if generated files are out of date, and where the paths of these files' sources begin."""


@dataclass(frozen=True)
class Check:
    """Something that is checked by a process of its own."""

    name: str
    command: tuple[str, ...]
    shows: bool = False
    """Whether its output is of interest where it passes, too."""

    def run(self) -> tuple[bool, str, float]:
        """Return whether it passed, what it printed, and the seconds that it took."""
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *self.command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode == 0, done.stdout.rstrip(), time.perf_counter() - start


def main() -> int:
    """Check what the command line names."""
    parser = argparse.ArgumentParser(
        prog="scripts/check", description="Check everything that an operator or a file affects."
    )
    parser.add_argument("target", nargs="+", metavar="OPERATOR|FILE", help="gather_nd1, GATHER_ND1 or a path")
    start, failed = time.perf_counter(), False
    checks: list[Check] = []
    for target in parser.parse_args().target:
        path = Path(target).resolve()
        if path.is_file() and path.is_relative_to(ROOT):
            checks += of_file(str(path.relative_to(ROOT)))
        elif operator := operator_named(target):
            checks += of_operator(operator)
        else:
            known = [entry.stem for entry in schema.catalog().values()]
            close = difflib.get_close_matches(target.lower(), known)
            hint = f"; there is {', '.join(close)}" if close else ""
            parser.error(f"{target!r} is neither an operator nor a file of this checkout{hint}")
    for message in (*lacking(parts()), *lacking_schedules(scheduled_steps(), planned_steps())):
        failed = True
        print(f"FAILED {message}")
    failed |= not run(dict.fromkeys(checks))
    print(f"{'FAILED' if failed else 'all passed'} in {time.perf_counter() - start:.0f} s")
    return int(failed)


def operator_named(name: str) -> str | None:
    """Return DirectML's name of an operator by its name, stem or alias, or None."""
    try:
        return by_name(name.upper()).operator
    except InvalidArgument:
        return None


def of_operator(operator: str) -> Iterator[Check]:
    """Show the parts of an operator, and return the checks of its cases and tests."""
    print(operator)
    for part in parts():
        print(f"  {part.name:12} {part.where(operator) if operator in part.operators else 'MISSING'}")
    if any(part.name == "cases" and operator in part.operators for part in parts()):
        yield from on_drivers(operator, cases_of_operator(operator, MAX_CASES))
    yield from tests(operator, select_for_operator(operator))
    yield from generated()


def of_file(file: str) -> Iterator[Check]:
    """Return the checks of a file: lint, and the cases and tests that it concerns."""
    print(file)
    if file.endswith(".py"):
        yield Check(f"lint of {file}", ("-m", "ruff", "check", file))
        yield Check(f"format of {file}", ("-m", "ruff", "format", "--check", file))
    operator = operator_named(Path(file).stem) if file.startswith("docs/examples/") else None
    cases = cases_of_operator(operator, MAX_CASES) if operator else cases_of_file(file, MAX_CASES)
    yield from on_drivers(file, cases)
    yield from tests(file, select_for_operator(operator) if operator else select_for_file(file))
    yield from generated(file)


def on_drivers(target: str, cases: list[str]) -> Iterator[Check]:
    """Return the check of some cases on all drivers of the machine."""
    if cases:
        operators = {case.partition("-")[0] for case in cases}
        spread = f" of {len(operators)} operators" if len(operators) > 1 else ""
        yield Check(f"{len(cases)} cases{spread} for {target}", ("-m", "checking.cases", *cases), shows=True)


def tests(target: str, selection: Selection) -> Iterator[Check]:
    """Return the check of the selected tests."""
    arguments = selection.arguments()
    if arguments:
        command = ("-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "checking.tests", *arguments)
        yield Check(f"tests of {target}", command, shows=True)


def generated(file: str = "") -> Iterator[Check]:
    """Return the checks that generated files are up to date, if they depend on a file or an operator."""
    for command, source in GENERATORS.items():
        if file.startswith(source):
            yield Check(f"scripts/{command}", tuple(f"scripts/{command}".split()))


def run(checks: Iterable[Check]) -> bool:
    """Run checks side by side, print how each went, and return whether all passed."""
    passed = True
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        running = {pool.submit(check.run): check for check in checks}
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
    """Return what is of interest of a command that passed: pytest's last line, or the table of adapters."""
    lines = output.splitlines()
    heading = next((number for number, line in enumerate(lines) if line.startswith("adapter ")), len(lines) - 1)
    return lines[heading:]


if __name__ == "__main__":
    sys.exit(main())
