"""Common code of functions on tensors: arrays in and arrays out, one device, messages that name the called function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType, as_elements
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS
from dmlgpu.common.errors import DmlError, InvalidArgument, NotSupported, cause_of, shown
from dmlgpu.runtime.device import Device, as_device
from dmlgpu.tensors.array_like import as_operand
from dmlgpu.tensors.execution import check_device
from dmlgpu.tensors.keywords import ALIASES, with_right_name
from dmlgpu.tensors.memory import current_caller, unrecorded
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import as_array, as_data_type, is_boolean_type

Operand: TypeAlias = Tensor | NDArray[Any] | float
"""Operands of functions: tensors, arrays and numbers."""

Array: TypeAlias = Any
"""Result of functions: a Tensor, or an NDArray if all operands are arrays, which type checkers cannot tell."""

Where: TypeAlias = Device | str | None
"""Device for arrays: a device, the name of an adapter, or None for ``default_device()``."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_INNER = "Tensor", "a ", "-a", "~a", "abs(a)"
"""Beginnings of error messages of tensors' own methods and operators."""


_PLAIN = frozenset({Tensor, np.ndarray, float, int, bool, type(None)})
"""Types of operands that need no conversion."""


_copied: ContextVar[Sequence[tuple[Tensor, NDArray[Any]]]] = ContextVar("dmlgpu_copied", default=())
"""The operands of the user's call that were arrays or lists: their copies on the device, and the arrays."""


_passed: ContextVar[Sequence[tuple[Tensor, NDArray[Any]]]] = ContextVar("dmlgpu_passed", default=())
"""The same for the arguments of functions that are being differentiated or vectorized."""


def caller() -> str:
    """Return the name of the function that the user called, for messages."""
    return current_caller.get() or "dmlgpu.ops"


def host_elements(x: Tensor) -> NDArray[Any] | None:
    """Return the elements of an operand that the user's call passed as an array or a list; None for tensors."""
    return next((array for tensor, array in (*_copied.get(), *_passed.get()) if tensor is x), None)


@contextmanager
def passed(copies: Sequence[tuple[Tensor, NDArray[Any]]]) -> Iterator[None]:
    """Register tensors as copies of arrays for the functions that are called inside."""
    token = _passed.set((*_passed.get(), *copies))
    try:
        yield
    finally:
        _passed.reset(token)


def named(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Wrap a function of tensors so that error messages name it instead of functions that it calls."""
    name = function.__name__

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if current_caller.get() is not None:
            return function(*args, **kwargs)
        token = current_caller.set(name)
        try:
            return function(*args, **kwargs)
        except DmlError as error:
            inner, _, rest = str(error).partition(": ")
            if type(error) is not InvalidArgument or inner == name or not inner.startswith(_INNER):
                raise error.concise() from error.__cause__
            raise InvalidArgument(f"{name}: {rest}") from cause_of(error)
        finally:
            current_caller.reset(token)

    return call


def eager(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Wrap a function of tensors so that it accepts arrays as well.

    If an operand is a tensor, arrays are copied to its device, and results are tensors. If all are arrays, they are
    copied to ``device``, and results are arrays. Operands are the parameters annotated as ``Operand``. Error messages
    name the function instead of functions that it calls.
    """
    name = function.__name__
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    operands = {parameter for parameter in code.co_varnames[:count] if "Operand" in function.__annotations__[parameter]}
    sequences = {parameter for parameter in operands if "Sequence" in function.__annotations__[parameter]}
    parameters = code.co_varnames[:count]
    rest = (code.co_varnames[count], code.co_argcount) if code.co_flags & inspect.CO_VARARGS else None
    named_places = tuple(index for index, parameter in enumerate(parameters) if parameter in operands)

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if current_caller.get() is not None:
            return function(*args, **kwargs)
        positional: Any = args
        keywords: Any = kwargs
        copies: list[tuple[Tensor, NDArray[Any]]] = []
        token, token_of_copies = current_caller.set(name), _copied.set(copies)
        try:
            if not kwargs.keys().isdisjoint(ALIASES):
                keywords = {ALIASES.get(key, key): value for key, value in kwargs.items()}
            device: Any = keywords.get("device")
            names, places = _with_rest(parameters, named_places, rest, args) if rest else (parameters, named_places)
            values = [args[place] for place in places if place < len(args)]
            values += [value for key, value in keywords.items() if key in operands]
            if not all(type(value) in _PLAIN for value in values):
                positional = tuple(
                    as_operand(name, names[place], value, names[place] in sequences) if place in places else value
                    for place, value in enumerate(args)
                )
                keywords = {
                    key: as_operand(name, key, value, key in sequences) if key in operands else value
                    for key, value in keywords.items()
                }
                values = [positional[place] for place in places if place < len(args)]
                values += [value for key, value in keywords.items() if key in operands]
            has_arrays, first = _look(values)
            if device is not None:
                device = as_device(name, device)
                keywords = {**keywords, "device": device}
                if first is not None:
                    check_device(name, device, first.device)
            if not has_arrays:
                return function(*positional, **keywords)
            target = as_device(name, device) if first is None else first
            positional = tuple(
                _on(target, name, names[place], value, copies) if place in places else value
                for place, value in enumerate(positional)
            )
            keywords = {
                key: _on(target, name, key, value, copies) if key in operands else value
                for key, value in keywords.items()
            }
            if first is not None:
                return function(*positional, **keywords)
            with unrecorded():
                return _to_host(function(*positional, **keywords))
        except DmlError as error:
            tensors = {**dict(zip(names, positional, strict=False)), **keywords}
            error = _in_words_of_call(error, name, tensors, {**dict(zip(names, args, strict=False)), **kwargs})
            raise error.concise() from error.__cause__
        except TypeError as error:
            raise with_right_name(error, function, kwargs) from None
        finally:
            _copied.reset(token_of_copies)
            current_caller.reset(token)

    return call


def _with_rest(
    names: Sequence[str], places: Sequence[int], rest: tuple[str, int], args: Sequence[Any]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names and positions of operands of a variadic call, f(*arrays)."""
    name, first = rest
    several = range(first, len(args))
    return (
        (*names[:first], *(f"{name}[{place - first}]" for place in several)),
        (*(place for place in places if place < first), *several),
    )


def _in_words_of_call(error: DmlError, caller: str, tensors: Mapping[str, Any], passed: Mapping[str, Any]) -> DmlError:
    """Rephrase an error about an operator's operand in terms of the parameter for which the user passed it.

    Args:
        error: Exception of an operator.
        caller: The function that the user called.
        tensors: Operands of the operators, by parameter.
        passed: The user's arguments, by parameter.
    """
    if type(error) is not InvalidArgument or error.operand is None:
        return error
    for parameter, value in tensors.items():
        several = value if isinstance(value, list | tuple) else (value,)
        for index, tensor in enumerate(several):
            if isinstance(tensor, Tensor) and tensor.buffer is error.operand.buffer:
                name = f"{parameter}[{index}]" if several is value else parameter
                inner, text = error.operand_name, str(error)
                text = text.replace(f"{caller}: {inner}", f"{caller}: {name}", 1)
                has_astype = several is value or isinstance(passed.get(parameter), Tensor | np.ndarray)
                call = f"{name}.astype(" if has_astype else f"ops.astype({name}, "
                renamed = InvalidArgument(text.replace(f"{inner}.astype(", call)).with_traceback(error.__traceback__)
                renamed.__cause__ = error.__cause__
                return renamed
    return error


def _look(values: list[Any]) -> tuple[bool, Tensor | None]:
    """Return whether operands include arrays, and the first tensor, preferably one of a graph."""
    has_arrays, first = False, None
    for value in values:
        for operand in value if isinstance(value, list | tuple) else (value,):
            if isinstance(operand, Tensor):
                if first is None or (first.graph is None and operand.graph is not None):
                    first = operand
            elif isinstance(operand, np.ndarray):
                has_arrays = True
    return has_arrays, first


def _on(target: Device | Tensor, caller: str, name: str, value: Any, copies: list[tuple[Tensor, NDArray[Any]]]) -> Any:
    """Copy the arrays of an operand to a device, or to that of a tensor; record the copies."""
    if isinstance(value, np.ndarray):
        as_array(caller, name, value, None)
        if value.ndim > MAX_DIMENSIONS:
            raise InvalidArgument(f"{caller}: {name} must have at most {MAX_DIMENSIONS} dimensions, got {value.ndim}")
        copy = Tensor(value, device=target) if isinstance(target, Device) else target._beside(value)
        copies.append((copy, value))
        return copy
    if isinstance(value, list | tuple):
        return [_on(target, caller, f"{name}[{index}]", operand, copies) for index, operand in enumerate(value)]
    return value


def _to_host(result: Any) -> Any:
    if isinstance(result, Tensor):
        return result.numpy()
    if isinstance(result, tuple):
        parts = [_to_host(part) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return [_to_host(part) for part in result] if isinstance(result, list) else result


UNSUPPORTED = ("float64", "complex64", "complex128")
"""Names of the array API standard's dtypes that adapters cannot compute."""

FLOATING = "floating-point"
NUMERIC = "integer or floating-point"
ANY = "boolean or integer or floating-point"


def as_type(dtype: Any) -> Any:
    """Return a dtype as ``Tensor`` takes it: a ``DataType``, or ``bool``.

    Raises:
        InvalidArgument: If it is not a dtype.
        NotSupported: If adapters cannot compute it.
    """
    if is_boolean_type(dtype):
        return bool
    try:
        name = np.dtype(dtype).name if dtype is not None else ""
    except Exception:  # whatever NumPy does not take for a dtype
        name = ""
    if name in UNSUPPORTED or dtype is DataType.FLOAT64:
        raise NotSupported(
            f"{caller()}: dtype must not be {name or 'float64'}, which adapters cannot compute; float32 is the widest "
            "floating-point type: dtype='float32', or x.astype('float32')"
        )
    data_type = as_data_type(caller(), "dtype", dtype)
    if data_type.bits < 8:
        raise InvalidArgument(f"{caller()}: dtype must be of 8 bits at least, got {data_type.name}")
    return data_type


def numeric_type(dtype: Any) -> DataType:
    """Return the ``DataType`` of a dtype, which must not be bool."""
    data_type = as_type(dtype)
    if data_type is bool:
        raise InvalidArgument(f"{caller()}: dtype must be a type of numbers, got bool")
    return data_type


def kind_of(x: Tensor) -> str:
    """Return the kind of a tensor's dtype: ``"boolean"``, ``"integer"`` or ``"floating-point"``."""
    if x.is_boolean:
        return "boolean"
    return "floating-point" if x.data_type.is_float else "integer"


def check_kind(name: str, x: Tensor, kind: str) -> Tensor:
    """Return an operand, which must be of a kind of dtypes, or of one of several: ``NUMERIC``.

    Raises:
        InvalidArgument: If it is not; names the function and the operand.
    """
    if kind_of(x) not in kind.split(" or "):
        is_integer = "integer" in kind and x.is_boolean
        target = "float32" if FLOATING in kind and not is_integer else "bool" if kind == "boolean" else "int64"
        raise InvalidArgument(
            f"{caller()}: {name} must be of a type of kind {kind}, got {x.type_name}; "
            f"{name}.astype('{target}') converts it"
        )
    return x


def word(name: str, value: Any, words: tuple[str, ...]) -> str:
    """Return an argument that must be one of a few words."""
    if not isinstance(value, str) or value not in words:
        raise InvalidArgument(f"{caller()}: {name} must be {' or '.join(map(repr, words))}, got {shown(value)}")
    return value


def filled(like: Tensor, sizes: Sequence[int], number: float = 0, data_type: DataType | None = None) -> Tensor:
    """Return a tensor of one number on the device of another, in its type unless another is named."""
    kind = data_type or like.data_type
    return like._beside(np.full(tuple(sizes), as_elements(kind, number)), kind)


def widened(x: Tensor) -> Tensor:
    """Return floats of 16 bits as float32, in which they are accumulated; other tensors as they are."""
    return x.astype(DataType.FLOAT32) if x.data_type.is_reduced_float else x


def tensor_of(name: str, value: Any) -> Tensor:
    """Return an operand of the function that was called, which must be a tensor after conversion.

    Raises:
        InvalidArgument: it is none, and was no array either.
    """
    if not isinstance(value, Tensor):
        raise InvalidArgument(f"{caller()}: {name} must be a Tensor or an array, got {type(value).__name__}")
    return value
