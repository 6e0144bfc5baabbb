"""Renderers of each kind of scheduled step; a module per kind."""

import importlib
import pkgutil

from dmlgpu.compiler.wgsl.writer import render_step

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["render_step"]
