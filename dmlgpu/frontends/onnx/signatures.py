"""Types of inputs and outputs by ONNX's schemas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import onnx.defs
from onnx import NodeProto, helper, numpy_helper, shape_inference

from dmlgpu.catalog.enums import DataType, data_type_named
from dmlgpu.compiler.sizes.arithmetic import value_of
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators import ML
from dmlgpu.frontends.onnx.registry import Result
from dmlgpu.frontends.onnx.tensor_proto import CODED, DATA_TYPES, stored_type
from dmlgpu.frontends.onnx.values import OnnxValue, Shape
from dmlgpu.tensors import directmlx as dml
from dmlgpu.tensors.tensor import Tensor

_MAX_INFERRED = 1024
"""Maximum number of elements of an input that shape inference examines."""


@lru_cache(maxsize=1024)
def schema_of(domain: str, name: str, version: int) -> onnx.defs.OpSchema | None:
    """Return the schema of an operator in a version of its operator set, None where ONNX has none."""
    try:
        return onnx.defs.get_schema(name, version, domain)
    except onnx.defs.SchemaError:
        return None


@dataclass(frozen=True)
class FormalInput:
    """An input of a schema.

    Attributes:
        name: Name.
        types: Types that it may have, such as ``tensor(float)``.
        variable: Type variable, which stands for one type in a node; empty if inputs of its name may differ.
    """

    name: str
    types: frozenset[str]
    variable: str


@lru_cache(maxsize=1024)
def _formal_inputs(domain: str, name: str, version: int) -> tuple[FormalInput, ...]:
    """Return the inputs of an operator; nothing if ONNX has no such operator."""
    schema = schema_of(domain, name, version)
    return tuple(
        FormalInput(formal.name, frozenset(formal.types), formal.type_str if formal.is_homogeneous else "")
        for formal in (() if schema is None else schema.inputs)
    )


def formal_inputs(node: OnnxNode) -> list[tuple[OnnxValue | None, FormalInput]]:
    """Pair the inputs with those of the schema, whose last one may be variadic; empty if ONNX has no such operator."""
    formals = _formal_inputs(node.proto.domain, node.op_type, node.version)
    pairs = enumerate(node.inputs if formals else ())
    return [(value, formals[min(index, len(formals) - 1)]) for index, value in pairs]


def check_inputs(node: OnnxNode) -> None:
    """Raise NotSupported unless inputs have types that the schema of the node's version allows, equal ones for a type
    variable.

    An optional with an element is its element.
    """
    variables: dict[str, str] = {}
    formals = formal_inputs(node)
    if not formals and any(value is not None and value.is_container for value in node.inputs):
        raise node.rejection("inputs must be tensors, got a sequence or an optional")
    for index, (value, formal) in enumerate(formals):
        if value is None:
            continue
        if value.type_name not in formal.types and f"optional({value.type_name})" not in formal.types:
            listed = ", ".join(sorted(map(_plain_type, formal.types)))
            raise node.rejection(
                f"input {index} ({formal.name}) must be of type {listed} in operator set {node.version}, "
                f"got {_plain_type(value.type_name)}"
            )
        first = variables.setdefault(formal.variable, value.type_name)
        if formal.variable and value.type_name != first:
            raise node.rejection(
                f"input {index} ({formal.name}) must be of type {_plain_type(first)} as an input before it, "
                f"got {_plain_type(value.type_name)}"
            )


def _plain_type(name: str) -> str:
    """Return ``float`` for ``tensor(float)``; other kinds of types as they are."""
    return name.removeprefix("tensor(").removesuffix(")") if name.startswith("tensor(") else name


_MOVING = frozenset(
    (
        *("BitCast", "Cast", "CastLike", "Compress", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Expand"),
        *("EyeLike", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Pad", "Reshape", "Scatter"),
        *("ScatterElements", "ScatterND", "Shape", "Size", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile"),
        *("Transpose", "Trilu", "Unsqueeze", "Where"),
    )
)
"""Operators whose results are constants, or elements of their inputs, unchanged or cast."""

_MOVING_FEATURES = frozenset(
    (
        *("ArrayFeatureExtractor", "FeatureVectorizer", "LabelEncoder", "OneHotEncoder", "TreeEnsembleClassifier"),
        *("TreeEnsemble", "TreeEnsembleRegressor"),
    )
)
"""Operators of ai.onnx.ml, and those that only compare."""


def check_doubles(node: OnnxNode, values: Iterable[OnnxValue | None], what: str) -> None:
    """Raise NotSupported if a node computes with float64: DirectML can only move and cast it, and nothing is rounded
    silently.

    Args:
        node: The node.
        values: Its inputs or outputs.
        what: ``input`` or ``output``.
    """
    moving = {"": _MOVING, ML: _MOVING_FEATURES}.get(node.proto.domain, ())
    if node.op_type in moving:
        return
    for index, value in enumerate(values):
        if value is not None and value.data_type is DataType.FLOAT64:
            raise node.rejection(
                f"float64 can be moved and cast, but not computed with, got float64 in {what} {index}; export the "
                "model with float32 inputs (skl2onnx: to_onnx(model, X[:1].astype('float32')))"
            )


def typed_outputs(node: OnnxNode, results: Result | Sequence[Result]) -> list[OnnxValue | None]:
    """Return outputs with the types of the schema: booleans marked, indices cast.

    An output with the type of an input is boolean if the input is. If the schema allows one type, a result of another
    type is cast.
    """
    several = results if isinstance(results, Sequence) else (results,)
    schema = schema_of(node.proto.domain, node.op_type, node.version)
    values: list[OnnxValue | None] = []
    for index, result in enumerate(several):
        value = node.valued(result) if isinstance(result, Tensor) else result
        if value is not None and schema is not None and schema.outputs:
            formal = schema.outputs[min(index, len(schema.outputs) - 1)]
            value = _typed(node, schema, value, formal.type_str)
        values.append(value)
    return values


def _typed(node: OnnxNode, schema: onnx.defs.OpSchema, value: OnnxValue, text: str) -> OnnxValue:
    allowed = next(
        (constraint.allowed_type_strs for constraint in schema.type_constraints if constraint.type_param_str == text),
        (),
    )
    if len(allowed) == 1:
        (text,) = allowed
    if text.startswith("tensor("):
        name = text.removeprefix("tensor(").removesuffix(")")
        data_type = {"bool": DataType.UINT8, "float": DataType.FLOAT32}.get(name) or data_type_named(name.upper())
        if data_type is not None and data_type is not value.data_type and value.array is None:
            value = node.valued(dml.cast(node.expression(value), data_type), value.shape)
        value.coded = onnx.TensorProto.BOOL if name == "bool" else value.coded
        return value
    for index, operand in enumerate(node.inputs):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        if operand is not None and formal.type_str == text and operand.data_type is value.data_type:
            value.coded = operand.coded
            break
    return value


def inferred(
    node: OnnxNode, op_type: str = "", inputs: Sequence[OnnxValue | None] | None = None
) -> list[tuple[DataType, int, Shape] | None]:
    """Return types and shapes of a node's outputs by ONNX's inference; None for unknown ones.

    Args:
        node: The node.
        op_type: Another ONNX operator to infer for, with the attributes of the node.
        inputs: Other inputs than the node's.
    """
    values = list(node.inputs if inputs is None else inputs)
    proto = NodeProto()
    proto.CopyFrom(node.proto)
    version = node.version
    if op_type:
        version = onnx.defs.onnx_opset_version()
        del proto.attribute[:], proto.output[1:]
        proto.op_type, proto.domain = op_type, ""
        proto.attribute.extend(
            attribute
            for attribute in node.proto.attribute
            if attribute.name in onnx.defs.get_schema(op_type).attributes
        )
    schema = schema_of(proto.domain, proto.op_type, version)
    if schema is not None:  # some inference functions ignore defaults
        usual = {
            name: attribute.default_value
            for name, attribute in schema.attributes.items()
            if attribute.default_value.name
        }
        present = {attribute.name for attribute in proto.attribute}
        proto.attribute.extend(attribute for name, attribute in usual.items() if name not in present)
    names = ["" if value is None else f"input {index}" for index, value in enumerate(values)]
    outputs = [f"output {index}" for index, name in enumerate(proto.output) if name]
    proto.output[:] = [f"output {index}" if name else "" for index, name in enumerate(proto.output)]
    proto.input[:] = names
    infos, known = [], []
    for name, value in zip(names, values, strict=True):
        if value is None:
            continue
        infos.append(helper.make_tensor_value_info(name, value.element, [*map(value_of, value.shape)]))
        if value.array is not None and value.array.size <= _MAX_INFERRED and value.data_type.bits >= 8:
            known.append(numpy_helper.from_array(np.array(value.host_array), name))
    ends = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([proto], "node", infos, ends, known)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(proto.domain, version)])
    try:
        return [_declared(output) for output in shape_inference.infer_shapes(model).graph.output]
    except (shape_inference.InferenceError, IndexError):  # an invalid node, which the operator's function rejects
        return [None] * len(outputs)


def _declared(info: onnx.ValueInfoProto) -> tuple[DataType, int, Shape] | None:
    kind = info.type.tensor_type
    if (
        kind.elem_type not in (*DATA_TYPES, *CODED)
        or not kind.HasField("shape")
        or not all(dimension.HasField("dim_value") for dimension in kind.shape.dim)
    ):
        return None
    shape = tuple(dimension.dim_value for dimension in kind.shape.dim)
    return (*stored_type(kind.elem_type, info.name), shape) if min(shape, default=0) >= 0 else None
