"""Reading during other work, for devices on any adapter."""

import numpy as np
import pytest

from dmlgpu import DataType, DeviceRemoved, Graph, InvalidArgument, InvalidState, Readback
from dmlgpu.ops import directml as functions
from tests.life_cycle import bound, initialization, record, row

SIZES = (1, 1, 8, 16)


class Frames:
    """A graph whose input is updated in place: running sums of squares of integers, which wrap around."""

    def __init__(self, device, depth=1):
        self.device, self.depth = device, depth
        graph = Graph(device)
        x = graph.input(SIZES, DataType.UINT32)
        for _ in range(depth):
            x = functions.cumulative_summation(x * x, axis=3)
        compiled = graph.compile([x])
        self.source, self.target = (device.create_buffer(4 * np.prod(SIZES)) for _ in range(2))
        device.queue.execute([record(device, initialization(device, compiled))])
        self.list = record(device, (compiled, bound(device, compiled, [self.source], [self.target])))

    @staticmethod
    def values(number):
        return np.random.default_rng(number).integers(0, 9, SIZES, np.uint32)

    def expected(self, number):
        x = self.values(number)
        for _ in range(self.depth):
            x = np.cumsum(x * x, axis=3, dtype=np.uint32)
        return x

    def execute(self, number):
        self.source.write(self.values(number))
        self.device.queue.execute([self.list])

    def check(self, number, data):
        np.testing.assert_array_equal(data.view(np.uint32).reshape(SIZES), self.expected(number))


class Readbacks:
    """Tests of the fixture ``device``; expected values by NumPy."""

    @pytest.mark.parametrize("depth", [1, 2])
    def test_frames_overlap(self, device, depth):
        """The input is written and the graph run again before the frames before are fetched, in either order."""
        frames = Frames(device, depth)
        pending = []
        for number in range(9):
            frames.execute(number)
            pending.append((number, frames.target.read_async()))
            while len(pending) > number % 4:
                first, readback = pending.pop(-(number % 2))
                frames.check(first, readback.result())
        for number, readback in pending:
            frames.check(number, readback.result(60))
            assert readback.done()

    def test_the_bytes_are_those_of_the_call(self, device):
        """Regardless of later changes to the buffer, its release included."""
        buffer = device.create_buffer(16)
        buffer.write(row(1, 2, 3, 4))
        first = buffer.read_async()
        buffer.write(row(5, 6, 7, 8))
        second = buffer.read_async(4, 8)
        buffer.release()
        assert first.result().view(np.float32).tolist() == [1, 2, 3, 4]
        assert second.result().view(np.float32).tolist() == [6, 7]
        assert first.result() is first.result()
        assert first.done()

    @pytest.mark.parametrize("offset", range(5))
    @pytest.mark.parametrize("size", [0, 1, 3, 4, 7, None])
    def test_any_range(self, device, offset, size):
        buffer = device.create_buffer(16)
        buffer.write(bytes(range(16)))
        readback = buffer.read_async(offset, size)
        expected = list(range(16))[offset : None if size is None else offset + size]
        assert readback.result(60).tolist() == expected
        assert (readback.size, readback.result().dtype) == (len(expected), np.uint8)
        readback.result()[:] = 77  # the caller's own
        assert buffer.read().tolist() == list(range(16))

    def test_refusals(self, device):
        buffer = device.create_buffer(8, "small")
        with pytest.raises(InvalidArgument) as caught:
            buffer.read_async(4, 8)
        assert str(caught.value) == (
            "buffer 'small': read_async: bytes 4 to 12 are not inside buffer 'small' (8 bytes)"
        )
        readback = buffer.read_async()
        with pytest.raises(InvalidArgument) as caught:
            readback.result(float("nan"))
        assert str(caught.value) == (
            "readback of buffer 'small': timeout must be a number of seconds, got nan of type float"
        )
        with pytest.raises(InvalidArgument) as caught:
            Readback(device, None, reading=None, source="", begin=0, size=0)
        assert str(caught.value) == "Readback: cannot be created directly; use a method of Device"
        buffer.release()
        with pytest.raises(InvalidState) as caught:
            buffer.read_async()
        assert str(caught.value) == "buffer 'small': read_async after release"

    def test_removal(self, new_device):
        """What was fetched before stays."""
        device = new_device()
        buffer = device.create_buffer(16)
        fetched, lost, empty = buffer.read_async(), buffer.read_async(), buffer.read_async(16)
        assert fetched.result().tolist() == [0] * 16
        device.remove("enough")
        assert fetched.result().tolist() == [0] * 16
        assert fetched.done()
        assert empty.result().size == 0
        for call in (lost.result, lambda: lost.result(0), lost.done, buffer.read_async):
            with pytest.raises(DeviceRemoved) as caught:
                call()
            assert str(caught.value) == f"device on '{device.adapter}' is removed: enough; create a new device"
