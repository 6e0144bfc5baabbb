"""Models as they come: read, checked, functions inlined."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.checker
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument, InvalidState, ModelError, NotSupported, abridged
from dmlgpu.frontends.onnx import registry
from dmlgpu.frontends.onnx.elements import data_type_of, embed_external
from dmlgpu.frontends.onnx.registry import Versions, plain_domain
from dmlgpu.frontends.onnx.rewriting import Folded, Inliner, Place, bodies_in, has_body, with_normalized_filters
from dmlgpu.frontends.onnx.signatures import schema_of
from dmlgpu.frontends.onnx.values import OnnxValue

Source: TypeAlias = str | os.PathLike[str] | bytes | ModelProto

OLDEST = 7
"""Oldest version of ONNX's operator set that is taken."""

_ADDITIONS = "com.microsoft"
_ADDED = ("LayerNormalization", "SimplifiedLayerNormalization")
_OVERRIDES_SINCE = 4
"""Version of the format from which on an initializer that is an input, too, may be replaced."""

_MOST_BYTES = 2**31
_ON_HOST = ("Constant", "Shape", "Size")
_MOST_SHOWN = 40


@dataclass(frozen=True)
class Declared:
    """An input or output as the model declares it.

    Attributes:
        name: its name.
        data_type: the type of its elements.
        is_bool: whether they are booleans.
        shape: a number, a symbol's name or None, for anything, per dimension; None for any shape.
    """

    name: str
    data_type: DataType
    is_bool: bool
    shape: tuple[int | str | None, ...] | None

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type of the elements.

        Raises:
            InvalidState: the model declares no type, which it may leave out for outputs.
        """
        if self.data_type is DataType.UNKNOWN:
            raise InvalidState(f"{self.name!r}: the model declares no type")
        return np.dtype(np.bool_) if self.is_bool else self.data_type.numpy

    def __str__(self) -> str:
        """Return ``x: float32[batch, 3]``; ``?`` for a dimension of any size, ``[...]`` for any shape."""
        name = "bool" if self.is_bool else self.data_type.name.lower()
        if self.shape is None:
            return f"{self.name}: {name}[...]"
        return f"{self.name}: {name}[{', '.join('?' if size is None else str(size) for size in self.shape)}]"


@dataclass(frozen=True)
class OnnxModel:
    """A model that was read.

    Attributes:
        name: for messages.
        nodes: of the main graph, in order; those of functions in the place of their calls.
        versions: of operator sets.
        inputs: those that a run is given.
        outputs: names.
        variable: those among ``weights`` that a run may replace.
        weights: the initializers, and other constants, those of bodies included.
        folded: nodes that are in ``weights``.
        declared_outputs: what the model says of its outputs.
        source: what it was read from.
    """

    name: str
    nodes: tuple[NodeProto, ...]
    versions: Versions
    inputs: tuple[Declared, ...]
    outputs: tuple[str, ...]
    weights: Mapping[str, OnnxValue]
    variable: tuple[Declared, ...] = ()
    folded: tuple[Folded, ...] = ()
    declared_outputs: tuple[Declared, ...] = ()
    source: Source | None = None

    @property
    def graph(self) -> RunGraph:
        """The main graph; initializers that a run may replace are behind its inputs."""
        inputs = tuple(declared.name for declared in (*self.inputs, *self.variable))
        return RunGraph(self.nodes, self.versions, inputs, self.outputs, self.weights)


@dataclass(frozen=True)
class RunGraph:
    """What is run: the main graph of a model, or the body of a loop.

    Attributes:
        nodes: in order.
        versions: of operator sets.
        inputs, outputs: names.
        known: what names stand for in every run.
    """

    nodes: Sequence[NodeProto]
    versions: Versions
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    known: Mapping[str, OnnxValue | None]


def read(
    source: Source, *, sizes: Mapping[str, int] | None = None, denoted: Mapping[str, int] | None = None
) -> OnnxModel:
    """Read a model.

    Args:
        source: a path, the bytes of a file, or a model of the package ``onnx``. External data are looked for in the
            folder of the path, nowhere else.
        sizes: of dimensions of inputs that have names in the place of numbers, by name.
        denoted: of dimensions of inputs without numbers, by denotation (``DATA_BATCH``).

    Raises:
        ModelError: it is malformed; the message says where.
        NotSupported: inputs or weights of types that DirectML does not have, or an operator set that is too old.
        InvalidArgument: no source.
    """
    proto, folder, name = _parsed(source)
    _check(proto)
    for scope in (proto, *proto.functions):
        for entry in scope.opset_import:
            if not plain_domain(entry.domain) and entry.version < OLDEST:
                raise NotSupported(f"model {name!r}: operator sets from {OLDEST} on are taken, got {entry.version}")
    if sizes or denoted:
        fixed = ModelProto()
        fixed.CopyFrom(proto)
        proto = fixed
        _fix_dimensions(proto.graph, sizes or {}, denoted or {})
    graph = proto.graph
    weights = {
        tensor.name: OnnxValue.of_tensor(tensor, f"initializer {abridged(tensor.name)!r}", folder)
        for tensor in graph.initializer
    }
    if graph.sparse_initializer:
        raise NotSupported(f"model {name!r}: sparse initializers are not supported")
    inputs = tuple(declared(info) for info in graph.input if info.name not in weights)
    declared_outputs = tuple(declared(info) for info in graph.output)
    outputs = tuple(output.name for output in declared_outputs)
    # Before this version of the format, all initializers are among the inputs.
    listed = graph.input if proto.ir_version >= _OVERRIDES_SINCE else ()
    variable = tuple(declared(info) for info in listed if info.name in weights)
    versions = Versions({entry.domain: entry.version for entry in proto.opset_import})
    taken = {*weights, *(info.name for info in inputs), *(name for node in graph.node for name in node.output)}
    inliner = Inliner(proto.functions, versions, folder, taken)
    try:
        nodes = list(inliner.nodes(graph.node, Place(versions)))
    except UnicodeDecodeError as error:  # protobuf hands malformed names out, but does not take them
        raise ModelError(name, f"a name in it is not UTF-8: {error}") from None
    weights |= inliner.weights
    replaceable = [info.name for info in variable]
    nodes, weights, normalized = with_normalized_filters(nodes, weights, outputs, replaceable)
    folded = (*inliner.folded, *normalized)
    return OnnxModel(name, tuple(nodes), versions, inputs, outputs, weights, variable, folded, declared_outputs, source)


def parsed(source: Source) -> ModelProto:
    """Return a source as a model of the package ``onnx``, its external data inside.

    Raises:
        ModelError, InvalidArgument: as ``read``.
    """
    proto, folder, _ = _parsed(source)
    for tensor in _tensors(proto):
        embed_external(tensor, f"tensor {abridged(tensor.name)!r}", folder)
    return proto


def _fix_dimensions(graph: GraphProto, sizes: Mapping[str, int], denoted: Mapping[str, int]) -> None:
    """Put sizes in the place of dimensions of inputs and outputs that have names or denotations."""
    for info in (*graph.input, *graph.output):
        for dimension in info.type.tensor_type.shape.dim if info.type.WhichOneof("value") == "tensor_type" else ():
            if dimension.HasField("dim_value"):
                continue
            size = sizes.get(dimension.dim_param, denoted.get(dimension.denotation))
            if size is not None:
                dimension.dim_value = size


def _parsed(source: Source) -> tuple[ModelProto, Path | None, str]:
    """Return the model, the folder that it lies in, and its name."""
    if isinstance(source, ModelProto):
        return source, None, source.graph.name or "model"
    folder = None
    name = "model"
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        folder, name = path.parent, path.name
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise ModelError(name, f"a model file must have at most {_MOST_BYTES} bytes; larger data are external")
            source = path.read_bytes()
        except (OSError, ValueError) as error:
            raise ModelError(name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(source, bytes | bytearray | memoryview):
        raise InvalidArgument(f"load: source must be a path, bytes or a ModelProto, got {type(source).__name__}")
    try:
        return onnx.load_model_from_string(bytes(source)), folder, name
    except Exception:  # protobuf has an exception of its own per implementation
        raise ModelError(name, "is no ONNX model, or it is truncated") from None


def _check(proto: ModelProto) -> None:
    """Raise a ModelError for what ONNX's checker finds: cycles, names given twice, attributes that are missing."""
    try:
        # A function may have operators of other versions than the model's.
        onnx.checker.check_model(_checkable(proto), skip_opset_compatibility_check=True)
    except Exception as error:  # ValidationError, and ValueError beyond 2 GiB
        raise ModelError("model", abridged(" ".join(str(error).split()))) from None


def _checkable(proto: ModelProto) -> ModelProto:
    """Return the model as the checker takes it.

    External tensors, whose files it would look for, are empty; outputs without types or shapes get some; operators that
    ONNX has no schema of, or a deprecated one, are put into another domain than its own. Initializers of the oldest
    versions of the format need not be among the inputs: onnxruntime accepts such models.
    """
    external = any(tensor.data_location == TensorProto.EXTERNAL for tensor in _tensors(proto))
    vague = [number for number, output in enumerate(proto.graph.output) if _is_vague(output)]
    exempt = any(next(_exempt(scope), None) for scope in (proto, *proto.functions))
    listed = {info.name for info in proto.graph.input}
    unlisted = proto.ir_version < _OVERRIDES_SINCE and any(
        tensor.name not in listed for tensor in proto.graph.initializer
    )
    if not external and not vague and not exempt and not unlisted:
        return proto
    light = ModelProto()
    light.CopyFrom(proto)
    light.ir_version = max(proto.ir_version, _OVERRIDES_SINCE)
    for scope in (light, *light.functions):
        nodes = list(_exempt(scope))
        for node in nodes:
            node.domain = _ADDITIONS
        if nodes and not any(entry.domain == _ADDITIONS for entry in scope.opset_import):
            scope.opset_import.add(domain=_ADDITIONS, version=1)
    for number in vague:
        kind = light.graph.output[number].type.tensor_type
        kind.elem_type = kind.elem_type or TensorProto.FLOAT
        kind.shape.SetInParent()
    for tensor in _tensors(light):
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor.CopyFrom(TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0]))
    return light


def _exempt(scope: ModelProto | FunctionProto) -> Iterator[NodeProto]:
    """Return the nodes of ONNX's own domain, in a model or a function, that its checker refuses but models hold.

    onnxruntime adds LayerNormalization to all operator sets; GroupNormalization of set 18 is deprecated.
    """
    version = next((entry.version for entry in scope.opset_import if not plain_domain(entry.domain)), OLDEST)
    for node in all_nodes(scope.graph if isinstance(scope, ModelProto) else scope):
        if not plain_domain(node.domain):
            schema = schema_of("", node.op_type, version)
            if node.op_type in _ADDED or (schema is not None and schema.deprecated):
                yield node


def _is_vague(info: ValueInfoProto) -> bool:
    kind = info.type.WhichOneof("value")
    tensor = info.type.tensor_type
    return kind is None or (kind == "tensor_type" and not (tensor.elem_type and tensor.HasField("shape")))


def all_nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Return the nodes of a graph or function and of the bodies in their attributes."""
    yield from graph.node
    for body in bodies_in(attribute for node in graph.node for attribute in node.attribute):
        yield from body.node


def _tensors(proto: ModelProto) -> Iterator[TensorProto]:
    """Return the tensors of a model, wherever they are."""
    nodes = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    attributes = [attribute for node in nodes for attribute in node.attribute]
    attributes += [attribute for function in proto.functions for attribute in function.attribute_proto]
    bodies = list(bodies_in(attributes))
    for graph in (proto.graph, *bodies):
        yield from graph.initializer
    for attribute in (
        *attributes,
        *(attribute for body in bodies for node in body.node for attribute in node.attribute),
    ):
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors


def declared(info: ValueInfoProto) -> Declared:
    """Return what a model says of an input or output.

    Raises:
        NotSupported: it is no tensor of a type of DirectML's.
    """
    what = f"{abridged(info.name)!r}"
    kind = info.type.WhichOneof("value")
    if kind not in (None, "tensor_type"):
        raise NotSupported(f"{what}: only tensors are supported, got {kind.removesuffix('_type')}")
    tensor = info.type.tensor_type
    if not tensor.elem_type:
        return Declared(info.name, DataType.UNKNOWN, False, None)
    data_type = data_type_of(tensor.elem_type, what)
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(
            size.dim_value if size.HasField("dim_value") and size.dim_value >= 0 else size.dim_param or None
            for size in tensor.shape.dim
        )
    return Declared(info.name, data_type, tensor.elem_type == TensorProto.BOOL, shape)


# ---- operators that are not supported --------------------------------------------------------------------------------


def unsupported(nodes: Iterable[NodeProto], versions: Versions) -> dict[str, list[str]]:
    """Return the names of nodes that cannot be computed by operator, those of bodies included."""
    names: dict[str, list[str]] = {}
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                for name, several in unsupported(attribute.g.node, versions).items():
                    names.setdefault(name, []).extend(several)
        version = versions.of(node)
        plain = node.domain in ("", "ai.onnx")
        if (plain and node.op_type in _ON_HOST) or registry.find(node.domain, node.op_type, version):
            continue
        if not has_body(node.domain, node.op_type, version):
            name = node.op_type if plain else f"{node.domain}.{node.op_type}"
            names.setdefault(name, []).append(node.name or next(iter(node.output), ""))
    return names


def check_supported(model: OnnxModel, strict: bool = False) -> None:
    """Raise for what cannot be computed of a model.

    Args:
        model: what was read.
        strict: whether control flow is refused.

    Raises:
        NotSupported: operators without a translation, or control flow; the message names all of them.
    """
    decided = [node for node in model.nodes if registry.is_control(node)]
    if strict and decided:
        nodes = ", ".join(
            f"{node.op_type} {node.name or next(iter(node.output), '')!r}" for node in decided[:_MOST_SHOWN]
        )
        raise NotSupported(f"model {model.name!r}: the host decides about {nodes} (strict)")
    missing = unsupported(model.nodes, model.versions)
    if missing:
        listed = [f"{name} ({len(nodes)}, first {nodes[0]!r})" for name, nodes in sorted(missing.items())]
        more = f" and {len(listed) - _MOST_SHOWN} more" if len(listed) > _MOST_SHOWN else ""
        raise NotSupported(
            f"model {model.name!r}: operators are not supported: {', '.join(listed[:_MOST_SHOWN])}{more}"
        )
