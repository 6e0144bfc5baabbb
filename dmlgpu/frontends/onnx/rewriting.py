"""Rewrites of models: uses of names, function inlining, constant and normalization folding."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto

from dmlgpu.common.errors import ModelError, NotSupported, abridged
from dmlgpu.frontends.onnx import registry
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.registry import Versions, mark_version
from dmlgpu.frontends.onnx.signatures import schema_of
from dmlgpu.frontends.onnx.tensor_proto import embed_external
from dmlgpu.frontends.onnx.values import OnnxValue


def last_uses(nodes: Sequence[NodeProto], outputs: Iterable[str]) -> dict[str, int]:
    """Return, by name, the index of the last node that reads it, including bodies, or the number of nodes."""
    uses: dict[str, int] = {}
    for index, node in enumerate(nodes):
        uses.update(dict.fromkeys(read_names(node), index))
    uses.update(dict.fromkeys(outputs, len(nodes)))
    return uses


def read_names(node: NodeProto) -> Iterable[str]:
    """Return the names that a node and the bodies in its attributes read."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            for inner in attribute.g.node:
                yield from read_names(inner)
            yield from (output.name for output in attribute.g.output)


def bodies_in(attributes: Iterable[AttributeProto]) -> Iterator[GraphProto]:
    """Return the bodies in attributes, and those in the attributes of their nodes."""
    for attribute in attributes:
        for graph in [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs:
            yield graph
            yield from bodies_in(inner for node in graph.node for inner in node.attribute)


# ---- folding ---------------------------------------------------------------------------------------------------------


Array = NDArray[Any]


@dataclass(frozen=True)
class Folded:
    """A node that was removed.

    Attributes:
        node: Its name.
        op_type: Its operator.
        why: Why it is not needed.
    """

    node: str
    op_type: str
    why: str


def with_normalized_filters(
    nodes: Sequence[NodeProto], weights: Mapping[str, OnnxValue], outputs: Sequence[str], variable: Collection[str] = ()
) -> tuple[list[NodeProto], dict[str, OnnxValue], list[Folded]]:
    """Fold each BatchNormalization into the filter and bias of its Conv, if it is the only consumer; return nodes and
    weights.

    Factors are computed in double precision, and rounded once to the type of the filter.

    Args:
        nodes: Nodes, in order.
        weights: Weights by name.
        outputs: Outputs of the graph.
        variable: Weights that a run may replace.
    """
    reads = Counter([*(name for node in nodes for name in read_names(node)), *outputs])
    convolutions = {node.output[0]: index for index, node in enumerate(nodes) if node.op_type == "Conv"}
    remaining: list[NodeProto | None] = list(nodes)
    values, folded = dict(weights), []
    for index, node in enumerate(nodes):
        place = convolutions.get(node.input[0]) if node.op_type == "BatchNormalization" and _is_plain(node) else None
        if place is None or reads[node.input[0]] != 1:
            continue
        convolution = nodes[place]
        constants = [name for name in (*convolution.input[1:3], *node.input[1:5]) if name]
        if not all(_is_constant(name, values, variable) for name in constants):
            continue
        fused = NodeProto()
        fused.CopyFrom(convolution)
        names = [f"{convolution.output[0]} normalized {part}" for part in ("filter", "bias")]
        values |= dict(zip(names, _normalized(values, convolution, node), strict=True))
        del fused.input[1:]
        fused.input.extend(names)
        fused.output[0], fused.name = node.output[0], convolution.name or convolution.output[0]
        remaining[place], remaining[index] = fused, None
        folded.append(Folded(node.name or node.output[0], node.op_type, f"it is in the filter of Conv {fused.name!r}"))
    return [node for node in remaining if node is not None], values, folded


def _is_plain(node: NodeProto) -> bool:
    """Return whether a normalization uses given statistics, per channel."""
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    alone = not any(node.output[1:])
    return (
        alone and not attributes.get("training_mode", 0) and attributes.get("spatial", 1) == 1 and len(node.input) == 5
    )


def _is_constant(name: str, known: Mapping[str, OnnxValue], variable: Collection[str]) -> bool:
    return name in known and name not in variable and known[name].data_type.is_float


def _normalized(known: Mapping[str, OnnxValue], convolution: NodeProto, node: NodeProto) -> tuple[OnnxValue, OnnxValue]:
    """Return filter and bias of a convolution fused with the normalization after it."""
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    scale, offset, mean, variance = (_doubles(known[name]) for name in node.input[1:5])
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + attributes.get("epsilon", 1e-5))
        filters = known[convolution.input[1]]
        bias = known.get(convolution.input[2]) if len(convolution.input) > 2 else None
        before = 0.0 if bias is None else _doubles(bias)
        wide = _doubles(filters) * factor.reshape(-1, *(1,) * (len(filters.shape) - 1))
        added = (before - mean) * factor + offset
        kind = filters.data_type.numpy
        values = [OnnxValue.of_array(array.astype(kind), is_weight=True) for array in (wide, added)]
        return values[0], values[1]


def _doubles(value: OnnxValue) -> Array:
    assert value.array is not None
    return value.array.astype(np.float64)


# ---- functions and bodies --------------------------------------------------------------------------------------------


MAX_NODES = 2**20
"""Maximum number of nodes of a model, including bodies and function calls."""

MAX_NESTED = 64
"""Maximum nesting of functions and bodies."""

_SCALARS = (AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.STRING)
"""Types of attributes that stay when others become weights."""

Function = tuple[str, str, str]
"""A function's domain, name and overload."""


def _label_of(node: NodeProto) -> str:
    """Return the name of a node, else that of its first output, else its operator."""
    return node.name or next(filter(None, node.output), node.op_type)


@dataclass(frozen=True)
class Place:
    """A graph, body or function whose nodes are inlined.

    Attributes:
        versions: Operator set versions.
        path: Prefix of names that are defined here; empty in the main graph, whose names stay.
        label: Prefix of nodes' names.
        names: New names by old ones.
        targets: New names of a function's outputs that no node has defined yet.
        attributes: Attributes of the function's call, and defaults.
        calls: The enclosing functions.
        depth: Nesting depth of bodies and functions.
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
    """Inlines the functions of a model.

    Nodes of a function are marked with its operator set version, which may differ from the model's.

    Args:
        functions: Functions of the model.
        versions: Operator set versions of the model.
        folder: Folder of the model with external data; None if there is none.
        taken: Names that the main graph defines.

    Attributes:
        weights: Tensors of Constant nodes and of bodies, by their new names.
        folded: Constant nodes in ``weights``.
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
        self.weights: dict[str, OnnxValue] = {}
        self.folded: list[Folded] = []

    def nodes(self, protos: Iterable[NodeProto], place: Place) -> Iterator[NodeProto]:
        """Return copies of nodes, in order, with function calls inlined.

        Raises:
            ModelError: If a function calls itself, there are too many nodes, or a tensor is malformed.
            NotSupported: If a tensor has a type that DirectML lacks.
        """
        for proto in protos:
            self._count += 1
            if self._count > MAX_NODES:
                raise ModelError("graph", f"must have at most {MAX_NODES} nodes, those of functions included")
            label = f"{place.label}{_label_of(proto)}"
            attributes = list(self._attributes(proto.attribute, place, proto.op_type, label))
            key = proto.domain, proto.op_type, proto.overload
            if key in self._functions:
                yield from self._call(proto, attributes, self._functions[key], place, label)
            elif (
                proto.op_type == "Constant" and not key[0] and [attribute.name for attribute in attributes] == ["value"]
            ):
                value = OnnxValue.of_tensor(attributes[0].t, f"Constant {label!r}", self._folder)
                self.weights[self._define(proto.output[0], place)] = value
                self.folded.append(Folded(label, "Constant", "it is part of the model's data"))
            else:
                copied = self._copy(proto, attributes, place, label)
                self._prepare(copied, place.versions.of(copied), label)
                yield copied

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

    def _prepare(self, node: NodeProto, version: int, label: str) -> None:
        """Replace the lists of numbers in a node's attributes by weights, if its operator has a function for that."""
        translator = registry.find(node.domain, node.op_type, version)
        if translator is None or translator.prepare is None:
            return
        prepared = translator.prepare(OnnxNode(node, name=label, version=version, inputs=(), context=None))
        remaining = [attribute for attribute in node.attribute if attribute.type in _SCALARS]
        del node.attribute[:]
        node.attribute.extend(remaining)
        node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in prepared.attributes.items())
        for name, array in prepared.arrays.items():
            weight = self._unique(f"{label} {name}")
            self.weights[weight] = OnnxValue.of_array(array, is_weight=True)
            node.input.append(weight)
        registry.mark_arrays(node, prepared.arrays)

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
        subject = f"{proto.op_type} {abridged(label)!r}"
        if key in place.calls:
            raise ModelError(subject, "the function calls itself")
        for kind, formal, actual in (
            ("inputs", function.input, proto.input),
            ("outputs", function.output, proto.output),
        ):
            if len(actual) > len(formal):
                raise ModelError(subject, f"must have at most the function's {len(formal)} {kind}, got {len(actual)}")
        inputs = [place.names.get(name, name) for name in proto.input]
        outputs = [self._define(name, place) for name in proto.output]
        inner = Place(
            Versions({entry.domain: entry.version for entry in function.opset_import}),
            path=label,
            label=f"{label}/",
            names=ChainMap(dict(zip_longest(function.input, inputs, fillvalue=""))),
            targets={formal: actual for formal, actual in zip(function.output, outputs, strict=False) if actual},
            calls=(*place.calls, key),
            depth=_deeper(place, subject),
        )
        defaults = self._attributes(function.attribute_proto, inner, proto.op_type, label)
        inner = replace(inner, attributes={attribute.name: attribute for attribute in (*defaults, *attributes)})
        yield from self.nodes(function.node, inner)
        for formal, actual in inner.targets.items():  # outputs that no node computes are inputs
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
        subject = f"{op_type} {abridged(label)!r}"
        if graph.sparse_initializer:
            raise NotSupported(f"{subject}: sparse initializers are not supported")
        # Placement prefixes the nodes in the body of a loop by the loop's name.
        prefix = place.label if op_type == "If" else ""
        depth = _deeper(place, subject)
        inner = replace(place, path=label, label=prefix, names=place.names.new_child(), targets={}, depth=depth)
        result = GraphProto(name=graph.name, input=graph.input, output=graph.output)
        for formal in result.input:
            formal.name = self._define(formal.name, inner)
        for tensor in graph.initializer:
            if tensor.name not in inner.names.maps[0]:
                value = OnnxValue.of_tensor(tensor, f"{subject}: initializer {abridged(tensor.name)!r}", self._folder)
                self.weights[self._define(tensor.name, inner)] = value
        result.node.extend(self.nodes(graph.node, inner))
        for output in result.output:
            output.name = inner.names.get(output.name, output.name)
        return result

    def _define(self, name: str, place: Place) -> str:
        """Return the new name of a value that a node, a tensor or an input of a body defines."""
        if not name or not (place.path or name in place.targets):
            return name
        new = place.targets.pop(name, None) or self._unique(f"{place.path}/{name}")
        place.names[name] = new
        return new

    def _unique(self, name: str) -> str:
        """Make a name unique in the model, if needed by a suffix."""
        candidate = name
        while candidate in self._taken:
            self._repeated[name] += 1
            candidate = f"{name} {self._repeated[name]}"
        self._taken.add(candidate)
        return candidate


def _check_attributes(node: NodeProto, version: int, what: str) -> None:
    """Raise a ModelError unless the attributes filled in by a call are present and of the schema's types."""
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
    return function.domain, function.name, function.overload


def _deeper(place: Place, what: str) -> int:
    if place.depth >= MAX_NESTED:
        raise ModelError(what, f"bodies and functions must be nested at most {MAX_NESTED} deep")
    return place.depth + 1


# ---- operators that are functions of others --------------------------------------------------------------------------


@dataclass(frozen=True)
class FunctionBody:
    """The body of a function at a call, with attributes filled in.

    Attributes:
        nodes: In order.
        inputs, outputs: names.
        versions: Operator set versions of the nodes.
        weights: Tensors of the body by name.
    """

    nodes: tuple[NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    versions: Versions
    weights: Mapping[str, OnnxValue]

    def bind(self, values: Sequence[OnnxValue | None]) -> dict[str, OnnxValue | None]:
        """Return the values of names; None for absent inputs."""
        return {**self.weights, **dict(zip_longest(self.inputs, values))}


def has_body(domain: str, name: str, version: int) -> bool:
    """Return whether ONNX defines an operator as a function."""
    schema: Any = schema_of(domain, name, version)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def body_of(node: OnnxNode) -> FunctionBody | None:
    """Return the function body of a node, or None."""
    if not has_body(node.proto.domain, node.op_type, node.version):
        return None
    schema: Any = schema_of(node.proto.domain, node.op_type, node.version)
    function = FunctionProto()
    if schema.has_function:
        function = schema.function_body
    else:
        types = [b"" if value is None else value.type_proto.SerializeToString() for value in node.inputs]
        function.ParseFromString(schema.get_context_dependent_function(node.proto.SerializeToString(), types))
    own = {attribute.name: attribute for attribute in node.proto.attribute}
    usual = {
        name: attribute.default_value for name, attribute in schema.attributes.items() if attribute.default_value.name
    }
    attributes = {**usual, **{attribute.name: attribute for attribute in function.attribute_proto}, **own}
    imported = {entry.domain: entry.version for entry in function.opset_import}
    newest = node.version if not node.proto.domain else onnx.defs.onnx_opset_version()
    versions = Versions({"": newest, node.proto.domain: node.version, **imported})
    inliner = Inliner((), versions)
    place = Place(versions, label=f"{node.name}/", attributes=attributes)
    nodes = tuple(inliner.nodes(function.node, place))
    return FunctionBody(nodes, tuple(function.input), tuple(function.output), versions, inliner.weights)
