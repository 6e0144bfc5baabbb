"""How far the math library of shaders/lib is from the true values, on every adapter of the machine.

    python benchmarks/accuracy.py [ADAPTER] [-k FUNCTION] [--write]

Measures the adapters whose name contains ADAPTER and prints a table for each. ``--write`` puts the tables into
docs/accuracy.md; the tables of adapters that this run doesn't see (another VK_DRIVER_FILES) stay as they are.

Inputs of a function of one number are all float16 values, 4,096 float32 values of every exponent and sign (2M), and
every number within 2,048 steps of the places where the function bends: thresholds, overflow, multiples of pi/2. The
true value is NumPy's or SciPy's in float64. The error is |computed - true| in units of the last place of the true value
rounded to float32; a wrong special value counts as infinite, a zero for a subnormal as none on adapters that flush.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dmlgpu import wgsl
from dmlgpu.backend import Range, Resources
from dmlgpu.gpu import GpuBackend, adapters
from dmlgpu.plan import Kernel, Program, Role, Slot
from dmlgpu.wgsl.linker import link

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "accuracy.md"
PER_EXPONENT = 4096
STEPS = 2048
WORKGROUP = 64
ROW = 32768  # workgroups in one row of a grid
TINY = float(np.finfo(np.float32).tiny)
LARGEST = float(np.finfo(np.float32).max)

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]


# ---- functions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """One function of the library.

    Attributes:
        name: as in ``shaders/lib``.
        true: the same in float64.
        bound: the largest error allowed, in ULP; 0 for exact.
        bends: places whose neighbourhoods are measured number by number.
        least: the smallest number that it takes, or None where it takes all.
    """

    name: str
    true: Callable[..., Doubles]
    bound: float = 2.0
    bends: tuple[float, ...] = ()
    operands: int = 1
    least: float | None = None

    def padded(self, numbers: Floats) -> Floats:
        """Those numbers that it takes, in whole blocks of four."""
        return _padded(numbers if self.least is None else numbers[numbers >= self.least])


def _sigmoid(x: Doubles) -> Doubles:
    return special.expit(x)


def _softplus(x: Doubles) -> Doubles:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _gelu(x: Doubles) -> Doubles:
    return x * special.ndtr(x)


def _erfc_tail(x: Doubles) -> Doubles:
    return np.where(x < np.inf, x * special.ndtr(-x), 0.0)


def _round_half_away(x: Doubles) -> Doubles:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _quarter_turns(*counts: int) -> tuple[float, ...]:
    return tuple(count * np.pi / 2 for count in counts)


TURNS = _quarter_turns(1, 2, 3, 4, 5, 64, 1001, 65536, 8388609) + tuple(n * np.pi / 4 for n in (1, 3, 5))

FUNCTIONS = (
    Function("exp_f32", np.exp, bends=(-103.97, -87.33, -87.0, 88.0, 88.7228, 0.0, 1.0)),
    Function("expm1_f32", np.expm1, bends=(0.69, -0.69, -17.3, 88.7228, 1.04)),
    Function("log_f32", np.log, bends=(1.0, TINY, 0.70710678, 1.41421356, 2.0)),
    Function("log1p_f32", np.log1p, bends=(-1.0, 0.41421356, -0.29289322, 1.0)),
    Function("sin_f32", np.sin, bends=TURNS),
    Function("cos_f32", np.cos, bends=TURNS),
    Function("tan_f32", np.tan, 4.0, TURNS),
    Function("asin_f32", np.arcsin, bends=(0.5, 1.0, -1.0)),
    Function("acos_f32", np.arccos, bends=(0.5, -0.5, 1.0, -1.0)),
    Function("atan_f32", np.arctan, bends=(1.0,)),
    Function("sinh_f32", np.sinh, bends=(0.69, 1.04, 89.4159, 88.7228)),
    Function("cosh_f32", np.cosh, bends=(0.69, 1.04, 89.4159, 88.7228)),
    Function("tanh_f32", np.tanh, bends=(0.625, 9.01, 10.0)),
    Function("asinh_f32", np.arcsinh, bends=(1.0, 8192.0, 0.41421356)),
    Function("acosh_f32", np.arccosh, bends=(1.0, 2.0, 8192.0)),
    Function("atanh_f32", np.arctanh, bends=(0.5, -0.5, 1.0, -1.0)),
    Function("erf_f32", special.erf, bends=(0.95, -0.95, 3.92)),
    Function("erfc_f32", special.erfc, bends=(0.5, 1.25, -0.5, -1.25, 9.3, 10.05)),
    Function("erfc_tail_f32", _erfc_tail, bends=(0.6, 1.5, 13.0, 14.0), least=0.6),
    Function("sigmoid_f32", _sigmoid, bends=(-17.3, -87.33, -103.97, 16.6)),
    Function("softplus_f32", _softplus, bends=(-17.3, -87.33, -103.97, 16.6)),
    Function("gelu_f32", _gelu, bends=(0.6, -0.6, -1.0, -13.0, -14.0, 5.5, 1.5)),
    Function("sqrt", np.sqrt, 0.5, (1.0,)),
    Function("truncate_f32", np.trunc, 0.0, (0.5, 1.0, 8388608.0)),
    Function("floor_f32", np.floor, 0.0, (0.5, -1.0, 8388608.0)),
    Function("ceil_f32", np.ceil, 0.0, (0.5, 1.0, 8388608.0)),
    Function("round_half_even_f32", np.rint, 0.0, (0.5, 1.5, -2.5, 4194304.5, 8388608.0)),
    Function("round_half_away_f32", _round_half_away, 0.0, (0.5, 1.5, -2.5, 4194304.5, 8388608.0)),
    Function("pow_f32", np.power, 4.0, operands=2),
    Function("atan2_f32", np.arctan2, operands=2),
    Function("fmod_f32", np.fmod, 0.0, operands=2),
    Function("floor_mod_f32", np.mod, 0.5, operands=2),
    Function("min_f32", np.minimum, 0.0, operands=2),
    Function("max_f32", np.maximum, 0.0, operands=2),
)


# ---- inputs ---------------------------------------------------------------------------------------------------------


def from_bits(bits: Any) -> Floats:
    """Float32 values from their bits."""
    return np.asarray(bits, np.uint32).view(np.float32)


def halves() -> Floats:
    """All 65,536 float16 values as float32."""
    return np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)


def every_exponent(count: int = PER_EXPONENT, seed: int = 0) -> Floats:
    """Numbers of every exponent, subnormals, infinities and NaN included: ``count`` of each, of both signs."""
    exponents = np.repeat(np.arange(512, dtype=np.uint32) << 23, count)
    fractions = np.random.default_rng(seed).integers(0, 1 << 23, exponents.size, np.uint32)
    fractions[::count] = 0
    fractions[1::count] = 0x7FFFFF
    fractions[2::count] = 1
    return from_bits(exponents | fractions)


def around(place: float, steps: int = STEPS) -> Floats:
    """The numbers within some steps of a place, of its sign."""
    middle = int(np.float32(abs(place)).view(np.uint32))
    bits = np.arange(max(middle - steps, 0), min(middle + steps, 0x7F800000), dtype=np.uint32)
    return from_bits(bits | np.uint32(0x80000000 if place < 0 else 0))


def ordinary(seed: int = 1, count: int = 1 << 18) -> Floats:
    """Numbers as programs have them: between -100 and 100, and between -1 and 1."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.uniform(-100, 100, count), rng.uniform(-1, 1, count)]).astype(np.float32)


SPECIAL = np.array(
    [0.0, 1.0, 0.5, 2.0, 3.0, 1e-45, TINY, LARGEST, np.inf, np.nan, 1e-40, 16777216.0, 16777215.0, 1.5, 5.0, 1e30],
    np.float32,
)


def samples(function: Function, count: int = PER_EXPONENT) -> tuple[Floats, ...]:
    """The inputs on which a function is measured."""
    if function.operands == 1:
        bends = [around(place) for place in function.bends]
        numbers = np.concatenate([halves(), every_exponent(count), ordinary(), *bends])
        return (function.padded(numbers),)
    return tuple(_padded(np.concatenate(operand)) for operand in zip(*_pairs(function, count), strict=True))


def _pairs(function: Function, count: int) -> Sequence[tuple[Floats, Floats]]:
    rng = np.random.default_rng(2)
    signed = np.concatenate([SPECIAL, -SPECIAL])
    special_pairs = np.meshgrid(signed, signed)
    a = rng.permutation(every_exponent(count))
    b = rng.permutation(every_exponent(count, 1))
    first, second = ordinary(3), ordinary(4)
    near = from_bits(first.view(np.uint32) + rng.integers(0, 64, first.size, np.uint32))
    pairs = [(special_pairs[0].ravel(), special_pairs[1].ravel()), (a, b), (first, second), (near, first)]
    if function.name == "pow_f32":
        # Bases near 1 with large exponents, results over the whole range, negative bases with whole exponents.
        bases = np.concatenate([around(1.0, 1 << 17), np.abs(ordinary(5)), every_exponent(count)])
        bases = bases[np.isfinite(bases) & (bases > 0)]
        with np.errstate(all="ignore"):
            exponents = (rng.uniform(-151, 129, bases.size) / np.log2(bases.astype(np.float64))).astype(np.float32)
        pairs += [(bases, exponents), (first, np.rint(second / 8))]
    if function.name.endswith("mod_f32"):
        pairs.append((np.rint(first * 50), np.rint(second)))
    return pairs


def _padded(array: Floats) -> Floats:
    """A whole number of blocks of four."""
    return np.ascontiguousarray(np.pad(array, (0, -array.size % 4), constant_values=1.0))


# ---- running --------------------------------------------------------------------------------------------------------


def kernel(function: str, operands: int, units: int, immediates: bool, prelude: str = "") -> str:
    """A shader that applies a function, of the library or of the prelude, to blocks of four numbers."""
    head = wgsl.templates.render("access/head", buffers=["vec4<f32>"] * (operands + 1), immediates=immediates)
    names = [f"v{number}" for number in range(operands)]
    loads = "".join(f"    let {name} = buffer{number}[i];\n" for number, name in enumerate(names))
    lanes = ", ".join(f"{function}({', '.join(f'{name}.{lane}' for name in names)})" for lane in "xyzw")
    return link(
        f"{head}{prelude}@compute @workgroup_size({WORKGROUP})\n"
        "fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
        f"    let i = id.x + id.y * {ROW * WORKGROUP}u;\n"
        f"    if (i >= {units}u) {{ return; }}\n{loads}"
        f"    buffer{operands}[i] = vec4<f32>({lanes});\n}}\n"
    )


class Run:
    """A function applied to arrays on one adapter, again and again."""

    def __init__(self, backend: GpuBackend, function: str, operands: Sequence[Floats], prelude: str = ""):
        self.backend, self.size = backend, operands[0].nbytes
        buffers = [backend.create_buffer(self.size, function) for _ in range(len(operands) + 1)]
        self._ranges = [Range(buffer, 0, self.size) for buffer in buffers]
        for bound, operand in zip(self._ranges, operands, strict=False):
            backend.write(bound.buffer, 0, operand.view(np.uint8).ravel())
        units = operands[0].size // 4
        immediates = backend.target.has("immediates")
        groups = -(-units // WORKGROUP)
        grid = (min(groups, ROW), -(-groups // ROW), 1)
        slots = tuple(Slot(Role.INPUT, number, 0, self.size) for number in range(len(self._ranges)))
        text = kernel(function, len(operands), units, immediates, prelude)
        shader = Kernel(function, text, slots, grid)
        program = Program(function, (shader,), immediates=immediates)
        self._work = backend.prepare(program).bind(Resources(tuple(self._ranges), ()))

    def __call__(self, _: int = 0) -> None:
        """Apply it once and wait."""
        self.backend.wait(self.backend.submit(self._work))

    def result(self) -> Floats:
        """What the last call left."""
        return self.backend.read(self._ranges[-1].buffer, 0, self.size).view(np.float32).copy()

    def close(self) -> None:
        for bound in self._ranges:
            self.backend.destroy_buffer(bound.buffer)


def evaluate(backend: GpuBackend, function: str, *operands: Floats, prelude: str = "") -> Floats:
    """The values of a function on an adapter: of the library, of the prelude or built in. Sizes are multiples of 4."""
    run = Run(backend, function, operands, prelude)
    try:
        run()
        return run.result()
    finally:
        run.close()


def flushes(backend: GpuBackend) -> bool:
    """Whether the adapter's arithmetic turns subnormals into zeros."""
    subnormal = np.full(4, 1e-40, np.float32)
    return not evaluate(backend, "sqrt", subnormal).all()


# ---- errors ---------------------------------------------------------------------------------------------------------


def true_values(function: Function, operands: Sequence[Floats]) -> Doubles:
    """The function in float64."""
    with np.errstate(all="ignore"):
        return np.asarray(function.true(*(operand.astype(np.float64) for operand in operands)), np.float64)


def errors(computed: Floats, true: Doubles, flushed: bool = False) -> Doubles:
    """Errors in ULP; infinite where a special value or a zero's sign is wrong.

    Args:
        computed: values on an adapter.
        true: values in float64.
        flushed: whether zeros are as good as subnormals.
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
class Measured:
    """What one function does on one adapter."""

    function: Function
    error: Doubles
    operands: tuple[Floats, ...]
    computed: Floats
    true: Doubles

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
    def worst(self) -> str:
        """The input with the largest error."""
        where = int(self.error.argmax())
        given = ", ".join(f"{float(operand[where])!r}" for operand in self.operands)
        return f"{self.function.name}({given}) = {float(self.computed[where])!r}, true {float(self.true[where])!r}"


def measure(backend: GpuBackend, function: Function, count: int = PER_EXPONENT) -> Measured:
    """The errors of a function on an adapter, with ``count`` numbers of every exponent and sign."""
    operands = samples(function, count)
    computed = evaluate(backend, function.name, *operands)
    true = true_values(function, operands)
    if function.name in ("min_f32", "max_f32"):
        computed[computed == 0], true[true == 0] = 0.0, 0.0  # which of two zeros is smaller, NumPy leaves open
    if not flushes(backend):
        return Measured(function, errors(computed, true), operands, computed, true)
    of_zeros = true_values(function, [np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x) for x in operands])
    error = np.minimum(errors(computed, true, flushed=True), errors(computed, of_zeros, flushed=True))
    return Measured(function, error, operands, computed, true)


# ---- the document ---------------------------------------------------------------------------------------------------

INTRODUCTION = """# How accurate the math library is

Generated by `python benchmarks/accuracy.py --write`; the module says what is measured and how. Errors are in units of
the last place (ULP) of the true value in float32. `shaders/lib` computes every function itself, because drivers' own
are off by up to 10^7 ULP; `sqrt` is the driver's. Its polynomials are minimax fits, their coefficients rounded to
float32 one after the other, lowest degree first: `scripts/fit_math.py` makes them again. `erfc_tail_f32` is
x erfc(x / sqrt 2) / 2 from 0.6 on, the complement of the error function as gelu needs it.
"""


def table(backend: GpuBackend, results: Sequence[Measured]) -> str:
    """One adapter's section."""
    subnormals = "flushes subnormals in arithmetic" if flushes(backend) else "keeps subnormals"
    rows = [
        f"| `{result.function.name}` | {result.function.bound:g} | {_number(result.max)} | {_number(result.mean)} |"
        for result in results
    ]
    lines = [
        f"## {backend.info}",
        "",
        f"The adapter {subnormals}.",
        "",
        "| function | bound | max | mean |",
        "|---|---|---|---|",
    ]
    return "\n".join([*lines, *rows]) + "\n"


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.3f}"


def merged(document: str, sections: Sequence[str]) -> str:
    """A document with these sections put in place of those of the same adapters."""
    found = re.split(r"^(?=## )", document, flags=re.MULTILINE)[1:]
    by_title = {section.split("\n", 1)[0]: section.strip() + "\n" for section in [*found, *sections]}
    return "\n".join([INTRODUCTION, *(by_title[title] for title in sorted(by_title))])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter", nargs="?", default="", help="only adapters whose name contains this")
    parser.add_argument("-k", dest="part", default="", help="only functions whose name contains this")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/accuracy.md")
    options = parser.parse_args()
    sections, is_good = [], True
    for info in adapters():
        if options.adapter.lower() not in str(info).lower():
            continue
        backend = GpuBackend(info)
        results = []
        for function in FUNCTIONS:
            if options.part in function.name:
                result = measure(backend, function)
                results.append(result)
                mark = "" if result.max <= function.bound else f"  EXCEEDS {function.bound:g}: {result.worst}"
                is_good &= not mark
                print(
                    f"{info.backend} {function.name:<22} max {result.max:8.3f} mean {result.mean:.3f}{mark}", flush=True
                )
        sections.append(table(backend, results))
        backend.close()
    if options.write:
        document = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else ""
        DOCUMENT.write_text(merged(document, sections), encoding="utf-8")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
