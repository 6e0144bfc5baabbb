"""Runs a description as lowered for any target: for tests of schedules that the adapter would not choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, MatrixTransform
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.target import Division, Target
from dmlgpu.runtime.executor import Range, Resources
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.runtime.wgpu.probes import DIVISION


def run_desc(
    backend: GpuBackend, desc: OperatorDesc, arrays: Sequence[NDArray[Any]], target: Target
) -> tuple[NDArray[Any], ...]:
    """One array per output; the inputs are given in order, without absent ones."""
    outputs = [slot.tensor for slot in desc.outputs if slot.tensor is not None]
    results = run_over(backend, desc, arrays, target, [None] * len(outputs))
    return tuple(tensor.decode(content) for tensor, content in zip(outputs, results, strict=True))


def run_over(
    backend: GpuBackend,
    desc: OperatorDesc,
    arrays: Sequence[NDArray[Any]],
    target: Target,
    contents: Sequence[NDArray[np.uint8] | None],
) -> list[NDArray[np.uint8]]:
    """The bytes of every output; ``contents`` lie there before, zeros for None."""
    executable = backend.prepare(compiler.compile_operator(desc, target))
    buffers: list[Any] = []

    def place(size: int, data: NDArray[np.uint8] | None = None) -> Range:
        buffers.append(backend.create_buffer(size, f"buffer {len(buffers)}"))
        if data is not None:
            backend.write(buffers[-1], 0, data)
        return Range(buffers[-1], 0, size)

    remaining = iter(arrays)
    bound: list[Range | None] = []
    owned: list[Range | None] = []
    for slot in desc.inputs:
        where = None
        if slot.tensor is not None:
            where = place(slot.tensor.byte_size, slot.tensor.encode(next(remaining)))
        is_owned = slot.tensor is not None and slot.tensor.owned_by_dml
        bound.append(None if is_owned and executable.persistent_size else where)
        owned.append(where if is_owned else None)
    before = iter(contents)
    outputs = [None if slot.tensor is None else place(slot.tensor.byte_size, next(before)) for slot in desc.outputs]
    temporary = place(executable.temporary_size) if executable.temporary_size else None
    persistent = place(executable.persistent_size) if executable.persistent_size else None
    if persistent:
        backend.submit(executable.bind_initialization(Resources(tuple(owned), (), None, persistent)))
    backend.submit(executable.bind(Resources(tuple(bound), tuple(outputs), temporary, persistent)))
    results = [backend.read(where.buffer, 0, where.size) for where in outputs if where is not None]
    for buffer in buffers:
        backend.destroy_buffer(buffer)
    return results


Product = tuple[int, int, int, tuple[int, ...], int, int, DataType]
"""Rows, columns, inner size and batch of a product, transposes of A and B, type."""


def gemm_of(product: Product) -> tuple[descs.Gemm, list[NDArray[Any]], NDArray[Any]]:
    """A product with all options, its inputs, and what NumPy gives. Elements are small integers: every sum is exact."""
    rows, columns, inner, batch, trans_a, trans_b, data_type = product
    rng = np.random.default_rng(1)
    a, b, c = (
        rng.integers(-2, 3, (*batch, *sizes)).astype(data_type.numpy)
        for sizes in ((rows, inner), (inner, columns), (rows, columns))
    )
    stored_a, stored_b = (x.swapaxes(-1, -2) if t else x for x, t in ((a, trans_a), (b, trans_b)))
    desc = descs.Gemm(
        a_tensor=TensorDesc(data_type, stored_a.shape),
        b_tensor=TensorDesc(data_type, stored_b.shape),
        c_tensor=TensorDesc(data_type, c.shape),
        output_tensor=TensorDesc(data_type, c.shape),
        trans_a=MatrixTransform(trans_a),
        trans_b=MatrixTransform(trans_b),
        alpha=2.0,
        beta=-1.0,
        fused_activation=descs.ActivationRelu(),
    )
    expected = np.maximum(2 * (a.astype(np.float64) @ b) - c, 0)
    return desc, [stored_a, stored_b, c], expected.astype(data_type.numpy)


def division_of_gpus(backend: GpuBackend) -> Division:
    """How an adapter divides if its own operations are not exact, as those of GPUs."""
    exact = DIVISION.known(backend.info) or DIVISION.measured(backend.wgpu_device, backend.info)
    return Division.FUSED if Division.FUSED in exact else Division.SOFTWARE
