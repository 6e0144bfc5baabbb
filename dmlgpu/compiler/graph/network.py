"""Validated graphs: nodes in topological order with their inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc


@dataclass(frozen=True)
class NetworkInput:
    """An input of the graph, by index."""

    index: int


@dataclass(frozen=True)
class Constant:
    """A constant of the network, by index."""

    index: int


@dataclass(frozen=True)
class NodeResult:
    """An output of a node: node index and flat output index."""

    node: int
    output: int


Value: TypeAlias = NetworkInput | Constant | NodeResult

SMALL_CONSTANT = 16
"""Maximum bytes of constants that share a buffer, and their stride in it."""


@dataclass(frozen=True)
class NetworkNode:
    """An operator of a network.

    Attributes:
        desc: Its description. Nodes exchange bytes: the tensors of a producer and a consumer need only have the same
            size in bytes.
        inputs: Source of each flat input; None if the description has no tensor.
        name: Name in messages and labels.
    """

    desc: OperatorDesc
    inputs: tuple[Value | None, ...]
    name: str


@dataclass(frozen=True)
class Network:
    """A graph in topological order.

    Attributes:
        name: Name in messages and labels.
        inputs: Tensors to bind, by index; if one feeds several inputs, the largest. None if unused.
        nodes: Nodes in topological order.
        constants: Data, as whole 32-bit words.
        outputs: Source of each output of the graph.
        output_tensors: Layout of each output of the graph.
        initial: Indices of the nodes that are computed when the graph is initialized.
    """

    name: str
    inputs: tuple[TensorDesc | None, ...]
    nodes: tuple[NetworkNode, ...]
    constants: tuple[bytes, ...]
    outputs: tuple[NodeResult | Constant, ...]
    output_tensors: tuple[TensorDesc, ...]
    initial: frozenset[int] = frozenset()

    def tensor(self, result: NodeResult) -> TensorDesc:
        """Return the tensor that a node writes.

        Raises:
            KeyError: If its description has none there.
        """
        tensor = self.nodes[result.node].desc.outputs[result.output].tensor
        if tensor is None:
            raise KeyError(result)
        return tensor

    @property
    def small_constants(self) -> list[int]:
        """Indices of the constants that share a buffer."""
        return [index for index, data in enumerate(self.constants) if len(data) <= SMALL_CONSTANT]

    @property
    def bound_constants(self) -> tuple[bytes, ...]:
        """Constants that steps bind: those of the network, then a copy of the small ones in one buffer."""
        together = b"".join(self.constants[index].ljust(SMALL_CONSTANT, b"\0") for index in self.small_constants)
        return (*self.constants, together) if together else self.constants

    def reads(self) -> Iterator[tuple[int, int, Value]]:
        """Yield node index, flat input index and value of every input of every node."""
        for index, node in enumerate(self.nodes):
            for position, value in enumerate(node.inputs):
                if value is not None:
                    yield index, position, value
