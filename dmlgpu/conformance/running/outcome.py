"""What came of a case on an adapter, and how that is written down."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from dmlgpu.conformance.running import fields
from dmlgpu.conformance.running.comparison import Verdict
from dmlgpu.conformance.running.wording import bound_text, ulp_text, wrong_text

KERNELS = "kernels"
"""In JSON, the field that names what ran."""

_COMPILE_ERROR = re.compile(r"does not compile on (.*)")
"""What errors of kernels have in common that come from one line of a shader; operator and kernel stand before it."""


class Status(enum.StrEnum):
    """What came of a case."""

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
        """Whether a run that holds nothing else has passed."""
        return self in (Status.PASS, Status.NOT_SUPPORTED, Status.EXPECTED_FAIL)

    @property
    def is_failure(self) -> bool:
        """Whether the adapter did something wrong, whoever expected it."""
        return self in (Status.FAIL, Status.FLAKY, Status.CRASH, Status.TIME_OUT, Status.DEVICE_LOST)


@dataclass(frozen=True)
class Outcome:
    """One case on one adapter.

    Attributes:
        case: its name.
        status: what came of it.
        tolerance: the class of its bound.
        of_bound: the largest error, in units of what is allowed: 0.6 is right, 2 is not; 0 is exact. None
            where nothing was compared, infinite where no such error is allowed.
        max_ulp, mean_ulp: distance from the reference, in numbers of the type; None where nothing was compared.
            Infinite where a number was due and none came.
        wrong, elements: how many elements were wrong, of how many.
        worst: coordinate of the worst element.
        inputs, expected, got, bound: there, as text: what went in (of inputs of the output's sizes), what was due, what
            came, and the largest difference allowed.
        message: what went wrong, or why the adapter refused.
        missing: the adapter feature for want of which it refused.
        reason: why a failure was expected.
        digest: of the bits of all outputs.
        kernels: labels of kernels and their shader files: those that ran, or would have run where the case ended
            before; empty on ``numpy`` and where nothing was compiled.
        seconds: wall time, compilation included.
        measured: further errors by name, each with what it is told in: ``rms``, of the results' (suite
            ``operator_accuracy``).
        curve: largest ULP distance over a range of inputs, as points (binary exponent of the input, distance) in the
            order of the exponents; empty where a case measures none. The exponent of subnormals is -127.
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

    @property
    def operator(self) -> str:
        """The operator's stem, ``gather_nd1``."""
        return self.case.partition("-")[0]

    @property
    def compile_error(self) -> str:
        """The adapter and why a kernel does not compile there: the same for all kernels that have this fault, whatever
        numbers compilers give to expressions. Empty for other outcomes."""
        found = _COMPILE_ERROR.search(self.message)
        return re.sub(r"\[\d+\]", "[]", found[1]) if found else ""

    @property
    def wrong_elements(self) -> str:
        """How many elements are wrong and which is the worst, in a sentence; empty where none is."""
        if not self.wrong:
            return ""
        given = f" from {', '.join(self.inputs)}" if self.inputs else ""
        return (
            f"{wrong_text(self.wrong, self.elements)}; the worst, at {list(self.worst)}: expected {self.expected}, "
            f"got {self.got}{given}; "
            f"{bound_text(self.of_bound)}, at most {ulp_text(self.max_ulp)}, "
            f"allowed difference {self.bound or 0.0:g} ({self.tolerance})"
        )

    @classmethod
    def of_verdict(cls, case: str, tolerance: str, verdict: Verdict, seconds: float) -> Outcome:
        """What a comparison says."""
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
        )

    def expected_to_fail(self, reason: str) -> Outcome:
        """The same where somebody expected a failure: that is fine, and a pass is not."""
        if self.status.is_failure:
            return replace(self, status=Status.EXPECTED_FAIL, reason=reason)
        return replace(self, status=Status.UNEXPECTED_PASS, reason=reason) if self.status is Status.PASS else self

    def to_json(self) -> dict[str, Any]:
        """Without what is empty; infinities as text, which JSON has no number for."""
        values = {name: _as_json(value) for name, value in asdict(self).items()}
        return {name: value for name, value in values.items() if value not in (None, "", [], {})}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Outcome:
        """What ``to_json`` made.

        Raises:
            ValueError: when it is something else.
        """
        return cls(**fields.read_fields(record, _READERS, "case", "status"))


_READERS: Mapping[str, fields.Reader[Any]] = {
    **dict.fromkeys(
        ("case", "tolerance", "expected", "got", "message", "missing", "reason", "digest"),
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
        return {name: _as_json(one) for name, one in value.items()}
    return [_as_json(one) for one in value] if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    """A number with all its digits, whatever its type."""
    return "" if value is None else str(value)
