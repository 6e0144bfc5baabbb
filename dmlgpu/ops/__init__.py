"""Operators that run at once on tensors or arrays, under the names of NumPy and PyTorch.

``ops.directml`` has a function for each of DirectML's 177 operators, under DirectML's names.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from dmlgpu.ops import conv, directml, elementwise, nn, recurrent, reductions, shape
from dmlgpu.ops.conv import *  # noqa: F403
from dmlgpu.ops.elementwise import *  # noqa: F403
from dmlgpu.ops.nn import *  # noqa: F403
from dmlgpu.ops.recurrent import *  # noqa: F403
from dmlgpu.ops.reductions import *  # noqa: F403
from dmlgpu.ops.shape import *  # noqa: F403
from dmlgpu.runtime.device import Device, as_device
from dmlgpu.tensors.session import session_of

_MODULES = (conv, elementwise, nn, recurrent, reductions, shape)

__all__ = sorted(["directml", "free_memory", *(name for module in _MODULES for name in module.__all__)])  # noqa: PLE0605

_USUAL = {
    **elementwise.BY_OPERATOR,
    "activation_elu": "elu",
    "activation_leaky_relu": "leaky_relu",
    "activation_log_softmax": "log_softmax",
    "activation_log_softmax1": "log_softmax",
    "activation_softmax": "softmax",
    "activation_softmax1": "softmax",
    "activation_softplus": "softplus",
    "average_pooling": "avg_pool2d",
    "average_pooling1": "avg_pool2d",
    "batch_normalization": "batch_norm",
    "convolution": "conv2d",
    "cumulative_product": "cumprod",
    "cumulative_summation": "cumsum",
    "element_wise_clip": "clip",
    "element_wise_clip1": "clip",
    "element_wise_dequantize_linear": "dequantize",
    "element_wise_divide": "divide",
    "element_wise_if": "where",
    "element_wise_pow": "power",
    "element_wise_quantize_linear": "quantize",
    "element_wise_round": "round",
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
        message = f"module {__name__!r} has no attribute {name!r}"
        if name in directml.__dir__() and not name.startswith("_"):
            message += f"; DirectML's operator is ops.directml.{name}"
            if name in _USUAL:
                message += f", the usual function is ops.{_USUAL[name]}"
        elif similar := difflib.get_close_matches(name, __all__, 1):
            message += f"; did you mean ops.{similar[0]}?"
        raise AttributeError(message)


def __dir__() -> list[str]:
    return __all__


def free_memory(device: Device | str | None = None) -> None:
    """Free the unused memory and the compiled operators that a device keeps for eager calls.

    Args:
        device: Device or adapter name; None means ``default_device()``.

    Raises:
        InvalidArgument: If ``device`` is neither a device nor a name.
        AdapterNotFound: If there is no adapter of that name.
    """
    session_of(as_device("free_memory", device)).clear()
