"""Linear models and support vector machines of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.onnx.coupling import coupled
from dmlgpu.frontends.onnx.expressions import add, cast, choose, multiply, reshaped, same
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators import ML
from dmlgpu.frontends.onnx.registry import PreparedAttributes, Result, Steps, operator
from dmlgpu.frontends.onnx.scores import (
    class_labels,
    complement,
    highest,
    labels_at,
    labels_of_two,
    matrix_of,
    of_both,
    transform_of,
    transformed,
)
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

Array = NDArray[Any]

_MAX_DIFFERENCES = 1 << 24
"""Maximum number of differences between rows and support vectors that are squared at once."""

_MIN_PROBABILITY = 1e-7

_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def _floats(node: OnnxNode, name: str) -> Array:
    return np.array(node.attribute(name, ()), np.float32)


def _columns(node: OnnxNode, numbers: Array, count: int, what: str) -> Array:
    """Reshape a row-major list of numbers to a matrix {count, n / count}, and transpose it."""
    if count < 1 or not len(numbers) or len(numbers) % count:
        raise node.rejection(f"{what} must be a matrix of {count} rows, got {len(numbers)} elements")
    return np.ascontiguousarray(numbers.reshape(count, -1).T)


def _product(node: OnnxNode, x: Tensor, name: str, bias: Tensor | None = None) -> Tensor:
    """Return rows {rows, features} times a prepared matrix {features, n}, plus a bias {1, n}."""
    matrix = node.array(name)
    if x.sizes[1] != matrix.sizes[0]:
        raise node.rejection(f"rows must have {matrix.sizes[0]} features, got {x.sizes[1]}")
    rows, features, columns = x.sizes[0], x.sizes[1], matrix.sizes[1]
    product = directml.gemm(
        reshaped(x, (1, 1, rows, features)),
        reshaped(matrix, (1, 1, features, columns)),
        None if bias is None else reshaped(bias, (1, 1, 1, columns)).broadcast_to((1, 1, rows, columns)),
    )
    return reshaped(product, (rows, columns))


# ---- linear models


def _linear_classifier(node: OnnxNode) -> PreparedAttributes:
    labels, intercepts = class_labels(node, "classlabels_ints"), _floats(node, "intercepts")
    coefficients = _columns(node, _floats(node, "coefficients"), len(intercepts), "coefficients")
    if len(intercepts) > 1 and len(labels) != len(intercepts):
        raise node.rejection(f"there must be {len(intercepts)} labels, got {len(labels)}")
    return PreparedAttributes({"coefficients": coefficients, "intercepts": intercepts[None], "labels": labels}, {})


@operator("LinearClassifier", domain=ML, prepare=_linear_classifier)
def linear_classifier(node: OnnxNode) -> Sequence[Result]:
    """Multiply rows by the coefficients of each class; the label is that of the highest score."""
    transform = transform_of(node)
    scores = _product(node, matrix_of(node), "coefficients", node.array("intercepts"))
    if scores.sizes[1] > 1:
        return labels_at(node, highest(scores)), transformed(scores, transform)
    labels = node.arrays["labels"].array
    assert labels is not None
    has_two = len(labels) == 2
    names = (int(labels[0]), int(labels[1])) if has_two else (0, 1)
    label = labels_of_two(dml.greater_than(scores, same(scores, 0)), names)
    if has_two:
        return label, of_both(scores, transform, is_probability=True)
    return label, transformed(scores, transform) if transform == "PROBIT" else scores


def _linear_regressor(node: OnnxNode) -> PreparedAttributes:
    targets, intercepts = node.integer("targets", 1), _floats(node, "intercepts")
    arrays = {"coefficients": _columns(node, _floats(node, "coefficients"), targets, "coefficients")}
    if len(intercepts) == targets:
        arrays["intercepts"] = intercepts[None]
    return PreparedAttributes(arrays, {})


@operator("LinearRegressor", domain=ML, prepare=_linear_regressor)
def linear_regressor(node: OnnxNode) -> Tensor:
    """Multiply rows by the coefficients of each target, and add intercepts."""
    transform = transform_of(node)
    bias = node.array("intercepts") if "intercepts" in node.arrays else None
    scores = _product(node, matrix_of(node), "coefficients", bias)
    if scores.sizes[1] > 1 or transform == "PROBIT":  # with one target, onnxruntime ignores other coefficients
        return transformed(scores, transform)
    return scores


# ---- support vector machines


def _kernel_of(node: OnnxNode) -> dict[str, Any]:
    """Return the attributes of a kernel: its function, gamma, coef0 and degree."""
    kind, parameters = node.text("kernel_type", "LINEAR"), node.numbers("kernel_params") or (0.0, 0.0, 0.0)
    if kind not in _KERNELS or len(parameters) != 3:
        raise node.rejection(
            f"kernel_type must be among {', '.join(_KERNELS)} with 3 kernel_params, got {kind!r} and {len(parameters)}"
        )
    return dict(zip(("gamma", "coef0", "degree"), parameters, strict=True))


def _kernel(node: OnnxNode, x: Tensor) -> Tensor:
    """Return the kernel's function of rows and support vectors: {rows, vectors}."""
    kind, gamma, coef0 = node.text("kernel_type", "LINEAR"), node.number("gamma"), node.number("coef0")
    if kind == "RBF":
        return dml.exp(multiply(_squared_distances(node, x), -gamma))
    product = _product(node, x, "vectors")
    if kind == "LINEAR":
        return product
    product = product * gamma + coef0
    if kind == "SIGMOID":
        return dml.activation_tanh(product)
    degree = node.number("degree")
    if degree in (2, 3):
        square = dml.multiply(product, product)
        return square if degree == 2 else dml.multiply(square, product)
    return dml.pow(product, degree)


def _squared_distances(node: OnnxNode, x: Tensor) -> Tensor:
    """Return the squared distances of rows and support vectors, from differences: a matrix product would cancel."""
    vectors = node.array("vectors")
    features, count = vectors.sizes
    rows = x.sizes[0]
    if x.sizes[1] != features:
        raise node.rejection(f"rows must have {features} features, got {x.sizes[1]}")
    turn = count
    while turn > 1 and rows * (features * turn) > _MAX_DIFFERENCES:
        turn = -(-turn // 2)
    parts = []
    for first in range(0, count, turn):
        size = min(turn, count - first)
        block = dml.slice(vectors, (0, first), (features, size)) if size < count else vectors
        sizes = (rows, features, size)
        differences = dml.subtract(
            reshaped(x, (rows, features, 1)).broadcast_to(sizes),
            reshaped(block, (1, features, size)).broadcast_to(sizes),
        )
        parts.append(reshaped(dml.reduce(differences, ReduceFunction.SUM_SQUARE, axes=(1,)), (rows, size)))
    return parts[0] if len(parts) == 1 else dml.join(parts, 1)


def _svm_regressor(node: OnnxNode) -> PreparedAttributes:
    count, coefficients, rho = node.integer("n_supports"), _floats(node, "coefficients"), _floats(node, "rho")
    if len(rho) < 1 or not len(coefficients) or (count > 0 and len(coefficients) != count):
        raise node.rejection(
            f"there must be a rho and {max(count, 1)} coefficients, got {len(rho)}, {len(coefficients)}"
        )
    arrays = {"coefficients": coefficients[:, None], "rho": rho[None, :1]}
    if count > 0:
        arrays["vectors"] = _columns(node, _floats(node, "support_vectors"), count, "support_vectors")
    return PreparedAttributes(arrays, _kernel_of(node))


@operator("SVMRegressor", domain=ML, prepare=_svm_regressor)
def svm_regressor(node: OnnxNode) -> Tensor:
    """Add the kernel's values times the coefficients of support vectors; with ``one_class`` the sign counts."""
    x = matrix_of(node)
    x = _kernel(node, x) if "vectors" in node.arrays else x
    scores = _product(node, x, "coefficients", node.array("rho"))
    if node.flag("one_class"):
        return choose(dml.greater_than(scores, same(scores, 0)), same(scores, 1), same(scores, -1))
    return scores


def _svm_classifier(node: OnnxNode) -> PreparedAttributes:
    """Prepare the support vectors, and the coefficients and votes of each pair of classes."""
    labels, rho = class_labels(node, "classlabels_ints"), _floats(node, "rho")
    counts, coefficients = node.integers("vectors_per_class") or (), _floats(node, "coefficients")
    classes, count = len(labels), sum(counts)
    slopes, offsets = _floats(node, "prob_a"), _floats(node, "prob_b")
    arrays: dict[str, Array] = {"labels": labels}
    described = _kernel_of(node) | {
        "is_positive": int((coefficients >= 0).all()),
        "has_probabilities": int(len(slopes) > 0),
    }
    if count <= 0:
        arrays["coefficients"] = _columns(node, coefficients, classes, "coefficients")
        arrays["rho"] = np.full((1, classes), rho[0] if len(rho) else 0, np.float32)
        return PreparedAttributes(arrays, described)
    pairs = list(combinations(range(classes), 2))
    if len(counts) != classes or len(coefficients) < (classes - 1) * count or len(rho) < len(pairs):
        raise node.rejection(
            f"{classes} classes must have {classes} counts of vectors, {(classes - 1) * count} coefficients and "
            f"{len(pairs)} rho, got {len(counts)}, {len(coefficients)} and {len(rho)}"
        )
    rows = coefficients[: (classes - 1) * count].reshape(classes - 1, count)
    class_of = np.repeat(np.arange(classes), counts)
    weights, votes = np.zeros((count, len(pairs)), np.float32), np.zeros((len(pairs), classes), np.float32)
    for index, (low, high) in enumerate(pairs):
        weights[class_of == low, index] = rows[high - 1, class_of == low]
        weights[class_of == high, index] = rows[low, class_of == high]
        votes[index, [low, high]] = 1, -1
    arrays |= {
        "vectors": _columns(node, _floats(node, "support_vectors"), count, "support_vectors"),
        "coefficients": weights,
        "rho": rho[None, : len(pairs)],
        "votes": votes,
        "votes_against": (votes < 0).sum(0, keepdims=True).astype(np.float32),
    }
    if len(slopes):
        if min(len(slopes), len(offsets)) < len(pairs):
            raise node.rejection(f"prob_a and prob_b must have {len(pairs)} elements")
        arrays |= {"slopes": slopes[None, : len(pairs)], "offsets": offsets[None, : len(pairs)]}
    return PreparedAttributes(arrays, described)


@operator("SVMClassifier", domain=ML, prepare=_svm_classifier)
def svm_classifier(node: OnnxNode) -> Steps:
    """Score each pair of classes; the label is that of the class with most votes."""
    transform, x = transform_of(node), matrix_of(node)
    if "vectors" not in node.arrays:
        scores = _product(node, x, "coefficients", node.array("rho"))
        return [_label_of_scores(node, scores), transformed(scores, transform)]
    scores = _product(node, _kernel(node, x), "coefficients", node.array("rho"))
    wins = cast(dml.greater_than(scores, same(scores, 0)), DataType.FLOAT32)
    label = labels_at(node, highest(_product(node, wins, "votes", node.array("votes_against"))))
    if "slopes" in node.arrays:
        odds = add(multiply(scores, node.array("slopes")), node.array("offsets"))
        pairwise = complement(dml.activation_sigmoid(odds))
        pairwise = dml.clip(pairwise, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
        label, probabilities = yield from coupled(node, label, pairwise)
        return [label, transformed(node.expression(probabilities), transform)]
    if scores.sizes[1] > 1:
        return [label, transformed(scores, transform)]
    return [label, of_both(scores, transform, is_probability=transform != "NONE")]


def _label_of_scores(node: OnnxNode, scores: Tensor) -> OnnxValue | Tensor:
    """Return the labels of a machine without support vectors."""
    labels = node.arrays["labels"].array
    assert labels is not None
    if len(labels) != 2 or node.flag("has_probabilities"):
        return labels_at(node, highest(scores))
    limit = 0.5 if node.flag("is_positive") else 0.0
    maximum = dml.reduce(scores, ReduceFunction.MAX, axes=(1,))
    exceeds = dml.greater_than_or_equal if node.flag("is_positive") else dml.greater_than
    second = dml.logical_or(exceeds(maximum, same(maximum, limit)), cast(highest(scores), DataType.UINT8))
    return labels_of_two(second, (int(labels[0]), int(labels[1])))
