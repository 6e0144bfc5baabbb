"""Functions of shaders/lib on an adapter: their true values, their inputs, their errors and the bounds of those."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dmlgpu.compiler.linker import BufferInterface, Interface
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import KernelSource, Program, RenderedKernel, Slot
from dmlgpu.compiler.wgsl import library
from dmlgpu.runtime.executor import Range, Resources, ShaderBackend

Doubles: TypeAlias = NDArray[np.float64]

TINY = float(np.finfo(np.float32).tiny)
"""The smallest normal number."""


@dataclass(frozen=True)
class LibraryFunction:
    """A function of the math library.

    Attributes:
        name: Name in ``shaders/lib``.
        true: The same function in float64.
        bound: Largest allowed error in ULP; 0 for exact.
        critical_points: Numbers measured together with all adjacent floats.
        minimum: Smallest argument, or None.
        maximum: Largest argument, or None.
    """

    name: str
    true: Callable[..., Doubles]
    bound: float = 2.0
    critical_points: tuple[float, ...] = ()
    operands: int = 1
    minimum: float | None = None
    maximum: float | None = None


_ERF = np.frompyfunc(math.erf, 1, 1)
_ERFC = np.frompyfunc(math.erfc, 1, 1)


def _erf(x: Doubles) -> Doubles:
    return np.asarray(_ERF(x), np.float64)


def _erfc(x: Doubles) -> Doubles:
    return np.asarray(_ERFC(x), np.float64)


def _normal_tail(x: Doubles) -> Doubles:
    """Return the share of a normal distribution above a number; for large ones the root's rounding costs 1e-14 of
    it."""
    return 0.5 * _erfc(x / math.sqrt(2.0))


def _sigmoid(x: Doubles) -> Doubles:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _softplus(x: Doubles) -> Doubles:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _gelu(x: Doubles) -> Doubles:
    return x * _normal_tail(-x)


def _erfc_tail(x: Doubles) -> Doubles:
    return np.where(x < np.inf, x * _normal_tail(x), 0.0)


def _round_half_away(x: Doubles) -> Doubles:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _quarter_turns(*counts: int) -> tuple[float, ...]:
    return tuple(count * np.pi / 2 for count in counts)


TURNS = _quarter_turns(1, 2, 3, 4, 5, 64, 1001, 65536, 8388609) + tuple(n * np.pi / 4 for n in (1, 3, 5))

FUNCTIONS = (
    LibraryFunction("exp_f32", np.exp, critical_points=(-103.97, -87.33, -87.0, 88.0, 88.7228, 0.0, 1.0)),
    LibraryFunction(
        "exp_bounded", np.exp, critical_points=(-104.0, -103.97, -87.33, -83.0, 0.0, 1.0, 43.0), maximum=43.0
    ),
    LibraryFunction("expm1_f32", np.expm1, critical_points=(0.69, -0.69, -17.3, 88.7228, 1.04)),
    LibraryFunction("log_f32", np.log, critical_points=(1.0, TINY, 0.70710678, 1.41421356, 2.0)),
    LibraryFunction("log1p_f32", np.log1p, critical_points=(-1.0, 0.41421356, -0.29289322, 1.0)),
    LibraryFunction("sin_f32", np.sin, critical_points=TURNS),
    LibraryFunction("cos_f32", np.cos, critical_points=TURNS),
    LibraryFunction("tan_f32", np.tan, 4.0, TURNS),
    LibraryFunction("asin_f32", np.arcsin, critical_points=(0.5, 1.0, -1.0)),
    LibraryFunction("acos_f32", np.arccos, critical_points=(0.5, -0.5, 1.0, -1.0)),
    LibraryFunction("atan_f32", np.arctan, critical_points=(1.0,)),
    LibraryFunction("sinh_f32", np.sinh, critical_points=(0.69, 1.04, 89.4159, 88.7228)),
    LibraryFunction("cosh_f32", np.cosh, critical_points=(0.69, 1.04, 89.4159, 88.7228)),
    LibraryFunction("tanh_f32", np.tanh, critical_points=(0.625, 9.01, 10.0)),
    LibraryFunction("asinh_f32", np.arcsinh, critical_points=(1.0, 8192.0, 0.41421356)),
    LibraryFunction("acosh_f32", np.arccosh, critical_points=(1.0, 2.0, 8192.0)),
    LibraryFunction("atanh_f32", np.arctanh, critical_points=(0.5, -0.5, 1.0, -1.0)),
    LibraryFunction("erf_f32", _erf, critical_points=(0.95, -0.95, 3.92)),
    LibraryFunction("erfc_f32", _erfc, critical_points=(0.5, 1.25, -0.5, -1.25, 9.3, 10.05)),
    LibraryFunction("erfc_tail_f32", _erfc_tail, critical_points=(0.6, 1.5, 13.0, 14.0), minimum=0.6),
    LibraryFunction("sigmoid_f32", _sigmoid, critical_points=(-17.3, -87.33, -103.97, 16.6)),
    LibraryFunction("softplus_f32", _softplus, critical_points=(-17.3, -87.33, -103.97, 16.6)),
    LibraryFunction("gelu_f32", _gelu, critical_points=(0.6, -0.6, -1.0, -13.0, -14.0, 5.5, 1.5)),
    LibraryFunction("sqrt_f32", np.sqrt, 0.5, (1.0,)),
    LibraryFunction("divide_f32", np.divide, 0.5, operands=2),
    LibraryFunction("truncate_f32", np.trunc, 0.0, (0.5, 1.0, 8388608.0)),
    LibraryFunction("floor_f32", np.floor, 0.0, (0.5, -1.0, 8388608.0)),
    LibraryFunction("ceil_f32", np.ceil, 0.0, (0.5, 1.0, 8388608.0)),
    LibraryFunction("round_half_even_f32", np.rint, 0.0, (0.5, 1.5, -2.5, 4194304.5, 8388608.0)),
    LibraryFunction("round_half_away_f32", _round_half_away, 0.0, (0.5, 1.5, -2.5, 4194304.5, 8388608.0)),
    LibraryFunction("pow_f32", np.power, 4.0, operands=2),
    LibraryFunction("atan2_f32", np.arctan2, operands=2),
    LibraryFunction("fmod_f32", np.fmod, 0.0, operands=2),
    LibraryFunction("floor_mod_f32", np.mod, 0.5, operands=2),
    LibraryFunction("min_f32", np.minimum, 0.0, operands=2),
    LibraryFunction("max_f32", np.maximum, 0.0, operands=2),
)


# ---- the numbers on which functions are measured ---------------------------------------------------------------------


Floats: TypeAlias = NDArray[np.float32]

PER_EXPONENT = 4096
"""Numbers of every exponent and sign in a full measurement."""
STEPS = 2048
"""Numbers on either side of a bend."""
LARGEST = float(np.finfo(np.float32).max)


def from_bits(bits: Any) -> Floats:
    """Return float32 values from their bits."""
    return np.asarray(bits, np.uint32).view(np.float32)


def halves() -> Floats:
    """Return all 65,536 float16 values as float32."""
    return np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)


def every_exponent(count: int = PER_EXPONENT, seed: int = 0) -> Floats:
    """Return numbers of every exponent, subnormals, infinities and NaN included: ``count`` of each, of both signs."""
    exponents = np.repeat(np.arange(512, dtype=np.uint32) << 23, count)
    fractions = np.random.default_rng(seed).integers(0, 1 << 23, exponents.size, np.uint32)
    fractions[::count] = 0
    fractions[1::count] = 0x7FFFFF
    fractions[2::count] = 1
    return from_bits(exponents | fractions)


def around(value: float, steps: int = STEPS) -> Floats:
    """Return the numbers within some steps of a number, of its sign."""
    middle = int(np.float32(abs(value)).view(np.uint32))
    bits = np.arange(max(middle - steps, 0), min(middle + steps, 0x7F800000), dtype=np.uint32)
    return from_bits(bits | np.uint32(0x80000000 if value < 0 else 0))


def ordinary(seed: int, count: int) -> Floats:
    """Return ordinary numbers: ``count`` between -100 and 100, and as many between -1 and 1."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.uniform(-100, 100, count), rng.uniform(-1, 1, count)]).astype(np.float32)


SPECIAL = np.array(
    [0.0, 1.0, 0.5, 2.0, 3.0, 1e-45, TINY, LARGEST, np.inf, np.nan, 1e-40, 16777216.0, 16777215.0, 1.5, 5.0, 1e30],
    np.float32,
)


def samples(function: LibraryFunction, count: int = PER_EXPONENT) -> tuple[Floats, ...]:
    """Return the inputs on which a function is measured: ``count`` numbers of every exponent and sign, and others."""
    if function.operands == 1:
        critical_points = [around(value) for value in function.critical_points]
        numbers = np.concatenate([halves(), every_exponent(count), ordinary(1, 64 * count), *critical_points])
        return (in_domain(function, numbers),)
    return tuple(_padded(np.concatenate(operand)) for operand in zip(*_pairs(function, count), strict=True))


def _pairs(function: LibraryFunction, count: int) -> Sequence[tuple[Floats, Floats]]:
    rng = np.random.default_rng(2)
    signed = np.concatenate([SPECIAL, -SPECIAL])
    special_pairs = np.meshgrid(signed, signed)
    a = rng.permutation(every_exponent(count))
    b = rng.permutation(every_exponent(count, 1))
    first, second = ordinary(3, 64 * count), ordinary(4, 64 * count)
    near = from_bits(first.view(np.uint32) + rng.integers(0, 64, first.size, np.uint32))
    pairs = [(special_pairs[0].ravel(), special_pairs[1].ravel()), (a, b), (first, second), (near, first)]
    if function.name == "pow_f32":
        # Bases near 1 with large exponents, results over the whole range, negative bases with whole exponents.
        bases = np.concatenate([around(1.0, 32 * count), np.abs(ordinary(5, 64 * count)), every_exponent(count)])
        bases = bases[np.isfinite(bases) & (bases > 0)]
        with np.errstate(all="ignore"):
            exponents = (rng.uniform(-151, 129, bases.size) / np.log2(bases.astype(np.float64))).astype(np.float32)
        pairs += [(bases, exponents), (first, np.rint(second / 8))]
    if function.name.endswith("mod_f32"):
        pairs.append((np.rint(first * 50), np.rint(second)))
    return pairs


def in_domain(function: LibraryFunction, numbers: Floats) -> Floats:
    """Return the numbers in the domain of a function, in whole blocks of four; NaN unless there is a smallest."""
    if function.minimum is not None:
        numbers = numbers[numbers >= function.minimum]
    if function.maximum is not None:
        numbers = numbers[~(numbers > function.maximum)]
    return _padded(numbers)


def _padded(array: Floats) -> Floats:
    """Return a whole number of blocks of four."""
    return np.ascontiguousarray(np.pad(array, (0, -array.size % 4), constant_values=1.0))


# ---- functions on an adapter, and their errors -----------------------------------------------------------------------


WORKGROUP = 64
ROW = 32768  # workgroups in one row of a grid


def kernel(function: str, operands: int, units: int, immediates: bool, prelude: str = "") -> KernelSource:
    """Return a shader that applies a function, of the library or of the prelude, to blocks of four numbers."""
    names = [f"v{index}" for index in range(operands)]
    loads = "".join(f"    let {name} = load{index}(i);\n" for index, name in enumerate(names))
    lanes = ", ".join(f"{function}({', '.join(f'{name}.{lane}' for name in names)})" for lane in "xyzw")
    needed = library.with_needs(library.mentioned(f"{prelude} {function}"))
    body = (
        f"{library.text_of(needed)}{prelude}@compute @workgroup_size({WORKGROUP})\n"
        "fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
        f"    let i = id.x + id.y * {ROW * WORKGROUP}u;\n"
        f"    if (i >= {units}u) {{ return; }}\n{loads}"
        f"    store{operands}(i, vec4<f32>({lanes}));\n}}\n"
    )
    block = "vec4<f32>"
    inputs, output = BufferInterface(block, block), BufferInterface(block, block, loads=False, stores=True)
    return KernelSource(body, Interface((inputs,) * operands + (output,), immediates=immediates), WORKGROUP)


class FunctionRun:
    """A function compiled once and applied to arrays on one adapter."""

    def __init__(self, backend: ShaderBackend, function: str, operands: Sequence[Floats], prelude: str = ""):
        self.backend, self.size = backend, operands[0].nbytes
        buffers = [backend.create_buffer(self.size, function) for _ in range(len(operands) + 1)]
        self._ranges = [Range(buffer, 0, self.size) for buffer in buffers]
        for bound, operand in zip(self._ranges, operands, strict=False):
            backend.write(bound.buffer, 0, operand.view(np.uint8).ravel())
        units = operands[0].size // 4
        immediates = backend.target.has("immediates")
        groups = -(-units // WORKGROUP)
        grid = (min(groups, ROW), -(-groups // ROW), 1)
        slots = tuple(Slot(Role.INPUT, index, 0, self.size) for index in range(len(self._ranges)))
        source = kernel(function, len(operands), units, immediates, prelude)
        shader = RenderedKernel(function, source, slots, grid)
        program = Program(function, (shader,), immediates=immediates)
        self.kernels = program.summaries
        self._work = backend.prepare(program).bind(Resources(tuple(self._ranges), ()))

    def __call__(self, _: int = 0) -> None:
        """Apply it once and wait."""
        self.backend.wait(self.backend.submit(self._work))

    def result(self) -> Floats:
        """Result of the last call."""
        return self.backend.read(self._ranges[-1].buffer, 0, self.size).view(np.float32).copy()

    def close(self) -> None:
        """Give the memory back."""
        for bound in self._ranges:
            self.backend.destroy_buffer(bound.buffer)


def evaluate(backend: ShaderBackend, function: str, *operands: Floats, prelude: str = "") -> Floats:
    """Return the values of a function on an adapter: of the library, of the prelude or built in. Sizes are multiples of
    4."""
    with contextlib.closing(FunctionRun(backend, function, operands, prelude)) as run:
        run()
        return run.result()


def flushes(backend: ShaderBackend) -> bool:
    """True if the adapter's arithmetic flushes subnormals to zero."""
    subnormal = np.full(4, 1e-40, np.float32)
    return not evaluate(backend, "sqrt", subnormal).all()


def true_values(function: LibraryFunction, operands: Sequence[Floats]) -> Doubles:
    """Return the function in float64."""
    with np.errstate(all="ignore"):
        return np.asarray(function.true(*(operand.astype(np.float64) for operand in operands)), np.float64)


def errors(computed: Floats, true: Doubles, flushed: bool = False) -> Doubles:
    """Return errors in ULP; infinite where a special value or a zero's sign is wrong.

    Args:
        computed: Values on an adapter.
        true: Values in float64.
        flushed: Whether zeros are as good as subnormals.
    """
    with np.errstate(all="ignore"):
        rounded = true.astype(np.float32)
        # NumPy's spacing of the largest number is infinite; that of 2^127 is the same and isn't.
        unit = np.spacing(np.clip(np.nan_to_num(np.abs(rounded)), TINY, 2.0**127).astype(np.float32)).astype(np.float64)
        wide = computed.astype(np.float64)
        reached = np.where(np.isinf(wide), np.copysign(2.0**128, wide), wide)
        goal = np.where(np.abs(true) > 2.0**128, np.copysign(2.0**128, true), true)
        error = np.abs(reached - goal) / unit
    same = (np.isnan(computed) & np.isnan(true)) | ((computed == true) & (np.signbit(computed) == np.signbit(true)))
    special_value = ~np.isfinite(true) | (true == 0.0) | np.isnan(computed)
    error = np.where(same, 0.0, np.where(special_value, np.inf, error))
    if flushed:
        error[(np.abs(true) < TINY) & (computed == 0)] = 0.0
    return error


@dataclass(frozen=True)
class FunctionErrors:
    """Errors of one function on one adapter.

    Attributes:
        error: In ULP, per input.
        flushed: Whether the adapter's arithmetic turns subnormals into zeros, which then count as right.
        kernels: What ran (``Program.summaries``).
    """

    function: LibraryFunction
    error: Doubles
    operands: tuple[Floats, ...]
    computed: Floats
    true: Doubles
    flushed: bool = False
    kernels: tuple[str, ...] = ()

    @property
    def max(self) -> float:
        """The largest error, in ULP."""
        return float(self.error.max())

    @property
    def mean(self) -> float:
        """The mean error in ULP, of the inputs whose result is an ordinary number other than an exact zero."""
        counted = np.isfinite(self.true) & (self.true != 0) & (np.abs(self.true) <= LARGEST) & np.isfinite(self.error)
        return float(self.error[counted].mean()) if counted.any() else 0.0

    @property
    def worst_index(self) -> int:
        """Index of the largest error."""
        return int(self.error.argmax())

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """The largest error for every binary exponent of the (first) input; -127 for subnormals."""
        sizes = np.abs(self.operands[0])
        counted = np.isfinite(sizes) & (sizes > 0)
        exponents = np.maximum(np.frexp(sizes[counted])[1] - 1, -127)
        largest = np.full(256, -1.0)
        np.maximum.at(largest, exponents + 127, self.error[counted])
        return tuple((biased - 127, float(error)) for biased, error in enumerate(largest) if error >= 0)

    @property
    def worst(self) -> str:
        """The input with the largest error."""
        arguments = ", ".join(f"{float(operand[self.worst_index])!r}" for operand in self.operands)
        computed, true = float(self.computed[self.worst_index]), float(self.true[self.worst_index])
        return f"{self.function.name}({arguments}) = {computed!r}, true {true!r}"


def measure(backend: ShaderBackend, function: LibraryFunction, count: int = PER_EXPONENT) -> FunctionErrors:
    """Return the errors of a function on an adapter, with ``count`` numbers of every exponent and sign."""
    operands = samples(function, count)
    with contextlib.closing(FunctionRun(backend, function.name, operands)) as run:
        run()
        computed = run.result()
    true = true_values(function, operands)
    if function.name in ("min_f32", "max_f32"):
        computed[computed == 0], true[true == 0] = 0.0, 0.0  # which of two zeros is smaller, NumPy leaves open
    if not flushes(backend):
        return FunctionErrors(function, errors(computed, true), operands, computed, true, kernels=run.kernels)
    of_zeros = true_values(function, [np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x) for x in operands])
    error = np.minimum(errors(computed, true, flushed=True), errors(computed, of_zeros, flushed=True))
    return FunctionErrors(function, error, operands, computed, true, flushed=True, kernels=run.kernels)
