"""What ONNX's schemas say of the types of a node's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import onnx.defs

from dmlgpu.builder import directmlx as dml
from dmlgpu.builder.expression import Expression
from dmlgpu.enums import DataType
from dmlgpu.frontends.onnx.node import Node
from dmlgpu.frontends.onnx.registry import Result
from dmlgpu.frontends.onnx.values import Value


@lru_cache(maxsize=1024)
def schema_of(domain: str, name: str, version: int) -> onnx.defs.OpSchema | None:
    """Return the schema of an operator in a version of its operator set, None where ONNX has none."""
    try:
        return onnx.defs.get_schema(name, version, "" if domain == "ai.onnx" else domain)
    except onnx.defs.SchemaError:
        return None


def typed_outputs(node: Node, results: Result | Sequence[Result]) -> list[Value | None]:
    """Return outputs with the types that the schema names: truth values known as such, indices cast.

    An output whose type is that of an input is of truth values where the input is; where the schema names one type, a
    result of another one is cast.
    """
    several = results if isinstance(results, Sequence) else (results,)
    schema = schema_of(node.proto.domain, node.op_type, node.version)
    found: list[Value | None] = []
    for number, result in enumerate(several):
        value = node.valued(result) if isinstance(result, Expression) else result
        if value is not None and schema is not None and schema.outputs:
            formal = schema.outputs[min(number, len(schema.outputs) - 1)]
            value = _typed(node, schema, value, formal.type_str)
        found.append(value)
    return found


def _typed(node: Node, schema: onnx.defs.OpSchema, value: Value, text: str) -> Value:
    allowed = next((one.allowed_type_strs for one in schema.type_constraints if one.type_param_str == text), ())
    if len(allowed) == 1:
        (text,) = allowed
    if text.startswith("tensor("):
        name = text.removeprefix("tensor(").removesuffix(")")
        wanted = {"bool": DataType.UINT8, "float": DataType.FLOAT32}.get(name) or DataType.__members__.get(name.upper())
        if wanted is not None and wanted is not value.data_type and value.array is None:
            value = node.valued(dml.cast(node.expression(value), wanted), value.shape)
        value.is_bool = name == "bool"
        return value
    for number, given in enumerate(node.inputs):
        formal = schema.inputs[min(number, len(schema.inputs) - 1)]
        if given is not None and formal.type_str == text and given.data_type is value.data_type:
            value.is_bool = given.is_bool
            break
    return value
