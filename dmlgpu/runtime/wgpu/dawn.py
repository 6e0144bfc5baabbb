"""Dawn, the WebGPU library of Chromium, from the package wgpudawn: its compiler, Tint, takes the place of naga.

This module works around faults of version 0.32.0.4 of the package, and differences from wgpu-py:

- Errors of all threads go into one list, so that a call may raise the error of another thread's: ``_ThreadErrors``.
- Its exceptions are not wgpu's: those that it raises here are both.
- Dawn prints warnings about limits, and about a machine without Vulkan drivers, when adapters are enumerated:
  ``_without_warnings``.
- An adapter creates only one device, so each device gets an adapter of its own, and the listed adapters create none.
- ``wgpudawn.install_as_wgpu``, which lends its modules the names of wgpu's, is not used: it loads the library twice.
- Objects are not thread-safe without a feature of Dawn, which every device requests.
- Timestamps are rounded to 100 microseconds, unless a toggle of the device is off.
- Calls on a lost device raise nothing: ``why_lost`` reads the package's promise.
- Destroying a device waits for its work.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import wgpu
import wgpudawn
from wgpudawn.backends.dawn import _api, _helpers, extras
from wgpudawn.backends.dawn._ffi import ffi, lib, lib_version_info

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.target import COOPERATIVE, Matrices
from dmlgpu.runtime.matrix_products import configured_units
from dmlgpu.runtime.wgpu.library import NVIDIA, Library, without_cycle

SYNCHRONIZED: Final = "implicit-device-synchronization"
"""Feature of devices whose objects several threads may use."""

_NAMES: Final = {
    "subgroup": "subgroups",
    "mappable-primary-buffers": "buffer-map-extended-usages",
    COOPERATIVE: "chromium-experimental-subgroup-matrix",
}
"""Dawn's names of features by those of wgpu-native, if they differ."""

_PREFIX = "enable subgroups; diagnostic(off, subgroup_uniformity); "
"""Precedes kernels that use subgroups, on the same line: naga needs no directive, and Tint's analysis rejects kernels
whose branches are uniform for reasons that it does not see."""

_WARNING = re.compile(rb"Warning: (?:max\w+ artificially reduced from |vkCreateInstance).*\n(?:(?:    at .*\n)+\n?)?")


class DawnError(wgpu.GPUError, wgpudawn.GPUError):
    """An error of Dawn."""


class DawnValidationError(wgpu.GPUValidationError, wgpudawn.GPUValidationError, DawnError):
    """A validation error of Dawn."""


class DawnOutOfMemoryError(wgpu.GPUOutOfMemoryError, wgpudawn.GPUOutOfMemoryError, DawnError):
    """Dawn is out of memory."""


class DawnInternalError(wgpu.GPUInternalError, wgpudawn.GPUInternalError, DawnError):
    """An internal error of Dawn."""


_ERRORS: Final = {
    "Validation": DawnValidationError,
    "OutOfMemory": DawnOutOfMemoryError,
    "Internal": DawnInternalError,
}


class _PendingErrors(threading.local):
    """The list of a thread's errors that no call has raised yet."""

    def __init__(self) -> None:
        self._errors: list[tuple[str, str]] = []

    def __len__(self) -> int:
        return len(self._errors)

    def __getitem__(self, key: Any) -> Any:
        return self._errors[key]

    def append(self, error: tuple[str, str]) -> None:
        self._errors.append(error)

    def clear(self) -> None:
        self._errors.clear()


class _ThreadErrors(_helpers.ErrorHandler):
    """Error handler of the package with a list per thread: Dawn reports errors during the call that causes them."""

    def __init__(self, logger: Any):
        super().__init__(logger)
        self.pending = _PendingErrors()

    def raise_pending(self, frame_depth: int = 1) -> None:
        """Raise the first of the thread's errors, if there is one, and log any others."""
        errors = self.pending[:]
        self.pending.clear()
        for _, message in errors[1:]:
            self.log_error(message)
        for kind, message in errors[:1]:
            raise _ERRORS.get(kind, DawnError)(message)


class Dawn(Library):
    """Dawn."""

    def adapters(self) -> list[Any]:
        with _without_warnings():
            return list(wgpudawn.gpu.enumerate_adapters_sync())

    def driver(self, info: Mapping[str, Any]) -> str:
        # The description begins with the driver's name, which the package also has as the vendor.
        version = info["description"].removeprefix(f"{info['vendor']}: ")
        return f"{version}, Dawn {lib_version_info[0]}"

    def features(self, raw: Collection[str], limits: Mapping[str, int]) -> Collection[str]:
        names = {wgpus: dawns for wgpus, dawns in _NAMES.items() if dawns in raw}
        immediates = {"immediates"} if limits.get("max-immediate-size") else set()
        return {*raw, *names, *immediates}

    def matrix_units(self, adapter: Any) -> Matrices | None:
        configurations = extras.get_adapter_properties(adapter).get("subgroup_matrix_configs") or ()
        units = configured_units(configurations, turns=adapter.info["vendor_id"] != NVIDIA)
        if units is None or adapter.info["adapter_type"] != "CPU":
            return units
        # llvmpipe unrolls every operation: blocks of 4 x 4 matrices would compile 15 times as long.
        floats, integers = (other and replace(other, block=1) for other in (units.floats, units.integers))
        return replace(units, block=1, floats=floats, integers=integers)

    def request_device(self, adapter: Any, features: Collection[str]) -> Any:
        names = {_NAMES.get(feature, feature) for feature in features} - {"immediates"}
        unused = next((other for other in self.adapters() if dict(other.info) == dict(adapter.info)), adapter)
        device = extras.request_device_sync(
            unused,
            label="dmlgpu",
            required_features=sorted({*names, SYNCHRONIZED}),
            disable_toggles=["timestamp_quantization"],
        )
        return without_cycle(device)

    def check_wrapped(self, device: Any) -> None:
        if SYNCHRONIZED not in device.features:
            raise InvalidArgument(f"Device.from_wgpu: a device of Dawn must have the feature {SYNCHRONIZED!r}")

    def poll(self, device: Any) -> None:
        lib.wgpuInstanceProcessEvents(_helpers.get_wgpu_instance())

    def why_lost(self, device: Any) -> str | None:
        return None if device._lost_promise._state == "pending" else "the driver lost the device"

    def create_module(self, device: Any, label: str, wgsl: str) -> Any:
        has_subgroups = "subgroups" in device.features and "subgroup" in wgsl
        return device.create_shader_module(label=label, code=_PREFIX + wgsl if has_subgroups else wgsl)

    def create_unchecked_module(self, device: Any, label: str, wgsl: str, bounds_loops: bool) -> Any:
        return self.create_module(device, label, wgsl)

    def submit(self, queue: Any, commands: Any) -> None:
        self.libf.wgpuQueueSubmit(queue._internal, 1, ffi.new(self._commands, [commands]))

    def timestamp_period(self, queue: Any) -> float:
        return 1.0

    def destroy(self, device: Any) -> None:
        device.destroy()


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Remove Dawn's warnings from the standard error of the block."""
    try:
        sys.stderr.flush()
        duplicate = os.dup(2)
    except (AttributeError, OSError, ValueError):  # the process has no standard error
        yield
        return
    with tempfile.TemporaryFile() as file, open(duplicate, "wb", closefd=True) as stderr:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(duplicate, 2)
            file.seek(0)
            stderr.write(_WARNING.sub(b"", file.read()))


def _load() -> Dawn:
    """Set up the package before its first adapter is listed, and return the library."""
    _api.error_handler = _ThreadErrors(_api.logger)
    _api.libf = _helpers.SafeLibCalls(lib, _api.error_handler)
    with contextlib.suppress(RuntimeError):  # the program has used the package already
        extras.set_instance_extras(enable_toggles=["allow_unsafe_apis"])
    return Dawn("Dawn", wgpudawn, _api, ffi, lib)


DAWN: Final = _load()
"""The library, loaded."""
