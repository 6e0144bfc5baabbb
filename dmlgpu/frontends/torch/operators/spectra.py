"""Discrete Fourier transforms by those of ``dmlgpu.ops.fft``; PyTorch composes ``stft`` and ``istft`` of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.torch.complex_numbers import Complex
from dmlgpu.frontends.torch.operators.registry import Unsupported, aten, of_complex
from dmlgpu.ops.fft.operands import real_inverse, transformed
from dmlgpu.ops.fft.transforms import MAX_LENGTH
from dmlgpu.tensors.tensor import Tensor

_NORMS: Mapping[int, tuple[str, str]] = {0: ("backward", "forward"), 1: ("ortho", "ortho"), 2: ("forward", "backward")}
"""Modes of a transform and of an inverse transform that divide by nothing, the root of the length, and the length."""


def _check(x: Any, length: int) -> None:
    if x.data_type is not DataType.FLOAT32:
        raise Unsupported("transforms are of float32 and complex64")
    if length > MAX_LENGTH:
        raise Unsupported(f"transforms have at most {MAX_LENGTH:,} elements, got {length:,}")


def _along(x: Tensor, dims: Sequence[int], normalization: int, is_forward: bool) -> Tensor:
    """Return transforms of pairs {..., 2} along axes."""
    for dim in dims:
        axis = dim % (x.ndim - 1)
        length = x.sizes[axis]
        _check(x, length)
        x = transformed(x, axis, length, _NORMS[normalization][not is_forward], inverse=not is_forward)
    return x


@aten("_fft_c2c")
@of_complex("_fft_c2c")
def transform(x: Any, dim: Sequence[int], normalization: int, forward: bool) -> Complex:
    """Transform complex numbers along axes."""
    return Complex.of_pairs(_along(x.pairs(), dim, normalization, forward))


@aten("_fft_r2c")
def transform_real(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    """Transform real numbers: along the last of the axes first, of which one half may be returned."""
    *others, last = dim
    axis = last % x.ndim
    length = x.sizes[axis]
    _check(x, length)
    bins = length // 2 + 1 if onesided else length
    pairs = transformed(x.expand_dims(-1), axis, length, _NORMS[normalization][0], bins=bins)
    return Complex.of_pairs(_along(pairs, others, normalization, True))


@aten("_fft_c2r")
@of_complex("_fft_c2r")
def inverse_real(x: Any, dim: Sequence[int], normalization: int, last_dim_size: int) -> Tensor:
    """Transform one-sided spectra to real numbers."""
    *others, last = dim
    _check(x, last_dim_size)
    pairs = _along(x.pairs(), others, normalization, False)
    return real_inverse(pairs, last % x.ndim, last_dim_size, _NORMS[normalization][1])
