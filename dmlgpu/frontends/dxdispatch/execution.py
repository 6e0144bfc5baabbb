"""Running a checked model on a device."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmlgpu.device.binding import BufferArrayBinding, BufferBinding
from dmlgpu.device.buffer import Buffer
from dmlgpu.device.commands import CommandList
from dmlgpu.device.device import Device, default_device
from dmlgpu.device.operator import CompiledOperator
from dmlgpu.device.table import BindingTable
from dmlgpu.errors import BindingError, DmlError, InvalidDescription, OutOfMemory
from dmlgpu.frontends.dxdispatch import output
from dmlgpu.frontends.dxdispatch.model import Bindings, BoundTensor, Dispatch, Dispatchable, Model, Print, WriteFile
from dmlgpu.frontends.dxdispatch.node import Node, quoted
from dmlgpu.frontends.dxdispatch.operators import located
from dmlgpu.frontends.dxdispatch.resources import Resource
from dmlgpu.frontends.dxdispatch.result import Dispatched, Event, Initialized, Printed, Result, Written
from dmlgpu.tensor import TensorDesc


def execute(
    model: Model,
    device: Device | None = None,
    *,
    output_directory: str | os.PathLike[str] | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Result:
    """Run a model: upload its resources, initialise its dispatchables, then do its commands one after another.

    Args:
        model: from ``load``.
        device: where to run; None opens the default adapter.
        output_directory: where files are written; None means the current directory.
        on_event: called with each event as it happens, so that what came before an error is seen.

    Raises:
        ModelError: an operator description that the device refuses, or a file that cannot be written or that the
            model may not write, which is found before anything runs.
        BindingError: a binding that the device refuses; the message begins with the path of the command.
        NotSupported: an operator or type that the adapter lacks, or that is not implemented.
        OutOfMemory: resources that the device cannot hold.
    """
    device = default_device() if device is None else device
    with _Execution(model, device, Path(output_directory or ""), on_event) as execution:
        return execution.run()


class _Execution:
    """One run of a model, with the device objects that it needs."""

    def __init__(self, model: Model, device: Device, folder: Path, on_event: Callable[[Event], object] | None):
        self.model, self.device, self.folder, self.on_event = model, device, folder, on_event
        self.recorder = device.create_command_recorder()
        self.fence, self.submissions = device.create_fence(), 0
        self.buffers: dict[str, Buffer] = {}
        self.own_buffers: list[Buffer] = []
        self.tables: dict[str, tuple[CompiledOperator, BindingTable]] = {}
        self.shapes: dict[str, TensorDesc] = {}
        self.stated: dict[str, tuple[int, ...]] = {}
        self.events: list[Event] = []
        self.arrays: dict[str, NDArray[Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for buffer in (*self.buffers.values(), *self.own_buffers):
            buffer.release()

    def run(self) -> Result:
        """Do everything; buffers are given back by leaving the ``with`` block."""
        for command in self.model.commands:
            if isinstance(command, WriteFile):
                self.model.access.target(command.target, self.folder, command.path)
        self._expect_shapes()
        for resource in self.model.resources.values():
            self._upload(resource)
        for dispatchable in self.model.dispatchables.values():
            self._initialize(dispatchable)
        for command in self.model.commands:
            match command:
                case Dispatch():
                    self._dispatch(command)
                case Print():
                    self._print(command)
                case WriteFile():
                    self._write(command)
        return Result(self.arrays, tuple(self.events))

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        if self.on_event is not None:
            self.on_event(event)

    # -- dispatchables ----------------------------------------------------------------------------------------------

    def _upload(self, resource: Resource) -> None:
        name, size = resource.name, resource.allocated_size
        if size > sys.maxsize:
            raise OutOfMemory(f"resource {quoted(name)}: its {size:,} bytes are more than a process can address")
        buffer = self.buffers[name] = self.device.create_buffer(size, name)
        try:
            buffer.write(resource.to_bytes())
        except OutOfMemory:
            raise
        except MemoryError as error:
            raise OutOfMemory(f"resource {quoted(name)}: the host has no {size:,} bytes left") from error

    def _initialize(self, dispatchable: Dispatchable) -> None:
        start = time.perf_counter()
        with _located(dispatchable.path, dispatchable.fields):
            operator = self.device.create_operator(dispatchable.desc)
            compiled = self.device.compile_operator(operator, dispatchable.flags)
            compiled.name = dispatchable.name
            initializer = self.device.create_operator_initializer([compiled])
            table = self.device.create_binding_table(initializer)
            if any(dispatchable.initial_inputs):
                table.bind_inputs([BufferArrayBinding(self._bindings(dispatchable.initial_inputs))])
            persistent = self._scratch(compiled.binding_properties.persistent_resource_size)
            if persistent is not None:
                table.bind_outputs([persistent])
            self._bind_temporary(table, initializer.binding_properties.temporary_resource_size)
            self._submit(lambda commands: self.recorder.record_dispatch(commands, initializer, table))
            table.reset(compiled)
            if persistent is not None:
                table.bind_persistent_resource(persistent)
            self._bind_temporary(table, compiled.binding_properties.temporary_resource_size)
        self.tables[dispatchable.name] = compiled, table
        self._emit(Initialized(dispatchable.name, _milliseconds_since(start)))

    def _dispatch(self, command: Dispatch) -> None:
        compiled, table = self.tables[command.dispatchable]
        start = time.perf_counter()
        with _located(command.path):
            table.bind_inputs(self._bindings(command.inputs))
            table.bind_outputs(self._bindings(command.outputs))
            self._submit(lambda commands: self.recorder.record_dispatch(commands, compiled, table))
        self._emit(Dispatched(command.dispatchable, _milliseconds_since(start)))
        self._note_shapes(command.outputs)

    def _submit(self, record: Callable[[CommandList], object]) -> None:
        commands = self.device.create_command_list()
        record(commands)
        commands.close()
        self.device.queue.execute([commands])
        self.submissions += 1
        self.device.queue.signal(self.fence, self.submissions)
        self.fence.wait(self.submissions)

    def _bindings(self, ranges: Bindings) -> list[BufferBinding | None]:
        return [
            None if bound is None else BufferBinding(self.buffers[bound.buffer], bound.offset, bound.size)
            for bound in ranges
        ]

    def _scratch(self, size: int) -> Buffer | None:
        if size == 0:
            return None
        self.own_buffers.append(self.device.create_buffer(size))
        return self.own_buffers[-1]

    def _bind_temporary(self, table: BindingTable, size: int) -> None:
        if (buffer := self._scratch(size)) is not None:
            table.bind_temporary_resource(buffer)

    # -- what comes out ---------------------------------------------------------------------------------------------

    def _expect_shapes(self) -> None:
        """Note the tensors as which resources are first used, for those shown before anything is written to them."""
        used = [dispatchable.initial_inputs for dispatchable in self.model.dispatchables.values()]
        used += [command.inputs + command.outputs for command in self.model.commands if isinstance(command, Dispatch)]
        for bindings in reversed(used):
            self._note_shapes(bindings)
        for name, resource in self.model.resources.items():
            if resource.values.sizes is not None:
                self.shapes.pop(name, None)

    def _note_shapes(self, bindings: Bindings) -> None:
        for bound in bindings:
            if bound is not None and self._is_whole(bound):
                self.shapes[bound.buffer] = bound.tensor

    def _is_whole(self, bound: BoundTensor) -> bool:
        return bound.offset == 0 and output.covers(bound.tensor, self.model.resources[bound.buffer])

    def _array(self, name: str, dimensions: tuple[int, ...] | None) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        raw = self.buffers[name].read()
        array = output.shaped(self.model.resources[name], raw, dimensions, self.shapes.get(name))
        self.arrays[name] = array
        return array, raw

    def _print(self, command: Print) -> None:
        _, raw = self._array(command.resource, self.stated.get(command.resource))
        flat = output.elements(self.model.resources[command.resource], raw)
        self._emit(Printed(command.resource, output.to_text(flat, command.verbose), command.verbose))

    def _write(self, command: WriteFile) -> None:
        if command.dimensions is not None:
            self.stated[command.resource] = command.dimensions
        array, raw = self._array(command.resource, command.dimensions)
        file = self.folder / command.target
        resolved = self.model.access.target(command.target, self.folder, command.path)
        output.write(resolved, array, raw[: self.model.resources[command.resource].size], command.path)
        self._emit(Written(command.resource, file))


@contextlib.contextmanager
def _located(path: str, fields: Node | None = None) -> Iterator[None]:
    """Put the path in the model in front of what the device complains about."""
    try:
        yield
    except InvalidDescription as error:
        raise located(error, fields or Node({}, path)) from error
    except BindingError as error:
        raise BindingError(f"{path}: {error}") from error
    except DmlError as error:
        error.add_note(f"in {path}")
        raise


def _milliseconds_since(start: float) -> float:
    return (time.perf_counter() - start) * 1e3
