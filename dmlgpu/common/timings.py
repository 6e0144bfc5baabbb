"""Times of compiling an operator or a graph."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timings:
    """Wall-clock seconds of each part of compiling.

    Attributes:
        planning: tracing a function, checks, a graph's passes, lowering and scheduling; reading the program where it
            was kept in a file.
        rendering: writing the kernels' text; 0 where the program was kept.
        driver: making pipelines, and the driver's translation as far as somebody waited for it, the first call
            included; near 0 where equal kernels had pipelines already. OpenGL's drivers may translate within the first
            dispatch, which is not counted.
        upload: bringing the program's data to the device.
    """

    planning: float = 0.0
    rendering: float = 0.0
    driver: float = 0.0
    upload: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of all parts together."""
        return self.planning + self.rendering + self.driver + self.upload
