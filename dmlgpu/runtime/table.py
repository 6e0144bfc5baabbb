"""What one dispatchable reads and writes (DirectML: IDMLBindingTable)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from dmlgpu.catalog.tensor_desc import PERSISTENT_ALIGNMENT, TEMPORARY_ALIGNMENT
from dmlgpu.common.errors import InvalidState
from dmlgpu.runtime.binding import (
    Bindable,
    BufferArrayBinding,
    BufferBinding,
    input_ranges,
    output_ranges,
    resource_range,
)
from dmlgpu.runtime.child import DeviceChild, as_tuple, expect_child
from dmlgpu.runtime.operator import CompiledOperator, Dispatchable, OperatorInitializer
from dmlgpu.runtime.recording import Bindings

if TYPE_CHECKING:
    from dmlgpu.runtime.device import Device
    from dmlgpu.runtime.state import DeviceState


Resolve: TypeAlias = Callable[[Dispatchable, tuple[object, ...]], object]
"""Checks what is handed over for a dispatchable and returns the ranges."""

_COMPARED = (BufferBinding, BufferArrayBinding)
_NEVER = (None, -1)


class BindingTable(DeviceChild):
    """Binds resources to one dispatchable (DirectML: IDMLBindingTable). Not thread-safe.

    Whatever a dispatch needs is bound before it is recorded; operators compiled with DESCRIPTORS_VOLATILE may be bound
    until the command list is executed.
    """

    _kind = "binding table"

    def __init__(self, device: Device, state: DeviceState, dispatchable: Dispatchable | None):
        super().__init__(device, state)
        self._bindings: Bindings | None = None
        self.reset(dispatchable)

    @property
    def dispatchable(self) -> Dispatchable | None:
        """What the table binds for; None for an empty table."""
        return None if self._bindings is None else self._bindings.dispatchable

    def reset(self, dispatchable: Dispatchable | None = None) -> None:
        """Unbind everything and bind for another dispatchable; None makes an empty table (IDMLBindingTable::Reset).

        Dispatches that are already recorded keep their bindings.
        """
        self._state.check()
        if dispatchable is None:
            self._bindings = None
            return
        kind = OperatorInitializer if isinstance(dispatchable, OperatorInitializer) else CompiledOperator
        expect_child(self.description, "dispatchable", dispatchable, kind, self._state)
        self._bindings = Bindings(dispatchable, getattr(dispatchable, "operators", None))

    def bind_inputs(self, bindings: Sequence[Bindable | BufferArrayBinding] | None) -> None:
        """Bind the inputs; None or nothing unbinds them (IDMLBindingTable::BindInputs).

        Args:
            bindings: for a compiled operator, one per input in struct order: None for those flagged OWNED_BY_DML and
                for absent optional tensors, which may be left out at the end. For an initializer, one
                BufferArrayBinding per operator, None for operators without owned tensors.

        Raises:
            BindingError: missing, superfluous, too small, unaligned, or outside its buffer.
            InvalidArgument: another device's buffer, or no binding at all.
            InvalidState: a released buffer, or an empty table.
        """
        self._bind("inputs", bindings, lambda target, bound: input_ranges(target, bound) if bound else None)

    def bind_outputs(self, bindings: Sequence[Bindable] | None) -> None:
        """Bind the outputs; None or nothing unbinds them (IDMLBindingTable::BindOutputs).

        Args:
            bindings: for a compiled operator, one per output, None for absent optional tensors, which may be left out
                at the end. For an initializer, the persistent resource of each operator, None where it needs none.

        Raises:
            BindingError, InvalidArgument, InvalidState: as ``bind_inputs``.
        """
        self._bind("outputs", bindings, lambda target, bound: output_ranges(target, bound) if bound else None)

    def bind_temporary_resource(self, binding: Bindable) -> None:
        """Bind scratch memory, required where its size is not 0 (IDMLBindingTable::BindTemporaryResource).

        Raises:
            BindingError, InvalidArgument, InvalidState: as ``bind_inputs``.
        """
        self._bind_resource("temporary", binding, TEMPORARY_ALIGNMENT)

    def bind_persistent_resource(self, binding: Bindable) -> None:
        """Bind what initialisation filled, required where its size is not 0 (IDMLBindingTable::BindPersistentResource).

        Raises:
            BindingError, InvalidArgument, InvalidState: as ``bind_inputs``.
        """
        self._bind_resource("persistent", binding, PERSISTENT_ALIGNMENT)

    def _bind_resource(self, what: str, binding: Bindable, alignment: int) -> None:
        def resolve(target: Dispatchable, bound: tuple[object, ...]) -> object:
            size = getattr(target.binding_properties, f"{what}_resource_size")
            return resource_range(target, f"the {what} resource", bound[0], size, alignment)

        self._bind(what, (binding,), resolve)

    def _bind(self, what: str, bindings: Sequence[object] | None, resolve: Resolve) -> None:
        """Bind inputs, outputs, the temporary or the persistent resource, unless the same is bound already."""
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
    """Return whether two bindings are the same; foreign objects, whose == may do anything, are not compared."""
    return (
        old is not None
        and len(old) == len(new)
        and all(
            before is now or (type(before) is type(now) and type(before) in _COMPARED and before == now)
            for before, now in zip(old, new, strict=True)
        )
    )
