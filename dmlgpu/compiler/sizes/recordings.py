"""What was recorded of functions: a function of integers runs on symbols, and results for other integers follow.

``Recordings`` is the one door: it takes a function of sizes. The first sizes of a kind are computed as they are, unless
it is known which of them vary. From the second ones on, those that differ are symbols.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, TypeVar

from dmlgpu.common.collection import collection_paused
from dmlgpu.common.errors import DmlError
from dmlgpu.compiler.sizes.arithmetic import Recording

MAX_RECORDINGS: Final = 8
"""Recordings of one kind that are kept: computations differ where sizes are equal, or divide, or are large."""

MAX_UNUSED: Final = 16
"""Recordings that served one set of integers alone, after which none is made."""

MAX_REASONS: Final = 256
"""Reasons of failures that are counted each."""

failures: Counter[str] = Counter()
"""Recordings that failed in this process, by reason. They cost time alone: results are computed without recordings."""

raises = False
"""Whether what no recording should raise is raised, as in tests."""

Recorded = TypeVar("Recorded")
Result = TypeVar("Result")


def count_failure(error: Exception) -> None:
    """Count a recording that failed."""
    reason = f"{type(error).__name__}: {error}"
    failures[reason if reason in failures or len(failures) < MAX_REASONS else "other reasons"] += 1
    if raises and not isinstance(error, DmlError):
        raise error


def first_result(recorded: list[Recorded], use: Callable[[Recorded], Result | None]) -> Result | None:
    """Return the result of the first recording that is right, which becomes the first; None if none is."""
    for index, each in enumerate(recorded):
        result = use(each)
        if result is not None:
            recorded.insert(0, recorded.pop(index))
            return result
    return None


class Recordings(Generic[Recorded]):
    """Recordings of a function for integers of one kind. Thread-safe.

    Integers that were always equal share a symbol.

    Args:
        first: Integers of the first call.
        is_public: As of ``Recording``.
        varying: Of each integer that is a symbol from the start what tells it from others: equal for integers that are
            always equal; None for all others. Empty if there are none.
    """

    def __init__(self, first: Sequence[int], *, is_public: bool = False, varying: Sequence[Hashable] = ()):
        self._first, self._is_public = tuple(first), is_public
        names: dict[Hashable, int] = {}
        indices = [None if name is None else names.setdefault(name, len(names)) for name in varying]
        self._symbols = indices or [None] * len(first)  # of each integer; None if it never differed
        self._recorded: list[Recorded] = []
        self._unused = 0
        self._lock = threading.RLock()

    @property
    def places(self) -> list[int]:
        """Places of the integers that are symbols of recordings; none if there are no recordings."""
        return [place for place, symbol in enumerate(self._symbols) if symbol is not None and self._recorded]

    def result(
        self,
        integers: Sequence[int],
        use: Callable[[Recorded, list[int]], Result | None],
        record: Callable[[list[Any], Recording], Recorded],
        *,
        is_varying: bool = False,
        is_continued: bool = False,
    ) -> Result | None:
        """Return the result of a recording for integers; None if the function is to run on these.

        Args:
            integers: Those of the call.
            use: Returns the result of a recording for values of the symbols; None if it is not right for them.
            record: Runs the function on the integers, of which some are symbols of a recording.
            is_varying: Whether the function depends on more symbols, which ``record`` adds.
            is_continued: Whether a recording gave the beginning of the computation, which counted as a use.
        """
        with self._lock:
            if self._unused >= MAX_UNUSED:
                return None
            values = self._values(integers)
            if values is None:
                values = self._extend(integers)
            if not values and not is_varying:
                return None
            result = first_result(self._recorded, lambda each: use(each, values))
            if result is not None:
                self._unused = max(self._unused - (not is_continued), 0)
                return result
            recorded, recording = self._recorded, Recording(values, is_public=self._is_public)
            symbolic = [
                integer if symbol is None else recording.symbols[symbol]
                for integer, symbol in zip(integers, self._symbols, strict=True)
            ]
        new = self.attempt(lambda: record(symbolic, recording))
        if new is None:
            return None
        with self._lock:
            self._unused += 1 + is_continued  # the beginning was no use
            recorded.insert(0, new)
            del recorded[MAX_RECORDINGS:]
        return use(new, values)

    def attempt(self, record: Callable[[], Result]) -> Result | None:
        """Return what a function records; None if it fails, which is counted."""
        try:
            with collection_paused():
                return record()
        except Exception as error:  # what cannot be computed on symbols, or at all: with numbers, it says what
            count_failure(error)
            self._unused += 1
            return None

    def _values(self, integers: Sequence[int]) -> list[int] | None:
        """Return the values of the symbols, in order; None if other integers vary than so far."""
        values: dict[int, int] = {}
        for symbol, first, integer in zip(self._symbols, self._first, integers, strict=True):
            if integer != (first if symbol is None else values.setdefault(symbol, integer)):
                return None
        return [values[symbol] for symbol in range(len(values))]

    def _extend(self, integers: Sequence[int]) -> list[int]:
        """Give symbols to integers that differ from the first ones, or were equal to others so far and no longer are;
        drop recordings, and return the values of the new symbols."""
        names: dict[tuple[int | None, int, int], int] = {}
        for place, (symbol, first, integer) in enumerate(zip(self._symbols, self._first, integers, strict=True)):
            if symbol is not None or first != integer:
                self._symbols[place] = names.setdefault((symbol, first, integer), len(names))
        self._recorded = []
        values = self._values(integers)
        assert values is not None
        return values
