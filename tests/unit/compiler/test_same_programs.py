"""Rendered kernels are the same in every process, since drivers' caches are keyed by source."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def kernels(hash_seeds: Sequence[str]) -> list[list[str]]:
    """Return a line per kernel, from processes with different orders of sets."""
    command = [sys.executable, "-m", "tests.unit.compiler.rendered_kernels"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, **pipes) for seed in hash_seeds
    ]
    printed = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), printed
    return [out.splitlines() for out, _ in printed]


@pytest.mark.slow
def test_two_processes_render_the_same_kernels() -> None:
    first, second = kernels(["1", "2"])
    assert len(first) > 150
    assert first == second
