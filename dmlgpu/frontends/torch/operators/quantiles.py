"""Quantiles of PyTorch 2.14 and later, whose own composition computes positions of elements in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dmlgpu.frontends.torch.operators.registry import composes
from dmlgpu.frontends.torch.storage import meta_of
from dmlgpu.frontends.torch.versions import INSTALLED

_BITS = 36
"""Bits after the point of positions, which are integers of 64 bits: of up to 2^27 elements."""


def _quantile(
    operator: Callable[..., torch.Tensor],
    x: torch.Tensor,
    q: torch.Tensor | float,
    dim: int | None,
    keepdim: bool,
    interpolation: str,
) -> torch.Tensor:
    on_meta = meta_of(q) if isinstance(q, torch.Tensor) else q
    sizes = operator(meta_of(x), on_meta, dim, keepdim, interpolation=interpolation).shape  # raises PyTorch's errors
    values = (x.reshape(-1) if dim is None else x.movedim(dim, -1) if x.dim() else x.reshape(1)).sort(-1).values
    ranks = q if isinstance(q, torch.Tensor) else x.new_full((), q)
    last: Any = values.shape[-1] - 1
    if operator is torch.nanquantile:  # NaN are the last elements
        last = ((~values.isnan()).sum(-1, keepdim=True) - 1).clamp(min=0)
    ranks_of_rows = ranks.reshape(-1).expand(*values.shape[:-1], ranks.numel())
    position = (ranks_of_rows.detach() * 2.0**_BITS).to(torch.int64) * last
    below = position >> _BITS
    rest = position - (below << _BITS)
    half = 1 << (_BITS - 1)
    if interpolation == "nearest":  # halves go to even positions
        result = values.gather(-1, below + ((rest > half) | ((rest == half) & (below % 2 == 1))))
    elif interpolation == "lower":
        result = values.gather(-1, below)
    else:
        above = values.gather(-1, below + (rest > 0))
        if interpolation == "higher":
            result = above
        elif interpolation == "midpoint":
            result = values.gather(-1, below).lerp(above, 0.5)
        else:
            product = ranks_of_rows * last  # for the gradient, its value is rounded
            weight = rest.to(x.dtype) * 2.0**-_BITS + (product - product.detach())
            result = values.gather(-1, below).lerp(above, weight)
    if operator is torch.quantile:
        largest = values[..., -1:]
        result = torch.where(largest.isnan(), largest, result)
    return (result.movedim(-1, 0) if ranks.dim() else result).reshape(sizes)


def _register(operator: Callable[..., torch.Tensor]) -> None:
    name = operator.__name__

    @composes(name, f"{name}.scalar", differentiable=True)
    def quantile(
        x: torch.Tensor,
        q: torch.Tensor | float,
        dim: int | None = None,
        keepdim: bool = False,
        *,
        interpolation: str = "linear",
    ) -> torch.Tensor:
        return _quantile(operator, x, q, dim, keepdim, interpolation)

    @composes(f"{name}.out", f"{name}.scalar_out")
    def with_out(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        result = quantile(*args, **kwargs)
        return out.resize_(result.shape).copy_(result)


if INSTALLED >= (2, 14):  # positions of earlier versions are rounded to float32
    for _operator in (torch.quantile, torch.nanquantile):
        _register(_operator)
