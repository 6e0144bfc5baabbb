"""Norms of vectors, and products along several axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from dmlgpu.catalog.enums import ReduceFunction
from dmlgpu.frontends.torch.dtypes import cast, dtype_of
from dmlgpu.frontends.torch.operators.registry import Unsupported, aten, composes, decomposes
from dmlgpu.ops.contraction import einsum
from dmlgpu.ops.reductions import reduced
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.tensor import Tensor

decomposes("renorm", "norm.Scalar", "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype")


@composes("_weight_norm", differentiable=True)
def weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Return vectors along an axis with other lengths."""
    return v * (g / torch.norm_except_dim(v, 2, dim))


_FUNCTIONS = {1.0: ReduceFunction.L1, 2.0: ReduceFunction.L2}


@aten("linalg_vector_norm")
def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return p-norms along axes."""
    x = cast(x, dtype or dtype_of(x))
    if not x.data_type.is_float:
        raise Unsupported("norms are of floating-point tensors")
    order = float(ord)
    axes = tuple(range(x.ndim)) if not dim else tuple(axis % max(x.ndim, 1) for axis in dim)
    if not x.ndim:
        return (x != 0).astype(x.data_type) if not order else abs(x)
    if not x.size:
        return _of_nothing(x, order, axes, keepdim)
    if order in _FUNCTIONS:
        return reduced(x, _FUNCTIONS[order], axes, keepdim)
    if order == 0:
        return reduced((x != 0).astype(x.data_type), ReduceFunction.SUM, axes, keepdim)
    if math.isinf(order):
        return reduced(abs(x), ReduceFunction.MAX if order > 0 else ReduceFunction.MIN, axes, keepdim)
    sums: Any = reduced(abs(x) ** order, ReduceFunction.SUM, axes, keepdim)
    norms: Tensor = sums ** (1 / order)
    return norms


def _of_nothing(x: Tensor, order: float, axes: Sequence[int], keepdim: bool) -> Tensor:
    """Return norms of a tensor without elements."""
    sizes = [1 if axis in axes else size for axis, size in enumerate(x.sizes)]
    shape = tuple(sizes if keepdim else (size for axis, size in enumerate(sizes) if axis not in axes))
    return filled(x, shape, 0.0 if order >= 0 else math.inf)


@aten("_trilinear")
def trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """Return sums of products of three tensors, each of which lacks the axes that it is expanded along."""
    letters = "abcdefgh"[: a.ndim + len(expand1)]
    terms = ["".join(letter for axis, letter in enumerate(letters) if axis not in axes) for axes in (
        expand1, expand2, expand3, sumdim
    )]  # fmt: skip
    result: Any = einsum(f"{terms[0]},{terms[1]},{terms[2]}->{terms[3]}", a, b, c)
    product: Tensor = result
    return product
