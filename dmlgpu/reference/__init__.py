"""The reference of every operator in NumPy: one function per operator, written from its formula.

Arrays have the tensors' logical sizes; strides never reach a reference function. Numbers are computed in float64 or
exact integers and rounded once to the output's type; data that are only moved keep their bits.

The functions stand in one module per family, found by walking the package; there is no list to keep.
"""

from __future__ import annotations

import importlib
import pkgutil

from dmlgpu.reference.registry import check_memory, evaluate, find, implemented, keeps_outputs, reference

__all__ = ["check_memory", "evaluate", "find", "implemented", "keeps_outputs", "reference"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
