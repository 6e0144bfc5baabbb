"""Times of compilation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Timings:
    """Wall-clock seconds per stage of compilation.

    Attributes:
        STAGES: Names of the stages.
        planning: Tracing, checks, graph passes, lowering and scheduling; loading the program if it was cached on disk.
        rendering: Generating WGSL; 0 if the program was cached.
        driver: Creating pipelines, and driver compilation that a call waited for, including the first call. Near 0 if
            equal kernels have pipelines already. OpenGL drivers may compile in the first dispatch, which is not
            counted.
        upload: Uploading constant data.
        unrecorded: Reasons why shapes in this process were compiled on their own instead of following from others.
    """

    STAGES: ClassVar[tuple[str, ...]] = ("planning", "rendering", "driver", "upload")

    planning: float = 0.0
    rendering: float = 0.0
    driver: float = 0.0
    upload: float = 0.0
    unrecorded: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        """Sum of all stages."""
        return self.planning + self.rendering + self.driver + self.upload
