"""Operators, compiled operators and initializers (DirectML: IDMLOperator, IDMLDispatchable)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dmlgpu.catalog.enums import ExecutionFlags
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidArgument, InvalidState, abridged, counted
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
        required_descriptor_count: Number of resources that one dispatch binds.
        temporary_resource_size: Bytes of scratch memory; 0 if none is needed.
        persistent_resource_size: Bytes filled by initialization; 0 if none are needed, and for initializers.
    """

    required_descriptor_count: int
    temporary_resource_size: int = 0
    persistent_resource_size: int = 0


@dataclass(frozen=True)
class TensorPort:
    """An input or output of a compiled operator.

    Attributes:
        label: Name in messages: ``indices_tensor (input 1)``.
        desc: The tensor, or None if an optional one is absent.
    """

    label: str
    desc: TensorDesc | None

    @property
    def owned(self) -> bool:
        """Whether DirectML owns the tensor, which is bound at initialization."""
        return self.desc is not None and self.desc.owned_by_dml

    @property
    def bound_at_execution(self) -> bool:
        """Whether the tensor is bound at execution."""
        return self.desc is not None and not self.desc.owned_by_dml


def with_absent(bindings: Sequence[object], ports: Sequence[TensorPort]) -> tuple[object, ...]:
    """Return one binding per port; trailing absent optional tensors may be omitted."""
    rest = ports[len(bindings) :]
    return (*bindings, *(None for _ in rest)) if all(port.desc is None for port in rest) else tuple(bindings)


class Operator(DeviceChild):
    """An operator with a validated description (DirectML: IDMLOperator).

    Created by ``Device.create_operator``; ``Device.compile_operator`` compiles it.
    """

    def __init__(self, device: Device, state: DeviceState, desc: OperatorDesc):
        super().__init__(device, state)
        self._desc, self._kind = desc, desc.operator
        self._unreported = 0.0  # seconds of checking, which renders kernels; added to compiled.timings

    @property
    def desc(self) -> OperatorDesc:
        """The description."""
        return self._desc


class CompiledOperator(DeviceChild):
    """An operator or graph compiled for the device's adapter (DirectML: IDMLCompiledOperator).

    It must be initialized exactly once, by executing an ``OperatorInitializer``, before it is executed.
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

    def __repr__(self) -> str:
        ports = f"{counted(len(self.inputs), 'input')}, {counted(len(self.outputs), 'output')}"
        kernels = "" if self.program is None else f", {counted(len(self.program.kernels), 'kernel')}"
        return f"<compiled {self.description} on '{self._state.backend.info.short_name}': {ports}{kernels}>"

    @property
    def binding_properties(self) -> BindingProperties:
        """Resources that an execution binds (IDMLDispatchable::GetBindingProperties)."""
        self._state.check()
        return self._properties

    @property
    def program(self) -> Program | None:
        """The kernels that run on the adapter; None on ``numpy``."""
        return getattr(self._executable, "program", None)

    @property
    def flags(self) -> ExecutionFlags:
        """The execution flags of the compilation."""
        return self._flags

    @property
    def timings(self) -> Timings | None:
        """Seconds per stage of compilation, or None on the adapter ``numpy``, which compiles nothing.

        Some drivers finish compiling in the background. Reading this property, like the first call, waits for them, and
        counts the wait as driver time.
        """
        self._state.check()
        return self._state.call_unlocked(lambda: self._executable.timings)

    def _took(self, seconds: float) -> None:
        """Record the total time of compilation."""
        if self.program is not None:
            self._executable.took(seconds)

    @property
    def is_initialized(self) -> bool:
        """Whether the initialization was submitted."""
        return self._is_initialized


class OperatorInitializer(DeviceChild):
    """Initializes compiled operators (DirectML: IDMLOperatorInitializer).

    Its inputs are, per operator, an array of the tensors flagged OWNED_BY_DML. Its outputs are the persistent resources
    of the operators.
    """

    _kind = "initializer"

    def __init__(self, device: Device, state: DeviceState, operators: Sequence[CompiledOperator]):
        super().__init__(device, state)
        self._serial: int | None = None
        self.operators: tuple[CompiledOperator, ...] = ()
        self._take(operators)

    @property
    def binding_properties(self) -> BindingProperties:
        """Resources that its execution binds (IDMLDispatchable::GetBindingProperties); ``reset`` may change them."""
        self._state.check()
        inputs = sum(port.owned for compiled in self.operators for port in compiled.inputs)
        outputs = sum(compiled._properties.persistent_resource_size > 0 for compiled in self.operators)
        return BindingProperties(inputs + outputs)

    def reset(self, operators: Sequence[CompiledOperator] = ()) -> None:
        """Target another set of operators (IDMLOperatorInitializer::Reset). Not thread-safe.

        Binding tables of the initializer must be reset as well.

        Raises:
            InvalidState: If an execution of the initializer is in flight.
            InvalidArgument: As ``Device.create_operator_initializer``.
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
                    "an operator is initialized exactly once"
                )
        self.operators = taken


Dispatchable = CompiledOperator | OperatorInitializer


def ports(tensors: Sequence[tuple[str, int | None, TensorDesc | None]], kind: str) -> tuple[TensorPort, ...]:
    """Return the inputs or outputs of a description, flat, in the order of DirectML's struct; messages call them
    ``kind``."""
    return tuple(
        TensorPort(f"{field if element is None else f'{field}[{element}]'} ({kind} {index})", desc)
        for index, (field, element, desc) in enumerate(tensors)
    )


def graph_ports(
    what: str, tensors: Sequence[TensorDesc | None], names: Mapping[int, str | None]
) -> tuple[TensorPort, ...]:
    """Return the inputs or outputs of a graph, labeled by index and the names of their edges."""

    def label(index: int) -> str:
        name = names.get(index)
        return f"{what} {index} {abridged(name)!r}" if name else f"{what} {index}"

    return tuple(TensorPort(label(index), tensor) for index, tensor in enumerate(tensors))
