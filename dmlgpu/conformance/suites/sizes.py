"""The suite of sizes: tensors of more than 65,535 workgroups, as large as a binding may be, and over 2^31 bytes.

A name spells the operator and how large its tensors are: ``size-copy-binding``. Contents follow from the index of an
element, so that what must come out needs no reference, and is compared piece by piece.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidArgument, NotSupported, OutOfMemory
from dmlgpu.conformance.cases.case import Array
from dmlgpu.conformance.cases.keys import PROFILES
from dmlgpu.conformance.cases.tolerance import EXACT
from dmlgpu.conformance.running.outcome import Outcome, Status, Verdict, compare
from dmlgpu.conformance.running.runner import kernels_of
from dmlgpu.conformance.samples import SAMPLES, Sizes
from dmlgpu.conformance.suites.registry import Suite
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.operator import CompiledOperator

PIECE = 1 << 22
"""Elements that are written or compared at a time."""
GUARD = np.full(64, 0xA7, np.uint8)
"""Bytes after each output, which must stay as they are."""
ROOM = 4096
"""Bytes by which the largest tensors are smaller than the largest buffer, at least."""
LIMIT = "max-storage-buffer-binding-size"
FACTOR, FIRST = 2654435761, 12345
INDEX_COUNT = 64

Contents = Callable[[Array], Array]
"""The elements at indices, given as uint64."""


def pattern(indices: Array) -> Array:
    """uint32 values without a short period."""
    return (indices * np.uint64(FACTOR) + np.uint64(FIRST)).astype(np.uint32)


def other_pattern(indices: Array) -> Array:
    """Others."""
    return pattern(indices + np.uint64(1 << 20)) >> np.uint32(3)


def byte_pattern(indices: Array) -> Array:
    """Return the highest byte of each."""
    return (pattern(indices) >> np.uint32(24)).astype(np.uint8)


def running_sums(indices: Array) -> Array:
    """Return the sum of the pattern up to each index, modulo 2^32."""
    count = indices + np.uint64(1)
    pairs = np.where(indices % 2 == 0, indices // 2 * count, count // 2 * indices)
    return (pairs * np.uint64(FACTOR) + count * np.uint64(FIRST)).astype(np.uint32)


@dataclass(frozen=True)
class LargeWorkload:
    """An operator on large tensors.

    Attributes:
        desc: Its description.
        inputs: What its inputs hold.
        expected: What its output must hold.
    """

    desc: OperatorDesc
    inputs: tuple[Contents, ...]
    expected: Contents


def _words(count: int) -> TensorDesc:
    return TensorDesc(DataType.UINT32, (count,))


def _copied(tensor: TensorDesc, contents: Contents) -> LargeWorkload:
    desc = descs.ElementWiseIdentity(input_tensor=tensor, output_tensor=tensor, scale_bias=None)
    return LargeWorkload(desc, (contents,), contents)


def _add(count: int) -> LargeWorkload:
    tensor = _words(count)
    desc = descs.ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
    return LargeWorkload(desc, (pattern, other_pattern), lambda indices: pattern(indices) + other_pattern(indices))


def _sequence(count: int) -> LargeWorkload:
    desc = descs.FillValueSequence(
        output_tensor=_words(count), value_data_type=DataType.UINT32, value_start=FIRST, value_delta=FACTOR
    )
    return LargeWorkload(desc, (), pattern)


def _sampled(operator: str, sizes: Sizes, inputs: tuple[Contents, ...], expected: Contents) -> LargeWorkload:
    return LargeWorkload(SAMPLES[operator].desc(sizes, DataType.UINT32), inputs, expected)


def _sum(count: int) -> LargeWorkload:
    def total(indices: Array) -> Array:
        return running_sums(indices + np.uint64(count - 1))

    return _sampled("REDUCE", {"rows": 1, "columns": count}, (pattern,), total)


def _row_sums(count: int) -> LargeWorkload:
    """Return rows of seven words, few of which share a workgroup."""

    def sums(indices: Array) -> Array:
        elements = indices[:, np.newaxis] * np.uint64(7) + np.arange(7, dtype=np.uint64)
        return np.asarray(pattern(elements).sum(-1, dtype=np.uint32))

    return _sampled("REDUCE", {"rows": count // 7, "columns": 7}, (pattern,), sums)


def _running_sum(count: int) -> LargeWorkload:
    return _sampled("CUMULATIVE_SUMMATION", {"rows": 1, "columns": count}, (pattern,), running_sums)


def _gather(count: int) -> LargeWorkload:
    """Every second index is near the end, the others anywhere."""

    def places(indices: Array) -> Array:
        spread = indices * np.uint64(count // INDEX_COUNT)
        return np.where(indices % 2 == 0, np.uint64(count - 1) - indices, spread).astype(np.uint32)

    def gathered(indices: Array) -> Array:
        return pattern(places(indices).astype(np.uint64))

    sizes = {"rows": count, "columns": 1, "picked": INDEX_COUNT}
    return _sampled("GATHER", sizes, (pattern, places), gathered)


WORKLOADS: Mapping[str, Callable[[int], LargeWorkload]] = {
    "copy": lambda count: _copied(_words(count), pattern),
    "copy_bytes": lambda count: _copied(TensorDesc(DataType.UINT8, (4 * count,)), byte_pattern),
    "add": _add,
    "sequence": _sequence,
    "sum": _sum,
    "row_sums": _row_sums,
    "running_sum": _running_sum,
    "gather": _gather,
}
"""Workloads, by the number of words of the largest tensors."""


# ---- how large -------------------------------------------------------------------------------------------------------


def _largest_binding(device: Device) -> int:
    """Return the largest binding of the adapter in a buffer with room for the guard; some adapters reject buffers of
    the largest size."""
    binding = device.backend.target.max_binding_size
    return min(binding, device.adapter.limits.get("max-buffer-size", 2 * binding) - ROOM) // 16 * 4


EXTENTS: Mapping[str, Callable[[Device], int]] = {
    "groups": lambda device: 16_777_259,  # a prime, above 65,535 workgroups of 256
    "binding": _largest_binding,
    "2gib": lambda device: (1 << 29) + 4,  # a little more than 2^31 bytes
}
"""Number of words of the largest tensors on a device, by name."""


# ---- running ---------------------------------------------------------------------------------------------------------


def _pieces(tensor: TensorDesc) -> Iterator[Array]:
    """Yield the indices of a tensor, some at a time."""
    count = math.prod(tensor.sizes)
    for first in range(0, count, PIECE):
        yield np.arange(first, min(first + PIECE, count), dtype=np.uint64)


def _uploaded(device: Device, tensor: TensorDesc, contents: Contents) -> Buffer:
    buffer = device.create_buffer(tensor.byte_size)
    width = tensor.data_type.bits // 8
    for indices in _pieces(tensor):
        buffer.write(contents(indices), int(indices[0]) * width)
    return buffer


def execute(device: Device, operator: CompiledOperator, inputs: list[Buffer], output: Buffer) -> None:
    """Initialize and execute a compiled operator on buffers."""
    commands, recorder = device.create_command_list(), device.create_command_recorder()
    initializer = device.create_operator_initializer([operator])
    recorder.record_dispatch(commands, initializer, device.create_binding_table(initializer))
    table = device.create_binding_table(operator)
    table.bind_inputs(inputs)
    table.bind_outputs([output])
    size = operator.binding_properties.temporary_resource_size
    temporary = device.create_buffer(size, name="temporary") if size else None
    table.bind_temporary_resource(temporary)
    recorder.record_dispatch(commands, operator, table)
    commands.close()
    device.queue.execute([commands])
    if temporary is not None:
        temporary.release()


def _compared(tensor: TensorDesc, output: Buffer, expected: Contents) -> Verdict:
    """Return the verdict on the piece with most wrong elements, with the wrong ones of all."""
    worst, wrong, dtype = Verdict(True), 0, tensor.data_type.numpy
    for indices in _pieces(tensor):
        got = output.read(int(indices[0]) * dtype.itemsize, indices.size * dtype.itemsize).view(dtype)
        verdict = compare(expected(indices), got, EXACT)
        wrong += verdict.wrong
        if verdict.wrong > worst.wrong:
            worst = replace(verdict, worst=(int(indices[verdict.worst]),))
    if (output.read(tensor.byte_size) != GUARD).any():
        worst = replace(worst, ok=False, problem="bytes after the output were written")
    return replace(worst, wrong=wrong, elements=math.prod(tensor.sizes))


def run_workload(workload: LargeWorkload, device: Device) -> Verdict:
    """Run an operator on large tensors.

    Raises:
        NotSupported: If they are larger than its memory.
    """
    operator = device.compile_operator(device.create_operator(workload.desc))
    tensors: list[Any] = [slot.tensor for slot in (*workload.desc.inputs, *workload.desc.outputs)]
    buffers: list[Buffer] = []
    try:
        for tensor, contents in zip(tensors[:-1], workload.inputs, strict=True):
            buffers.append(_uploaded(device, tensor, contents))
        buffers.append(device.create_buffer(tensors[-1].byte_size + GUARD.size, name="output"))
        buffers[-1].write(GUARD, tensors[-1].byte_size)
        execute(device, operator, buffers[:-1], buffers[-1])
        verdict = _compared(tensors[-1], buffers[-1], workload.expected)
        return replace(verdict, kernels=kernels_of(operator))
    except OutOfMemory as error:
        raise NotSupported(str(error)) from error
    finally:
        for buffer in buffers:
            buffer.release()


class SizeSuite(Suite):
    """Every operator of this module at every size; over 2^31 bytes in the full profile only."""

    profiles = PROFILES

    def names(self, profile: str) -> tuple[str, ...]:
        if profile == "quick":
            return ("size-row_sums-groups", "size-running_sum-groups")
        extents = list(EXTENTS) if profile == "full" else list(EXTENTS)[:-1]
        return tuple(f"size-{workload}-{extent}" for extent in extents for workload in WORKLOADS)

    def has(self, name: str) -> bool:
        return name in self.names("full")

    def run(self, name: str, device: Device) -> Outcome:
        """Compare the output with values computed from the indices of its elements.

        Raises:
            InvalidArgument: If the name spells no case.
            NotSupported: If the adapter has not enough memory.
        """
        if not self.has(name):
            raise InvalidArgument(f"{name!r} names no case such as size-copy-binding")
        _, workload, extent = name.split("-")
        size, limit = 4 * EXTENTS[extent](device), device.backend.target.max_binding_size
        if size > limit:
            message = f"tensors of {size:,} bytes exceed {LIMIT}, {limit:,}"
            return Outcome(name, Status.NOT_SUPPORTED, str(EXACT), message=message, missing=LIMIT)
        start = time.perf_counter()
        verdict = run_workload(WORKLOADS[workload](size // 4), device)
        return Outcome.of_verdict(name, str(EXACT), verdict, time.perf_counter() - start)
