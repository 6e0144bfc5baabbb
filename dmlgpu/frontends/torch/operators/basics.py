"""Filling, which PyTorch itself calls."""

from __future__ import annotations

from typing import Any

from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.frontends.torch.dtypes import dtype_of, number_as
from dmlgpu.frontends.torch.operators.registry import aten
from dmlgpu.tensors.tensor import Tensor

_NUMBERS: Cache[Any, Tensor] = Cache(CacheLimits(1024, 1024))


@aten("fill.Scalar")
def fill(x: Tensor, value: Any) -> Tensor:
    """Return a tensor of the shape of `x` filled with a number."""
    number = number_as(value, dtype_of(x))
    if x.graph is not None:
        return x._beside(number, x._type).broadcast_to(x.sizes)
    key = x.device, x.data_type, repr(number)
    scalar = _NUMBERS.get_or_make(key, lambda: x._beside(number, x._type), lambda _: 1)
    numbers = scalar._same(boolean=x.is_boolean).broadcast_to(x.sizes)
    return numbers.copy() if x.size else numbers  # plans repeat all computations


@aten("fill.Tensor")
def fill_with(x: Tensor, value: Any) -> Tensor:
    """Return a tensor of the shape of `x` filled with the element of a scalar tensor."""
    return value.astype(x._type).broadcast_to(x.sizes) if isinstance(value, Tensor) else fill(x, value)


@aten("zero")
def zero(x: Tensor) -> Tensor:
    """Return zeros of the shape of `x`."""
    return fill(x, 0)
