"""Which line of the caller's program is being run."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

_PACKAGE = __name__.partition(".")[0]


def in_package(frame: FrameType) -> bool:
    """Return whether a frame runs code of this package."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == _PACKAGE


def caller() -> str:
    """Return ``file:line`` of the innermost frame outside this package; files below the working directory relative."""
    frame = sys._getframe(1)
    while frame.f_back is not None and in_package(frame):
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{path}:{frame.f_lineno}"
