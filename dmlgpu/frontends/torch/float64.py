"""Calls that compute in float64 or complex128: DirectML's operators take neither, so they run on the CPU.

Tensors of these dtypes stay on the device: creating, copying, casting and viewing them, and the operators of `_MOVES`,
need no arithmetic. All other calls copy operands to the CPU and results back, if these are small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dmlgpu.common.errors import warn_caller
from dmlgpu.frontends.torch.operators.registry import Promotion, Unsupported, computation_dtype, overload
from dmlgpu.tensors.array_like import Float64Warning

if TYPE_CHECKING:
    from dmlgpu.frontends.torch.dispatch import Caller

DTYPES = frozenset({torch.float64, torch.complex128})
"""Dtypes that the device holds, but computes with on the CPU."""

MAX_ELEMENTS = 1 << 20
"""Maximum elements of the operands of a call, and of its results, that is computed on the CPU."""

_MAX_SILENT = 1 << 16
"""Maximum elements that are copied without a warning."""

MOVES = frozenset({
    "cat", "constant_pad_nd", "fill.Scalar", "fill.Tensor", "flip", "gather", "index.Tensor", "index_select",
    "masked_select", "repeat", "roll", "select_backward", "slice_backward", "stack", "take", "tril", "triu",
    "where.self", "zero",
})  # fmt: skip
"""Operators that move elements on the device, of any dtype."""

_announced: set[str] = set()
"""The operator of the warning, after it."""


class Float64Call(Unsupported):
    """A call would compute in float64."""

    def __init__(self) -> None:
        super().__init__(
            f"float64 is computed on the CPU, and only if operands and results have at most {MAX_ELEMENTS:,} elements; "
            "x.float() converts them, x.cfloat() complex ones"
        )


def check_float64(caller: Caller, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Check that a call of the table does not compute in float64.

    Raises:
        Float64Call: If it does.
    """
    name, rule = caller.label, caller.entry.promotes
    if name in MOVES:
        return
    if rule is not Promotion.NONE:
        if computation_dtype(rule, caller.common_dtype(args, kwargs)) in DTYPES:
            raise Float64Call
    elif torch.Tag.nondeterministic_seeded not in overload(name).tags and (
        is_float64(None, args, kwargs) or (caller.takes_device and _is_default(args, kwargs))
    ):
        raise Float64Call


def _is_default(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether a call creates a tensor of the default dtype, and that is float64."""
    return kwargs.get("dtype") is None and torch.get_default_dtype() in DTYPES


def is_float64(error: Exception | None, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether a call has tensors or a dtype of float64, or failed because it computes in float64."""
    if isinstance(error, Float64Call) or kwargs.get("dtype") in DTYPES:
        return True
    return any(x.dtype in DTYPES for x in _tensors((*args, *kwargs.values())))


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    """Return the tensors of the device among arguments."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.device.type != "cpu":
                yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def runs_on_host(name: str, args: Sequence[Any], kwargs: dict[str, Any], infer: Callable[..., Any]) -> bool:
    """Return whether a call of float64 is small enough for the CPU; warn once if it copies many elements.

    Args:
        name: Operator.
        args: Positional arguments.
        kwargs: Arguments by name.
        infer: Returns the operator's results without elements, or None; called with the three.
    """
    counts = [x.numel() for x in _tensors((*args, *kwargs.values()))]
    count = sum(counts)
    if not counts or math.prod(max(size, 1) for size in counts) > MAX_ELEMENTS:
        count += sum(x.numel() for x in _tensors([infer(name, args, kwargs)]))
    if count > MAX_ELEMENTS:
        return False
    if count > _MAX_SILENT and not _announced:
        _announced.add(name)
        warn_caller(
            f"aten::{name} computes {count:,} elements of float64 on the CPU: x.float() converts them to float32, in "
            "which the device computes",
            Float64Warning,
        )
    return True
