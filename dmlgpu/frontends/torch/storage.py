"""Memory of torch storages: torch tensors of device "dml" as dmlgpu tensors, and back.

A tensor of the device is a plain ``torch.Tensor``. Its storage is a Python object that lives as long as PyTorch's own
storage, and has an attribute ``memory``: a ``Memory``. The storage's address is a number that no other storage has; no
bytes lie there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc, span
from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.frontends.torch import adapters
from dmlgpu.frontends.torch.complex_numbers import Complex, ComplexPairs
from dmlgpu.frontends.torch.dtypes import (
    COMPLEX_DTYPES,
    PARTS,
    TORCH_DTYPES,
    array_of_torch,
    cast,
    data_type_of,
    torch_of_array,
)
from dmlgpu.frontends.torch.internals import CPU_KEYS, neg_view
from dmlgpu.frontends.torch.layouts import TorchLayout
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.recorded_call import CallResult
from dmlgpu.tensors.session import session_of
from dmlgpu.tensors.strided import behind_binding
from dmlgpu.tensors.tensor import Tensor

_set = torch.ops.aten.set_.source_Storage_storage_offset.redispatch
bytes_in = torch.UntypedStorage.nbytes  # the original, before it is replaced for storages of the device


class Memory:
    """Device memory of a storage; in-place writes replace its buffer or write into it, which every view sees.

    Attributes:
        buffer: The dmlgpu buffer.
        index: Index of the torch device.
        size: Bytes of the storage.
        tensor: Cached tensor of the whole buffer, or None.
        writes: Number of in-place writes.
        indices: Integers that the host knows, a ``KnownIndices``; None for others, and after a write.
    """

    __slots__ = ("buffer", "index", "indices", "size", "tensor", "writes")

    def __init__(self, buffer: Any, index: int, size: int, tensor: Tensor | None = None):
        self.buffer, self.index, self.size, self.tensor = buffer, index, size, tensor
        self.writes = 0
        self.indices: Any = None
        buffer.is_owned = True  # no other storage may take this memory
        adapters.memory[index].add(size)

    def __del__(self) -> None:
        adapters.memory[self.index].add(-self.size)

    def replace(self, tensor: Tensor) -> None:
        """Take the memory of a dense tensor, which no other tensor uses."""
        self.buffer, self.tensor = tensor.buffer, tensor
        tensor.buffer.is_owned = True


class PendingNumber(Memory):
    """Memory of one number, which is written when its buffer is used for the first time.

    Args:
        number, dtype: The number.
        index: As of ``Memory``.
        make: Returns a tensor of the number.
    """

    __slots__ = ("_lock", "_make", "_written", "dtype", "number")

    def __init__(self, number: Any, dtype: torch.dtype, index: int, make: Callable[[], Tensor]):
        self.index, self.size, self.tensor = index, dtype.itemsize, None
        self.writes, self.indices = 0, None
        self.number, self.dtype, self._make, self._lock = number, dtype, make, threading.Lock()
        adapters.memory[index].add(self.size)

    @property
    def buffer(self) -> Any:
        """The dmlgpu buffer."""
        with self._lock:
            if self.number is not None:
                tensor = self._make()
                tensor.buffer.is_owned = True
                self._written = tensor.buffer
                self.number = None
        return self._written

    @buffer.setter
    def buffer(self, buffer: Any) -> None:
        self._written = buffer
        self.number = None


def pending_number(x: torch.Tensor) -> Any:
    """Return the number that all elements of a tensor of the device are, if it is not in device memory yet; else
    None."""
    memory = memory_of(x)
    return memory.number if type(memory) is PendingNumber and memory.dtype is x.dtype else None


def memory_of(x: torch.Tensor) -> Memory:
    """Return the memory of a tensor of the device."""
    return memory_in(x.untyped_storage())


def memory_in(source: Any) -> Memory:
    """Return the memory of a storage of the device.

    Raises:
        RuntimeError: If PyTorch made the storage, which then has no memory of the device.
    """
    try:
        return source.memory
    except AttributeError:
        size, index = bytes_in(source), source.device.index or 0
    if size:
        raise RuntimeError(f"a dml storage of {size} bytes was created without memory of the device")
    source.memory = Memory(_buffer(index, 0, "empty storage"), index, 0)
    return source.memory


def _buffer(index: int, size: int, label: str) -> Any:
    device = adapters.device_of(index)
    return session_of(device).pool.take(device, size, label)


def tensor_of(x: torch.Tensor) -> Tensor:
    """Return a torch tensor of the device as a strided view of its memory, without a copy; complex numbers as pairs.

    The bits that PyTorch sets in views whose elements it conjugates or negates later are ignored; `operand_of` heeds
    them.
    """
    memory = memory_of(x)
    data_type, is_boolean = data_type_of(x.dtype)
    sizes, strides, offset = tuple(x.shape), x.stride(), int(x.storage_offset())
    if x.dtype in PARTS:
        sizes, strides, offset = (*sizes, 2), (*(2 * stride for stride in strides), 1), 2 * offset
    tensor = memory.tensor
    if (
        tensor is not None
        and not offset
        and tensor.sizes == sizes
        and tensor.strides == strides
        and tensor.data_type is data_type
        and tensor.is_boolean is is_boolean
    ):
        return tensor
    tensor = Tensor.__new__(Tensor)
    tensor._set(memory.buffer, data_type, sizes, strides, offset, is_boolean)
    return tensor


def operand_of(x: torch.Tensor) -> Tensor | Complex:
    """Return the elements of a torch tensor of the device as functions of the table take them."""
    tensor = tensor_of(x)
    if x.dtype in PARTS:
        value = Complex.of_pairs(tensor)
        return Complex(value.real, -value.imag) if x.is_conj() else value
    return -tensor if x.is_neg() else tensor


def on_host(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor of the device on the CPU, packed."""
    array = tensor_of(x).numpy()
    if not array.size:
        return torch.empty(x.shape, dtype=x.dtype, device="cpu")  # strides of NumPy's empty arrays are 0
    if x.dtype in PARTS:
        host = torch.from_numpy(array.view(f"c{2 * array.itemsize}"))
        return (host.conj_physical() if x.is_conj() else host).reshape(x.shape)
    host = torch_of_array(array)
    return (-host if x.is_neg() else host).reshape(x.shape)


def on_device(host: torch.Tensor, index: int) -> Any:
    """Return a packed copy on the device of a tensor of the CPU, of a dtype that the device holds."""
    _, is_boolean = data_type_of(host.dtype)
    host = host.resolve_conj().resolve_neg().contiguous()
    if host.dtype in PARTS:
        return Complex.of_pairs(Tensor._uploaded(torch.view_as_real(host).numpy(), adapters.device_of(index)))
    array = array_of_torch(host.view(torch.uint8) if is_boolean else host)
    tensor = Tensor._uploaded(array, adapters.device_of(index))
    tensor.is_boolean = is_boolean
    return tensor


def meta_of(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same dtype, shape and strides on the device "meta", which has no elements."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


def torch_of(result: Tensor, index: int) -> torch.Tensor:
    """Return the result of an operator as a tensor of the device; copies memory that another storage or tensor has."""
    is_complex = isinstance(result, ComplexPairs)
    result = unowned(result.plain() if isinstance(result, ComplexPairs) else result)
    layout = layout_of(result, index, is_complex=is_complex)
    return layout.tensor(Memory(result.buffer, index, layout.size, result))


def layout_of(result: Tensor | CallResult, index: int, *, is_complex: bool) -> TorchLayout:
    """Return the layout of the torch tensor that has the elements of a tensor, or its pairs as complex numbers."""
    sizes, strides = result.sizes, result.strides
    if is_complex:
        dtype, strides = COMPLEX_DTYPES[result.data_type], tuple([stride // 2 for stride in strides[:-1]])
        return TorchLayout(index, dtype, sizes[:-1], strides)
    return TorchLayout(index, TORCH_DTYPES[result.data_type, result.is_boolean], sizes, strides)


def empty_strided(index: int, dtype: torch.dtype, sizes: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor of the device with uninitialized elements."""
    data_type_of(dtype)
    layout = TorchLayout(index, dtype, sizes, strides)
    return layout.tensor(Memory(_buffer(index, layout.size, "torch.empty"), index, layout.size))


def allocated_storage(index: int, size: int, label: str) -> Any:
    """Return a storage of uninitialized bytes.

    Raises:
        OutOfMemory: If the device has no memory for it; names ``label``.
    """
    memory = Memory(_buffer(index, size, label), index, size)
    return TorchLayout(index, torch.uint8, (size,), (1,)).tensor(memory).untyped_storage()


def over(source: Any, index: int, dtype: torch.dtype, sizes: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor of a storage that exists, from its first byte on."""
    x = TorchLayout(index, dtype, (0,), (1,)).tensor(None)
    return _set(CPU_KEYS, x, source, 0, sizes, strides)


class NumberUploads:
    """Uploads of numbers that differ between calls, on whose values recorded calls must not depend.

    Args:
        label: For messages.
    """

    def __init__(self, label: str):
        self._label = label
        self._recent: list[list[int]] = []  # ids of the memory of the last uploads

    def upload(self, numbers: Sequence[float], index: int) -> torch.Tensor:
        """Return a float32 tensor with a number at the start of each row, where it can be bound."""
        rows = np.zeros((len(numbers), 4), np.float32)
        with np.errstate(over="ignore"):
            rows[:, 0] = numbers
        device = adapters.device_of(index)
        pool = session_of(device).pool
        ((memory, size),) = pool.take_each((rows.nbytes,), self._label, preferred=self._recent)
        self._recent = [[id(memory)], *self._recent[:1]]
        buffer = pool.buffer(device, memory, size, self._label)
        buffer.write(rows)
        return torch_of(Tensor._packed(buffer, DataType.FLOAT32, rows.shape), index)


# ---- writes ---------------------------------------------------------------------------------------------------------


def packed_copy(x: Tensor) -> Tensor:
    """Return a packed copy in memory of its own."""
    return x.copy() if x.size else x._nothing(x.sizes)


def unowned(x: Tensor) -> Tensor:
    """Return a tensor that covers memory of its own, which no storage has: itself, or a packed copy."""
    is_part = x.is_view or (x.signature[2] is not None and not is_dense(x.sizes, x.strides))
    return packed_copy(x) if is_part or getattr(x.buffer, "is_owned", False) else x


def is_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether elements, in some order of axes, follow each other in memory without gaps."""
    count = 1
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size > 1:
            if stride != count:
                return False
            count *= size
    return True


def axes_in_memory(sizes: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return axes in the order in which memory has them, the outermost first; those of size 1 stay in place."""
    long = [axis for axis, size in enumerate(sizes) if size != 1]
    ordered = iter(sorted(long, key=lambda axis: -strides[axis]))
    return [next(ordered) if size != 1 else axis for axis, size in enumerate(sizes)]


def in_order(x: Tensor, order: Sequence[int]) -> Tensor:
    """Return a tensor that covers memory of its own, in which axes have an order: itself, or a copy."""
    if x.signature[2] is not None and axes_in_memory(x.sizes, x.strides) == order and unowned(x) is x:
        return x
    return permuted_back(packed_copy(x.transpose(order)), order)


def permuted_back(x: Tensor, order: Sequence[int]) -> Tensor:
    """Return a packed tensor that covers memory of its own as that whose axes it has in another order."""
    tensor = x.transpose([order.index(axis) for axis in range(len(order))])
    tensor.is_view = False
    return tensor


def covers_storage(x: torch.Tensor) -> bool:
    """Return whether a tensor has as many elements as its storage, from the first one on."""
    return not x.storage_offset() and x.numel() * x.element_size() == memory_of(x).size


def count_write(x: torch.Tensor) -> None:
    """Note that elements of a storage change."""
    memory = memory_of(x)
    memory.writes += 1
    memory.indices = None


def take_buffer(x: torch.Tensor, buffer: Any) -> None:
    """Let the storage of a tensor that covers it take another buffer, which no other storage has."""
    count_write(x)
    memory = memory_of(x)
    memory.buffer, memory.tensor = buffer, None
    buffer.is_owned = True


def write(x: torch.Tensor, result: Tensor) -> None:
    """Write a result, of the shape of a torch tensor, into its memory; complex numbers as pairs.

    If the tensor covers its storage, the storage takes the memory of the result; else elements are written by its
    strides. Elements of another dtype are converted, but for those of booleans and complex numbers.
    """
    if x.dtype in PARTS:
        if x.is_conj():
            parts = Complex.of_pairs(result)
            x, result = x.conj(), Complex(parts.real, -parts.imag).pairs()
        x = torch.view_as_real(x)
        result = result.plain() if isinstance(result, ComplexPairs) else result
    elif x.is_neg():
        x, result = neg_view(x), -result
    memory, count = memory_of(x), result.size
    if not count:
        return
    count_write(x)
    if covers_storage(x):
        if result.data_type is not data_type_of(x.dtype)[0]:
            result = cast(result, x.dtype)
        if x.is_contiguous():
            memory.replace(unowned(result) if result.signature[2] is None else packed_copy(result))
            return
        if is_dense(x.shape, x.stride()):
            memory.replace(in_order(result, axes_in_memory(x.shape, x.stride())))
            return
    target = tensor_of(x)
    if result.buffer is memory.buffer:
        result = packed_copy(result)  # before the memory that it reads is written
    if behind_binding(target) or _may_overlap(target):
        target, result = _widened(target, cast(result, x.dtype))
    _write_strided(target, result)


def _may_overlap(x: Tensor) -> bool:
    """Return whether elements may overlap, because a stride is smaller than the extent of the inner ones."""
    inner = 1
    for stride, size in sorted(zip(x.strides, x.sizes, strict=True)):
        if size > 1:
            if stride < inner:
                return True
            inner = stride * (size - 1) + inner
    return False


def _widened(target: Tensor, result: Tensor) -> tuple[Tensor, Tensor]:
    """Return a range from the last possible binding offset before a view, and its elements after the write."""
    before = behind_binding(target)
    count = before + span(target.sizes, target.strides)
    cover = target._view((count,), (1,), -before)
    flat = result.reshape(-1)
    if before and target.signature[2] is None:
        parts = [cover._view((before,), (1,)), flat]
        return cover, cover._operator("copy_", descs.Join, input_tensors=parts, axis=0)
    places = _places(target, before)
    values: dict[str, Any] = {"input_tensor": cover, "indices_tensor": places, "updates_tensor": flat, "axis": 0}
    return cover, cover._operator("copy_", descs.ScatterElements, **values)


_PLACES: Cache[Any, Tensor] = Cache(CacheLimits(256, 64 << 20))


def _places(target: Tensor, before: int) -> Tensor:
    """Return the index of every element of a view, from the last possible binding offset on."""
    key = target.device, target.sizes, target.strides, before

    def make() -> Tensor:
        index = np.full(target.sizes, before, np.int32)
        for axis, (size, stride) in enumerate(zip(target.sizes, target.strides, strict=True)):
            steps = np.arange(size, dtype=np.int32) * stride
            index += steps.reshape(-1, *(1,) * (len(target.sizes) - axis - 1))
        return Tensor(index.reshape(-1), device=target.device)

    return _PLACES.get_or_make(key, make, lambda tensor: 4 * tensor.size)


def _write_strided(target: Tensor, result: Tensor) -> None:
    """Run a copy, or a conversion, whose output is a view of memory that begins at a possible binding offset."""
    device: Device = target.device
    session = session_of(device)
    if result.offset and behind_binding(result):
        result = packed_copy(result)
    key = "strided write", result.signature, target.signature
    call = session.calls.get(key)
    if call is None:
        read, written = TensorDesc(*result.signature), TensorDesc(*target.signature)
        copy = descs.ElementWiseIdentity if result.data_type is target.data_type else descs.Cast
        operator = device.create_operator(copy(input_tensor=read, output_tensor=written))
        call = session.prepare(device.compile_operator(operator, preserve_padding=True), clears=False)
        call = session.calls.put(key, call, call.memory)
    source, destination = ((x.buffer._memory, x.offset * x.data_type.bits // 8) for x in (result, target))
    call.run(session, device, [source], "copy_", owners=[result.buffer], in_place={0: destination})
