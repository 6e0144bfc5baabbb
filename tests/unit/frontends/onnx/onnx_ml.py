"""Nodes of ai.onnx.ml with random attributes, and their results by onnxruntime's CPU provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.unit.frontends.onnx.onnx_models import onnxruntime_outputs

ML = "ai.onnx.ml"
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
THRESHOLDS = np.array([-1.5, -1, -0.5, 0, 0.5, 1, 1.5])
FIELDS = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
WEIGHTS = ("treeids", "nodeids", "ids", "weights")
FEATURES = 3


def model_of_node(
    op_type: str, feeds: Sequence[np.ndarray], outputs: Mapping[str, int], *, version: int = 3, **attributes: Any
) -> onnx.ModelProto:
    """Return a model of one node whose inputs are x0, x1, ... with any number of rows."""
    names = [f"x{index}" for index in range(len(feeds))]
    node = helper.make_node(op_type, names, list(outputs), name="it", domain=ML, **attributes)
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(feed.dtype), [None, *feed.shape[1:]] if feed.ndim > 1 else feed.shape
        )
        for name, feed in zip(names, feeds, strict=True)
    ]
    ends = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph([node], "one", inputs, ends)
    versions = [helper.make_opsetid("", 18), helper.make_opsetid(ML, version)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


def difference(
    results: Mapping[str, np.ndarray], expected: Sequence[np.ndarray], rtol: float = 1e-4, atol: float = 1e-5
) -> str:
    """Describe the difference from expected results; empty if there is none. Integers must be equal."""
    for (name, result), other in zip(results.items(), expected, strict=True):
        if (result.dtype, result.shape) != (other.dtype, other.shape):
            return f"{name}: {result.dtype}{result.shape} instead of {other.dtype}{other.shape}"
        is_float = other.dtype.kind == "f"
        equal = np.isclose(result, other, rtol, atol, equal_nan=True) if is_float else result == other
        if not equal.all():
            return f"{name}: {result[~equal][:4]} instead of {other[~equal][:4]}, {np.sum(~equal)} of {equal.size}"
    return ""


def expected_outputs(model: onnx.ModelProto, *feeds: np.ndarray) -> list[np.ndarray]:
    """Return the outputs of a ``model_of_node`` in onnxruntime."""
    return onnxruntime_outputs(model, {f"x{index}": feed for index, feed in enumerate(feeds)})


class _Grown:
    """Nodes of a random tree: mode, feature, threshold, children by index, whether NaN is true."""

    def __init__(self, rng: np.random.Generator, modes: Sequence[str], depth: int):
        self.nodes: list[tuple[str, int, float, int, int, int]] = []
        self._rng, self._modes = rng, modes
        self._grow(depth)

    def _grow(self, depth: int) -> int:
        index, rng = len(self.nodes), self._rng
        self.nodes.append(("LEAF", 0, 0.0, 0, 0, 0))
        if depth and rng.random() > 0.2:
            true, false = self._grow(depth - 1), self._grow(depth - 1)
            mode, threshold = self._modes[rng.integers(len(self._modes))], float(rng.choice(THRESHOLDS))
            self.nodes[index] = mode, int(rng.integers(FEATURES)), threshold, true, false, int(rng.random() < 0.3)
        return index


def _targets(rng: np.random.Generator, sparsity: int, classes: Sequence[int], own: int) -> list[int]:
    """Return the targets of a leaf: all, one of the tree's own, or some."""
    if sparsity == 0:
        return list(classes)
    return [own] if sparsity == 1 else sorted(rng.choice(classes, int(rng.integers(1, len(classes) + 1)), False))


def random_ensemble(seed: int, dtype: Any) -> tuple[str, dict[str, Any], dict[str, int], np.ndarray]:
    """Return a TreeEnsembleClassifier or TreeEnsembleRegressor: operator, attributes, outputs, rows."""
    rng = np.random.default_rng(seed)
    is_regressor, targets = seed % 3 == 0, 2 if seed % 3 == 1 else int(rng.integers(1, 5))
    modes = [MODES[index] for index in rng.choice(len(MODES), int(rng.integers(1, 4)))]
    sparsity, negative = int(rng.integers(3)), rng.random() < 0.5
    classes = rng.permutation(targets)[: int(rng.integers(1, targets + 1))].tolist() if sparsity else range(targets)
    attributes: dict[str, Any] = {f"nodes_{name}": [] for name in FIELDS}
    tracks: list[int] = []
    kind = "target" if is_regressor else "class"
    attributes |= {f"{kind}_{name}": [] for name in WEIGHTS}
    for tree in range(int(rng.integers(1, 6))):
        own = int(rng.choice(classes))
        for index, (mode, feature, threshold, true, false, track) in enumerate(
            _Grown(rng, modes, int(rng.integers(0, 5))).nodes
        ):
            for name, field in zip(FIELDS, (tree, index, feature, threshold, mode, true, false), strict=True):
                attributes[f"nodes_{name}"].append(field)
            tracks.append(track)
            for target in _targets(rng, sparsity, classes, own) if mode == "LEAF" else ():
                weight = float(np.float32(rng.normal() if negative else rng.random() / 5))
                for name, field in zip(WEIGHTS, (tree, index, int(target), weight), strict=True):
                    attributes[f"{kind}_{name}"].append(field)
    if rng.random() < 0.5:
        attributes["nodes_missing_value_tracks_true"] = tracks
    attributes["post_transform"] = TRANSFORMS[rng.integers(4)]
    if rng.random() < 0.5:
        attributes["base_values"] = [float(np.float32(value)) for value in rng.normal(size=targets)]
    if is_regressor:
        attributes |= {"n_targets": targets, "aggregate_function": ("SUM", "AVERAGE", "MIN", "MAX")[rng.integers(4)]}
        outputs = {"y": TensorProto.FLOAT}
    else:
        attributes["classlabels_int64s"] = rng.permutation(20)[:targets].tolist()
        outputs = {"label": TensorProto.INT64, "y": TensorProto.FLOAT}
    return f"TreeEnsemble{'Regressor' if is_regressor else 'Classifier'}", attributes, outputs, _rows(rng, dtype)


def _rows(rng: np.random.Generator, dtype: Any) -> np.ndarray:
    """Return rows at and next to thresholds; some elements of floats are NaN."""
    numbers = [*THRESHOLDS, *(THRESHOLDS + 0.25), *([np.nan] if np.dtype(dtype).kind == "f" else [2])]
    rows = rng.choice(numbers, (40, FEATURES))
    if dtype is np.float64:
        rows += rng.choice([0, 1e-12, -1e-12], rows.shape)
    return rows.astype(dtype)


def random_joined_ensemble(seed: int, dtype: Any, *, has_sum: bool = False) -> tuple[dict[str, Any], np.ndarray]:
    """Return the attributes of a TreeEnsemble with sets of integers, and rows of integers."""
    rng = np.random.default_rng(seed)
    targets = int(rng.integers(1, 4))
    modes = [*(MODES[index] for index in rng.choice(len(MODES), 2)), "BRANCH_MEMBER"]
    inner: list[Any] = []
    leaves: list[tuple[int, float]] = []
    members: list[float] = []
    roots = []
    for _ in range(int(rng.integers(1, 5))):
        grown = _Grown(rng, modes, int(rng.integers(1, 5))).nodes
        places = {}
        for index, (mode, *_) in enumerate(grown):
            places[index] = (len(leaves), 1) if mode == "LEAF" else (len(inner), 0)
            if mode == "LEAF":
                leaves.append((int(rng.integers(targets)), float(dtype(rng.normal()))))
            else:
                inner.append(None)
                if mode == "BRANCH_MEMBER":
                    members += [*sorted(set(rng.integers(0, 40, int(rng.integers(1, 12))).tolist())), np.nan]
        for index, (mode, feature, threshold, true, false, track) in enumerate(grown):
            if mode != "LEAF":
                code = 6 if mode == "BRANCH_MEMBER" else MODES.index(mode)
                inner[places[index][0]] = (feature, code, threshold, places[true], places[false], track)
        if grown[0][0] == "LEAF":  # a tree of one leaf
            inner.append((0, 0, 0.0, places[0], places[0], 0))
            roots.append(len(inner) - 1)
        else:
            roots.append(places[0][0])

    def tensor(numbers: Sequence[float], kind: Any = dtype) -> onnx.TensorProto:
        return numpy_helper.from_array(np.array(numbers, kind))

    attributes = {
        "n_targets": targets,
        "tree_roots": roots,
        "nodes_featureids": [node[0] for node in inner],
        "nodes_modes": tensor([node[1] for node in inner], np.uint8),
        "nodes_splits": tensor([node[2] for node in inner]),
        "nodes_truenodeids": [node[3][0] for node in inner],
        "nodes_trueleafs": [node[3][1] for node in inner],
        "nodes_falsenodeids": [node[4][0] for node in inner],
        "nodes_falseleafs": [node[4][1] for node in inner],
        "nodes_missing_value_tracks_true": [node[5] for node in inner],
        "leaf_targetids": [leaf[0] for leaf in leaves],
        "leaf_weights": tensor([leaf[1] for leaf in leaves]),
        "aggregate_function": 1 if has_sum else int(rng.integers(4)),
        "post_transform": 0 if has_sum else int(rng.integers(4)),
    }
    if members:
        attributes["membership_values"] = tensor(members)
    return attributes, rng.choice([np.nan, *range(45)], (40, FEATURES)).astype(dtype)


def floats(array: Any) -> list[float]:
    """Return the elements of an array as an attribute has them."""
    return [float(number) for number in np.asarray(array, np.float32).reshape(-1)]


def random_machine(seed: int, dtype: Any) -> tuple[str, dict[str, Any], dict[str, int], np.ndarray]:
    """Return a linear model or a support vector machine: operator, attributes, outputs, rows."""
    rng = np.random.default_rng(seed)
    rows = (3 * rng.normal(size=(int(rng.integers(1, 30)), FEATURES))).astype(dtype)
    count, transform = int(rng.integers(1, 5)), TRANSFORMS[rng.integers(4)]
    kernel = {
        "kernel_type": ("LINEAR", "POLY", "RBF", "SIGMOID")[rng.integers(4)],
        "kernel_params": floats([rng.random() * 0.3, rng.random(), rng.integers(1, 5)]),
    }
    both = {"label": TensorProto.INT64, "y": TensorProto.FLOAT}
    labels = {"classlabels_ints": rng.permutation(9)[: max(count, 2)].tolist(), "post_transform": transform}
    match seed % 6:
        case 0:
            coefficients = floats(rng.normal(size=(count, FEATURES)))
            attributes = {"coefficients": coefficients, "intercepts": floats(rng.normal(size=count)), **labels}
            return "LinearClassifier", attributes, both, rows
        case 1:
            attributes = {"coefficients": floats(rng.normal(size=(count, FEATURES))), "targets": count}
            if rng.random() < 0.7:
                attributes["intercepts"] = floats(rng.normal(size=count))
            attributes["post_transform"] = transform
            return "LinearRegressor", attributes, {"y": TensorProto.FLOAT}, rows.astype(np.float32)
        case 2:
            vectors = int(rng.integers(1, 6))
            attributes = {
                **kernel,
                "n_supports": vectors,
                "support_vectors": floats(rng.normal(size=(vectors, FEATURES))),
                "coefficients": floats(rng.normal(size=vectors)),
                "rho": floats(rng.normal(size=1)),
                "one_class": int(rng.random() < 0.3),
            }
            return "SVMRegressor", attributes, {"y": TensorProto.FLOAT}, rows.astype(np.float32)
        case 3:
            numbers = rng.normal(size=(max(count, 2), FEATURES))
            attributes = {
                "kernel_params": kernel["kernel_params"],
                "coefficients": floats(np.abs(numbers) if rng.random() < 0.3 else numbers),
                "rho": floats(rng.normal(size=1)),
                **labels,
            }
            return "SVMClassifier", attributes, both, rows
    classes = max(count, 2)
    vectors_per_class = rng.integers(1, 5, classes).tolist()
    pairs = classes * (classes - 1) // 2
    attributes = {
        **kernel,
        **labels,
        "vectors_per_class": vectors_per_class,
        "support_vectors": floats(rng.normal(size=(sum(vectors_per_class), FEATURES))),
        "coefficients": floats(rng.normal(size=(classes - 1, sum(vectors_per_class)))),
        "rho": floats(rng.normal(size=pairs)),
    }
    if seed % 24 == 5:  # an iteration, which takes long on the reference
        attributes |= {"prob_a": floats(-2 * rng.random(pairs)), "prob_b": floats(0.3 * rng.normal(size=pairs))}
    return "SVMClassifier", attributes, both, rows
