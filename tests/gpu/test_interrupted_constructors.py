"""An exception at any line of wgpu-py's constructors: what was made is given back."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from wgpu.backends.wgpu_native import _api

import dmlgpu
from dmlgpu.target import AdapterInfo

LINES = 200
"""More than wgpu-py runs in one constructor."""


class Interrupted(BaseException):
    """What a signal handler would raise."""


def interrupted_at_each_line(constructor: Any, action: Callable[[], object]) -> Iterator[int]:
    """Do something once for each line that runs in a constructor, and raise there."""
    code = {one.__init__.__code__ for one in constructor.__mro__ if "__init__" in vars(one) and one is not object}
    for last in range(1, LINES):
        lines = 0

        def trace(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal lines
            if frame.f_code not in code:
                return None
            if event == "line":
                lines += 1
                if lines == last:  # noqa: B023 - called in this round
                    raise Interrupted
            return trace

        sys.settrace(trace)
        try:
            action()
        except Interrupted:
            yield last
        else:
            return
        finally:
            sys.settrace(None)


def test_half_made_buffers_are_given_back(adapter: AdapterInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices are made where no signal handler runs, so they are never half made."""
    raised = []
    device = dmlgpu.Device(str(adapter))
    device.create_buffer(256).release()
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    rounds = list(interrupted_at_each_line(_api.GPUBuffer, lambda: device.create_buffer(256).release()))
    gc.collect()
    assert [str(one.exc_value) for one in raised] == []
    assert 8 < len(rounds) < LINES - 1
    device.remove()
