"""Which integers differ between things of one kind, such as the sizes of networks: these become symbols."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from dmlgpu.common.symbols import Recording


class Variation:
    """The integers of things of one kind, and which of them are symbols. Integers that were always equal share one.

    Args:
        first: Integers of the first thing.
    """

    def __init__(self, first: Sequence[int]):
        self._first = tuple(first)
        self._symbols = [-1] * len(first)  # of each integer; -1 if it never differed
        self._classify()

    def _classify(self) -> None:
        """Prepare the comparison of integers."""
        fixed = [place for place, symbol in enumerate(self._symbols) if symbol < 0]
        varying = [place for place, symbol in enumerate(self._symbols) if symbol >= 0]
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


def _getter(places: Sequence[int]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """Return a function that returns the integers at some places."""
    match places:
        case []:
            return lambda _: ()
        case [place]:
            return lambda integers: (integers[place],)
    return operator.itemgetter(*places)
