"""Empty tensors, copies between devices, and numbers on the host."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from dmlgpu import ops
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.frontends.torch import adapters, storage
from dmlgpu.frontends.torch.calls import CallArguments, function_ids, repeated, repeated_in_torch
from dmlgpu.frontends.torch.complex_numbers import Complex, ComplexPairs, in_memory
from dmlgpu.frontends.torch.dispatch import (
    CALLERS,
    check_writable,
    error_of_torch,
    in_place,
    recovered,
    stand_in_sizes,
    translated,
)
from dmlgpu.frontends.torch.dtypes import PARTS, cast, data_type_of, is_representable, number_as
from dmlgpu.frontends.torch.indices import elements_of, remember
from dmlgpu.frontends.torch.layouts import TorchLayout
from dmlgpu.frontends.torch.storage import PendingNumber, operand_of, packed_copy, tensor_of, unowned
from dmlgpu.tensors.layout import broadcast_strides
from dmlgpu.tensors.tensor import Tensor


def empty(
    size: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """Return a tensor with uninitialized elements."""
    sizes = tuple(size)
    if memory_format in {None, torch.contiguous_format}:
        strides, stride = [0] * len(sizes), 1
        for axis in range(len(sizes) - 1, -1, -1):
            strides[axis] = stride
            stride *= max(sizes[axis], 1)
    else:
        strides = list(torch.empty(sizes, device="meta", memory_format=memory_format).stride())
    return empty_strided(sizes, strides, dtype=dtype, layout=layout, device=device)


def empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """Return a tensor with uninitialized elements and these strides."""
    if layout not in {None, torch.strided}:
        raise NotImplementedError(f"the dml device has strided tensors only, got layout {layout}")
    kind = torch.get_default_dtype() if dtype is None else dtype
    try:
        return storage.empty_strided(adapters.chosen_index(device), kind, tuple(size), tuple(stride))
    except Exception as error:
        raise translated(error, "empty_strided", (size, stride), {"dtype": dtype}) from None


def full(
    size: Any,
    value: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """Return a tensor filled with a number."""
    kind = _dtype_of_number(value) if dtype is None else dtype
    if kind is torch.float64 or kind.is_complex or type(value) is complex or layout not in {None, torch.strided}:
        return empty(size, dtype=kind, layout=layout, device=device).fill_(value)
    index, sizes = adapters.chosen_index(device), tuple(size)
    number = _element("full", stand_in_sizes(sizes), value, dtype=kind)
    try:
        arguments = CallArguments(_FULL, (sizes, number, kind), {}, index)
        result: torch.Tensor = repeated_in_torch(arguments, "full", lambda: _full(sizes, number, kind, index))
    except Exception as error:
        raise translated(error, "full", (size, value), {"dtype": dtype}) from None
    return result


def _element(name: str, *args: Any, dtype: torch.dtype) -> Any:
    """Return a number, the last argument of an operator, as an element of a dtype.

    Raises:
        RuntimeError: If it is out of range, and the operator of PyTorch's CPU rejects it.
    """
    if not is_representable(args[-1], dtype):
        rejection = error_of_torch(name, args, {"dtype": dtype})
        if rejection is not None:
            raise rejection
        return torch.scalar_tensor(args[-1], dtype=dtype).item()
    return number_as(args[-1], dtype)


def _dtype_of_number(value: Any) -> torch.dtype:
    if type(value) is complex:
        return torch.tensor(value).dtype
    return {bool: torch.bool, int: torch.int64}.get(type(value)) or torch.get_default_dtype()


def _full(sizes: tuple[int, ...], number: Any, dtype: torch.dtype, index: int) -> tuple[Tensor, int]:
    data_type, is_boolean = data_type_of(dtype)
    return ops.full(sizes, number, dtype=bool if is_boolean else data_type, device=adapters.device_of(index)), index


def zeros(size: Any, *, dtype: torch.dtype | None = None, **kwargs: Any) -> torch.Tensor:
    """Return a tensor of zeros."""
    return full(size, 0, dtype=dtype or torch.get_default_dtype(), **kwargs)


def ones(size: Any, *, dtype: torch.dtype | None = None, **kwargs: Any) -> torch.Tensor:
    """Return a tensor of ones."""
    return full(size, 1, dtype=dtype or torch.get_default_dtype(), **kwargs)


def scalar_tensor(
    value: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """Return a tensor of one number and no dimensions, which is written when it is used: ``x[i] = 1.0`` makes one and
    copies it, which fills elements."""
    kind = torch.get_default_dtype() if dtype is None else dtype
    if kind is torch.float64 or kind.is_complex or type(value) is complex or layout not in {None, torch.strided}:
        return full((), value, dtype=kind, layout=layout, device=device)
    data_type_of(kind)
    index, number = adapters.chosen_index(device), _element("scalar_tensor", value, dtype=kind)

    def make() -> Tensor:
        arguments = CallArguments(_FULL, ((), number, kind), {}, index)
        tensor: Tensor = repeated(arguments, "full", lambda: _full((), number, kind, index))[0]
        return tensor

    return _scalar_layout(index, kind).tensor(PendingNumber(number, kind, index, make))


@functools.cache  # bounded by the dtypes
def _scalar_layout(index: int, dtype: torch.dtype) -> TorchLayout:
    return TorchLayout(index, dtype, (), ())


def zeros_like(
    x: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """Return zeros of the dtype, shape and layout of a tensor, or of those that are given."""
    if dtype in {None, x.dtype} and _is_packed_here(x, layout, device, memory_format):
        zeros: torch.Tensor = CALLERS["zero"](x)
        return zeros
    return torch.empty_like(x, dtype=dtype, layout=layout, device=device, memory_format=memory_format).zero_()


def full_like(
    x: torch.Tensor,
    value: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """Return a tensor filled with a number, of the dtype, shape and layout of another, or of those that are given."""
    if dtype in {None, x.dtype} and type(value) is not complex and _is_packed_here(x, layout, device, memory_format):
        filled: torch.Tensor = CALLERS["fill.Scalar"](x, value)
        return filled
    return torch.empty_like(x, dtype=dtype, layout=layout, device=device, memory_format=memory_format).fill_(value)


def _is_packed_here(
    x: torch.Tensor, layout: Any, device: torch.device | None, memory_format: torch.memory_format | None
) -> bool:
    """Return whether a tensor like another is packed, and on its device, as that is; fake tensors have no memory."""
    is_plain = memory_format in {None, torch.preserve_format, torch.contiguous_format} and x.is_contiguous()
    is_here = device in {None, x.device} and hasattr(x.untyped_storage(), "memory")
    return is_plain and is_here and layout in {None, torch.strided}


def copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy elements to, from or on the device; ``target`` is changed and returned."""
    try:
        if target.device.type != "dml":
            target.copy_(storage.on_host(source))
            return target
        if source.device.type == "dml" and source.device.index == target.device.index:
            if source is target:
                return target
            number = storage.pending_number(source) if source.dtype is target.dtype and not source.is_neg() else None
            if number is not None:
                return fill(target, number)
            elements = elements_of(source)
            is_plain = source.shape == target.shape and target.is_contiguous() and storage.covers_storage(target)
            if is_plain and target.dtype not in PARTS:
                arguments = CallArguments(_PACKED, (source, target.dtype), {})
                value, _ = repeated(arguments, "copy_", lambda: (_packed(source, target.dtype), target.device.index))
                _write(target, value)
            elif storage.covers_storage(target):
                _write(target, operand_of(source))
            else:
                arguments = CallArguments(_INTO, (target, source), {})
                repeated(arguments, "copy_", lambda: (_write(target, operand_of(source)), target.device.index))
                storage.count_write(target)
        else:
            host = (storage.on_host(source) if source.device.type == "dml" else source.detach()).to(target.dtype)
            elements = elements_of(host)
            _write(target, storage.on_device(host, target.device.index))
        remember(target, elements)
    except Exception as error:
        raise translated(error, "copy_", (target, source), {}) from None
    return target


def fill(target: torch.Tensor, value: Any) -> torch.Tensor:
    """Fill a tensor with a number, a view by one kernel: from PyTorch 2.15 on, ``x[i] = 1.0`` calls this."""
    args, dtype = (target, value), target.dtype
    is_plain = dtype is not torch.float64 and dtype not in PARTS and type(value) is not complex
    try:
        if storage.covers_storage(target) or not is_plain or not is_representable(value, dtype):
            CALLERS["fill.Scalar"].compute_in_place(args, {})
        else:
            _fill_view(target, number_as(value, dtype))
    except Exception as error:
        result: torch.Tensor = recovered(error, "fill_.Scalar", args, {})
        return result
    return target


def fill_with(target: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Fill a tensor with the element of a scalar tensor."""
    if value.device.type == "cpu" and not value.dim():
        return fill(target, value.item())
    filled: torch.Tensor = in_place(CALLERS["fill.Tensor"], "fill_.Tensor")(target, value)
    return filled


def zero(target: torch.Tensor) -> torch.Tensor:
    """Fill a tensor with zeros."""
    return fill(target, 0)


def _fill_view(target: torch.Tensor, number: Any) -> None:
    """Fill a tensor with an element of its dtype, by one kernel."""
    index = target.device.index

    def compute() -> tuple[tuple[()], int]:
        data_type, is_boolean = data_type_of(target.dtype)
        kind = bool if is_boolean else data_type
        return _write(target, Tensor(number, kind, device=adapters.device_of(index))), index

    repeated(CallArguments(_FILLED, (target, number), {}), "fill_", compute)
    storage.count_write(target)


def _write(target: torch.Tensor, value: Any) -> tuple[()]:
    """Write elements into a tensor whose shape they broadcast to, in its dtype."""
    if isinstance(value, Complex) or target.dtype.is_complex or target.dtype is torch.bool or target.is_neg():
        value = cast(value, target.dtype)
    if value.sizes != target.shape:
        shape = tuple(target.shape)
        value = value.each(lambda x: _spread(x, shape)) if isinstance(value, Complex) else _spread(value, shape)
    check_writable(target)
    storage.write(target, in_memory(value))
    return ()


def _spread(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor as a view of a shape that it broadcasts to."""
    strides = broadcast_strides(x.sizes, x.strides, shape)
    if strides is None:
        raise InvalidArgument(f"copy_: {list(x.sizes)} does not broadcast to {list(shape)}")
    return x._view(shape, strides)


def to_copy(
    x: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """Return a copy of another dtype, on another device or with another memory format; nothing is pinned."""
    kind = x.dtype if dtype is None else dtype
    index = x.device.index
    is_here = device is None or (device.type == adapters.NAME and adapters.chosen_index(device) == index)
    is_plain = memory_format in {None, torch.preserve_format, torch.contiguous_format} and x.is_contiguous()
    try:
        if is_here and (is_plain or memory_format is torch.contiguous_format):
            result = _packed_in_torch(x, kind)
            remember(result, elements_of(x))
            return result
        is_kept = memory_format in {None, torch.preserve_format} and kind not in PARTS and x.dtype not in PARTS
        if is_here and is_kept and x.numel() and storage.is_dense(x.shape, x.stride()):
            arguments = CallArguments(_ORDERED, (x, kind), {})
            copied: torch.Tensor = repeated_in_torch(arguments, "copy", lambda: (_ordered(x, kind), index))
            return copied
        if is_plain and device is not None and device.type == "cpu":
            return storage.on_host(x).to(kind)
        if is_plain and device is not None and device.type == adapters.NAME and x.device.type == "cpu":
            host = x.detach().to(kind)
            place = adapters.chosen_index(device)
            result = storage.torch_of(in_memory(storage.on_device(host, place)), place)
            remember(result, elements_of(host))
            return result
    except Exception as error:
        raise translated(error, "_to_copy", (x,), {"dtype": dtype}) from None
    chosen = torch.preserve_format if memory_format is None else memory_format
    like = torch.empty_like(storage.meta_of(x), dtype=kind, memory_format=chosen)
    target = torch.empty_strided(like.shape, like.stride(), dtype=kind, device=x.device if device is None else device)
    return target.copy_(x)


def clone(x: torch.Tensor, *, memory_format: torch.memory_format | None = None) -> torch.Tensor:
    """Return a copy, whose elements lie in memory as those of the tensor unless a memory format is given."""
    return to_copy(x, memory_format=memory_format)


_PACKED, _ORDERED, _INTO, _FULL, _FILLED = (next(function_ids) for _ in range(5))


def _packed(x: torch.Tensor, dtype: torch.dtype) -> Tensor:
    """Return the elements of a tensor, converted to a dtype, packed in memory of their own."""
    value = in_memory(cast(operand_of(x), dtype))
    is_complex = isinstance(value, ComplexPairs)
    elements = unowned(value.plain() if is_complex else value)
    if elements.signature[2] is not None:
        elements = packed_copy(elements)
    return ComplexPairs.of(elements) if is_complex else elements


def _ordered(x: torch.Tensor, dtype: torch.dtype) -> Tensor:
    """Return elements, converted to a dtype, in memory of their own, with the axes in the same order."""
    order = storage.axes_in_memory(x.shape, x.stride())
    return storage.permuted_back(unowned(cast(tensor_of(x).transpose(order), dtype)), order)


def _packed_in_torch(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return ``_packed`` as a torch tensor."""
    arguments = CallArguments(_PACKED, (x, dtype), {})
    result: torch.Tensor = repeated_in_torch(arguments, "copy", lambda: (_packed(x, dtype), x.device.index))
    return result


def is_data_compatible(x: torch.Tensor, data: torch.Tensor) -> bool:
    """Return whether assigning ``x.data`` is allowed, as in ``Module.to``, which keeps its parameters."""
    return all(tensor.device.type in {"cpu", adapters.NAME} and tensor.layout is torch.strided for tensor in (x, data))


def copy_from_and_resize(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Copy elements into a tensor that takes the shape of the source."""
    if target.shape != source.shape:
        target.resize_(source.shape)
    return copy_from(source, target)


def local_scalar(x: torch.Tensor) -> Any:
    """Return the only element as a Python number."""
    try:
        return storage.on_host(x).item() if x.dtype in PARTS or x.is_neg() else tensor_of(x).item()
    except Exception as error:
        raise translated(error, "_local_scalar_dense", (x,), {}) from None


def record_stream(x: torch.Tensor, stream: torch.Stream) -> None:
    """Do nothing: memory is reused in the order of the only queue."""


KERNELS: dict[str, Callable[..., Any]] = {
    "empty.memory_format": empty,
    "empty_strided": empty_strided,
    "zeros": zeros,
    "ones": ones,
    "full": full,
    "scalar_tensor": scalar_tensor,
    "zeros_like": zeros_like,
    "full_like": full_like,
    "fill_.Scalar": fill,
    "fill_.Tensor": fill_with,
    "zero_": zero,
    "_to_copy": to_copy,
    "clone": clone,
    "_copy_from": copy_from,
    "_copy_from_and_resize": copy_from_and_resize,
    "_local_scalar_dense": local_scalar,
    "record_stream": record_stream,
    "_has_compatible_shallow_copy_type": is_data_compatible,
}
"""Kernels by name."""
