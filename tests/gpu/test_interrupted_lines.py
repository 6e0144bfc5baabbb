"""An exception at any line of a call, as signal handlers raise them: nothing is lost, and the device keeps working."""

from __future__ import annotations

import dis
import functools
import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
import wgpu
from wgpu.backends.wgpu_native import _api

import dmlgpu
from dmlgpu import BufferBinding, DataType, TensorDesc, descs
from dmlgpu.compiler.target import AdapterInfo

SAMPLES = 150
"""Lines of a call at which it is interrupted."""

ROW = TensorDesc(DataType.INT32, (1, 64))
SUM = descs.ElementWiseAdd(a_tensor=ROW, b_tensor=ROW, output_tensor=ROW)
PACKAGES = tuple(str(Path(str(package.__file__)).parent) for package in (dmlgpu, wgpu))


class Interrupted(BaseException):
    """What a signal handler would raise."""


class Lines:
    """Counts the lines that a call runs in some code, and raises at one of them."""

    def __init__(self, counts: Callable[[CodeType], bool], last: int | None = None):
        self.counts, self.last, self.number = counts, last, 0

    def run(self, action: Callable[[], object]) -> bool:
        """Call; return whether the call was interrupted."""
        sys.settrace(self._trace)
        try:
            action()
        except Interrupted:
            return True
        finally:
            sys.settrace(None)
        return False

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "call" and (not self.counts(frame.f_code) or _in_finalizer(frame)):
            return None
        if event == "line":
            self.number += 1
            if self.number >= (self.last or sys.maxsize) and _handlers_run(frame):
                raise Interrupted
        return self._trace


def _handlers_run(frame: FrameType) -> bool:
    """Return whether a signal handler could raise about where a frame is. None runs between the last call of a
    ``with`` and its ``__exit__(None, None, None)``, nor at the NOP of ``try``, which Python leaves out of the
    exception table of the ``with`` around it: what is locked would stay so."""
    following = [instruction for instruction in _instructions(frame.f_code) if instruction.offset >= frame.f_lasti][:5]
    nothing = [instruction.opname == "LOAD_CONST" and instruction.argval is None for instruction in following]
    leaves_with = any(all(nothing[first : first + 3]) for first in range(len(nothing) - 2))
    return following[0].opname != "NOP" and not leaves_with


@functools.cache
def _instructions(code: CodeType) -> list[dis.Instruction]:
    return list(dis.get_instructions(code))


def _in_finalizer(frame: FrameType | None) -> bool:
    """Return whether a frame belongs to a finalizer's call: Python drops what is raised there."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def interrupted_at_lines(counts: Callable[[CodeType], bool], action: Callable[[], object]) -> Iterator[int]:
    """Call once for each line that the call runs, or a sample of them in even steps, and raise there."""
    action()
    whole = Lines(counts)
    whole.run(action)
    for last in range(1, whole.number, max(1, whole.number // SAMPLES)):
        if Lines(counts, last).run(action):
            yield last


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Exceptions that Python could only print."""
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    return raised


def test_buffers(adapter: AdapterInfo, unraisable: list[Any]) -> None:
    """wgpu-py's own constructors: half-constructed objects are freed."""
    constructors = {cls.__init__.__code__ for cls in _api.GPUBuffer.__mro__[:-1] if "__init__" in vars(cls)}
    device = dmlgpu.Device(str(adapter))
    rounds = list(interrupted_at_lines(constructors.__contains__, lambda: device.create_buffer(256).release()))
    gc.collect()
    assert [str(event.exc_value) for event in unraisable] == []
    assert len(rounds) > 8
    device.remove()


def test_writes_executions_and_reads(adapter: AdapterInfo, unraisable: list[Any]) -> None:
    device = dmlgpu.Device(str(adapter))
    compiled = device.compile_operator(device.create_operator(SUM))
    initializer = device.create_operator_initializer([compiled])
    recorder, initialize = device.create_command_recorder(), device.create_command_list()
    recorder.record_dispatch(initialize, initializer, device.create_binding_table(initializer))
    initialize.close()
    device.queue.execute([initialize])
    source, target = device.create_buffer(256), device.create_buffer(256)
    allocated = device.backend.allocated  # type: ignore[attr-defined]

    def compute(value: int) -> list[int]:
        table = device.create_binding_table(compiled)
        table.bind_inputs([BufferBinding(source), BufferBinding(source)])
        table.bind_outputs([BufferBinding(target)])
        commands = device.create_command_list()
        recorder.record_dispatch(commands, compiled, table)
        commands.close()
        source.write(np.full(64, value, np.int32))
        device.queue.execute([commands])
        return target.read().view(np.int32).tolist()

    def in_packages(code: CodeType) -> bool:
        return code.co_filename.startswith(PACKAGES)

    rounds = 0
    for number in interrupted_at_lines(in_packages, lambda: compute(-1)):
        assert compute(number) == [2 * number] * 64
        rounds += 1
    gc.collect()
    assert [str(event.exc_value) for event in unraisable] == []
    assert device.backend.allocated == allocated  # type: ignore[attr-defined]
    assert rounds > SAMPLES / 2
    device.remove()
