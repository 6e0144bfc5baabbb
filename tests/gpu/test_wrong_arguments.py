"""Wrong arguments on every adapter: rejected before anything native is called, and the device stays usable."""

from __future__ import annotations

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Buffer, Device, InvalidArgument, OutOfMemory
from dmlgpu.common.errors import shown
from tests.life_cycle import row, subtract
from tests.unit.device_objects import raises
from tests.wrong_arguments import HUGE, Hostile, check_refusal, public_calls

SHARE = ("Buffer", "CommandList", "Device.create", "Device.name", "Fence", "Queue", "evaluate")
"""What reaches native code; the rest is the same on all adapters."""


def test_each_argument_that_reaches_native_code(fresh):
    device = Device.from_backend(fresh)
    labels = set()
    for call in public_calls(device):
        if call.label.startswith(SHARE):
            for argument, arguments in call.with_wrong_values():
                check_refusal(call.label, argument, call.function, arguments)
            call.function(**call.good)
            labels.add(call.label)
    assert {"Buffer.read", "CommandList.copy_buffer", "Device.create_buffer", "Fence.wait", "evaluate"} <= labels
    (result,) = dmlgpu.evaluate(subtract(), [row(5, 6, 7, 8), row(1, 2, 3, 4)], device)
    assert result.tolist() == row(4, 4, 4, 4).tolist()


def test_sizes_that_no_adapter_has(backend):
    device = Device.from_backend(backend)
    for size in (2**48, 2**63 - 4, 2**63, 2**64 - 4):
        with pytest.raises(OutOfMemory, match=rf"^buffer 'unnamed': {size:,} bytes exceed the .* in one buffer$"):
            device.create_buffer(size)
    for size in (2**64, 4 * HUGE):
        with raises(
            InvalidArgument, f"create_buffer: size must be a positive multiple of 4 bytes below 2^64, got {shown(size)}"
        ):
            device.create_buffer(size)


@pytest.mark.parametrize("kind", [np.uint8, np.uint64, np.array])
def test_numpys_integers(backend, kind):
    buffer = Device.from_backend(backend).create_buffer(kind(112), "weights ²")
    buffer.write(bytes([1, 2, 3]), kind(109))
    assert buffer.read(kind(110), kind(2)).tolist() == [2, 3]
    with pytest.raises(InvalidArgument, match=r"bytes 110 to 230 are not inside"):
        buffer.read(kind(110), kind(120))


def test_objects_of_wgpu_are_checked(backend):
    device = Device.from_backend(backend)
    for wrong in (None, 1, "device", object(), Hostile(), backend, backend.wgpu_device):
        with raises(InvalidArgument, f"Buffer.from_wgpu: wgpu_buffer must be a GPUBuffer, got {type(wrong).__name__}"):
            Buffer.from_wgpu(device, wrong)
    for wrong in (1, "\udc80", b"x", Hostile()):
        check_refusal("Buffer.from_wgpu", "name", device.wrap_buffer, {"wgpu_buffer": None, "name": wrong})
    with raises(InvalidArgument, "Buffer.from_wgpu: device must be a Device, got GpuBackend"):
        Buffer.from_wgpu(backend, None)
    with raises(InvalidArgument, "Device.from_wgpu: wgpu_device must be a GPUDevice, got Device"):
        Device.from_wgpu(device)
    over = Device.from_wgpu(backend.wgpu_device, memory_budget=np.int64(256), disabled_features={"shader-f16"})
    assert over.create_buffer(np.int64(256)).size == 256
    for argument, wrong in (
        ("memory_budget", "1"),
        ("disabled_features", "shader-f16"),
        ("deterministic", None),
        ("precise", None),
    ):
        arguments = {"wgpu_device": backend.wgpu_device, argument: wrong}
        check_refusal("Device.from_wgpu", argument, Device.from_wgpu, arguments)
