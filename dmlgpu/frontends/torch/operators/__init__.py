"""ATen operators as functions of dmlgpu tensors, one module per topic; ``registry.py`` documents how to write one."""

from __future__ import annotations

import importlib
import pkgutil

from dmlgpu.frontends.torch.operators import registry


def load() -> None:
    """Fill the table: import all modules of this package, and drop the operators that the installed PyTorch lacks."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    registry.drop_missing()
