"""What callers bind, checked (DirectML: the binding descriptions, and the rules of IDMLBindingTable)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dmlgpu.catalog.tensor_desc import PERSISTENT_ALIGNMENT, TENSOR_ALIGNMENT
from dmlgpu.common.errors import BindingError, InvalidArgument
from dmlgpu.runtime.buffer import Buffer, check_range, natural
from dmlgpu.runtime.child import as_tuple, expect_child
from dmlgpu.runtime.executor import Range
from dmlgpu.runtime.operator import CompiledOperator, Dispatchable, Port, with_absent


@dataclass(frozen=True)
class BufferBinding:
    """A byte range of a buffer (DirectML: DML_BUFFER_BINDING).

    Attributes:
        buffer: the buffer; None binds nothing.
        offset: first byte; a multiple of 16 for tensors, of 256 for temporary and persistent resources.
        size: bytes; None means up to the buffer's end.
    """

    buffer: Buffer | None
    offset: int = 0
    size: int | None = None

    def __post_init__(self) -> None:
        if self.buffer is not None and not isinstance(self.buffer, Buffer):
            raise InvalidArgument(f"BufferBinding: buffer must be a Buffer or None, got {type(self.buffer).__name__}")
        for name in ("offset",) if self.size is None else ("offset", "size"):
            value = getattr(self, name)
            number = natural("BufferBinding", name, value)
            if number is not value:
                object.__setattr__(self, name, number)


@dataclass(frozen=True)
class BufferArrayBinding:
    """One binding per input of an operator, for its initialisation (DirectML: DML_BUFFER_ARRAY_BINDING).

    Attributes:
        bindings: ranges for the inputs flagged OWNED_BY_DML, None for all others.
    """

    bindings: Sequence[BufferBinding | Buffer | None] = ()

    def __post_init__(self) -> None:
        bindings = as_tuple("BufferArrayBinding", "bindings", self.bindings, "bindings")
        for index, binding in enumerate(bindings):
            if binding is not None and not isinstance(binding, BufferBinding | Buffer):
                raise InvalidArgument(
                    f"BufferArrayBinding: bindings[{index}] must be a BufferBinding, a Buffer or None, "
                    f"got {type(binding).__name__}"
                )
        object.__setattr__(self, "bindings", bindings)


Bindable: TypeAlias = BufferBinding | Buffer | None
"""One resource or none; a bare buffer means the whole of it."""


Ranges: TypeAlias = tuple[Range[Buffer] | None, ...]


def input_ranges(dispatchable: Dispatchable, bindings: tuple[object, ...]) -> Ranges:
    """Return the bytes of each input that ``BindingTable.bind_inputs`` is given, for all operators of an initializer.

    Raises:
        BindingError, InvalidArgument, InvalidState: as ``BindingTable.bind_inputs``.
    """
    if isinstance(dispatchable, CompiledOperator):
        return _tensors(dispatchable, "bind_inputs", dispatchable.inputs, bindings)
    operators, caller = dispatchable.operators, dispatchable.description
    if len(bindings) != len(operators):
        raise BindingError(
            f"{caller}: bind_inputs takes {_count(len(operators), 'array')}, one per operator, got {len(bindings)}"
        )
    return tuple(
        bound
        for index, (compiled, array) in enumerate(zip(operators, bindings, strict=True))
        for bound in _owned_tensors(f"{caller}, operators[{index}] {compiled.description}", compiled, array)
    )


def output_ranges(dispatchable: Dispatchable, bindings: tuple[object, ...]) -> Ranges:
    """Return the bytes of each output that ``BindingTable.bind_outputs`` is given: an initializer's are persistent.

    Raises:
        BindingError, InvalidArgument, InvalidState: as ``BindingTable.bind_inputs``.
    """
    if isinstance(dispatchable, CompiledOperator):
        return _tensors(dispatchable, "bind_outputs", dispatchable.outputs, bindings)
    operators = dispatchable.operators
    if len(bindings) != len(operators):
        raise BindingError(
            f"{dispatchable.description}: bind_outputs takes {_count(len(operators))}, "
            f"the persistent resource of each operator, got {len(bindings)}"
        )
    return tuple(
        resource_range(
            dispatchable,
            f"the persistent resource of operators[{index}] {compiled.description}",
            binding,
            compiled._properties.persistent_resource_size,
            PERSISTENT_ALIGNMENT,
        )
        for index, (compiled, binding) in enumerate(zip(operators, bindings, strict=True))
    )


def resource_range(
    dispatchable: Dispatchable, label: str, binding: object, size: int, alignment: int
) -> Range[Buffer] | None:
    """Return the ``size`` bytes of a temporary or persistent resource, or None where nothing is bound.

    Raises:
        BindingError, InvalidArgument, InvalidState: as ``BindingTable.bind_inputs``.
    """
    caller = dispatchable.description
    bound = _resolve(dispatchable, caller, label, binding, "" if size else "its size is 0")
    if bound is None:
        return None
    _check_offset(caller, label, bound, alignment)
    if bound.size < size:
        raise BindingError(f"{caller}: {label} takes at least {size} bytes, got a range of {bound.size}")
    return Range(bound.buffer, bound.offset, size)


def _tensors(compiled: CompiledOperator, method: str, ports: tuple[Port, ...], bindings: tuple[object, ...]) -> Ranges:
    caller = compiled.description
    bindings = with_absent(bindings, ports)
    if len(bindings) != len(ports):
        names = ", ".join(port.label for port in ports)
        raise BindingError(f"{caller}: {method} takes {_count(len(ports))} ({names}), got {len(bindings)}")
    return tuple(
        _tensor(compiled, caller, port, binding, _why_not_at_execution(port))
        for port, binding in zip(ports, bindings, strict=True)
    )


def _why_not_at_execution(port: Port) -> str:
    if port.desc is None:
        return "the description leaves this tensor out"
    return "OWNED_BY_DML tensors are bound at initialisation" if port.owned else ""


def _owned_tensors(caller: str, compiled: CompiledOperator, array: object) -> Ranges:
    """Return the bytes of the inputs of one operator of an initializer."""
    if array is not None and not isinstance(array, BufferArrayBinding):
        raise InvalidArgument(f"{caller}: expected a BufferArrayBinding or None, got {type(array).__name__}")
    if array is None or not array.bindings:
        # Nothing at all unbinds; a table that is only partly bound is refused when it is recorded.
        return (None,) * len(compiled.inputs)
    if len(array.bindings) != len(compiled.inputs):
        expected = _count(len(compiled.inputs), "entry")
        raise BindingError(f"{caller}: the array takes {expected}, one per input, got {len(array.bindings)}")
    why_not = "only OWNED_BY_DML tensors are bound at initialisation"
    return tuple(
        _tensor(compiled, caller, port, binding, "" if port.owned else why_not)
        for port, binding in zip(compiled.inputs, array.bindings, strict=True)
    )


def _tensor(
    compiled: CompiledOperator, caller: str, port: Port, bindable: object, why_not: str
) -> Range[Buffer] | None:
    """Return the bytes of a tensor: present, aligned, large enough; None for one that takes no binding."""
    bound = _resolve(compiled, caller, port.label, bindable, why_not)
    if why_not:
        return None
    desc = port.desc
    assert desc is not None
    if bound is None:
        raise BindingError(f"{caller}: {port.label} needs a binding of {desc.byte_size} bytes, got None")
    _check_offset(caller, port.label, bound, TENSOR_ALIGNMENT)
    if promised := desc.guaranteed_base_offset_alignment:
        alignment = math.lcm(promised, TENSOR_ALIGNMENT)
        _check_offset(caller, port.label, bound, alignment, " (its guaranteed_base_offset_alignment)")
    if bound.size < desc.byte_size:
        raise BindingError(
            f"{caller}: {port.label} takes at least {desc.byte_size} bytes (total_tensor_size_in_bytes), "
            f"got a range of {bound.size}"
        )
    return Range(bound.buffer, bound.offset, desc.byte_size)


def _resolve(
    dispatchable: Dispatchable, caller: str, label: str, bindable: object, why_not: str
) -> Range[Buffer] | None:
    """Return the range that a binding names, checked against its buffer alone; ``why_not`` refuses every range."""
    binding = BufferBinding(bindable) if isinstance(bindable, Buffer) else bindable
    if binding is None or (isinstance(binding, BufferBinding) and binding.buffer is None):
        return None
    if not isinstance(binding, BufferBinding):
        raise InvalidArgument(
            f"{caller}: {label} takes a BufferBinding, a Buffer or None, got {type(bindable).__name__}"
        )
    buffer = binding.buffer
    expect_child(caller, f"the buffer of {label}", buffer, Buffer, dispatchable._state)
    assert buffer is not None
    buffer.check_usable(caller, f"the buffer of {label}")
    check_range(f"{caller}: {label}", buffer, binding.offset, 0 if binding.size is None else binding.size)
    if why_not:
        raise BindingError(f"{caller}: {label} takes no binding, got {buffer.description}; {why_not}")
    return Range(buffer, binding.offset, buffer.size - binding.offset if binding.size is None else binding.size)


def _check_offset(caller: str, label: str, bound: Range[Buffer], alignment: int, why: str = "") -> None:
    if bound.offset % alignment:
        raise BindingError(f"{caller}: {label} needs an offset of a multiple of {alignment}{why}, got {bound.offset}")


def _count(number: int, what: str = "binding") -> str:
    plural = what[:-1] + "ies" if what.endswith("y") else what + "s"
    return f"{number} {what if number == 1 else plural}"
