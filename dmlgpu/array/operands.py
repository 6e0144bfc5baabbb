"""What functions of the namespace share: operands checked, brought to one type, and run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.coercion import argument, boolean
from dmlgpu.common.errors import InvalidArgument, NotSupported, shown
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.calls import caller
from dmlgpu.tensors.execution import call_op
from dmlgpu.tensors.layout import broadcast_sizes, checked_axes
from dmlgpu.tensors.promotion import promoted
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import as_data_type, is_boolean_type

Dtype: TypeAlias = Any
"""A type of the namespace, or whatever stands for one: ``dmlgpu.array.float32``, NumPy's, or its name."""

Where: TypeAlias = Device | str | None
"""A device, the name of an adapter, or None for ``default_device()``."""

Number: TypeAlias = Tensor | float
"""A tensor, or a number of Python's beside one."""

NUMERIC = "integer or floating-point"
FLOATING = "floating-point"
ANY = "boolean or integer or floating-point"

KINDS = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32",),
    "complex floating": (),
}
"""Names of the types of each kind of the standard that adapters compute."""

KINDS["integral"] = KINDS["signed integer"] + KINDS["unsigned integer"]
KINDS["numeric"] = KINDS["integral"] + KINDS["real floating"]

REFUSED = ("float64", "complex64", "complex128")
"""Names of types of the standard that adapters cannot compute."""


def as_type(dtype: Dtype) -> Any:
    """Return what ``Tensor`` takes for a type: a data type, or ``bool``.

    Raises:
        InvalidArgument: no type.
        NotSupported: a type that adapters cannot compute.
    """
    if is_boolean_type(dtype):
        return bool
    try:
        name = np.dtype(dtype).name if dtype is not None else ""
    except Exception:  # whatever is no type of NumPy's
        name = ""
    if name in REFUSED or dtype is DataType.FLOAT64:
        raise NotSupported(
            f"{caller()}: dtype must not be {name or 'float64'}, which adapters cannot compute; float32 is the widest "
            "floating-point type"
        )
    found = as_data_type(caller(), "dtype", dtype)
    if found.bits < 8:
        raise InvalidArgument(f"{caller()}: dtype must be of 8 bits at least, got {found.name}")
    return found


def tensor(name: str, value: Any, kind: str = "") -> Tensor:
    """Return an operand that must be a tensor, of a kind of types.

    Raises:
        InvalidArgument: no tensor, or one of another kind; names the function and the operand.
    """
    if not isinstance(value, Tensor):
        raise InvalidArgument(
            f"{caller()}: {name} must be a Tensor, got {shown(value, typed=True)}; asarray makes one of numbers"
        )
    if kind and kind_of(value) not in kind.split(" or "):
        raise InvalidArgument(f"{caller()}: {name} must be of a type of kind {kind}, got {value.type_name}")
    return value


def kind_of(x: Tensor) -> str:
    """Return whether a tensor's type is ``"boolean"``, ``"integer"`` or ``"floating-point"``."""
    if x.is_boolean:
        return "boolean"
    return "floating-point" if x.data_type.is_float else "integer"


def operand(name: str, value: Any, kind: str, beside: Tensor) -> Any:
    """Return an operand that is a tensor or a number that fits one.

    Raises:
        InvalidArgument: neither, or a number of another kind; names the function and the operand.
    """
    if not isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
        return tensor(name, value, kind)
    own = kind_of(beside)
    truth = isinstance(value, bool | np.bool_)
    real = isinstance(value, float | np.floating)
    if truth is not (own == "boolean") or (real and own == "integer"):
        raise InvalidArgument(f"{caller()}: {name} must fit beside {beside.type_name}, got {shown(value, typed=True)}")
    return value


def pair(x1: Any, x2: Any, kind: str = "integer or floating-point", names: tuple[str, str] = ("x1", "x2")) -> list[Any]:
    """Return two operands in one type, of which one at most is a number.

    Raises:
        InvalidArgument: two numbers, no common type, a type of another kind, several devices, or sizes that do not
            broadcast.
    """
    if not isinstance(x1, Tensor):
        second = tensor(names[1], x2, kind)
        first = operand(names[0], x1, kind, second)
    else:
        first = tensor(names[0], x1, kind)
        second = operand(names[1], x2, kind, first)
    found = promoted(caller(), {names[0]: first, names[1]: second})
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        if first.device is not second.device:
            raise InvalidArgument(
                f"{caller()}: {names[1]} must be on the device of {names[0]}, '{first.device.adapter}', got one on "
                f"'{second.device.adapter}'; to_device copies it"
            )
        if first.sizes != second.sizes:
            broadcast_sizes(caller(), [(names[0], first.sizes), (names[1], second.sizes)])
    return found


def both(x1: Any, x2: Any, kind: str, names: tuple[str, str] = ("x1", "x2")) -> list[Tensor]:
    """Return two operands in one type, both as tensors."""
    first, second = pair(x1, x2, kind, names)
    made = first if isinstance(first, Tensor) else second
    return [one if isinstance(one, Tensor) else scalar(one, made) for one in (first, second)]


def scalar(value: float, beside: Tensor) -> Tensor:
    """Return a number as a tensor without dimensions, of the type of another, on its device."""
    return Tensor(value, beside._type, device=beside.device)


def run(kind: type[OperatorDesc], **values: Any) -> Tensor:
    """Run an operator with one output."""
    found: Tensor = call_op(kind, values)[0]
    return found


def chosen(condition: Tensor, x1: Any, x2: Any) -> Tensor:
    """Return elements of ``x1`` where a condition holds, else of ``x2``."""
    return run(descs.ElementWiseIf, condition_tensor=condition, a_tensor=x1, b_tensor=x2)


def unary(kind: type[OperatorDesc], x: Any, allowed: str = FLOATING) -> Tensor:
    """Run an operator on a tensor of an allowed kind of types."""
    return run(kind, input_tensor=tensor("x", x, allowed))


def binary(kind: type[OperatorDesc], x1: Any, x2: Any, allowed: str = NUMERIC) -> Tensor:
    """Run an operator on two operands of an allowed kind of types, brought to one type."""
    first, second = pair(x1, x2, allowed)
    return run(kind, a_tensor=first, b_tensor=second)


def word(name: str, value: Any, words: tuple[str, ...]) -> str:
    """Return an argument that is one of a few words.

    Raises:
        InvalidArgument: it is none of them; names the function and the argument.
    """
    if not isinstance(value, str) or value not in words:
        raise InvalidArgument(f"{caller()}: {name} must be {' or '.join(map(repr, words))}, got {shown(value)}")
    return value


def optional(name: str, value: Any) -> bool | None:
    """Return an argument that is a truth value or None.

    Raises:
        InvalidArgument: it is neither; names the function and the argument.
    """
    return None if value is None else argument(caller(), name, boolean, value)


def axes_of(x: Tensor, axis: int | Sequence[int] | None) -> tuple[int, ...]:
    """Return axes counted from the front; None is all of them.

    Raises:
        InvalidArgument: an axis out of range, or one twice.
    """
    return tuple(range(x.ndim)) if axis is None else checked_axes(caller(), "axis", axis, x.ndim)
