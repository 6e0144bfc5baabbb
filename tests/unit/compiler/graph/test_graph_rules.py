"""The rules of graphs, each broken once; the message names node or edge, expected and actual value."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dmlgpu import DataType, TensorDesc, TensorFlags, descs
from dmlgpu.common.errors import InvalidGraph
from dmlgpu.compiler.graph.network import Constant, NetworkInput, NodeResult
from dmlgpu.compiler.graph.resolve import resolve
from tests.unit.graph_examples import (
    FLOATS,
    ConstantNode,
    GraphDesc,
    InputEdge,
    IntermediateEdge,
    OperatorNode,
    OutputEdge,
    add,
    chain,
    identity,
    relu,
)

PAIR = chain(relu(), add())
"""relu -> add with a second input of the graph."""
OWNED = dataclasses.replace(FLOATS, flags=TensorFlags.OWNED_BY_DML)
HALVES = TensorDesc(DataType.FLOAT16, (1, 2, 4, 4))


POOLING = descs.MaxPooling1(
    input_tensor=FLOATS,
    output_tensor=FLOATS,
    output_indices_tensor=None,
    strides=(1, 1),
    window_size=(1, 1),
    start_padding=(0, 0),
    end_padding=(0, 0),
)


def changed(**changes: Any) -> GraphDesc:
    return dataclasses.replace(PAIR, **changes)


BROKEN = {
    "no nodes": (changed(nodes=()), "graph 'chain': nodes must hold at least one node, got none"),
    "no outputs": (changed(output_count=0), "graph 'chain': output_count must be at least 1, got 0"),
    "no such graph input": (
        changed(input_edges=(InputEdge(0, 0, 0), InputEdge(2, 1, 1))),
        "input edge (graph input 2 to node 1 input 1): graph_input must be one of the graph's inputs, below 2, got 2",
    ),
    "no such node": (
        changed(input_edges=(InputEdge(0, 0, 0), InputEdge(1, 5, 1, "b"))),
        "input edge 'b' (graph input 1 to node 5 input 1): to_node must be one of the nodes, below 2, got 5",
    ),
    "no such input of a node": (
        changed(input_edges=(InputEdge(0, 0, 0), InputEdge(1, 1, 2))),
        "to_input must be one of the inputs of node 1 'element_wise_add1' (ELEMENT_WISE_ADD), below 2, got 2",
    ),
    "no such output of a node": (
        changed(intermediate_edges=(IntermediateEdge(0, 1, 1, 0),)),
        "from_output must be one of the outputs of node 0 'activation_relu0' (ACTIVATION_RELU), below 1, got 1",
    ),
    "no such output of the graph": (
        changed(output_edges=(OutputEdge(1, 0, 1),)),
        "output edge (node 1 output 0 to graph output 1): graph_output must be one of the graph's outputs,"
        " below 1, got 1",
    ),
    "an input fed twice": (
        changed(input_edges=(*PAIR.input_edges, InputEdge(0, 1, 1))),
        "a second edge: b_tensor of node 1 'element_wise_add1' (ELEMENT_WISE_ADD) is fed by input edge (graph input 1"
        " to node 1 input 1) already; one edge feeds an input",
    ),
    "an output written twice": (
        changed(output_edges=(*PAIR.output_edges, OutputEdge(0, 0, 0))),
        "graph output 0 is written by output edge (node 1 output 0 to graph output 0) already",
    ),
    "an input that nothing feeds": (
        changed(input_edges=(InputEdge(0, 0, 0),)),
        "node 1 'element_wise_add1' (ELEMENT_WISE_ADD): b_tensor (input 1) is in its description, and no edge feeds it",
    ),
    "a required output that nothing reads": (
        changed(intermediate_edges=(), input_edges=(*PAIR.input_edges, InputEdge(0, 1, 0))),
        "node 0 'activation_relu0' (ACTIVATION_RELU): output_tensor (output 0) is required, and no edge starts there",
    ),
    "an output of the graph that nothing writes": (
        changed(output_count=2),
        "graph 'chain': no edge ends at graph output 1, of 2",
    ),
    "a cycle": (
        changed(
            input_edges=(InputEdge(1, 1, 1),),
            intermediate_edges=(IntermediateEdge(0, 0, 1, 0), IntermediateEdge(1, 0, 0, 0)),
        ),
        "nodes must not form a cycle, got node 0 'activation_relu0' (ACTIVATION_RELU) -> node 1 'element_wise_add1'"
        " (ELEMENT_WISE_ADD) -> node 0 'activation_relu0' (ACTIVATION_RELU)",
    ),
    "sizes in bytes that differ": (
        changed(nodes=(OperatorNode(relu(HALVES)), OperatorNode(add()))),
        "a_tensor of node 1 (ELEMENT_WISE_ADD) takes 128 bytes, output_tensor of node 0 (ACTIVATION_RELU) has 64;"
        " connected tensors have one size in bytes",
    ),
    "an owned tensor between nodes": (
        changed(nodes=(OperatorNode(relu()), OperatorNode(add(OWNED, FLOATS, FLOATS)))),
        "a_tensor of node 1 (ELEMENT_WISE_ADD) is OWNED_BY_DML, and only an input of the graph may feed it",
    ),
    "an input that is owned here and not there": (
        changed(
            nodes=(OperatorNode(relu()), OperatorNode(add(FLOATS, OWNED))),
            input_edges=(InputEdge(0, 0, 0), InputEdge(0, 1, 1)),
        ),
        "start at one input of the graph, of which one is OWNED_BY_DML and the other is not; all or none of them must",
    ),
    "a constant of the wrong size": (
        changed(
            nodes=(*PAIR.nodes, ConstantNode(bytes(64), "c")),
            input_edges=(InputEdge(0, 0, 0),),
            intermediate_edges=(*PAIR.intermediate_edges, IntermediateEdge(2, 0, 1, 1)),
        ),
        "b_tensor of node 1 'element_wise_add1' (ELEMENT_WISE_ADD) takes 128 bytes, the data of node 2 'c' (constant)"
        " has 64",
    ),
    "a constant as an output": (
        changed(nodes=(*PAIR.nodes, ConstantNode(bytes(128))), output_edges=(OutputEdge(2, 0, 0),)),
        "node 2 (constant) has no tensor of its own; put an ELEMENT_WISE_IDENTITY between",
    ),
    "a constant for an owned tensor": (
        changed(
            nodes=(OperatorNode(relu()), OperatorNode(add(FLOATS, OWNED)), ConstantNode(bytes(128))),
            input_edges=(InputEdge(0, 0, 0),),
            intermediate_edges=(*PAIR.intermediate_edges, IntermediateEdge(2, 0, 1, 1)),
        ),
        "b_tensor of node 1 (ELEMENT_WISE_ADD) is OWNED_BY_DML, and only an input of the graph may feed it",
    ),
    "an edge from no node": (
        changed(intermediate_edges=(IntermediateEdge(2, 0, 1, 0, "inner"),)),
        "intermediate edge 'inner' (node 2 output 0 to node 1 input 0): from_node must be one of the nodes, below 2,"
        " got 2",
    ),
    "an edge to no node": (
        changed(intermediate_edges=(IntermediateEdge(0, 0, 7, 0),)),
        "intermediate edge (node 0 output 0 to node 7 input 0): to_node must be one of the nodes, below 2, got 7",
    ),
    "an output of no node": (
        changed(output_edges=(OutputEdge(3, 0, 0),)),
        "output edge (node 3 output 0 to graph output 0): from_node must be one of the nodes, below 2, got 3",
    ),
    "an input of a constant": (
        changed(
            nodes=(*PAIR.nodes, ConstantNode(bytes(128), "c")), input_edges=(*PAIR.input_edges, InputEdge(0, 2, 0))
        ),
        "to_input must be one of the inputs of node 2 'c' (constant), below 0, got 0",
    ),
    "a second output of a constant": (
        changed(
            nodes=(*PAIR.nodes, ConstantNode(bytes(128), "c")),
            input_edges=(InputEdge(0, 0, 0),),
            intermediate_edges=(*PAIR.intermediate_edges, IntermediateEdge(2, 1, 1, 1)),
        ),
        "from_output must be one of the outputs of node 2 'c' (constant), below 1, got 1",
    ),
    "a node that reads itself": (
        changed(
            input_edges=(InputEdge(0, 0, 0),),
            intermediate_edges=(*PAIR.intermediate_edges, IntermediateEdge(1, 0, 1, 1)),
        ),
        "nodes must not form a cycle, got node 1 'element_wise_add1' (ELEMENT_WISE_ADD) -> node 1 'element_wise_add1'"
        " (ELEMENT_WISE_ADD)",
    ),
    "an absent tensor that is read": (
        GraphDesc(
            1,
            2,
            (OperatorNode(POOLING, "pool"),),
            (InputEdge(0, 0, 0),),
            (),
            (OutputEdge(0, 0, 0), OutputEdge(0, 1, 1)),
        ),
        "output edge (node 0 output 1 to graph output 1): output_indices_tensor of node 0 'pool' (MAX_POOLING1) is"
        " absent from its description; no edge may start there",
    ),
    "an absent tensor that is fed": (
        GraphDesc(
            1,
            1,
            (
                OperatorNode(
                    descs.Gemm(
                        a_tensor=FLOATS,
                        b_tensor=FLOATS,
                        c_tensor=None,
                        output_tensor=FLOATS,
                        trans_a=0,
                        trans_b=0,
                        alpha=1.0,
                        beta=0.0,
                        fused_activation=None,
                    )
                ),
            ),
            (InputEdge(0, 0, 0), InputEdge(0, 0, 1), InputEdge(0, 0, 2)),
            (),
            (OutputEdge(0, 0, 0),),
        ),
        "c_tensor of node 0 (GEMM) is absent from its description; no edge may end there",
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_broken_rules_are_rejected(broken: str) -> None:
    graph, expected = BROKEN[broken]
    with pytest.raises(InvalidGraph) as caught:
        resolve(graph)
    assert expected.removeprefix("a second edge: ") in str(caught.value)


def test_a_duplicate_edge_is_rejected() -> None:
    with pytest.raises(InvalidGraph, match="is fed by"):
        resolve(changed(input_edges=(*PAIR.input_edges, PAIR.input_edges[0])))
    with pytest.raises(InvalidGraph, match="is written by"):
        resolve(changed(output_edges=PAIR.output_edges * 2))


def test_counts_and_names_are_bounded() -> None:
    with pytest.raises(InvalidGraph, match="GraphDesc: input_count must be an integer between 0 and 65536, got"):
        changed(input_count=10**6)
    with pytest.raises(InvalidGraph) as caught:
        resolve(changed(name="x" * 100_000, output_count=2))
    assert len(str(caught.value)) < 1000


def test_the_graphs_are_valid_before_they_are_broken() -> None:
    network = resolve(PAIR)
    assert [node.inputs for node in network.nodes] == [(NetworkInput(0),), (NodeResult(0, 0), NetworkInput(1))]
    assert network.outputs == (NodeResult(1, 0),)
    assert network.inputs == (FLOATS, FLOATS)


def test_optional_outputs_need_no_edge_nor_does_a_constant() -> None:
    indices = TensorDesc(DataType.UINT32, FLOATS.sizes)
    nodes = (OperatorNode(POOLING.replace(output_indices_tensor=indices)), ConstantNode(bytes(4)))
    network = resolve(GraphDesc(1, 1, nodes, (InputEdge(0, 0, 0),), (), (OutputEdge(0, 0, 0),)))
    assert (len(network.nodes), network.outputs) == (1, (NodeResult(0, 0),))


def test_names_need_not_be_unique() -> None:
    nodes = tuple(dataclasses.replace(node, name="same") for node in PAIR.nodes)
    edges = tuple(dataclasses.replace(edge, name="same") for edge in PAIR.input_edges)
    assert [node.name for node in resolve(changed(nodes=nodes, input_edges=edges)).nodes] == ["same", "same"]


def test_nodes_are_ordered_after_their_producers() -> None:
    nodes = (OperatorNode(relu(), "last"), OperatorNode(relu(), "first"), OperatorNode(relu(), "second"))
    inner = (IntermediateEdge(1, 0, 2, 0), IntermediateEdge(2, 0, 0, 0))
    network = resolve(GraphDesc(1, 1, nodes, (InputEdge(0, 1, 0),), inner, (OutputEdge(0, 0, 0),)))
    assert [node.name for node in network.nodes] == ["first", "second", "last"]
    assert network.outputs == (NodeResult(2, 0),)


def test_edges_may_change_type_and_sizes_as_long_as_bytes_agree() -> None:
    words = TensorDesc(DataType.UINT16, (64,))
    graph = chain(relu(), identity(words))
    assert resolve(graph).output_tensors == (words,)


def test_the_largest_tensor_of_an_input_is_bound() -> None:
    small = TensorDesc(DataType.FLOAT32, (1, 1, 2, 2))
    nodes = (OperatorNode(relu(small)), OperatorNode(relu()))
    edges = (InputEdge(0, 0, 0), InputEdge(0, 1, 0))
    graph = GraphDesc(2, 2, nodes, edges, (), (OutputEdge(0, 0, 0), OutputEdge(1, 0, 1)))
    assert resolve(graph).inputs == (FLOATS, None)


def test_constants_have_their_own_indices() -> None:
    nodes = (ConstantNode(bytes(128)), OperatorNode(add()), ConstantNode(bytes(range(128))))
    inner = (IntermediateEdge(0, 0, 1, 0), IntermediateEdge(2, 0, 1, 1))
    network = resolve(GraphDesc(0, 1, nodes, (), inner, (OutputEdge(1, 0, 0),)))
    assert network.nodes[0].inputs == (Constant(0), Constant(1))
    assert network.constants == (bytes(128), bytes(range(128)))


def test_a_graph_of_thousands_of_nodes_needs_no_recursion() -> None:
    network = resolve(chain(*[relu()] * 5000))
    assert len(network.nodes) == 5000
