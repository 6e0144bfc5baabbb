"""Tree ensembles of ai.onnx.ml: forests, boosted trees and single trees, for classes and for numbers.

All rows walk down all trees at the same time: a matrix {rows, trees} holds where each walk is, and a step gathers the
tested features and the tables of the forest by it (``forest.py``). All steps have equal kernels, so a deep forest
compiles as quickly as a shallow one. This is a graph of DirectML's operators, thus the same on every adapter and in
exported pages. A WGSL kernel with a loop would keep positions in registers, but no graph can hold one, and the adapter
``numpy`` could not run it.

Weights of leaves are added as multiples of a power of 2, whose sums are exact, and remainders. So scores do not
depend on the order of addition, and equal votes tie on every adapter. onnxruntime adds in float32, in an order that
depends on its threads: there a tie of votes can go either way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.onnx import forest as tables
from dmlgpu.frontends.onnx.expressions import add, cast, choose, divide, number_like, reshaped, same
from dmlgpu.frontends.onnx.forest import (
    MODES,
    Nodes,
    exact_parts,
    forest_of,
    leaves_of,
    positions,
    scaled_integers,
)
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators import ML
from dmlgpu.frontends.onnx.registry import PreparedAttributes, Result, operator
from dmlgpu.frontends.onnx.scores import (
    TRANSFORMS,
    class_labels,
    highest,
    labels_at,
    labels_of_two,
    of_both,
    ordered,
    transform_of,
    transformed,
)
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

Array = NDArray[Any]

MAX_POSITIONS = 1 << 24
"""Maximum number of elements of the matrices of a walk; more trees are walked in several turns."""

_SIGNIFICAND_BITS = 52
"""Position of the exponent of FLOAT64."""

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_REDUCTIONS = {"AVERAGE": ReduceFunction.SUM, "SUM": ReduceFunction.SUM, "MIN": ReduceFunction.MIN}
_NEUTRAL = {"MIN": np.inf, "MAX": -np.inf}
_COMBINED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "AVERAGE": dml.add,
    "SUM": dml.add,
    "MIN": dml.min,
    "MAX": dml.max,
}
_TESTS: dict[int, Callable[[Tensor, Tensor], Tensor]] = {
    tables.LEQ: dml.less_than_or_equal,
    tables.LT: dml.less_than,
    tables.EQ: dml.equals,
}


# ---- when the model is read


def _floats(node: OnnxNode, name: str) -> Array:
    """Return numbers of an attribute that is a list, or a tensor with ``_as_tensor`` in its name."""
    tensor = node.attribute(f"{name}_as_tensor")
    if tensor is not None and math.prod(tensor.dims):
        return np.asarray(numpy_helper.to_array(tensor)).reshape(-1)
    return np.array(node.attribute(name, ()), np.float32)


def _integers(node: OnnxNode, name: str, count: int) -> Array:
    return np.array(node.integers(name, count) or np.zeros(count), np.int64)


def _tracks(node: OnnxNode, count: int) -> Array:
    listed = node.integers("nodes_missing_value_tracks_true")
    return np.zeros(count, np.bool_) if not listed else _integers(node, "nodes_missing_value_tracks_true", count) == 1


def _listed_nodes(node: OnnxNode, kind: str) -> Nodes:
    """Return the nodes of TreeEnsembleClassifier and TreeEnsembleRegressor, which have ids per tree.

    Args:
        node: The node.
        kind: ``"class"`` or ``"target"``, as attributes of weights begin.
    """
    modes = node.attribute("nodes_modes", ())
    count = len(modes)
    unknown = {mode.decode(errors="replace") for mode in set(modes)} - set(MODES)
    if not count or unknown:
        raise node.rejection(f"nodes_modes must be among {', '.join(MODES)}, got {sorted(unknown) or 'none'}")
    values = _floats(node, "nodes_values")
    if len(values) != count:
        raise node.rejection(f"nodes_values must have {count} elements, got {len(values)}")
    trees, ids, features, true, false = (
        _integers(node, f"nodes_{name}", count)
        for name in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    )
    numbers = {mode.encode(): index for index, mode in enumerate(MODES)}
    kinds = np.array([numbers[mode] for mode in modes])
    inner = kinds != MODES.index("LEAF")
    weights = _floats(node, f"{kind}_weights")
    of_trees, of_ids, targets = (
        _integers(node, f"{kind}_{name}", len(weights)) for name in ("treeids", "nodeids", "ids")
    )
    leaves = positions(trees, ids, of_trees, of_ids)
    for children in (true, false):
        children[inner] = positions(trees, ids, trees[inner], children[inner])
    roots = np.flatnonzero(np.append(True, trees[1:] != trees[:-1]))
    at_leaf = ~inner[leaves]  # some converters write weights of other nodes, which onnxruntime ignores
    return Nodes(
        features,
        values,
        kinds,
        _tracks(node, count),
        true,
        false,
        roots,
        leaves[at_leaf],
        targets[at_leaf],
        weights[at_leaf],
        {},
    )


def _joined_nodes(node: OnnxNode) -> Nodes:
    """Return the nodes of TreeEnsemble, which numbers inner nodes and leaves apart; leaves follow here."""
    arrays = {
        name: np.asarray(numpy_helper.to_array(tensor)).reshape(-1)
        for name in ("nodes_splits", "nodes_modes", "leaf_weights", "membership_values")
        if (tensor := node.attribute(name)) is not None
    }
    splits, weights = (arrays.get(name, np.zeros(0, np.float32)) for name in ("nodes_splits", "leaf_weights"))
    kinds = arrays.get("nodes_modes", np.zeros(0)).astype(np.int64)
    count, leaves = len(splits), len(weights)
    if len(kinds) != count or ((kinds < 0) | (kinds >= MODES.index("LEAF"))).any():
        raise node.rejection(f"nodes_modes must be {count} numbers from 0 to 6, got {kinds[:8].tolist()}")
    features = _integers(node, "nodes_featureids", count)
    children = []
    for side in ("true", "false"):
        numbers, at_leaf = (_integers(node, f"nodes_{side}{kind}", count) for kind in ("nodeids", "leafs"))
        limits = np.where(at_leaf != 0, leaves, count)
        if ((numbers < 0) | (numbers >= limits)).any():
            raise node.rejection(f"nodes_{side}nodeids must be numbers of nodes or leaves")
        children.append(np.where(at_leaf != 0, count + numbers, numbers))
    true, false = children
    roots = np.array(node.integers("tree_roots") or (), np.int64)
    if not len(roots) or ((roots < 0) | (roots >= count)).any():
        raise node.rejection(f"tree_roots must be numbers from 0 to {count - 1}, got {roots[:8].tolist()}")
    # A tree of one leaf is a node with equal children.
    is_alone = (true[roots] == false[roots]) & (true[roots] >= count)
    more = np.zeros(leaves, np.int64)
    return Nodes(
        np.append(features, more),
        np.append(splits, more.astype(splits.dtype)),
        np.append(kinds, np.full(leaves, MODES.index("LEAF"))),
        np.append(_tracks(node, count), more == 1),
        np.append(true, more),
        np.append(false, more),
        np.where(is_alone, true[roots], roots),
        np.arange(count, count + leaves),
        _integers(node, "leaf_targetids", leaves),
        weights,
        _members(node, kinds, arrays.get("membership_values")),
    )


def _members(node: OnnxNode, kinds: Array, values: Array | None) -> dict[int, Array]:
    """Return the sets of nodes BRANCH_MEMBER, which NaN separates."""
    numbers = np.flatnonzero(kinds == MODES.index("BRANCH_MEMBER")).tolist()
    values = np.zeros(0) if values is None else values
    sets = np.split(values, np.flatnonzero(np.isnan(values)))
    if len(sets) < len(numbers):
        raise node.rejection(f"membership_values must have {len(numbers)} sets, got {len(sets)}")
    return {node: np.unique(part[~np.isnan(part)]) for node, part in zip(numbers, sets, strict=False)}


def _prepared(node: OnnxNode, nodes: Nodes, targets: int, aggregate: str, **attributes: Any) -> PreparedAttributes:
    """Return the tables of an ensemble as weights of the model."""
    if targets < 1 or (len(nodes.targets) and not 0 <= nodes.targets.min() <= nodes.targets.max() < targets):
        raise node.rejection(f"ids of targets must be from 0 to {targets - 1}, got {nodes.targets[:8].tolist()}")
    if (nodes.features < 0).any():
        raise node.rejection("ids of features must be at least 0")
    try:
        forest = forest_of(nodes)
        leaves = leaves_of(nodes, forest, targets, _NEUTRAL.get(aggregate, 0.0))
    except ValueError as error:
        raise node.rejection(str(error)) from None
    last = len(forest.nodes)
    if node.op_type == "TreeEnsemble" and forest.thresholds.dtype == np.float64:
        table, attributes["shift"] = scaled_integers(leaves.weights, leaves.roots.shape[1])
    elif aggregate in _NEUTRAL:
        table = leaves.weights.astype(np.float32)
    else:
        table = exact_parts(leaves.weights, leaves.roots.shape[1])
    thresholds = forest.thresholds if forest.thresholds.dtype == np.float64 else forest.thresholds.astype(np.float32)
    arrays = {
        "features": np.append(forest.features, np.uint32(0)),
        "thresholds": np.append(thresholds, thresholds.dtype.type(0)),
        "words": np.append(forest.words, np.uint32(last << tables.CHILD_SHIFT)),
        "roots": leaves.roots.astype(np.uint32),
        "leaves": table,
    }
    if not leaves.is_present.all():
        arrays["present"] = leaves.is_present.astype(np.float32)
    described = {
        "depth": forest.depth,
        "tests": forest.tests,
        "tracks_nan": int(forest.tracks_nan),
        "feature_count": int(forest.features.max(initial=0)) + 1,
        "tree_count": len(nodes.roots),
        "aggregate": aggregate,
    }
    return PreparedAttributes(
        arrays, {name: value for name, value in {**described, **attributes}.items() if value != ()}
    )


def _classifier(node: OnnxNode) -> PreparedAttributes:
    """Prepare TreeEnsembleClassifier."""
    labels = class_labels(node, "classlabels_int64s")
    nodes = _of_lists(node, "class", len(labels))
    is_binary = len(labels) == 2 and len(np.unique(nodes.targets)) == 1
    is_positive = bool((nodes.weights >= 0).all())
    prepared = _prepared(
        node, nodes, len(labels), "SUM", is_binary=int(is_binary), is_positive=int(is_positive), **_base_values(node)
    )
    return replace(prepared, arrays={**prepared.arrays, "labels": labels})


def _regressor(node: OnnxNode) -> PreparedAttributes:
    """Prepare TreeEnsembleRegressor."""
    aggregate = node.text("aggregate_function", "SUM")
    if aggregate not in _AGGREGATES:
        raise node.rejection(f"aggregate_function must be among {', '.join(_AGGREGATES)}, got {aggregate!r}")
    targets = node.integer("n_targets")
    return _prepared(node, _of_lists(node, "target", targets), targets, aggregate, **_base_values(node))


def _ensemble(node: OnnxNode) -> PreparedAttributes:
    """Prepare TreeEnsemble."""
    code = node.integer("aggregate_function", 1)
    if not 0 <= code < len(_AGGREGATES):
        raise node.rejection(f"aggregate_function must be from 0 to {len(_AGGREGATES) - 1}, got {code}")
    return _prepared(node, _joined_nodes(node), node.integer("n_targets"), _AGGREGATES[code])


def _of_lists(node: OnnxNode, kind: str, targets: int) -> Nodes:
    """Return the nodes described by attribute lists; with one target, only the first weight of a leaf counts."""
    try:
        nodes = _listed_nodes(node, kind)
    except ValueError as error:
        raise node.rejection(str(error)) from None
    if targets == 1:
        _, first = np.unique(nodes.leaves, return_index=True)
        nodes.leaves, nodes.targets, nodes.weights = nodes.leaves[first], nodes.targets[first], nodes.weights[first]
    return nodes


def _base_values(node: OnnxNode) -> dict[str, Any]:
    return {"base_values": tuple(_floats(node, "base_values").astype(np.float64).tolist())}


# ---- when a node is translated


def _start(node: OnnxNode) -> tuple[Tensor, Tensor]:
    """Return the features {rows, features} and the thresholds, in the type in which they are compared."""
    node.check_rank(0, 1, 2)
    x = node.tensor(0)
    if len(node.shape(0)) == 1:
        x = reshaped(x, (1, *x.sizes))
    needed = node.integer("feature_count")
    if x.sizes[1] < needed:
        raise node.rejection(f"rows must have at least the {needed} features that trees test, got {x.sizes[1]}")
    if x.data_type is DataType.FLOAT64:
        return ordered(x), ordered(cast(node.array("thresholds"), DataType.FLOAT64))
    return cast(x, DataType.FLOAT32), cast(node.array("thresholds"), DataType.FLOAT32)


@dataclass(frozen=True)
class _Walk:
    """Tables of a node's forest as expressions of the graph, rows of one element."""

    node: OnnxNode
    x: Tensor
    thresholds: Tensor

    def looked_up(self, table: Tensor, positions: Tensor) -> Tensor:
        return directml.gather(reshaped(table, (1, table.sizes[-1])), positions, axis=1, index_dimensions=2)

    def leaves(self, roots: Array) -> Tensor:
        """Return the positions {rows, trees} at which walks from roots end."""
        node = self.node
        tests, tracks = node.integers("tests") or (), node.flag("tracks_nan")
        features, words = node.array("features"), node.array("words")
        at = node.constant(roots.reshape(1, -1), DataType.UINT32).broadcast_to((self.x.sizes[0], roots.size))
        for _ in range(node.integer("depth")):
            value = directml.gather_elements(self.x, self.looked_up(features, at), axis=1)
            threshold, word = self.looked_up(self.thresholds, at), self.looked_up(words, at)
            is_true = _TESTS[tests[0]](value, threshold)
            for test in tests[1:]:
                has_test = dml.equals(word & (3 << tables.TEST_SHIFT), same(word, test << tables.TEST_SHIFT))
                is_true = dml.if_(has_test, _TESTS[test](value, threshold), is_true)
            taken = cast(is_true, DataType.UINT32)
            if tracks:
                is_nan = dml.is_nan(value) if value.data_type.is_float else dml.equals(value, same(value, 2**63 - 1))
                tracked = dml.logical_and(is_nan, cast(word & tables.NAN_BIT, DataType.UINT8))
                taken = cast(dml.logical_or(is_true, tracked), DataType.UINT32)
            at = dml.add(dml.bit_shift_right(word, same(word, tables.CHILD_SHIFT)), taken & (word & tables.BRANCH_BIT))
        return at


def _aggregated(node: OnnxNode, *names: str) -> list[Tensor]:
    """Return tables of leaves, reduced over the leaves that each row reaches: {rows, groups, 1, columns}.

    Args:
        node: The node.
        names: ``"leaves"``, by the node's function, and ``"present"``, by the maximum.
    """
    x, thresholds = _start(node)
    walk = _Walk(node, x, thresholds)
    roots = node.arrays["roots"].array
    assert roots is not None
    groups, count = roots.shape
    columns, rows = max(node.arrays[name].shape[1] for name in names), x.sizes[0]
    turn = count
    while turn > 1 and rows * (groups * columns * turn) > MAX_POSITIONS:
        turn = -(-turn // 2)
    turns = -(-count // turn)
    turn = -(-count // turns)
    nothing = node.arrays["words"].shape[0] - 1
    roots = np.pad(roots, ((0, 0), (0, turns * turn - count)), constant_values=nothing)
    totals: list[Tensor | None] = [None] * len(names)
    for first in range(0, turns * turn, turn):
        at = walk.leaves(roots[:, first : first + turn])
        for index, name in enumerate(names):
            table = node.array(name)
            width = table.sizes[1]
            aggregate = node.text("aggregate") if name == "leaves" else "MAX"
            weights = directml.gather(
                reshaped(table, (1, *table.sizes)), reshaped(at, (1, *at.sizes)), axis=1, index_dimensions=2
            )
            weights = reshaped(weights, (rows, groups, turn, width))
            reduced = dml.reduce(weights, _REDUCTIONS.get(aggregate, ReduceFunction.MAX), axes=(2,))
            previous = totals[index]
            totals[index] = reduced if previous is None else _COMBINED[aggregate](previous, reduced)
    return [total for total in totals if total is not None]


def _scores(node: OnnxNode) -> tuple[Tensor, Tensor | None]:
    """Return scores {rows, targets} without base values, and a mask of the targets that leaves have; None for all."""
    present = node.array("present") if "present" in node.arrays else None
    is_table = present is not None and present.sizes[0] > 1
    totals = _aggregated(node, "leaves", *(("present",) if is_table else ()))
    total, aggregate = totals[0], node.text("aggregate")
    rows, groups, _, columns = total.sizes
    if is_table:
        present = reshaped(totals[1], (rows, columns if aggregate in _NEUTRAL else columns // 2))
    if present is not None:
        present = dml.greater_than(present, same(present, 0)).broadcast_to((rows, present.sizes[1]))
    if aggregate in _NEUTRAL:
        return reshaped(total, (rows, groups * columns)), present
    width = columns // 2
    parts = (dml.slice(total, (0, 0, 0, start), (rows, groups, 1, width)) for start in (0, width))
    scores = reshaped(dml.add(*parts), (rows, groups * width))
    if aggregate == "AVERAGE":
        scores = divide(scores, number_like(scores, node.integer("tree_count")))
    return scores, present


def _based(node: OnnxNode, scores: Tensor, present: Tensor | None) -> Tensor:
    """Add base values, if there is one per target; targets without leaves are 0, as in onnxruntime."""
    base = node.attribute("base_values", ())
    if len(base) == scores.sizes[1]:
        scores = add(scores, node.constant([list(base)], DataType.FLOAT32))
    return scores if present is None else choose(present, scores, 0.0)


@operator("TreeEnsembleRegressor", domain=ML, prepare=_regressor)
@operator("TreeEnsemble", domain=ML, since=5, prepare=_ensemble)
def regressor(node: OnnxNode) -> OnnxValue:
    """Reduce the weights of the leaves that a row reaches, for each target."""
    if node.op_type == "TreeEnsemble":
        code = node.integer("post_transform")
        if not 0 <= code < len(TRANSFORMS):
            raise node.rejection(f"post_transform must be from 0 to {len(TRANSFORMS) - 1}, got {code}")
        transform = TRANSFORMS[code]
        if node.attribute("shift") is not None:
            return node.valued(_doubles(node, transform))
    else:
        transform = transform_of(node)
    scores = _based(node, *_scores(node))
    if scores.sizes[1] > 1 or transform == "PROBIT":  # with one target, onnxruntime ignores the others
        scores = transformed(scores, transform)
    return node.valued(cast(scores, DataType.FLOAT16) if node.data_type(0) is DataType.FLOAT16 else scores)


def _doubles(node: OnnxNode, transform: str) -> Tensor:
    """Return scores {rows, targets} of FLOAT64, which DirectML cannot add: sums of integers, and shifted exponents."""
    aggregate = node.text("aggregate")
    is_sum = aggregate == "SUM" or (aggregate == "AVERAGE" and node.integer("tree_count") == 1)
    if not is_sum or transform != "NONE":
        raise node.rejection("of float64, only sums of weights without a transform are supported")
    (total,) = _aggregated(node, "leaves")
    total = reshaped(total, (total.sizes[0], total.sizes[1] * total.sizes[3]))
    bits = cast(total, DataType.FLOAT64).reinterpret(total.sizes, None, DataType.INT64)
    bits = choose(dml.equals(total, same(total, 0)), 0, bits - (node.integer("shift") << _SIGNIFICAND_BITS))
    return bits.reinterpret(bits.sizes, None, DataType.FLOAT64)


@operator("TreeEnsembleClassifier", domain=ML, prepare=_classifier)
def classifier(node: OnnxNode) -> Sequence[Result]:
    """Add the weights of the leaves that a row reaches, for each class; the label is that of the highest score."""
    transform = transform_of(node)
    scores, present = _scores(node)
    classes = scores.sizes[1]
    if classes == 1:
        scores = _based(node, scores, None)
        labels = labels_of_two(dml.greater_than(scores, same(scores, 0)), (0, 1))
        return labels, transformed(scores, transform) if transform == "PROBIT" else scores
    if classes == 2:
        return _of_two_classes(node, scores, present, transform)
    if node.attribute("base_values"):
        scores = candidates = _based(node, scores, None)
    else:
        candidates = scores if present is None else choose(present, scores, -np.inf)
    return labels_at(node, highest(candidates)), transformed(scores, transform)


def _of_two_classes(node: OnnxNode, scores: Tensor, present: Tensor | None, transform: str) -> tuple[Tensor, Tensor]:
    """Return labels {rows} and scores {rows, 2} of two classes as onnxruntime computes them.

    Args:
        node: The node.
        scores: Scores without base values {rows, 2}.
        present: Mask of the classes that leaves have; None for all. If leaves have no weight of the second class, the
            first column is the score of the second class.
        transform: Transform of the scores.
    """
    rows = scores.sizes[0]
    first, second = (dml.slice(scores, (0, column), (rows, 1)) for column in (0, 1))
    if present is None:
        return _with_second(node, first, second, transform)
    has_first, has_second = (dml.slice(present, (0, column), (rows, 1)) for column in (0, 1))
    mask = node.arrays["present"].array
    if mask is not None and len(mask) == 1:
        if not mask[0, 1]:
            return _without_second(node, first, transform)
        return _with_second(node, first, second, transform, has_first)
    label, either = _with_second(node, first, second, transform, has_first)
    other_label, other = _without_second(node, first, transform)
    return choose(reshaped(has_second, (rows,)), label, other_label), choose(has_second, either, other)


def _with_second(
    node: OnnxNode, first: Tensor, second: Tensor, transform: str, has_first: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return labels and scores if leaves have weights of the second class, and possibly the first."""
    base = node.attribute("base_values", ())
    if len(base) == 2:
        second = add(first, base[1])
        first = dml.negate(second)
    elif len(base) == 1:
        first = add(first, base[0])
    if has_first is not None:
        first = choose(has_first, first, 0.0)
    return _label_of_two(node, second), transformed(dml.join([first, second], 1), transform)


def _without_second(node: OnnxNode, first: Tensor, transform: str) -> tuple[Tensor, Tensor]:
    """Return labels and scores if leaves have weights of the first class only."""
    base = node.attribute("base_values", ())
    score = add(first, base[0]) if len(base) else first
    label = _label_of_two(node, score)
    if len(base) == 2:
        return label, transformed(dml.join([score, same(score, 0)], 1), transform)
    return label, of_both(score, transform, is_probability=_are_votes(node))


def _are_votes(node: OnnxNode) -> bool:
    """Return whether all weights are of one class, and positive: parts of a probability."""
    return node.flag("is_binary") and node.flag("is_positive")


def _label_of_two(node: OnnxNode, score: Tensor) -> Tensor:
    labels = node.arrays["labels"].array
    assert labels is not None
    names = (int(labels[0]), int(labels[1])) if node.flag("is_binary") else (0, 1)
    return labels_of_two(dml.greater_than(score, same(score, 0.5 if _are_votes(node) else 0)), names)
