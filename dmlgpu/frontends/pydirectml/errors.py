"""Exceptions that are dmlgpu's and also what scripts catch: pybind11 and DirectMLX raise TypeError and RuntimeError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dmlgpu.common.errors import AdapterNotFound, InvalidArgument, InvalidDescription, NotSupported


class WrongArgument(InvalidArgument, TypeError):
    """An argument is missing, superfluous or of the wrong kind."""


class InvalidCall(InvalidArgument, RuntimeError):
    """Arguments are of the right kinds and do not fit each other, a graph or a device."""


class InvalidOperator(InvalidDescription, RuntimeError):
    """An operator's rules are broken."""


class Unsupported(NotSupported, RuntimeError):
    """The adapter lacks what is asked for."""


class NoAdapter(AdapterNotFound, RuntimeError):
    """No adapter has the name that is asked for."""


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
        raise Unsupported(str(error)) from None
    except AdapterNotFound as error:
        raise NoAdapter(error.wanted, error.available, error.why) from None
