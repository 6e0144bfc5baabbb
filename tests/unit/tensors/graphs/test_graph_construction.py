"""Graphs under construction: leaves, names, policies, descriptions, results, pictures, and what is rejected."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from dmlgpu import (
    ConstantNode,
    DataType,
    Device,
    Graph,
    InputEdge,
    IntermediateEdge,
    InvalidArgument,
    InvalidDescription,
    InvalidGraph,
    NotSupported,
    OperatorNode,
    OutputEdge,
    TensorDesc,
    TensorFlags,
    descs,
)
from dmlgpu.catalog.enums import FeatureLevel, InterpolationMode
from dmlgpu.ops import directml as functions

ROOT = Path(__file__).parents[4]


@pytest.fixture
def graph() -> Graph:
    return Graph(Device("numpy"), name="model")


def test_the_description_has_only_needed_nodes(graph: Graph) -> None:
    x, unused = graph.input((2, 3), name="x"), graph.input((2, 3), name="unused")
    functions.activation_relu(unused)
    two = graph.constant(np.full((2, 3), 2, np.float32), name="two")
    with graph.scope("block"):
        product = functions.element_wise_multiply(x, two, name="product")
        with graph.scope("end"):
            y = functions.activation_relu(product)
    desc = graph.desc([y, product])
    assert (desc.name, desc.input_count, desc.output_count) == ("model", 2, 2)
    constant, multiply, relu = desc.nodes
    assert isinstance(constant, ConstantNode) and isinstance(multiply, OperatorNode) and isinstance(relu, OperatorNode)
    assert (constant.name, multiply.name, relu.name) == ("two", "block_product", "block_end")
    assert constant.data == np.full(6, 2, np.float32).tobytes()
    tensor = TensorDesc(DataType.FLOAT32, (2, 3))
    assert multiply.desc == descs.ElementWiseMultiply(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
    assert desc.input_edges == (InputEdge(0, 1, 0, "x"),)
    assert desc.intermediate_edges == (IntermediateEdge(0, 0, 1, 1), IntermediateEdge(1, 0, 2, 0))
    assert desc.output_edges == (OutputEdge(2, 0, 0, "block_end"), OutputEdge(1, 0, 1, "block_product"))


def test_unused_optional_outputs_are_omitted(graph: Graph) -> None:
    pooled = functions.max_pooling2(graph.input((1, 1, 4, 4)), window_size=(2, 2))
    (node,) = graph.desc([pooled.output]).nodes
    assert isinstance(node, OperatorNode) and node.desc.output_indices_tensor is None
    assert pooled.output_indices is not None
    (node,) = graph.desc([pooled.output, pooled.output_indices]).nodes
    assert isinstance(node, OperatorNode) and node.desc.output_indices_tensor is not None


def test_required_outputs_are_named_or_computed_all_the_same(graph: Graph) -> None:
    x = graph.input((1, 4))
    values = functions.top_k1(x, axis=1, k=2).output_value
    with pytest.raises(
        InvalidGraph, match=r"'model': TOP_K1 output_index_tensor \(\S*test_graph_construction.py:\d+\) is req"
    ):
        graph.compile([values])
    (result,) = graph.evaluate([values], [np.array([[3, 1, 4, 1]], np.float32)])
    assert result.tolist() == [[4, 3]]


def test_inputs_by_name_or_in_order_and_owned_ones(graph: Graph) -> None:
    x, y = graph.input((3,), DataType.INT32, name="x"), graph.input((3,), DataType.INT32, name="y", owned=True)
    difference = x - y
    arrays = {"y": np.array([1, 2, 3], np.int32), "x": np.array([5, 5, 5], np.int32)}
    for inputs in (arrays, [arrays["x"], arrays["y"]]):
        (result,) = graph.evaluate([difference], inputs)
        assert result.tolist() == [4, 3, 2]
    compiled = graph.compile([difference])
    assert [port.owned for port in compiled.inputs] == [False, True]
    assert graph.evaluate([x * 2], [arrays["x"], None])[0].tolist() == [10, 10, 10]


def test_results_may_be_views_of_outputs(graph: Graph) -> None:
    x = graph.input((2, 3))
    doubled = x * 2
    turned, plain = graph.evaluate(
        [doubled.reinterpret((3, 2), (1, 3)), doubled], [np.arange(6.0, dtype=np.float32).reshape(2, 3)]
    )
    np.testing.assert_array_equal(turned, plain.T)


def test_policies_lay_out_the_outputs_of_operators() -> None:
    graph = Graph(Device("numpy"), policy="interleaved_channel")
    x = graph.input((2, 3, 4, 5))
    y = functions.activation_relu(x)
    assert x.desc.strides == y.desc.strides == (60, 1, 15, 3)
    graph.policy = "default"
    z = functions.activation_relu(y)
    assert z.desc.strides is None
    data = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    first, second = graph.evaluate([y, z], [data])
    np.testing.assert_array_equal(first, np.maximum(data, 0))
    np.testing.assert_array_equal(second, first)
    graph.policy = lambda data_type, flags, sizes: TensorDesc(
        data_type, sizes, flags=flags, total_tensor_size_in_bytes=512
    )
    assert functions.activation_relu(x).desc.byte_size == 512
    for wrong in ("packed", 3):
        with pytest.raises(InvalidArgument, match="policy must be a function or one of default, interleaved_channel"):
            Graph(policy=wrong)  # type: ignore[arg-type]


def test_an_input_given_by_its_tensor_keeps_its_layout(graph: Graph) -> None:
    tensor = TensorDesc(DataType.FLOAT16, (2, 2), (4, 1), total_tensor_size_in_bytes=64)
    assert graph.input(tensor).desc == tensor
    owned = graph.input(tensor, owned=True).desc
    assert owned.flags is TensorFlags.OWNED_BY_DML
    assert (owned.strides, owned.total_tensor_size_in_bytes) == ((4, 1), 64)


def test_constants_are_of_the_arrays_type_or_another(graph: Graph) -> None:
    assert graph.constant(np.zeros((2, 2), np.int8)).data_type is DataType.INT8
    assert graph.constant([1, 2], DataType.FLOAT16).data_type is DataType.FLOAT16
    assert graph.constant(3.5).sizes == (1,)
    with pytest.raises(InvalidArgument, match="constant: array must be an array of numbers, at least one, got array"):
        graph.constant(np.zeros(2, complex))


def test_wrong_operands_are_rejected_with_the_callers_line(graph: Graph) -> None:
    x, other = graph.input((2, 3)), Graph(graph.device, name="other").input((2, 3))
    with pytest.raises(InvalidDescription) as refused:
        functions.element_wise_add(x, other)
    assert refused.value.field == "b_tensor"
    assert "must be a tensor of graph 'model', got one of graph 'other' (" in str(refused.value)
    elsewhere = Graph(Device("numpy")).input((2, 3))
    with pytest.raises(InvalidDescription, match=r"of graph 'model', got one of another graph on "):
        functions.element_wise_add(x, elsewhere)
    with pytest.raises(InvalidArgument, match=r"^activation_relu: input must be a Tensor or an array, got 3 of"):
        functions.activation_relu(3)
    with pytest.raises(InvalidArgument, match=r"element_wise_add: b must be a Tensor or an array, got '3' .*py:\d+\)$"):
        functions.element_wise_add(x, "3")  # type: ignore[arg-type]
    with pytest.raises(InvalidDescription) as refused:
        functions.element_wise_add(x, graph.input((3, 2)))
    at = re.search(r"\((\S+):(\d+)\)$", str(refused.value))
    assert "b_tensor.sizes must equal a_tensor.sizes ([2, 3]), got [3, 2]" in str(refused.value)
    assert at is not None and Path(at[1]).resolve() == Path(__file__)
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert "functions.element_wise_add(x, graph.input((3, 2)))" in source[int(at[2]) - 1]


def test_attributes_that_fit_no_output_are_rejected_by_their_own_rules(graph: Graph) -> None:
    image, window = graph.input((1, 2, 4, 4)), graph.input((3, 2, 5, 5))
    with pytest.raises(InvalidDescription, match=r"CONVOLUTION: strides must have 2 entries"):
        functions.convolution(image, window, strides=(1,))
    with pytest.raises(InvalidDescription, match=r"AVERAGE_POOLING1: window_size\[0\] must reach no further"):
        functions.average_pooling1(image, window_size=(9, 1))
    with pytest.raises(InvalidDescription, match=r"CAST: output_tensor.data_type must be one of"):
        functions.cast(image, output_type=DataType.UINT4)
    with pytest.raises(InvalidDescription, match=r"RESAMPLE3: scales must be a sequence"):
        functions.resample3(image, interpolation_mode=InterpolationMode.LINEAR)
    for wrong in (3.5, "ab", (1, 2.5)):
        with pytest.raises(InvalidDescription, match=r"output_tensor.sizes must be a sequence of integers, got"):
            functions.max_unpooling(image, image, output_sizes=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidDescription, match=r"DIAGONAL_MATRIX1: output_tensor.sizes must be given"):
        functions.diagonal_matrix1(
            graph=graph, value_data_type=DataType.FLOAT32, value=1, diagonal_fill_begin=0, diagonal_fill_end=1
        )


def test_the_devices_feature_level_holds() -> None:
    graph = Graph(Device("numpy", feature_level=FeatureLevel.LEVEL_2_0))
    x = graph.input((2, 3), DataType.UINT32)
    with pytest.raises(InvalidDescription, match="ELEMENT_WISE_BIT_NOT: feature_level must be at least 3_0"):
        functions.element_wise_bit_not(x)


def test_wrong_outputs_and_inputs_are_rejected(graph: Graph) -> None:
    x = graph.input((2, 3), name="x")
    y = x + 1
    for wrong, why in [
        ([], "outputs must be a sequence of at least one Tensor, got none"),
        ([x], "outputs[0] must be computed by an operator"),
        ([y, 3], "outputs[1] must be a Tensor, got 3 of type int"),
        ([Graph(name="other").input((1,))], "outputs[0] belongs to graph 'other'"),
    ]:
        with pytest.raises(InvalidArgument, match=re.escape(why)):
            graph.compile(wrong)  # type: ignore[arg-type]
    for inputs, why in [
        ({"z": np.zeros(1)}, "inputs must be named x, got 'z'"),
        ({}, "inputs must have an array for 'x'"),
        ([], "inputs must be 1 arrays, got 0"),
        ([np.zeros((2, 2), np.float32)], "must be an array of float32 with shape (2, 3)"),
    ]:
        with pytest.raises(InvalidArgument, match=re.escape(why)):
            graph.evaluate([y], inputs)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="the name of an input must be new, got 'x' again"):
        graph.input((1,), name="x")
    with pytest.raises(InvalidArgument, match="device must be a Device, the name of an adapter or None, got int"):
        Graph(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="Graph: rules must be one of directmlx, numpy, got 'none'"):
        Graph(rules="none")


def test_rejections_by_the_adapter_name_the_callers_line(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    y = functions.element_wise_exp(graph.input((2, 3)) + 1, name="last")

    def refuse(desc: Any, *rest: Any, **options: Any) -> None:
        if not isinstance(desc, descs.ElementWiseIdentity):
            raise NotSupported("this adapter has no numbers")

    monkeypatch.setattr(graph.device, "compile_graph", refuse)
    monkeypatch.setattr(graph.device, "create_operator", refuse)
    with pytest.raises(
        NotSupported, match=r"ELEMENT_WISE_EXP 'last' \(\S*test_graph_construction.py:\d+\): this adapter has no"
    ):
        graph.compile([y])


def test_reprs_of_graphs_and_expressions(graph: Graph) -> None:
    x = graph.input((2, 3), name="x")
    assert repr(x) == "Tensor('x': FLOAT32 [2, 3])"
    with graph.scope("stem"):
        y = functions.activation_relu(x, name="relu")
    assert re.fullmatch(
        r"Tensor\(ACTIVATION_RELU 'stem_relu' \(\S*test_graph_construction.py:\d+\): FLOAT32 \[2, 3\]\)", repr(y)
    )
    assert repr(x.broadcast_to((4, 2, 3))).endswith("FLOAT32 [4, 2, 3] strides [0, 3, 1])")
    graph.constant([1.0])
    assert repr(graph) == "<Graph 'model': inputs ('x' FLOAT32 [2, 3]), 1 operator, 1 constant>"


def test_pictures(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = graph.input((2,), name='the "x"')
    functions.element_wise_add(x, graph.constant(np.zeros(2, np.float32), name="zero"), name="sum")
    assert graph.to_dot().splitlines() == [
        'digraph "model" {',
        "    node [shape=box, fontname=sans-serif];",
        '    input0 [shape=ellipse, label="the \\"x\\"\\nFLOAT32 [2]"];',
        "    node0 [shape=note, label=\"constant 'zero'\\nFLOAT32 [2]\"];",
        '    node1 [label="ELEMENT_WISE_ADD\\nsum"];',
        '    input0 -> node1 [label="a_tensor\\nFLOAT32 [2]"];',
        '    node0 -> node1 [label="b_tensor\\nFLOAT32 [2]"];',
        "}",
    ]
    graph.save(tmp_path / "graph.dot")
    assert (tmp_path / "graph.dot").read_text(encoding="utf-8") == graph.to_dot()
    with pytest.raises(InvalidArgument, match=r"path must end in \.dot, \.html or \.svg, got .*graph.png"):
        graph.save(tmp_path / "graph.png")
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(NotSupported, match="Graphviz' program dot"):
        graph.save(tmp_path / "graph.svg")


def test_a_page_draws_every_node_and_edge_and_loads_nothing(graph: Graph, tmp_path: Path) -> None:
    x, y = graph.input((2,), name="<x>"), graph.input((2,), name="y")
    both = functions.element_wise_add(x, y, name="sum")
    functions.element_wise_multiply(functions.activation_relu(both), graph.constant([1.0, 2.0], DataType.FLOAT32))
    graph.save(tmp_path / "graph.html")
    page = (tmp_path / "graph.html").read_text(encoding="utf-8")
    (svg,) = re.findall(r"<svg.*</svg>", page, re.DOTALL)
    root = ElementTree.fromstring(svg)
    boxes = [group for group in root if group.tag == "g"]
    assert [group[1].text for group in boxes] == [
        "<x>", "y", "ELEMENT_WISE_ADD 'sum'", "ACTIVATION_RELU", "constant", "ELEMENT_WISE_MULTIPLY",
    ]  # fmt: skip
    assert len([path for path in root if path.tag == "path"]) == 5
    places = [tuple(float(group[0].attrib[key]) for key in ("x", "y", "width", "height")) for group in boxes]
    for index, (left, top, width, height) in enumerate(places):
        assert left >= 0 and left + width <= float(root.attrib["width"])
        assert top + height <= float(root.attrib["height"])
        for other, above, wide, _ in places[index + 1 :]:
            assert above != top or other >= left + width or other + wide <= left
    assert places[4][1] == places[3][1] > places[0][1]  # the constant stands next to the other inputs of its reader
    assert "http" not in page and "src=" not in page
