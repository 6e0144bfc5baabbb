"""Tree ensembles of ai.onnx.ml as tables that a data-parallel walk reads.

All operators of tree ensembles become the same tables. A record is a node of a tree at one position; the two children
of a node have adjacent positions, so a step of the walk is ``position = child + (1 if the test is true)``. A leaf is
its own child. Nodes of several parents have a record for each.

A test is ``x <= threshold``, ``x < threshold`` or ``x == threshold``. Other modes exchange the children. A set of
BRANCH_MEMBER becomes a binary search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LEQ, LT, EQ = range(3)
"""Tests of a record."""

BRANCH_BIT = 1
NAN_BIT = 2
TEST_SHIFT = 2
CHILD_SHIFT = 4
"""A word is ``child << CHILD_SHIFT | test << TEST_SHIFT | flags``; the flags are whether there are children, and
whether NaN takes the branch of true."""

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF")
"""Modes of nodes; TreeEnsemble numbers them so."""

_TESTS = {"BRANCH_LEQ": LEQ, "BRANCH_GT": LEQ, "BRANCH_LT": LT, "BRANCH_GTE": LT, "BRANCH_EQ": EQ, "BRANCH_NEQ": EQ}
_EXCHANGED = ("BRANCH_GT", "BRANCH_GTE", "BRANCH_NEQ")
_LEAF, _MEMBER = MODES.index("LEAF"), MODES.index("BRANCH_MEMBER")

MAX_LEVELS = 1024
MAX_RECORDS = 1 << (32 - CHILD_SHIFT)

_MAX_WEIGHTS = 1 << 27
"""Elements, at most, of the table of leaves."""

_SIGNIFICAND = 23
"""Bits to which sums of float32 are exact, and one to spare."""

_INTEGER_BITS = 62
_LARGEST_SHIFT = 1000
"""Powers of 2 by which weights become integers; sums of FLOAT64 are those of INT64."""


@dataclass
class Nodes:
    """Nodes of an ensemble, those of all trees in one numbering.

    Attributes:
        features: Index of the feature that is tested.
        values: Thresholds, in the type that the test computes in.
        modes: Indices into ``MODES``.
        tracks: Whether NaN makes the test true.
        true, false: Indices of the children; undefined for a leaf.
        roots: Indices of the roots.
        leaves, targets, weights: Leaf, target and value of each weight.
        members: Sorted sets of BRANCH_MEMBER by index of the node.
    """

    features: Array
    values: Array
    modes: Array
    tracks: Array
    true: Array
    false: Array
    roots: Array
    leaves: Array
    targets: Array
    weights: Array
    members: dict[int, Array]


@dataclass(frozen=True)
class Forest:
    """Tables of an ensemble.

    Attributes:
        features: Feature that each record tests, UINT32.
        thresholds: Its threshold.
        words: Child, test and flags of each record, UINT32.
        nodes: Node of each record, of ``Nodes``.
        depth: Number of tests from a root to the farthest leaf.
        tests: Tests that occur.
        tracks_nan: Whether a test is true of NaN.
    """

    features: Array
    thresholds: Array
    words: Array
    nodes: Array
    depth: int
    tests: tuple[int, ...]
    tracks_nan: bool


def forest_of(nodes: Nodes) -> Forest:
    """Return the tables of an ensemble; the first records are the roots, in order.

    Raises:
        ValueError: If the nodes are not trees, or too many.
    """
    _search_members(nodes)
    is_branch = nodes.modes != _LEAF
    order, depth = _reached(nodes, is_branch)
    branches = order[is_branch[order]]
    count = len(nodes.roots) + 2 * len(branches)
    if count >= MAX_RECORDS:
        raise ValueError(f"trees must have at most {MAX_RECORDS:,} nodes, got {count:,}")
    tests = np.array([_TESTS.get(mode, LEQ) for mode in MODES])[nodes.modes]
    exchanged = np.array([mode in _EXCHANGED for mode in MODES])[nodes.modes]
    first, second = (np.where(exchanged, *pair) for pair in ((nodes.true, nodes.false), (nodes.false, nodes.true)))
    # Every comparison with NaN is false except BRANCH_NEQ.
    nan_is_true = nodes.tracks | (nodes.modes == MODES.index("BRANCH_NEQ"))
    goes_true = np.where(exchanged, ~nan_is_true, nan_is_true) & is_branch
    records = np.concatenate([nodes.roots, np.stack([first[branches], second[branches]], 1).reshape(-1)])
    rank = np.zeros(len(is_branch), np.int64)
    rank[branches] = np.arange(len(branches))
    children = np.where(is_branch[records], len(nodes.roots) + 2 * rank[records], np.arange(count))
    flags = is_branch[records] * BRANCH_BIT | goes_true[records] * NAN_BIT | tests[records] << TEST_SHIFT
    return Forest(
        np.where(is_branch, nodes.features, 0)[records].astype(np.uint32),
        nodes.values[records],
        (children << CHILD_SHIFT | flags).astype(np.uint32),
        records,
        depth,
        tuple(np.unique(tests[branches]).tolist()),
        bool(goes_true[branches].any()),
    )


def _reached(nodes: Nodes, is_branch: Array) -> tuple[Array, int]:
    """Return the nodes that the roots reach, level by level, and the number of levels below the roots.

    A node is listed at its farthest level, so trees whose branches meet end, and circles do not.
    """
    level = np.full(len(is_branch), -1)
    frontier, depth = np.unique(nodes.roots), 0
    while len(frontier):
        level[frontier] = depth
        inner = frontier[is_branch[frontier]]
        frontier = np.unique(np.concatenate([nodes.true[inner], nodes.false[inner]]))
        depth += 1
        if depth > MAX_LEVELS:
            raise ValueError(f"trees must have at most {MAX_LEVELS:,} levels and no circle")
    order = np.argsort(level, kind="stable")
    return order[level[order] >= 0], depth - 1


def _search_members(nodes: Nodes) -> None:
    """Replace tests of membership by binary searches: nodes ``x <= member`` that end in ``x == member``."""
    columns: dict[str, list[Array]] = {}

    def added(mode: str, like: int, value: Any, true: int, false: int) -> int:
        index = len(nodes.modes) + len(columns.setdefault("modes", []))
        fields = {
            "features": nodes.features[like],
            "values": value,
            "modes": MODES.index(mode),
            "tracks": nodes.tracks[like] and mode == "BRANCH_EQ",
            "true": true,
            "false": false,
        }
        for name, field in fields.items():
            columns.setdefault(name, []).append(field)
        return index

    def search(like: int, members: Array) -> tuple[str, Any, int, int]:
        """Return mode, value and children of the root of a search."""
        if len(members) <= 1:  # an empty set becomes a comparison that is never true
            value = members[0] if len(members) else np.nan
            return "BRANCH_EQ", value, int(nodes.true[like]), int(nodes.false[like])
        middle = len(members) // 2
        low, high = (added_search(like, half) for half in (members[:middle], members[middle:]))
        return "BRANCH_LEQ", members[middle - 1], low, high

    def added_search(like: int, members: Array) -> int:
        mode, value, true, false = search(like, members)
        return added(mode, like, value, true, false)

    roots = {index: search(index, members) for index, members in nodes.members.items()}
    for name, fields in columns.items():
        previous: Array = getattr(nodes, name)
        setattr(nodes, name, np.concatenate([previous, np.array(fields, previous.dtype)]))
    for index, (mode, value, true, false) in roots.items():
        nodes.modes[index], nodes.values[index] = MODES.index(mode), value
        nodes.true[index], nodes.false[index] = true, false
        nodes.tracks[index] &= mode == "BRANCH_EQ"


def positions(trees: Array, ids: Array, of_trees: Array, of_ids: Array) -> Array:
    """Return the positions of nodes named by tree and id.

    Args:
        trees, ids: Names of all nodes.
        of_trees, of_ids: Names to look up.

    Raises:
        ValueError: If names are not unique, or unknown.
    """
    columns = (np.concatenate(pair) for pair in ((trees, of_trees), (ids, of_ids)))
    tree_ranks, id_ranks = (np.unique(column, return_inverse=True)[1] for column in columns)
    names = tree_ranks * (id_ranks.max(initial=0) + 1) + id_ranks
    own, names = names[: len(trees)], names[len(trees) :]
    order = np.argsort(own)
    ordered = own[order]
    if (ordered[1:] == ordered[:-1]).any():
        raise ValueError("nodes must have different tree and node ids")
    places = np.searchsorted(ordered, names)
    unknown = (places == len(ordered)) | (ordered[np.minimum(places, len(ordered) - 1)] != names)
    if unknown.any():
        first = int(np.argmax(unknown))
        raise ValueError(f"there is no node {of_ids[first]} in tree {of_trees[first]}")
    return order[places]


# ---- leaves


@dataclass(frozen=True)
class Leaves:
    """Leaves of a forest as a table.

    Attributes:
        weights: {records, width}: for each target of a group its number.
        roots: {groups, trees}: records at which the walks of each group start. Trees that each have one target are
            grouped by it, so a walk reads one number; otherwise there is one group and a number for each target.
        is_present: Whether leaves have weights of each target: {1, targets} if all leaves have those of the same
            targets, or {records, targets}.
    """

    weights: Array
    roots: Array
    is_present: Array


def leaves_of(nodes: Nodes, forest: Forest, targets: int, neutral: float) -> Leaves:
    """Return the leaves of a forest; the record after the last one is a tree without a weight.

    Args:
        nodes: Nodes of the ensemble.
        forest: Its tables.
        targets: Number of targets or classes.
        neutral: Weight of targets that a leaf does not have.
    """
    trees = _trees_of(forest, len(nodes.roots))
    target_of = np.full(len(nodes.modes), -1)
    target_of[nodes.leaves] = nodes.targets
    owner = None
    if trees is not None and targets > 1 and len(np.unique(nodes.leaves)) == len(nodes.leaves):
        lowest, highest = np.full(len(nodes.roots), targets), np.full(len(nodes.roots), -1)
        at_leaf = target_of[forest.nodes] >= 0
        np.minimum.at(lowest, trees[at_leaf], target_of[forest.nodes][at_leaf])
        np.maximum.at(highest, trees[at_leaf], target_of[forest.nodes][at_leaf])
        owner = highest if (lowest == highest).all() else None
    width = 1 if owner is not None else targets
    if (len(forest.nodes) + 1) * width > _MAX_WEIGHTS:
        raise ValueError(f"leaves must have at most {_MAX_WEIGHTS:,} weights, got {len(forest.nodes) * width:,}")
    sums, present = np.zeros((len(nodes.modes), width)), np.zeros((len(nodes.modes), width), np.bool_)
    columns = np.zeros_like(nodes.targets) if owner is not None else nodes.targets
    np.add.at(sums, (nodes.leaves, columns), nodes.weights.astype(np.float64))
    present[nodes.leaves, columns] = True
    sums[~present] = neutral
    nothing = np.full((1, width), neutral)
    weights = np.concatenate([sums[forest.nodes], nothing])
    if owner is None:
        roots = np.arange(len(nodes.roots))[None]
        of_leaves = present[forest.nodes[forest.words & BRANCH_BIT == 0]]
        is_even = bool((of_leaves.any(0) == of_leaves.all(0)).all())
        of_records = np.append(present[forest.nodes], np.zeros((1, width), np.bool_), 0)
        return Leaves(weights, roots, of_leaves[:1] if is_even else of_records)
    counts = np.bincount(owner, minlength=targets)
    roots = np.full((targets, counts.max()), len(forest.nodes))
    for target in range(targets):
        roots[target, : counts[target]] = np.flatnonzero(owner == target)
    return Leaves(weights, roots, counts[None] > 0)


def _trees_of(forest: Forest, count: int) -> Array | None:
    """Return the index of the tree of each record; None if trees share records."""
    trees = np.full(len(forest.words), -1)
    frontier = np.arange(count)
    trees[frontier] = frontier
    shared = False
    for _ in range(forest.depth):
        frontier = frontier[forest.words[frontier] & BRANCH_BIT == BRANCH_BIT]
        children = (forest.words[frontier] >> CHILD_SHIFT).astype(np.int64)
        owners = trees[frontier]
        for side in (children, children + 1):
            shared |= bool(((trees[side] >= 0) & (trees[side] != owners)).any())
            trees[side] = owners
            shared |= bool((trees[side] != owners).any())
        frontier = np.unique(np.concatenate([children, children + 1]))
    return None if shared else trees


def exact_parts(weights: Array, count: int) -> Array:
    """Return numbers {n, width} as {n, 2 * width}: multiples of a power of 2 whose sums are exact, and remainders.

    Args:
        weights: Numbers.
        count: How many are added, at most.
    """
    bound = float(np.abs(weights).max(initial=0.0)) * count
    if not 0 < bound < np.inf:
        return np.concatenate([weights, np.zeros_like(weights)], 1).astype(np.float32)
    unit = 2.0 ** (math.frexp(bound)[1] - _SIGNIFICAND)
    multiples = np.round(weights / unit) * unit
    return np.concatenate([multiples, weights - multiples], 1).astype(np.float32)


def scaled_integers(weights: Array, count: int) -> tuple[Array, int]:
    """Return numbers as INT64, whose sums are exact, and the power of 2 of which they are multiples, negated.

    Args:
        weights: Numbers; none but 0 if they are not finite.
        count: How many are added, at most.
    """
    bound = float(np.abs(weights).max(initial=0.0)) * count
    shift = min(_INTEGER_BITS - math.frexp(bound)[1], _LARGEST_SHIFT) if 0 < bound < np.inf else 0
    return np.round(np.ldexp(np.where(np.isfinite(weights), weights, 0), shift)).astype(np.int64), shift
