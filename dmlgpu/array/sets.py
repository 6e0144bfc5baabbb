"""Elements that occur, each once. Sizes depend on values, at which the host looks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dmlgpu.array.operands import tensor
from dmlgpu.array.sorting import ordered
from dmlgpu.catalog.enums import DataType
from dmlgpu.tensors import indexing
from dmlgpu.tensors.calls import named
from dmlgpu.tensors.tensor import Tensor

__all__ = ["unique_all", "unique_counts", "unique_inverse", "unique_values"]


class UniqueAll(NamedTuple):
    """What ``unique_all`` finds.

    Attributes:
        values: the elements that occur, in ascending order.
        indices: where each occurs first, int64.
        inverse_indices: of each element, its place among ``values``, int64.
        counts: how often each occurs, int64.
    """

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What ``unique_counts`` finds.

    Attributes:
        values: the elements that occur, in ascending order.
        counts: how often each occurs, int64.
    """

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What ``unique_inverse`` finds.

    Attributes:
        values: the elements that occur, in ascending order.
        inverse_indices: of each element, its place among ``values``, int64.
    """

    values: Tensor
    inverse_indices: Tensor


def _found(x: Any) -> UniqueAll:
    """Sort, mark the first of equal neighbours, and number what is marked."""
    given = tensor("x", x)
    flat = given.reshape(-1)
    if not flat.size:
        none = flat._nothing((0,))
        places = none.astype(DataType.INT64)
        return UniqueAll(none, places, places._same()._renamed(given.sizes), places._same())
    numbers = flat._same(boolean=False)
    values, order = ordered(numbers)
    if flat.size == 1:
        is_first = np.ones(1, bool)
    else:
        is_first = np.concatenate([[True], indexing.looked_at(values[1:] != values[:-1])])
    begins = np.flatnonzero(is_first)
    device = given.device
    starts = Tensor(begins.astype(np.int64), device=device)
    ranks = Tensor(np.cumsum(is_first) - 1, device=device)
    _, back = ordered(order)
    counts = Tensor(np.diff(np.append(begins, flat.size)).astype(np.int64), device=device)
    found = values._taken(starts, 0, "unique")
    return UniqueAll(
        found._same(boolean=given.is_boolean),
        order._taken(starts, 0, "unique"),
        ranks._taken(back, 0, "unique")._renamed(given.sizes),
        counts,
    )


@named
def unique_all(x: Tensor, /) -> UniqueAll:
    """Return the elements that occur, where each is first, which of them each element is, and how often; every NaN is
    one of its own."""
    return _found(x)


@named
def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return the elements that occur and how often; every NaN is one of its own."""
    found = _found(x)
    return UniqueCounts(found.values, found.counts)


@named
def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return the elements that occur and which of them each element is; every NaN is one of its own."""
    found = _found(x)
    return UniqueInverse(found.values, found.inverse_indices)


@named
def unique_values(x: Tensor, /) -> Tensor:
    """Return the elements that occur; every NaN is one of its own."""
    return _found(x).values
