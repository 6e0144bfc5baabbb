"""Operators that PyTorch itself calls: filling, and the first gradient of a sum."""

from __future__ import annotations

from typing import Any

from dmlgpu.frontends.torch.dtypes import dtype_of, number_as
from dmlgpu.frontends.torch.operators.registry import aten
from dmlgpu.tensors.tensor import Tensor


@aten("fill.Scalar")
def fill(x: Tensor, value: Any) -> Tensor:
    """Return a tensor of the shape of `x` whose elements are a number."""
    number = x._beside(number_as(value, dtype_of(x)), x._type)
    return number.broadcast_to(x.sizes)


@aten("fill.Tensor")
def fill_with(x: Tensor, value: Any) -> Tensor:
    """Return a tensor of the shape of `x` whose elements are that of a scalar."""
    return value.astype(x._type).broadcast_to(x.sizes) if isinstance(value, Tensor) else fill(x, value)


@aten("zero")
def zero(x: Tensor) -> Tensor:
    """Return zeros of the shape of `x`."""
    return fill(x, 0)
