"""IREE, which compiles models in ONNX for its first Vulkan device. Tensors stay on it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from iree import compiler, runtime

from dmlgpu.bench.peers.programs import onnx_models
from dmlgpu.bench.peers.worker import Array, NotOffered, PeerCall

TARGET = "vp_android_baseline_2022"
"""A profile that software adapters have."""


def versions() -> dict[str, str]:
    """Return the versions of IREE's compiler and runtime.

    Raises:
        ImportError: If it finds no Vulkan device.
    """
    if "vulkan" not in runtime.query_available_drivers() or not runtime.get_driver("vulkan").query_available_devices():
        raise ImportError("IREE finds no Vulkan device")
    return {name: version(name) for name in ("iree-base-compiler", "iree-base-runtime")}


def prepare(call: PeerCall) -> Module:
    """Compile a call.

    Raises:
        NotOffered: IREE does not compile it.
    """
    return Module(call)


class Module:
    """A call as a compiled module."""

    def __init__(self, call: PeerCall):
        self._module = runtime.load_vm_flatbuffer(_compiled(call), driver="vulkan")
        config = self._module.vm_module  # the function's name is the graph's
        (name,) = [name for name in config.function_names if name == "call"]
        self._function = self._module[name]
        device = runtime.get_device("vulkan")
        self._device = device
        self._sets = [
            [runtime.asdevicearray(device, array.copy()) for array in call.inputs.values()] for _ in range(call.sets)
        ]

    def run(self, index: int) -> list[Any]:
        """Run once and wait."""
        outputs = self._function(*self._sets[index % len(self._sets)])
        return list(outputs) if isinstance(outputs, tuple | list) else [outputs]

    def results(self) -> list[Array]:
        """Return the first set's outputs."""
        return [self._read(output) for output in self.run(0)]

    def _read(self, array: Any) -> Array:
        """Copy a result to the host through a staging buffer."""
        source = array._buffer_view.get_buffer()
        staging = self._device.allocator.allocate_buffer(
            memory_type=int(runtime.MemoryType.HOST_LOCAL | runtime.MemoryType.DEVICE_VISIBLE),
            allowed_usage=int(runtime.BufferUsage.TRANSFER_TARGET | runtime.BufferUsage.MAPPING_SCOPED),
            allocation_size=source.byte_length(),
        )
        done = self._device.create_semaphore(0)
        fences = [runtime.HalFence.create_at(done, value) for value in (0, 1)]
        self._device.queue_copy(source, staging, wait_semaphores=fences[0], signal_semaphores=fences[1])
        fences[1].wait()
        return np.array(staging.map().asarray(array.shape, array.dtype))


def _compiled(call: PeerCall) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        model, text = Path(folder, "call.onnx"), Path(folder, "call.mlir")
        onnx.save(onnx_models.model(call), str(model))
        command = [sys.executable, "-m", "iree.compiler.tools.import_onnx", str(model), "-o", str(text)]
        imported = subprocess.run(command, capture_output=True, text=True, check=False)
        if imported.returncode:
            raise NotOffered(f"IREE does not import it: {imported.stderr.strip()[-300:]}")
        try:
            binary: bytes = compiler.compile_file(
                str(text),
                input_type="onnx",
                target_backends=["vulkan-spirv"],
                extra_args=[f"--iree-vulkan-target={TARGET}"],
            )
        except compiler.CompilerToolError as error:
            raise NotOffered(f"IREE does not compile it: {str(error)[:300]}") from error
        return binary
