"""Which adapters there are, and which one a device takes."""

from __future__ import annotations

import os
import warnings

from dmlgpu import gpu
from dmlgpu.device.numpy_adapter import NUMPY_ADAPTER
from dmlgpu.target import AdapterInfo

ADAPTER_VARIABLE = "DMLGPU_ADAPTER"
"""Environment variable that names the adapter where a program does not."""

Choice = AdapterInfo | str | int | None


class SoftwareAdapterWarning(UserWarning):
    """No hardware adapter was found, so a software one runs the work, slowly."""


def adapters() -> tuple[AdapterInfo, ...]:
    """All adapters: those that wgpu reaches, then the NumPy reference, ``numpy``, which is always there."""
    return (*gpu.adapters(), NUMPY_ADAPTER)


def choose(wanted: Choice = None) -> AdapterInfo:
    """The adapter that fits a wish.

    Args:
        wanted: an adapter; its index in ``adapters()``; a part of its text in any case, ``"llvmpipe"``, ``"opengl"``,
            where the first match wins; None for the one that the environment variable DMLGPU_ADAPTER names so, else the
            first hardware adapter, else the first software adapter, else ``numpy``. A software adapter that nobody
            asked for is announced by a ``SoftwareAdapterWarning``, which Python prints once per place.

    Raises:
        AdapterNotFound: nothing matches; the message lists all adapters.
    """
    wanted = (os.environ.get(ADAPTER_VARIABLE, "").strip() or None) if wanted is None else wanted
    # Asked for by its name, the reference needs no look at drivers.
    if isinstance(wanted, str) and wanted.strip().lower() == NUMPY_ADAPTER.name:
        return NUMPY_ADAPTER
    if isinstance(wanted, AdapterInfo):
        return wanted
    info = gpu.choose(wanted, adapters())
    if wanted is None and info.is_software:
        _announce(info)
    return info


def _announce(info: AdapterInfo) -> None:
    what = "no GPU adapter" if info == NUMPY_ADAPTER else "no hardware adapter"
    warnings.warn(
        f"{what} was found: dmlgpu runs on '{info}', in software; "
        f"name an adapter in {ADAPTER_VARIABLE} or Device(adapter=...) to silence this",
        SoftwareAdapterWarning,
        stacklevel=4,  # past choose and Device.__init__, to their caller
    )
