"""Sizes with names: a body reads them by name, so that one text serves many sizes.

The rule:

- *Sizes*: the integers in the fields that ``PARAMETERS`` lists (sizes, strides, offsets, counts of work items, the
  grid), all values that Python or a template computes from them, and attributes that are float32.
- *Literals*: everything else (ranks, data types, lanes, workgroups, tiles, windows). So are fields that are 0, and
  sizes where WGSL requires a constant (the filter ``constant`` of templates).

Every decision of a renderer or a template by a size (whether a stride is 1, whether a tile divides a row, how often a
line repeats) changes the text, so two kernels with one text compute the same for equal sizes.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from dmlgpu.compiler.plan import PlanBinding
from dmlgpu.compiler.rewrites.resampling import bits_of_float
from dmlgpu.compiler.sizes.arithmetic import is_symbolic, value_of
from dmlgpu.compiler.sizes.arithmetic import largest as largest_of
from dmlgpu.compiler.wgsl import names

PARAMETERS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(fields.split())
    for name, fields in {
        "Affine": "start steps",
        "AffineView": "sizes",
        "Apply": "sizes",
        "Digit": "size stride",
        "Element": "sizes",
        "Launch": "grid total",
        "Lookup": "sizes",
        "Operand": "batch own",
        "Pattern": "size",
        "PlanTensor": "sizes strides offset",
        "RegionAxis": "spatial outputs scale_bits lowest highest",
        "RegisterValue": "sizes",
        "ResampledAxis": "size count scale_bits input_offset_bits output_offset_bits inverse_bits",
        "RotatedContract": "apart",
        "Sampling": "input_offset_bits output_offset_bits",
        "ScheduledAttend": "head units share",
        "ScheduledContract": "share",
        "ScheduledQuantizedProduct": "apart starts",
        "ScheduledReduce": "together",
        "ScheduledRecurrence": "groups tiles",
        "ScheduledScan": "length",
        "ScheduledTiles": "rows",
        "ScheduledTogether": "starts",
        "Space": "batch rows columns inner",
        "Stencil": "size",
        "TileDigit": "count scale",
        "Walk": "count word",
        "WindowAxis": "spatial positions start",
    }.items()
}
"""Fields of steps and of their parts, by class, whose integers are sizes."""

CONSTANTS: Final = frozenset(
    {"batches", "blocks", "columns", "count", "edge", "first", "inner", "keys", "share", "size", "sizes", "start"}
    | {"digits", "outputs", "steps", "terms", "tiles", "top"}
    | {"reach_bits", "slope_bits", "lowest_bits", "highest_bits"}
)
"""Template values of bodies and steps, by name, whose integers are sizes."""

LARGEST_DIVIDED: Final = 1 << 31
"""Numbers from which a quotient by multiplication is not exact (see ``shaders/access/division``)."""


class Parameter:
    """A size of a kernel; results of arithmetic on it are too.

    Attributes:
        value: The size, plain or a symbol.
        index: Index of its name; None if the text does not name it.
    """

    __slots__ = ("_is_computed", "index", "value")

    def __init__(self, value: Any, *, is_computed: bool = False):
        self.value, self._is_computed = value, is_computed
        self.index: int | None = None

    def __str__(self) -> str:
        """Return the beginning of its name, which a suffix ends; 0 is a literal unless it is computed or a symbol."""
        is_literal = not (self._is_computed or is_symbolic(self.value)) and self.value == 0
        return "0" if is_literal else self.name

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    @property
    def name(self) -> str:
        """The beginning of its name."""
        if self.index is None:
            self.index = names.current().add_size(self.value)
        return f"sizes.s{self.index}"

    def __int__(self) -> int:
        return int(value_of(self.value))

    __index__ = __int__

    def __float__(self) -> float:
        return float(value_of(self.value))

    def __bool__(self) -> bool:
        return bool(self.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __neg__(self) -> Parameter:
        return Parameter(-self.value, is_computed=not is_symbolic(self.value))

    def __abs__(self) -> Parameter:
        return Parameter(abs(self.value), is_computed=not is_symbolic(self.value))

    def bit_length(self) -> Any:
        """Return the number of bits."""
        return self.value.bit_length()


def _arithmetic(name: str, *, is_size: bool, is_reflected: bool = False) -> Callable[..., Any]:
    """Return the method of a binary operator, whose result is a size or a plain number."""
    operation = getattr(operator, name)

    def compute(self: Parameter, other: Any) -> Any:
        left, right = self.value, other.value if type(other) is Parameter else other
        if type(right) is not int and not isinstance(right, numbers.Real):
            return NotImplemented
        result = operation(right, left) if is_reflected else operation(left, right)
        return Parameter(result, is_computed=type(result) is int) if is_size else result

    return compute


for _name in ("add", "sub", "mul", "floordiv", "mod", "truediv", "pow", "lshift", "rshift", "and", "or", "xor"):
    _keeps = _name in ("add", "sub", "mul", "floordiv", "mod")
    setattr(Parameter, f"__{_name}__", _arithmetic(f"__{_name}__", is_size=_keeps))
    setattr(Parameter, f"__r{_name}__", _arithmetic(f"__{_name}__", is_size=_keeps, is_reflected=True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Parameter, f"__{_name}__", _arithmetic(f"__{_name}__", is_size=False))


class FloatParameter(float):
    """An attribute that a kernel reads by name."""

    index: int | None = None

    @property
    def text(self) -> str:
        """Expression of its value."""
        if self.index is None:
            self.index = names.current().add_size(bits_of_float(self))
        return f"bitcast<f32>(sizes.s{self.index}u)"


def is_size(value: Any) -> bool:
    """Return whether an integer is a size with a name."""
    return isinstance(value, Parameter)


def quotient(number: str, divisor: Any) -> str:
    """Return the expression of a quotient by an integer.

    Args:
        number: An operand of ``/``, below 2^31 if all indices of the kernel's tensors are.
        divisor: The integer, a size or plain.
    """
    return _divided(number, "/", "div", divisor)


def remainder(number: str, divisor: Any) -> str:
    """Return the expression of a remainder; for arguments see ``quotient``."""
    return _divided(number, "%", "mod", divisor)


def _divided(number: str, operator: str, function: str, divisor: Any) -> str:
    """Return a division: by multiplication for sizes, since drivers without constant divisors divide slowly."""
    own = names.current()
    if not is_size(divisor) or not own.largest < LARGEST_DIVIDED or not 0 < divisor < LARGEST_DIVIDED:
        return f"{number} {operator} {divisor}u"
    assert divisor.name
    own.divisors[divisor.index] = None
    return f"{function}_s{divisor.index}({number})"


def constant(value: Any) -> Any:
    """Return an integer as a literal, where WGSL requires a constant."""
    return int(value)


def as_i32(value: Any) -> str:
    """Return the expression of an integer as a signed one."""
    return f"bitcast<i32>({value}u)" if is_size(value) else f"{value}i"


def as_f32(value: Any) -> str:
    """Return the expression of an integer, of either sign, as a float."""
    if not is_size(value):
        return f"{value}.0"
    return f"f32(bitcast<i32>({value}u))" if value < 2**31 else f"f32({value}u)"


def parameterized(step: Any) -> tuple[Any, Any]:
    """Return a scheduled step whose integers are sizes if the rule says so (shared parts stay shared), and the element
    count of its largest tensor, in memory or virtual."""
    memo: dict[int, tuple[Any, Any]] = {}
    largest = 0

    def visit(part: Any) -> Any:
        if isinstance(part, PlanBinding) or not (type(part) is tuple or dataclasses.is_dataclass(part)):
            return part
        entry = memo.get(id(part))
        if entry is None:
            entry = memo[id(part)] = part, rebuild(part)  # keeps the part alive, so that its id is not reused
        return entry[1]

    def constant(name: str, value: Any) -> Any:
        if type(value) is float:
            return FloatParameter(value)
        return _as_parameters(value) if name in CONSTANTS else visit(value)

    def rebuild(part: Any) -> Any:
        nonlocal largest
        if type(part) is tuple:
            items = tuple(map(visit, part))
            return part if all(new is old for new, old in zip(items, part, strict=True)) else items
        fields = parameter_fields(type(part))
        changes = {}
        for field in dataclasses.fields(part):
            old = getattr(part, field.name)
            if field.name in fields:
                new = _as_parameters(old)
                if field.name == "sizes":
                    largest = largest_of(largest, math.prod(old))
            elif field.name == "constants":
                new = tuple((name, constant(name, value)) for name, value in old)
            else:
                new = visit(old)
            if new is not old:
                changes[field.name] = new
        return dataclasses.replace(part, **changes) if changes else part

    return visit(step), largest


_FIELDS: dict[Any, frozenset[str]] = {}  # bounded by the classes


def parameter_fields(cls: Any) -> frozenset[str]:
    """Return the fields whose integers are sizes, those of base classes included."""
    if cls not in _FIELDS:
        _FIELDS[cls] = frozenset[str]().union(*(PARAMETERS.get(base.__name__, frozenset()) for base in cls.__mro__))
    return _FIELDS[cls]


def _as_parameters(value: Any) -> Any:
    """Return an integer, or those in a tuple, as sizes."""
    if type(value) is int or is_symbolic(value):
        return Parameter(value)
    return tuple(map(_as_parameters, value)) if type(value) is tuple else value
