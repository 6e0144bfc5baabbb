"""Cases of integer operators, conversions, and packing: expressions and their exact results in NumPy."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dmlgpu.conformance.cases.case import Array
from dmlgpu.conformance.suites.driver.intervals import F16, F32, Interval
from dmlgpu.conformance.suites.driver.kernel_case import Accepted, Expectation, KernelCase

U32, I32, F = "u32", "i32", "f32"
_DTYPES: Final = {U32: np.dtype(np.uint32), I32: np.dtype(np.int32), F: np.dtype(np.float32)}
_MASK: Final = 0xFFFFFFFF
DIVISORS: Final = (1, 2, 3, 5, 6, 7, 10, 11, 64, 100, 127, 255, 641, 1000, 4096, 65535, 65537, 6700417, 0x7FFFFFFF)
"""Constant divisors: compilers replace such divisions by other operations."""


@dataclass(frozen=True)
class IntegerFunction:
    """A function of words.

    Attributes:
        wgsl: Expression of ``x``, ``y`` and ``z``.
        function: Returns its results: integers, of which 32 bits count, floats, or ``Accepted`` floats.
        operands: Types of the operands.
        result: Type of the result.
        least, most: Limits of a single operand, or of all but the first; None for any words.
    """

    wgsl: str
    function: Callable[..., Any]
    operands: tuple[str, ...] = (U32,)
    result: str = U32
    least: int | None = None
    most: int | None = None


def _quotient(x: Array, y: Array) -> Array:
    """Return quotients truncated toward zero; those of divisions by zero have no meaning."""
    divisor = np.where(y == 0, 1, y)
    return np.sign(x) * np.sign(divisor) * (np.abs(x) // np.abs(divisor))


def _remainder(x: Array, y: Array) -> Array:
    """Return remainders with the sign of x, and 0 for division by zero, as WGSL defines."""
    return np.where(y == 0, 0, x - _quotient(x, y) * y)


def _divided(x: Array, y: Array) -> Array:
    """Return quotients truncated toward zero, and x for division by zero, as WGSL defines."""
    return np.where(y == 0, x, _quotient(x, y))


def _constant_divisions(operator: str, wgsl_type: str) -> IntegerFunction:
    """Return the sum of the results of division by every constant, each rotated by one bit more than the previous."""
    suffix = "u" if wgsl_type == U32 else "i"
    divisors = [*DIVISORS, *((-3, -7, -(1 << 31)) if wgsl_type == I32 else (0x80000001, 0xFFFFFFFE, _MASK))]

    def literal(number: int) -> str:
        return f"(-{-number - 1}i - 1i)" if number < 0 else f"{number}{suffix}"

    terms = [f"rotate(u32(x {operator} {literal(number)}), {place % 31}u)" for place, number in enumerate(divisors)]

    def total(x: Array) -> Array:
        results = np.zeros_like(x)
        for place, number in enumerate(divisors):
            y = np.full_like(x, number)
            word = (_quotient(x, y) if operator == "/" else _remainder(x, y)) & _MASK
            results = (results + ((word << place % 31) | (word >> (32 - place % 31)))) & _MASK
        return results

    return IntegerFunction(" + ".join(terms), total, (wgsl_type,))


def _bit_length(x: Array) -> Array:
    return np.frexp((x & _MASK).astype(np.float64))[1].astype(np.int64)


def _trailing(x: Array) -> Array:
    words = x & _MASK
    return np.where(words == 0, 32, _bit_length(words & -words) - 1)


def _leading_bit(x: Array) -> Array:
    """Return the index of the highest bit that differs from the sign, -1 if there is none."""
    return _bit_length(np.where(x < 0, ~x, x)) - 1


def _bits(x: Array) -> Array:
    """Return the bits of words along a new last axis, the lowest bit first."""
    return ((x & _MASK)[..., None] >> np.arange(32)) & 1


def _reversed(x: Array) -> Array:
    return np.asarray((_bits(x)[..., ::-1] << np.arange(32)).sum(-1))


def _field(offset: Array, count: Array) -> tuple[Array, Array]:
    first = np.minimum(offset, 32)
    return first, np.minimum(count, 32 - first)


def _extract(x: Array, offset: Array, count: Array) -> Array:
    first, width = _field(offset, count)
    return ((x & _MASK) >> first) & ((1 << width) - 1)


def _extract_signed(x: Array, offset: Array, count: Array) -> Array:
    width = _field(offset, count)[1]
    field = _extract(x, offset, count)
    is_negative = (width > 0) & ((field >> np.maximum(width - 1, 0)) & 1 == 1)
    return np.where(is_negative, field - (1 << width), field)


def _insert(x: Array, y: Array, z: Array) -> Array:
    """Return x with bits of y; the offset is in the lower half of z, the number of bits in the upper half."""
    first, width = _field(z & 63, (z >> 16) & 63)
    mask = ((1 << width) - 1) << first
    return (x & ~mask & _MASK) | ((y << first) & mask)


def _bytes(x: Array, *, signed: bool = False) -> Array:
    parts = ((x & _MASK)[..., None] >> np.arange(0, 32, 8)) & 255
    return np.where(parts > 127, parts - 256, parts) if signed else parts


def _halves(x: Array, *, signed: bool = False) -> Array:
    parts = ((x & _MASK)[..., None] >> np.arange(0, 32, 16)) & 65535
    return np.where(parts > 32767, parts - 65536, parts) if signed else parts


def _dot_bytes(x: Array, y: Array, *, signed: bool) -> Array:
    return np.asarray((_bytes(x, signed=signed) * _bytes(y, signed=signed)).sum(-1))


def _spread(*parts: Array) -> Array:
    """Return the word whose bytes are the low bytes of four parts."""
    return np.asarray(sum((part & 255) << (8 * place) for place, part in enumerate(parts)))


def _clamped(x: Array, low: int, high: int) -> Array:
    return _spread(*(np.clip(value, low, high) for value in (x, x >> 8, x >> 16, -x)))


def _unpacked_norm(parts: Array, scale: int, *, lowest: float) -> Accepted:
    """Return parts / scale within 2.5 ULP, limited below."""
    exact = F32.of(parts.astype(np.float64))
    quotient = F32.divide(exact, float(scale))
    return Accepted(Interval(np.maximum(quotient.low, lowest), np.maximum(quotient.high, lowest)))


def _packed_norm(x: Array, y: Array, bits: int, lowest: float) -> Accepted:
    """Return floor(0.5 + scale * x) of each float, or either neighbor near a tie, as parts of the words."""
    scale = 2 ** (bits - (1 if lowest < 0 else 0)) - 1
    numbers = np.stack([x, y] * (16 // bits), -1).astype(np.float64)
    scaled, slack = np.clip(numbers, lowest, 1) * scale, scale * 2.0**-22
    low, high = np.floor(0.5 + scaled - slack), np.floor(0.5 + scaled + slack)
    return Accepted(Interval(low.ravel(), high.ravel()), f"{'i' if lowest < 0 else 'u'}{bits // 8}")


def _packed_half(x: Array, y: Array) -> Accepted:
    pairs = F32.of(np.stack([x, y], -1).astype(np.float64))
    interval = F16.rounded(pairs.low, pairs.high)
    return Accepted(Interval(interval.low.ravel(), interval.high.ravel()), "f2")


def _unpacked_half(x: Array) -> Accepted:
    numbers = (x & 65535).astype(np.uint16).view(np.float16).astype(np.float64)
    return Accepted(F16.of(np.where(np.isfinite(numbers), numbers, 0)).free_where(~np.isfinite(numbers)))


def _float_to(x: Array, low: int, high: int) -> Array:
    return np.clip(np.trunc(x.astype(np.float64)), low, high).astype(np.int64)


def _to_float(x: Array) -> Accepted:
    exact = x.astype(np.float64)
    return Accepted(F32.rounded(exact, exact))


_BOTH: Final[Mapping[str, tuple[str, Callable[..., Any], int]]] = {
    "add": ("x + y", lambda x, y: x + y, 2),
    "subtract": ("x - y", lambda x, y: x - y, 2),
    "multiply": ("x * y", lambda x, y: x * y, 2),
    "divide": ("x / y", _divided, 2),
    "remainder": ("x % y", _remainder, 2),
    "and": ("x & y", lambda x, y: x & y, 2),
    "or": ("x | y", lambda x, y: x | y, 2),
    "xor": ("x ^ y", lambda x, y: x ^ y, 2),
    "complement": ("~x", lambda x: ~x, 1),
    "less": ("select(T(0), T(1), x < y)", lambda x, y: x < y, 2),
    "less_equal": ("select(T(0), T(1), x <= y)", lambda x, y: x <= y, 2),
    "greater": ("select(T(0), T(1), x > y)", lambda x, y: x > y, 2),
    "greater_equal": ("select(T(0), T(1), x >= y)", lambda x, y: x >= y, 2),
    "equal": ("select(T(0), T(1), x == y) + select(T(0), T(2), x != x + y)", lambda x, y: (x == y) + 2 * (y != 0), 2),
    "shift_left": ("x << (u32(y) & 31u)", lambda x, y: x << (y & 31), 2),
    "shift_right": ("x >> (u32(y) & 31u)", lambda x, y: x >> (y & 31), 2),
    "shift_left_any": ("x << u32(y)", lambda x, y: x << (y & 31), 2),
    "shift_right_any": ("x >> u32(y)", lambda x, y: x >> (y & 31), 2),
    "shift_constant": ("(x >> 16u) ^ (x << 3u) ^ (x >> 31u)", lambda x: (x >> 16) ^ (x << 3) ^ (x >> 31), 1),
    "max": ("max(x, y)", np.maximum, 2),
    "min": ("min(x, y)", np.minimum, 2),
    "clamp": ("clamp(x, min(y, z), max(y, z))", lambda x, y, z: np.clip(x, np.minimum(y, z), np.maximum(y, z)), 3),
    "abs": ("abs(x)", np.abs, 1),
    "countLeadingZeros": ("countLeadingZeros(x)", lambda x: 32 - _bit_length(x), 1),
    "countOneBits": ("countOneBits(x)", lambda x: _bits(x).sum(-1), 1),
    "countTrailingZeros": ("countTrailingZeros(x)", _trailing, 1),
    "firstTrailingBit": ("firstTrailingBit(x)", lambda x: np.where(x == 0, -1, _trailing(x)), 1),
    "firstLeadingBit": ("firstLeadingBit(x)", _leading_bit, 1),
    "reverseBits": ("reverseBits(x)", _reversed, 1),
    "insertBits": ("insertBits(x, y, u32(z) & 63u, (u32(z) >> 16u) & 63u)", _insert, 3),
    "select_vector": (
        "dot(select(vec3<T>(x), vec3<T>(y), vec3<T>(x, x, y) < vec3<T>(y, x, x)), vec3<T>(T(1), T(3), T(5)))",
        lambda x, y: np.where(x < y, y, x) + 3 * x + 5 * np.where(x > y, y, x),
        2,
    ),
    "divide_vector": (
        "dot(vec3<T>(x, y, z) / vec3<T>(y, z, x), vec3<T>(T(1), T(3), T(5)))",
        lambda x, y, z: _divided(x, y) + 3 * _divided(y, z) + 5 * _divided(z, x),
        3,
    ),
    "remainder_vector": (
        "dot(vec4<T>(x, y, z, x) % vec4<T>(y, z, x, z), vec4<T>(T(1), T(3), T(5), T(7)))",
        lambda x, y, z: _remainder(x, y) + 3 * _remainder(y, z) + 5 * _remainder(z, x) + 7 * _remainder(x, z),
        3,
    ),
    "shift_vector": (
        "dot((vec3<T>(x, y, z) >> vec3<u32>(3u, 17u, u32(x) & 31u)) ^ (vec3<T>(y, z, x) << vec3<u32>(1u, 9u, 30u)),"
        " vec3<T>(T(1), T(3), T(5)))",
        lambda x, y, z: ((x >> 3) ^ (y << 1)) + 3 * ((y >> 17) ^ (z << 9)) + 5 * ((z >> (x & 31)) ^ ((x & 3) << 30)),
        3,
    ),
    "dot": ("dot(vec4<T>(x, y, x, y), vec4<T>(y, T(3), x, T(5)))", lambda x, y: x * y + 3 * y + x * x + 5 * y, 2),
}
"""Functions of both integer types: expression, function of the results, number of operands."""

FUNCTIONS: Final[Mapping[str, IntegerFunction]] = {
    **{
        f"{of}-{name}": IntegerFunction(wgsl, function, (of,) * count, of)
        for of in (U32, I32)
        for name, (wgsl, function, count) in _BOTH.items()
    },
    **{
        f"{of}-{name}_constant": _constant_divisions(operator, of)
        for of in (U32, I32)
        for name, operator in (("divide", "/"), ("remainder", "%"))
    },
    "u32-extractBits": IntegerFunction("extractBits(x, y, z)", _extract, (U32,) * 3, U32, 0, 40),
    "i32-extractBits": IntegerFunction("extractBits(x, u32(y), u32(z))", _extract_signed, (I32,) * 3, I32, 0, 40),
    "i32-divide_minus_1": IntegerFunction("x / y", lambda x, y: -x, (I32, I32), I32, -1, -1),
    "i32-remainder_minus_1": IntegerFunction("x % y", lambda x, y: 0 * x, (I32, I32), I32, -1, -1),
    "i32-negate": IntegerFunction("-x", lambda x: -x, (I32,), I32),
    "i32-sign": IntegerFunction("sign(x)", np.sign, (I32,), I32),
    "u32-dot4U8Packed": IntegerFunction("dot4U8Packed(x, y)", lambda x, y: _dot_bytes(x, y, signed=False), (U32, U32)),
    "u32-dot4I8Packed": IntegerFunction(
        "dot4I8Packed(x, y)", lambda x, y: _dot_bytes(x, y, signed=True), (U32, U32), I32
    ),
    "u32-to_i32": IntegerFunction("i32(x)", lambda x: x, (U32,), I32),
    "i32-to_u32": IntegerFunction("u32(x)", lambda x: x, (I32,), U32),
    "u32-bitcast": IntegerFunction(
        "u32(bitcast<i32>(x) < 0) + bitcast<u32>(bitcast<vec2<i32>>(vec2<u32>(x, 1u)).x)", lambda x: x + (x >> 31)
    ),
    "u32-bool": IntegerFunction(
        "u32(bool(x)) + 2u * u32(!bool(x)) + 4u * u32(any(vec2<bool>(bool(x), false)))"
        " + 8u * u32(all(vec2<bool>(bool(x), true)))",
        lambda x: np.where(x != 0, 13, 2),
    ),
    "u32-to_f32": IntegerFunction("f32(x)", _to_float, (U32,), F),
    "i32-to_f32": IntegerFunction("f32(x)", _to_float, (I32,), F),
    "f32-to_i32": IntegerFunction("i32(x)", lambda x: _float_to(x, -(1 << 31), (1 << 31) - 128), (F,), I32),
    "f32-to_u32": IntegerFunction("u32(x)", lambda x: _float_to(x, 0, (1 << 32) - 256), (F,), U32),
    "f32-less": IntegerFunction(
        "u32(x < y) + 2u * u32(x <= y) + 4u * u32(x == y) + 8u * u32(x != y)",
        lambda x, y: (x < y) + 2 * (x <= y) + 4 * (x == y) + 8 * (x != y),
        (F, F),
    ),
    "u32-pack4xI8": IntegerFunction(
        "pack4xI8(vec4<i32>(vec4<u32>(x, x >> 9u, x >> 17u, x * 3u)))", lambda x: _spread(x, x >> 9, x >> 17, x * 3)
    ),
    "u32-pack4xU8": IntegerFunction(
        "pack4xU8(vec4<u32>(x, x >> 9u, x >> 17u, x * 3u))", lambda x: _spread(x, x >> 9, x >> 17, x * 3)
    ),
    "i32-pack4xI8Clamp": IntegerFunction(
        "pack4xI8Clamp(vec4<i32>(x, x >> 8u, x >> 16u, -x))",
        lambda x: _clamped(x, -128, 127),
        (I32,),
        U32,
        -(1 << 24),
        1 << 24,
    ),
    "i32-pack4xU8Clamp": IntegerFunction(
        "pack4xU8Clamp(vec4<u32>(vec4<i32>(x, x >> 8u, x >> 16u, x >> 20u)))",
        lambda x: _spread(*(np.minimum(v, 255) for v in (x, x >> 8, x >> 16, x >> 20))),
        (I32,),
        U32,
        0,
        (1 << 31) - 1,
    ),
    "u32-unpack4xI8": IntegerFunction(
        "dot(unpack4xI8(x), vec4<i32>(1, 300, 70000, 9000000))",
        lambda x: (_bytes(x, signed=True) * [1, 300, 70000, 9000000]).sum(-1),
        (U32,),
        I32,
    ),
    "u32-unpack4xU8": IntegerFunction(
        "dot(unpack4xU8(x), vec4<u32>(1, 300, 70000, 9000000))",
        lambda x: (_bytes(x) * [1, 300, 70000, 9000000]).sum(-1),
    ),
    "f32-pack4x8snorm": IntegerFunction(
        "pack4x8snorm(vec4<f32>(x, y, x, y))", lambda x, y: _packed_norm(x, y, 8, -1), (F, F)
    ),
    "f32-pack4x8unorm": IntegerFunction(
        "pack4x8unorm(vec4<f32>(x, y, x, y))", lambda x, y: _packed_norm(x, y, 8, 0), (F, F)
    ),
    "f32-pack2x16snorm": IntegerFunction(
        "pack2x16snorm(vec2<f32>(x, y))", lambda x, y: _packed_norm(x, y, 16, -1), (F, F)
    ),
    "f32-pack2x16unorm": IntegerFunction(
        "pack2x16unorm(vec2<f32>(x, y))", lambda x, y: _packed_norm(x, y, 16, 0), (F, F)
    ),
    "f32-pack2x16float": IntegerFunction("pack2x16float(vec2<f32>(x, y))", _packed_half, (F, F)),
    "u32-unpack2x16float": IntegerFunction("unpack2x16float(x).x", _unpacked_half, (U32,), F),
    "u32-unpack2x16float_high": IntegerFunction("unpack2x16float(x).y", lambda x: _unpacked_half(x >> 16), (U32,), F),
    **{
        f"u32-unpack4x8{kind}{place}": IntegerFunction(
            f"unpack4x8{kind}(x)[{place}]",
            lambda x, place=place, kind=kind: _unpacked_norm(
                _bytes(x, signed=kind == "snorm")[..., place],
                127 if kind == "snorm" else 255,
                lowest=-1 if kind == "snorm" else 0,
            ),
            (U32,),
            F,
        )
        for kind in ("snorm", "unorm")
        for place in (0, 3)
    },
    **{
        f"u32-unpack2x16{kind}{place}": IntegerFunction(
            f"unpack2x16{kind}(x)[{place}]",
            lambda x, place=place, kind=kind: _unpacked_norm(
                _halves(x, signed=kind == "snorm")[..., place],
                32767 if kind == "snorm" else 65535,
                lowest=-1 if kind == "snorm" else 0,
            ),
            (U32,),
            F,
        )
        for kind in ("snorm", "unorm")
        for place in (0, 1)
    },
}
"""Functions by the type of their operands and their name."""

_SOURCE = """{bindings}
@group(0) @binding({count}) var<storage, read_write> results: array<{result}>;
fn rotate(word: u32, by: u32) -> u32 {{ return select((word << by) | (word >> (32u - by)), word, by == 0u); }}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let i = id.x;
{loads}
    results[i] = {wgsl};
}}
"""


def function_case(name: str, count: int) -> KernelCase:
    """Return the case of a function on ``count`` operands, a multiple of 64."""
    function = FUNCTIONS[name]
    names = "xyz"[: len(function.operands)]
    operands = _operands(function, count, name)
    integers = [operand if operand.dtype.kind == "f" else operand.astype(np.int64) for operand in operands]
    with np.errstate(all="ignore"):
        exact = function.function(*integers)
    dtype = _DTYPES[function.result]
    expected: Expectation = exact
    if not isinstance(exact, Accepted):
        expected = (np.asarray(exact).astype(np.int64) & _MASK).astype(np.uint32).view(dtype)
    bindings = [
        f"@group(0) @binding({binding}) var<storage, read> {operand}s: array<{of}>;"
        for binding, (operand, of) in enumerate(zip(names, function.operands, strict=True))
    ]
    source = _SOURCE.format(
        bindings="\n".join(bindings),
        count=len(names),
        result=function.result,
        loads="\n".join(f"    let {operand} = {operand}s[i];" for operand in names),
        wgsl=function.wgsl.replace("T(", f"{function.operands[0]}(").replace("<T>", f"<{function.operands[0]}>"),
    )
    return KernelCase(
        source,
        {f"{operand}s": array for operand, array in zip(names, operands, strict=True)},
        {"results": expected},
        (count // 64,),
        {"results": ((count,), dtype.name)},
    )


def _operands(function: IntegerFunction, count: int, seed: str) -> list[Array]:
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    if function.operands[0] == F:
        return [_floats(count, rng) for _ in function.operands]
    operands = [_words(count, rng) for _ in function.operands]
    if function.least is not None and function.most is not None:
        # The first operand of a function of bits is any word; its others, and single operands, have limits.
        limited = range(1, len(operands)) if len(operands) > 1 else range(1)
        for index in limited:
            operands[index] = rng.integers(function.least, function.most, count, endpoint=True).astype(np.uint32)
    if len(operands) > 1 and (function.least is None or function.least >= 0):  # equal operands, and next ones
        operands[1][::16], operands[1][1::16] = operands[0][::16], operands[0][1::16] + np.uint32(1)
        if function.least is not None:
            operands[1] = np.minimum(operands[1], np.uint32(function.most or 0))
    return [operand.view(_DTYPES[of]) for operand, of in zip(operands, function.operands, strict=True)]


def _words(count: int, rng: np.random.Generator) -> Array:
    """Return words of all bit lengths, and words next to powers of two and to zero."""
    words = rng.integers(0, 1 << 32, count, np.uint64) >> rng.integers(0, 32, count).astype(np.uint64)
    near = (np.uint64(1) << rng.integers(0, 33, count).astype(np.uint64)) + rng.integers(0, 3, count).astype(np.uint64)
    words = np.where(rng.random(count) < 0.4, near - np.uint64(1), words)
    words = np.where(rng.random(count) < 0.3, ~words, words)
    return (words & np.uint64(_MASK)).astype(np.uint32)


def _floats(count: int, rng: np.random.Generator) -> Array:
    """Return floats, most of them small, with ties and integers beyond 32 bits."""
    numbers = np.where(
        rng.random(count) < 0.5,
        rng.uniform(-1.2, 1.2, count),
        rng.normal(size=count) * 2.0 ** rng.integers(-20, 34, count),
    )
    numbers[:12] = (0, -0.0, 1, -1, 0.5, -0.5, 2147483520, -2147483648, 4294967040, 1e10, -1e10, 65504)
    numbers[12:64] = numbers[:52]
    return numbers.astype(np.float32)
