"""A prepared user-defined kernel: compiled, bound to sets of buffers, checked by NumPy expressions."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dmlgpu.bench.counting import Counts
from dmlgpu.bench.prepared import BufferSets, Init, Readiness, ResultCheck, Sample, compare_all, set_count, verdict_of
from dmlgpu.bench.workload import Array, Contents, KernelBuffer, OwnKernel, Workload, fill
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.executor import Range
from dmlgpu.tensors.kernels import Kernel

_UNIFORM_BYTES = 16


def kernel_arrays(workload: Workload) -> dict[str, Array]:
    """Return the initial elements of every buffer by name: seeded random numbers, files, zeros in outputs.

    Raises:
        InvalidArgument: If a file can no longer be read.
    """
    assert workload.kernel is not None
    rng = np.random.default_rng(zlib.crc32(workload.name.encode()))
    return {buffer.name: _elements(rng, buffer) for buffer in workload.kernel.buffers}


def _elements(rng: np.random.Generator, buffer: KernelBuffer) -> Array:
    if buffer.file:
        try:
            return np.ascontiguousarray(np.load(buffer.file, allow_pickle=False))
        except (OSError, ValueError) as error:
            raise InvalidArgument(f"{buffer.name}: {buffer.file} cannot be read: {error}") from None
    if buffer.is_output:
        return np.zeros(buffer.tensor.sizes, buffer.tensor.data_type.numpy)
    return fill(rng, buffer.tensor, Contents())


def expected_results(kernel: OwnKernel, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the results of the expressions, for outputs that have one.

    Raises:
        InvalidArgument: If an expression fails, or its shape differs from the output.
    """
    scope = {"np": np, **kernel.constants, **kernel.uniforms, **arrays}
    results = {}
    for buffer in kernel.buffers:
        if buffer.name not in kernel.references:
            continue
        text = kernel.references[buffer.name]
        try:
            with np.errstate(all="ignore"):
                value = np.asarray(eval(text, scope))
        except Exception as error:
            raise InvalidArgument(f"--reference {buffer.name}={text!r} fails: {error}") from None
        if value.size != buffer.tensor.element_count:
            raise InvalidArgument(
                f"--reference {buffer.name}={text!r} must have the shape of the output, {list(buffer.tensor.sizes)}, "
                f"got {list(value.shape)}"
            )
        results[buffer.name] = value.reshape(buffer.tensor.sizes).astype(buffer.tensor.data_type.numpy)
    return results


class PreparedKernel(BufferSets):
    """A user-defined kernel with its buffers.

    Args:
        device: Device to run on.
        workload: A workload of ``kernel_files.kernel_workload``.
        clock: Returns seconds.
        checked: Whether results are compared with the expressions in NumPy.

    Raises:
        ShaderError: If it does not compile.
        NotSupported: If the adapter runs no shaders, or allows less than the kernel needs.
        InvalidArgument: See ``expected_results``.
        OutOfMemory: If there is no memory.
    """

    def __init__(
        self,
        device: Device,
        workload: Workload,
        *,
        clock: Callable[[], float] = time.perf_counter,
        checked: bool = True,
    ):
        super().__init__(device, clock)
        own = workload.kernel
        assert own is not None
        kernel = Kernel(own.source, own.entry_point, constants=own.constants)
        start = clock()
        shader = kernel.compile(device)
        total = clock() - start
        arrays = kernel_arrays(workload)
        raw = {buffer.number: _padded(arrays[buffer.name], 4) for buffer in own.buffers}
        uniforms = {binding.number: binding.name for binding in kernel.bindings if binding.kind == "uniform"}
        raw |= {binding: _padded(own.uniforms[name], _UNIFORM_BYTES) for binding, name in uniforms.items()}
        set_size = sum(data.size for data in raw.values())
        sets = set_count(set_size, workload.cache)
        ranges: list[dict[int, Range[Any]]] = []
        for _ in range(sets):
            ranges.append({binding: self._filled(data) for binding, data in raw.items()})
            self._work.append(device.backend.record(shader.bind(ranges[-1], own.grid)))
        cold = self._first()
        moved = sum(array.nbytes for array in arrays.values())
        x, y, z = own.grid
        self.readiness = Readiness(
            Init(total),
            cold,
            self._check(own, arrays, ranges[0]) if checked else ResultCheck("unchecked"),
            Counts(moved, own.operations, kernels=1),
            (f"{own.entry_point} {x} x {y} x {z}",),
            sets,
            set_size * sets,
        )

    def _check(self, own: OwnKernel, arrays: Mapping[str, Array], ranges: Mapping[int, Range[Any]]) -> ResultCheck:
        """Compare the outputs of the first set, after one dispatch, with the expressions."""
        if not own.references:
            return ResultCheck("unchecked", "--reference EXPRESSION compares results with NumPy")
        expected = expected_results(own, arrays)
        buffers = [buffer for buffer in own.buffers if buffer.name in expected]
        results = []
        for buffer in buffers:
            place = ranges[buffer.number]
            results.append(buffer.tensor.decode(self._device.backend.read(place.buffer, 0, place.size)))
        verdicts = compare_all([expected[buffer.name] for buffer in buffers], results, own.tolerance)
        return verdict_of(verdicts, [buffer.name for buffer in buffers])


class KernelReference:
    """Expressions of a kernel in plain NumPy.

    Raises:
        InvalidArgument: See ``expected_results``.
    """

    def __init__(self, workload: Workload, *, clock: Callable[[], float] = time.perf_counter):
        assert workload.kernel is not None
        self._kernel, self._clock, self._number = workload.kernel, clock, 0
        arrays = kernel_arrays(workload)
        size = sum(array.nbytes for array in arrays.values())
        self._sets = [
            {name: array.copy() for name, array in arrays.items()} for _ in range(set_count(size, workload.cache))
        ]
        start = clock()
        self._once()
        cold, counts = clock() - start, Counts(size, self._kernel.operations)
        sets = len(self._sets)
        self.readiness = Readiness(Init(0.0), cold, ResultCheck("unchecked"), counts, ("NumPy",), sets, sets * size)

    def round(self, calls: int) -> Sample:
        """Compute the expressions a number of times."""
        cpu, start = time.thread_time(), self._clock()
        for _ in range(calls):
            self._once()
        return Sample(None, (self._clock() - start) / calls, (time.thread_time() - cpu) / calls)

    def close(self) -> None:
        """Release the arrays."""
        self._sets.clear()

    def _once(self) -> None:
        self._number += 1
        expected_results(self._kernel, self._sets[self._number % len(self._sets)])


def _padded(array: Array, unit: int) -> Array:
    """Return an array's bytes, and zeros up to a whole number of units."""
    raw = np.frombuffer(array.tobytes(), np.uint8)
    return np.concatenate([raw, np.zeros(-raw.size % unit, np.uint8)])
