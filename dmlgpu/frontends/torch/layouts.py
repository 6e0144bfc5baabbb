"""New torch tensors of the device, by DLPack: one call of C makes a storage and its tensor of any dtype and strides."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Sequence
from typing import Any

import torch

from dmlgpu.catalog.tensor_desc import span
from dmlgpu.frontends.torch.internals import from_dlpack

_EXTERNAL_DEVICE = 12  # kDLExtDev, PyTorch's PrivateUse1

_FIELDS = struct.Struct("PiiiBBHPPQPP")
"""A DLManagedTensor: data, kind and index of the device, rank, dtype, shape, strides, offset, context, deleter."""

_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


class _Record:
    """Memory of a DLManagedTensor, which is never freed: PyTorch looks for a deleter there when a storage goes."""

    __slots__ = ("address", "content")

    def __init__(self) -> None:
        self.content = ctypes.create_string_buffer(_FIELDS.size)
        self.address = ctypes.addressof(self.content)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.content))


_records: list[_Record] = []  # those that no thread fills at the moment
_next_address = 1 << 40
_address_lock = threading.Lock()


class TorchLayout:
    """Device, dtype, shape and strides of new tensors.

    Attributes:
        index: Index of the device.
        size: Bytes from the first to the last element.
    """

    __slots__ = ("_fields", "_shapes", "index", "size")

    def __init__(self, index: int, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int]):
        self.index = index
        self.size = 0 if 0 in sizes else span(tuple(sizes), tuple(strides)) * dtype.itemsize
        rank = len(sizes)
        numbers = ctypes.c_int64 * max(rank, 1)
        self._shapes = numbers(*sizes), numbers(*strides)
        shape, steps = map(ctypes.addressof, self._shapes)
        self._fields = (_EXTERNAL_DEVICE, index, rank, _code(dtype), dtype.itemsize * 8, 1, shape, steps, 0, 0, 0)

    def tensor(self, memory: Any) -> torch.Tensor:
        """Return a tensor of a new storage with some memory, at an address that no other storage has.

        Args:
            memory: A ``storage.Memory``; None for a storage without bytes, which gets one when it is used.
        """
        global _next_address
        with _address_lock:
            address, _next_address = _next_address, _next_address + (self.size + 511) // 256 * 256
        try:
            record = _records.pop()
        except IndexError:
            record = _Record()
        _FIELDS.pack_into(record.content, 0, address, *self._fields)
        x = from_dlpack(_new_capsule(record.address, b"dltensor", None))
        _records.append(record)
        if memory is not None:
            source: Any = x.untyped_storage()
            source.memory = memory
        return x


def _code(dtype: torch.dtype) -> int:
    """Return DLPack's code of a kind of dtypes."""
    if dtype.is_floating_point:
        return 4 if dtype is torch.bfloat16 else 2
    if dtype.is_complex or dtype is torch.bool:
        return 5 if dtype.is_complex else 6
    return int(not dtype.is_signed)
