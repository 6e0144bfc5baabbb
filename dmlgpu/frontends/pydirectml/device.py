"""Devices, graphs under construction, models, and the data that are bound to them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import enums as directml
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc as Desc
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.frontends.pydirectml.calls import InvalidCall, WrongArgument, surface
from dmlgpu.frontends.pydirectml.enums import ExecutionFlags
from dmlgpu.frontends.pydirectml.expression import Expression, unwrap, wrap
from dmlgpu.frontends.pydirectml.tensors import TensorData, as_floats, as_numbers
from dmlgpu.runtime.adapters import adapters, environment_choice
from dmlgpu.runtime.binding import BufferArrayBinding
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.commands import CommandList
from dmlgpu.runtime.device import Device as Computer
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from dmlgpu.runtime.operator import CompiledOperator, TensorPort
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.tensor import Tensor as Node

Raw: TypeAlias = NDArray[np.uint8]


class Execution:
    """A compiled graph, initialized with the inputs that are OWNED_BY_DML.

    Args:
        compiled: Not initialized yet.
        raw: The bytes of the inputs by index; None for those that are not needed.
    """

    def __init__(self, compiled: CompiledOperator, raw: Sequence[Raw | None]):
        self.owned = [data if port.owned else None for port, data in zip(compiled.inputs, raw, strict=True)]
        self._device, properties = compiled.device, compiled.binding_properties
        self._inputs = [self._buffer(port) if port.bound_at_execution else None for port in compiled.inputs]
        self._outputs = [self._buffer(port) for port in compiled.outputs]
        self._persistent = self._scratch(properties.persistent_resource_size, "persistent resource")
        self._temporary = self._scratch(properties.temporary_resource_size, "temporary resource")
        self._initialize(compiled)
        self._commands = self._record(compiled)

    def has(self, raw: Sequence[Raw | None]) -> bool:
        """Return whether OWNED_BY_DML inputs equal those of the initialization."""
        pairs = zip(self.owned, raw, strict=True)
        return all(had is None or had is new or (new is not None and np.array_equal(had, new)) for had, new in pairs)

    def run(self, raw: Sequence[Raw | None]) -> list[Raw]:
        """Return the bytes of the outputs for those of the inputs."""
        for buffer, data in zip(self._inputs, raw, strict=True):
            if buffer is not None and data is not None:
                buffer.write(data)
        self._device.queue.execute([self._commands])
        return [buffer.read() for buffer in self._outputs]

    def _initialize(self, compiled: CompiledOperator) -> None:
        sources: list[Buffer | None] = []
        for port, data in zip(compiled.inputs, self.owned, strict=True):
            source = None
            if data is not None:
                source = self._buffer(port)
                source.write(data)
            sources.append(source)
        initializer = self._device.create_operator_initializer([compiled])
        table = self._device.create_binding_table(initializer)
        table.bind_inputs([BufferArrayBinding(sources)])
        table.bind_outputs([self._persistent])
        commands = self._device.create_command_list()
        self._device.create_command_recorder().record_dispatch(commands, initializer, table)
        commands.close()
        self._device.queue.execute([commands])
        for source in sources:
            if source is not None:
                source.release()

    def _record(self, compiled: CompiledOperator) -> CommandList:
        table = self._device.create_binding_table(compiled)
        table.bind_inputs(self._inputs)
        table.bind_outputs(self._outputs)
        table.bind_temporary_resource(self._temporary)
        table.bind_persistent_resource(self._persistent)
        commands = self._device.create_command_list()
        self._device.create_command_recorder().record_dispatch(commands, compiled, table)
        commands.close()
        return commands

    def _buffer(self, port: TensorPort) -> Buffer:
        assert port.desc is not None
        return self._device.create_buffer(port.desc.byte_size, port.label)

    def _scratch(self, size: int, name: str) -> Buffer | None:
        return self._device.create_buffer(size, name) if size else None


class Binding:
    """Data for an input.

    Args:
        expr: The input, whose description determines the number of bytes.
        data: An array of numbers in memory order, which is converted to FLOAT32 and copied; for strided inputs with as
            many elements as their strides span. Inputs of other types accept arrays of their own type, or their bits as
            FLOAT32.

    Raises:
        WrongArgument: If `expr` is not an expression, or `data` not an array of numbers of the input's type or FLOAT32.
        InvalidCall: If there are too few or too many bytes, or the expression is empty.
    """

    @surface
    def __init__(self, expr: Expression, data: Any) -> None:
        self._node = unwrap(expr)
        self._raw = _raw(self._node, data)


def _raw(node: Node, data: Any) -> NDArray[np.uint8]:
    """Return a copy of a tensor's bytes in memory."""
    desc, array = node.desc, as_numbers("Binding", data)
    if desc.data_type is DataType.FLOAT32 or array.dtype == np.float32:
        array = as_floats("Binding", array)
    elif array.dtype != desc.data_type.numpy:
        raise WrongArgument(
            f"Binding: data for {node!r} must be an array of {desc.data_type.numpy}, or its bits as float32, "
            f"got {array.dtype}; pass array.astype(np.{desc.data_type.numpy})"
        )
    data_bytes = array.tobytes()
    missing = -len(data_bytes) % 4  # tensors take whole words
    if len(data_bytes) + missing != desc.byte_size:
        raise InvalidCall(
            f"Binding: data for {node!r} must have {desc.byte_size} bytes, as the tensor has in memory, "
            f"got {len(data_bytes)} ({array.dtype} with shape {array.shape})"
        )
    return np.frombuffer(data_bytes + bytes(missing), np.uint8)


class GraphBuilder:
    """A graph under construction.

    Args:
        device: Device to compile for.
    """

    @surface
    def __init__(self, device: Device) -> None:
        self._graph = Graph(device._computer)
        self._inputs: list[tuple[int, Node]] = []

    @surface
    def build(self, flags: ExecutionFlags, outputs: Sequence[Expression], /) -> Model:
        """Compile the graph of the outputs.

        Raises:
            WrongArgument: An argument of the wrong kind.
            InvalidCall: No output, an empty one, one that is an input, or one of another graph; or an input's index
                that is not below their number.
            UnsupportedOperator: If the adapter lacks what an operator needs.
        """
        count = len(self._inputs)
        beyond = next((index for index, _ in self._inputs if index >= count), None)
        if beyond is not None:
            raise InvalidCall(
                f"GraphBuilder.build: each input_index must be below the number of inputs ({count}), got {beyond}"
            )
        return Model._of(self, directml.ExecutionFlags(flags), [unwrap(output) for output in outputs])

    def _input(self, index: int, desc: Desc) -> Expression:
        again = sum(other == index for other, _ in self._inputs)
        node = self._graph.input(desc, name=f"input {index}" + (f" ({again + 1})" if again else ""))
        self._inputs.append((index, node))
        return wrap(node)


class Model:
    """A compiled graph, created by ``GraphBuilder.build``."""

    _builder: GraphBuilder
    _inputs: tuple[tuple[int, Node], ...]
    _outputs: tuple[Node, ...]
    _compile: Callable[[], CompiledOperator]
    _compiled: CompiledOperator | None
    _needed: tuple[bool, ...]
    _execution: Execution | None
    _lock: threading.Lock

    def __init__(self) -> None:
        raise WrongArgument("Model: no constructor defined; GraphBuilder.build makes one")

    @classmethod
    def _of(cls, builder: GraphBuilder, flags: directml.ExecutionFlags, outputs: Sequence[Node]) -> Self:
        """Compile a graph as it is now; inputs that are added later are not the model's."""
        model, graph = cls.__new__(cls), builder._graph
        model._builder, model._inputs, model._outputs = builder, tuple(builder._inputs), tuple(outputs)
        model._lock = threading.Lock()  # threads take turns: they write to the same buffers
        compiled = model._compiled = graph.compile(outputs, flags)
        model._compile = functools.partial(graph.device.compile_graph, graph.desc(outputs), flags)
        model._needed, model._execution = tuple(port.desc is not None for port in compiled.inputs), None
        return model

    def _execute(self, raw: Sequence[Raw | None]) -> list[Raw]:
        """Return the outputs' bytes; initialize only if OWNED_BY_DML inputs changed since the last run."""
        with self._lock:
            if self._execution is None or not self._execution.has(raw):
                self._execution = None  # free its memory first
                compiled, self._compiled = self._compiled or self._compile(), None
                self._execution = Execution(compiled, raw)
            return self._execution.run(raw)

    def _raw(self, inputs: Sequence[Binding | None]) -> list[Raw | None]:
        """Return the bytes of each input of the graph; None for those that no output needs."""
        if len(inputs) != len(self._inputs):
            raise InvalidCall(
                f"Device.compute: inputs must have an entry for each of the graph's {len(self._inputs)} inputs, "
                f"got {len(inputs)}"
            )
        return [
            self._bound(index, node, inputs[index]) if needed else None
            for (index, node), needed in zip(self._inputs, self._needed, strict=True)
        ]

    def _bound(self, index: int, node: Node, binding: Binding | None) -> Raw:
        if binding is None:
            raise InvalidCall(f"Device.compute: inputs[{index}] must be a Binding for {node!r}, got None")
        bound = binding._node
        elsewhere = bound.graph is node.graph and bound.origin.kind == "input" and self._index(bound) != index
        if elsewhere or binding._raw.size != node.desc.byte_size:
            raise InvalidCall(
                f"Device.compute: inputs[{index}] must be a Binding for {node!r}, "
                f"got one for {bound!r} with {binding._raw.size} bytes"
            )
        return binding._raw

    def _index(self, node: Node) -> int:
        return self._builder._inputs[node.origin.number][0]

    def _requested(self, outputs: Sequence[Expression | None]) -> list[Node | None]:
        """Return the requested outputs in the model's order; None for others."""
        if len(outputs) != len(self._outputs):
            raise InvalidCall(
                f"Device.compute: outputs must have an entry for each of the model's {len(self._outputs)} outputs, "
                f"got {len(outputs)}"
            )
        requested = [None if output is None else unwrap(output) for output in outputs]
        for index, (node, built) in enumerate(zip(requested, self._outputs, strict=True)):
            if node is not None and (node.graph is not built.graph or node.origin != built.origin):
                raise InvalidCall(f"Device.compute: outputs[{index}] must be the model's, {built!r}, got {node!r}")
        return requested


class Device:
    """A device that compiles and runs models.

    Args:
        use_gpu: Whether to use dmlgpu's default adapter, the first hardware one; otherwise the first software one. An
            adapter named by the environment variable DMLGPU_ADAPTER has priority.
        use_debug_layer: Accepted and ignored: everything is always checked.

    Raises:
        WrongArgument: An argument of the wrong kind.
        NoAdapter: If no adapter has the name.
    """

    @surface
    def __init__(self, use_gpu: bool = True, use_debug_layer: bool = False) -> None:
        self._use_gpu = use_gpu
        self._computer = Computer(None if use_gpu or environment_choice() else _software())

    def __repr__(self) -> str:
        return f"dml.Device on {'GPU' if self._use_gpu else 'CPU'}"

    @surface
    def compute(
        self, model: Model, inputs: Sequence[Binding | None], outputs: Sequence[Expression | None], /
    ) -> list[TensorData]:
        """Initialize and execute a model.

        Args:
            model: The model.
            inputs: Bindings by the inputs' indices; None if no output needs the input.
            outputs: The expressions with which the model was built; None to omit a result.

        Returns:
            The results of the outputs that are not None.

        Raises:
            WrongArgument: If an argument has the wrong type.
            InvalidCall: If the model belongs to another device, an input is unbound or its binding belongs to another
                input, or an output does not belong to the model.
        """
        computer = model._builder._graph.device
        if computer is not self._computer:
            raise InvalidCall(
                f"Device.compute: model must be built for this device, got one for {computer.description}"
            )
        requested = model._requested(outputs)
        results = zip(requested, model._execute(model._raw(inputs)), strict=True)
        return [TensorData._of(raw, node.desc) for node, raw in results if node is not None]


def _software() -> AdapterInfo:
    """Return the first software adapter; OpenGL and then the reference come last."""
    software = [info for info in adapters() if info.is_software]
    return min(software, key=lambda info: (info == NUMPY_ADAPTER, info.backend == "OpenGL"))
