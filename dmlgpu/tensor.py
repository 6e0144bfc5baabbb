"""Tensor descriptions: data type, sizes, strides, bytes (DirectML: DML_BUFFER_TENSOR_DESC; DMLCalcBufferTensorSize)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.enums import DataType, TensorFlags

WORD_BITS = 32
"""Bits of the words in which storage is bound."""

MAX_DIMENSIONS = 8
"""Largest dimension count from feature level 3_0 on (DML_TENSOR_DIMENSION_COUNT_MAX1)."""

MAX_DIMENSIONS_BELOW_3_0 = 5
"""Largest dimension count below feature level 3_0 (DML_TENSOR_DIMENSION_COUNT_MAX)."""

MAX_ELEMENTS = 2**32 - 1
"""Most elements of a tensor."""

TENSOR_ALIGNMENT = 16
"""Alignment in bytes of the offset of any tensor binding (DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT)."""

TEMPORARY_ALIGNMENT = 256
"""Alignment in bytes of the offset of a temporary binding (DML_TEMPORARY_BUFFER_ALIGNMENT)."""

PERSISTENT_ALIGNMENT = 256
"""Alignment in bytes of the offset of a persistent binding (DML_PERSISTENT_BUFFER_ALIGNMENT)."""


def aligned(size: int) -> int:
    """Return a size in bytes rounded up to where the next tensor of a temporary or persistent resource may begin."""
    return -(-size // TEMPORARY_ALIGNMENT) * TEMPORARY_ALIGNMENT


def packed_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return strides, in elements, of a row-major tensor without gaps."""
    strides, stride = [], 1
    for size in reversed(sizes):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))


def span(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Return elements from the first to the last that the strides reach, both included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def buffer_size(data_type: DataType, sizes: Sequence[int], strides: Sequence[int] | None = None) -> int:
    """Return smallest size of a tensor in bytes, a multiple of 4 (DMLCalcBufferTensorSize)."""
    elements = math.prod(sizes) if strides is None else span(sizes, strides)
    return -(-elements * data_type.bits // 32) * 4


def element_offsets(sizes: Sequence[int], strides: Sequence[int]) -> NDArray[np.int64]:
    """Return offset, in elements, of every element: an array with the tensor's sizes."""
    offsets = np.zeros(tuple(sizes), np.int64)
    for dimension, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        shape = [1] * len(sizes)
        shape[dimension] = size
        offsets += np.arange(size, dtype=np.int64).reshape(shape) * stride
    return offsets


MAX_ENUMERATED_EXTENT = 1 << 28
"""Most offsets that ``has_overlap`` looks at one by one."""


def has_overlap(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether two elements share an offset.

    Dimensions that lie wholly above the span of the smaller ones cannot collide; the rest decide, exactly: two by
    arithmetic, more by enumeration. More than two that reach over 2^28 elements are taken to overlap.
    """
    dimensions = sorted((stride, size) for size, stride in zip(sizes, strides, strict=True) if size > 1)
    if any(stride == 0 for stride, _ in dimensions):
        return True
    tangled, reach = 0, 1
    for position, (stride, size) in enumerate(dimensions, start=1):
        if stride < reach:
            tangled = position
        reach += (size - 1) * stride
    return _collide(dimensions[:tangled])


def _collide(dimensions: list[tuple[int, int]]) -> bool:
    """Return whether elements over these (stride, size) pairs share an offset."""
    if not dimensions:
        return False
    if len(dimensions) == 2:
        (inner, inner_size), (outer, outer_size) = dimensions
        divisor = math.gcd(inner, outer)  # i * inner = j * outer first happens at i = outer / divisor
        return outer // divisor < inner_size and inner // divisor < outer_size
    extent = span([size for _, size in dimensions], [stride for stride, _ in dimensions])
    if extent > MAX_ENUMERATED_EXTENT or math.prod(size for _, size in dimensions) > extent:
        return True
    *rest, (stride, size) = dimensions
    slab = element_offsets([size for _, size in rest], [stride for stride, _ in rest]).ravel()
    if np.unique(slab).size != slab.size:
        return True
    occupied = np.zeros(extent, bool)
    for index in range(size):  # one slab at a time keeps the memory to that of the inner dimensions
        cells = slab + index * stride
        if occupied[cells].any():
            return True
        occupied[cells] = True
    return False


def _integers(values: Sequence[Any], what: str) -> tuple[int, ...]:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"TensorDesc: {what} must be integers, got {value!r} of type {type(value).__name__}")
    return tuple(int(value) for value in values)


def _member(kind: type[Any], value: Any, what: str) -> Any:
    """Return a member of an enumeration, given as such or as its number."""
    try:
        return kind(value)
    except ValueError:
        raise TypeError(f"TensorDesc: {what} must be a {kind.__name__}, got {value!r}") from None


@dataclass(frozen=True)
class TensorDesc:
    """How a tensor lies in a buffer (DirectML: DML_BUFFER_TENSOR_DESC).

    Attributes:
        data_type: type of the elements.
        sizes: extent of each dimension, outermost first; 1 to 8 dimensions.
        strides: elements between neighbours along each dimension; None means packed row-major, 0 broadcasts.
        flags: OWNED_BY_DML hands constant data over at initialisation.
        total_tensor_size_in_bytes: bytes the tensor takes; None means the smallest (``buffer_size``).
        guaranteed_base_offset_alignment: promised alignment in bytes of binding offsets, or 0.

    Only the kinds of the values are looked at here (TypeError); rules that depend on the operator are checked by
    ``Device.create_operator``, whose messages name the operator and the field.
    """

    data_type: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    flags: TensorFlags = TensorFlags.NONE
    total_tensor_size_in_bytes: int | None = None
    guaranteed_base_offset_alignment: int = 0

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "data_type", _member(DataType, self.data_type, "data_type"))
        put(self, "flags", _member(TensorFlags, self.flags, "flags"))
        put(self, "sizes", _integers(self.sizes, "sizes"))
        (alignment,) = _integers([self.guaranteed_base_offset_alignment], "guaranteed_base_offset_alignment")
        put(self, "guaranteed_base_offset_alignment", alignment)
        if self.strides is not None:
            put(self, "strides", _integers(self.strides, "strides"))
        if self.total_tensor_size_in_bytes is None:
            strides = self.strides if self.strides is None or len(self.strides) == len(self.sizes) else None
            put(self, "total_tensor_size_in_bytes", buffer_size(self.data_type, self.sizes, strides))
        else:
            (total,) = _integers([self.total_tensor_size_in_bytes], "total_tensor_size_in_bytes")
            put(self, "total_tensor_size_in_bytes", total)

    @property
    def dimension_count(self) -> int:
        """Number of dimensions (DimensionCount)."""
        return len(self.sizes)

    @property
    def element_strides(self) -> tuple[int, ...]:
        """The strides in elements, packed ones where none are given."""
        return packed_strides(self.sizes) if self.strides is None else self.strides

    @property
    def element_count(self) -> int:
        """Number of logical elements."""
        return math.prod(self.sizes)

    @property
    def physical_element_count(self) -> int:
        """Elements between the first and the last in memory, gaps included."""
        return span(self.sizes, self.element_strides)

    @property
    def byte_size(self) -> int:
        """``total_tensor_size_in_bytes`` as a plain integer."""
        assert self.total_tensor_size_in_bytes is not None
        return self.total_tensor_size_in_bytes

    @property
    def is_packed(self) -> bool:
        """Whether the elements lie row-major without gaps."""
        packed = packed_strides(self.sizes)
        return all(
            size == 1 or given == want
            for size, given, want in zip(self.sizes, self.element_strides, packed, strict=True)
        )

    @property
    def owned_by_dml(self) -> bool:
        """Whether the data are handed over at initialisation."""
        return bool(self.flags & TensorFlags.OWNED_BY_DML)

    # -- moving between NumPy arrays and the tensor's bytes ---------------------------------------------------------

    def encode(self, array: NDArray[Any], fill: int = 0) -> NDArray[np.uint8]:
        """Return the tensor's bytes for an array of its logical sizes; bytes between elements hold ``fill``.

        Where strides are 0 the last element along the dimension stays, as storing in row-major order would leave it.

        Raises:
            ValueError: when the array does not broadcast to the tensor's sizes.
        """
        values = np.broadcast_to(np.asarray(array), self.sizes)
        raw = np.full(self.byte_size, fill, np.uint8)
        if self.data_type.bits == 4:
            nibbles = np.stack([raw & 15, raw >> 4], -1).ravel()
            nibbles[self._offsets()] = values.astype(np.uint8) & 15
            return (nibbles[0::2] | nibbles[1::2] << 4).astype(np.uint8)
        elements = raw[: self.physical_element_count * self.data_type.bits // 8].view(self.data_type.numpy)
        if self.is_packed:
            elements[:] = values.ravel()
        else:
            elements[self._offsets()] = values
        return raw

    def decode(self, raw: NDArray[np.uint8]) -> NDArray[Any]:
        """Return the logical array, of shape ``sizes``, of the tensor's bytes. 4-bit integers come one to a byte."""
        raw = np.ascontiguousarray(raw).view(np.uint8).ravel()
        if self.data_type.bits == 4:
            nibbles = np.stack([raw & 15, raw >> 4], -1).ravel()[self._offsets()]
            return ((nibbles ^ 8).astype(np.int8) - 8).astype(np.int8) if self.data_type.is_signed else nibbles
        elements = raw[: self.physical_element_count * self.data_type.bits // 8].view(self.data_type.numpy)
        return elements.reshape(self.sizes).copy() if self.is_packed else elements[self._offsets()]

    def _offsets(self) -> NDArray[np.int64]:
        return element_offsets(self.sizes, self.element_strides)
