"""scripts/clients: how rows are run and compared, the page, and a row in a child process."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch_clients import rows, with_comfyui, writing
from torch_clients.rows import Result, Row, largest_difference, run

torch = pytest.importorskip("torch", reason="PyTorch, which the clients are of, is not installed")

ROOT = Path(__file__).parents[3]


def run_program(program: Any, **options: Any) -> Result:
    return run(Row("a client", "a row", program, (), 1e-4, **options), "numpy")


def unsupported(message: str) -> Any:
    def program(device: str) -> float:
        if device == "dml" and os.environ.get(rows.FALLBACK) != "1":
            raise NotImplementedError(message)
        return 1.0

    return program


def test_results_are_compared_by_the_largest_magnitude() -> None:
    expected = {"a": torch.tensor([10.0, 0.0]), "b": [torch.tensor([1]), "text", None]}
    assert (
        largest_difference({"a": torch.tensor([10.0, 0.5]), "b": [torch.tensor([1]), "text", None]}, expected) == 0.05
    )
    for x, y in (
        (1.0, [1.0, 2.0]),
        (torch.ones(2), torch.ones(3)),
        (torch.tensor(1), torch.tensor(2)),
        ("a", "b"),
        (math.nan, 1.0),
    ):
        with pytest.raises(AssertionError):
            largest_difference(x, y)
    assert largest_difference(math.nan, math.nan) == 0


def test_states() -> None:
    assert run_program(lambda device: 1.0).state == "right"
    wrong = run_program(lambda device: 1.0 if device == "cpu" else 1.5)
    assert (wrong.state, wrong.difference) == ("wrong", 0.5)
    assert run(Row("a client", "a row", lambda device: 0, ("no_such_package",), 0), "numpy").state == "skipped"
    assert run_program(lambda device: 1 / 0).reason.startswith("on the CPU: ZeroDivisionError")


def test_advice_is_tried() -> None:
    advised = f"not on the dml device; {rows.FALLBACK}=1 computes it on the CPU"
    result = run_program(unsupported(advised))
    assert (result.state, result.reason) == ("rejected", f"right with `{rows.FALLBACK}=1`")
    assert rows.FALLBACK not in os.environ
    assert run_program(unsupported("not on the dml device")).state == "wrong"  # names no way out
    assert run_program(unsupported("another library's error")).state == "wrong"
    result = run_program(unsupported("not on the dml device"), advice=("float32", lambda device: 1.0))
    assert (result.state, result.reason) == ("rejected", "right with float32")
    assert run_program(unsupported("not on dml"), advice=("float32", lambda device: 2.0)).state == "wrong"


def test_the_page() -> None:
    results = [
        Result("a client", "first", "numpy", "right", 3.2e-7),
        Result("a client", "second", "numpy", "rejected", None, "right with `X=1`"),
        Result("another", "third", "numpy", "skipped", None, "a | b not installed"),
        Result("a client", "first", "llvmpipe", "right", 0.0),
    ]
    page = writing.page(results, {"torch": "2.13.0"})
    assert "Versions: torch 2.13.0." in page
    assert "\n## a client\n\n| program | `numpy` | `llvmpipe` |\n|---|---|---|\n| first | 3e-07 | 0 |\n" in page
    assert "| second | rejected: right with `X=1` |  |\n\n## another\n" in page
    assert page.endswith("| third | skipped: a \\| b not installed |  |\n")
    assert writing.summary(results) == "4 rows: 1 rejected, 2 right, 1 skipped"


def test_results_of_earlier_runs_stay(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert writing.read(path) == {}
    first, second = rows.load()[:2]
    results = [Result(row.client, row.name, "numpy", "wrong") for row in (second, first)]
    again = Result(first.client, first.name, "numpy", "right", 0.5)
    for result in (*results, again):
        writing.add(path, result)
    known = writing.read(path)
    assert [known[key] for key in writing.ordered(known, rows.load())] == [again, results[0]]


def test_names_are_unique() -> None:
    names = [(row.client, row.name) for row in rows.load()]
    assert len(set(names)) == len(names) > 80


@pytest.mark.skipif(os.name == "nt", reason="the interpreter of the clone is a shell script here")
@pytest.mark.parametrize(("device", "option"), [("cpu", "--cpu"), ("dml", "--directml")])
def test_comfyui_runs_in_the_environment_of_its_clone(
    device: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        "import os, sys, torch\n"
        "torch.save([os.environ['COMFYUI_PART'], os.getcwd(), sys.argv[-1]], os.environ['COMFYUI_RESULTS'])\n"
    )
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("DMLGPU_COMFYUI", str(tmp_path))
    assert with_comfyui.edits(device) == ["edits", str(tmp_path), option]


def test_the_version_of_comfyui_is_that_of_the_clone(tmp_path: Path) -> None:
    (tmp_path / "comfyui_version.py").write_text('# written by a build\n__version__ = "0.3.75"\n')
    assert writing.versions(tmp_path)["ComfyUI"] == "0.3.75"
    assert "ComfyUI" not in writing.versions()


@pytest.mark.slow
def test_a_row_in_a_child_process() -> None:
    command = [sys.executable, "scripts/clients", "--adapter", "numpy", "-k", "^PyTorch optimizer SGD|^ComfyUI LoRA"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    first, second, last = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert first.startswith("right    numpy, PyTorch: optimizer SGD ")
    assert second.startswith("skipped  numpy, ComfyUI: ") and second.endswith("pass --comfyui FOLDER")
    assert last == "2 rows: 1 right, 1 skipped"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="a child of the row is a shell script here")
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_script(ended_by: signal.Signals, tmp_path: Path) -> None:
    """Neither the child process nor that of ComfyUI, which it starts."""
    started = tmp_path / "started"
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho $$ > {started}.part; mv {started}.part {started}; exec sleep 600\n")
    python.chmod(0o755)
    command = [sys.executable, "scripts/clients", "--adapter", "numpy", "-k", "^ComfyUI LoRA", "--comfyui", tmp_path]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as script:
        _wait_until(started.exists)
        worker = int(started.read_text())
        script.send_signal(ended_by)
    _wait_until(lambda: not _is_running(worker))


def _wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
