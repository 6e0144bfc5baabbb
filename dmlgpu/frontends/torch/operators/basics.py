"""Filling, which PyTorch itself calls."""

from __future__ import annotations

from typing import Any

from dmlgpu.frontends.torch.dtypes import dtype_of, number_as
from dmlgpu.frontends.torch.operators.registry import aten
from dmlgpu.tensors.tensor import Tensor


@aten("fill.Scalar")
def fill(x: Tensor, value: Any) -> Tensor:
    """Return a tensor of the shape of `x` filled with a number."""
    number = x._beside(number_as(value, dtype_of(x)), x._type)
    numbers = number._same(boolean=x.is_boolean).broadcast_to(x.sizes)
    # A recorded call repeats computations only.
    return numbers.copy() if x.size and x.graph is None else numbers


@aten("fill.Tensor")
def fill_with(x: Tensor, value: Any) -> Tensor:
    """Return a tensor of the shape of `x` filled with the element of a scalar tensor."""
    return value.astype(x._type).broadcast_to(x.sizes) if isinstance(value, Tensor) else fill(x, value)


@aten("zero")
def zero(x: Tensor) -> Tensor:
    """Return zeros of the shape of `x`."""
    return fill(x, 0)
