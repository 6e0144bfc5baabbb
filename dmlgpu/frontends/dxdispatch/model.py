"""What a model says, once read: resources, dispatchables, commands. Plain frozen values; every name is resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dmlgpu.backend import Range
from dmlgpu.enums import ExecutionFlags
from dmlgpu.frontends.dxdispatch.node import Node
from dmlgpu.frontends.dxdispatch.paths import Access
from dmlgpu.frontends.dxdispatch.resources import Resource
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.tensor import TensorDesc


@dataclass(frozen=True)
class BoundTensor(Range[str]):
    """A tensor and its bytes in the resource whose name stands for the buffer."""

    tensor: TensorDesc


Bindings = tuple[BoundTensor | None, ...]
"""One entry for each tensor in the order of the operator's fields, arrays flattened; None binds nothing."""


@dataclass(frozen=True)
class BindPoint:
    """A tensor field of an operator, by which a model binds resources.

    Attributes:
        name: DirectML's name of the field, ``InputTensor``.
        tensors: its tensors, one unless the field is an array; None for an optional tensor that is absent.
    """

    name: str
    tensors: tuple[TensorDesc | None, ...]


@dataclass(frozen=True)
class Dispatchable:
    """An operator of the model.

    Attributes:
        name: the model's name for it.
        desc: its description.
        inputs: bind points in the order of the operator's fields.
        outputs: likewise.
        flags: how to compile it.
        initial_inputs: what is bound at initialisation: the tensors with OWNED_BY_DML.
        path: where it stands in the model.
        fields: the JSON object that holds the description's fields, for messages.
    """

    name: str
    desc: OperatorDesc
    inputs: tuple[BindPoint, ...]
    outputs: tuple[BindPoint, ...]
    flags: ExecutionFlags
    initial_inputs: Bindings
    path: str
    fields: Node


@dataclass(frozen=True)
class Dispatch:
    """The command that runs a dispatchable once."""

    dispatchable: str
    inputs: Bindings
    outputs: Bindings
    path: str


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
        resource: name of the resource.
        target: the file; relative ones start in the output directory. ``.npy`` gives a NumPy array, others raw bytes.
        dimensions: sizes to write and return the resource with, or None.
        path: where the command stands in the model.
    """

    resource: str
    target: Path
    dimensions: tuple[int, ...] | None
    path: str


Command = Dispatch | Print | WriteFile


@dataclass(frozen=True)
class Model:
    """A DxDispatch model.

    Attributes:
        resources: by name, in the model's order.
        dispatchables: by name, in the model's order.
        commands: in the order in which they run.
        access: which files it may read and write.
        source: the file it came from, or None.
    """

    resources: Mapping[str, Resource]
    dispatchables: Mapping[str, Dispatchable]
    commands: tuple[Command, ...]
    access: Access
    source: Path | None = None
