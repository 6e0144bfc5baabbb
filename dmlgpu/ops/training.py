"""Embeddings, dropout and losses, with PyTorch's meaning."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.common.coercion import argument, boolean, integer, real
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops import directml
from dmlgpu.ops.random import Generator, default_generator
from dmlgpu.ops.reductions import reduced
from dmlgpu.ops.shape import index_typed, indices_of, integers_of
from dmlgpu.tensors.calls import (
    FLOATING,
    Array,
    Operand,
    Where,
    caller,
    check_kind,
    eager,
    filled,
    tensor_of,
    widened,
    word,
)
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import promoted, value_range

__all__ = ["cross_entropy", "dropout", "embedding", "mse_loss", "nll_loss"]

Reduction: TypeAlias = Literal["mean", "sum", "none"]
"""Reduction of the losses of all elements."""


@eager
def embedding(indices: Operand, weight: Operand, *, device: Where = None) -> Array:
    """Return the row of a table that each index names.

    Args:
        indices: Integer, or Tensor or array of integers, rank 0 to 7. Negative indices count from the end. Those of a
            Tensor are not checked: out of range, they give zeros.
        weight: Table of shape (count, width).
        device: Device or adapter name that computes arrays; defaults to that of the tensors, else to the default
            device.

    Returns:
        Tensor of the dtype of ``weight`` (an array if all operands are arrays), of shape (*indices.shape, width).

    Raises:
        InvalidArgument: If indices are not integers, those of an array or a list are out of range, or ``weight`` has
            another rank.

    Examples:
        >>> ops.embedding([2, 0], np.eye(3, dtype=np.float32)).tolist()
        [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]

    See also:
        `take`, `one_hot`.

    Computed by GATHER (`ns-directml-dml_gather_operator_desc`).
    """
    table = tensor_of("weight", weight)
    if table.ndim != 2:
        raise InvalidArgument(f"{caller()}: weight must have sizes {{count, width}}, got {list(table.sizes)}")
    return table._taken(indices_of("indices", indices, table, 0), 0, caller())


@eager
def dropout(
    x: Operand,
    p: float = 0.5,
    training: bool = True,
    generator: Generator | None = None,
    *,
    device: Where = None,
) -> Array:
    """Zero elements at random and scale the others up, so that the mean stays.

    Args:
        x: Tensor or array of a floating-point dtype.
        p: Probability of zeroing an element, from 0 to 1.
        training: False returns `x` as it is.
        generator: Where the randomness comes from: ``dmlgpu.random.default_rng(seed)``. Defaults to None, the generator
            that ``dmlgpu.random.seed`` seeds. A compiled function draws other numbers at each call.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the shape and dtype of `x` (an array if `x` is one): zeros, and elements times 1 / (1 - p).

    Raises:
        InvalidArgument: If the dtype is not floating point, `p` is not from 0 to 1, or ``generator`` is something else.

    Examples:
        >>> rng = dmlgpu.random.default_rng(0)
        >>> ops.dropout(np.ones(1000, np.float32), 0.5, generator=rng).max()
        np.float32(2.0)

    See also:
        `dmlgpu.random.seed`, `dmlgpu.random.default_rng`.

    Computed by RANDOM_GENERATOR (`ns-directml-dml_random_generator_operator_desc`) and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    tensor = check_kind("x", tensor_of("x", x), FLOATING)
    probability = argument(caller(), "p", real, p)
    if not 0 <= probability <= 1:
        raise InvalidArgument(f"{caller()}: p must be between 0 and 1, got {shown(p)}")
    if not argument(caller(), "training", boolean, training) or not probability or not tensor.size:
        return tensor._same()
    if generator is None:
        generator = default_generator()
    if not isinstance(generator, Generator):
        raise InvalidArgument(
            f"{caller()}: generator must be dmlgpu.random.default_rng(seed) or None, got {shown(generator)}"
        )
    if probability == 1:
        return filled(tensor, tensor.sizes)
    is_left = generator.bernoulli(1 - probability, size=tensor.sizes, device=tensor.device)
    return (tensor * (1 / (1 - probability)))._chosen(is_left, 0.0)


@eager
def cross_entropy(
    logits: Operand,
    target: Operand,
    weight: Operand | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    *,
    device: Where = None,
) -> Array:
    """Return the cross entropy of classes and the softmax of scores.

    Args:
        logits: Scores of classes: Tensor or array of float32 or float16, of shape (N, C, ...) or (C,).
        target: Class of each row: integers of shape (N, ...) or (). Or probabilities of classes: floating-point numbers
            of the shape of ``logits``.
        weight: Weight of each class, (C,).
        ignore_index: Class whose rows do not count.
        reduction: ``"mean"``: mean of the rows that count, weighted by ``weight``; ``"sum"``; or ``"none"``: a loss per
            row. Probabilities are averaged over all rows.
        label_smoothing: Share of the probability that is spread evenly over all classes, from 0 to 1.
        device: Device or adapter name that computes arrays; defaults to that of the tensors, else to the default
            device.

    Returns:
        Tensor of the dtype of ``logits`` (an array if all operands are arrays). NaN if no row counts for the mean.
        Classes of a Tensor are not checked: the loss of a class that does not exist is unspecified.

    Raises:
        InvalidArgument: If shapes do not fit, dtypes are of another kind, a class of an array or a list is out of
            range, or an option is.

    Examples:
        >>> logits = np.array([[2, 1, 0], [0, 0, 0]], np.float32)
        >>> round(float(ops.cross_entropy(logits, [0, 2])), 4)
        0.7531

    See also:
        `nll_loss`, `log_softmax`.

    Computed by ACTIVATION_LOG_SOFTMAX1 (`ns-directml-dml_activation_log_softmax1_operator_desc`), GATHER_ELEMENTS
    (`ns-directml-dml_gather_elements_operator_desc`) and REDUCE (`ns-directml-dml_reduce_operator_desc`).
    """
    x = check_kind("logits", tensor_of("logits", logits), FLOATING)
    smoothing = argument(caller(), "label_smoothing", real, label_smoothing)
    if not 0 <= smoothing <= 1:
        raise InvalidArgument(f"{caller()}: label_smoothing must be between 0 and 1, got {shown(label_smoothing)}")
    axis = _class_axis("logits", x)
    probabilities: Tensor = directml.activation_log_softmax1(widened(x), axes=(axis,)) if x.size else x
    targets = _classes(target, x, axis, ignore_index)
    if not targets.data_type.is_float:
        losses = _likelihood("logits", probabilities, targets, weight, ignore_index, reduction, smoothing)
        return losses.astype(x.data_type)
    if targets.sizes != x.sizes:
        raise InvalidArgument(
            f"{caller()}: target must have the sizes of logits as it holds probabilities, {list(x.sizes)}, got "
            f"{list(targets.sizes)}"
        )
    shares = targets.astype(DataType.FLOAT32) * (1 - smoothing) + smoothing / x.sizes[axis]
    losses = _class_sums(probabilities, weight, axis, shares)
    return _over(losses, word("reduction", reduction, ("mean", "sum", "none"))).astype(x.data_type)


@eager
def nll_loss(
    x: Operand,
    target: Operand,
    weight: Operand | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    *,
    device: Where = None,
) -> Array:
    """Return the negative log likelihood of classes: ``cross_entropy`` of ``log_softmax``.

    Args:
        x: Logarithms of probabilities: Tensor or array of float32 or float16, of shape (N, C, ...) or (C,).
        target: Class of each row: integers of shape (N, ...) or ().
        weight: Weight of each class, (C,).
        ignore_index: Class whose rows do not count.
        reduction: ``"mean"``: mean of the rows that count, weighted by ``weight``; ``"sum"``; or ``"none"``.
        device: Device or adapter name that computes arrays; defaults to that of the tensors, else to the default
            device.

    Returns:
        Tensor of the dtype of `x` (an array if all operands are arrays). Classes of a Tensor are not checked: the loss
        of a class that does not exist is unspecified.

    Raises:
        InvalidArgument: If shapes do not fit, dtypes are of another kind, a class of an array or a list is out of
            range, or ``reduction`` is another word.

    Examples:
        >>> ops.nll_loss(ops.log_softmax([[0.0, 0.0]]), [0]).round(4)
        np.float32(0.6931)

    See also:
        `cross_entropy`, `log_softmax`.

    Computed by GATHER_ELEMENTS (`ns-directml-dml_gather_elements_operator_desc`) and REDUCE
    (`ns-directml-dml_reduce_operator_desc`).
    """
    probabilities = check_kind("x", tensor_of("x", x), FLOATING)
    targets = _classes(target, probabilities, _class_axis("x", probabilities), ignore_index)
    return _likelihood("x", probabilities, targets, weight, ignore_index, reduction)


@eager
def mse_loss(x: Operand, target: Operand, reduction: Reduction = "mean", *, device: Where = None) -> Array:
    """Return the squared differences of two tensors.

    Args:
        x: Tensor or array of a floating-point dtype.
        target: Tensor or array that broadcasts with `x`.
        reduction: ``"mean"``, ``"sum"``, or ``"none"``: a loss per element.
        device: Device or adapter name that computes arrays; defaults to that of the tensors, else to the default
            device.

    Returns:
        Tensor of the common dtype (an array if all operands are arrays).

    Raises:
        InvalidArgument: If shapes do not broadcast, a dtype is not floating point, or ``reduction`` is another word.

    Examples:
        >>> ops.mse_loss([1.0, 2.0], [1.0, 4.0])
        array(2., dtype=float32)

    See also:
        `mean`, `square`.

    Computed by ELEMENT_WISE_MULTIPLY (`ns-directml-dml_element_wise_multiply_operator_desc`) and REDUCE
    (`ns-directml-dml_reduce_operator_desc`).
    """
    kind = word("reduction", reduction, ("mean", "sum", "none"))
    operands = {
        name: check_kind(name, tensor_of(name, value), FLOATING) for name, value in (("x", x), ("target", target))
    }
    first, second = promoted(caller(), operands)
    differences = widened(first) - widened(second)
    return _over(differences * differences, kind).astype(first.data_type)


def _over(losses: Tensor, reduction: str) -> Tensor:
    """Return the mean or the sum of losses, or all of them."""
    if reduction == "none":
        return losses
    return reduced(losses, ReduceFunction.AVERAGE if reduction == "mean" else ReduceFunction.SUM, None, False)


def _class_axis(name: str, x: Tensor) -> int:
    if not x.ndim or 0 in x.sizes[:2][-1:]:
        raise InvalidArgument(f"{caller()}: {name} must have sizes {{N, C, ...}} or {{C}}, got {list(x.sizes)}")
    return min(x.ndim - 1, 1)


def _classes(target: Any, x: Tensor, axis: int, ignore_index: int) -> Tensor:
    """Return the target of a loss, in which classes that the host knows exist, or are ignored."""
    ignored = argument(caller(), "ignore_index", integer, ignore_index)
    count = x.sizes[axis]
    return integers_of("target", target, x, 0, count - 1, " for {count} classes", ignored)


def _class_sums(x: Tensor, weight: Any, axis: int, shares: Tensor | None = None) -> Tensor:
    """Return the negative sum over classes, weighted by class and by shares of each class, float32."""
    products = x.astype(DataType.FLOAT32)
    for factor in (_class_weights(weight, x, axis), shares):
        products = products if factor is None else products * factor
    return -reduced(products, ReduceFunction.SUM, axis, False)


def _class_weights(weight: Any, x: Tensor, axis: int) -> Tensor | None:
    """Return the weights of classes, seen with the axes of `x`, float32."""
    if weight is None:
        return None
    weights = tensor_of("weight", weight)
    if weights.sizes != (x.sizes[axis],):
        raise InvalidArgument(
            f"{caller()}: weight must have one element per class, [{x.sizes[axis]}], got {list(weights.sizes)}"
        )
    others = tuple(i for i in range(x.ndim) if i != axis)
    return weights.astype(DataType.FLOAT32).expand_dims(others)


def _likelihood(
    name: str,
    x: Tensor,
    target: Tensor,
    weight: Any,
    ignore_index: int,
    reduction: Any,
    smoothing: float = 0.0,
) -> Tensor:
    """Return the negative log likelihood of classes by the logarithms of probabilities."""
    kind = word("reduction", reduction, ("mean", "sum", "none"))
    ignored = argument(caller(), "ignore_index", integer, ignore_index)
    axis = _class_axis(name, x)
    classes, sizes = x.sizes[axis], (*x.sizes[:axis], *x.sizes[axis + 1 :])
    check_kind("target", target, "integer")
    if target.sizes != sizes:
        raise InvalidArgument(
            f"{caller()}: target must have the sizes {list(sizes)}, those of {name} without the classes, got "
            f"{list(target.sizes)}"
        )
    weights = _class_weights(weight, x, axis)
    if not target.size:
        return filled(x, () if kind != "none" else sizes, math.nan if kind == "mean" else 0.0)
    low, high = value_range(target.data_type)
    counts = target != ignored if low <= ignored <= high else target >= low
    places = index_typed("target", target._chosen(counts, 0)).expand_dims(axis)

    def of_class(values: Tensor) -> Tensor:
        gathered: Tensor = directml.gather_elements(values, places, axis=axis)
        return gathered.squeeze(axis).astype(DataType.FLOAT32)

    losses = -of_class(x)
    shares = None
    if weights is not None:
        shares = of_class(weights.broadcast_to(x.sizes))._chosen(counts, 0.0)
        losses = losses * shares
    losses = losses._chosen(counts, 0.0)
    if smoothing:
        spread = _class_sums(x, weight, axis)._chosen(counts, 0.0)
        losses = losses * (1 - smoothing) + spread * (smoothing / classes)
    result = _over(losses, "none" if kind == "none" else "sum")
    if kind == "mean":
        total = counts.astype(DataType.FLOAT32) if shares is None else shares
        result = result / reduced(total, ReduceFunction.SUM, None, False)
    return result.astype(x.data_type)
