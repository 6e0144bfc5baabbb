"""Maps and scatters in one kernel, whose invocations are divided between them."""

from __future__ import annotations

from dataclasses import dataclass

from dmlgpu.compiler.schedule.steps.base import KernelStep


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
