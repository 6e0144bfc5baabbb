"""How each kind of step becomes a kernel; a module per kind."""

import importlib
import pkgutil

from dmlgpu.wgsl.steps.step import Rendered, render_step

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["Rendered", "render_step"]
