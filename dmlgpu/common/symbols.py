"""Numbers that record how they were computed, so that a computation can be repeated for other numbers.

Code runs once on symbols. Arithmetic on them is recorded. A decision that depends on one (a comparison, an index, a
string) records a guard: its condition and outcome. If all guards hold for other values of the symbols, the code would
do the same for these, and a ``Replay`` computes its results without running it.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import FrameType
from typing import Any, ClassVar, Final, TypeVar

_OPERATORS: Final = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "floordiv": "//",
    "truediv": "/",
    "mod": "%",
    "pow": "**",
    "lshift": "<<",
    "rshift": ">>",
    "and": "&",
    "or": "|",
    "xor": "^",
}
"""Python's text of arithmetic that is recorded, by method."""

_MENTION: Final = re.compile(r"⟪(\d+):?([^⟫]*)⟫")
"""A symbolic number in a text, with its format."""

_COMPARISONS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
"""Python's text of comparisons, by method."""

_PACKAGE: Final = __name__.partition(".")[0]

_TERM: Final = re.compile(r"\bt(\d+)\b")

Result = TypeVar("Result")

_recording: ContextVar[Recording | None] = ContextVar("_recording", default=None)
_postpones: ContextVar[bool] = ContextVar("_postpones", default=False)


def current() -> Recording | None:
    """Return the recording of the computation that calls."""
    return _recording.get()


@contextlib.contextmanager
def postponed() -> Iterator[None]:
    """While it lasts, replays are made that are compiled when values other than the recorded ones need them, since
    these may be the only ones. Compiling takes about as long as recording."""
    token = _postpones.set(True)
    try:
        yield
    finally:
        _postpones.reset(token)


def needed(numbers: Sequence[Any]) -> tuple[Any, ...]:
    """Return numbers that are read later, when those of them that are symbolic have other values."""
    recording = _recording.get()
    if recording is not None:
        recording.needed += [number for number in numbers if type(number) is SymbolicNumber]
    return tuple(numbers)


def resolved(numbers: Sequence[Any], values: Mapping[int, Any]) -> tuple[Any, ...]:
    """Return numbers with the values of those that are symbolic, by number of their node."""
    return tuple([values[number.number] if type(number) is SymbolicNumber else number for number in numbers])


def computed(function: Callable[..., float], *operands: Any) -> Any:
    """Return the number that a pure function gives for operands; symbolic if one of them is, without a decision.

    The function gets plain numbers, here and in replays.

    Args:
        function: A function of a module.
        *operands: Numbers, and objects that do not depend on symbols.
    """
    recording = _recording_of(operands)
    if recording is None:
        return function(*operands)
    return SymbolicNumber(recording, recording.call(function, *operands))


def decided(function: Callable[..., Result], *operands: Any, accepts: Callable[..., bool] | None = None) -> Result:
    """Return the result of a pure function of operands; that other operands give the same becomes the only guard.

    Args:
        function, *operands: As for ``computed``.
        accepts: A function of a module that takes a result and other operands and returns whether the result serves
            for them. It replaces the guard.
    """
    recording = _recording_of(operands)
    if recording is None:
        return function(*operands)
    number = recording.call(function, *operands)
    result: Result = recording.value(number)
    if accepts is None:
        recording.decide(f"t{number} == {recording.name(result)}", lambda: True)
    else:
        recording.decide(f"t{recording.call(accepts, result, *operands)}", lambda: True)
    return result


def is_many(size: Any) -> bool:
    """Return whether a size is greater than 1.

    Symbolic ones count as greater, without a guard: what is right for many elements must be right for one.
    """
    return issubclass(type(size), SymbolicNumber) or size > 1


def _recording_of(operands: Sequence[Any]) -> Recording | None:
    recordings = (operand.recording for operand in operands if issubclass(type(operand), SymbolicNumber))
    return next((recording for recording in recordings if not recording.is_over), None)


def settled(text: str) -> str:
    """Return a text with the values of the symbolic numbers that it mentions, which become guards."""
    recording = _recording.get()
    if recording is None or "⟪" not in text:
        return text

    def value(mention: re.Match[str]) -> str:
        return format(SymbolicNumber(recording, int(mention[1])).pinned(), mention[2])

    return _MENTION.sub(value, text)


class Recording:
    """The arithmetic and the decisions of a computation on symbols.

    Every node is an expression of constants, symbols (``v[0]``), earlier nodes (``t0``) and objects (``o0``). Equal
    expressions are one node.

    Args:
        values: Of the symbols, in order.
        is_public: Whether code outside the package computes with the numbers: its strings have their values, which
            become guards, and after the recording the numbers behave as their values.

    Attributes:
        is_public: As given.
        symbols: The symbols.
        guards: Conditions by number of their node, with their outcomes, in order.
        needed: Symbolic numbers that are read later, for each values of the symbols (``needed``).
        tokens: Numbers that have placeholders in sources, by these.
    """

    def __init__(self, values: Sequence[int], *, is_public: bool = False):
        self.is_public = is_public
        self._texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._values: list[Any] = []
        self._objects: dict[int, tuple[str, Any]] = {}
        self.guards: dict[int, bool] = {}
        self.needed: list[SymbolicNumber] = []
        self._is_complete = False
        self.tokens: dict[str, SymbolicNumber] = {}
        self.symbols: tuple[SymbolicNumber, ...] = ()
        self.extend(values)

    def extend(self, values: Sequence[int]) -> tuple[SymbolicNumber, ...]:
        """Add symbols with values after the others, and return them."""
        added = tuple(
            SymbolicNumber(self, self.node(f"v[{number}]", hint_of, value))
            for number, value in enumerate(values, len(self.symbols))
        )
        self.symbols += added
        return added

    @contextlib.contextmanager
    def active(self) -> Iterator[Recording]:
        """While it lasts, ``current`` returns this recording, which continues if it had ended."""
        self._is_complete = False
        token = _recording.set(self)
        try:
            yield self
        finally:
            _recording.reset(token)

    def node(self, text: str, function: Callable[..., Any], *operands: Any) -> int:
        """Return the number of the node with an expression, which a function computes from operands."""
        number = self._numbers.get(text)
        if number is None:
            value = function(*map(hint_of, operands))
            number = self._numbers[text] = len(self._texts)
            self._texts.append(text)
            self._values.append(value)
        return number

    def name(self, value: object) -> str:
        """Return the name of an object in expressions."""
        return self._objects.setdefault(id(value), (f"o{len(self._objects)}", value))[0]

    def call(self, function: Callable[..., Any], *operands: Any) -> int:
        """Return the number of the node that a function computes from numbers and objects."""
        texts = [_text(operand) if _is_number(operand) else self.name(operand) for operand in operands]
        numbers = [hint_of(operand) if _is_number(operand) else operand for operand in operands]
        return self.node(f"{self.name(function)}({', '.join(texts)})", lambda: function(*numbers))

    def value(self, node: int) -> Any:
        """Return the value of a node."""
        return self._values[node]

    def decide(self, text: str, function: Callable[..., bool], *operands: Any) -> bool:
        """Return the outcome of a condition, which becomes a guard."""
        node = self.node(text, function, *operands)
        if self.is_over:
            return bool(self._values[node])
        if self._is_complete and node not in self.guards:
            raise AssertionError(f"a number was read after its recording: {self._texts[node]}")
        return self.guards.setdefault(node, self._values[node])

    @property
    def is_over(self) -> bool:
        """Whether its numbers behave as their values, since it is public and ended."""
        return self.is_public and self._is_complete

    def pin(self, number: SymbolicNumber) -> Any:
        """Return the value of a number, which becomes a guard."""
        hint = number.hint
        self.decide(f"t{number.number} == {_text(hint)}", operator.eq, number, hint)
        return hint

    def hash_of(self, number: SymbolicNumber) -> int:
        """Return the hash of a number."""
        return hash(self.pin(number))

    def text_of(self, number: SymbolicNumber, spec: str, reader: FrameType) -> str:
        """Return a number as a string for code of a frame: the value for code outside the package, which may
        decide anything, and else a mention of the number."""
        name = str(reader.f_globals.get("__name__", ""))
        if self.is_public and name.partition(".")[0] != _PACKAGE:
            return format(self.pin(number), spec)
        return f"⟪{number.number}:{spec}⟫" if spec else f"⟪{number.number}⟫"

    def replay(self, results: Sequence[Any], *, known: int = 0) -> Replay:
        """Return a replay that computes numbers of the computation for other values of the symbols. Ends the recording.

        Args:
            results: The numbers.
            known: Number of guards, from the first on, that need no test.
        """
        replay = self._replay(results, dict([*self.guards.items()][known:]))
        self._is_complete = True
        return replay

    def _replay(self, results: Sequence[Any], guards: Mapping[int, bool]) -> Replay:
        texts, guards = [_text(result) for result in results], dict(guards)

        def written() -> tuple[str, Mapping[str, Any]]:
            return self._source(texts, guards), dict(self._objects.values())

        replay = Replay(written, [*map(hint_of, self.symbols)], [*map(hint_of, results)])
        if not _postpones.get():
            replay.compile()
        return replay

    def _source(self, results: Sequence[str], guards: Mapping[int, bool]) -> str:
        """Return the source of a function of values that returns the results, or None if a guard does not hold.

        Guards stand in the order in which they were recorded, after the nodes that they need: up to the first that
        fails, all that the recorded computation did is defined.
        """
        lines = ["def replay(v):"]
        defined: set[int] = set()

        def define(node: int) -> None:
            pending = [node]
            while pending:
                last = pending[-1]
                missing = [] if last in defined else [n for n in self._terms(last) if n not in defined]
                pending += missing
                if not missing:
                    pending.pop()
                    if last not in defined:
                        defined.add(last)
                        lines.append(f"    t{last} = {self._texts[last]}")

        for guard, outcome in guards.items():
            for node in self._terms(guard):
                define(node)
            lines.append(f"    if {'not ' if outcome else ''}{self._texts[guard]}: return None")
        for term in _TERM.findall(" ".join(results)):
            define(int(term))
        return "\n".join([*lines, f"    return ({''.join(f'{result}, ' for result in results)})"])

    def _terms(self, node: int) -> list[int]:
        return [int(term) for term in _TERM.findall(self._texts[node])]


class Replay:
    """Computes numbers from values of symbols, if the guards hold.

    Its function is compiled when values differ from the recorded ones for the first time, or before (``postponed``).

    Args:
        written: Returns the source of the function (``Recording.replay``), and the objects that it names.
        values: Of the symbols in the recording.
        results: In the recording.
    """

    def __init__(
        self, written: Callable[[], tuple[str, Mapping[str, Any]]], values: Sequence[Any], results: Sequence[Any]
    ):
        self._values, self._results = tuple(values), tuple(results)
        self._written: Callable[[], tuple[str, Mapping[str, Any]]] | None = written
        self._function: Callable[[Sequence[int]], tuple[Any, ...] | None] | None = None

    def __call__(self, values: Sequence[int]) -> tuple[Any, ...] | None:
        """Return the results for values of the symbols; None if a guard does not hold."""
        if self._function is None:
            if tuple(values) == self._values:
                return self._results
            self.compile()
        assert self._function is not None
        return self._function(values)

    def compile(self) -> None:
        """Compile the function, and drop the recording."""
        written = self._written
        if written is not None:
            self._function = _compiled(*written())
            self._written = None


def _compiled(source: str, objects: Mapping[str, Any]) -> Callable[[Sequence[int]], tuple[Any, ...] | None]:
    """Return the function of a source that names objects."""
    functions = {"ceil": math.ceil, "floor": math.floor, "trunc": math.trunc}
    names = {"inf": math.inf, "nan": math.nan, **functions, **objects}
    exec(compile(source, "<replay>", "exec"), names)
    function: Callable[[Sequence[int]], tuple[Any, ...] | None] = names["replay"]
    return function


class SymbolicNumber:
    """An integer or float of a recording.

    ``isinstance`` takes it for one. C code does not, and has to request the value, which records a guard.

    Attributes:
        recording: The recording.
        number: Of its node.
        token: Number of its placeholder in a source; None if it has none.
    """

    __slots__ = ("number", "recording", "token")

    symbolic: ClassVar[type[SymbolicNumber]]
    """The class of numbers that are computed from one of this class and others."""

    def __init__(self, recording: Recording, number: int):
        self.recording, self.number = recording, number
        self.token: int | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.hint)

    @property
    def hint(self) -> Any:
        """Its value."""
        return self.recording.value(self.number)

    def constant(self, value: int) -> Any:
        """Return the result of arithmetic on this number that does not depend on it."""
        return value

    def as_class(self, cls: type[SymbolicNumber]) -> Any:
        """Return the same number as an object of another class."""
        return cls(self.recording, self.number)

    def result(self, text: str, function: Callable[..., Any], *operands: Any) -> Any:
        """Return a number that a function computes from operands."""
        return type(self)(self.recording, self.recording.node(text, function, *operands))

    def pinned(self) -> Any:
        """Return the value, which becomes a guard."""
        return self.recording.pin(self)

    def __bool__(self) -> bool:
        return self.recording.decide(f"t{self.number} != 0", operator.ne, self, 0)

    def __index__(self) -> int:
        return operator.index(self.pinned())

    def __int__(self) -> int:
        return int(self.pinned())

    def __float__(self) -> float:
        return float(self.pinned())

    def __hash__(self) -> int:
        return self.recording.hash_of(self)

    def __repr__(self) -> str:
        return self.recording.text_of(self, "", sys._getframe(1))

    def __format__(self, spec: str) -> str:
        return self.recording.text_of(self, spec, sys._getframe(1))

    def __neg__(self) -> Any:
        return self.result(f"-t{self.number}", operator.neg, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self.result(f"abs(t{self.number})", abs, self)

    def __ceil__(self) -> Any:
        return self.as_class(SymbolicNumber).result(f"ceil(t{self.number})", math.ceil, self)

    def __floor__(self) -> Any:
        return self.as_class(SymbolicNumber).result(f"floor(t{self.number})", math.floor, self)

    def __trunc__(self) -> Any:
        if isinstance(self, int):
            return self
        return self.as_class(SymbolicNumber).result(f"trunc(t{self.number})", math.trunc, self)

    def __round__(self, digits: int | None = None) -> Any:
        function = functools.partial(round, ndigits=digits)
        return self.as_class(SymbolicNumber).result(f"round(t{self.number}, {digits})", function, self)

    def bit_length(self) -> Any:
        """Return the number of bits of an integer."""
        return self.as_class(SymbolicNumber).result(f"t{self.number}.bit_length()", int.bit_length, self)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        number = self.as_class(SymbolicNumber)
        return number // other, number % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        number = self.as_class(SymbolicNumber)
        return other // number, other % number


_NUMBERS: Final = frozenset({int, float, bool})


def _is_number(value: object) -> bool:
    """Return whether a value is a number, plain or symbolic, whose text computes it."""
    cls = type(value)
    return cls is int or cls is float or issubclass(cls, SymbolicNumber)


def _text(value: Any) -> str:
    """Return a number as it stands in an expression."""
    cls = type(value)
    if cls is int and value >= 0:
        return repr(value)
    if issubclass(cls, SymbolicNumber):
        return _text(value.hint) if value.recording.is_over else f"t{value.number}"
    plain = float(value) if isinstance(value, float) else int(value)
    return repr(plain) if plain >= 0 else f"({plain!r})"


def hint_of(value: Any) -> Any:
    """Return a number's value in the computation that is recorded, without a guard."""
    cls = type(value)
    if cls in _NUMBERS:
        return value
    if issubclass(cls, SymbolicNumber):
        return value.recording.value(value.number)
    return float(value) if issubclass(cls, float) else int(value)


def _arithmetic(symbol: str, function: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Any, Any], Any]:
    simplify = _SIMPLER.get(symbol)
    is_commutative = symbol in "+*"

    def compute(self: SymbolicNumber, other: Any) -> Any:
        if self.recording.is_over:
            return function(other, self.hint) if reflected else function(self.hint, other)
        cls, kind = type(self), type(other)
        if kind is int or kind is float:
            own = cls
        elif issubclass(kind, SymbolicNumber):
            own = kind if issubclass(kind, cls) else cls
        elif issubclass(kind, int | float):
            own = getattr(kind, "symbolic", cls)
        else:
            return NotImplemented
        left, right = (other, self) if reflected else (self, other)
        if simplify is None:
            own = SymbolicNumber
        else:
            result = simplify(left, right)
            if result is not None:
                if isinstance(result, SymbolicNumber):
                    return own(self.recording, result.number)
                return own(self.recording, self.number).constant(result)
        texts = _text(left), _text(right)
        if is_commutative and texts[1] < texts[0]:
            texts = texts[1], texts[0]
        return own(self.recording, self.recording.node(f"{texts[0]} {symbol} {texts[1]}", function, left, right))

    return compute


def _is(value: Any, number: int) -> bool:
    """Return whether an operand is a certain plain integer."""
    return issubclass(type(value), int) and int(value) == number


def _is_same(left: Any, right: Any) -> bool:
    """Return whether two operands are one integer, and not 0."""
    both = issubclass(type(left), SymbolicNumber) and issubclass(type(right), SymbolicNumber)
    return both and left.recording is right.recording and left.number == right.number and bool(left)


def _has_floats(left: Any, right: Any) -> bool:
    return isinstance(hint_of(left), float) or isinstance(hint_of(right), float)


def _sum(left: Any, right: Any) -> Any:
    if _has_floats(left, right):
        return None
    return right if _is(left, 0) else left if _is(right, 0) else None


def _difference(left: Any, right: Any) -> Any:
    return left if _is(right, 0) else None


def _product(left: Any, right: Any) -> Any:
    if _is(left, 0) or _is(right, 0):
        return None if _has_floats(left, right) else 0
    return right if _is(left, 1) else left if _is(right, 1) else None


def _quotient(left: Any, right: Any) -> Any:
    if _has_floats(left, right):
        return None
    if _is(right, 1):
        return left
    if _is(left, 0):
        return 0 if right else None
    return 1 if _is_same(left, right) else None


def _remainder(left: Any, right: Any) -> Any:
    if _has_floats(left, right):
        return None
    if _is(left, 0):
        return 0 if right else None
    return 0 if _is(right, 1) or _is_same(left, right) else None


_SIMPLER: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "//": _quotient,
    "%": _remainder,
}
"""Results of arithmetic that follow from its operands alone, by its text; None to record it."""


def _comparison(symbol: str, function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def compare(self: SymbolicNumber, other: Any) -> Any:
        if self.recording.is_over:
            return function(self.hint, other)
        if issubclass(type(other), SymbolicNumber) and not other.recording.is_over:
            if other.number == self.number:
                return function(0, 0)
        elif not issubclass(type(other), int | float):
            return NotImplemented
        return self.recording.decide(f"t{self.number} {symbol} {_text(other)}", function, self, other)

    return compare


SymbolicNumber.symbolic = SymbolicNumber

for _name, _symbol in _OPERATORS.items():
    _function = getattr(operator, f"__{_name}__")
    setattr(SymbolicNumber, f"__{_name}__", _arithmetic(_symbol, _function, False))
    setattr(SymbolicNumber, f"__r{_name}__", _arithmetic(_symbol, _function, True))
for _name, _symbol in _COMPARISONS.items():
    setattr(SymbolicNumber, f"__{_name}__", _comparison(_symbol, getattr(operator, f"__{_name}__")))


def largest(*values: Any) -> Any:
    """Return the largest number; among symbolic ones without a decision."""
    return _chosen("max", max, values)


def smallest(*values: Any) -> Any:
    """Return the smallest number; among symbolic ones without a decision."""
    return _chosen("min", min, values)


def _chosen(name: str, function: Callable[..., Any], values: Sequence[Any]) -> Any:
    live = (value for value in values if isinstance(value, SymbolicNumber) and not value.recording.is_over)
    symbolic = next(live, None)
    if symbolic is None or len(values) == 1:
        return function(values)
    return symbolic.result(f"{name}({', '.join(map(_text, values))})", function, *values)
