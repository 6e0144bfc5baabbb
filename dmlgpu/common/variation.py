"""Which integers differ between things of one kind, such as the sizes of networks: these become symbols, unless they
are from the start.

``Patterns`` records a computation on them, again for integers for which no earlier recording is right.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, TypeVar

from dmlgpu.common.symbols import Recording

MAX_PATTERNS: Final = 8
"""Patterns of one kind that are kept: computations differ where sizes are 1, or equal, or divide."""

MAX_UNUSED: Final = 16
"""Patterns that served one set of integers alone, after which none is recorded."""

Pattern = TypeVar("Pattern")
Result = TypeVar("Result")
Recorded = TypeVar("Recorded")


class NoPattern(Exception):
    """A computation depends on more than its integers, and cannot be recorded."""


class Variation:
    """The integers of things of one kind, and which of them are symbols. Integers that were always equal share one.

    Args:
        first: Integers of the first thing.
        varying: Of each integer that is a symbol from the start what tells it from others: equal for integers that are
            always equal; None for all others. Empty if there are none.
    """

    def __init__(self, first: Sequence[int], varying: Sequence[Hashable] = ()):
        self._first = tuple(first)
        self._symbols = [-1] * len(first)  # of each integer; -1 if it never differed
        numbers: dict[Hashable, int] = {}
        for place, name in enumerate(varying):
            if name is not None:
                self._symbols[place] = numbers.setdefault(name, len(numbers))
        self._classify()

    @property
    def places(self) -> list[int]:
        """Places of the integers that are symbols."""
        return [place for place, symbol in enumerate(self._symbols) if symbol >= 0]

    def _classify(self) -> None:
        """Prepare the comparison of integers."""
        fixed = [place for place, symbol in enumerate(self._symbols) if symbol < 0]
        varying = self.places
        self._fixed, self._varying = _getter(fixed), _getter(varying)
        self._order = [self._symbols[place] for place in varying]

    def values(self, integers: Sequence[int]) -> list[int] | None:
        """Return the values of the symbols, by number; None if ``extend`` has to be called first."""
        varying = self._varying(integers)
        values = dict(zip(self._order, varying, strict=True))
        is_known = self._fixed(integers) == self._fixed(self._first)
        if not is_known or varying != tuple(values[symbol] for symbol in self._order):
            return None
        return [values[symbol] for symbol in range(len(values))]

    def extend(self, integers: Sequence[int]) -> None:
        """Give symbols to integers that differ from the first ones, or were equal to others so far and no longer are.

        The symbols get new numbers.
        """
        numbers: dict[tuple[int, int, int], int] = {}
        for place, (symbol, first, integer) in enumerate(zip(self._symbols, self._first, integers, strict=True)):
            if symbol >= 0 or first != integer:
                self._symbols[place] = numbers.setdefault((symbol, first, integer), len(numbers))
        self._classify()

    def symbolic(self, integers: Sequence[int], recording: Recording) -> list[Any]:
        """Return integers with the symbols of a recording in place of those that differ."""
        return [
            integer if symbol < 0 else recording.symbols[symbol]
            for integer, symbol in zip(integers, self._symbols, strict=True)
        ]


class Patterns(Generic[Pattern]):
    """Recordings of a computation for things of one kind. Thread-safe.

    Args:
        first: Integers of the first thing.
        is_public: As of ``Recording``.
        varying: As of ``Variation``.
    """

    def __init__(self, first: Sequence[int], *, is_public: bool = False, varying: Sequence[Hashable] = ()):
        self._variation, self._is_public = Variation(first, varying), is_public
        self._patterns: list[Pattern] = []
        self._unused = 0
        self._lock = threading.Lock()

    @property
    def places(self) -> list[int]:
        """Places of the integers that are symbols of the patterns; none if there are no patterns."""
        return self._variation.places if self._patterns else []

    def result(
        self,
        integers: Sequence[int],
        use: Callable[[Pattern, list[int]], Result | None],
        record: Callable[[list[Any], Recording], Pattern],
        *,
        is_varying: bool = False,
        is_continued: bool = False,
    ) -> Result | None:
        """Return the result of a pattern for integers; None if the computation is to run on these.

        Args:
            integers: Those of the thing.
            use: Returns the result of a pattern for values of the symbols; None if the pattern is not right for them.
            record: Computes on the integers, of which some are symbols of a recording, and returns a pattern.
            is_varying: Whether the computation depends on more symbols, which ``record`` adds.
            is_continued: Whether a pattern gave the beginning of the computation, which counted as a use.
        """
        with self._lock:
            if self._unused >= MAX_UNUSED:
                return None
            values = self._variation.values(integers)
            if values is None:
                self._variation.extend(integers)
                self._patterns = []
                values = self._variation.values(integers)
            if not values and not is_varying:
                return None
            assert values is not None
            for index, known in enumerate(self._patterns):
                result = use(known, values)
                if result is not None:
                    if not is_continued:
                        self._unused = max(self._unused - 1, 0)
                    self._patterns.insert(0, self._patterns.pop(index))
                    return result
            patterns, recording = self._patterns, Recording(values, is_public=self._is_public)
            symbolic = self._variation.symbolic(integers, recording)
        pattern = self.recorded(lambda: record(symbolic, recording))
        if pattern is None:
            return None
        with self._lock:
            self._unused += 1 + is_continued  # the beginning was no use
            patterns.insert(0, pattern)
            del patterns[MAX_PATTERNS:]
        return use(pattern, values)

    def recorded(self, record: Callable[[], Recorded]) -> Recorded | None:
        """Return the pattern that a function records; None if it fails, which counts."""
        try:
            return record()
        except NoPattern:
            self._unused = MAX_UNUSED
        except Exception:  # what cannot be computed on symbols, or at all: with numbers, it says what
            self._unused += 1
        return None


def _getter(places: Sequence[int]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """Return a function that returns the integers at some places."""
    match places:
        case []:
            return lambda _: ()
        case [place]:
            return lambda integers: (integers[place],)
    return operator.itemgetter(*places)
