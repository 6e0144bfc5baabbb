"""What functions on tensors share: arrays in and arrays out, one device, messages in the words of what was called."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.runtime.device import Device, as_device
from dmlgpu.tensors.array_like import as_operand
from dmlgpu.tensors.execution import check_device
from dmlgpu.tensors.memory import current_caller, unrecorded
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import as_array

Operand: TypeAlias = Tensor | NDArray[Any] | float
"""What functions compute on: tensors, arrays, and numbers beside them."""

Array: TypeAlias = Any
"""What functions return: a Tensor, or an NDArray where all operands are arrays, which type checkers cannot tell."""

Where: TypeAlias = Device | str | None
"""Where arrays are computed: a device, the name of an adapter, or None for ``default_device()``."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_INNER = "Tensor", "a ", "-a", "~a", "abs(a)"
"""How messages of tensors' own methods and operators begin."""


_PLAIN = frozenset({Tensor, np.ndarray, float, int, bool, type(None)})
"""Types of operands that need no conversion."""


def caller() -> str:
    """Return the name of the function that the user called, for messages."""
    return current_caller.get() or "dmlgpu.ops"


def named(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make a function on tensors one whose messages name it, whatever it calls itself."""
    name = function.__name__

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if current_caller.get() is not None:
            return function(*args, **kwargs)
        token = current_caller.set(name)
        try:
            return function(*args, **kwargs)
        except InvalidArgument as error:
            inner, _, rest = str(error).partition(": ")
            if type(error) is not InvalidArgument or inner == name or not inner.startswith(_INNER):
                raise
            raise InvalidArgument(f"{name}: {rest}") from error
        finally:
            current_caller.reset(token)

    return call


def eager(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make a function on tensors one on arrays, too.

    Where an operand is a tensor, arrays beside it are copied to its device, and results are tensors. Where all are
    arrays, they are copied to ``device``, and results are arrays. Operands are the parameters annotated as such.
    Messages name the function, whatever it calls itself.
    """
    name = function.__name__
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    operands = {parameter for parameter in code.co_varnames[:count] if "Operand" in function.__annotations__[parameter]}
    sequences = {parameter for parameter in operands if "Sequence" in function.__annotations__[parameter]}
    places = tuple(number for number, parameter in enumerate(code.co_varnames[:count]) if parameter in operands)

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if current_caller.get() is not None:
            return function(*args, **kwargs)
        token = current_caller.set(name)
        try:
            if not kwargs.keys().isdisjoint(ALIASES):
                kwargs = {ALIASES.get(key, key): value for key, value in kwargs.items()}  # type: ignore[assignment]
            device: Any = kwargs.get("device")
            values = [args[place] for place in places if place < len(args)]
            values += [value for key, value in kwargs.items() if key in operands]
            if not all(type(value) in _PLAIN for value in values):
                positions = dict.fromkeys(places)
                converted: Any = [
                    as_operand(name, code.co_varnames[place], value, code.co_varnames[place] in sequences)
                    if place in positions
                    else value
                    for place, value in enumerate(args)
                ]
                args = tuple(converted)  # type: ignore[assignment]
                for key in kwargs.keys() & operands:
                    kwargs[key] = as_operand(name, key, kwargs[key], key in sequences)
                values = [args[place] for place in places if place < len(args)]
                values += [value for key, value in kwargs.items() if key in operands]
            has_arrays, first = _look(values)
            if device is not None:
                device = kwargs["device"] = as_device(name, device)
                if first is not None:
                    check_device(name, device, first.device)
            if not has_arrays:
                return function(*args, **kwargs)
            target = as_device(name, device) if first is None else first
            positional = [
                _on(target, name, code.co_varnames[place], value) if place in places else value
                for place, value in enumerate(args)
            ]
            named = {key: _on(target, name, key, value) if key in operands else value for key, value in kwargs.items()}
            if first is not None:
                return function(*positional, **named)  # type: ignore[arg-type]
            with unrecorded():
                return _to_host(function(*positional, **named))  # type: ignore[arg-type]
        except TypeError as error:
            raise _with_right_name(error, function, kwargs) from None
        finally:
            current_caller.reset(token)

    return call


ALIASES = {"dim": "axis", "keepdim": "keepdims"}
"""PyTorch's names of keywords that functions of ``dmlgpu.ops`` take beside NumPy's."""

RENAMED = {
    "data_type": "dtype",
    "epsilon": "eps",
    "filter": "weight",
    "heads": "num_heads",
    "output_type": "dtype",
    "repeats": "reps",
    "sizes": "shape",
    "widths": "pad_width",
    "window": "kernel_size",
}
"""Keywords of ``dmlgpu.ops`` by the names that DirectML, PyTorch or earlier versions use."""


def _with_right_name(error: TypeError, function: Callable[..., Any], keywords: Mapping[str, Any]) -> TypeError:
    """Return an error that names the keyword, if one of ``RENAMED`` was passed."""
    code = function.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for name in keywords:
        keyword = RENAMED.get(name)
        if name not in parameters and keyword in parameters:
            return TypeError(
                f"{function.__name__}() got an unexpected keyword argument {name!r}; it is called {keyword!r}"
            )
    return error


def _look(values: list[Any]) -> tuple[bool, Tensor | None]:
    """Return whether there are arrays among operands, and the first tensor, one of a graph before others."""
    has_arrays, first = False, None
    for value in values:
        for operand in value if isinstance(value, list | tuple) else (value,):
            if isinstance(operand, Tensor):
                if first is None or (first.graph is None and operand.graph is not None):
                    first = operand
            elif isinstance(operand, np.ndarray):
                has_arrays = True
    return has_arrays, first


def _on(target: Device | Tensor, caller: str, name: str, value: Any) -> Any:
    """Return an operand with its arrays copied to a device, or beside a tensor."""
    if isinstance(value, np.ndarray):
        as_array(caller, name, value, None)
        return Tensor(value, device=target) if isinstance(target, Device) else target._beside(value)
    if isinstance(value, list | tuple):
        return [_on(target, caller, f"{name}[{number}]", operand) for number, operand in enumerate(value)]
    return value


def _to_host(result: Any) -> Any:
    if isinstance(result, Tensor):
        return result.numpy()
    if isinstance(result, tuple):
        parts = [_to_host(part) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return result


def filled(like: Tensor, sizes: Sequence[int], number: float = 0, data_type: DataType | None = None) -> Tensor:
    """Return a tensor of one number on the device of another, in its type unless another is named."""
    kind = data_type or like.data_type
    return like._beside(np.full(tuple(sizes), number, kind.numpy), kind)


def tensor_of(name: str, value: Any) -> Tensor:
    """Return an operand of the function that was called, which must be a tensor by now.

    Raises:
        InvalidArgument: it is none, and was no array either.
    """
    if not isinstance(value, Tensor):
        raise InvalidArgument(f"{caller()}: {name} must be a Tensor or an array, got {type(value).__name__}")
    return value
