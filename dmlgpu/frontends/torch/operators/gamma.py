"""Incomplete gamma functions, and gradients of gamma and beta variates, by series and continued fractions.

A distribution function P(x; a) changes its variates by -(dP/da) / (dP/dx). P is a power times a series below the mean,
and a continued fraction above it. The derivatives of both factors have the same sign, so that nothing cancels.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from dmlgpu.frontends.torch.dtypes import cast, dtype_of
from dmlgpu.frontends.torch.operators.registry import Promotion, aten
from dmlgpu.frontends.torch.operators.transcendental import digamma, erfc, lgamma, log1p, polynomial
from dmlgpu.ops import directml
from dmlgpu.tensors.tensor import Tensor

_IF = directml.element_wise_if

_TERMS = 40
"""Terms of a series, and levels of a continued fraction: for shapes below ``_LARGE``."""

_LARGE = 32.0
"""Minimum shape for which the expansion for large shapes is used."""


class _Dual(NamedTuple):
    """A value, and its derivative with respect to the first parameter."""

    value: Any
    slope: Any


def _series(a: Any, x: Any) -> _Dual:
    """Return the sum of x ** n / ((a + 1) ... (a + n)), by Horner's scheme."""
    value: Any = 1.0
    slope: Any = 0.0
    for term in range(_TERMS, 0, -1):
        inverse = 1.0 / (a + float(term))
        ratio = x * inverse
        value, slope = ratio * value + 1.0, ratio * (slope - inverse * value)
    return _Dual(value, slope)


def _fraction(a: Any, x: Any) -> _Dual:
    """Return the continued fraction of exp(x) x ** -a times the upper incomplete gamma function, from its end on."""
    value: Any = x - a + float(2 * _TERMS + 1)
    slope: Any = -1.0
    for level in range(_TERMS, 0, -1):
        ratio = float(level) / value
        step = ratio * (float(level) - a)
        value, slope = x - a + float(2 * level - 1) - step, ratio - 1.0 + step * slope / value
    return _Dual(1.0 / value, -slope / (value * value))


# ---- incomplete gamma functions --------------------------------------------------------------------------------------

_ORDERS = 14


def _temme_coefficients() -> list[list[float]]:
    """Return the coefficients of Temme's uniform expansion, DLMF 8.12.12: by order of 1 / a, powers from 0 on."""
    alpha = [0.0, 1.0, 1 / 3]
    for n in range(3, _ORDERS + 12):
        products = sum(j * alpha[j] * alpha[n - j + 1] for j in range(2, n))
        alpha.append((alpha[n - 1] - products) / (n + 1))
    rows = [[-1 / 3, *((n + 2) * alpha[n + 2] for n in range(1, _ORDERS + 8))]]
    for stirling in (1 / 12, 1 / 288, -139 / 51840):
        sign = -1.0 if len(rows) % 2 else 1.0
        last = rows[-1]
        rows.append([sign * stirling * rows[0][n] + (n + 2) * last[n + 2] for n in range(len(last) - 2)])
    return [row[:_ORDERS] for row in rows]


_TEMME = _temme_coefficients()
_DEVIANCE = [2 * (-1) ** power / (power + 2) for power in range(19, -1, -1)]


def _excess_root(excess: Any) -> Any:
    """Return sqrt(2 (y - log(1 + y))) / y; near 0 by its Taylor series."""
    near = polynomial(excess, _DEVIANCE)
    far = (excess - log1p(excess)) * 2.0 / (excess * excess)
    return directml.element_wise_sqrt(_IF(directml.element_wise_abs(excess) < 0.3, near, far))


def _incomplete_gammas(a: Any, x: Any) -> tuple[Any, Any]:
    """Return the regularized lower and upper incomplete gamma functions."""
    excess = (x - a) / a
    eta = _excess_root(excess) * excess
    decay = directml.element_wise_exp(a * eta * eta * -0.5)
    inverse = 1.0 / a
    stirling = polynomial(inverse * inverse, (-1 / 360, 1 / 12)) * inverse
    large = decay * directml.element_wise_exp(-stirling) / directml.element_wise_sqrt(a * (2 * math.pi))
    small = directml.element_wise_exp(a * directml.element_wise_log(x) - x - lgamma(a + 1.0))
    factor = _IF(a >= _LARGE, large, small)  # x ** a exp(-x) / gamma(a + 1)
    lower = factor * _series(a, x).value
    upper = factor * a * _fraction(a, x).value
    rest: Any = 0.0
    for row in reversed(_TEMME):
        rest = rest * inverse + polynomial(eta, row[::-1])
    rest = rest * decay / directml.element_wise_sqrt(a * (2 * math.pi))
    argument = eta * directml.element_wise_sqrt(a * 0.5)
    is_uniform = (a >= _LARGE) & (directml.element_wise_abs(excess) < 0.4)
    is_below = x < directml.element_wise_max(a, 1.0)
    below = _IF(is_uniform, erfc(-argument) * 0.5 - rest, _IF(is_below, lower, 1.0 - upper))
    above = _IF(is_uniform, erfc(argument) * 0.5 + rest, _IF(is_below, 1.0 - lower, upper))
    return below, above


def _of_limits(a: Any, x: Any, value: Any, at_zero: float) -> Any:
    """Return a function's values, and those at the limits of its arguments."""
    value = _IF((x == 0) | (a == math.inf), at_zero, value)
    value = _IF((a == 0) | (x == math.inf), 1.0 - at_zero, value)
    is_outside = (a < 0) | (x < 0) | ((a == 0) & ~(x > 0)) | ((a == math.inf) & (x == math.inf))
    return _IF(is_outside, math.nan, value)


def _operands(a: Any, x: Any) -> tuple[Any, Any]:
    """Return both parameters as float32 tensors."""
    like = a if isinstance(a, Tensor) else x
    return tuple((value if isinstance(value, Tensor) else like._beside(value, "float32")).float() for value in (a, x))  # type: ignore[return-value]


@aten("igamma", promotes=Promotion.INT_TO_FLOAT)
def igamma(a: Any, x: Any) -> Any:
    """Return the regularized lower incomplete gamma function."""
    a, x = _operands(a, x)
    return _of_limits(a, x, _incomplete_gammas(a, x)[0], 0.0)


@aten("igammac", promotes=Promotion.INT_TO_FLOAT)
def igammac(a: Any, x: Any) -> Any:
    """Return the regularized upper incomplete gamma function."""
    a, x = _operands(a, x)
    return _of_limits(a, x, _incomplete_gammas(a, x)[1], 1.0)


# ---- gradients of variates -------------------------------------------------------------------------------------------

_SERIES_END = 1.5
"""Minimum of the argument, or the shape if it is larger, from which the continued fraction replaces the series."""


def _gamma_slope(a: Any, x: Any) -> Any:
    """Return the derivative of gamma variates by their shape."""
    logarithm = directml.element_wise_log(x)
    series, fraction = _series(a, x), _fraction(a, x)
    below = -(x / a) * (series.value * (logarithm - digamma(a + 1.0)) + series.slope)
    above = x * (fraction.value * (logarithm - digamma(a)) + fraction.slope)
    general = _IF(x < directml.element_wise_max(a, _SERIES_END), below, above)
    # Large shapes: sqrt(a) (eta + g(eta) / a) is a normal variate up to a ** -2 (Temme).
    excess = (x - a) / a
    root = _excess_root(excess)
    eta = root * excess
    shift = polynomial(eta, (-1 / 1620, -1 / 36, 1 / 3)) / a
    slope = (eta * (-1 / 810) - 1 / 36) / a
    large = (x / a) * (1.0 - root * 0.5 * (eta - shift) / (slope + 1.0))
    return _IF(a >= _LARGE, large, general)


@aten("_standard_gamma_grad")
def standard_gamma_grad(a: Tensor, x: Tensor) -> Tensor:
    """Return the derivative of gamma variates by their shape; 0 for variates of 0."""
    if not x.size:
        return x.copy()
    slope = _gamma_slope(a.float(), x.float())
    return cast(_IF(x.float() > 0, slope, 0.0), dtype_of(x))


_LEVELS = 20
"""Pairs of levels of a beta function's continued fraction."""


def _beta_fraction(p: Any, q: Any, x: Any, of_first: bool) -> _Dual:
    """Return the hypergeometric function of 1, p + q and p + 1, and its derivative with respect to p or q."""
    value: Any = 1.0
    slope: Any = 0.0
    total = p + q
    for level in range(_LEVELS, -1, -1):
        if level < _LEVELS:
            even = float(level + 1)
            low, high = 1.0 / (p + (2 * even - 1.0)), 1.0 / (p + 2 * even)
            factor = x * low * high * even
            step = factor * (q - even)
            change = -step * (low + high) if of_first else factor
            value, slope = 1.0 + step / value, (change - step * slope / value) / value
        odd = float(level)
        high = 1.0 / (p + (2 * odd + 1.0))
        low = 1.0 / (p + 2 * odd) if level else None
        factor = -x * high if low is None else -x * high * low * (p + odd)
        step = factor * (total + odd)
        change = factor
        if of_first:
            change = change - step * high
            if low is not None:
                change = change + step * (1.0 / (p + odd) - low)
        value, slope = 1.0 + step / value, (change - step * slope / value) / value
    return _Dual(1.0 / value, -slope / (value * value))


def _beta_slope(x: Any, a: Any, b: Any) -> Any:
    """Return the derivative of beta variates by their first shape, divided by 1 - x."""
    logarithm, psi = directml.element_wise_log(x), digamma(a + b)
    low = _beta_fraction(a, b, x, True)
    high = _beta_fraction(b, a, 1.0 - x, False)
    below = -(x / a) * (low.value * (logarithm + psi - digamma(a + 1.0)) + low.slope)
    above = (x / b) * (high.value * (logarithm + psi - digamma(a)) + high.slope)
    return _IF(x * (a + b + 2.0) < a + 1.0, below, above)


@aten("_dirichlet_grad")
def dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """Return the derivatives of the parts of Dirichlet variates by their shapes; 0 for parts of 0."""
    if not x.size:
        return x.copy()
    part, shape, sum_of_shapes = (value.float() for value in (x, alpha, total))
    slope = _beta_slope(part, shape, sum_of_shapes - shape)
    return cast(_IF(part > 0, slope, 0.0), dtype_of(x))
