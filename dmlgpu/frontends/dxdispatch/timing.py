"""How often a dispatch command runs, and how long that takes: DxDispatch's loop of bind, dispatch and wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from dmlgpu.common import coercion as kinds
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.frontends.dxdispatch.result import Dispatched
from dmlgpu.runtime.measuring import Duration

_MOST = 2**31
_COUNT = kinds.between(1, _MOST)
_NUMBER = kinds.between(0, _MOST)


@dataclass(frozen=True)
class TimingOptions:
    """DxDispatch's options of timing.

    Attributes:
        iterations: of the loop of each dispatch command (``--dispatch_iterations``).
        repeat: dispatches within an iteration, between one wait and the next (``--dispatch_repeat``).
        milliseconds_to_run: time after which the loop ends, instead of after ``iterations``; None for no such time
            (``--milliseconds_to_run``).
        interval: least time between the beginnings of iterations, in milliseconds (``--dispatch_interval``).
        warmup_samples: most samples at the start that count as cold (``--warmup_samples``).

    Raises:
        InvalidArgument: a field is no integer, or out of its range.
    """

    iterations: int = 1
    repeat: int = 1
    milliseconds_to_run: int | None = None
    interval: int = 0
    warmup_samples: int = 1

    def __post_init__(self) -> None:
        for field, kind in (
            ("iterations", _COUNT),
            ("repeat", kinds.between(1, 2**16)),
            ("milliseconds_to_run", kinds.optional(_COUNT)),
            ("interval", _NUMBER),
            ("warmup_samples", _NUMBER),
        ):
            try:
                object.__setattr__(self, field, kind(getattr(self, field)))
            except kinds.WrongKind as wrong:
                raise InvalidArgument(f"TimingOptions: {field} {wrong.describe()}") from None


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
        name: of the dispatchable.
        dispatch: runs one iteration, all its repetitions, and waits.
        options: how often and how long.
        clock: the time in seconds.
        sleep: waits so many seconds.
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
    # A driver whose timestamps were once impossible has none that count.
    return Dispatched(name, tuple(cpu), tuple(gpu) if len(gpu) == len(cpu) else (), options.warmup_samples)
