"""Views of traced tensors that strides alone do not describe: those with symbolic sizes, for PyTorch's meta kernels
accept only plain numbers, and those of another dtype."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.sizes.arithmetic import is_symbolic
from dmlgpu.frontends.torch.dtypes import data_type_of
from dmlgpu.ops.shape import joined
from dmlgpu.tensors.tensor import Tensor


def has_symbols(x: Tensor, arguments: Sequence[Any]) -> bool:
    """Return whether sizes, strides or the offset of a tensor, or arguments of a view, are symbols."""
    numbers = [*x.sizes, *x.strides, x.offset]
    for argument in arguments:
        numbers += argument if isinstance(argument, list | tuple) else [argument]
    return any(is_symbolic(number) for number in numbers)


def _moved(x: Tensor, first: int, second: int) -> Tensor:
    order = list(range(x.ndim))
    order[first], order[second] = order[second], order[first]
    return x.transpose(order)


def _expanded(x: Tensor, sizes: Sequence[int], implicit: bool = False) -> Tensor:
    own = (1,) * (len(sizes) - x.ndim) + x.sizes
    is_kept = [type(size) is int and size == -1 for size in sizes]
    pairs = zip(is_kept, own, sizes, strict=True)
    return x.broadcast_to(tuple(size if same else other for same, size, other in pairs))


def _sliced(x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    return x[_at(x, dim, slice(start, end, step))]


def _at(x: Tensor, dim: int, index: Any) -> tuple[Any, ...]:
    """Return an index into an axis."""
    return (*[slice(None)] * (dim % x.ndim), index)


def _squeezed(x: Tensor, dims: Any = None) -> Tensor:
    """Return a view without the axes of size 1, among some of them."""
    listed = range(x.ndim) if dims is None else dims if isinstance(dims, list | tuple) else [dims]
    axes = [dim % max(x.ndim, 1) for dim in listed]
    return x.squeeze([axis for axis in axes if x.ndim and x.sizes[axis] == 1])


def _split(x: Tensor, size: int, dim: int = 0) -> list[Tensor]:
    total = x.sizes[dim % x.ndim]
    count = operator.index(-(-total // size))
    return [_sliced(x, dim, index * size, (index + 1) * size) for index in range(count)]


def _split_with_sizes(x: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    parts, start = [], 0
    for size in sizes:
        parts.append(_sliced(x, dim, start, start + size))
        start = start + size
    return parts


def _unbound(x: Tensor, dim: int = 0) -> list[Tensor]:
    return [x[_at(x, dim, index)] for index in range(x.sizes[dim % x.ndim])]


def _turned(x: Tensor) -> Tensor:
    return x if x.ndim < 2 else _moved(x, 0, 1)


VIEWS: Final[Mapping[str, Callable[..., Any]]] = {
    "alias": lambda x: x,
    "detach": lambda x: x,
    "lift_fresh": lambda x: x,
    "view": lambda x, sizes: x.reshape(tuple(sizes)),
    "_unsafe_view": lambda x, sizes: x.reshape(tuple(sizes)),
    "t": _turned,
    "transpose.int": _moved,
    "permute": lambda x, dims: x.transpose([dim % x.ndim for dim in dims]),
    "unsqueeze": lambda x, dim: x.expand_dims(dim % (x.ndim + 1)),
    "squeeze": _squeezed,
    "squeeze.dim": _squeezed,
    "squeeze.dims": _squeezed,
    "expand": _expanded,
    "slice.Tensor": _sliced,
    "select.int": lambda x, dim, index: x[_at(x, dim, index)],
    "split.Tensor": _split,
    "split_with_sizes": _split_with_sizes,
    "unbind.int": _unbound,
}
"""Functions of tensors, by operator of ATen."""


def reinterpreted(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the bits of a traced tensor read as another dtype, computed by shifts if elements have another width."""
    data_type, is_boolean = data_type_of(dtype)
    source, target = x.data_type.bits, data_type.bits
    bits = x._same(_UNSIGNED[source], False)
    if target < source:
        parts = [(bits >> place).astype(_UNSIGNED[target]) for place in range(0, source, target)]
        bits = joined([part.expand_dims(-1) for part in parts], -1).reshape(*x.sizes[:-1], -1)
    elif target > source:
        groups = bits.reshape(*x.sizes[:-1], x.sizes[-1] // (target // source), target // source)
        parts = [groups[..., place].astype(_UNSIGNED[target]) << place * source for place in range(target // source)]
        bits = functools.reduce(operator.or_, parts)
    return bits._same(data_type, is_boolean)


_UNSIGNED: Final[Mapping[int, DataType]] = {
    8: DataType.UINT8,
    16: DataType.UINT16,
    32: DataType.UINT32,
    64: DataType.UINT64,
}
