"""Forked children get an exception for the parent's devices, and end normally."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.specialization import SPECIALIZE_VARIABLE
from tests.gpu.usable import usable_adapters

PROGRAM = Path(__file__).with_name("forked.py")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def run(adapter: AdapterInfo, test: str, specialize: str = "auto") -> None:
    """Run a test in a process of its own, which may hang or abort."""
    # Python 3.12 warns of a fork while drivers have threads.
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", str(PROGRAM), str(adapter), test]
    environment = {**os.environ, SPECIALIZE_VARIABLE: specialize}
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("specialize", ["auto", "never"])
def test_children_of_a_process_that_used_a_gpu(adapter: AdapterInfo, specialize: str) -> None:
    run(adapter, "objects", specialize)


@pytest.mark.skipif(not usable_adapters(), reason="wgpu finds no adapter on this machine")
def test_children_of_a_process_that_used_none() -> None:
    run(usable_adapters()[-1], "first")
