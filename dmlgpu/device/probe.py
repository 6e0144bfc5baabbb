"""The smallest descriptions of an operator, to find out whether it runs with certain data types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dmlgpu import descs, enums
from dmlgpu.enums import DataType, FeatureLevel, MultiheadAttentionMaskType, QuantizationType, ReduceFunction
from dmlgpu.operator_desc import OperatorDesc, Size2D
from dmlgpu.schema import FieldSchema, OperatorSchema, SupportTable, Variant
from dmlgpu.tensor import TensorDesc

_USUAL_TYPES = (DataType.FLOAT32, DataType.UINT32, DataType.INT32)
_USUAL_RANK = 4
_ZERO = ("Axis", "Axes", "Offset", "Padding", "BatchDimensionCount")
"""Attributes whose name ends like this, in singular or plural, are 0 in a probe; all other numbers are 1."""

_ENDS: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("", "ValuesTensor"): (2,),
    ("", "InputStateTensor"): (6,),
    ("", "OutputStateTensor"): (6,),
    ("", "ROITensor"): (4,),
    ("", "OutputROIGradientTensor"): (4,),
    ("ROI_POOLING", "ROITensor"): (5,),
    ("", "PeepholeTensor"): (3,),
    **{
        (name, tensor): sizes
        for name, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
        for tensor, sizes in (
            ("WeightTensor", (gates, 1)),
            ("RecurrenceTensor", (gates, 1)),
            ("BiasTensor", (2 * gates,)),
        )
    },
    ("", "StackedQueryKeyTensor"): (2, 1),
    ("", "StackedKeyValueTensor"): (2, 1),
    ("", "StackedQueryKeyValueTensor"): (3, 1),
    ("MULTIHEAD_ATTENTION", "BiasTensor"): (3,),
    ("MULTIHEAD_ATTENTION1", "BiasTensor"): (3,),
}
"""Sizes of last dimensions that are not 1, by operator (or any) and tensor."""

_RANKS = {("FOLD", "InputTensor"): 3, ("UNFOLD", "OutputTensor"): 3}
"""Dimension counts that the tables leave open: columns have three."""

_TOGETHER = {"ScaleTensor": "BiasTensor", "BiasTensor": "ScaleTensor"}
"""Optional tensors that some feature levels take only both or not at all."""

_ATTENTION: Mapping[str, tuple[str, ...]] = {
    "": ("QueryTensor", "KeyTensor", "ValueTensor"),
    "StackedQueryKeyTensor": ("ValueTensor",),
    "StackedKeyValueTensor": ("QueryTensor",),
    "StackedQueryKeyValueTensor": (),
    "PastKeyTensor": ("QueryTensor", "KeyTensor", "ValueTensor", "PastValueTensor"),
    "PastValueTensor": ("QueryTensor", "KeyTensor", "ValueTensor", "PastKeyTensor"),
    "PastSequenceLengthsTensor": (
        "QueryTensor",
        "KeyTensor",
        "ValueTensor",
        "OutputPresentKeyTensor",
        "OutputPresentValueTensor",
    ),
}
_COMPANIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("MULTIHEAD_ATTENTION", "MULTIHEAD_ATTENTION1"), _ATTENTION),
    **{name: {"": ("OutputSequenceTensor",)} for name in ("RNN", "GRU", "LSTM")},
    "ROI_ALIGN_GRAD": {"": ("OutputGradientTensor",), "OutputROIGradientTensor": ("InputTensor",)},
}
"""Optional tensors that an operator needs beside one that is asked for; by "" beside any other."""

_ACTIVATIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
"""How many activations an operator takes."""


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
            tensor = TensorDesc(chosen[field.name], _sizes(schema.name, field.name, ranks[field.name]))
            fields[field.python_name] = (tensor,) if field.is_array else tensor
        elif not field.optional:
            fields[field.python_name] = _attribute(schema, field, ranks, chosen)
    return descs.by_name(schema.name)(**fields)


def _sizes(operator: str, name: str, rank: int) -> tuple[int, ...]:
    """One element, or as many as the tensor must have."""
    end = _ENDS.get((operator, name)) or _ENDS.get(("", name), ())
    return (1,) * (rank - len(end)) + end


def _complete_types(schema: OperatorSchema, table: SupportTable, types: Mapping[str, DataType]) -> dict[str, DataType]:
    """Types of all required tensors and of the optional ones that are asked for, by DirectML's field name."""
    chosen = {schema.field(name).name: data_type for name, data_type in types.items()}
    required = [field.name for field in schema.tensor_fields if not field.optional]
    required += [name for name in _companions(schema, chosen) if name not in required]
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


def _companions(schema: OperatorSchema, asked: Iterable[str]) -> Iterator[str]:
    """Optional tensors that must be there beside those that are asked for."""
    known = _COMPANIONS.get(schema.name, {"": ()})
    for names in [known[name] for name in asked if name in known] or [known[""]]:
        yield from names


def _attribute(
    schema: OperatorSchema, field: FieldSchema, ranks: Mapping[str, int], types: Mapping[str, DataType]
) -> Any:
    if field.type == "OPERATOR_DESC":
        return (descs.ActivationRelu(),) * _ACTIVATIONS[schema.name]
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
    return Size2D(1, 1) if field.type == "SIZE_2D" else _member(schema, field, types)


def _member(schema: OperatorSchema, field: FieldSchema, types: Mapping[str, DataType]) -> Any:
    """The first member of an enumeration that the operator takes with such tensors."""
    if field.type == "DML_MULTIHEAD_ATTENTION_MASK_TYPE" and "MaskTensor" in types:
        return MultiheadAttentionMaskType.BOOLEAN
    if field.type == "DML_REDUCE_FUNCTION" and schema.name.startswith("ROI_ALIGN"):
        return ReduceFunction.AVERAGE
    if field.type == "DML_QUANTIZATION_TYPE":
        return QuantizationType.SCALE
    return next(iter(_enumeration(field)))


def _number(field: FieldSchema) -> int:
    return 0 if field.name.removesuffix("s").endswith(tuple(name.removesuffix("s") for name in _ZERO)) else 1


def _enumeration(field: FieldSchema) -> Any:
    return getattr(enums, "".join(word.capitalize() for word in field.type.removeprefix("DML_").split("_")))
