"""Exceptions. Each message names operator, field, expected and actual value."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

TRACEBACK_VARIABLE = "DMLGPU_TRACEBACK"
"""Environment variable that keeps the frames and causes inside dmlgpu in tracebacks, if it is ``full``."""

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"

_MAX_BITS = 256
_MAX_CHARACTERS = 80
_MAX_TEXT = 400


def shown(value: object, typed: bool = False) -> str:
    """Return a value for messages: the start of its repr, then its type if `typed`.

    A large integer is shown as its number of bits, since Python rejects more than 4,300 digits; an object whose repr
    fails, as its type.
    """
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # a foreign __repr__ may raise any exception
        return f"an object of type {type(value).__name__}"
    suffix = f" of type {type(value).__name__}" if typed and value is not None else ""
    return (text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 3] + "...") + suffix


def choice(names: Sequence[str]) -> str:
    """Return the names of the choices as messages list them."""
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


def cause_of(error: BaseException) -> BaseException | None:
    """Return the cause to chain to an exception: None, unless DMLGPU_TRACEBACK=full is set."""
    return error if os.environ.get(TRACEBACK_VARIABLE) == "full" else None


def warn_caller(message: str | Warning, category: type[Warning] | None = None) -> None:
    """Warn at the line of the first frame outside dmlgpu."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_PACKAGE, "<dmlgpu")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def counted(count: int, noun: str) -> str:
    """Return ``1 case``, ``1,200 cases``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def abridged(text: str) -> str:
    """Return a string of the caller for messages, truncated."""
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


class DmlError(Exception):
    """Base class of all exceptions of dmlgpu."""

    def concise(self) -> Self:
        """Return the exception without the frames and the cause inside dmlgpu, to be raised again at its border.

        Call it as ``raise error.concise() from error.__cause__``. DMLGPU_TRACEBACK=full keeps frames and cause.
        """
        if cause_of(self) is not None:
            return self
        self.__cause__ = None
        return self.with_traceback(None)


class InvalidArgument(DmlError, ValueError):
    """An argument breaks a documented rule (DirectML: E_INVALIDARG).

    Attributes:
        operand: the tensor that the message is about; None for other arguments.
        operand_name: its name in the message.
    """

    operand: Any = None
    operand_name = ""

    def about(self, operand: Any, name: str) -> Self:
        """Return the exception with its operand noted."""
        self.operand, self.operand_name = operand, name
        return self


@dataclass(frozen=True)
class DataTypeMismatch:
    """A tensor has a dtype that an operator does not take there.

    Attributes:
        field: the tensor, as written in Python.
        allowed: the names of the dtypes that the operator takes.
        actual: the name of the tensor's dtype.
        equal_to: the tensor whose dtype it must have; empty if that of no other.
        context: other conditions that the allowed dtypes depend on, in words.
    """

    field: str
    allowed: tuple[str, ...]
    actual: str
    equal_to: str = ""
    context: str = ""

    @property
    def target(self) -> str:
        """Name of the allowed dtype to convert to."""
        wide = ("INT64", "UINT64") if self.actual.endswith("INT64") else ()
        integers = (*wide, "INT32", "UINT32", "INT8", "UINT8")
        order = (*integers, "FLOAT32") if "INT" in self.actual else ("FLOAT32", "FLOAT16", *integers)
        return next((name for name in order if name in self.allowed), self.allowed[0])

    @property
    def reason(self) -> str:
        """Message for an operator's description."""
        expected = f"equal {self.equal_to}.data_type ({self.target})" if self.equal_to else f"be {choice(self.allowed)}"
        cast = f"CAST to {self.target} converts it"
        is_output = self.field.startswith("output")
        cure = cast if is_output else f"array.astype(np.{self.target.lower()}) or {cast}"
        unknown = self.actual == "UNKNOWN"  # an array has no such dtype
        return f"must {expected}{self.context}, got {self.actual}" + ("" if unknown else f"; {cure}")


class InvalidDescription(InvalidArgument):
    """An operator or tensor description breaks a rule.

    Attributes:
        operator: DirectML's name of the operator, ``GATHER_ND1``.
        field: Python name of the field, ``indices_tensor.sizes[-1]``.
        reason: The rest of the message: expected, got, why.
        mismatch: The dtypes, if they are the reason; else None.
    """

    mismatch: DataTypeMismatch | None = None

    def __init__(self, operator: str, field: str, reason: str):
        self.operator, self.field, self.reason = operator, field, reason
        super().__init__(f"{operator}: {field} {reason}")


class InvalidGraph(InvalidArgument):
    """A graph breaks a rule. The message names graph, node or edge, expected and got."""


class BindingError(InvalidArgument):
    """A binding is missing, superfluous, too small, misaligned, overlapping or of another device."""


class InvalidState(DmlError, RuntimeError):
    """An object is used in the wrong state: not initialized, released, a closed command list ..."""


class NotSupported(DmlError):
    """The adapter or feature level lacks a required feature or limit (DirectML: DXGI_ERROR_UNSUPPORTED)."""


class OperatorNotImplemented(NotSupported, NotImplementedError):
    """dmlgpu does not implement the operator."""

    def __init__(self, operator: str):
        self.operator = operator
        super().__init__(f"{operator}: dmlgpu does not implement this operator yet (see `dmlgpu ops`)")


class DeviceRemoved(DmlError, RuntimeError):
    """The device is removed (DirectML: DXGI_ERROR_DEVICE_REMOVED). The message has the reason; create a new device."""


class OutOfMemory(DmlError, MemoryError):
    """An allocation exceeds the adapter's limits or the device's memory budget."""


class TimedOut(DmlError, TimeoutError):
    """A timeout expired."""


class AdapterNotFound(DmlError, LookupError):
    """No adapter matches. The message lists all adapters and, if known, why others are missing."""

    def __init__(self, requested: object, available: Sequence[str], why: str = ""):
        self.requested, self.available, self.why = requested, tuple(available), why
        listing = "".join(f"\n  {index}: {name}" for index, name in enumerate(available))
        because = f": {why}" if why else ""
        super().__init__(f"no adapter matches {shown(requested)}{because}; available adapters:{listing or ' none'}")


class ShaderError(DmlError):
    """A shader does not compile. The message has the operator, the lines around the error, and their template."""


class ModelError(InvalidArgument):
    """A model file is malformed.

    Attributes:
        path: Position in the file as a dotted path, ``$.dispatchables.gather.desc.Axis``.
    """

    def __init__(self, path: str, reason: str):
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")
