"""Feature queries and their answers, found by compiling minimal descriptions (IDMLDevice::CheckFeatureSupport)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dmlgpu.catalog import FieldSchema, OperatorSchema, SupportTable, Variant, descs, enums, operator
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc, Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common import coercion
from dmlgpu.common.errors import DmlError, InvalidArgument, InvalidDescription, OperatorNotImplemented, shown
from dmlgpu.compiler import operators
from dmlgpu.compiler.operators.lowering import Probe


@dataclass(frozen=True)
class TensorDataTypeSupportQuery:
    """Is a data type supported? (DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT)."""

    data_type: DataType


@dataclass(frozen=True)
class TensorDataTypeSupport:
    """Answer: true when every operator that lists the type, and that dmlgpu implements, runs with it on the adapter.

    False as well when no implemented operator lists the type.

    Attributes:
        is_supported: natively or emulated.
        refused: the operators that do not run with it, each with the reason.
    """

    is_supported: bool
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FeatureLevelsQuery:
    """Which of these levels is the highest supported? (DML_FEATURE_QUERY_FEATURE_LEVELS)."""

    requested_feature_levels: Sequence[FeatureLevel]


@dataclass(frozen=True)
class FeatureLevels:
    """Answer: the highest requested level that the device supports, None when it supports none of them."""

    max_supported_feature_level: FeatureLevel | None


@dataclass(frozen=True)
class OperatorSupportQuery:
    """Does an operator run with these data types? (Not in DirectML.)

    Attributes:
        operator: DirectML's name, ``GATHER_ND1``; or a whole description, which is answered exactly.
        data_types: types of tensor fields as written in Python, ``{"input_tensor": DataType.INT64}``; fields left out
            take a type that suits the others. An operator whose types depend on an attribute (REDUCE) is supported
            when it is for one value of the attribute.
    """

    operator: str | OperatorDesc
    data_types: Mapping[str, DataType] = field(default_factory=dict)


@dataclass(frozen=True)
class OperatorSupport:
    """Answer: whether the operator runs, and why it does not."""

    is_supported: bool
    reason: str = ""


Query = TensorDataTypeSupportQuery | FeatureLevelsQuery | OperatorSupportQuery
Answer = TensorDataTypeSupport | FeatureLevels | OperatorSupport


Refusal = Callable[[OperatorDesc], DmlError | None]
"""Returns the exception with which a device would refuse a description, or None."""

_FEATURE_LEVELS = coercion.tuple_of(coercion.member_of(FeatureLevel), "feature levels")


def answer(query: Query, level: FeatureLevel, refusal: Refusal, implemented: frozenset[str]) -> Answer:
    """Answer a query.

    Args:
        query: one of the three queries.
        level: the level as which the device behaves.
        refusal: asks the device about a description.
        implemented: the operators that dmlgpu has.

    Raises:
        InvalidArgument: no query, an operator or field that does not exist, an empty list of levels.
    """
    if isinstance(query, FeatureLevelsQuery):
        return _feature_levels(query, level)
    if isinstance(query, TensorDataTypeSupportQuery):
        return _data_type_support(query, level, refusal, implemented)
    if isinstance(query, OperatorSupportQuery):
        return _operator_support(query, level, refusal)
    raise InvalidArgument(
        "check_feature_support: query must be a FeatureLevelsQuery, a TensorDataTypeSupportQuery or an "
        f"OperatorSupportQuery, got {type(query).__name__}"
    )


def _feature_levels(query: FeatureLevelsQuery, level: FeatureLevel) -> FeatureLevels:
    caller, argument = "FeatureLevelsQuery", "requested_feature_levels"
    requested = coercion.argument(caller, argument, _FEATURE_LEVELS, query.requested_feature_levels)
    if not requested:
        raise InvalidArgument("FeatureLevelsQuery: requested_feature_levels must not be empty")
    return FeatureLevels(max((candidate for candidate in requested if candidate <= level), default=None))


def _data_type_support(
    query: TensorDataTypeSupportQuery, level: FeatureLevel, refusal: Refusal, implemented: frozenset[str]
) -> TensorDataTypeSupport:
    data_type = _data_type("TensorDataTypeSupportQuery: data_type", query.data_type)
    refused: dict[str, str] = {}
    listed = False
    for name in sorted(implemented):
        schema = operator(name)
        for tensor, support in schema.support_at(level).items():
            if data_type in support.types:
                listed = True
                types = {schema.field(tensor).python_name: data_type}
                for refused_by in map(refusal, probes(schema, types, level)):
                    if _is_the_adapters(refused_by):
                        refused.setdefault(name, str(refused_by))
    return TensorDataTypeSupport(listed and not refused, refused)


def _operator_support(query: OperatorSupportQuery, level: FeatureLevel, refusal: Refusal) -> OperatorSupport:
    if isinstance(query.operator, OperatorDesc):
        refused = refusal(query.operator)
    else:
        schema = operator(query.operator)
        data_types = _data_types(schema, query.data_types)
        if level < schema.feature_level:
            needed = f"needs feature level {schema.feature_level.label}, the device behaves as {level.label}"
            return OperatorSupport(False, f"{schema.name}: {needed}")
        refusals = list(map(refusal, probes(schema, data_types, level)))
        refused = None if None in refusals else min(refusals, key=_distance)
    return OperatorSupport(refused is None, "" if refused is None else str(refused))


def _data_types(schema: OperatorSchema, mapping: object) -> dict[str, DataType]:
    """Return the types that a query gives for an operator's tensors."""
    what = "OperatorSupportQuery: data_types"
    if not isinstance(mapping, Mapping):
        raise InvalidArgument(f"{what} must be a mapping of tensors to data types, got {shown(mapping)}")
    try:
        data_types = dict(mapping)
    except Exception:  # whatever a foreign mapping raises
        raise InvalidArgument(f"{what} cannot be read, got {shown(mapping)}") from None
    known = [field.python_name for field in schema.tensor_fields]
    for name, data_type in data_types.items():
        if not isinstance(name, str) or name not in known:
            tensors = ", ".join(sorted(known))
            raise InvalidArgument(f"OperatorSupportQuery: {schema.name} has no tensor {shown(name)}, only {tensors}")
        _data_type(f"{what}[{name!r}]", data_type)
    return data_types


def _distance(refused: DmlError | None) -> int:
    """Rank refusals: those by the adapter first, attribute values that do not take the types at all last."""
    return 0 if _is_the_adapters(refused) else 1 if isinstance(refused, OperatorNotImplemented) else 2


def _is_the_adapters(refused: DmlError | None) -> bool:
    """Return whether an operator is refused because of the adapter."""
    return refused is not None and not isinstance(refused, InvalidDescription | OperatorNotImplemented)


def _data_type(what: str, value: object) -> DataType:
    if not isinstance(value, DataType) or value is DataType.UNKNOWN:
        raise InvalidArgument(f"{what} must be a DataType other than UNKNOWN, got {shown(value)}")
    return value


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
    needed = operators.probe(schema.name, types)
    chosen = _complete_types(schema, table, types, needed)
    ranks = {
        name: min(max(_USUAL_RANK, support.min_dimensions), support.max_dimensions) for name, support in table.items()
    } | {schema.field(name).name: rank for name, rank in needed.ranks.items()}
    fields = dict(values)
    for schema_field in schema.python_fields:
        if schema_field.python_name in fields or (schema_field.optional and schema_field.name not in chosen):
            continue
        if schema_field.is_tensor:
            end = needed.sizes.get(schema_field.python_name, ())
            tensor = TensorDesc(chosen[schema_field.name], (1,) * (ranks[schema_field.name] - len(end)) + end)
            fields[schema_field.python_name] = (tensor,) if schema_field.is_array else tensor
        elif not schema_field.optional:
            value = needed.values.get(schema_field.python_name)
            fields[schema_field.python_name] = (
                _attribute(schema, schema_field, ranks, chosen) if value is None else value
            )
    return descs.by_name(schema.name)(**fields)


def _complete_types(
    schema: OperatorSchema, table: SupportTable, types: Mapping[str, DataType], needed: Probe
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
