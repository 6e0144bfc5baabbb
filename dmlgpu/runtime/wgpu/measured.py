"""Facts about drivers, measured by a kernel once per adapter and driver and cached in the user's cache folder."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import wgpu
from numpy.typing import NDArray

from dmlgpu.common.errors import DmlError
from dmlgpu.common.files import whole_file
from dmlgpu.common.folders import FOLDER_VARIABLE, cache_folder
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.compiler.tuned_files import identity, tuned_file
from dmlgpu.runtime.wgpu import native

FORMAT: Final = 1


class MeasuredFacts:
    """Names of the facts that hold on each adapter, cached in memory and in files.

    Args:
        name: Name of the folder, and of the list in a file.
        measure: Returns the names of the facts that hold on a device.
    """

    def __init__(self, name: str, measure: Callable[[wgpu.GPUDevice], frozenset[str]]):
        self._name, self._measure = name, measure
        self.cached: dict[str, frozenset[str]] = {}  # bounded by the adapters of the machine

    def known(self, info: AdapterInfo) -> frozenset[str] | None:
        """Return the cached facts of an adapter; None if they must be measured first."""
        key = str(info)
        if key not in self.cached and (facts := self._read(info)) is not None:
            self.cached[key] = facts
        return self.cached.get(key)

    def measured(self, device: wgpu.GPUDevice, info: AdapterInfo) -> frozenset[str]:
        """Measure the facts of an adapter on a device, and cache them.

        If a kernel fails, no fact holds until the next process measures again.
        """
        try:
            facts = self._measure(device)
        except (DmlError, wgpu.GPUError, RuntimeError) as error:
            error.with_traceback(None)  # frames of wgpu-py refer to it, and would keep the device
            return frozenset()
        self.cached[str(info)] = facts
        path = self.file(info)
        if path is not None:
            content = {"format": FORMAT, "adapter": identity(info), self._name: sorted(facts)}
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                with whole_file(path) as file:
                    file.write(json.dumps(content).encode())
        return facts

    def file(self, info: AdapterInfo) -> Path | None:
        """Return the cache file of an adapter's facts; None if there is no cache."""
        if os.environ.get(FOLDER_VARIABLE) == "off":
            return None
        try:
            return tuned_file(info, cache_folder() / self._name)
        except FileNotFoundError:
            return None

    def _read(self, info: AdapterInfo) -> frozenset[str] | None:
        """Return the facts in a file; None if there is none for the adapter and its driver."""
        path = self.file(info)
        if path is None:
            return None
        try:
            content = json.loads(path.read_bytes())
            if content["format"] == FORMAT and content["adapter"] == identity(info):
                return frozenset(map(str, content[self._name]))
        except (OSError, ValueError, LookupError, TypeError):
            pass
        return None


def contents_after(
    device: wgpu.GPUDevice,
    module: wgpu.GPUShaderModule,
    contents: Sequence[NDArray[Any]],
    *,
    workgroups: Sequence[int] = (1,),
    bound_bytes: Sequence[int] = (),
) -> list[NDArray[np.uint32]]:
    """Run the entry point ``main`` of a module on buffers, and return the words of the buffers afterwards.

    No reference to the device is left, and cffi parses no types: wgpu-py's own functions that fill and read buffers do
    not guarantee that.

    Args:
        device: Device to run on.
        module: Its kernel.
        contents: Initial contents of the buffers of the bindings 0, 1 and so on.
        workgroups: Number of workgroups per axis.
        bound_bytes: Bound bytes of each buffer; empty binds whole buffers.
    """
    pipeline = device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    copied = wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.UNIFORM | copied
    buffers = [device.create_buffer(size=data.nbytes, usage=usage) for data in contents]
    for buffer, data in zip(buffers, contents, strict=True):
        native.write(device.queue, buffer, 0, np.frombuffer(data, np.uint8))
    sizes = bound_bytes or [buffer.size for buffer in buffers]
    entries = [
        {"binding": binding, "resource": {"buffer": buffer, "offset": 0, "size": size}}
        for binding, (buffer, size) in enumerate(zip(buffers, sizes, strict=True))
    ]
    group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
    encoder = device.create_command_encoder()
    run = encoder.begin_compute_pass()
    x, y, z = (*workgroups, 1, 1)[:3]
    native.dispatch(run._internal, [native.dispatch_calls(pipeline, group, None, (x, y, z))])
    run.end()
    device.queue.submit([encoder.finish()])
    words = [native.read(device, buffer).view(np.uint32) for buffer in buffers]
    for buffer in buffers:
        buffer.destroy()
    return words
