"""Reading during other work, on every adapter: through cached staging buffers, without new objects for each frame."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import wgpu
from gpu_programs import words
from wgpu.backends.wgpu_native._api import GPUObjectBase

from dmlgpu import Buffer, Device
from dmlgpu.common.errors import DeviceRemoved, InvalidState, OutOfMemory
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.wgpu import GpuBackend, transfers
from tests.readbacks import Frames, Readbacks


@pytest.fixture(scope="module", params=["as it comes", "without mappable-primary-buffers"])
def new_device(request: pytest.FixtureRequest, adapter: AdapterInfo) -> Callable[..., Device]:
    disabled = ["mappable-primary-buffers"] if "without" in request.param else []
    return partial(Device, adapter, disabled_features=disabled)


@pytest.fixture(scope="module")
def device(request: pytest.FixtureRequest, new_device: Callable[..., Device]) -> Device:
    device = new_device()
    request.addfinalizer(device.remove)
    return device


@pytest.fixture
def creations(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts wgpu's objects as they are made, by class."""
    counts: Counter[str] = Counter()
    original = GPUObjectBase._ot.increase

    def increase(name: str, amount: int = 0) -> None:
        counts[name] += 1
        original(name, amount)

    monkeypatch.setattr(GPUObjectBase._ot, "increase", increase)
    return counts


class TestReadbacks(Readbacks):
    """On every adapter of the machine, with and without memory that can be read in place."""


def test_nothing_is_made_for_a_frame_once_warm(device: Device, creations: Counter[str]) -> None:
    frames = Frames(device, 3)
    pending: list[Any] = []

    def run(numbers: range) -> None:
        for number in numbers:
            frames.execute(number)
            pending.append((number, frames.target.read_async(), frames.target.read_async(0, 4)))
            if len(pending) == 3:
                first, readback, part = pending.pop(0)
                frames.check(first, readback.result())
                assert part.result().view(np.uint32) == frames.expected(first).flat[0]
                frames.check(number, frames.target.read())

    run(range(6))
    allocated = device.backend.allocated  # type: ignore[attr-defined]
    creations.clear()
    run(range(6, 12))
    assert not creations
    assert device.backend.allocated == allocated  # type: ignore[attr-defined]


def test_readbacks_of_several_threads(device: Device) -> None:
    buffer = device.create_buffer(1 << 16)
    failures: list[BaseException] = []
    arrays: list[Any] = []
    shared = buffer.read_async()

    def work(value: int) -> None:
        try:
            own = device.create_buffer(256)
            for turn in range(10):
                own.write(words([100 * value + turn] * 64))
                readback = own.read_async()
                own.write(words([0] * 64))
                np.testing.assert_array_equal(readback.result().view(np.uint32), 100 * value + turn)
            arrays.append(shared.result())
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []
    assert len({id(array) for array in arrays}) == 1
    assert not arrays[0].any()


@pytest.mark.parametrize("drop", [Buffer.release, None], ids=["released", "dropped"])
def test_giving_memory_back_waits_for_no_thread(new_device: Callable[..., Device], drop: Any) -> None:
    """Garbage is collected anywhere, also where the executor is locked, for which another thread waits."""
    device = new_device()
    backend: Any = device.backend
    written, unused = device.create_buffer(256), [device.create_buffer(256)]
    before = backend.allocated

    def give_back() -> None:
        with backend.context.lock:
            writing.start()
            time.sleep(0.1)  # by now it has the device's lock, and waits for the executor's
            if drop is not None:
                drop(unused[0])
            unused.clear()

    writing = threading.Thread(target=written.write, args=(words([1] * 64),), daemon=True)
    giving = threading.Thread(target=give_back, daemon=True)
    giving.start()
    giving.join(30)
    writing.join(30)
    assert not giving.is_alive() and not writing.is_alive()
    np.testing.assert_array_equal(written.read().view(np.uint32), 1)
    assert backend.allocated == before - 256


def test_staging_buffers_are_kept_within_limits(
    new_device: Callable[..., Device], creations: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = new_device()
    monkeypatch.setattr(transfers, "_MAX_KEPT_STAGING", 3)
    monkeypatch.setattr(transfers, "_MAX_KEPT_BYTES", 1 << 20)
    buffer = device.create_buffer(2 << 20)
    creations.clear()

    def read(count: int, size: int) -> int:
        """Start several reads at once, and return the number of staging buffers created."""
        before = creations["GPUBuffer"]
        for readback in [buffer.read_async(0, size) for _ in range(count)]:
            assert not readback.result().any()
        return creations["GPUBuffer"] - before

    assert read(5, 256) == 5
    assert read(5, 256) == 2
    assert read(1, 1 << 19) == 1
    assert read(2, 256) == 0  # the one of 512 KiB is the oldest now
    assert read(1, 1 << 19) == 0
    assert read(1, 1 << 20) == 1
    assert read(1, 1 << 20) == 0
    assert read(1, 1 << 19) == 1  # too large together
    assert read(1, 2 << 20) == 1  # larger than all that is kept, but alone
    assert read(1, 2 << 20) == 0
    assert read(1, 256) == 1
    device.remove()


def test_a_dropped_readback_gives_its_memory_back(device: Device) -> None:
    buffer = device.create_buffer(256)
    readback = buffer.read_async()
    staging = weakref.ref(readback._reading.staging)  # type: ignore[union-attr]
    assert staging() is not None
    del readback
    assert staging() is None
    assert not buffer.read_async().result().any()


def test_the_wait_ends_with_the_time_limit(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = device.backend
    assert isinstance(backend, GpuBackend)
    buffer = backend.create_buffer(64, "buffer")
    reading = backend.read_async(buffer, 0, 64)
    with monkeypatch.context() as patch:
        patch.setattr(backend.queue, "wait", lambda serial, timeout: (serial, timeout) != (serial, 0.5))
        assert reading.result(0.5) is None
    result = reading.result(60.0)
    assert result is not None
    assert not result.any()
    assert reading.is_done()


def test_invalid_arguments_are_rejected(
    backend: GpuBackend, fresh: GpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = backend.create_buffer(64, "buffer")
    backend.destroy_buffer(buffer)
    with pytest.raises(InvalidState) as caught:
        backend.read_async(buffer, 0, 64)
    assert str(caught.value) == "read: buffer 'buffer' was released"

    theirs = backend.wgpu_device.create_buffer(label="theirs", size=64, usage=wgpu.BufferUsage.STORAGE)
    wrapped = backend.wrap_buffer(theirs)
    theirs.destroy()
    with pytest.raises(InvalidState) as caught:
        backend.read_async(wrapped, 0, 64)
    assert str(caught.value) == f"read: {backend.info} rejects it: Buffer with 'theirs' label has been destroyed"

    buffer = fresh.create_buffer(64, "buffer")

    def refuse(**_: object) -> None:
        raise wgpu.GPUOutOfMemoryError("Not enough memory left.")

    with monkeypatch.context() as patch:
        patch.setattr(fresh.wgpu_device, "create_buffer", refuse)
        with pytest.raises(OutOfMemory) as full:
            fresh.read_async(buffer, 0, 64)
        assert str(full.value).startswith("read of 64 bytes of buffer 'buffer': ")
    reading = fresh.read_async(buffer, 0, 64)
    fresh.wgpu_device.destroy()
    for _ in range(2):
        with pytest.raises(DeviceRemoved) as lost:
            reading.result()
        assert str(lost.value).endswith(f"{fresh.info}: the driver lost the device; create a new device")
