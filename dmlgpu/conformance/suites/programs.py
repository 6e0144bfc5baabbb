"""Sequences of dispatches over shared memory: run on a device, and gone through one after the other on the host.

Programs compute integers, and floats that hold integers exactly, so that what they leave in all their buffers must be
equal. That shows a dispatch that ran before what it reads was written, or after it was overwritten.
"""

from __future__ import annotations

import hashlib
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from dmlgpu import reference
from dmlgpu.catalog.operator_desc import OperatorDesc, TensorSlot
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.cases.case import Array
from dmlgpu.conformance.cases.tolerance import Ulp, as_bits
from dmlgpu.conformance.drivers.pairwise import Allowance
from dmlgpu.conformance.running.outcome import Outcome, Verdict, compare
from dmlgpu.conformance.running.runner import kernels_of
from dmlgpu.conformance.suites.registry import Suite
from dmlgpu.runtime.binding import BufferBinding
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.commands import CommandList
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.operator import CompiledOperator

EQUAL = Ulp(0)
"""Equal numbers; the sign of a zero, which the order of a sum decides, does not count."""


@dataclass(frozen=True)
class Location:
    """Location of a tensor: the index of a buffer, and an offset in bytes, a multiple of 16."""

    buffer: int
    offset: int = 0


LocatedTensor: TypeAlias = tuple[TensorDesc, Location]


@dataclass(frozen=True)
class DispatchStep:
    """One dispatch.

    Attributes:
        desc: An operator none of whose tensors is OWNED_BY_DML, and whose outputs are packed.
        inputs, outputs: Locations of its present tensors.
    """

    desc: OperatorDesc
    inputs: tuple[Location, ...]
    outputs: tuple[Location, ...]

    @property
    def sources(self) -> tuple[LocatedTensor | None, ...]:
        """Description and location of each flat input, None if an optional one is absent."""
        return _bound(self.desc.inputs, self.inputs)

    @property
    def targets(self) -> tuple[LocatedTensor | None, ...]:
        """Locations of the flat outputs."""
        return _bound(self.desc.outputs, self.outputs)


def _bound(slots: Sequence[TensorSlot], locations: Sequence[Location]) -> tuple[LocatedTensor | None, ...]:
    remaining = iter(locations)
    return tuple(None if slot.tensor is None else (slot.tensor, next(remaining)) for slot in slots)


@dataclass(frozen=True)
class DispatchProgram:
    """Dispatches over buffers.

    Attributes:
        buffers: Their first contents, one-dimensional arrays of whole words.
        lists: The command lists.
        submissions: The numbers of the lists that are executed together, one after the other without waiting.
        deterministic: Whether only a deterministic device gets it right.
    """

    buffers: tuple[Array, ...]
    lists: tuple[tuple[DispatchStep, ...], ...]
    submissions: tuple[tuple[int, ...], ...] = ((0,),)
    deterministic: bool = False

    @property
    def descs(self) -> tuple[OperatorDesc, ...]:
        """The different operators."""
        return tuple(dict.fromkeys(step.desc for steps in self.lists for step in steps))

    @property
    def order(self) -> Iterator[DispatchStep]:
        """The dispatches as they follow each other."""
        return (step for numbers in self.submissions for index in numbers for step in self.lists[index])


def expected(program: DispatchProgram) -> tuple[Array, ...]:
    """Return the final contents of the buffers."""
    memory = tuple(array.copy() for array in program.buffers)
    for step in program.order:
        arrays = [None if source is None else source[0].decode(_bytes(memory, *source)) for source in step.sources]
        results = iter(reference.evaluate(step.desc, arrays))
        for desc, location in filter(None, step.targets):
            _bytes(memory, desc, location)[:] = desc.encode(next(results))
    return memory


def _bytes(memory: Sequence[Array], desc: TensorDesc, location: Location) -> Array:
    """Return a tensor's bytes in the buffers' memory."""
    raw: Array = memory[location.buffer].view(np.uint8)
    return raw[location.offset : location.offset + desc.byte_size]


@dataclass(frozen=True)
class ProgramExecution:
    """Results of a program on a device.

    Attributes:
        buffers: What they hold in the end.
        kernels: What ran (``Outcome.kernels``).
    """

    buffers: tuple[Array, ...]
    kernels: tuple[str, ...] = ()


def execute(program: DispatchProgram, device: Device) -> ProgramExecution:
    """Run a program on a device, or on a deterministic one of the same adapter if needed.

    Raises:
        NotSupported: If the adapter lacks what an operator needs.
    """
    if program.deterministic and not device.backend.target.policies.deterministic:
        strict = Device(device.adapter, deterministic=True)
        try:
            return execute(program, strict)
        finally:
            strict.remove()
    buffers = []
    for index, content in enumerate(program.buffers):
        buffers.append(device.create_buffer(content.nbytes, name=f"buffer {index}"))
        buffers[-1].write(content)
    recorder_ = _Recorder(device, program, buffers)
    lists = [recorder_.record(steps) for steps in program.lists]
    for numbers in program.submissions:
        device.queue.execute([lists[index] for index in numbers])
    contents = tuple(
        buffer.read().view(content.dtype) for buffer, content in zip(buffers, program.buffers, strict=True)
    )
    for buffer in (*buffers, *recorder_.resources):
        buffer.release()
    return ProgramExecution(contents, recorder_.kernels)


class _Recorder:
    """A program's operators, compiled and initialized, and the memory that they share."""

    def __init__(self, device: Device, program: DispatchProgram, buffers: Sequence[Buffer]):
        self.device, self.buffers = device, buffers
        self.compiled = {desc: device.compile_operator(device.create_operator(desc)) for desc in program.descs}
        self.persistent = {
            desc: device.create_buffer(size)
            for desc, compiled in self.compiled.items()
            if (size := compiled.binding_properties.persistent_resource_size)
        }
        most = max(compiled.binding_properties.temporary_resource_size for compiled in self.compiled.values())
        self.temporary = device.create_buffer(most, name="temporary") if most else None
        self._initialize()

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels of all operators."""
        return tuple(dict.fromkeys(kernel for compiled in self.compiled.values() for kernel in kernels_of(compiled)))

    @property
    def resources(self) -> tuple[Buffer, ...]:
        """Memory in addition to the program's own."""
        return (*self.persistent.values(), *([] if self.temporary is None else [self.temporary]))

    def _initialize(self) -> None:
        commands = self.device.create_command_list()
        initializer = self.device.create_operator_initializer(list(self.compiled.values()))
        table = self.device.create_binding_table(initializer)
        table.bind_outputs([self.persistent.get(desc) for desc in self.compiled])
        self.device.create_command_recorder().record_dispatch(commands, initializer, table)
        commands.close()
        self.device.queue.execute([commands])

    def record(self, steps: Sequence[DispatchStep]) -> CommandList:
        """Return a closed list of some dispatches; all use one temporary resource."""
        commands, recorder = self.device.create_command_list(), self.device.create_command_recorder()
        for step in steps:
            compiled = self.compiled[step.desc]
            table = self.device.create_binding_table(compiled)
            table.bind_inputs(self._bindings(step.sources))
            table.bind_outputs(self._bindings(step.targets))
            self._bind_resources(table, compiled, step.desc)
            recorder.record_dispatch(commands, compiled, table)
        commands.close()
        return commands

    def _bind_resources(self, table: Any, compiled: CompiledOperator, desc: OperatorDesc) -> None:
        if compiled.binding_properties.temporary_resource_size:
            table.bind_temporary_resource(self.temporary)
        if desc in self.persistent:
            table.bind_persistent_resource(self.persistent[desc])

    def _bindings(self, tensors: Sequence[LocatedTensor | None]) -> list[BufferBinding | None]:
        return [
            None
            if located is None
            else BufferBinding(self.buffers[located[1].buffer], located[1].offset, located[0].byte_size)
            for located in tensors
        ]


def run_program(program: DispatchProgram, device: Device) -> Verdict:
    """Compare the final contents of the buffers with the expected ones.

    Returns:
        The verdict on the buffer with most wrong elements; its problem says which, and who wrote there last.

    Raises:
        NotSupported: If the adapter lacks what an operator needs.
    """
    execution = execute(program, device)
    verdicts = [compare(target, got, EQUAL) for target, got in zip(expected(program), execution.buffers, strict=True)]
    worst = max(range(len(verdicts)), key=lambda index: verdicts[index].wrong)
    verdict = verdicts[worst]
    if not verdict.ok:
        verdict = replace(verdict, problem=_last_writer(program, worst, verdict.worst[0]))
    digest = hashlib.sha256(b"".join(as_bits(array).tobytes() for array in execution.buffers)).hexdigest()[:16]
    return replace(verdict, digest=digest, kernels=execution.kernels)


def _last_writer(program: DispatchProgram, buffer: int, element: int) -> str:
    """Return the dispatch that last wrote an element."""
    position = element * program.buffers[buffer].itemsize
    text = f"buffer {buffer} must be unchanged"
    for index, step in enumerate(program.order):
        for desc, location in filter(None, step.targets):
            if location.buffer == buffer and 0 <= position - location.offset < desc.byte_size:
                text = f"buffer {buffer}, last written by dispatch {index}, {step.desc.operator}"
    return text


class ProgramSuite(Suite):
    """A suite whose names spell programs."""

    @abstractmethod
    def program(self, name: str) -> DispatchProgram:
        """Return the program with a name.

        Raises:
            InvalidArgument: If it names none.
        """

    def has(self, name: str) -> bool:
        try:
            self.program(name)
        except InvalidArgument:
            return False
        return True

    def run(self, name: str, device: Device) -> Outcome:
        """Compare the adapter's final contents of all buffers with the reference's, dispatch by dispatch."""
        start = time.perf_counter()
        verdict = run_program(self.program(name), device)
        return Outcome.of_verdict(name, str(EQUAL), verdict, time.perf_counter() - start)

    def outputs(self, name: str, device: Device, poison: int) -> tuple[Array, ...]:
        """Return the final contents of the buffers, which start with the contents of the program."""
        return execute(self.program(name), device).buffers

    def allowance(self, name: str) -> Allowance:
        """Return the allowed distance of the outputs from the true ones."""
        return Allowance(EQUAL)
