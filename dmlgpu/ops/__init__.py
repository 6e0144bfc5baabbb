"""Operators that run eagerly on tensors or arrays, under the names of NumPy and PyTorch.

    from dmlgpu import Tensor, ops

    ops.softmax([1.0, 2.0, 3.0])  # computed on the default device, returned as an array
    ops.softmax(Tensor([1.0, 2.0, 3.0]))  # computed where the tensor is, returned as a Tensor

Operands may be Tensors, NumPy arrays, lists and arrays of other libraries that NumPy can read; all but one may also be
numbers. If an operand is a Tensor, the others are copied to its device and the result is a Tensor. If none is, they are
copied to ``device`` and the result is a NumPy array. float64 is computed in float32, with a warning; see
``dmlgpu.set_float64``. PyTorch's ``dim`` and ``keepdim`` are accepted for ``axis`` and ``keepdims``.

In a function that ``dmlgpu.compile`` traces, and on tensors of a ``dmlgpu.Graph``, a function adds a node to the graph.
``ops.directml`` has a function for each of DirectML's 177 operators, under DirectML's names. ``ops.linalg`` and
``ops.fft`` have the functions of ``numpy.linalg`` and ``numpy.fft``; they are imported on first use.

Examples of the functions assume ``import numpy as np`` and ``from dmlgpu import Tensor, ops``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dmlgpu.common.memory import MemoryInfo
from dmlgpu.common.suggestions import suggestion
from dmlgpu.ops import (
    activations,
    adaptive_pooling,
    contraction,
    conv,
    creation,
    diagonals,
    directml,
    elementwise,
    equality,
    histograms,
    interpolation,
    logic,
    nan_reductions,
    nn,
    pooling,
    products,
    recurrent,
    reductions,
    searching,
    shape,
    statistics,
    training,
    transcendental,
)
from dmlgpu.ops.activations import *  # noqa: F403
from dmlgpu.ops.adaptive_pooling import *  # noqa: F403
from dmlgpu.ops.contraction import *  # noqa: F403
from dmlgpu.ops.conv import *  # noqa: F403
from dmlgpu.ops.creation import *  # noqa: F403
from dmlgpu.ops.diagonals import *  # noqa: F403
from dmlgpu.ops.elementwise import *  # noqa: F403
from dmlgpu.ops.equality import *  # noqa: F403
from dmlgpu.ops.histograms import *  # noqa: F403
from dmlgpu.ops.interpolation import *  # noqa: F403
from dmlgpu.ops.logic import *  # noqa: F403
from dmlgpu.ops.nan_reductions import *  # noqa: F403
from dmlgpu.ops.nn import *  # noqa: F403
from dmlgpu.ops.pooling import *  # noqa: F403
from dmlgpu.ops.products import *  # noqa: F403
from dmlgpu.ops.recurrent import *  # noqa: F403
from dmlgpu.ops.reductions import *  # noqa: F403
from dmlgpu.ops.searching import *  # noqa: F403
from dmlgpu.ops.shape import *  # noqa: F403
from dmlgpu.ops.statistics import *  # noqa: F403
from dmlgpu.ops.training import *  # noqa: F403
from dmlgpu.ops.transcendental import *  # noqa: F403
from dmlgpu.runtime.device import Device, as_device
from dmlgpu.tensors.session import session_of

if TYPE_CHECKING:
    from dmlgpu.ops import fft as fft
    from dmlgpu.ops import linalg as linalg

_PACKAGES = ("fft", "linalg")
"""Packages of functions that are imported on first use."""

_MODULES = (
    activations,
    adaptive_pooling,
    contraction,
    conv,
    creation,
    diagonals,
    elementwise,
    equality,
    histograms,
    interpolation,
    logic,
    nan_reductions,
    nn,
    pooling,
    products,
    recurrent,
    reductions,
    searching,
    shape,
    statistics,
    training,
    transcendental,
)

__all__ = sorted(  # noqa: PLE0605
    ["directml", "free_memory", "memory_info", *_PACKAGES, *(name for module in _MODULES for name in module.__all__)]
)

_USUAL = {
    "activation_elu": "elu",
    "activation_gelu": "gelu",
    "activation_hard_sigmoid": "hardsigmoid",
    "activation_hard_swish": "hardswish",
    "activation_leaky_relu": "leaky_relu",
    "activation_log_softmax": "log_softmax",
    "activation_log_softmax1": "log_softmax",
    "activation_relu": "relu",
    "activation_scaled_elu": "selu",
    "activation_sigmoid": "sigmoid",
    "activation_softmax": "softmax",
    "activation_softmax1": "softmax",
    "activation_softplus": "softplus",
    "average_pooling": "avg_pool2d",
    "average_pooling1": "avg_pool2d",
    "batch_normalization": "batch_norm",
    "batch_normalization_training": "batch_norm_training",
    "convolution": "conv2d",
    "cumulative_product": "cumprod",
    "cumulative_summation": "cumsum",
    "element_wise_abs": "abs",
    "element_wise_acos": "acos",
    "element_wise_acosh": "acosh",
    "element_wise_add": "add",
    "element_wise_asin": "asin",
    "element_wise_asinh": "asinh",
    "element_wise_atan": "atan",
    "element_wise_atan_yx": "atan2",
    "element_wise_atanh": "atanh",
    "element_wise_bit_and": "bitwise_and",
    "element_wise_bit_not": "bitwise_not",
    "element_wise_bit_or": "bitwise_or",
    "element_wise_bit_shift_left": "left_shift",
    "element_wise_bit_shift_right": "right_shift",
    "element_wise_bit_xor": "bitwise_xor",
    "element_wise_ceil": "ceil",
    "element_wise_clip": "clip",
    "element_wise_clip1": "clip",
    "element_wise_cos": "cos",
    "element_wise_cosh": "cosh",
    "element_wise_dequantize_linear": "dequantize",
    "element_wise_divide": "divide",
    "element_wise_erf": "erf",
    "element_wise_exp": "exp",
    "element_wise_floor": "floor",
    "element_wise_if": "where",
    "element_wise_is_infinity": "isinf",
    "element_wise_is_nan": "isnan",
    "element_wise_log": "log",
    "element_wise_logical_and": "logical_and",
    "element_wise_logical_equals": "equal",
    "element_wise_logical_greater_than": "greater",
    "element_wise_logical_greater_than_or_equal": "greater_equal",
    "element_wise_logical_less_than": "less",
    "element_wise_logical_less_than_or_equal": "less_equal",
    "element_wise_logical_not": "logical_not",
    "element_wise_logical_or": "logical_or",
    "element_wise_logical_xor": "logical_xor",
    "element_wise_max": "maximum",
    "element_wise_min": "minimum",
    "element_wise_modulus_floor": "remainder",
    "element_wise_modulus_truncate": "fmod",
    "element_wise_multiply": "multiply",
    "element_wise_negate": "negative",
    "element_wise_pow": "power",
    "element_wise_quantize_linear": "quantize",
    "element_wise_recip": "reciprocal",
    "element_wise_round": "round",
    "element_wise_sign": "sign",
    "element_wise_sin": "sin",
    "element_wise_sinh": "sinh",
    "element_wise_sqrt": "sqrt",
    "element_wise_subtract": "subtract",
    "element_wise_tan": "tan",
    "element_wise_tanh": "tanh",
    "fill_value_constant": "full",
    "fill_value_sequence": "arange",
    "gather": "take",
    "gather_elements": "take_along_axis",
    "gemm": "matmul",
    "join": "concatenate",
    "max_pooling": "max_pool2d",
    "max_pooling1": "max_pool2d",
    "max_pooling2": "max_pool2d",
    "mean_variance_normalization": "layer_norm",
    "mean_variance_normalization1": "layer_norm",
    "mean_variance_normalization2": "layer_norm",
    "multihead_attention": "attention",
    "multihead_attention1": "attention",
    "nonzero_coordinates": "nonzero",
    "padding": "pad",
    "padding1": "pad",
    "reduce": "sum",
    "resample": "resize",
    "resample1": "resize",
    "resample2": "resize",
    "resample3": "resize",
    "top_k": "topk",
    "top_k1": "topk",
}
"""Usual names of DirectML's operators that have another one."""

if not TYPE_CHECKING:  # type checkers report unknown names

    def __getattr__(name: str) -> Any:
        if name in _PACKAGES:
            return importlib.import_module(f"{__name__}.{name}")
        message = f"module {__name__!r} has no attribute {name!r}"
        if name in directml.__dir__() and not name.startswith("_"):
            message += f"; DirectML's operator is ops.directml.{name}"
            if name in _USUAL:
                message += f", the usual function is ops.{_USUAL[name]}"
        else:
            message += suggestion(name, __name__)
        raise AttributeError(message, name=name, obj=None)  # without an obj Python adds no suggestion of its own


def __dir__() -> list[str]:
    return __all__


def free_memory(device: Device | str | None = None) -> None:
    """Free the unused memory and the compiled operators that a device keeps for eager calls.

    Args:
        device: Device or adapter name; None means ``default_device()``.

    Raises:
        InvalidArgument: If ``device`` is neither a device nor a name.
        AdapterNotFound: If there is no adapter of that name.

    Examples:
        >>> ops.free_memory()

    See also:
        `Tensor.release`, which frees one tensor.
    """
    session_of(as_device("free_memory", device)).clear()


def memory_info(device: Device | str | None = None) -> MemoryInfo:
    """Return the bytes of device memory that are allocated, and how many of them are unused.

    Args:
        device: Device or adapter name; None means ``default_device()``.

    Returns:
        A named tuple of ``allocated``, ``unused`` and ``budget``. Tensors and models hold ``allocated - unused`` bytes.

    Raises:
        InvalidArgument: If ``device`` is neither a device nor a name.
        AdapterNotFound: If there is no adapter of that name.

    Examples:
        >>> before = ops.memory_info()
        >>> x = ops.zeros((1024, 1024))
        >>> after = ops.memory_info()
        >>> after.allocated - after.unused - (before.allocated - before.unused)
        4194304

    See also:
        `free_memory`, which frees the unused bytes.
    """
    return session_of(as_device("memory_info", device)).memory_info()
