"""Adapters on which cases can run: those of this process, and those of every other driver of the machine.

The Vulkan loader offers all drivers of its search path at once, never two versions of one, and none from elsewhere. So
each driver's manifest gets an environment, which is passed to the child processes that run cases there. A driver that
crashes or hangs when it is listed results in a message.

A child process that calls ``main`` lists the adapters of its environment.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from dmlgpu.common import folders
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.common.processes import (
    ChildLost,
    ChildProcess,
    NoAnswer,
    answer_stream,
    exit_with_parent,
    python_command,
    send_answer,
    tell_ready,
)
from dmlgpu.compiler.target import SCHEDULES_VARIABLE, AdapterInfo
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

MANIFEST_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES")
"""Variables that list manifests, or folders of such."""

SWIFTSHADER_MANIFESTS = (
    "/usr/lib*/chromium*/vk_swiftshader_icd.json",
    "/opt/google/chrome*/vk_swiftshader_icd.json",
    "~/.cache/ms-playwright/chromium*/*/vk_swiftshader_icd.json",
)
"""Paths of the SwiftShader that browsers bundle."""


def manifests_at(path: Path) -> tuple[Path, ...]:
    """Return a driver's manifest, or those that a folder holds.

    Raises:
        InvalidArgument: If there is none.
    """
    if path.is_file():
        return (path.absolute(),)
    manifests = tuple(sorted(path.absolute().glob("*.json")))
    if not manifests:
        raise InvalidArgument(f"{path} must be a Vulkan driver's manifest, or a folder with such files (*.json)")
    return manifests


def machine_manifests() -> tuple[Path, ...]:
    """Return the manifests of the machine's Vulkan drivers, on Linux: where the loader looks, and browsers'
    SwiftShader."""
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
    """Return the folders that Vulkan's loader searches on Linux, in order."""
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


Environment: TypeAlias = tuple[tuple[str, str], ...]
"""Variables and their values."""

DRIVER_VARIABLES = (
    *MANIFEST_VARIABLES,
    "VK_LOADER_DRIVERS_SELECT",
    "VK_LOADER_DRIVERS_DISABLE",
    "__EGL_VENDOR_LIBRARY_FILENAMES",
)
"""Variables that decide which drivers a process gets."""

KERNEL_VARIABLES = (
    "DMLGPU_CHECKS",
    "DMLGPU_DIVISION",
    "DMLGPU_FLOAT16",
    "DMLGPU_MATRICES",
    "DMLGPU_QUIRKS",
    SCHEDULES_VARIABLE,
    "DMLGPU_SPECIALIZE",
    "DMLGPU_SUBGROUPS",
)
"""Variables that decide which kernels an adapter gets."""

OWN_DRIVERS = "this process's drivers"
"""Name of the drivers of this process in messages."""

LISTING_LIMIT = 60.0
"""Timeout of listing the adapters of a driver, in seconds."""

_VERSION = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class LocatedAdapter:
    """An adapter, and the environment that selects its driver.

    Attributes:
        info: The adapter.
        index: Its index in ``dmlgpu.adapters()`` in that environment.
        environment: Additional environment variables that a process needs to find it.
        label: A short name, unique in the list.
    """

    info: AdapterInfo
    index: int
    environment: Environment = ()
    label: str = ""

    def __str__(self) -> str:
        return self.label or str(self.info)


@dataclass(frozen=True)
class Discovery:
    """Result of a search.

    Attributes:
        adapters: Adapters, each once.
        problems: What could not be listed, a text each.
    """

    adapters: tuple[LocatedAdapter, ...]
    problems: tuple[str, ...] = ()


def under_schedules(adapters: Iterable[LocatedAdapter], families: Sequence[str]) -> tuple[LocatedAdapter, ...]:
    """Return adapters under families of schedules, ``cpu`` or ``gpu``, each once per family; ``numpy`` once, since it
    has no kernels."""
    return tuple(
        replace(
            adapter,
            environment=(*adapter.environment, (SCHEDULES_VARIABLE, family)),
            label=f"{adapter.label}, {family} schedules",
        )
        if family
        else adapter
        for adapter in adapters
        for family in ([""] if adapter.info == NUMPY_ADAPTER else families)
    )


def in_environment(command: str, environment: Mapping[str, str]) -> str:
    """Return a shell's command, with the variables that it needs."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in environment.items()), command])


# ---- finding adapters ------------------------------------------------------------------------------------------------


def process_adapters() -> tuple[LocatedAdapter, ...]:
    """Return the adapters that this process reaches."""
    environment = _own_environment()
    return with_labels(LocatedAdapter(info, index, environment) for index, info in enumerate(adapters()))


def process_drivers() -> Discovery:
    """Return the adapters that this process would reach, listed by a child: a driver that crashes there costs a
    message."""
    return _discover([_Source(OWN_DRIVERS, _own_environment())], ())


def all_drivers(paths: Sequence[Path] = ()) -> Discovery:
    """This process's adapters and those of every driver of the machine; on Windows and macOS only the former.

    Args:
        paths: Manifests of further Vulkan drivers, or folders of such.

    Raises:
        InvalidArgument: If a path leads to no manifest.
    """
    first = _Source(OWN_DRIVERS, _own_environment())
    # The others must not be lost when a Vulkan driver crashes the process that loads all of them.
    without_vulkan = _Source("the drivers other than Vulkan's", (("VK_DRIVER_FILES", os.devnull),))
    return _discover([first, without_vulkan, *map(_driver, machine_manifests())], paths)


def of_drivers(paths: Sequence[Path]) -> Discovery:
    """Return the adapters of some Vulkan drivers, and no others.

    Args:
        paths: Their manifests, or folders of such.

    Raises:
        InvalidArgument: If a path leads to no manifest.
    """
    return _discover([], paths)


def _own_environment() -> Environment:
    """Return the variables of this environment that affect which drivers are loaded."""
    return _set(DRIVER_VARIABLES)


def kernel_environment() -> Environment:
    """Return the variables of this environment that affect which kernels run."""
    return _set(KERNEL_VARIABLES)


def _set(names: Iterable[str]) -> Environment:
    return tuple((name, os.environ[name]) for name in names if name in os.environ)


# ---- asking drivers --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    """A source of adapters: its name in messages, and its location."""

    name: str
    environment: Environment
    only_vulkan: bool = False


def _driver(manifest: Path) -> _Source:
    """Return one Vulkan driver, with OpenGL disabled if possible, which does not depend on it."""
    environment = (("VK_DRIVER_FILES", str(manifest)), ("__EGL_VENDOR_LIBRARY_FILENAMES", os.devnull))
    return _Source(str(manifest), environment, only_vulkan=True)


def _discover(sources: Sequence[_Source], paths: Sequence[Path]) -> Discovery:
    """Discover the adapters of sources and of the drivers at paths."""
    drivers_of = {path: tuple(map(_driver, manifests_at(path))) for path in paths}
    every = tuple(dict.fromkeys((*sources, *(source for drivers in drivers_of.values() for source in drivers))))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        answers = dict(zip(every, pool.map(_listed, every), strict=True))
    problems = [answer for answer in answers.values() if isinstance(answer, str)]
    # Most installed drivers have no matching card; only explicitly named ones must have an adapter.
    useless = [path for path, drivers in drivers_of.items() if not any(answers[driver] for driver in drivers)]
    lists = [answer for answer in answers.values() if not isinstance(answer, str)]
    return Discovery(_merged(lists), (*problems, *(f"{path}: the driver has no adapter" for path in useless)))


def _merged(lists: Iterable[Sequence[LocatedAdapter]]) -> tuple[LocatedAdapter, ...]:
    """Return each adapter once, as the first list shows it; numpy last. Two equal cards stay two."""
    known: set[tuple[str, ...]] = set()
    merged: list[LocatedAdapter] = []
    for located in lists:
        fresh = [adapter for adapter in located if _identity(adapter.info) not in known]
        merged += fresh
        known |= {_identity(adapter.info) for adapter in fresh}
    return with_labels(sorted(merged, key=lambda adapter: adapter.info.backend == "NumPy"))


def _identity(info: AdapterInfo) -> tuple[str, ...]:
    return info.backend, info.name, info.vendor, info.driver


def _listed(source: _Source) -> tuple[LocatedAdapter, ...] | str:
    """List a source's adapters in a separate process; return them or the error."""
    child = ChildProcess(python_command(__name__), dict(source.environment), startup_limit=LISTING_LIMIT)
    try:
        records = next(child.ask(None, LISTING_LIMIT))
    except NoAnswer:
        return f"{source.name}: the adapters were not listed within {LISTING_LIMIT:g} s"
    except ChildLost as error:
        return f"{source.name}: the adapters could not be listed: {error}"
    finally:
        child.close()
    infos = [info_from_json(record) for record in records]
    located = (LocatedAdapter(info, index, source.environment) for index, info in enumerate(infos))
    return tuple(adapter for adapter in located if adapter.info.api == "Vulkan" or not source.only_vulkan)


def info_from_json(record: Mapping[str, Any]) -> AdapterInfo:
    """Return an adapter from the JSON of its ``asdict``."""
    return AdapterInfo(**{**record, "features": tuple(record["features"])})


def main() -> int:
    """Answer with the adapters of this process."""
    exit_with_parent()
    with answer_stream() as answers:
        infos = [asdict(info) for info in adapters()]
        tell_ready(answers)
        send_answer(answers, infos)
    return 0


# ---- labels --------------------------------------------------------------------------------------------------------


def with_labels(adapters_: Iterable[LocatedAdapter]) -> tuple[LocatedAdapter, ...]:
    """Return the adapters with labels: ``llvmpipe Vulkan``; where that is not enough, with a version, then with a
    number."""
    located = tuple(adapters_)
    names = _disambiguated([_name(adapter.info) for adapter in located], lambda index: _version(located[index].info))
    counts: Counter[str] = Counter()
    numbered = []
    for name in names:
        counts[name] += 1
        numbered.append(f"{name} #{counts[name]}" if names.count(name) > 1 else name)
    return tuple(replace(adapter, label=name) for adapter, name in zip(located, numbered, strict=True))


def _disambiguated(names: Sequence[str], more: Callable[[int], str]) -> list[str]:
    """Names that occur twice get more."""
    return [f"{name} {more(index)}".strip() if names.count(name) > 1 else name for index, name in enumerate(names)]


def _name(info: AdapterInfo) -> str:
    short = info.name.partition(" (")[0]
    return short if info.backend == "NumPy" else f"{short} {info.backend}"


def _version(info: AdapterInfo) -> str:
    """Return the first number with a dot in the driver's text."""
    match = _VERSION.search(info.driver)
    return match[0] if match else ""
