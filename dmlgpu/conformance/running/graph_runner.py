"""Running a compiled graph on the bytes of its inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.case import Array
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.evaluate import execute_once
from dmlgpu.runtime.operator import CompiledOperator


def run_graph(compiled: CompiledOperator, inputs: Sequence[Array], poison: int = 0) -> tuple[Array, ...]:
    """Initialise a compiled graph, run it once, and return its outputs.

    Args:
        compiled: the graph.
        inputs: per input of the graph its elements, as they lie in memory; of one that nothing reads, anything.
        poison: the byte that outputs and the temporary resource are filled with before.
    """

    def buffer(desc: TensorDesc | None, content: Array) -> Buffer | None:
        if desc is None:
            return None
        made = compiled.device.create_buffer(desc.byte_size)
        made.write(np.resize(content.view(np.uint8), desc.byte_size))
        return made

    given = [buffer(port.desc, array) for port, array in zip(compiled.inputs, inputs, strict=True)]
    poisoned = np.array([poison], np.uint8)
    outputs = [buffer(port.desc, poisoned) for port in compiled.outputs]
    execute_once(compiled, given, outputs, poison)
    results = tuple(
        port.desc.decode(one.read())
        for port, one in zip(compiled.outputs, outputs, strict=True)
        if port.desc is not None and one is not None
    )
    for one in (*given, *outputs):
        if one is not None:
            one.release()
    return results
