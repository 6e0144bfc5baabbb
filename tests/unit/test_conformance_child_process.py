"""What child processes share."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dmlgpu.conformance.running.child_process import ChildLost, LineProcess


def test_a_child_of_a_killed_process_ends():
    module = "dmlgpu.conformance.running.child_process"
    child = f"from {module} import exit_with_parent; exit_with_parent(0.1); print(1, flush=True)"
    forever = "import time; time.sleep(1000)"
    start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {f'{child}; {forever}'!r}]); {forever}"
    with subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"1\n"
        parent.kill()
        assert parent.stdout.read() == b""  # the pipe closes when the last process that holds it has ended


def test_a_child_that_closes_its_output_and_stays_is_ended(monkeypatch):
    monkeypatch.setattr("dmlgpu.conformance.running.child_process.EXIT_LIMIT", 0.2)
    stays = "import os, time; os.close(1); time.sleep(1000)"
    child = LineProcess([sys.executable, "-c", stays], {})
    try:
        with pytest.raises(ChildLost, match=r"^the process ended with signal 9$|exit code 1$"):
            next(child.ask("line", 60))
    finally:
        child.close()
