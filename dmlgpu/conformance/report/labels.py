"""Short names for runs: no longer than it takes to tell them apart."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dmlgpu.conformance.running.records import Run
from dmlgpu.conformance.running.wording import moment_text

_PARENTHESES = re.compile(r"\s*\([^)]*\)")
_NAMED_VERSION = re.compile(r"[A-Za-z]+ \d+(?:\.\d+)+")
_VERSION = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class Label:
    """What a run is called.

    Attributes:
        name: the adapter's: ``llvmpipe``.
        details: its backend, its driver, and what else tells it from its neighbours: ``Vulkan, Mesa 25.0.7``.
    """

    name: str
    details: str

    def __str__(self) -> str:
        return f"{self.name} ({self.details})"

    def with_detail(self, detail: str) -> Label:
        """The same, told apart from others by one thing more."""
        return replace(self, details=f"{self.details}, {detail}") if detail else self


def labels(runs: Sequence[Run]) -> tuple[Label, ...]:
    """One per run; equal ones only for runs that nothing in their facts tells apart, or of different suites."""
    found = [Label(_name(run), _driver(run.facts["adapter"])) for run in runs]
    for detail in _DETAILS:
        texts: dict[tuple[str, Label], set[str]] = {}
        for run, label in zip(runs, found, strict=True):
            texts.setdefault((run.facts["suite"], label), set()).add(detail(run.facts))
        found = [
            label.with_detail(detail(run.facts)) if len(texts[run.facts["suite"], label]) > 1 else label
            for run, label in zip(runs, found, strict=True)
        ]
    return tuple(found)


_DETAILS: Sequence[Callable[[Mapping[str, Any]], str]] = (
    lambda facts: facts["adapter"]["name"],
    lambda facts: facts["adapter"]["driver"],
    lambda facts: "precise" if facts.get("precise") else "",
    lambda facts: facts["profile"],
    lambda facts: facts["pattern"] and shlex.join(["-k", facts["pattern"]]),
    lambda facts: facts["dmlgpu"],
    lambda facts: facts["commit"],
    lambda facts: moment_text(facts["started"]),
)
"""What may tell runs apart, in the order in which it is tried."""


def _name(run: Run) -> str:
    """The adapter's name without what stands in parentheses."""
    return _PARENTHESES.sub("", run.facts["adapter"]["name"]) or run.facts["adapter"]["name"]


def _driver(adapter: Mapping[str, Any]) -> str:
    """The backend and the driver's version, as short as it can be said."""
    found = _NAMED_VERSION.search(adapter["driver"]) or _VERSION.search(adapter["driver"])
    backend, version = adapter["backend"], found[0] if found else ""
    return version if version.startswith(f"{backend} ") else ", ".join(filter(None, (backend, version)))
