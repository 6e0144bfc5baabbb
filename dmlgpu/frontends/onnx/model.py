"""Models: read, checked, functions inlined."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.checker
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
)

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument, InvalidState, ModelError, NotSupported, abridged, shown
from dmlgpu.common.files import lfs_advice
from dmlgpu.frontends.onnx import registry
from dmlgpu.frontends.onnx.containers import empty_optional, item_name, sequence_of
from dmlgpu.frontends.onnx.merging import with_merged_products
from dmlgpu.frontends.onnx.registry import Versions, plain_domain
from dmlgpu.frontends.onnx.rewriting import Folded, Inliner, Place, bodies_in, has_body, with_normalized_filters
from dmlgpu.frontends.onnx.signatures import schema_of
from dmlgpu.frontends.onnx.tensor_proto import ELEMENT_TYPES, STRINGS_ADVICE, embed_external, numpy_type, stored_type
from dmlgpu.frontends.onnx.values import OnnxValue

Source: TypeAlias = str | os.PathLike[str] | bytes | ModelProto

OLDEST = 7
"""Oldest supported version of the ONNX operator set; older ones are, if their operators have not changed until it."""

_ADDITIONS = "com.microsoft"
_ADDED = ("LayerNormalization", "SimplifiedLayerNormalization")
_OVERRIDES_SINCE = 4
"""First version of the format in which an initializer that is also an input may be replaced."""

_MAPS_ADVICE = 'convert the classifier without maps (skl2onnx: to_onnx(model, X[:1], options={"zipmap": False}))'
_ADVICE = {
    **dict.fromkeys(("ai.onnx.ml.ZipMap", "ai.onnx.ml.CastMap", "ai.onnx.ml.DictVectorizer"), _MAPS_ADVICE),
    **dict.fromkeys(("ai.onnx.ml.CategoryMapper", "ai.onnx.ml.LabelEncoder"), STRINGS_ADVICE),
}
"""Advice about unsupported operators."""

_MAX_BYTES = 2**31
_ON_HOST = ("Constant", "Shape", "Size")
_MAX_SHOWN = 40


@dataclass(frozen=True)
class Declared:
    """An input or output as the model declares it.

    Attributes:
        name: Name.
        data_type: Data type that holds the elements.
        coded: ONNX's number of their own type if DirectML lacks it, else 0.
        shape: Size, symbol's name, or None (any size) per dimension; None for any shape.
        kind: ``tensor``, or ``sequence``, ``optional`` or ``optional sequence`` of tensors of this type and shape.
    """

    name: str
    data_type: DataType
    coded: int
    shape: tuple[int | str | None, ...] | None
    kind: str = "tensor"

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype of the elements.

        Raises:
            InvalidState: If the model declares no type, which is optional for outputs.
        """
        if self.data_type is DataType.UNKNOWN:
            raise InvalidState(f"{self.name!r}: the model declares no type")
        return numpy_type(self.data_type, self.coded)

    def __str__(self) -> str:
        """Return ``x: float32[batch, 3]``."""
        name = self.type_name
        kind = "" if self.kind == "tensor" else f"{self.kind} of "
        return f"{self.name}: {kind}{name}{self.shape_text}"

    @property
    def element(self) -> int:
        """ONNX's number of the dtype; 0 if the model declares none."""
        return self.coded or ELEMENT_TYPES.get(self.data_type, 0)

    @property
    def type_name(self) -> str:
        """The dtype as NumPy and ml_dtypes name it: ``float32``, ``bool``, ``bfloat16``."""
        return (TensorProto.DataType.Name(self.coded) if self.coded else self.data_type.name).lower()

    @property
    def is_bool(self) -> bool:
        """Whether the elements are booleans."""
        return self.coded == TensorProto.BOOL

    @property
    def is_optional(self) -> bool:
        """Whether it may be without an element."""
        return self.kind.startswith("optional")

    @property
    def is_sequence(self) -> bool:
        """Whether it is a list of tensors, or an optional one."""
        return self.kind.endswith("sequence")

    @property
    def type_proto(self) -> TypeProto:
        """ONNX's type of the value, of an optional that of its element."""
        tensor = helper.make_tensor_type_proto(self.element, None)
        return helper.make_sequence_type_proto(tensor) if self.is_sequence else tensor

    @property
    def shape_text(self) -> str:
        """The shape as in ``[batch, 3]``; ``?`` stands for a dimension of any size, ``[...]`` for any shape."""
        if self.shape is None:
            return "[...]"
        return f"[{', '.join('?' if size is None else str(size) for size in self.shape)}]"


@dataclass(frozen=True)
class OnnxModel:
    """A model that was read.

    Attributes:
        name: Name in messages.
        nodes: Nodes of the main graph, in order, with function calls inlined.
        versions: Operator set versions.
        inputs: Inputs of a run.
        outputs: Names of outputs.
        variable: Names in ``weights`` that a run may replace.
        weights: Initializers and other constants, including those of bodies.
        folded: Nodes replaced by ``weights``.
        declared_outputs: Declarations of the outputs.
        source: Its source.
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
        """The main graph for one element of each sequence and optional."""
        return self.graph_of({})

    def graph_of(self, counts: Mapping[str, int | None]) -> RunGraph:
        """Return the main graph; initializers that a run may replace follow its inputs.

        Elements of sequences and optionals are inputs of their own.

        Args:
            counts: Numbers of elements of inputs that are sequences or optionals, None for an optional without one; 1
                if the input is omitted.
        """
        constructors: list[NodeProto] = []
        inputs: dict[str, tuple[int | str | None, ...] | None] = {}
        for info in (*self.inputs, *self.variable):
            count = counts.get(info.name, 1)
            items = [info.name]
            if count is None:
                items = []
                constructors.append(empty_optional(info.name, info.type_proto))
            elif info.is_sequence:
                items = [item_name(info.name, index) for index in range(count)]
                constructors.append(sequence_of(info.name, items, info.element))
            inputs |= dict.fromkeys(items, info.shape)
        nodes = (*constructors, *self.nodes)
        return RunGraph(nodes, self.versions, tuple(inputs), self.outputs, self.weights, tuple(inputs.values()))


@dataclass(frozen=True)
class RunGraph:
    """A graph to run: the main graph of a model, or the body of a loop.

    Attributes:
        nodes: Nodes, in order.
        versions: Operator set versions.
        inputs, outputs: Names.
        known: Values of names that are constant.
        shapes: Declared shapes of the inputs (``Declared.shape``); empty for a body.
    """

    nodes: Sequence[NodeProto]
    versions: Versions
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    known: Mapping[str, OnnxValue | None]
    shapes: tuple[tuple[int | str | None, ...] | None, ...] = ()


def read(
    source: Source,
    *,
    sizes: Mapping[str, int] | None = None,
    denoted: Mapping[str, int] | None = None,
    folder: Path | None = None,
    external: Mapping[str, OnnxValue] | None = None,
) -> OnnxModel:
    """Read a model.

    Args:
        source: A path, the bytes of a file, or a model of the package ``onnx``. External data are read only from the
            folder of the path.
        sizes: Sizes of symbolic dimensions of inputs, by name.
        denoted: Sizes of free dimensions of inputs, by denotation (``DATA_BATCH``).
        folder: Folder of the external data of a ModelProto; None if it has none.
        external: Initializers with external data that are not in a file of their own, by name.

    Raises:
        ModelError: If the model is malformed; the message says where.
        NotSupported: If inputs or weights have types that DirectML lacks, or the operator set is too old.
        InvalidArgument: If `source` has another type.
    """
    proto, own_folder, name = _parsed(source)
    folder = own_folder or folder
    _check_versions(proto, name)
    check(proto)
    if sizes or denoted:
        fixed = ModelProto()
        fixed.CopyFrom(proto)
        proto = fixed
        _fix_dimensions(proto.graph, sizes or {}, denoted or {})
    graph = proto.graph
    weights = {
        tensor.name: external[tensor.name]
        if external and tensor.name in external
        else OnnxValue.of_tensor(tensor, f"initializer {abridged(tensor.name)!r}", folder)
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
    nodes = list(inliner.nodes(graph.node, Place(versions)))
    weights |= inliner.weights
    replaceable = [info.name for info in variable]
    nodes, weights, normalized = with_normalized_filters(nodes, weights, outputs, replaceable)
    nodes, weights = with_merged_products(nodes, weights, outputs, replaceable)
    folded = (*inliner.folded, *normalized)
    return OnnxModel(name, tuple(nodes), versions, inputs, outputs, weights, variable, folded, declared_outputs, source)


def light(source: Source) -> tuple[ModelProto, Path | None, str]:
    """Return a copy of a model that can be changed, the folder of its external data, and its name in messages.

    Raises:
        ModelError, InvalidArgument: As ``read``.
    """
    proto, folder, name = _parsed(source)
    if proto is not source:
        return proto, folder, name
    copy = ModelProto()
    copy.CopyFrom(proto)
    return copy, folder, name


def parsed(source: Source) -> ModelProto:
    """Return a source as a model of the package ``onnx``, with external data loaded.

    Raises:
        ModelError, InvalidArgument: As ``read``.
    """
    proto, folder, _ = _parsed(source)
    for tensor in _tensors(proto):
        embed_external(tensor, f"tensor {abridged(tensor.name)!r}", folder)
    return proto


_NEWEST = {plain_domain(domain): version for domain, version in sorted(helper.OP_SET_ID_VERSION_MAP)}
"""Newest version of each operator set that the package ``onnx`` defines."""


def _check_versions(proto: ModelProto, name: str) -> None:
    """Raise NotSupported if an operator set is newer or older than the known ones, ModelError if it is ambiguous.

    Sets older than ``OLDEST`` are known as far as their operators are those of ``OLDEST``.
    """
    for scope in (proto, *proto.functions):
        versions: dict[str, int] = {}
        for entry in scope.opset_import:
            domain, version = entry.domain or "ai.onnx", entry.version
            newest = _NEWEST.get(entry.domain, version)
            if versions.setdefault(entry.domain, version) != version:
                raise ModelError(name, f"imports operator sets {versions[entry.domain]} and {version} of {domain}")
            if version > newest:
                raise NotSupported(
                    f"model {name!r}: operator set of {domain} must be at most {newest}, the newest that onnx "
                    f"{onnx.__version__} defines, got {version}; install a newer onnx, or export the model for set "
                    f"{newest}"
                )
        version = versions.get("", OLDEST)
        if version < OLDEST:
            for node in all_nodes(scope.graph if isinstance(scope, ModelProto) else scope):
                if not node.domain and _since(node.op_type, version) != _since(node.op_type, OLDEST):
                    raise NotSupported(
                        f"model {name!r}: operator set must be at least {OLDEST} for {node.op_type}, got {version}"
                    )


def _since(op_type: str, version: int) -> int:
    """Return the operator set version that defined an operator in its current form; 0 if there is none."""
    schema = schema_of("", op_type, version)
    return 0 if schema is None else schema.since_version


def _fix_dimensions(graph: GraphProto, sizes: Mapping[str, int], denoted: Mapping[str, int]) -> None:
    """Set free dimensions of inputs and outputs by name or denotation."""
    for info in (*graph.input, *graph.output):
        for dimension in info.type.tensor_type.shape.dim if info.type.WhichOneof("value") == "tensor_type" else ():
            if dimension.HasField("dim_value"):
                continue
            size = sizes.get(dimension.dim_param, denoted.get(dimension.denotation))
            if size is not None:
                dimension.dim_value = size


def _parsed(source: Source) -> tuple[ModelProto, Path | None, str]:
    """Return the model, its folder, and its name."""
    if isinstance(source, ModelProto):
        proto = _with_text_names(source, "model")
        if any(plain_domain(entry.domain) != entry.domain for entry in _with_domains(proto)):
            proto = ModelProto()
            proto.CopyFrom(source)
            _use_plain_domains(proto)
        return proto, None, source.graph.name or "model"
    folder = None
    name = "model"
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        folder, name = path.parent, path.name
        try:
            size = path.stat().st_size
            source = path.read_bytes() if size <= _MAX_BYTES else b""
        except (OSError, ValueError) as error:
            raise ModelError(name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
        if size > _MAX_BYTES:
            raise ModelError(
                name, f"a model file must have at most {_MAX_BYTES} bytes; store larger weights as external data"
            )
    if not isinstance(source, bytes | bytearray | memoryview):
        raise InvalidArgument(f"load: source must be a path, bytes or a ModelProto, got {type(source).__name__}")
    try:
        proto = onnx.load_model_from_string(bytes(source))
    except Exception:  # each implementation of protobuf has its own exception
        raise ModelError(name, f"is not an ONNX model, or is truncated{lfs_advice(bytes(source[:64]))}") from None
    proto = _with_text_names(proto, name)
    _use_plain_domains(proto)
    return proto, folder, name


def _use_plain_domains(proto: ModelProto) -> None:
    """Write ONNX's own domain, which has two names, as the empty string."""
    for entry in _with_domains(proto):
        if plain_domain(entry.domain) != entry.domain:
            entry.domain = ""


def _with_domains(proto: ModelProto) -> Iterator[NodeProto | FunctionProto | OperatorSetIdProto]:
    """Return the parts of a model that name a domain."""
    for scope in (proto, *proto.functions):
        yield from scope.opset_import
        yield from all_nodes(scope.graph if isinstance(scope, ModelProto) else scope)
    yield from proto.functions


def _with_text_names(proto: ModelProto, model: str) -> ModelProto:
    """Return the model; raise ModelError if a name is not UTF-8, which protobuf returns as bytes."""
    for name in _names(proto):
        if isinstance(name, bytes):
            raise ModelError(model, f"a name is not UTF-8: {shown(name)}")
    return proto


def check(proto: ModelProto) -> None:
    """Raise ModelError for problems found by ONNX's checker: cycles, duplicate names, missing attributes."""
    try:
        # A function may use other operator set versions than the model.
        onnx.checker.check_model(_checkable(proto), skip_opset_compatibility_check=True)
    except Exception as error:  # ValidationError, and ValueError beyond 2 GiB
        raise ModelError("model", abridged(" ".join(str(error).split()))) from None


def _names(proto: ModelProto) -> Iterator[str | bytes]:
    """Return the names of a model: of its nodes, their attributes, inputs and outputs, and of its tensors."""
    for scope in (proto.graph, *proto.functions):
        for node in all_nodes(scope):
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            yield from (attribute.name for attribute in node.attribute)
    yield from (tensor.name for tensor in _tensors(proto))
    yield from (info.name for info in (*proto.graph.input, *proto.graph.output))
    yield from (text for function in proto.functions for text in (function.name, *function.input, *function.output))


def _checkable(proto: ModelProto) -> ModelProto:
    """Return the model in a form that the checker accepts.

    External tensors are emptied; outputs without types or shapes get some; operators that ONNX has no schema for, or
    deprecated ones, move to another domain. Initializers need not be inputs in the oldest versions of the format:
    onnxruntime accepts such models.
    """
    external = any(tensor.data_location == TensorProto.EXTERNAL for tensor in _tensors(proto))
    vague = [index for index, output in enumerate(proto.graph.output) if _is_vague(output)]
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
    for index in vague:
        kind = light.graph.output[index].type.tensor_type
        kind.elem_type = kind.elem_type or TensorProto.FLOAT
        kind.shape.SetInParent()
    for tensor in _tensors(light):
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor.CopyFrom(TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0]))
    return light


def _exempt(scope: ModelProto | FunctionProto) -> Iterator[NodeProto]:
    """Return nodes of the ONNX domain that its checker rejects but that models contain.

    onnxruntime adds LayerNormalization to all operator sets; GroupNormalization of set 18 is deprecated.
    """
    version = next((entry.version for entry in scope.opset_import if not entry.domain), OLDEST)
    for node in all_nodes(scope.graph if isinstance(scope, ModelProto) else scope):
        if not node.domain:
            schema = schema_of("", node.op_type, version)
            if node.op_type in _ADDED or (schema is not None and schema.deprecated):
                yield node


def _is_vague(info: ValueInfoProto) -> bool:
    kind = info.type.WhichOneof("value")
    tensor = info.type.tensor_type
    return kind is None or (kind == "tensor_type" and not (tensor.elem_type and tensor.HasField("shape")))


def all_nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Return the nodes of a graph or function, including those of bodies in attributes."""
    yield from graph.node
    for body in bodies_in(attribute for node in graph.node for attribute in node.attribute):
        yield from body.node


def _tensors(proto: ModelProto) -> Iterator[TensorProto]:
    """Return all tensors of a model."""
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


_KINDS = ("tensor", "sequence", "optional", "optional sequence")


def declared(info: ValueInfoProto) -> Declared:
    """Return the declaration of an input or output.

    Raises:
        NotSupported: If it is not made of tensors of a type that DirectML has.
    """
    label = f"{abridged(info.name)!r}"
    value_type, kinds = info.type, []
    while (kind := value_type.WhichOneof("value")) in ("sequence_type", "optional_type"):
        kinds.append(kind.removesuffix("_type"))
        value_type = getattr(value_type, kind).elem_type
    name = " ".join(kinds) or "tensor"
    if kind not in (None, "tensor_type") or name not in _KINDS:
        got = " of ".join([*kinds, str(kind).removesuffix("_type")])
        advice = f"; {_MAPS_ADVICE}" if kind == "map_type" else ""
        raise NotSupported(f"{label}: must be a tensor, or a sequence or optional of tensors, got {got}{advice}")
    tensor = value_type.tensor_type
    if not tensor.elem_type:
        return Declared(info.name, DataType.UNKNOWN, 0, None, name)
    data_type, coded = stored_type(tensor.elem_type, label)
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(
            size.dim_value if size.HasField("dim_value") and size.dim_value >= 0 else size.dim_param or None
            for size in tensor.shape.dim
        )
    return Declared(info.name, data_type, coded, shape, name)


# ---- operators that are not supported --------------------------------------------------------------------------------


def unsupported(nodes: Iterable[NodeProto], versions: Versions) -> dict[str, list[str]]:
    """Return the names of unsupported nodes, by operator, including those of bodies."""
    names: dict[str, list[str]] = {}
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                for name, several in unsupported(attribute.g.node, versions).items():
                    names.setdefault(name, []).extend(several)
        version = versions.of(node)
        plain = not node.domain
        if (plain and node.op_type in _ON_HOST) or registry.find(node.domain, node.op_type, version):
            continue
        if not has_body(node.domain, node.op_type, version):
            name = node.op_type if plain else f"{node.domain}.{node.op_type}"
            names.setdefault(name, []).append(node.name or next(iter(node.output), ""))
    return names


def check_supported(model: OnnxModel, strict: bool = False) -> None:
    """Raise if the model has unsupported operators.

    Args:
        model: The model.
        strict: Whether to reject control flow.

    Raises:
        NotSupported: If operators are unsupported, or with control flow if `strict`; the message lists all of them.
    """
    decided = [node for node in model.nodes if registry.is_control(node)]
    if strict and decided:
        nodes = ", ".join(
            f"{node.op_type} {node.name or next(iter(node.output), '')!r}" for node in decided[:_MAX_SHOWN]
        )
        raise NotSupported(f"model {model.name!r}: the host decides about {nodes} (strict)")
    missing = unsupported(model.nodes, model.versions)
    if missing:
        listed = [f"{name} ({len(nodes)}, first {nodes[0]!r})" for name, nodes in sorted(missing.items())]
        more = f" and {len(listed) - _MAX_SHOWN} more" if len(listed) > _MAX_SHOWN else ""
        advice = "".join(f"; {text}" for text in dict.fromkeys(_ADVICE[name] for name in missing if name in _ADVICE))
        raise NotSupported(
            f"model {model.name!r}: operators are not supported: {', '.join(listed[:_MAX_SHOWN])}{more}{advice}"
        )
