"""What functions on tensors share: arrays in and arrays out, one device, messages in the words of what was called."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common import coercion as kinds
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.shared import as_device
from dmlgpu.tensors.execution import apply
from dmlgpu.tensors.preparation import short
from dmlgpu.tensors.recording import unrecorded
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

_caller: ContextVar[str | None] = ContextVar("dmlgpu_caller", default=None)


def caller() -> str:
    """Return the name of the function that the user called, for messages."""
    return _caller.get() or "dmlgpu.ops"


def named(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make a function on tensors one whose messages name it, whatever it calls itself."""
    name = function.__name__

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if _caller.get() is not None:
            return function(*args, **kwargs)
        token = _caller.set(name)
        try:
            return function(*args, **kwargs)
        except InvalidArgument as error:
            inner, _, rest = str(error).partition(": ")
            if type(error) is not InvalidArgument or inner == name or not inner.startswith(_INNER):
                raise
            raise InvalidArgument(f"{name}: {rest}") from error
        finally:
            _caller.reset(token)

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
    places = tuple(number for number, parameter in enumerate(code.co_varnames[:count]) if parameter in operands)

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if _caller.get() is not None:
            return function(*args, **kwargs)
        token = _caller.set(name)
        try:
            device: Any = kwargs.get("device")
            given = [args[place] for place in places if place < len(args)]
            given += [value for key, value in kwargs.items() if key in operands]
            has_arrays, on = _look(given, device)
            if device is not None:
                device = kwargs["device"] = as_device(name, device)
                if on is not None and device is not on:
                    raise InvalidArgument(
                        f"{name}: device must be that of the tensors, '{on.adapter}', got another, '{device.adapter}'; "
                        "x.to(device) copies them"
                    )
            if not has_arrays:
                return function(*args, **kwargs)
            target = on or as_device(name, device)
            changed = [
                _on(target, name, code.co_varnames[place], value) if place in places else value
                for place, value in enumerate(args)
            ]
            named = {key: _on(target, name, key, value) if key in operands else value for key, value in kwargs.items()}
            if on is not None:
                return function(*changed, **named)  # type: ignore[arg-type]
            with unrecorded():
                return _to_host(function(*changed, **named))  # type: ignore[arg-type]
        except TypeError as error:
            raise _with_right_name(error, function, kwargs) from None
        finally:
            _caller.reset(token)

    return call


RENAMED = {
    "data_type": "dtype",
    "dim": "axis",
    "epsilon": "eps",
    "filter": "weight",
    "heads": "num_heads",
    "keepdim": "keepdims",
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


def _look(given: list[Any], device: Any) -> tuple[bool, Device | None]:
    """Return whether there are arrays among operands, and the device of the first tensor."""
    has_arrays, on = False, None
    for value in given:
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, Tensor):
                on = on or one.device
            elif isinstance(one, np.ndarray):
                has_arrays = True
    return has_arrays, on


def _on(device: Device, caller: str, name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        as_array(caller, name, value, None)
        return Tensor(value, device=device)
    if isinstance(value, list | tuple):
        return [_on(device, caller, f"{name}[{number}]", one) for number, one in enumerate(value)]
    return value


def _to_host(result: Any) -> Any:
    if isinstance(result, Tensor):
        return result.numpy()
    if isinstance(result, tuple):
        parts = [_to_host(one) for one in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return result


def several(
    kind: type[OperatorDesc],
    values: Mapping[str, Any],
    *,
    types: Mapping[str, Any] | None = None,
    sizes: Mapping[str, Any] | None = None,
    wanted: Mapping[str, bool] | None = None,
    device: Any = None,
) -> tuple[Any, ...]:
    """Run an operator and return its outputs, None for absent ones.

    Args:
        kind: the operator's description.
        values: tensors, numbers and attributes by field.
        types: data types of outputs, None for the usual one.
        sizes: sizes of outputs, None for those that follow from the inputs.
        wanted: whether optional outputs are computed.
        device: where an operator without inputs runs.

    Raises:
        InvalidArgument, InvalidState, NotSupported, OutOfMemory: as ``execution.apply``.
    """
    name = _caller.get() or kind.operator.lower()
    return apply(
        Tensor,
        name,
        kind,
        values,
        types={field: given for field, given in (types or {}).items() if given is not None},
        sizes={field: given for field, given in (sizes or {}).items() if given is not None},
        absent=[
            field
            for field, present in (wanted or {}).items()
            if not kinds.argument(name, short(field), kinds.boolean, present)
        ],
        device=device,
    )


def single(kind: type[OperatorDesc], values: Mapping[str, Any], **options: Any) -> Any:
    """Run an operator with one output; see ``several``."""
    return several(kind, values, **options)[0]


def filled(like: Tensor, sizes: Sequence[int], number: float = 0, data_type: DataType | None = None) -> Tensor:
    """Return a tensor of one number on the device of another, in its type unless another is named."""
    kind = data_type or like.data_type
    return Tensor(np.full(tuple(sizes), number, kind.numpy), kind, device=like.device)


def tensor_of(name: str, value: Any) -> Tensor:
    """Return an operand of the function that was called, which must be a tensor by now.

    Raises:
        InvalidArgument: it is none, and was no array either.
    """
    if not isinstance(value, Tensor):
        raise InvalidArgument(f"{caller()}: {name} must be a Tensor or an array, got {type(value).__name__}")
    return value
