"""Fit the polynomials of the math library (``shaders/lib/math_*.wgsl``), and measure the committed ones.

python scripts/fit_math.py [NAME ...]    fit; print the coefficients, lowest degree first, and both errors
python scripts/fit_math.py --check       fail if a committed polynomial is worse than documented, or than a new fit

NAME is a function of the library; all are fitted by default.

A polynomial p(x) approximates a target over an interval and minimizes the largest |weight * (p - target)|. The weight
turns an error of p into a relative error of the function. Errors are in units of 2^-24, half the distance from 1 to the
next float32. Coefficients are rounded to float32 one after the other, lowest degree first. After each, the remaining
ones are fitted again, which compensates the rounding.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.library import declarations

Doubles = NDArray[np.float64]
Function = Callable[[Doubles], Doubles]

UNIT = 2.0**-24
POINTS = 400
"""Points of an interval, dense at its ends, on which a fit is made; it is measured on ten times as many."""
SLACK = 0.2
"""How much worse than a new fit a committed polynomial may be: a tenth of a unit of the last place of the result."""


# ---- the polynomials ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Polynomial:
    """One polynomial of the library.

    Attributes:
        function: of ``shaders/lib``, in whose text the polynomial stands.
        target: what it approximates.
        weight: what an error of it does to the function, relative to the function's value.
        low, high: the interval.
        claimed: the largest weighted error of the committed coefficients, in units of 2^-24.
        number: which of the function's polynomials, in the order of its text.
    """

    function: str
    target: Function
    weight: Function
    low: float
    high: float
    claimed: float
    number: int = 0

    @property
    def name(self) -> str:
        """The function, and the number where there are several."""
        return f"{self.function}[{self.number}]"


def _excess(function: Function) -> tuple[Function, Function]:
    """Target and weight of p in f(r) = r + r z p(z), z = r^2, for an odd function f with slope 1."""

    def target(z: Doubles) -> Doubles:
        r = np.sqrt(z)
        return (function(r) / r - 1.0) / z

    def weight(z: Doubles) -> Doubles:
        r = np.sqrt(z)
        return z * r / function(r)

    return target, weight


def _log_excess(f: Doubles) -> Doubles:
    """(log(1 + f) - f + f^2 / 2) / f^3, by its series where the difference would cancel."""
    series = sum((-1.0) ** k * f**k / (k + 3) for k in range(24))
    with np.errstate(all="ignore"):
        return np.where(np.abs(f) < 0.1, series, (np.log1p(f) - f + f * f / 2) / f**3)


def _expm1_excess(r: Doubles) -> Doubles:
    """(e^r - 1 - r) / r^2, by its series."""
    return sum((r**k / special.factorial(k + 2) for k in range(20)), np.zeros_like(r))


def _log2_excess(z: Doubles) -> Doubles:
    """What follows 2 / ln 2 (s + s^3 / 3) in log2 of (1 + s) / (1 - s), over s z^2, z = s^2."""
    return 2 / np.log(2) * sum((z**k / (2 * k + 5) for k in range(20)), np.zeros_like(z))


ERFC_OF_1 = float(np.float32(0.1572992))
"""``erfc_f32`` at 1, as it stands there."""

FACTOR_BASE = float(np.float32(0.42758358))
"""What the factor of ``erfc_f32`` is at 1, as it stands there."""


def _erfc_factor(t: Doubles) -> Doubles:
    """x e^(x^2) erfc x, where t = (x - 1) / (x + 1)."""
    x = (1 + t) / (1 - t)
    return x * special.erfcx(x)


TAIL_BASE = float(np.float32(0.308671))
"""What the tail's factor is at x = 3/2, as ``erfc_tail_f32`` has it."""


def _tail_factor(t: Doubles) -> Doubles:
    """x e^(x^2 / 2) erfc(x / sqrt 2) / 2, where t = (x - 3/2) / (x + 3/2)."""
    x = 1.5 * (1 + t) / (1 - t)
    return x * special.erfcx(x / np.sqrt(2)) / 2


def _of_root(function: Function) -> Function:
    """A function of the square of its argument."""
    return lambda z: function(np.sqrt(z))


_SQRT_HALF, _SQRT_2 = np.sqrt(0.5), np.sqrt(2.0)
_HALF_LN_2 = np.log(2.0) / 2
_QUARTER_PI = np.pi / 4

POLYNOMIALS = (
    Polynomial("asin_excess", *_excess(np.arcsin), low=0.0, high=0.25, claimed=0.085),
    Polynomial("atan_excess", *_excess(np.arctan), low=0.0, high=1.0, claimed=0.045),
    Polynomial(
        "erf_f32",
        target=_of_root(lambda x: special.erf(x) / x - 1),
        weight=_of_root(lambda x: x / special.erf(x)),
        low=0.0,
        high=0.95**2,
        claimed=0.015,
    ),
    Polynomial(
        "erf_f32",
        number=1,
        target=lambda x: -np.log(special.erfc(x)) - x,
        weight=lambda x: special.erfc(x) / special.erf(x),
        low=0.95,
        high=3.95,
        claimed=0.027,
    ),
    Polynomial(
        "erfc_f32",
        target=lambda s: (special.erfc(1 + s) - ERFC_OF_1) / s,
        weight=lambda s: s / special.erfc(1 + s),
        low=-0.5,
        high=0.25,
        claimed=0.151,
    ),
    Polynomial(
        "erfc_f32",
        number=1,
        target=lambda t: (_erfc_factor(t) - FACTOR_BASE) / t,
        weight=lambda t: t / _erfc_factor(t),
        low=0.25 / 2.25,
        high=9.5 / 11.5,
        claimed=0.233,
    ),
    Polynomial(
        "erfc_tail_f32",
        target=lambda t: (_tail_factor(t) - TAIL_BASE) / t,
        weight=lambda t: t / _tail_factor(t),
        low=-0.9 / 2.1,
        high=13.5 / 16.5,
        claimed=0.35,
    ),
    Polynomial(
        "gelu_f32",
        target=_of_root(lambda x: special.erf(x / _SQRT_2) / (2 * x)),
        weight=_of_root(lambda x: 2 * x / special.erfc(x / _SQRT_2)),
        low=0.0,
        high=0.6**2,
        claimed=0.031,
    ),
    Polynomial(
        "expm1_reduced",
        target=_expm1_excess,
        weight=lambda r: r * r * np.exp(-r),
        low=-_HALF_LN_2,
        high=_HALF_LN_2,
        claimed=0.055,
    ),
    Polynomial(
        "expm1_f32", target=_expm1_excess, weight=lambda r: r * r / np.expm1(r), low=-0.69, high=0.69, claimed=0.025
    ),
    Polynomial("hyperbolic", *_excess(np.sinh), low=0.0, high=0.69**2, claimed=0.024),
    Polynomial(
        "hyperbolic",
        number=1,
        target=_of_root(lambda x: 2 * (np.sinh(x / 2) / x) ** 2),
        weight=_of_root(lambda x: x * x / np.cosh(x)),
        low=0.0,
        high=0.69**2,
        claimed=0.001,
    ),
    Polynomial("tanh_f32", *_excess(np.tanh), low=0.0, high=0.625**2, claimed=0.08),
    Polynomial(
        "softplus_f32",
        target=lambda y: (np.log1p(y) - y) / (y * y),
        weight=lambda y: y * y / np.log1p(y),
        low=0.0,
        high=1.0,
        claimed=0.016,
    ),
    Polynomial(
        "log_of_bits",
        target=_log_excess,
        weight=lambda f: f**3 / np.log1p(f),
        low=_SQRT_HALF - 1,
        high=_SQRT_2 - 1,
        claimed=0.013,
    ),
    Polynomial("atanh_f32", *_excess(np.arctanh), low=0.0, high=0.25, claimed=0.003),
    Polynomial(
        "log2_parts",
        target=_log2_excess,
        weight=lambda z: z * z * np.log(2) / 2,
        low=0.0,
        high=(3 - 2 * _SQRT_2) ** 2,
        claimed=0.001,
    ),
    Polynomial(
        "pow_positive",
        target=lambda f: np.expm1(f * np.log(2)) / f,
        weight=lambda f: f * 2.0**-f,
        low=-0.5,
        high=0.5,
        claimed=0.053,
    ),
    Polynomial("sin_reduced", *_excess(np.sin), low=0.0, high=_QUARTER_PI**2, claimed=0.003),
    Polynomial(
        "cos_reduced",
        target=_of_root(lambda x: (np.cos(x) - 1 + x * x / 2) / x**4),
        weight=_of_root(lambda x: x**4 / np.cos(x)),
        low=0.0,
        high=_QUARTER_PI**2,
        claimed=0.002,
    ),
)


# ---- their coefficients in the library ------------------------------------------------------------------------------

_LITERAL = r"\d+\.?\d*(?:e[+-]?\d+)?f"
_LINES = re.compile(rf"var (\w+) = (-?{_LITERAL});((?:\s+\1 = \1 \* \w+ [+-] {_LITERAL};)+)")
_NESTED = re.compile(rf"(-?{_LITERAL}) \* (\w+)((?: [+-] {_LITERAL}\)(?: \* \2(?= [+-] {_LITERAL}\)))?)+)")


def committed(function: str) -> list[Doubles]:
    """The polynomials in a function's text, by Horner's rule in lines or brackets: coefficients, lowest first."""
    code = re.sub(r"//[^\n]*", "", declarations()[function])
    polynomials = [(match.start(), match[2], match[3]) for match in _LINES.finditer(code)]
    polynomials += [(match.start(), match[1], match[3]) for match in _NESTED.finditer(code)]
    return [_coefficients(first, rest) for _, first, rest in sorted(polynomials)]


def _coefficients(first: str, rest: str) -> Doubles:
    """The highest coefficient, and the text with the others, each after its sign."""
    others = [f"{sign}{number}" for sign, number in re.findall(rf"([+-]) ({_LITERAL})", rest)]
    numbers = [text.removesuffix("f") for text in (first, *others)]
    return np.array(numbers[::-1], np.float32).astype(np.float64)


def all_committed() -> dict[str, Doubles]:
    """Every polynomial of the library, by name."""
    files = [file for file in templates.files("lib") if file.startswith("lib/math_")]
    functions = [name for file in files for name in re.findall(r"^fn (\w+)\(", templates.source(file), re.MULTILINE)]
    return {f"{name}[{n}]": coefficients for name in functions for n, coefficients in enumerate(committed(name))}


# ---- fitting --------------------------------------------------------------------------------------------------------


def places(polynomial: Polynomial, count: int) -> Doubles:
    """Points of the interval, dense at its ends, none of them an end or 0."""
    angles = (np.arange(count) + 0.5) / count * np.pi
    return (polynomial.low + polynomial.high) / 2 - (polynomial.high - polynomial.low) / 2 * np.cos(angles)


def error(polynomial: Polynomial, coefficients: Sequence[float] | Doubles) -> float:
    """The largest weighted error, in units of 2^-24."""
    x = places(polynomial, 10 * POINTS)
    value = np.polynomial.polynomial.polyval(x, coefficients)
    return float(np.abs(polynomial.weight(x) * (value - polynomial.target(x))).max() / UNIT)


def fit(polynomial: Polynomial, count: int) -> Doubles:
    """The best ``count`` coefficients in float32, the lowest first."""
    x = places(polynomial, POINTS)
    weight, left = polynomial.weight(x), polynomial.target(x).copy()
    coefficients: list[float] = []
    for power in range(count):
        basis = weight[:, None] * x[:, None] ** np.arange(power, count)
        lowest = float(np.float32(_minimax(basis, weight * left)[0]))
        left -= lowest * x**power
        coefficients.append(lowest)
    return np.array(coefficients)


def _minimax(basis: Doubles, goal: Doubles) -> Doubles:
    """The combination of the columns with the smallest maximum distance from the goal.

    A linear programme for the correction of the least squares solution, in an orthonormal basis and in units of its
    error: with this scale, the solver's tolerances don't matter.
    """
    orthonormal, triangle = np.linalg.qr(basis)
    squares = orthonormal.T @ goal
    rest = goal - orthonormal @ squares
    size = np.abs(rest).max()
    ones = np.ones((len(goal), 1))
    bounded = np.block([[orthonormal, -ones], [-orthonormal, -ones]])
    sides = np.concatenate([rest, -rest]) / size
    cost = np.zeros(bounded.shape[1])
    cost[-1] = 1.0
    solution = optimize.linprog(cost, bounded, sides, bounds=(None, None), method="highs")
    return np.linalg.solve(triangle, squares + size * solution.x[:-1])


# ---- the command ----------------------------------------------------------------------------------------------------


def complaint(polynomial: Polynomial, coefficients: Doubles) -> str:
    """What is wrong with committed coefficients, or nothing."""
    reached, best = error(polynomial, coefficients), error(polynomial, fit(polynomial, len(coefficients)))
    if reached > polynomial.claimed:
        return f"{polynomial.name}: an error of {reached:.3f}, claimed are {polynomial.claimed}"
    if reached > best + SLACK:
        return f"{polynomial.name}: an error of {reached:.3f}, a fit has {best:.3f}"
    return ""


def check(polynomials: Sequence[Polynomial] = POLYNOMIALS) -> list[str]:
    """What is wrong with the library's polynomials, those without an entry here included."""
    standing = all_committed()
    missing = sorted(standing.keys() ^ {polynomial.name for polynomial in POLYNOMIALS})
    complaints = [f"{name}: stands in only one of shaders/lib and scripts/fit_math.py" for name in missing]
    return [
        *complaints,
        *filter(
            None,
            (
                complaint(polynomial, standing[polynomial.name])
                for polynomial in polynomials
                if polynomial.name in standing
            ),
        ),
    ]


def report(polynomial: Polynomial, coefficients: Doubles) -> str:
    """Both errors, and the fitted coefficients."""
    fitted = fit(polynomial, len(coefficients))
    errors = f"committed {error(polynomial, coefficients):.3f}, fitted {error(polynomial, fitted):.3f}"
    lines = [f"    {np.format_float_scientific(np.float32(number), unique=True, trim='0')}f" for number in fitted]
    return "\n".join([f"{polynomial.name}: {errors}", *lines])


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true", help="compare with the documented errors; print only problems")
    options = parser.parse_args()
    if options.check:
        complaints = check()
        print("\n".join(complaints))
        return 1 if complaints else 0
    for polynomial in POLYNOMIALS:
        if not options.names or polynomial.function in options.names:
            print(report(polynomial, committed(polynomial.function)[polynomial.number]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
