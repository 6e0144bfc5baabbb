"""Preparation of calls: the description of an operator from a caller's arguments, and the metadata of its outputs."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlgpu.catalog import FieldKind, FieldSchema, class_name, descs, enums, operator
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias, Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common import coercion
from dmlgpu.common.errors import DataTypeMismatch, InvalidArgument, InvalidDescription, shown
from dmlgpu.compiler.operators.inference import complete
from dmlgpu.tensors.layout import Sizes, broadcast_sizes, broadcast_strides, checked_axes, checked_axis
from dmlgpu.tensors.strided import TensorBase
from dmlgpu.tensors.types import as_data_type, is_number

_PAIRS: Mapping[str, type[Any]] = {"SCALE_BIAS": ScaleBias, "SIZE_2D": Size2D}
"""Attributes that accept pairs of numbers."""


@dataclass(frozen=True)
class Signature:
    """Dtypes and shapes shared by the inputs of an operator.

    Attributes:
        typed: by input, the other inputs of its type.
        sized: groups of single inputs that have the same sizes, which broadcast.
        arrays: inputs that hold any number of tensors.
        attributes: the attributes by name.
        keeps_rank: True if the first output has the first input's sizes.
    """

    typed: Mapping[str, tuple[str, ...]]
    sized: tuple[tuple[str, ...], ...]
    arrays: frozenset[str]
    attributes: Mapping[str, FieldSchema]
    keeps_rank: bool


@functools.cache  # bounded by the catalog
def signature(label: str) -> Signature:
    """Return the signature of an operator, by name."""
    schema = operator(label)
    names = {field.name: field.python_name for field in schema.tensor_fields if field.kind is FieldKind.INPUT}
    single = {field.python_name for field in schema.tensor_fields if not field.is_array}
    typed: dict[str, list[str]] = {name: [] for name in names.values()}
    sized, keeps_rank = [], False
    outputs = {field.name for field in schema.tensor_fields if field.kind is FieldKind.OUTPUT}
    for relation in schema.relations:
        inputs = [names[name] for name in relation.tensors if name in names]
        if "DataType" in relation.same:
            for name in inputs:
                typed[name] += [other for other in inputs if other != name]
        if "Sizes" in relation.same:
            sized.append(tuple(name for name in inputs if name in single))
            keeps_rank = keeps_rank or bool(inputs and outputs & set(relation.tensors))
    attributes = {field.python_name: field for field in schema.python_fields if field.kind is FieldKind.ATTRIBUTE}
    return Signature(
        {name: tuple(others) for name, others in typed.items()},
        tuple(group for group in sized if len(group) > 1),
        frozenset(names.values()) - single,
        attributes,
        keeps_rank,
    )


def short(field: str) -> str:
    """Return a field as functions name it: ``a`` for ``a_tensor``."""
    return field.replace("_tensors", "s").replace("_tensor", "")


def prepare(
    caller: str,
    kind: type[OperatorDesc],
    values: Mapping[str, Any],
    *,
    types: Mapping[str, Any],
    sizes: Mapping[str, Any],
    absent: Sequence[str],
    repeated: Sequence[str] | None = None,
) -> OperatorDesc:
    """Return the description of a call.

    Args:
        caller: Name of the called function, for messages.
        kind: The operator.
        values: Descriptions of inputs in memory, and attributes as given by the caller.
        types, sizes, absent: As for ``operators.inference.complete``; types may be NumPy's or names.
        repeated: Inputs that are broadcast to the sizes of the others; None broadcasts all.

    Raises:
        InvalidArgument: If an attribute is invalid, or sizes do not broadcast.
        InvalidDescription: As ``complete``.
    """
    known = signature(kind.operator)
    completed = dict(values)
    for group in known.sized:
        _broadcast(caller, completed, group, repeated)
    rank = _rank(kind, completed)
    for name, field in known.attributes.items():
        if completed.get(name) is not None:
            completed[name] = _attribute(caller, field, completed[name], rank)
    data_types = {
        name: as_data_type(caller, "output_type", value) for name, value in types.items() if value is not None
    }
    output_sizes = {name: _sequences(value) for name, value in sizes.items() if value is not None}
    return complete(kind, completed, types=data_types, sizes=output_sizes, absent=absent)


def _broadcast(caller: str, values: dict[str, Any], group: tuple[str, ...], repeated: Sequence[str] | None) -> None:
    """Broadcast inputs to their common shape."""
    present = [(name, values[name]) for name in group if values.get(name) is not None]
    if _are_equal([desc.sizes for _, desc in present]):
        return
    if repeated is not None and not _are_equal([desc.sizes for name, desc in present if name not in repeated]):
        return  # the operator's rules reject them
    shape = broadcast_sizes(caller, [(short(name), desc.sizes) for name, desc in present])
    for name, desc in present:
        strides = broadcast_strides(desc.sizes, desc.element_strides, shape)
        if desc.sizes != shape:
            values[name] = dataclasses.replace(desc, sizes=shape, strides=strides)


def _are_equal(sizes: Sequence[Sizes]) -> bool:
    # Not by a set: hashes of symbolic sizes would be guards, and so would comparisons of shapes of other ranks.
    return all(len(each) == len(sizes[0]) and each == sizes[0] for each in sizes)


def _rank(kind: type[OperatorDesc], values: Mapping[str, Any]) -> int | None:
    for name in kind.input_fields:
        value = values.get(name)
        first = value[0] if isinstance(value, tuple) and value else value
        if isinstance(first, TensorDesc):
            return first.dimension_count
    return None


def _attribute(caller: str, field: FieldSchema, value: Any, rank: int | None) -> Any:
    """Return an attribute as descriptions take it."""
    name = field.python_name
    if name == "axis" and rank is not None:
        return checked_axis(caller, name, value, rank)
    if name == "axes" and rank is not None:
        return checked_axes(caller, name, value, rank)
    if field.type == "DML_TENSOR_DATA_TYPE":
        return as_data_type(caller, name, value)
    if field.type == "OPERATOR_DESC":
        several = field.is_array and isinstance(value, list | tuple)
        return tuple(activation(caller, name, part) for part in value) if several else activation(caller, name, value)
    if field.type.startswith("DML_"):
        return member(caller, name, getattr(enums, class_name(field.type.removeprefix("DML_"))), value)
    pair = _PAIRS.get(field.type)
    return pair(*value) if pair is not None and isinstance(value, tuple) and len(value) == 2 else value


def member(caller: str, name: str, cls: type[Any], text: Any) -> Any:
    """Return the member of an enumeration that a text names, in any case, in full or by its beginning; or a member.

    Raises:
        InvalidArgument: no member, or several.
    """
    if not isinstance(text, str):
        return coercion.argument(caller, name, coercion.member_of(cls), text)
    key = text.strip().upper().replace(" ", "_").replace("-", "_")
    result = cls.__members__.get(key)
    begins = [entry for label, entry in cls.__members__.items() if key and label.startswith(key)]
    if result is None and len(begins) == 1:
        (result,) = begins
    if result is None:
        members = ", ".join(label.lower() for label in cls.__members__)
        raise InvalidArgument(f"{caller}: {name} must be one of {members}, got {shown(text)}")
    return result


def activation(caller: str, name: str, value: Any) -> OperatorDesc:
    """Return the description of a fused activation: itself, or by name with default attributes.

    Raises:
        InvalidArgument: no activation of that name, or one whose attributes must be given.
    """
    if not isinstance(value, str):
        return coercion.argument(caller, name, coercion.instance_of(OperatorDesc, "an OperatorDesc or its name"), value)
    try:
        return descs.by_name(f"ACTIVATION_{value.strip().upper()}")()
    except InvalidArgument:
        raise InvalidArgument(
            f"{caller}: {name} must be an activation's description, or the name of one without attributes "
            f"(relu, sigmoid, tanh, ...), got {shown(value)}"
        ) from None


def _sequences(sizes: Any) -> Any:
    """Return sizes with Python's integers, arrays of them included."""
    if coercion.as_index(sizes) is not None:
        return (coercion.as_index(sizes),)
    if hasattr(sizes, "tolist"):
        sizes = sizes.tolist()
    if isinstance(sizes, list | tuple):
        return tuple(
            tuple(part)
            if isinstance(part, list | tuple)
            else part
            if coercion.as_index(part) is None
            else coercion.as_index(part)
            for part in sizes
        )
    return sizes


_DTYPE = re.compile(r"must be ((?:FLOAT|U?INT)\d+)\b")


def in_words_of(
    caller: str, kind: type[OperatorDesc], error: InvalidDescription, values: Mapping[str, Any]
) -> InvalidArgument:
    """Rephrase an error of a description in terms of the function that was called.

    Args:
        caller: the function.
        kind: the operator.
        error: error of the description.
        values: the operands by field.
    """
    is_operator = caller == kind.operator.lower()
    field, _, _ = error.field.partition(".")
    name, _, place = field.partition("[")
    operand = values.get(name)
    if place and isinstance(operand, list | tuple):
        operand = operand[int(place.rstrip("]"))]
    if error.mismatch is None or operand is None:
        where = "" if is_operator else f" (in {kind.operator})"
        dtype = _DTYPE.match(error.reason) if error.field.endswith(".data_type") and operand is not None else None
        if dtype is not None:
            where += f"; convert it with {short(field)}.astype('{dtype[1].lower()}')"
        text = f"{caller}: {short(error.field)} {short(error.reason)}{where}"
    else:
        where = "" if is_operator else f" in {kind.operator}"
        text = f"{caller}: {short(field)} {_type_mismatch(short(field), error.mismatch, operand, where)}"
    return InvalidArgument(text).about(operand if isinstance(operand, TensorBase) else None, short(field))


def _type_mismatch(name: str, mismatch: DataTypeMismatch, operand: Any, where: str) -> str:
    """Return the end of a message about a dtype, which suggests a conversion."""
    names = [allowed.lower() for allowed in mismatch.allowed]
    listed = " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    context = mismatch.context.replace(f" at feature level {FeatureLevel.LEVEL_6_4.label}", "")
    actual = "bool" if _is_truth(operand) else mismatch.actual.lower()
    target = mismatch.target.lower()
    cure = f"convert it with {name}.astype('{target}')"
    if mismatch.equal_to and "float" in actual and "int" in target:
        cure = f"convert the integers with astype('{actual}')"
    expected = f"{listed} like the other operands" if mismatch.equal_to else f"{listed}{where}{context}"
    return f"must be {expected}, got {actual}; {cure}"


def hashable(value: Any) -> Any:
    """Return an attribute as part of a key: equal only for values that compute the same.

    Raises:
        TypeError: If the value cannot be part of a key.
    """
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, list | tuple):
        return (type(value).__name__, *map(hashable, value))
    if isinstance(value, ScaleBias):
        return ScaleBias, value.scale.hex(), value.bias.hex()
    if hasattr(value, "tolist"):
        return hashable(value.tolist())
    hash(value)
    return (type(value), value) if is_number(value) else value


def data_type_for(kind: type[OperatorDesc], field: str, present: Mapping[str, DataType]) -> DataType | None:
    """Return the dtype of a number as an input: that of another input that must match, else of any other input."""
    for other in signature(kind.operator).typed.get(field, ()):
        if other in present:
            return present[other]
    return next(iter(present.values()), None)


_TELLING = ("ELEMENT_WISE_LOGICAL_", "ELEMENT_WISE_IS_")
"""Prefixes of operators whose result is a mask."""

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
"""Operators that only move elements: their outputs are booleans if their inputs are."""

_DATA = ("input_tensor", "input_tensors", "a_tensor", "b_tensor", "updates_tensor")


class EmptyOperand(InvalidArgument):
    """An operand has no elements, which no operator of DirectML supports."""


def returns_bool(kind: type[OperatorDesc], values: Mapping[str, Any]) -> bool:
    """Return whether an operator's first output is a bool tensor."""
    if kind.operator not in _MOVING:
        return kind.operator.startswith(_TELLING)
    operands = [values[field] for field in _DATA if values.get(field) is not None]
    data = [value for part in operands for value in (part if isinstance(part, list | tuple) else (part,))]
    return all(_is_truth(value) for value in data)


def _is_truth(value: Any) -> bool:
    if isinstance(value, TensorBase):
        return value.is_boolean
    return value.dtype == bool if isinstance(value, np.ndarray) else isinstance(value, bool | np.bool_)


def empty_result(
    caller: str, kind: type[OperatorDesc], values: Mapping[str, Any], types: Mapping[str, Any]
) -> tuple[DataType, Sizes]:
    """Return dtype and shape of an elementwise result for operands without elements.

    Raises:
        InvalidArgument: If it is another operator, or sizes do not broadcast.
    """
    fields = [field for field in kind.input_fields if values.get(field) is not None]
    known = signature(kind.operator)
    if not known.keeps_rank and kind.operator != "CAST":
        raise InvalidArgument(
            f"{caller}: operands must have at least one element each for {kind.operator}; dmlgpu.array has functions "
            "for arrays without elements"
        )
    shapes = [(short(field), np.shape(values[field])) for field in fields]
    sizes = broadcast_sizes(caller, shapes)
    requested = types.get("output_tensor")
    if requested is not None:
        return as_data_type(caller, "output_type", requested), sizes
    if kind.operator.startswith(_TELLING):
        return DataType.UINT8, sizes
    present = {field: values[field].data_type for field in fields if isinstance(values[field], TensorBase)}
    last = fields[-1]
    return present.get(last) or data_type_for(kind, last, present) or DataType.FLOAT32, sizes
