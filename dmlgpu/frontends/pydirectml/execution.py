"""Running a compiled graph again and again: its buffers are made and its work is recorded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.runtime.binding import BufferArrayBinding
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.commands import CommandList
from dmlgpu.runtime.operator import CompiledOperator, TensorPort

Raw: TypeAlias = NDArray[np.uint8]


class Execution:
    """A compiled graph, initialised with the inputs that are OWNED_BY_DML.

    Args:
        compiled: not initialised yet.
        raw: the bytes of the inputs by number; None for those that are not needed.
    """

    def __init__(self, compiled: CompiledOperator, raw: Sequence[Raw | None]):
        self.owned = [given if port.owned else None for port, given in zip(compiled.inputs, raw, strict=True)]
        self._device, properties = compiled.device, compiled.binding_properties
        self._inputs = [self._buffer(port) if port.bound_at_execution else None for port in compiled.inputs]
        self._outputs = [self._buffer(port) for port in compiled.outputs]
        self._persistent = self._scratch(properties.persistent_resource_size, "persistent resource")
        self._temporary = self._scratch(properties.temporary_resource_size, "temporary resource")
        self._initialize(compiled)
        self._commands = self._record(compiled)

    def has(self, raw: Sequence[Raw | None]) -> bool:
        """Return whether inputs that are handed over at initialisation are the same as those of the initialisation."""
        pairs = zip(self.owned, raw, strict=True)
        return all(had is None or had is new or (new is not None and np.array_equal(had, new)) for had, new in pairs)

    def run(self, raw: Sequence[Raw | None]) -> list[Raw]:
        """Return the bytes of the outputs for those of the inputs."""
        for buffer, given in zip(self._inputs, raw, strict=True):
            if buffer is not None and given is not None:
                buffer.write(given)
        self._device.queue.execute([self._commands])
        return [buffer.read() for buffer in self._outputs]

    def _initialize(self, compiled: CompiledOperator) -> None:
        sources: list[Buffer | None] = []
        for port, given in zip(compiled.inputs, self.owned, strict=True):
            source = None
            if given is not None:
                source = self._buffer(port)
                source.write(given)
            sources.append(source)
        initializer = self._device.create_operator_initializer([compiled])
        table = self._device.create_binding_table(initializer)
        table.bind_inputs([BufferArrayBinding(sources)])
        table.bind_outputs([self._persistent])
        commands = self._device.create_command_list()
        self._device.create_command_recorder().record_dispatch(commands, initializer, table)
        commands.close()
        self._device.queue.execute([commands])
        for source in sources:
            if source is not None:
                source.release()

    def _record(self, compiled: CompiledOperator) -> CommandList:
        table = self._device.create_binding_table(compiled)
        table.bind_inputs(self._inputs)
        table.bind_outputs(self._outputs)
        table.bind_temporary_resource(self._temporary)
        table.bind_persistent_resource(self._persistent)
        commands = self._device.create_command_list()
        self._device.create_command_recorder().record_dispatch(commands, compiled, table)
        commands.close()
        return commands

    def _buffer(self, port: TensorPort) -> Buffer:
        assert port.desc is not None
        return self._device.create_buffer(port.desc.byte_size, port.label)

    def _scratch(self, size: int, name: str) -> Buffer | None:
        return self._device.create_buffer(size, name) if size else None
