"""Reduction of failing cases: simpler layouts and smaller sizes that still fail, by names of cases.

The name of a case spells its parameters, so a smaller case is another name. Candidates are tried until none fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from dmlgpu.conformance.cases.keys import INPLACE, OWNED
from dmlgpu.conformance.cases.layouts import TensorLayout

MAX_TRIES: Final = 40
"""Maximum number of candidates, each of which is a process that opens a device."""

_LAYOUTS: Final = frozenset(layout.value for layout in TensorLayout)
_SIZES: Final = re.compile(r"\d+(?:x\d+)*")


def reduced(name: str, fails: Callable[[str], bool], tries: int = MAX_TRIES) -> str:
    """Return the smallest case that fails, of those tried.

    Args:
        name: Name of a failing case.
        fails: Whether a case exists and fails in the same way.
        tries: Maximum number of calls of ``fails``.
    """
    tried = {name}
    while True:
        for candidate in candidates(name):
            if candidate in tried:
                continue
            if len(tried) > tries:
                return name
            tried.add(candidate)
            if fails(candidate):
                name = candidate
                break
        else:
            return name


def candidates(name: str) -> Iterator[str]:
    """Yield names of simpler cases, the simplest first: packed, without a variant, fewer dimensions, smaller sizes."""
    parts = name.split("-")
    layout = next((index for index, part in enumerate(parts) if part in _LAYOUTS), None)
    if layout is not None and parts[layout] != TensorLayout.PACKED.value:
        yield "-".join([*parts[:layout], TensorLayout.PACKED.value, *parts[layout + 1 :]])
    if layout is not None and parts[layout + 1 : -1]:
        yield "-".join([*parts[: layout + 1], parts[-1]])
        for common in (OWNED, INPLACE):
            if parts[-2] == common:
                yield "-".join([*parts[:-2], parts[-1]])
    place = next((index for index in range(len(parts) - 1, 0, -1) if _SIZES.fullmatch(parts[index])), None)
    if place is None:
        return
    for sizes in smaller_sizes(tuple(int(size) for size in parts[place].split("x"))):
        yield "-".join([*parts[:place], "x".join(map(str, sizes)), *parts[place + 1 :]])


def smaller_sizes(sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield smaller sizes: without a dimension, then with each dimension 1, half, three quarters, and one less."""
    if len(sizes) > 1:
        yield from (sizes[:index] + sizes[index + 1 :] for index in range(len(sizes)))
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        size = sizes[index]
        for smaller in dict.fromkeys((1, size // 2, 3 * size // 4, size - 1)):
            if 1 <= smaller < size:
                yield (*sizes[:index], smaller, *sizes[index + 1 :])
