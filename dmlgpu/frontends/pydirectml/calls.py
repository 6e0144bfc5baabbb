"""Conversion of arguments as by pybind11 for the types of the C++ functions, and the exceptions.

A parameter's annotation selects its kind. Booleans are accepted as integers and numbers, and numbers as booleans;
enumerations accept only their members.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum, IntFlag
from typing import Annotated, Any, ParamSpec, TypeVar, Union

import numpy as np

from dmlgpu.common import coercion
from dmlgpu.common.errors import AdapterNotFound, InvalidArgument, InvalidDescription, NotSupported, shown


class WrongArgument(InvalidArgument, TypeError):
    """An argument is missing, superfluous or of the wrong kind."""


class InvalidCall(InvalidArgument, RuntimeError):
    """Arguments are of the right kinds and do not fit each other, a graph or a device."""


class InvalidOperator(InvalidDescription, RuntimeError):
    """An operator's rules are broken."""


class UnsupportedOperator(NotSupported, RuntimeError):
    """The adapter lacks a required feature."""


class NoAdapter(AdapterNotFound, RuntimeError):
    """No adapter has the requested name."""


@contextmanager
def reporting() -> Iterator[None]:
    """Turn dmlgpu's exceptions into those that are also a RuntimeError."""
    try:
        yield
    except (WrongArgument, RuntimeError):
        raise
    except InvalidDescription as error:
        raise InvalidOperator(error.operator, error.field, error.reason) from None
    except InvalidArgument as error:
        raise InvalidCall(str(error)) from None
    except NotSupported as error:
        raise UnsupportedOperator(str(error)) from None
    except AdapterNotFound as error:
        raise NoAdapter(error.requested, error.available, error.why) from None


Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

UINT64 = coercion.between(0, 2**64 - 1)
INT32 = coercion.between(-(2**31), 2**31 - 1)


class _Required:
    """The default of a required parameter that follows optional ones."""

    def __repr__(self) -> str:
        return "<required>"


REQUIRED: Any = _Required()


def uint32(value: Any) -> int:
    """Accept unsigned 32-bit integers, and booleans."""
    return _UINT32(int(value) if isinstance(value, bool | np.bool_) else value)


_UINT32 = coercion.between(0, 2**32 - 1)


def real(value: Any) -> float:
    """Accept real numbers, and booleans."""
    return float(value) if isinstance(value, bool | np.bool_) else coercion.real(value)


def truth(value: Any) -> bool:
    """Accept booleans, numbers and None, which is False."""
    if value is not None and not isinstance(value, bool | np.bool_ | numbers.Number):
        raise coercion.CoercionError("a bool", value)
    return bool(value)


_SIMPLE: dict[Any, coercion.Converter[Any]] = {int: uint32, float: real, bool: truth}
_PLURALS = {int: "integers", float: "numbers"}


def surface(function: Callable[Parameters, Returned], label: str = "") -> Callable[Parameters, Returned]:
    """Wrap a function to convert arguments and raise exceptions like PyDirectML.

    Args:
        function: A function with annotated parameters.
        label: Start of messages; defaults to the function's name.

    Raises:
        TypeError: If an annotation is not a type of PyDirectML (at the first call).
    """
    signature = inspect.signature(function)
    title = label or function.__qualname__.removesuffix(".__init__")
    converters: dict[str, coercion.Converter[Any]] = {}

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        if not converters:
            hints = typing.get_type_hints(function, include_extras=True)
            hints.pop("return")
            converters.update({name: converter(hint) for name, hint in hints.items() if hint is not Any})
        bound = _bind(title, signature, args, kwargs)
        for name, value in bound.arguments.items():
            if name in converters:
                bound.arguments[name] = argument(title, name, converters[name], value)
        with reporting():
            return function(*bound.args, **bound.kwargs)

    return call


def _bind(
    label: str, signature: inspect.Signature, args: Sequence[Any], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    """Return arguments by parameter, defaults included.

    Raises:
        WrongArgument: If one is missing, superfluous or given twice.
    """
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise WrongArgument(f"{label}: {error}; it takes {_names(signature)}") from None
    bound.apply_defaults()
    for name, value in bound.arguments.items():
        if value is REQUIRED:
            raise WrongArgument(f"{label}: missing a required argument: {name!r}; it takes {_names(signature)}")
    return bound


def _names(signature: inspect.Signature) -> str:
    taken = [
        name if parameter.default in (inspect.Parameter.empty, REQUIRED) else f"{name}={parameter.default!r}"
        for name, parameter in signature.parameters.items()
        if name != "self"
    ]
    return f"({', '.join(taken)})"


def argument(label: str, name: str, convert: coercion.Converter[Any], value: Any) -> Any:
    """Convert an argument to its kind.

    Raises:
        WrongArgument: If it is of another kind.
    """
    try:
        return convert(value)
    except coercion.CoercionError as wrong:
        raise WrongArgument(f"{label}: {name}{wrong.where} {wrong.describe()}") from None


def converter(hint: Any) -> coercion.Converter[Any]:
    """Return the converter for an annotation: a number, an enumeration, a class, an optional one or a sequence."""
    if typing.get_origin(hint) is Annotated:
        conversion: coercion.Converter[Any] = hint.__metadata__[0]
        return conversion
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if typing.get_origin(hint) in (Union, types.UnionType):
        (kind,) = (part for part in typing.get_args(hint) if part is not type(None))
        return coercion.optional(converter(kind))
    if typing.get_origin(hint) is Sequence:
        (kind,) = typing.get_args(hint)
        return coercion.tuple_of(converter(kind), _plural(kind))
    if not isinstance(hint, type):
        raise TypeError(f"not a type of PyDirectML: {shown(hint)}")
    return coercion.instance_of(hint, _described(hint))


def _described(cls: type[Any]) -> str:
    article = "an" if cls.__name__[0] in "AEIOU" else "a"
    if not issubclass(cls, IntEnum | IntFlag):
        return f"{article} {cls.__name__}"
    members = list(cls.__members__)
    listed = ", ".join(members if len(members) <= 12 else [*members[:3], "..."])
    return f"{article} {cls.__name__} ({listed})"


def _plural(kind: Any) -> str:
    if typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]
    if kind in _PLURALS:
        return _PLURALS[kind]
    named = next((part for part in (kind, *typing.get_args(kind)) if isinstance(part, type)), kind)
    if isinstance(kind, types.UnionType):
        return f"{named.__name__}s or None"
    return f"{named.__name__}s"
