"""What the device layer asks of an executor. Three exist: ``dmlgpu.runtime.wgpu`` on wgpu,
``dmlgpu.runtime.browser`` in a browser's page and ``dmlgpu.runtime.numpy`` on NumPy.

The device layer checks every precondition before it calls an executor; an executor may trust its arguments.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common.timings import Timings
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.target import AdapterInfo, Target
from dmlgpu.runtime.specialization import Specializer

if TYPE_CHECKING:
    from dmlgpu.compiler.graph.network import Network


BufferType = TypeVar("BufferType")

WORD_BYTES = 4
"""Bytes of a word: sizes and offsets of whatever is written, read or copied are whole words, as WebGPU wants it."""


@dataclass(frozen=True)
class Range(Generic[BufferType]):
    """Bytes of a buffer; ``offset`` is a multiple of 16, ``size`` of 4.

    Attributes:
        buffer: an executor's own buffer; in the device layer a ``Buffer``, in a model the name of a resource.
    """

    buffer: BufferType
    offset: int
    size: int

    @property
    def end(self) -> int:
        """Return the offset of the first byte that follows."""
        return self.offset + self.size


@dataclass(frozen=True)
class Resources:
    """What one dispatch binds: flat inputs and outputs (None where absent or owned), temporary, persistent; and the
    data that the executable holds itself."""

    inputs: tuple[Range[Any] | None, ...]
    outputs: tuple[Range[Any] | None, ...]
    temporary: Range[Any] | None = None
    persistent: Range[Any] | None = None
    constants: tuple[Range[Any], ...] = ()


Dispatch = Any
"""One bound unit of work, made by an executable and given back to ``Backend.submit``."""


class Executable(Protocol):
    """An operator that is compiled for one executor.

    Attributes:
        temporary_size, persistent_size: bytes of these resources, whole words; 0 where none is needed.
    """

    temporary_size: int
    persistent_size: int

    @property
    def timings(self) -> Timings | None:
        """How long making it took, or None where nothing is compiled; once it is over."""
        return None

    def took(self, seconds: float) -> None:
        """Note how long making it took with all that came before: what no other part has is planning."""
        return None  # nothing is compiled

    def bind(self, resources: Resources) -> Sequence[Dispatch]:
        """Return the work of one execution on these resources."""

    def bind_initialization(self, resources: Resources) -> Sequence[Dispatch]:
        """Return the work that fills ``resources.persistent`` from the owned ones of ``resources.inputs``."""


@dataclass(frozen=True)
class Timing:
    """A measured time.

    Attributes:
        seconds: from the start of the first piece of work to the end of the last.
        source: ``gpu`` for timestamps of the device, ``wall clock`` for the host's time of submitting and waiting.
        parts: seconds of each piece of work by itself, where asked for and measured by the device; else empty.
        host_seconds: the host's time of recording, submitting and waiting.
    """

    seconds: float
    source: str
    parts: tuple[float, ...] = ()
    host_seconds: float = 0.0

    @classmethod
    def of_timestamps(cls, stamps: Sequence[tuple[float, float]], host_seconds: float, parts: bool) -> Self:
        """Return the time between timestamps in seconds, before and after each piece of work; the host's where they
        cannot be right: some drivers' are 0, or run backwards."""
        spans = tuple(end - start for start, end in stamps)
        total = stamps[-1][1] - stamps[0][0]
        if min(spans) < 0 or not 0 < total <= 2 * host_seconds:
            return cls(host_seconds, "wall clock", host_seconds=host_seconds)
        return cls(total, "gpu", spans if parts else (), host_seconds)


class Reading(Protocol):
    """Bytes on their way out of a buffer, as they were when all work submitted until then was done. Thread-safe.

    Dropping it gives back what it takes.
    """

    def is_done(self) -> bool:
        """Return whether ``result`` would wait no more."""

    def result(self, timeout: float | None = None) -> NDArray[np.uint8] | None:
        """Return the bytes, the same array each time; None when ``timeout`` seconds pass first."""


class Backend(Protocol):
    """One adapter's executor.

    Attributes:
        specializer: decides which programs have their sizes in the text, where there are programs.
        lost_by_fork: why a forked child cannot use it; None where it can.
    """

    info: AdapterInfo
    target: Target
    specializer: Specializer
    lost_by_fork: str | None = None

    def check(self, desc: Any) -> None:
        """Find out without touching the device whether ``compile`` can succeed: lower and render, compile nothing.

        The device layer calls this, with a valid description, when an operator is created and for feature queries.

        Raises:
            OperatorNotImplemented: the executor does not have this operator at all.
            NotSupported: the adapter lacks what the operator needs for these types or sizes; the message names the
                operator, the type and the missing feature or limit.
        """

    def compile(self, desc: Any, half_precision: bool = False, preserve_padding: bool = False) -> Executable:
        """Make a checked and upgraded operator description ready to run.

        Args:
            desc: the description.
            half_precision: native 16-bit arithmetic is allowed.
            preserve_padding: executions change no bit of the outputs but those of their elements.
        """

    def compile_graph(
        self, network: Network, half_precision: bool = False, disabled: Collection[str] = ()
    ) -> Executable:
        """Make a checked network ready to run, without the passes whose names are in ``disabled``.

        Raises:
            InvalidArgument: when one of them is no pass.
            NotSupported: the adapter lacks what a node needs; the message names it.
        """

    def create_buffer(self, size: int, label: str) -> Any:
        """Allocate ``size`` bytes (a multiple of 4), zeroed. Raises OutOfMemory."""

    def destroy_buffer(self, buffer: Any) -> None:
        """Give a buffer's memory back."""

    def write(self, buffer: Any, offset: int, data: NDArray[np.uint8]) -> None:
        """Put bytes (offset and length multiples of 4) into a buffer, after all submitted work."""

    def read(self, buffer: Any, offset: int, size: int) -> NDArray[np.uint8]:
        """Return the bytes of a buffer (offset and size multiples of 4), once all submitted work is done."""

    def read_async(self, buffer: Any, offset: int, size: int) -> Reading:
        """Begin to read bytes of a buffer (offset and size multiples of 4), after all submitted work. Does not wait."""

    def copy(self, source: Any, source_offset: int, destination: Any, destination_offset: int, size: int) -> Dispatch:
        """Return a copy between buffers as a unit of work."""

    def record(self, work: Sequence[Dispatch]) -> Sequence[Dispatch]:
        """Return the same work, prepared for being submitted again and again."""
        return work

    def submit(self, *work: Sequence[Dispatch]) -> int:
        """Run units of work in order, one sequence after the other, as one submission; return its serial number for
        ``is_done`` and ``wait``. Thread-safe."""

    def is_done(self, serial: int) -> bool:
        """Return whether a submission has finished."""

    def wait(self, serial: int, timeout: float | None = None) -> bool:
        """Wait for a submission; return False when ``timeout`` seconds pass first."""

    def time(self, work: Sequence[Dispatch], parts: bool = False) -> Timing:
        """Run work once, wait for it, and say how long it took.

        Args:
            work: pieces of work, in order.
            parts: time each piece too, where the device can.

        Raises: as ``submit``.
        """
        start = time.perf_counter()
        self.wait(self.submit(work))
        seconds = time.perf_counter() - start
        return Timing(seconds, "wall clock", host_seconds=seconds)

    def close(self) -> None:
        """Release the adapter."""


class CustomShader(Protocol):
    """A compiled shader."""

    def bind(self, ranges: Mapping[int, Range[Any]], groups: tuple[int, int, int]) -> Sequence[Dispatch]:
        """Return the work of one dispatch.

        Args:
            ranges: what each binding is bound to, by number.
            groups: workgroups along x, y and z.

        Raises:
            BindingError: a range that begins where the adapter allows none.
            NotSupported: more workgroups or larger bindings than the adapter allows.
        """


@runtime_checkable
class ShaderBackend(Backend, Protocol):
    """An executor that runs rendered programs."""

    def prepare(self, program: Program) -> Executable:
        """Make a program ready to run."""

    def compile_shader(
        self, wgsl: str, entry_point: str, constants: Mapping[str, float], kinds: Mapping[int, str], label: str
    ) -> CustomShader:
        """Make a compute shader that somebody else wrote ready to run.

        Args:
            wgsl: its text.
            entry_point: the function to run.
            constants: values of ``override`` declarations, by name.
            kinds: WebGPU's type of each binding of group 0: ``uniform``, ``storage`` or ``read-only-storage``.
            label: its name in messages.

        Raises:
            ShaderError: when it does not compile.
            DeviceRemoved: when the device is gone.
        """


@dataclass(frozen=True)
class Duration:
    """How long work took.

    Attributes:
        host: seconds to record, submit and wait.
        device: seconds between the device's timestamps before and after it; None where it has none.
    """

    host: float
    device: float | None


def measure(backend: Backend, *work: Sequence[Dispatch]) -> Duration:
    """Run work in order as one submission, wait for it, and say how long it took.

    Raises: as ``Backend.submit``.
    """
    timing = backend.time(tuple(chain.from_iterable(work)))
    return Duration(timing.host_seconds, timing.seconds if timing.source == "gpu" else None)
