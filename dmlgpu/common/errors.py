"""The exceptions of dmlgpu. Each message names operator, field, what was expected, what was given and why."""

from __future__ import annotations

from collections.abc import Sequence

_MOST_BITS = 256
_MOST_CHARACTERS = 80
_MOST_TEXT = 400


def shown(value: object, typed: bool = False) -> str:
    """Return a value as messages show it: the beginning of its repr, then its type where that is wanted.

    A long integer comes as its number of bits, since Python refuses to write those of more than 4,300 digits; an object
    whose repr fails as its type.
    """
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # whatever a foreign __repr__ raises
        return f"an object of type {type(value).__name__}"
    suffix = f" of type {type(value).__name__}" if typed and value is not None else ""
    return (text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "...") + suffix


def abridged(text: str) -> str:
    """Return a caller's text as messages hold it: the beginning of a long one."""
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 3] + "..."


class DmlError(Exception):
    """Base of every exception that dmlgpu raises on purpose."""


class InvalidArgument(DmlError, ValueError):
    """An argument breaks a documented rule (DirectML: E_INVALIDARG)."""


class InvalidDescription(InvalidArgument):
    """An operator or tensor description breaks a rule.

    Attributes:
        operator: DirectML's operator name, ``GATHER_ND1``.
        field: the offending field as written in Python, ``indices_tensor.sizes[-1]``.
        reason: the rest of the sentence: expected, given, why.
    """

    def __init__(self, operator: str, field: str, reason: str):
        self.operator, self.field, self.reason = operator, field, reason
        super().__init__(f"{operator}: {field} {reason}")


class InvalidGraph(InvalidArgument):
    """A graph breaks a rule: the message names the graph, the node or edge, what was expected and what was given."""


class BindingError(InvalidArgument):
    """A resource cannot be bound there: missing, superfluous, too small, unaligned, overlapping, foreign."""


class InvalidState(DmlError, RuntimeError):
    """An object is used at the wrong time: before initialisation, after release, a closed command list ..."""


class NotSupported(DmlError):
    """The adapter or the feature level lacks what is asked for (DirectML: DXGI_ERROR_UNSUPPORTED)."""


class OperatorNotImplemented(NotSupported, NotImplementedError):
    """dmlgpu does not implement this operator yet."""

    def __init__(self, operator: str):
        self.operator = operator
        super().__init__(f"{operator}: dmlgpu does not implement this operator yet (see `dmlgpu ops`)")


class DeviceRemoved(DmlError, RuntimeError):
    """The device is gone (DirectML: DXGI_ERROR_DEVICE_REMOVED); the message says why, a new device is the cure."""


class OutOfMemory(DmlError, MemoryError):
    """An allocation exceeds the adapter's limits or the device's memory budget."""


class TimedOut(DmlError, TimeoutError):
    """A time limit passed."""


class AdapterNotFound(DmlError, LookupError):
    """No adapter matches; the message lists those that exist, and says why there are no others where that is known."""

    def __init__(self, requested: object, available: Sequence[str], why: str = ""):
        self.requested, self.available, self.why = requested, tuple(available), why
        listing = "".join(f"\n  {index}: {name}" for index, name in enumerate(available))
        because = f": {why}" if why else ""
        super().__init__(f"no adapter matches {shown(requested)}{because}; available adapters:{listing or ' none'}")


class ShaderError(DmlError):
    """A rendered shader does not compile: operator, the lines around the error, and the template they came from."""


class ModelError(InvalidArgument):
    """A model file is malformed.

    Attributes:
        path: where in the file, as a dotted path such as ``$.dispatchables.gather.desc.Axis``.
    """

    def __init__(self, path: str, reason: str):
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")
