"""Models as they come: read, checked, local functions inlined."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import onnx
import onnx.checker
import onnx.inliner
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from dmlgpu.enums import DataType
from dmlgpu.errors import InvalidArgument, ModelError, NotSupported, abridged
from dmlgpu.frontends.onnx.elements import data_type_of
from dmlgpu.frontends.onnx.folding import Folded, with_normalised_filters, without_constants
from dmlgpu.frontends.onnx.values import Value

Source: TypeAlias = str | os.PathLike[str] | bytes | ModelProto

OLDEST = 7
"""Oldest version of ONNX's operator set that is taken."""

_ADDITIONS = "com.microsoft"
_OVERRIDES_SINCE = 4
"""Version of the format from which on an initializer that is an input, too, may be replaced."""

_MOST_BYTES = 2**31
_MOST_NODES = 2**20


@dataclass(frozen=True)
class Versions:
    """Versions of operator sets by domain; ONNX's own is empty."""

    numbers: Mapping[str, int]

    def of(self, domain: str, what: str) -> int:
        """Return the version of a domain's operator set.

        Raises:
            ModelError: the model imports none.
        """
        plain = "" if domain == "ai.onnx" else domain
        for name in (plain, plain or "ai.onnx"):
            if name in self.numbers:
                return self.numbers[name]
        raise ModelError(what, f"the model imports no operator set of the domain {abridged(plain)!r}")


@dataclass(frozen=True)
class Declared:
    """An input or output as the model declares it.

    Attributes:
        name: its name.
        data_type: the type of its elements.
        is_bool: whether they are truth values.
        shape: a number, a symbol's name or None, for anything, per dimension; None for any shape.
    """

    name: str
    data_type: DataType
    is_bool: bool
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class Model:
    """A model that was read.

    Attributes:
        name: for messages.
        nodes: of the main graph, in order, without calls of local functions.
        versions: of operator sets.
        inputs: those that a run is given.
        outputs: names.
        variable: those among ``weights`` that a run may replace.
        weights: the initialisers, and other constants.
        folded: nodes of the main graph that are in ``weights``.
        declared_outputs: what the model says of its outputs.
    """

    name: str
    nodes: tuple[NodeProto, ...]
    versions: Versions
    inputs: tuple[Declared, ...]
    outputs: tuple[str, ...]
    weights: Mapping[str, Value]
    variable: tuple[Declared, ...] = ()
    folded: tuple[Folded, ...] = ()
    declared_outputs: tuple[Declared, ...] = ()


def read(source: Source, *, sizes: Mapping[str, int] | None = None, denoted: Mapping[str, int] | None = None) -> Model:
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
    versions = Versions({one.domain: one.version for one in proto.opset_import})
    version = versions.numbers.get("", versions.numbers.get("ai.onnx", OLDEST))
    if version < OLDEST:
        raise NotSupported(f"model {name!r}: operator sets from {OLDEST} on are taken, got {version}")
    if proto.functions:
        proto = onnx.inliner.inline_local_functions(proto)
    if sizes or denoted:
        fixed = ModelProto()
        fixed.CopyFrom(proto)
        proto = fixed
        _fix_dimensions(proto.graph, sizes or {}, denoted or {})
    graph = proto.graph
    weights = {
        one.name: Value.of_tensor(one, f"initializer {abridged(one.name)!r}", folder) for one in graph.initializer
    }
    if graph.sparse_initializer:
        raise NotSupported(f"model {name!r}: sparse initializers are not supported")
    inputs = tuple(declared(one) for one in graph.input if one.name not in weights)
    declared_outputs = tuple(declared(one) for one in graph.output)
    outputs = tuple(one.name for one in declared_outputs)
    # Before this version of the format, all initializers are among the inputs.
    listed = graph.input if proto.ir_version >= _OVERRIDES_SINCE else ()
    variable = tuple(declared(one) for one in listed if one.name in weights)
    nodes, weights, constants = without_constants(graph.node, weights)
    nodes, weights, normalised = with_normalised_filters(nodes, weights, outputs, [one.name for one in variable])
    folded = (*constants, *normalised)
    return Model(name, tuple(nodes), versions, inputs, outputs, weights, variable, folded, declared_outputs)


def parsed(source: Source) -> ModelProto:
    """Return a source as a model of the package ``onnx``, its external data inside.

    Raises:
        ModelError, InvalidArgument: as ``read``.
    """
    proto, folder, _ = _parsed(source)
    for one in proto.graph.initializer:
        if one.data_location == TensorProto.EXTERNAL:
            array = Value.of_tensor(one, f"initializer {abridged(one.name)!r}", folder).array
            assert array is not None
            whole = numpy_helper.from_array(array.astype(helper.tensor_dtype_to_np_dtype(one.data_type)), one.name)
            one.CopyFrom(whole)
    return proto


def _fix_dimensions(graph: GraphProto, sizes: Mapping[str, int], denoted: Mapping[str, int]) -> None:
    """Put sizes in the place of dimensions of inputs and outputs that have names or denotations."""
    for one in (*graph.input, *graph.output):
        for dimension in one.type.tensor_type.shape.dim if one.type.WhichOneof("value") == "tensor_type" else ():
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
    count = sum(1 for _ in all_nodes(proto.graph))
    if count > _MOST_NODES:
        raise ModelError("graph", f"must have at most {_MOST_NODES} nodes, got {count}")
    try:
        onnx.checker.check_model(_checkable(proto))
    except Exception as error:  # ValidationError, and ValueError beyond 2 GiB
        raise ModelError("model", abridged(" ".join(str(error).split()))) from None


def _checkable(proto: ModelProto) -> ModelProto:
    """Return the model as the checker takes it.

    Inputs stand for external initialisers, whose files it would look for; outputs without types or shapes get some;
    what onnxruntime adds to ONNX's own domain is put into another one, since ONNX has no schema of it.
    """
    external = [one for one in proto.graph.initializer if one.data_location == TensorProto.EXTERNAL]
    vague = [number for number, one in enumerate(proto.graph.output) if _is_vague(one)]
    added = any(_is_addition(one) for one in all_nodes(proto.graph))
    if not external and not vague and not added:
        return proto
    light = ModelProto()
    light.CopyFrom(proto)
    for node in all_nodes(light.graph):
        if _is_addition(node):
            node.domain = _ADDITIONS
    if added and not any(one.domain == _ADDITIONS for one in light.opset_import):
        light.opset_import.add(domain=_ADDITIONS, version=1)
    for number in vague:
        tensor = light.graph.output[number].type.tensor_type
        tensor.elem_type = tensor.elem_type or TensorProto.FLOAT
        tensor.shape.SetInParent()
    kept = [one for one in light.graph.initializer if one.data_location != TensorProto.EXTERNAL]
    del light.graph.initializer[:]
    light.graph.initializer.extend(kept)
    known = {one.name for one in proto.graph.input}
    light.graph.input.extend(
        onnx.helper.make_tensor_value_info(one.name, one.data_type, list(one.dims))
        for one in external
        if one.name not in known
    )
    return light


def _is_addition(node: NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in ("LayerNormalization", "SimplifiedLayerNormalization")


def _is_vague(info: ValueInfoProto) -> bool:
    kind = info.type.WhichOneof("value")
    tensor = info.type.tensor_type
    return kind is None or (kind == "tensor_type" and not (tensor.elem_type and tensor.HasField("shape")))


def all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Return the nodes of a graph and of the bodies in their attributes."""
    waiting = [graph]
    while waiting:
        for node in waiting.pop().node:
            yield node
            for attribute in node.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    waiting.append(attribute.g)
                waiting.extend(attribute.graphs)


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
            one.dim_value if one.HasField("dim_value") and one.dim_value >= 0 else one.dim_param or None
            for one in tensor.shape.dim
        )
    return Declared(info.name, data_type, tensor.elem_type == TensorProto.BOOL, shape)
