"""Operators of ai.onnx.ml on the adapter numpy, against onnxruntime's CPU provider."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlgpu import InvalidArgument, ModelError, NotSupported
from dmlgpu.frontends.onnx import load
from dmlgpu.frontends.onnx.operators import tree_ensembles
from tests.unit.frontends.onnx.onnx_ml import (
    MODES,
    difference,
    expected_outputs,
    floats,
    model_of_node,
    random_ensemble,
    random_joined_ensemble,
    random_machine,
)

FLOAT, INT64, DOUBLE, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.INT32
NAN = float("nan")


def check(
    op_type: str, feeds: list[np.ndarray], outputs: dict[str, int], label: object = "", **attributes: Any
) -> None:
    """Compare a node with onnxruntime, of all rows and of one."""
    model = model_of_node(op_type, feeds, outputs, **attributes)
    session = load(model, "numpy")
    for count in (len(feeds[0]), 1):
        some = [feed[:count] if feed.ndim > 1 else feed for feed in feeds]
        results = session.run({f"x{index}": feed for index, feed in enumerate(some)})
        mismatch = difference(results, expected_outputs(model, *some))
        assert not mismatch, f"{op_type} {label}, {count} rows: {mismatch}"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_random_ensembles(dtype: Any) -> None:
    for seed in range(30):
        op_type, attributes, outputs, rows = random_ensemble(seed, dtype)
        if "Regressor" in op_type and rows.dtype.kind == "i":
            continue  # onnxruntime has these kernels for floats only
        check(op_type, [rows], outputs, f"{seed} of {dtype.__name__}", **attributes)


@pytest.mark.slow
def test_random_joined_ensembles() -> None:
    """TreeEnsemble; onnxruntime swaps the numbers of SOFTMAX and LOGISTIC."""
    for seed in range(40):
        attributes, rows = random_joined_ensemble(seed, np.float32)
        model = model_of_node("TreeEnsemble", [rows], {"y": FLOAT}, version=5, **attributes)
        theirs = attributes | {"post_transform": [0, 2, 1, 3][attributes["post_transform"]]}
        expected = expected_outputs(model_of_node("TreeEnsemble", [rows], {"y": FLOAT}, version=5, **theirs), rows)
        mismatch = difference(load(model, "numpy").run({"x0": rows}), expected)
        assert not mismatch, f"{seed}: {mismatch}"


@pytest.mark.slow
def test_sums_of_doubles() -> None:
    for seed in range(20):
        attributes, rows = random_joined_ensemble(seed, np.float64, has_sum=True)
        model = model_of_node("TreeEnsemble", [rows], {"y": DOUBLE}, version=5, **attributes)
        results = load(model, "numpy").run({"x0": rows})
        mismatch = difference(results, expected_outputs(model, rows), 1e-15, 1e-15)
        assert not mismatch, f"{seed}: {mismatch}"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_random_machines(dtype: Any) -> None:
    for seed in range(48 if dtype is np.float32 else 24):
        op_type, attributes, outputs, rows = random_machine(seed, dtype)
        if op_type == "LinearClassifier" and len(attributes["intercepts"]) > len(attributes["classlabels_ints"]):
            continue
        check(op_type, [rows], outputs, f"{seed} of {dtype.__name__}", **attributes)


def votes(share: float, trees: int) -> dict[str, Any]:
    """Attributes of trees of one test each: x <= its number adds a share to class 1, else to class 0."""
    numbers = np.arange(trees)
    return {
        "nodes_treeids": np.repeat(numbers, 3).tolist(),
        "nodes_nodeids": [0, 1, 2] * trees,
        "nodes_featureids": [0, 0, 0] * trees,
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * trees,
        "nodes_values": [float(value) for number in numbers for value in (number, 0, 0)],
        "nodes_truenodeids": [1, 0, 0] * trees,
        "nodes_falsenodeids": [2, 0, 0] * trees,
        "class_treeids": np.repeat(numbers, 6).tolist(),
        "class_nodeids": [1, 1, 1, 2, 2, 2] * trees,
        "class_ids": [0, 1, 2] * 2 * trees,
        "class_weights": floats([0, share, 0, share, 0, 0] * trees),
        "classlabels_int64s": [3, 5, 8],
    }


@pytest.mark.parametrize("trees", [10, 20, 50, 101])
def test_equal_votes_tie(trees: int) -> None:
    """The first class wins, regardless of rounding in float32 sums."""
    x = np.arange(-1, trees + 1, dtype=np.float32)[:, None]
    model = model_of_node("TreeEnsembleClassifier", [x], {"l": INT64, "y": FLOAT}, **votes(1 / trees, trees))
    results = load(model, "numpy").run({"x0": x})
    ones = (x <= np.arange(trees)).sum(1)
    np.testing.assert_array_equal(results["l"], np.where(ones > trees - ones, 5, 3))
    expected = np.stack([trees - ones, ones, 0 * ones], 1) * np.float64(np.float32(1 / trees))
    np.testing.assert_array_equal(results["y"], expected.astype(np.float32))


@pytest.mark.slow
def test_trees_are_walked_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees are split into turns if there are too many positions of rows and trees."""
    monkeypatch.setattr(tree_ensembles, "MAX_POSITIONS", 100)
    for seed in range(12):
        op_type, attributes, outputs, rows = random_ensemble(seed, np.float32)
        check(op_type, [rows], outputs, seed, **attributes)


def test_tables_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    op_type, attributes, outputs, rows = random_ensemble(1, np.float32)
    session = load(model_of_node(op_type, [rows], outputs, **attributes), "numpy")
    monkeypatch.setattr(tree_ensembles, "forest_of", None)
    for count in (1, 2, 40):
        session.run({"x0": rows[:count]})


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32])
def test_features(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (6, 4)).astype(dtype)
    x[2] = 0
    y, three = {"y": FLOAT}, [[0.5, -1, 2, 0], [2, 0.25, -1, 3]]
    for norm in ("MAX", "L1", "L2"):
        check("Normalizer", [x], y, norm, version=1, norm=norm)
        check("Normalizer", [x[0]], y, norm, version=1, norm=norm)
    check("Scaler", [x], y, version=1, offset=floats(three[0]), scale=floats(three[1]))
    check("Scaler", [x], y, version=1, offset=[1.5], scale=[-2.0])
    if dtype is not np.int32:  # onnxruntime has these kernels for floats and INT64 only
        check("OneHotEncoder", [x], y, version=1, cats_int64s=[3, -3, 0], zeros=1)
        check("OneHotEncoder", [x[0]], y, version=1, cats_int64s=[2, 1], zeros=1)
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        name = "float" if dtype is np.float32 else "int64"
        for listed in ([7, 8, 9, 10], [7]):
            imputed = {
                f"imputed_value_{name}s": np.array(listed, dtype).tolist(),
                f"replaced_value_{name}": dtype(0).item(),
            }
            check("Imputer", [x], {"y": kind}, version=1, **imputed)
    index = np.array([3, 0, 3])
    check("ArrayFeatureExtractor", [x, index], {"y": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))}, version=1)
    check("ArrayFeatureExtractor", [x[0], index], {"y": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))}, version=1)
    check("FeatureVectorizer", [x, x[:, :2]], y, version=1, inputdimensions=[3, 4])


def test_missing_values() -> None:
    x = np.array([[NAN, 1, 2], [3, NAN, np.inf], [0, -0.0, NAN]], np.float32)
    check("Imputer", [x], {"y": FLOAT}, version=1, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=NAN)
    check("Binarizer", [np.nan_to_num(x)], {"y": FLOAT}, version=1, threshold=1.0)
    check("Binarizer", [np.nan_to_num(x)], {"y": FLOAT}, version=1)


MAPPINGS = [
    ("keys_int64s", [5, -2, 9, 5], "values_floats", [0.5, 1.5, 2.5, 9.0], np.int64, FLOAT),
    ("keys_int64s", [2**60 + 1, 2**60], "values_int64s", [-1, 7], np.int64, INT64),
    ("keys_floats", [0.5, -1.0, 3.0], "values_int64s", [4, 5, 6], np.float32, INT64),
    ("keys_floats", [0.0], "values_floats", [4.0], np.float32, FLOAT),
]


def test_mappings() -> None:
    """LabelEncoder of numbers: unsorted and repeated keys, defaults, NaN."""
    for version in (2, 4):
        for keys, listed, values, results, dtype, kind in MAPPINGS:
            if version == 2 and (keys[5:], values[7:]) in (("int64s", "int64s"), ("floats", "floats")):
                continue  # onnxruntime has them from 4 on
            x = np.array([[*listed, 0, 1, 7], [*listed[::-1], 2, 3, -9]]).astype(dtype)
            name = f"{keys} to {values} of version {version}"
            check("LabelEncoder", [x], {"y": kind}, name, version=version, **{keys: listed, values: results})
            default = {"default_float": 3.25} if kind == FLOAT else {"default_int64": -12}
            check("LabelEncoder", [x], {"y": kind}, name, version=version, **{keys: listed, values: results}, **default)
    x = np.array([[NAN, 0.5, 2, NAN]])
    floats_and_nan = {"keys_floats": [0.5, NAN], "values_int64s": [1, 2]}
    check("LabelEncoder", [x.astype(np.float32)], {"y": INT64}, "NaN", version=4, **floats_and_nan)
    rng = np.random.default_rng(0)
    keys = rng.permutation(1000)[:700].astype(np.float64) / 7
    tensors = {
        "keys_tensor": numpy_helper.from_array(keys),
        "values_tensor": numpy_helper.from_array(rng.normal(size=700)),
        "default_tensor": numpy_helper.from_array(np.array([2.5])),
    }
    x = np.concatenate([keys, keys + 1e-12, [NAN, np.inf, -np.inf]])[None]
    check("LabelEncoder", [x], {"y": DOUBLE}, "doubles", version=4, **tensors)


def test_batches_without_rows() -> None:
    for op_type, attributes, outputs, rows in (
        *(random_ensemble(seed, np.float32) for seed in (0, 1, 2)),
        *(random_machine(seed, np.float32) for seed in range(5)),
        ("Scaler", {"offset": [1.0], "scale": [2.0]}, {"y": FLOAT}, np.ones((4, 3), np.float32)),
        ("OneHotEncoder", {"cats_int64s": [1, 2]}, {"y": FLOAT}, np.ones((4, 3), np.float32)),
        ("Normalizer", {}, {"y": FLOAT}, np.ones((4, 3), np.float32)),
    ):
        model = model_of_node(op_type, [rows], outputs, **attributes)
        mismatch = difference(load(model, "numpy").run({"x0": rows[:0]}), expected_outputs(model, rows[:0]))
        assert not mismatch, f"{op_type}: {mismatch}"


def test_ensemble_in_bodies() -> None:
    """Tables of a node in a branch are weights as well; a Scan walks the trees for each of its slices."""
    op_type, attributes, _, rows = random_ensemble(3, np.float32)
    inner = helper.make_node(op_type, ["x"], ["inner"], domain="ai.onnx.ml", **attributes)
    value = helper.make_tensor_value_info
    branches = {
        f"{name}_branch": helper.make_graph([inner], name, [], [value("inner", FLOAT, None)])
        for name in ("then", "else")
    }
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Less", ["sum", "zero"], ["less"]),
        helper.make_node("If", ["less"], ["y"], **branches),
    ]
    graph = helper.make_graph(
        nodes,
        "branches",
        [value("x", FLOAT, [None, 3])],
        [value("y", FLOAT, None)],
        [numpy_helper.from_array(np.float32(0), "zero")],
    )
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=8)
    rows = np.nan_to_num(rows)
    expected = expected_outputs(model_of_node(op_type, [rows], {"y": FLOAT}, **attributes), rows)
    for x in (rows, rows[:7]):
        mismatch = difference(load(model, "numpy").run({"x": x}), [expected[0][: len(x)]])
        assert not mismatch


def changed(change: str) -> dict[str, Any]:
    attributes = votes(0.1, 3)
    match change:
        case "circle":
            attributes["nodes_modes"][1], attributes["nodes_truenodeids"][1] = "BRANCH_LEQ", 0
        case "unknown node":
            attributes["nodes_truenodeids"][0] = 9
        case "same id":
            attributes["nodes_nodeids"][1] = 0
        case "unknown mode":
            attributes["nodes_modes"][0] = "BRANCH_SOMETIMES"
        case "short list":
            attributes["nodes_values"] = attributes["nodes_values"][1:]
        case "class":
            attributes["class_ids"][0] = 3
        case "negative feature":
            attributes["nodes_featureids"][0] = -1
        case "feature":
            attributes["nodes_featureids"][0] = 1
        case "transform":
            attributes["post_transform"] = "SQUARE"
        case "strings":
            del attributes["classlabels_int64s"]
            attributes["classlabels_strings"] = ["a", "b", "c"]
    return attributes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("circle", "trees must have at most 1,024 levels and no circle"),
        ("unknown node", "there is no node 9 in tree 0"),
        ("same id", "nodes must have different tree and node ids"),
        ("unknown mode", "nodes_modes must be among BRANCH_LEQ, .*, got ['BRANCH_SOMETIMES']"),
        ("short list", "nodes_values must have 9 elements, got 8"),
        ("class", "ids of targets must be from 0 to 2"),
        ("negative feature", "ids of features must be at least 0"),
        ("feature", "rows must have at least the 2 features that trees test, got 1"),
        ("transform", "post_transform must be among NONE, .*, got 'SQUARE'"),
        ("strings", "labels that are strings are not supported; encode strings as integers outside the model"),
    ],
)
def test_malformed_ensembles(change: str, message: str) -> None:
    x = np.ones((2, 1), np.float32)
    model = model_of_node("TreeEnsembleClassifier", [x], {"l": INT64, "y": FLOAT}, **changed(change))
    pattern = re.escape(message).replace(re.escape(".*"), ".*")
    with pytest.raises((NotSupported, ModelError), match=f"TreeEnsembleClassifier 'it': {pattern}"):
        load(model, "numpy").run({"x0": x})


def test_maps_and_strings_are_rejected_with_a_cure() -> None:
    scores = helper.make_tensor_value_info("x", FLOAT, [None, 2])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, [])))
    for ends, message in (
        (
            [helper.make_value_info("z", maps)],
            "'z': must be a tensor, or a sequence or optional of tensors, got sequence of map; .*\"zipmap\": False",
        ),
        ([helper.make_tensor_value_info("y", FLOAT, None)], 'ai.onnx.ml.ZipMap .*"zipmap": False'),
        (
            [helper.make_tensor_value_info("y", TensorProto.STRING, None)],
            "type string are not supported; encode strings",
        ),
    ):
        nodes = [
            helper.make_node("ZipMap", ["x"], ["z"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]),
            helper.make_node("Identity", ["x"], ["y"]),
        ]
        graph = helper.make_graph(nodes, "maps", [scores], ends)
        versions = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
        with pytest.raises(NotSupported, match=message):
            load(helper.make_model(graph, opset_imports=versions, ir_version=8), "numpy")


def test_indices_of_columns_are_checked() -> None:
    x, where = np.ones((2, 3), np.float32), np.array([0, 3])
    model = model_of_node("ArrayFeatureExtractor", [x, where], {"y": FLOAT}, version=1)
    with pytest.raises(InvalidArgument, match="indices must be between 0 and 2, got 3"):
        load(model, "numpy").run({"x0": x, "x1": where})


def test_modes_are_onnx_s() -> None:
    """ONNX numbers the modes of TreeEnsemble in this order."""
    text = onnx.defs.get_schema("TreeEnsemble", 5, "ai.onnx.ml").attributes["nodes_modes"].description
    assert [text.index(mode) for mode in MODES] == sorted(text.index(mode) for mode in MODES)
