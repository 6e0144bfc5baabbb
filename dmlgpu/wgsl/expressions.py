"""Typed WGSL expressions for element-wise bodies, so that one body serves every data type.

A body writes ``{{ a - b }}``; this becomes ``(a - b)`` where WGSL has the type and ``subtract_words(a, b)`` where a
64-bit integer is a pair of words. Python numbers become constants of the other operand's type: ``{{ a < 0 }}``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dmlgpu.enums import DataType
from dmlgpu.errors import NotSupported
from dmlgpu.plan import Target
from dmlgpu.wgsl.types import Scalar, scalar_of

_WORD_FUNCTIONS = {
    "+": "add_words",
    "-": "subtract_words",
    "*": "multiply_words",
    "<<": "shift_left_words",
}
_WGSL_ON_WORDS = frozenset("&|^")
"""Operators that WGSL applies to each word, which is right for pairs as well."""


@dataclass(frozen=True)
class Value:
    """A WGSL expression, the scalar it evaluates to, and the tensor type it stands for."""

    text: str
    kind: Scalar
    data_type: DataType
    target: Target

    def __str__(self) -> str:
        return self.text

    @property
    def is_float(self) -> bool:
        """Whether the value is a floating-point number."""
        return self.kind in (Scalar.F16, Scalar.F32, Scalar.F64, Scalar.F64_WORDS)

    # ---- arithmetic

    def __add__(self, other: Operand) -> Value:
        return self._combine("+", other)

    def __sub__(self, other: Operand) -> Value:
        return self._combine("-", other)

    def __mul__(self, other: Operand) -> Value:
        return self._combine("*", other)

    def __truediv__(self, other: Operand) -> Value:
        return self._combine("/", other)

    def __and__(self, other: Operand) -> Value:
        return self._combine("&", other)

    def __or__(self, other: Operand) -> Value:
        return self._combine("|", other)

    def __xor__(self, other: Operand) -> Value:
        return self._combine("^", other)

    def __neg__(self) -> Value:
        if self.kind is Scalar.U32:
            return self._with(f"(0u - {self})")
        return self._with(f"negate_words({self})" if self.kind.is_words else f"(-{self})")

    def __invert__(self) -> Value:
        return self._with(f"(~{self})")

    def _combine(self, operator: str, other: Operand) -> Value:
        right = self._like(other)
        if not self.kind.is_words or operator in _WGSL_ON_WORDS:
            return self._with(f"({self} {operator} {right})")
        if operator not in _WORD_FUNCTIONS or self.kind is Scalar.F64_WORDS:
            raise self._lacks(f"arithmetic ({operator})")
        return self._with(f"{_WORD_FUNCTIONS[operator]}({self}, {right})")

    # ---- comparison

    def __lt__(self, other: Operand) -> Value:
        return self._compare("<", other)

    def __gt__(self, other: Operand) -> Value:
        return self._like(other)._compare("<", self) if self.kind.is_words else self._compare(">", other)

    def __le__(self, other: Operand) -> Value:
        return (self > other).negated() if self.kind.is_words else self._compare("<=", other)

    def __ge__(self, other: Operand) -> Value:
        return (self < other).negated() if self.kind.is_words else self._compare(">=", other)

    def equals(self, other: Operand) -> Value:
        """Whether two values are equal, as a truth value."""
        if self.kind.is_words:
            return self._truth(f"all({self} == {self._like(other)})")
        return self._compare("==", other)

    def negated(self) -> Value:
        """The opposite of a truth value."""
        return self._with(f"!({self})")

    def both(self, other: Value) -> Value:
        """Whether two truth values hold."""
        return self._with(f"({self} && {other})")

    def either(self, other: Value) -> Value:
        """Whether one of two truth values holds."""
        return self._with(f"({self} || {other})")

    def _compare(self, operator: str, other: Operand) -> Value:
        right = self._like(other)
        if not self.kind.is_words:
            return self._truth(f"({self} {operator} {right})")
        if self.kind is Scalar.F64_WORDS:
            raise self._lacks("comparison")
        return self._truth(f"less_{self.kind}({self}, {right})")

    def select(self, yes: Value, no: Value) -> Value:
        """``yes`` where this truth value holds, else ``no``."""
        return yes._with(f"select({no}, {yes}, {self})")

    # ---- types

    def to(self, data_type: DataType, words: bool = True) -> Value:
        """The value converted as CAST converts (spec: truncate and saturate floats, wrap integers, NaN gives 0)."""
        kind = scalar_of(data_type, self.target, words)
        return Value(convert(self, data_type, kind), kind, data_type, self.target)

    def constant(self, number: float) -> Value:
        """A number of the same type."""
        return self._with(literal(number, self.kind))

    def call(self, function: str, *others: Operand) -> Value:
        """A library function, chosen by the value's type: ``minimum`` becomes ``minimum_f32``."""
        arguments = ", ".join(str(self._like(other)) for other in others)
        return self._with(f"{function}_{self.kind}({self}{', ' if arguments else ''}{arguments})")

    def _like(self, other: Operand) -> Value:
        if not isinstance(other, Value):
            return self.constant(other)
        if other.kind is not self.kind:
            raise TypeError(f"{self.kind} and {other.kind}: a body mixes types")
        return other

    def _with(self, text: str) -> Value:
        return Value(text, self.kind, self.data_type, self.target)

    def _truth(self, text: str) -> Value:
        return Value(text, Scalar.BOOL, DataType.UINT8, self.target)

    def _lacks(self, what: str) -> NotSupported:
        feature = "shader-f64" if self.kind is Scalar.F64_WORDS else "shader-int64"
        return NotSupported(
            f"{self.data_type.name} {what} needs the adapter feature {feature}, which {self.target.name!r} lacks"
        )


Operand: TypeAlias = Value | float


def _is_narrow_integer(data_type: DataType) -> bool:
    return not data_type.is_float and data_type.bits < 32


def convert(value: Value, data_type: DataType, kind: Scalar) -> str:
    """The text of a conversion; narrow integers still wrap at their store or edge, so only floats need clamping."""
    source = value.kind
    if value.is_float and _is_narrow_integer(data_type):
        low, high = integer_range(data_type)
        return f"clamp({source}_to_{kind}({value}), {kind}({low}), {kind}({high}))"
    if source is Scalar.F64_WORDS and data_type is DataType.FLOAT16:
        return f"f64_words_to_f32_odd({value})"  # rounding to odd keeps the second rounding, to half, correct
    if source is kind:
        return str(value)
    if source is Scalar.BOOL:
        return f"select({literal(0, kind)}, {literal(1, kind)}, {value})"
    if kind is Scalar.F32 and value.data_type.bits <= 16:
        return f"f32({value})"  # exact on every driver
    return f"{source}_to_{kind}({value})"


def integer_range(data_type: DataType) -> tuple[int, int]:
    """Smallest and largest number of an integer type."""
    if data_type.is_signed:
        return -(1 << (data_type.bits - 1)), (1 << (data_type.bits - 1)) - 1
    return 0, (1 << data_type.bits) - 1


def literal(number: float, kind: Scalar) -> str:
    """A constant of a type; integers are taken modulo their width."""
    if kind is Scalar.F32:
        return f32_literal(number)
    if kind is Scalar.F16:
        return f"f16({f32_literal(number)})"
    if kind is Scalar.F64:
        return f"f64({f32_literal(number)})"
    bits = int(number) & 0xFFFFFFFFFFFFFFFF
    low, high = bits & 0xFFFFFFFF, bits >> 32
    if kind is Scalar.U32:
        return f"{low}u"
    if kind is Scalar.I32:
        return f"bitcast<i32>({low}u)" if low >> 31 else str(low)
    pair = f"vec2<u32>({low}u, {high}u)"
    return {Scalar.I64: f"i64_of_words({pair})", Scalar.U64: f"u64_of_words({pair})"}.get(kind, pair)


def f32_literal(number: Any) -> str:
    """A float32 constant, exact to the bit; infinities and NaN are hidden from the compiler, which rejects them."""
    value = np.float32(number)
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if not np.isfinite(value):
        return f"bitcast<f32>({bits:#010x}u | params.zero)"
    if "e" in repr(float(value)) or (value == 0 and bits):
        return f"bitcast<f32>({bits:#010x}u)"
    return f"{float(value)!r}f"
