"""Reading during other work, without a GPU."""

from functools import partial

import numpy as np
import pytest

from dmlgpu import Device, DmlError, TimedOut
from dmlgpu.runtime.executor import Reading
from tests.readbacks import Readbacks
from tests.unit.device_objects import Objects, raises


class TestReadbacks(Readbacks):
    """On the adapter ``numpy``."""

    @pytest.fixture
    def new_device(self):
        return partial(Device, "numpy")

    @pytest.fixture
    def device(self, new_device):
        return new_device()


class Late(Reading):
    """Bytes that arrive on request."""

    data: np.ndarray | None = None

    def is_done(self):
        return self.data is not None

    def result(self, timeout=None):
        return self.data


def test_threads_that_find_the_bytes_at_once_get_one_array(monkeypatch):
    """The second one finds them while the first is on its way back."""
    objects, reading, seconds = Objects(), Late(), []
    reading.data = np.arange(8, dtype=np.uint8)
    right = reading.result

    def overtaken(timeout=None):
        if not seconds:
            seconds.append(None)
            seconds.append(readback.result())
        return right(timeout)

    monkeypatch.setattr(reading, "result", overtaken)
    monkeypatch.setattr(objects.backend, "read_async", lambda *_: reading, raising=False)
    readback = objects.buffer(8).read_async(1, 3)
    assert readback.result() is seconds[1] is readback.result()
    assert seconds[1].tolist() == [1, 2, 3]


def test_a_time_limit_passes_and_a_later_call_finds_the_bytes(monkeypatch):
    objects, reading = Objects(), Late()
    monkeypatch.setattr(objects.backend, "read_async", lambda *_: reading, raising=False)
    readback = objects.buffer(16, "scores").read_async(2, 5)
    assert not readback.done()
    expected = "readback of buffer 'scores': result: the bytes are not available after 0.25 s"
    for _ in range(2):
        with raises(TimedOut, expected):
            readback.result(0.25)
    assert issubclass(TimedOut, TimeoutError)
    assert issubclass(TimedOut, DmlError)
    reading.data = np.arange(8, dtype=np.uint8)
    assert readback.done()
    assert readback.result(0).tolist() == [2, 3, 4, 5, 6]
    reading.data = None
    assert readback.done()
    assert readback.result(0).tolist() == [2, 3, 4, 5, 6]
