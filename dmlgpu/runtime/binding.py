"""Bindings and binding tables (DirectML: DML_BUFFER_BINDING, IDMLBindingTable)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dmlgpu.catalog.tensor_desc import PERSISTENT_ALIGNMENT, TEMPORARY_ALIGNMENT, TENSOR_ALIGNMENT
from dmlgpu.common.errors import BindingError, InvalidArgument, InvalidState
from dmlgpu.runtime.buffer import Buffer, Ranges, check_range, natural
from dmlgpu.runtime.child import DeviceChild, as_tuple, expect_child
from dmlgpu.runtime.executor import Range
from dmlgpu.runtime.operator import CompiledOperator, Dispatchable, OperatorInitializer, TensorPort, with_absent
from dmlgpu.runtime.recording import Bindings

if TYPE_CHECKING:
    from dmlgpu.runtime.device import Device
    from dmlgpu.runtime.state import DeviceState


@dataclass(frozen=True)
class BufferBinding:
    """A byte range of a buffer (DirectML: DML_BUFFER_BINDING).

    Attributes:
        buffer: The buffer; None binds nothing.
        offset: First byte; a multiple of 16 for tensors, of 256 for temporary and persistent resources. Defaults to 0.
        size: Bytes; None (the default) extends to the end of the buffer.
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
    """One binding per input of an operator, for its initialization (DirectML: DML_BUFFER_ARRAY_BINDING).

    Attributes:
        bindings: Ranges of the inputs flagged OWNED_BY_DML, None for all others.
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
"""A resource or None; a bare buffer stands for all its bytes."""


def input_ranges(dispatchable: Dispatchable, bindings: tuple[object, ...]) -> Ranges:
    """Return the range of each input passed to ``BindingTable.bind_inputs``, for all operators of an initializer.

    Raises:
        BindingError, InvalidArgument, InvalidState: As ``BindingTable.bind_inputs``.
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
    """Return the range of each output passed to ``BindingTable.bind_outputs``. Outputs of an initializer are persistent
    resources.

    Raises:
        BindingError, InvalidArgument, InvalidState: As ``BindingTable.bind_inputs``.
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
    """Return the range of a temporary or persistent resource of `size` bytes, or None if nothing is bound.

    Raises:
        BindingError, InvalidArgument, InvalidState: As ``BindingTable.bind_inputs``.
    """
    caller = dispatchable.description
    bound = _resolve(dispatchable, caller, label, binding, "" if size else "its size is 0")
    if bound is None:
        return None
    _check_offset(caller, label, bound, alignment)
    if bound.size < size:
        raise BindingError(f"{caller}: {label} takes at least {size} bytes, got a range of {bound.size}")
    return Range(bound.buffer, bound.offset, size)


def _tensors(
    compiled: CompiledOperator, method: str, ports: tuple[TensorPort, ...], bindings: tuple[object, ...]
) -> Ranges:
    caller = compiled.description
    bindings = with_absent(bindings, ports)
    if len(bindings) != len(ports):
        names = ", ".join(port.label for port in ports)
        raise BindingError(f"{caller}: {method} takes {_count(len(ports))} ({names}), got {len(bindings)}")
    return tuple(
        _tensor(compiled, caller, port, binding, _why_not_at_execution(port))
        for port, binding in zip(ports, bindings, strict=True)
    )


def _why_not_at_execution(port: TensorPort) -> str:
    if port.desc is None:
        return "the description omits this tensor"
    return "OWNED_BY_DML tensors are bound at initialization" if port.owned else ""


def _owned_tensors(caller: str, compiled: CompiledOperator, array: object) -> Ranges:
    """Return the ranges of the inputs of one operator of an initializer."""
    if array is not None and not isinstance(array, BufferArrayBinding):
        raise InvalidArgument(f"{caller}: expected a BufferArrayBinding or None, got {type(array).__name__}")
    if array is None or not array.bindings:
        # Nothing at all unbinds; a table that is only partly bound is rejected when it is recorded.
        return (None,) * len(compiled.inputs)
    if len(array.bindings) != len(compiled.inputs):
        expected = _count(len(compiled.inputs), "entry")
        raise BindingError(f"{caller}: the array takes {expected}, one per input, got {len(array.bindings)}")
    why_not = "only OWNED_BY_DML tensors are bound at initialization"
    return tuple(
        _tensor(compiled, caller, port, binding, "" if port.owned else why_not)
        for port, binding in zip(compiled.inputs, array.bindings, strict=True)
    )


def _tensor(
    compiled: CompiledOperator, caller: str, port: TensorPort, bindable: object, why_not: str
) -> Range[Buffer] | None:
    """Return the checked range of a tensor; None for a tensor that takes no binding."""
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
    """Return the range of a binding, checked against its buffer; with `why_not`, every range is rejected."""
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


Resolve: TypeAlias = Callable[[Dispatchable, tuple[object, ...]], object]
"""A function that checks bindings for a dispatchable and returns their ranges."""

_COMPARED = (BufferBinding, BufferArrayBinding)
_NEVER = (None, -1)


class BindingTable(DeviceChild):
    """Binds resources to one dispatchable (DirectML: IDMLBindingTable). Not thread-safe.

    All resources must be bound before the dispatch is recorded. Operators compiled with DESCRIPTORS_VOLATILE may be
    bound until the command list is executed.
    """

    _kind = "binding table"

    def __init__(self, device: Device, state: DeviceState, dispatchable: Dispatchable | None):
        super().__init__(device, state)
        self._bindings: Bindings | None = None
        self.reset(dispatchable)

    @property
    def dispatchable(self) -> Dispatchable | None:
        """The dispatchable of the table; None for an empty table."""
        return None if self._bindings is None else self._bindings.dispatchable

    def reset(self, dispatchable: Dispatchable | None = None) -> None:
        """Unbind everything and bind for another dispatchable; None empties the table (IDMLBindingTable::Reset).

        Dispatches recorded before keep their bindings.
        """
        self._state.check()
        if dispatchable is None:
            self._bindings = None
            return
        cls = OperatorInitializer if isinstance(dispatchable, OperatorInitializer) else CompiledOperator
        expect_child(self.description, "dispatchable", dispatchable, cls, self._state)
        self._bindings = Bindings(dispatchable, getattr(dispatchable, "operators", None))

    def bind_inputs(self, bindings: Sequence[Bindable | BufferArrayBinding] | None) -> None:
        """Bind the inputs; None unbinds them (IDMLBindingTable::BindInputs).

        Args:
            bindings: For a compiled operator, one binding per input in the order of DirectML's struct: None for inputs
                flagged OWNED_BY_DML and for absent optional tensors, which may be omitted at the end. For an
                initializer, one BufferArrayBinding per operator, None for operators without owned tensors.

        Raises:
            BindingError: If a binding is missing, superfluous, too small, misaligned or outside its buffer.
            InvalidArgument: If a buffer belongs to another device, or an entry is not a binding.
            InvalidState: If a buffer is released, or the table is empty.
        """
        self._bind("inputs", bindings, lambda target, bound: input_ranges(target, bound) if bound else None)

    def bind_outputs(self, bindings: Sequence[Bindable] | None) -> None:
        """Bind the outputs; None unbinds them (IDMLBindingTable::BindOutputs).

        Args:
            bindings: For a compiled operator, one binding per output, None for absent optional tensors, which may be
                omitted at the end. For an initializer, the persistent resource of each operator, None for operators
                without one.

        Raises:
            BindingError, InvalidArgument, InvalidState: As ``bind_inputs``.
        """
        self._bind("outputs", bindings, lambda target, bound: output_ranges(target, bound) if bound else None)

    def bind_temporary_resource(self, binding: Bindable) -> None:
        """Bind scratch memory, required if its size is not 0 (IDMLBindingTable::BindTemporaryResource).

        Raises:
            BindingError, InvalidArgument, InvalidState: As ``bind_inputs``.
        """
        self._bind_resource("temporary", binding, TEMPORARY_ALIGNMENT)

    def bind_persistent_resource(self, binding: Bindable) -> None:
        """Bind the resource filled by initialization, required if its size is not 0
        (IDMLBindingTable::BindPersistentResource).

        Raises:
            BindingError, InvalidArgument, InvalidState: As ``bind_inputs``.
        """
        self._bind_resource("persistent", binding, PERSISTENT_ALIGNMENT)

    def _bind_resource(self, what: str, binding: Bindable, alignment: int) -> None:
        def resolve(target: Dispatchable, bound: tuple[object, ...]) -> object:
            size = getattr(target.binding_properties, f"{what}_resource_size")
            return resource_range(target, f"the {what} resource", bound[0], size, alignment)

        self._bind(what, (binding,), resolve)

    def _bind(self, what: str, bindings: Sequence[object] | None, resolve: Resolve) -> None:
        """Bind inputs, outputs, the temporary or the persistent resource, unless the binding is unchanged."""
        self._state.check()
        target = self._bindings
        if target is None:
            raise InvalidState(f"{self.description}: an empty table binds nothing; reset it to a dispatchable first")
        target.check_operators()
        if not isinstance(bindings, tuple):
            bindings = () if bindings is None else as_tuple(f"bind_{what}", "bindings", bindings, "bindings")
        epoch = self._state.release_epoch
        known, checked_epoch = target.checked.get(what, _NEVER)
        unchanged = _are_equal(known, bindings)
        if unchanged and checked_epoch == epoch:
            return
        # The same buffers may have been released since they were bound.
        setattr(target, what, resolve(target.dispatchable, bindings))
        target.checked[what] = bindings, epoch
        if not unchanged:
            target.cached = None


def _are_equal(old: tuple[object, ...] | None, new: tuple[object, ...]) -> bool:
    """Return whether two bindings are equal. Foreign objects, whose == is arbitrary, are not compared."""
    return (
        old is not None
        and len(old) == len(new)
        and all(
            before is now or (type(before) is type(now) and type(before) in _COMPARED and before == now)
            for before, now in zip(old, new, strict=True)
        )
    )
