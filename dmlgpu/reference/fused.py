"""Fused activations."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.reference.registry import evaluate

Array = NDArray[Any]


def activated(values: Array, activation: OperatorDesc | None, output: TensorDesc) -> Array:
    """Apply a fused activation to an operator's rounded result, as that of two operators in turn."""
    if activation is None:
        return values
    (result,) = evaluate(activation.replace(input_tensor=output, output_tensor=output), [values])
    return result
