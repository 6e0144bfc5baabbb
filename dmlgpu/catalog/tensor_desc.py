"""Tensor descriptions: data type, sizes, strides, bytes (DirectML: DML_BUFFER_TENSOR_DESC; DMLCalcBufferTensorSize)."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType, TensorFlags, data_type_named, holds_numbers
from dmlgpu.common import coercion
from dmlgpu.common.errors import DmlError, InvalidArgument, InvalidDescription, OutOfMemory, shown

WORD_BITS = 32
"""Bits of a word, the unit in which storage is bound."""

MAX_DIMENSIONS = 8
"""Largest dimension count from feature level 3_0 on (DML_TENSOR_DIMENSION_COUNT_MAX1)."""

MAX_DIMENSIONS_BELOW_3_0 = 5
"""Largest dimension count below feature level 3_0 (DML_TENSOR_DIMENSION_COUNT_MAX)."""

MAX_ELEMENTS = 2**32 - 1
"""Maximum number of elements of a tensor."""

TENSOR_ALIGNMENT = 16
"""Alignment in bytes of the offset of any tensor binding (DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT)."""

TEMPORARY_ALIGNMENT = 256
"""Alignment in bytes of the offset of a temporary binding (DML_TEMPORARY_BUFFER_ALIGNMENT)."""

PERSISTENT_ALIGNMENT = 256
"""Alignment in bytes of the offset of a persistent binding (DML_PERSISTENT_BUFFER_ALIGNMENT)."""


def aligned(size: int) -> int:
    """Return a size in bytes, rounded up to the alignment of tensors in temporary and persistent resources."""
    return -(-size // TEMPORARY_ALIGNMENT) * TEMPORARY_ALIGNMENT


def packed_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a packed row-major tensor."""
    strides, stride = [], 1
    for size in reversed(sizes):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))


def span(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Return the number of elements from the first to the last that the strides reach, inclusive."""
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def buffer_size(data_type: DataType, sizes: Sequence[int], strides: Sequence[int] | None = None) -> int:
    """Return the minimum size of a tensor in bytes, a multiple of 4 (DMLCalcBufferTensorSize)."""
    elements = math.prod(sizes) if strides is None else span(sizes, strides)
    return -(-elements * data_type.bits // 32) * 4


def element_offsets(sizes: Sequence[int], strides: Sequence[int]) -> NDArray[np.int64]:
    """Return the offset of every element, in elements: an array of the tensor's shape."""
    offsets = np.zeros(tuple(sizes), np.int64)
    for dimension, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        shape = [1] * len(sizes)
        shape[dimension] = size
        offsets += np.arange(size, dtype=np.int64).reshape(shape) * stride
    return offsets


def _numbers(values: Any) -> NDArray[Any]:
    """Return an array of booleans, integers or floats; rejects None and strings, which NumPy would convert."""
    array = np.asarray(values)
    if not holds_numbers(array.dtype):
        raise TypeError(f"NumPy type {array.dtype} holds no real numbers")
    return array


_DATA_TYPE, _FLAGS = coercion.member_of(DataType), coercion.flags_of(TensorFlags)
_SIZES = coercion.tuple_of(coercion.integer, "integers")
_BYTE = coercion.between(0, 255)


@dataclass(frozen=True)
class TensorDesc:
    """Layout of a tensor in a buffer (DirectML: DML_BUFFER_TENSOR_DESC).

    Only the Python types of the values are checked here. Rules that depend on the operator are checked by
    ``Device.create_operator``, whose messages name operator and field.

    Attributes:
        data_type: Data type of the elements.
        sizes: Size of each dimension, outermost first; 1 to 8 dimensions.
        strides: Distance between adjacent elements along each dimension, in elements; None (the default) means packed
            row-major, 0 broadcasts.
        flags: OWNED_BY_DML marks constant data, bound at initialization. Defaults to none.
        total_tensor_size_in_bytes: Bytes of the tensor; None (the default) means the minimum (``buffer_size``).
        guaranteed_base_offset_alignment: Guaranteed alignment of binding offsets, in bytes; 0 (the default) for none.

    Raises:
        InvalidDescription: If a value has the wrong type.

    Example:
        >>> desc = dmlgpu.TensorDesc(dmlgpu.DataType.FLOAT16, (2, 3))
        >>> desc.byte_size, desc.element_strides
        (12, (3, 1))
    """

    data_type: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    flags: TensorFlags = TensorFlags.NONE
    total_tensor_size_in_bytes: int | None = None
    guaranteed_base_offset_alignment: int = 0

    def __post_init__(self) -> None:
        self._put("data_type", _DATA_TYPE)
        self._put("flags", _FLAGS)
        self._put("sizes", _SIZES)
        self._put("guaranteed_base_offset_alignment", coercion.integer)
        if self.strides is not None:
            self._put("strides", _SIZES)
        if self.total_tensor_size_in_bytes is None:
            strides = self.strides if self.strides is None or len(self.strides) == len(self.sizes) else None
            smallest = buffer_size(self.data_type, self.sizes, strides)
            object.__setattr__(self, "total_tensor_size_in_bytes", smallest)
        else:
            self._put("total_tensor_size_in_bytes", coercion.integer)

    def _put(self, name: str, convert: coercion.Converter[Any]) -> None:
        """Convert a field to its type."""
        try:
            object.__setattr__(self, name, convert(getattr(self, name)))
        except coercion.CoercionError as wrong:
            raise InvalidDescription("TensorDesc", name + wrong.where, wrong.describe()) from None

    @classmethod
    def of(cls, array: Any, data_type: DataType | None = None) -> Self:
        """Return the packed tensor description of an array; a scalar has rank 1.

        Args:
            array: A NumPy array, or an object with ``shape`` and ``dtype``.
            data_type: Data type of the elements; None takes the array's, UINT8 for booleans.

        Raises:
            InvalidArgument: If it is not an array, or DirectML lacks its dtype.
        """
        data_type = coercion.argument("TensorDesc.of", "data_type", coercion.optional(_DATA_TYPE), data_type)
        try:
            sizes, dtype = tuple(array.shape), np.dtype(array.dtype)
        except Exception:  # foreign objects may raise any exception
            raise InvalidArgument(f"TensorDesc.of: array must be a NumPy array, got {shown(array)}") from None
        if data_type is None:
            if dtype != np.bool_ and data_type_named(dtype.name.upper()) is None:
                raise InvalidArgument(f"TensorDesc.of: array must be of a type of DirectML's, got {dtype}")
            data_type = DataType.UINT8 if dtype == np.bool_ else DataType.from_numpy(dtype)
        return cls(data_type, sizes or (1,))

    @property
    def dimension_count(self) -> int:
        """Number of dimensions, the rank (DimensionCount)."""
        return len(self.sizes)

    @functools.cached_property
    def element_strides(self) -> tuple[int, ...]:
        """Strides in elements; packed ones if ``strides`` is None.

        Raises:
            InvalidDescription: If there is not one stride per dimension.
        """
        if self.strides is None:
            return packed_strides(self.sizes)
        if len(self.strides) != len(self.sizes):
            count = f"one entry per dimension ({len(self.sizes)})"
            raise InvalidDescription("TensorDesc", "strides", f"must have {count}, got {len(self.strides)}")
        return self.strides

    @property
    def element_count(self) -> int:
        """Number of logical elements."""
        return math.prod(self.sizes)

    @property
    def physical_element_count(self) -> int:
        """Number of elements between the first and the last in memory, including padding."""
        return span(self.sizes, self.element_strides)

    @property
    def byte_size(self) -> int:
        """``total_tensor_size_in_bytes`` as a plain integer."""
        assert self.total_tensor_size_in_bytes is not None
        return self.total_tensor_size_in_bytes

    @property
    def is_packed(self) -> bool:
        """Whether the elements are contiguous in row-major order."""
        return self.strides is None or all(
            stride == want or size == 1
            for size, stride, want in zip(self.sizes, self.element_strides, packed_strides(self.sizes), strict=True)
        )

    @property
    def owned_by_dml(self) -> bool:
        """Whether the data are bound at initialization."""
        return bool(self.flags & TensorFlags.OWNED_BY_DML)

    # -- moving between NumPy arrays and the tensor's bytes ---------------------------------------------------------

    def encode(self, array: NDArray[Any], fill: int = 0) -> NDArray[np.uint8]:
        """Return the tensor's bytes for an array of its logical shape. Bytes of padding are set to `fill`.

        If a stride is 0, the last element along the dimension is stored, as by writing in row-major order.

        Args:
            array: An array that broadcasts to ``sizes``.
            fill: Value of padding bytes. Defaults to 0.

        Raises:
            InvalidArgument: If the array does not broadcast to the sizes or holds no numbers, or `fill` is not a byte.
            OutOfMemory: If the host has no memory for the bytes.
        """
        coercion.argument("TensorDesc.encode", "fill", _BYTE, fill)
        with self._reporting("encode", "array", array):
            values = np.broadcast_to(_numbers(array), self.sizes)
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
        """Return the logical array, of shape ``sizes``, in the tensor's bytes. 4-bit integers are stored one per byte.

        Raises:
            InvalidArgument: If there are too few bytes.
            OutOfMemory: If the host has no memory for the array.
        """
        with self._reporting("decode", "raw", raw):
            raw = np.ascontiguousarray(_numbers(raw)).view(np.uint8).ravel()
            if self.data_type.bits == 4:
                nibbles = np.stack([raw & 15, raw >> 4], -1).ravel()[self._offsets()]
                return ((nibbles ^ 8).astype(np.int8) - 8).astype(np.int8) if self.data_type.is_signed else nibbles
            elements = raw[: self.physical_element_count * self.data_type.bits // 8].view(self.data_type.numpy)
            if self.is_packed:
                return elements.reshape(self.sizes).copy()
            if elements.size < self.physical_element_count:
                raise ValueError(f"{elements.size} elements, of {self.physical_element_count}")
            strides = [stride * elements.itemsize for stride in self.element_strides]
            return np.lib.stride_tricks.as_strided(elements, self.sizes, strides).copy()

    @contextlib.contextmanager
    def _reporting(self, method: str, argument: str, array: object) -> Iterator[None]:
        """Name the tensor and the argument if NumPy cannot convert."""
        try:
            yield
        except DmlError:
            raise
        except MemoryError as error:
            raise OutOfMemory(f"TensorDesc.{method}: the host has no memory for {self.byte_size:,} bytes") from error
        except Exception as error:
            got = f"{array.dtype} with shape {array.shape}" if isinstance(array, np.ndarray) else shown(array)
            raise InvalidArgument(
                f"TensorDesc.{method}: {argument} does not fit {self.data_type.name} with sizes {shown(self.sizes)}, "
                f"got {got}: {error}"
            ) from error

    def _offsets(self) -> NDArray[np.int64]:
        return element_offsets(self.sizes, self.element_strides)
