"""ONNX models: load, run, see where each node runs.

    session = load("model.onnx")
    outputs = session.run({"x": array})

Needs the package ``onnx``: ``pip install dmlgpu[onnx]``.

From a model to its results:

1. ``model`` reads and checks a file, with the types of ``tensor_proto`` and ``containers``; ``rewriting`` inlines
   functions and folds constants, ``merging`` joins quantized products.
2. ``session`` is the public API: it checks the inputs of a run, which ``watching`` observes.
3. ``runner`` runs the model: from cached stages, from stages ``recorded`` for other shapes, or by a translation.
4. ``translate`` turns nodes into graphs: ``registry`` finds the function in ``operators/``, ``signatures`` checks
   types, ``host`` computes shapes, ``zero_size`` handles empty inputs, ``codes`` converts types that DirectML lacks.
5. The function reads a ``node`` and returns ``values``, perhaps of ``symbolic`` sizes. Several functions share
   ``expressions``, ``spatial``, ``attention``, and for ai.onnx.ml ``scores``, ``forest``, ``coupling``.
6. ``segments`` compile the graphs and execute them, with the host reads between them; ``weights`` lays out constants;
   ``loops`` and ``device_loops`` execute Loop and Scan.
7. ``placement`` says where each node ran, ``preview`` where it will, ``checking`` compares it with references.

In addition, ``mapping`` runs many batches (``map_worker``, ``map_cluster``, ``input_files``), and ``backend`` runs
ONNX's own tests.
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
