"""The rules of graphs (DirectML: the pages of DML_GRAPH_DESC and of its edges), and their order of execution."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

from dmlgpu.catalog import operator as operator_schema
from dmlgpu.catalog.enums import FeatureLevel
from dmlgpu.catalog.operator_desc import TensorSlot
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidDescription, InvalidGraph, abridged
from dmlgpu.compiler.graph.description import (
    ConstantNode,
    GraphDesc,
    InputEdge,
    IntermediateEdge,
    OperatorNode,
    OutputEdge,
)
from dmlgpu.compiler.graph.network import Constant, Network, NetworkInput, NetworkNode, NodeResult, Value
from dmlgpu.compiler.operators import check_rules


def resolve(graph: GraphDesc) -> Network:
    """Check a graph whose operators are already checked, and sort its nodes topologically.

    If several orders are possible, nodes keep the order of the description.

    Raises:
        InvalidGraph: For an invalid index, an input that no edge or more than one feeds, a required
            output that nothing reads, a cycle, sizes in bytes that differ, OWNED_BY_DML off a graph input or not on all
            that it feeds.
    """
    return _Resolver(graph).network()


def check_nodes(network: Network, level: FeatureLevel) -> None:
    """Check the description of every node, equal ones once.

    Raises:
        InvalidGraph: If a node breaks a rule of the feature level; the message names the node.
    """
    for desc, name in {node.desc: node.name for node in reversed(network.nodes)}.items():
        try:
            check_rules(desc, level)
        except InvalidDescription as error:
            raise InvalidGraph(f"graph {network.name!r}: node {name!r}: {error}") from error


class _Resolver:
    """State of checking a graph: source of each input of each node, and uses."""

    def __init__(self, graph: GraphDesc):
        self.graph = graph
        self.label = f"graph {abridged(graph.name)!r}" if graph.name else "graph"
        self.feeds: dict[tuple[int, int], InputEdge | IntermediateEdge] = {}
        self.reads: set[tuple[int, int]] = set()
        self.ends: dict[int, OutputEdge] = {}

    def fail(self, what: str) -> NoReturn:
        raise InvalidGraph(f"{self.label}: {what}")

    def network(self) -> Network:
        """Return the checked graph."""
        self._check_counts()
        for edge in self.graph.input_edges:
            self._expect_index(edge, "graph_input", edge.graph_input, self.graph.input_count, "the graph's inputs")
            self._feed(edge)
        for inner in self.graph.intermediate_edges:
            self._read(inner)
            self._feed(inner)
        for end in self.graph.output_edges:
            self._read(end)
            self._end(end)
        self._check_connected()
        order = self._order()
        self._check_bytes()
        inputs = self._graph_inputs()
        return self._assemble(order, inputs)

    # ---- names ------------------------------------------------------------------------------------------------------

    def node_name(self, index: int) -> str:
        """Return the name of a node in messages: ``node 2 'conv1' (CONVOLUTION)``."""
        node = self.graph.nodes[index]
        kind = node.desc.operator if isinstance(node, OperatorNode) else "constant"
        return f"node {index} {abridged(node.name)!r} ({kind})" if node.name else f"node {index} ({kind})"

    def edge_name(self, edge: InputEdge | IntermediateEdge | OutputEdge) -> str:
        """Return the name of an edge in messages: ``intermediate edge 'x' (node 0 output 0 to node 1 input 0)``."""
        named = f" {abridged(edge.name)!r}" if edge.name else ""
        match edge:
            case InputEdge():
                ends = f"graph input {edge.graph_input} to node {edge.to_node} input {edge.to_input}"
                return f"input edge{named} ({ends})"
            case OutputEdge():
                ends = f"node {edge.from_node} output {edge.from_output} to graph output {edge.graph_output}"
                return f"output edge{named} ({ends})"
            case _:
                ends = f"node {edge.from_node} output {edge.from_output} to node {edge.to_node} input {edge.to_input}"
                return f"intermediate edge{named} ({ends})"

    # ---- edges ------------------------------------------------------------------------------------------------------

    def _check_counts(self) -> None:
        if not self.graph.nodes:
            self.fail("nodes must hold at least one node, got none")
        if self.graph.output_count < 1:
            self.fail(f"output_count must be at least 1, got {self.graph.output_count}")

    def _expect_index(self, edge: Any, field: str, index: int, count: int, of: str) -> None:
        if not 0 <= index < count:
            self.fail(f"{self.edge_name(edge)}: {field} must be one of {of}, below {count}, got {index}")

    def _feed(self, edge: InputEdge | IntermediateEdge) -> None:
        """Record the source of an input of a node."""
        self._expect_index(edge, "to_node", edge.to_node, len(self.graph.nodes), "the nodes")
        slots = self._slots(edge.to_node, "inputs")
        where = self.node_name(edge.to_node)
        self._expect_index(edge, "to_input", edge.to_input, len(slots), f"the inputs of {where}")
        if slots[edge.to_input].tensor is None:
            self.fail(
                f"{self.edge_name(edge)}: {slots[edge.to_input].label} of {where} is absent from its description;"
                " no edge may end there"
            )
        taken = self.feeds.get((edge.to_node, edge.to_input))
        if taken is not None:
            self.fail(
                f"{self.edge_name(edge)}: {slots[edge.to_input].label} of {where} is fed by"
                f" {self.edge_name(taken)} already; one edge feeds an input"
            )
        self.feeds[edge.to_node, edge.to_input] = edge

    def _read(self, edge: IntermediateEdge | OutputEdge) -> None:
        """Record that an output of a node is read."""
        self._expect_index(edge, "from_node", edge.from_node, len(self.graph.nodes), "the nodes")
        where = self.node_name(edge.from_node)
        if isinstance(self.graph.nodes[edge.from_node], ConstantNode):
            self._expect_index(edge, "from_output", edge.from_output, 1, f"the outputs of {where}")
            if isinstance(edge, OutputEdge):
                self.fail(
                    f"{self.edge_name(edge)}: {where} has no tensor of its own; put an ELEMENT_WISE_IDENTITY between"
                )
            return
        slots = self._slots(edge.from_node, "outputs")
        self._expect_index(edge, "from_output", edge.from_output, len(slots), f"the outputs of {where}")
        if slots[edge.from_output].tensor is None:
            self.fail(
                f"{self.edge_name(edge)}: {slots[edge.from_output].label} of {where} is absent from its description;"
                " no edge may start there"
            )
        self.reads.add((edge.from_node, edge.from_output))

    def _end(self, edge: OutputEdge) -> None:
        """Record the source of an output of the graph."""
        self._expect_index(edge, "graph_output", edge.graph_output, self.graph.output_count, "the graph's outputs")
        taken = self.ends.get(edge.graph_output)
        if taken is not None:
            self.fail(
                f"{self.edge_name(edge)}: graph output {edge.graph_output} is written by {self.edge_name(taken)}"
                " already; one edge ends at an output"
            )
        self.ends[edge.graph_output] = edge

    def _slots(self, index: int, which: str) -> Sequence[TensorSlot]:
        node = self.graph.nodes[index]
        return getattr(node.desc, which) if isinstance(node, OperatorNode) else ()

    def _check_connected(self) -> None:
        """Reject inputs without an edge, required outputs that nothing reads, and missing outputs of the graph."""
        for index, node in enumerate(self.graph.nodes):
            if not isinstance(node, OperatorNode):
                continue
            where = self.node_name(index)
            for position, slot in enumerate(node.desc.inputs):
                if slot.tensor is not None and (index, position) not in self.feeds:
                    self.fail(f"{where}: {slot.label} (input {position}) is in its description, and no edge feeds it")
            schema = operator_schema(node.desc.operator)
            for position, slot in enumerate(node.desc.outputs):
                if (index, position) not in self.reads and not schema.field(slot.field).optional:
                    self.fail(f"{where}: {slot.label} (output {position}) is required, and no edge starts there")
        for index in range(self.graph.output_count):
            if index not in self.ends:
                self.fail(f"no edge ends at graph output {index}, of {self.graph.output_count}")

    # ---- order ------------------------------------------------------------------------------------------------------

    def _order(self) -> list[int]:
        """Return the operators' indices, each after its producers."""
        readers: dict[int, list[int]] = defaultdict(list)
        waiting = {index: 0 for index, node in enumerate(self.graph.nodes) if isinstance(node, OperatorNode)}
        for edge in self.graph.intermediate_edges:
            if edge.from_node in waiting:
                readers[edge.from_node].append(edge.to_node)
                waiting[edge.to_node] += 1
        ready = [index for index, count in waiting.items() if not count]
        order = []
        while ready:
            index = heapq.heappop(ready)
            order.append(index)
            for reader in readers[index]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(ready, reader)
        if len(order) < len(waiting):
            self.fail(f"nodes must not form a cycle, got {self._cycle(set(waiting) - set(order))}")
        return order

    def _cycle(self, stuck: set[int]) -> str:
        """Return a cycle among nodes, each of which reads another of them."""
        reads = {edge.to_node: edge.from_node for edge in self.graph.intermediate_edges if edge.from_node in stuck}
        path = {min(stuck): None}  # in order
        while (last := reads[next(reversed(path))]) not in path:
            path[last] = None
        indices = list(path)
        loop = [*indices[indices.index(last) :], last][::-1]
        shown = [self.node_name(index) for index in (loop if len(loop) <= 6 else [*loop[:3], *loop[-2:]])]
        if len(loop) > 6:
            shown.insert(3, f"... {len(loop) - 5} more")
        return " -> ".join(shown)

    # ---- tensors ----------------------------------------------------------------------------------------------------

    def _to(self, edge: InputEdge | IntermediateEdge) -> TensorDesc:
        tensor = self._slots(edge.to_node, "inputs")[edge.to_input].tensor
        assert tensor is not None
        return tensor

    def _check_bytes(self) -> None:
        """Reject edges between tensors of different sizes in bytes, and owned tensors that no graph input feeds."""
        for edge in self.graph.intermediate_edges:
            node, tensor = self.graph.nodes[edge.from_node], self._to(edge)
            slot = self._slots(edge.to_node, "inputs")[edge.to_input]
            where = f"{self.edge_name(edge)}: {slot.label} of {self.node_name(edge.to_node)}"
            if tensor.owned_by_dml:
                self.fail(f"{where} is OWNED_BY_DML, and only an input of the graph may feed it")
            if isinstance(node, ConstantNode):
                size, of = len(node.data), "the data"
            else:
                source = node.desc.outputs[edge.from_output]
                assert source.tensor is not None
                size, of = source.tensor.byte_size, source.label
            if size != tensor.byte_size:
                self.fail(
                    f"{where} takes {tensor.byte_size} bytes, {of} of {self.node_name(edge.from_node)} has {size};"
                    " connected tensors have one size in bytes"
                )

    def _graph_inputs(self) -> tuple[TensorDesc | None, ...]:
        """Return the tensor to bind to each input of the graph: the largest that it feeds."""
        largest: list[tuple[TensorDesc, InputEdge] | None] = [None] * self.graph.input_count
        for edge in self.graph.input_edges:
            tensor, before = self._to(edge), largest[edge.graph_input]
            if before is None:
                largest[edge.graph_input] = tensor, edge
            elif before[0].owned_by_dml != tensor.owned_by_dml:
                self.fail(
                    f"{self.edge_name(edge)} and {self.edge_name(before[1])} start at one input of the graph, of which"
                    " one is OWNED_BY_DML and the other is not; all or none of them must be"
                )
            elif tensor.byte_size > before[0].byte_size:
                largest[edge.graph_input] = tensor, edge
        return tuple(entry and entry[0] for entry in largest)

    def _assemble(self, order: list[int], inputs: tuple[TensorDesc | None, ...]) -> Network:
        place = {index: position for position, index in enumerate(order)}
        data = [(index, node.data) for index, node in enumerate(self.graph.nodes) if isinstance(node, ConstantNode)]
        constants = {index: position for position, (index, _) in enumerate(data)}

        def value(edge: InputEdge | IntermediateEdge | None) -> Value | None:
            if edge is None:
                return None
            if isinstance(edge, InputEdge):
                return NetworkInput(edge.graph_input)
            if edge.from_node in place:
                return NodeResult(place[edge.from_node], edge.from_output)
            return Constant(constants[edge.from_node])

        nodes = []
        for index in order:
            node = self.graph.nodes[index]
            assert isinstance(node, OperatorNode)
            fed = tuple(value(self.feeds.get((index, position))) for position in range(len(node.desc.inputs)))
            nodes.append(NetworkNode(node.desc, fed, abridged(node.name or f"node {index}")))
        outputs = [NodeResult(place[self.ends[n].from_node], self.ends[n].from_output) for n in range(len(self.ends))]
        network = Network(
            abridged(self.graph.name or "graph"),
            inputs,
            tuple(nodes),
            tuple(each for _, each in data),
            tuple(outputs),
            (),
        )
        return replace(network, output_tensors=tuple(map(network.tensor, outputs)))
