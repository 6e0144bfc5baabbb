"""Feature queries and their answers (DirectML: IDMLDevice::CheckFeatureSupport)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc


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
