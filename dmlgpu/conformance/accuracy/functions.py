"""The functions that are measured: their names in shaders/lib, their true values, their bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Doubles: TypeAlias = NDArray[np.float64]

TINY = float(np.finfo(np.float32).tiny)
"""The smallest normal number."""


@dataclass(frozen=True)
class Function:
    """One function of the library.

    Attributes:
        name: as in ``shaders/lib``.
        true: the same in float64.
        bound: the largest error allowed, in ULP; 0 for exact.
        critical_points: numbers whose neighbourhoods are measured number by number.
        minimum: the smallest number that it takes, or None where it takes all.
        maximum: the largest number that it takes, likewise.
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
    """The share of a normal distribution above a number; for large ones the root's rounding costs 1e-14 of it."""
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
    Function("exp_f32", np.exp, critical_points=(-103.97, -87.33, -87.0, 88.0, 88.7228, 0.0, 1.0)),
    Function("exp_bounded", np.exp, critical_points=(-104.0, -103.97, -87.33, -83.0, 0.0, 1.0, 43.0), maximum=43.0),
    Function("expm1_f32", np.expm1, critical_points=(0.69, -0.69, -17.3, 88.7228, 1.04)),
    Function("log_f32", np.log, critical_points=(1.0, TINY, 0.70710678, 1.41421356, 2.0)),
    Function("log1p_f32", np.log1p, critical_points=(-1.0, 0.41421356, -0.29289322, 1.0)),
    Function("sin_f32", np.sin, critical_points=TURNS),
    Function("cos_f32", np.cos, critical_points=TURNS),
    Function("tan_f32", np.tan, 4.0, TURNS),
    Function("asin_f32", np.arcsin, critical_points=(0.5, 1.0, -1.0)),
    Function("acos_f32", np.arccos, critical_points=(0.5, -0.5, 1.0, -1.0)),
    Function("atan_f32", np.arctan, critical_points=(1.0,)),
    Function("sinh_f32", np.sinh, critical_points=(0.69, 1.04, 89.4159, 88.7228)),
    Function("cosh_f32", np.cosh, critical_points=(0.69, 1.04, 89.4159, 88.7228)),
    Function("tanh_f32", np.tanh, critical_points=(0.625, 9.01, 10.0)),
    Function("asinh_f32", np.arcsinh, critical_points=(1.0, 8192.0, 0.41421356)),
    Function("acosh_f32", np.arccosh, critical_points=(1.0, 2.0, 8192.0)),
    Function("atanh_f32", np.arctanh, critical_points=(0.5, -0.5, 1.0, -1.0)),
    Function("erf_f32", _erf, critical_points=(0.95, -0.95, 3.92)),
    Function("erfc_f32", _erfc, critical_points=(0.5, 1.25, -0.5, -1.25, 9.3, 10.05)),
    Function("erfc_tail_f32", _erfc_tail, critical_points=(0.6, 1.5, 13.0, 14.0), minimum=0.6),
    Function("sigmoid_f32", _sigmoid, critical_points=(-17.3, -87.33, -103.97, 16.6)),
    Function("softplus_f32", _softplus, critical_points=(-17.3, -87.33, -103.97, 16.6)),
    Function("gelu_f32", _gelu, critical_points=(0.6, -0.6, -1.0, -13.0, -14.0, 5.5, 1.5)),
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
