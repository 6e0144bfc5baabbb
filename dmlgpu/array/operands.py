"""Operands of the standard's functions, their common dtype, and functions made of those of `ops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np

from dmlgpu.common.coercion import argument, boolean
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.runtime.device import other_device
from dmlgpu.tensors.calls import caller, check_kind, named
from dmlgpu.tensors.layout import broadcast_sizes
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import as_floating, promoted

Dtype: TypeAlias = Any
"""A dtype of the namespace, ``dmlgpu.array.float32``, which is NumPy's, or its name."""

Number: TypeAlias = Tensor | float
"""A tensor, or a Python number as the other operand."""

KINDS = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32",),
    "complex floating": (),
}
"""Names of the dtypes of each of the standard's kinds that adapters compute."""

KINDS["integral"] = KINDS["signed integer"] + KINDS["unsigned integer"]
KINDS["numeric"] = KINDS["integral"] + KINDS["real floating"]


def tensor(name: str, value: Any, kind: str = "") -> Tensor:
    """Return an operand that must be a tensor, of a kind of dtypes.

    Raises:
        InvalidArgument: If it is not; names the function and the operand.
    """
    if not isinstance(value, Tensor):
        raise InvalidArgument(
            f"{caller()}: {name} must be a Tensor, got {shown(value, typed=True)}; asarray makes one of numbers"
        )
    return check_kind(name, value, kind) if kind else value


def operand(name: str, value: Any) -> Any:
    """Return an operand that is a tensor or a number.

    Raises:
        InvalidArgument: If it is neither; names the function and the operand.
    """
    return value if isinstance(value, bool | int | float | np.bool_ | np.number) else tensor(name, value)


def pair(x1: Any, x2: Any) -> list[Any]:
    """Promote two operands, at most one of which is a number, to one dtype.

    Raises:
        InvalidArgument: If both are numbers, there is no common dtype, devices differ, or shapes do not broadcast.
    """
    first, second = (operand("x1", x1), tensor("x2", x2)) if not isinstance(x1, Tensor) else (x1, operand("x2", x2))
    operands = promoted(caller(), {"x1": first, "x2": second})
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        if first.device is not second.device:
            raise InvalidArgument(
                f"{caller()}: x2 must be on the device of x1, '{first.device.adapter}', got one on "
                f"{other_device(first.device, second.device)}; to_device copies it"
            )
        if first.sizes != second.sizes:
            broadcast_sizes(caller(), [("x1", first.sizes), ("x2", second.sizes)])
    return operands


def both(x1: Any, x2: Any) -> list[Tensor]:
    """Promote two operands to one floating-point dtype, both as tensors."""
    operands = [as_floating(value) for value in pair(x1, x2)]
    beside = operands[0] if isinstance(operands[0], Tensor) else operands[1]
    return [value if isinstance(value, Tensor) else scalar(value, beside) for value in operands]


def scalar(value: float, beside: Tensor) -> Tensor:
    """Return a number as a tensor of rank 0, of the dtype of another, on its device."""
    return Tensor(value, beside._type, device=beside.device)


def optional(name: str, value: Any) -> bool | None:
    """Return an argument that must be a boolean or None."""
    return None if value is None else argument(caller(), name, boolean, value)


# ---- functions of a table --------------------------------------------------------------------------------------------


class StandardUnary(Protocol):
    """A function of the standard of one tensor."""

    __name__: str

    def __call__(self, x: Tensor, /) -> Tensor:
        """Return a tensor of the shape of `x`."""


class StandardBinary(Protocol):
    """A function of the standard of two tensors, or of a tensor and a number."""

    __name__: str

    def __call__(self, x1: Number, x2: Number, /) -> Tensor:
        """Return a tensor of the shape to which `x1` and `x2` broadcast."""


def unary(
    name: str,
    function: Callable[[Any], Any],
    summary: str = "",
) -> StandardUnary:
    """Return a function of one tensor.

    Args:
        name: The standard's name.
        function: Computes it.
        summary: First line of the docstring; defaults to that of ``function``.
    """

    def call(x: Tensor, /) -> Tensor:
        return function(tensor("x", x))

    return _documented(call, name, summary or _first_line(function), "x: Tensor.", "shape of `x`")


def binary(name: str, function: Callable[[Any, Any], Any], summary: str = "") -> StandardBinary:
    """Return a function of two operands, promoted to one dtype; see ``unary``."""

    def call(x1: Number, x2: Number, /) -> Tensor:
        return function(*pair(x1, x2))

    operands = (
        "x1: Tensor, or a number (not both operands).\n"
        "        x2: Tensor, promoted with `x1` to a common dtype, or a number."
    )
    return _documented(call, name, summary or _first_line(function), operands, "shape to which `x1` and `x2` broadcast")


def _first_line(function: Any) -> str:
    return str(function.__doc__).partition("\n")[0]


def _documented(call: Any, name: str, summary: str, operands: str, shape: str) -> Any:
    call.__name__ = call.__qualname__ = name
    call.__module__ = "dmlgpu.array"
    call.__doc__ = f"""{summary}

    Args:
        {operands}

    Returns:
        Tensor of the {shape}.

    Raises:
        InvalidArgument: If an operand is not a Tensor, its dtype is not supported, or operands do not fit together.
    """
    return named(call)
