"""ONNX operators that are functions of others: their bodies, for those that no translator is registered for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import onnx
from onnx import FunctionProto, NodeProto, helper

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.onnx.elements import ELEMENT_TYPES
from dmlgpu.frontends.onnx.inlining import Inliner, Place
from dmlgpu.frontends.onnx.node import Node
from dmlgpu.frontends.onnx.registry import Versions
from dmlgpu.frontends.onnx.signatures import schema_of
from dmlgpu.frontends.onnx.values import Value


@dataclass(frozen=True)
class Body:
    """The body of a function at one place: attributes are filled in.

    Attributes:
        nodes: in order.
        inputs, outputs: names.
        versions: of the operator sets that the nodes are of.
        weights: tensors of the body by name.
    """

    nodes: tuple[NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    versions: Versions
    weights: Mapping[str, Value]

    def bind(self, values: Sequence[Value | None]) -> dict[str, Value | None]:
        """Return what names stand for; None for inputs that are not given."""
        return {**self.weights, **dict(zip_longest(self.inputs, values))}


def has_body(domain: str, name: str, version: int) -> bool:
    """Return whether an operator is a function of others."""
    schema: Any = schema_of(domain, name, version)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def body_of(node: Node) -> Body | None:
    """Return the body of a node whose operator is a function; None where it is none."""
    if not has_body(node.proto.domain, node.op_type, node.version):
        return None
    schema: Any = schema_of(node.proto.domain, node.op_type, node.version)
    function = FunctionProto()
    if schema.has_function:
        function = schema.function_body
    else:
        types = [_type_of(one).SerializeToString() if one is not None else b"" for one in node.inputs]
        function.ParseFromString(schema.get_context_dependent_function(node.proto.SerializeToString(), types))
    given = {one.name: one for one in node.proto.attribute}
    usual = {name: one.default_value for name, one in schema.attributes.items() if one.default_value.name}
    attributes = {**usual, **{one.name: one for one in function.attribute_proto}, **given}
    imported = {one.domain: one.version for one in function.opset_import}
    newest = node.version if node.proto.domain in ("", "ai.onnx") else onnx.defs.onnx_opset_version()
    versions = Versions({"": newest, node.proto.domain: node.version, **imported})
    inliner = Inliner((), versions)
    place = Place(versions, label=f"{node.name}/", attributes=attributes)
    nodes = tuple(inliner.nodes(function.node, place))
    return Body(nodes, tuple(function.input), tuple(function.output), versions, inliner.weights)


def _type_of(value: Value) -> onnx.TypeProto:
    element = onnx.TensorProto.BOOL if value.is_bool else ELEMENT_TYPES.get(value.data_type, onnx.TensorProto.FLOAT)
    assert isinstance(value.data_type, DataType)
    return helper.make_tensor_type_proto(element, value.shape)
