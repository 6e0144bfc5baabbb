"""From what is bound to work for the executor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dmlgpu.common.errors import BindingError, InvalidState
from dmlgpu.runtime import hazards
from dmlgpu.runtime.binding import Ranges
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.executor import Backend, Dispatch, Range, Resources
from dmlgpu.runtime.operator import CompiledOperator, Dispatchable, OperatorInitializer, Port


@dataclass(eq=False, slots=True)
class Recorded:
    """A piece of work with everything that its execution depends on.

    Attributes:
        label: who does the work, as messages name it.
        work: the executor's units.
        buffers: must not be released when the work is executed.
        needs: an operator that is initialised, with this persistent resource.
        initializes: operators that are initialised by the work, and their persistent resources.
        initializer: the initializer that does it.
    """

    label: str
    work: tuple[Dispatch, ...]
    buffers: tuple[Buffer, ...]
    needs: tuple[CompiledOperator, Range[Buffer] | None] | None = None
    initializes: tuple[tuple[CompiledOperator, Range[Buffer] | None], ...] = ()
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
        given: what the caller handed over at which release epoch, to see that nothing changed.
        cached: the dispatch on what is bound, checked when the release epoch was ``cached_epoch``.
    """

    dispatchable: Dispatchable
    operators: tuple[CompiledOperator, ...] | None = None
    inputs: Ranges | None = None
    outputs: Ranges | None = None
    temporary: Range[Buffer] | None = None
    persistent: Range[Buffer] | None = None
    given: dict[str, tuple[tuple[object, ...], int]] = field(default_factory=dict)
    cached: Recorded | None = None
    cached_epoch: int = -1

    def recorded(self) -> Recorded:
        """Return the dispatch on what is bound now, made once for unchanged bindings.

        Raises:
            BindingError: a binding is missing, or ranges overlap that may not.
            InvalidState: a bound buffer is released.
        """
        epoch = self.dispatchable._state.release_epoch
        recorded = self.cached
        if recorded is not None and self.cached_epoch == epoch:
            return recorded
        if recorded is None:
            if isinstance(self.dispatchable, CompiledOperator):
                recorded = _execution(self.dispatchable, self)
            else:
                recorded = _initialization(self.dispatchable, self)
        recorded.check_buffers()
        self.cached, self.cached_epoch = recorded, epoch
        return recorded

    def check_operators(self) -> None:
        """Raise InvalidState when the initializer was reset after the table."""
        if self.operators is not None and self.operators is not getattr(self.dispatchable, "operators", None):
            raise InvalidState(
                f"{self.dispatchable.description}: its operators changed; reset the binding table as well"
            )


@dataclass(eq=False, slots=True)
class Batch:
    """The contents of a command list, ready to submit.

    Attributes:
        work: the executor's units, in order.
        steps: the distinct recorded pieces, in order of their first appearance; only these need checks.
        checked_epoch: the device's release epoch when the buffers were last looked at.
    """

    work: Sequence[Dispatch]
    steps: tuple[Recorded, ...]
    checked_epoch: int = -1

    @classmethod
    def of(cls, entries: Sequence[Recorded], backend: Backend) -> Batch:
        """Put recorded pieces together, prepared for being submitted again and again."""
        work = backend.record([unit for entry in entries for unit in entry.work])
        return cls(work, tuple(dict.fromkeys(entries)))

    def check_buffers(self, epoch: int) -> None:
        """Raise InvalidState when a buffer is released."""
        if self.checked_epoch != epoch:
            for step in self.steps:
                step.check_buffers()
            self.checked_epoch = epoch


def _execution(compiled: CompiledOperator, bindings: Bindings) -> Recorded:
    operator, properties = compiled.description, compiled._properties
    inputs = _complete(operator, "bind_inputs", compiled.inputs, bindings.inputs)
    outputs = _complete(operator, "bind_outputs", compiled.outputs, bindings.outputs)
    temporary, persistent = bindings.temporary, bindings.persistent
    _require(operator, "temporary", "bind_temporary_resource", temporary, properties.temporary_resource_size)
    _require(operator, "persistent", "bind_persistent_resource", persistent, properties.persistent_resource_size)
    hazards.check_execution(
        operator,
        _bound(compiled.inputs, inputs),
        _bound(compiled.outputs, outputs),
        temporary=temporary,
        persistent=persistent,
        in_place=compiled.in_place,
    )
    resources = Resources(_memory(inputs), _memory(outputs), _memory_of(temporary), _memory_of(persistent))
    work = compiled._state.call(compiled._executable.bind, resources)
    return Recorded(operator, tuple(work), _buffers(*inputs, *outputs, temporary, persistent), (compiled, persistent))


def _initialization(initializer: OperatorInitializer, bindings: Bindings) -> Recorded:
    caller, operators = initializer.description, initializer.operators
    flat = iter(bindings.inputs or (None,) * sum(len(compiled.inputs) for compiled in operators))
    inputs = [tuple(next(flat) for _ in compiled.inputs) for compiled in operators]
    outputs = bindings.outputs or (None,) * len(operators)
    sources: list[hazards.Bound] = []
    targets: list[hazards.Bound] = []
    for index, (compiled, given, output) in enumerate(zip(operators, inputs, outputs, strict=True)):
        where = f"{caller}, operators[{index}] {compiled.description}"
        for port, one in zip(compiled.inputs, given, strict=True):
            if port.owned and one is None:
                raise BindingError(f"{where}: {port.label} is OWNED_BY_DML and not bound; call bind_inputs first")
        _require(where, "persistent", "bind_outputs", output, compiled._properties.persistent_resource_size)
        of = f" of operators[{index}]"
        sources += _bound([Port(port.label + of, port.desc) for port in compiled.inputs], given)
        targets += _bound([Port(hazards.PERSISTENT.label + of, None)], [output])
    hazards.check_initialization(caller, sources, targets)
    work: list[Dispatch] = []
    for compiled, given, output in zip(operators, inputs, outputs, strict=True):
        resources = Resources(_memory(given), (None,) * len(compiled.outputs), None, _memory_of(output))
        work += compiled._state.call(compiled._executable.bind_initialization, resources)
    buffers = _buffers(*(one for given in inputs for one in given), *outputs)
    return Recorded(caller, tuple(work), buffers, None, tuple(zip(operators, outputs, strict=True)), initializer)


def _complete(caller: str, method: str, ports: tuple[Port, ...], ranges: Ranges | None) -> Ranges:
    """Return what is bound; nothing at all will do where nothing is needed."""
    if ranges is not None:
        return ranges
    needed = [port.label for port in ports if port.bound_at_execution]
    if needed:
        raise BindingError(f"{caller}: {', '.join(needed)} not bound; call {method} first")
    return (None,) * len(ports)


def _require(caller: str, what: str, method: str, bound: Range[Buffer] | None, size: int) -> None:
    if size and bound is None:
        raise BindingError(f"{caller}: the {what} resource of {size} bytes is not bound; call {method} first")


def _bound(ports: Iterable[Port], ranges: Iterable[Range[Buffer] | None]) -> list[hazards.Bound]:
    return [(port, one) for port, one in zip(ports, ranges, strict=True) if one is not None]


def _memory(ranges: Sequence[Range[Buffer] | None]) -> Ranges:
    """Return ranges as the executor takes them, of its own buffers."""
    return tuple(map(_memory_of, ranges))


def _memory_of(bound: Range[Buffer] | None) -> Range[Any] | None:
    return None if bound is None else Range(bound.buffer._memory, bound.offset, bound.size)


def _buffers(*ranges: Range[Buffer] | None) -> tuple[Buffer, ...]:
    return tuple(dict.fromkeys(one.buffer for one in ranges if one is not None))
