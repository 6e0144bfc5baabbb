"""Whether all or any elements hold, and differences of neighbours."""

from __future__ import annotations

from typing import Any

from dmlgpu.array.manipulation import joined
from dmlgpu.array.operands import NUMERIC, tensor
from dmlgpu.array.statistical import Axes, reduced
from dmlgpu.catalog.enums import ReduceFunction
from dmlgpu.common.coercion import argument, integer
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.tensors.calls import caller, named
from dmlgpu.tensors.layout import checked_axis
from dmlgpu.tensors.promotion import promoted
from dmlgpu.tensors.tensor import Tensor

__all__ = ["all", "any", "diff"]


def _held(x: Any, function: ReduceFunction, axis: Axes, keepdims: bool, nothing: int) -> Tensor:
    flags = tensor("x", x).astype("bool")._same(boolean=False)
    return reduced(flags, function, axis, keepdims, nothing)._same(boolean=True)


@named
def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements along axes hold, or are not 0; of none they do.

    Raises:
        InvalidArgument: an axis out of range.
    """
    return _held(x, ReduceFunction.MIN, axis, keepdims, 1)


@named
def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether any element along axes holds, or is not 0.

    Raises:
        InvalidArgument: an axis out of range.
    """
    return _held(x, ReduceFunction.MAX, axis, keepdims, 0)


@named
def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Return what each number has more than the one before it along an axis, ``n`` times over.

    Args:
        x: numbers.
        axis: along which.
        n: how often, at least 0.
        prepend, append: what is put before and behind the numbers first.

    Raises:
        InvalidArgument: no numbers, an axis out of range, or sizes or types that do not fit.
    """
    given = tensor("x", x, NUMERIC)
    number, times = checked_axis(caller(), "axis", axis, given.ndim), argument(caller(), "n", integer, n)
    if times < 0:
        raise InvalidArgument(f"{caller()}: n must be at least 0, got {times}")
    parts = {"prepend": prepend, "x": given, "append": append}
    parts = {name: tensor(name, one, NUMERIC) for name, one in parts.items() if one is not None}
    if times and len(parts) > 1:
        given = joined(promoted(caller(), parts), number)
    before = (slice(None),) * number
    found = given
    for _ in range(min(times, given.sizes[number])):
        found = found[(*before, slice(1, None))] - found[(*before, slice(None, -1))]
    return found._same() if found is x else found
