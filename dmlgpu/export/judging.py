"""What a page must know to judge results as ``conformance.running.comparison`` does.

Each tolerance becomes a rule, the same for all elements, and at most one number per element. ``pages/judge.js`` applies
them; a test lets both judge the same results, right and wrong ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlgpu.common.errors import NotSupported
from dmlgpu.conformance.cases.families.activation import FlushedWithin
from dmlgpu.conformance.cases.families.reduction import LogarithmOfSum
from dmlgpu.conformance.cases.families.resampling import RoundedSum
from dmlgpu.conformance.cases.tolerance import (
    Accumulated,
    Array,
    Bound,
    CorrectlyRounded,
    Exact,
    GivenBound,
    Tolerance,
    Ulp,
)
from dmlgpu.conformance.suites.attributes import SameKind


@dataclass(frozen=True)
class Rule:
    """Which results are right: those that one of its conditions takes.

    Attributes:
        bits: the same bits.
        nan: any NaN for a NaN.
        ulps: at most so many numbers of the type away, infinities included, and two NaN; None for no such condition.
        near: finite, and at most the element's number away.
        kind: the same infinity, or any NaN for a NaN.
        signs: of two zeros, ``near`` takes those of the same sign only.
        flush: zero where a subnormal number of 32 or 64 bits, or the smallest normal one, is expected.
        factor: zero where less than four times float32's smallest normal number is expected.
        error: how an element's error is told in units of what is allowed: ``ulps``, by ``ulps``; ``share``, by the
            element's number; ``none``: 0 where it is right, else infinite.
        capped: errors of what is right are at most 1.
        told: what the largest difference allowed is: ``ulps``, ``number``, the larger of both (``either``), ``none``.
    """

    bits: bool = False
    nan: bool = False
    ulps: float | None = None
    near: bool = False
    kind: bool = False
    signs: bool = False
    flush: bool = False
    factor: bool = False
    error: str = "none"
    capped: bool = False
    told: str = "none"

    def to_json(self) -> dict[str, Any]:
        """Without what is not so."""
        return {name: value for name, value in vars(self).items() if value is not False and value is not None}


def rule_of(tolerance: Tolerance, expected: Array) -> Rule:
    """Return the rule of a tolerance, for results of the type that is expected.

    Raises:
        NotSupported: for a tolerance that no rule expresses.
    """
    is_float = expected.dtype.kind == "f"
    known: list[tuple[type[Tolerance] | tuple[type[Tolerance], ...], Rule]] = [
        (Exact, Rule(bits=True)),
        (CorrectlyRounded, Rule(bits=True, nan=is_float, flush=is_float)),
        (GivenBound, Rule(ulps=0, near=True, flush=True, error="share", told="number")),
        (RoundedSum, Rule(near=True)),
    ]
    if isinstance(tolerance, SameKind):
        signs = is_float and not tolerance.is_sum
        known.append((SameKind, Rule(near=True, kind=is_float, signs=signs, flush=is_float, told="number")))
    if isinstance(tolerance, LogarithmOfSum):
        rule = Rule(ulps=tolerance.count, near=True, flush=True, error="ulps", capped=True, told="either")
        known.append((LogarithmOfSum, rule))
    if not is_float:
        known.append(((Ulp, Accumulated), Rule(ulps=0)))
    elif isinstance(tolerance, Ulp):
        error, factor = "ulps" if tolerance.count else "none", isinstance(tolerance, FlushedWithin)
        known.append((Ulp, Rule(ulps=tolerance.count, flush=True, factor=factor, error=error, told="ulps")))
    else:
        known.append((Accumulated, Rule(ulps=0, near=True, flush=True, error="share", told="number")))
    found = next((rule for kind, rule in known if isinstance(tolerance, kind)), None)
    if found is None:
        raise NotSupported(f"pages cannot judge by {type(tolerance).__name__}")
    return found


def numbers_of(tolerance: Tolerance, rule: Rule, expected: Array, magnitude: Bound | None) -> Bound | None:
    """Return the number of each element that a rule speaks of; None where it speaks of none."""
    if not rule.near:
        return None
    if isinstance(tolerance, LogarithmOfSum):
        return np.broadcast_to(tolerance.lost(magnitude), expected.shape)
    if isinstance(tolerance, RoundedSum):
        assert magnitude is not None
        return np.broadcast_to(np.where(magnitude < 1e-4, 1.0, 0.0), expected.shape)
    return np.broadcast_to(tolerance.bound(expected, magnitude), expected.shape).astype(np.float64)
