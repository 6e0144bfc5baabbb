"""PyTorch's entry point: registers the device "dml" at the end of ``import torch``."""

from __future__ import annotations

import importlib
import warnings


def register() -> None:
    """Register the device; if that fails, ``import torch`` succeeds with a warning."""
    try:
        importlib.import_module("dmlgpu.frontends.torch")
    except Exception as error:  # an older PyTorch or a broken installation: PyTorch itself must keep working
        warnings.warn(f"the device 'dml' is not registered: {error}", stacklevel=2)
