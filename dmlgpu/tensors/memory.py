"""Memory of tensors: a buffer of a device, or a node of a graph that will compute the elements.

While a function is traced, its calls of operators become nodes of the trace, which is such a graph.
"""

from __future__ import annotations

import functools
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, cast

from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.sizes.arithmetic import inside, is_inside

if TYPE_CHECKING:
    from dmlgpu.catalog.operator_desc import OperatorDesc
    from dmlgpu.runtime.device import Device

NOTHING: Any = MappingProxyType({})
"""The default of parameters that are mappings."""


class TensorMemory(Protocol):
    """The memory that a tensor views: a ``Buffer`` of a device, or a ``NodeMemory``."""

    @property
    def device(self) -> Device:
        """Device of the elements."""

    @property
    def released(self) -> bool:
        """Whether the memory was released; then it must not be used."""

    def release(self) -> None:
        """Release the memory."""


@dataclass(frozen=True)
class Origin:
    """Source of a value in a graph.

    Attributes:
        kind: ``input``, ``constant`` or ``operator``.
        number: index of the graph's input or node.
        output: flat index among the node's outputs.
    """

    kind: str
    number: int
    output: int = 0


class Recorder(ABC):
    """Recorder of operators: a ``Graph``, or the trace of a function."""

    is_traced = False
    """True for the trace of a function."""

    @abstractmethod
    def _call(
        self,
        label: str,
        kind: type[OperatorDesc],
        values: Mapping[str, Any],
        *,
        types: Mapping[str, Any],
        sizes: Mapping[str, Any],
        absent: Sequence[str],
        boolean: bool,
        name: str | None,
        device: Any,
    ) -> tuple[Any, ...]:
        """Add a call of an operator, for ``execution.call_op``, and return its outputs."""

    def _call_input(self, source: Any, count: int, data_type: Any, sizes: Any, device: Any) -> Any:
        """Return a tensor of the traced function whose value is new at every call."""
        raise NotImplementedError

    def _number(self, value: int | float, data_type: Any) -> Any:
        """Return a number as a tensor of one element."""
        raise NotImplementedError

    @abstractmethod
    def _check_at_calls(self, tensor: Any, low: int, high: int, check: Callable[[Any, int, int], None]) -> None:
        """Let calls of a traced function check the elements of an argument that they pass as an array."""

    @abstractmethod
    def _reject_reading(self) -> NoReturn:
        """Raise InvalidState: a tensor has no elements yet."""


class NodeMemory:
    """An input, a constant or an operator's output of a graph, in place of a buffer.

    Attributes:
        graph: The graph.
        origin: The node or input that computes it.
        desc: Its description, as a whole.
        argument: Number of the argument of a traced function; None for other values.
        released: Whether the traced function released it.
    """

    def __init__(self, graph: Any, origin: Origin, desc: TensorDesc, argument: int | None = None):
        self.graph, self.origin, self.desc, self.argument = graph, origin, desc, argument
        self.released = False

    @property
    def device(self) -> Any:
        """Device for which the graph will be compiled."""
        return self.graph.device

    def release(self) -> None:
        """Mark the memory as released: later operators raise InvalidState."""
        self.released = True

    def _reject(self, *_: Any) -> Any:
        """Raise InvalidState with the reason why there are no elements."""
        check_readable()
        self.graph._reject_reading()

    read = write = _reject
    _memory = property(_reject)


current_caller: ContextVar[str | None] = ContextVar("dmlgpu_caller", default=None)
"""The function that the user called, for messages; None outside of ``calls.eager`` and ``calls.named``."""

_recorder: ContextVar[Recorder | None] = ContextVar("dmlgpu_recorder", default=None)
_tracing: ContextVar[Recorder | None] = ContextVar("dmlgpu_tracing", default=None)

tapes: ContextVar[tuple[Any, ...]] = ContextVar("dmlgpu_tapes", default=())
"""The tapes of ``gradients/`` that record calls of operators."""


def recorder() -> Recorder | None:
    """Return the trace that records operators; None if they run at once."""
    return _recorder.get()


def trace_in_progress() -> Recorder | None:
    """Return the trace of which a call is part, even if its operators run at once because it is called on arrays."""
    return _tracing.get()


def check_readable() -> None:
    """Reject reading the elements of a tensor while a function is traced.

    Raises:
        InvalidState: If a function is being traced; the message names the line.
    """
    trace = _recorder.get()
    if trace is not None:
        trace._reject_reading()


@contextmanager
def recorded_by(trace: Recorder | None) -> Iterator[None]:
    """Let a trace record the operators that this thread calls inside; None lets them run."""
    token = _recorder.set(trace)
    outer = _tracing.set(_tracing.get() if trace is None else trace)
    try:
        yield
    finally:
        _tracing.reset(outer)
        _recorder.reset(token)


def unrecorded() -> Any:
    """Run operators at once inside, even if a function is being traced."""
    return recorded_by(None)


@contextmanager
def untaped() -> Iterator[tuple[Any, ...]]:
    """Disable all tapes in the context; yields the disabled tapes."""
    present = tapes.get()
    token = tapes.set(())
    try:
        yield present
    finally:
        tapes.reset(token)


@contextmanager
def outer_tapes() -> Iterator[None]:
    """Disable the innermost tape in the context: for it alone, results computed inside are constants."""
    token = tapes.set(tapes.get()[:-1])
    try:
        yield
    finally:
        tapes.reset(token)


_PACKAGE = __name__.partition(".")[0]


def in_package(frame: FrameType) -> bool:
    """Return whether a frame runs code of this package."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == _PACKAGE


def is_decided_inside() -> bool:
    """Return whether code of this package decides by a size, and not the code that builds the graph."""
    return is_inside() or current_caller.get() is not None


Method = TypeVar("Method", bound=Callable[..., Any])


def decides(method: Method) -> Method:
    """Wrap a method of tensors that decides by sizes: for tensors of graphs, these are decisions of this package."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if type(self.buffer) is not NodeMemory:
            return method(self, *args, **kwargs)
        with inside():
            return method(self, *args, **kwargs)

    wrapped: Any = call
    wrapped.__code__ = wrapped.__code__.replace(co_name=method.__name__)  # in tracebacks and messages
    return cast(Method, wrapped)


def caller() -> str:
    """Return ``file:line`` of the innermost frame outside this package; files below the working directory relative."""
    frame = sys._getframe(1)
    while frame.f_back is not None and in_package(frame):
        frame = frame.f_back
    path = frame.f_code.co_filename.removeprefix(os.path.join(os.getcwd(), ""))
    return f"{path}:{frame.f_lineno}"
