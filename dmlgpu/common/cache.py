"""LRU cache bounded by number of entries and bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_COUNT = coercion.between(0, coercion.UINT64_MAX)


@dataclass(frozen=True)
class CacheLimits:
    """How much a cache keeps. When either number is exceeded, the entries used least recently are dropped.

    Attributes:
        entries: most entries; 0 keeps nothing.
        size: most bytes of all entries together, as the cache estimates them; an entry above it is not kept.

    Raises:
        InvalidArgument: when a number is no integer from 0 to 2^64 - 1.
    """

    entries: int
    size: int

    def __post_init__(self) -> None:
        for name in ("entries", "size"):
            value = coercion.argument("CacheLimits", name, _COUNT, getattr(self, name))
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class CacheInfo:
    """Contents and statistics of a cache.

    Attributes:
        entries: how many entries it holds.
        size: estimated bytes of all of them.
        hits: requests that found an entry.
        misses: requests that found none.
        evictions: entries that were dropped because of the limits.
    """

    entries: int
    size: int
    hits: int
    misses: int
    evictions: int


class Cache(Generic[Key, Value]):
    """Values by key, within limits. Thread-safe.

    A dropped value lives on where somebody else refers to it. Values are let go outside the cache's lock, so that what
    their finalizers do cannot wait for it.

    Args:
        limits: how much it keeps.
    """

    def __init__(self, limits: CacheLimits):
        self._limits = limits
        # Reentrant, since a collection of garbage within it may run finalizers that use the cache.
        self._lock = threading.RLock()
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._size = self._hits = self._misses = self._evictions = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def limits(self) -> CacheLimits:
        """How much is kept. Setting lower limits drops entries at once.

        Raises:
            InvalidArgument: when set to something else than CacheLimits.
        """
        return self._limits

    @limits.setter
    def limits(self, limits: CacheLimits) -> None:
        if not isinstance(limits, CacheLimits):
            raise InvalidArgument(f"limits must be CacheLimits, got {type(limits).__name__}")
        with self._lock:
            self._limits = limits
            dropped = self._drop_excess()
        del dropped

    @property
    def info(self) -> CacheInfo:
        """Counts as they are now."""
        with self._lock:
            return CacheInfo(len(self._entries), self._size, self._hits, self._misses, self._evictions)

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, which counts as a use, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Key, value: Value, size: int) -> Value:
        """Keep a value of an estimated size in bytes, and return it; where another thread was first, return its value.

        An entry that alone exceeds the limits is not kept.
        """
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key][0]
            if size > self._limits.size:
                self._evictions += 1
                return value
            self._entries[key] = value, size
            self._size += size
            dropped = self._drop_excess()
        del dropped
        return value

    def get_or_make(self, key: Key, make: Callable[[], Value], size_of: Callable[[Value], int]) -> Value:
        """Return the value of a key, made if there is none. Two threads may both make it; they get one value."""
        value = self.get(key)
        if value is None:
            value = make()
            value = self.put(key, value, size_of(value))
        return value

    def discard(self, key: Key) -> None:
        """Drop the entry of a key, if there is one. It does not count as an eviction."""
        with self._lock:
            dropped = self._entries.pop(key, None)
            self._size -= 0 if dropped is None else dropped[1]
        del dropped

    def discard_if(self, is_dropped: Callable[[Key], bool]) -> None:
        """Drop the entries whose keys a function picks. They do not count as evictions."""
        with self._lock:
            dropped = [self._entries.pop(key) for key in list(self._entries) if is_dropped(key)]
            self._size -= sum(size for _, size in dropped)
        del dropped

    def clear(self) -> None:
        """Drop all entries. They do not count as evictions."""
        with self._lock:
            dropped, self._entries, self._size = self._entries, OrderedDict(), 0
        del dropped

    def _drop_excess(self) -> list[Value]:
        """Take out what exceeds the limits and return it, for the caller to let go without the lock."""
        dropped = []
        while len(self._entries) > self._limits.entries or self._size > self._limits.size:
            _, (value, size) = self._entries.popitem(last=False)
            self._size -= size
            self._evictions += 1
            dropped.append(value)
        return dropped
