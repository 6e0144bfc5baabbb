"""Probes: facts about drivers that a kernel measures once per adapter and driver, cached in the user's cache folder."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import wgpu
from numpy.typing import NDArray

from dmlgpu.common.errors import DmlError, InvalidArgument, shown
from dmlgpu.common.files import first_record, whole_file
from dmlgpu.common.folders import FOLDER_VARIABLE, cache_folder, user_caches
from dmlgpu.compiler.target import AdapterInfo, Target
from dmlgpu.compiler.tuned_files import identity, tuned_file
from dmlgpu.runtime.wgpu.errors import fault_of, reason_of
from dmlgpu.runtime.wgpu.libraries import library_of
from dmlgpu.runtime.wgpu.library import DispatchCalls, dispatch_calls
from dmlgpu.runtime.wgpu.waiting import without_signals

FORMAT: Final = 1

CACHED: Final[dict[tuple[str, str], frozenset[str]]] = {}
"""Facts by probe and adapter; bounded by the adapters of the machine."""

FAILURES: Final[dict[tuple[str, str], str]] = {}
"""Reasons why kernels of probes failed in this process, by probe and adapter."""


def _matter(info: AdapterInfo, features: Collection[str]) -> bool:
    """Return True: most facts matter on every adapter."""
    return True


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Facts that a kernel measures on an adapter, and what they decide.

    Attributes:
        name: Name of the folder of the cached facts, and of the list in its files.
        measure: Runs the kernel on a device and returns the names of the facts that hold.
        decide: Returns a target with the field that depends on the facts, from a target and the facts that hold.
        variable: Environment variable that overrides the measurement; empty if there is none.
        values: Facts by value of the variable; None measures them.
        assumed: Facts by kind of adapter, for kinds that are not measured.
        applies: Returns whether the facts matter on an adapter with enabled features; if not, none holds.
        avoided: What kernels avoid if a fact does not hold, with the reason, by fact.
        builtins: names in WGSL that kernels then avoid, by fact.
    """

    name: str
    measure: Callable[[wgpu.GPUDevice], frozenset[str]]
    decide: Callable[[Target, Collection[str]], Target]
    variable: str = ""
    values: Mapping[str, Collection[str] | None] = field(default_factory=dict)
    assumed: Mapping[str, Collection[str]] = field(default_factory=dict)
    applies: Callable[[AdapterInfo, Collection[str]], bool] = _matter
    avoided: Mapping[str, str] = field(default_factory=dict)
    builtins: Mapping[str, Collection[str]] = field(default_factory=dict)

    def facts(
        self, info: AdapterInfo, features: Collection[str], device: wgpu.GPUDevice | None = None
    ) -> Collection[str] | None:
        """Return the facts that kernels of an adapter rely on; None if they must be measured first.

        Args:
            info: The adapter.
            features: Its enabled features.
            device: Device on which facts are measured if they are unknown.

        Raises:
            InvalidArgument: If the environment variable has an unknown value.
        """
        facts = self.given(info, features)
        if facts is None:
            facts = self.known(info)
        return self.measured(device, info) if facts is None and device is not None else facts

    def given(self, info: AdapterInfo, features: Collection[str]) -> Collection[str] | None:
        """Return the facts that hold regardless of the driver; None if a measurement decides.

        Raises:
            InvalidArgument: If the environment variable has an unknown value.
        """
        value = self.requested()
        if not self.applies(info, features):
            return ()
        facts = self.values.get(value)
        return self.assumed.get(info.kind) if facts is None else facts

    def requested(self) -> str:
        """Return the value of the environment variable; empty if it is not set.

        Raises:
            InvalidArgument: If it has an unknown value.
        """
        value = os.environ.get(self.variable, "").strip().lower()
        if value and value not in self.values:
            raise InvalidArgument(f"{self.variable} must be one of {', '.join(self.values)}, got {shown(value)}")
        return value

    def origin(self, info: AdapterInfo) -> str:
        """Return where the facts of an adapter are from, if they are not measured, as a clause; else empty."""
        value = os.environ.get(self.variable, "").strip().lower()
        if value and self.values.get(value) is not None:
            return f"set by {self.variable}"
        return f"assumed for adapters of the kind {info.kind}, not measured" if info.kind in self.assumed else ""

    def known(self, info: AdapterInfo) -> frozenset[str] | None:
        """Return the measured facts of an adapter and its driver from the caches; None if there are none."""
        key = self.name, str(info)
        if key not in CACHED and (path := self.file(info)) is not None:
            content = first_record(path)
            facts = content.get(self.name)
            is_valid = content.get("format") == FORMAT and content.get("adapter") == identity(info)
            if is_valid and isinstance(facts, list):
                CACHED[key] = frozenset(map(str, facts))
        return CACHED.get(key)

    def measured(self, device: wgpu.GPUDevice, info: AdapterInfo) -> frozenset[str]:
        """Measure the facts of an adapter on a device, and cache them.

        If the kernel fails, no fact holds until the next process measures again; ``failure`` returns the reason.
        """
        try:
            facts = without_signals(lambda: self.measure(device))
        except (DmlError, wgpu.GPUError, RuntimeError) as error:
            error.with_traceback(None)  # frames of wgpu-py refer to it, and would keep the device
            FAILURES[self.name, str(info)] = fault_of(error) or reason_of(error)
            return frozenset()
        CACHED[self.name, str(info)] = facts
        path = self.file(info)
        if path is not None:
            content = {"format": FORMAT, "adapter": identity(info), self.name: sorted(facts)}
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                with whole_file(path) as file:
                    file.write(json.dumps(content).encode())
        return facts

    def failure(self, info: AdapterInfo) -> str:
        """Return the error message of the kernel if it failed on an adapter in this process; empty if it did not."""
        return FAILURES.get((self.name, str(info)), "")

    def file(self, info: AdapterInfo) -> Path | None:
        """Return the cache file of an adapter's facts; None if there is no cache."""
        if os.environ.get(FOLDER_VARIABLE) == "off" or user_caches() is None:
            return None
        return tuned_file(info, cache_folder() / self.name)


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
    pipeline, group, buffers = _bound(device, module, contents, bound_bytes)
    _run(device, dispatch_calls(pipeline, group, None, _in_three(workgroups)))
    words = [library_of(device).read(device, buffer).view(np.uint32) for buffer in buffers]
    for buffer in buffers:
        buffer.destroy()
    return words


def seconds_of(
    device: wgpu.GPUDevice,
    module: wgpu.GPUShaderModule,
    contents: Sequence[NDArray[Any]],
    *,
    workgroups: Sequence[int],
    enough: float,
) -> float:
    """Return the time of a dispatch of the entry point ``main`` in seconds, in the fastest of three runs.

    A run has as many dispatches as take a time together: waiting for the device takes time as well.

    Args:
        device: Device to run on.
        module: Its kernel.
        contents: Initial contents of the buffers, as of ``contents_after``.
        workgroups: Number of workgroups per axis.
        enough: Time of a run, in seconds.
    """
    pipeline, group, buffers = _bound(device, module, contents, ())
    calls = dispatch_calls(pipeline, group, None, _in_three(workgroups))

    def run(times: int) -> float:
        start = time.perf_counter()
        _run(device, calls, times)
        library_of(device).read(device, buffers[-1])
        return (time.perf_counter() - start) / times

    run(1)  # drivers compile and allocate at the first dispatch
    times = max(1, min(_MAX_DISPATCHES, round(enough / run(1))))
    seconds = min(run(times) for _ in range(3))
    for buffer in buffers:
        buffer.destroy()
    return seconds


_MAX_DISPATCHES = 256


def _in_three(workgroups: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*workgroups, 1, 1)[:3]
    return x, y, z


def _bound(
    device: wgpu.GPUDevice, module: wgpu.GPUShaderModule, contents: Sequence[NDArray[Any]], bound_bytes: Sequence[int]
) -> tuple[wgpu.GPUComputePipeline, wgpu.GPUBindGroup, list[wgpu.GPUBuffer]]:
    """Return the pipeline of a module, and new buffers that are bound to it."""
    pipeline = device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    copied = wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.UNIFORM | copied
    buffers = [device.create_buffer(size=data.nbytes, usage=usage) for data in contents]
    for buffer, data in zip(buffers, contents, strict=True):
        library_of(device).write(device.queue, buffer, 0, np.frombuffer(data, np.uint8))
    sizes = bound_bytes or [buffer.size for buffer in buffers]
    entries = [
        {"binding": binding, "resource": {"buffer": buffer, "offset": 0, "size": size}}
        for binding, (buffer, size) in enumerate(zip(buffers, sizes, strict=True))
    ]
    return pipeline, device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries), buffers


def _run(device: wgpu.GPUDevice, calls: DispatchCalls, times: int = 1) -> None:
    encoder = device.create_command_encoder()
    run = encoder.begin_compute_pass()
    library_of(device).dispatch(run._internal, [calls] * times)
    run.end()
    device.queue.submit([encoder.finish()])
