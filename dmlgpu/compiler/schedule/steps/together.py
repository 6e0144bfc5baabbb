"""Maps and scatters in one kernel, whose invocations are divided between them."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from dmlgpu.compiler.plan import PlanBinding
from dmlgpu.compiler.schedule.steps.base import KernelStep
from dmlgpu.compiler.sizes.arithmetic import largest


@dataclass(frozen=True)
class ScheduledTogether(KernelStep):
    """Several kernels in one dispatch.

    Attributes:
        parts: the kernels, without labels, so that equal ones of other steps share the source.
        starts: the first invocation of each.
    """

    parts: tuple[KernelStep, ...]
    starts: tuple[int, ...]

    template = "schedules/together"

    @functools.cached_property
    def bound(self) -> dict[PlanBinding, int]:
        sizes: dict[PlanBinding, int] = {}
        for part in self.parts:  # in order, as they are rendered: so is their memory assigned
            for binding, size in part.bound.items():
                sizes[binding] = largest(sizes.get(binding, 0), size)
        return sizes

    @property
    def ends(self) -> tuple[int, ...]:
        """The invocation after the last one of each part."""
        return (*self.starts[1:], self.launch.total)

    @property
    def lanes(self) -> int:
        return 1

    @property
    def keeps_loop_bounds(self) -> bool:
        return any(part.keeps_loop_bounds for part in self.parts)
