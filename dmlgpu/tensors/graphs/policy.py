"""Tensor policies: memory layout of the tensors that operators of a graph write (DirectMLX: TensorPolicy)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from dmlgpu.catalog.enums import DataType, TensorFlags
from dmlgpu.catalog.tensor_desc import TensorDesc, packed_strides
from dmlgpu.common.errors import InvalidArgument, shown

Sizes: TypeAlias = tuple[int, ...]

Policy: TypeAlias = Callable[[DataType, TensorFlags, Sizes], TensorDesc]
"""Maps type, flags and sizes to a description with these and any strides, byte size and alignment."""


def packed(data_type: DataType, flags: TensorFlags, sizes: Sizes) -> TensorDesc:
    """Return a packed row-major description, the default."""
    return TensorDesc(data_type, sizes, flags=flags)


def interleaved_channel(data_type: DataType, flags: TensorFlags, sizes: Sizes) -> TensorDesc:
    """Return a description with channels innermost: {N, C, H, W} is stored as {N, H, W, C}. Rank 1 is packed."""
    if len(sizes) < 2:
        return packed(data_type, flags, sizes)
    batch, channels, *spatial = sizes
    first, *rest, last = packed_strides((batch, *spatial, channels))
    return TensorDesc(data_type, sizes, (first, last, *rest), flags)


POLICIES: Mapping[str, Policy] = {"default": packed, "interleaved_channel": interleaved_channel}


def as_policy(policy: str | Policy) -> Policy:
    """Return a policy by name, or the function itself.

    Raises:
        InvalidArgument: If the name is unknown, or the argument is not callable.
    """
    if callable(policy):
        return policy
    named = POLICIES.get(policy) if isinstance(policy, str) else None
    if named is None:
        raise InvalidArgument(f"Graph: policy must be a function or one of {', '.join(POLICIES)}, got {shown(policy)}")
    return named
