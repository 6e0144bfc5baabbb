"""Run data-apis' array-api-tests against ``dmlgpu.array``, and print the share that passes.

    python scripts/array_api_suite.py CHECKOUT [--adapter NAME] [--max-examples N] [PYTEST ARGUMENTS ...]

CHECKOUT is a clone of data-apis/array-api-tests with its submodule array-api; nothing is downloaded. Dependencies:
``pip install 'dmlgpu[array-api-tests]'``. Tests in ``array_api_skips.txt``, listed below their reason, do not run and
count as not passed. Tests of complex numbers are excluded. The suite itself skips the extensions linalg and fft and
later versions of the standard. Neither counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SKIPS = Path(__file__).with_name("array_api_skips.txt")

SKIPPED_TYPES = "float64,complex64,complex128"
"""Types of the standard that adapters cannot compute."""

COMPUTED = "not (test_unary and imag)"
"""Selects tests: those of special complex numbers, which the suite has even without complex types, are excluded."""

CHANGES = {
    "[(dt, dtype_nbits[dt]) for dt in complex_dtypes], key=lambda x: x[1]": (
        "[(dt, dtype_nbits[dt]) for dt in complex_dtypes], key=lambda x: x[1], default=(xp.float32,)"
    ),
}
"""What is changed in the copy of dtype_helpers.py: the suite takes for granted that
there is a complex type."""


@dataclass(frozen=True)
class Outcome:
    """What became of the tests.

    Attributes:
        passed, failed: ids of tests.
        listed: ids of tests that the list of skips names.
        skipped: how many the suite itself skips.
    """

    passed: tuple[str, ...]
    failed: tuple[str, ...]
    listed: tuple[str, ...]
    skipped: int

    @property
    def share(self) -> float:
        """Share of the passed among all tests but those that the suite itself skips."""
        return len(self.passed) / max(1, len(self.passed) + len(self.failed) + len(self.listed))


def read_skips(text: str) -> dict[str, str]:
    """Return the reason for each id: the comment above it, which holds for all ids up to the next comment."""
    skips: dict[str, str] = {}
    reason: list[str] = []
    is_comment = False
    for line in text.splitlines():
        if line.startswith("#"):
            reason = [*(reason if is_comment else ()), line.lstrip("# ")]
        elif line.strip():
            if not reason:
                raise SystemExit(f"{SKIPS.name}: {line} has no reason above it")
            skips[line.strip()] = " ".join(reason)
        is_comment = line.startswith("#")
    return skips


def prepare(checkout: Path, folder: Path) -> None:
    """Make a folder that is the checkout but for ``CHANGES``."""
    package = checkout / "array_api_tests"
    if not package.is_dir() or not (checkout / "array-api" / "spec").is_dir():
        raise SystemExit(f"{checkout} must be a checkout of array-api-tests with its submodule array-api")
    for entry in checkout.iterdir():
        if entry != package and entry.name not in (".git", ".hypothesis"):
            (folder / entry.name).symlink_to(entry.resolve())
    shutil.copytree(package, folder / package.name)
    helpers = folder / package.name / "dtype_helpers.py"
    text = helpers.read_text(encoding="utf-8")
    for before, after in CHANGES.items():
        text = text.replace(before, after)
    helpers.write_text(text, encoding="utf-8")


def run(folder: Path, adapter: str, examples: int, arguments: list[str]) -> Outcome:
    """Run the suite of a prepared folder in a process of its own."""
    report = folder / "report.json"
    root = Path(__file__).parents[1]
    environment = {
        **os.environ,
        "ARRAY_API_TESTS_MODULE": "dmlgpu.array",
        "ARRAY_API_TESTS_SKIP_DTYPES": SKIPPED_TYPES,
        "DMLGPU_ADAPTER": adapter,
        "PYTHONPATH": os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--max-examples={examples}"]
    command += ["--disable-deadline", "--derandomize", f"--skips-file={SKIPS}", "--json-report"]
    command += [] if "-k" in arguments else ["-k", COMPUTED]
    chosen = any(argument.startswith("array_api_tests") for argument in arguments)
    command += [f"--json-report-file={report}", *arguments, *([] if chosen else ["array_api_tests"])]
    subprocess.run(command, cwd=folder, env=environment, check=False)
    if not report.is_file():
        raise SystemExit("the suite did not run: see above")
    tests = json.loads(report.read_text(encoding="utf-8"))["tests"]
    return judged(tests, read_skips(SKIPS.read_text(encoding="utf-8")))


def judged(tests: list[dict[str, Any]], skips: Mapping[str, str]) -> Outcome:
    """Return what became of the tests of a report."""
    outcomes: dict[str, list[str]] = {"passed": [], "failed": [], "listed": []}
    skipped = 0
    for test in tests:
        name, outcome = test["nodeid"], test["outcome"]
        if outcome == "skipped":
            if any(name == entry or name.startswith((entry + "[", entry + "::")) for entry in skips):
                outcomes["listed"].append(name)
            else:
                skipped += 1
        else:
            outcomes["passed" if outcome in ("passed", "xpassed") else "failed"].append(name)
    return Outcome(*(tuple(outcomes[kind]) for kind in ("passed", "failed", "listed")), skipped)


def main() -> int:
    """Run the suite by the command line's arguments; 1 where a test fails that the list of skips does not name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a clone of data-apis/array-api-tests with its submodule")
    parser.add_argument("--adapter", default="numpy", help="part of an adapter's name, or its index")
    parser.add_argument("--max-examples", type=int, default=20, help="Hypothesis examples per test")
    options, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        prepare(options.checkout.resolve(), folder)
        outcome = run(folder, options.adapter, options.max_examples, arguments)
    modules = Counter(name.partition("::")[0] for name in outcome.failed)
    for module, count in sorted(modules.items()):
        print(f"{count:4} failed in {module}")
    print(
        f"passed {len(outcome.passed)}, failed {len(outcome.failed)}, listed in {SKIPS.name} {len(outcome.listed)}, "
        f"skipped by the suite {outcome.skipped}: {outcome.share:.1%} pass"
    )
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
