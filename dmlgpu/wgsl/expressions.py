"""Typed WGSL expressions for element-wise bodies, so that one body serves every data type.

A body writes ``{{ a - b }}``; this becomes ``(a - b)`` where WGSL has the type and ``subtract_words(a, b)`` where a
64-bit integer is a pair of words.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlgpu.enums import DataType
from dmlgpu.errors import NotSupported
from dmlgpu.target import Target
from dmlgpu.wgsl.types import Scalar, scalar_of

_WORD_FUNCTIONS = {"+": "add_words", "-": "subtract_words", "*": "multiply_words"}


@dataclass(frozen=True)
class Value:
    """A WGSL expression, the scalar it evaluates to, and the tensor type it stands for."""

    text: str
    kind: Scalar
    data_type: DataType
    target: Target

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: Value) -> Value:
        return self._combine("+", other)

    def __sub__(self, other: Value) -> Value:
        return self._combine("-", other)

    def __mul__(self, other: Value) -> Value:
        return self._combine("*", other)

    def _combine(self, operator: str, other: Value) -> Value:
        if other.kind is not self.kind:
            raise TypeError(f"{self.kind} {operator} {other.kind}: a body mixes types")
        if not self.kind.is_words:
            return self._with(f"({self} {operator} {other})")
        if self.kind is Scalar.F64_WORDS:
            raise NotSupported(
                f"FLOAT64 arithmetic needs the adapter feature shader-f64, which {self.target.name!r} lacks"
            )
        return self._with(f"{_WORD_FUNCTIONS[operator]}({self}, {other})")

    def _with(self, text: str) -> Value:
        return Value(text, self.kind, self.data_type, self.target)

    def to(self, data_type: DataType, words: bool = True) -> Value:
        """The value converted as CAST converts (spec: truncate and saturate floats, wrap integers, NaN gives 0)."""
        kind = scalar_of(data_type, self.target, words)
        return Value(convert(self, data_type, kind), kind, data_type, self.target)


def _is_narrow_integer(data_type: DataType) -> bool:
    return not data_type.is_float and data_type.bits < 32


def convert(value: Value, data_type: DataType, kind: Scalar) -> str:
    """The text of a conversion; narrow integers still wrap at their store or edge, so only floats need clamping."""
    source = value.kind
    if value.data_type.is_float and _is_narrow_integer(data_type):
        low, high = _range(data_type)
        return f"clamp({source}_to_{kind}({value}), {kind}({low}), {kind}({high}))"
    if source is Scalar.F64_WORDS and data_type is DataType.FLOAT16:
        return f"f64_words_to_f32_odd({value})"  # rounding to odd keeps the second rounding, to half, correct
    if source is kind:
        return str(value)
    if kind is Scalar.F32 and value.data_type.bits <= 16:
        return f"f32({value})"  # exact on every driver
    return f"{source}_to_{kind}({value})"


def _range(data_type: DataType) -> tuple[int, int]:
    if data_type.is_signed:
        return -(1 << (data_type.bits - 1)), (1 << (data_type.bits - 1)) - 1
    return 0, (1 << data_type.bits) - 1


def f32_literal(number: Any) -> str:
    """A float32 constant, exact to the bit; infinities and NaN are hidden from the compiler, which rejects them."""
    value = np.float32(number)
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if not np.isfinite(value):
        return f"bitcast<f32>({bits:#010x}u | params.zero)"
    if value == 0 or abs(value) < np.finfo(np.float32).tiny:
        return f"bitcast<f32>({bits:#010x}u)"
    return f"{float(value)!r}f" if "e" not in repr(float(value)) else f"bitcast<f32>({bits:#010x}u)"
