"""What is rejected, in which words; the device works on afterwards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import wgpu
from gpu_programs import add, input_slot, kernel, output_slot, program, words

from dmlgpu.common.errors import (
    BindingError,
    DeviceRemoved,
    DmlError,
    InvalidArgument,
    InvalidState,
    NotSupported,
    OutOfMemory,
    ShaderError,
)
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import KernelSource, RenderedKernel, Slot
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.executor import Range, Resources
from dmlgpu.runtime.wgpu import GpuBackend, adapters


def message(kind: type[Exception], action: Callable[[], object]) -> str:
    with pytest.raises(kind) as caught:
        action()
    assert type(caught.value) is kind
    return str(caught.value)


def bound(backend: GpuBackend) -> tuple[object, object, object]:
    source, target = backend.create_buffer(256, "source"), backend.create_buffer(256, "target")
    work = backend.prepare(add(backend, 1)).bind(Resources((Range(source, 0, 256),), (Range(target, 0, 256),)))
    return source, target, work


def test_a_type_error_in_a_shader_shows_the_lines_around_it(backend: GpuBackend) -> None:
    text = (
        "// one\n// two\n// three\n// four\n@compute @workgroup_size(1)\nfn main() {\n    let x: u32 = 1.5;\n}\n// nine"
    )
    bad = program(backend, RenderedKernel("gather map", KernelSource(text), (), (1, 1, 1)))
    assert message(ShaderError, lambda: backend.prepare(bad)) == (
        f"TEST: kernel 'gather map' does not compile on {backend.info}: "
        "the type of `x` is expected to be `u32`, but got `{AbstractFloat}`; definition of `x`\n"
        "  4 | // four\n"
        "  5 | @compute @workgroup_size(1)\n"
        "  6 | fn main() {\n"
        "> 7 |     let x: u32 = 1.5;\n"
        "  8 | }\n"
        "  9 | // nine"
    )


def test_an_unknown_name_in_a_shader_is_named(backend: GpuBackend) -> None:
    text = "@compute @workgroup_size(1)\nfn main() {\n    let x = foo(1);\n}"
    bad = program(backend, RenderedKernel("k", KernelSource(text), (), (1, 1, 1)))
    assert message(ShaderError, lambda: backend.prepare(bad)) == (
        f"TEST: kernel 'k' does not compile on {backend.info}: no definition in scope for identifier: `foo`; "
        "unknown identifier\n"
        "  1 | @compute @workgroup_size(1)\n"
        "  2 | fn main() {\n"
        "> 3 |     let x = foo(1);\n"
        "  4 | }"
    )


def test_a_shader_that_only_validation_rejects(backend: GpuBackend) -> None:
    text = "@compute @workgroup_size(1)\nfn main() {\n    var x = vec2<u32>(1u);\n    x += vec3<u32>(1u);\n}"
    words_of_naga = "of type Vector { size: %s, scalar: Scalar { kind: Uint, width: 4 } }"
    bad = program(backend, RenderedKernel("k", KernelSource(text), (), (1, 1, 1)))
    assert message(ShaderError, lambda: backend.prepare(bad)) == (
        f"TEST: kernel 'k' does not compile on {backend.info}: Entry point main at Compute is invalid: "
        f"Operation Add can't work with [3] ({words_of_naga % 'Bi'}) and [5] ({words_of_naga % 'Tri'})\n"
        "  1 | @compute @workgroup_size(1)\n"
        "  2 | fn main() {\n"
        "  3 |     var x = vec2<u32>(1u);\n"
        "> 4 |     x += vec3<u32>(1u);\n"
        "  5 | }"
    )


def test_a_shader_without_main(backend: GpuBackend) -> None:
    bad = program(
        backend, RenderedKernel("k", KernelSource("@compute @workgroup_size(1)\nfn other() {}"), (), (1, 1, 1))
    )
    assert message(ShaderError, lambda: backend.prepare(bad)) == (
        f"TEST: kernel 'k' does not compile on {backend.info}: Unable to find entry point 'main'"
    )


def test_a_grid_beyond_the_limit(backend: GpuBackend) -> None:
    wide = program(backend, RenderedKernel("wide", KernelSource(""), (), (65536, 1, 1)))
    assert message(NotSupported, lambda: backend.prepare(wide)) == (
        f"TEST: kernel 'wide' has a grid of (65536, 1, 1), more than the 65535 workgroups that {backend.info} "
        "allows along an axis"
    )


def test_too_many_buffers(backend: GpuBackend) -> None:
    most = backend.target.bindings
    many = program(backend, RenderedKernel("many", KernelSource(""), (input_slot(),) * (most + 1), (1, 1, 1)))
    assert message(NotSupported, lambda: backend.prepare(many)) == (
        f"TEST: kernel 'many' binds {most + 1} buffers, more than the {most} possible on {backend.info}"
    )


def test_a_binding_beyond_the_limit_is_rejected_with_both_sizes(backend: GpuBackend) -> None:
    limit = backend.info.limits["max-storage-buffer-binding-size"]
    big = program(
        backend, RenderedKernel("big", KernelSource(""), (input_slot(), output_slot(1, limit + 4)), (1, 1, 1))
    )
    assert message(NotSupported, lambda: backend.prepare(big)) == (
        f"TEST: kernel 'big' binds {limit + 4:,} bytes of output 1, more than the {limit:,} that {backend.info} "
        "allows in one binding"
    )


def test_a_binding_beyond_the_limit_for_its_offset(backend: GpuBackend) -> None:
    limit = backend.info.limits["max-storage-buffer-binding-size"]
    executable = backend.prepare(
        program(backend, kernel(backend, "s0[b0] = 1u;", [output_slot(0, limit)], label="all"))
    )
    buffer = backend.create_buffer(64, "small")  # sizes are checked before the driver sees the buffer
    assert message(NotSupported, lambda: executable.bind(Resources((), (Range(buffer, 16, limit),)))) == (
        f"TEST: kernel 'all' binds {limit + 16:,} bytes of output 0, more than the {limit:,} that {backend.info} "
        "allows in one binding"
    )


def test_a_program_for_immediates_on_a_device_without_them(adapter: AdapterInfo) -> None:
    backend = GpuBackend(adapter, disabled_features=["immediates"])
    wrong = program(backend, RenderedKernel("k", KernelSource(""), (), (1, 1, 1)))
    wrong = type(wrong)(wrong.operator, wrong.kernels, immediates=True)
    assert message(NotSupported, lambda: backend.prepare(wrong)) == (
        f"TEST: kernel 'k' is rendered for immediates, which {adapter} lacks"
    )
    backend.close()


def test_missing_and_small_resources(backend: GpuBackend) -> None:
    executable = backend.prepare(add(backend, 1))
    buffer = backend.create_buffer(256, "buffer")
    full = Range(buffer, 0, 256)
    assert message(BindingError, lambda: executable.bind(Resources((None,), (full,)))) == (
        "TEST: kernel 'add' needs input 0, which is not bound"
    )
    assert message(BindingError, lambda: executable.bind(Resources((full,), ()))) == (
        "TEST: kernel 'add' needs output 0, which is not bound"
    )
    assert message(BindingError, lambda: executable.bind(Resources((full,), (Range(buffer, 0, 252),)))) == (
        "TEST: kernel 'add' needs 256 bytes of output 0, got 252"
    )
    arena = program(backend, kernel(backend, "s0[b0 + i] = 1u;", [Slot(Role.TEMPORARY, 0, 256, 256)], label="arena"))
    small = Resources((), (), Range(buffer, 0, 256))
    assert message(BindingError, lambda: backend.prepare(arena).bind(small)) == (
        "TEST: kernel 'arena' needs 512 bytes of temporary 0, got 256"
    )


def test_a_range_past_the_end_of_its_buffer(backend: GpuBackend) -> None:
    short, other = backend.create_buffer(256, "short"), backend.create_buffer(256, "other")
    executable = backend.prepare(add(backend, 1))
    text = message(DmlError, lambda: executable.bind(Resources((Range(short, 16, 256),), (Range(other, 0, 256),))))
    assert text.startswith(f"TEST: kernel 'add': {backend.info} rejects it: ")


@pytest.mark.parametrize("which", [0, 1])
def test_work_on_a_released_buffer_is_rejected(backend: GpuBackend, which: int) -> None:
    source, target, work = bound(backend)
    backend.wait(backend.submit(work))
    backend.destroy_buffer((source, target)[which])
    name = ("source", "target")[which]
    for _ in range(2):
        assert message(InvalidState, lambda: backend.submit(work)) == f"add: buffer '{name}' was released"
    assert message(InvalidState, lambda: backend.time(work)) == f"add: buffer '{name}' was released"
    assert (
        message(InvalidState, lambda: backend.read((source, target)[which], 0, 4))
        == f"read: buffer '{name}' was released"
    )
    assert message(InvalidState, lambda: backend.write((source, target)[which], 0, words([1]))) == (
        f"write: buffer '{name}' was released"
    )
    backend.destroy_buffer((source, target)[which])
    other, _, fine = bound(backend)
    backend.wait(backend.submit(fine))
    assert not backend.read(other, 0, 256).any()


def test_a_copy_of_a_released_buffer_is_rejected(backend: GpuBackend) -> None:
    a, b = backend.create_buffer(64, "a"), backend.create_buffer(64, "b")
    work = [backend.copy(a, 0, b, 0, 64)]
    backend.destroy_buffer(b)
    assert message(InvalidState, lambda: backend.submit(work)) == "copy 'a' to 'b': buffer 'b' was released"


def test_releasing_a_buffer_with_unsent_writes(backend: GpuBackend) -> None:
    a, b = backend.create_buffer(64, "a"), backend.create_buffer(64, "b")
    backend.write(a, 0, words([1] * 16))
    backend.write(b, 0, words([2] * 16))
    backend.destroy_buffer(a)
    np.testing.assert_array_equal(backend.read(b, 0, 64).view(np.uint32), [2] * 16)


def test_releasing_a_buffer_in_flight(backend: GpuBackend) -> None:
    source, target, work = bound(backend)
    serial = backend.submit([*work] * 100)
    backend.destroy_buffer(source)
    assert backend.wait(serial)
    np.testing.assert_array_equal(backend.read(target, 0, 256).view(np.uint32), [1] * 64)


def test_recorded_work_is_checked_again_after_a_buffer_is_released(backend: GpuBackend) -> None:
    source, target, first = bound(backend)
    other, copied = backend.create_buffer(256, "other"), backend.create_buffer(256, "copied")
    (second,) = backend.prepare(add(backend, 2, "second")).bind(
        Resources((Range(target, 0, 256),), (Range(other, 0, 256),))
    )
    for name, buffer, work in (
        ("copy 'other' to 'copied'", copied, [*first, second, backend.copy(other, 0, copied, 0, 256)]),
        ("second", other, [*first, second]),
        ("add", source, [*first]),
    ):
        recording = backend.record(work)
        backend.submit(recording)
        backend.destroy_buffer(backend.create_buffer(256, "unrelated"))
        backend.submit(recording)
        backend.destroy_buffer(buffer)
        backend.write(target, 0, words([7] * 64))
        expected = f"{name}: buffer '{buffer.label}' was released"
        for _ in range(2):
            assert message(InvalidState, lambda: backend.submit(recording)) == expected  # noqa: B023 - called at once
        if name != "add":
            assert message(InvalidState, lambda: backend.submit(first, recording)) == expected  # noqa: B023
        np.testing.assert_array_equal(backend.read(target, 0, 256).view(np.uint32), [7] * 64)


def test_a_copy_within_one_buffer(backend: GpuBackend) -> None:
    a = backend.create_buffer(64, "a")
    assert message(InvalidArgument, lambda: backend.copy(a, 0, a, 32, 32)) == (
        "copy 'a' to 'a': source and destination must be different buffers"
    )


def test_a_rejected_list_names_the_culprit_and_runs_nothing(backend: GpuBackend) -> None:
    _, target, work = bound(backend)
    (item,) = work
    bad = item._replace(x=70000, name="too wide")
    refused = [item, bad, item]
    recorded = backend.record(refused)
    for sequence in (refused, recorded, recorded):
        text = message(DmlError, lambda: backend.submit(sequence))  # noqa: B023 - called at once
        assert text.startswith(f"too wide: {backend.info} rejects it: ")
        assert "65535" in text
    text = message(DmlError, lambda: backend.submit(work, recorded))
    assert text.startswith(f"too wide: {backend.info} rejects it: ")
    assert not backend.read(target, 0, 256).any()
    backend.wait(backend.submit(work))
    np.testing.assert_array_equal(backend.read(target, 0, 256).view(np.uint32), [1] * 64)


def test_a_rejected_copy_names_itself(backend: GpuBackend) -> None:
    a, b = backend.create_buffer(64, "a"), backend.create_buffer(64, "b")
    text = message(DmlError, lambda: backend.submit([backend.copy(a, 0, b, 32, 64)]))
    assert text.startswith(f"copy 'a' to 'b': {backend.info} rejects it: ")


def test_a_buffer_beyond_the_adapters_limit(backend: GpuBackend) -> None:
    limit = backend.info.limits["max-buffer-size"]
    assert message(OutOfMemory, lambda: backend.create_buffer(limit + 4, "huge")) == (
        f"buffer 'huge': {limit + 4:,} bytes exceed the {limit:,} that {backend.info} allows in one buffer"
    )


def test_the_memory_budget(adapter: AdapterInfo) -> None:
    backend = GpuBackend(adapter, memory_budget=4096)
    assert backend.memory_budget == 4096
    first = backend.create_buffer(3000, "first")
    assert message(OutOfMemory, lambda: backend.create_buffer(1100, "second")) == (
        "buffer 'second': 1,100 bytes exceed the memory budget of 4,096 bytes, of which 3,000 are in use"
    )
    backend.destroy_buffer(first)
    backend.destroy_buffer(first)
    assert backend.allocated == 0
    backend.create_buffer(4096, "second")
    assert backend.allocated == 4096
    backend.time(backend.prepare(program(backend, kernel(backend, "_ = i;", []))).bind(Resources((), ())))
    assert backend.allocated == 4096
    backend.close()


def test_software_adapters_have_a_budget_by_default(backend: GpuBackend) -> None:
    if not backend.info.is_software:
        pytest.skip(f"{backend.info} is hardware and guards its own memory")
    assert backend.memory_budget is not None
    assert 1 << 28 < backend.memory_budget < 1 << 50


def test_a_closed_device_rejects_everything(fresh: GpuBackend) -> None:
    source, target, work = bound(fresh)
    executable = fresh.prepare(add(fresh, 1))
    recording = fresh.record(work)
    reading, fetched = fresh.read_async(target, 0, 256), fresh.read_async(target, 0, 256)
    assert not fetched.result().any()
    serial = fresh.submit(recording)
    fresh.close()
    fresh.close()
    expected = f"{fresh.info}: the device was closed; create a new device"
    assert fresh.removed_reason == "the device was closed"
    resources = Resources((Range(source, 0, 256),), (Range(target, 0, 256),))
    for action in (
        lambda: fresh.submit(work),
        lambda: fresh.submit(recording),
        lambda: fresh.submit([]),
        lambda: fresh.create_buffer(64, "x"),
        lambda: fresh.write(source, 0, words([1])),
        lambda: fresh.read(source, 0, 64),
        lambda: fresh.read_async(source, 0, 64),
        reading.result,
        lambda: fresh.prepare(add(fresh, 99)),
        lambda: executable.bind(resources),
        lambda: fresh.time(work),
        lambda: fresh.wait(serial + 1),
        lambda: fresh.wait(serial + 1, 1.0),
    ):
        assert message(DeviceRemoved, action) == expected
    assert fresh.is_done(serial)
    assert fresh.wait(serial)
    assert not fetched.result().any()
    fresh.destroy_buffer(source)


def test_a_device_that_its_owner_destroyed(fresh: GpuBackend) -> None:
    source, _, work = bound(fresh)
    fresh.wait(fresh.submit(work))
    fresh.wgpu_device.destroy()
    text = message(DeviceRemoved, lambda: fresh.submit(work))
    assert text == f"command list: {fresh.info}: the driver lost the device; create a new device"
    assert fresh.removed_reason == "the driver lost the device"
    again = f"{fresh.info}: the driver lost the device; create a new device"
    assert message(DeviceRemoved, lambda: fresh.submit(work)) == again
    assert message(DeviceRemoved, lambda: fresh.read(source, 0, 64)) == again


@pytest.mark.parametrize("call", ["read", "begin", "fetch", "write", "create", "compile", "bind", "time", "submit"])
def test_each_call_notices_a_lost_device(fresh: GpuBackend, call: str) -> None:
    source, target, work = bound(fresh)
    executable = fresh.prepare(add(fresh, 1))
    recording = fresh.record(work)
    fresh.wait(fresh.submit(recording))
    reading = fresh.read_async(source, 0, 64)
    fresh.wgpu_device.destroy()
    actions = {
        "read": lambda: fresh.read(source, 0, 64),
        "begin": lambda: fresh.read_async(source, 0, 64),
        "fetch": reading.result,
        "submit": lambda: fresh.submit(recording),
        "write": lambda: fresh.write(source, 0, words([1])),
        "create": lambda: fresh.create_buffer(64, "x"),
        "compile": lambda: fresh.prepare(add(fresh, 98)),
        "bind": lambda: executable.bind(Resources((Range(source, 0, 256),), (Range(target, 0, 256),))),
        "time": lambda: fresh.time(work),
    }
    assert message(DeviceRemoved, actions[call]).endswith(
        f"{fresh.info}: the driver lost the device; create a new device"
    )


def test_wrapping_buffers(backend: GpuBackend) -> None:
    usage = wgpu.BufferUsage
    device = backend.wgpu_device
    own = device.create_buffer(label="theirs", size=256, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)
    wrapped, target = backend.wrap_buffer(own), backend.create_buffer(256, "target")
    assert (wrapped.size, wrapped.label) == (256, "theirs")
    backend.write(wrapped, 0, words(np.arange(64)))
    ranges = Resources((Range(wrapped, 0, 256),), (Range(target, 0, 256),))
    work = backend.prepare(add(backend, 3)).bind(ranges)
    backend.wait(backend.submit(work))
    np.testing.assert_array_equal(backend.read(target, 0, 256).view(np.uint32), np.arange(64) + 3)
    backend.destroy_buffer(wrapped)
    assert bytes(device.queue.read_buffer(own)) == words(np.arange(64)).tobytes()
    assert message(InvalidState, lambda: backend.submit(work)) == "add: buffer 'theirs' was released"


def uses_of(backend: GpuBackend, buffer: wgpu.GPUBuffer) -> dict[str, Callable[[], object]]:
    """All that can be done with a wrapped buffer."""
    wrapped, target = backend.wrap_buffer(buffer), backend.create_buffer(256, "target")
    work = backend.prepare(add(backend, 1)).bind(Resources((Range(wrapped, 0, 256),), (Range(target, 0, 256),)))
    recording = backend.record(work)
    return {
        "add": lambda: backend.submit(work),
        " add": lambda: backend.submit(recording),
        "copy 'theirs' to 'target'": lambda: backend.submit([backend.copy(wrapped, 0, target, 0, 256)]),
        "copy 'target' to 'theirs'": lambda: backend.submit([backend.copy(target, 0, wrapped, 0, 256)]),
        "add ": lambda: backend.time(work),
        "write": lambda: backend.write(wrapped, 0, words(np.arange(64))),
        "read": lambda: backend.read(wrapped, 0, 256),
        "read ": lambda: backend.read_async(wrapped, 0, 256),
    }


def test_a_wrapped_buffer_that_its_maker_destroys(backend: GpuBackend) -> None:
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
    theirs = backend.wgpu_device.create_buffer(label="theirs", size=256, usage=usage)
    uses = uses_of(backend, theirs)
    for use in uses.values():
        use()
    theirs.destroy()
    for name, use in uses.items():
        assert message(InvalidState, use) == (
            f"{name.strip()}: {backend.info} rejects it: Buffer with 'theirs' label has been destroyed"
        )
    backend.wait(backend.submit([]))


@pytest.mark.parametrize("answered", [True, False])
def test_a_wrapped_buffer_that_its_maker_maps(backend: GpuBackend, answered: bool) -> None:
    if not backend.target.has("mappable-primary-buffers"):
        pytest.skip("on this adapter no buffer can be both mapped and bound")
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.MAP_READ
    theirs = backend.wgpu_device.create_buffer(label="theirs", size=256, usage=usage)
    uses = uses_of(backend, theirs)
    for use in uses.values():
        use()
    mapping = theirs.map_async("READ")
    if answered:
        mapping.sync_wait()
    for name, use in uses.items():
        assert message(InvalidState, use) == (
            f"{name.strip()}: wrapped buffer 'theirs' is mapped; its maker must unmap it first"
        )
    mapping.sync_wait()
    theirs.unmap()
    for use in uses.values():
        use()


def test_wrapping_a_buffer_of_the_wrong_usage(backend: GpuBackend) -> None:
    usage = wgpu.BufferUsage
    poor = backend.wgpu_device.create_buffer(size=64, usage=usage.COPY_SRC | usage.UNIFORM)
    assert message(InvalidArgument, lambda: backend.wrap_buffer(poor, "poor")) == (
        "buffer 'poor': usage must include STORAGE, got COPY_SRC | UNIFORM"
    )


def test_wrapping_a_buffer_of_another_device(backend: GpuBackend, fresh: GpuBackend) -> None:
    foreign = fresh.wgpu_device.create_buffer(size=64, usage=wgpu.BufferUsage.STORAGE)
    assert message(InvalidArgument, lambda: backend.wrap_buffer(foreign, "foreign")) == (
        "buffer 'foreign': belongs to another wgpu device"
    )


def test_binding_a_buffer_of_another_device(backend: GpuBackend, fresh: GpuBackend) -> None:
    foreign, own = fresh.create_buffer(256, "foreign"), backend.create_buffer(256, "own")
    executable = backend.prepare(add(backend, 1))
    text = message(DmlError, lambda: executable.bind(Resources((Range(foreign, 0, 256),), (Range(own, 0, 256),))))
    assert text.startswith(f"TEST: kernel 'add': {backend.info} rejects it: ")


def test_an_adapter_that_is_not_this_machines(adapter: AdapterInfo) -> None:
    other = AdapterInfo("Imaginary 9000", "Vulkan", "discrete", "", "", limits=adapter.limits)
    listing = "".join(f"\n  {index}: {info}" for index, info in enumerate(adapters()))
    with pytest.raises(LookupError) as caught:
        GpuBackend(other)
    assert str(caught.value) == f"no adapter matches 'Vulkan: Imaginary 9000'; available adapters:{listing}"
