"""Values that stand for arrays: lists, other libraries' arrays, and float64, which is computed in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal

import numpy as np

from dmlgpu.catalog.enums import DataType, as_elements
from dmlgpu.common.errors import InvalidArgument, shown, warn_caller
from dmlgpu.tensors.types import as_array, is_number, unreadable

Float64Mode = Literal["warn", "convert", "refuse"]
_MODES = ("warn", "convert", "refuse")


class Float64Warning(UserWarning):
    """float64 elements were computed in float32, or for PyTorch's device on the CPU."""


class _Policy:
    """Policy for float64 operands of operators that do not compute in float64."""

    mode: str = "warn"
    has_warned = False


refuses_float64: ContextVar[bool] = ContextVar("refuses_float64", default=False)
"""True if operators that do not compute in float64 raise in this thread, regardless of the mode."""


def set_float64(mode: Float64Mode) -> None:
    """Choose what happens to float64 operands, for which GPUs and DirectML have almost no arithmetic.

    Operators that move or cast elements keep float64. For all others the operands are converted to float32. The same
    applies to float64 arrays that are assigned to elements of a float32 or float16 tensor, and to
    ``dmlgpu.array.asarray`` of float64 arrays.

    Args:
        mode: ``"warn"``, the default, converts and warns once per process; ``"convert"`` converts silently;
            ``"refuse"`` raises InvalidArgument. Models and operator descriptions never convert.

    Raises:
        InvalidArgument: If the mode is none of these.
    """
    if mode not in _MODES:
        raise InvalidArgument(f"set_float64: mode must be one of {', '.join(_MODES)}, got {shown(mode)}")
    _Policy.mode, _Policy.has_warned = mode, False


def has_float64(values: Mapping[str, Any]) -> bool:
    """Return whether an operand is an array or a tensor of float64."""
    return any(_is_float64(part) for value in values.values() for part in parts_of(value))


def in_float32(caller: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return operands with those of float64 converted.

    Raises:
        InvalidArgument: If ``set_float64("refuse")`` or ``refuses_float64`` is in effect.
    """
    if refuses_float64.get():
        raise InvalidArgument(f"{caller}: float64 is not computed on GPUs")
    if _Policy.mode == "refuse":
        raise InvalidArgument(
            f"{caller}: float64 is not computed on GPUs; convert the operand with x.astype('float32'), or let "
            "dmlgpu.set_float64('convert') do it"
        )
    return {field: _narrowed(value) for field, value in values.items()}


def convert_float64(caller: str, values: Any, data_type: DataType) -> Any:
    """Return float64 values that are stored as a smaller floating-point type converted, other values unchanged.

    Raises:
        InvalidArgument: If ``set_float64("refuse")`` is in effect.
    """
    if not _is_float64(values) or not data_type.is_float or data_type is DataType.FLOAT64:
        return values
    name = data_type.name.lower()
    if _Policy.mode == "refuse":
        raise InvalidArgument(
            f"{caller}: float64 is not converted to {name} implicitly; convert the value with x.astype('{name}'), or "
            "let dmlgpu.set_float64('convert') do it"
        )
    converted = as_elements(data_type, values) if isinstance(values, np.ndarray) else values.astype(data_type)
    warn_of_float32(caller, f"float64 values are stored as {name}", name)
    return converted


def warn_of_float32(
    caller: str, what: str = "float64 operands are computed in float32", data_type: str = "float32"
) -> None:
    """Warn once per process, at the line of the user's code."""
    if _Policy.mode != "warn" or _Policy.has_warned:
        return
    _Policy.has_warned = True
    warn_caller(
        f"{caller}: {what}; convert them with x.astype('{data_type}'), or call "
        "dmlgpu.set_float64('convert') to silence this, 'refuse' to forbid it",
        Float64Warning,
    )


def as_operand(caller: str, name: str, value: Any, is_sequence: bool = False) -> Any:
    """Convert lists and arrays of other libraries to NumPy arrays; other values are returned unchanged.

    Args:
        caller: The function that was called, for messages.
        name: The parameter.
        value: The argument.
        is_sequence: Whether the parameter takes several operands in a list.

    Raises:
        InvalidArgument: If a list is ragged or holds no numbers, or a foreign array cannot be read on the CPU.
    """
    if value is None or isinstance(value, np.ndarray) or hasattr(value, "data_type") or is_number(value):
        return value
    if isinstance(value, list | tuple):
        if is_sequence:
            return [as_operand(caller, f"{name}[{index}]", part) for index, part in enumerate(value)]
        if any(hasattr(part, "data_type") for part in value):
            return value
        return as_array(caller, name, value, None)[0]
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        try:
            return np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value)
        except Exception as error:
            raise unreadable(f"{caller}: {name} must be a Tensor or an array", value, error) from None
    return value


def parts_of(value: Any) -> Sequence[Any]:
    """Return the parts of an operand that is a list, or the operand alone."""
    return value if isinstance(value, list | tuple) else (value,)


def _is_float64(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype == np.float64
    return getattr(value, "data_type", None) is DataType.FLOAT64


def _narrowed(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_narrowed(part) for part in value]
    if not _is_float64(value):
        return value
    return value.astype(np.float32) if isinstance(value, np.ndarray) else value.astype(DataType.FLOAT32)
