"""The smallest descriptions of an operator, to find out whether it runs with certain data types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dmlgpu import descs, enums
from dmlgpu.enums import DataType, FeatureLevel, QuantizationType
from dmlgpu.operator_desc import OperatorDesc, Size2D
from dmlgpu.schema import FieldSchema, OperatorSchema, SupportTable, Variant
from dmlgpu.tensor import TensorDesc

_USUAL_TYPES = (DataType.FLOAT32, DataType.UINT32, DataType.INT32)
_USUAL_RANK = 4
_ZERO = ("Axis", "Axes", "Offset", "Padding", "BatchDimensionCount")
"""Attributes whose name ends like this, in singular or plural, are 0 in a probe; all other numbers are 1."""

_LAST_SIZES = {"ValuesTensor": 2, "InputStateTensor": 6, "OutputStateTensor": 6}
"""Sizes of the last dimension that are not 1: of ONE_HOT's values, RANDOM_GENERATOR's states."""

_RANKS = {("FOLD", "InputTensor"): 3, ("UNFOLD", "OutputTensor"): 3}
"""Dimension counts that the tables leave open: columns have three."""

_TOGETHER = {"ScaleTensor": "BiasTensor", "BiasTensor": "ScaleTensor"}
"""Optional tensors that some feature levels take only both or not at all."""


def probes(schema: OperatorSchema, types: Mapping[str, DataType], level: FeatureLevel) -> Iterator[OperatorDesc]:
    """Descriptions over tensors of one element: one, or one per member of the attribute that decides about types.

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
    chosen = _complete_types(schema, table, types)
    ranks = {
        name: _RANKS.get((schema.name, name), min(max(_USUAL_RANK, support.min_dimensions), support.max_dimensions))
        for name, support in table.items()
    }
    fields = dict(values)
    for field in schema.python_fields:
        if field.python_name in fields or (field.optional and field.name not in chosen):
            continue
        if field.is_tensor:
            tensor = TensorDesc(chosen[field.name], _sizes(field.name, ranks[field.name]))
            fields[field.python_name] = (tensor,) if field.is_array else tensor
        elif not field.optional:
            fields[field.python_name] = _attribute(schema, field, ranks, chosen)
    return descs.by_name(schema.name)(**fields)


def _sizes(name: str, rank: int) -> tuple[int, ...]:
    """One element, or as many as the tensor must have."""
    return (1,) * (rank - 1) + (_LAST_SIZES.get(name, 1),)


def _complete_types(schema: OperatorSchema, table: SupportTable, types: Mapping[str, DataType]) -> dict[str, DataType]:
    """Types of all required tensors and of the optional ones that are asked for, by DirectML's field name."""
    chosen = {schema.field(name).name: data_type for name, data_type in types.items()}
    required = [field.name for field in schema.tensor_fields if not field.optional]
    optional = {field.name for field in schema.tensor_fields if field.optional}
    for name in [name for name in chosen if name in optional]:
        if _TOGETHER.get(name) in optional:
            chosen.setdefault(_TOGETHER[name], chosen[name])
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
    if field.type == "DML_QUANTIZATION_TYPE":
        return QuantizationType.SCALE
    return Size2D(1, 1) if field.type == "SIZE_2D" else next(iter(_enumeration(field)))


def _number(field: FieldSchema) -> int:
    return 0 if field.name.removesuffix("s").endswith(tuple(name.removesuffix("s") for name in _ZERO)) else 1


def _enumeration(field: FieldSchema) -> Any:
    return getattr(enums, "".join(word.capitalize() for word in field.type.removeprefix("DML_").split("_")))
