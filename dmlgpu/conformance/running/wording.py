"""How errors and counts are written: errors as a share of what is allowed, and in units of the last place."""

from __future__ import annotations

import datetime
import math

_EXPONENT_FROM = 1e7
"""Numbers are written with a power of ten from here on."""

_TIMES_FROM = 10
"""From how many times the tolerance on an error is written as a multiple, not in percent."""


def bound_text(error: float | None) -> str:
    """An error that is given in units of what is allowed, as a share of that.

    ``63 % of the tolerance``, ``28,200 times the tolerance``, ``exact``, or that no such error is allowed; nothing for
    None.
    """
    if error is None or error == 0 or math.isinf(error):
        return share_text(error)
    return f"{share_text(error)} {'the' if error >= _TIMES_FROM else 'of the'} tolerance"


def share_text(error: float | None) -> str:
    """The same where there is little room, and where it is said what the share is of: ``63 %``, ``28,200 times``."""
    if error is None:
        return ""
    if math.isinf(error):
        return "beyond any tolerance"
    if error == 0:
        return "exact"
    if error >= _TIMES_FROM:
        return f"{_number(error)} times"
    return _percent(100 * error)


def _percent(percent: float) -> str:
    """Whole percents, below ten two digits; what is more than allowed is never written as 100 %."""
    if percent < 0.1:
        return "below 0.1 %"
    text = f"{percent:.2g}" if percent < 9.95 else f"{percent:.0f}"
    return "just over 100 %" if text == "100" and percent > 100 else f"{text} %"


def ulp_text(distance: float | None) -> str:
    """``3 ULP``, ``28,200 ULP``; nothing for None."""
    if distance is None:
        return ""
    return "not comparable" if math.isinf(distance) else f"{_number(distance)} ULP"


def counted(count: int, noun: str) -> str:
    """``1 case``, ``1,200 cases``; in ``1 of 4 elements`` it is the whole that decides."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def wrong_text(wrong: int, elements: int) -> str:
    """``1 of 4 elements is wrong``, ``2 of 4 elements are wrong``."""
    return f"{wrong:,} of {counted(elements, 'element')} {'is' if wrong == 1 else 'are'} wrong"


def moment_text(moment: str) -> str:
    """An instant of ISO 8601 as people write it, with its time zone: ``2026-11-22 17:59 UTC``; other text as it is."""
    try:
        found = datetime.datetime.fromisoformat(moment)
    except ValueError:
        return moment
    if found.tzinfo is None:
        return f"{found:%Y-%m-%d %H:%M}"
    return f"{found:%Y-%m-%d %H:%M} {'UTC' if not found.utcoffset() else found.isoformat()[-6:]}"


def _number(value: float) -> str:
    """Three digits."""
    if value >= _EXPONENT_FROM:
        return f"{value:.2e}".replace("e+0", "e+")
    rounded = float(f"{value:.3g}")
    return f"{rounded:,g}" if value < 1000 else f"{rounded:,.0f}"
