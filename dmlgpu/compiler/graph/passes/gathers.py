"""Gathers whose indices are constants in even steps: slices, which other steps read as strided views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.graph.network import Constant, Network, NetworkNode
from dmlgpu.compiler.graph.passes.nodes import rewritten
from dmlgpu.compiler.graph.passes.rewriting import NodePass, NoteTaker


def slice_gathers(network: Network, note: NoteTaker) -> Network:
    """Replace GATHER by SLICE1 if its indices are constants in even, ascending steps, such as ``qkv[0]``."""

    def change(index: int, _first: int) -> Sequence[NetworkNode] | None:
        node = network.nodes[index]
        if not isinstance(node.desc, descs.Gather) or not isinstance(node.inputs[1], Constant):
            return None
        data = np.frombuffer(network.constants[node.inputs[1].index], np.uint8)
        desc = _sliced(node.desc, node.desc.indices_tensor.decode(data).ravel().tolist())
        if desc is None:
            return None
        note(node.name, "a slice, because its indices are constants in even steps")
        return [replace(node, desc=desc, inputs=node.inputs[:1])]

    return rewritten(network, change)


SLICES = NodePass("slices", slice_gathers)


def _sliced(desc: descs.Gather, indices: list[int]) -> descs.Slice1 | None:
    """Return the slice that a gather takes; None if there is none. Gathers give 0 for indices outside the input."""
    source, output, axis = desc.input_tensor, desc.output_tensor, desc.axis
    first, last = indices[0], indices[-1]
    step = indices[1] - first if len(indices) > 1 else 1
    if step < 1 or indices != list(range(first, last + 1, step)) or first < 0 <= last:
        return None
    begin, window = first + (source.sizes[axis] if first < 0 else 0), last + 1 - first
    if begin < 0 or begin + window > source.sizes[axis] or not output.is_packed:
        return None

    def along(others: Sequence[int], own: int) -> tuple[int, ...]:
        return (*others[:axis], own, *others[axis + 1 :])

    sizes, rank = along(source.sizes, len(indices)), len(source.sizes)
    return descs.Slice1(
        input_tensor=source,
        output_tensor=TensorDesc(output.data_type, sizes, total_tensor_size_in_bytes=output.byte_size),
        input_window_offsets=along((0,) * rank, begin),
        input_window_sizes=along(source.sizes, window),
        input_window_strides=along((1,) * rank, step),
    )
