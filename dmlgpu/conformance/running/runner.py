"""Run a case on a device.

Every tensor has a buffer of its own, between sentinels, at an offset that is a multiple of 16 but not of 256. Outputs
start poisoned. Out-of-bounds writes, elements never written and changed inputs are thus detected and reported
separately from wrong values. Padding between elements of an output may change, as DirectML allows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.operator_desc import OperatorDesc, TensorSlot
from dmlgpu.catalog.tensor_desc import TENSOR_ALIGNMENT, TensorDesc
from dmlgpu.common.errors import DmlError, NotSupported
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Target
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.tolerance import Tolerance, as_bits, flush
from dmlgpu.conformance.running.outcome import Verdict, compare
from dmlgpu.runtime.binding import BufferArrayBinding, BufferBinding
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.evaluate import execute_once
from dmlgpu.runtime.operator import CompiledOperator

Bytes: TypeAlias = NDArray[np.uint8]

SENTINEL = 0xA7
POISON = 0xCB
TAIL = 64
"""Sentinel bytes after a tensor."""


@dataclass(frozen=True)
class _BoundTensor:
    """A tensor in its buffer."""

    slot: TensorSlot
    tensor: TensorDesc
    buffer: Any
    offset: int
    content: Bytes

    @classmethod
    def create(
        cls, device: Device, slot: TensorSlot, array: Array | None, offset: int, poison: int = POISON
    ) -> _BoundTensor:
        """Create and fill the buffer: sentinels, and the array or poison."""
        assert slot.tensor is not None
        size = slot.tensor.byte_size
        content = np.full(offset + size + TAIL, SENTINEL, np.uint8)
        content[offset : offset + size] = poison if array is None else slot.tensor.encode(array, POISON)
        buffer = device.create_buffer(content.size, name=slot.label)
        buffer.write(content)
        return cls(slot, slot.tensor, buffer, offset, content)

    @property
    def binding(self) -> BufferBinding:
        return BufferBinding(self.buffer, self.offset, self.tensor.byte_size)

    def inside(self, content: Bytes) -> Bytes:
        """Return the tensor's bytes among those of the buffer."""
        return content[self.offset : self.offset + self.tensor.byte_size]

    def out_of_bounds(self, content: Bytes) -> str:
        """Describe changed sentinels; empty if there are none."""
        changed = content != self.content
        changed[self.offset : self.offset + self.tensor.byte_size] = False
        if not changed.any():
            return ""
        first = int(changed.argmax()) - self.offset
        return f"{self.slot.label}: {int(changed.sum())} bytes were written out of bounds, the first at byte {first}"


@dataclass(frozen=True)
class _CaseExecution:
    """Execution on a device.

    Attributes:
        inputs: Its inputs.
        written: Number, output and content of the buffer, per present output.
        problems: Descriptions of bytes that must not change but did.
        kernels: Kernels that ran.
    """

    inputs: Arrays
    written: tuple[tuple[int, _BoundTensor, Bytes], ...]
    problems: tuple[str, ...]
    kernels: tuple[str, ...]

    @property
    def outputs(self) -> tuple[Array, ...]:
        """Elements of the present outputs."""
        return tuple(output.tensor.decode(output.inside(content)) for _, output, content in self.written)


def run_case(case: Case, device: Device) -> Verdict:
    """Run a case and compare every output with the reference.

    Returns:
        The verdict on the worst output, or on the first with another failure.

    Raises:
        NotSupported: If the adapter lacks what the case needs; the message says what.
    """
    execution = _run(case, device, Case.inputs)
    verdicts = _compare(
        case, execution.inputs, execution.written, deterministic=device.backend.target.policies.deterministic
    )
    worst = max(verdicts, key=lambda verdict: (not verdict.ok, verdict.of_bound, verdict.max_ulp))
    problem = "; ".join(text for text in (*execution.problems, worst.problem) if text)
    return replace(
        worst,
        ok=worst.ok and not problem,
        problem=problem,
        digest=digest(execution.outputs),
        kernels=execution.kernels,
    )


def outputs_of(case: Case, device: Device, poison: int = POISON) -> tuple[Array, ...]:
    """Run a case on inputs on which adapters must agree; nothing is compared.

    Args:
        case: The case.
        device: The device.
        poison: Initial byte of outputs.

    Raises:
        NotSupported: If the adapter lacks what the case needs; the message says what.
        DmlError: If bytes changed that must not.
    """
    execution = _run(case, device, inputs_without_subnormals, poison)
    if execution.problems:
        raise DmlError("; ".join(execution.problems))
    return execution.outputs


def inputs_without_subnormals(case: Case) -> Arrays:
    """Return the inputs of a case without subnormals if those may be flushed."""
    arrays = case.inputs()
    return tuple(map(_flushed, arrays)) if case.tolerance.flush_to_zero else arrays


def _flushed(array: Array | None) -> Array | None:
    return None if array is None else flush(array)


def _run(case: Case, device: Device, make_inputs: Callable[[Case], Arrays], poison: int = POISON) -> _CaseExecution:
    """Run a case in temporary buffers; inputs are generated once the device accepted the operator."""
    operator = device.compile_operator(device.create_operator(case.desc))
    arrays = make_inputs(case)
    inputs = [
        None
        if slot.tensor is None or array is None
        else _BoundTensor.create(device, slot, array, tensor_offset(case, index))
        for index, (slot, array) in enumerate(zip(case.desc.inputs, arrays, strict=True))
    ]
    shared = None if case.in_place is None else inputs[case.in_place]
    outputs = _create_outputs(device, case, len(arrays), shared, poison)
    _execute(device, operator, inputs, outputs)
    written = tuple((index, tensor, tensor.buffer.read()) for index, tensor in enumerate(outputs) if tensor is not None)
    problems = [tensor.out_of_bounds(content) for _, tensor, content in written]
    problems += [_changed(tensor) for tensor in inputs if tensor is not None and tensor is not shared]
    for tensor in (*inputs, *(outputs if shared is None else outputs[1:])):
        if tensor is not None:
            tensor.buffer.release()
    return _CaseExecution(arrays, written, tuple(filter(None, problems)), kernels_of(operator))


def kernels_of(compiled: CompiledOperator) -> tuple[str, ...]:
    """Return the kernels of an operator or a graph as strings (see ``Outcome.kernels``)."""
    return () if compiled.program is None else compiled.program.summaries


def _create_outputs(
    device: Device, case: Case, first: int, shared: _BoundTensor | None, poison: int
) -> list[_BoundTensor | None]:
    """Create poisoned buffers of outputs, numbered from ``first``; the first output of an in-place case shares an
    input."""

    def create(index: int, slot: TensorSlot) -> _BoundTensor | None:
        if shared is not None and index == 0:
            return replace(shared, slot=slot)
        return (
            None
            if slot.tensor is None
            else _BoundTensor.create(device, slot, None, tensor_offset(case, first + index), poison)
        )

    return [create(index, slot) for index, slot in enumerate(case.desc.outputs)]


def tensor_offset(case: Case, index: int) -> int:
    """Return the byte offset of a tensor, 16 to 240, from the case's seed."""
    return TENSOR_ALIGNMENT * (1 + (case.seed >> 2 * index) % 15)


def _execute(
    device: Device, operator: Any, inputs: Sequence[_BoundTensor | None], outputs: Sequence[_BoundTensor | None]
) -> None:
    """Initialize the operator, run it once, and wait."""
    commands = device.create_command_list()
    scratch: list[Any] = []
    persistent = operator.binding_properties.persistent_resource_size
    resource = device.create_buffer(persistent, name="persistent") if persistent else None
    initializer = device.create_operator_initializer([operator])
    owned = [tensor if tensor is not None and tensor.tensor.owned_by_dml else None for tensor in inputs]
    bound = [None if tensor is None or tensor.tensor.owned_by_dml else tensor.binding for tensor in inputs]

    def record(dispatchable: Any, table_inputs: Any, table_outputs: Any, persistent_resource: Any) -> None:
        table = device.create_binding_table(dispatchable)
        table.bind_inputs(table_inputs)
        table.bind_outputs(table_outputs)
        temporary = dispatchable.binding_properties.temporary_resource_size
        if temporary:
            scratch.append(device.create_buffer(temporary, name="temporary"))
            table.bind_temporary_resource(scratch[-1])
        if persistent_resource is not None:
            table.bind_persistent_resource(persistent_resource)
        device.create_command_recorder().record_dispatch(commands, dispatchable, table)

    handed_over = BufferArrayBinding([None if tensor is None else tensor.binding for tensor in owned])
    record(initializer, [handed_over if any(owned) else None], [resource], None)
    record(operator, bound, [None if tensor is None else tensor.binding for tensor in outputs], resource)
    commands.close()
    device.queue.execute([commands])
    fence = device.create_fence()
    device.queue.signal(fence, 1)
    fence.wait(1)
    for buffer in (*scratch, *([resource] if resource is not None else [])):
        buffer.release()


def _changed(tensor: _BoundTensor) -> str:
    """Return whether the buffer of an input was written to."""
    changed = tensor.buffer.read() != tensor.content
    return f"{tensor.slot.label}: {int(changed.sum())} bytes of the input were changed" if changed.any() else ""


def _compare(
    case: Case,
    arrays: Sequence[Array | None],
    written: Sequence[tuple[int, _BoundTensor, Bytes]],
    *,
    deterministic: bool,
) -> list[Verdict]:
    """Return a verdict for each written output, given by its index, tensor and buffer content."""
    inputs = tuple(arrays)
    outcomes = case.outcomes(inputs, deterministic=deterministic)
    magnitudes = case.magnitudes(inputs)
    verdicts = []
    for index, output, content in written:
        got = output.tensor.decode(output.inside(content))
        expected = nearest([outcome[index] for outcome in outcomes], got, case.tolerance, magnitudes[index])
        verdict = compare(expected, got, case.tolerance, magnitudes[index])
        verdict = replace(verdict, inputs=_elements(arrays, got.shape, verdict.worst))
        verdicts.append(verdict if verdict.ok else _with_unwritten(verdict, output, expected, got))
    return verdicts


def _elements(arrays: Sequence[Array | None], shape: tuple[int, ...], position: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the elements at an index of inputs with the output's shape."""
    alike = (array for array in arrays if array is not None and array.shape == shape)
    return tuple(array[position] for array in alike) if position else ()


def digest(outputs: Sequence[Array]) -> str:
    """Return a hash of the bits of the outputs of a case."""
    sha256 = hashlib.sha256()
    for array in outputs:
        sha256.update(as_bits(array).data)
    return sha256.hexdigest()[:16]


def nearest(outcomes: Sequence[Array], got: Array, tolerance: Tolerance, magnitude: Any) -> Array:
    """Return the first alternative, with elements of others where only those match."""
    expected, *others = outcomes
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return expected
    for other in others:
        met = tolerance.accepts(other, got, magnitude) & ~tolerance.accepts(expected, got, magnitude)
        expected = np.where(met, other, expected)
    return expected


def _with_unwritten(verdict: Verdict, output: _BoundTensor, expected: Array, got: Array) -> Verdict:
    """Return the verdict with the number of elements that still hold the poison."""
    if verdict.problem:
        return verdict
    poison = as_bits(output.tensor.decode(np.full(output.tensor.byte_size, POISON, np.uint8)))
    untouched = int(((as_bits(got) == poison) & (as_bits(expected) != poison)).sum())
    if not untouched:
        return verdict
    return replace(verdict, problem=f"{output.slot.label}: {untouched} elements were never written")


def run_graph(compiled: CompiledOperator, inputs: Sequence[Array], poison: int = 0) -> tuple[Array, ...]:
    """Initialize a compiled graph, run it once, and return its outputs.

    Args:
        compiled: The graph.
        inputs: Elements of each input in memory order; anything for unused inputs.
        poison: Initial byte of outputs and temporary resource.
    """

    def buffer(desc: TensorDesc | None, content: Array) -> Buffer | None:
        if desc is None:
            return None
        memory = compiled.device.create_buffer(desc.byte_size)
        memory.write(np.resize(content.view(np.uint8), desc.byte_size))
        return memory

    input_buffers = [buffer(port.desc, array) for port, array in zip(compiled.inputs, inputs, strict=True)]
    poisoned = np.array([poison], np.uint8)
    outputs = [buffer(port.desc, poisoned) for port in compiled.outputs]
    execute_once(compiled, input_buffers, outputs, poison)
    results = tuple(
        port.desc.decode(buffer_.read())
        for port, buffer_ in zip(compiled.outputs, outputs, strict=True)
        if port.desc is not None and buffer_ is not None
    )
    for buffer_ in (*input_buffers, *outputs):
        if buffer_ is not None:
            buffer_.release()
    return results


def with_folded_grids(desc: OperatorDesc, target: Target) -> Target:
    """Return a target with so low a limit of workgroups per dimension that kernels of an operator with two workgroups
    or more in a row get two-dimensional grids; the same target if there are none.

    Raises:
        NotSupported: If the adapter lacks a feature that the operator needs, with any limit.
    """
    groups = max((math.prod(grid) for grid in grids(compile_operator(desc, target))), default=1)
    limit = math.isqrt(groups - 1) + 1 if groups else 1
    while limit < target.max_workgroups_per_dimension:
        lowered = replace(target, max_workgroups_per_dimension=limit)
        try:
            if all(max(grid) <= limit for grid in grids(compile_operator(desc, lowered))):
                return lowered
        except NotSupported:
            pass  # another kernel needs more
        limit += 1
    return target


def grids(program: Program) -> tuple[tuple[int, int, int], ...]:
    """Return the grids of all kernels."""
    return tuple(kernel.grid for kernel in (*program.initialization, *program.kernels))
