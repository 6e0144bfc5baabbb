"""Runs a description as lowered for any target: for tests of schedules that the adapter would not choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from dmlgpu import compiler
from dmlgpu.backend import Range, Resources
from dmlgpu.gpu import GpuBackend
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.target import Target


def run_desc(
    backend: GpuBackend, desc: OperatorDesc, arrays: Sequence[NDArray[Any]], target: Target
) -> tuple[NDArray[Any], ...]:
    """One array per output; the inputs are given in order, without absent ones."""
    executable = backend.prepare(compiler.compile_operator(desc, target))
    buffers: list[Any] = []

    def place(size: int) -> Range:
        buffers.append(backend.create_buffer(size, f"buffer {len(buffers)}"))
        return Range(buffers[-1], 0, size)

    given = iter(arrays)
    bound: list[Range | None] = []
    owned: list[Range | None] = []
    for slot in desc.inputs:
        where = None
        if slot.tensor is not None:
            data = slot.tensor.encode(next(given))
            where = place(data.size)
            backend.write(buffers[-1], 0, data)
        is_owned = slot.tensor is not None and slot.tensor.owned_by_dml
        bound.append(None if is_owned and executable.persistent_size else where)
        owned.append(where if is_owned else None)
    outputs = [slot.tensor for slot in desc.outputs if slot.tensor is not None]
    ranges = tuple(place(tensor.byte_size) for tensor in outputs)
    temporary = place(executable.temporary_size) if executable.temporary_size else None
    persistent = place(executable.persistent_size) if executable.persistent_size else None
    if persistent:
        backend.submit(executable.bind_initialization(Resources(tuple(owned), (), None, persistent)))
    backend.submit(executable.bind(Resources(tuple(bound), ranges, temporary, persistent)))
    results = [backend.read(where.buffer, 0, where.size) for where in ranges]
    for buffer in buffers:
        backend.destroy_buffer(buffer)
    return tuple(tensor.decode(content) for tensor, content in zip(outputs, results, strict=True))
