"""How much memory the host has, for adapters whose memory it is."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def host_memory() -> int | None:
    """Return the bytes of memory this process may use: the machine's, or its container's if less; None where
    unknown."""
    sizes = [size for size in (_physical(), *map(_container, _CGROUP_LIMITS)) if size]
    return min(sizes, default=None)


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return None


def _container(path: str) -> int | None:
    try:
        text = Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max" means unlimited
