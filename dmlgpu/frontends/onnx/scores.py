"""Scores and labels of the models of ai.onnx.ml: rows of features, transforms of scores, chosen classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.frontends.onnx.expressions import add, cast, choose, multiply, number_like, reshaped, same
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.tensor_proto import STRINGS_ADVICE
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""Transforms of scores; TreeEnsemble numbers them so."""

_NEGLIGIBLE = 1e-7
"""Magnitude up to which SOFTMAX_ZERO treats scores as 0."""

_WINITZKI = 0.147
"""Constant of Winitzki's approximation of the inverse error function, as onnxruntime has it."""


def matrix_of(node: OnnxNode, index: int = 0) -> Tensor:
    """Return an input {rows, features}, or one row {features}, as a matrix of FLOAT32.

    Raises:
        NotSupported: If it has another rank.
    """
    node.check_rank(index, 1, 2)
    x = node.tensor(index)
    return cast(reshaped(x, (1, *x.sizes)) if len(node.shape(index)) == 1 else x, DataType.FLOAT32)


def transform_of(node: OnnxNode) -> str:
    """Return the transform of scores that a node names."""
    name = node.text("post_transform", "NONE")
    if name not in TRANSFORMS:
        raise node.rejection(f"post_transform must be among {', '.join(TRANSFORMS)}, got {name!r}")
    return name


def transformed(scores: Tensor, transform: str) -> Tensor:
    """Return scores {rows, classes} after a transform."""
    match transform:
        case "LOGISTIC":
            return dml.activation_sigmoid(scores)
        case "SOFTMAX":
            return dml.activation_softmax(scores, axes=(1,))
        case "SOFTMAX_ZERO":
            return _softmax_of_nonzero(scores)
        case "PROBIT":
            return _probit(scores)
    return scores


def _softmax_of_nonzero(scores: Tensor) -> Tensor:
    """Return the softmax of scores whose zeros stay (nearly) zeros."""
    largest = dml.reduce(scores, ReduceFunction.MAX, axes=(1,)).broadcast_to(scores.sizes)
    is_zero = dml.less_than_or_equal(dml.abs(scores), same(scores, _NEGLIGIBLE))
    powers = choose(is_zero, dml.multiply(scores, dml.exp(dml.negate(largest))), dml.exp(dml.subtract(scores, largest)))
    return dml.divide(powers, dml.reduce(powers, ReduceFunction.SUM, axes=(1,)).broadcast_to(scores.sizes))


def _probit(scores: Tensor) -> Tensor:
    """Return sqrt(2) times the inverse error function of 2 * score - 1, by Winitzki's approximation."""
    x = scores * 2.0 - 1.0
    logarithm = dml.log(dml.multiply(x * -1.0 + 1.0, x + 1.0))
    half = logarithm * 0.5 + 2 / (np.pi * _WINITZKI)
    product = logarithm * (1 / _WINITZKI)
    root = dml.sqrt(dml.subtract(dml.multiply(half, half), product))
    # root - half, in a form that does not cancel
    difference = choose(
        dml.greater_than(half, same(half, 0)),
        dml.divide(dml.negate(product), dml.add(half, root)),
        dml.subtract(root, half),
    )
    magnitude = dml.sqrt(difference)
    return multiply(choose(dml.less_than(x, same(x, 0)), dml.negate(magnitude), magnitude), 2**0.5)


def class_labels(node: OnnxNode, *names: str) -> NDArray[np.int64]:
    """Return the labels of classes that attributes of a node list.

    Raises:
        NotSupported: If they are strings.
    """
    if node.attribute("classlabels_strings"):
        raise node.rejection(f"labels that are strings are not supported; {STRINGS_ADVICE}")
    labels = next((node.integers(name) for name in names if node.integers(name)), None) or ()
    return np.array(labels, np.int64)


def highest(scores: Tensor) -> Tensor:
    """Return the index of the highest score of each row {rows, 1}, of the first one if there are several."""
    return directml.argmax(scores, axes=(1,), output_type=DataType.INT32)


def labels_at(node: OnnxNode, classes: Tensor) -> OnnxValue:
    """Return the labels {rows} of the classes with these indices {rows, 1}."""
    labels = node.arrays["labels"].array
    assert labels is not None
    shape = (classes.sizes[0],)
    if np.array_equal(labels, np.arange(len(labels))):
        return node.valued(cast(reshaped(classes, shape), DataType.INT64))
    return node.valued(directml.gather(node.array("labels"), reshaped(classes, shape), axis=0, index_dimensions=1))


def labels_of_two(positive: Tensor, labels: tuple[int, int]) -> Tensor:
    """Return the second label where a mask {rows, 1} is 1, else the first."""
    first, second = (number_like(positive, label, DataType.INT64) for label in labels)
    return choose(reshaped(positive, (positive.sizes[0],)), second, first)


def of_both(score: Tensor, transform: str, *, is_probability: bool) -> Tensor:
    """Return scores {rows, 2} of two classes by the score {rows, 1} of the second one.

    Args:
        score: The score.
        transform: Transform of the scores. onnxruntime leaves the second column of PROBIT undefined; here it is 0.
        is_probability: Whether both scores sum to 1; else to 0.
    """
    if transform == "PROBIT":
        return dml.join([transformed(score, transform), same(score, 0)], 1)
    if transform == "LOGISTIC":
        return transformed(dml.join([dml.negate(score), score], 1), transform)
    return dml.join([complement(score) if is_probability else dml.negate(score), score], 1)


def complement(scores: Tensor) -> Tensor:
    """Return 1 - score."""
    return add(dml.negate(scores), 1.0)


def ordered(x: Tensor) -> Tensor:
    """Return FLOAT64 as INT64 of the same order, NaN above infinity; DirectML does not compare FLOAT64."""
    bits = dml.identity(x).reinterpret(x.sizes, None, DataType.INT64)
    magnitude = bits & (2**63 - 1)
    signed = choose(dml.less_than(bits, same(bits, 0)), dml.negate(magnitude), magnitude)
    return choose(dml.greater_than(magnitude, same(magnitude, 0x7FF << 52)), 2**63 - 1, signed)
