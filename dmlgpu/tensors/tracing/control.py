"""``cond`` and ``scan``: conditions and loops of functions that ``compile`` traces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.tensors.execution import call_op
from dmlgpu.tensors.memory import NodeMemory
from dmlgpu.tensors.strided import TensorBase
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tracing.trace import as_tensor, flatten, mapped

_LENGTH = coercion.between(0, 2**32 - 1)


def cond(condition: Any, true_function: Callable[..., Any], false_function: Callable[..., Any], *operands: Any) -> Any:
    """Return the result of one of two functions for the operands, by a condition.

    Where `dmlgpu.compile` traces, and in `dmlgpu.vmap`, a condition on elements is not known yet: both functions are
    computed, and each element of the results is chosen. Gradients pass through both then, so that a NaN of the other
    function spoils them. Elsewhere the condition is read, and one function runs.

    Args:
        condition: Boolean, or tensor or array of one element, which holds unless it is 0.
        true_function: Function of the operands for a condition that holds.
        false_function: Function for one that does not.
        operands: Arguments of the functions.

    Returns:
        Tensor, or tuple, list, dict or dataclass of tensors. Where both functions are computed, their results must have
        equal structures, shapes and dtypes.

    Raises:
        InvalidArgument: If a function is not callable, `condition` has several elements, or results do not match.

    Examples:
        >>> x = Tensor([4.0])
        >>> dmlgpu.cond(x > 1, ops.sqrt, lambda x: x * 0, x).tolist()
        [2.0]

    See also:
        `dmlgpu.ops.where`, which chooses elements; `dmlgpu.scan`.
    """
    for name, function in (("true_function", true_function), ("false_function", false_function)):
        if not callable(function):
            raise InvalidArgument(f"cond: {name} must be callable, got {shown(function, typed=True)}")
    size = condition.size if isinstance(condition, TensorBase | np.ndarray) else 1
    if size != 1:
        raise InvalidArgument(
            f"cond: condition must have one element, got sizes {list(condition.shape)}; ops.where chooses elements"
        )
    if not (isinstance(condition, Tensor) and isinstance(condition.buffer, NodeMemory)):
        return (true_function if condition else false_function)(*operands)
    results = true_function(*operands), false_function(*operands)
    sides: list[list[tuple[str, Any]]] = [[], []]
    first, second = (
        flatten("cond", "the result", result, leaves, lambda leaf: (leaf.shape, leaf.dtype))
        for result, leaves in zip(results, sides, strict=True)
    )
    if first != second:
        listing = " and ".join(", ".join(_described(leaf) for _, leaf in leaves) or "no tensor" for leaves in sides)
        raise InvalidArgument(f"cond: both functions must return the same shapes and dtypes, got {listing}")
    choice = condition.reshape(()) if condition.is_boolean else condition.reshape(()) != 0
    others = iter([leaf for _, leaf in sides[1]])

    def chosen(leaf: Any) -> Any:
        if not isinstance(leaf, TensorBase | np.ndarray):
            return leaf
        pair = [as_tensor("cond", "the result", side, condition.device) for side in (leaf, next(others))]
        return pair[0]._chosen(choice, pair[1])._same(boolean=pair[0].is_boolean)

    return mapped(results[0], chosen)


def _described(leaf: Any) -> str:
    return f"{leaf.dtype} {list(leaf.shape)}"


def scan(
    function: Callable[..., Any],
    carry: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Call a function on each slice of tensors in turn, with the state that the previous call returned.

        def step(state, x):
            state = ops.tanh(state @ weight + x)
            return state, state

        last, states = dmlgpu.scan(step, Tensor(np.zeros(8, np.float32)), inputs)

    In a function that `dmlgpu.compile` traces, every step becomes part of the graph, so that compiling takes longer the
    more steps there are. Outside, pass a compiled `function`: it is compiled once, and each step is one dispatch.

    Args:
        function: Function of `carry` and a slice of `xs`, which returns the next `carry` and a result, or None.
        carry: Value for the first call: tensors, in tuples, lists, dicts or dataclasses.
        xs: Tensors or arrays with the steps along the first axis, in structures as well; defaults to None, whose slices
            are None.
        length: Number of steps; defaults to None, the size of the first axis of `xs`.
        reverse: Whether the last slice comes first; defaults to False.

    Returns:
        The last `carry`, and the results with the steps along a new first axis, in the order of `xs`.

    Raises:
        InvalidArgument: If `function` is not callable, tensors differ in the number of steps, there are no steps, or a
            call does not return a pair.

    Examples:
        >>> total, sums = dmlgpu.scan(lambda s, x: (s + x, s + x), Tensor(0.0), Tensor([1.0, 2.0, 3.0]))
        >>> total.item(), sums.tolist()
        (6.0, [1.0, 3.0, 6.0])

    See also:
        `dmlgpu.cond`, `dmlgpu.ops.cumsum`, `dmlgpu.vmap` for steps that do not depend on each other.
    """
    if not callable(function):
        raise InvalidArgument(f"scan: function must be callable, got {shown(function, typed=True)}")
    is_reversed = coercion.argument("scan", "reverse", coercion.boolean, reverse)
    count = _steps(xs, None if length is None else coercion.argument("scan", "length", _LENGTH, length))
    results: list[Any] = [None] * count
    for index in reversed(range(count)) if is_reversed else range(count):
        pair = function(carry, mapped(xs, functools.partial(_slice, index)))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InvalidArgument(f"scan: function must return a pair (carry, result), got {shown(pair, typed=True)}")
        carry, results[index] = pair
    return carry, _stacked(results)


def _slice(index: int, leaf: Any) -> Any:
    return leaf[index] if isinstance(leaf, Tensor | np.ndarray) else leaf


def _steps(xs: Any, length: int | None) -> int:
    """Return the number of steps.

    Raises:
        InvalidArgument: If it is 0, not known, or tensors differ in it.
    """
    leaves: list[tuple[str, Any]] = []
    flatten("scan", "xs", xs, leaves)
    for path, leaf in leaves:
        if not leaf.shape:
            raise InvalidArgument(f"scan: {path} must have an axis for the steps, got a scalar")
    counts = {path: leaf.shape[0] for path, leaf in leaves} | ({} if length is None else {"length": length})
    if not counts:
        raise InvalidArgument("scan: xs or length must say how many steps there are, got neither")
    if len(set(counts.values())) > 1:
        listing = " and ".join(f"{count} of {path}" for path, count in counts.items())
        raise InvalidArgument(f"scan: the numbers of steps must be equal, got {listing}")
    count = next(iter(counts.values()))
    if count < 1:
        raise InvalidArgument("scan: there must be at least one step, got none")
    return int(count)


def _stacked(results: list[Any]) -> Any:
    """Return the results of all steps as one structure, whose tensors have the steps along a new first axis."""
    columns: list[list[Any]] = []
    for result in results:
        column: list[Any] = []
        mapped(result, column.append)
        columns.append(column)
    if len({len(column) for column in columns}) > 1:
        raise InvalidArgument("scan: every call of the function must return results of the same structure")
    rows = iter(list(zip(*columns, strict=True)))

    def stacked(_: Any) -> Any:
        row = next(rows)
        if row[0] is None:
            return None
        if all(isinstance(value, Tensor) for value in row):
            if any(value.sizes != row[0].sizes or value.dtype != row[0].dtype for value in row):
                raise InvalidArgument("scan: results of all steps must have the same shape and dtype")
            joined = call_op(
                descs.Join, {"input_tensors": [value.expand_dims(0) for value in row], "axis": 0}, caller="scan"
            )[0]
            return joined._same(boolean=row[0].is_boolean)
        return np.stack(row)

    return mapped(results[0], stacked)
