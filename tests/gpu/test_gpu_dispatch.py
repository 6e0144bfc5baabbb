"""Binding, recording and running hand-written programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import wgpu
from gpu_programs import add, input_slot, kernel, output_slot, program, words

from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Copy, Slot
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.executor import Range, Resources
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.runtime.wgpu.buffers import GpuBuffer

GUARD = 0xDEADBEEF


def run(backend: GpuBackend, work: object) -> None:
    assert backend.wait(backend.submit(work))


def read_words(backend: GpuBackend, buffer: object) -> np.ndarray:
    return backend.read(buffer, 0, buffer.size).view(np.uint32)


def check_offset(backend: GpuBackend, source_offset: int, target_offset: int) -> None:
    source, target = backend.create_buffer(1024, "source"), backend.create_buffer(1024, "target")
    backend.write(source, 0, words(np.arange(256)))
    backend.write(target, 0, words(np.full(256, GUARD)))
    ranges = Resources((Range(source, source_offset, 256),), (Range(target, target_offset, 256),))
    run(backend, backend.prepare(add(backend, 7)).bind(ranges))
    expected = np.full(256, GUARD, np.uint32)
    expected[target_offset // 4 : target_offset // 4 + 64] = np.arange(64) + source_offset // 4 + 7
    np.testing.assert_array_equal(read_words(backend, target), expected)


@pytest.mark.parametrize(("source", "target"), [(0, 0), (16, 0), (0, 16), (240, 752), (256, 272), (768, 768)])
def test_offsets_need_only_16_bytes(backend: GpuBackend, source: int, target: int) -> None:
    check_offset(backend, source, target)


@pytest.mark.parametrize(("source", "target"), [(0, 0), (16, 48), (752, 240)])
def test_parameters_come_as_a_uniform_without_immediates(adapter: AdapterInfo, source: int, target: int) -> None:
    backend = GpuBackend(adapter, disabled_features=["immediates"])
    assert not backend.target.has("immediates")
    check_offset(backend, source, target)
    backend.close()


def test_kernels_that_copy_become_copies_between_buffers(adapter: AdapterInfo) -> None:
    """The kernel stores sevens: what arrives tells whether it ran."""
    backend = GpuBackend(adapter)
    source, target = backend.create_buffer(1024, "source"), backend.create_buffer(1024, "target")
    backend.write(source, 0, words(np.arange(256)))
    sevens = kernel(backend, "s1[b1 + i] = 7u;", [input_slot(), output_slot()])

    def copied(size: int, there: GpuBuffer) -> np.ndarray:
        copying = program(backend, replace(sevens, copy=Copy(0, 4, 1, 8, size)))
        ranges = Resources((Range(source, 0, 256),), (Range(there, 512, 256),))
        backend.write(there, 512, words(np.full(64, GUARD)))
        run(backend, backend.prepare(copying).bind(ranges))
        return read_words(backend, there)[128:192]

    seven = np.full(64, 7)
    moved = np.array([GUARD, GUARD, *range(1, 33), *(GUARD,) * 30])
    np.testing.assert_array_equal(copied(128, target), moved)
    np.testing.assert_array_equal(copied(128, source), seven)  # one buffer
    maker = backend.wgpu_device.create_buffer(size=1024, usage=wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC)
    own = backend.wrap_buffer(maker, "own")
    ranges = Resources((Range(source, 0, 256),), (Range(own, 512, 256),))
    run(backend, backend.prepare(program(backend, replace(sevens, copy=Copy(0, 4, 1, 8, 128)))).bind(ranges))
    np.testing.assert_array_equal(read_words(backend, own)[128:192], seven)  # which nothing may be copied into
    backend.close()


def test_dispatches_of_a_list_run_in_order_and_see_each_other(backend: GpuBackend) -> None:
    a, b = backend.create_buffer(256, "a"), backend.create_buffer(256, "b")
    first, second = backend.prepare(add(backend, 1)), backend.prepare(add(backend, 2))
    there = first.bind(Resources((Range(a, 0, 256),), (Range(b, 0, 256),)))
    back = second.bind(Resources((Range(b, 0, 256),), (Range(a, 0, 256),)))
    run(backend, [*there, *back] * 500)
    np.testing.assert_array_equal(read_words(backend, a), np.full(64, 1500))
    np.testing.assert_array_equal(read_words(backend, b), np.full(64, 1498))


def test_parameters_survive_a_change_of_pipeline_and_of_slot_count(backend: GpuBackend) -> None:
    buffer, single = backend.create_buffer(1024, "buffer"), [output_slot()]
    copies = [backend.prepare(add(backend, value)) for value in (100, 200)]
    fill = backend.prepare(program(backend, kernel(backend, "s0[b0 + i] = 5u;", single)))
    # The same base offsets throughout, so that recording has something to skip.
    work = [
        *copies[0].bind(Resources((Range(buffer, 16, 256),), (Range(buffer, 272, 256),))),
        *copies[1].bind(Resources((Range(buffer, 272, 256),), (Range(buffer, 528, 256),))),
        *fill.bind(Resources((), (Range(buffer, 16, 256),))),
        *copies[0].bind(Resources((Range(buffer, 16, 256),), (Range(buffer, 272, 256),))),
    ]
    run(backend, work)
    result = read_words(backend, buffer)
    np.testing.assert_array_equal(result[4:68], np.full(64, 5))
    np.testing.assert_array_equal(result[68:132], np.full(64, 105))
    np.testing.assert_array_equal(result[132:196], np.full(64, 300))
    assert not result[:4].any()
    assert not result[196:].any()


def test_copies_stand_in_order_between_dispatches(backend: GpuBackend) -> None:
    a, b, c = (backend.create_buffer(256, name) for name in "abc")
    executable = backend.prepare(add(backend, 1))
    work = [
        *executable.bind(Resources((Range(a, 0, 256),), (Range(b, 0, 256),))),
        backend.copy(b, 0, c, 128, 128),
        *executable.bind(Resources((Range(c, 0, 256),), (Range(a, 0, 256),))),
        backend.copy(a, 0, b, 0, 8),
    ]
    run(backend, work)
    np.testing.assert_array_equal(read_words(backend, c), [0] * 32 + [1] * 32)
    np.testing.assert_array_equal(read_words(backend, a), [1] * 32 + [2] * 32)
    np.testing.assert_array_equal(read_words(backend, b), [1] * 64)


def test_temporary_and_persistent_slots_lie_at_their_offsets(backend: GpuBackend) -> None:
    persistent, temporary = Slot(Role.PERSISTENT, 0, 256, 256), Slot(Role.TEMPORARY, 0, 512, 256)
    first = kernel(backend, "s1[b1 + i] = s0[b0 + i] * 3u;", [persistent, temporary])
    second = kernel(backend, "s1[b1 + i] = s0[b0 + i] + 1u;", [temporary, output_slot()])
    initialization = kernel(backend, "s1[b1 + i] = s0[b0 + i] + i;", [input_slot(1), persistent])
    executable = backend.prepare(
        program(backend, first, second, initialization=(initialization,), temporary_size=768, persistent_size=512)
    )
    assert (executable.temporary_size, executable.persistent_size) == (768, 512)
    owned, persistent_buffer, scratch, target = (
        backend.create_buffer(1280, name) for name in ("owned", "kept", "scratch", "target")
    )
    backend.write(owned, 0, words(np.full(320, 10)))
    run(
        backend,
        executable.bind_initialization(
            Resources((None, Range(owned, 0, 256)), (), None, Range(persistent_buffer, 256, 512))
        ),
    )
    np.testing.assert_array_equal(read_words(backend, persistent_buffer)[128:192], 10 + np.arange(64))
    resources = Resources((), (Range(target, 0, 256),), Range(scratch, 256, 768), Range(persistent_buffer, 256, 512))
    run(backend, executable.bind(resources))
    np.testing.assert_array_equal(read_words(backend, scratch)[192:256], 3 * (10 + np.arange(64)))
    np.testing.assert_array_equal(read_words(backend, target)[:64], 3 * (10 + np.arange(64)) + 1)


def test_one_buffer_serves_as_input_and_output_of_a_dispatch(backend: GpuBackend) -> None:
    arena = backend.create_buffer(1024, "arena")
    backend.write(arena, 0, words(np.arange(256)))
    work = backend.prepare(add(backend, 1)).bind(Resources((Range(arena, 0, 256),), (Range(arena, 0, 256),)))
    run(backend, [*work, *work])
    np.testing.assert_array_equal(read_words(backend, arena), [*range(2, 66), *range(64, 256)])


def test_eight_slots_and_their_base_offsets(backend: GpuBackend) -> None:
    slots = [*(input_slot(index, 64) for index in range(7)), output_slot(0, 64)]
    total = " + ".join(f"s{n}[b{n} + i]" for n in range(7))
    executable = backend.prepare(program(backend, kernel(backend, f"if (i < 16u) {{ s7[b7 + i] = {total}; }}", slots)))
    source, target = backend.create_buffer(1024, "source"), backend.create_buffer(1024, "target")
    backend.write(source, 0, words(np.arange(256)))
    offsets = [16 * index for index in (1, 5, 9, 17, 33, 2, 40)]
    inputs = tuple(Range(source, offset, 64) for offset in offsets)
    run(backend, executable.bind(Resources(inputs, (Range(target, 112, 64),))))
    expected = sum(offset // 4 + np.arange(16) for offset in offsets)
    np.testing.assert_array_equal(read_words(backend, target)[28:44], expected)


def test_equal_sources_share_a_pipeline(fresh: GpuBackend) -> None:
    first = fresh.prepare(add(fresh, 31, label="first"))
    second = fresh.prepare(add(fresh, 31, label="second"))
    assert [item.label for item in first.new] == ["first"]
    assert second.new == []


def test_preparing_runs_nothing(backend: GpuBackend) -> None:
    buffer = backend.create_buffer(256, "buffer")
    executable = backend.prepare(program(backend, kernel(backend, "s0[b0 + i] += 77u;", [output_slot()])))
    work = executable.bind(Resources((), (Range(buffer, 0, 256),)))
    run(backend, [])
    assert not read_words(backend, buffer).any()
    run(backend, work)
    np.testing.assert_array_equal(read_words(backend, buffer), np.full(64, 77))


def test_a_wgpu_device_made_elsewhere_is_used_and_left_alive(adapter: AdapterInfo) -> None:
    from dmlgpu.runtime.wgpu.adapter import wgpu_adapter

    device = wgpu_adapter(adapter).request_device_sync()
    backend = GpuBackend.from_wgpu(device)
    assert not backend.target.features
    assert backend.wgpu_device is device
    check_offset(backend, 16, 32)
    backend.close()
    assert device.create_buffer(size=64, usage=128).size == 64
    device.destroy()
