"""ONNX models: load, run, see where each node runs.

    session = load("model.onnx")
    outputs = session.run({"x": array})

Needs the package ``onnx``: ``pip install dmlgpu[onnx]``.

From file to result: ``model`` reads and checks the file, ``rewriting`` inlines functions and folds constants,
``translate`` turns nodes into graphs for given input shapes, ``segments`` holds the compiled graphs and the host reads
between them, ``runner`` caches these stages and executes them, ``session`` is the public API.

Around this path:

- Translation: ``operators/``, found through ``registry``, read a ``node`` and its ``values``; ``host`` computes shapes,
  ``zero_size`` handles inputs without elements, ``signatures`` checks types, ``merging`` joins quantized products.
- Other input shapes: ``patterns`` repeats a translation that was recorded on symbols (``symbolic``).
- Running: ``loops`` and ``device_loops`` execute Loop and Scan, ``replay`` repeats a run, ``watching`` observes runs.
- Reports: ``placement`` after a run, ``preview`` without one, ``checking`` against references.
- Many batches: ``mapping``, ``map_worker``, ``map_cluster``.
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
