"""ONNX models: load, run, see where each node runs.

    session = load("model.onnx")
    outputs = session.run({"x": array})

Needs the package ``onnx``: ``pip install dmlgpu[onnx]``.
"""

from __future__ import annotations

from dmlgpu.frontends.onnx.mapping import FailedBatch
from dmlgpu.frontends.onnx.placement import Placement
from dmlgpu.frontends.onnx.session import Session, load

__all__ = ["FailedBatch", "Placement", "Session", "load"]


def __dir__() -> list[str]:
    return __all__
