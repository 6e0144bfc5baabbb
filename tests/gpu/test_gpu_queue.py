"""Serial numbers, waiting, threads, times."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from gpu_programs import add, kernel, output_slot, program, words

from dmlgpu.common.errors import InvalidArgument, InvalidState
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.executor import Range, Resources
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.runtime.wgpu.queue import BATCH, MAX_STAGED, STAGED_BYTES

SPIN = "var x = s0[b0 + i]; for (var k = 0u; k < %du; k++) { x = x * 1664525u + 1013904223u; } s0[b0 + i] = x;"


def slow_work(backend: GpuBackend) -> Sequence[object]:
    """Work of some milliseconds, on a CPU and on a GPU."""
    statement = SPIN % (4000 if backend.info.is_software else 200_000)
    buffer = backend.create_buffer(1 << 18, "slow")
    executable = backend.prepare(program(backend, kernel(backend, statement, [output_slot(0, 1 << 18)], grid=1024)))
    return executable.bind(Resources((), (Range(buffer, 0, 1 << 18),)))


def small_work(backend: GpuBackend, value: int = 1) -> tuple[object, Sequence[object]]:
    source, target = backend.create_buffer(256, "source"), backend.create_buffer(256, "target")
    backend.write(source, 0, words(np.arange(64)))
    executable = backend.prepare(add(backend, value))
    return target, executable.bind(Resources((Range(source, 0, 256),), (Range(target, 0, 256),)))


def test_serial_numbers_count_up_and_are_done_after_waiting(backend: GpuBackend) -> None:
    _, work = small_work(backend)
    serials = [backend.submit(work) for _ in range(5)]
    assert serials == list(range(serials[0], serials[0] + 5))
    assert backend.wait(serials[-1])
    assert all(backend.is_done(serial) for serial in serials)
    assert all(backend.wait(serial, 0.0) for serial in serials)


def test_enqueued_work_is_one_submission_which_reads_and_waits_send(fresh: GpuBackend) -> None:
    target, work = small_work(fresh)
    fresh.wait(fresh.submit(work))
    before = fresh.queue.submitted
    serials = {fresh.enqueue(work) for _ in range(5)}
    assert (serials, fresh.queue.submitted) == ({before + 1}, before)
    assert fresh.wait(before + 1) and fresh.queue.submitted == before + 1
    serial = fresh.enqueue(fresh.record(work))
    assert np.array_equal(fresh.read(target, 0, 256).view(np.uint32), np.arange(64) + 1) and fresh.is_done(serial)
    before = fresh.queue.submitted
    fresh.enqueue(work)
    assert fresh.submit(work) == fresh.queue.submitted == before + 2
    for _ in range(BATCH):
        fresh.enqueue(work)
    assert fresh.queue.submitted == before + 3


def test_work_that_is_followed_shares_the_submission_of_a_read(fresh: GpuBackend) -> None:
    target, work = small_work(fresh)
    fresh.wait(fresh.submit(work))
    before = fresh.queue.submitted
    fresh.enqueue([*work] * BATCH, is_followed=True)
    assert fresh.queue.submitted == before
    reading = fresh.read_async(target, 0, 256)
    assert fresh.queue.submitted == before + 1
    data = reading.result()
    assert data is not None and np.array_equal(data.view(np.uint32), np.arange(64) + 1)


def test_small_writes_share_the_submission_of_enqueued_work(fresh: GpuBackend) -> None:
    source, targets = fresh.create_buffer(256, "source"), [fresh.create_buffer(256, f"{index}") for index in range(3)]
    executable = fresh.prepare(add(fresh, 1))
    works = [executable.bind(Resources((Range(source, 0, 256),), (Range(target, 0, 256),))) for target in targets]
    fresh.wait(fresh.submit(works[0]))
    before = fresh.queue.submitted
    for index, work in enumerate(works):
        fresh.write(source, 0, words(np.arange(64) * 10**index))
        fresh.enqueue(work)
        fresh.write(source, 4, words(np.array([77])))  # after the work, and before that of the next one
    assert fresh.queue.submitted == before
    fresh.enqueue(works[2])
    results = [fresh.read(target, 0, 256).view(np.uint32) for target in targets]
    expected = [np.arange(64) * 10**index + 1 for index in range(3)]
    expected[2][1] = 78
    assert all(np.array_equal(result, values) for result, values in zip(results, expected, strict=True))


def test_large_writes_and_many_small_ones_send_enqueued_work(fresh: GpuBackend) -> None:
    _, work = small_work(fresh)
    other = fresh.create_buffer(STAGED_BYTES, "other")
    for size, writes in ((MAX_STAGED + 4, 1), (MAX_STAGED, STAGED_BYTES // MAX_STAGED)):
        fresh.wait(fresh.enqueue(work))
        before = fresh.queue.submitted
        fresh.enqueue(work)
        for index in range(writes):
            assert fresh.queue.submitted == before
            fresh.write(other, index * size, np.full(size, index + 1, np.uint8))
        assert fresh.queue.submitted == before + 1
        written = fresh.read(other, 0, size * writes)
        assert np.array_equal(written, np.repeat(np.arange(1, writes + 1, dtype=np.uint8), size))


def test_a_write_comes_after_enqueued_work(fresh: GpuBackend) -> None:
    source, target = fresh.create_buffer(256, "source"), fresh.create_buffer(256, "target")
    fresh.write(source, 0, words(np.arange(64)))
    work = fresh.prepare(add(fresh, 1)).bind(Resources((Range(source, 0, 256),), (Range(target, 0, 256),)))
    fresh.enqueue(work)
    fresh.write(source, 0, words(np.full(64, 100)))
    assert np.array_equal(fresh.read(target, 0, 256).view(np.uint32), np.arange(64) + 1)


def test_a_buffer_of_enqueued_work_lives_until_it_is_sent(fresh: GpuBackend) -> None:
    source, target = fresh.create_buffer(256, "source"), fresh.create_buffer(256, "target")
    fresh.write(source, 0, words(np.arange(64)))
    work = fresh.prepare(add(fresh, 1)).bind(Resources((Range(source, 0, 256),), (Range(target, 0, 256),)))
    fresh.enqueue(work)
    fresh.destroy_buffer(source)
    assert np.array_equal(fresh.read(target, 0, 256).view(np.uint32), np.arange(64) + 1)
    with pytest.raises(InvalidState, match="released"):
        fresh.enqueue(work)


def test_a_recording_runs_repeatedly(backend: GpuBackend) -> None:
    """Between copies and within passes: what is set for one dispatch is not left over for the next."""
    low, high = 0, 272  # not aligned as bindings are, so that parameters differ
    a, b, c, d = (backend.create_buffer(high + 256, name) for name in "abcd")
    ones, twos = backend.prepare(add(backend, 1)), backend.prepare(add(backend, 2))

    def dispatch(executable: Any, source: object, start: int, target: object, end: int) -> list[object]:
        return [*executable.bind(Resources((Range(source, start, 256),), (Range(target, end, 256),)))]

    work = [
        backend.copy(a, high, b, low, 256),
        *dispatch(ones, a, low, c, low),
        *dispatch(ones, a, high, c, high),  # other parameters
        *dispatch(twos, c, high, d, high),  # another pipeline, the same parameters
        *dispatch(ones, c, high, d, low),
        backend.copy(d, high, a, low, 256),
        backend.copy(d, low, c, low, 256),
        *dispatch(ones, c, low, d, low),
        *dispatch(ones, c, low, d, low),
    ]
    recording = backend.record(work)
    assert list(recording) == work
    values = np.arange(64) * 7
    for turn in range(3):
        values = values + turn
        backend.write(a, high, words(values))
        assert backend.wait(backend.submit(recording))
        results = [backend.read(buffer, start, 256).view(np.uint32) for buffer in (a, b, c, d) for start in (low, high)]
        expected = [values + 3, values, values, 0 * values, values + 2, values + 1, values + 3, values + 3]
        np.testing.assert_array_equal(results, expected)


def test_several_sequences_are_one_submission(backend: GpuBackend) -> None:
    a, b, c = (backend.create_buffer(256, name) for name in "abc")
    ones, twos = (
        backend.prepare(add(backend, value)).bind(Resources((Range(source, 0, 256),), (Range(target, 0, 256),)))
        for value, source, target in ((1, a, b), (2, b, a))
    )
    recordings = backend.record(ones), backend.record([backend.copy(a, 0, c, 0, 256)])
    before = backend.submit()
    backend.write(a, 0, words(np.arange(64)))
    assert backend.submit(recordings[0], twos, recordings[1], recordings[0]) == before + 1
    result = [backend.read(buffer, 0, 256).view(np.uint32) for buffer in (a, b, c)]
    np.testing.assert_array_equal(result, [np.arange(64) + more for more in (3, 4, 3)])


def test_waiting_for_a_serial_that_was_never_submitted(backend: GpuBackend) -> None:
    latest = backend.submit([])
    with pytest.raises(InvalidArgument) as caught:
        backend.wait(latest + 1)
    assert str(caught.value) == f"wait: submission {latest + 1} was never made, the latest is {latest}"
    assert not backend.is_done(latest + 1)


def test_work_is_not_done_before_it_is(backend: GpuBackend) -> None:
    slow, (target, fast) = slow_work(backend), small_work(backend)
    backend.wait(backend.submit([*slow, *fast]))
    backend.write(target, 0, words([0] * 64))
    first = backend.submit(slow)
    second = backend.submit([*slow, *slow, *fast])
    if backend.info.backend != "OpenGL":  # whose software driver runs work within the submission
        assert not backend.is_done(second)
        assert not backend.wait(second, 0.001)
    assert backend.wait(first)
    assert backend.is_done(first)
    assert backend.wait(second, 60.0)
    np.testing.assert_array_equal(backend.read(target, 0, 256).view(np.uint32), np.arange(64) + 1)


def test_waiting_for_early_work_does_not_wait_for_later(backend: GpuBackend) -> None:
    if backend.info.backend == "OpenGL":
        pytest.skip("OpenGL's software driver runs work within the submission")
    slow, (_, fast) = slow_work(backend), small_work(backend)
    backend.wait(backend.submit([*slow, *fast]))
    early, late = backend.submit(fast), backend.submit([*slow] * 4)
    assert backend.wait(early)
    assert not backend.is_done(late)
    assert backend.wait(late)


def test_several_threads_share_a_device(backend: GpuBackend) -> None:
    failures: list[BaseException] = []

    def work(value: int) -> None:
        try:
            for turn in range(10):
                target, dispatches = small_work(backend, 1000 + value * 16 + turn % 3)
                assert backend.wait(backend.submit(dispatches), 30.0)
                expected = np.arange(64) + 1000 + value * 16 + turn % 3
                np.testing.assert_array_equal(backend.read(target, 0, 256).view(np.uint32), expected)
                backend.destroy_buffer(target)
        except BaseException as failure:
            failures.append(failure)

    run_threads([threading.Thread(target=work, args=(value,)) for value in range(4)])
    assert failures == []


def test_a_device_per_thread(adapter: AdapterInfo) -> None:
    failures: list[BaseException] = []

    def work(value: int) -> None:
        try:
            backend = GpuBackend(adapter)
            target, dispatches = small_work(backend, value)
            for _ in range(20):
                backend.wait(backend.submit(dispatches))
            np.testing.assert_array_equal(backend.read(target, 0, 256).view(np.uint32), np.arange(64) + value)
            backend.close()
        except BaseException as failure:
            failures.append(failure)

    run_threads([threading.Thread(target=work, args=(value,)) for value in range(3)])
    assert failures == []


def run_threads(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_a_process_may_end_while_work_is_under_way(adapter: AdapterInfo) -> None:
    script = f"""
from dmlgpu import Tensor, ops
x = Tensor([[1.0, 2.0]], device={str(adapter)!r})
y = ops.softmax(x)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_times_come_from_the_device_where_it_has_timestamps(backend: GpuBackend) -> None:
    slow, (_, fast) = slow_work(backend), small_work(backend)
    backend.wait(backend.submit([*slow, *fast]))
    start = time.perf_counter()
    timing = backend.time(slow)
    elapsed = time.perf_counter() - start
    assert timing.source == ("gpu" if backend.target.has("timestamp-query") else "wall clock")
    assert timing.parts == ()
    assert elapsed / 10 < timing.seconds <= elapsed
    quick = backend.time(fast)
    assert 0 < quick.seconds < timing.seconds


def test_times_of_parts(backend: GpuBackend) -> None:
    slow, (target, fast) = slow_work(backend), small_work(backend, 9)
    backend.wait(backend.submit([*slow, *fast]))
    other = backend.create_buffer(256, "other")
    timing = backend.time([*fast, *slow, backend.copy(target, 0, other, 0, 256)], parts=True)
    np.testing.assert_array_equal(backend.read(other, 0, 256).view(np.uint32), np.arange(64) + 9)
    if timing.source == "gpu":
        assert len(timing.parts) == 3
        assert timing.parts[1] == max(timing.parts)
        assert sum(timing.parts) <= timing.seconds * 1.001


def test_times_fall_back_to_the_wall_clock(adapter: AdapterInfo) -> None:
    backend = GpuBackend(adapter, disabled_features=["timestamp-query"])
    target, work = small_work(backend, 4)
    timing = backend.time(work, parts=True)
    assert (timing.source, timing.parts) == ("wall clock", ())
    assert timing.seconds > 0
    np.testing.assert_array_equal(backend.read(target, 0, 256).view(np.uint32), np.arange(64) + 4)
    assert backend.time([]).source == "wall clock"
    backend.close()
