"""The smallest descriptions of an operator, to find out whether it runs with certain data types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dmlgpu.catalog import FieldSchema, OperatorSchema, SupportTable, Variant, descs, enums
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc, Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler.operators.lowering import MinimalExample

_USUAL_TYPES = (DataType.FLOAT32, DataType.UINT32, DataType.INT32)
_USUAL_RANK = 4
_ZERO = ("Axis", "Axes", "Offset", "Padding", "BatchDimensionCount")
"""Attributes whose name ends like this, in singular or plural, are 0 in a probe; all other numbers are 1."""


def probes(schema: OperatorSchema, types: Mapping[str, DataType], level: FeatureLevel) -> Iterator[OperatorDesc]:
    """Yield descriptions over tensors of one element: one, or one per member of the attribute that decides about types.

    Args:
        schema: the operator.
        types: data types by Python field name; the rest follows from the operator's relations and tables.
        level: whose tables hold.
    """
    if not schema.variants:
        yield _probe(schema, schema.support_at(level), types, {})
    for variant in schema.variants:
        for values in _members(schema, variant):
            yield _probe(schema, schema.support_at(level, variant), types, values)


def _members(schema: OperatorSchema, variant: Variant) -> Iterator[dict[str, Any]]:
    attribute = schema.field(variant.field)
    for member in _enumeration(attribute):
        if member.name in variant.members:
            yield {attribute.python_name: member}


def _probe(
    schema: OperatorSchema, table: SupportTable, types: Mapping[str, DataType], values: dict[str, Any]
) -> OperatorDesc:
    needed = operators.minimal_example(schema.name, types)
    chosen = _complete_types(schema, table, types, needed)
    ranks = {
        name: min(max(_USUAL_RANK, support.min_dimensions), support.max_dimensions) for name, support in table.items()
    } | {schema.field(name).name: rank for name, rank in needed.ranks.items()}
    fields = dict(values)
    for field in schema.python_fields:
        if field.python_name in fields or (field.optional and field.name not in chosen):
            continue
        if field.is_tensor:
            end = needed.sizes.get(field.python_name, ())
            tensor = TensorDesc(chosen[field.name], (1,) * (ranks[field.name] - len(end)) + end)
            fields[field.python_name] = (tensor,) if field.is_array else tensor
        elif not field.optional:
            value = needed.values.get(field.python_name)
            fields[field.python_name] = _attribute(schema, field, ranks, chosen) if value is None else value
    return descs.by_name(schema.name)(**fields)


def _complete_types(
    schema: OperatorSchema, table: SupportTable, types: Mapping[str, DataType], needed: MinimalExample
) -> dict[str, DataType]:
    """Return the types of all tensors that are required or asked for, by DirectML's field name."""
    chosen = {schema.field(name).name: data_type for name, data_type in types.items()}
    required = [field.name for field in schema.tensor_fields if not field.optional]
    required += [schema.field(name).name for name in needed.tensors]
    groups = [relation.tensors for relation in schema.relations if "DataType" in relation.same]
    for name in [*chosen, *required]:
        if name not in chosen:
            listed = table[name].types if name in table else _USUAL_TYPES
            # Scales come first among quantisation tensors, and are floats whatever they scale.
            only_floats = name == "QuantizationTensors"
            wished = (*(wish for wish in types.values() if wish.is_float or not only_floats), *_USUAL_TYPES)
            chosen[name] = next((wish for wish in wished if wish in listed), listed[0])
        for group in groups:
            for other in group if name in group else ():
                if other in required:
                    chosen.setdefault(other, chosen[name])
    return chosen


def _attribute(
    schema: OperatorSchema, field: FieldSchema, ranks: Mapping[str, int], types: Mapping[str, DataType]
) -> Any:
    if field.is_array:
        rule = schema.counts.get(field.count_field or "")
        length = 1 if rule is None else ranks[rule.tensor] - rule.less if rule.tensor else max(rule.minimum, 1)
        return (_number(field),) * length
    if field.type in ("UINT", "INT", "FLOAT", "SCALAR_UNION"):
        return schema.defaults.get(field.name, _number(field))
    if field.type == "DML_TENSOR_DATA_TYPE":
        return next(types[tensor.name] for tensor in reversed(schema.tensor_fields) if tensor.name in types)
    if field.type == "BOOL":
        return False
    return Size2D(1, 1) if field.type == "SIZE_2D" else next(iter(_enumeration(field)))


def _number(field: FieldSchema) -> int:
    return 0 if field.name.removesuffix("s").endswith(tuple(name.removesuffix("s") for name in _ZERO)) else 1


def _enumeration(field: FieldSchema) -> Any:
    return getattr(enums, "".join(word.capitalize() for word in field.type.removeprefix("DML_").split("_")))
