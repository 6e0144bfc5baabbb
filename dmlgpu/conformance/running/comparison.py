"""Comparing a result with the reference, element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.conformance.cases.tolerance import Array, Bound, Tolerance, may_flush, ulp_distance
from dmlgpu.conformance.running.wording import bound_text, wrong_text


@dataclass(frozen=True)
class Verdict:
    """What came of comparing one output.

    Attributes:
        ok: whether every element is right and nothing else went wrong.
        of_bound: the largest error, in units of what is allowed: at most 1 where all is right.
        max_ulp, mean_ulp: distance of the results (the largest of wrong ones, if any), in numbers of the type; for
            integers the difference.
        wrong: number of wrong elements.
        worst: coordinate of the element with the largest error (of the wrong ones, if any).
        expected, got, bound: values there, and the largest difference allowed.
        problem: what went wrong beside values: a wrong type, bytes written out of bounds, elements never written.
        inputs: elements of the inputs at ``worst``, of those that have the output's sizes.
        digest: of the bits of all outputs of the case.
        kernels: what ran: labels of kernels and their shader files; empty on ``numpy``.
    """

    ok: bool
    of_bound: float = 0.0
    max_ulp: float = 0.0
    mean_ulp: float = 0.0
    wrong: int = 0
    elements: int = 0
    worst: tuple[int, ...] = ()
    expected: Any = None
    got: Any = None
    bound: float = 0.0
    problem: str = ""
    inputs: tuple[Any, ...] = ()
    digest: str = ""
    kernels: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.ok:
            return f"ok ({bound_text(self.of_bound)}, max {self.max_ulp:g} ULP, mean {self.mean_ulp:.3g} ULP)"
        values = (
            f"{wrong_text(self.wrong, self.elements)}; the worst is {list(self.worst)}: "
            f"expected {self.expected!r}, got {self.got!r}, {bound_text(self.of_bound)}, at most {self.max_ulp:g} ULP "
            f"away, allowed difference {self.bound:g}"
        )
        return "; ".join(text for text in (self.problem, values if self.wrong else "") if text)


def compare(expected: Array, got: Array, tolerance: Tolerance, magnitude: Bound | None = None) -> Verdict:
    """Compare a result with the reference."""
    if expected.dtype != got.dtype or expected.shape != got.shape:
        kinds = [f"{DataType.from_numpy(a.dtype).name} {list(a.shape)}" for a in (expected, got)]
        return Verdict(False, of_bound=np.inf, problem=f"expected {kinds[0]}, got {kinds[1]}")
    wrong = ~tolerance.accepts(expected, got, magnitude)
    errors = tolerance.errors(expected, got, magnitude)
    distance = ulp_distance(expected, got)
    if tolerance.flush_to_zero:
        distance[may_flush(expected) & (got == 0)] = 0
    counted = wrong if wrong.any() else ~wrong
    # Elements with wrong bits may have equal values: a NaN's payload, a zero's sign.
    largest = counted & (errors == errors[counted].max())
    worst = tuple(int(i) for i in np.unravel_index(np.where(largest, distance, -1).argmax(), distance.shape))
    finite = distance[np.isfinite(distance)]
    return Verdict(
        ok=not wrong.any(),
        of_bound=float(errors[worst]),
        max_ulp=float(distance[wrong].max() if wrong.any() else finite.max(initial=0)),
        mean_ulp=float(finite.mean()) if finite.size else 0.0,
        wrong=int(wrong.sum()),
        elements=expected.size,
        worst=worst,
        expected=expected[worst],
        got=got[worst],
        bound=float(tolerance.bound(expected, magnitude)[worst]),
    )
