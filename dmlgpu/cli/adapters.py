"""The adapters that ``--adapter`` and ``--drivers`` name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dmlgpu.cli.adapter import choose_adapter
from dmlgpu.conformance.drivers.discovery import Discovery, LocatedAdapter, all_drivers, of_drivers, process_adapters
from dmlgpu.device.adapters import adapters, why_no_gpu
from dmlgpu.errors import AdapterNotFound, InvalidArgument

ALL = "all"


def choose_adapters(wanted: Sequence[str], drivers: Sequence[str] = ()) -> tuple[LocatedAdapter, ...]:
    """Adapters and what brings their drivers.

    Args:
        wanted: parts of names, or numbers; ``all``. None takes the default adapter, or with drivers all of theirs.
        drivers: ``all``, manifests of Vulkan drivers, folders of such; none takes this process's adapters.

    Raises:
        AdapterNotFound: when nothing matches; the message lists all adapters.
        InvalidArgument: when there is no such driver, or the drivers bring no adapter.
    """
    if drivers:
        known = adapters_of(drivers)
        chosen = [found for one in wanted for found in matching(one, known)] if wanted else known
        return tuple(dict.fromkeys(chosen))
    known = process_adapters()
    if list(wanted) == [ALL]:
        return known
    return tuple(known[adapters().index(choose_adapter(one))] for one in wanted or (None,))


def adapters_of(drivers: Sequence[str]) -> tuple[LocatedAdapter, ...]:
    """All adapters of some drivers. What cannot be listed is said on standard error.

    Raises:
        InvalidArgument: when there is no such driver, or none brings an adapter.
    """
    found = _look([Path(driver) for driver in drivers if driver != ALL], everything=ALL in drivers)
    for problem in found.problems:
        print(f"dmlgpu: {problem}", file=sys.stderr)
    if not found.adapters:
        raise InvalidArgument(f"--drivers {' --drivers '.join(drivers)}: there is no adapter")
    return found.adapters


def _look(paths: Sequence[Path], *, everything: bool) -> Discovery:
    return all_drivers(paths) if everything else of_drivers(paths)


def matching(wanted: str, known: Sequence[LocatedAdapter]) -> Sequence[LocatedAdapter]:
    """Every adapter whose label or name holds a text, or the one with a number; ``all`` of them.

    Raises:
        AdapterNotFound: when nothing matches; the message lists all adapters.
    """
    if wanted == ALL:
        return known
    if wanted.isdecimal():
        matches = list(known[int(wanted) : int(wanted) + 1])
    else:
        matches = [one for one in known if wanted.lower() in f"{one.label}\n{one.info}".lower()]
    if not matches:
        raise AdapterNotFound(wanted, [str(one.info) for one in known], why_no_gpu())
    return matches
