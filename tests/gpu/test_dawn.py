"""Dawn as the WebGPU library, in one process with wgpu-native."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import wgpu
from gpu_programs import add, program

from dmlgpu import Device, Kernel, ops
from dmlgpu.common.errors import DeviceRemoved, DmlError, InvalidArgument, InvalidState, OutOfMemory, ShaderError
from dmlgpu.compiler.program import KernelSource, RenderedKernel
from dmlgpu.compiler.target import Profile
from dmlgpu.conformance.cases.registry import case_by_name, case_names
from dmlgpu.conformance.drivers.discovery import LocatedAdapter, with_labels
from dmlgpu.conformance.running.runner import run_case
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.executor import Range, Resources
from dmlgpu.runtime.wgpu import GpuBackend, dawn_adapters
from tests.gpu.usable import identifier

wgpudawn = pytest.importorskip("wgpudawn", reason="Dawn is not installed: pip install 'dmlgpu[dawn]'")
if not dawn_adapters():
    pytest.skip("Dawn finds no adapter on this machine", allow_module_level=True)

INFO = dawn_adapters()[0]
SHARE = 40
"""Of how many quick cases one runs."""
CASES = list(zip(case_names("quick")[::SHARE], itertools.cycle((Profile.CPU, Profile.DISCRETE))))
"""Cases, and whose schedules each takes."""
X = np.random.default_rng(5).standard_normal((64, 64)).astype(np.float32)


@pytest.fixture(scope="module", params=[pytest.param(INFO, id=identifier(INFO))])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    device = Device(request.param)
    yield device
    device.remove()


@pytest.fixture
def fresh() -> Iterator[GpuBackend]:
    backend = GpuBackend(INFO)
    yield backend
    backend.close()


@pytest.mark.parametrize(("name", "profile"), CASES)
def test_cases(device: Device, name: str, profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.backend, "target", replace(device.backend.target, profile=profile))
    verdict = run_case(case_by_name(name), device)
    assert verdict.ok, verdict


def test_both_libraries_compute_in_turn(device: Device) -> None:
    native = Device(next(info for info in adapters() if not info.is_of_dawn))
    for turn in range(3):
        for other in (device, native):
            np.testing.assert_allclose(ops.matmul(X + turn, X, device=other), (X + turn) @ X, rtol=1e-4, atol=1e-4)
    native.remove()


@pytest.mark.parametrize("enable", ["", "enable subgroups;\n"])
def test_own_kernels_use_subgroups(device: Device, enable: str) -> None:
    """The directive is optional, as with wgpu-native: Dawn gets it from the library."""
    if "subgroup" not in INFO.features:
        pytest.skip("the adapter has no subgroups")
    body = "@compute @workgroup_size(1) fn main() { words[0] = subgroupAdd(7u) + u32(subgroupElect()); }"
    source = f"{enable}@group(0) @binding(0) var<storage, read_write> words: array<u32>;\n{body}"
    result: Any = Kernel(source)(outputs={"words": ((1,), "uint32")}, grid=1, device=device)
    assert np.asarray(result).tolist() == [8]


def test_its_label_names_the_library() -> None:
    (located,) = with_labels([LocatedAdapter(INFO, 0)])
    assert located.label.endswith(INFO.backend) and INFO.backend.startswith("Dawn ")
    assert str(INFO).startswith("Dawn ") and ", Dawn 20" in INFO.driver


BROKEN = "@compute @workgroup_size(1)\nfn main() {\n    let x = %s(1);\n}"


def broken(backend: GpuBackend, name: str) -> Callable[[], Any]:
    kernel = RenderedKernel("k", KernelSource(BROKEN % name), (), (1, 1, 1))
    return lambda: backend.prepare(program(backend, kernel))


def test_messages_of_tint_show_the_line(fresh: GpuBackend) -> None:
    with pytest.raises(ShaderError) as caught:
        broken(fresh, "foo")()
    assert str(caught.value) == (
        f"TEST: kernel 'k' does not compile on {fresh.info}: unresolved call target 'foo'\n"
        "  1 | @compute @workgroup_size(1)\n"
        "  2 | fn main() {\n"
        "> 3 |     let x = foo(1);\n"
        "  4 | }"
    )


def test_threads_get_their_own_errors(fresh: GpuBackend) -> None:
    """The package itself would raise an error in the thread that is first to return from C."""
    unexpected: list[str] = []

    def compile_broken(name: str) -> None:
        for _ in range(40):
            try:
                broken(fresh, name)()
                unexpected.append("compiled")
            except ShaderError as error:
                if f"'{name}'" not in str(error):
                    unexpected.append(str(error))

    def compute() -> None:
        for turn in range(40):
            try:
                buffer = fresh.create_buffer(64, "memory")
                fresh.write(buffer, 0, np.full(64, turn, np.uint8))
                if not (fresh.read(buffer, 0, 64) == turn).all():
                    unexpected.append("wrong")
                fresh.destroy_buffer(buffer)
            except DmlError as error:
                unexpected.append(str(error))

    threads = [threading.Thread(target=compile_broken, args=(name,)) for name in ("foo", "bar")]
    threads += [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert unexpected == []


def test_errors_are_those_of_both_packages(fresh: GpuBackend) -> None:
    with pytest.raises(wgpu.GPUValidationError) as caught:
        fresh.wgpu_device.create_shader_module(code="fn (")
    assert isinstance(caught.value, wgpudawn.GPUValidationError)


def test_a_lost_device_is_noticed(fresh: GpuBackend) -> None:
    buffer = fresh.create_buffer(64, "memory")
    fresh.wgpu_device.destroy()
    with pytest.raises(DeviceRemoved, match="the driver lost the device"):
        for _ in range(2):
            fresh.read(buffer, 0, 64)
    assert fresh.removed_reason == "the driver lost the device"


def test_a_buffer_that_its_maker_destroyed_is_rejected(fresh: GpuBackend) -> None:
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
    theirs = fresh.wgpu_device.create_buffer(label="theirs", size=256, usage=usage)
    wrapped = fresh.wrap_buffer(theirs)
    assert fresh.read(wrapped, 0, 256).size == 256
    theirs.destroy()
    with pytest.raises(InvalidState, match=r"theirs.* while destroyed"):
        fresh.read(wrapped, 0, 256)
    assert fresh.wait(fresh.submit([]))


def test_more_memory_than_the_limit_is_rejected(fresh: GpuBackend) -> None:
    with pytest.raises(OutOfMemory, match="allows in one buffer"):
        fresh.create_buffer(fresh.context.limits["max-buffer-size"] + 1, "large")


def test_timestamps_are_not_rounded(fresh: GpuBackend) -> None:
    if not fresh.target.has("timestamp-query"):
        pytest.skip("the adapter has no timestamps")
    source, target = fresh.create_buffer(256, "source"), fresh.create_buffer(256, "target")
    work = fresh.prepare(add(fresh, 1)).bind(Resources((Range(source, 0, 256),), (Range(target, 0, 256),)))
    seconds = [fresh.time(work).seconds for _ in range(20)]
    assert all(0 <= time < 10 for time in seconds)
    assert any(round(time * 1e9) % 100_000 for time in seconds)  # Dawn rounds to 100 microseconds by itself


def test_dropped_devices_give_their_memory_back(without_collections: None) -> None:
    device = Device(INFO)
    ops.matmul(X, X, device=device)
    alive = weakref.ref(device.backend), weakref.ref(device.backend.wgpu_device)
    del device
    assert [reference() for reference in alive] == [None, None]


def test_wrapped_devices_must_be_synchronized() -> None:
    features = ["implicit-device-synchronization"]
    plain, synchronized = (
        wgpudawn.gpu.enumerate_adapters_sync()[0].request_device_sync(required_features=names)
        for names in ([], features)
    )
    with pytest.raises(InvalidArgument, match="must have the feature 'implicit-device-synchronization'"):
        Device.from_wgpu(plain)
    device = Device.from_wgpu(synchronized)
    assert device.adapter.backend == INFO.backend
    np.testing.assert_allclose(ops.add(X, X, device=device), 2 * X)


SCRIPT = """
import sys
import numpy as np
import dmlgpu
from dmlgpu import ops
x = np.ones((64, 64), np.float32)
device = dmlgpu.Device("dawn")
result = ops.matmul(dmlgpu.Tensor(x, device=device), dmlgpu.Tensor(x, device=device))
{end}
"""


@pytest.mark.parametrize("end", ["print(np.asarray(result)[0, 0])", "", "raise SystemExit(3)"])
def test_programs_end_silently(end: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(end=end)], capture_output=True, text=True, check=False)
    expected = "64.0\n" if "print" in end else ""
    assert (done.returncode, done.stdout, done.stderr) == (3 if "Exit" in end else 0, expected, "")


def test_a_machine_without_vulkan_lists_adapters_silently() -> None:
    script = "from dmlgpu.runtime.wgpu import dawn_adapters; print(any(i.api == 'Vulkan' for i in dawn_adapters()))"
    environment = os.environ | {"VK_DRIVER_FILES": os.devnull}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_other_programs_do_not_load_it() -> None:
    script = "import sys, dmlgpu; dmlgpu.Device(sys.argv[1]); print('wgpudawn' in sys.modules)"
    name = adapters()[0].name.partition(" ")[0]
    done = subprocess.run([sys.executable, "-c", script, name], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
