"""Operands of ``dmlgpu.ops.linalg``: matrices in float32, and their checks."""

from __future__ import annotations

from typing import Any

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops.precision import in_float32
from dmlgpu.tensors.calls import caller
from dmlgpu.tensors.tensor import Tensor


def matrices(name: str, value: Any) -> Tensor:
    """Return an operand of matrices in float32.

    Raises:
        InvalidArgument: If it has fewer than 2 dimensions.
    """
    x = in_float32(name, value)
    if x.ndim < 2:
        raise InvalidArgument(f"{caller()}: {name} must have at least 2 dimensions, got sizes {list(x.sizes)}")
    return x


def square_matrices(name: str, value: Any) -> Tensor:
    """Return an operand of square matrices in float32.

    Raises:
        InvalidArgument: If it is not one.
    """
    x = matrices(name, value)
    if x.sizes[-1] != x.sizes[-2]:
        raise InvalidArgument(f"{caller()}: {name} must be square matrices, got sizes {list(x.sizes)}")
    return x


def stacked(x: Tensor) -> Tensor:
    """Return matrices {batch, rows, columns}."""
    return x if x.ndim == 3 else x.reshape(-1, *x.sizes[-2:])
