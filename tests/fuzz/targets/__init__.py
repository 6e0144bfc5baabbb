"""What is tried: a module per target, with a function ``run(seed, monitor)`` that does the same for the same seed."""

from __future__ import annotations

import importlib
from typing import Protocol

from tests.fuzz.monitor import Monitor

TARGETS = (
    "descriptions",
    "programs",
    "graphs",
    "models",
    "records",
    "life_cycle",
    "arguments",
    "interrupts",
    "onnx",
    "onnx_graphs",
    "onnx_sizes",
)
"""All of them; ``faults`` is there for the tests of the campaign itself."""

WITHOUT_GPU = frozenset({"programs", "records"})
"""Targets that use no device."""


class Target(Protocol):
    """A target's module."""

    def run(self, seed: int, monitor: Monitor) -> None:
        """Try what a seed says; findings go to the monitor."""


def load(name: str) -> Target:
    """The module of a target."""
    module: Target = importlib.import_module(f"{__name__}.{name}")  # type: ignore[assignment]
    return module
