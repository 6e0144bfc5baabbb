"""Explanations: nodes of kernels, bytes and multiplications, memory, JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dmlgpu import DataType, TensorDesc, descs
from dmlgpu.catalog.enums import ConvolutionDirection, ConvolutionMode, TensorFlags
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.cli.subjects import find_subjects
from dmlgpu.common.errors import InvalidArgument, InvalidDescription, InvalidGraph
from dmlgpu.compiler.explain import (
    Explanation,
    Traffic,
    as_json,
    explain_graph,
    explain_operator,
    multiplications,
    nodes_of_steps,
)
from dmlgpu.compiler.graph.passes import PASSES
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.cases.registry import case_by_name
from dmlgpu.conformance.suites.graphs import GraphSuite
from tests.unit.graph_examples import (
    FLOATS,
    GraphDesc,
    InputEdge,
    IntermediateEdge,
    OperatorNode,
    OutputEdge,
    add,
    attention,
    chain,
    convolution,
    exponential,
    identity,
    product,
    relu,
)

CPU = Target("CPU", Profile.CPU, frozenset({"immediates"}))
GPU = Target("GPU", Profile.DISCRETE, frozenset({"immediates"}))
BYTES = 128
"""Bytes of FLOATS."""


def graph(desc: GraphDesc, *without: str, target: Target = CPU) -> Explanation:
    return explain_graph("a graph", desc, target, without)


def graph_of(name: str) -> GraphDesc:
    """Return the graph of a case."""
    (subject,) = find_subjects(name)
    assert isinstance(subject.desc, GraphDesc)
    return subject.desc


def names(explained: Explanation) -> list[list[str]]:
    return [[node.name for node in nodes] for nodes in explained.nodes]


def operator(desc: OperatorDesc, target: Target = CPU) -> Explanation:
    return explain_operator("an operator", desc, target)


# ---- nodes of kernels


def test_an_element_wise_chain_is_one_kernel_of_all_nodes() -> None:
    explained = graph(chain(relu(), add(), exponential()))
    assert names(explained) == [["activation_relu0", "element_wise_add1", "element_wise_exp2"]]
    assert (len(explained.kernels), explained.unfused_kernels) == (1, 3)


def test_without_passes_each_node_has_its_own_kernel() -> None:
    explained = graph(chain(relu(), add(), exponential()), *PASSES)
    assert names(explained) == [["activation_relu0"], ["element_wise_add1"], ["element_wise_exp2"]]
    assert explained.traffic == explained.unfused_traffic


def test_a_recomputed_value_belongs_to_each_reader() -> None:
    nodes = tuple(OperatorNode(desc, name) for desc, name in ((relu(), "x"), (exponential(), "a"), (relu(), "b")))
    inner = (IntermediateEdge(0, 0, 1, 0), IntermediateEdge(0, 0, 2, 0))
    outputs = (OutputEdge(1, 0, 0), OutputEdge(2, 0, 1))
    tapped = GraphDesc(1, 2, nodes, (InputEdge(0, 0, 0),), inner, outputs)
    assert names(graph(tapped)) == [["x", "a"], ["x", "b"]]


def test_epilogues_and_prologues_belong_to_the_kernel_that_computes_them() -> None:
    explained = graph(chain(convolution(), relu(), add(), exponential(), product()))
    assert names(explained) == [
        ["convolution0", "activation_relu1", "element_wise_add2", "element_wise_exp3"],
        ["gemm4"],
    ]


def test_attention_names_all_five() -> None:
    explained = graph(attention(1, 2, 16, 16, 8))
    assert [len(own) for own in names(explained)] == [5]


def test_pieces_that_are_written_in_place_belong_to_their_own_step() -> None:
    """Both pieces of a JOIN lie in one output; each step computes one of them, and not the other's node."""
    whole = TensorDesc(DataType.FLOAT32, (1, 4, 4, 4))
    join = descs.Join(input_tensors=(FLOATS, FLOATS), output_tensor=whole, axis=1)
    nodes = (OperatorNode(convolution(), "left"), OperatorNode(product(), "right"), OperatorNode(join, "join"))
    into = (InputEdge(0, 0, 0), InputEdge(1, 0, 1), InputEdge(0, 1, 0), InputEdge(2, 1, 1))
    inner = (IntermediateEdge(0, 0, 2, 0), IntermediateEdge(1, 0, 2, 1))
    explained = graph(GraphDesc(3, 1, nodes, into, inner, (OutputEdge(2, 0, 0),)))
    assert names(explained) == [["left", "join"], ["right", "join"]]


def test_readers_through_a_copy_name_the_copy() -> None:
    explained = graph(chain(identity(FLOATS), product()))
    assert names(explained) == [["element_wise_identity0", "gemm1"]]


@pytest.mark.parametrize("name", [name for name in GraphSuite().names("standard") if name.startswith("graph-")][::4])
def test_random_graphs_lose_no_node(name: str) -> None:
    """Every node that remains after passes over nodes is computed; steps without nodes are copies into outputs."""
    for without in ((), ("element-wise", "views")):
        explained = graph(graph_of(name), *without)
        assert explained.graph is not None
        computed = {node.name for nodes in explained.nodes for node in nodes}
        assert computed == {node.name for node in explained.graph.network.nodes}
        silent = [step.label for step, nodes in zip(explained.plan.steps, explained.nodes, strict=True) if not nodes]
        assert all(label.startswith("output ") for label in silent)
        assert sum(kernel.times for kernel in explained.kernels) == len(explained.program.kernels)


def test_an_empty_graph_has_no_kernels() -> None:
    assert nodes_of_steps(((), ()), ()) == ()


# ---- bytes and multiplications


def test_bytes_before_and_after_fusion_by_hand() -> None:
    """relu(x) + y: three tensors are read and two written; after fusion, the intermediate one is neither."""
    explained = graph(chain(relu(), add()))
    assert explained.unfused_traffic == Traffic(read=3 * BYTES, written=2 * BYTES)
    assert explained.traffic == Traffic(read=2 * BYTES, written=BYTES)


def test_repeated_elements_count_once_and_so_does_a_tensor_that_is_read_twice() -> None:
    row = TensorDesc(DataType.FLOAT32, (1, 2, 4, 4), (0, 0, 0, 1))
    assert operator(add(FLOATS, row)).traffic == Traffic(BYTES + 16, BYTES)
    twice = GraphDesc(
        1, 1, (OperatorNode(add(), "sum"),), (InputEdge(0, 0, 0), InputEdge(0, 0, 1)), (), (OutputEdge(0, 0, 0),)
    )
    assert graph(twice).traffic == Traffic(BYTES, BYTES)


def test_bytes_of_time_steps_count_every_iteration() -> None:
    explained = operator(case_by_name("lstm-float32-3x33x16-near-bare-s0").desc)
    (repeat,) = [step for step in as_json(explained)["steps"] if step["kind"] == "repeat"]
    # Per turn: the weights of four gates (5 x 5), of each of which one number is read; inputs of three; both states.
    turn = 4 * (4 * 5 * 5 + 3 * 33 * 5 + 2 * 33 * 5)
    assert (repeat["bytes_read"], repeat["bytes_written"]) == (3 * turn, 3 * 4 * 2 * 33 * 5)
    assert repeat["multiplications"] == 3 * 3 * 33 * 5 * 5


@pytest.mark.parametrize(
    ("desc", "count"),
    [
        (product(), 2 * 4 * 4 * 4),
        (convolution(), 2 * 4 * 4 * (2 * 3 * 3)),
        (relu(), None),
    ],
    ids=lambda value: getattr(value, "operator", ""),
)
def test_multiplications(desc: OperatorDesc, count: int | None) -> None:
    assert [multiplications(step) for step in operator(desc).plan.steps] == [count]


def test_multiplications_of_attention_and_of_transposed_convolutions() -> None:
    (step,) = graph(attention(1, 2, 16, 12, 8)).plan.steps
    assert multiplications(step) == 2 * (16 * 12 * 8 + 16 * 12 * 8)
    scattered = convolution().replace(direction=ConvolutionDirection.BACKWARD, mode=ConvolutionMode.CROSS_CORRELATION)
    assert [multiplications(step) for step in operator(scattered).plan.steps] == [2 * 4 * 4 * 2 * 9]


# ---- memory and kernels


def test_peak_memory_is_the_maximum_of_live_bytes() -> None:
    """A chain of five, unfused, has four intermediate values, two of which are alive at a time, each in 256 bytes."""
    explained = graph(chain(relu(), relu(), relu(), relu(), relu()), *PASSES)
    assert (explained.program.temporary_size, explained.program.least_temporary_size) == (512, 512)


def test_kernels_have_their_steps_and_execution_counts() -> None:
    explained = operator(case_by_name("lstm-float32-3x33x16-near-bare-s0").desc)
    rows = [(kernel.step, kernel.kernel.label, kernel.times) for kernel in explained.kernels]
    assert rows[2:6] == [
        (2, "lstm lay out b", 1),
        (2, "lstm register x4", 1),
        (3, "lstm step", 3),
        (4, "lstm output sequence", 1),
    ]
    assert sum(times for _, _, times in rows) == len(explained.program.kernels)


def test_owned_filters_are_repacked_at_initialization_and_owned_inputs_copied() -> None:
    tensor = TensorDesc(DataType.FLOAT32, (1, 16, 32, 32))
    filters = TensorDesc(DataType.FLOAT32, (16, 16, 3, 3), flags=TensorFlags.OWNED_BY_DML)
    winograd = operator(convolution(tensor, filters))
    assert [(kernel.kernel.label, kernel.step) for kernel in winograd.initialization] == [
        ("convolution winograd filters", 0),
        ("convolution own input 1 x4", None),
    ]
    assert "Winograd" in winograd.kernels[0].scheduled.reason  # type: ignore[union-attr]
    owned = TensorDesc(DataType.FLOAT32, FLOATS.sizes, flags=TensorFlags.OWNED_BY_DML)
    (copy,) = operator(add(FLOATS, owned)).initialization
    assert (copy.kernel.label, copy.step, copy.scheduled) == ("element_wise_add own input 1 x4", None, None)


def test_nodes_that_are_computed_at_initialization_belong_to_kernels_that_run_once() -> None:
    """The filters go through a relu before the convolution reads them: that happens once, and is not executed."""
    owned = TensorDesc(DataType.FLOAT32, (2, 2, 3, 3), flags=TensorFlags.OWNED_BY_DML)
    filters = TensorDesc(DataType.FLOAT32, (2, 2, 3, 3))
    rectified = descs.ActivationRelu(input_tensor=owned, output_tensor=filters)
    nodes = (OperatorNode(rectified, "weights"), OperatorNode(convolution(FLOATS, filters), "convolution"))
    into = (InputEdge(0, 1, 0), InputEdge(1, 0, 0))
    explained = graph(GraphDesc(2, 1, nodes, into, (IntermediateEdge(0, 0, 1, 1),), (OutputEdge(1, 0, 0),)))
    assert names(explained) == [["convolution"], ["weights"]]
    assert [step["once"] for step in as_json(explained)["steps"]] == [False, True]
    assert [kernel.step for kernel in explained.kernels] == [0]
    assert [kernel.step for kernel in explained.initialization if kernel.step is not None] == [1]
    assert "  2. at initialization: map weights activation_relu map\n" in str(explained.plan)
    assert explained.traffic == explained.unfused_traffic == Traffic(BYTES + 4 * 36, BYTES)


def test_explanations_print_plan_schedule_and_program() -> None:
    text = repr(graph(chain(relu(), exponential())))
    plan, schedule, program = text.split("\n\n")
    assert (plan.split()[0], schedule.split()[0], program.split()[0]) == ("plan", "schedule", "program")
    assert "why: " in schedule


def test_reasons_explain_choices() -> None:
    small, large = FLOATS, TensorDesc(DataType.FLOAT32, (1, 1, 256, 256))
    reasons = {
        (name, target.name): operator(product(tensor), target).kernels[-1].scheduled.reason  # type: ignore[union-attr]
        for name, tensor in (("small", small), ("large", large))
        for target in (CPU, GPU)
    }
    assert reasons == {
        ("small", "CPU"): "little work, or one row by columns in one piece",
        ("small", "GPU"): "little work, or one row by columns in one piece",
        ("large", "CPU"): "tiles in registers: for CPU adapters, and few rows or columns; each invocation computes "
        "8 x 16 outputs",
        ("large", "GPU"): "tiles in workgroup memory; each invocation computes 4 x 4 outputs",
    }


# ---- bad input


def test_descriptions_are_checked_before_they_are_planned() -> None:
    broken = add(FLOATS, TensorDesc(DataType.FLOAT32, (1, 2, 4, 5)))
    with pytest.raises(InvalidDescription, match=r"ELEMENT_WISE_ADD: b_tensor\.sizes must equal"):
        operator(broken)
    with pytest.raises(InvalidGraph, match=r"graph 'chain': node 'element_wise_add0': ELEMENT_WISE_ADD: b_tensor"):
        graph(chain(broken))
    with pytest.raises(InvalidArgument, match="must name passes"):
        graph(chain(relu()), "no pass")


# ---- JSON

TENSOR = {"role", "index", "data_type", "sizes", "strides", "bytes"}
STEP = {
    *(
        "number",
        "kind",
        "label",
        "once",
        "equations",
        "reads",
        "writes",
        "bytes_read",
        "bytes_written",
        "multiplications",
    ),
    "nodes",
}
KERNEL = {
    *("label", "step", "nodes", "schedule", "reason", "grid", "workgroup", "times"),
    *("bindings", "parameters", "shaders", "wgsl"),
}
BINDING = {"binding", "role", "index", "offset", "bytes"}
FUSION = {
    *("nodes", "kernels", "unfused_kernels", "bytes_read", "bytes_written"),
    *("unfused_bytes_read", "unfused_bytes_written", "notes"),
}


def check_schema(shown: Any) -> None:
    """Check that an explanation has exactly the documented keys, and only JSON types."""
    assert json.loads(json.dumps(shown)) == shown
    assert shown.keys() == {
        *("title", "description", "target", "steps", "kernels", "initialization", "memory", "fusion")
    }
    assert shown["target"].keys() == {"name", "profile", "features"}
    assert shown["memory"].keys() == {"temporary", "least_temporary", "persistent", "constants"}
    for step in shown["steps"]:
        assert step.keys() == STEP
        assert all(tensor.keys() == TENSOR for tensor in (*step["reads"], *step["writes"]))
    for kernel in (*shown["kernels"], *shown["initialization"]):
        assert kernel.keys() == KERNEL
        assert all(binding.keys() == BINDING for binding in kernel["bindings"])
        assert all(node.keys() == {"name", "operator"} for node in kernel["nodes"])
    if shown["fusion"] is not None:
        assert shown["fusion"].keys() == FUSION
        assert all(note.keys() == {"pass", "subject", "text"} for note in shown["fusion"]["notes"])


@pytest.mark.parametrize(
    "name",
    [
        "multihead_attention-float32-2x9x16x13-padded-only-past-s0",
        "lstm-float32-3x33x16-near-bare-s0",
        "convolution-float32-2x16x14x11-packed-dense-s0",
    ],
)
def test_json_of_operators(name: str) -> None:
    shown = as_json(operator(case_by_name(name).desc))
    check_schema(shown)
    assert shown["fusion"] is None


def test_json_of_a_graph() -> None:
    shown = as_json(graph(chain(relu(), add())))
    check_schema(shown)
    (step,), (kernel,) = shown["steps"], shown["kernels"]
    assert step["equations"] == ["output 0 = element_wise_add(activation_relu(input 0), input 1)"]
    assert kernel["nodes"] == [
        {"name": "activation_relu0", "operator": "ACTIVATION_RELU"},
        {"name": "element_wise_add1", "operator": "ELEMENT_WISE_ADD"},
    ]
    counts = {name: count for name, count in shown["fusion"].items() if name != "notes"}
    assert counts == {
        "nodes": 2,
        "kernels": 1,
        "unfused_kernels": 2,
        "bytes_read": 256,
        "bytes_written": 128,
        "unfused_bytes_read": 384,
        "unfused_bytes_written": 256,
    }
    assert shown["description"]["nodes"][0]["fields"]["input_tensor"] == {
        "data_type": "FLOAT32",
        "sizes": [1, 2, 4, 4],
        "strides": [32, 16, 4, 1],
        "bytes": 128,
        "owned": False,
    }
