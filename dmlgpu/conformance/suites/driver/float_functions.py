"""Cases of float operators and builtin functions: a table of expressions and their allowed results."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dmlgpu.conformance.cases.case import Array
from dmlgpu.conformance.suites.driver.intervals import F16, F32, Accuracy, Interval
from dmlgpu.conformance.suites.driver.kernel_case import Accepted, KernelCase

TYPES: Final = {"f32": F32, "f16": F16}
LARGE: Final = 3.5e38
"""Bound of domains that have all numbers of a type: it is larger than every float32."""

Domain = tuple[float, float]
Formula = Callable[..., Interval]
ALL: Final[Domain] = (-LARGE, LARGE)
POSITIVE: Final[Domain] = (0, LARGE)
UNIT: Final[Domain] = (-1, 1)
ANGLE: Final[Domain] = (-3.14, 3.14)


@dataclass(frozen=True)
class BuiltinFunction:
    """A function of floats, applied to scalars and to the components of vectors.

    Attributes:
        wgsl: Expression of ``x``, ``y`` and ``z``; ``T`` is their type.
        formula: The allowed results, from the accuracy of a type and the intervals of the operands.
        domains: Smallest and largest number of each operand.
        float16_domains: The domains for float16, if it overflows on most of ``domains``; else empty.
    """

    wgsl: str
    formula: Formula
    domains: tuple[Domain, ...] = (ALL,)
    float16_domains: tuple[Domain, ...] = ()


def _exact(function: Callable[..., Any]) -> Formula:
    """Return the formula of an increasing function with exact results."""
    return lambda m, x: m.exactly(function, x)


def _absolute(m: Accuracy, x: Interval) -> Interval:
    ends = np.abs(x.low), np.abs(x.high)
    return m.flushed(Interval(np.where(x.contains(0), 0, np.minimum(*ends)), np.maximum(*ends)))


def _minimum(m: Accuracy, x: Interval, y: Interval) -> Interval:
    return _either(x, y, Interval(np.minimum(x.low, y.low), np.minimum(x.high, y.high)))


def _maximum(m: Accuracy, x: Interval, y: Interval) -> Interval:
    return _either(x, y, Interval(np.maximum(x.low, y.low), np.maximum(x.high, y.high)))


def _either(x: Interval, y: Interval, result: Interval) -> Interval:
    """Return a minimum or maximum; either operand if the intervals overlap, because a subnormal may be flushed."""
    both = x.union(y)
    is_unsure = (x.low <= y.high) & (y.low <= x.high)
    return Interval(np.where(is_unsure, both.low, result.low), np.where(is_unsure, both.high, result.high))


def _clamp(m: Accuracy, x: Interval, low: Interval, high: Interval) -> Interval:
    """Return the clamped number, or the median, which WGSL allows too: they differ if the bounds are exchanged."""
    ordered = _minimum(m, _maximum(m, x, low), high)
    return ordered.union(_maximum(m, _minimum(m, x, high), low))


def _sinh(m: Accuracy, x: Interval) -> Interval:
    return m.multiply(m.subtract(m.exp(x), m.exp(m.negate(x))), 0.5)


def _cosh(m: Accuracy, x: Interval) -> Interval:
    return m.multiply(m.add(m.exp(x), m.exp(m.negate(x))), 0.5)


def _tanh(m: Accuracy, x: Interval) -> Interval:
    absolute = m.result(np.tanh(x.low) - 1e-5, np.tanh(x.high) + 1e-5)
    return absolute.union(m.divide(_sinh(m, x), _cosh(m, x)))


def _asinh(m: Accuracy, x: Interval) -> Interval:
    return m.log(m.add(x, m.sqrt(m.add(m.multiply(x, x), 1.0))))


def _acosh(m: Accuracy, x: Interval) -> Interval:
    return m.log(m.add(x, m.sqrt(m.subtract(m.multiply(x, x), 1.0))))


def _atanh(m: Accuracy, x: Interval) -> Interval:
    return m.multiply(m.log(m.divide(m.add(1.0, x), m.subtract(1.0, x))), 0.5)


def _mix(m: Accuracy, x: Interval, y: Interval, z: Interval) -> Interval:
    precise = m.add(m.multiply(x, m.subtract(1.0, z)), m.multiply(y, z))
    return precise.union(m.add(x, m.multiply(m.subtract(y, x), z)))


def _smoothstep(m: Accuracy, low: Interval, high: Interval, x: Interval) -> Interval:
    ratio = m.divide(m.subtract(x, low), m.subtract(high, low))
    t = m.exactly(lambda numbers: np.clip(numbers, 0, 1), ratio)
    result = m.multiply(m.multiply(t, t), m.subtract(3.0, m.multiply(2.0, t)))
    return result.free_where(ratio.is_free | (low.low >= high.low))


def _step(m: Accuracy, edge: Interval, x: Interval) -> Interval:
    return Interval((edge.high <= x.low).astype(np.float64), (edge.low <= x.high).astype(np.float64))


def _fract(m: Accuracy, x: Interval) -> Interval:
    return m.subtract(x, m.exactly(np.floor, x))


def _modf_fract(m: Accuracy, x: Interval) -> Interval:
    # A subnormal number is its own fraction, flushed or not.
    return m.flushed(Interval(x.low - np.trunc(x.low), x.high - np.trunc(x.high)))


def _frexp_fract(m: Accuracy, x: Interval) -> Interval:
    return Interval(np.frexp(x.low)[0], np.frexp(x.high)[0]).free_where(x.low != x.high)


def _frexp_exponent(m: Accuracy, x: Interval) -> Interval:
    return Interval(*(np.frexp(end)[1].astype(np.float64) for end in (x.low, x.high))).free_where(x.low != x.high)


def _quantize(m: Accuracy, x: Interval) -> Interval:
    return F16.rounded(x.low, x.high)


def _ldexp(m: Accuracy, x: Interval, exponent: Interval) -> Interval:
    power = np.trunc(exponent.low)
    with np.errstate(over="ignore"):
        exact = Interval(np.ldexp(x.low, power.astype(int)), np.ldexp(x.high, power.astype(int)))
    interval = m.rounded(exact.low, exact.high)
    with_zero = interval.union(Interval(np.minimum(interval.low, 0), np.maximum(interval.high, 0)))
    may_vanish = power + (1 - m.least) <= 0
    return Interval(
        np.where(may_vanish, with_zero.low, interval.low), np.where(may_vanish, with_zero.high, interval.high)
    ).free_where(power > 2 - m.least)  # greater than the bias and 1


FUNCTIONS: Final[Mapping[str, BuiltinFunction]] = {
    "add": BuiltinFunction("x + y", Accuracy.add, (ALL, ALL)),
    "subtract": BuiltinFunction("x - y", Accuracy.subtract, (ALL, ALL)),
    "multiply": BuiltinFunction("x * y", Accuracy.multiply, (ALL, ALL)),
    "divide": BuiltinFunction("x / y", Accuracy.divide, (ALL, ALL)),
    "divide_constant": BuiltinFunction("x / T(1.25)", lambda m, x: m.divide(x, 1.25)),
    "divide_by": BuiltinFunction("T(3.0) / x", lambda m, x: m.divide(3.0, x)),
    "remainder": BuiltinFunction("x % y", Accuracy.remainder, ((-1e4, 1e4), (-100, 100))),
    "negate": BuiltinFunction("-x", Accuracy.negate),
    "abs": BuiltinFunction("abs(x)", _absolute),
    "acos": BuiltinFunction("acos(x)", Accuracy.acos, (UNIT,)),
    "acosh": BuiltinFunction("acosh(x)", _acosh, ((1, 1e4),), ((1, 200),)),
    "asin": BuiltinFunction("asin(x)", Accuracy.asin, (UNIT,)),
    "asinh": BuiltinFunction("asinh(x)", _asinh, ((-1e4, 1e4),), ((-200, 200),)),
    "atan": BuiltinFunction("atan(x)", Accuracy.atan),
    "atan2": BuiltinFunction("atan2(x, y)", Accuracy.atan2, (ALL, ALL)),
    "atanh": BuiltinFunction("atanh(x)", _atanh, ((-0.999, 0.999),)),
    "ceil": BuiltinFunction("ceil(x)", _exact(np.ceil)),
    "clamp": BuiltinFunction(
        "clamp(x, min(y, z), max(y, z))",
        lambda m, x, y, z: _clamp(m, x, _minimum(m, y, z), _maximum(m, y, z)),
        (ALL, ALL, ALL),
    ),
    "cos": BuiltinFunction("cos(x)", Accuracy.cos, (ANGLE,)),
    "cosh": BuiltinFunction("cosh(x)", _cosh, ((-80, 80),), ((-11, 11),)),
    "degrees": BuiltinFunction("degrees(x)", lambda m, x: m.multiply(x, 180 / math.pi), (ALL,), ((-1100, 1100),)),
    "exp": BuiltinFunction("exp(x)", Accuracy.exp, ((-100, 88),)),
    "exp2": BuiltinFunction("exp2(x)", Accuracy.exp2, ((-140, 127),)),
    "floor": BuiltinFunction("floor(x)", _exact(np.floor)),
    "fma": BuiltinFunction("fma(x, y, z)", lambda m, x, y, z: m.add(m.multiply(x, y), z), (ALL, ALL, ALL)),
    "fract": BuiltinFunction("fract(x)", _fract),
    "frexp_fract": BuiltinFunction("frexp(x).fract", _frexp_fract),
    "frexp_exponent": BuiltinFunction("T(frexp(x).exp)", _frexp_exponent),
    "inverse_sqrt": BuiltinFunction("inverseSqrt(x)", Accuracy.inverse_sqrt, (POSITIVE,)),
    "ldexp": BuiltinFunction("ldexp(x, INT(y))", _ldexp, (ALL, (-160, 160)), (ALL, (-40, 20))),
    "log": BuiltinFunction("log(x)", Accuracy.log, (POSITIVE,)),
    "log_near_1": BuiltinFunction("log(x)", Accuracy.log, ((0.25, 4),)),
    "log2": BuiltinFunction("log2(x)", Accuracy.log2, (POSITIVE,)),
    "log2_near_1": BuiltinFunction("log2(x)", Accuracy.log2, ((0.25, 4),)),
    "max": BuiltinFunction("max(x, y)", _maximum, (ALL, ALL)),
    "min": BuiltinFunction("min(x, y)", _minimum, (ALL, ALL)),
    "mix": BuiltinFunction("mix(x, y, z)", _mix, ((-1e4, 1e4), (-1e4, 1e4), UNIT)),
    "modf_fract": BuiltinFunction("modf(x).fract", _modf_fract),
    "modf_whole": BuiltinFunction("modf(x).whole", _exact(np.trunc)),
    "pow": BuiltinFunction("pow(x, y)", Accuracy.power, ((0, 1e6), (-20, 20))),
    "radians": BuiltinFunction("radians(x)", lambda m, x: m.multiply(x, math.pi / 180)),
    "round": BuiltinFunction("round(x)", _exact(np.rint)),
    "round_ties": BuiltinFunction(
        "round(floor(x) + T(0.5))",
        lambda m, x: m.exactly(np.rint, m.add(m.exactly(np.floor, x), 0.5)),
        ((-1000, 1000),),
    ),
    "saturate": BuiltinFunction("saturate(x)", _exact(lambda numbers: np.clip(numbers, 0, 1))),
    "sign": BuiltinFunction("sign(x)", _exact(np.sign)),
    "sin": BuiltinFunction("sin(x)", Accuracy.sin, (ANGLE,)),
    "sinh": BuiltinFunction("sinh(x)", _sinh, ((-80, 80),), ((-11, 11),)),
    "smoothstep": BuiltinFunction("smoothstep(x, y, z)", _smoothstep, ((-4, -1), (1, 4), (-5, 5))),
    "sqrt": BuiltinFunction("sqrt(x)", Accuracy.sqrt, (POSITIVE,)),
    "step": BuiltinFunction("step(x, y)", _step, (ALL, ALL)),
    "tan": BuiltinFunction("tan(x)", lambda m, x: m.divide(m.sin(x), m.cos(x)), (ANGLE,)),
    "tanh": BuiltinFunction("tanh(x)", _tanh, ((-80, 80),), ((-11, 11),)),
    "trunc": BuiltinFunction("trunc(x)", _exact(np.trunc)),
    "select": BuiltinFunction("select(x, y, x < y)", _maximum, (ALL, ALL)),
}
"""Componentwise operators and functions of both types."""

ONLY_F32: Final[Mapping[str, BuiltinFunction]] = {
    "quantizeToF16": BuiltinFunction("quantizeToF16(x)", _quantize, ((-7e4, 7e4),)),
}


def functions_of(wgsl_type: str) -> Mapping[str, BuiltinFunction]:
    """Return the functions of a type by name."""
    return {**FUNCTIONS, **ONLY_F32} if wgsl_type == "f32" else FUNCTIONS


_SOURCE = """{enable}{bindings}
@group(0) @binding({scalars}) var<storage, read_write> scalars: array<f32>;
@group(0) @binding({vectors}) var<storage, read_write> vectors: array<vec4<f32>>;
{functions}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let i = id.x;
    scalars[i] = f32(of_scalars({scalar_arguments}));
    if (i < arrayLength(&vectors)) {{ vectors[i] = vec4<f32>(of_vectors({vector_arguments})); }}
}}
"""


def function_case(wgsl_type: str, name: str, count: int) -> KernelCase:
    """Return the case of a function on ``count`` operands, a multiple of 64."""
    accuracy, function = TYPES[wgsl_type], functions_of(wgsl_type)[name]
    domains = (function.float16_domains if wgsl_type == "f16" else ()) or function.domains
    operands = operands_of(accuracy, domains, count, f"{wgsl_type}-{name}")
    with np.errstate(all="ignore"):
        accepted = Accepted(function.formula(accuracy, *map(accuracy.of, operands)))
        in_vectors = Accepted(
            Interval(*(side.reshape(-1, 4) for side in (accepted.interval.low, accepted.interval.high)))
        )
    names = "xyz"[: len(operands)]
    return KernelCase(
        _source(function, names, wgsl_type),
        {f"{name}s": operand.astype(np.float32) for name, operand in zip(names, operands, strict=True)},
        {"scalars": accepted, "vectors": in_vectors},
        (count // 64,),
        {"scalars": ((count,), "float32"), "vectors": ((count // 4, 4), "float32")},
        ("shader-f16",) if wgsl_type == "f16" else (),
    )


def _source(function: BuiltinFunction, names: str, wgsl_type: str) -> str:
    """Return a kernel that applies a function to scalars, and to vectors of four."""

    def definition(name: str, of: str, integers: str) -> str:
        body = function.wgsl.replace("INT", integers).replace("T(", f"{of}(")
        parameters = ", ".join(f"{operand}: {of}" for operand in names)
        return f"fn {name}({parameters}) -> {of} {{ return {body}; }}"

    vector = f"vec4<{wgsl_type}>"
    components = ", ".join(f"{{0}}s[4u * i + {lane}u]" for lane in range(4))
    return _SOURCE.format(
        enable="enable f16;\n" if wgsl_type == "f16" else "",
        bindings="\n".join(
            f"@group(0) @binding({binding}) var<storage, read> {name}s: array<f32>;"
            for binding, name in enumerate(names)
        ),
        scalars=len(names),
        vectors=len(names) + 1,
        functions=f"{definition('of_scalars', wgsl_type, 'i32')}\n{definition('of_vectors', vector, 'vec4<i32>')}",
        scalar_arguments=", ".join(f"{wgsl_type}({name}s[i])" for name in names),
        vector_arguments=", ".join(f"{vector}(vec4<f32>({components.format(name)}))" for name in names),
    )


def operands_of(accuracy: Accuracy, domains: Sequence[Domain], count: int, seed: str) -> tuple[Array, ...]:
    """Return finite operands: combinations of special numbers, then numbers of all magnitudes or evenly spread."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    special = [_special(accuracy, domain) for domain in domains]
    pairs = list(itertools.product(*special))
    rng.shuffle(pairs)
    table = np.array(pairs[: count // 2], accuracy.dtype)
    rest = count - len(table)
    columns = [
        np.concatenate([table[:, index], _spread(accuracy, domain, rest, rng)]) for index, domain in enumerate(domains)
    ]
    if len(domains) == 1 and accuracy is F16 and count >= 1 << 16:
        halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
        low, high = domains[0]
        inside = halves[np.isfinite(halves) & (halves >= low) & (halves <= high)]
        columns = [np.resize(inside, count)]
    return tuple(columns)


def _limits(accuracy: Accuracy, domain: Domain) -> Domain:
    return max(domain[0], -accuracy.largest), min(domain[1], accuracy.largest)


def _special(accuracy: Accuracy, domain: Domain) -> list[float]:
    low, high = _limits(accuracy, domain)
    step = float(np.finfo(accuracy.dtype).eps)
    subnormal = float(np.finfo(accuracy.dtype).smallest_subnormal)
    positive = [0, subnormal, accuracy.tiny - subnormal, accuracy.tiny, 1 / accuracy.tiny / 2, 0.5, 1 - step / 2, 1]
    positive += [1 + step, 1.5, 2, 2.5, 3, 10, 255, 2.0 ** (accuracy.digits - 1) - 0.5, accuracy.largest]
    numbers = [*positive, *(-number for number in positive), low, high]
    with np.errstate(over="ignore"):
        rounded = {float(accuracy.dtype(number)) for number in numbers}
    return sorted(number for number in rounded if low <= number <= high)


def _spread(accuracy: Accuracy, domain: Domain, count: int, rng: np.random.Generator) -> Array:
    """Return numbers of a domain: half are spread evenly, half have evenly spread exponents."""
    low, high = _limits(accuracy, domain)
    even = low + (high - low) * rng.random(count) if high < LARGE / 10 else rng.normal(size=count) * 10
    even = np.clip(np.abs(even) if low >= 0 else even, low, high)
    top = math.log2(max(abs(low), abs(high)))
    powers = np.exp2(rng.uniform(max(accuracy.least - 4, top - 40), top, count))
    signs = np.where(rng.random(count) < 0.5, -1, 1) if low < 0 < high else (-1 if high <= 0 else 1)
    numbers = np.where(rng.random(count) < 0.5, even, np.clip(powers * signs, low, high)).astype(accuracy.dtype)
    if (low, high) == _limits(accuracy, ALL):
        bits = rng.integers(0, 1 << 32, count, np.uint32)
        any_float = bits.view(np.float32) if accuracy is F32 else bits.astype(np.uint16).view(np.float16)
        numbers = np.where(np.isfinite(any_float) & (rng.random(count) < 0.3), any_float, numbers)
    return np.clip(numbers, accuracy.dtype(low), accuracy.dtype(high))


# ---- vectors and matrices --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VectorFunction:
    """A function of vectors.

    Attributes:
        wgsl: Expression of the vectors ``x``, ``y`` and ``z``.
        formula: Returns the allowed results: an interval, or one per component.
        operands: Number of vectors.
        sizes: Component counts to test.
    """

    wgsl: str
    formula: Callable[..., Interval | Sequence[Interval]]
    operands: int = 2
    sizes: tuple[int, ...] = (2, 3, 4)


def _normalized(m: Accuracy, x: Sequence[Interval]) -> list[Interval]:
    length = m.length(x)
    return [m.divide(component, length) for component in x]


def _distance(m: Accuracy, x: Sequence[Interval], y: Sequence[Interval]) -> Interval:
    return m.length([m.subtract(a, b) for a, b in zip(x, y, strict=True)])


def _cross(m: Accuracy, x: Sequence[Interval], y: Sequence[Interval]) -> list[Interval]:
    return [m.subtract(m.multiply(x[i], y[j]), m.multiply(x[j], y[i])) for i, j in ((1, 2), (2, 0), (0, 1))]


def _face_forward(m: Accuracy, x: Sequence[Interval], y: Sequence[Interval], z: Sequence[Interval]) -> list[Interval]:
    angle = m.dot(y, z)
    results = []
    for component in x:
        turned = m.negate(component)
        either = component.union(turned)
        low = np.where(angle.high < 0, component.low, np.where(angle.low >= 0, turned.low, either.low))
        high = np.where(angle.high < 0, component.high, np.where(angle.low >= 0, turned.high, either.high))
        results.append(Interval(low, high))
    return results


def _reflect(m: Accuracy, x: Sequence[Interval], y: Sequence[Interval]) -> list[Interval]:
    factor = m.multiply(2.0, m.dot(y, x))
    return [m.subtract(a, m.multiply(factor, b)) for a, b in zip(x, y, strict=True)]


def _refract(m: Accuracy, x: Sequence[Interval], y: Sequence[Interval]) -> list[Interval]:
    ratio, cosine = m.constant(0.5), m.dot(y, x)
    k = m.subtract(1.0, m.multiply(m.multiply(ratio, ratio), m.subtract(1.0, m.multiply(cosine, cosine))))
    factor = m.add(m.multiply(ratio, cosine), m.sqrt(k))
    inside = [m.subtract(m.multiply(ratio, a), m.multiply(factor, b)) for a, b in zip(x, y, strict=True)]
    is_zero = k.high < 0
    return [
        Interval(np.where(is_zero, 0, each.low), np.where(is_zero, 0, each.high)).free_where(k.contains(0))
        for each in inside
    ]


VECTORS: Final[Mapping[str, VectorFunction]] = {
    "dot": VectorFunction("dot(x, y)", Accuracy.dot),
    "length": VectorFunction("length(x)", Accuracy.length, 1),
    "distance": VectorFunction("distance(x, y)", _distance),
    "normalize": VectorFunction("normalize(x)", _normalized, 1),
    "cross": VectorFunction("cross(x, y)", _cross, 2, (3,)),
    "faceForward": VectorFunction("faceForward(x, y, z)", _face_forward, 3),
    "reflect": VectorFunction("reflect(x, y)", _reflect),
    "refract": VectorFunction("refract(x, y, T(0.5))", _refract),
}

_VECTOR_SOURCE = """{enable}{bindings}
@group(0) @binding({result}) var<storage, read_write> results: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let i = id.x;
{loads}
    let result = {wgsl};
{stores}
}}
"""


def vector_names() -> list[str]:
    """Return the names of the functions of vectors, with the number of components: ``dot3``."""
    return [f"{name}{size}" for name, function in VECTORS.items() for size in function.sizes]


def vector_case(wgsl_type: str, name: str, count: int) -> KernelCase:
    """Return the case of a function of vectors."""
    accuracy, function, size = TYPES[wgsl_type], VECTORS[name[:-1]], int(name[-1])
    rng = np.random.default_rng(zlib.crc32(f"{wgsl_type}-{name}".encode()))
    scale = np.exp2(rng.integers(-4, 4, (function.operands, count, 1)))
    vectors = (rng.uniform(-1, 1, (function.operands, count, size)) * scale).astype(accuracy.dtype)
    intervals = [[accuracy.of(vector[:, component]) for component in range(size)] for vector in vectors]
    with np.errstate(all="ignore"):
        formula = function.formula(accuracy, *intervals)
    accepted = formula if isinstance(formula, Interval) else Interval.stack(formula)
    width = 1 if isinstance(formula, Interval) else size
    names = "xyz"[: function.operands]
    loads = [
        f"    let {operand} = vec{size}<{wgsl_type}>("
        + ", ".join(f"{wgsl_type}({operand}s[{size}u * i + {component}u])" for component in range(size))
        + ");"
        for operand in names
    ]
    stores = (
        ["    results[i] = f32(result);"]
        if width == 1
        else [f"    results[{width}u * i + {component}u] = f32(result[{component}]);" for component in range(width)]
    )
    source = _VECTOR_SOURCE.format(
        enable="enable f16;\n" if wgsl_type == "f16" else "",
        bindings="\n".join(
            f"@group(0) @binding({binding}) var<storage, read> {operand}s: array<f32>;"
            for binding, operand in enumerate(names)
        ),
        result=len(names),
        loads="\n".join(loads),
        wgsl=function.wgsl.replace("T(", f"{wgsl_type}("),
        stores="\n".join(stores),
    )
    return KernelCase(
        source,
        {f"{operand}s": vector.astype(np.float32).ravel() for operand, vector in zip(names, vectors, strict=True)},
        {"results": Accepted(Interval(accepted.low.ravel(), accepted.high.ravel()))},
        (count // 64,),
        {"results": ((count * width,), "float32")},
        ("shader-f16",) if wgsl_type == "f16" else (),
    )


MATRICES: Final[Mapping[str, tuple[str, Callable[[Array, Array], Array]]]] = {
    "matrix_multiply": ("x * y", lambda x, y: y @ x),
    "matrix_vector": ("x * y[0]", lambda x, y: np.einsum("nji,nj->ni", x, y[:, 0])),
    "vector_matrix": ("y[0] * x", lambda x, y: np.einsum("nji,ni->nj", x, y[:, 0])),
    "transpose": ("transpose(x)", lambda x, y: x.transpose(0, 2, 1)),
    "determinant": ("determinant(x)", lambda x, y: _determinants(x)),
    "matrix_add": ("x + y", lambda x, y: x + y),
}
"""Expressions of square matrices, and functions that return their results; WGSL's matrices are arrays of columns."""


def _determinants(x: Array) -> Array:
    """Return determinants by the formula of Leibniz, exact for small integers."""
    size = x.shape[1]
    total = np.zeros(len(x))
    for order in itertools.permutations(range(size)):
        inversions = sum(order[i] > order[j] for i in range(size) for j in range(i + 1, size))
        total += (-1) ** inversions * np.prod([x[:, row, column] for row, column in enumerate(order)], axis=0)
    return total


def matrix_names() -> list[str]:
    """Return the names of the cases of matrices: ``determinant3``."""
    return [f"{name}{size}" for name in MATRICES for size in (2, 3, 4)]


def matrix_case(wgsl_type: str, name: str, count: int) -> KernelCase:
    """Return the case of square matrices of small integers, whose results are exact in every order of operations."""
    (wgsl, function), size = MATRICES[name[:-1]], int(name[-1])
    rng = np.random.default_rng(zlib.crc32(f"{wgsl_type}-{name}".encode()))
    x, y = rng.integers(-3, 4, (2, count, size, size)).astype(np.float64)
    exact = function(x, y).reshape(count, -1)
    places = exact.shape[1]
    matrix = f"mat{size}x{size}<{wgsl_type}>"
    loads = [
        f"    let {operand} = {matrix}("
        + ", ".join(f"{wgsl_type}({operand}s[{size * size}u * i + {place}u])" for place in range(size * size))
        + ");"
        for operand in "xy"
    ]
    columns = [f"[{place}]" if places == size else f"[{place // size}][{place % size}]" for place in range(places)]
    stores = [
        f"    results[{places}u * i + {place}u] = f32(result{'' if places == 1 else column});"
        for place, column in enumerate(columns)
    ]
    source = _VECTOR_SOURCE.format(
        enable="enable f16;\n" if wgsl_type == "f16" else "",
        bindings="@group(0) @binding(0) var<storage, read> xs: array<f32>;\n"
        "@group(0) @binding(1) var<storage, read> ys: array<f32>;",
        result=2,
        loads="\n".join(loads),
        wgsl=wgsl,
        stores="\n".join(stores),
    )
    expected = Accepted(Interval(exact.ravel(), exact.ravel()))
    return KernelCase(
        source,
        {"xs": x.astype(np.float32).ravel(), "ys": y.astype(np.float32).ravel()},
        {"results": expected},
        (count // 64,),
        {"results": ((count * places,), "float32")},
        ("shader-f16",) if wgsl_type == "f16" else (),
    )
