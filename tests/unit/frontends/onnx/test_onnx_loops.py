"""Compilations of loops, on the adapter numpy, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlgpu import Tensor
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.session import Session
from dmlgpu.runtime.device import Device
from tests.unit.frontends.onnx.onnx_against import expected_of, normal

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def looping(nodes: list[onnx.NodeProto], gathered: list[str], weights: dict[str, Any]) -> onnx.ModelProto:
    """Return a loop whose body reads x {rows, 4} and the iteration index, and has a state {4}."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["condition"], ["goes_on"]), *nodes],
        "body",
        [info("number", INT64, []), info("condition", BOOL, []), info("state", FLOAT, [4])],
        [info("goes_on", BOOL, []), info("next", FLOAT, [4]), *(info(name, FLOAT, None) for name in gathered)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    outputs = ["last", *(f"all_{name}" for name in gathered)]
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", "", "start"], outputs, body=body, name="loop")],
        "looping",
        [info("x", FLOAT, ["rows", 4]), info("count", INT64, []), info("start", FLOAT, [4])],
        [info(name, FLOAT, None) for name in outputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def run(session: Session, model: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    """Compare a run with onnxruntime's."""
    expected = expected_of(model, feeds)
    for result, other in zip(session.run(feeds).values(), expected, strict=True):
        np.testing.assert_allclose(result, other, rtol=1e-5, atol=1e-6)


def slicing() -> onnx.ModelProto:
    """Return nodes for the row of x at the iteration index, as exporters write them."""
    nodes = [
        helper.make_node("Unsqueeze", ["number", "axis"], ["from"]),
        helper.make_node("Add", ["from", "one"], ["to"]),
        helper.make_node("Slice", ["x", "from", "to", "axis"], ["row"]),
        helper.make_node("Squeeze", ["row", "axis"], ["flat"]),
        helper.make_node("Add", ["state", "flat"], ["next"]),
        helper.make_node("Mul", ["next", "flat"], ["product"]),
    ]
    return looping(nodes, ["product"], {"axis": [0], "one": [1]})


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by one with each graph that is compiled."""
    counts: list[int] = []

    def count(name: str) -> None:
        compile_graph = getattr(Device, name)

        def counted(self: Device, *args: Any, **rest: Any) -> Any:
            counts.append(1)
            return compile_graph(self, *args, **rest)

        monkeypatch.setattr(Device, name, counted)

    count("compile_graph")
    count("_compile_sized")
    return counts


def test_the_number_of_an_iteration_is_data(compilations: list[int]) -> None:
    model = slicing()
    session = load(model, "numpy")
    for count in (6, 3):
        run(session, model, {"x": normal(6, 4), "count": np.array(count), "start": normal(4)})
    assert len(compilations) == 1


def test_slices_at_ends_are_shorter(compilations: list[int]) -> None:
    """Rows from the number on, at most two; the last has one."""
    nodes = [
        helper.make_node("Unsqueeze", ["number", "axis"], ["from"]),
        helper.make_node("Add", ["from", "two"], ["to"]),
        helper.make_node("Slice", ["x", "from", "to", "axis"], ["rows"]),
        helper.make_node("ReduceSum", ["rows", "axis"], ["sum"], keepdims=0),
        helper.make_node("Add", ["state", "sum"], ["next"]),
    ]
    model = looping(nodes, [], {"axis": [0], "two": [2]})
    session = load(model, "numpy")
    run(session, model, {"x": normal(5, 4), "count": np.array(5), "start": normal(4)})
    assert len(compilations) == 2


def test_ranges_from_the_number_are_compiled_once_per_length(compilations: list[int]) -> None:
    """Rows at the number and the next one; and at those from the number to the second one, of which there are fewer."""
    nodes = [
        helper.make_node("Add", ["number", "two"], ["to"]),
        helper.make_node("Range", ["number", "to", "one"], ["places"]),
        helper.make_node("Gather", ["x", "places"], ["rows"]),
        helper.make_node("ReduceSum", ["rows", "axis"], ["sum"], keepdims=0),
        helper.make_node("Add", ["state", "sum"], ["next"]),
    ]
    weights = {"axis": [0], "one": 1, "two": 2}
    model = looping(nodes, [], weights)
    feeds = {"x": normal(8, 4), "count": np.array(7), "start": normal(4)}
    run(load(model, "numpy"), model, feeds)
    assert len(compilations) == 1
    compilations.clear()
    nodes[1] = helper.make_node("Range", ["number", "two", "one"], ["places"])
    model = looping(nodes, [], weights)
    run(load(model, "numpy"), model, feeds)
    assert len(compilations) == 3  # of two places, of one, of none


@pytest.mark.parametrize("data_type", [np.int32, np.int64])
@pytest.mark.parametrize("delta", [1, 3, -2])
def test_a_range_from_numbers_on_the_device(data_type: type, delta: int) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(data_type))
    graph = helper.make_graph(
        [helper.make_node("Range", ["start", "limit", "delta"], ["y"])],
        "range",
        [helper.make_tensor_value_info(name, kind, []) for name in ("start", "limit")],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.array(delta, data_type), "delta")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = load(model, "numpy")
    for start, limit in ((0, 7), (-5, 8), (9, -3), (2, 2), (2**31 - 4, 2**31 - 1)):
        feeds = {"start": np.array(start, data_type), "limit": np.array(limit, data_type)}
        (expected,) = expected_of(model, feeds)
        result = session.run(feeds)["y"]
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)


def test_negative_and_backward() -> None:
    """From the end by -1 - number, with steps of -2."""
    nodes = [
        helper.make_node("Unsqueeze", ["number", "axis"], ["place"]),
        helper.make_node("Sub", ["minus", "place"], ["from"]),
        helper.make_node("Slice", ["x", "from", "end", "axis", "step"], ["rows"]),
        helper.make_node("ReduceSum", ["rows", "axis"], ["sum"], keepdims=0),
        helper.make_node("Add", ["state", "sum"], ["next"]),
    ]
    weights = {"axis": [0], "minus": [-1], "end": [np.iinfo(np.int64).min + 1], "step": [-2]}
    model = looping(nodes, [], weights)
    run(load(model, "numpy"), model, {"x": normal(5, 4), "count": np.array(4), "start": normal(4)})


def test_bodies_are_compiled_once_for_all_shapes_around(compilations: list[int]) -> None:
    """The body reads x as rows {4}: it does not depend on their number."""
    nodes = [helper.make_node("Mul", ["state", "half"], ["next"])]
    model = looping(nodes, [], {"half": np.array(0.5, np.float32)})
    session = load(model, "numpy")
    for rows in (5, 6, 7):
        run(session, model, {"x": normal(rows, 4), "count": np.array(3), "start": normal(4)})
    assert len(compilations) == 1


def test_a_condition_on_the_iteration_index_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    numpy = Tensor.numpy

    def counted(self: Tensor) -> Any:
        reads.append(1)
        return numpy(self)

    nodes = [
        helper.make_node("Less", ["number", "limit"], ["goes_on"]),
        helper.make_node("Mul", ["state", "state"], ["next"]),
    ]
    model = looping(nodes, [], {"limit": np.array(2)})
    model.graph.node[0].attribute[0].g.node.pop(0)  # the unchanged condition
    session = load(model, "numpy")
    feeds = {"x": normal(2, 4), "count": np.array(9), "start": normal(4)}
    run(session, model, feeds)
    monkeypatch.setattr(Tensor, "numpy", counted)
    (result,) = session.run(feeds).values()
    np.testing.assert_allclose(result, feeds["start"] ** 8, rtol=1e-5)
    assert len(reads) == 1


def test_long_arithmetic_on_the_number() -> None:
    """Each sum of a long chain reads the previous one twice."""
    nodes = [helper.make_node("Mul", ["number", "zero"], ["sum0"])]
    nodes += [helper.make_node("Add", [f"sum{at}", f"sum{at}"], [f"sum{at + 1}"]) for at in range(70)]
    nodes += [
        helper.make_node("Less", ["sum50", "limit"], ["small"]),
        helper.make_node("LessOrEqual", ["sum70", "limit"], ["going"]),
        helper.make_node("And", ["small", "going"], ["goes_on"]),
        helper.make_node("Neg", ["state"], ["next"]),
    ]
    model = looping(nodes, [], {"limit": np.array(2), "zero": np.array(0)})
    model.graph.node[0].attribute[0].g.node.pop(0)
    run(load(model, "numpy"), model, {"x": normal(2, 4), "count": np.array(3), "start": normal(4)})


@pytest.mark.parametrize("backward", [0, 1])
def test_scan_of_batches(backward: int) -> None:
    """Scan of operator set 8: a running sum of each sequence."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "row"], ["next"]), helper.make_node("Identity", ["next"], ["kept"])],
        "body",
        [info("sum", FLOAT, [3]), info("row", FLOAT, [3])],
        [info("next", FLOAT, [3]), info("kept", FLOAT, [3])],
    )
    node = helper.make_node(
        "Scan", ["", "start", "x"], ["last", "all"], body=body, num_scan_inputs=1, directions=[backward]
    )
    inputs = [info("start", FLOAT, [2, 3]), info("x", FLOAT, [2, 4, 3])]
    outputs = [info("last", FLOAT, None), info("all", FLOAT, None)]
    graph = helper.make_graph([node], "batches", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=10)
    run(load(model, "numpy"), model, {"start": normal(2, 3), "x": normal(2, 4, 3)})
