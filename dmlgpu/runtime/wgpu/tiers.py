"""Tiers of kernels: hot kernels are compiled again in the background, with sizes as constants.

A kernel that all sizes share reads these from its parameters, and runs a few percent slower than one that has them as
constants. Recorded work that has run ``HOT`` times as long as its kernels take to compile gets pipelines with
constants: a thread makes them one by one, and once all are there, submissions dispatch them. They take the bindings of
the kernels whose place they take, so nothing is bound again.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final
from weakref import WeakValueDictionary

from dmlgpu.common.cache import Cache, CacheLimits
from dmlgpu.common.errors import DeviceRemoved
from dmlgpu.compiler.program import RenderedKernel
from dmlgpu.runtime.wgpu.pipelines import GpuPipelines
from dmlgpu.runtime.wgpu.queue import DeviceTime

HOT: Final = 20.0
"""Work is hot after running this many times as long as its specialized kernels take to compile. Constants save 2 to 11
% on lavapipe, so compiling pays off in about as long."""

NO_FASTER: Final = frozenset(
    f"schedules/{name}" for name in ("map_blocks", "recurrence", "reduce_serial", "rows_serial")
)
"""Schedules whose kernels gain at most 3 % from constants on lavapipe and SwiftShader (``benchmarks/constants.py``,
``benchmarks/results/2026-11-27-constants.md``); they keep their parameters."""

MIN_SECONDS_PER_CHARACTER: Final = 2e-6
"""Minimum seconds to compile a character of source: a driver with a pipeline cache appears faster, but still compiles
specialized kernels."""


_REJECTED: Final = CacheLimits(entries=4096, size=4096)


class Tier:
    """A kernel with one set of values for its parameters.

    Attributes:
        tiers: Those of the device.
        operator, kernel, immediates: As bound.
        pipeline: With constants; None until it is made.
        is_rejected: Whether the driver rejected it.
        time: For which work that begins with it has run.
    """

    __slots__ = ("__weakref__", "immediates", "is_rejected", "kernel", "operator", "pipeline", "tiers", "time")

    def __init__(self, tiers: Tiers, operator: str, kernel: RenderedKernel, immediates: bool):
        self.tiers, self.operator, self.kernel, self.immediates = tiers, operator, kernel, immediates
        self.pipeline: Any = None
        self.is_rejected = False
        self.time = DeviceTime()


Translate = Callable[[str, Sequence[RenderedKernel], bool], None]
"""A function that makes the driver compile new pipelines of an operator's kernels, and waits."""


class Tiers:
    """The tiers of a device's kernels. Thread-safe.

    Args:
        pipelines: The device's pipeline cache.
        translate: Called with each new kernel; a bound method, which is referenced weakly.

    Attributes:
        is_enabled: Whether kernels get constants.
        epoch: Increases when work has new pipelines.
    """

    def __init__(self, pipelines: GpuPipelines, translate: Translate):
        self.is_enabled = False
        self.epoch = 0
        self._pipelines, self._translate = pipelines, weakref.WeakMethod(translate)
        self.known: WeakValueDictionary[Any, Tier] = WeakValueDictionary()
        self._rejected: Cache[int, bool] = Cache(_REJECTED)
        self._requested: queue.SimpleQueue[list[weakref.ref[Tier]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None

    def of(self, operator: str, kernel: RenderedKernel, immediates: bool) -> Tier | None:
        """Return the tier of a kernel; None if it has no parameters, would gain nothing from constants, or was rejected
        by the driver, or if the device does not specialize kernels."""
        if not self.is_enabled or not kernel.given or not NO_FASTER.isdisjoint(kernel.source.files):
            return None
        key = _key(kernel, immediates)
        if self._rejected.get(hash(key)):
            return None
        tier = self.known.get(key)
        return self.known.setdefault(key, Tier(self, operator, kernel, immediates)) if tier is None else tier

    def due(self, tiers: Sequence[Tier]) -> float:
        """Return the run time in seconds after which work with these tiers is hot."""
        rate = max(self._pipelines.seconds_per_character, MIN_SECONDS_PER_CHARACTER)
        return HOT * rate * sum(len(tier.kernel.wgsl) for tier in set(tiers))

    def request(self, tiers: Sequence[Tier]) -> None:
        """Request pipelines with constants for the tiers of work, unless it is dropped before. Does not wait."""
        self._requested.put([weakref.ref(tier) for tier in dict.fromkeys(tiers)])
        with self._lock:
            # A signal handler may have raised before the thread started.
            if _ending.is_set() or (self._worker is not None and self._worker.is_alive()):
                return
            self._worker = threading.Thread(
                target=_work, args=(weakref.ref(self),), name="dmlgpu constants", daemon=True
            )
            _threads.add(self._worker)
            with contextlib.suppress(RuntimeError):  # no more threads, or the interpreter is about to end
                self._worker.start()

    def make_next(self) -> bool:
        """Create the pipelines of the next requested work; return False if there is none."""
        with self._lock:
            try:
                requested = self._requested.get_nowait()
            except queue.Empty:
                self._worker = None
                return False
        results = [self._make(tier) for reference in requested if (tier := reference()) is not None]
        self.epoch += any(results)
        return True

    def _make(self, tier: Tier) -> bool:
        """Create the pipeline of a tier unless its device was dropped; return whether it exists."""
        translate = self._translate()
        if tier.pipeline is None and not tier.is_rejected and not _ending.is_set() and translate is not None:
            try:
                # Bound as the general kernel, with a uniform that this text does not read.
                general = tier.kernel
                source = replace(general.source, body=general.with_constants.wgsl, interface=None)
                kernel = replace(general, source=source, slots=general.slots[: general.binding_count], bindings=())
                pipeline = self._pipelines.get(tier.operator, kernel, tier.immediates)
                translate(tier.operator, [kernel], tier.immediates)
                tier.pipeline = pipeline
            except DeviceRemoved:
                tier.is_rejected = True
            except Exception as error:  # no run may fail because of it
                tier.is_rejected = True
                self._rejected.put(hash(_key(tier.kernel, tier.immediates)), True, 1)
                _report(f"{error}; kernel {tier.kernel.label!r} keeps reading sizes from parameters")
        return tier.pipeline is not None


def _key(kernel: RenderedKernel, immediates: bool) -> tuple[str, tuple[int, ...], int, bool]:
    return kernel.wgsl, kernel.parameters, kernel.binding_count, immediates


def _report(message: str) -> None:
    """Warn, in a thread that continues if warnings are errors."""
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=1)
    except RuntimeWarning as error:
        details = type(error), error, error.__traceback__, threading.current_thread()
        threading.excepthook(threading.ExceptHookArgs(details))


_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_ending = threading.Event()


def _work(tiers: weakref.ref[Tiers]) -> None:
    """Create the requested pipelines of devices in use."""
    while (owner := tiers()) is not None and owner.make_next():
        del owner


def _end() -> None:
    """Wait for pipelines under construction, before the driver is unloaded."""
    _ending.set()
    for thread in list(_threads):
        if thread.is_alive():
            thread.join()


atexit.register(_end)
