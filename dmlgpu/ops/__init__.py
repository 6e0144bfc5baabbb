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
from dmlgpu.ops import directml
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

__all__ = sorted(  # noqa: PLE0605
    [
        *("directml", "free_memory", "memory_info", *_PACKAGES),
        *(
            name
            for name, value in globals().items()
            if str(getattr(value, "__module__", "")).startswith(f"{__name__}.")
        ),
    ]
)

if not TYPE_CHECKING:  # type checkers report unknown names

    def __getattr__(name: str) -> Any:
        if name in _PACKAGES:
            return importlib.import_module(f"{__name__}.{name}")
        message = f"module {__name__!r} has no attribute {name!r}"
        if name in directml.__dir__() and not name.startswith("_"):
            message += f"; DirectML's operator is ops.directml.{name}"
            usual = " or ".join(f"ops.{function}" for function in _usual_functions(name.upper()))
            message += f", the usual function is {usual}" if usual else ""
        else:
            message += suggestion(name, __name__)
        raise AttributeError(message, name=name, obj=None)  # without an obj Python adds no suggestion of its own


def __dir__() -> list[str]:
    return __all__


def _usual_functions(operator: str) -> list[str]:
    """Return the functions that an operator computes, by their names in NumPy, PyTorch and everyday use."""
    from dmlgpu.catalog.search import newest, synonyms  # noqa: PLC0415 - only messages need it

    known = synonyms().get(operator)
    names = () if known is None else (*known.numpy, *known.torch, *known.words)
    functions = dict.fromkeys(name for qualified in names if (name := qualified.rpartition(".")[2]) in __all__)
    computed = [name for name in functions if newest(operator) in str(globals()[name].__doc__)]
    return computed or [name for name in functions if name in operator.lower().split("_")]


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
