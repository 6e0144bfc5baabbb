"""Plans built by hand: trees of bodies with the NumPy arrays they represent, and a way to run them.

Every tensor lies in a buffer of its own between sentinels, at an offset that is a multiple of 16 but not of 256.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.plan import (
    Affine,
    AffineView,
    Body,
    Lookup,
    Map,
    Plan,
    PlanTensor,
    Role,
    Source,
    View,
    apply,
    constants,
)
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.rewrites import sources
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.render import render
from dmlgpu.runtime.executor import Range, Resources
from dmlgpu.runtime.wgpu import GpuBackend

Array = NDArray[Any]

SENTINEL, POISON = 0xA7, 0xCB
TAIL = 64
OFFSETS = (16, 48, 112, 240, 304)


@dataclass(frozen=True)
class Node:
    """A source of a plan and the array that it must evaluate to."""

    source: Source
    value: Array

    @property
    def data_type(self) -> DataType:
        return self.source.data_type


class Inputs:
    """Input tensors of a plan under construction."""

    def __init__(self) -> None:
        self.descs: list[TensorDesc] = []
        self.contents: list[NDArray[np.uint8]] = []

    def add(self, array: Array, strides: Sequence[int] | None = None, view: View = View.COMPUTE) -> Node:
        """One more input tensor; along strides of 0 it repeats the last element."""
        desc = TensorDesc(DataType.from_numpy(array.dtype), array.shape, None if strides is None else tuple(strides))
        content = desc.encode(array, POISON)
        return Node(self._tensor(desc, content, view), desc.decode(content))

    def repeat(self, array: Array, extent: int) -> Node:
        """An input tensor of one dimension, as large as one likes, that repeats a single element."""
        desc = TensorDesc(DataType.from_numpy(array.dtype), (extent,), (0,))
        return Node(self._tensor(desc, array.view(np.uint8), View.RAW), np.broadcast_to(array, (extent,)))

    def _tensor(self, desc: TensorDesc, content: NDArray[np.uint8], view: View) -> PlanTensor:
        self.descs.append(desc)
        self.contents.append(content)
        return PlanTensor.of(Role.INPUT, len(self.descs) - 1, desc, view)


def subtract(a: Node, b: Node) -> Node:
    return _binary("elementwise/element_wise_subtract", a, b, np.subtract)


def multiply(a: Node, b: Node) -> Node:
    return _binary("elementwise/element_wise_multiply", a, b, np.multiply)


def _binary(file: str, a: Node, b: Node, function: Any) -> Node:
    body = apply(file, a.data_type, a.value.shape, a=a.source, b=b.source)
    with np.errstate(all="ignore"):
        return Node(body, function(_wide(a.value), _wide(b.value)).astype(a.value.dtype))


def _wide(array: Array) -> Array:
    """float16 is computed in float32, then rounded."""
    return array.astype(np.float32) if array.dtype == np.float16 else array


def scale_bias(a: Node, scale: float, bias: float) -> Node:
    """Only for numbers that stay exact in float32."""
    compute = DataType.FLOAT64 if a.data_type is DataType.FLOAT64 else DataType.FLOAT32
    values = constants(compute=compute, scale=scale, bias=bias)
    portable = compute is DataType.FLOAT32
    body = apply("elementwise/scale_bias", a.data_type, a.value.shape, portable=portable, values=values, input=a.source)
    return Node(body, (a.value.astype(np.float64) * scale + bias).astype(a.value.dtype))


def cast(a: Node, data_type: DataType) -> Node:
    """CAST; floats that become integers must fit."""
    body = apply("elementwise/cast", data_type, a.value.shape, portable=True, input=a.source)
    with np.errstate(all="ignore"):
        return Node(body, a.value.astype(data_type.numpy))


def identity(a: Node) -> Node:
    return Node(sources.identity(a.source), a.value)


def slice1(a: Node, start: Sequence[int], step: Sequence[int], sizes: Sequence[int]) -> Node:
    """The elements at start + step * coordinate."""
    view = AffineView(a.source, tuple(sizes), Affine.box(start, step))
    places = [first + s * np.arange(n) for first, s, n in zip(start, step, sizes, strict=True)]
    return Node(view, a.value[np.ix_(*places)])


def gather(a: Node, indices: Node, batch: int = 0) -> Node:
    """GATHER_ND1 with indices inside their dimensions (negative ones count from the end)."""
    *lead, length = indices.value.shape
    picked = np.empty((*lead, *a.value.shape[batch + length :]), a.value.dtype)
    for at in np.ndindex(*lead):
        picked[at] = a.value[at[:batch] + tuple(int(i) for i in indices.value[at])]
    return Node(gather_body(a, indices, batch), picked)


def gather_body(a: Node, indices: Node, batch: int = 0) -> Lookup:
    *lead, length = indices.value.shape
    window = range(batch + length, a.value.ndim)
    sizes = (*lead, *(a.value.shape[dimension] for dimension in window))
    return Lookup(
        "indexing/gather_nd1",
        a.data_type,
        sizes,
        (("input", a.source), ("indices", indices.source)),
        constants(batch=batch, tuple=length, lead=len(lead)),
        follows=((None,) * len(lead) + tuple(window), (None,) * len(sizes)),
    )


def map_plan(node: Node, strides: Sequence[int] | None = None) -> tuple[Plan, TensorDesc]:
    """The plan that stores a tree, and the description of its output."""
    desc = TensorDesc(node.data_type, node.value.shape, None if strides is None else tuple(strides))
    body = node.source if isinstance(node.source, Body) else sources.identity(node.source)
    return Plan("TEST", (Map("map", body, PlanTensor.of(Role.OUTPUT, 0, desc)),)), desc


def compiled(plan: Plan, target: Target) -> Program:
    """The plan's program."""
    return render(schedule(plan, target))


def run_map(
    backend: GpuBackend,
    inputs: Inputs,
    node: Node,
    strides: Sequence[int] | None = None,
    target: Target | None = None,
) -> Array:
    """What an adapter computes for a tree stored with the given strides."""
    plan, desc = map_plan(node, strides)
    return run_plan(backend, inputs, plan, desc, target)


def run_plan(
    backend: GpuBackend, inputs: Inputs, plan: Plan, output: TensorDesc, target: Target | None = None
) -> Array:
    """What an adapter computes for a plan with one output. Asserts that no byte around any tensor changes."""
    executable = backend.prepare(compiled(plan, target or backend.target.exact))
    poison = np.full(output.byte_size, POISON, np.uint8)
    contents = [_placed(content, index) for index, content in enumerate([*inputs.contents, poison])]
    buffers = [backend.create_buffer(content.size, f"tensor {n}") for n, content in enumerate(contents)]
    scratch = backend.create_buffer(executable.temporary_size, "scratch") if executable.temporary_size else None
    ranges = []
    for index, (buffer, content, desc) in enumerate(zip(buffers, contents, (*inputs.descs, output), strict=True)):
        backend.write(buffer, 0, content)
        ranges.append(Range(buffer, _offset(index), desc.byte_size))
    temporary = Range(scratch, 0, executable.temporary_size) if scratch else None
    backend.submit(executable.bind(Resources(tuple(ranges[:-1]), tuple(ranges[-1:]), temporary)))
    results = [backend.read(buffer, 0, buffer.size) for buffer in buffers]
    for buffer in (*buffers, *([scratch] if scratch else [])):
        backend.destroy_buffer(buffer)
    for before, after in zip(contents[:-1], results[:-1], strict=True):
        np.testing.assert_array_equal(after, before, "an input changed")
    inside = slice(_offset(len(ranges) - 1), _offset(len(ranges) - 1) + output.byte_size)
    around = results[-1].copy()
    around[inside] = contents[-1][inside]
    np.testing.assert_array_equal(around, contents[-1], "bytes around the output changed")
    return output.decode(results[-1][inside])


def _offset(number: int) -> int:
    return OFFSETS[number % len(OFFSETS)]


def _placed(content: NDArray[np.uint8], number: int) -> NDArray[np.uint8]:
    """A tensor's bytes between sentinels."""
    placed = np.full(_offset(number) + content.size + TAIL, SENTINEL, np.uint8)
    placed[_offset(number) : _offset(number) + content.size] = content
    return placed


def assert_same(got: Array, want: Array) -> None:
    """Equal to the bit, but for the payloads of NaN."""
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.dtype.kind not in "iu":
        unsigned = f"u{want.dtype.itemsize}"
        both = np.isnan(got) & np.isnan(want)
        got = np.where(both, 0, np.ascontiguousarray(got).view(unsigned))
        want = np.where(both, 0, np.ascontiguousarray(want).view(unsigned))
    np.testing.assert_array_equal(got, want)
