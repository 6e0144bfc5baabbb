"""Graphs whose sizes have names: built once, and compiled for any values of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dmlgpu.catalog.enums import FeatureLevel, as_elements
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.graph.description import ConstantNode, GraphDesc
from dmlgpu.compiler.graph.resolve import check_nodes
from dmlgpu.compiler.sizes.arithmetic import inside
from dmlgpu.compiler.sizes.named import NamedSizes
from dmlgpu.compiler.sizes.networks import SizedNetwork, sized_network
from dmlgpu.tensors.graphs.nodes import BuiltNode, InputNode, used
from dmlgpu.tensors.tensor import Tensor


@dataclass(frozen=True)
class SizedGraph:
    """A subgraph for values of the sizes.

    Attributes:
        network: Its network.
        inputs: Inputs of the graph.
        outputs: Outputs of the subgraph.
        constants: Data of constants that depend on sizes, by index of the node.
        values: The values, as a text.
    """

    network: SizedNetwork
    inputs: Sequence[TensorDesc]
    outputs: Sequence[Tensor]
    constants: Mapping[int, bytes]
    values: str

    @property
    def desc(self) -> GraphDesc:
        """Description of the subgraph."""
        desc = self.network.desc
        nodes = [*desc.nodes]
        for place, data in self.constants.items():
            node = nodes[place]
            assert isinstance(node, ConstantNode)
            nodes[place] = replace(node, data=data)
        return replace(desc, nodes=tuple(nodes))


@inside()
def recorded(
    sizes: NamedSizes,
    outputs: Sequence[Tensor],
    inputs: Sequence[InputNode],
    nodes: Sequence[BuiltNode],
    desc: GraphDesc,
) -> Callable[[Sequence[int]], SizedGraph]:
    """Return the subgraph of outputs of a graph by the values of its sizes.

    The function raises InvalidArgument if a condition of the graph does not hold for the values, and names it, and
    InvalidGraph if an operator does not accept a size of 1, or two that are equal.

    Args:
        sizes: The names.
        outputs: The outputs.
        inputs: Inputs of the graph.
        nodes: Nodes of the graph.
        desc: Description of the subgraph, with names.
    """
    described = [nodes[index] for index in used(nodes, [output.origin for output in outputs])]
    numbered = [
        (place, node.desc, node.number)
        for place, node in enumerate(described)
        if node.number is not None and isinstance(node.desc, TensorDesc)
    ]
    replay = sizes.replayed(
        (
            sized_network(desc, sizes),
            [source.desc for source in inputs],
            [(output.sizes, output.strides, output.offset) for output in outputs],
            [number for _, _, number in numbered],
        )
    )
    expected = list(sizes.general.values())

    def sized(values: Sequence[int]) -> SizedGraph:
        results = replay(values)
        assignment = ", ".join(f"{name} = {value}" for name, value in zip(sizes.names, values, strict=True))
        if results is None:
            raise InvalidArgument(
                f"{sizes.label}: it was built for sizes with {sizes.broken(values)}, got {assignment}"
            )
        (network, descs, layouts, numbers), general = results
        if general != expected:
            check_nodes(network.network, max(FeatureLevel))
        resized = [output._resized(*layout) for output, layout in zip(outputs, layouts, strict=True)]
        constants = {
            place: desc.encode(as_elements(desc.data_type, [number])).tobytes()
            for (place, desc, _), number in zip(numbered, numbers, strict=True)
        }
        return SizedGraph(network, descs, resized, constants, assignment)

    return sized
