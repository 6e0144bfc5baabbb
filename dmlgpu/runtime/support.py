"""Answers to feature queries, found by compiling the smallest descriptions of operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dmlgpu.catalog import OperatorSchema, operator
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.minimal import minimal_examples
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common import coercion
from dmlgpu.common.errors import DmlError, InvalidArgument, InvalidDescription, OperatorNotImplemented, shown
from dmlgpu.runtime.features import (
    Answer,
    FeatureLevels,
    FeatureLevelsQuery,
    OperatorSupport,
    OperatorSupportQuery,
    Query,
    TensorDataTypeSupport,
    TensorDataTypeSupportQuery,
)

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
                for refused_by in map(refusal, minimal_examples(schema, types, level)):
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
        refusals = list(map(refusal, minimal_examples(schema, data_types, level)))
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
    """Return how little a refusal says: values of an attribute that do not take the types at all say the least."""
    return 0 if _is_the_adapters(refused) else 1 if isinstance(refused, OperatorNotImplemented) else 2


def _is_the_adapters(refused: DmlError | None) -> bool:
    """Return whether an operator is refused for what the adapter lacks."""
    return refused is not None and not isinstance(refused, InvalidDescription | OperatorNotImplemented)


def _data_type(what: str, value: object) -> DataType:
    if not isinstance(value, DataType) or value is DataType.UNKNOWN:
        raise InvalidArgument(f"{what} must be a DataType other than UNKNOWN, got {shown(value)}")
    return value
