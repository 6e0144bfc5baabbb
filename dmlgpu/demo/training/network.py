"""The network's layers, each as operators of DirectML's forward and backward.

Two blocks of convolution, batch normalisation, ReLU and max pooling, then a matrix and softmax. A layer is a function
that returns its output and a function from the gradient of the output to those of the input and of the layer's
parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import ConvolutionDirection, MatrixTransform, ReduceFunction
from dmlgpu.tensors.graphs import functions as f
from dmlgpu.tensors.graphs.expression import Expression
from dmlgpu.tensors.graphs.graph import Graph

Parameters = Mapping[str, Expression]
Backward = Callable[[Expression], tuple[Expression, dict[str, Expression]]]

FILTERS = (16, 32)
"""Of the two blocks."""

SIDE, CLASSES = 8, 10
EPSILON = 1e-5
"""Added to variances."""


@dataclass(frozen=True)
class Forward:
    """What the network computed.

    Attributes:
        loss: the mean cross entropy of the batch, {1, 1, 1, 1}.
        moments: mean and variance of each block's normalisation by the names of the running ones, {1, channels, 1, 1}.
        gradients: of the loss with respect to each parameter, by name.
    """

    loss: Expression
    moments: dict[str, Expression]
    gradients: dict[str, Expression]


def initial_parameters(seed: int, filters: Sequence[int] = FILTERS) -> dict[str, NDArray[np.float32]]:
    """Return parameters to start from, by name: filters and weights as He et al. (2015) draw them, scales of 1."""
    draw = np.random.default_rng(seed)
    parameters = {}
    channels = 1
    for number, count in enumerate(filters, 1):
        parameters[f"filter{number}"] = _drawn(draw, (count, channels, 3, 3), 9 * channels)
        parameters[f"scale{number}"] = np.ones((1, count, 1, 1), np.float32)
        parameters[f"shift{number}"] = np.zeros((1, count, 1, 1), np.float32)
        channels = count
    features = channels * (SIDE >> len(filters)) ** 2
    parameters["weights"] = _drawn(draw, (1, 1, CLASSES, features), features)
    parameters["bias"] = np.zeros((1, 1, 1, CLASSES), np.float32)
    return parameters


def initial_moments(filters: Sequence[int] = FILTERS) -> dict[str, NDArray[np.float32]]:
    """Return the running means and variances to start from, by name."""
    moments = {}
    for number, count in enumerate(filters, 1):
        moments[f"mean{number}"] = np.zeros((1, count, 1, 1), np.float32)
        moments[f"variance{number}"] = np.ones((1, count, 1, 1), np.float32)
    return moments


def _drawn(draw: np.random.Generator, sizes: tuple[int, ...], inputs: int) -> NDArray[np.float32]:
    return (draw.standard_normal(sizes) * np.sqrt(2 / inputs)).astype(np.float32)


def learn(graph: Graph, images: Expression, labels: Expression, parameters: Parameters) -> Forward:
    """Compute the loss of a batch and its gradients.

    Args:
        graph: to which the operators are added.
        images: {batch, 1, 8, 8}.
        labels: their classes, UINT32 {1, 1, batch, 1}.
        parameters: named as in ``initial_parameters``.
    """
    steps: list[Backward] = []
    moments: dict[str, Expression] = {}
    values = images
    for number in _blocks(parameters):
        with graph.scope(f"block {number}"):
            values, block_moments, backward = _block(values, parameters, number)
        moments |= block_moments
        steps.append(backward)
    with graph.scope("dense"):
        scores, backward = _dense(values, parameters)
        steps.append(backward)
    with graph.scope("loss"):
        loss, gradient = _cross_entropy(graph, scores, labels)
    gradients: dict[str, Expression] = {}
    for backward in reversed(steps):
        gradient, block_gradients = backward(gradient)
        gradients |= block_gradients
    return Forward(loss, moments, gradients)


def classify(images: Expression, parameters: Parameters) -> Expression:
    """Compute the probabilities of classes, {1, 1, batch, 10}; ``parameters`` has running moments, too."""
    values = images
    for number in _blocks(parameters):
        normal = f.batch_normalization(
            _convolved(values, parameters[f"filter{number}"]),
            parameters[f"mean{number}"],
            parameters[f"variance{number}"],
            parameters[f"scale{number}"],
            parameters[f"shift{number}"],
            spatial=True,
            epsilon=EPSILON,
        )
        values = _pooled(f.activation_relu(normal))
    scores, _ = _dense(values, parameters)
    return f.activation_softmax1(scores, axes=(3,))


def _blocks(parameters: Parameters) -> range:
    return range(1, 1 + sum(name.startswith("filter") for name in parameters))


def _block(
    values: Expression, parameters: Parameters, number: int
) -> tuple[Expression, dict[str, Expression], Backward]:
    """Convolution, batch normalisation, ReLU, max pooling; returns the batch's moments, too."""
    filters, scale = parameters[f"filter{number}"], parameters[f"scale{number}"]
    shift = parameters[f"shift{number}"]
    convolved = _convolved(values, filters)
    normal = f.batch_normalization_training(convolved, scale, shift, epsilon=EPSILON)
    active = f.activation_relu(normal.output)

    def backward(gradient: Expression) -> tuple[Expression, dict[str, Expression]]:
        unpooled = f.max_pooling_grad(active, gradient, window_size=(2, 2), strides=(2, 2))
        passed = f.activation_relu_grad(normal.output, unpooled)
        gradients = f.batch_normalization_training_grad(
            convolved, passed, normal.output_mean, normal.output_variance, scale, epsilon=EPSILON
        )
        of_input = f.convolution(
            gradients.output_gradient,
            filters,
            direction=ConvolutionDirection.BACKWARD,
            start_padding=(1, 1),
            end_padding=(1, 1),
        )
        return of_input, {
            f"filter{number}": _filter_gradient(values, gradients.output_gradient),
            f"scale{number}": gradients.output_scale_gradient,
            f"shift{number}": gradients.output_bias_gradient,
        }

    moments = {f"mean{number}": normal.output_mean, f"variance{number}": normal.output_variance}
    return _pooled(active), moments, backward


def _convolved(values: Expression, filters: Expression) -> Expression:
    return f.convolution(values, filters, start_padding=(1, 1), end_padding=(1, 1))


def _pooled(values: Expression) -> Expression:
    return f.max_pooling2(values, window_size=(2, 2), strides=(2, 2), output_indices=False).output


def _filter_gradient(values: Expression, gradient: Expression) -> Expression:
    """The gradient of a convolution's filters: a convolution, too, in which channels and batch have changed places.

    Its input is the values, its filters are the gradient, as large as the images; each of the 3 x 3 places to which
    padding lets them slide is one element of a filter. Nothing is copied for it: strides say what lies where.
    """
    gradient_by_batch = f.convolution(_turned(values), _turned(gradient), start_padding=(1, 1), end_padding=(1, 1))
    return _turned(gradient_by_batch)


def _turned(values: Expression) -> Expression:
    """See {a, b, height, width} as {b, a, height, width}."""
    a, b, height, width = values.sizes
    return values.reinterpret((b, a, height, width), (height * width, b * height * width, width, 1))


def _dense(values: Expression, parameters: Parameters) -> tuple[Expression, Backward]:
    """A matrix and a bias, to scores {1, 1, batch, 10}."""
    weights, bias = parameters["weights"], parameters["bias"]
    batch, features = values.sizes[0], weights.sizes[3]
    flat = values.reinterpret((1, 1, batch, features))
    scores = f.gemm(flat, weights, bias.broadcast_to((1, 1, batch, CLASSES)), trans_b=MatrixTransform.TRANSPOSE)

    def backward(gradient: Expression) -> tuple[Expression, dict[str, Expression]]:
        of_values = f.gemm(gradient, weights).reinterpret(values.sizes)
        return of_values, {
            "weights": f.gemm(gradient, flat, trans_a=MatrixTransform.TRANSPOSE),
            "bias": f.reduce(gradient, function=ReduceFunction.SUM, axes=(2,)),
        }

    return scores, backward


def _cross_entropy(graph: Graph, scores: Expression, labels: Expression) -> tuple[Expression, Expression]:
    """The mean over the batch of the negative logarithm of the right class's probability, and the scores' gradient."""
    batch = scores.sizes[2]
    off_on = graph.constant(np.array([[[[0, 1]]]], np.float32))
    right = f.one_hot(labels, off_on, axis=3, output_sizes=scores.sizes)
    likelihoods = f.activation_log_softmax1(scores, axes=(3,)) * right
    loss = f.reduce(likelihoods, function=ReduceFunction.SUM, axes=(2, 3)) * (-1 / batch)
    return loss, (f.activation_softmax1(scores, axes=(3,)) - right) * (1 / batch)
