"""Schedules of plans: every choice is data. A module per kind of step registers its scheduler."""

import importlib
import pkgutil

from dmlgpu.compiler.schedule.scheduling import schedule
from dmlgpu.compiler.schedule.steps.base import KernelStep, ScheduledPlan

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["KernelStep", "ScheduledPlan", "schedule"]
