"""Sizes as parameters: kernels read them from a buffer, so that one source serves many sizes.

The rule:

- *Parameters*: the integers in the fields that ``PARAMETERS`` lists (sizes, strides, offsets, counts of work items, the
  grid), all values that Python or a template computes from them, and attributes that are float32.
- *Literals*: everything else (ranks, data types, lanes, workgroups, tiles, windows). So are fields that are 0, numbers
  that drivers treat in a special way, and parameters where WGSL requires a constant: array lengths, module constants,
  workgroup sizes.

Every decision of a renderer or a template by a parameter (whether a stride is 1, whether a tile divides a row, how
often a line repeats) changes the source, so two kernels with one source compute the same for equal parameters.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from dmlgpu.common import symbols
from dmlgpu.common.symbols import SymbolicNumber
from dmlgpu.compiler.plan import PlanBinding
from dmlgpu.compiler.rewrites.resampling import bits_of_float
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl import templates

PARAMETERS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(fields.split())
    for name, fields in {
        "Affine": "start",
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
        "ResampledAxis": "size count scale_bits input_offset_bits output_offset_bits",
        "Sampling": "input_offset_bits output_offset_bits",
        "ScheduledAttend": "head units share",
        "ScheduledContract": "share",
        "ScheduledReduce": "together",
        "ScheduledRecurrence": "groups tiles",
        "ScheduledScan": "length",
        "ScheduledTiles": "rows",
        "Space": "batch rows columns inner",
        "Stencil": "size",
        "TileDigit": "count scale",
        "Walk": "count word",
        "WindowAxis": "spatial positions start",
    }.items()
}
"""Fields of steps and of their parts, by class, whose integers are parameters."""

CONSTANTS: Final = frozenset(
    {"batches", "blocks", "columns", "count", "edge", "first", "inner", "keys", "share", "size", "sizes", "start"}
    | {"digits", "outputs", "steps", "terms", "tiles", "top"}
)
"""Template values of bodies and steps, by name, whose integers are parameters."""

LARGEST_DIVIDED: Final = 1 << 31
"""Numbers from which a quotient by multiplication is not exact (see ``shaders/access/division``)."""

_TOKEN = re.compile(r"§(-?\d+)#(\w+)§(u|i|f|\.0f?)?")
_READ: Final = {"u": "{}", "i": "bitcast<i32>({})", "f": "bitcast<f32>({})"}
"""Expression that reads a parameter as a type, by the suffix that follows it in a source; otherwise as an integer in
float32, of either sign."""


_DIVISION = re.compile(r" ([/%]) §(\d+)#(\d+)§u")
_MAIN = re.compile(r"^@compute[^{]*\{\n", re.MULTILINE)
_NAME = re.compile(r"\bparameter\d+\b")
_PARAMETER_BLOCK = re.compile(r"^(struct Params \{.*zero: u32) \}$", re.MULTILINE)
_IMMEDIATE = "var<immediate> params: Params;\n"


_numbers = itertools.count()


class Parameter(int):
    """An integer that a kernel may read from its parameters; results of arithmetic on it are too."""

    _number: int | None = None
    _is_computed = False

    symbolic: ClassVar[type[SymbolicNumber]]
    """Class of the symbolic results of arithmetic on this integer."""

    def __str__(self) -> str:
        """Return its placeholder in a source, which ``resolve`` replaces; 0 is a literal unless it is computed."""
        if self == 0 and not self._is_computed:
            return int.__repr__(self)
        if self._number is None:
            self._number = next(_numbers)
        return f"§{self:d}#{self._number}§"


class SymbolicParameter(SymbolicNumber):
    """A ``Parameter`` of a recording."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return its placeholder in a source, also if it is 0 or 1."""
        if self.token is None:
            self.token = next(_numbers)
        self.recording.tokens[str(self.token)] = self
        return f"§{self.hint}#{self.token}§"

    __repr__ = __str__

    def constant(self, value: int) -> Any:
        """Return a parameter that does not depend on symbols."""
        return Parameter(value)

    def __format__(self, spec: str) -> str:
        return super().__format__(spec) if spec else str(self)


Parameter.symbolic = SymbolicParameter.symbolic = SymbolicParameter


class FloatParameter(float):
    """An attribute that a kernel may read from its parameters."""

    _number: int | None = None

    @property
    def token(self) -> str:
        """Placeholder in a source, which ``resolve`` replaces."""
        if self._number is None:
            self._number = next(_numbers)
        return f"§{bits_of_float(self)}#{self._number}§f"


def _derived(name: str) -> Callable[..., Any]:
    operation = getattr(int, name)

    def derive(self: int, *others: Any) -> Any:
        result = operation(self, *others)
        if type(result) is int:
            result = Parameter(result)
            result._is_computed = True
        return result

    return derive


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv", "mod", "rmod", "neg", "abs"):
    setattr(Parameter, f"__{_name}__", _derived(f"__{_name}__"))


def parameterized(step: Any) -> tuple[Any, int]:
    """Return a scheduled step whose integers are ``Parameter`` if the rule says so (shared parts stay shared),
    and the element count of its largest tensor, in memory or virtual."""
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
                    largest = symbols.largest(largest, math.prod(old))
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
    """Return the fields whose integers are parameters, those of base classes included."""
    if cls not in _FIELDS:
        _FIELDS[cls] = frozenset[str]().union(*(PARAMETERS.get(base.__name__, frozenset()) for base in cls.__mro__))
    return _FIELDS[cls]


def _as_parameters(value: Any) -> Any:
    """Return an integer, or those in a tuple, as parameters."""
    if type(value) is int:
        return Parameter(value)
    if isinstance(value, SymbolicNumber):
        return value.as_class(SymbolicParameter)
    return tuple(map(_as_parameters, value)) if type(value) is tuple else value


def resolve(text: str, slots: int, largest: int, target: Target) -> tuple[str, tuple[int, ...]]:
    """Return a kernel's text with its parameters read from a uniform, and these, in order.

    Args:
        text: as rendered from a parameterized step.
        slots: number of its storage bindings, which the uniform follows.
        largest: the element count of its largest tensor.
        target: the compile target.
    """
    if largest < LARGEST_DIVIDED:
        text = with_multipliers(text, target)
    parameters: dict[str, int] = {}
    places: dict[str, int] = {}

    def read(token: re.Match[str]) -> str:
        value, key, kind = _value(token[1], token[2]), token[2], token[3]
        if kind is None or _must_be_constant(text, token.start()):
            return f"bitcast<f32>({int(value)}u)" if kind == "f" else f"{int(value)}{kind or ''}"
        name = f"parameter{places.setdefault(key, len(places))}"
        parameters[name] = value % 2**32
        if kind in _READ:
            return _READ[kind].format(name)
        return f"f32({name})" if value >= 2**31 else f"f32(bitcast<i32>({name}))"

    resolved = _TOKEN.sub(read, text)
    if not parameters:
        return resolved, ()
    blocks = f"array<vec4<u32>, {-(-len(parameters) // 4)}>"
    if _IMMEDIATE in resolved:
        source = "sizes"
        declaration = f"@group(0) @binding({slots}) var<uniform> sizes: {blocks};\n"
        resolved = resolved.replace(_IMMEDIATE, _IMMEDIATE + declaration)
    else:
        source = "params.sizes"
        resolved = _PARAMETER_BLOCK.sub(rf"\1, sizes: {blocks} }}", resolved)
    reads = {name: f"{source}[{index // 4}].{'xyzw'[index % 4]}" for index, name in enumerate(parameters)}
    if "Barrier(" in resolved:
        # Barriers need uniform control flow, and to WGSL private variables are not uniform.
        resolved = _NAME.sub(lambda name: reads[name[0]], resolved)
    else:
        # Read once: CPU drivers do not hoist reads out of loops.
        declared = "".join(f"var<private> {name}: u32;\n" for name in parameters)
        assigned = "".join(f"    {name} = {read};\n" for name, read in reads.items())
        resolved = _MAIN.sub(lambda main: declared + main[0] + assigned, resolved)
    return resolved, tuple(parameters.values())


def with_multipliers(text: str, target: Target) -> str:
    """Return a source that multiplies instead of dividing by parameters, which is slow on drivers without 64-bit or
    constant divisors."""
    position, has_calls = 0, False
    while division := _DIVISION.search(text, position):
        position = division.end()
        operator, value, key = division[1], _value(division[2], division[3]), division[3]
        if not 0 < value < LARGEST_DIVIDED or _must_be_constant(text, division.start()):
            continue
        start = _operand_start(text, division.start())
        bits = (value - 1).bit_length()
        multiplier = (1 << 31 + bits) // value + 1
        by = f"{_token(multiplier, f'{key}m')}u, {_token(bits, f'{key}s')}u"
        if operator == "%":
            by = f"{_token(value, key)}u, {by}"
        call = f"{'quotient_by' if operator == '/' else 'remainder_by'}({text[start : division.start()]}, {by})"
        text, position, has_calls = text[:start] + call + text[position:], start + len(call), True
    return text + templates.render("access/division", has_u64=target.has("shader-int64")) if has_calls else text


def _token(value: Any, key: str) -> str:
    """Return the placeholder of an integer with a key."""
    recording = symbols.current()
    if recording is not None and isinstance(value, SymbolicNumber):
        recording.tokens[key] = value
    return f"§{symbols.hint_of(value)}#{key}§"


def _value(digits: str, key: str) -> Any:
    """Return the integer of a placeholder."""
    recording = symbols.current()
    return int(digits) if recording is None else recording.tokens.get(key, int(digits))


def _operand_start(text: str, end: int) -> int:
    """Return the start of the left operand of a division that ends at a position: factors, calls, names."""
    while True:
        while end and (text[end - 1] in ")]" or text[end - 1].isalnum() or text[end - 1] in "_.§#"):
            end = _opening(text, end - 1) if text[end - 1] in ")]" else end - 1
        if text[end - 3 : end] not in (" * ", " / ", " % "):
            return end
        end -= 3


def _opening(text: str, closing: int) -> int:
    """Return the position of the bracket that the one at a position closes."""
    depth = 0
    for position in range(closing, -1, -1):
        depth += {")": 1, "]": 1, "(": -1, "[": -1}.get(text[position], 0)
        if depth == 0:
            return position
    raise ValueError("a bracket is never opened")


def _must_be_constant(text: str, position: int) -> bool:
    """Return whether WGSL requires a constant at a position of a source."""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    if line.startswith(("const ", "@workgroup_size", "@compute", "//")) or "case " in line:
        return True
    opened = line.rpartition("array<")
    return bool(opened[1]) and opened[2].count(">") - opened[2].count("<") < 1 and "(" not in opened[2]
