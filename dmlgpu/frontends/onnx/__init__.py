"""ONNX models: load, run, see where each node runs.

    session = load("model.onnx")
    outputs = session.run({"x": array})

Needs the package ``onnx``: ``pip install dmlgpu[onnx]``.
"""

from __future__ import annotations

from typing import Any

from dmlgpu.frontends.onnx.mapping import FailedBatch
from dmlgpu.frontends.onnx.placement import Placement
from dmlgpu.frontends.onnx.session import Session, load

__all__ = ["FailedBatch", "Generator", "Placement", "Session", "load"]


def __getattr__(name: str) -> Any:
    if name == "Generator":
        from dmlgpu.frontends.generation.generator import Generator  # noqa: PLC0415 - it imports this package

        return Generator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return __all__
