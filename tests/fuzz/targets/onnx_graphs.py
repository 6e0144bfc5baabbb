"""Graphs of ONNX nodes alone, which ``onnx`` draws now and then: for adapters that compile, and fuse."""

from __future__ import annotations

import random

from tests.fuzz.monitor import Monitor
from tests.fuzz.targets.onnx import run_graph


def run(seed: int, monitor: Monitor) -> None:
    """Compare one graph."""
    run_graph(random.Random(f"onnx graphs {seed}"), monitor)
