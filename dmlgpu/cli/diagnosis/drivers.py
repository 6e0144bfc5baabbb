"""Which drivers there are: the loaders, the manifests of Vulkan drivers, the files of graphics cards."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from dmlgpu.cli.diagnosis.software import short
from dmlgpu.conformance.drivers.manifests import MANIFEST_VARIABLES, machine_manifests

_LOADERS = {"linux": ("libvulkan.so.1", "libEGL.so.1"), "win32": ("vulkan-1.dll", "d3d12.dll"), "darwin": ()}
_CARDS = Path("/dev/dri")


@dataclass(frozen=True)
class Loader:
    """A library that loads drivers, and whether it is there."""

    library: str
    found: bool


@dataclass(frozen=True)
class Manifest:
    """A Vulkan driver's manifest.

    Attributes:
        path: the file.
        library: the driver's library, as it is named there.
        api_version: the version of Vulkan that it says.
        problem: what is wrong with the file; empty where it is well.
    """

    path: str
    library: str
    api_version: str
    problem: str = ""


@dataclass(frozen=True)
class Card:
    """The file by which processes reach a graphics card, and whether this one may."""

    path: str
    usable: bool


def loaders() -> tuple[Loader, ...]:
    """Return the libraries that load drivers on this system. Loading them loads no driver."""
    return tuple(Loader(name, _loads(name)) for name in _LOADERS.get(sys.platform, ()))


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def manifests() -> tuple[Manifest, ...]:
    """Return the manifests of the machine's Vulkan drivers, on Linux; everywhere those that variables name in vain."""
    named = [(name, Path(text)) for name in MANIFEST_VARIABLES for text in os.environ.get(name, "").split(os.pathsep)]
    missing = [(name, path) for name, path in named if path.parts and not path.exists()]
    return (
        *(Manifest(short(path), "", "", f"{name} names it, but it does not exist") for name, path in missing),
        *(read_manifest(path) for path in machine_manifests()),
    )


def read_manifest(path: Path) -> Manifest:
    """Return what a manifest says, and what is wrong with it."""
    try:
        driver = json.loads(path.read_text(encoding="utf-8"))["ICD"]
        library, api = str(driver["library_path"]), str(driver.get("api_version", ""))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Manifest(short(path), "", "", f"it cannot be read: {type(error).__name__}: {error}")
    # A name without a slash is looked for by the system; a path is relative to the manifest.
    missing = "/" in library and not (path.parent / library).exists()
    return Manifest(short(path), short(library), api, "its library does not exist" if missing else "")


def cards() -> tuple[Card, ...]:
    """Return the graphics cards that Linux has files for."""
    found = sorted(_CARDS.glob("renderD*")) if _CARDS.is_dir() else []
    return tuple(Card(str(path), os.access(path, os.R_OK | os.W_OK)) for path in found)
