"""The manifests of Vulkan drivers: small files (JSON) that tell Vulkan's loader where a driver lies."""

from __future__ import annotations

import glob
import os
import sys
from pathlib import Path

from dmlgpu.common import folders
from dmlgpu.common.errors import InvalidArgument

MANIFEST_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES")
"""Variables that list manifests, or folders of such."""

SWIFTSHADER_MANIFESTS = (
    "/usr/lib*/chromium*/vk_swiftshader_icd.json",
    "/opt/google/chrome*/vk_swiftshader_icd.json",
    "~/.cache/ms-playwright/chromium*/*/vk_swiftshader_icd.json",
)
"""Where browsers keep SwiftShader, which they bring for themselves."""


def manifests_at(path: Path) -> tuple[Path, ...]:
    """A driver's manifest, or those that a folder holds.

    Raises:
        InvalidArgument: when there is none.
    """
    if path.is_file():
        return (path.absolute(),)
    found = tuple(sorted(path.absolute().glob("*.json")))
    if not found:
        raise InvalidArgument(f"{path} must be a Vulkan driver's manifest, or a folder with such files (*.json)")
    return found


def machine_manifests() -> tuple[Path, ...]:
    """The manifests of the machine's Vulkan drivers, on Linux: where the loader looks, and browsers' SwiftShader."""
    if not sys.platform.startswith("linux"):
        return ()
    named = [Path(text) for name in MANIFEST_VARIABLES for text in _paths(os.environ.get(name, ""))]
    places = [Path(text, "vulkan", "icd.d") for text in _loader_folders()]
    browsers = [Path(text) for pattern in SWIFTSHADER_MANIFESTS for text in glob.glob(os.path.expanduser(pattern))]
    unique: dict[Path, Path] = {}
    for path in (*named, *places, *browsers):
        for manifest in [path] if path.is_file() else sorted(path.glob("*.json")):
            unique.setdefault(manifest.resolve(), manifest.absolute())
    return tuple(unique.values())


def _loader_folders() -> list[str]:
    """Where Vulkan's loader looks on Linux, in its order."""
    home = folders.home()
    texts = (
        os.environ.get("XDG_CONFIG_HOME") or str(home / ".config" if home else ""),
        os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg",
        "/usr/local/etc:/etc",
        os.environ.get("XDG_DATA_HOME") or str(home / ".local/share" if home else ""),
        os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share",
    )
    return [folder for text in texts for folder in _paths(text)]


def _paths(text: str) -> list[str]:
    return [path for path in text.split(os.pathsep) if path]
