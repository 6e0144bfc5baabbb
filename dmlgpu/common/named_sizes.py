"""Sizes with names and without values, for computations that cannot run again for other values.

A ``Recording`` of a function may decide by the values of its symbols: for others, the function is recorded again. A
graph that is built by hand is built once. So its sizes have no values that code can read, messages show their names,
and the package decides as for sizes of which nothing is known: they are not 1, and differ from other sizes.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, Final

from dmlgpu.common.errors import InvalidState
from dmlgpu.common.symbols import Recording, Replay, SymbolicNumber

_PRIMES: Final = (3, 5, 7, 11, 13, 17, 19, 23)

_STEP: Final = 32
"""Sizes for which a graph is built are multiples, so that it may halve them a few times."""

_LARGE: Final = 1 << 31

_PART: Final = re.compile(r"\bv\[(\d+)\]|\bt(\d+)\b|\bo(\d+)\b")
"""A symbol, a node or an object in an expression."""

_REMAINDERS: Final = re.compile(r" [%&|^] | >> ")

_NEGATIVE: Final = re.compile(r"(?:0 )?- ?t(\d+)")

_OPPOSITE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}

_GENERAL: Final = {(operator.gt, 1): True, (operator.le, 1): False, (operator.ge, 2): True, (operator.lt, 2): False}
"""Outcomes of comparisons of a size with 1, as for sizes of which nothing is known."""

_ORDERS: Final = frozenset(function for function, _ in _GENERAL)

_PACKAGE: Final = __name__.partition(".")[0]


class NamedSizes(Recording):
    """Sizes of a graph that is built once.

    Args:
        label: The graph, for messages.
        locate: Returns the line of the code that builds it.

    Attributes:
        names: Of the symbols, in order.
        general: Conditions, by number of their node, that were decided as for sizes of which nothing is known: results
            are right for other outcomes if operators accept them.
    """

    def __init__(self, label: str, locate: Callable[[], str]):
        super().__init__(())
        self._label, self._locate = label, locate
        self.names: list[str] = []
        self.general: dict[int, bool] = {}
        self._lines: dict[int, str] = {}

    def symbol(self, name: str) -> SymbolicNumber:
        """Return the size of a name, a new one if it is unknown."""
        if name not in self.names:
            number = len(self.names)
            size = _STEP * (_PRIMES[number] if number < len(_PRIMES) else 2 * number + 1)
            self.names.append(name)
            self.symbols = (*self.symbols, SymbolicNumber(self, self.node(f"v[{number}]", lambda: size)))
        return self.symbols[self.names.index(name)]

    def node(self, text: str, function: Callable[..., Any], *operands: Any) -> int:
        """Return the number of the node of an expression; negative ones are simplified."""
        term = _NEGATIVE.fullmatch(text)
        if term is None:
            return super().node(text, function, *operands)
        negated = _NEGATIVE.fullmatch(self._texts[int(term[1])])
        if negated is not None:
            return int(negated[1])
        return super().node(f"-t{term[1]}", function, *operands)

    def decide(self, text: str, function: Callable[..., bool], *operands: Any) -> bool:
        """Return the outcome of a condition, which becomes a guard unless it is decided in general."""
        node = self.node(text, function, *operands)
        decided = self.guards.get(node, self.general.get(node))
        if decided is not None:
            return decided
        outcome: bool = self.value(node)
        left, right = operands if len(operands) == 2 else (None, None)
        if type(right) is int and right >= _LARGE:
            outcome = function(0, right)
        elif left is not None and self._is_read_inside() and not self._has_remainder(left, right):
            known = _GENERAL.get((function, right)) if type(right) is int else None
            if function in (operator.eq, operator.ne) and outcome is (function is operator.ne):
                known = outcome
            if known is not None and (function not in _ORDERS or left >= 1):
                self.general[node] = known
                return known
        self.guards[node] = outcome
        self._lines[node] = self._locate()
        return outcome

    def pin(self, number: SymbolicNumber) -> Any:
        """Reject reading the value of a number.

        Raises:
            InvalidState: With the line of the code.
        """
        raise InvalidState(
            f"{self._label}: the size {self.expression(number.number)} has no value while the graph is built "
            f"({self._locate()}); dmlgpu.compile takes functions that read sizes"
        )

    def hash_of(self, number: SymbolicNumber) -> int:
        """Return a hash of the expression, for code of the package."""
        return hash((id(self), number.number)) if self._is_read_inside() else self.pin(number)

    def text_of(self, number: SymbolicNumber, spec: str, reader: FrameType) -> str:
        """Return the expression with names."""
        return self.expression(number.number)

    def _is_read_inside(self) -> bool:
        """Return whether code of the package reads a size, and not the code that builds the graph."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__") in (__name__, Recording.__module__):
            frame = frame.f_back
        return frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE

    def _has_remainder(self, left: Any, right: Any) -> bool:
        """Return whether a remainder is compared with other numbers than 0."""
        operands = [operand for operand in (left, right) if type(operand) is SymbolicNumber]
        is_zero = type(right) is int and right == 0
        return not is_zero and any(_REMAINDERS.search(self._texts[operand.number]) for operand in operands)

    # ---- messages ---------------------------------------------------------------------------------------------------

    def expression(self, node: int) -> str:
        """Return the expression of a node with names: ``n * 2``."""

        def written(part: re.Match[str]) -> str:
            if part[1]:
                return self.names[int(part[1])]
            if part[3]:
                return next(str(value.__name__) for name, value in self._objects.values() if name == part[0])
            text = self.expression(int(part[2]))
            is_whole = len(part[0]) == len(self._texts[node]) or text.isidentifier() or text.endswith(")")
            return text if is_whole else f"({text})"

        return _PART.sub(written, self._texts[node])

    def condition(self, guard: int) -> str:
        """Return a condition on sizes, and the line that decided it: ``n >= 5 (model.py:12)``."""
        text = self._texts[guard]
        left, symbol, right = text.split(" ", 2)
        if not self.guards[guard]:
            symbol = _OPPOSITE[symbol]
        sides = [_PART.sub(lambda part: self.expression(int(part[2])), side) for side in (left, right)]
        return f"{sides[0]} {symbol} {sides[1]} ({self._lines[guard]})"

    # ---- other sizes ------------------------------------------------------------------------------------------------

    def replayed(self, results: Sequence[Any]) -> Replay:
        """Return a replay that computes numbers for values of the symbols, followed by outcomes of ``general``."""
        return self._replay([*results, *(SymbolicNumber(self, node) for node in self.general)], self.guards)

    def broken(self, values: Sequence[int]) -> Iterator[str]:
        """Yield the conditions that do not hold for values of the symbols, in order."""
        for guard, outcome in self.guards.items():
            try:
                actual = self._replay([SymbolicNumber(self, guard)], {})(values)
            except ArithmeticError:  # after one that does not hold
                return
            if actual != (outcome,):
                yield self.condition(guard)
