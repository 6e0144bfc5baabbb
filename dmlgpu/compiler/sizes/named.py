"""Sizes with names and without values, for computations that cannot run again for other values.

A ``Recording`` of a function may decide by the values of its symbols: for others, the function is recorded again. A
graph that is built by hand is built once. So its sizes have no values that code can read, messages show their names,
and the package decides as for sizes of which nothing is known: they are not 1, and differ from other sizes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from dmlgpu.common.errors import InvalidState
from dmlgpu.compiler.sizes import Recording, Replay, Symbol, is_symbolic

_PRIMES: Final = (3, 5, 7, 11, 13, 17, 19, 23)

_STEP: Final = 32
"""Sizes for which a graph is built are multiples, so that it may halve them a few times."""

_LARGE: Final = 1 << 31

_SYMBOLS: Final = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.floordiv: "//",
    operator.truediv: "/",
    operator.mod: "%",
    operator.pow: "**",
    operator.lshift: "<<",
    operator.rshift: ">>",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.eq: "==",
    operator.ne: "!=",
}

_REMAINDERS: Final = frozenset({operator.mod, operator.and_, operator.or_, operator.xor, operator.rshift})

_OPPOSITE: Final = {
    operator.lt: operator.ge,
    operator.le: operator.gt,
    operator.gt: operator.le,
    operator.ge: operator.lt,
    operator.eq: operator.ne,
    operator.ne: operator.eq,
}

_GENERAL: Final = {(operator.gt, 1): True, (operator.le, 1): False, (operator.ge, 2): True, (operator.lt, 2): False}
"""Outcomes of comparisons of a size with 1, as for sizes of which nothing is known."""

_ORDERS: Final = frozenset(function for function, _ in _GENERAL)


class NamedSizes(Recording):
    """Sizes of a graph that is built once.

    Args:
        label: The graph, for messages.
        locate: Returns the line of the code that builds it.
        is_inside: Returns whether code of the package runs, called by the code that builds the graph.

    Attributes:
        names: Of the symbols, in order.
        general: Conditions, by index of their node, that were decided as for sizes of which nothing is known: results
            are right for other outcomes if operators accept them.
    """

    def __init__(self, label: str, locate: Callable[[], str], is_inside: Callable[[], bool]):
        super().__init__(is_public=True)
        self._label, self._locate, self._is_inside = label, locate, is_inside
        self.names: list[str] = []
        self.general: dict[int, bool] = {}
        self._lines: dict[int, str] = {}

    def symbol(self, name: str) -> Symbol:
        """Return the size of a name, a new one if it is unknown."""
        if name not in self.names:
            index = len(self.names)
            self.extend([_STEP * (_PRIMES[index] if index < len(_PRIMES) else 2 * index + 1)])
            self.names.append(name)
        return self.symbols[self.names.index(name)]

    def node(self, function: Callable[..., Any], *operands: Any) -> int:
        """Return the index of the node of a function; negative ones are simplified."""
        negated = _negated(function, operands)
        if negated is None:
            return super().node(function, *operands)
        inner = _negated(*self.nodes[negated.node])
        return super().node(operator.neg, negated) if inner is None else inner.node

    def decide(self, function: Callable[..., bool], *operands: Any) -> bool:
        """Return the outcome of a condition, which becomes a guard unless it is decided in general."""
        node = self.node(function, *operands)
        decided = self.guards.get(node, self.general.get(node))
        if decided is not None:
            return decided
        outcome = bool(self.value(node))
        left, right = operands if len(operands) == 2 else (None, None)
        if type(right) is int and right >= _LARGE:
            outcome = function(0, right)
        elif left is not None and self._is_inside() and not self._has_remainder(left, right):
            known = _GENERAL.get((function, right)) if type(right) is int else None
            if function in (operator.eq, operator.ne) and outcome is (function is operator.ne):
                known = outcome
            if known is not None and (function not in _ORDERS or left >= 1):
                self.general[node] = known
                return known
        self.guards[node] = outcome
        self._lines[node] = self._locate()
        return outcome

    def pin(self, symbol: Symbol) -> Any:
        """Reject reading the value of a symbol.

        Raises:
            InvalidState: With the line of the code.
        """
        raise InvalidState(
            f"{self._label}: the size {self.expression(symbol)} has no value while the graph is built "
            f"({self._locate()}); dmlgpu.compile takes functions that read sizes"
        )

    def hash_of(self, symbol: Symbol) -> int:
        """Return a hash of the expression, for code of the package."""
        return hash((id(self), symbol.node)) if self._is_inside() else self.pin(symbol)

    def text_of(self, symbol: Symbol, spec: str) -> str:
        """Return the expression with names."""
        return self.expression(symbol)

    def _has_remainder(self, left: Any, right: Any) -> bool:
        """Return whether a remainder is compared with other numbers than 0."""
        is_zero = type(right) is int and right == 0
        return not is_zero and any(
            is_symbolic(operand) and self.nodes[operand.node][0] in _REMAINDERS for operand in (left, right)
        )

    # ---- messages ---------------------------------------------------------------------------------------------------

    def expression(self, operand: Any) -> str:
        """Return the expression of a symbol or number with names: ``n * 2``."""
        if not is_symbolic(operand):
            return str(getattr(operand, "__name__", operand))
        function, operands = self.nodes[operand.node]
        if function is None:
            return self.names[[symbol.node for symbol in self.symbols].index(operand.node)]
        if function is operator.neg:
            return f"-{self._part(operands[0])}"
        if function in _SYMBOLS:
            return f" {_SYMBOLS[function]} ".join(map(self._part, operands))
        return f"{function.__name__}({', '.join(map(self.expression, operands))})"

    def _part(self, operand: Any) -> str:
        """Return an operand of an expression."""
        text = self.expression(operand)
        return f"({text})" if " " in text and not text.endswith(")") else text

    def condition(self, guard: int) -> str:
        """Return a condition on sizes, and the line that decided it: ``n >= 5 (model.py:12)``."""
        function, (left, right) = self.nodes[guard]
        assert function is not None
        if not self.guards[guard]:
            function = _OPPOSITE[function]
        return f"{self.expression(left)} {_SYMBOLS[function]} {self.expression(right)} ({self._lines[guard]})"

    # ---- other sizes ------------------------------------------------------------------------------------------------

    def replayed(self, results: Any) -> Replay:
        """Return a replay that computes results for values of the symbols, and the outcomes of ``general``."""
        return Replay(self.nodes, self.guards, (results, [Symbol(self, node) for node in self.general]))

    def broken(self, values: Sequence[int]) -> Iterator[str]:
        """Yield the conditions that do not hold for values of the symbols, in order."""
        for guard, outcome in self.guards.items():
            try:
                actual = Replay(self.nodes, {}, Symbol(self, guard))(values)
            except ArithmeticError:  # after one that does not hold
                return
            if actual is not outcome:
                yield self.condition(guard)


def _negated(function: Callable[..., Any] | None, operands: Sequence[Any]) -> Symbol | None:
    """Return what a node negates, as ``-x`` or ``0 - x``; None if it is another."""
    is_difference = function is operator.sub and type(operands[0]) is int and operands[0] == 0
    negated = operands[-1] if function is operator.neg or is_difference else None
    return negated if is_symbolic(negated) else None
