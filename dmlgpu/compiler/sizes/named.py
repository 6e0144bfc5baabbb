"""Sizes with names and without values, for computations that cannot run again for other values.

A ``Recording`` of a function may decide by the values of its symbols: for others, the function is recorded again. A
graph that is built by hand is built once. So its sizes have no values that code can read, messages show their names,
and the package decides as for sizes of which nothing is known: they are not 1, and differ from other sizes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dmlgpu.common import coercion
from dmlgpu.common.errors import InvalidArgument, InvalidState, shown
from dmlgpu.compiler.sizes.arithmetic import Recording, Replay, Symbol, is_symbolic

_PRIMES: Final = (3, 5, 7, 11, 13, 17, 19, 23)

_STEP: Final = 32
"""Sizes for which a graph is built are multiples, so that it may halve them a few times."""

_LARGE: Final = 1 << 31

_SIZE: Final = coercion.between(1, 2**32 - 1)

_SIGNS: Final = (
    {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%", "pow": "**"}
    | {"lshift": "<<", "rshift": ">>", "and_": "&", "or_": "|", "xor": "^"}
    | {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
)
"""Of operators, by name of their function."""

_OPPOSITE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}

_REMAINDERS: Final = frozenset({operator.mod, operator.and_, operator.or_, operator.xor, operator.rshift})

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
        label: As given.
        names: Of the symbols, in order.
        general: Conditions, by index of their node, that were decided as for sizes of which nothing is known: results
            are right for other outcomes if operators accept them.
    """

    def __init__(self, label: str, locate: Callable[[], str], is_inside: Callable[[], bool]):
        super().__init__(is_public=True)
        self.label, self._locate, self._is_inside = label, locate, is_inside
        self.names: list[str] = []
        self.general: dict[int, bool] = {}
        self._lines: dict[int, str] = {}

    def symbol(self, caller: str, name: str) -> Symbol:
        """Return the size of a name, a new one if it is unknown.

        Raises:
            InvalidArgument: If it is no identifier.
        """
        if not name.isidentifier():
            raise InvalidArgument(f"{caller}: a size must be an integer or a name such as 'n', got {shown(name)}")
        if name not in self.names:
            index = len(self.names)
            self.extend([_STEP * (_PRIMES[index] if index < len(_PRIMES) else 2 * index + 1)])
            self.names.append(name)
        return self.symbols[self.names.index(name)]

    def decide(self, function: Callable[..., bool], *operands: Any) -> bool:
        """Return the outcome of a condition, which becomes a guard unless it is decided in general."""
        node = self.node(function, *operands)
        decided = self.guards.get(node, self.general.get(node))
        if decided is not None:
            return decided
        outcome = bool(self.values[node])
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
            f"{self.label}: the size {self.expression(symbol)} has no value while the graph is built "
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
        if function.__name__ in _SIGNS:
            return f" {_SIGNS[function.__name__]} ".join(map(self._part, operands))
        return f"{function.__name__}({', '.join(map(self.expression, operands))})"

    def _part(self, operand: Any) -> str:
        """Return an operand of an expression."""
        text = self.expression(operand)
        return f"({text})" if " " in text and not text.endswith(")") else text

    # ---- other sizes ------------------------------------------------------------------------------------------------

    def replayed(self, results: Any) -> Replay:
        """Return a replay that computes results for values of the symbols, and the outcomes of ``general``."""
        return Replay(self.nodes, self.guards, (results, [Symbol(self, node) for node in self.general]))

    def broken(self, values: Sequence[int]) -> str:
        """Return the first condition that does not hold for values of the symbols, and the line that decided it:
        ``n >= 5 (model.py:12)``."""
        replays = ((guard, Replay(self.nodes, {}, Symbol(self, guard))) for guard in self.guards)
        broken = next(guard for guard, replay in replays if replay(values) is not self.guards[guard])
        function, (left, right) = self.nodes[broken]
        assert function is not None
        sign = _SIGNS[function.__name__]
        sign = sign if self.guards[broken] else _OPPOSITE[sign]
        return f"{self.expression(left)} {sign} {self.expression(right)} ({self._lines[broken]})"

    def values_of(self, caller: str, sizes: Mapping[str, int] | None) -> tuple[int, ...]:
        """Return the values of the symbols.

        Raises:
            InvalidArgument: If one is missing or no size; names it.
        """
        if sizes is not None and not isinstance(sizes, Mapping):
            raise InvalidArgument(f"{caller}: sizes must be a mapping from names to integers, got {shown(sizes)}")
        unknown = next((name for name in sizes or {} if name not in self.names), None)
        if unknown is not None:
            known = ", ".join(self.names)
            raise InvalidArgument(f"{caller}: sizes must be of the names {known}, got {shown(unknown)}")
        missing = next((name for name in self.names if name not in (sizes or {})), None)
        if sizes is None or missing is not None:
            raise InvalidArgument(
                f"{caller}: the size {missing} is not known; pass sizes={{'{missing}': 8}}, or another value"
            )
        return tuple(coercion.argument(caller, f"sizes[{name!r}]", _SIZE, sizes[name]) for name in self.names)

    def bound(self, inputs: Mapping[str, tuple[Any, ...]], shapes: Sequence[tuple[int, ...] | None]) -> dict[str, int]:
        """Return the values of the sizes in the shapes of arrays.

        Args:
            inputs: Sizes of the inputs, by name.
            shapes: The shape of the array for each input, None for those without.

        Raises:
            InvalidArgument: If arrays have other ranks, or disagree, or no array has a size; names it.
        """
        values: dict[str, tuple[int, str]] = {}
        for (source, sizes), shape in zip(inputs.items(), shapes, strict=True):
            if shape is None:
                continue
            if len(shape) != len(sizes):
                raise InvalidArgument(f"{self.label}: {source!r} must have the shape {sizes}, got {shape}")
            for size, actual in zip(sizes, shape, strict=True):
                name = self.expression(size)
                if name not in self.names:
                    continue
                expected, first = values.setdefault(name, (actual, source))
                if actual != expected:
                    raise InvalidArgument(
                        f"{self.label}: {name} must be {expected} in {source!r} as in {first!r}, of the shape {sizes}, "
                        f"got {actual}"
                    )
                if not actual:
                    raise InvalidArgument(f"{self.label}: {name} must be at least 1, got 0 in {source!r}")
        missing = next((name for name in self.names if name not in values), None)
        if missing is not None:
            having = ", ".join(
                repr(source) for source, sizes in inputs.items() if missing in map(self.expression, sizes)
            )
            raise InvalidArgument(f"{self.label}: the size {missing} is not known; pass an array for {having}")
        return {name: value for name, (value, _) in values.items()}
