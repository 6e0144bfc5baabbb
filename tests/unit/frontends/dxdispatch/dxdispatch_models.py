"""Invalid DxDispatch models for tests, and the errors of loading them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import ModelError
from dmlgpu.frontends import dxdispatch

MODELS = Path(__file__).parents[3] / "data" / "dxdispatch"


def tensor(*sizes: int, data_type: str = "FLOAT32", **more: Any) -> dict[str, Any]:
    return {"DataType": data_type, "Sizes": list(sizes), **more}


def values(*elements: Any, data_type: str = "FLOAT32", **more: Any) -> dict[str, Any]:
    return {"initialValuesDataType": data_type, "initialValues": list(elements), **more}


def subtraction() -> dict[str, Any]:
    """Return a small valid model; tests break a single entry of it."""
    return {
        "resources": {"A": values(1, 2, 3), "B": values(5, 8, -5), "my out": values(0, 0, 0)},
        "dispatchables": {
            "subtract": {
                "type": "ELEMENT_WISE_SUBTRACT",
                "desc": {"ATensor": tensor(3), "BTensor": tensor(3), "OutputTensor": tensor(3)},
            }
        },
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "subtract",
                "bindings": {"ATensor": "A", "BTensor": "B", "OutputTensor": "my out"},
            },
            {"type": "print", "resource": "my out"},
            {"type": "writeFile", "resource": "my out", "targetPath": "out.npy"},
        ],
    }


def load_resource(**resource: Any) -> Any:
    model = {"resources": {"X": resource}, "dispatchables": {}, "commands": []}
    return dxdispatch.load(model).resources["X"]


def load_operator(**dispatchable: Any) -> OperatorDesc:
    """Return the description of a dispatchable without owned tensors."""
    return (
        dxdispatch.load({"resources": {}, "dispatchables": {"x": dispatchable}, "commands": []}).dispatchables["x"].desc
    )


def complaint(model: Any) -> str:
    with pytest.raises(ModelError) as caught:
        dxdispatch.load(model)
    assert str(caught.value).startswith(caught.value.path)
    return str(caught.value)


def broken(change: Callable[[dict[str, Any]], object]) -> str:
    """Return the error of the small model after a change."""
    model = copy.deepcopy(subtraction())
    change(model)
    return complaint(model)
