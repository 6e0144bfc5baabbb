"""Ceilings that were measured before, kept in the user's cache folder per adapter and driver, or measured and kept."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dmlgpu.bench import noise
from dmlgpu.bench.ceilings import Ceilings
from dmlgpu.errors import InvalidArgument
from dmlgpu.files import whole_file
from dmlgpu.folders import cache_folder
from dmlgpu.target import AdapterInfo

FORMAT = 2
"""Of the files, and of the micro-benchmarks that made them: others are measured again."""


def identity(info: AdapterInfo) -> dict[str, str | int]:
    """Return what ceilings depend on: the adapter, its driver, and of those on processors how many cores there are."""
    found: dict[str, str | int] = {"backend": info.backend, "name": info.name, "driver": info.driver}
    if info.is_software:
        found |= {"cores": os.cpu_count() or 1, "processor": platform.processor() or platform.machine()}
    return found


def kept_file(info: AdapterInfo, folder: Path | None = None) -> Path:
    """Return where the ceilings of an adapter are kept. Raises FileNotFoundError where there is no folder of caches."""
    digest = hashlib.sha256(json.dumps(identity(info), sort_keys=True).encode()).hexdigest()[:16]
    return (folder or cache_folder()) / "ceilings" / f"{digest}.json"


@dataclass(frozen=True)
class Kept:
    """Ceilings, and how sure they are.

    Attributes:
        ceilings: what was measured.
        taken: the share of the processor that others took meanwhile (``noise.Busyness``): they are too low by that.
    """

    ceilings: Ceilings
    taken: float

    @property
    def doubt(self) -> str:
        """Why the ceilings may be too low, in words; empty where nothing speaks against them."""
        if self.taken <= noise.BUSY:
            return ""
        return f"others took {100 * self.taken:.0f} % of the processor while they were measured, so they are too low"


def load_ceilings(info: AdapterInfo, folder: Path | None = None) -> Kept | None:
    """Return the ceilings that are kept for an adapter; None where there are none that can be read."""
    try:
        record = json.loads(kept_file(info, folder).read_text(encoding="utf-8"))
        if record["format"] != FORMAT or record["adapter"] != identity(info):
            return None
        return Kept(Ceilings.from_json(record["ceilings"]), float(record["taken"]))
    except (OSError, ValueError, KeyError, TypeError, InvalidArgument):
        return None


def keep_ceilings(info: AdapterInfo, kept: Kept, folder: Path | None = None) -> None:
    """Keep the ceilings of an adapter; where the folder cannot be written, they are measured again next time."""
    record = {"format": FORMAT, "adapter": identity(info), "ceilings": kept.ceilings.to_json(), "taken": kept.taken}
    with contextlib.suppress(OSError):
        path = kept_file(info, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as stream:
            stream.write(json.dumps(record, indent=2).encode())


def known_ceilings(
    info: AdapterInfo, measure: Callable[[], Ceilings], before: noise.Busyness, *, again: bool = False
) -> Kept:
    """Return the ceilings that are kept for an adapter; else measure and keep them, as where the machine was busy when
    they were measured and is not any more. Raises what ``measure`` raises.

    Args:
        info: the adapter.
        measure: measures its ceilings.
        before: how busy the machine is now.
        again: whether they are measured in any case.
    """
    kept = None if again else load_ceilings(info)
    if kept is None or (kept.taken > noise.BUSY and before.taken <= noise.BUSY):
        measured = measure()
        kept = Kept(measured, max(before.taken, noise.busyness().taken))
        keep_ceilings(info, kept)
    return kept
