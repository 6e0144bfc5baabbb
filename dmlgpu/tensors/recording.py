"""Functions that are being traced: their calls of operators go to a recorder, and computed elements are not there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

from dmlgpu.common.errors import InvalidState

if TYPE_CHECKING:
    from dmlgpu.catalog.operator_desc import OperatorDesc
    from dmlgpu.catalog.tensor_desc import TensorDesc
    from dmlgpu.runtime.device import Device
    from dmlgpu.tensors.execution import OperatorCall


class Recorder(ABC):
    """Takes the calls of operators that a function makes while it is traced."""

    @abstractmethod
    def call(self, caller: str, kind: type[OperatorDesc], values: Mapping[str, Any], device: Any) -> OperatorCall:
        """Return a call that takes its operands for the recorder."""

    @abstractmethod
    def record(
        self, call: Any, types: Mapping[str, Any], sizes: Mapping[str, Any], absent: Sequence[str]
    ) -> tuple[Sequence[Any], Sequence[TensorDesc | None]]:
        """Take a call of its own, and return what stands for the memory of its outputs, and their tensors."""

    @abstractmethod
    def refuse_reading(self) -> NoReturn:
        """Raise an InvalidState that says which line asked for a tensor's elements."""


class RecordedMemory:
    """Stands for the buffer of a tensor while a function is traced.

    Attributes:
        device: where it will lie.
        released: whether the function released it.
    """

    def __init__(self, device: Device):
        self.device, self.released = device, False

    def release(self) -> None:
        """Let no later operator of the function read it."""
        self.released = True

    def _refuse(self, *_: Any) -> NoReturn:
        """Raise an InvalidState that says why there are no elements."""
        refuse_reading()
        raise InvalidState(
            "Tensor: it was made while a function was traced, and has no elements; a compiled function must return "
            "what is used outside"
        )

    read = write = _refuse
    _memory = property(_refuse)


_recorder: ContextVar[Recorder | None] = ContextVar("dmlgpu_recorder", default=None)


def recorder() -> Recorder | None:
    """Return who takes the calls of operators, None where they run at once."""
    return _recorder.get()


def refuse_reading() -> None:
    """Refuse that a tensor's elements are looked at while a function is traced.

    Raises:
        InvalidState: one is; names the line.
    """
    found = _recorder.get()
    if found is not None:
        found.refuse_reading()


@contextmanager
def recorded_by(taking: Recorder | None) -> Iterator[None]:
    """Let a recorder take the calls of operators that are made inside, in this thread; None lets them run."""
    token = _recorder.set(taking)
    try:
        yield
    finally:
        _recorder.reset(token)


def unrecorded() -> Any:
    """Let operators run at once inside, although a function may be traced."""
    return recorded_by(None)
