"""Typed WGSL expressions for element-wise bodies, so that one body serves every data type.

A body writes ``{{ a - b }}``; this becomes ``(a - b)`` if WGSL has the type and ``subtract_words(a, b)`` if a 64-bit
integer is a pair of words. Python numbers become constants of the other operand's type: ``{{ a < 0 }}``.

Operations that drivers get wrong use ``shaders/lib``: division of integers (``quotient_i32``), and comparison of
floats, which compares bits, so that NaN compares as false, and subnormals are not flushed on any adapter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.target import Target
from dmlgpu.compiler.wgsl.names import use
from dmlgpu.compiler.wgsl.parameters import FloatParameter
from dmlgpu.compiler.wgsl.types import Scalar, scalar_of

_LARGEST_HALF = float(np.finfo(np.float16).max)
_WORD_FUNCTIONS = {"+": "add_words", "-": "subtract_words", "*": "multiply_words"}


@dataclass(frozen=True)
class TypedValue:
    """A WGSL expression, its scalar type, and the tensor data type that it represents.

    ``is_hidden`` holds for an attribute that compilers must not know. What it is multiplied with, or divided, is hidden
    as well: of that they may know that it is 0, and 0 times infinity or NaN is not.
    """

    text: str
    kind: Scalar
    data_type: DataType
    target: Target
    is_hidden: bool = False

    @classmethod
    def attribute(cls, number: float, data_type: DataType, target: Target) -> TypedValue:
        """Return an attribute as a number of the type in which a body computes."""
        kind = scalar_of(data_type, target, portable=False)
        text = attribute_literal(number, kind)
        return cls(text, kind, data_type, target, is_hidden="opaque_zero" in text)

    def __str__(self) -> str:
        return self.text

    @property
    def is_float(self) -> bool:
        """Whether the value is a floating-point number."""
        return self.kind in (Scalar.F16, Scalar.F32, Scalar.F64, Scalar.F64_WORDS)

    # ---- arithmetic

    def __add__(self, other: Operand) -> TypedValue:
        return self._combine("+", other)

    def __sub__(self, other: Operand) -> TypedValue:
        return self._combine("-", other)

    def __mul__(self, other: Operand) -> TypedValue:
        return self._combine("*", other)

    def __truediv__(self, other: Operand) -> TypedValue:
        return self._combine("/", other) if self.is_float else self._divide("quotient", other)

    def remainder(self, other: Operand) -> TypedValue:
        """Return the remainder of truncated division, with the sign of this value; all ones for integer division by
        zero."""
        return self._divide("fmod", other)

    def floor_remainder(self, other: Operand) -> TypedValue:
        """Return the remainder of floor division, with the sign of the divisor; all ones for integer division by
        zero."""
        return self._divide("floor_mod", other)

    def _divide(self, function: str, other: Operand) -> TypedValue:
        """Return the suffix of functions for integers of 8 and 16 bits, which are faster and expect numbers in that
        range."""
        return self.call(f"narrow_{function}" if _is_narrow_integer(self.data_type) else function, other)

    def __radd__(self, other: float) -> TypedValue:
        return self.constant(other) + self

    def __rsub__(self, other: float) -> TypedValue:
        return self.constant(other) - self

    def __rmul__(self, other: float) -> TypedValue:
        return self.constant(other) * self

    def __rtruediv__(self, other: float) -> TypedValue:
        return self.constant(other) / self

    def __neg__(self) -> TypedValue:
        if self.kind is Scalar.U32:
            return self._with(f"(0u - {self})")
        if self.text.startswith("-"):
            return self._with(self.text[1:])  # a literal; two minus signs are WGSL's decrement operator
        return self._with(f"{use('negate_words')}({self})" if self.kind.is_words else f"(-{self})")

    def _combine(self, operator: str, other: Operand) -> TypedValue:
        right = self._like(other)
        if not self.kind.is_words:
            left = self
            if operator in "*/" and self.kind is Scalar.F32 and self.is_hidden != right.is_hidden:
                left, right = (side if side.is_hidden else side._hidden for side in (left, right))
            if operator == "/" and self.kind is Scalar.F32:
                return self._with(f"{use('divide_f32')}({left}, {right})")
            return self._with(f"({left} {operator} {right})")
        if operator not in _WORD_FUNCTIONS or self.kind is Scalar.F64_WORDS:
            raise self._lacks(f"arithmetic ({operator})")
        return self._with(f"{use(_WORD_FUNCTIONS[operator])}({self}, {right})")

    # ---- bits (the template language has no operators for them)

    def bits_and(self, other: Operand) -> TypedValue:
        """Return the bitwise and. WGSL's bitwise operators are correct for pairs of words as well."""
        return self._with(f"({self} & {self._like(other)})")

    def bits_or(self, other: Operand) -> TypedValue:
        """Return the bitwise or."""
        return self._with(f"({self} | {self._like(other)})")

    def bits_xor(self, other: Operand) -> TypedValue:
        """Return the bitwise exclusive or."""
        return self._with(f"({self} ^ {self._like(other)})")

    def bits_inverted(self) -> TypedValue:
        """Return the bitwise complement."""
        return self._with(f"(~{self})")

    def bit_count(self) -> TypedValue:
        """Return the number of bits that are 1, as UINT32."""
        return TypedValue(f"{use(f'bit_count_{self.kind}')}({self})", Scalar.U32, DataType.UINT32, self.target)

    # ---- comparison

    def __lt__(self, other: Operand) -> TypedValue:
        return self._compare("less", "<", other)

    def __gt__(self, other: Operand) -> TypedValue:
        return self._like(other)._compare("less", "<", self)

    def __le__(self, other: Operand) -> TypedValue:
        return self._compare("less_equal", "<=", other)

    def __ge__(self, other: Operand) -> TypedValue:
        return self._like(other)._compare("less_equal", "<=", self)

    def equals(self, other: Operand) -> TypedValue:
        """Return whether two values are equal, as a boolean."""
        if self.kind.is_words and self.kind is not Scalar.F64_WORDS:
            return self._truth(f"all({self} == {self._like(other)})")
        return self._compare("equal", "==", other)

    def test(self, function: str) -> TypedValue:
        """Return the call of a library function with a boolean result: ``is_nan`` becomes ``is_nan_f32``."""
        return self._truth(str(self._wide().call(function)))

    def negated(self) -> TypedValue:
        """Return the negation of a boolean."""
        return self._with(f"!({self})")

    def both(self, other: TypedValue) -> TypedValue:
        """Return the logical and of two booleans."""
        return self._with(f"({self} && {other})")

    def either(self, other: TypedValue) -> TypedValue:
        """Return the logical or of two booleans."""
        return self._with(f"({self} || {other})")

    def _compare(self, function: str, operator: str, other: Operand) -> TypedValue:
        left, right = self._wide(), self._like(other)._wide()
        if left.kind is Scalar.F64_WORDS:
            raise self._lacks("comparison")
        if left.kind is Scalar.F32 or left.kind.is_words:
            return self._truth(f"{use(f'{function}_{left.kind}')}({left}, {right})")
        return self._truth(f"({left} {operator} {right})")

    def select(self, yes: TypedValue, no: TypedValue) -> TypedValue:
        """``yes`` if this boolean is true, else ``no``."""
        return yes._with(f"select({no}, {yes}, {self})")

    def minimum(self, other: Operand) -> TypedValue:
        """Return the smaller of two values; NaN if there is one, -0 rather than 0."""
        right = self._like(other)
        return self.call("min", right) if self.is_float else (right < self).select(right, self)

    def maximum(self, other: Operand) -> TypedValue:
        """Return the larger of two values; NaN if there is one, 0 rather than -0."""
        right = self._like(other)
        return self.call("max", right) if self.is_float else (self < right).select(right, self)

    def clipped(self, low: Operand, high: Operand) -> TypedValue:
        """``max(low, min(self, high))``; NaN if there is one."""
        return self.call("clip", low, high) if self.is_float else self.minimum(high).maximum(low)

    def absolute(self) -> TypedValue:
        """Return the absolute value; the smallest integer is unchanged."""
        return self.call("size_of") if self.is_float else (self < 0).select(-self, self)

    # ---- types

    def to(self, data_type: DataType, portable: bool = True) -> TypedValue:
        """Return the value converted as by CAST ( truncate and saturate floats, wrap integers, NaN gives
        0)."""
        kind = scalar_of(data_type, self.target, portable)
        return TypedValue(convert(self, data_type, kind), kind, data_type, self.target)

    def constant(self, number: float) -> TypedValue:
        """Return a number of the same type."""
        return self._with(literal(number, self.kind))

    def call(self, function: str, *others: Operand) -> TypedValue:
        """Return the call of a library function for the value's type: ``min`` becomes ``min_f32``. Native f16 values
        are converted to f32 and back."""
        if self.kind is Scalar.F16:
            wide = self._wide().call(function, *(self._like(other)._wide() for other in others))
            return self._with(f"f16({wide})")
        arguments = ", ".join(str(value) for value in (self, *(self._like(other) for other in others)))
        return self._with(f"{use(f'{function}_{self.kind}')}({arguments})")

    def _wide(self) -> TypedValue:
        """Return a native float16 as f32, which is exact."""
        return TypedValue(f"f32({self})", Scalar.F32, self.data_type, self.target) if self.kind is Scalar.F16 else self

    @property
    def _hidden(self) -> TypedValue:
        return self._with(f"{use('opaque')}({self})")

    def _like(self, other: Operand) -> TypedValue:
        if not isinstance(other, TypedValue):
            return self.constant(other)
        if other.kind is not self.kind:
            raise TypeError(f"{self.kind} and {other.kind}: a body mixes types")
        return other

    def _with(self, text: str) -> TypedValue:
        return TypedValue(text, self.kind, self.data_type, self.target)

    def _truth(self, text: str) -> TypedValue:
        return TypedValue(text, Scalar.BOOL, DataType.UINT8, self.target)

    def _lacks(self, operation: str) -> NotSupported:
        feature = "shader-f64" if self.kind is Scalar.F64_WORDS else "shader-int64"
        return NotSupported(
            f"{self.data_type.name} {operation} needs the adapter feature {feature}, which {self.target.name!r} lacks"
        )


Operand: TypeAlias = TypedValue | float


def _is_narrow_integer(data_type: DataType) -> bool:
    return not data_type.is_float and data_type.bits < 32


def convert(value: TypedValue, data_type: DataType, kind: Scalar) -> str:
    """Return the text of a conversion; narrow integers wrap when they are stored, so only floats need clamping."""
    source = value.kind
    if value.is_float and _is_narrow_integer(data_type):
        low, high = integer_range(data_type)
        return f"clamp({use(f'{source}_to_{kind}')}({value}), {kind}({low}), {kind}({high}))"
    if source is Scalar.F64_WORDS and data_type is DataType.FLOAT16:
        return (
            f"{use('f64_words_to_f32_odd')}({value})"  # rounding to odd keeps the second rounding, to float16, correct
        )
    if source is kind:
        return str(value)
    if source is Scalar.BOOL:
        return f"select({literal(0, kind)}, {literal(1, kind)}, {value})"
    if kind is Scalar.F32 and value.data_type.bits <= 16:
        return f"f32({value})"  # exact on every driver
    return f"{use(f'{source}_to_{kind}')}({value})"


def integer_range(data_type: DataType) -> tuple[int, int]:
    """Return the smallest and largest number of an integer type."""
    if data_type.is_signed:
        return -(1 << (data_type.bits - 1)), (1 << (data_type.bits - 1)) - 1
    return 0, (1 << data_type.bits) - 1


def literal(number: float, kind: Scalar) -> str:
    """Return a constant of a type; integers are taken modulo their width."""
    if kind is Scalar.F32:
        return f32_literal(number)
    if kind is Scalar.F16:
        return f"f16({f32_literal(_half(number))})"
    if kind is Scalar.F64:
        return f"f64({f32_literal(number)})"
    bits = int(number) & 0xFFFFFFFFFFFFFFFF
    low, high = bits & 0xFFFFFFFF, bits >> 32
    if kind is Scalar.U32:
        return f"{low}u"
    if kind is Scalar.I32:
        return f"bitcast<i32>({low}u)" if low >> 31 else str(low)
    pair = f"vec2<u32>({low}u, {high}u)"
    return f"{use(f'{kind}_of_words')}({pair})" if kind in (Scalar.I64, Scalar.U64) else pair


def _half(number: float) -> float:
    """Return a number that converts to float16 as in IEEE 754: WGSL rejects constants beyond the largest float16."""
    with np.errstate(over="ignore"):
        rounded = np.float16(np.float32(number))
    return float(rounded) if abs(number) > _LARGEST_HALF else number


def attribute_literal(number: float, kind: Scalar) -> str:
    """Return an attribute as a float; values that compilers fold incorrectly are hidden from them.

    Some compilers fold ``x * 0`` to 0 and ``x + 0`` to x for every x, and treat ``x / 0`` as undefined; a constant
    subnormal may be flushed to such a 0.
    """
    with np.errstate(over="ignore"):
        value = np.float32(number)
    ordinary = abs(value) >= np.finfo(np.float32).smallest_normal
    if isinstance(number, FloatParameter) and kind is Scalar.F32 and ordinary and np.isfinite(value):
        return number.text if abs(value) != 1 else f32_literal(value)
    text = f32_literal(value) if ordinary else _hidden(value)
    return f"f64({text})" if kind is Scalar.F64 else text


def f32_literal(number: Any) -> str:
    """Return a float32 constant, exact to the bit; infinities and NaN are hidden from the compiler, which rejects
    them."""
    value = np.float32(number)
    if not np.isfinite(value):
        return _hidden(value)
    if "e" in repr(float(value)) or (value == 0 and np.signbit(value)):
        return f"bitcast<f32>({_bits(value):#010x}u)"
    return f"{float(value)!r}f"


def _hidden(value: np.float32) -> str:
    """Return a float32 number that compilers cannot fold: its bits, combined with a zero from the parameter block."""
    bits = _bits(value)
    return f"bitcast<f32>({bits:#010x}u | opaque_zero())" if bits else "bitcast<f32>(opaque_zero())"


def _bits(value: np.float32) -> int:
    return int(value.view(np.uint32))
