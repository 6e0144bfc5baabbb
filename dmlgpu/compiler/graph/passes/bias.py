"""What is added to each channel of a convolution's result is the convolution's bias."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.graph.network import Network, Node, Result
from dmlgpu.compiler.graph.passes.node_rewriting import changed, is_same, rewritten
from dmlgpu.compiler.graph.passes.rewriting import Note

NAME = "bias"

CHANNEL = 1


def fold_bias(network: Network, notes: list[Note]) -> Network:
    """Let convolutions of float32 without a bias add what is the same for all elements of a channel, where nothing but
    the addition reads their results."""
    readers = Counter(value for _, _, value in network.reads())
    readers.update(network.outputs)

    def change(number: int, _first: int) -> Sequence[Node] | None:
        node = network.nodes[number]
        if not isinstance(node.desc, descs.ElementWiseAdd | descs.ElementWiseAdd1):
            return None
        for source, added in (node.inputs, node.inputs[::-1]):
            if not isinstance(source, Result) or readers[source] != 1:
                continue
            before = network.nodes[source.node]
            desc = _biased(before.desc, node.desc, swapped=source is not node.inputs[0])
            if desc is not None:
                notes.append(Note(NAME, node.name, f"done by {before.name}"))
                return [Node(desc, (*before.inputs[:2], added), before.name)]
        return None

    return rewritten(network, change)


def _biased(
    desc: object, addition: descs.ElementWiseAdd | descs.ElementWiseAdd1, *, swapped: bool
) -> descs.Convolution | None:
    """Return a convolution that adds by itself; None where it can't.

    Args:
        desc: of what is before the addition.
        addition: what is added.
        swapped: the result of the convolution is the second operand.
    """
    result, added = addition.a_tensor, addition.b_tensor
    if swapped:
        result, added = added, result
    if not isinstance(desc, descs.Convolution) or desc.bias_tensor is not None or desc.fused_activation is not None:
        return None
    strides = added.element_strides
    alike = all(
        not stride or dimension == CHANNEL for dimension, stride in enumerate(strides) if added.sizes[dimension] > 1
    )
    if added.data_type is not DataType.FLOAT32 or not alike or not is_same(desc.output_tensor, result):
        return None
    sizes = tuple(size if dimension == CHANNEL else 1 for dimension, size in enumerate(added.sizes))
    return changed(
        desc,
        bias_tensor=TensorDesc(DataType.FLOAT32, sizes, strides, flags=added.flags),
        output_tensor=addition.output_tensor,
        fused_activation=addition.fused_activation if isinstance(addition, descs.ElementWiseAdd1) else None,
    )
