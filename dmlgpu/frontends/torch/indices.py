"""Indices out of range: found at the call, without waiting for the device, if the host knows the indices.

The host knows tensors of integers that are on the CPU, or were copied from it and not written since; views and copies
of these too. Others, which the device computed, are read and checked only if ``DMLGPU_TORCH_CHECK_INDICES`` is 1.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dmlgpu.frontends.torch.adapters import NAME
from dmlgpu.frontends.torch.storage import memory_of, tensor_of

VARIABLE = "DMLGPU_TORCH_CHECK_INDICES"
"""Environment variable that checks the indices of every operator at once, if it is 1. It is read once."""

checks_all = os.environ.get(VARIABLE) == "1"

_KEPT: Mapping[torch.dtype, np.dtype[Any]] = {torch.int64: np.dtype(np.int64), torch.int32: np.dtype(np.int32)}

MAX_KEPT = 1 << 18
"""Maximum elements of a tensor that the host keeps: 2 MiB of int64."""


class IndexOutOfRange(IndexError):
    """An index is outside the tensor that it indexes."""


class KnownIndices:
    """Elements of a storage of integers, as the host copied them.

    Args:
        elements: The elements, flat. They are not copied.
        dtype: Their dtype.

    Attributes:
        elements, dtype: As passed.
        valid: Views and ranges that were checked.
    """

    __slots__ = ("_bounds", "dtype", "elements", "valid")

    def __init__(self, elements: NDArray[Any], dtype: torch.dtype):
        self.elements, self.dtype = elements, dtype
        self.valid: set[Any] = set()
        self._bounds: tuple[int, int] | None = None

    def are_within(self, low: int, high: int) -> bool:
        """Return whether all elements of the storage are in a range."""
        if self._bounds is None:
            self._bounds = int(np.minimum.reduce(self.elements)), int(np.maximum.reduce(self.elements))
        return low <= self._bounds[0] and self._bounds[1] <= high

    def view(self, x: torch.Tensor) -> NDArray[Any]:
        """Return the elements of a tensor of the storage."""
        elements, size = self.elements, self.elements.itemsize
        strides = [stride * size for stride in x.stride()]
        return np.ndarray(tuple(x.shape), elements.dtype, elements, int(x.storage_offset()) * size, strides)


class Check(NamedTuple):
    """Indices of an operator's arguments, and their range.

    Attributes:
        indices: The tensor of indices.
        size: Number of elements that they count.
        is_signed: Whether negative ones count from the end.
        ignored: A number that is permitted in addition.
    """

    indices: Any
    size: int
    is_signed: bool = False
    ignored: int | None = None

    @property
    def range(self) -> tuple[int, int]:
        """Least and greatest index."""
        return -self.size if self.is_signed else 0, self.size - 1

    def verify(self, name: str, elements: NDArray[Any], where: str = "") -> None:
        """Check elements one by one.

        Raises:
            IndexOutOfRange: If one is out of range; names the operator, the range, and the first one.
        """
        low, high = self.range
        wrong = (elements < low) | (elements > high)
        if self.ignored is not None:
            wrong &= elements != self.ignored
        if not wrong.any():
            return
        place = tuple(int(axis) for axis in np.unravel_index(int(wrong.argmax()), elements.shape))
        also = "" if self.ignored is None else f", or {self.ignored}"
        permitted = f"between {low} and {high}{also}" if self.size else "absent, since there is nothing to index"
        at = f" at {list(place)}" if place else ""
        raise IndexOutOfRange(f"aten::{name}: indices must be {permitted}, got {int(elements[place])}{at}{where}")


# ---- operators that index --------------------------------------------------------------------------------------------


class Indexed:
    """An operator that takes a tensor of indices.

    Args:
        place: Number of that argument.
        size_of: Function from the arguments to the number of elements that indices count.
        is_signed: As of ``Check``.
        ignored: Number of the argument that is the ``ignored`` of ``Check``; None if there is none.
    """

    def __init__(
        self,
        place: int,
        size_of: Callable[[Sequence[Any]], int],
        *,
        is_signed: bool = False,
        ignored: int | None = None,
    ):
        self.place, self._size_of, self._is_signed, self._ignored = place, size_of, is_signed, ignored

    def checks(self, args: Sequence[Any]) -> list[Check]:
        """Return the checks of a call; none for arguments that the operator rejects anyway."""
        try:
            ignored = None if self._ignored is None else args[self._ignored]
            return [Check(args[self.place], self._size_of(args), self._is_signed, ignored)]
        except (IndexError, TypeError, AttributeError):
            return []

    def check(self, name: str, args: Sequence[Any]) -> None:
        """Check the indices of a call that the host knows, or all.

        Raises:
            IndexOutOfRange: If one is out of range.
        """
        if not self._is_quick(args):
            for check in self.checks(args):
                _verify(name, check)

    def _is_quick(self, args: Sequence[Any]) -> bool:
        """Return whether half a microsecond tells that indices are valid, or unknown."""
        try:
            return _are_within(args[self.place], self._size_of(args))
        except (IndexError, TypeError, AttributeError):
            return False


class _IndexedAxes(Indexed):
    """An operator that takes a list of tensors of indices and masks, and None, for each axis."""

    def __init__(self) -> None:
        super().__init__(1, lambda args: 0)

    def checks(self, args: Sequence[Any]) -> list[Check]:
        checks, axis = list[Check](), 0
        for indices in args[1]:
            is_mask = indices is not None and indices.dtype in {torch.bool, torch.uint8}
            if indices is not None and not is_mask and axis < args[0].dim():
                checks.append(Check(indices, args[0].shape[axis], is_signed=True))
            axis += indices.dim() if is_mask else 1
        return checks

    def _is_quick(self, args: Sequence[Any]) -> bool:
        sizes = args[0].shape
        try:
            for axis, x in enumerate(args[1]):
                if x is not None and not (x.dtype in _KEPT and _are_within(x, sizes[axis])):  # masks have more axes
                    return False
        except (IndexError, AttributeError):
            return False
        return True


def _are_within(x: torch.Tensor, size: int) -> bool:
    """Return whether indices of the device are known to be valid and not negative, or need no check."""
    source: Any = x.untyped_storage()
    known: KnownIndices | None = source.memory.indices
    if known is None:
        return not checks_all
    return known.dtype is x.dtype and known.are_within(0, size - 1)


def _length(args: Sequence[Any]) -> int:
    x, dim = args[:2]
    return x.shape[dim] if x.dim() else 1


def _rows(args: Sequence[Any]) -> int:
    return args[0].shape[0]


def _elements(args: Sequence[Any]) -> int:
    return math.prod(args[0].shape)


def _classes(args: Sequence[Any]) -> int:
    x = args[0]
    return x.shape[min(x.dim() - 1, 1)]


INDEXED: Mapping[str, Indexed] = {
    name: indexed
    for indexed, names in (
        (Indexed(1, _rows), ("embedding", "_embedding_bag", "_embedding_bag_forward_only")),
        (Indexed(1, _classes, ignored=4), ("nll_loss_forward", "nll_loss2d_forward")),
        (Indexed(1, _elements, is_signed=True), ("take", "put")),
        (Indexed(2, _length, is_signed=True), ("index_fill.int_Scalar", "index_fill.int_Tensor")),
        (_IndexedAxes(), ("index.Tensor", "index_put", "_index_put_impl")),
        (
            Indexed(2, _length),
            ("gather", "index_select", "index_add", "index_copy", "index_reduce", "scatter.src", "scatter.value",
             "scatter.reduce", "scatter.value_reduce", "scatter_add", "scatter_reduce.two"),
        ),
    )
    for name in names
}  # fmt: skip
"""Operators that take indices, by name."""


def checked(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of an operator that checks indices first; the kernel itself if it takes none."""
    indexed = INDEXED.get(name)
    if indexed is None:
        return kernel
    check = indexed.check

    def checking(*args: Any, **kwargs: Any) -> Any:
        check(name, args)
        return kernel(*args, **kwargs)

    return checking


def _verify(name: str, check: Check) -> None:
    """Check indices that the host knows, or all. Raises as ``Check.verify``."""
    x = check.indices
    known = known_indices(x)
    if known is not None:
        key = x.shape, x.stride(), x.storage_offset(), check[1:]
        if key not in known.valid and not known.are_within(*check.range):
            check.verify(name, known.view(x))
            known.valid.add(key)
    elif x.device.type == "cpu" or checks_all:
        check.verify(name, (tensor_of(x) if x.device.type == NAME else x.detach()).numpy())


# ---- elements that the host knows ------------------------------------------------------------------------------------


def known_indices(x: torch.Tensor) -> KnownIndices | None:
    """Return what the host knows of the storage of a tensor of the device."""
    if x.device.type != NAME:
        return None
    known: KnownIndices | None = memory_of(x).indices
    return known if known is not None and known.dtype is x.dtype else None


def elements_of(x: torch.Tensor) -> NDArray[Any] | None:
    """Return the elements of a tensor of integers if the host knows them; it does those of the CPU."""
    if x.device.type == "cpu":
        return x.numpy() if x.dtype in _KEPT else None
    known = known_indices(x) if x.dtype in _KEPT else None
    return None if known is None else known.view(x)


def remember(x: torch.Tensor, elements: NDArray[Any] | None) -> None:
    """Keep integers that were copied into a tensor, if it covers its storage."""
    dtype = _KEPT.get(x.dtype)
    if elements is None or dtype is None or elements.dtype.kind not in "iu" or not 0 < elements.size <= MAX_KEPT:
        return
    memory = memory_of(x)
    if elements.shape != x.shape:
        elements = np.broadcast_to(elements, tuple(x.shape))
    if elements.size * dtype.itemsize != memory.size or not x.is_contiguous():
        return
    integers = elements.astype(dtype).reshape(-1)
    if dtype.itemsize >= elements.dtype.itemsize or np.array_equal(integers, elements.reshape(-1)):
        memory.indices = KnownIndices(integers, x.dtype)  # else some are outside of int32
