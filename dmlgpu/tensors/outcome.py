"""What an operator's outputs are apart from their numbers: truth values or not, and empty where the operands are."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.tensors.layout import Sizes, broadcast_sizes
from dmlgpu.tensors.preparation import data_type_for, short, signature
from dmlgpu.tensors.strided import Strided
from dmlgpu.tensors.types import as_data_type

_TELLING = ("ELEMENT_WISE_LOGICAL_", "ELEMENT_WISE_IS_")
"""Operators that tell whether something holds."""

_MOVING = frozenset(
    {
        "ELEMENT_WISE_BIT_AND",
        "ELEMENT_WISE_BIT_OR",
        "ELEMENT_WISE_BIT_XOR",
        "ELEMENT_WISE_IDENTITY",
        "ELEMENT_WISE_IF",
        "ELEMENT_WISE_MAX",
        "ELEMENT_WISE_MIN",
        "GATHER",
        "GATHER_ELEMENTS",
        "GATHER_ND",
        "GATHER_ND1",
        "JOIN",
        "REVERSE_SUBSEQUENCES",
        "SCATTER",
        "SCATTER_ELEMENTS",
        "SCATTER_ND",
        "SLICE",
        "SLICE1",
        "SPLIT",
        "TILE",
        "TOP_K",
        "TOP_K1",
    }
)
"""Operators whose outputs hold nothing but elements of their inputs, or what of truth values are truth values."""

_DATA = ("input_tensor", "input_tensors", "a_tensor", "b_tensor", "updates_tensor")


class EmptyOperand(InvalidArgument):
    """An operand has no elements, which no operator of DirectML's takes."""


@functools.cache  # bounded by the catalog
def _nature(label: str) -> tuple[bool, bool]:
    """Return whether an operator tells whether something holds, and whether it only moves elements."""
    return label.startswith(_TELLING), label in _MOVING


def is_telling(kind: type[OperatorDesc], values: Mapping[str, Any]) -> bool:
    """Return whether an operator's first output is one of truth values."""
    tells, moves = _nature(kind.operator)
    if not moves:
        return tells
    given = [values[field] for field in _DATA if values.get(field) is not None]
    data = [one for part in given for one in (part if isinstance(part, list | tuple) else (part,))]
    return all(_is_truth(one) for one in data)


def _is_truth(value: Any) -> bool:
    if isinstance(value, Strided):
        return value.is_boolean
    return value.dtype == bool if isinstance(value, np.ndarray) else isinstance(value, bool | np.bool_)


def of_nothing(
    caller: str, kind: type[OperatorDesc], values: Mapping[str, Any], types: Mapping[str, Any]
) -> tuple[DataType, Sizes]:
    """Return type and sizes of what an operator that works element by element makes of operands without elements.

    Raises:
        InvalidArgument: another operator, or sizes that do not broadcast.
    """
    fields = [field for field in kind.input_fields if values.get(field) is not None]
    known = signature(kind.operator)
    if not known.keeps_rank and kind.operator != "CAST":
        raise InvalidArgument(
            f"{caller}: operands must have at least one element each for {kind.operator}; dmlgpu.array has functions "
            "for arrays without elements"
        )
    given = [(short(field), np.shape(values[field])) for field in fields]
    sizes = broadcast_sizes(caller, given)
    wanted = types.get("output_tensor")
    if wanted is not None:
        return as_data_type(caller, "output_type", wanted), sizes
    if kind.operator.startswith(_TELLING):
        return DataType.UINT8, sizes
    present = {field: values[field].data_type for field in fields if isinstance(values[field], Strided)}
    last = fields[-1]
    return present.get(last) or data_type_for(kind, last, present) or DataType.FLOAT32, sizes
