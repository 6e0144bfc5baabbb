"""Recorded dispatches: bindings are checked for overlapping byte ranges and become work of the executor."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dmlgpu.common.errors import BindingError, InvalidState
from dmlgpu.runtime.buffer import Buffer, Ranges
from dmlgpu.runtime.executor import Backend, Dispatch, Range, Resources
from dmlgpu.runtime.operator import CompiledOperator, Dispatchable, OperatorInitializer, TensorPort

BoundPort: TypeAlias = tuple[TensorPort, Range[Buffer]]
"""A tensor or resource, and its bound range."""

TEMPORARY, PERSISTENT = TensorPort("the temporary resource", None), TensorPort("the persistent resource", None)


def check_execution(
    operator: str,
    inputs: Sequence[BoundPort],
    outputs: Sequence[BoundPort],
    *,
    temporary: Range[Buffer] | None,
    persistent: Range[Buffer] | None,
    in_place: bool,
) -> None:
    """Check the ranges of one execution.

    Raises:
        BindingError: If ranges overlap illegally.
    """
    for output, source in itertools.product(outputs, inputs):
        if _overlap(source, output):
            _check_in_place(operator, source, output, in_place)
    _check_outputs(operator, outputs)
    persistent_ports = () if persistent is None else ((PERSISTENT, persistent),)
    for first, second in itertools.product(persistent_ports, outputs):
        _check_apart(operator, first, second, "the persistent resource is read-only at execution")
    if temporary is not None:
        for other in (*inputs, *outputs, *persistent_ports):
            _check_apart(operator, (TEMPORARY, temporary), other, "the temporary resource may not overlap anything")


def check_initialization(initializer: str, inputs: Sequence[BoundPort], outputs: Sequence[BoundPort]) -> None:
    """Check the ranges of one initialization.

    Raises:
        BindingError: If an input shares a buffer with an output, or two outputs overlap.
    """
    for (source, read), (output, written) in itertools.product(inputs, outputs):
        if read.buffer.identity is written.buffer.identity:
            raise BindingError(
                f"{initializer}: {source.label} and {output.label} lie in one buffer; "
                "at initialization an input may not share a buffer with an output"
            )
    _check_outputs(initializer, outputs)


def _overlap(first: BoundPort, second: BoundPort) -> bool:
    (_, left), (_, right) = first, second
    return left.buffer.identity is right.buffer.identity and left.offset < right.end and right.offset < left.end


def _check_outputs(operator: str, outputs: Sequence[BoundPort]) -> None:
    for first, second in itertools.combinations(outputs, 2):
        _check_apart(operator, first, second, "two outputs may not overlap")


def _check_apart(operator: str, first: BoundPort, second: BoundPort, why: str) -> None:
    if _overlap(first, second):
        raise BindingError(f"{operator}: {_text(first)} overlaps {_text(second)}; {why}")


def _check_in_place(operator: str, source: BoundPort, output: BoundPort, in_place: bool) -> None:
    overlap = f"{operator}: {_text(output)} overlaps {_text(source)}; "
    if not in_place:
        raise BindingError(f"{overlap}the operator does not support in-place execution")
    (read, ours), (written, theirs) = source, output
    if (ours.offset, ours.size) != (theirs.offset, theirs.size):
        raise BindingError(f"{overlap}in-place execution needs identical ranges")
    assert read.desc is not None and written.desc is not None
    for what, actual, expected in (
        ("data types", read.desc.data_type.name, written.desc.data_type.name),
        ("sizes", read.desc.sizes, written.desc.sizes),
        ("strides", read.desc.element_strides, written.desc.element_strides),
    ):
        if actual != expected:
            raise BindingError(f"{overlap}in-place execution needs equal {what}, got {actual} and {expected}")


def _text(bound: BoundPort) -> str:
    port, where = bound
    return f"{port.label} at bytes {where.offset} to {where.end}"


@dataclass(eq=False, slots=True)
class RecordedCommand:
    """A recorded command with everything that its execution depends on.

    Attributes:
        label: Name in messages.
        work: Work of the executor.
        buffers: Buffers that must not be released at execution.
        needs: Operator that must be initialized, with this persistent resource.
        initializes: Operators that the work initializes, and their persistent resources.
        initializer: The initializer.
    """

    label: str
    work: tuple[Dispatch, ...]
    buffers: tuple[Buffer, ...]
    needs: tuple[CompiledOperator, Range[Buffer] | None] | None = None
    initializes: tuple[tuple[CompiledOperator, Range[Buffer] | None], ...] = ()
    initializer: OperatorInitializer | None = None

    def check_buffers(self) -> None:
        """Raise InvalidState if a buffer is released."""
        for buffer in self.buffers:
            buffer.check_usable(self.label, "a bound buffer")


@dataclass(eq=False, slots=True)
class Bindings:
    """The bindings of one dispatchable: the descriptors that a binding table writes.

    ``BindingTable.reset`` creates a new one, so recorded dispatches keep theirs.

    Attributes:
        dispatchable: Dispatchable of the bindings.
        operators: Operators of an initializer when the table was created, which its reset invalidates; else None.
        inputs, outputs: None until bound.
        checked: The last bindings passed and their release epoch, to detect changes.
        cached: The dispatch on the bound ranges, checked at release epoch ``cached_epoch``.
    """

    dispatchable: Dispatchable
    operators: tuple[CompiledOperator, ...] | None = None
    inputs: Ranges | None = None
    outputs: Ranges | None = None
    temporary: Range[Buffer] | None = None
    persistent: Range[Buffer] | None = None
    checked: dict[str, tuple[tuple[object, ...], int]] = field(default_factory=dict)
    cached: RecordedCommand | None = None
    cached_epoch: int = -1

    def recorded(self) -> RecordedCommand:
        """Return the dispatch on the current bindings, cached until they change.

        Raises:
            BindingError: If a binding is missing, or ranges overlap illegally.
            InvalidState: If a bound buffer is released.
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
        """Raise InvalidState if the initializer was reset after the table."""
        if self.operators is not None and self.operators is not getattr(self.dispatchable, "operators", None):
            raise InvalidState(
                f"{self.dispatchable.description}: its operators changed; reset the binding table as well"
            )


@dataclass(eq=False, slots=True)
class CommandBatch:
    """Contents of a command list, ready to submit.

    Attributes:
        work: Work of the executor, in order.
        steps: The distinct recorded commands, in order of first appearance; only these need checks.
        checked_epoch: Release epoch of the last check of the buffers.
    """

    work: Sequence[Dispatch]
    steps: tuple[RecordedCommand, ...]
    checked_epoch: int = -1

    @classmethod
    def of(cls, entries: Sequence[RecordedCommand], backend: Backend) -> CommandBatch:
        """Combine recorded commands, prepared for repeated submission."""
        work = backend.record([unit for entry in entries for unit in entry.work])
        return cls(work, tuple(dict.fromkeys(entries)))

    def check_buffers(self, epoch: int) -> None:
        """Raise InvalidState if a buffer is released."""
        if self.checked_epoch != epoch:
            for step in self.steps:
                step.check_buffers()
            self.checked_epoch = epoch


def _execution(compiled: CompiledOperator, bindings: Bindings) -> RecordedCommand:
    operator, properties = compiled.description, compiled._properties
    inputs = _complete(operator, "bind_inputs", compiled.inputs, bindings.inputs)
    outputs = _complete(operator, "bind_outputs", compiled.outputs, bindings.outputs)
    temporary, persistent = bindings.temporary, bindings.persistent
    _require(operator, "temporary", "bind_temporary_resource", temporary, properties.temporary_resource_size)
    _require(operator, "persistent", "bind_persistent_resource", persistent, properties.persistent_resource_size)
    check_execution(
        operator,
        _bound(compiled.inputs, inputs),
        _bound(compiled.outputs, outputs),
        temporary=temporary,
        persistent=persistent,
        in_place=compiled.in_place,
    )
    resources = Resources(_memory(inputs), _memory(outputs), _memory_of(temporary), _memory_of(persistent))
    work = compiled._state.call(compiled._executable.bind, resources)
    return RecordedCommand(
        operator, tuple(work), _buffers(*inputs, *outputs, temporary, persistent), (compiled, persistent)
    )


def _initialization(initializer: OperatorInitializer, bindings: Bindings) -> RecordedCommand:
    caller, operators = initializer.description, initializer.operators
    flat = iter(bindings.inputs or (None,) * sum(len(compiled.inputs) for compiled in operators))
    inputs = [tuple(next(flat) for _ in compiled.inputs) for compiled in operators]
    outputs = bindings.outputs or (None,) * len(operators)
    sources: list[BoundPort] = []
    targets: list[BoundPort] = []
    for index, (compiled, owned, output) in enumerate(zip(operators, inputs, outputs, strict=True)):
        where = f"{caller}, operators[{index}] {compiled.description}"
        for port, bound in zip(compiled.inputs, owned, strict=True):
            if port.owned and bound is None:
                raise BindingError(f"{where}: {port.label} is OWNED_BY_DML and not bound; call bind_inputs first")
        _require(where, "persistent", "bind_outputs", output, compiled._properties.persistent_resource_size)
        of = f" of operators[{index}]"
        sources += _bound([TensorPort(port.label + of, port.desc) for port in compiled.inputs], owned)
        targets += _bound([TensorPort(PERSISTENT.label + of, None)], [output])
    check_initialization(caller, sources, targets)
    work: list[Dispatch] = []
    for compiled, owned, output in zip(operators, inputs, outputs, strict=True):
        resources = Resources(_memory(owned), (None,) * len(compiled.outputs), None, _memory_of(output))
        work += compiled._state.call(compiled._executable.bind_initialization, resources)
    buffers = _buffers(*itertools.chain.from_iterable(inputs), *outputs)
    return RecordedCommand(caller, tuple(work), buffers, None, tuple(zip(operators, outputs, strict=True)), initializer)


def _complete(caller: str, method: str, ports: tuple[TensorPort, ...], ranges: Ranges | None) -> Ranges:
    """Return the bound ranges; None if nothing must be bound."""
    if ranges is not None:
        return ranges
    needed = [port.label for port in ports if port.bound_at_execution]
    if needed:
        raise BindingError(f"{caller}: {', '.join(needed)} not bound; call {method} first")
    return (None,) * len(ports)


def _require(caller: str, what: str, method: str, bound: Range[Buffer] | None, size: int) -> None:
    if size and bound is None:
        raise BindingError(f"{caller}: the {what} resource of {size} bytes is not bound; call {method} first")


def _bound(ports: Iterable[TensorPort], ranges: Iterable[Range[Buffer] | None]) -> list[BoundPort]:
    return [(port, bound) for port, bound in zip(ports, ranges, strict=True) if bound is not None]


def _memory(ranges: Sequence[Range[Buffer] | None]) -> Ranges:
    """Return the ranges with the executor's own buffers."""
    return tuple(map(_memory_of, ranges))


def _memory_of(bound: Range[Buffer] | None) -> Range[Any] | None:
    return None if bound is None else Range(bound.buffer._memory, bound.offset, bound.size)


def _buffers(*ranges: Range[Buffer] | None) -> tuple[Buffer, ...]:
    return tuple(dict.fromkeys(bound.buffer for bound in ranges if bound is not None))
