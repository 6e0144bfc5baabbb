"""Executor of the child processes that run cases; reports kernels before they are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dmlgpu.compiler.program import Program
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.wgpu.backend import GpuBackend
from dmlgpu.runtime.wgpu.executable import GpuExecutable

Tell: TypeAlias = Callable[[tuple[str, ...]], None]
"""Takes the kernels of a program as strings (``Program.summaries``)."""


class WatchedBackend(GpuBackend):
    """An executor that reports the kernels of each program before the driver compiles them, which may crash.

    Args:
        info: The adapter.
        tell: Called with the kernels.
        precise: As of ``GpuBackend``.
    """

    def __init__(self, info: AdapterInfo, tell: Tell, *, precise: bool = False):
        super().__init__(info, precise=precise)
        self._tell = tell

    def prepare(self, program: Program) -> GpuExecutable:
        """Compile a rendered program (see ``GpuBackend.prepare``)."""
        self._tell(program.summaries)
        return super().prepare(program)
