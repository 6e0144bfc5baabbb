"""Writing and reading buffers."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from gpu_programs import add, words

from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.executor import Range, Resources
from dmlgpu.runtime.wgpu import GpuBackend


@pytest.fixture(params=["as it comes", "without mappable-primary-buffers"])
def executor(request: pytest.FixtureRequest, adapter: AdapterInfo) -> GpuBackend:
    disabled = ["mappable-primary-buffers"] if "without" in request.param else []
    backend = GpuBackend(adapter, disabled_features=disabled)
    request.addfinalizer(backend.close)
    return backend


@pytest.mark.parametrize("size", [4, 8, 12, 20, 252, 256, 260, 65532, 65536, 65540, 1 << 20])
def test_round_trip(executor: GpuBackend, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    buffer = executor.create_buffer(size, "buffer")
    assert not executor.read(buffer, 0, size).any()
    executor.write(buffer, 0, data)
    np.testing.assert_array_equal(executor.read(buffer, 0, size), data)
    result = executor.read(buffer, 0, size)
    result[:] = 0  # the caller's own
    np.testing.assert_array_equal(executor.read(buffer, 0, size), data)


@pytest.mark.parametrize(("offset", "size"), [(0, 4), (4, 4), (4, 8), (8, 12), (12, 20), (1020, 4), (4, 1020), (36, 0)])
def test_ranges_at_multiples_of_4(executor: GpuBackend, offset: int, size: int) -> None:
    buffer = executor.create_buffer(1024, "buffer")
    data = np.random.default_rng(1).integers(0, 256, 1024, np.uint8)
    executor.write(buffer, 0, data)
    np.testing.assert_array_equal(executor.read(buffer, offset, size), data[offset : offset + size])
    patch = np.full(size, 0xAA, np.uint8)
    executor.write(buffer, offset, patch)
    data[offset : offset + size] = patch
    np.testing.assert_array_equal(executor.read(buffer, 0, 1024), data)


def test_writes_and_work_keep_their_order(executor: GpuBackend) -> None:
    source, target = executor.create_buffer(256, "source"), executor.create_buffer(256, "target")
    work = executor.prepare(add(executor, 1)).bind(Resources((Range(source, 0, 256),), (Range(target, 0, 256),)))
    executor.write(source, 0, words(np.full(64, 10)))
    executor.submit(work)
    executor.write(source, 0, words(np.full(64, 20)))
    np.testing.assert_array_equal(executor.read(target, 0, 256).view(np.uint32), np.full(64, 11))
    executor.submit(work)
    np.testing.assert_array_equal(executor.read(target, 0, 256).view(np.uint32), np.full(64, 21))


def test_data_that_are_no_plain_array(executor: GpuBackend) -> None:
    buffer = executor.create_buffer(64, "buffer")
    data = np.arange(128, dtype=np.uint8)[::2]
    data.flags.writeable = False
    executor.write(buffer, 0, data)
    np.testing.assert_array_equal(executor.read(buffer, 0, 64), np.arange(0, 128, 2))


def test_large_buffers_and_many_writes(executor: GpuBackend) -> None:
    size = 48 << 20
    buffer = executor.create_buffer(size, "large")
    for value in (1, 2, 3):
        executor.write(buffer, 0, np.full(size, value, np.uint8))
    result = executor.read(buffer, 0, size)
    assert (result == 3).all()
    executor.destroy_buffer(buffer)


def test_reading_while_other_threads_submit(executor: GpuBackend) -> None:
    source, target = executor.create_buffer(256, "source"), executor.create_buffer(256, "target")
    executor.write(source, 0, words(np.arange(64)))
    work = executor.prepare(add(executor, 5)).bind(Resources((Range(source, 0, 256),), (Range(target, 0, 256),)))
    executor.wait(executor.submit(work))
    failures: list[BaseException] = []

    def repeat(action: object) -> None:
        try:
            for _ in range(60):
                action()
        except BaseException as failure:
            failures.append(failure)

    def read() -> None:
        np.testing.assert_array_equal(executor.read(target, 0, 256).view(np.uint32), np.arange(64) + 5)

    def submit() -> None:
        executor.wait(executor.submit(work))

    threads = [threading.Thread(target=repeat, args=(action,)) for action in (read, submit, read, submit)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []
