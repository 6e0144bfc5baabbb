"""Norms of vectors, and products along several axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dmlgpu.frontends.torch.dtypes import cast, dtype_of
from dmlgpu.frontends.torch.operators.registry import Unsupported, aten, composes, decomposes
from dmlgpu.ops.contraction import einsum
from dmlgpu.ops.linalg.norms import vector_norms
from dmlgpu.tensors.tensor import Tensor

decomposes("renorm", "norm.Scalar", "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype")


@composes("_weight_norm", differentiable=True)
def weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Return vectors along an axis with other lengths."""
    return v * (g / torch.norm_except_dim(v, 2, dim))


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
    axes = tuple(range(x.ndim)) if not dim else tuple(axis % max(x.ndim, 1) for axis in dim)
    return vector_norms(x, float(ord), axes, keepdim)


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
