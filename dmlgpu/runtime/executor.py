"""Protocol of executors: ``dmlgpu.runtime.wgpu`` (wgpu), ``dmlgpu.runtime.browser`` (a browser page) and
``dmlgpu.runtime.numpy`` (NumPy).

The device layer checks every precondition before it calls an executor, which may trust its arguments.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common.timings import Timings
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.target import AdapterInfo, Target
from dmlgpu.runtime.specialization import Specializer

if TYPE_CHECKING:
    from dmlgpu.compiler.graph.network import Network
    from dmlgpu.compiler.sizes.networks import SizedNetwork


BufferType = TypeVar("BufferType")

WORD_BYTES = 4
"""Bytes of a word. WebGPU transfers whole words, so offsets and sizes are multiples."""


@dataclass(frozen=True)
class Range(Generic[BufferType]):
    """A byte range of a buffer; ``offset`` is a multiple of 16, ``size`` of 4.

    Attributes:
        buffer: An executor's buffer; in the device layer a ``Buffer``, in a model the name of a resource.
    """

    buffer: BufferType
    offset: int
    size: int

    @property
    def end(self) -> int:
        """Offset of the first byte after the range."""
        return self.offset + self.size


class PersistentRanges:
    """A persistent resource in several buffers, none of whose bindings lies in two of them.

    Args:
        ranges: Memory of each part, by its first byte in the resource.
    """

    def __init__(self, ranges: Mapping[int, Range[Any]]):
        self._begins = sorted(ranges)
        # Offsets count from the start of the resource, which would be before the buffer.
        self._ranges = [
            Range(part.buffer, part.offset - begin, begin + part.size) for begin, part in sorted(ranges.items())
        ]

    def around(self, offset: int) -> Range[Any]:
        """Return the resource as if it were in the buffer that holds a byte of it."""
        return self._ranges[bisect_right(self._begins, offset) - 1]


@dataclass(frozen=True)
class Resources:
    """Bindings of one dispatch: flat inputs and outputs (None if absent or owned), temporary and persistent
    resource, and data of the executable."""

    inputs: tuple[Range[Any] | None, ...]
    outputs: tuple[Range[Any] | None, ...]
    temporary: Range[Any] | None = None
    persistent: Range[Any] | PersistentRanges | None = None
    constants: tuple[Range[Any], ...] = ()


Dispatch = Any
"""A bound unit of work, created by an executable for ``Backend.submit``."""


class Executable(Protocol):
    """An operator compiled for one executor.

    Attributes:
        temporary_size, persistent_size: Bytes of these resources, whole words; 0 if not needed.
        in_place: The outputs that may lie in the memory of an input that is read by nothing else, and that input.
    """

    temporary_size: int
    persistent_size: int
    in_place: Mapping[int, int] = MappingProxyType({})

    @property
    def timings(self) -> Timings | None:
        """Seconds per stage of compilation, or None if nothing is compiled."""
        return None

    def took(self, seconds: float) -> None:
        """Record the total time of compilation; time that no other stage measured counts as planning."""
        return None  # nothing is compiled

    def bind(self, resources: Resources, earlier: Sequence[Sequence[Dispatch]] = ()) -> Sequence[Dispatch]:
        """Return the work of one execution on these resources.

        Args:
            resources: The resources.
            earlier: Results of earlier calls; work that is the same on these resources may be reused.
        """

    def bind_initialization(self, resources: Resources, kernels: Sequence[int] | None = None) -> Sequence[Dispatch]:
        """Return the work that fills ``resources.persistent`` from the owned tensors in ``resources.inputs``.

        Args:
            resources: The resources.
            kernels: Indices of the kernels of the initialization to run; None for all.
        """


@dataclass(frozen=True)
class Timing:
    """A measured time.

    Attributes:
        seconds: From the start of the first piece of work to the end of the last.
        source: ``gpu`` for GPU timestamps, ``wall clock`` for host time of submission and wait.
        parts: Seconds of each piece of work, if requested and measured by the device; else empty.
        host_seconds: Host time of recording, submission and wait.
    """

    seconds: float
    source: str
    parts: tuple[float, ...] = ()
    host_seconds: float = 0.0

    @classmethod
    def of_timestamps(cls, stamps: Sequence[tuple[float, float]], host_seconds: float, parts: bool) -> Self:
        """Return the time between timestamps (seconds, before and after each piece of work), or host time if they
        are invalid: some drivers return 0, or run backwards."""
        spans = tuple(end - start for start, end in stamps)
        total = stamps[-1][1] - stamps[0][0]
        if min(spans) < 0 or not 0 < total <= 2 * host_seconds:
            return cls(host_seconds, "wall clock", host_seconds=host_seconds)
        return cls(total, "gpu", spans if parts else (), host_seconds)


class Reading(Protocol):
    """Bytes being read from a buffer, as of all work submitted before. Thread-safe. Dropping it frees its memory."""

    def is_done(self) -> bool:
        """Return whether ``result`` returns without waiting."""

    def result(self, timeout: float | None = None) -> NDArray[np.uint8] | None:
        """Return the bytes, the same array each time; None after ``timeout`` seconds."""


class Backend(Protocol):
    """Executor of one adapter.

    Attributes:
        specializer: Decides which programs have sizes in their source; used by executors that compile programs.
        lost_by_fork: Reason why a forked child cannot use it; None if it can.
    """

    info: AdapterInfo
    target: Target
    specializer: Specializer
    lost_by_fork: str | None = None

    def check(self, desc: Any) -> None:
        """Check without touching the device whether ``compile`` can succeed: lower and render, compile nothing.

        The device layer calls this, with a valid description, when an operator is created and for feature queries.

        Raises:
            OperatorNotImplemented: If the executor does not implement the operator.
            NotSupported: If the adapter lacks a feature or limit for these types or sizes; the message names the
                operator, the type and the missing feature or limit.
        """

    def compile(self, desc: Any, half_precision: bool = False, preserve_padding: bool = False) -> Executable:
        """Compile a checked and upgraded operator description.

        Args:
            desc: The description.
            half_precision: Whether float16 arithmetic is allowed.
            preserve_padding: Whether executions may only change the elements of the outputs.
        """

    def compile_graph(
        self, network: Network, half_precision: bool = False, disabled: Collection[str] = ()
    ) -> Executable:
        """Compile a checked network, without the passes named in ``disabled``.

        Raises:
            InvalidArgument: If a pass is unknown.
            NotSupported: If the adapter lacks a feature that a node needs; the message names the node.
        """

    def compile_sized(self, sized: SizedNetwork) -> Executable:
        """Compile a checked network that is given by its integers. Raises NotSupported as ``compile_graph``."""
        return self.compile_graph(sized.network)

    def create_buffer(self, size: int, label: str) -> Any:
        """Allocate ``size`` bytes (a multiple of 4), zeroed. Raises OutOfMemory."""

    def destroy_buffer(self, buffer: Any) -> None:
        """Free a buffer."""

    def write(self, buffer: Any, offset: int, data: NDArray[np.uint8]) -> None:
        """Write bytes (offset and length multiples of 4) after all submitted work."""

    def read(self, buffer: Any, offset: int, size: int) -> NDArray[np.uint8]:
        """Wait for all submitted work and read bytes (offset and size multiples of 4)."""

    def read_async(self, buffer: Any, offset: int, size: int) -> Reading:
        """Start to read bytes (offset and size multiples of 4) after all submitted work. Does not wait."""

    def copy(self, source: Any, source_offset: int, destination: Any, destination_offset: int, size: int) -> Dispatch:
        """Return a copy between buffers as a unit of work."""

    def record(self, work: Sequence[Dispatch]) -> Sequence[Dispatch]:
        """Prepare work for repeated submission."""
        return work

    def submit(self, *work: Sequence[Dispatch]) -> int:
        """Submit units of work, in order, as one submission; return its serial number for ``is_done`` and ``wait``.
        Thread-safe."""

    def enqueue(self, work: Sequence[Dispatch], *, is_followed: bool = False) -> int:
        """Submit units of work, possibly together with later ones, as soon as anything waits for them or reads; return
        the serial number. Thread-safe.

        Args:
            work: Units of work, in order.
            is_followed: Other work or a read follows at once: share its submission, however long the work is.
        """
        return self.submit(work)

    def is_done(self, serial: int) -> bool:
        """Return whether a submission has finished."""

    def wait(self, serial: int, timeout: float | None = None) -> bool:
        """Wait for a submission; return False after ``timeout`` seconds."""

    def time(self, work: Sequence[Dispatch], parts: bool = False) -> Timing:
        """Run work once, wait, and return the time taken.

        Args:
            work: Pieces of work, in order.
            parts: Also time each piece, if the device can.

        Raises: As ``submit``.
        """
        start = time.perf_counter()
        self.wait(self.submit(work))
        seconds = time.perf_counter() - start
        return Timing(seconds, "wall clock", host_seconds=seconds)

    def close(self) -> None:
        """Release the adapter."""


class CustomShader(Protocol):
    """A compiled shader of the user."""

    def bind(self, ranges: Mapping[int, Range[Any]], groups: tuple[int, int, int]) -> Sequence[Dispatch]:
        """Return the work of one dispatch.

        Args:
            ranges: Range of each binding, by number.
            groups: Workgroups along x, y and z.

        Raises:
            BindingError: If a range is misaligned.
            NotSupported: If workgroups or bindings exceed a limit of the adapter.
        """


@runtime_checkable
class ShaderBackend(Backend, Protocol):
    """An executor that runs rendered programs."""

    def prepare(self, program: Program) -> Executable:
        """Compile a program."""

    def compile_shader(
        self, wgsl: str, entry_point: str, constants: Mapping[str, float], kinds: Mapping[int, str], label: str
    ) -> CustomShader:
        """Compile a compute shader of the user.

        Args:
            wgsl: Source.
            entry_point: Name of the function to run.
            constants: Values of ``override`` declarations, by name.
            kinds: WebGPU's type of each binding of group 0: ``uniform``, ``storage`` or ``read-only-storage``.
            label: Name in messages.

        Raises:
            ShaderError: If it does not compile.
            DeviceRemoved: If the device is removed.
        """


@dataclass(frozen=True)
class Duration:
    """Measured time of work.

    Attributes:
        host: Seconds to record, submit and wait.
        device: Seconds between GPU timestamps before and after the work; None if there are none.
    """

    host: float
    device: float | None


def measure(backend: Backend, *work: Sequence[Dispatch]) -> Duration:
    """Run work in order as one submission, wait, and return the time taken.

    Raises: As ``Backend.submit``.
    """
    timing = backend.time(tuple(chain.from_iterable(work)))
    return Duration(timing.host_seconds, timing.seconds if timing.source == "gpu" else None)
