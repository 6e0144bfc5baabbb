"""Write docs/conformance-table.md, and the numbers of docs/index.md, from stored surveys; survey this machine.

    python scripts/survey_page.py --run tests     survey this machine: test suites, on every driver and in Chromium
    python scripts/survey_page.py --run times     the same: ceilings, benchmark, language model (on an idle machine)
    python scripts/survey_page.py FILE.json.gz    store a survey of another machine
    python scripts/survey_page.py                 write the pages from the stored files
    python scripts/survey_page.py --check         fail if a page is out of date

Files are stored in benchmarks/results/surveys. A survey that was interrupted continues when the command is repeated.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import chromium

from dmlgpu.cli.devices import ALL
from dmlgpu.cli.report import report
from dmlgpu.cli.survey import CEILINGS, PARTS, SUITES, survey
from dmlgpu.cli.survey_file import NAME, is_survey_file, read_survey
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.running.records import RecordedRun, read_runs
from dmlgpu.conformance.suites.registry import DEFAULT
from dmlgpu.runtime.adapters import BROWSER_VARIABLE
from dmlgpu.runtime.browser.link import wait_for_pages
from dmlgpu.runtime.browser.server import PageServer

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "benchmarks" / "results" / "surveys"
EARLIER = (ROOT / "benchmarks" / "results" / "2026-11-26-h100-quick.jsonl",)
"""Runs on adapters that no survey has."""

PAGE, INDEX = ROOT / "docs" / "conformance-table.md", ROOT / "docs" / "index.md"
WORK = ROOT / ".cache" / "surveys"
"""Folder of surveys that may continue."""

KINDS = {
    "tests": tuple(part for part, _, _ in SUITES),
    "times": tuple(part for part in PARTS[PARTS.index(CEILINGS) :]),
}
"""Parts of the surveys of this machine."""

SECONDS = 4 * 3600.0
"""Default time of a survey: none of its parts should run out of time."""

ADAPTERS = {
    "NVIDIA H100, [driver 580.159](devices.md#nvidia)": ("NVIDIA H100 80GB HBM3", "Vulkan", ""),
    "lavapipe (llvmpipe, on the CPU)": ("llvmpipe", "Vulkan", ""),
    "llvmpipe (on the CPU)": ("llvmpipe", "OpenGL", ""),
    "SwiftShader (on the CPU)": ("SwiftShader", "Vulkan", ""),
    "lavapipe, by Dawn": ("llvmpipe", "Dawn Vulkan", ""),
    "SwiftShader, by Dawn": ("SwiftShader", "Dawn Vulkan", ""),
    "phones and computers with a browser": ("", "Browser", " in Chromium (SwiftShader)"),
    "the NumPy reference, `numpy`": ("numpy", "NumPy", ""),
}
"""Names and backends of adapters, and what follows the numbers, by their rows in the table of docs/index.md."""

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def main() -> int:
    """Survey and store, then write or check."""
    parser = argparse.ArgumentParser(description="Write docs/conformance-table.md from surveys.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.json.gz", help="surveys to store")
    parser.add_argument("--run", choices=KINDS, help="survey this machine first")
    parser.add_argument("--budget", type=float, default=SECONDS, metavar="SECONDS", help="time of the survey")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is out of date")
    options = parser.parse_args()
    for path in options.files:
        store(path, path.name)
    if options.run:
        store(surveyed(options.run, options.budget), f"{options.run}.json.gz")
    if not any(STORED.glob("*.json.gz")):
        parser.error("no survey is stored: pass --run tests")
    texts = pages(stored())
    stale = [path for path, text in texts.items() if path.read_text(encoding="utf-8") != text]
    if options.check:
        for path in stale:
            print(f"{path} is out of date; run: python scripts/survey_page.py", file=sys.stderr)
        return int(bool(stale))
    for path in stale:
        path.write_text(texts[path], encoding="utf-8")
    return 0


def stored() -> list[Path]:
    """Return the files of the page: surveys, then earlier runs."""
    return [*sorted(STORED.glob("*.json.gz")), *EARLIER]


def store(path: Path, name: str) -> None:
    """Store a survey."""
    read_survey(path)  # raises if it is malformed
    STORED.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, STORED / name)


def surveyed(kind: str, budget: float) -> Path:
    """Survey this machine, with Chromium if it is installed, in some seconds; return the file."""
    folder = WORK / kind
    with page_of_chromium() as count:
        survey(folder, (ALL,), (ALL,), budget, only=KINDS[kind], pages=count)
    return folder / NAME


@contextlib.contextmanager
def page_of_chromium() -> Iterator[int]:
    """Open the page that lends the GPU of headless Chromium; yield the number of pages, 0 without Chromium."""
    if chromium.PATH is None:
        print("Chromium is not installed, so it is not surveyed", file=sys.stderr)
        yield 0
        return
    with PageServer() as server, tempfile.TemporaryDirectory(prefix="dmlgpu-") as profile:
        os.environ[BROWSER_VARIABLE] = server.borrowing
        options = ("--headless=new", "--no-first-run", *chromium.WEBGPU, f"--user-data-dir={profile}")
        command = [chromium.PATH, *options, server.address]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield len(wait_for_pages(server.borrowing, 1, 120.0))
        finally:
            process.terminate()
            process.wait()


# ---- pages


def pages(files: Sequence[Path]) -> dict[Path, str]:
    """Return the content of both pages by path."""
    with tempfile.TemporaryDirectory(prefix="dmlgpu-") as folder, contextlib.redirect_stdout(None):
        output = Path(folder, PAGE.name)
        report(files, output)
        table = output.read_text(encoding="utf-8")
    return {PAGE: table, INDEX: with_counts(INDEX.read_text(encoding="utf-8"), runs_of(files))}


def runs_of(files: Sequence[Path]) -> list[RecordedRun]:
    """Return the recorded runs of files."""
    return [run for path in files for run in (read_survey(path).runs if is_survey_file(path) else read_runs(path))]


def with_counts(text: str, runs: Sequence[RecordedRun]) -> str:
    """Return the text of docs/index.md with the numbers of the default suite's runs."""
    runs = [run for run in runs if run.facts["suite"] == DEFAULT]
    statuses = {id(run): Counter(outcome.status for outcome in run.outcomes) for run in runs}
    for row, (name, backend, suffix) in ADAPTERS.items():
        for run in runs:
            adapter = run.facts["adapter"]
            if adapter["name"].startswith(name) and adapter["backend"] == backend:
                counts = statuses[id(run)]
                cell = f"[{counts[Status.PASS]} of {counts.total()}]({PAGE.name}){suffix}"
                text = re.sub(rf"(?m)^(\| {re.escape(row)} \|[^|]*\| )[^|]*( \|)", rf"\g<1>{cell}\g<2>", text)
    sums = sum(statuses.values(), Counter())
    passed, refused = sums[Status.PASS], sums[Status.NOT_SUPPORTED]
    return re.sub(
        r"\*\*[\d,]+ of [\d,]+\*\* conformance cases passed in \w+ runs, [\d,]+ were not supported",
        f"**{passed:,} of {sums.total():,}** conformance cases passed in {NUMBERS[len(runs)]} runs,"
        f" {refused:,} were not supported",
        text,
    )


if __name__ == "__main__":
    sys.exit(main())
