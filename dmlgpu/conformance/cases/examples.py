"""The examples that DirectML's pages print, as the catalog has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlgpu.catalog import enums
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.loader import OperatorSchema
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.case import Array, Arrays


def documented_examples(schema: OperatorSchema) -> dict[int, Any]:
    """The examples by number, from 1, that show the operator at all: BIT_XOR's page prints one of another operator."""
    required = {field.name for field in schema.tensor_fields if not field.optional}
    numbered = enumerate(schema.examples, start=1)
    return {number: example for number, example in numbered if required <= _entries(example).keys()}


def read_example(
    desc_class: type[OperatorDesc], schema: OperatorSchema, example: Any
) -> tuple[OperatorDesc, Arrays, tuple[Array, ...]]:
    """Description, inputs and outputs of an example; anything for absent outputs."""
    entries = _entries(example)
    attributes = entries.pop("attributes", example["attributes"])
    tensors = {field: _tensors(entry) for field, entry in entries.items()}
    fields: dict[str, Any] = {}
    for field in schema.python_fields:
        if field.name in tensors:
            fields[field.python_name] = tensors[field.name][0]
        elif field.name in attributes:
            fields[field.python_name] = _attribute(field.type, attributes[field.name])
    desc = desc_class(**fields)
    arrays = {
        (field.python_name, position): array
        for field in schema.tensor_fields
        if field.name in tensors
        for position, array in tensors[field.name][1].items()
    }
    inputs = tuple(arrays.get((slot.field, slot.position)) for slot in desc.inputs)
    outputs = tuple(arrays.get((slot.field, slot.position), np.empty(0)) for slot in desc.outputs)
    return desc, inputs, outputs


def _entries(example: Mapping[str, Any]) -> dict[str, Any]:
    """What an example gives, corrected where the page is wrong."""
    return {**example["tensors"], **example.get("corrected", {})}


def _tensors(entry: Any) -> tuple[Any, dict[int | None, Array]]:
    """The value of a tensor field as the catalog prints it, and the contents by position in the array, if it is one."""
    if isinstance(entry, list):
        tensors = [_tensor(one) for one in entry]
        return tuple(desc for desc, _ in tensors), {position: array for position, (_, array) in enumerate(tensors)}
    desc, array = _tensor(entry)
    return desc, {None: array}


def _tensor(entry: Any) -> tuple[TensorDesc, Array]:
    """Description and contents of a tensor as the catalog prints it."""
    data_type = DataType[entry["type"]]
    strides = entry.get("strides")
    desc = TensorDesc(data_type, tuple(entry["sizes"]), None if strides is None else tuple(strides))
    return desc, np.array(entry["values"]).astype(data_type.numpy).reshape(desc.sizes)


def _attribute(kind: str, value: Any) -> Any:
    """An attribute as the catalog prints it; enumeration members are spelled in full, numbers not used are left out."""
    if value is None:
        return 0.0
    if not kind.startswith("DML_"):
        return value
    if kind == "DML_TENSOR_DATA_TYPE":
        return DataType[value.removeprefix("DML_TENSOR_DATA_TYPE_")]
    name = "".join(word.capitalize() for word in kind.removeprefix("DML_").split("_"))
    return getattr(enums, name)[value.removeprefix(f"{kind}_")]
