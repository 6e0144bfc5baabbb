"""Join networks that are split over several files, and share their equal weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnx import FunctionProto, ModelProto, TensorProto, ValueInfoProto, helper

from dmlgpu.common.errors import ModelError, NotSupported
from dmlgpu.frontends.generation.bfloat16 import widen_bfloat16
from dmlgpu.frontends.generation.editing import rename, stand_in
from dmlgpu.frontends.generation.shared_weights import SharedWeights
from dmlgpu.frontends.onnx.model import light
from dmlgpu.frontends.onnx.tensor_proto import type_name
from dmlgpu.frontends.onnx.values import OnnxValue

_MIN_SHARED = 1024
"""Bytes of the smallest initializer that is compared with others; smaller ones stay in the graph."""


@dataclass(frozen=True)
class NetworkPart:
    """A file of a split network.

    Attributes:
        path: The file.
        renamed: Names by which later parts read its outputs, if different.
    """

    path: Path
    renamed: Mapping[str, str] = field(default_factory=dict)


def without_data(proto: ModelProto, folder: Path | None, weights: SharedWeights) -> dict[str, OnnxValue]:
    """Take large initializers, and all of BFLOAT16, out of a model, and return them by name.

    Raises:
        DmlError: As ``SharedWeights.of`` and ``widen_bfloat16``.
    """
    values = widen_bfloat16(proto, folder, weights)
    for tensor in proto.graph.initializer:
        is_large = tensor.data_location == TensorProto.EXTERNAL or tensor.ByteSize() >= _MIN_SHARED
        if is_large and tensor.name not in values:
            values[tensor.name] = weights.of(tensor, folder)
            tensor.CopyFrom(stand_in(tensor.name, tensor.dims, tensor.data_type))
    return values


def joined(parts: Sequence[NetworkPart], label: str) -> tuple[ModelProto, dict[str, OnnxValue]]:
    """Return the parts of a network as one model, and its large initializers by name.

    A part reads the outputs of the parts before it by name; other inputs are inputs of the model. Outputs that no part
    reads are outputs of the model.

    Args:
        parts: The parts, in order.
        label: Name of the model in messages.

    Raises:
        ModelError: If a file is missing or malformed, or two files declare an input differently.
        NotSupported: If they have different operator sets, or functions of one name.
    """
    joining = _Joining(label)
    for index, part in enumerate(parts):
        joining.add(part, f"{index}/")
    return joining.finish(), joining.values


class _Joining:
    """A model under construction from parts.

    Attributes:
        values: Large initializers by name.
    """

    def __init__(self, label: str):
        self.values: dict[str, OnnxValue] = {}
        self._label = label
        self._proto = ModelProto()
        self._graph = self._proto.graph
        self._graph.name = label
        self._weights = SharedWeights()
        self._names: dict[int, str] = {}
        self._inputs: dict[str, ValueInfoProto] = {}
        self._outputs: dict[str, ValueInfoProto] = {}
        self._read: set[str] = set()
        self._versions: dict[str, int] = {}
        self._functions: dict[tuple[str, str], FunctionProto] = {}

    def add(self, part: NetworkPart, prefix: str) -> None:
        """Add a part, whose own names get a prefix."""
        proto, folder, file = light(part.path)
        graph = proto.graph
        self._add_definitions(proto, file)
        table = self._add_initializers(proto, folder, prefix)
        for info in graph.input:
            if info.name not in table:
                table[info.name] = self._source(info, file)
        outputs = [info.name for info in graph.output]
        rename(graph, lambda name: table.get(name, prefix + name))
        self._graph.node.extend(graph.node)
        for name, info in zip(outputs, graph.output, strict=True):
            self._outputs[part.renamed.get(name, name)] = info

    def finish(self) -> ModelProto:
        """Return the model."""
        self._proto.opset_import.extend(helper.make_opsetid(*entry) for entry in self._versions.items())
        self._proto.functions.extend(self._functions.values())
        self._graph.input.extend(self._inputs.values())
        final = {
            info.name: name
            for name, info in self._outputs.items()
            if info.name not in self._read and name not in self._inputs
        }
        self._graph.output.extend(info for info in self._outputs.values() if info.name in final)
        rename(self._graph, lambda name: final.get(name, name))
        return self._proto

    def _add_definitions(self, proto: ModelProto, file: str) -> None:
        """Add versions and functions, which all parts share."""
        self._proto.ir_version = max(self._proto.ir_version, proto.ir_version)
        for entry in proto.opset_import:
            version = self._versions.setdefault(entry.domain, entry.version)
            if version != entry.version:
                raise NotSupported(
                    f"{self._label}: all files must have one operator set of {entry.domain or 'ai.onnx'}, got {version}"
                    f" and, in {file}, {entry.version}"
                )
        for function in proto.functions:
            first = self._functions.setdefault((function.domain, function.name), function)
            if first != function:
                raise NotSupported(f"{self._label}: {file} has another function {function.name!r} than other files")

    def _add_initializers(self, proto: ModelProto, folder: Path | None, prefix: str) -> dict[str, str]:
        """Add initializers that no earlier part has; return the name of each."""
        large = without_data(proto, folder, self._weights)
        table = {}
        for tensor in proto.graph.initializer:
            value = large.get(tensor.name)
            name = prefix + tensor.name if value is None else self._names.setdefault(id(value), prefix + tensor.name)
            table[tensor.name] = name
            if value is not None and name in self.values:
                continue
            if value is not None:
                self.values[name] = value
            self._graph.initializer.add().CopyFrom(tensor)
            self._graph.initializer[-1].name = name
        return table

    def _source(self, info: ValueInfoProto, file: str) -> str:
        """Return the name of the tensor that an input reads: an output of an earlier part, or an input of the model."""
        earlier = self._outputs.get(info.name)
        declaration = earlier if earlier is not None else self._inputs.setdefault(info.name, info)
        types = [declared.type.tensor_type.elem_type for declared in (declaration, info)]
        if types[0] != types[1]:
            raise ModelError(
                self._label, f"{file}: input {info.name!r} must be {type_name(types[0])}, got {type_name(types[1])}"
            )
        if earlier is not None:
            self._read.add(earlier.name)
        return declaration.name
