"""Text and template values that are special to kinds of scheduled steps; a module per kind."""

import importlib
import pkgutil

from dmlgpu.compiler.wgsl.writer import render_step

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["render_step"]
