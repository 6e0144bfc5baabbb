"""The user's folders, if they exist: some processes run as users without a home."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

FOLDER_VARIABLE: Final = "DMLGPU_CACHE"
"""Environment variable with the folder of the program cache, or ``off``."""


def home() -> Path | None:
    """Return the user's home folder, None if there is none."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def user_caches() -> Path | None:
    """Return the user's cache folder: ``LOCALAPPDATA`` on Windows, else ``XDG_CACHE_HOME`` or its default in the
    home folder; None if there is no home."""
    windows = sys.platform == "win32"
    named = os.environ.get("LOCALAPPDATA" if windows else "XDG_CACHE_HOME")
    if named:
        return Path(named)
    user_home = home()
    if user_home is None:
        return None
    return user_home / "AppData" / "Local" if windows else user_home / ".cache"


def cache_folder() -> Path:
    """Return dmlgpu's folder within the user's cache folder.

    Raises:
        FileNotFoundError: If there is no cache folder.
    """
    caches = user_caches()
    if caches is None:
        raise FileNotFoundError("the user has no folder for caches: there is no home, and no variable names one")
    return caches / "dmlgpu"
