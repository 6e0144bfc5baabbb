"""Times beside truth: what `dmlgpu bench` measured, as reports show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Time:
    """A measurement.

    Attributes:
        name: what was measured.
        operator: DirectML's name, ``GRAPH`` or ``MODEL``.
        adapter: what the adapter is called; ``where`` with the schedule that was asked for.
        where: likewise.
        time: how long it took and how sure that is, or why it was not measured.
        phases, work: other times; rates and shares of ceilings.
        result: ``right``, ``wrong``, ``unchecked``, or the status of what was not measured.
        kind: ``good``, ``known`` for what is doubtful, ``refused`` or ``bad``.
        warnings: what makes it doubtful.
        seconds: per dispatch; None where nothing was measured.
    """

    name: str
    operator: str
    adapter: str
    where: str
    time: str
    phases: str = ""
    work: str = ""
    result: str = ""
    kind: str = "good"
    warnings: tuple[str, ...] = ()
    seconds: float | None = None


@dataclass(frozen=True)
class Times:
    """What one command measured.

    Attributes:
        facts: what was measured on what.
        adapters: as people name them in full, by what they are called.
        times: the measurements.
        is_complete: whether it came to its end.
    """

    facts: Mapping[str, Any]
    adapters: Mapping[str, str]
    times: tuple[Time, ...]
    is_complete: bool = True

    @property
    def bad(self) -> tuple[Time, ...]:
        """What is wrong, or failed."""
        return tuple(one for one in self.times if one.kind == "bad")
