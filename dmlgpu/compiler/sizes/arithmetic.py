"""Numbers that record arithmetic and decisions, and replays for other values.

Code runs once on symbols. Arithmetic on them is recorded. A decision that depends on one (a comparison, an index, a
string) records a guard: its condition and outcome. If all guards hold for other values of the symbols, the code would
do the same for these, and a ``Replay`` computes its results without running it. The compiler decides by sizes with the
functions of this module.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import numbers
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, TypeAlias, TypeGuard, TypeVar

from dmlgpu.common.coercion import Unread

Operation: TypeAlias = "tuple[Callable[..., Any] | None, tuple[Any, ...]]"

Result = TypeVar("Result")

_recording: ContextVar[Recording | None] = ContextVar("_recording", default=None)
_is_inside: ContextVar[bool] = ContextVar("_is_inside", default=False)


class Recording:
    """The arithmetic and the decisions of a computation on symbols.

    Every node is a function of values, and of earlier nodes. Equal nodes are one.

    Args:
        values: Of the symbols, in order.
        is_public: Whether code outside the package computes with the symbols: ``isinstance`` takes them for numbers,
            strings have their values, which become guards, and after the recording they behave as their values.

    Attributes:
        is_public: As given.
        nodes: The function of each node and its operands; None and nothing for a symbol of ``symbols``.
        symbols: The symbols whose values a replay takes, in order.
        guards: Conditions by index of their node, with their outcomes, in order.
        values: Of the nodes.
        needed: Symbols that are read later, for each values (``needed``).
        remembered: Results of functions by their operands (``remembered``).
    """

    def __init__(self, values: Sequence[int] = (), *, is_public: bool = False):
        self.is_public, self._is_complete = is_public, False
        self.nodes: list[Operation] = []
        self._indices: dict[Any, int] = {}
        self.values: list[Any] = []
        self.symbols: tuple[Symbol, ...] = ()
        self.guards: dict[int, bool] = {}
        self.needed: list[Symbol] = []
        self.remembered: dict[Any, Any] = {}
        self.extend(values)

    def extend(self, values: Sequence[int]) -> tuple[Symbol, ...]:
        """Add symbols with values after the others, and return them."""
        added = []
        for value in values:
            self.nodes.append((None, ()))
            self.values.append(value)
            added.append(_of(self, len(self.nodes) - 1))
        self.symbols += tuple(added)
        return tuple(added)

    @contextlib.contextmanager
    def active(self) -> Iterator[Recording]:
        """While it lasts, ``current`` returns this recording, which continues if it had ended."""
        self._is_complete = False
        token = _recording.set(self)
        try:
            yield self
        finally:
            _recording.reset(token)

    def node(self, function: Callable[..., Any], *operands: Any) -> int:
        """Return the index of the node that a function computes from symbols, numbers and objects."""
        key = function, *map(_key, operands)
        index = self._indices.get(key)
        if index is None:
            value = function(*[self.values[each.node] if is_symbolic(each) else each for each in operands])
            index = self._indices[key] = len(self.nodes)
            self.nodes.append((function, operands))
            self.values.append(value)
        return index

    def decide(self, function: Callable[..., bool], *operands: Any) -> bool:
        """Return the outcome of a condition, which becomes a guard."""
        node = self.node(function, *operands)
        if self.is_over:
            return bool(self.values[node])
        if self._is_complete and node not in self.guards:
            raise AssertionError(f"a size was read after its recording, by {function.__name__}")
        return self.guards.setdefault(node, bool(self.values[node]))

    def result_of(
        self, function: Callable[..., Any], operands: Sequence[Any], accepts: Callable[..., bool] | None
    ) -> Any:
        """Return the result of a function, which becomes a guard; for arguments see ``decided``."""
        node = self.node(function, *operands)
        result = self.values[node]
        if accepts is None:
            self.decide(operator.eq, Symbol(self, node), result)
        else:
            self.decide(accepts, result, *operands)
        return result

    def is_many(self, size: Symbol) -> bool:
        """Return whether a size counts as greater than 1."""
        return True

    @property
    def is_over(self) -> bool:
        """Whether its symbols behave as their values, since it is public and ended."""
        return self.is_public and self._is_complete

    def pin(self, symbol: Symbol) -> Any:
        """Return the value of a symbol, which becomes a guard."""
        value = self.values[symbol.node]
        self.decide(operator.eq, symbol, value)
        return value

    def hash_of(self, symbol: Symbol) -> int:
        """Return the hash of a symbol."""
        return hash(self.pin(symbol))

    def text_of(self, symbol: Symbol, spec: str) -> str:
        """Return a symbol as a string: the value for code outside the package, which may decide anything, and else a
        mention, which becomes a guard if the string is used (``settled``)."""
        if self.is_over or (self.is_public and not _is_inside.get()):
            return format(self.pin(symbol), spec)
        return f"⟪{symbol.node}:{spec}⟫" if spec else f"⟪{symbol.node}⟫"

    def replay(self, results: Any) -> Replay:
        """Return a replay that computes results for other values of the symbols. Ends the recording."""
        self._is_complete = True
        return Replay(self.nodes, dict(self.guards), results)


class Replay:
    """Computes results from values of symbols, if the guards hold.

    Guards are tested in the order in which they were recorded, and before what was computed after them: up to the first
    that fails, all that the recorded computation did is defined.

    Args:
        nodes: Nodes of the recording.
        guards: Outcomes that are tested, by node.
        results: What is computed: tuples, lists and dataclasses with symbols in them.
    """

    def __init__(self, nodes: Sequence[Operation], guards: Mapping[int, bool], results: Any):
        read: dict[int, int] = {}  # places in the table of results, by node
        self._results = _builder(results, read) or functools.partial(_same, results)
        needed = set(guards) | read.keys()
        for node in reversed(range(len(nodes))):
            if node in needed:
                needed.update([operand.node for operand in nodes[node][1] if is_symbolic(operand)])
        symbols = [node for node, (function, _) in enumerate(nodes) if function is None]
        places = {node: place for place, node in enumerate(symbols)}
        constants: list[Any] = []

        def place_of(operand: Any) -> int:
            if is_symbolic(operand):
                return places[operand.node]
            constants.append(operand)
            return -len(constants)  # from the end of the table

        # Lists instead of a tuple for each step: there are ten thousands, through which the garbage collector would go.
        self._functions: list[Callable[..., Any]] = []
        self._operands: list[tuple[int, ...]] = []
        self._outcomes: list[bool | None] = []
        for node in sorted(needed - places.keys()):
            function, operands = nodes[node]
            assert function is not None
            places[node] = len(symbols) + len(self._functions)
            self._functions.append(function)
            self._operands.append(tuple([place_of(operand) for operand in operands]))
            self._outcomes.append(guards.get(node))
        self._constants = constants[::-1]
        self._read = [places[node] for node in read]

    @property
    def text(self) -> str:
        """What it computes, as text that is the same in every process."""
        names = [f"{function.__module__}.{function.__qualname__}" for function in self._functions]
        return f"{names} {self._operands} {self._outcomes} {self._constants} {self._read}"

    def _table(self, symbols: Sequence[Any]) -> list[Any]:
        """Return symbols, room for the result of each function, and constants."""
        return [*symbols, *[None] * len(self._functions), *self._constants]

    def __call__(self, values: Sequence[int]) -> Any:
        """Return the results for values of the symbols; None if a guard does not hold."""
        table, steps = self._table(values), zip(self._functions, self._operands, self._outcomes, strict=True)
        for place, (function, operands, outcome) in enumerate(steps, len(values)):
            result = table[place] = function(*[table[operand] for operand in operands])
            if outcome is not None and bool(result) is not outcome:
                return None
        return self._results([table[place] for place in self._read])

    def on(self, recording: Recording) -> Any:
        """Return the results as computed from the symbols of another recording. Guards are not tested."""
        table, steps = self._table(recording.symbols), zip(self._functions, self._operands, strict=True)
        for place, (function, operands) in enumerate(steps, len(recording.symbols)):
            table[place] = _of(recording, recording.node(function, *[table[operand] for operand in operands]))
        return self._results([table[place] for place in self._read])


@functools.cache  # bounded by the classes
def fields_of(cls: type[Any]) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or description; none for other classes."""
    if hasattr(cls, "field_names"):  # first, because descriptions create a dataclass when they are asked for its fields
        return tuple(cls.field_names)
    return tuple([field.name for field in dataclasses.fields(cls)]) if dataclasses.is_dataclass(cls) else ()


def _builder(part: Any, read: dict[int, int]) -> Callable[[Sequence[Any]], Any] | None:
    """Return a function that builds a part again, with numbers in place of its symbols; None if it has none.

    Args:
        part: A tuple, list, dataclass or symbol; other parts have no symbols.
        read: Places of the numbers by node, to which those of the part are added.
    """
    cls: Any = type(part)
    if isinstance(part, Symbol):
        return operator.itemgetter(read.setdefault(part.node, len(read)))
    if isinstance(part, tuple | list):
        make, items = getattr(cls, "_make", cls), list(part)
    else:
        make, items = functools.partial(with_fields, cls), [getattr(part, field) for field in fields_of(cls)]
    builders = [(place, inner) for place, item in enumerate(items) if (inner := _builder(item, read)) is not None]
    if not builders:
        return None

    for place, _ in builders:
        items[place] = None
    return functools.partial(_built, make, items, builders)


def _built(
    make: Callable[[list[Any]], Any],
    items: list[Any],
    builders: Sequence[tuple[int, Callable[[Sequence[Any]], Any]]],
    table: Sequence[Any],
) -> Any:
    """Return a part with the items that follow from a table. No inner function, so that replays can be pickled."""
    built = items.copy()
    for place, build_item in builders:
        built[place] = build_item(table)
    return make(built)


def _same(results: Any, table: Sequence[Any]) -> Any:
    """Return results without symbols."""
    return results


def with_fields(cls: Any, values: Sequence[Any]) -> Any:
    """Return an instance of a dataclass or description, without checks."""
    instance = object.__new__(cls)
    instance.__dict__.update(zip(fields_of(cls), values, strict=True))
    return instance


class Symbol(Unread):
    """A number of a recording. C code requests its value, which records a guard.

    Attributes:
        recording: The recording.
        node: Index of its node.
    """

    __slots__ = ("node", "recording")

    def __init__(self, recording: Recording, node: int):
        self.recording, self.node = recording, node

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For code outside the package, which may test for ``int``, the class of its value."""
        return type(hint_of(self)) if self.recording.is_public else type(self)

    def result(self, function: Callable[..., Any], *operands: Any) -> Any:
        """Return the symbol that a function computes from operands."""
        return _of(self.recording, self.recording.node(function, *operands))

    def __bool__(self) -> bool:
        return self.recording.decide(operator.ne, self, 0)

    def __int__(self) -> int:
        return int(self.recording.pin(self))

    def __float__(self) -> float:
        return float(self.recording.pin(self))

    def __hash__(self) -> int:
        return self.recording.hash_of(self)

    def __repr__(self) -> str:
        return self.recording.text_of(self, "")

    def __format__(self, spec: str) -> str:
        return self.recording.text_of(self, spec)

    def __pos__(self) -> Any:
        return self

    def __round__(self, digits: int | None = None) -> Any:
        return self.result(round, self, digits)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self


numbers.Real.register(Symbol)


class Size(Symbol):
    """An integer of a recording."""

    __slots__ = ()

    def __index__(self) -> int:
        return int(self)

    def bit_length(self) -> Any:
        """Return the number of bits."""
        return self.result(int.bit_length, self)

    def __trunc__(self) -> Size:
        return self


numbers.Integral.register(Size)


def _of(recording: Recording, node: int) -> Symbol:
    """Return the symbol of a node."""
    return (Symbol if type(recording.values[node]) is float else Size)(recording, node)


def current() -> Recording | None:
    """Return the recording of the computation that calls."""
    return _recording.get()


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """While it lasts, code of the package runs although a recording is public: strings mention symbols."""
    token = _is_inside.set(True)
    try:
        yield
    finally:
        _is_inside.reset(token)


def is_inside() -> bool:
    """Return whether code of the package runs that is marked by ``inside``."""
    return _is_inside.get()


def is_symbolic(value: object) -> TypeGuard[Any]:
    """Return whether a value is a symbol."""
    return isinstance(value, Symbol)


def value_of(number: Any) -> Any:
    """Return a number as a plain one; that of a symbol becomes a guard."""
    return number.recording.pin(number) if isinstance(number, Symbol) else number


def hint_of(number: Any) -> Any:
    """Return a number as a plain one, without a guard: that of the computation that is recorded."""
    return number.recording.values[number.node] if isinstance(number, Symbol) else number


def needed(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return numbers that are read later, when those of them that are symbols have other values."""
    recording = _recording.get()
    if recording is not None:
        recording.needed += filter(is_symbolic, values)
    return tuple(values)


def computed(function: Callable[..., float], *operands: Any) -> Any:
    """Return the number that a pure function gives for operands; a symbol if one of them is, without a decision.

    The function gets plain numbers, here and in replays.

    Args:
        function: A function of a module.
        *operands: Numbers, and objects that do not depend on symbols.
    """
    recording = _recording_of(operands)
    return function(*operands) if recording is None else _of(recording, recording.node(function, *operands))


def decided(function: Callable[..., Result], *operands: Any, accepts: Callable[..., bool] | None = None) -> Result:
    """Return the result of a pure function of operands; that other operands give the same becomes the only guard.

    Args:
        function, *operands: As for ``computed``.
        accepts: A function of a module that takes a result and other operands and returns whether the result serves
            for them. It replaces the guard.
    """
    recording = _recording_of(operands)
    result: Result = function(*operands) if recording is None else recording.result_of(function, operands, accepts)
    return result


def remembered(function: Callable[..., Result], *operands: Any) -> Result:
    """Return the result of a pure function of numbers and tuples of numbers.

    A recording calls it once for operands with equal expressions, as those of equal layers. Its guards hold for all.

    Args:
        function, *operands: As for ``computed``.
    """
    flat = itertools.chain.from_iterable(part if type(part) is tuple else (part,) for part in operands)
    recording = next((part.recording for part in flat if isinstance(part, Symbol)), None)
    if recording is None or recording.is_over:
        return function(*operands)
    key = function, *(tuple(map(_key, part)) if type(part) is tuple else _key(part) for part in operands)
    if key not in recording.remembered:
        recording.remembered[key] = function(*operands)
    result: Result = recording.remembered[key]
    return result


def _recording_of(operands: Sequence[Any]) -> Recording | None:
    recordings = (operand.recording for operand in operands if isinstance(operand, Symbol))
    return next((recording for recording in recordings if not recording.is_over), None)


def is_many(size: Any) -> bool:
    """Return whether a size is greater than 1.

    Symbols count as greater, without a guard: what is right for many elements must be right for one.
    """
    return size.recording.is_many(size) if isinstance(size, Symbol) else bool(size > 1)


def is_broadcastable(size: Any, requested: Any) -> bool:
    """Return whether a size is 1 or the requested one. A symbol that is the requested one is not compared to 1."""
    return size in ((requested, 1) if is_many(size) else (1, requested))


def is_same_size(size: Any, other: Any) -> bool:
    """Return whether two sizes are equal. A symbol and 1 count as different, without a guard."""
    return size is other or (is_many(size) == is_many(other) and bool(size == other))


def largest(*values: Any) -> Any:
    """Return the largest number; among symbols without a decision."""
    return computed(max, *values) if len(values) > 1 else values[0]


def smallest(*values: Any) -> Any:
    """Return the smallest number; among symbols without a decision."""
    return computed(min, *values) if len(values) > 1 else values[0]


def settled(text: str) -> str:
    """Return a text with the values of the symbols that it mentions, which become guards."""
    recording = _recording.get()
    if recording is None or "⟪" not in text:
        return text
    result, *mentions = text.split("⟪")
    for mention in mentions:
        symbol, _, rest = mention.partition("⟫")
        node, _, spec = symbol.partition(":")
        result += format(recording.pin(_of(recording, int(node))), spec) + rest
    return result


def _key(operand: Any) -> Any:
    """Return a key of an operand of a node, which keeps objects alive that it names by identity."""
    cls = type(operand)
    if isinstance(operand, Symbol):
        return Symbol, operand.node
    return (cls, operand) if cls is int or cls is float or cls is bool else (object, id(operand))


def _order(operand: Any) -> Any:
    """Return a key that sorts the operands of a commutative operator."""
    return (1, operand.node) if isinstance(operand, Symbol) else (0, operand)


# ---- operators of Python ---------------------------------------------------------------------------------------------


def _unary(function: Callable[[Any], Any]) -> Callable[[Symbol], Any]:
    return lambda symbol: symbol.result(function, symbol)


_NEUTRAL: Final[dict[Callable[..., Any], int]] = {
    operator.add: 0,
    operator.sub: 0,
    operator.mul: 1,
    operator.floordiv: 1,
}
"""Second operands that change no integer."""

_ANNIHILATING: Final[dict[Callable[..., Any], int]] = {operator.mul: 0, operator.mod: 1}
"""Second operands with which every integer gives 0."""


def _arithmetic(function: Callable[[Any, Any], Any], is_reflected: bool) -> Callable[[Any, Any], Any]:
    is_commutative = function in (operator.add, operator.mul)
    is_division = function in (operator.floordiv, operator.mod)
    neutral, annihilating = _NEUTRAL.get(function), _ANNIHILATING.get(function)

    def simplified(left: Any, right: Any) -> Any:
        """Return the result for integers that follows from the operands alone; None to record it."""
        number, other = (left, right) if is_commutative else (right, left)
        if type(number) is int and number in (neutral, annihilating):
            return other if number == neutral else 0
        if is_division:
            if type(left) is int and left == 0:
                return 0 if right else None
            are_symbols = isinstance(left, Symbol) and isinstance(right, Symbol)
            if are_symbols and left.recording is right.recording and left.node == right.node and left:
                return function(1, 1)
        return None

    def compute(self: Symbol, other: Any) -> Any:
        is_integer = type(other) is int
        if not is_integer and not isinstance(other, numbers.Real):  # which is slower
            return NotImplemented
        if self.recording.is_over:
            return function(other, hint_of(self)) if is_reflected else function(hint_of(self), other)
        other = _plain(other)
        left, right = (other, self) if is_reflected else (self, other)
        if is_commutative and _order(right) < _order(left):
            left, right = right, left
        are_integers = type(self) is Size and (is_integer or type(other) in (int, Size))
        simple = simplified(left, right) if are_integers else None
        return self.result(function, left, right) if simple is None else simple

    return compute


def _comparison(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def compare(self: Symbol, other: Any) -> Any:
        if type(other) is not int and not isinstance(other, numbers.Real):  # which is slower
            return NotImplemented
        if self.recording.is_over:
            return function(hint_of(self), other)
        other = _plain(other)
        if isinstance(other, Symbol) and other.node == self.node:
            return function(0, 0)
        return self.recording.decide(function, self, other)

    return compare


def _plain(operand: Any) -> Any:
    """Return an operand without the class of a number that is no symbol: NumPy's, for example."""
    if type(operand) is int or type(operand) is float:
        return operand
    if isinstance(operand, Symbol):
        return hint_of(operand) if operand.recording.is_over else operand
    return int(operand) if isinstance(operand, numbers.Integral) else float(operand)


for _function in (operator.neg, abs, math.ceil, math.floor, math.trunc):
    setattr(Symbol, f"__{_function.__name__}__", _unary(_function))
for _name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "lshift", "rshift", "and", "or", "xor"):
    _function = getattr(operator, f"__{_name}__")
    setattr(Symbol, f"__{_name}__", _arithmetic(_function, False))
    setattr(Symbol, f"__r{_name}__", _arithmetic(_function, True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Symbol, f"__{_name}__", _comparison(getattr(operator, f"__{_name}__")))
