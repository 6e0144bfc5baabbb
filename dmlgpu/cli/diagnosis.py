"""Drivers, graphics cards and adapters of the machine, for ``dmlgpu doctor``."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from dmlgpu.cli.doctor import short
from dmlgpu.cli.test import reproduce
from dmlgpu.conformance.drivers.discovery import (
    MANIFEST_VARIABLES,
    Discovery,
    LocatedAdapter,
    all_drivers,
    machine_manifests,
    process_adapters,
)
from dmlgpu.conformance.running.outcome import DEVICE, Outcome
from dmlgpu.conformance.running.pool import Job, run_cases
from dmlgpu.runtime.adapters import environment_choice, pick

_LOADERS = {"linux": ("libvulkan.so.1", "libEGL.so.1"), "win32": ("vulkan-1.dll", "d3d12.dll"), "darwin": ()}
_CARDS = Path("/dev/dri")


@dataclass(frozen=True)
class Loader:
    """A library that loads drivers, and whether it can be loaded."""

    library: str
    exists: bool


@dataclass(frozen=True)
class Manifest:
    """A Vulkan driver's manifest.

    Attributes:
        path: File.
        library: Driver library named in the manifest.
        api_version: Vulkan version named in the manifest.
        problem: Problem of the file; empty if there is none.
    """

    path: str
    library: str
    api_version: str
    problem: str = ""


@dataclass(frozen=True)
class Card:
    """Device file of a graphics card, and whether this process may open it."""

    path: str
    usable: bool


def loaders() -> tuple[Loader, ...]:
    """Return the libraries that load drivers on this system. Loads no driver."""
    return tuple(Loader(name, _loads(name)) for name in _LOADERS.get(sys.platform, ()))


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def manifests() -> tuple[Manifest, ...]:
    """Return the manifests of Vulkan drivers (Linux), and files that environment variables name but that do not
    exist."""
    named = [(name, Path(text)) for name in MANIFEST_VARIABLES for text in os.environ.get(name, "").split(os.pathsep)]
    missing = [(name, path) for name, path in named if path.parts and not path.exists()]
    return (
        *(Manifest(short(path), "", "", f"named by {name}, but the file does not exist") for name, path in missing),
        *(read_manifest(path) for path in machine_manifests()),
    )


def read_manifest(path: Path) -> Manifest:
    """Read a manifest and check it."""
    try:
        driver = json.loads(path.read_text(encoding="utf-8"))["ICD"]
        library, api = str(driver["library_path"]), str(driver.get("api_version", ""))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Manifest(short(path), "", "", f"cannot be read: {type(error).__name__}: {error}")
    # The system searches for a name without a slash; a path is relative to the manifest.
    missing = "/" in library and not (path.parent / library).exists()
    return Manifest(short(path), short(library), api, "its driver library does not exist" if missing else "")


def cards() -> tuple[Card, ...]:
    """Return the graphics cards for which Linux has device files."""
    paths = sorted(_CARDS.glob("renderD*")) if _CARDS.is_dir() else []
    return tuple(Card(str(path), os.access(path, os.R_OK | os.W_OK)) for path in paths)


SUITE = "operators"
CASES = (
    "element_wise_add1-float32-33x5x7-packed-fused-s0",
    "gemm-float32-31x64-padded-softmax-s0",
    "argmin-example1",
)
"""Cases to compute: elementwise, a matrix product, a reduction. Each is compared with the reference."""

TIME_LIMIT = 60.0
"""Timeout of one case, in seconds."""


@dataclass(frozen=True)
class ExaminedAdapter:
    """An adapter and the results computed on it.

    Attributes:
        located: Adapter.
        is_reached: Whether this process finds it without further environment variables.
        is_default: Whether it is the default adapter.
        outcomes: One result per case.
        again: Commands that run the failed cases again.
    """

    located: LocatedAdapter
    is_reached: bool
    is_default: bool
    outcomes: tuple[Outcome, ...]
    again: tuple[str, ...]

    @property
    def unusable(self) -> str:
        """Reason why no device can be created on the adapter; empty if one can."""
        messages = (outcome.message for outcome in self.outcomes if outcome.missing == DEVICE)
        return next(messages, "").removeprefix(f"{self.located.info}: ")

    @property
    def works(self) -> bool:
        """Whether all results were correct."""
        return not self.unusable and all(outcome.status.is_good for outcome in self.outcomes)

    @property
    def is_working_gpu(self) -> bool:
        """Whether the adapter is a GPU, and all results were correct."""
        info = self.located.info
        return self.works and info.backend != "NumPy" and not info.is_software


@dataclass(frozen=True)
class Examination:
    """All adapters with their results.

    Attributes:
        adapters: All adapters.
        problems: Drivers that could not be listed.
        unmatched: Value of DMLGPU_ADAPTER if no adapter matches; else empty.
    """

    adapters: tuple[ExaminedAdapter, ...]
    problems: tuple[str, ...]
    unmatched: str = ""


def examine() -> Examination:
    """Find the adapters of all drivers of the machine and compute on each."""
    # Without wgpu no driver can be used.
    discovery = all_drivers() if importlib.util.find_spec("wgpu") else Discovery(process_adapters())
    reached = sorted(
        (adapter for adapter in discovery.adapters if _is_reached(adapter)), key=lambda reachable: reachable.index
    )
    requested = environment_choice() or None
    default = pick(requested, [reachable.info for reachable in reached]) if reached else None
    return Examination(
        tuple(_examined(adapter, _is_reached(adapter), adapter.info == default) for adapter in discovery.adapters),
        discovery.problems,
        requested if requested and default is None else "",
    )


def _is_reached(adapter: LocatedAdapter) -> bool:
    """Return whether the environment of this process selects the driver of an adapter."""
    return all(os.environ.get(name) == value for name, value in adapter.environment)


def _examined(adapter: LocatedAdapter, is_reached: bool, is_default: bool) -> ExaminedAdapter:
    job = Job(SUITE, adapter.index, TIME_LIMIT, environment=dict(adapter.environment), adapter_text=str(adapter.info))
    outcomes = tuple(run_cases(job, CASES, 1))
    wrong = (outcome for outcome in outcomes if not outcome.status.is_good)
    again = tuple(reproduce(outcome, job, adapter) for outcome in wrong)
    return ExaminedAdapter(adapter, is_reached, is_default and is_reached, outcomes, again)
