"""Results of cases: comparison with the reference, recording, and text."""

from __future__ import annotations

import datetime
import enum
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import counted
from dmlgpu.conformance.cases.tolerance import Array, Bound, Tolerance, may_flush, ulp_distance
from dmlgpu.conformance.running import fields
from dmlgpu.conformance.running.places import describe_places

_EXPONENT_FROM = 1e7
"""Larger numbers are written with an exponent."""

_TIMES_FROM = 10
"""Errors of at least this multiple of the tolerance are written as a multiple, others in per cent."""


def bound_text(error: float | None) -> str:
    """Format an error relative to its tolerance.

    ``63 % of the tolerance``, ``28,200 times the tolerance``, ``exact``, or ``out of tolerance`` if the ratio is
    infinite; empty for None.
    """
    if error is None or error == 0 or math.isinf(error):
        return share_text(error)
    return f"{share_text(error)} {'the' if error >= _TIMES_FROM else 'of the'} tolerance"


def share_text(error: float | None) -> str:
    """Return the short text of an error relative to its tolerance: ``63 %``, ``28,200 times``."""
    if error is None:
        return ""
    if math.isinf(error):
        return "out of tolerance"
    if error == 0:
        return "exact"
    if error >= _TIMES_FROM:
        return f"{_number(error)} times"
    return _percent(100 * error)


def _percent(percent: float) -> str:
    """Format per cent: whole numbers, two digits below ten; more than the tolerance is never shown as 100 %."""
    if percent < 0.1:
        return "below 0.1 %"
    text = f"{percent:.2g}" if percent < 9.95 else f"{percent:.0f}"
    return "just over 100 %" if text == "100" and percent > 100 else f"{text} %"


def ulp_text(distance: float | None) -> str:
    """Return ``3 ULP``, ``28,200 ULP``; empty for None."""
    if distance is None:
        return ""
    return "not comparable" if math.isinf(distance) else f"{_number(distance)} ULP"


def error_text(error: float | None, max_ulp: float | None, bound: float, tolerance: str) -> str:
    """Return the error of a wrong result and its tolerance: ``3.2 times the tolerance, 12 ULP off, allowed
    difference 1e-6 (2 ULP)``, ``not comparable (NaN or infinity), must be exact``."""
    of_bound = "" if error is None or math.isinf(error) else bound_text(error)
    is_far = max_ulp is not None and math.isinf(max_ulp)
    distance = "not comparable (NaN or infinity)" if is_far else "" if max_ulp is None else f"{ulp_text(max_ulp)} off"
    allowed = f"allowed difference {bound:g}" + (f" ({tolerance})" if tolerance else "") if bound else "must be exact"
    return ", ".join(filter(None, (of_bound, distance, allowed)))


def wrong_text(wrong: int, elements: int, places: str = "") -> str:
    """Return ``1 of 4 elements is wrong``, ``2 of 4 elements are wrong, the last ones``."""
    text = f"{wrong:,} of {counted(elements, 'element')} {'is' if wrong == 1 else 'are'} wrong"
    return f"{text}, {places}" if places else text


def moment_text(moment: str) -> str:
    """Format an ISO 8601 time with its time zone: ``2026-11-22 17:59 UTC``; other text is unchanged."""
    try:
        time = datetime.datetime.fromisoformat(moment)
    except ValueError:
        return moment
    if time.tzinfo is None:
        return f"{time:%Y-%m-%d %H:%M}"
    return f"{time:%Y-%m-%d %H:%M} {'UTC' if not time.utcoffset() else time.isoformat()[-6:]}"


def _number(value: float) -> str:
    """Format with three digits."""
    if value >= _EXPONENT_FROM:
        return f"{value:.2e}".replace("e+0", "e+")
    rounded = float(f"{value:.3g}")
    return f"{rounded:,g}" if value < 1000 else f"{rounded:,.0f}"


@dataclass(frozen=True)
class Verdict:
    """Comparison of one output with the reference.

    Attributes:
        ok: Whether all elements are within tolerance and nothing else failed.
        of_bound: Largest error relative to the tolerance: at most 1 if all is right.
        max_ulp, mean_ulp: Error in ULP (largest of wrong elements, if any); for integers the difference.
        wrong: Number of wrong elements.
        worst: Index of the element with the largest error (of the wrong ones, if any).
        places: Where the wrong elements are (see ``describe_places``).
        expected, got, bound: Values there, and the largest allowed difference.
        problem: Failure other than wrong values: wrong type, out-of-bounds writes, elements never written.
        inputs: Elements at ``worst`` of inputs with the output's shape.
        digest: Hash of the bits of all outputs of the case.
        kernels: Labels of kernels and their shader files; empty on ``numpy``.
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
    places: str = ""

    def __str__(self) -> str:
        if self.ok:
            return f"ok ({bound_text(self.of_bound)}, max {self.max_ulp:g} ULP, mean {self.mean_ulp:.3g} ULP)"
        values = (
            f"{wrong_text(self.wrong, self.elements, self.places)}; the worst, at {list(self.worst)}: expected "
            f"{self.expected}, got {self.got}; {error_text(self.of_bound, self.max_ulp, self.bound, '')}"
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
        places=describe_places(wrong),
    )


DEVICE = "device"
"""Missing feature of cases on an adapter whose driver creates no device."""

KERNELS = "kernels"
"""JSON field with the names of the kernels."""

_COMPILE_ERROR = re.compile(r"does not compile on (.*)")
"""Common part of compile errors caused by one line of a shader; operator and kernel precede it."""


class Status(enum.StrEnum):
    """Status of a case."""

    PASS = "pass"
    FAIL = "fail"
    NOT_SUPPORTED = "not supported"
    EXPECTED_FAIL = "expected fail"
    UNEXPECTED_PASS = "unexpected pass"
    FLAKY = "flaky"
    CRASH = "crash"
    TIME_OUT = "time-out"
    DEVICE_LOST = "device lost"

    @property
    def is_good(self) -> bool:
        """Whether a run with only this status has passed."""
        return self in (Status.PASS, Status.NOT_SUPPORTED, Status.EXPECTED_FAIL)

    @property
    def is_failure(self) -> bool:
        """Whether the adapter failed, expected or not."""
        return self in (Status.FAIL, Status.FLAKY, Status.CRASH, Status.TIME_OUT, Status.DEVICE_LOST)


@dataclass(frozen=True)
class Outcome:
    """Result of a case on an adapter.

    Attributes:
        case: Name of the case.
        status: Status.
        tolerance: Class of its tolerance.
        of_bound: Largest error relative to the tolerance: 0.6 passes, 2 fails, 0 is exact. None if nothing was
            compared, infinite if no such error is allowed.
        max_ulp, mean_ulp: Error in ULP; None if nothing was compared. Infinite if a NaN or infinity differs.
        wrong, elements: Number of wrong elements, and of all elements.
        worst: Index of the worst element.
        places: Where the wrong elements are (see ``describe_places``).
        inputs, expected, got, bound: Values there, as text: inputs (of the output's shape), expected, actual, and the
            largest allowed difference.
        message: What failed, or why the adapter does not support the case.
        missing: Missing adapter feature, if not supported; ``device`` if the driver creates none on the adapter.
        reason: Reason why a failure was expected.
        digest: Hash of the bits of all outputs.
        kernels: Labels of kernels and their shader files that ran, or would have run if the case ended before; empty on
            ``numpy`` and if nothing was compiled.
        seconds: Wall time, including compilation.
        measured: Further errors by name with units: ``rms``, of the results (suite ``operator_accuracy``).
        curve: Largest error in ULP by binary exponent of the input, ascending; empty if not measured. The exponent of
            subnormals is -127.
    """

    case: str
    status: Status
    tolerance: str = ""
    of_bound: float | None = None
    max_ulp: float | None = None
    mean_ulp: float | None = None
    wrong: int = 0
    elements: int = 0
    worst: tuple[int, ...] = ()
    inputs: tuple[str, ...] = ()
    expected: str = ""
    got: str = ""
    bound: float | None = None
    message: str = ""
    missing: str = ""
    reason: str = ""
    digest: str = ""
    seconds: float = 0.0
    measured: dict[str, float] = field(default_factory=dict, hash=False)
    curve: tuple[tuple[float, float], ...] = ()
    kernels: tuple[str, ...] = ()
    places: str = ""

    @property
    def operator(self) -> str:
        """Stem of the operator, ``gather_nd1``."""
        return self.case.partition("-")[0]

    @property
    def compile_error(self) -> str:
        """The adapter and its compile error, equal for all kernels with the same fault; empty for other results."""
        match = _COMPILE_ERROR.search(self.message)
        return re.sub(r"\[\d+\]", "[]", match[1]) if match else ""

    @property
    def wrong_elements(self) -> str:
        """Number of wrong elements and the worst one, as a sentence; empty if none is wrong."""
        if not self.wrong:
            return ""
        source = f" from {', '.join(self.inputs)}" if self.inputs else ""
        error = error_text(self.of_bound, self.max_ulp, self.bound or 0.0, self.tolerance)
        return (
            f"{wrong_text(self.wrong, self.elements, self.places)}; the worst, at {list(self.worst)}: "
            f"expected {self.expected}, got {self.got}{source}; {error}"
        )

    @classmethod
    def of_verdict(cls, case: str, tolerance: str, verdict: Verdict, seconds: float) -> Outcome:
        """Return the result of a comparison."""
        return cls(
            case,
            Status.PASS if verdict.ok else Status.FAIL,
            tolerance,
            verdict.of_bound,
            verdict.max_ulp,
            verdict.mean_ulp,
            verdict.wrong,
            verdict.elements,
            verdict.worst,
            tuple(map(_text, verdict.inputs)),
            _text(verdict.expected),
            _text(verdict.got),
            verdict.bound,
            verdict.problem,
            digest=verdict.digest,
            seconds=seconds,
            kernels=verdict.kernels,
            places=verdict.places,
        )

    def expected_to_fail(self, reason: str) -> Outcome:
        """Return the result for a case that was expected to fail: a failure is good, a pass is not."""
        if self.status.is_failure:
            return replace(self, status=Status.EXPECTED_FAIL, reason=reason)
        return replace(self, status=Status.UNEXPECTED_PASS, reason=reason) if self.status is Status.PASS else self

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object without empty fields; infinities are text."""
        values = {name: _as_json(value) for name, value in asdict(self).items()}
        return {name: value for name, value in values.items() if value not in (None, "", [], {})}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Outcome:
        """Read the result of ``to_json``.

        Raises:
            ValueError: If the record is malformed.
        """
        return cls(**fields.read_fields(record, _READERS, "case", "status"))


_READERS: Mapping[str, fields.Reader[Any]] = {
    **dict.fromkeys(
        ("case", "tolerance", "expected", "got", "message", "missing", "reason", "digest", "places"),
        fields.text,
    ),
    **dict.fromkeys(("of_bound", "max_ulp", "mean_ulp", "bound"), fields.error),
    **dict.fromkeys(("wrong", "elements"), fields.count),
    "status": fields.member_of(Status),
    "worst": fields.list_of(fields.count),
    "inputs": fields.list_of(fields.text),
    "kernels": fields.list_of(fields.text),
    "seconds": fields.seconds,
    "measured": fields.mapping_of(fields.error),
    "curve": fields.list_of(fields.point),
}


def _as_json(value: Any) -> Any:
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    """Return a number with all its digits."""
    return "" if value is None else str(value)
