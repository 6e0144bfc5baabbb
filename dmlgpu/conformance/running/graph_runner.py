"""Running a compiled graph on arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dmlgpu.conformance.cases.case import Array
from dmlgpu.device.binding import BufferArrayBinding
from dmlgpu.device.buffer import Buffer
from dmlgpu.device.operator import CompiledOperator, Dispatchable
from dmlgpu.device.table import BindingTable


def run_graph(compiled: CompiledOperator, inputs: Sequence[Array], poison: int = 0) -> tuple[Array, ...]:
    """Initialise a compiled graph, run it once, and return its outputs.

    Args:
        compiled: the graph.
        inputs: per input of the graph its elements, as they lie in memory; of one that nothing reads, anything.
        poison: the byte that outputs are filled with before.
    """
    device = compiled.device
    made: list[Buffer] = []

    def buffer(content: Array) -> Buffer:
        made.append(device.create_buffer(content.nbytes))
        made[-1].write(content)
        return made[-1]

    given = [
        None if port.desc is None else buffer(np.resize(array.view(np.uint8), port.desc.byte_size))
        for port, array in zip(compiled.inputs, inputs, strict=True)
    ]
    outputs = [
        buffer(np.full(port.desc.byte_size, poison, np.uint8)) for port in compiled.outputs if port.desc is not None
    ]
    properties = compiled.binding_properties
    scratch, held = (
        buffer(np.zeros(size, np.uint8)) if size else None
        for size in (properties.temporary_resource_size, properties.persistent_resource_size)
    )
    owned = [port.owned for port in compiled.inputs]
    initializer = device.create_operator_initializer([compiled])
    handed_over = BufferArrayBinding([one if own else None for one, own in zip(given, owned, strict=True)])
    table = device.create_binding_table(initializer)
    table.bind_inputs([handed_over if any(owned) else None])
    table.bind_outputs([held])
    _execute(initializer, table)
    table.reset(compiled)
    table.bind_inputs([None if one is None or own else one for one, own in zip(given, owned, strict=True)])
    table.bind_outputs(outputs)
    if scratch is not None:
        table.bind_temporary_resource(scratch)
    if held is not None:
        table.bind_persistent_resource(held)
    _execute(compiled, table)
    results = tuple(
        port.desc.decode(one.read()) for port, one in zip(compiled.outputs, outputs, strict=True) if port.desc
    )
    for one in made:
        one.release()
    return results


def _execute(dispatchable: Dispatchable, table: BindingTable) -> None:
    """Record a dispatch and execute it."""
    device = dispatchable.device
    commands = device.create_command_list()
    device.create_command_recorder().record_dispatch(commands, dispatchable, table)
    commands.close()
    device.queue.execute([commands])
