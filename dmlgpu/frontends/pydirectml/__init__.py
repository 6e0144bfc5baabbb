"""Microsoft's PyDirectML by dmlgpu: a module with its names, which runs its scripts on any system.

    python -m dmlgpu.frontends.pydirectml [-a ADAPTER] SCRIPT [ARGS]

runs a script that says ``import pydirectml as dml``; in your own programs, import this package instead:

    from dmlgpu.frontends import pydirectml as dml

The original is archived (github.com/microsoft/DirectML, folder Python) and needs Windows. docs/pydirectml.md says what
differs.
"""

from __future__ import annotations

from typing import Any

from dmlgpu.frontends.pydirectml.device import Binding, Device, GraphBuilder, Model
from dmlgpu.frontends.pydirectml.enums import (
    EXPORTED,
    ConvolutionDirection,
    ConvolutionMode,
    ExecutionFlags,
    InterpolationMode,
    MatrixTransform,
    OperatorType,
    OutputOptions,
    PaddingMode,
    RecurrentNetworkDirection,
    TensorDataType,
    TensorFlags,
)
from dmlgpu.frontends.pydirectml.expression import Expression, FusedActivation, GRUOutputs, MaxPoolingOutputs, Size2D
from dmlgpu.frontends.pydirectml.functions import (
    activation_identity,
    activation_linear,
    activation_relu,
    activation_sigmoid,
    activation_soft_max,
    activation_tanh,
    add,
    average_pooling,
    batch_normalization,
    convolution,
    divide,
    gather,
    gemm,
    gru,
    input_tensor,
    join,
    local_response_normalization,
    max_pooling,
    mean_variance_normalization,
    multiply,
    padding,
    reinterpret,
    slice,
    subtract,
    up_sample_2d,
    value_scale_2d,
)
from dmlgpu.frontends.pydirectml.tensors import Dimensions, TensorData, TensorDesc, TensorPolicy

__all__ = [  # noqa: PLE0604 - the names of members, too
    "Binding",
    "ConvolutionDirection",
    "ConvolutionMode",
    "Device",
    "Dimensions",
    "ExecutionFlags",
    "Expression",
    "FusedActivation",
    "GRUOutputs",
    "GraphBuilder",
    "InterpolationMode",
    "MatrixTransform",
    "MaxPoolingOutputs",
    "Model",
    "OperatorType",
    "OutputOptions",
    "PaddingMode",
    "RecurrentNetworkDirection",
    "Size2D",
    "TensorData",
    "TensorDataType",
    "TensorDesc",
    "TensorFlags",
    "TensorPolicy",
    "activation_identity",
    "activation_linear",
    "activation_relu",
    "activation_sigmoid",
    "activation_soft_max",
    "activation_tanh",
    "add",
    "average_pooling",
    "batch_normalization",
    "convolution",
    "divide",
    "gather",
    "gemm",
    "gru",
    "input_tensor",
    "join",
    "local_response_normalization",
    "max_pooling",
    "mean_variance_normalization",
    "multiply",
    "padding",
    "reinterpret",
    "slice",
    "subtract",
    "up_sample_2d",
    "value_scale_2d",
    *EXPORTED,
]


def __getattr__(name: str) -> Any:
    """Return the member of an enumeration that the module exports: ``FLOAT32``, ``OWNED_BY_DML``."""
    if name in EXPORTED:
        return EXPORTED[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
