"""Gradient rules: one for each of DirectML's operators that has a gradient.

A rule takes the record of a call and a gradient for each output, None for an output without influence. It returns, by
field of an input, a function that computes the gradient of that input, so that unused gradients are not computed.
Gradients have the sizes that inputs are broadcast to.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from dmlgpu.catalog.enums import (
    ReduceFunction,
)
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.tensors import directml
from dmlgpu.tensors.calls import widened
from dmlgpu.tensors.execution import call_op
from dmlgpu.tensors.tensor import Tensor

Gradients: TypeAlias = Mapping[str, Any]
Rule: TypeAlias = Callable[..., Gradients]

RULES: dict[str, Rule] = {}
"""Gradient rules by operator."""


def rule(*operators: str, wide: bool = False) -> Callable[[Rule], Rule]:
    """Register the rule of operators; a fused activation is separated first.

    Args:
        operators: names of operators.
        wide: whether the rule counts, sums, or multiplies several operands: it gets float16 as float32, and what it
            returns is rounded once.
    """

    def register(rule: Rule) -> Rule:
        @functools.wraps(rule)
        def apply(record: Any, *gradients: Any) -> Gradients:
            if getattr(record.desc, "fused_activation", None) is not None:
                return _unfused(record, gradients)
            if wide:
                record, gradients = _WideRecord(record), tuple(map(_wide, gradients))
            return rule(record, *gradients)

        RULES.update(dict.fromkeys(operators, apply))
        return rule

    return register


def _wide(value: Any) -> Any:
    """Return a tensor of float16 as float32, anything else as it is."""
    return widened(value) if isinstance(value, Tensor) else value


class _WideRecord:
    """The record of a call with its tensors of float16 as float32."""

    def __init__(self, record: Any):
        self._record = record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._record, name)

    def __getitem__(self, field: str) -> Any:
        return _wide(self._record[field])

    def result(self, index: int = 0) -> Any:
        return _wide(self._record.result(index))


def _unfused(record: Any, gradients: Sequence[Any]) -> Gradients:
    """Pass a gradient through an operator and then its fused activation."""
    activation = record.desc.fused_activation
    if any(gradient is not None for gradient in gradients[1:]):
        raise record.rejection(f" for its other outputs with a fused {activation.operator}")
    fields = [field for field in record.kind.input_fields if record[field] is not None]

    def unfused(*operands: Any) -> Any:
        values = {**record.values, **dict(zip(fields, operands, strict=True)), "fused_activation": None}
        return [activated(call_op(record.kind, values, **record.options)[0], activation)]

    return decomposed(record, fields, unfused, gradients[:1])


def activated(x: Any, activation: Any) -> Any:
    """Return a tensor after an activation, by its description without tensors."""
    attributes = {
        name: value
        for name, value in vars(activation).items()
        if not isinstance(value, TensorDesc) and name not in ("input_tensor", "output_tensor")
    }
    return call_op(type(activation), {"input_tensor": x, **attributes})[0]


def decomposed(
    record: Any, fields: Sequence[str], function: Callable[..., Sequence[Any]], gradients: Sequence[Any]
) -> Gradients:
    """Pass the gradients of outputs through other operators that compute the same."""
    parts = record.through(function, [record[field] for field in fields], gradients)
    return {field: functools.partial(_same, part) for field, part in zip(fields, parts, strict=True)}


def _same(value: Any) -> Any:
    return value


def summed(gradient: Any, sizes: Sequence[int]) -> Any:
    """Sum a gradient along the axes along which elements of these sizes were broadcast."""
    if gradient.size == math.prod(sizes):
        return gradient.reshape(tuple(sizes))
    extra = gradient.ndim - len(sizes)
    axes = tuple(range(extra)) + tuple(
        extra + axis for axis, size in enumerate(sizes) if size == 1 and gradient.sizes[extra + axis] != 1
    )
    return total(gradient, axes).reshape(tuple(sizes))


def total(x: Any, axes: Sequence[int]) -> Any:
    """Return sums along axes, which stay with size 1."""
    return directml.reduce(x, function=ReduceFunction.SUM, axes=tuple(axes)) if axes else x


def mean(x: Any, axes: Sequence[int]) -> Any:
    """Return means along axes, which stay with size 1."""
    return directml.reduce(x, function=ReduceFunction.AVERAGE, axes=tuple(axes)) if axes else x


def where(condition: Any, a: Any, b: Any) -> Any:
    """Return ``a`` where a condition holds, else ``b``."""
    return directml.element_wise_if(condition, a, b)


def named(desc: Any, *names: str) -> dict[str, Any]:
    """Return attributes of a description by name."""
    return {name: getattr(desc, name) for name in names}


def truth(condition: Any, like: Any) -> Any:
    """Return 1 where a condition holds, else 0, in the type of a tensor."""
    return condition.astype(like.data_type)


def times(gradient: Any, factor: float) -> Any:
    """Return a gradient times a number."""
    return gradient if factor == 1 else gradient * float(factor)


def to_rows(x: Any, axes: Sequence[int]) -> tuple[Any, Callable[[Any], Any]]:
    """Return a tensor with axes flattened into the last one, and a function that restores them; the size of a single
    axis may change in between."""
    order = [*(axis for axis in range(x.ndim) if axis not in axes), *axes]
    moved = x.transpose(*order)
    back = [order.index(axis) for axis in range(x.ndim)]
    length = math.prod(x.sizes[axis] for axis in axes)
    rest = moved.sizes[: x.ndim - len(axes)]

    def undo(rows: Any) -> Any:
        sizes = moved.sizes if rows.sizes[-1] == length else (*rest, rows.sizes[-1])
        return rows.reshape(sizes).transpose(*back)

    return moved.reshape(-1, length), undo
