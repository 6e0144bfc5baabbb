"""Dispatchables on a device: compiled once, bound per command, run as often as the command asks."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import ModelError, NotSupported
from dmlgpu.common.memory import check_host_memory
from dmlgpu.compiler.graph.description import GraphDesc, InputEdge, OperatorNode, OutputEdge
from dmlgpu.frontends.dxdispatch.json_node import quoted
from dmlgpu.frontends.dxdispatch.model import (
    Bindings,
    BoundArray,
    GraphDispatchable,
    OnnxDispatch,
    OnnxDispatchable,
    OperatorDispatchable,
    ShaderDispatch,
    ShaderDispatchable,
    TableDispatch,
    TableDispatchable,
)
from dmlgpu.frontends.dxdispatch.result import OnnxBound
from dmlgpu.runtime.binding import BufferArrayBinding, BufferBinding
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.commands import CommandList
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.executor import Dispatch as Work
from dmlgpu.runtime.executor import Duration, Range, ShaderBackend, measure
from dmlgpu.runtime.operator import CompiledOperator, Dispatchable

Buffers = Mapping[str, Buffer]


class DispatchRunner(ABC):
    """A compiled and initialized dispatchable."""

    @abstractmethod
    def bind(self, command: Any, repeat: int) -> Sequence[OnnxBound]:
        """Bind the resources of a command, for ``repeat`` dispatches per run; return the events of ONNX tensors."""

    @abstractmethod
    def run(self) -> Duration:
        """Dispatch with the last bindings, wait, and return the time it took."""

    def finish(self) -> Mapping[str, NDArray[Any]]:
        """Store results in their resources; return those of deferred resources."""
        return {}


def graph_of(desc: OperatorDesc, name: str) -> GraphDesc:
    """Return a graph of one operator, whose inputs have the operator's indices; absent outputs are omitted."""
    inputs = [index for index, slot in enumerate(desc.inputs) if slot.tensor is not None]
    outputs = [index for index, slot in enumerate(desc.outputs) if slot.tensor is not None]
    return GraphDesc(
        len(desc.inputs),
        len(outputs),
        (OperatorNode(desc, name),),
        tuple(InputEdge(index, 0, index) for index in inputs),
        (),
        tuple(OutputEdge(0, index, i) for i, index in enumerate(outputs)),
    )


class TableRunner(DispatchRunner):
    """An operator or a graph, compiled and initialized, with the binding table of its dispatches.

    Attributes:
        own: Buffers in addition to the resources; the caller releases them.
    """

    def __init__(self, device: Device, dispatchable: TableDispatchable, buffers: Buffers, own: list[Buffer]):
        self._device, self._buffers, self._own = device, buffers, own
        self._recorder = device.create_command_recorder()
        self._compiled, self._as_graph = self._compile(dispatchable)
        compiled = self._compiled
        initializer = device.create_operator_initializer([compiled])
        table = device.create_binding_table(initializer)
        if any(dispatchable.initial_inputs):
            table.bind_inputs([BufferArrayBinding(self._bindings(dispatchable.initial_inputs))])
        persistent = self._scratch(compiled.binding_properties.persistent_resource_size)
        if persistent is not None:
            table.bind_outputs([persistent])
        self._bind_temporary(table, initializer.binding_properties.temporary_resource_size)
        device.queue.measure([self._recorded(initializer, table, 1)])
        table.reset(compiled)
        if persistent is not None:
            table.bind_persistent_resource(persistent)
        self._bind_temporary(table, compiled.binding_properties.temporary_resource_size)
        self._table = table
        self._commands: CommandList | None = None

    def _compile(self, dispatchable: TableDispatchable) -> tuple[CompiledOperator, bool]:
        device, as_graph = self._device, False
        match dispatchable:
            case GraphDispatchable():
                compiled = device.compile_graph(dispatchable.graph, dispatchable.flags)
            case OperatorDispatchable(as_graph=as_graph):
                operator = device.create_operator(dispatchable.desc)
                compiled = (
                    device.compile_graph(graph_of(dispatchable.desc, dispatchable.name), dispatchable.flags)
                    if as_graph
                    else device.compile_operator(operator, dispatchable.flags)
                )
        compiled.name = dispatchable.name
        return compiled, as_graph

    def bind(self, command: TableDispatch, repeat: int) -> Sequence[OnnxBound]:
        """Bind the tensors of a command."""
        self._table.bind_inputs(self._bindings(command.inputs))
        outputs = self._bindings(command.outputs)
        self._table.bind_outputs([output for output in outputs if output is not None] if self._as_graph else outputs)
        self._commands = self._recorded(self._compiled, self._table, repeat)
        return ()

    def run(self) -> Duration:
        """Run the recorded commands."""
        return self._device.queue.measure([self._commands] if self._commands else [])

    def _recorded(self, dispatchable: Dispatchable, table: Any, repeat: int) -> CommandList:
        commands = self._device.create_command_list()
        for _ in range(repeat):
            self._recorder.record_dispatch(commands, dispatchable, table)
        commands.close()
        return commands

    def _bindings(self, ranges: Bindings) -> list[BufferBinding | None]:
        return [
            None if bound is None else BufferBinding(self._buffers[bound.buffer], bound.offset, bound.size)
            for bound in ranges
        ]

    def _scratch(self, size: int) -> Buffer | None:
        if size == 0:
            return None
        self._own.append(self._device.create_buffer(size))
        return self._own[-1]

    def _bind_temporary(self, table: Any, size: int) -> None:
        if (buffer := self._scratch(size)) is not None:
            table.bind_temporary_resource(buffer)


class ShaderRunner(DispatchRunner):
    """A compute shader, compiled."""

    def __init__(self, device: Device, dispatchable: ShaderDispatchable, buffers: Buffers):
        backend = device.backend
        if not isinstance(backend, ShaderBackend):
            raise NotSupported(f"shader {quoted(dispatchable.name)}: {device.adapter} runs no shaders")
        self._backend, self._buffers = backend, buffers
        kinds = {binding.number: binding.kind for binding in dispatchable.bindings}
        self._shader = backend.compile_shader(
            dispatchable.wgsl, dispatchable.entry_point, dispatchable.constants, kinds, f"shader {dispatchable.name!r}"
        )
        self._work: Sequence[Work] = ()

    def bind(self, command: ShaderDispatch, repeat: int) -> Sequence[OnnxBound]:
        """Bind the resources of a command."""
        ranges = {
            slot: Range(self._buffers[bound.buffer].memory, bound.offset, bound.size)
            for slot, bound in command.ranges.items()
        }
        self._work = tuple(self._shader.bind(ranges, command.groups)) * repeat
        return ()

    def run(self) -> Duration:
        """Run the bound work."""
        return measure(self._backend, self._work)


class OnnxRunner(DispatchRunner):
    """An ONNX model on a device; tensors that no resource is bound to are implicit, and inputs then hold zeros."""

    def __init__(self, device: Device, dispatchable: OnnxDispatchable, buffers: Buffers):
        from dmlgpu.frontends.onnx.session import Session  # noqa: PLC0415  an extra

        self._device, self._dispatchable, self._buffers = device, dispatchable, buffers
        # Two dimensions of one name may have different sizes, as in ONNX Runtime.
        open_inputs = tuple(
            replace(
                model_input,
                shape=model_input.shape
                and tuple(size if isinstance(size, int) else None for size in model_input.shape),
            )
            for model_input in dispatchable.model.inputs
        )
        self._session = Session(replace(dispatchable.model, inputs=open_inputs), device)
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, BoundArray] = {}
        self._results: Mapping[str, Any] = {}
        self._repeat = 1

    def bind(self, command: OnnxDispatch, repeat: int) -> Sequence[OnnxBound]:
        """Read the inputs from their resources, and note the resources of outputs."""
        from dmlgpu.tensors.tensor import Tensor  # noqa: PLC0415  only what runs ONNX needs it

        self._repeat, events = repeat, []
        self._inputs = {}
        for model_input in self._session.inputs:
            bound = command.tensors.get(model_input.name)
            shape = self._shape(model_input.name, bound, model_input.shape, free=1)
            if shape is None:
                raise ModelError(
                    command.path, f"input {quoted(model_input.name)} needs a shape, as the ONNX model gives none"
                )
            array = self._input(model_input.name, bound, shape, model_input.data_type)
            if model_input.is_bool:
                array = array != 0
            self._inputs[model_input.name] = (
                Tensor(array, device=self._device) if model_input.data_type.bits >= 8 else array
            )
            events.append(OnnxBound(model_input.name, True, _resource_kind(bound), _onnx_type(model_input), shape))
        names = [declared.name for declared in self._session.outputs]
        self._outputs = {name: command.tensors[name] for name in names if name in command.tensors}
        return (*events, *(self._output_event(name, command.tensors.get(name)) for name in names))

    def _shape(
        self, name: str, bound: BoundArray | None, declared: Sequence[int | str | None] | None, free: int
    ) -> tuple[int, ...] | None:
        """Return a tensor's shape from the command line, the binding or the model, with ``free`` for open sizes."""
        explicit = self._dispatchable.shapes.get(name) or (bound.shape if bound is not None else None)
        if explicit is not None or declared is None:
            return explicit
        return tuple(size if isinstance(size, int) else free for size in declared)

    def _input(self, name: str, bound: BoundArray | None, shape: tuple[int, ...], data_type: DataType) -> NDArray[Any]:
        size = -(-math.prod(shape) * data_type.bits // 8)
        check_host_memory(2 * size, f"input {quoted(name)}", "hold its elements")
        if bound is None or bound.resource is None:
            return np.zeros(shape, data_type.numpy)
        raw = self._buffers[bound.resource].read()
        if size > raw.size:
            raise ModelError(
                bound.path,
                f"input {quoted(name)} of shape {list(shape)} needs {size} bytes, the resource has {raw.size}",
            )
        return TensorDesc(data_type, (math.prod(shape),)).decode(raw).reshape(shape) if size else np.zeros(shape)

    def _output_event(self, name: str, bound: BoundArray | None) -> OnnxBound:
        declared = next((output for output in self._dispatchable.model.declared_outputs if output.name == name), None)
        shape = self._shape(name, bound, None if declared is None else declared.shape, free=-1)
        kind = "deferred" if shape is None or -1 in shape else _resource_kind(bound)
        return OnnxBound(name, False, kind, "UNDEFINED" if declared is None else _onnx_type(declared), shape)

    def run(self) -> Duration:
        """Run the model; results stay on the device."""
        start = time.perf_counter()
        for _ in range(self._repeat):
            self._results = self._session.run_tensors(self._inputs)
        fence = self._device.create_fence()
        self._device.queue.signal(fence, 1)
        fence.wait(1)
        return Duration(time.perf_counter() - start, None)

    def finish(self) -> Mapping[str, NDArray[Any]]:
        """Write outputs to the resources that they are bound to; returns those of deferred ones."""
        deferred = {}
        for name, bound in self._outputs.items():
            result = self._results[name]
            array = np.asarray(result.numpy() if hasattr(result, "numpy") else result)
            expected = self._dispatchable.shapes.get(name) or bound.shape
            if expected is not None and array.shape != expected:
                raise ModelError(
                    bound.path,
                    f"output {quoted(name)} has shape {list(array.shape)}, the binding says {list(expected)}",
                )
            if bound.resource is None:
                continue
            if bound.resource not in self._buffers:
                deferred[bound.resource] = array
                continue
            self._store(name, np.ascontiguousarray(array).reshape(-1).view(np.uint8), bound)
        return deferred

    def _store(self, name: str, raw: NDArray[np.uint8], bound: BoundArray) -> None:
        buffer = self._buffers[bound.resource or ""]
        if raw.size > buffer.size:
            raise ModelError(
                bound.path, f"output {quoted(name)} has {raw.size} bytes, the resource has room for {buffer.size}"
            )
        content = buffer.read()
        content[: raw.size] = raw
        buffer.write(content)


def _resource_kind(bound: BoundArray | None) -> str:
    return "implicit" if bound is None or bound.resource is None else "explicit"


def _onnx_type(declared: Any) -> str:
    if declared.is_bool:
        return "BOOL"
    return {"FLOAT32": "FLOAT", "FLOAT64": "DOUBLE"}.get(declared.data_type.name, declared.data_type.name)


def make_runner(device: Device, dispatchable: Any, buffers: Buffers, own: list[Buffer]) -> DispatchRunner:
    """Compile and initialize a dispatchable.

    Args:
        device: Device to run on.
        dispatchable: One of the model's.
        buffers: The resources' memory; deferred ones have none.
        own: Takes further buffers that it needs.
    """
    match dispatchable:
        case ShaderDispatchable():
            return ShaderRunner(device, dispatchable, buffers)
        case OnnxDispatchable():
            return OnnxRunner(device, dispatchable, buffers)
    return TableRunner(device, dispatchable, buffers, own)
