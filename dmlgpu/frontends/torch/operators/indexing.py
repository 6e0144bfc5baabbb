"""``x[...]`` with tensors of indices and masks, assignment to it, and selection by masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.torch.dtypes import cast, dtype_of, number_as
from dmlgpu.frontends.torch.operators.comparison import as_mask
from dmlgpu.frontends.torch.operators.registry import aten, decomposes
from dmlgpu.frontends.torch.operators.scattering import combined
from dmlgpu.ops import directml
from dmlgpu.tensors.layout import broadcast_sizes
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.tracing import compiled

_IF = directml.element_wise_if


def _is_mask(index: Any) -> bool:
    return index is not None and index.data_type is DataType.UINT8


def coordinates(mask: Any) -> list[Any]:
    """Return the coordinates of a mask's true elements, a tensor of int64 per axis; reads the mask."""
    if not mask.ndim:
        places = (np.zeros(int(bool(mask.item())), np.int64),)
        return [Tensor(axis, device=mask.device) for axis in places]
    return [Tensor(axis.astype(np.int64), device=mask.device) for axis in np.nonzero(mask.numpy())]


def _expanded(x: Any, indices: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return a tensor, and an index or None for each of its axes: masks become indices of their true elements."""
    entries: list[Any] = []
    for index in indices:
        if not _is_mask(index):
            entries.append(index)
            continue
        if not index.ndim:
            x = x.expand_dims(len(entries))
        elif index.sizes != x.sizes[len(entries) : len(entries) + index.ndim]:
            _reject_mask(x, index, len(entries))
        entries += coordinates(index)
    entries += [None] * (x.ndim - len(entries))
    return x, entries


def _reject_mask(x: Any, mask: Any, begin: int) -> None:
    axis = next((axis for axis, size in enumerate(mask.sizes) if x.sizes[begin : begin + axis + 1][-1:] != (size,)), 0)
    raise IndexError(
        f"The shape of the mask {list(mask.sizes)} at index {axis} does not match the shape of the indexed tensor "
        f"{list(x.sizes)} at index {begin + axis}"
    )


class IndexSelection:
    """Elements selected by tensors of indices.

    Args:
        x: The indexed tensor.
        indices: An index or None per axis, fewer than axes if the rest is None.

    Attributes:
        x: The tensor, with an axis of its own for each mask without axes.
        axes: Axes that are indexed.
        rest: The others.
        sizes: Sizes of the indices, broadcast.
        place: Position of these sizes among the axes of the result.
    """

    def __init__(self, x: Any, indices: Sequence[Any]):
        self.x, entries = _expanded(x, indices)
        self.axes = [axis for axis, entry in enumerate(entries) if entry is not None]
        self.rest = [axis for axis, entry in enumerate(entries) if entry is None]
        present = [entries[axis] for axis in self.axes]
        self.sizes = broadcast_sizes("index", [("indices", entry.sizes) for entry in present])
        self._indices = [
            entry if entry.data_type in {DataType.INT64, DataType.INT32} else entry.astype(DataType.INT64)
            for entry in present
        ]
        first = self.axes[0]
        self.place = first if self.axes == list(range(first, first + len(self.axes))) else 0

    @property
    def rest_sizes(self) -> tuple[int, ...]:
        """Sizes of the axes that are not indexed."""
        return tuple(self.x.sizes[axis] for axis in self.rest)

    @property
    def result_sizes(self) -> tuple[int, ...]:
        """Sizes of the selected elements."""
        rest = self.rest_sizes
        return (*rest[: self.place], *self.sizes, *rest[self.place :])

    @property
    def extent(self) -> int:
        """Number of positions along the indexed axes."""
        return math.prod(self.x.sizes[axis] for axis in self.axes)

    def positions(self) -> Any:
        """Return the position along the indexed axes, flattened, of each selected slice."""
        result: Any = None
        for axis, index in zip(self.axes, self._indices, strict=True):
            size = self.x.sizes[axis]
            position = _IF(index < 0, index + size, index)
            if result is not None and result.data_type is not position.data_type:
                result, position = result.astype(DataType.INT64), position.astype(DataType.INT64)
            result = position if result is None else result * size + position
        return result.broadcast_to(self.sizes).reshape(-1)

    def rows(self) -> Any:
        """Return the tensor as rows: indexed axes flattened first, others flattened second."""
        return self.x.transpose(*self.axes, *self.rest).reshape(self.extent, math.prod(self.rest_sizes))

    def unrowed(self, rows: Any) -> Any:
        """Return rows in the order of axes of the tensor."""
        order = [*self.axes, *self.rest]
        back = [order.index(axis) for axis in range(self.x.ndim)]
        return rows.reshape(tuple(self.x.sizes[axis] for axis in order)).transpose(*back)

    def read(self) -> Any:
        """Return the selected elements."""
        sizes = self.result_sizes
        if 0 in sizes:
            return self.x._nothing(sizes)
        if len(self.axes) == 1:
            index = self._indices[0]
            result = self.x._taken(index.reshape(-1), self.axes[0], "index")
            return result.reshape(sizes)
        taken = self.rows()._taken(self.positions(), 0, "index")
        taken = taken.reshape((*self.sizes, *self.rest_sizes))
        count, position = len(self.sizes), self.place
        order = [*range(count, count + position), *range(count), *range(count + position, taken.ndim)]
        return taken.transpose(*order) if position else taken

    def write(self, values: Any, accumulate: bool) -> Any:
        """Return the tensor with the selected elements replaced by values of its dtype."""
        sizes, count, position = self.result_sizes, len(self.sizes), self.place
        if 0 in sizes:
            return self.x
        extra = values.ndim - len(sizes)
        values = values.reshape(values.sizes[extra:]) if extra > 0 else values
        values = values.broadcast_to(sizes)
        if position:
            values = values.transpose(
                *range(position, position + count), *range(position), *range(position + count, len(sizes))
            )
        updates = values.reshape(math.prod(self.sizes), math.prod(self.rest_sizes))
        rows, positions = self.rows(), self.positions()
        if accumulate:
            result = combined(rows, 0, positions.reshape(-1, 1), updates, "sum")
        else:
            result = directml.scatter_elements(
                rows, positions.reshape(-1, 1).broadcast_to(updates.sizes), updates, axis=0
            )._same(boolean=self.x.is_boolean)
        return self.unrowed(result)


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(x: Any, indices: Sequence[Any]) -> Any:
    result = IndexSelection(x, indices).read()
    return result._same(boolean=x.is_boolean)


@aten("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, unsafe: bool = False) -> Any:
    """Assign to the elements that indices select; assigning one number under a mask does not read the mask."""
    if not isinstance(values, Tensor):
        values = x._beside(number_as(values, dtype_of(x)), x._type)._same(boolean=x.is_boolean)
    values = cast(values, dtype_of(x))
    mask = indices[0]
    if len(indices) == 1 and _is_mask(mask) and values.size == 1 and mask.sizes == x.sizes[: mask.ndim] and x.size:
        mask = as_mask(mask).reshape(mask.sizes + (1,) * (x.ndim - mask.ndim))
        value = values.reshape(())
        return _IF(mask, directml.element_wise_add(x, value) if accumulate else value, x)._same(boolean=x.is_boolean)
    put = _put if any(map(_is_mask, indices)) else _compiled_put
    return put(x, indices, values, accumulate)


def _put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    return IndexSelection(x, indices).write(values, accumulate).reshape(x.sizes)


_compiled_put = compiled.compile(_put)


@aten("masked_select", reads=True)
def masked_select(x: Any, mask: Any) -> Any:
    sizes = broadcast_sizes("masked_select", [("self", x.sizes), ("mask", mask.sizes)])
    places = np.flatnonzero(mask.broadcast_to(sizes).numpy())
    if not places.size:
        return x._nothing((0,))
    flat = x.broadcast_to(sizes).reshape(-1)
    return flat._taken(Tensor(places.astype(np.int64), device=x.device), 0, "masked_select")._same(boolean=x.is_boolean)


@aten("nonzero", reads=True)
def nonzero(x: Any) -> Any:
    return Tensor(np.argwhere(x.numpy() != 0).astype(np.int64), device=x.device)


@aten("nonzero_static", reads=True)
def nonzero_static(x: Any, *, size: int, fill_value: int = -1) -> Any:
    """Return coordinates of the first nonzero elements, padded by a number."""
    places = np.argwhere(x.numpy() != 0)[:size]
    result = np.full((size, x.ndim), fill_value, np.int64)
    result[: len(places)] = places
    return Tensor(result, device=x.device)


decomposes("_unsafe_masked_index", "_unsafe_masked_index_put_accumulate")
