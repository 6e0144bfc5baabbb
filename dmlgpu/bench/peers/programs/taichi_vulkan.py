"""Taichi on Vulkan. It has no operators: these kernels are those of its tutorials."""

# Taichi reads annotations of kernels as they are, so that they must not become texts.
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import taichi as ti

from dmlgpu.bench.peers.worker import Array, NotOffered, PeerCall, PeerNode

ti.init(arch=ti.vulkan, offline_cache=False, log_level=ti.ERROR)

if TYPE_CHECKING:
    FLOATS: TypeAlias = Any
    INDICES: TypeAlias = Any
else:
    FLOATS = ti.types.ndarray(dtype=ti.f32)
    INDICES = ti.types.ndarray(dtype=ti.i32)


def versions() -> dict[str, str]:
    """Return Taichi's version.

    Raises:
        ImportError: If it finds no Vulkan device, and computes elsewhere.
    """
    if ti.cfg.arch != ti.vulkan:
        raise ImportError("Taichi finds no Vulkan device")
    return {"taichi": ".".join(map(str, ti.__version__))}


def prepare(call: PeerCall) -> "TaichiKernels":
    """Prepare a call.

    Raises:
        NotOffered: If there is no kernel for it, or not for such tensors.
    """
    return TaichiKernels(call)


class TaichiKernels:
    """A call of one operator as a kernel on arrays of its own."""

    def __init__(self, call: PeerCall):
        (node, *more) = call.nodes
        if more or node.op not in KERNELS:
            raise NotOffered(f"no kernel is written in Taichi for {node.op}{' and what follows' if more else ''}")
        if any(array.dtype not in (np.float32, np.int64) for array in call.inputs.values()):
            raise NotOffered("kernels in Taichi take float32 here")
        self._kernel, shape = KERNELS[node.op](call, node)
        self._sets = [[_upload(call.arrays[name]) for name in call.inputs] for _ in range(call.sets)]
        self._output = ti.ndarray(ti.f32, shape)

    def run(self, index: int) -> Any:
        """Run once and wait."""
        self._kernel(*self._sets[index % len(self._sets)], self._output)
        ti.sync()
        return self._output

    def results(self) -> list[Array]:
        """Return the first set's output."""
        return [self.run(0).to_numpy()]


def _upload(array: Array) -> Any:
    is_index = array.dtype == np.int64
    uploaded = ti.ndarray(ti.i32 if is_index else ti.f32, array.shape)
    uploaded.from_numpy(array.astype(np.int32) if is_index else np.ascontiguousarray(array))
    return uploaded


@ti.kernel
def add(a: FLOATS, b: FLOATS, y: FLOATS):  # type: ignore[no-untyped-def]
    """Element by element."""
    for i in ti.grouped(y):
        y[i] = a[i] + b[i]


@ti.kernel
def tanh(x: FLOATS, y: FLOATS):  # type: ignore[no-untyped-def]
    """Element by element."""
    for i in ti.grouped(y):
        y[i] = ti.tanh(x[i])


@ti.kernel
def transpose(x: FLOATS, y: FLOATS):  # type: ignore[no-untyped-def]
    """Transpose a matrix."""
    for i, j in y:
        y[i, j] = x[j, i]


@ti.kernel
def row_sums(x: FLOATS, y: FLOATS):  # type: ignore[no-untyped-def]
    """A row by each invocation."""
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += x[i, j]
        y[i, 0] = total


@ti.kernel
def softmax(x: FLOATS, y: FLOATS):  # type: ignore[no-untyped-def]
    """A row by each invocation."""
    for i in range(x.shape[0]):
        largest = x[i, 0]
        for j in range(x.shape[1]):
            largest = ti.max(largest, x[i, j])
        total = 0.0
        for j in range(x.shape[1]):
            y[i, j] = ti.exp(x[i, j] - largest)
            total += y[i, j]
        for j in range(x.shape[1]):
            y[i, j] /= total


@ti.kernel
def product(a: FLOATS, b: FLOATS, y: FLOATS):  # type: ignore[no-untyped-def]
    """Compute a matrix product, one element per invocation."""
    for i, j in y:
        total = 0.0
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
        y[i, j] = total


@ti.kernel
def gather(table: FLOATS, rows: INDICES, y: FLOATS):  # type: ignore[no-untyped-def]
    """Gather rows of a table."""
    for i, j in y:
        y[i, j] = table[rows[i], j]


Made = tuple[Callable[..., Any], tuple[int, ...]]
"""A kernel, and the sizes of its output."""


def _same(kernel: Callable[..., Any]) -> Callable[[PeerCall, PeerNode], Made]:
    return lambda call, node: (kernel, call.arrays[node.inputs[0]].shape)


def _rows(kernel: Callable[..., Any], *, keeps: bool) -> Callable[[PeerCall, PeerNode], Made]:
    """Return a kernel for the last axis of a matrix, which keeps its size or becomes 1."""

    def lowered(call: PeerCall, node: PeerNode) -> Made:
        shape = call.arrays[node.inputs[0]].shape
        axis = node.attributes.get("axis", (call.integers(node, 1) or [-1])[0])
        if len(shape) != 2 or axis not in (1, -1):
            raise NotOffered("kernels in Taichi are written for rows of matrices")
        return kernel, shape if keeps else (shape[0], 1)

    return lowered


def _transpose(call: PeerCall, node: PeerNode) -> Made:
    shape = call.arrays[node.inputs[0]].shape
    if node.attributes["perm"] != [1, 0]:
        raise NotOffered("of permutations that of matrices is written in Taichi")
    return transpose, shape[::-1]


def _product(call: PeerCall, node: PeerNode) -> Made:
    a, b = (call.arrays[name].shape for name in node.inputs)
    if len(a) != 2 or len(b) != 2:
        raise NotOffered("products of matrices are written in Taichi, not of batches")
    return product, (a[0], b[1])


def _gather(call: PeerCall, node: PeerNode) -> Made:
    table, rows = (call.arrays[name].shape for name in node.inputs)
    if node.attributes["axis"] != 0 or len(table) != 2 or len(rows) != 1:
        raise NotOffered("a gather of rows is written in Taichi")
    return gather, (rows[0], table[1])


KERNELS: Mapping[str, Callable[[PeerCall, PeerNode], Made]] = {
    "Add": _same(add),
    "Tanh": _same(tanh),
    "Transpose": _transpose,
    "ReduceSum": _rows(row_sums, keeps=False),
    "Softmax": _rows(softmax, keeps=True),
    "MatMul": _product,
    "Gather": _gather,
}
"""Operators of ONNX as kernels, with the sizes of their outputs."""
