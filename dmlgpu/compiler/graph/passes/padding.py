"""Zeros that a PADDING adds around images are those that a convolution pads with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import ConvolutionDirection, PaddingMode
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph.network import Network, Node, Result
from dmlgpu.compiler.graph.passes.node_rewriting import changed, is_same, rewritten
from dmlgpu.compiler.graph.passes.rewriting import Note

NAME = "padding"

LEAD = 2
"""Batch and channel, which come before the spatial dimensions."""


def fold_padding(network: Network, notes: list[Note]) -> Network:
    """Let forward convolutions of floats do the padding of their input with zeros."""

    def change(number: int, _first: int) -> Sequence[Node] | None:
        node = network.nodes[number]
        source = node.inputs[0] if node.inputs else None
        if not isinstance(node.desc, descs.Convolution) or not isinstance(source, Result):
            return None
        before = network.nodes[source.node]
        desc = _padded(node.desc, operators.upgrade(before.desc))
        if desc is None:
            return None
        notes.append(Note(NAME, before.name, f"done by {node.name}"))
        return [replace(node, desc=desc, inputs=(before.inputs[0], *node.inputs[1:]))]

    return rewritten(network, change)


def _padded(desc: descs.Convolution, padding: object) -> descs.Convolution | None:
    """Return a convolution that pads by itself; None where it can't."""
    if (
        not isinstance(padding, descs.Padding1)
        or padding.padding_mode is not PaddingMode.CONSTANT
        or padding.padding_value != 0
        or any((*padding.start_padding[:LEAD], *padding.end_padding[:LEAD]))
        or desc.direction is not ConvolutionDirection.FORWARD
        or not is_same(padding.output_tensor, desc.input_tensor)
    ):
        return None
    return changed(
        desc,
        input_tensor=padding.input_tensor,
        start_padding=_sums(desc.start_padding, padding.start_padding[LEAD:]),
        end_padding=_sums(desc.end_padding, padding.end_padding[LEAD:]),
    )


def _sums(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(first, second, strict=True))
