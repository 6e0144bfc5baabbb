"""A parsed model: resources, dispatchables and commands as frozen values, with all names resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlgpu.catalog.enums import ExecutionFlags
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.frontends.dxdispatch.files import FileAccess
from dmlgpu.frontends.dxdispatch.json_node import JsonNode
from dmlgpu.frontends.dxdispatch.resources import Resource
from dmlgpu.runtime.executor import Range
from dmlgpu.runtime.shader_source import ShaderBinding


@dataclass(frozen=True)
class BoundTensor(Range[str]):
    """A tensor and its byte range in the resource that serves as its buffer."""

    tensor: TensorDesc


Bindings = tuple[BoundTensor | None, ...]
"""One entry for each tensor in the order of the operator's fields, arrays flattened; None binds nothing."""


@dataclass(frozen=True)
class BindPoint:
    """A tensor field of an operator, by which a model binds resources.

    Attributes:
        name: DirectML's name of the field, ``InputTensor``.
        tensors: Its tensors, one unless the field is an array; None for an optional tensor that is absent.
    """

    name: str
    tensors: tuple[TensorDesc | None, ...]


@dataclass(frozen=True)
class TableDispatchable:
    """An operator or a graph, bound by DirectML's binding tables.

    Attributes:
        name: The model's name for it.
        path: Path in the model.
        inputs: Bind points in the order of the operator's fields, or of the graph's inputs.
        outputs: likewise.
        flags: Options of compilation.
        initial_inputs: Tensors bound at initialization: those with OWNED_BY_DML.
    """

    name: str
    path: str
    inputs: tuple[BindPoint, ...]
    outputs: tuple[BindPoint, ...]
    flags: ExecutionFlags
    initial_inputs: Bindings


@dataclass(frozen=True)
class OperatorDispatchable(TableDispatchable):
    """An operator of the model.

    Attributes:
        desc: Its description.
        fields: The JSON object that holds the description's fields, for messages.
        as_graph: Whether it is compiled as a graph of one node (DmlCompileGraph).
    """

    desc: OperatorDesc
    fields: JsonNode
    as_graph: bool


@dataclass(frozen=True)
class GraphDispatchable(TableDispatchable):
    """A graph that DirectML's execution provider serialized; its weights are constants of the graph."""

    graph: GraphDesc


@dataclass(frozen=True)
class OnnxDispatchable:
    """An ONNX model.

    Attributes:
        name, path: As for ``TableDispatchable``.
        model: As ``dmlgpu.frontends.onnx.model.read`` returned it.
        shapes: Shapes of tensors given by the caller; they override those of bindings.
    """

    name: str
    path: str
    model: Any
    shapes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class ShaderDispatchable:
    """A compute shader in WGSL.

    Attributes:
        name, path: As for ``TableDispatchable``.
        wgsl: Its text.
        entry_point: The function to run.
        constants: Values of its ``override`` declarations.
        bindings: Its resources, by which a model binds.
    """

    name: str
    path: str
    wgsl: str
    entry_point: str
    constants: Mapping[str, float]
    bindings: tuple[ShaderBinding, ...]


Dispatchable = OperatorDispatchable | GraphDispatchable | OnnxDispatchable | ShaderDispatchable


@dataclass(frozen=True)
class BoundArray:
    """A resource that is bound to a tensor of an ONNX model.

    Attributes:
        resource: Name of the resource, or None if only the shape is given.
        shape: Shape of the tensor, or None for that of the ONNX model.
        path: Its path in the model.
    """

    resource: str | None
    shape: tuple[int, ...] | None
    path: str


@dataclass(frozen=True)
class TableDispatch:
    """The command that runs an operator or a graph."""

    dispatchable: str
    inputs: Bindings
    outputs: Bindings
    path: str


@dataclass(frozen=True)
class OnnxDispatch:
    """The command that runs an ONNX model; tensors that ``tensors`` lacks are bound implicitly."""

    dispatchable: str
    tensors: Mapping[str, BoundArray]
    path: str


@dataclass(frozen=True)
class ShaderDispatch:
    """The command that runs a shader.

    Attributes:
        dispatchable: Its name.
        ranges: Bound range of each binding, by its number in WGSL.
        groups: Workgroups along x, y and z (``threadGroupCount``).
        path: Path of the command in the model.
    """

    dispatchable: str
    ranges: Mapping[int, Range[str]]
    groups: tuple[int, int, int]
    path: str


Dispatch = TableDispatch | OnnxDispatch | ShaderDispatch


@dataclass(frozen=True)
class Print:
    """The command that prints a resource; ``verbose`` gives a line to each element, with its bits."""

    resource: str
    verbose: bool
    path: str


@dataclass(frozen=True)
class WriteFile:
    """The command that writes a resource to a file.

    Attributes:
        resource: Name of the resource.
        target: The file; relative ones start in the output directory. ``.npy`` gives a NumPy array, others raw bytes.
        dimensions: Sizes to write and return the resource with, or None.
        path: Path of the command in the model.
    """

    resource: str
    target: Path
    dimensions: tuple[int, ...] | None
    path: str


Command = TableDispatch | OnnxDispatch | ShaderDispatch | Print | WriteFile


@dataclass(frozen=True)
class DxModel:
    """A DxDispatch model.

    Attributes:
        resources: By name, in the model's order.
        dispatchables: By name, in the model's order.
        commands: In the order in which they run.
        access: Files that it may read and write.
        source: The file it came from, or None.
    """

    resources: Mapping[str, Resource]
    dispatchables: Mapping[str, Dispatchable]
    commands: tuple[Command, ...]
    access: FileAccess
    source: Path | None = None
