"""How a plan is computed: every choice as data. A module per kind of step registers what schedules it."""

import importlib
import pkgutil

from dmlgpu.compiler.schedule.scheduling import schedule
from dmlgpu.compiler.schedule.steps.base import Schedule, Scheduled

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["Schedule", "Scheduled", "schedule"]
