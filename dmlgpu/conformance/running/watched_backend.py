"""The executor on which children run cases: it tells which kernels are about to be compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dmlgpu.compiler.program import Program
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.wgpu.backend import GpuBackend
from dmlgpu.runtime.wgpu.executable import GpuExecutable

Tell: TypeAlias = Callable[[tuple[str, ...]], None]
"""Takes the kernels of a program, a text each (``Program.summaries``)."""


class WatchedBackend(GpuBackend):
    """An executor that tells each program's kernels before the driver gets them: compiling them may be what crashes.

    Args:
        info: the adapter.
        tell: is told.
        precise: as of ``GpuBackend``.
    """

    def __init__(self, info: AdapterInfo, tell: Tell, *, precise: bool = False):
        super().__init__(info, precise=precise)
        self._tell = tell

    def prepare(self, program: Program) -> GpuExecutable:
        """Make a rendered program ready to run (see ``GpuBackend.prepare``)."""
        self._tell(program.summaries)
        return super().prepare(program)
