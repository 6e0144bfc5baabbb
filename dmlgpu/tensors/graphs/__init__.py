"""Graphs of operators under construction; types and shapes are inferred, as in DirectMLX.

``functions`` and ``directmlx`` are former names of ``dmlgpu.ops.directml`` and ``dmlgpu.directmlx``.
"""

from __future__ import annotations

import importlib
from typing import Any

_MOVED = {"functions": "dmlgpu.tensors.directml", "directmlx": "dmlgpu.tensors.directmlx"}


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        return importlib.import_module(_MOVED[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
