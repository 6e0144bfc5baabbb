"""Pipelines, created once per rendered source and cached within limits."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import wgpu

from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import ShaderError
from dmlgpu.compiler.program import Checks, RenderedKernel
from dmlgpu.compiler.target import PARAMETER_BYTES, AdapterInfo
from dmlgpu.runtime.progress import counter
from dmlgpu.runtime.rendered import shader_error
from dmlgpu.runtime.wgpu import releases
from dmlgpu.runtime.wgpu.context import Context
from dmlgpu.runtime.wgpu.errors import fault_of, line_of, reason_of
from dmlgpu.runtime.wgpu.library import release
from dmlgpu.runtime.wgpu.queue import GpuQueue

DEFAULT_LIMITS: Final = CacheLimits(entries=1024, size=256 << 20)
"""Default limits of a device's cache of pipelines, which do not count those in use."""

BYTES_PER_CHARACTER: Final = {"llvmpipe": 190, "SwiftShader": 60}
"""Bytes of memory of a pipeline per character of its source, by driver: the mean of softmax, addition, GELU, GEMM and
reduction, measured by ``python benchmarks/pipeline_memory.py``. llvmpipe takes 130 to 250, SwiftShader 40 to 85."""

OTHER_BYTES_PER_CHARACTER: Final = 200
"""The same for drivers that were not measured. Pipelines of hardware take less."""

_Key: TypeAlias = tuple[str, int, bool, bool]
"""Source, number of storage bindings, and whether immediates and a uniform bring parameters."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class GpuPipelines:
    """The device's pipelines by source and number of bindings, and their layouts by that number.

    A pipeline lives while it is referenced by an executable, by bound work, or by the LRU cache. Equal kernels share a
    live pipeline.

    Layouts are explicit: automatic ones drop the bindings that a shader does not use.

    Attributes:
        cache: Recently used pipelines; a request for any other pipeline counts as a miss.
        translates_late: Whether the driver compiles a pipeline when it is dispatched first, not when it is made.
    """

    def __init__(self, context: Context, queue: GpuQueue):
        self._context, self._queue = context, queue
        self._bytes_per_character = bytes_per_character(context.info)
        # OpenGL's one context is used by one thread at a time.
        self._is_serial = context.info.backend == "OpenGL"
        self.translates_late = context.info.api == "Vulkan" and context.info.is_software
        # Bounded: a kernel has at most MAX_BINDINGS bindings.
        self._layouts: dict[tuple[int, bool, bool], tuple[Any, Any]] = {}
        self.living: WeakValueDictionary[_Key, Any] = WeakValueDictionary()
        self.cache: Cache[_Key, Any] = Cache(DEFAULT_LIMITS)
        self._seconds, self._characters = 0.0, 0

    def __len__(self) -> int:
        """Return the number of live pipelines."""
        return len(self.living)

    def size_of(self, wgsl: str) -> int:
        """Estimate the bytes of the pipeline of a source."""
        return self._bytes_per_character * len(wgsl)

    @property
    def seconds_per_character(self) -> float:
        """Mean seconds that the driver took per character of compiled source."""
        return (self._seconds + self._queue.translated) / max(self._characters, 1)

    def layout(self, bindings: int, immediates: bool, uniform: bool) -> Any:
        """Return the bind-group layout of kernels by their number of bindings. Call with the context's lock held."""
        return self._layout(bindings, immediates, uniform)[0]

    def get(self, operator: str, kernel: RenderedKernel, immediates: bool) -> Any:
        """Return a kernel's pipeline. Raises as ``get_all``."""
        (pipeline,), _ = self.get_all(operator, [kernel], immediates)
        return pipeline

    def get_all(
        self, operator: str, kernels: Sequence[RenderedKernel], immediates: bool
    ) -> tuple[list[Any], list[RenderedKernel]]:
        """Return the pipelines of kernels, and the kernels whose pipelines are new.

        New ones are made in parallel and without the context's lock, so that other threads use the device meanwhile;
        when two threads make equal ones at the same time, both get the one that is there first.

        Raises:
            ShaderError: If a text does not compile; for the first kernel of which that is so.
            DeviceRemoved: If the device is gone.
        """
        keys = [(kernel.wgsl, kernel.binding_count, immediates, kernel.needs_uniform(immediates)) for kernel in kernels]
        pipelines = {key: pipeline for key in dict.fromkeys(keys) if (pipeline := self.cache.get(key)) is not None}
        missing: dict[_Key, RenderedKernel] = {}
        for key, kernel in zip(keys, kernels, strict=True):
            if key not in pipelines:
                missing.setdefault(key, kernel)
        new: list[RenderedKernel] = []
        if missing:
            with self._context.lock if self._is_serial else contextlib.nullcontext():
                missing_pipelines, new = self._make(operator, missing, immediates)
            pipelines |= missing_pipelines
        return [pipelines[key] for key in keys], new

    def _make(
        self, operator: str, missing: Mapping[_Key, RenderedKernel], immediates: bool
    ) -> tuple[dict[_Key, Any], list[RenderedKernel]]:
        """Create pipelines that the cache lacks; return them and the kernels of new ones."""
        with self._context.lock:
            self._context.check()
            self._context.deferred.run()
            pipelines = {key: pipeline for key in missing if (pipeline := self.living.get(key)) is not None}
            absent = [key for key in missing if key not in pipelines]
            layouts = {key: self._layout(*key[1:])[1] for key in absent}
        start = time.perf_counter()
        count = None if self.translates_late else counter([missing[key] for key in absent])

        def compile_one(key: _Key) -> Any:
            pipeline = self.create_pipeline(operator, missing[key], layouts[key])
            if count is not None:
                count(missing[key])
            return pipeline

        compiled = in_parallel(compile_one, absent, 1 if self._is_serial else cores())
        self._seconds += time.perf_counter() - start
        self._characters += sum(len(key[0]) for key in absent)
        with self._context.lock:
            self._context.check()  # else ``close`` would not know of them
            for key, pipeline in zip(absent, compiled, strict=True):
                pipelines[key] = self.living.setdefault(key, pipeline)
            for key, kernel in missing.items():
                self.cache.put(key, pipelines[key], self.size_of(kernel.wgsl))
        return pipelines, [
            missing[key] for key, pipeline in zip(absent, compiled, strict=True) if pipelines[key] is pipeline
        ]

    def close(self) -> None:
        """Release all pipelines, including those in use. Call after the device is lost or closed, and after the last
        submission.

        Does not wait for pipelines under construction: the constructing thread drops them if the device is gone.
        """
        with self._context.lock:
            self.cache.clear()
            self._layouts.clear()
            for pipeline in list(self.living.values()):
                release(pipeline)
            self._context.deferred.run()

    def compile_uncached(self, operator: str, kernel: RenderedKernel, immediates: bool) -> None:
        """Compile a kernel and drop the pipeline. Raises as ``get_all``."""
        with self._context.lock:
            self._context.check()
            layout = self._layout(kernel.binding_count, immediates, kernel.needs_uniform(immediates))[1]
        releases.adopt(self._context, self._create(operator, kernel, layout))

    def create_pipeline(self, operator: str, kernel: RenderedKernel, layout: Any) -> Any:
        """Compile a kernel, and return its pipeline."""
        pipeline = self._create(operator, kernel, layout)
        # OpenGL frees a pipeline at once, and its context is best left to the threads that use it.
        if self._context.info.backend != "OpenGL":
            releases.watch(pipeline, self._queue, self.size_of(kernel.wgsl))
        return releases.adopt(self._context, pipeline)

    def _create(self, operator: str, kernel: RenderedKernel, layout: Any) -> Any:
        device, library = self._context.device, self._context.library
        try:
            if kernel.checks is Checks.ALL:
                module = library.create_module(device, kernel.label, kernel.wgsl)
            else:
                bounds_loops = kernel.checks is Checks.LOOPS
                module = library.create_unchecked_module(device, kernel.label, kernel.wgsl, bounds_loops)
            compute = {"module": module, "entry_point": "main"}
            return device.create_compute_pipeline(label=kernel.label, layout=layout, compute=compute)
        except wgpu.GPUValidationError as error:
            if "is lost" in str(error):
                raise self._context.translate(error, operator) from error
            raise ShaderError(compile_error(operator, kernel, str(self._context.info), error)) from error
        except wgpu.GPUError as error:
            raise self._context.translate(error, f"{operator}: kernel {kernel.label!r}") from error

    def _layout(self, bindings: int, immediates: bool, uniform: bool) -> tuple[Any, Any]:
        key = bindings, immediates, uniform
        if key not in self._layouts:
            device = self._context.device
            types = ["storage"] * bindings + ["uniform"] * uniform
            group = device.create_bind_group_layout(
                entries=[
                    {"binding": binding, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                    for binding, kind in enumerate(types)
                ]
            )
            self._layouts[key] = (
                group,
                device.create_pipeline_layout(
                    bind_group_layouts=[group], immediate_size=PARAMETER_BYTES if immediates else 0
                ),
            )
        return self._layouts[key]


def bytes_per_character(info: AdapterInfo) -> int:
    """Return the bytes of an adapter's pipelines per character of their source."""
    for driver, size in BYTES_PER_CHARACTER.items():
        if driver in info.name:
            return size
    return OTHER_BYTES_PER_CHARACTER


def compile_error(operator: str, kernel: RenderedKernel, adapter: str, error: Exception) -> str:
    """Return the text of a ShaderError, from wgpu's report."""
    return shader_error(operator, kernel, adapter, fault_of(error) or reason_of(error), line_of(error))


def in_parallel(function: Callable[[Item], Result], items: Sequence[Item], threads: int) -> list[Result]:
    """Return ``function`` of each item, in order, computed by the caller's thread and at most ``threads - 1`` others.

    This pays if the function spends its time in C, without Python's lock. Hold no lock that a finalizer may need: the
    other threads collect garbage like any thread, and the caller waits for them.

    The exception for the first failing item is raised, as if items were computed one by one. An exception in a signal
    handler ends the call once the other threads have finished their items.
    """
    waiting = deque(enumerate(items))
    results: dict[int, Result] = {}
    failures: dict[int, Exception] = {}

    def work() -> None:
        while not failures:  # asked before an item is taken: all before one that fails are done
            try:
                index, item = waiting.popleft()
            except IndexError:
                return
            try:
                results[index] = function(item)
            except Exception as failure:  # for the caller
                failures[index] = failure

    helpers = [threading.Thread(target=work, name="dmlgpu helper") for _ in range(min(threads, len(items)) - 1)]
    try:
        for helper in helpers:
            try:
                helper.start()
            except RuntimeError:  # no more threads, or the interpreter is about to end
                break
        work()
    finally:
        waiting.clear()
        for helper in helpers:
            if helper.is_alive():
                helper.join()
    if failures:
        first = failures[min(failures)]
        failures.clear()  # else its traceback would keep itself, and all that is in use here, alive
        try:
            raise first
        finally:
            del first
    return [results[index] for index in range(len(items))]


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
