"""How errors are written: in units of what is allowed, and in units of the last place."""

from __future__ import annotations

import math

_EXPONENT_FROM = 1e7
"""Numbers are written with a power of ten from here on."""


def bound_text(error: float | None) -> str:
    """``0.6 of the bound``, ``exact``, or that no such error is allowed; nothing for None."""
    if error is None:
        return ""
    if math.isinf(error):
        return "beyond any bound"
    if error == 0:
        return "exact"
    return "below 0.001 of the bound" if error < 0.001 else f"{_number(error)} of the bound"


def ulp_text(distance: float | None) -> str:
    """``3 ULP``, ``28,200 ULP``; nothing for None."""
    if distance is None:
        return ""
    return "not comparable" if math.isinf(distance) else f"{_number(distance)} ULP"


def _number(value: float) -> str:
    """Three digits."""
    if value >= _EXPONENT_FROM:
        return f"{value:.2e}".replace("e+0", "e+")
    rounded = float(f"{value:.3g}")
    return f"{rounded:,g}" if value < 1000 else f"{rounded:,.0f}"
