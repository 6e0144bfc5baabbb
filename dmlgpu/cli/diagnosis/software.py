"""Which software there is: versions, dependencies and extras, environment variables, caches on disk."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import dmlgpu
from dmlgpu import folders

FOR_WORK = ("array-api-tests", "release", "test")
"""The extras for work on dmlgpu itself; the others are for users."""

DEPENDENCIES = ("wgpu", "numpy", "jinja2")
"""What the library needs, for where dmlgpu runs without having been installed."""

_VARIABLES = (
    *("DMLGPU_", "WGPU_", "VK_", "MESA_", "LIBGL_", "GALLIUM_", "LP_", "RADV_", "ANV_", "INTEL_", "NVK_", "ZINK_"),
    *("__EGL_", "__GLX_", "EGL_", "DRI_PRIME", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("PYTHONPATH", "DISPLAY", "WAYLAND_DISPLAY", "XDG_DATA_DIRS", "XDG_CONFIG_DIRS"),
)
"""How the names of the variables begin that decide which adapters there are and how they compute."""

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_MOST_FILES = 100_000


@dataclass(frozen=True)
class Requirement:
    """A package that dmlgpu or one of its extras asks for.

    Attributes:
        extra: its name; empty for what the library itself needs.
        package: the package's name.
        wanted: the versions that will do, ``>=0.32,<0.33``; empty for any.
        installed: the version that is there, None where there is none.
        fits: whether it will do; where that cannot be told, whether it is there.
    """

    extra: str
    package: str
    wanted: str
    installed: str | None
    fits: bool


@dataclass(frozen=True)
class Cache:
    """A folder in which a driver keeps compiled kernels.

    Attributes:
        name: whose it is.
        path: the folder.
        files, size: how many files it holds, at most 100,000 of them counted, and their bytes.
    """

    name: str
    path: str
    files: int
    size: int


def versions() -> dict[str, str]:
    """Return the versions of dmlgpu, Python and what the library needs, and the computer's kind."""
    found = {name: installed(name) or "not installed" for name in DEPENDENCIES}
    return {
        "dmlgpu": dmlgpu.__version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        **found,
        "os": platform.platform(),
        "processor": f"{platform.processor() or platform.machine()}, {os.cpu_count()} logical",
        "dmlgpu_at": short(Path(dmlgpu.__file__).parent),
        "python_at": short(Path(sys.executable)),
    }


def installed(package: str) -> str | None:
    """Return the version of a package that is there, None where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def requirements() -> tuple[Requirement, ...]:
    """Return what dmlgpu and its extras for users ask for; of a dmlgpu that is not installed only what the library
    needs."""
    try:
        texts = requires("dmlgpu") or list(DEPENDENCIES)
    except PackageNotFoundError:
        texts = list(DEPENDENCIES)
    return tuple(_requirements(texts))


def _requirements(texts: Iterable[str]) -> Iterator[Requirement]:
    """The requirements of some lines of a package's metadata, without those for other versions of Python, and without
    extras that ask for other extras of dmlgpu."""
    for text in texts:
        asked, _, marker = text.partition(";")
        name, found = _NAME.match(asked.strip()), _EXTRA.search(marker)
        extra = found[1] if found else ""
        if name is None or name[0] == "dmlgpu" or extra in FOR_WORK or not _applies(marker.strip(), extra):
            continue
        wanted, there = asked.strip()[name.end() :].strip(" ()"), installed(name[0])
        yield Requirement(extra, name[0], wanted, there, there is not None and _fits(there, wanted))


def _applies(marker: str, extra: str) -> bool:
    """Return whether a requirement with a marker is one of the extra's here; True where ``packaging``, which knows, is
    not installed."""
    try:
        from packaging.markers import Marker  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return True
    return not marker or Marker(marker).evaluate({"extra": extra})


def _fits(there: str, wanted: str) -> bool:
    """Return whether a version is among those wanted; True where ``packaging``, which knows, is not installed."""
    try:
        from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return True
    return SpecifierSet(wanted).contains(there, prereleases=True)


def environment() -> dict[str, str]:
    """Return the environment variables that matter, by name."""
    return {name: short(value) for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)}


def caches() -> tuple[Cache, ...]:
    """Return the folders that exist of those in which drivers keep compiled kernels."""
    found = []
    for name, folder in _cache_folders():
        if folder.is_dir():
            sizes = list(_sizes(folder))
            found.append(Cache(name, short(folder), len(sizes), sum(sizes)))
    return tuple(found)


def _cache_folders() -> Iterator[tuple[str, Path]]:
    """Yield where drivers keep compiled kernels, each with whose folder it is."""
    usual, home = folders.user_caches(), folders.home()
    mesa = os.environ.get("MESA_SHADER_CACHE_DIR") or usual
    nvidia = os.environ.get("__GL_SHADER_DISK_CACHE_PATH") or (usual and usual / "nvidia")
    if mesa:
        for part in ("mesa_shader_cache", "mesa_shader_cache_db", "mesa_shader_cache_sf"):
            yield "Mesa", Path(mesa, part)
    if nvidia:
        yield "NVIDIA", Path(nvidia)
    if home:
        yield "NVIDIA", home / ".nv"
    if usual:
        yield "AMD", usual / "AMD"
        yield "Direct3D", usual / "D3DSCache"


def _sizes(folder: Path) -> Iterator[int]:
    """The bytes of the files below a folder, as far as they may be looked at."""
    left = _MOST_FILES
    for root, _, names in os.walk(folder):
        for name in names[:left]:
            try:
                yield os.stat(os.path.join(root, name)).st_size
            except OSError:  # it has gone meanwhile
                continue
        left -= len(names)
        if left <= 0:
            return


def short(path: str | Path) -> str:
    """Return a text in which ``~`` stands for the home folder, so that a report does not tell the user's name."""
    text, home = str(path), str(folders.home() or "")
    return text if home in ("/", "") else re.sub(rf"{re.escape(home)}(?=$|[/\\:])", "~", text)
