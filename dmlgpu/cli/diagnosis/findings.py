"""What is to be done: a sentence on each thing that is missing or wrong, and one on how to mend it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dmlgpu.cli.diagnosis.software import Requirement

if TYPE_CHECKING:
    from dmlgpu.cli.diagnosis.adapters import Examination, Examined
    from dmlgpu.cli.diagnosis.drivers import Card, Loader, Manifest

FIRST_MESA_TO_TRUST = 25
"""Older releases of Mesa silently cut long loops short on llvmpipe: docs/driver-failures.md."""

_PACKAGES = {
    "libvulkan.so.1": "the Vulkan loader: libvulkan1 (Debian, Ubuntu), vulkan-loader (Fedora), "
    "vulkan-icd-loader (Arch Linux)",
    "libEGL.so.1": "the EGL loader, for OpenGL: libegl1 (Debian, Ubuntu), libglvnd-egl (Fedora), libglvnd (Arch Linux)",
    "vulkan-1.dll": "the driver of the graphics card's vendor, which brings the Vulkan loader",
    "d3d12.dll": "Windows 10 or later, which brings Direct3D 12",
}
_VULKAN_DRIVERS = (
    "the graphics card's driver (NVIDIA's own; Mesa's for AMD and Intel), or Mesa's software driver: "
    "mesa-vulkan-drivers (Debian, Ubuntu, Fedora), vulkan-swrast (Arch Linux)"
)
_MESA = re.compile(r"\bMesa (\d+)\.")


@dataclass(frozen=True)
class Finding:
    """Something to be known.

    Attributes:
        is_problem: whether something does not work as it should; a note else.
        text: what was found.
        remedy: what to do about it.
    """

    is_problem: bool
    text: str
    remedy: str


def of_requirements(requirements: Sequence[Requirement]) -> Iterator[Finding]:
    """Find packages that are missing, or of a version that will not do; extras that are not there are a note."""
    for one in requirements:
        has = f"{one.package} {one.installed}" if one.installed else f"{one.package} is not installed"
        wanted = f"{one.package}{one.wanted}"
        if not one.extra and not one.fits:
            yield Finding(True, f"{has}; dmlgpu needs {wanted}", f"pip install '{wanted}'")
        elif one.installed and not one.fits:
            yield Finding(True, f"{has}; the extra {one.extra} needs {wanted}", f"pip install 'dmlgpu[{one.extra}]'")
    missing: dict[str, list[str]] = {}
    for one in requirements:
        if one.extra and one.installed is None:
            missing.setdefault(one.extra, []).append(one.package)
    if missing:
        text = "; ".join(f"{extra} needs {', '.join(packages)}" for extra, packages in missing.items())
        yield Finding(False, f"extras that are not complete: {text}", "pip install 'dmlgpu[EXTRA]', if you need one")


def of_drivers(loaders: Sequence[Loader], manifests: Sequence[Manifest], cards: Sequence[Card]) -> Iterator[Finding]:
    """Find loaders and drivers that are missing or broken, and graphics cards that may not be used."""
    for loader in loaders:
        if not loader.found:
            yield Finding(True, f"{loader.library} cannot be loaded", f"install {_PACKAGES[loader.library]}")
    if sys.platform.startswith("linux") and not manifests:
        yield Finding(True, "there is no manifest of a Vulkan driver", f"install {_VULKAN_DRIVERS}")
    for manifest in manifests:
        if manifest.problem:
            remedy = "install its driver again, or remove the file and what names it"
            yield Finding(True, f"{manifest.path}: {manifest.problem}", remedy)
    for card in cards:
        if not card.usable:
            remedy = 'sudo usermod -aG render "$USER", then log in again; in a container pass the device in'
            yield Finding(True, f"{card.path} may not be read and written by this user", remedy)


def of_adapters(examination: Examination) -> Iterator[Finding]:
    """Find adapters that are missing, slow, or compute wrong."""
    for problem in examination.problems:
        yield Finding(True, problem, "install this driver again in its newest version, or remove its manifest")
    if examination.unmatched:
        text = f"DMLGPU_ADAPTER is {examination.unmatched!r}, which is no adapter's name or number here"
        yield Finding(True, text, "unset it, or give it a name or a number that `dmlgpu devices` shows")
    reached = [one.located.info for one in examination.adapters if one.is_reached]
    gpus = [info for info in reached if info.backend != "NumPy"]
    others = [one for one in examination.adapters if not one.is_reached and one.located.info.backend != "NumPy"]
    if not gpus and others:
        command = " ".join(f"{name}={value}" for name, value in others[0].located.environment)
        yield Finding(True, f"no GPU adapter is reached, but another driver has {others[0].located.info}", command)
    elif not gpus:
        remedy = f"install {_VULKAN_DRIVERS}" if sys.platform.startswith("linux") else "install the card's driver"
        yield Finding(True, "there is no GPU adapter, so everything runs on the NumPy reference, slowly", remedy)
    elif all(info.is_software for info in gpus):
        text = "all GPU adapters are software, which is right but slow"
        yield Finding(False, text, "where there is a graphics card, install its vendor's driver")
    for one in examination.adapters:
        yield from _of_adapter(one)


def _of_adapter(one: Examined) -> Iterator[Finding]:
    for outcome in one.outcomes:
        if not outcome.status.is_good:
            what = f"{outcome.status}: {outcome.message}" if outcome.message else str(outcome.status)
            text = f"{one.located} does not compute {outcome.case} as it should: {what}"
            again = f"see it again by {' and '.join(one.again)}; " if one.again else ""
            yield Finding(True, text, f"{again}docs/driver-failures.md says what to do")
    info = one.located.info
    mesa = _MESA.search(info.driver)
    if mesa and "llvmpipe" in info.name and int(mesa[1]) < FIRST_MESA_TO_TRUST:
        text = f"{one.located} is of Mesa {mesa[1]}, which silently cuts long loops short; dmlgpu works round that"
        yield Finding(False, text, f"install Mesa {FIRST_MESA_TO_TRUST} or newer (Debian: the backports suite)")
