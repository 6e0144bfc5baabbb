"""Runs as JSON Lines: one line that says what ran on what, one per case, one at the end.

A file may hold several runs, one after the other: files are merged by putting them together.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

import dmlgpu
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.compiler.wgsl import templates
from dmlgpu.conformance.drivers.discovery import Environment, LocatedAdapter
from dmlgpu.conformance.drivers.pairwise import Pair
from dmlgpu.conformance.running.outcome import Outcome
from dmlgpu.conformance.suites.registry import list_digest

FORMAT = 2


@dataclass(frozen=True)
class Run:
    """Some cases on one adapter.

    Attributes:
        facts: what ran on what: versions, adapter, case list.
        outcomes: one per case.
        is_complete: whether it came to its end.
    """

    facts: dict[str, Any]
    outcomes: tuple[Outcome, ...] = field(repr=False)
    is_complete: bool = True

    @property
    def adapter(self) -> str:
        """The adapter as people name it."""
        return str(AdapterInfo(**{**self.facts["adapter"], "features": tuple(self.facts["adapter"]["features"])}))


def facts(
    info: AdapterInfo,
    suite: str,
    profile: str,
    pattern: str,
    names: tuple[str, ...],
    *,
    precise: bool = False,
    environment: Environment = (),
) -> dict[str, Any]:
    """What a run is about to do, and with what: everything that somebody needs to do it again.

    Args:
        info: the adapter.
        suite, profile, pattern, names: which cases.
        precise: whether on a ``Device(precise=True)``.
        environment: variables that bring the adapter's driver.
    """
    brought = {"environment": dict(environment)} if environment else {}
    return {
        "format": FORMAT,
        **machine(),
        "adapter": asdict(info),
        **brought,
        **_selection(suite, profile, pattern, names, precise=precise),
    }


def comparison_facts(
    adapters: Sequence[LocatedAdapter],
    command: Sequence[str],
    *,
    suite: str,
    profile: str,
    pattern: str,
    names: tuple[str, ...],
    precise: bool = False,
) -> dict[str, Any]:
    """What a comparison of adapters is about to do, and with what.

    Args:
        adapters: they are written down by their labels.
        command: compares them again, on the cases that ``-k`` names.
        suite, profile, pattern, names: which cases.
        precise: whether on devices that are ``Device(precise=True)``.
    """
    compared = {
        one.label: {**asdict(one.info), "number": one.number, "environment": dict(one.environment)} for one in adapters
    }
    header = {"format": FORMAT, **machine(), "adapters": compared, "command": list(command)}
    return {**header, **_selection(suite, profile, pattern, names, precise=precise)}


def _selection(suite: str, profile: str, pattern: str, names: tuple[str, ...], *, precise: bool) -> dict[str, Any]:
    return {
        **({"precise": True} if precise else {}),
        "suite": suite,
        "profile": profile,
        "pattern": pattern,
        "cases": len(names),
        "case_list": list_digest(names),
        "started": _now(),
    }


def machine() -> dict[str, str]:
    """The software and the computer on which this runs."""
    return {
        "dmlgpu": dmlgpu.__version__,
        "commit": _commit(),
        "shaders": shader_digest(),
        "wgpu": _version_of_wgpu(),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "os": platform.platform(),
        "processor": platform.processor() or platform.machine(),
    }


def _version_of_wgpu() -> str:
    try:
        return version("wgpu")
    except PackageNotFoundError:
        return "not installed"


def shader_digest() -> str:
    """Of the text of all shader files."""
    found = hashlib.sha256()
    for name in (file for folder in templates.folders() for file in templates.files(folder)):
        found.update(f"{name}\n{templates.source(name)}".encode())
    return found.hexdigest()[:16]


def _commit() -> str:
    """The commit of the checkout that dmlgpu lies in, with a + where files differ from it; empty elsewhere."""
    folder = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*", "--abbrev=12"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()


# ---- files ----------------------------------------------------------------------------------------------------------


def write_run(file: TextIO, header: dict[str, Any], outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """Write a run down while it goes on; the outcomes are handed through."""
    _write(file, {"record": "run", **header})
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        _write(file, {"record": "case", **outcome.to_json()})
        counts[outcome.status] += 1
        yield outcome
    _write(file, {"record": "end", "ended": _now(), "counts": dict(counts)})


def write_comparison(
    file: TextIO, header: dict[str, Any], cases: Iterable[tuple[Pair, ...]]
) -> Iterator[tuple[Pair, ...]]:
    """Write a comparison of adapters down while it goes on; the pairs of each case are handed through."""
    _write(file, {"record": "comparison", **header})
    counts: Counter[str] = Counter()
    for pairs in cases:
        for pair in pairs:
            _write(file, {"record": "pair", **pair.to_json()})
            counts[pair.agreement] += 1
        yield pairs
    _write(file, {"record": "end", "ended": _now(), "counts": dict(counts)})


def _write(file: TextIO, record: dict[str, Any]) -> None:
    print(json.dumps(record), file=file, flush=True)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
