"""Steps of optimizers of the domain ai.onnx.preview.training: Adam, Adagrad, Momentum."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.onnx.expressions import add, cast, choose, divide, multiply, reshaped, spread, subtract
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

_DOMAIN = "ai.onnx.preview.training"

_NEVER = 2.0**31
"""A number of steps after which there is no bias correction."""

Step = Callable[[Sequence[Tensor], Tensor, Tensor], Sequence[Tensor]]


def _optimized(node: OnnxNode, states: int, step: Step) -> list[OnnxValue]:
    """Apply a step to each tensor, its gradient and its states; outputs are grouped like inputs."""
    if len(node) < 2 or (len(node) - 2) % (states + 2):
        raise node.rejection(f"inputs must be rate, count, and {states + 2} for each tensor, got {len(node)}")
    count = (len(node) - 2) // (states + 2)
    rate, steps = (reshaped(node.tensor(index), (1,)) for index in (0, 1))
    steps = cast(steps, DataType.FLOAT32)
    results = []
    for index in range(count):
        inputs = [node.tensor(2 + group * count + index) for group in range(states + 2)]
        shape = node.shape(2 + index)
        results.append([node.valued(tensor, shape) for tensor in step(inputs, rate, steps)])
    return [value for group in zip(*results, strict=True) for value in group]


def _regular(node: OnnxNode, x: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient plus that of the regularization by the squared norm."""
    factor = node.number("norm_coefficient")
    return add(gradient, multiply(x, factor)) if factor else gradient


@operator("Adam", domain=_DOMAIN)
def adam(node: OnnxNode) -> list[OnnxValue]:
    """Move by ADAM_OPTIMIZER; step 0 is not corrected, as if many had been done."""

    def step(tensors: Sequence[Tensor], rate: Tensor, steps: Tensor) -> Sequence[Tensor]:
        x, gradient, first, second = tensors
        done = choose(spread(dml.greater_than, steps, 0.0), steps, _NEVER)
        update = directml.adam_optimizer(
            multiply(x, 0.0),
            first,
            second,
            _regular(node, x, gradient),
            reshaped(done, (1,) * len(x.sizes)),
            learning_rate=1.0,
            beta1=node.number("alpha", 0.9),
            beta2=node.number("beta", 0.999),
            epsilon=node.number("epsilon", 1e-6),
        )
        moved = add(x, multiply(update.output_parameters, rate))
        after = node.number("norm_coefficient_post")
        moved = multiply(moved, 1 - after) if after else moved
        return moved, update.output_first_moment, update.output_second_moment

    return _optimized(node, 2, step)


@operator("Adagrad", domain=_DOMAIN)
def adagrad(node: OnnxNode) -> list[OnnxValue]:
    """Move by the gradient over the root of all squared gradients so far."""

    def step(tensors: Sequence[Tensor], rate: Tensor, steps: Tensor) -> Sequence[Tensor]:
        x, gradient, squares = tensors
        decayed = divide(rate, add(multiply(steps, node.number("decay_factor")), 1.0))
        gradient = _regular(node, x, gradient)
        squares = add(squares, multiply(gradient, gradient))
        root = add(dml.sqrt(squares), node.number("epsilon", 1e-6))
        return subtract(x, divide(multiply(gradient, decayed), root)), squares

    return _optimized(node, 1, step)


@operator("Momentum", domain=_DOMAIN)
def momentum(node: OnnxNode) -> list[OnnxValue]:
    """Move by a mean of gradients that fades, or Nesterov's."""
    mode, alpha = node.text("mode"), node.number("alpha")
    if mode not in ("standard", "nesterov"):
        raise node.rejection(f"mode must be standard or nesterov, got {mode!r}")

    def step(tensors: Sequence[Tensor], rate: Tensor, steps: Tensor) -> Sequence[Tensor]:
        x, gradient, velocity = tensors
        gradient = _regular(node, x, gradient)
        scale = choose(spread(dml.greater_than, steps, 0.0), add(multiply(steps, 0.0), node.number("beta")), 1.0)
        velocity = add(multiply(velocity, alpha), multiply(gradient, scale))
        by = velocity if mode == "standard" else add(gradient, multiply(velocity, alpha))
        return subtract(x, multiply(by, rate)), velocity

    return _optimized(node, 1, step)
