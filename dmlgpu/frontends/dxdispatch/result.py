"""Events and results of a run, printed in DxDispatch's words, and the timing loop of dispatches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dmlgpu.common import coercion
from dmlgpu.runtime.executor import Duration


@dataclass(frozen=True)
class Initialized:
    """A dispatchable was compiled and initialized; time on the host, waiting included."""

    dispatchable: str
    milliseconds: float

    def __str__(self) -> str:
        return f"Initialize '{self.dispatchable}': {self.milliseconds:.4f} ms"


@dataclass(frozen=True)
class OnnxBound:
    """A tensor of an ONNX model was bound.

    Attributes:
        name: The tensor's.
        is_input: Whether it is an input of the model.
        resource: ``explicit`` for a resource of the model, ``implicit`` for one made for the dispatch, ``deferred``
            for an output whose memory comes with the result.
        data_type: ONNX's name, ``FLOAT``.
        shape: -1 for sizes that are not known yet; None if nothing is.
    """

    name: str
    is_input: bool
    resource: str
    data_type: str
    shape: tuple[int, ...] | None

    def __str__(self) -> str:
        shape = "unknown" if self.shape is None else f"[{','.join(map(str, self.shape))}]"
        return (
            f"{'Input' if self.is_input else 'Output'} Tensor '{self.name}':\n  Resource  = {self.resource} (DirectX)\n"
            f"  Data Type = {self.data_type}\n  Shape     = {shape}\n"
        )


@dataclass(frozen=True)
class Dispatched:
    """A dispatch command was done: recorded, submitted and waited for, once or several times.

    Attributes:
        dispatchable: Its name.
        cpu: Milliseconds on the host of each iteration, by the number of repetitions in it.
        gpu: Milliseconds between the device's timestamps, likewise; empty if the device has none.
        warmup: Number of samples at the start that count as cold, leaving at least one hot sample.
    """

    dispatchable: str
    cpu: tuple[float, ...]
    gpu: tuple[float, ...] = ()
    warmup: int = 1

    def __str__(self) -> str:
        text = f"Dispatch '{self.dispatchable}': {len(self.cpu)} iterations"
        text += f", {statistics_of(self.hot(self.cpu)).median:.4f} ms median (CPU)"
        return text + (f", {statistics_of(self.hot(self.gpu)).median:.6f} ms median (GPU)" if self.gpu else "")

    @property
    def milliseconds(self) -> float:
        """The median of the hot samples on the host."""
        return statistics_of(self.hot(self.cpu)).median

    def cold(self, samples: tuple[float, ...]) -> tuple[float, ...]:
        """Return the samples at the start that are not representative, because caches are empty."""
        return samples[: max(min(len(samples) - 1, self.warmup), 0)]

    def hot(self, samples: tuple[float, ...]) -> tuple[float, ...]:
        """Return the samples after the cold ones."""
        return samples[len(self.cold(samples)) :]

    def details(self, *, each: bool) -> str:
        """Return statistics of cold and hot samples in a line each; with ``each`` the samples, too."""
        lines = [f"Dispatch '{self.dispatchable}': {len(self.cpu)} iterations"]
        for heat, part in (("Cold", self.cold), ("Hot", self.hot)):
            for unit, samples in (("CPU", part(self.cpu)), ("GPU", part(self.gpu))):
                if samples:
                    lines.append(f"{unit} Timings {f'({heat})':6} : {statistics_of(samples)}")
        if each:
            lines.append("The timings of each iteration:")
            for index, host in enumerate(self.cpu):
                device = f", {self.gpu[index]:.4f} ms (GPU)" if self.gpu else ""
                lines.append(f"iteration {index}: {host:.4f} ms (CPU){device}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Statistics:
    """Statistics of samples in milliseconds; the median of an even number is the upper one."""

    count: int
    average: float
    minimum: float
    median: float
    maximum: float

    def __str__(self) -> str:
        return (
            f"{self.count} samples, {self.average:.4f} ms average, {self.minimum:.4f} ms min, "
            f"{self.median:.4f} ms median, {self.maximum:.4f} ms max"
        )


def statistics_of(samples: Sequence[float]) -> Statistics:
    """Return the statistics of samples, of which there is at least one."""
    ordered = sorted(samples)
    count = len(ordered)
    return Statistics(count, sum(ordered) / count, ordered[0], ordered[count // 2], ordered[-1])


@dataclass(frozen=True)
class Printed:
    """A resource was printed; ``text`` is its elements."""

    resource: str
    text: str
    verbose: bool = False

    def __str__(self) -> str:
        return f"Resource '{self.resource}':{chr(10) if self.verbose else ' '}{self.text}"


@dataclass(frozen=True)
class Written:
    """A resource was written to a file."""

    resource: str
    file: Path

    def __str__(self) -> str:
        return f"Resource '{self.resource}' written to '{self.file}'"


Event = Initialized | OnnxBound | Dispatched | Printed | Written


def report(event: Event, verbosity: int = 0) -> str | None:
    """Return the text that DxDispatch prints for an event, or None if it prints nothing.

    Args:
        event: The event.
        verbosity: 0 shows the median of hot samples; 1 initialization, cold and hot samples; 2 each sample, too.
    """
    if isinstance(event, Initialized) and verbosity < 1:
        return None
    if isinstance(event, Dispatched) and verbosity > 0:
        return event.details(each=verbosity > 1)
    return str(event)


@dataclass(frozen=True)
class DxResult:
    """The outcome of a model.

    Attributes:
        resources: Each resource that a print or writeFile names, as the last such command saw it.
        events: Events in order; ``str`` of one is the line DxDispatch would print.
    """

    resources: Mapping[str, NDArray[Any]]
    events: tuple[Event, ...]

    @property
    def printed(self) -> tuple[Printed, ...]:
        """The printed resources, in order."""
        return tuple(event for event in self.events if isinstance(event, Printed))

    @property
    def files(self) -> tuple[Path, ...]:
        """The files written, in order."""
        return tuple(event.file for event in self.events if isinstance(event, Written))

    @property
    def initialization_milliseconds(self) -> Mapping[str, float]:
        """Time to compile and initialize each dispatchable."""
        return {event.dispatchable: event.milliseconds for event in self.events if isinstance(event, Initialized)}

    @property
    def dispatch_milliseconds(self) -> tuple[tuple[str, float], ...]:
        """Dispatchable and median time on the host of each dispatch command, in order."""
        return tuple((event.dispatchable, event.milliseconds) for event in self.events if isinstance(event, Dispatched))


_MAX_COUNT = 2**31
_COUNT = coercion.between(1, _MAX_COUNT)
_NUMBER = coercion.between(0, _MAX_COUNT)


@dataclass(frozen=True)
class TimingOptions:
    """DxDispatch's options of timing.

    Attributes:
        iterations: Iterations of the loop of each dispatch command (``--dispatch_iterations``).
        repeat: Dispatches within an iteration, between one wait and the next (``--dispatch_repeat``).
        milliseconds_to_run: Time after which the loop ends, instead of after ``iterations``; None for no such time
            (``--milliseconds_to_run``).
        interval: Least time between the beginnings of iterations, in milliseconds (``--dispatch_interval``).
        warmup_samples: Most samples at the start that count as cold (``--warmup_samples``).

    Raises:
        InvalidArgument: If a field is not an integer, or is out of its range.
    """

    iterations: int = 1
    repeat: int = 1
    milliseconds_to_run: int | None = None
    interval: int = 0
    warmup_samples: int = 1

    def __post_init__(self) -> None:
        for field, convert in (
            ("iterations", _COUNT),
            ("repeat", coercion.between(1, 2**16)),
            ("milliseconds_to_run", coercion.optional(_COUNT)),
            ("interval", _NUMBER),
            ("warmup_samples", _NUMBER),
        ):
            value = coercion.argument("TimingOptions", field, convert, getattr(self, field))
            object.__setattr__(self, field, value)


def timed(
    name: str,
    dispatch: Callable[[], Duration],
    options: TimingOptions,
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], object] = time.sleep,
) -> Dispatched:
    """Run the loop of a dispatch command.

    Args:
        name: Name of the dispatchable.
        dispatch: Runs one iteration, all its repetitions, and waits.
        options: Number of iterations and time limits.
        clock: Returns the time in seconds.
        sleep: Waits for a number of seconds.
    """
    cpu: list[float] = []
    gpu: list[float] = []
    start = clock()
    limit = None if options.milliseconds_to_run is None else options.milliseconds_to_run / 1e3
    while limit is not None or len(cpu) < options.iterations:
        begun = clock()
        duration = dispatch()
        cpu.append(duration.host * 1e3 / options.repeat)
        if duration.device is not None:
            gpu.append(duration.device * 1e3 / options.repeat)
        rest = max(0.0, options.interval / 1e3 - (clock() - begun))
        if limit is not None and clock() - start + rest > limit:
            break
        if rest and (limit is not None or len(cpu) < options.iterations):
            sleep(rest)
    # Ignore all timestamps of a driver that returned an impossible one.
    return Dispatched(name, tuple(cpu), tuple(gpu) if len(gpu) == len(cpu) else (), options.warmup_samples)
