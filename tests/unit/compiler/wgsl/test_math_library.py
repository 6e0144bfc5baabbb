"""The math library as text: exact constants, no functions of drivers; and the units of its accuracy."""

from __future__ import annotations

import itertools
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.accuracy import INTRODUCTION, merged
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.library import declarations
from dmlgpu.conformance.accuracy.functions import FUNCTIONS, LARGEST, around, errors, every_exponent, halves

FILES = [file for file in templates.files("lib") if file.startswith("lib/math_")]
LITERAL = re.compile(r"(?<![\w.])\d+\.?\d*(?:e[+-]?\d+)?f\b")
LOOSE = frozenset(
    re.findall(
        r"\w+",
        """acos acosh asin asinh atan atan2 atanh cos cosh exp exp2 fma frexp inverseSqrt ldexp log log2 mix modf
        pack2x16float pow quantizeToF16 round sign sin sinh smoothstep tan tanh trunc unpack2x16float""",
    )
)


def code(file: str) -> str:
    """Return a library file without comments."""
    return re.sub(r"//[^\n]*", "", templates.source(file))


def constant(name: str) -> Fraction:
    """Return a constant of the library as a float32."""
    (literal,) = LITERAL.findall(declarations()[name])
    sign = -1 if f"-{literal}" in declarations()[name] else 1
    return sign * Fraction(float(np.float32(literal.removesuffix("f"))))


def literals(function: str) -> list[str]:
    return [literal.removesuffix("f") for literal in LITERAL.findall(declarations()[function])]


def arctan_of_inverse(n: int, bits: int) -> int:
    """Compute atan(1 / n) * 2^bits by its series in integers."""
    power, total, k = (1 << bits) // n, 0, 0
    while power:
        total += (-1) ** k * (power // (2 * k + 1))
        power //= n * n
        k += 1
    return total


def pi(bits: int) -> Fraction:
    """Compute pi by Machin's formula."""
    extra = bits + 32
    return Fraction(16 * arctan_of_inverse(5, extra) - 4 * arctan_of_inverse(239, extra), 1 << extra)


def log_2(bits: int) -> Fraction:
    """Compute ln 2 as the sum of 1 / (k 2^k)."""
    return sum((Fraction(1, k << k) for k in range(1, bits)), Fraction(0))


@pytest.mark.parametrize("file", FILES)
def test_every_constant_is_a_float32_written_out(file: str) -> None:
    literals = [literal.removesuffix("f") for literal in LITERAL.findall(code(file))]
    for literal in literals:
        value = np.float32(literal)
        shortest = Decimal(np.format_float_scientific(value, unique=True, trim="0"))
        assert Decimal(literal) in (shortest, Decimal(float(value))), f"{file}: {literal} is not the float32 {shortest}"


@pytest.mark.parametrize("file", [*FILES, "lib/float"])
def test_no_function_of_the_driver_is_called(file: str) -> None:
    called = set(re.findall(r"(?<![\w.])(\w+)\(", code(file)))
    assert not called & LOOSE, f"{file} calls {sorted(called & LOOSE)}, which drivers do loosely"


@pytest.mark.parametrize("file", FILES)
def test_every_function_has_a_comment(file: str) -> None:
    lines = templates.source(file).split("\n")
    silent = [line for above, line in itertools.pairwise(lines) if line.startswith("fn ") and "//" not in above]
    assert not [line for line in silent if re.match(r"fn \w+_f32\(", line)]


def test_ln_2_in_two_parts() -> None:
    high, low = constant("LN2_HIGH"), constant("LN2_LOW")
    assert high.denominator == 1 << 9, "multiples by up to 2^15 must be exact"
    assert abs(high + low - log_2(80)) < Fraction(1, 1 << 37)


def test_pi_in_two_parts() -> None:
    for name, whole in (("PI", pi(80)), ("HALF_PI", pi(80) / 2)):
        assert abs(constant(f"{name}_HIGH") + constant(f"{name}_LOW") - whole) < Fraction(1, 1 << 47)


def test_half_pi_in_four_parts() -> None:
    parts = [Fraction(float(np.float32(text))) for text in literals("turned")][1:]
    assert len(parts) == 4
    for part in parts[:3]:
        assert part.numerator.bit_length() <= 12, "products with 12 bits must be exact"
    assert abs(sum(parts) - pi(100) / 2) < Fraction(1, 1 << 62)


def test_the_bits_of_two_over_pi() -> None:
    words = [int(word.rstrip("u"), 0) for word in re.findall(r"\b0x\w+u|\b0u", declarations()["TWO_OVER_PI"])]
    whole = int(2 / pi(300) * (1 << 224))
    assert words == [0] + [(whole >> (224 - 32 * (k + 1))) & 0xFFFFFFFF for k in range(7)]


def test_the_parts_of_log2_s_constants() -> None:
    leading, rest, sum_ = (Fraction(float(np.float32(text))) for text in ("2.884765625", "6.244568e-4", "2.88539"))
    for text in ("2.884765625", "6.244568e-4", "2.88539", "0.961669921875", "1.2677205e-4"):
        assert text in literals("log2_parts")
    exact = 2 / log_2(80)
    assert leading.numerator.bit_length() <= 12
    assert abs(leading + rest - exact) < Fraction(1, 1 << 34)
    assert abs(sum_ - exact) < Fraction(1, 1 << 22)
    cubic = [Fraction(float(np.float32(text))) for text in ("0.961669921875", "1.2677205e-4")]
    assert cubic[0].numerator.bit_length() <= 12
    assert abs(sum(cubic) - exact / 3) < Fraction(1, 1 << 36)


# ---- how accuracy is counted


def test_errors_are_in_units_of_the_last_place() -> None:
    unit, step = np.float32(1), np.spacing(np.float32(1))
    computed = np.array([unit, unit + step, 2, 2, 1e-45, 0], np.float32)
    true = np.array([1.0, 1.0, 2.0 + 0.25 * 2**-22, 2.0 - 2**-25, 3e-45, 1e-45])
    expected = [0.0, 1.0, 0.25, 0.125, (3e-45 - 2.0**-149) / 2.0**-149, 1e-45 / 2.0**-149]
    np.testing.assert_allclose(errors(computed, true), expected, rtol=1e-12)


def test_a_wrong_special_value_is_infinitely_wrong() -> None:
    inf, nan = np.inf, np.nan
    computed = np.array([nan, inf, -inf, 0.0, -0.0, nan, 1.0, 0.0], np.float32)
    true = np.array([nan, inf, inf, -0.0, -0.0, 1.0, nan, 0.0])
    assert errors(computed, true).tolist() == [0, 0, inf, inf, 0, inf, inf, 0]


def test_infinity_is_the_number_after_the_largest() -> None:
    computed = np.array([np.inf, np.inf, LARGEST, -np.inf], np.float32)
    unit = 2.0**104
    assert errors(computed, np.array([LARGEST, 1e39, 1e39, -(2.0**128)])).tolist() == [1.0, 0.0, 1.0, 0.0]
    assert errors(computed[:1], np.array([LARGEST + unit / 4])).tolist() == [0.75]


def test_a_flushing_adapter_may_return_zero_for_subnormals_only() -> None:
    computed, true = np.zeros(3, np.float32), np.array([1e-40, -1e-40, 2e-38])
    assert errors(computed, true, flushed=True)[:2].tolist() == [0.0, 0.0]
    assert errors(computed, true, flushed=True)[2] > 1e6
    assert (errors(computed, true) > 1e4).all()


def test_the_samples_cover_their_ranges() -> None:
    assert len(np.unique(halves().view(np.uint32))) == 65536
    bits = every_exponent(16).view(np.uint32)
    assert (np.bincount(bits >> 23, minlength=512) == 16).all()
    near = around(-1.0, 2).view(np.int32)
    assert sorted(near.tolist()) == [np.float32(-1).view(np.int32) + step for step in (-2, -1, 0, 1)]


def test_the_page_keeps_tables_of_other_adapters() -> None:
    old = merged("", ["## A\n\nold\n", "## B\n\nkept\n"])
    assert merged(old, ["## A\n\nnew\n"]) == f"{INTRODUCTION}\n## A\n\nnew\n\n## B\n\nkept\n"


def test_every_public_function_is_measured() -> None:
    measured = {function.name for function in FUNCTIONS}
    public = {name for file in FILES for name in re.findall(r"^fn (\w+_f32)\(", code(file), re.MULTILINE)}
    helpers = {"rank_f32", "parity_f32"}
    assert public - helpers <= measured
