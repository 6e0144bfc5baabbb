"""Answers to feature queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dmlgpu.device.features import (
    Answer,
    FeatureLevels,
    FeatureLevelsQuery,
    OperatorSupport,
    OperatorSupportQuery,
    Query,
    TensorDataTypeSupport,
    TensorDataTypeSupportQuery,
)
from dmlgpu.device.probe import probes
from dmlgpu.enums import DataType, FeatureLevel
from dmlgpu.errors import InvalidArgument
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.schema import OperatorSchema, operator

Refusal = Callable[[OperatorDesc], str | None]
"""Why a device would refuse a description, or None."""


def answer(query: Query, level: FeatureLevel, refusal: Refusal, implemented: frozenset[str]) -> Answer:
    """The answer to a query.

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
        "check_feature_support: takes a FeatureLevelsQuery, a TensorDataTypeSupportQuery or an OperatorSupportQuery, "
        f"got {type(query).__name__}"
    )


def _feature_levels(query: FeatureLevelsQuery, level: FeatureLevel) -> FeatureLevels:
    try:
        requested = [FeatureLevel(one) for one in query.requested_feature_levels]
    except ValueError as error:
        raise InvalidArgument(
            f"FeatureLevelsQuery: requested_feature_levels must hold FeatureLevels: {error}"
        ) from None
    if not requested:
        raise InvalidArgument("FeatureLevelsQuery: requested_feature_levels must not be empty")
    return FeatureLevels(max((one for one in requested if one <= level), default=None))


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
                reason = _refusal_by_types(schema, {schema.field(tensor).python_name: data_type}, level, refusal)
                if reason is not None:
                    refused.setdefault(name, reason)
    return TensorDataTypeSupport(listed and not refused, refused)


def _operator_support(query: OperatorSupportQuery, level: FeatureLevel, refusal: Refusal) -> OperatorSupport:
    if isinstance(query.operator, OperatorDesc):
        reason = refusal(query.operator)
    else:
        schema = operator(query.operator)
        known = {field.python_name for field in schema.tensor_fields}
        for name, data_type in query.data_types.items():
            if name not in known:
                tensors = ", ".join(sorted(known))
                raise InvalidArgument(f"OperatorSupportQuery: {schema.name} has no tensor {name!r}, only {tensors}")
            _data_type(f"OperatorSupportQuery: data_types[{name!r}]", data_type)
        if level < schema.feature_level:
            return OperatorSupport(False, _too_late(schema, level))
        reason = _refusal_by_types(schema, query.data_types, level, refusal)
    return OperatorSupport(reason is None, reason or "")


def _refusal_by_types(
    schema: OperatorSchema, types: Mapping[str, DataType], level: FeatureLevel, refusal: Refusal
) -> str | None:
    """Why every probe with these types is refused (the first reason), or None when one is accepted."""
    first = None
    for desc in probes(schema, types, level):
        reason = refusal(desc)
        if reason is None:
            return None
        first = first or reason
    return first


def _too_late(schema: OperatorSchema, level: FeatureLevel) -> str:
    return f"{schema.name}: needs feature level {schema.feature_level.label}, the device behaves as {level.label}"


def _data_type(what: str, value: object) -> DataType:
    if not isinstance(value, DataType) or value is DataType.UNKNOWN:
        raise InvalidArgument(f"{what} must be a DataType other than UNKNOWN, got {value!r}")
    return value
