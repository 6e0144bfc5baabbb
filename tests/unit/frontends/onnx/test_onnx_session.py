"""ONNX models on the adapter numpy, against ONNX's reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from dmlgpu import InvalidArgument, ModelError, NotSupported, Tensor
from dmlgpu.frontends.onnx import Session, load
from dmlgpu.frontends.onnx.session import runner_of
from tests.unit.frontends.onnx.onnx_against import model_of

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def check(model: onnx.ModelProto, feeds: dict[str, Any]) -> Any:
    """Run a model here and by the reference, twice, and compare."""
    session = load(model, "numpy")
    expected = ReferenceEvaluator(model).run(None, feeds)
    for _ in range(2):
        results = session.run(feeds)
        for result, reference in zip(results.values(), expected, strict=True):
            assert result.dtype == np.asarray(reference).dtype
            np.testing.assert_allclose(result, reference, rtol=1e-5, atol=1e-6)
    return session


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("arguments", [("model.onnx",), ("model.onnx", "numpy")])
def test_sessions_of_paths_are_made_by_load(arguments):
    with pytest.raises(InvalidArgument, match=r"^Session: create a session by dmlgpu.load\(path, adapter\)$"):
        Session(*arguments)


def test_weights_and_shapes() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["product", "target"], ["y"]),
    ]
    weights = {"w": normal(4, 32), "zero": np.array([0]), "rest": np.array([8, -1])}
    model = model_of(nodes, {"x": (FLOAT, ["rows", 4])}, {"y": FLOAT}, weights)
    session = check(model, {"x": normal(3, 4)})
    check(model, {"x": normal(5, 4)})
    where = {placement.op_type: placement.where for placement in session.placement}
    assert where["MatMul"] == "device"
    assert where["Gather"] == where["Concat"] == "host"


def test_all_inputs_of_a_node_are_read_at_once() -> None:
    nodes = [
        helper.make_node("Cast", ["widths"], ["pads"], to=INT64),
        helper.make_node("Cast", ["numbers"], ["axes"], to=INT64),
        helper.make_node("Pad", ["x", "pads", "", "axes"], ["y"]),
    ]
    inputs = {"x": (FLOAT, [2, 3]), "widths": (FLOAT, [2]), "numbers": (FLOAT, [1])}
    feeds = {"x": normal(2, 3), "widths": np.array([1, 2], np.float32), "numbers": np.array([1], np.float32)}
    session = check(model_of(nodes, inputs, {"y": FLOAT}), feeds)
    assert [node.where for node in session.placement] == ["device", "device", "read", "device"]
    assert len(runner_of(session).stages) == 2


def test_random_numbers_end_no_graph() -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"], seed=1.0),
        helper.make_node("Add", ["x", "noise"], ["y"]),
    ]
    session = load(model_of(nodes, {"x": (FLOAT, [4])}, {"y": FLOAT}), "numpy")
    first, second = (session.run({"x": normal(4)})["y"] for _ in range(2))
    assert not np.array_equal(first, second)
    assert len(runner_of(session).stages) == 1


def test_elements_decide_about_shapes() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"]),
        helper.make_node("NonZero", ["positive"], ["places"]),
        helper.make_node("Transpose", ["places"], ["rows"], perm=[1, 0]),
        helper.make_node("GatherND", ["positive", "rows"], ["y"]),
    ]
    model = model_of(nodes, {"x": (FLOAT, [3, 4])}, {"y": FLOAT, "rows": INT64})
    session = load(model, "numpy")
    for x in (normal(3, 4), -normal(3, 4), -np.ones((3, 4), np.float32)):
        results = session.run({"x": x})
        np.testing.assert_allclose(results["y"], x[x > 0])
        np.testing.assert_array_equal(results["rows"], np.argwhere(x > 0))


def test_truth_values_and_scalars() -> None:
    nodes = [
        helper.make_node("Less", ["a", "b"], ["less"]),
        helper.make_node("Where", ["less", "a", "b"], ["y"]),
        helper.make_node("ReduceSum", ["y"], ["total"], keepdims=0),
        helper.make_node("Not", ["less"], ["more"]),
    ]
    inputs = {"a": (FLOAT, [2, 3]), "b": (FLOAT, [])}
    model = model_of(nodes, inputs, {"y": FLOAT, "total": FLOAT, "more": BOOL})
    check(model, {"a": normal(2, 3), "b": np.array(0.1, np.float32)})


def test_empty_tensors() -> None:
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["joined"], axis=0),
        helper.make_node("Add", ["a", "a"], ["sum"]),
    ]
    model = model_of(nodes, {"a": (FLOAT, [0, 3]), "b": (FLOAT, [2, 3])}, {"joined": FLOAT, "sum": FLOAT})
    check(model, {"a": np.zeros((0, 3), np.float32), "b": normal(2, 3)})


def test_functions_become_their_bodies() -> None:
    nodes = [helper.make_node("Mish", ["x"], ["y"]), helper.make_node("ReduceL1", ["y"], ["z"])]
    check(model_of(nodes, {"x": (FLOAT, [2, 3])}, {"y": FLOAT, "z": FLOAT}), {"x": normal(2, 3)})


@pytest.mark.parametrize("chosen", [True, False])
def test_if(chosen: bool) -> None:
    def branch(name: str, kind: str) -> onnx.GraphProto:
        outputs = [helper.make_tensor_value_info(name, FLOAT, None)]
        return helper.make_graph([helper.make_node(kind, ["x"], [name])], kind, [], outputs)

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("a", "Exp"), else_branch=branch("b", "Neg"))
    model = model_of([node], {"x": (FLOAT, [3]), "c": (BOOL, [])}, {"y": FLOAT})
    check(model, {"x": normal(3), "c": np.array(chosen)})
    with pytest.raises(NotSupported, match="the host decides about If 'y'"):
        load(model, "numpy", strict=True)


def test_loop_reads_names_around_it() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "w"], ["next"]),
            helper.make_node("Identity", ["condition"], ["goes_on"]),
            helper.make_node("Mul", ["next", "x"], ["gathered"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", INT64, []),
            helper.make_tensor_value_info("condition", BOOL, []),
            helper.make_tensor_value_info("state", FLOAT, [3]),
        ],
        [
            helper.make_tensor_value_info("goes_on", BOOL, []),
            helper.make_tensor_value_info("next", FLOAT, [3]),
            helper.make_tensor_value_info("gathered", FLOAT, [3]),
        ],
    )
    nodes = [
        helper.make_node("Exp", ["x"], ["start"]),
        helper.make_node("Loop", ["count", "begins", "start"], ["last", "all"], body=body),
        helper.make_node("Neg", ["last"], ["y"]),
    ]
    inputs = {"x": (FLOAT, [3]), "count": (INT64, [])}
    model = model_of(nodes, inputs, {"y": FLOAT, "all": FLOAT}, {"w": normal(3), "begins": np.array(True)})
    x = normal(3)
    session = load(model, "numpy")
    for count in (4, 2):
        results = session.run({"x": x, "count": np.array(count)})
        states = [np.exp(x) + index * normal(3) for index in range(1, count + 1)]
        np.testing.assert_allclose(results["y"], -states[-1], rtol=1e-5)
        np.testing.assert_allclose(results["all"], states * x, rtol=1e-5)


def test_outputs_stay_on_the_device() -> None:
    session = load(model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": (FLOAT, [3])}, {"y": FLOAT}), "numpy")
    first = session.run_tensors({"x": normal(3)})["y"]
    assert isinstance(first, Tensor)
    np.testing.assert_array_equal(session.run({"x": first})["y"], normal(3))


def test_everything_unsupported_in_one_message() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("ImageDecoder", ["n"], ["y"], name="d")]
    nodes.append(
        helper.make_node(
            "TfIdfVectorizer",
            ["x"],
            ["z"],
            name="t",
            mode="TF",
            max_gram_length=1,
            max_skip_count=0,
            min_gram_length=1,
            ngram_counts=[0],
            ngram_indexes=[0],
        )
    )
    with pytest.raises(NotSupported, match=r"ImageDecoder \(1, first 'd'\), TfIdfVectorizer \(1, first 't'\)"):
        load(model_of(nodes, {"x": (FLOAT, [3, 3])}, {"y": FLOAT, "z": FLOAT}), "numpy")


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "missing inputs 'a', 'b'$"),
        ({"a": normal(2, 3), "b": normal(4, 2), "c": 1}, "unknown input 'c'; the model has: a, b$"),
        (
            {"a": normal(2, 3).astype(np.float64), "b": normal(3, 2)},
            r"input 'a' must be of float32, got float64; pass array.astype\(np.float32\)$",
        ),
        ({"a": normal(2), "b": normal(3, 2)}, "input 'a' must have 2 dimensions, got shape"),
        ({"a": normal(2, 3), "b": normal(4, 2)}, "input 'b' must have size 3 in dimension 0"),
    ],
)
def test_wrong_inputs(feeds: dict[str, Any], message: str) -> None:
    inputs = {"a": (FLOAT, ["m", "k"]), "b": (FLOAT, ["k", "n"])}
    session = load(model_of([helper.make_node("MatMul", ["a", "b"], ["y"])], inputs, {"y": FLOAT}), "numpy")
    with pytest.raises(InvalidArgument, match=message):
        session.run(feeds)


def test_malformed_files(tmp_path: Path) -> None:
    whole = model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": (FLOAT, [3])}, {"y": FLOAT})
    with pytest.raises(ModelError, match="truncated"):
        load(whole.SerializeToString()[:-7], "numpy")
    with pytest.raises(ModelError, match="cannot be read"):
        load(tmp_path / "missing.onnx", "numpy")
    cyclic = [helper.make_node("Neg", ["b"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
    with pytest.raises(ModelError, match="sorted"):
        load(model_of(cyclic, {"x": (FLOAT, [3])}, {"b": FLOAT}), "numpy")


def test_external_data_stay_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    array = normal(100)
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (FLOAT, [100])}, {"y": FLOAT}, {"w": array})
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    results = load(folder / "m.onnx", "numpy").run({"x": array})
    np.testing.assert_allclose(results["y"], 2 * array)
    (folder / "w.bin").rename(tmp_path / "w.bin")
    with pytest.raises(ModelError, match="inside the model's folder"):
        load(folder / "m.onnx", "numpy")
    (folder / "w.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(ModelError, match="inside the model's folder"):
        load(folder / "m.onnx", "numpy")


def test_scan_of_a_transposed_input() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "row"], ["next"]), helper.make_node("Neg", ["next"], ["seen"])],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, [2, 3]) for name in ("state", "row")],
        [helper.make_tensor_value_info(name, FLOAT, [2, 3]) for name in ("next", "seen")],
    )
    nodes = [
        helper.make_node("Transpose", ["x"], ["rows"], perm=[1, 0, 2]),
        helper.make_node("Scan", ["start", "rows"], ["last", "all"], body=body, num_scan_inputs=1),
    ]
    model = model_of(nodes, {"x": (FLOAT, [2, "n", 3]), "start": (FLOAT, [2, 3])}, {"last": FLOAT, "all": FLOAT})
    for count in (1, 3):
        x, start = normal(2, count, 3), np.ones((2, 3), np.float32)
        results = load(model, "numpy").run({"x": x, "start": start})
        states = start + np.cumsum(x.transpose(1, 0, 2), axis=0)
        np.testing.assert_allclose(results["last"], states[-1], rtol=1e-5)
        np.testing.assert_allclose(results["all"], -states, rtol=1e-5)
