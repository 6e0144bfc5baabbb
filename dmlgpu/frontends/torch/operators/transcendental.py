"""Exponentials, logarithms, trigonometry, error and gamma functions, polygamma and Bessel functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from dmlgpu import ops
from dmlgpu.frontends.torch.dtypes import cast, dtype_of
from dmlgpu.frontends.torch.operators.registry import Promotion, aten
from dmlgpu.ops import directml
from dmlgpu.tensors.tensor import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])

_IF = directml.element_wise_if

_OF_ONE: Mapping[str, Callable[..., Any]] = {
    "acos": directml.element_wise_acos,
    "acosh": directml.element_wise_acosh,
    "asin": directml.element_wise_asin,
    "asinh": directml.element_wise_asinh,
    "atan": directml.element_wise_atan,
    "atanh": directml.element_wise_atanh,
    "cos": directml.element_wise_cos,
    "cosh": directml.element_wise_cosh,
    "erf": directml.element_wise_erf,
    "exp": directml.element_wise_exp,
    "log": directml.element_wise_log,
    "log10": ops.log10,
    "log2": ops.log2,
    "sigmoid": directml.activation_sigmoid,
    "sin": directml.element_wise_sin,
    "sinh": directml.element_wise_sinh,
    "sqrt": directml.element_wise_sqrt,
    "tan": directml.element_wise_tan,
    "tanh": directml.element_wise_tanh,
}
"""Functions that are operators of DirectML."""

for _name, _function in _OF_ONE.items():
    aten(_name, promotes=Promotion.INT_TO_FLOAT)(_function)

aten("atan2", promotes=Promotion.INT_TO_FLOAT)(directml.element_wise_atan_yx)


def composed(*names: str, operands: Sequence[str] | None = None) -> Callable[[Function], Function]:
    """Register a function of floats that computes floats of 16 bits in float32, since it has several steps."""

    def enter(function: Function) -> Function:
        @functools.wraps(function)
        def compute(*values: Any) -> Any:
            if all(not isinstance(value, Tensor) or value.data_type.is_reduced_float for value in values):
                values = tuple(value.float() if isinstance(value, Tensor) else value for value in values)
            return function(*values)

        aten(*names, promotes=Promotion.INT_TO_FLOAT, operands=operands, fused=True)(compute)
        return function

    return enter


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Return a polynomial of each element; coefficients of the highest power first."""
    result = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        result = result * x + coefficient
    return result


# ---- exponentials and logarithms -------------------------------------------------------------------------------------


@aten("rsqrt", promotes=Promotion.INT_TO_FLOAT)
def rsqrt(x: Any) -> Any:
    return directml.element_wise_recip(directml.element_wise_sqrt(x))


@composed("exp2")
def exp2(x: Any) -> Any:
    return directml.element_wise_pow(2.0, x)


expm1 = composed("expm1")(ops.expm1)
log1p = composed("log1p")(ops.log1p)


def _log_sum(x: Any, other: Any, exp: Any, log1p_of: Any) -> Any:
    larger = directml.element_wise_max(x, other)
    distance = directml.element_wise_abs(directml.element_wise_subtract(x, other))
    result = larger + log1p_of(exp(-distance))
    return _IF((x == other) & (directml.element_wise_abs(larger) == math.inf), larger, result)


@composed("logaddexp")
def logaddexp(x: Any, other: Any) -> Any:
    return _log_sum(x, other, directml.element_wise_exp, log1p)


@composed("logaddexp2")
def logaddexp2(x: Any, other: Any) -> Any:
    return _log_sum(x, other, exp2, lambda y: log1p(y) * (1 / math.log(2)))


def _times_log(x: Any, other: Any, log: Any) -> Any:
    """Return x times the logarithm of another, 0 if x is 0, NaN if the other is."""
    if not isinstance(other, Tensor):
        other = ops.full((), float(other), dtype=x.data_type, device=x.device)
    product = directml.element_wise_multiply(x, log(other))
    if not isinstance(x, Tensor):
        return _IF(directml.element_wise_is_nan(other), other, product if x else product * 0.0)
    return _IF((x == 0) & ~directml.element_wise_is_nan(other), 0.0, product)


_XLOGY = "Tensor", "Scalar_Self", "Scalar_Other"


@composed(*(f"xlogy.{kind}" for kind in _XLOGY))
def xlogy(x: Any, other: Any) -> Any:
    if not isinstance(x, Tensor):
        x = ops.full((), float(x), dtype=other.data_type, device=other.device)
    return _times_log(x, other, directml.element_wise_log)


@composed(*(f"special_xlog1py{kind}" for kind in ("", ".self_scalar", ".other_scalar")))
def special_xlog1py(x: Any, other: Any) -> Any:
    if not isinstance(x, Tensor):
        x = ops.full((), float(x), dtype=other.data_type, device=other.device)
    return _times_log(x, other, log1p)


@composed("special_entr")
def special_entr(x: Any) -> Any:
    result = _IF(x == 0, 0.0, -x * directml.element_wise_log(x))
    return _IF(x < 0, -math.inf, result)


@composed("logit", operands=("self",))
def logit(x: Any, eps: float | None = None) -> Any:
    if eps is not None:
        x = _IF(x < eps, eps, _IF(x > 1 - eps, 1 - eps, x))  # as PyTorch orders them if eps is above a half
    return directml.element_wise_log(x / (1.0 - x))


@composed("sinc")
def sinc(x: Any) -> Any:
    angle = x * math.pi
    return _IF(angle == 0, 1.0, directml.element_wise_sin(angle) / angle)


@aten("angle", promotes=Promotion.INT_TO_FLOAT, fused=True)
def angle(x: Any) -> Any:
    """Return pi for negative numbers, else 0."""
    return _IF(directml.element_wise_is_nan(x), x, (x < 0).astype(x.data_type) * math.pi)


aten("deg2rad", promotes=Promotion.INT_TO_FLOAT)(lambda x: x * (math.pi / 180))
aten("rad2deg", promotes=Promotion.INT_TO_FLOAT)(lambda x: x * (180 / math.pi))

# ---- error functions -------------------------------------------------------------------------------------------------

_ERFC = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368,
    -1.26551223,
)  # fmt: skip
"""Chebyshev fit of log(erfc(x) exp(x ** 2) / t) in t = 1 / (1 + x / 2), to 1.2e-7 (Numerical Recipes, 6.2)."""


def erfcx_of_positive(x: Any) -> Any:
    """Return erfc(x) exp(x ** 2) of numbers that are not negative."""
    t = 1.0 / (x * 0.5 + 1.0)
    return t * directml.element_wise_exp(polynomial(t, _ERFC))


@composed("erfc")
def erfc(x: Any) -> Any:
    """Return 1 - erf(x), of large numbers by a fit that does not cancel."""
    magnitude = directml.element_wise_min(directml.element_wise_abs(x), 30.0)
    tail = erfcx_of_positive(magnitude) * directml.element_wise_exp(-(magnitude * magnitude))
    return _IF(x > 0.5, tail, 1.0 - directml.element_wise_erf(x))


_ERFINV_CENTER = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip
"""M. Giles' fits of the inverse error function (GPU Computing Gems, 2010), by -log(1 - x ** 2) below and above 5."""


@composed("erfinv")
def erfinv(x: Any) -> Any:
    w = -directml.element_wise_log((1.0 - x) * (x + 1.0))
    center = polynomial(w - 2.5, _ERFINV_CENTER)
    tail = polynomial(directml.element_wise_sqrt(directml.element_wise_max(w, 0.0)) - 3.0, _ERFINV_TAIL)
    result = _IF(w < 5.0, center, tail) * x
    return _IF(directml.element_wise_abs(x) == 1.0, x * math.inf, result)


# ---- gamma functions -------------------------------------------------------------------------------------------------

_SHIFT = 8
"""Shift of small arguments before an asymptotic series."""


def _log_gamma_of_positive(x: Any) -> Any:
    """Return log(gamma(x)): near 1 and 2 by a Taylor series, which keeps the zeros exact, else Stirling's series."""
    product = x
    for step in range(1, _SHIFT):
        product = product * (x + float(step))
    is_small = x < float(_SHIFT)
    shifted = _IF(is_small, x + float(_SHIFT), x)
    inverse = 1.0 / shifted
    series = polynomial(inverse * inverse, (1 / 1260, -1 / 360, 1 / 12)) * inverse
    stirling = (
        (shifted - 0.5) * (directml.element_wise_log(shifted) - 1.0) + series + (0.5 * math.log(2 * math.pi) - 0.5)
    )
    general = _IF(is_small, stirling - directml.element_wise_log(_IF(is_small, product, 1.0)), stirling)
    near_one = x - 1.0
    near_two = x - 2.0
    is_near_one, is_near_two = (directml.element_wise_abs(distance) < 0.3 for distance in (near_one, near_two))
    distance = _IF(is_near_one, near_one, near_two)
    taylor = polynomial(distance, _LOG_GAMMA) * distance
    at_one = taylor * distance - distance * _EULER
    at_two = at_one + log1p(distance)
    return _IF(is_near_one, at_one, _IF(is_near_two, at_two, general))


_EULER = 0.5772156649015329
_ZETA = (
    1.6449340668482264, 1.2020569031595942, 1.0823232337111382, 1.0369277551433699, 1.0173430619844491,
    1.0083492773819228, 1.0040773561979443, 1.0020083928260822, 1.000994575127818, 1.0004941886041195,
    1.000246086553308, 1.0001227133475785, 1.0000612481350587, 1.0000305882363070, 1.0000152822594086,
)  # fmt: skip
"""Riemann's zeta function of 2, 3, ..."""
_LOG_GAMMA = tuple((-1) ** order * zeta / order for order, zeta in reversed(list(enumerate(_ZETA, 2))))
"""Coefficients of the Taylor series of log(gamma(1 + x)) from the square on."""


@composed("lgamma")
def lgamma(x: Any) -> Any:
    """Return the logarithm of the gamma function's magnitude; of negative numbers by reflection."""
    is_reflected = x < 0.5
    positive = _log_gamma_of_positive(_IF(is_reflected, 1.0 - x, x))
    distance = directml.element_wise_abs(x - ops.round(x))
    sine = directml.element_wise_sin(distance * math.pi)
    reflected = math.log(math.pi) - directml.element_wise_log(sine) - positive
    result = _IF(is_reflected, reflected, positive)
    return _IF(directml.element_wise_abs(x) == math.inf, math.inf, result)


@composed("digamma")
def digamma(x: Any) -> Any:
    """Return the derivative of lgamma; of negative numbers by reflection."""
    is_reflected = x < 0.0
    positive = _IF(is_reflected, 1.0 - x, x)
    recurrence: Any = None
    for step in range(_SHIFT):
        term = 1.0 / (positive + float(step))
        recurrence = term if recurrence is None else recurrence + term
    is_small = positive < float(_SHIFT)
    shifted = _IF(is_small, positive + float(_SHIFT), positive)
    square = 1.0 / (shifted * shifted)
    series = polynomial(square, (1 / 240, -1 / 252, 1 / 120, -1 / 12)) * square
    result = directml.element_wise_log(shifted) - 0.5 / shifted + series
    result = _IF(is_small, result - recurrence, result)
    fraction = x - ops.round(x)
    cotangent = math.pi / directml.element_wise_tan(fraction * math.pi)
    result = _IF(is_reflected, result - cotangent, result)
    result = _IF(is_reflected & (fraction == 0), math.nan, result)
    return _IF(x == 0, -math.inf * directml.element_wise_recip(x), result)


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)


def hurwitz_zeta(order: int, x: Any) -> Any:
    """Return the sum of (x + k) ** -order over all k, of positive numbers, by the Euler-Maclaurin formula."""
    total: Any = None
    for step in range(_SHIFT + 2):
        term = directml.element_wise_constant_pow(x + float(step), exponent=-float(order))
        total = term if total is None else total + term
    end = x + float(_SHIFT + 2)
    power = directml.element_wise_constant_pow(end, exponent=-float(order))
    total = total + power * end * (1 / (order - 1)) + power * 0.5
    factor, falling = float(order), power / end
    for k, bernoulli in enumerate(_BERNOULLI, 1):
        total = total + falling * (bernoulli / math.factorial(2 * k) * factor)
        factor *= (order + 2 * k - 1) * (order + 2 * k)
        falling = falling / (end * end)
    return total


@aten("polygamma", fused=True)
def polygamma(n: int, x: Any) -> Any:
    """Return the derivative of order n of digamma; of negative numbers by reflection."""
    dtype = dtype_of(x) if x.data_type.is_float else torch.float32
    x = x.float()
    if n < 2:
        return cast(trigamma(x) if n else digamma(x), dtype)
    is_reflected = x < 0.0
    positive = _IF(is_reflected, 1.0 - x, x)
    result = hurwitz_zeta(n + 1, positive) * ((-1.0) ** (n + 1) * math.factorial(n))
    place = x - ops.round(x)
    is_steep = ops.abs(place) < 0.25
    tangent: Any = directml.element_wise_tan(_IF(is_steep, place, ops.sign(place) * 0.5 - place) * math.pi)
    cotangent = _IF(is_steep, 1.0 / tangent, tangent)
    reflected = result * (-1.0) ** n - polynomial(cotangent, _cotangent_derivative(n))
    return cast(_IF(is_reflected, reflected, result), dtype)


def _cotangent_derivative(order: int) -> list[float]:
    """Return a derivative of pi cot(pi x) as a polynomial of the cotangent, coefficients of the highest power first."""
    powers = [0.0, math.pi]
    for _ in range(order):
        slopes = [power * value for power, value in enumerate(powers)][1:]
        powers = [-math.pi * (low + high) for low, high in zip([*slopes, 0.0, 0.0], [0.0, 0.0, *slopes], strict=True)]
    return powers[::-1]


def trigamma(x: Any) -> Any:
    """Return the derivative of digamma; of negative numbers by reflection."""
    is_reflected = x < 0.5
    positive = _IF(is_reflected, 1.0 - x, x)
    result = hurwitz_zeta(2, positive)
    sine = directml.element_wise_sin(x * math.pi)
    return _IF(is_reflected, math.pi**2 / (sine * sine) - result, result)


# ---- Bessel functions ------------------------------------------------------------------------------------------------

_I0_SMALL = (0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0)
_I0_LARGE = (
    0.00392377,
    -0.01647633,
    0.02635537,
    -0.02057706,
    0.00916281,
    -0.00157565,
    0.00225319,
    0.01328592,
    0.39894228,
)
_I1_SMALL = (0.00032411, 0.00301532, 0.02658733, 0.15084934, 0.51498869, 0.87890594, 0.5)
_I1_LARGE = (
    -0.00420059,
    0.01787654,
    -0.02895312,
    0.02282967,
    -0.01031555,
    0.00163801,
    -0.00362018,
    -0.03988024,
    0.39894228,
)
"""Abramowitz and Stegun, 9.8.1 to 9.8.4: below 3.75 by the square of x / 3.75, else by 3.75 / x."""


def _bessel(x: Any, small: Sequence[float], large: Sequence[float]) -> tuple[Any, Any, Any]:
    magnitude = directml.element_wise_abs(x)
    ratio = magnitude * (1 / 3.75)
    below = polynomial(ratio * ratio, small)
    above = polynomial(1.0 / directml.element_wise_max(ratio, 1.0), large) / directml.element_wise_sqrt(magnitude)
    return magnitude, below, above


@composed("i0")
def i0(x: Any) -> Any:
    magnitude, below, above = _bessel(x, _I0_SMALL, _I0_LARGE)
    return _IF(magnitude < 3.75, below, above * directml.element_wise_exp(magnitude))


@composed("special_i0e")
def special_i0e(x: Any) -> Any:
    magnitude, below, above = _bessel(x, _I0_SMALL, _I0_LARGE)
    return _IF(magnitude < 3.75, below * directml.element_wise_exp(-magnitude), above)


@composed("special_i1")
def special_i1(x: Any) -> Any:
    magnitude, below, above = _bessel(x, _I1_SMALL, _I1_LARGE)
    above = above * directml.element_wise_exp(magnitude) * directml.element_wise_sign(x)
    return _IF(magnitude < 3.75, below * x, above)


@composed("special_i1e")
def special_i1e(x: Any) -> Any:
    magnitude, below, above = _bessel(x, _I1_SMALL, _I1_LARGE)
    return _IF(
        magnitude < 3.75, below * directml.element_wise_exp(-magnitude) * x, above * directml.element_wise_sign(x)
    )
