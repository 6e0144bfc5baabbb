"""Listing and choosing adapters, and opening their executors."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dmlgpu.common.coercion import as_index
from dmlgpu.common.errors import AdapterNotFound, InvalidArgument, shown
from dmlgpu.compiler.target import AdapterInfo, Target
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

if TYPE_CHECKING:  # listing adapters need not load what programs are made of
    from dmlgpu.runtime.executor import Backend

ADAPTER_VARIABLE = "DMLGPU_ADAPTER"
"""Environment variable that names the adapter where a program does not."""

BROWSER = "browser"
"""What chooses a browser's page; their adapters' backend, in small letters."""

BROWSER_VARIABLE = "DMLGPU_BROWSER"
"""Environment variable that holds the address at which a running server of pages lends them."""

_NUMBER = re.compile("[0-9]{1,9}")
"""An index in digits; longer ones are of no adapter, and Python refuses to read those of more than 4,300."""

Choice = AdapterInfo | str | int | None


class SoftwareAdapterWarning(UserWarning):
    """No hardware adapter was found, so a software one runs the work, slowly."""


def adapters() -> tuple[AdapterInfo, ...]:
    """Return all adapters: those that wgpu reaches, none where it is not installed; then ``numpy``, always there; then
    those of browsers' pages that have come to the server that the environment variable DMLGPU_BROWSER names."""
    gpu = _gpu()
    pages = _browser().pages() if os.environ.get(BROWSER_VARIABLE) else ()
    return (*(() if gpu is None else gpu.adapters()), NUMPY_ADAPTER, *pages)


def choose(requested: Choice = None, *, announce: bool = True) -> AdapterInfo:
    """Choose an adapter.

    Args:
        wanted: an adapter; its index in ``adapters()``, also in digits; a part of its text in any case, ``"llvmpipe"``,
            ``"opengl"``, where the first match wins; ``"browser"`` for that of a browser's page, which is waited for
            (``docs/browser.md``); None for the one that the environment variable DMLGPU_ADAPTER
            names so, else the first hardware adapter, else the first software adapter, else ``numpy``. OpenGL goes last
            among its like, because another backend reaches the same adapter with more features. A software adapter that
            nobody asked for is announced by a ``SoftwareAdapterWarning``, once in a process.
        announce: False keeps that to itself.

    Raises:
        AdapterNotFound: nothing matches; the message lists all adapters.
        InvalidArgument: something else than these.
    """
    requested = (environment_choice() or None) if requested is None else requested
    if isinstance(requested, AdapterInfo):
        return requested
    # Asked for by its name, the reference needs no look at drivers.
    if isinstance(requested, str) and requested.strip().lower() == NUMPY_ADAPTER.name:
        return NUMPY_ADAPTER
    if isinstance(requested, str) and requested.strip().lower() == BROWSER:
        return _browser().first_page()
    known = adapters()
    if isinstance(requested, str) and _NUMBER.fullmatch(requested.strip()):
        requested = int(requested)
    info = pick(requested, known)
    if info is None:
        raise AdapterNotFound(requested, [str(info) for info in known], why_no_gpu())
    if requested is None and info.is_software and announce:
        _announce(info)
    return info


def pick(requested: str | int | None, known: Sequence[AdapterInfo]) -> AdapterInfo | None:
    """Return the adapter that ``choose`` takes out of a list, None if nothing matches.

    Args:
        wanted: as of ``choose``.
        known: the adapters, ``numpy`` among them.

    Raises:
        InvalidArgument: neither an index nor a text.
    """
    if requested is None:
        local = [info for info in known if info.backend.lower() != BROWSER]
        return min(local, key=lambda info: (info == NUMPY_ADAPTER, info.is_software, info.backend == "OpenGL"))
    if isinstance(requested, str) and not _NUMBER.fullmatch(requested.strip()):
        text = requested.strip().lower()
        return next((info for info in known if text in str(info).lower()), None)
    index = int(requested) if isinstance(requested, str) else as_index(requested)
    if index is None:
        kind = "an AdapterInfo, an index, a part of an adapter's text or None"
        raise InvalidArgument(f"Device: adapter must be {kind}, got {shown(requested)}")
    return known[index] if 0 <= index < len(known) else None


def wait_for_pages(count: int) -> list[AdapterInfo]:
    """Wait until so many browsers' pages are there, and return their adapters; start a server for them where none runs.

    Raises:
        AdapterNotFound: what it needs is not installed.
        DmlError: the server does not answer.
    """
    pages: list[AdapterInfo] = _browser().some_pages(count)
    return pages


def show_in_page(info: AdapterInfo, **shown: str | int) -> None:
    """Have a browser's page show what it is used for (see ``browser.lending.show``)."""
    _browser().show(info, **shown)


def environment_choice() -> str:
    """Return the value of the environment variable DMLGPU_ADAPTER; empty if it is not set."""
    return os.environ.get(ADAPTER_VARIABLE, "").strip()


def why_no_gpu() -> str:
    """Return why no GPU can be reached on any machine, or an empty text if one might be."""
    return "" if _gpu() else "wgpu is not installed, so no GPU can be reached"


def target_of(info: AdapterInfo, half_precision: bool = False, precise: bool = False) -> Target | None:
    """Return what operators are compiled for on an adapter, without opening a device; None where nothing is compiled:
    on ``numpy``, and where wgpu is not installed.

    Args:
        info: one of the adapters.
        half_precision: whether native 16-bit arithmetic is allowed.
        precise: as of ``Device``.
    """
    if info.backend.lower() == BROWSER:
        of_page: Target = _browser().target_of(info, precise=precise)
        return of_page.for_operators(half_precision)
    gpu = None if info == NUMPY_ADAPTER else _gpu()
    if gpu is None:
        return None
    target: Target = gpu.target_of(info, precise=precise)
    return target.for_operators(half_precision)


def open_watched_page(info: AdapterInfo, tell: Callable[[tuple[str, ...]], None], *, precise: bool = False) -> Backend:
    """Make the executor of a browser's page; the function is told the kernels of each program before they are compiled.
    Raises as ``open_executor``."""
    page: Backend = _browser().open_page(info, tell=tell, precise=precise)
    return page


def open_executor(info: AdapterInfo, options: Mapping[str, Any]) -> Backend:
    """Make the executor of an adapter; the options are those of ``Device``, ``deterministic`` to ``disabled_features``.

    Raises:
        AdapterNotFound: the adapter is not this machine's, or wgpu is not installed.
        DeviceRemoved: the browser's page is away.
        NotSupported: the driver gives no device.
    """
    if info == NUMPY_ADAPTER:
        from dmlgpu.runtime.numpy.backend import NumPyBackend  # noqa: PLC0415 - listing adapters need not load the reference

        return NumPyBackend(**{name: value for name, value in options.items() if name != "disabled_features"})
    if info.backend.lower() == BROWSER:
        page: Backend = _browser().open_page(info, **options)
        return page
    gpu = _gpu()
    if gpu is None:
        raise AdapterNotFound(str(info), [str(NUMPY_ADAPTER)], why_no_gpu())
    backend: Backend = gpu.GpuBackend(info, **options)
    return backend


def wrap_executor(wgpu_device: Any, options: Mapping[str, Any]) -> Backend:
    """Make an executor over a wgpu device made elsewhere; the options are those of ``open_executor``.

    Raises:
        AdapterNotFound: wgpu is not installed.
        InvalidArgument: no wgpu device.
    """
    gpu = _gpu()
    if gpu is None:
        raise AdapterNotFound(type(wgpu_device).__name__, [str(NUMPY_ADAPTER)], why_no_gpu())
    backend: Backend = gpu.GpuBackend.from_wgpu(wgpu_device, **options)
    return backend


def _gpu() -> ModuleType | None:
    """Return the executor on wgpu, whose import loads the driver library; None if wgpu is not installed."""
    try:
        from dmlgpu.runtime import wgpu as gpu  # noqa: PLC0415 - the ``numpy`` adapter does without
    except ModuleNotFoundError as missing:
        if missing.name != "wgpu":
            raise
        return None
    return gpu


def _browser() -> ModuleType:
    """Return the executor in browsers' pages.

    Raises:
        AdapterNotFound: what it needs is not installed.
    """
    try:
        from dmlgpu.runtime.browser import lending  # noqa: PLC0415 - all other adapters do without
    except ModuleNotFoundError as missing:
        if missing.name not in ("websockets", "segno"):
            raise
        why = f"{missing.name} is not installed; install it with: pip install 'dmlgpu[browser]'"
        raise AdapterNotFound(BROWSER, [str(NUMPY_ADAPTER)], why) from missing
    return lending


_announced: set[str] = set()
"""Adapters of which there was a warning in this process."""


def _announce(info: AdapterInfo) -> None:
    if str(info) in _announced:
        return
    _announced.add(str(info))
    why = why_no_gpu() or f"no {'GPU' if info == NUMPY_ADAPTER else 'hardware'} adapter was found"
    warnings.warn(
        f"{why}: dmlgpu runs on '{info}', in software; "
        f"name an adapter in {ADAPTER_VARIABLE} or Device(adapter=...) to silence this",
        SoftwareAdapterWarning,
        stacklevel=4,  # past choose and Device.__init__, to their caller
    )
