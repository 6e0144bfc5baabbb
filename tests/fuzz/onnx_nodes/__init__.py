"""Nodes and small graphs of ONNX models, drawn at random: a generator per operator, in modules by topic."""

from __future__ import annotations

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    if _module.name not in ("formulas", "known", "models", "oracles"):  # these draw nothing, and import this package
        importlib.import_module(f"{__name__}.{_module.name}")
