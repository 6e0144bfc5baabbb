"""The PyTorch device on every adapter of the machine, each as dml:0 of a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dmlgpu.compiler.target import AdapterInfo

pytest.importorskip("torch", minversion="2.13", reason="the device needs PyTorch 2.13 or later")

ROOT = Path(__file__).parents[2]
VIEWS = 40


@pytest.mark.slow
def test_views_training_and_moves_are_as_on_the_cpu(adapter: AdapterInfo) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.gpu.torch_script", str(VIEWS)],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        env={**os.environ, "DMLGPU_ADAPTER": str(adapter), "PYTHONPATH": str(ROOT)},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == f"as the CPU on {adapter.short_name}"
