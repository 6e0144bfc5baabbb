"""Which buffers a dispatch reads and writes (DirectML: IDMLBindingTable and the binding descriptions)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from dmlgpu.backend import Dispatch, Range, Resources
from dmlgpu.device import hazards
from dmlgpu.device.buffer import Buffer, check_range, is_integer
from dmlgpu.device.child import DeviceChild, as_tuple, expect_child
from dmlgpu.device.hazards import Area
from dmlgpu.device.operator import CompiledOperator, Dispatchable, OperatorInitializer, PersistentRange, Port
from dmlgpu.errors import BindingError, InvalidArgument, InvalidState
from dmlgpu.tensor import PERSISTENT_ALIGNMENT, TEMPORARY_ALIGNMENT, TENSOR_ALIGNMENT, TensorDesc

if TYPE_CHECKING:
    from dmlgpu.device.device import Device
    from dmlgpu.device.state import DeviceState


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
        for name, value in (("offset", self.offset), ("size", 0 if self.size is None else self.size)):
            if not is_integer(value) or value < 0:
                raise InvalidArgument(f"BufferBinding: {name} must be an integer of at least 0, got {value!r}")


@dataclass(frozen=True)
class BufferArrayBinding:
    """One binding per input of an operator, for its initialisation (DirectML: DML_BUFFER_ARRAY_BINDING).

    Attributes:
        bindings: ranges for the inputs flagged OWNED_BY_DML, None for all others.
    """

    bindings: Sequence[BufferBinding | Buffer | None] = ()

    def __post_init__(self) -> None:
        bindings = as_tuple("BufferArrayBinding", "bindings", self.bindings, "bindings")
        object.__setattr__(self, "bindings", tuple(map(_as_binding, bindings)))


Bindable: TypeAlias = BufferBinding | Buffer | None
"""One resource or none; a bare buffer means the whole of it."""


def _as_binding(given: object) -> BufferBinding | None:
    """A BufferBinding for whatever stands for one."""
    if given is None or isinstance(given, BufferBinding):
        return given
    if isinstance(given, Buffer):
        return BufferBinding(given)
    raise InvalidArgument(f"a binding must be a BufferBinding, a Buffer or None, got {type(given).__name__}")


@dataclass(frozen=True)
class Bound:
    """A checked binding: ``size`` bytes of a buffer are used."""

    buffer: Buffer
    offset: int
    size: int

    def range(self) -> Range:
        """As the executor takes it."""
        return Range(self.buffer._memory, self.offset, self.size)

    def area(self, label: str, desc: TensorDesc | None = None) -> Area:
        """As the check of hazards takes it."""
        return Area(label, id(self.buffer.identity), self.offset, self.offset + self.size, desc)

    def place(self) -> PersistentRange:
        """Where an initialisation that writes here puts the persistent resource."""
        return PersistentRange(id(self.buffer.identity), self.offset, self.buffer.identity)


NOWHERE = PersistentRange(0, 0)
"""Where operators without a persistent resource are initialised."""


@dataclass(eq=False, slots=True)
class Recorded:
    """A piece of work with everything that its execution depends on.

    Attributes:
        label: who does the work, as messages name it.
        work: the executor's units.
        buffers: must not be released when the work is executed.
        needs: an operator, initialised at this place.
        initializes: operators that are initialised by the work, and where.
        initializer: the initializer that does it.
    """

    label: str
    work: tuple[Dispatch, ...]
    buffers: tuple[Buffer, ...]
    needs: tuple[CompiledOperator, PersistentRange] | None = None
    initializes: tuple[tuple[CompiledOperator, PersistentRange], ...] = ()
    initializer: OperatorInitializer | None = None

    def check_buffers(self) -> None:
        """Raise InvalidState when a buffer is released."""
        for buffer in self.buffers:
            buffer.check_usable(self.label, "a bound buffer")


@dataclass(eq=False, slots=True)
class Bindings:
    """What is bound for one dispatchable: the range of descriptors that a binding table writes.

    ``BindingTable.reset`` starts a new one, so that what was recorded before keeps its own.

    Attributes:
        dispatchable: for what.
        operators: an initializer's operators when the table was made, which its reset outdates; else None.
        inputs, outputs: None until something is bound.
        given: what the caller handed over, to see that nothing changed.
        cached: the dispatch on what is bound, checked when the release epoch was ``cached_epoch``.
    """

    dispatchable: Dispatchable
    operators: tuple[CompiledOperator, ...] | None = None
    inputs: tuple[Bound | None, ...] | None = None
    outputs: tuple[Bound | None, ...] | None = None
    temporary: Bound | None = None
    persistent: Bound | None = None
    given: dict[str, tuple[object, ...]] = field(default_factory=dict)
    cached: Recorded | None = None
    cached_epoch: int = -1

    def recorded(self) -> Recorded:
        """The dispatch on what is bound now, made once for unchanged bindings.

        Raises:
            BindingError: a binding is missing, or ranges meet that may not.
            InvalidState: a bound buffer is released.
        """
        epoch = self.dispatchable._state.release_epoch
        recorded = self.cached
        if recorded is not None and self.cached_epoch == epoch:
            return recorded
        if recorded is None:
            recorded = _record(self)
        recorded.check_buffers()
        self.cached, self.cached_epoch = recorded, epoch
        return recorded

    def check_operators(self) -> None:
        """Raise InvalidState when the initializer was reset after the table."""
        if self.operators is not None and self.operators is not getattr(self.dispatchable, "operators", None):
            raise InvalidState(
                f"{self.dispatchable.description}: its operators changed; reset the binding table as well"
            )


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
            bindings: for a compiled operator, one per input in struct order: None for absent optional tensors and for
                those flagged OWNED_BY_DML. For an initializer, one BufferArrayBinding per operator, None for operators
                without owned tensors.

        Raises:
            BindingError: missing, superfluous, too small, unaligned, or outside its buffer.
            InvalidArgument: another device's buffer, or no binding at all.
            InvalidState: a released buffer, or an empty table.
        """
        target = self._target()
        given = () if bindings is None else as_tuple("bind_inputs", "bindings", bindings, "bindings")
        if _unchanged(target, "inputs", given):
            return
        dispatchable = target.dispatchable
        if isinstance(dispatchable, CompiledOperator):
            target.inputs = self._tensors("bind_inputs", dispatchable.inputs, given) if given else None
        else:
            target.inputs = self._owned(dispatchable, given)
        _note(target, "inputs", given)

    def bind_outputs(self, bindings: Sequence[Bindable] | None) -> None:
        """Bind the outputs; None or nothing unbinds them (IDMLBindingTable::BindOutputs).

        Args:
            bindings: for a compiled operator, one per output, None for absent optional tensors. For an initializer, the
                persistent resource of each operator, None where it needs none.

        Raises:
            BindingError, InvalidArgument, InvalidState: as ``bind_inputs``.
        """
        target = self._target()
        given = () if bindings is None else as_tuple("bind_outputs", "bindings", bindings, "bindings")
        if _unchanged(target, "outputs", given):
            return
        dispatchable = target.dispatchable
        if isinstance(dispatchable, CompiledOperator):
            target.outputs = self._tensors("bind_outputs", dispatchable.outputs, given) if given else None
        else:
            target.outputs = self._persistents(dispatchable, given)
        _note(target, "outputs", given)

    def bind_temporary_resource(self, binding: Bindable) -> None:
        """Bind scratch memory, required where its size is not 0 (IDMLBindingTable::BindTemporaryResource).

        Raises:
            BindingError, InvalidArgument, InvalidState: as ``bind_inputs``.
        """
        target = self._target()
        if _unchanged(target, "temporary", (binding,)):
            return
        size = target.dispatchable.binding_properties.temporary_resource_size
        label = "the temporary resource"
        target.temporary = self._resource(target.dispatchable, label, binding, size, TEMPORARY_ALIGNMENT)
        _note(target, "temporary", (binding,))

    def bind_persistent_resource(self, binding: Bindable) -> None:
        """Bind what initialisation filled, required where its size is not 0 (IDMLBindingTable::BindPersistentResource).

        Raises:
            BindingError, InvalidArgument, InvalidState: as ``bind_inputs``.
        """
        target = self._target()
        if _unchanged(target, "persistent", (binding,)):
            return
        size = target.dispatchable.binding_properties.persistent_resource_size
        label = "the persistent resource"
        target.persistent = self._resource(target.dispatchable, label, binding, size, PERSISTENT_ALIGNMENT)
        _note(target, "persistent", (binding,))

    def _target(self) -> Bindings:
        self._state.check()
        if self._bindings is None:
            raise InvalidState(f"{self.description}: an empty table binds nothing; reset it to a dispatchable first")
        self._bindings.check_operators()
        return self._bindings

    def _tensors(self, method: str, ports: tuple[Port, ...], given: tuple[object, ...]) -> tuple[Bound | None, ...]:
        operator = self._target().dispatchable.description
        if len(given) != len(ports):
            names = ", ".join(port.label for port in ports)
            raise BindingError(f"{operator}: {method} takes {_count(len(ports))} ({names}), got {len(given)}")
        return tuple(self._tensor(operator, port, one) for port, one in zip(ports, given, strict=True))

    def _tensor(self, operator: str, port: Port, given: object) -> Bound | None:
        binding = self._resolve(operator, port.label, given)
        if port.desc is None:
            return _nothing(operator, port.label, binding, "the description leaves this tensor out")
        if port.owned:
            return _nothing(operator, port.label, binding, "OWNED_BY_DML tensors are bound at initialisation")
        return _check_tensor(operator, port, binding)

    def _owned(self, initializer: OperatorInitializer, given: tuple[object, ...]) -> tuple[Bound | None, ...]:
        """The bindings of an initializer's inputs, all operators' inputs one after another."""
        operators = initializer.operators
        if given and len(given) != len(operators):
            raise BindingError(
                f"{initializer.description}: bind_inputs takes {_count(len(operators), 'array')}, "
                f"one per operator, got {len(given)}"
            )
        flat: list[Bound | None] = []
        for index, compiled in enumerate(operators):
            where = f"{initializer.description}, operators[{index}] {compiled.description}"
            flat += self._owned_by(where, compiled, given[index] if given else None)
        return tuple(flat)

    def _owned_by(self, where: str, compiled: CompiledOperator, given: object) -> list[Bound | None]:
        if given is not None and not isinstance(given, BufferArrayBinding):
            raise InvalidArgument(f"{where}: expected a BufferArrayBinding or None, got {type(given).__name__}")
        entries: Sequence[object] = given.bindings if given is not None else ()
        if entries and len(entries) != len(compiled.inputs):
            raise BindingError(
                f"{where}: the array takes {_count(len(compiled.inputs), 'entry')}, one per input, got {len(entries)}"
            )
        bound: list[Bound | None] = []
        for index, port in enumerate(compiled.inputs):
            binding = self._resolve(where, port.label, entries[index] if entries else None)
            if port.owned:
                # Nothing at all unbinds; a table that is only partly bound is refused when it is recorded.
                bound.append(_check_tensor(where, port, binding) if entries else None)
            else:
                why = "only OWNED_BY_DML tensors are bound at initialisation"
                bound.append(_nothing(where, port.label, binding, why))
        return bound

    def _persistents(self, initializer: OperatorInitializer, given: tuple[object, ...]) -> tuple[Bound | None, ...]:
        operators = initializer.operators
        if not given:
            return (None,) * len(operators)
        if len(given) != len(operators):
            raise BindingError(
                f"{initializer.description}: bind_outputs takes {_count(len(operators))}, "
                f"the persistent resource of each operator, got {len(given)}"
            )
        return tuple(
            self._resource(
                initializer,
                f"the persistent resource of operators[{index}] {compiled.description}",
                one,
                compiled._properties.persistent_resource_size,
                PERSISTENT_ALIGNMENT,
            )
            for index, (compiled, one) in enumerate(zip(operators, given, strict=True))
        )

    def _resource(
        self, dispatchable: Dispatchable, label: str, given: object, size: int, alignment: int
    ) -> Bound | None:
        caller = dispatchable.description
        binding = self._resolve(caller, label, given)
        if binding is None:
            return None
        if size == 0:
            return _nothing(caller, label, binding, "its size is 0")
        _check_offset(caller, label, binding, alignment, "")
        if binding.size < size:
            raise BindingError(f"{caller}: {label} takes at least {size} bytes, got a range of {binding.size}")
        return Bound(binding.buffer, binding.offset, size)

    def _resolve(self, caller: str, label: str, given: object) -> Bound | None:
        """The range that a binding names, checked against its buffer alone."""
        binding = BufferBinding(given) if isinstance(given, Buffer) else given
        if binding is None or (isinstance(binding, BufferBinding) and binding.buffer is None):
            return None
        if not isinstance(binding, BufferBinding):
            raise InvalidArgument(
                f"{caller}: {label} takes a BufferBinding, a Buffer or None, got {type(given).__name__}"
            )
        buffer = binding.buffer
        expect_child(caller, f"the buffer of {label}", buffer, Buffer, self._state)
        assert buffer is not None
        buffer.check_usable(caller, f"the buffer of {label}")
        check_range(f"{caller}: {label}", buffer, binding.offset, 0 if binding.size is None else binding.size)
        size = buffer.size - binding.offset if binding.size is None else binding.size
        return Bound(buffer, binding.offset, size)


def _unchanged(target: Bindings, what: str, given: tuple[object, ...]) -> bool:
    """Whether the same was handed over the last time; foreign objects, whose == may do anything, are not compared."""
    before = target.given.get(what)
    if before is None or len(before) != len(given):
        return False
    return all(
        old is new or (type(old) is type(new) and isinstance(new, BufferBinding | BufferArrayBinding) and old == new)
        for old, new in zip(before, given, strict=True)
    )


def _note(target: Bindings, what: str, given: tuple[object, ...]) -> None:
    target.given[what] = given
    target.cached = None


def _count(number: int, what: str = "binding") -> str:
    plural = what[:-1] + "ies" if what.endswith("y") else what + "s"
    return f"{number} {what if number == 1 else plural}"


def _nothing(caller: str, label: str, binding: Bound | None, why: str) -> Bound | None:
    """The binding of what takes none."""
    if binding is not None:
        raise BindingError(f"{caller}: {label} takes no binding, got {binding.buffer.description}; {why}")
    return binding


def _check_offset(caller: str, label: str, binding: Bound, alignment: int, why: str) -> None:
    if binding.offset % alignment:
        raise BindingError(f"{caller}: {label} needs an offset of a multiple of {alignment}{why}, got {binding.offset}")


def _check_tensor(caller: str, port: Port, binding: Bound | None) -> Bound:
    """A tensor's binding: present, aligned, large enough. Only the tensor's own bytes count from here on."""
    desc = port.desc
    assert desc is not None
    if binding is None:
        raise BindingError(f"{caller}: {port.label} needs a binding of {desc.byte_size} bytes, got None")
    _check_offset(caller, port.label, binding, TENSOR_ALIGNMENT, "")
    promised = desc.guaranteed_base_offset_alignment
    if promised:
        alignment = math.lcm(promised, TENSOR_ALIGNMENT)
        _check_offset(caller, port.label, binding, alignment, " (its guaranteed_base_offset_alignment)")
    if binding.size < desc.byte_size:
        raise BindingError(
            f"{caller}: {port.label} takes at least {desc.byte_size} bytes (total_tensor_size_in_bytes), "
            f"got a range of {binding.size}"
        )
    return Bound(binding.buffer, binding.offset, desc.byte_size)


# ---- from bindings to work ------------------------------------------------------------------------------------------


def _record(bindings: Bindings) -> Recorded:
    """The dispatch on complete bindings; the executor prepares it."""
    dispatchable = bindings.dispatchable
    if isinstance(dispatchable, CompiledOperator):
        return _record_execution(dispatchable, bindings)
    return _record_initialization(dispatchable, bindings)


def _record_execution(compiled: CompiledOperator, bindings: Bindings) -> Recorded:
    operator, properties = compiled.description, compiled._properties
    inputs = _complete(operator, "bind_inputs", compiled.inputs, bindings.inputs)
    outputs = _complete(operator, "bind_outputs", compiled.outputs, bindings.outputs)
    temporary, persistent = bindings.temporary, bindings.persistent
    _required(operator, "bind_temporary_resource", temporary, properties.temporary_resource_size)
    _required(operator, "bind_persistent_resource", persistent, properties.persistent_resource_size)
    hazards.check_execution(
        operator,
        _areas(compiled.inputs, inputs),
        _areas(compiled.outputs, outputs),
        temporary=None if temporary is None else temporary.area("the temporary resource"),
        persistent=None if persistent is None else persistent.area("the persistent resource"),
        in_place=compiled.in_place,
    )
    resources = Resources(_ranges(inputs), _ranges(outputs), _range(temporary), _range(persistent))
    work = compiled._state.call(compiled._executable.bind, resources)
    place = NOWHERE if persistent is None else persistent.place()
    return Recorded(operator, tuple(work), _buffers(*inputs, *outputs, temporary, persistent), (compiled, place))


def _record_initialization(initializer: OperatorInitializer, bindings: Bindings) -> Recorded:
    caller, operators = initializer.description, initializer.operators
    inputs = bindings.inputs or (None,) * sum(len(compiled.inputs) for compiled in operators)
    outputs = bindings.outputs or (None,) * len(operators)
    own, begin = [], 0
    for compiled in operators:
        own.append(inputs[begin : begin + len(compiled.inputs)])
        begin += len(compiled.inputs)
    sources: list[Area] = []
    targets: list[Area] = []
    for index, (compiled, bound, output) in enumerate(zip(operators, own, outputs, strict=True)):
        _check_initialization(caller, index, compiled, bound, output)
        sources += _areas(compiled.inputs, bound, f" of operators[{index}]")
        targets += [] if output is None else [output.area(f"the persistent resource of operators[{index}]")]
    hazards.check_initialization(caller, sources, targets)
    work: list[Dispatch] = []
    for compiled, bound, output in zip(operators, own, outputs, strict=True):
        resources = Resources(_ranges(bound), (None,) * len(compiled.outputs), persistent=_range(output))
        work += compiled._state.call(compiled._executable.bind_initialization, resources)
    places = tuple(NOWHERE if output is None else output.place() for output in outputs)
    initializes = tuple(zip(operators, places, strict=True))
    return Recorded(caller, tuple(work), _buffers(*inputs, *outputs), None, initializes, initializer)


def _check_initialization(
    caller: str, index: int, compiled: CompiledOperator, inputs: Sequence[Bound | None], output: Bound | None
) -> None:
    where = f"{caller}, operators[{index}] {compiled.description}"
    for port, bound in zip(compiled.inputs, inputs, strict=True):
        if port.owned and bound is None:
            raise BindingError(f"{where}: {port.label} is OWNED_BY_DML and not bound; call bind_inputs first")
    _required(where, "bind_outputs", output, compiled._properties.persistent_resource_size)


def _complete(
    operator: str, method: str, ports: tuple[Port, ...], bound: tuple[Bound | None, ...] | None
) -> tuple[Bound | None, ...]:
    if bound is not None:
        return bound
    needed = [port.label for port in ports if port.bound_at_execution]
    if needed:
        raise BindingError(f"{operator}: {', '.join(needed)} not bound; call {method} first")
    return (None,) * len(ports)


def _required(caller: str, method: str, bound: Bound | None, size: int) -> None:
    if size and bound is None:
        what = "temporary" if method == "bind_temporary_resource" else "persistent"
        raise BindingError(f"{caller}: the {what} resource of {size} bytes is not bound; call {method} first")


def _areas(ports: Sequence[Port], bound: Sequence[Bound | None], suffix: str = "") -> list[Area]:
    pairs = zip(ports, bound, strict=True)
    return [one.area(port.label + suffix, port.desc) for port, one in pairs if one is not None]


def _range(bound: Bound | None) -> Range | None:
    return None if bound is None else bound.range()


def _ranges(bound: Sequence[Bound | None]) -> tuple[Range | None, ...]:
    return tuple(map(_range, bound))


def _buffers(*bound: Bound | None) -> tuple[Buffer, ...]:
    return tuple(dict.fromkeys(one.buffer for one in bound if one is not None))
