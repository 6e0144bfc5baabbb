"""Standard streams that are closed, have no reader, or whose disk is full: no traceback, the usual exit code."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dmlgpu.cli.devices import matching
from dmlgpu.common.errors import AdapterNotFound
from dmlgpu.common.files import growing_file
from dmlgpu.conformance.drivers.discovery import LocatedAdapter
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.records import write_run
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.cli.cli_process import START, run_here
from tests.unit.conformance.report_runs import run

MODEL = Path(__file__).parents[2] / "data" / "dxdispatch" / "gather.json"
RUNS = tuple(run(Outcome("cast-a", status)) for status in (Status.PASS, Status.FAIL))
VERBS = {
    "devices": ("devices", 0),
    "ops": ("ops", 0),
    "show": ("show gather_nd1-example1 -a numpy", 0),
    "run": (f"run {MODEL} -a numpy", 0),
    "test": ("test -a numpy --suite operators -k argmin-example1", 0),
    "report": ("report 0.jsonl -o report.html", 0),
    "compare": ("compare 0.jsonl 1.jsonl", 1),
    "demo": ("demo ocr nonesuch.jpg", 2),
}
"""Verbs, and the exit codes of these commands with streams that are read."""


@pytest.fixture
def runs(tmp_path):
    """A folder with two runs, the second of which is worse."""
    for index, recorded in enumerate(RUNS):
        with growing_file(tmp_path / f"{index}.jsonl") as file:
            list(write_run(file, recorded.facts, recorded.outcomes))
    return tmp_path


def shell(folder: Path, arguments: str, streams: str) -> subprocess.CompletedProcess[str]:
    """``dmlgpu ARGUMENTS`` with streams as a shell writes them; its exit code is printed to the third descriptor."""
    command = f"{shlex.join([sys.executable, '-c', START])} {arguments}"
    return subprocess.run(
        ["bash", "-c", f"{{ {command}; echo $? >code; }} {streams}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "DMLGPU_ADAPTER"},
    )


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_closed_streams(verb, runs):
    arguments, code = VERBS[verb]
    done = shell(runs, arguments, "<&- >&- 2>&-")
    assert (runs / "code").read_text() == f"{code}\n"
    assert (done.stdout, done.stderr) == ("", "")
    if verb == "report":  # a file that is opened takes the lowest descriptor that is free
        assert (runs / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["ops", "compare"])
def test_standard_output_without_a_reader(verb, runs):
    arguments, code = VERBS[verb]
    done = shell(runs, arguments, "| true")
    assert (runs / "code").read_text() == f"{code}\n"
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.slow
def test_standard_error_without_a_reader(runs):
    done = shell(runs, "ops nonesuch", "2> >(exec true)")
    assert (runs / "code").read_text() == "2\n"
    assert done.stdout == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_standard_output_on_a_full_disk(runs):
    done = shell(runs, "ops", ">/dev/full")
    assert (runs / "code").read_text() == "2\n"
    assert done.stderr == "dmlgpu: standard output: No space left on device\n"


@pytest.mark.slow
def test_names_that_the_encoding_lacks(runs):
    done = shell(runs, "compare 0.jsonl $'\\xff.jsonl'", "")
    assert done.stderr == "dmlgpu: \\udcff.jsonl: No such file or directory\n"


@pytest.mark.parametrize("option", ["--time-limit", "--patience"])
@pytest.mark.parametrize("value", ["inf", "nan", "-inf", "1e300", "-1", "9" * 5000])
def test_times_that_no_clock_measures_are_rejected(option, value):
    done = run_here("test", "-a", "numpy", "--list", f"{option}={value}")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"'{option}'" in done.stderr


@pytest.mark.parametrize("adapter", ["²", "٣", "9" * 5000, "-1"])
def test_invalid_indices_of_adapters(adapter):
    done = run_here("devices", f"--adapter={adapter}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"dmlgpu: no adapter matches '{adapter[:50]}")
    with pytest.raises(AdapterNotFound):
        matching(adapter, [LocatedAdapter(NUMPY_ADAPTER, index) for index in range(5)])
