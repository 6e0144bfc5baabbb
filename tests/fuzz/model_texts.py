"""DxDispatch models of operators' cases."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from dmlgpu.catalog.enums import TensorFlags
from dmlgpu.catalog.model import to_directml
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias, Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc

Json = dict[str, Any]


def model_of(desc: OperatorDesc) -> Json:
    """A model that runs an operator once, on resources that hold small numbers, and prints the outputs."""
    resources: Json = {}
    bindings: Json = {}
    owned: Json = {}
    for slots in (desc.inputs, desc.outputs):
        for slot in slots:
            if slot.tensor is None:
                continue
            name = slot.label
            resources[name] = _resource(slot.tensor)
            names = owned if slot.tensor.owned_by_dml else bindings
            key = to_directml(slot.field)
            if slot.position is None:
                names[key] = name
            else:
                names.setdefault(key, []).append(name)
    outputs = [slot.label for slot in desc.outputs if slot.tensor is not None]
    operator = {"type": desc.operator, "desc": _fields(desc), **({"bindings": owned} if owned else {})}
    commands = [{"type": "dispatch", "dispatchable": "operator", "bindings": bindings}]
    commands += [{"type": "print", "resource": name} for name in outputs]
    commands += [{"type": "writeFile", "resource": name, "targetPath": f"{name}.npy"} for name in outputs]
    return {"resources": resources, "dispatchables": {"operator": operator}, "commands": commands}


def _resource(tensor: TensorDesc) -> Json:
    count = max(1, tensor.byte_size * 8 // tensor.data_type.bits)
    values = {"valueCount": count, "value": 1}
    return {"initialValuesDataType": tensor.data_type.name, "initialValues": values, "sizeInBytes": tensor.byte_size}


def _fields(desc: OperatorDesc) -> Json:
    return {name: _value(value) for name, value in desc.directml_fields.items() if value is not None}


def _value(value: Any) -> Any:
    for kind, spell in _SPELLINGS:
        if isinstance(value, kind):
            return spell(value)
    return value


def _tensor(value: TensorDesc) -> Json:
    flags = "OWNED_BY_DML" if value.flags & TensorFlags.OWNED_BY_DML else "NONE"
    strides = {} if value.strides is None else {"Strides": list(value.strides)}
    kind = {"DataType": value.data_type.name, "Sizes": list(value.sizes), "Flags": flags, **strides}
    return {**kind, "TotalTensorSizeInBytes": value.total_tensor_size_in_bytes}


_SPELLINGS: tuple[tuple[type[Any], Callable[[Any], Any]], ...] = (
    (TensorDesc, _tensor),
    (OperatorDesc, lambda value: {"type": value.operator, "desc": _fields(value)}),
    (ScaleBias, lambda value: {"Scale": _value(value.scale), "Bias": _value(value.bias)}),
    (Size2D, lambda value: {"Width": value.width, "Height": value.height}),
    (tuple, lambda value: [_value(item) for item in value]),
    (IntEnum, lambda value: value.name),
    (float, lambda value: value if math.isfinite(value) else str(value)),
)
"""How values of a kind are spelled; the others are JSON already."""
