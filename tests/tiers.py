"""Which tests ``scripts/test`` runs, and which it leaves to ``scripts/test --all``.

| tests | ``scripts/test`` | ``scripts/test --all`` |
|---|---|---|
| unit, reference, house, docs | all but those marked ``slow`` | those marked ``slow`` |
| gpu, on the first adapter | a sample: one of `SAMPLE` of every module | the others |
| gpu, on other adapters | none | a sample: one of `SHARES` of every module |
| chromium, fuzz, packaging | none | all |

Samples are the same on every run: tests are ordered by a checksum of their ids. With ``--profile`` nothing is sampled.
"""

from __future__ import annotations

import enum
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import pytest

SAMPLE = 32
"""How many tests of a module of tests/gpu there are for each that ``scripts/test`` runs."""

SHARES = {"SwiftShader": 8, "OpenGL": 24}
"""The same for adapters other than the first, in ``scripts/test --all``, by a word in their names or backends.

Kernels for OpenGL come from the same text as those for Vulkan, and Mesa compiles both with the same library."""

FAST = 0.5
"""Seconds, with set-up, below which no test should be marked ``slow``, even on a busy machine."""


class Tier(enum.StrEnum):
    """A part of the tests."""

    QUICK = "quick"
    REST = "rest"


def select(items: Sequence[pytest.Item], tier: Tier | None, *, sampled: bool) -> list[pytest.Item]:
    """Return the tests of a tier in their order; without a tier, both."""
    quick = {item for item in items if is_quick(item)} | set(samples(items))
    if tier is Tier.QUICK:
        return [item for item in items if item in quick]
    omitted = set(not_shared(items)) if sampled else set()
    return [item for item in items if item not in omitted and (tier is None or item not in quick)]


def folder(item: pytest.Item) -> str:
    """Return the folder of ``tests`` that a test lies in."""
    return item.nodeid.split("/")[1]


def is_quick(item: pytest.Item) -> bool:
    """Return whether a test needs neither a driver nor much time."""
    return folder(item) in ("unit", "reference", "house", "docs") and item.get_closest_marker("slow") is None


def samples(items: Iterable[pytest.Item]) -> Iterable[pytest.Item]:
    """Yield one of `SAMPLE` tests of every module of tests/gpu on the first adapter, at least one."""
    on_adapters = [item for item in items if folder(item) == "gpu" and item.get_closest_marker("slow") is None]
    if not on_adapters:
        return
    from tests.gpu.usable import identifier, usable_adapters  # asks the drivers

    first_adapter = next(map(identifier, usable_adapters()), "no adapter")
    modules = defaultdict(list)
    for item in on_adapters:
        if first_adapter in item.name:
            modules[item.nodeid.partition("::")[0]].append(item)
    for module in modules.values():
        yield from _first(module, SAMPLE)


def not_shared(items: Iterable[pytest.Item]) -> Iterable[pytest.Item]:
    """Yield the tests of tests/gpu that adapters in `SHARES` leave to others: all but a share of every module."""
    modules = defaultdict(list)
    for item in items:
        word = next((word for word in SHARES if word in item.name), None)
        if folder(item) == "gpu" and word:
            modules[item.nodeid.partition("::")[0], word].append(item)
    for (_, word), tests in modules.items():
        shared = set(_first(tests, SHARES[word]))
        yield from (item for item in tests if item not in shared)


def _first(items: Sequence[pytest.Item], share: int) -> list[pytest.Item]:
    ordered = sorted(items, key=lambda item: zlib.crc32(item.nodeid.encode()))
    return ordered[: math.ceil(len(items) / share)]


def describe(omitted: Iterable[pytest.Item], tier: Tier | None) -> str:
    """Return a line that says what a tier omits, by folder, and which command runs it."""
    counts = Counter(folder(item) for item in omitted)
    texts = [f"{count:,} of tests/{name}" for name, count in sorted(counts.items())]
    command = {
        Tier.QUICK: "scripts/test --all",
        Tier.REST: "scripts/test runs its part, scripts/test --full those of other adapters",
    }
    return f"omitted: {', '.join(texts) or 'nothing'} ({command.get(tier, 'scripts/test --full')})"


def needlessly_slow(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Return the functions marked ``slow`` all of whose tests together took less than `FAST`.

    Args:
        reports: Reports of set-ups, calls and clean-ups that passed.
    """
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        if "slow" in report.keywords:
            seconds[report.nodeid.partition("[")[0]] += report.duration
    return sorted(function for function, total in seconds.items() if total < FAST)
