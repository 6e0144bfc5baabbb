"""Budget of host memory for software adapters, the reference and values of models."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import NamedTuple

from dmlgpu.common.errors import InvalidArgument, OutOfMemory

BUDGET_VARIABLE = "DMLGPU_MEMORY_BUDGET"
"""Environment variable with the maximum bytes of host memory to use."""

_SHARE = 2  # the other half is for everything else, including NumPy's copies of the same data

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class MemoryInfo(NamedTuple):
    """Device memory in use, in bytes.

    Attributes:
        allocated: Size of all buffers of the device, including unused ones. Compiled kernels are not counted.
        unused: Size of the buffers that are kept for new tensors; ``ops.free_memory`` frees them.
        budget: Maximum of ``allocated``; None if the driver sets the limit.
    """

    allocated: int
    unused: int
    budget: int | None


def host_budget() -> int | None:
    """Return the maximum bytes of host memory to use: the environment variable DMLGPU_MEMORY_BUDGET, else half of the
    host's memory; None if unknown.

    Raises:
        InvalidArgument: If the variable is not a positive number of bytes.
    """
    text = os.environ.get(BUDGET_VARIABLE, "").strip()
    if not text:
        memory = host_memory()
        return None if memory is None else memory // _SHARE
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) > 0):
        raise InvalidArgument(f"{BUDGET_VARIABLE}: must be a positive number of bytes, got {text[:80]!r}")
    return int(text)


def check_host_memory(needed: int, where: str, purpose: str) -> None:
    """Raise OutOfMemory if bytes exceed ``host_budget``.

    Args:
        needed: Number of bytes.
        where: Start of the message, such as a path in a model.
        purpose: Purpose of the bytes: "read 'x.npy'".
    """
    budget = host_budget()
    if budget is not None and needed > budget:
        raise OutOfMemory(
            f"{where}: {needed:,} bytes to {purpose} exceed the {budget:,} that may be used of the host's memory"
        )


def check_budget(label: str, size: int, allocated: int, budget: int | None) -> None:
    """Check that a new buffer fits into the memory budget of a device.

    Raises:
        OutOfMemory: It does not.
    """
    if budget is not None and allocated + size > budget:
        raise OutOfMemory(
            f"buffer {label!r}: {size:,} bytes exceed the memory budget of {budget:,} bytes,"
            f" of which {allocated:,} are in use"
        )


@functools.cache
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
