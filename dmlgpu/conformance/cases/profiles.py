"""The profiles: how many cases an operator has, and which of them the quick one lists."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

PROFILES = ("quick", "standard", "full")
"""Each has what the one before it has, and more: listed cases, a covering selection, every combination."""

QUICK = Path(__file__).with_name("quick.txt")
"""Names of cases, a line each, as ``scripts/choose_quick.py`` chose them."""

QUICK_FAULTS = Path(__file__).with_name("quick_faults.txt")
"""Names of cases that notice faults in shaders (``--suite mutants``) which none of the chosen ones does."""


@functools.cache
def quick_names() -> Mapping[str, tuple[str, ...]]:
    """The names of the quick cases by the operator's stem."""
    found: dict[str, list[str]] = {}
    for path in (QUICK, QUICK_FAULTS):
        for name in path.read_text(encoding="utf-8").split():
            found.setdefault(name.partition("-")[0], []).append(name)
    return {stem: tuple(names) for stem, names in found.items()}
