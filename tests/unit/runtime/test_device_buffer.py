"""Buffers: sizes, ranges, bytes in and out."""

import numpy as np
import pytest

from dmlgpu import Buffer, Device, InvalidArgument, InvalidState
from tests.unit.device_objects import raises


@pytest.fixture
def device():
    return Device("numpy")


@pytest.mark.parametrize("size", [0, -4, 6, 1.5, True, None, "16"])
def test_size(device, size):
    with raises(InvalidArgument, f"create_buffer: size must be a positive multiple of 4 bytes, got {size!r}"):
        device.create_buffer(size)


def test_a_new_buffer_holds_zeros(device):
    buffer = device.create_buffer(np.int64(12), "weights")
    assert (buffer.size, buffer.name, buffer.released) == (12, "weights", False)
    assert buffer.read().tolist() == [0] * 12
    assert buffer.read().dtype == np.uint8


@pytest.mark.parametrize("offset", range(5))
@pytest.mark.parametrize("length", range(8))
def test_any_range_is_written_and_read(device, offset, length):
    buffer = device.create_buffer(16)
    buffer.write(bytes([9] * 16))
    buffer.write(bytes(range(length)), offset)
    assert buffer.read().tolist() == [9] * offset + list(range(length)) + [9] * (16 - offset - length)
    assert buffer.read(offset, length).tolist() == list(range(length))


@pytest.mark.parametrize(
    "data",
    [
        np.arange(3, dtype=np.float32),
        np.arange(6, dtype=np.float32)[::2] / 2,
        np.arange(3, dtype=np.float32).tobytes(),
        bytearray(np.arange(3, dtype=np.float32).tobytes()),
        memoryview(np.arange(3, dtype=np.float32)),
        np.asfortranarray(np.arange(3, dtype=np.float32).reshape(1, 3)),
    ],
)
def test_data_that_can_be_written(device, data):
    buffer = device.create_buffer(12)
    buffer.write(data)
    assert buffer.read().view(np.float32).tolist() == [0, 1, 2]


def test_results_of_reads_belong_to_the_caller(device):
    buffer = device.create_buffer(8)
    buffer.read()[:] = 7
    assert buffer.read().tolist() == [0] * 8


@pytest.mark.parametrize(("data", "kind"), [("text", "str"), (3, "int"), (np.array([None]), "an array of object")])
def test_data_that_cannot_be_written(device, data, kind):
    with raises(InvalidArgument, f"buffer of 8 bytes: write takes bytes or a NumPy array of numbers, got {kind}"):
        device.create_buffer(8).write(data)


def test_ranges(device):
    buffer = device.create_buffer(8, "small")
    with raises(InvalidArgument, "buffer 'small': write: bytes 4 to 12 are not inside buffer 'small' (8 bytes)"):
        buffer.write(bytes(8), 4)
    with raises(InvalidArgument, "buffer 'small': read: bytes 4 to 12 are not inside buffer 'small' (8 bytes)"):
        buffer.read(4, 8)
    with raises(InvalidArgument, "buffer 'small': read: offset must be an integer of at least 0, got -4"):
        buffer.read(-4, 4)
    with raises(InvalidArgument, "buffer 'small': read: offset must be an integer of at least 0, got '0'"):
        buffer.read("0")
    with raises(InvalidArgument, "buffer 'small': read: bytes 12 to 12 are not inside buffer 'small' (8 bytes)"):
        buffer.read(12)
    assert buffer.read(8).size == 0


def test_release(device):
    with device.create_buffer(8, "brief") as buffer:
        buffer.write(bytes(8))
    assert buffer.released
    with raises(InvalidState, "buffer 'brief': write after release"):
        buffer.write(bytes(8))
    with raises(InvalidState, "buffer 'brief': read after release"):
        buffer.read()


def test_from_wgpu_needs_wgpu(device):
    with raises(InvalidArgument, f"Buffer.from_wgpu: device on '{device.adapter}' does not run on wgpu"):
        Buffer.from_wgpu(device, object())
