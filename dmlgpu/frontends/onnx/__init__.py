"""ONNX models: load, run, see where each node runs.

    session = load("model.onnx")
    outputs = session.run({"x": array})

Needs the package ``onnx``: ``pip install dmlgpu[onnx]``.
"""

from __future__ import annotations

from dmlgpu.frontends.onnx.session import Session, load
from dmlgpu.frontends.onnx.translate import Placement

__all__ = ["Placement", "Session", "load"]
