"""Calls of functions replaced by the functions' nodes, and tensors in nodes and bodies moved to the model's weights."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto

from dmlgpu.common.errors import ModelError, NotSupported, abridged
from dmlgpu.frontends.onnx.folding import Folded
from dmlgpu.frontends.onnx.registry import Versions, mark_version, plain_domain
from dmlgpu.frontends.onnx.signatures import schema_of
from dmlgpu.frontends.onnx.tensors import embed_external
from dmlgpu.frontends.onnx.values import Value

MOST_NODES = 2**20
"""Most nodes of a model, those of bodies and of functions, at each call, included."""

MOST_NESTED = 64
"""How deep functions and bodies may be nested."""

Function = tuple[str, str, str]
"""A function's domain, name and overload."""


def _label_of(node: NodeProto) -> str:
    """Return the name of a node, or where it stands."""
    return node.name or next(filter(None, node.output), node.op_type)


@dataclass(frozen=True)
class Place:
    """The graph, body or function whose nodes are inlined.

    Attributes:
        versions: of operator sets.
        path: prefix of names that are defined here; empty in the main graph, whose names stay.
        label: prefix of nodes' names.
        names: new names by old ones.
        targets: new names of a function's outputs that no node has defined yet.
        attributes: of the function's call, and its defaults.
        calls: the functions around.
        depth: of how many bodies and functions.
    """

    versions: Versions
    path: str = ""
    label: str = ""
    names: ChainMap[str, str] = field(default_factory=ChainMap)
    targets: dict[str, str] = field(default_factory=dict)
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict)
    calls: tuple[Function, ...] = ()
    depth: int = 0


class Inliner:
    """Inlines the nodes of one model.

    A node of a function, whose operator set may have another version than the model's, is marked with the version.

    Args:
        functions: that nodes may call.
        versions: of the model's operator sets.
        folder: the model's, with external data; None where there is none.
        taken: names that the main graph defines.

    Attributes:
        weights: tensors of Constant nodes and of bodies, by their new names.
        folded: the nodes Constant that are in ``weights``.
    """

    def __init__(
        self,
        functions: Iterable[FunctionProto],
        versions: Versions,
        folder: Path | None = None,
        taken: Iterable[str] = (),
    ):
        self._functions = {_key(function): function for function in functions}
        self._versions, self._folder = versions, folder
        self._taken, self._repeated, self._count = set(taken), Counter[str](), 0
        self.weights: dict[str, Value] = {}
        self.folded: list[Folded] = []

    def nodes(self, protos: Iterable[NodeProto], place: Place) -> Iterator[NodeProto]:
        """Return copies of nodes, in order, with the nodes of functions in the place of calls.

        Raises:
            ModelError: a function calls itself, or there are too many nodes; or a tensor is malformed.
            NotSupported: a tensor of a type that DirectML does not have.
        """
        for proto in protos:
            self._count += 1
            if self._count > MOST_NODES:
                raise ModelError("graph", f"must have at most {MOST_NODES} nodes, those of functions included")
            label = f"{place.label}{_label_of(proto)}"
            attributes = list(self._attributes(proto.attribute, place, proto.op_type, label))
            key = plain_domain(proto.domain), proto.op_type, proto.overload
            if key in self._functions:
                yield from self._call(proto, attributes, self._functions[key], place, label)
            elif (
                proto.op_type == "Constant" and not key[0] and [attribute.name for attribute in attributes] == ["value"]
            ):
                value = Value.of_tensor(attributes[0].t, f"Constant {label!r}", self._folder)
                self.weights[self._define(proto.output[0], place)] = value
                self.folded.append(Folded(label, "Constant", "it is part of the model's data"))
            else:
                yield self._copy(proto, attributes, place, label)

    def _copy(self, proto: NodeProto, attributes: Sequence[AttributeProto], place: Place, label: str) -> NodeProto:
        for attribute in attributes:
            for tensor in (attribute.t, *attribute.tensors):
                embed_external(tensor, f"{proto.op_type} {label!r}: attribute {attribute.name}", self._folder)
        inputs = [place.names.get(name, name) for name in proto.input]
        copied = NodeProto(op_type=proto.op_type, domain=proto.domain, input=inputs, attribute=attributes)
        copied.name = label if place.path or place.label else proto.name
        copied.output.extend(self._define(name, place) for name in proto.output)
        if place.versions is not self._versions:
            mark_version(copied, place.versions.of(copied))
        if any(attribute.ref_attr_name for attribute in proto.attribute):
            _check_attributes(copied, place.versions.of(copied), f"{proto.op_type} {abridged(label)!r}")
        return copied

    def _call(
        self,
        proto: NodeProto,
        attributes: Sequence[AttributeProto],
        function: FunctionProto,
        place: Place,
        label: str,
    ) -> Iterator[NodeProto]:
        """Return the nodes of a function at a call."""
        key = _key(function)
        what = f"{proto.op_type} {abridged(label)!r}"
        if key in place.calls:
            raise ModelError(what, "the function calls itself")
        for kind, formal, actual in (
            ("inputs", function.input, proto.input),
            ("outputs", function.output, proto.output),
        ):
            if len(actual) > len(formal):
                raise ModelError(what, f"must have at most the function's {len(formal)} {kind}, got {len(actual)}")
        inputs = [place.names.get(name, name) for name in proto.input]
        outputs = [self._define(name, place) for name in proto.output]
        inner = Place(
            Versions({entry.domain: entry.version for entry in function.opset_import}),
            path=label,
            label=f"{label}/",
            names=ChainMap(dict(zip_longest(function.input, inputs, fillvalue=""))),
            targets={formal: actual for formal, actual in zip(function.output, outputs, strict=False) if actual},
            calls=(*place.calls, key),
            depth=_deeper(place, what),
        )
        defaults = self._attributes(function.attribute_proto, inner, proto.op_type, label)
        inner = replace(inner, attributes={attribute.name: attribute for attribute in (*defaults, *attributes)})
        yield from self.nodes(function.node, inner)
        for formal, actual in inner.targets.items():  # outputs that no node of the function computes: inputs
            source = inner.names.get(formal, formal)
            identity = NodeProto(op_type="Identity", name=f"{label}/{formal}", input=[source], output=[actual])
            mark_version(identity, 1)
            yield identity

    def _attributes(
        self, attributes: Iterable[AttributeProto], place: Place, op_type: str, label: str
    ) -> Iterator[AttributeProto]:
        """Return the attributes of a node: those of the call around it where it refers to them, bodies inlined."""
        for attribute in attributes:
            if attribute.ref_attr_name:
                if attribute.ref_attr_name in place.attributes:
                    copied = AttributeProto()
                    copied.CopyFrom(place.attributes[attribute.ref_attr_name])
                    copied.name = attribute.name
                    yield copied
            elif attribute.type == AttributeProto.GRAPH:
                graph = self._graph(attribute.g, place, op_type, label)
                yield AttributeProto(name=attribute.name, type=attribute.type, g=graph)
            elif attribute.type == AttributeProto.GRAPHS:
                graphs = [self._graph(graph, place, op_type, label) for graph in attribute.graphs]
                yield AttributeProto(name=attribute.name, type=attribute.type, graphs=graphs)
            else:
                yield attribute

    def _graph(self, graph: GraphProto, place: Place, op_type: str, label: str) -> GraphProto:
        """Return a body: its names are unique in the model, its tensors are among the weights."""
        what = f"{op_type} {abridged(label)!r}"
        if graph.sparse_initializer:
            raise NotSupported(f"{what}: sparse initializers are not supported")
        # Placement names the nodes in the body of a loop behind the loop's name.
        prefix = place.label if op_type == "If" else ""
        depth = _deeper(place, what)
        inner = replace(place, path=label, label=prefix, names=place.names.new_child(), targets={}, depth=depth)
        result = GraphProto(name=graph.name, input=graph.input, output=graph.output)
        for formal in result.input:
            formal.name = self._define(formal.name, inner)
        for tensor in graph.initializer:
            if tensor.name not in inner.names.maps[0]:
                value = Value.of_tensor(tensor, f"{what}: initializer {abridged(tensor.name)!r}", self._folder)
                self.weights[self._define(tensor.name, inner)] = value
        result.node.extend(self.nodes(graph.node, inner))
        for output in result.output:
            output.name = inner.names.get(output.name, output.name)
        return result

    def _define(self, name: str, place: Place) -> str:
        """Return the new name of what a node, a tensor or an input of a body defines."""
        if not name or not (place.path or name in place.targets):
            return name
        new = place.targets.pop(name, None) or self._unique(f"{place.path}/{name}")
        place.names[name] = new
        return new

    def _unique(self, name: str) -> str:
        """Return a name that nothing in the model has: this one, or with a number."""
        candidate = name
        while candidate in self._taken:
            self._repeated[name] += 1
            candidate = f"{name} {self._repeated[name]}"
        self._taken.add(candidate)
        return candidate


def _check_attributes(node: NodeProto, version: int, what: str) -> None:
    """Raise a ModelError unless attributes, which a call filled in, are there and of the types of the schema."""
    schema: Any = schema_of(node.domain, node.op_type, version)
    attributes = {attribute.name: attribute for attribute in node.attribute}
    for name, formal in schema.attributes.items() if schema is not None else ():
        attribute = attributes.get(name)
        if attribute is None and formal.required:
            raise ModelError(what, f"must have the attribute {name}, which the call of its function does not give")
        if attribute is not None and attribute.type != formal.type.value:
            kinds = AttributeProto.AttributeType
            raise ModelError(
                what,
                f"attribute {name} must be of type {kinds.Name(formal.type.value)}, got {kinds.Name(attribute.type)}",
            )


def _key(function: FunctionProto) -> Function:
    return plain_domain(function.domain), function.name, function.overload


def _deeper(place: Place, what: str) -> int:
    if place.depth >= MOST_NESTED:
        raise ModelError(what, f"bodies and functions must be nested at most {MOST_NESTED} deep")
    return place.depth + 1
