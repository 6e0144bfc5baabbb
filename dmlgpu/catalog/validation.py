"""Validation of operator descriptions by the catalog alone, for every operator.

Rules that a table cannot express (relations between sizes and attributes) are in ``dmlgpu.compiler.operators``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NoReturn

from dmlgpu.catalog import (
    FieldSchema,
    OperatorSchema,
    TensorSupport,
    Variant,
    catalog,
    enumerations,
    operator,
)
from dmlgpu.catalog.enums import BFLOAT16, DataType, FeatureLevel, TensorFlags
from dmlgpu.catalog.operator_desc import OperatorDesc, TensorSlot
from dmlgpu.catalog.overlap import Undecided, has_overlap
from dmlgpu.catalog.tensor_desc import MAX_ELEMENTS, TensorDesc, buffer_size, span
from dmlgpu.common.errors import DataTypeMismatch, InvalidDescription, choice, shown

_RANGES = {"UINT": (0, 2**32 - 1), "INT": (-(2**31), 2**31 - 1)}

_FLOAT_LIMITS = {
    # The smallest magnitude that rounds to infinity: the largest finite value plus half its last place.
    DataType.FLOAT16: (2 - 2**-11) * 2.0**15,
    BFLOAT16: (2 - 2**-8) * 2.0**127,
    DataType.FLOAT32: (2 - 2**-24) * 2.0**127,
    DataType.FLOAT64: math.inf,
}


def validate(desc: OperatorDesc, level: FeatureLevel = FeatureLevel.LEVEL_6_4) -> None:
    """Validate a description against the catalog at a feature level; one object once.

    Raises:
        InvalidDescription: If a rule is broken; the message has operator, field, allowed and actual value.
    """
    if level in desc._valid_levels:
        return
    schema = operator(desc.operator)
    check = _Checker(schema.name, level)
    if level < schema.feature_level:
        introduced = schema.feature_level.label
        check.fail("feature_level", f"must be at least {introduced}, which introduced the operator, got {level.label}")
    _check_tensors(check, schema, desc)
    _check_relations(check, schema, desc)
    _check_lengths(check, schema, desc)
    _check_attributes(check, schema, desc)
    _check_scalar_type(check, schema, desc)
    _check_activations(check, schema, desc)
    desc._valid_levels.add(level)


@functools.cache  # bounded by the catalog and the levels
def fusable_activations(host: str, level: FeatureLevel) -> tuple[str, ...]:
    """Return the operators that may serve as activation inside ``host`` at a feature level."""
    names = []
    for name, schema in catalog().items():
        fusion = schema.fusion
        if fusion and fusion.level <= level and (fusion.into is None or host in fusion.into):
            names.append(name)
    return tuple(names)


@dataclass(frozen=True)
class _Checker:
    """Context of a check: the operator that messages name, the level, and the path to a nested description."""

    operator: str
    level: FeatureLevel
    path: str = ""

    def fail(self, field: str, reason: str) -> NoReturn:
        raise InvalidDescription(self.operator, self.path + field, reason)

    def fail_type(self, mismatch: DataTypeMismatch) -> NoReturn:
        error = InvalidDescription(self.operator, f"{self.path}{mismatch.field}.data_type", mismatch.reason)
        error.mismatch = mismatch
        raise error

    @property
    def at_level(self) -> str:
        return f"at feature level {self.level.label}"


# -- tensors -------------------------------------------------------------------------------------------------


def _check_tensors(check: _Checker, schema: OperatorSchema, desc: OperatorDesc) -> None:
    variant = _variant(schema, desc)
    table = schema.support_at(check.level, variant)
    context = check.at_level
    if variant:
        context += f" for {getattr(desc, schema.field(variant.field).python_name).name}"
    supports = {schema.field(name).python_name: support for name, support in table.items()}
    for slot in (*desc.inputs, *desc.outputs):
        if slot.tensor is not None:
            _check_support(check, slot.label, slot.tensor, supports[slot.field], context)
            _check_layout(check, slot.label, slot.tensor)
            _check_bytes(check, slot.label, slot.tensor)
        elif not schema.field(slot.field).optional:
            check.fail(slot.label, "is required: only a fused activation leaves it out")
    for slot in desc.inputs:
        if slot.tensor is not None and slot.tensor.owned_by_dml and not schema.owned_inputs:
            check.fail(f"{slot.label}.flags", "must not have OWNED_BY_DML, which this operator does not support")
    for slot in desc.outputs:
        if slot.tensor is not None:
            _check_output(check, slot.label, slot.tensor)


def _variant(schema: OperatorSchema, desc: OperatorDesc) -> Variant | None:
    for variant in schema.variants:
        if getattr(desc, schema.field(variant.field).python_name).name in variant.members:
            return variant
    return None


def _check_support(check: _Checker, label: str, tensor: TensorDesc, support: TensorSupport, context: str) -> None:
    if _in_catalog(tensor.data_type) not in support.types:
        allowed = tuple(data_type.name for data_type in support.types)
        check.fail_type(DataTypeMismatch(label, allowed, tensor.data_type.name, context=f" {context}"))
    low, high = support.min_dimensions, support.max_dimensions
    if not low <= tensor.dimension_count <= high:
        expected = f"{low} to {high} dimensions" if low < high else f"{low} dimension{'s' * (low > 1)}"
        check.fail(f"{label}.sizes", f"must have {expected} {context}, got {tensor.dimension_count}")


def _in_catalog(data_type: DataType) -> DataType:
    """Return the data type whose entries of the catalog a data type has: BFLOAT16 is allowed where FLOAT16 is."""
    return DataType.FLOAT16 if data_type is BFLOAT16 else data_type


def _check_layout(check: _Checker, label: str, tensor: TensorDesc) -> None:
    for index, size in enumerate(tensor.sizes):
        if size < 1:
            check.fail(f"{label}.sizes[{index}]", f"must be at least 1, got {size}")
    if tensor.element_count > MAX_ELEMENTS:
        check.fail(f"{label}.sizes", f"must hold at most {MAX_ELEMENTS} elements, got {tensor.element_count}")
    if tensor.strides is None:
        return
    if len(tensor.strides) != len(tensor.sizes):
        count = f"one entry per dimension ({len(tensor.sizes)})"
        check.fail(f"{label}.strides", f"must have {count}, got {len(tensor.strides)}")
    for index, stride in enumerate(tensor.strides):
        _check_range(check, f"{label}.strides[{index}]", stride, "UINT")
    reach = span(tensor.sizes, tensor.strides)
    if reach > MAX_ELEMENTS:
        check.fail(f"{label}.strides", f"must span at most {MAX_ELEMENTS} elements, got {reach}")


def _check_bytes(check: _Checker, label: str, tensor: TensorDesc) -> None:
    smallest = buffer_size(tensor.data_type, tensor.sizes, tensor.strides)
    total, alignment = tensor.byte_size, tensor.guaranteed_base_offset_alignment
    if total < smallest:
        what = f"must be at least {smallest}, the bytes that its sizes and strides need"
        check.fail(f"{label}.total_tensor_size_in_bytes", f"{what}, got {total}")
    if total % 4:
        check.fail(f"{label}.total_tensor_size_in_bytes", f"must be a multiple of 4, got {total}")
    element = max(tensor.data_type.bits // 8, 1)
    if alignment and (alignment < element or alignment & (alignment - 1)):
        what = f"must be 0 or a power of two of at least {element}, the size of an element in bytes"
        check.fail(f"{label}.guaranteed_base_offset_alignment", f"{what}, got {alignment}")


def _check_output(check: _Checker, label: str, tensor: TensorDesc) -> None:
    if tensor.flags & TensorFlags.OWNED_BY_DML:
        check.fail(f"{label}.flags", "must not have OWNED_BY_DML, which is for inputs only")
    if tensor.strides is None:
        return
    rule = "must give each element of an output a place of its own"
    got = f"got {list(tensor.strides)} for sizes {list(tensor.sizes)}"
    try:
        overlaps = has_overlap(tensor.sizes, tensor.strides)
    except Undecided as error:
        check.fail(f"{label}.strides", f"{rule}, which is {error}, {got}")
    if overlaps:
        check.fail(f"{label}.strides", f"{rule}, {got}")


# -- relations and lengths -----------------------------------------------------------------------------------


def _check_relations(check: _Checker, schema: OperatorSchema, desc: OperatorDesc) -> None:
    for relation in schema.relations:
        names = [schema.field(name).python_name for name in relation.tensors]
        slots = [slot for slot in (*desc.inputs, *desc.outputs) if slot.field in names and slot.tensor is not None]
        slots.sort(key=lambda slot: names.index(slot.field))
        for other in slots[1:]:
            for what in relation.same:
                _check_same(check, what, slots[0], other)


def _check_same(check: _Checker, what: str, first: TensorSlot, other: TensorSlot) -> None:
    attribute = {"DataType": "data_type", "DimensionCount": "dimension_count", "Sizes": "sizes"}[what]
    expected, actual = getattr(first.tensor, attribute), getattr(other.tensor, attribute)
    if expected != actual:
        if what == "DataType":
            check.fail_type(DataTypeMismatch(other.label, (expected.name,), actual.name, equal_to=first.label))
        reason = f"must equal {first.label}.{attribute} ({_shown(expected)}), got {_shown(actual)}"
        check.fail(f"{other.label}.{attribute}", reason)


def _check_lengths(check: _Checker, schema: OperatorSchema, desc: OperatorDesc) -> None:
    for field in schema.python_fields:
        rule = schema.counts.get(field.count_field or "")
        if rule is None:
            continue
        length = len(getattr(desc, field.python_name))
        if rule.tensor is None:
            if length < rule.minimum:
                check.fail(field.python_name, f"must hold at least {rule.minimum} tensor, got {length}")
            continue
        tensor = schema.field(rule.tensor).python_name
        rank = getattr(desc, tensor).dimension_count
        if length != rank - rule.less:
            per = f"spatial dimension of {tensor} ({rank} - {rule.less})" if rule.less else f"dimension of {tensor}"
            check.fail(field.python_name, f"must have {rank - rule.less} entries, one per {per}, got {length}")


# -- attributes ----------------------------------------------------------------------------------------------


def _check_attributes(check: _Checker, schema: OperatorSchema, desc: OperatorDesc) -> None:
    for field in schema.python_fields:
        value = getattr(desc, field.python_name)
        if field.is_tensor or value is None:
            continue
        if field.is_array:
            for index, item in enumerate(value):
                _check_attribute(check, f"{field.python_name}[{index}]", field, item)
        else:
            _check_attribute(check, field.python_name, field, value)


def _check_attribute(check: _Checker, label: str, field: FieldSchema, value: Any) -> None:
    if field.type in _RANGES:
        _check_range(check, label, value, field.type)
    elif field.type == "FLOAT":
        _check_float(check, label, value, DataType.FLOAT32)
    elif field.type == "SCALE_BIAS":
        _check_float(check, f"{label}.scale", value.scale, DataType.FLOAT32)
        _check_float(check, f"{label}.bias", value.bias, DataType.FLOAT32)
    elif field.type == "SIZE_2D":
        _check_range(check, f"{label}.width", value.width, "UINT")
        _check_range(check, f"{label}.height", value.height, "UINT")
    elif field.type.startswith("DML_"):
        _check_member(check, label, field.type.removeprefix("DML_"), value)


def _check_range(check: _Checker, label: str, value: int, kind: str) -> None:
    low, high = _RANGES[kind]
    if not low <= value <= high:
        check.fail(label, f"must be between {low} and {high}, got {value}")


def _check_float(check: _Checker, label: str, value: float, data_type: DataType) -> None:
    limit = _FLOAT_LIMITS[data_type]
    if abs(value) >= limit and not math.isinf(value):
        check.fail(label, f"must be in the range of {data_type.name}, got {shown(value)}")


def _check_member(check: _Checker, label: str, enumeration: str, value: IntEnum) -> None:
    levels = enumerations()[enumeration].value_levels
    allowed = [name for name in type(value).__members__ if levels.get(name, check.level) <= check.level]
    if enumeration == "TENSOR_DATA_TYPE":
        allowed.remove("UNKNOWN")
    name = _in_catalog(value).name if isinstance(value, DataType) else value.name
    if name not in allowed:
        check.fail(label, f"must be {choice(allowed)} {check.at_level}, got {value.name}")


def _check_scalar_type(check: _Checker, schema: OperatorSchema, desc: OperatorDesc) -> None:
    """Check scalars with an explicit type: it must be the output's, and the values must fit it."""
    for field in schema.python_fields:
        if field.type == "DML_TENSOR_DATA_TYPE":
            data_type, output = getattr(desc, field.python_name), desc.outputs[0]
            assert output.tensor is not None
            if data_type is not output.tensor.data_type:
                reason = f"must equal {output.label}.data_type ({output.tensor.data_type.name}), got {data_type.name}"
                check.fail(field.python_name, reason)
            for scalar in schema.python_fields:
                if scalar.type == "SCALAR_UNION":
                    _check_scalar(check, scalar, getattr(desc, scalar.python_name), data_type)


def _check_scalar(check: _Checker, field: FieldSchema, value: int | float, data_type: DataType) -> None:
    label = field.python_name
    if data_type.is_float:
        _check_float(check, label, value, data_type)
        return
    low = -(2 ** (data_type.bits - 1)) if data_type.is_signed else 0
    high = low + 2**data_type.bits - 1
    if field.name == "ValueDelta":
        low = min(low, -high)  # a sequence of unsigned numbers may decrease
    if isinstance(value, float) or not low <= value <= high:
        check.fail(
            label, f"must be an integer between {low} and {high}, the range of {data_type.name}, got {shown(value)}"
        )


# -- activations ---------------------------------------------------------------------------------------------


def _check_activations(check: _Checker, schema: OperatorSchema, desc: OperatorDesc) -> None:
    for field in schema.python_fields:
        if field.type != "OPERATOR_DESC":
            continue
        value = getattr(desc, field.python_name)
        if isinstance(value, OperatorDesc):
            _check_activation(check, field.python_name, value)
        for index, item in enumerate(value if isinstance(value, tuple) else ()):
            _check_activation(check, f"{field.python_name}[{index}]", item)


def _check_activation(check: _Checker, label: str, inner: OperatorDesc) -> None:
    allowed = fusable_activations(check.operator, check.level)
    if inner.operator not in allowed:
        check.fail(label, f"must be {choice(allowed)} {check.at_level}, got {inner.operator}")
    for slot in (*inner.inputs, *inner.outputs):
        if slot.tensor is not None:
            check.fail(
                f"{label}.{slot.label}", "must be None, because a fused activation works on the operator's result"
            )
    nested = _Checker(check.operator, check.level, f"{label}.")
    _check_attributes(nested, operator(inner.operator), inner)


# -- words ---------------------------------------------------------------------------------------------------


def _shown(value: object) -> str:
    if isinstance(value, IntEnum):
        return value.name
    return str(list(value)) if isinstance(value, Sequence) else str(value)
