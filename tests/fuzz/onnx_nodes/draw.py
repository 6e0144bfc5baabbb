"""Nodes drawn at random: what a generator of an operator draws from, and what it returns."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx.defs
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

MICROSOFT = "com.microsoft"
NEWEST = onnx.defs.onnx_opset_version()
OLDEST = 7

WEIGHTS = {
    "float32": 8.0,
    "float16": 2.0,
    "int64": 2.0,
    "int32": 2.0,
    "uint8": 1.0,
    "int8": 1.0,
    "bool": 1.0,
    "uint32": 0.5,
    "uint64": 0.5,
    "int16": 0.5,
    "uint16": 0.5,
    "float64": 0.2,
}
"""How often an element type is drawn of those that an operator takes."""

FLOATS = ("float32", "float16", "float64")
INTEGERS = ("int64", "int32", "uint8", "int8", "uint32", "uint64", "int16", "uint16")
_ONNX_NAMES = {"float": "float32", "double": "float64"}


@dataclass
class NodeCase:
    """A node with the arrays that it reads.

    Attributes:
        op_type, domain: its operator.
        version: of ONNX's own operator set.
        inputs: arrays, None for an omitted one.
        attributes: as ``onnx.helper.make_node`` takes them.
        outputs: how many outputs the node names.
        absent: positions of outputs that it does not name, among these.
        constants: positions of inputs that are always initializers: types that no run takes.
        length: how many elements an output element sums up, for the tolerance.
        exact: whether float outputs are elements of the inputs, or computed without rounding.
        slack: by how much integer outputs may differ, because products of floats are rounded to them.
        random: whether only types and shapes are determined.
        captured: arrays that bodies read by names of the graph around them.
        scale: largest magnitude that intermediate sums have, for the absolute tolerance.
    """

    op_type: str
    domain: str
    version: int
    inputs: list[Array | None]
    attributes: dict[str, Any]
    outputs: int = 1
    absent: tuple[int, ...] = ()
    constants: tuple[int, ...] = ()
    length: int = 1
    exact: bool = False
    slack: int = 0
    random: bool = False
    scale: float = 1.0
    captured: dict[str, Array] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The operator with its domain."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type


@dataclass
class Draw:
    """The choices of one node.

    Attributes:
        rng: source of all choices.
        op_type, domain, version: the operator.
        pool: tensors of the graph under construction, which inputs may be taken from.
    """

    rng: random.Random
    op_type: str
    domain: str
    version: int
    pool: Sequence[Array] = ()
    numbers: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = np.random.Generator(np.random.SFC64(self.rng.getrandbits(64)))

    # ---- choices ----------------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        """Whether something happens."""
        return self.rng.random() < probability

    def pick(self, *choices: Any) -> Any:
        """One of several values."""
        return choices[self.rng.randrange(len(choices))]

    def maybe(self, *choices: Any, probability: float = 0.5) -> Any:
        """One of several values, or None: an attribute or input that is omitted."""
        return self.pick(*choices) if self.chance(probability) else None

    def integer(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        return self.rng.randint(low, high)

    def number(self, low: float, high: float) -> float:
        """A float32 number."""
        return float(np.float32(self.rng.uniform(low, high)))

    def sample(self, choices: Sequence[Any], low: int, high: int) -> list[Any]:
        """Some of several values, in any order."""
        return self.rng.sample(list(choices), min(len(choices), self.integer(low, high)))

    def axis(self, rank: int) -> int:
        """An axis, counted from either end."""
        return self.integer(-rank, rank - 1)

    def axes(self, rank: int, low: int = 1) -> list[int]:
        """Different axes, each counted from either end."""
        return [axis - (rank if self.chance(0.3) else 0) for axis in self.sample(range(rank), low, rank)]

    # ---- types and shapes -------------------------------------------------------------------------------------------

    def dtype(self, parameter: str | int = 0, among: Sequence[str] | None = None) -> str:
        """An element type that the operator's schema allows.

        Args:
            parameter: the type parameter, or the position of an input.
            among: the types to choose from.
        """
        allowed: Sequence[str] = allowed_types(self.op_type, self.domain, self.version, parameter) or FLOATS
        names = [name for name in allowed if name in WEIGHTS and (among is None or name in among)]
        if not names:
            names = list(among or allowed)
        return self.rng.choices(names, [WEIGHTS.get(name, 1.0) for name in names])[0]

    def shape(self, low: int = 0, high: int = 4, *, most: int = 5, empty: float = 0.04) -> tuple[int, ...]:
        """A shape of ``low`` to ``high`` dimensions; at times with a dimension of 0."""
        rank = self.integer(low, high)
        sizes = [self.integer(1, most) for _ in range(rank)]
        if sizes and self.chance(0.08):
            sizes[-1] = self.integer(6, 70)
        if sizes and self.chance(empty):
            sizes[self.rng.randrange(rank)] = 0
        return tuple(sizes)

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to another one."""
        if self.chance(0.4):
            return tuple(shape)
        dropped = self.integer(0, len(shape)) if self.chance(0.5) else 0
        return tuple(1 if self.chance(0.3) else size for size in shape[dropped:])

    def broadcasting(self, count: int, high: int = 4) -> list[tuple[int, ...]]:
        """Shapes that broadcast together."""
        shape = self.shape(0, high)
        shapes = [self.broadcast(shape) for _ in range(count)]
        return [shape, *shapes[1:]] if self.chance(0.6) else shapes

    # ---- arrays -----------------------------------------------------------------------------------------------------

    def array(
        self, dtype: str, shape: Sequence[int], low: float = -4, high: float = 4, *, special: bool = False
    ) -> Array:
        """A new array of elements in [low, high]; half of the float arrays hold multiples of 1/8."""
        shape = tuple(shape)
        if dtype == "bool":
            return self.numbers.integers(0, 2, shape).astype(bool)
        kind = np.dtype(dtype)
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            first, last = max(math.ceil(low), int(limits.min)), min(math.floor(high), int(limits.max))
            return self.numbers.integers(first, max(first, last), shape, dtype=kind, endpoint=True)
        if high - low >= 0.5 and self.chance(0.5):
            eighths = self.numbers.integers(math.ceil(8 * low), math.floor(8 * high), shape, endpoint=True)
            array = np.asarray(eighths / 8, kind)
        else:
            array = np.asarray(self.numbers.uniform(low, high, shape), kind)
        if special and array.size and self.chance(0.15):
            places = self.numbers.integers(0, array.size, 2)
            array.reshape(-1)[places] = [self.pick(*_SPECIAL) for _ in places]
        return array

    def tensor(
        self, dtype: str, shape: Sequence[int], low: float = -4, high: float = 4, *, special: bool = False
    ) -> Array:
        """An array: one of the pool if its type, shape and elements suit, else a new one."""
        shape = tuple(shape)
        suitable = [
            array
            for array in self.pool
            if array.dtype == dtype and array.shape == shape and is_within(array, low, high)
        ]
        if suitable and self.chance(0.7):
            return suitable[self.rng.randrange(len(suitable))]
        return self.array(dtype, shape, low, high, special=special)

    def main(
        self,
        parameter: str | int = 0,
        low_rank: int = 0,
        high_rank: int = 4,
        *,
        low: float = -4,
        high: float = 4,
        special: bool = False,
        among: Sequence[str] | None = None,
        most: int = 5,
        empty: float = 0.04,
        accept: Callable[[Array], bool] = lambda array: True,
    ) -> Array:
        """A first input: one of the pool, or a new one."""
        allowed = allowed_types(self.op_type, self.domain, self.version, parameter) or FLOATS
        if self.pool and self.chance(0.9):
            suitable = [
                array
                for array in self.pool
                if array.dtype.name in allowed
                and (among is None or array.dtype.name in among)
                and low_rank <= array.ndim <= high_rank
                and is_within(array, low, high)
                and (array.size or empty)
                and accept(array)
            ]
            if suitable:
                # The newest one most of the time, so that chains grow.
                return suitable[-1] if self.chance(0.7) else suitable[self.rng.randrange(len(suitable))]
        shape = self.shape(low_rank, high_rank, most=most, empty=empty)
        return self.array(self.dtype(parameter, among), shape, low, high, special=special)

    def case(self, *inputs: Array | None, outputs: int = 1, **options: Any) -> NodeCase:
        """The node; options of ``NodeCase`` are taken as such, others are attributes, omitted where None."""
        fields = {name: options.pop(name) for name in _OPTIONS & options.keys()}
        attributes = {name: value for name, value in options.items() if value is not None}
        arrays = list(inputs)
        while arrays and arrays[-1] is None:
            arrays.pop()
        return NodeCase(self.op_type, self.domain, self.version, arrays, attributes, outputs, **fields)


_OPTIONS = frozenset(("absent", "constants", "length", "exact", "slack", "random", "scale", "captured"))
_SPECIAL = (float("nan"), float("inf"), float("-inf"), -0.0, 0.0)


def integers(*values: int, dtype: str = "int64") -> Array:
    """A list of integers as an input."""
    return np.array(values, dtype)


def is_within(array: Array, low: float, high: float) -> bool:
    """Whether all elements are finite and in a range."""
    if array.dtype.kind not in "fiu" or not array.size:
        return True
    return bool(np.isfinite(array).all() and array.min() >= low and array.max() <= high)


@functools.lru_cache(maxsize=8192)
def schema_of(op_type: str, domain: str, version: int) -> onnx.defs.OpSchema | None:
    """An operator's schema in a version of its operator set, None where ONNX has none."""
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


@functools.lru_cache(maxsize=8192)
def allowed_types(op_type: str, domain: str, version: int, parameter: str | int) -> tuple[str, ...]:
    """NumPy's names of the element types that a schema allows; none where ONNX has no schema."""
    schema = schema_of(op_type, domain, version)
    if schema is None:
        return ()
    name = schema.inputs[parameter].type_str if isinstance(parameter, int) else parameter
    texts: Sequence[str] = next(
        (constraint.allowed_type_strs for constraint in schema.type_constraints if constraint.type_param_str == name),
        (name,),
    )
    plain = [text[len("tensor(") : -1] for text in texts if text.startswith("tensor(")]
    return tuple(name for text in plain if (name := _ONNX_NAMES.get(text, text)) in WEIGHTS)


# ---- generators -----------------------------------------------------------------------------------------------------

Generator: TypeAlias = Callable[[Draw], NodeCase]

GENERATORS: dict[tuple[str, str], Generator] = {}
"""By domain and operator."""


def generator(*names: str, domain: str = "") -> Callable[[Generator], Generator]:
    """Register a function that draws nodes of operators."""

    def register(function: Generator) -> Generator:
        for name in names:
            assert (domain, name) not in GENERATORS, name
            GENERATORS[domain, name] = function
        return function

    return register


def families(rows: Mapping[str, Any], domain: str = "") -> Callable[[Callable[..., NodeCase]], Callable[..., NodeCase]]:
    """Register a function of a draw and a row of a table for each operator of the table."""

    def register(function: Callable[..., NodeCase]) -> Callable[..., NodeCase]:
        for name, row in rows.items():
            generator(name, domain=domain)(functools.partial(_of_row, function, row))
        return function

    return register


def _of_row(function: Callable[..., NodeCase], row: Any, draw: Draw) -> NodeCase:
    return function(draw, row)
