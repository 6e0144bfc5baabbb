"""What functions take and return: tensors and arrays in tuples, lists and dicts, and other values as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dmlgpu.common.errors import InvalidArgument, InvalidState, shown
from dmlgpu.tensors.strided import Strided, behind_binding

_PLAIN = (int, bool, str, bytes, type(None))
"""Types whose equal values no function can tell apart."""

_RESULTS = (int, float, complex, str, bytes, type(None), np.generic)
"""What a function may return beside tensors and arrays."""


def flatten(caller: str, path: str, value: Any, leaves: list[tuple[str, Any]]) -> Any:
    """Append the tensors and arrays of an argument to ``leaves``, with the names of their places, and return what else
    tracing depends on: sizes, types, layouts, and all other values. It can be hashed.

    Raises:
        InvalidArgument: a value that cannot be hashed; names caller and ``path``.
        InvalidState: a tensor is released.
    """
    if isinstance(value, Strided):
        if value.buffer.released:
            raise InvalidState(f"{caller}: {path}, {value.data_type.name} {list(value.sizes)}, is released")
        leaves.append((path, value))
        return value.sizes, value.signature, value.dtype, behind_binding(value)
    if isinstance(value, np.ndarray):
        leaves.append((path, value))
        return np.ndarray, value.dtype, value.shape
    kind = type(value)
    if kind is list or kind is tuple or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return kind, *[flatten(caller, f"{path}[{number}]", one, leaves) for number, one in enumerate(value)]
    if kind is dict:
        return kind, *[
            (type(key), key, flatten(caller, f"{path}[{shown(key)}]", one, leaves)) for key, one in value.items()
        ]
    return kind, _distinct(caller, path, value)


def _distinct(caller: str, path: str, value: Any) -> Any:
    """Return what two values of one type share only if functions cannot tell them apart."""
    if type(value) in _PLAIN:
        return value
    if type(value) is float:
        return value.hex()
    if isinstance(value, np.generic | complex):
        return np.asarray(value).tobytes()
    try:
        hash(value)
    except Exception:  # whatever a foreign __hash__ raises
        raise InvalidArgument(
            f"{caller}: {path} must be a Tensor, an array, a tuple, list or dict of such, or a value that can be "
            f"hashed, got {shown(value, typed=True)}"
        ) from None
    return value


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a structure of the same kind with ``change`` applied to all that is no tuple, list or dict."""
    kind = type(value)
    if kind is list or kind is tuple:
        return kind([mapped(one, change) for one in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*[mapped(one, change) for one in value])
    if kind is dict:
        return {key: mapped(one, change) for key, one in value.items()}
    return change(value)


def check_result(caller: str, value: Any) -> None:
    """Refuse a result that is neither tensor, array, number, text nor None, for it could not be made anew.

    Raises:
        InvalidArgument: names the function.
    """
    if not isinstance(value, (Strided, np.ndarray, *_RESULTS)):
        raise InvalidArgument(
            f"{caller}: results must be Tensors, arrays, numbers, texts or None, in tuples, lists and dicts, "
            f"got {shown(value, typed=True)}"
        )
