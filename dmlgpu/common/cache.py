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
    """Limits of a cache. If either is exceeded, the least recently used entries are evicted.

    Attributes:
        entries: Maximum number of entries; 0 disables the cache.
        size: Maximum estimated bytes of all entries; a larger entry is not cached.

    Raises:
        InvalidArgument: If a limit is not an integer from 0 to 2^64 - 1.
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
        entries: Number of entries.
        size: Their estimated size in bytes.
        hits: Number of lookups that found an entry.
        misses: Number of lookups that found none.
        evictions: Number of entries evicted because of the limits.
    """

    entries: int
    size: int
    hits: int
    misses: int
    evictions: int


class Cache(Generic[Key, Value]):
    """LRU cache. Thread-safe.

    An evicted value stays alive while something else refers to it. Values are released outside the cache's lock, so
    that their finalizers cannot deadlock.

    Args:
        limits: Limits of the cache.
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
        """Limits of the cache. Lower limits evict entries at once.

        Raises:
            InvalidArgument: If set to anything but CacheLimits.
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
        """Current contents and statistics."""
        with self._lock:
            return CacheInfo(len(self._entries), self._size, self._hits, self._misses, self._evictions)

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, or None. Counts as a use."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Key, value: Value, size: int) -> Value:
        """Store a value of an estimated size in bytes and return it; if another thread was first, return its value.

        An entry that alone exceeds the limits is not stored.
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

    def values(self) -> list[Value]:
        """Return all values. Does not count as a use."""
        with self._lock:
            return [value for value, _ in self._entries.values()]

    def get_or_make(self, key: Key, make: Callable[[], Value], size_of: Callable[[Value], int]) -> Value:
        """Return the value of a key, created if absent. Two threads may both create it; both get the same value."""
        value = self.get(key)
        if value is None:
            value = make()
            value = self.put(key, value, size_of(value))
        return value

    def discard(self, key: Key) -> None:
        """Remove an entry, if present. Not counted as an eviction."""
        with self._lock:
            dropped = self._entries.pop(key, None)
            self._size -= 0 if dropped is None else dropped[1]
        del dropped

    def discard_if(self, is_dropped: Callable[[Key], bool]) -> None:
        """Remove the entries whose keys match a predicate. Not counted as evictions."""
        with self._lock:
            dropped = [self._entries.pop(key) for key in list(self._entries) if is_dropped(key)]
            self._size -= sum(size for _, size in dropped)
        del dropped

    def clear(self) -> None:
        """Remove all entries. Not counted as evictions."""
        with self._lock:
            dropped, self._entries, self._size = self._entries, OrderedDict(), 0
        del dropped

    def _drop_excess(self) -> list[Value]:
        """Remove and return entries beyond the limits, for release without the lock."""
        dropped = []
        while len(self._entries) > self._limits.entries or self._size > self._limits.size:
            _, (value, size) = self._entries.popitem(last=False)
            self._size -= size
            self._evictions += 1
            dropped.append(value)
        return dropped
