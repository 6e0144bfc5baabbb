"""NumPy reference of every operator: one function per operator, written from its formula.

Arrays have the logical shapes of tensors; strides never reach a reference function. Computation is in float64 or exact
integers, rounded once to the output's type; moved data keep their bits.

There is one module per family, found by walking the package.
"""

from __future__ import annotations

import importlib
import pkgutil

from dmlgpu.reference.registry import check_memory, evaluate, find, implemented, keeps_outputs, reference

__all__ = ["check_memory", "evaluate", "find", "implemented", "keeps_outputs", "reference"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
