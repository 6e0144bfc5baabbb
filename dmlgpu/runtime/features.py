"""Feature queries, answered by compiling minimal descriptions (IDMLDevice::CheckFeatureSupport)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dmlgpu.catalog import OperatorSchema, operator
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.minimal import minimal_examples
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common import coercion
from dmlgpu.common.errors import DmlError, InvalidArgument, InvalidDescription, OperatorNotImplemented, shown


@dataclass(frozen=True)
class TensorDataTypeSupportQuery:
    """Query whether a data type is supported (DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT)."""

    data_type: DataType


@dataclass(frozen=True)
class TensorDataTypeSupport:
    """Answer to TensorDataTypeSupportQuery.

    Attributes:
        is_supported: Whether every implemented operator that lists the type runs with it on the adapter, natively or
            emulated. False if no implemented operator lists it.
        refused: Operators that do not run with it, each with the reason.
    """

    is_supported: bool
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FeatureLevelsQuery:
    """Query the highest supported feature level of a list (DML_FEATURE_QUERY_FEATURE_LEVELS)."""

    requested_feature_levels: Sequence[FeatureLevel]


@dataclass(frozen=True)
class FeatureLevels:
    """Answer to FeatureLevelsQuery: the highest requested level that the device supports, or None."""

    max_supported_feature_level: FeatureLevel | None


@dataclass(frozen=True)
class OperatorSupportQuery:
    """Query whether an operator runs with some data types (not in DirectML).

    Attributes:
        operator: DirectML's name, such as ``GATHER_ND1``, or a complete description, for an exact answer.
        data_types: Types of tensor fields by their Python names, ``{"input_tensor": DataType.INT64}``. Omitted fields
            get a compatible type. An operator whose types depend on an attribute (REDUCE) counts as supported if it is
            for one value of the attribute.
    """

    operator: str | OperatorDesc
    data_types: Mapping[str, DataType] = field(default_factory=dict)


@dataclass(frozen=True)
class OperatorSupport:
    """Answer to OperatorSupportQuery: whether the operator runs, and the reason if not."""

    is_supported: bool
    reason: str = ""


Query = TensorDataTypeSupportQuery | FeatureLevelsQuery | OperatorSupportQuery
Answer = TensorDataTypeSupport | FeatureLevels | OperatorSupport


Rejection = Callable[[OperatorDesc], DmlError | None]
"""A function that returns the exception with which a device would reject a description, or None."""

_FEATURE_LEVELS = coercion.tuple_of(coercion.member_of(FeatureLevel), "feature levels")


def answer(query: Query, level: FeatureLevel, rejection: Rejection, implemented: frozenset[str]) -> Answer:
    """Answer a query.

    Args:
        query: One of the three queries.
        level: Feature level as which the device behaves.
        rejection: Checks a description on the device.
        implemented: Implemented operators.

    Raises:
        InvalidArgument: If the query has another type, names an unknown operator or field, or lists no levels.
    """
    if isinstance(query, FeatureLevelsQuery):
        return _feature_levels(query, level)
    if isinstance(query, TensorDataTypeSupportQuery):
        return _data_type_support(query, level, rejection, implemented)
    if isinstance(query, OperatorSupportQuery):
        return _operator_support(query, level, rejection)
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
    query: TensorDataTypeSupportQuery, level: FeatureLevel, rejection: Rejection, implemented: frozenset[str]
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
                for error in map(rejection, minimal_examples(schema, types, level)):
                    if _is_the_adapters(error):
                        refused.setdefault(name, str(error))
    return TensorDataTypeSupport(listed and not refused, refused)


def _operator_support(query: OperatorSupportQuery, level: FeatureLevel, rejection: Rejection) -> OperatorSupport:
    if isinstance(query.operator, OperatorDesc):
        error = rejection(query.operator)
    else:
        schema = operator(query.operator)
        data_types = _data_types(schema, query.data_types)
        if level < schema.feature_level:
            needed = f"needs feature level {schema.feature_level.label}, the device behaves as {level.label}"
            return OperatorSupport(False, f"{schema.name}: {needed}")
        rejections = list(map(rejection, minimal_examples(schema, data_types, level)))
        error = None if None in rejections else min(rejections, key=_distance)
    return OperatorSupport(error is None, "" if error is None else str(error))


def _data_types(schema: OperatorSchema, mapping: object) -> dict[str, DataType]:
    """Return the data types of an operator's tensors in a query."""
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


def _distance(error: DmlError | None) -> int:
    """Rank rejections: those by the adapter first, attribute values that exclude the types last."""
    return 0 if _is_the_adapters(error) else 1 if isinstance(error, OperatorNotImplemented) else 2


def _is_the_adapters(error: DmlError | None) -> bool:
    """Return whether the adapter is the reason of a rejection."""
    return error is not None and not isinstance(error, InvalidDescription | OperatorNotImplemented)


def _data_type(what: str, value: object) -> DataType:
    if not isinstance(value, DataType) or value is DataType.UNKNOWN:
        raise InvalidArgument(f"{what} must be a DataType other than UNKNOWN, got {shown(value)}")
    return value
