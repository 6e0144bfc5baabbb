"""Operators, compiled operators and their initializers (DirectML: IDMLOperator, IDMLDispatchable)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dmlgpu.catalog.enums import ExecutionFlags
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidArgument, InvalidState, abridged
from dmlgpu.common.timings import Timings
from dmlgpu.runtime.child import DeviceChild, as_tuple, expect_child
from dmlgpu.runtime.executor import Executable, Range

if TYPE_CHECKING:
    from dmlgpu.catalog.operator_desc import OperatorDesc
    from dmlgpu.compiler.program import Program
    from dmlgpu.runtime.buffer import Buffer
    from dmlgpu.runtime.device import Device
    from dmlgpu.runtime.state import DeviceState


@dataclass(frozen=True)
class BindingProperties:
    """Resources that a dispatchable binds (DirectML: DML_BINDING_PROPERTIES).

    Attributes:
        required_descriptor_count: resources that one dispatch binds.
        temporary_resource_size: bytes of scratch memory; 0 where none is needed.
        persistent_resource_size: bytes that initialisation fills; 0 where none is needed, and for initializers.
    """

    required_descriptor_count: int
    temporary_resource_size: int = 0
    persistent_resource_size: int = 0


@dataclass(frozen=True)
class TensorPort:
    """One input or output of a compiled operator.

    Attributes:
        label: as messages name it: ``indices_tensor (input 1)``.
        desc: the tensor, or None where an optional one is absent.
    """

    label: str
    desc: TensorDesc | None

    @property
    def owned(self) -> bool:
        """Whether the tensor is handed over at initialisation."""
        return self.desc is not None and self.desc.owned_by_dml

    @property
    def bound_at_execution(self) -> bool:
        """Whether an execution binds it."""
        return self.desc is not None and not self.desc.owned_by_dml


def with_absent(bindings: Sequence[object], ports: Sequence[TensorPort]) -> tuple[object, ...]:
    """Return one binding per port; trailing ones of absent optional tensors may be omitted."""
    rest = ports[len(bindings) :]
    return (*bindings, *(None for _ in rest)) if all(port.desc is None for port in rest) else tuple(bindings)


class Operator(DeviceChild):
    """A checked operator description (DirectML: IDMLOperator); ``Device.compile_operator`` makes it executable."""

    def __init__(self, device: Device, state: DeviceState, desc: OperatorDesc):
        super().__init__(device, state)
        self._desc, self._kind = desc, desc.operator
        self._unreported = 0.0  # seconds of checking, which renders the kernels, until compiled.timings tell them

    @property
    def desc(self) -> OperatorDesc:
        """The description that the operator was created from."""
        return self._desc


class CompiledOperator(DeviceChild):
    """An operator, or a graph of them, made ready for the device's adapter (DirectML: IDMLCompiledOperator).

    It must be initialised exactly once, by executing an ``OperatorInitializer``, before it is executed.
    """

    def __init__(
        self,
        device: Device,
        state: DeviceState,
        *,
        title: str,
        inputs: tuple[TensorPort, ...],
        outputs: tuple[TensorPort, ...],
        executable: Executable,
        flags: ExecutionFlags = ExecutionFlags.NONE,
        in_place: bool = False,
    ):
        super().__init__(device, state)
        self._kind, self._executable, self._flags = title, executable, flags
        self.in_place = in_place
        self.inputs, self.outputs = inputs, outputs
        temporary, persistent = executable.temporary_size, executable.persistent_size
        tensors = sum(port.bound_at_execution for port in inputs + outputs)
        self._properties = BindingProperties(tensors + (temporary > 0) + (persistent > 0), temporary, persistent)
        self._is_initialized = False
        self._persistent: Range[Buffer] | None = None

    @property
    def binding_properties(self) -> BindingProperties:
        """Resources that its execution binds (IDMLDispatchable::GetBindingProperties)."""
        self._state.check()
        return self._properties

    @property
    def program(self) -> Program | None:
        """The kernels that run on the adapter; None on ``numpy``."""
        return getattr(self._executable, "program", None)

    @property
    def flags(self) -> ExecutionFlags:
        """The flags that it was compiled with."""
        return self._flags

    @property
    def timings(self) -> Timings | None:
        """Times of compiling it, or None on the adapter ``numpy``, which compiles nothing.

        Some drivers go on translating in the background when compiling is over. What the first call, or whoever asks
        for these times, waits for that counts as the driver's.
        """
        self._state.check()
        return self._state.call_unlocked(lambda: self._executable.timings)

    def _took(self, seconds: float) -> None:
        """Note how long making it took altogether."""
        if self.program is not None:
            self._executable.took(seconds)

    @property
    def is_initialized(self) -> bool:
        """Whether its initialisation was submitted."""
        return self._is_initialized


class OperatorInitializer(DeviceChild):
    """Prepares compiled operators for execution (DirectML: IDMLOperatorInitializer).

    Its inputs are, per operator, an array of the tensors flagged OWNED_BY_DML; its outputs are the operators'
    persistent resources.
    """

    _kind = "initializer"

    def __init__(self, device: Device, state: DeviceState, operators: Sequence[CompiledOperator]):
        super().__init__(device, state)
        self._serial: int | None = None
        self.operators: tuple[CompiledOperator, ...] = ()
        self._take(operators)

    @property
    def binding_properties(self) -> BindingProperties:
        """What its execution binds (IDMLDispatchable::GetBindingProperties); may change with ``reset``."""
        self._state.check()
        inputs = sum(port.owned for compiled in self.operators for port in compiled.inputs)
        outputs = sum(compiled._properties.persistent_resource_size > 0 for compiled in self.operators)
        return BindingProperties(inputs + outputs)

    def reset(self, operators: Sequence[CompiledOperator] = ()) -> None:
        """Target another set of operators (IDMLOperatorInitializer::Reset). Not thread-safe.

        Binding tables made for the initializer must be reset as well.

        Raises:
            InvalidState: an execution of the initializer is in flight.
            InvalidArgument: as ``Device.create_operator_initializer``.
        """
        self._state.check()
        if self._state.is_in_flight(self._serial):
            raise InvalidState(f"{self.description}: reset while its execution is in flight; wait on a fence first")
        self._take(operators)

    def _take(self, operators: Sequence[CompiledOperator]) -> None:
        taken: tuple[CompiledOperator, ...] = as_tuple(self.description, "operators", operators, "compiled operators")
        for index, compiled in enumerate(taken):
            expect_child(self.description, f"operators[{index}]", compiled, CompiledOperator, self._state)
            if compiled in taken[:index]:
                first = taken.index(compiled)
                raise InvalidArgument(
                    f"{self.description}: operators[{index}], {compiled.description}, is already operators[{first}]; "
                    "an operator is initialised exactly once"
                )
        self.operators = taken


Dispatchable = CompiledOperator | OperatorInitializer


def ports(tensors: Sequence[tuple[str, int | None, TensorDesc | None]], kind: str) -> tuple[TensorPort, ...]:
    """Return the inputs or the outputs of a description, flat, in struct order; ``kind`` is what messages call them."""
    return tuple(
        TensorPort(f"{field if element is None else f'{field}[{element}]'} ({kind} {index})", desc)
        for index, (field, element, desc) in enumerate(tensors)
    )


def graph_ports(
    what: str, tensors: Sequence[TensorDesc | None], names: Mapping[int, str | None]
) -> tuple[TensorPort, ...]:
    """Return the inputs or outputs of a graph, called by number and by the names of the edges that lead there."""

    def label(number: int) -> str:
        name = names.get(number)
        return f"{what} {number} {abridged(name)!r}" if name else f"{what} {number}"

    return tuple(TensorPort(label(number), tensor) for number, tensor in enumerate(tensors))
