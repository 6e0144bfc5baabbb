"""The smallest valid descriptions of every operator: tensors of one element, simplest attributes.

They are derived from the catalog; ``NEEDS`` has exceptions. Support queries compile them to determine whether an
operator runs with certain data types; tests modify them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from dmlgpu.catalog import FieldSchema, OperatorSchema, SupportTable, Variant, descs, enums
from dmlgpu.catalog.enums import DataType, FeatureLevel, QuantizationType, ReduceFunction
from dmlgpu.catalog.enums import MultiheadAttentionMaskType as MaskType
from dmlgpu.catalog.operator_desc import OperatorDesc, Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc

_USUAL_TYPES = (DataType.FLOAT32, DataType.UINT32, DataType.INT32)
_USUAL_RANK = 4
_ZERO = ("Axis", "Axes", "Offset", "Padding", "BatchDimensionCount")
"""Suffixes, in singular or plural, of attributes that are 0 in a minimal example; all other numbers are 1."""


@dataclasses.dataclass(frozen=True)
class MinimalNeeds:
    """Exceptions for an operator's smallest description.

    Attributes:
        tensors: Optional tensors that must be present, by field.
        ranks: Ranks that the catalog leaves open, by field.
        sizes: Sizes of the last dimensions that are not 1, by field.
        values: Attributes that are neither 0 or 1 nor the first member of their enumeration.
    """

    tensors: tuple[str, ...] = ()
    ranks: Mapping[str, int] = dataclasses.field(default_factory=dict)
    sizes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)


_NOTHING = MinimalNeeds()


def _attention(requested: Collection[str]) -> MinimalNeeds:
    separate = ("query_tensor", "key_tensor", "value_tensor")
    companions = {
        "stacked_query_key_tensor": ("value_tensor",),
        "stacked_key_value_tensor": ("query_tensor",),
        "stacked_query_key_value_tensor": (),
        "past_key_tensor": (*separate, "past_value_tensor"),
        "past_value_tensor": (*separate, "past_key_tensor"),
        "past_sequence_lengths_tensor": (*separate, "output_present_key_tensor", "output_present_value_tensor"),
    }
    needed = [companions[name] for name in requested if name in companions] or [separate]
    return MinimalNeeds(
        tensors=tuple(name for names in needed for name in names),
        sizes={
            "stacked_query_key_tensor": (2, 1),
            "stacked_key_value_tensor": (2, 1),
            "stacked_query_key_value_tensor": (3, 1),
            "bias_tensor": (3,),
        },
        values={"mask_type": MaskType.BOOLEAN if "mask_tensor" in requested else MaskType.NONE},
    )


def _recurrence(gates: int, activations: int) -> MinimalNeeds:
    return MinimalNeeds(
        tensors=("output_sequence_tensor",),
        sizes={
            "weight_tensor": (gates, 1),
            "recurrence_tensor": (gates, 1),
            "bias_tensor": (2 * gates,),
            "peephole_tensor": (3,),
        },
        values={"activation_descs": (descs.ActivationRelu(),) * activations},
    )


def _scale_and_bias(requested: Collection[str]) -> MinimalNeeds:
    """Below feature level 5_2 both are present or neither is."""
    pair = ("scale_tensor", "bias_tensor")
    return MinimalNeeds(pair if set(pair) & set(requested) else ())


def _region_gradients(requested: Collection[str]) -> MinimalNeeds:
    return MinimalNeeds(
        tensors=("input_tensor",) if "output_roi_gradient_tensor" in requested else ("output_gradient_tensor",),
        sizes={"roi_tensor": (4,), "output_roi_gradient_tensor": (4,)},
        values={"reduction_function": ReduceFunction.AVERAGE},
    )


NEEDS: Mapping[str, Callable[[Collection[str]], MinimalNeeds]] = {
    "FOLD": lambda _: MinimalNeeds(ranks={"input_tensor": 3}),
    "UNFOLD": lambda _: MinimalNeeds(ranks={"output_tensor": 3}),
    "ONE_HOT": lambda _: MinimalNeeds(sizes={"values_tensor": (2,)}),
    "RANDOM_GENERATOR": lambda _: MinimalNeeds(sizes={"input_state_tensor": (6,), "output_state_tensor": (6,)}),
    "RNN": lambda _: _recurrence(gates=1, activations=1),
    "LSTM": lambda _: _recurrence(gates=4, activations=3),
    "GRU": lambda _: _recurrence(gates=3, activations=2),
    "ROI_POOLING": lambda _: MinimalNeeds(sizes={"roi_tensor": (5,)}),
    "ROI_ALIGN_GRAD": _region_gradients,
    **dict.fromkeys(
        ("ROI_ALIGN", "ROI_ALIGN1"),
        lambda _: MinimalNeeds(sizes={"roi_tensor": (4,)}, values={"reduction_function": ReduceFunction.AVERAGE}),
    ),
    **dict.fromkeys(
        ("QUANTIZE", "DEQUANTIZE"), lambda _: MinimalNeeds(values={"quantization_type": QuantizationType.SCALE})
    ),
    **dict.fromkeys((f"MEAN_VARIANCE_NORMALIZATION{version}" for version in ("", "1", "2")), _scale_and_bias),
    **dict.fromkeys(("MULTIHEAD_ATTENTION", "MULTIHEAD_ATTENTION1"), _attention),
}
"""Functions by operator; each gets the fields of the tensors that a description has."""


def minimal_examples(
    schema: OperatorSchema, types: Mapping[str, DataType], level: FeatureLevel
) -> Iterator[OperatorDesc]:
    """Yield descriptions over tensors of one element: one, or one per member of the attribute that decides about types.

    Args:
        schema: The operator.
        types: Data types by Python field name; the rest follows from the operator's relations and tables.
        level: Feature level whose tables apply.
    """
    if not schema.variants:
        yield _minimal_example(schema, schema.support_at(level), types, {})
    for variant in schema.variants:
        for values in _members(schema, variant):
            yield _minimal_example(schema, schema.support_at(level, variant), types, values)


def _members(schema: OperatorSchema, variant: Variant) -> Iterator[dict[str, Any]]:
    attribute = schema.field(variant.field)
    for member in _enumeration(attribute):
        if member.name in variant.members:
            yield {attribute.python_name: member}


def _minimal_example(
    schema: OperatorSchema, table: SupportTable, types: Mapping[str, DataType], values: dict[str, Any]
) -> OperatorDesc:
    needed = NEEDS.get(schema.name, lambda _: _NOTHING)(types)
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
    schema: OperatorSchema, table: SupportTable, types: Mapping[str, DataType], needed: MinimalNeeds
) -> dict[str, DataType]:
    """Return the types of all required or requested tensors, by DirectML's field name."""
    chosen = {schema.field(name).name: data_type for name, data_type in types.items()}
    required = [field.name for field in schema.tensor_fields if not field.optional]
    required += [schema.field(name).name for name in needed.tensors]
    groups = [relation.tensors for relation in schema.relations if "DataType" in relation.same]
    for name in [*chosen, *required]:
        if name not in chosen:
            listed = table[name].types if name in table else _USUAL_TYPES
            # Scales come first among quantization tensors, and are floats whatever they scale.
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
