"""List and select adapters, and open their executors."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dmlgpu.common.coercion import as_index
from dmlgpu.common.errors import AdapterNotFound, InvalidArgument, shown, warn_caller
from dmlgpu.common.memory import host_budget
from dmlgpu.compiler.quirks import are_ignored, quirks_in_force
from dmlgpu.compiler.target import AdapterInfo, Target
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from dmlgpu.runtime.specialization import Specialize

if TYPE_CHECKING:  # listing adapters need not load the compiler
    from dmlgpu.runtime.executor import Backend

ADAPTER_VARIABLE = "DMLGPU_ADAPTER"
"""Environment variable that names the default adapter."""

BROWSER = "browser"
"""Selects the adapter of a browser page; the lower-case backend of such adapters."""

BROWSER_VARIABLE = "DMLGPU_BROWSER"
"""Environment variable with the address of a running server of browser pages."""

_NUMBER = re.compile("[0-9]{1,9}")
"""An index in digits. Longer numbers match no adapter, and Python rejects more than 4,300 digits."""

Choice = AdapterInfo | str | int | None


class SoftwareAdapterWarning(UserWarning):
    """No hardware adapter was found, so a software one runs the work, slowly.

    Args:
        why: Reason, such as a missing driver.
        info: The adapter.
    """

    def __init__(self, why: str, info: AdapterInfo):
        self.why, self.info = why, info
        super().__init__(self.text("Device({!r})"))

    def text(self, cure: str) -> str:
        """Return the message.

        Args:
            cure: Code or option that selects an adapter by its name, ``{}``, besides the environment variable.
        """
        name = self.info.name.partition(" ")[0].lower()
        return (
            f"{self.why}: dmlgpu computes on '{self.info.short_name}', in software; {cure.format(name)} or "
            f"{ADAPTER_VARIABLE}={name} silences this"
        )


class DriverFaultWarning(RuntimeWarning):
    """A device is opened on a driver with a known fault, which a newer one lacks.

    dmlgpu's operators avoid the fault; kernels in WGSL that a program brings do not.
    """


def adapters() -> tuple[AdapterInfo, ...]:
    """Return all adapters.

    First the adapters of wgpu (none if it is not installed), then those of Dawn (extra `dawn`), then ``numpy``, then
    those of browser pages connected to the server that the environment variable DMLGPU_BROWSER names. Indices of this
    list select adapters.
    """
    gpu = _gpu()
    of_dawn = () if gpu is None else gpu.dawn_adapters()
    own = _adapters_without_dawn()
    numpy = own.index(NUMPY_ADAPTER)
    return (*own[:numpy], *of_dawn, *own[numpy:])


def _adapters_without_dawn() -> tuple[AdapterInfo, ...]:
    gpu = _gpu()
    pages = _browser().pages() if os.environ.get(BROWSER_VARIABLE) else ()
    return (*(() if gpu is None else gpu.adapters()), NUMPY_ADAPTER, *pages)


def choose(requested: Choice = None, *, announce: bool = True) -> AdapterInfo:
    """Select an adapter.

    Args:
        requested: An adapter; its index in ``adapters()``, also as digits; part of its text, ignoring case, such as
            ``"llvmpipe"`` or ``"opengl"``, of which the first match wins; ``"browser"`` for a browser page, which is
            waited for (``docs/browser.md``). None takes the environment variable DMLGPU_ADAPTER, else the first
            hardware adapter on which a device can be created, else the first software adapter, else ``numpy``; OpenGL
            comes last among its kind, since other backends offer more features, and adapters of Dawn are not
            considered. A software adapter selected by None is announced by a ``SoftwareAdapterWarning``, once per
            process.
        announce: False suppresses the warning.

    Raises:
        AdapterNotFound: If nothing matches; the message lists all adapters.
        InvalidArgument: If `requested` has another type.
    """
    requested = (environment_choice() or None) if requested is None else requested
    if isinstance(requested, AdapterInfo):
        return requested
    # Asked for by its name, the reference needs no look at drivers.
    if isinstance(requested, str) and requested.strip().lower() == NUMPY_ADAPTER.name:
        return NUMPY_ADAPTER
    if isinstance(requested, str) and requested.strip().lower() == BROWSER:
        return _browser().some_pages()[0]
    if isinstance(requested, str) and _NUMBER.fullmatch(requested.strip()):
        requested = int(requested)
    # Adapters of Dawn take time to list, and others that match come first.
    known = _adapters_without_dawn()
    info = pick(requested, known) if requested is None or isinstance(requested, str) else None
    if info is None or (requested is not None and info.backend in ("NumPy", "Browser")):
        known = adapters()
        info = pick(requested, known)
    if info is None:
        raise AdapterNotFound(requested, [str(info) for info in known], why_no_gpu())
    if requested is None and info.is_software and announce:
        _announce(info, known)
    return info


def pick(requested: str | int | None, known: Sequence[AdapterInfo]) -> AdapterInfo | None:
    """Return the adapter that ``choose`` selects from a list, or None.

    Args:
        requested: As of ``choose``.
        known: The adapters, including ``numpy``.

    Raises:
        InvalidArgument: If `requested` is neither an index nor a string.
    """
    if requested is None:
        local = [info for info in known if info.backend.lower() != BROWSER and not info.is_of_dawn]
        local.sort(key=lambda info: (info == NUMPY_ADAPTER, info.is_software, info.backend == "OpenGL"))
        return next(info for info in local if not why_unusable(info))
    if isinstance(requested, str) and not _NUMBER.fullmatch(requested.strip()):
        text = requested.strip().lower()
        return next((info for info in known if text in str(info).lower()), None)
    index = int(requested) if isinstance(requested, str) else as_index(requested)
    if index is None:
        kind = "an AdapterInfo, an index, a part of an adapter's text or None"
        raise InvalidArgument(f"Device: adapter must be {kind}, got {shown(requested)}")
    return known[index] if 0 <= index < len(known) else None


@functools.cache  # bounded by the adapters of the machine
def why_unusable(info: AdapterInfo) -> str:
    """Return why no device can be created on an adapter; empty if one can, or this process does not reach it.

    Only adapters of unknown kind are tried: OpenGL of GPUs, which may lack compute shaders.
    """
    gpu = _gpu() if info.kind == "unknown" and info.backend.lower() != BROWSER else None
    if gpu is None:
        return ""
    try:
        reason: str = gpu.why_unusable(info)
    except AdapterNotFound:
        return ""
    return reason


def wait_for_pages(count: int) -> list[AdapterInfo]:
    """Wait for a number of browser pages and return their adapters; starts a server if none is running.

    Raises:
        AdapterNotFound: If the extra `browser` is not installed.
        DmlError: If the server does not answer.
    """
    return _browser().some_pages(count)


def show_in_page(info: AdapterInfo, **shown: str | int) -> None:
    """Show in a browser page which work it runs (see ``browser.lending.show``)."""
    _browser().show(info, **shown)


def environment_choice() -> str:
    """Return the value of the environment variable DMLGPU_ADAPTER; empty if it is not set."""
    return os.environ.get(ADAPTER_VARIABLE, "").strip()


def why_no_gpu() -> str:
    """Return why no GPU can be used on this machine; empty if there may be one."""
    return "" if _gpu() else "wgpu is not installed, so no GPU can be reached"


def target_of(info: AdapterInfo, half_precision: bool = False, precise: bool = False) -> Target | None:
    """Return the compile target of an adapter without opening a device; None if nothing is compiled (``numpy``, or wgpu
    is not installed). Sizes are parameters of kernels if the environment variable DMLGPU_SPECIALIZE is ``never``.

    Args:
        info: An adapter.
        half_precision: Whether float16 arithmetic is allowed.
        precise: As of ``Device``.
    """
    if info.backend.lower() == BROWSER:
        target: Target = _browser().target_of(info, precise=precise)
    else:
        gpu = None if info == NUMPY_ADAPTER else _gpu()
        if gpu is None:
            return None
        target = gpu.target_of(info, precise=precise)
    target = target.general if Specialize.of(None) is Specialize.NEVER else target
    return target.for_operators(half_precision)


def check_variables() -> None:
    """Check the environment variables that decide which kernels run and how much memory they get, so that a wrong value
    is one error, not one of every device.

    Raises:
        InvalidArgument: If a variable has an unknown value.
    """
    Specialize.of(None)
    are_ignored()
    host_budget()
    gpu = _gpu()
    if gpu is not None:
        gpu.check_variables()


def open_executor(info: AdapterInfo, options: Mapping[str, Any]) -> Backend:
    """Open the executor of an adapter. Options are those of ``Device``, ``deterministic`` to ``disabled_features``, and
    for adapters other than ``numpy`` ``tell``, called with the kernels of each program before they are compiled.

    Raises:
        AdapterNotFound: If the adapter is not of this machine, or wgpu is not installed.
        DeviceRemoved: If the browser page is disconnected.
        NotSupported: If the driver cannot create a device.
    """
    if info == NUMPY_ADAPTER:
        from dmlgpu.runtime.numpy.backend import NumPyBackend  # noqa: PLC0415 - listing adapters need not load the reference

        return NumPyBackend(**{name: value for name, value in options.items() if name != "disabled_features"})
    if info.backend.lower() == BROWSER:
        return _browser().open_page(info, **options)
    gpu = _gpu()
    if gpu is None:
        raise AdapterNotFound(str(info), [str(NUMPY_ADAPTER)], why_no_gpu())
    return gpu.GpuBackend(info, **options)


def wrap_executor(wgpu_device: Any, options: Mapping[str, Any]) -> Backend:
    """Create an executor over an existing wgpu device. Options are those of ``open_executor``.

    Raises:
        AdapterNotFound: If wgpu is not installed.
        InvalidArgument: If it is not a wgpu device.
    """
    gpu = _gpu()
    if gpu is None:
        raise AdapterNotFound(type(wgpu_device).__name__, [str(NUMPY_ADAPTER)], why_no_gpu())
    return gpu.GpuBackend.from_wgpu(wgpu_device, **options)


def _gpu() -> ModuleType | None:
    """Import the wgpu executor, which loads the driver library; None if wgpu is not installed."""
    try:
        from dmlgpu.runtime import wgpu as gpu  # noqa: PLC0415 - the ``numpy`` adapter does without
    except ModuleNotFoundError as missing:
        if missing.name != "wgpu":
            raise
        return None
    return gpu


def _browser() -> ModuleType:
    """Import the executor of browser pages.

    Raises:
        AdapterNotFound: If the extra `browser` is not installed.
    """
    try:
        from dmlgpu.runtime.browser import lending  # noqa: PLC0415 - all other adapters do without
    except ModuleNotFoundError as missing:
        if missing.name not in ("websockets", "segno"):
            raise
        why = f"{missing.name} is not installed; install it with: pip install 'dmlgpu[browser]'"
        raise AdapterNotFound(BROWSER, [str(NUMPY_ADAPTER)], why) from missing
    return lending


announced: set[str] = set()
"""Adapters for which this process has issued a warning, and their quirks."""


def _announce(info: AdapterInfo, known: Sequence[AdapterInfo]) -> None:
    if str(info) in announced:
        return
    announced.add(str(info))
    unusable = [f"'{other.short_name}': {reason}" for other in known if (reason := why_unusable(other))]
    why = f"no {'GPU' if info == NUMPY_ADAPTER else 'hardware'} adapter was found"
    if unusable:
        why = f"no usable hardware adapter was found ({'; '.join(unusable)})"
    warn_caller(SoftwareAdapterWarning(why_no_gpu() or why, info))


def announce_faults(info: AdapterInfo) -> None:
    """Warn of the faults of an adapter's driver that a newer one lacks, once per process: a ``DriverFaultWarning``."""
    for quirk in quirks_in_force(info):
        if quirk.remedy and (key := f"{info} {quirk.name}") not in announced:
            announced.add(key)
            avoided = "dmlgpu's operators avoid it, kernels of your own do not"
            warn_caller(f"{info}: {quirk.why}; {avoided}: {quirk.remedy}", DriverFaultWarning)
