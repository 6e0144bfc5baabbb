"""A wgpu device with shared state: facts, lock, removal."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, Final

import wgpu

from dmlgpu.common.deferred import DeferredCalls
from dmlgpu.common.errors import DeviceRemoved, DmlError, InvalidArgument, InvalidState, NotSupported, OutOfMemory
from dmlgpu.compiler.quirks import with_quirks
from dmlgpu.compiler.target import COOPERATIVE, AdapterInfo, Target
from dmlgpu.runtime.wgpu import cooperative, forks, probes
from dmlgpu.runtime.wgpu.adapter import dawn_adapters, describe, target_of, wgpu_adapter
from dmlgpu.runtime.wgpu.errors import reason_of
from dmlgpu.runtime.wgpu.libraries import dawn, features_of, library_of
from dmlgpu.runtime.wgpu.measured import Probe
from dmlgpu.runtime.wgpu.waiting import without_signals

NO_DEVICE: Final = "the driver cannot create a device"
"""Beginning of the reason why an adapter cannot be used."""

OPENGL = threading.RLock()
"""Lock of all OpenGL devices: using contexts from two threads at once aborts the process."""
_OPENGL_DEFERRED = DeferredCalls(OPENGL)


class Context:
    """A device and its state.

    Attributes:
        device: The wgpu device.
        library: Its WebGPU library.
        info: Its adapter.
        target: Compile target.
        lock: Held during every call that records, submits or maps.
        deferred: Functions to run under the lock before memory is allocated or work is submitted.
        owned: Whether ``close`` destroys the device.
    """

    def __init__(self, device: wgpu.GPUDevice, info: AdapterInfo, target: Target, owned: bool):
        self.device, self.info, self.target, self.owned = device, info, target, owned
        self.queue, self.library = device.queue, library_of(device)
        if info.backend == "OpenGL":
            self.lock, self.deferred = OPENGL, _OPENGL_DEFERRED
        else:
            self.lock = threading.RLock()
            self.deferred = DeferredCalls(self.lock)
        self._removed: str | None = None
        self._closed = self._abandoned = False
        self._mapped: Any = None
        forks.abandon_in_children(self)

    @classmethod
    def open(cls, info: AdapterInfo, deterministic: bool, precise: bool, disabled_features: Collection[str]) -> Context:
        """Return a new device with the limits of the adapter and all whitelisted features that it has.

        Raises:
            AdapterNotFound: If the adapter is not of this machine.
            NotSupported: If the driver cannot create a device.
            InvalidState: In a process forked from one that had loaded drivers.
        """
        forks.use_drivers(str(info))
        adapter = wgpu_adapter(info)
        if not info.limits["max-compute-invocations-per-workgroup"]:
            raise NotSupported(f"{info}: {NO_DEVICE}: it has no compute shaders")
        target = target_of(info, deterministic=deterministic, precise=precise, disabled_features=disabled_features)
        try:
            device = without_signals(lambda: cooperative.request_device(adapter, target.features, disabled_features))
        except RuntimeError as error:
            raise NotSupported(f"{info}: {NO_DEVICE}: {reason_of(error)}") from error
        return cls(device, info, with_measured_facts(device, info, target, disabled_features), owned=True)

    @classmethod
    def wrap(
        cls, device: wgpu.GPUDevice, deterministic: bool, precise: bool, disabled_features: Collection[str]
    ) -> Context:
        """Wrap an existing device, with its features and limits.

        Raises:
            InvalidArgument: If it is not a wgpu device, or lacks a feature that its library needs.
            InvalidState: In a process forked from one that had loaded drivers.
        """
        forks.use_drivers("a wgpu device")
        library = library_of(device)
        if not isinstance(device, library.package.GPUDevice):
            raise InvalidArgument(f"Device.from_wgpu: wgpu_device must be a GPUDevice, got {type(device).__name__}")
        library.check_wrapped(device)
        info = describe(library, device.adapter.info, device.features, device.limits)
        target = target_of(info, deterministic=deterministic, precise=precise, disabled_features=disabled_features)
        return cls(device, info, with_measured_facts(device, info, target, disabled_features), owned=False)

    @property
    def limits(self) -> dict[str, int]:
        """The device's limits under WebGPU's names."""
        return self.info.limits

    @property
    def removed_reason(self) -> str | None:
        """Reason of the removal; None if the device is not removed."""
        if self._removed is None:
            self._removed = self.library.why_lost(self.device)
        return self._removed

    def check(self) -> None:
        """Raise DeviceRemoved if the device is gone, InvalidState if it belongs to the parent of a forked process:
        submitting to it would abort the process, or hang."""
        if self._abandoned:
            raise InvalidState(f"{self.info}: {self._removed}")
        if self.removed_reason is not None:
            raise DeviceRemoved(f"{self.info}: {self._removed}; create a new device")

    def abandon(self) -> None:
        """Mark the device as belonging to the parent of this forked process."""
        self._abandoned = self._closed = True
        self._removed = forks.MADE_BEFORE_FORK
        self.lock = threading.RLock()
        self.deferred = DeferredCalls(self.lock)
        self.device._poller = None  # wgpu-py's thread, which would be waited for

    def begin_mapping(self, buffer: Any) -> None:
        """Mark a buffer as mapped. Hold the lock until ``end_mapping``."""
        self.end_mapping()
        self._mapped = buffer

    def end_mapping(self) -> None:
        """Unmap mapped buffers, whose submission would abort the process. Hold the lock.

        Every submission and write calls this, since an exception in a signal handler may interrupt a mapping.
        """
        if self._mapped is not None:
            with contextlib.suppress(wgpu.GPUError):  # not mapped yet or no longer
                self.library.unmap(self._mapped)
            self._mapped = None

    @contextlib.contextmanager
    def reporting(self, what: str) -> Iterator[None]:
        """Translate errors of wgpu into those of this package, beginning with ``what``."""
        try:
            yield
        except wgpu.GPUError as error:
            raise self.translate(error, what) from error

    def translate(self, error: Exception, what: str) -> DmlError:
        """Return the exception of this package for one of wgpu."""
        reason = reason_of(error)
        if "is lost" in str(error):
            self._removed = self._removed or "the driver lost the device"
            return DeviceRemoved(f"{what}: {self.info}: {self._removed}; create a new device")
        # Some drivers' rejections arrive as validation errors with these words of wgpu's.
        if isinstance(error, wgpu.GPUOutOfMemoryError) or reason.startswith("Not enough memory"):
            return OutOfMemory(f"{what}: {self.info} is out of memory: {reason}")
        if "has been destroyed" in reason or "while destroyed" in reason:  # wgpu-native's words, and Dawn's
            return InvalidState(f"{what}: {self.info} rejects it: {reason}")
        return DmlError(f"{what}: {self.info} rejects it: {reason}")

    def close(self, before: Callable[[], Any]) -> None:
        """Run ``before`` unless the device is gone, mark it as gone, and destroy it if owned. Idempotent."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            try:
                if self._removed is None:
                    before()
            finally:
                self._removed = self._removed or "the device was closed"
                if self.owned:
                    self.library.destroy(self.device)


def with_measured_facts(
    device: wgpu.GPUDevice, info: AdapterInfo, target: Target, disabled_features: Collection[str]
) -> Target:
    """Return the target with the facts of the adapter that only kernels can measure, measured if they are unknown."""
    has_matrices = COOPERATIVE in set(features_of(device)) - set(disabled_features)
    if has_matrices and (units := library_of(device).matrix_units(device.adapter)) is not None:
        target = replace(target, features=target.features | {COOPERATIVE}, matrices=units)
    with OPENGL if info.backend == "OpenGL" else contextlib.nullcontext():
        measured = probes.with_facts(info, target, device)
    return with_quirks(measured)


def why_unusable(info: AdapterInfo) -> str:
    """Return why an adapter of this process cannot be used; empty if a device can be created on it.

    Raises:
        AdapterNotFound: If the adapter is not of this machine.
        InvalidState: In a process forked from one that had loaded drivers.
    """
    try:
        Context.open(info, False, False, ()).close(lambda: None)
    except NotSupported as error:
        return str(error).removeprefix(f"{info}: ")
    return ""


def matrix_support(adapter: Any, info: AdapterInfo) -> str:
    """Describe whether products of an adapter use its matrix units, with the reason if not; empty if there are none.

    Args:
        adapter: An adapter of a library.
        info: Its facts.
    """
    library, units = library_of(adapter), cooperative.matrix_units(adapter)
    if units is None:
        return ""
    probe = probes.MATRICES
    assumed = probe.given(info, cooperative.NEEDED)
    if assumed is not None and cooperative.FASTER not in assumed:
        return f"{COOPERATIVE} is not used: {probe.origin(info)}"
    try:
        device = cooperative.request_features(adapter, cooperative.NEEDED)
    except RuntimeError as error:
        reason = f"{library.name} rejects it: {reason_of(error)}"
        return "; ".join(filter(None, (f"{COOPERATIVE} is not used, because {reason}", _units_of_dawn(info))))
    unused = _why_unused(probe, info, device)
    used = f"{units.size}, {units.numbers} with float32 sums"
    others = (
        (probes.FLOAT_MATRICES, units.floats, "float32 with float32 sums"),
        (probes.INTEGER_MATRICES, units.integers, "int8 with int32 sums"),
    )
    for probe, matrices, types in others if unused is None else ():
        if matrices is not None:
            why_not = _why_unused(probe, info, device)
            used += f"; {matrices.size}, {types}" + (f" is not used, because {why_not}" if why_not else "")
    library.destroy(device)
    return f"{COOPERATIVE} is not used, because {unused}" if unused else used


def _why_unused(probe: Probe, info: AdapterInfo, device: wgpu.GPUDevice) -> str | None:
    """Return why kernels do not use the matrices of a probe; None if they do."""
    facts = probe.facts(info, cooperative.NEEDED, device) or ()
    if cooperative.FASTER in facts:
        return None
    if failure := probe.failure(info):
        return f"its products do not compile: {failure}"
    is_slower = cooperative.EQUAL in facts
    return "its products are slower than ordinary ones" if is_slower else "its products differ from NumPy's"


def _units_of_dawn(info: AdapterInfo) -> str:
    """Return what Dawn has on an adapter of wgpu-native, and what to do; empty if it has no matrix units there."""
    library = dawn()
    if library is None:
        return "Dawn may enable it: pip install 'dmlgpu[dawn]'"
    same = (wgpu_adapter(other) for other in dawn_adapters() if (other.name, other.api) == (info.name, info.api))
    units = next(filter(None, map(cooperative.matrix_units, same)), None)
    return "" if units is None else f"{library.name} has {units.size}: -a dawn"
