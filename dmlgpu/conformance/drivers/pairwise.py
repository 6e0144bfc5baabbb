"""Adapters compared with each other, without the reference: who differs from the others, where, and by how much.

Two results agree where some expected result would let both be right: so they may be twice as far from each other as
each from the truth, and moved data and integers have the same bits. Subnormal inputs, which adapters may take for zero,
are zeros from the beginning; outputs start with other contents on each adapter, so that what none of them writes
differs.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.cases.case import Array
from dmlgpu.conformance.cases.tolerance import Bound, Exact, Tolerance, as_bits, ulp_distance
from dmlgpu.conformance.running import fields

BLOCK = 1 << 20
"""Elements that are compared at a time: the memory that a comparison takes does not grow with the outputs."""


@dataclass(frozen=True)
class Allowance:
    """Allowed distance of results from the true result.

    Attributes:
        tolerance: Class of the tolerance.
        measure: Returns what it needs to know of each output; called if two results differ.
        is_unique: Whether there is one correct result; with several, adapters may differ.
    """

    tolerance: Tolerance
    measure: Callable[[], tuple[Bound | None, ...]] = tuple
    is_unique: bool = True

    @functools.cached_property
    def magnitudes(self) -> tuple[Bound | None, ...]:
        """Magnitudes by ``measure``; empty if the tolerance needs none."""
        return self.measure()


# ---- distances -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Distance:
    """Difference of two results.

    Attributes:
        elements: Number of elements.
        differing: Elements whose bits differ.
        wrong: Elements too far apart for both to be right.
        of_bound: Largest difference (of wrong elements, if any) relative to the tolerance.
        max_ulp: The same in ULP.
        worst: Index of the output, and of the element with the largest difference.
        values: Values there, as text.
        allowed: Largest allowed difference there.
    """

    elements: int
    differing: int = 0
    wrong: int = 0
    of_bound: float = 0.0
    max_ulp: float = 0.0
    worst: tuple[int, ...] = ()
    values: tuple[str, ...] = ()
    allowed: float = 0.0

    def combined_with(self, other: Distance) -> Distance:
        """Return the sum of both allowances."""
        worse = max(self, other, key=lambda distance_: (distance_.wrong > 0, distance_.of_bound, distance_.max_ulp))
        counted = [distance_ for distance_ in (self, other) if distance_.wrong or not worse.wrong]
        return replace(
            worse,
            max_ulp=max(distance_.max_ulp for distance_ in counted),
            elements=self.elements + other.elements,
            differing=self.differing + other.differing,
            wrong=self.wrong + other.wrong,
        )


def distance(a: Sequence[Array], b: Sequence[Array], allowance: Allowance) -> Distance:
    """Return the distance of one adapter's outputs from another's.

    Raises:
        InvalidArgument: If they are not of the same types and sizes.
    """
    kinds = [[(array.dtype, array.shape) for array in arrays] for arrays in (a, b)]
    if kinds[0] != kinds[1]:
        raise InvalidArgument(f"outputs of equal types and sizes are needed, got {kinds[0]} and {kinds[1]}")
    magnitudes = allowance.magnitudes or (None,) * len(a)
    distances = (
        _distance_of_block(index, start, arrays, allowance.tolerance, magnitude)
        for index, (*arrays, magnitude) in enumerate(zip(a, b, magnitudes, strict=True))
        for start in range(0, arrays[0].size, BLOCK)
    )
    return functools.reduce(Distance.combined_with, distances, Distance(0))


def _distance_of_block(
    index: int, start: int, arrays: Sequence[Array], tolerance: Tolerance, magnitude: Bound | None
) -> Distance:
    """Return the distance over some elements of one output."""
    a, b = (np.asarray(array.reshape(-1)[start : start + BLOCK]) for array in arrays)
    differing = int((as_bits(a) != as_bits(b)).sum())
    if not differing:
        return Distance(a.size)
    if magnitude is not None:
        magnitude = np.broadcast_to(magnitude, arrays[0].shape).reshape(-1)[start : start + BLOCK]
    right, flushed = agreement(a, b, tolerance, magnitude)
    apart = np.where(flushed, 0.0, ulp_distance(a, b))
    allowed = tolerance.bound(a, magnitude) + tolerance.bound(b, magnitude)
    errors = np.where(flushed, 0.0, _errors(a, b, allowed, right))
    counted = right if right.all() else ~right
    largest = counted & (errors == errors[counted].max())
    worst = int(np.where(largest, apart, -1).argmax())
    position = np.unravel_index(start + worst, arrays[0].shape)
    return Distance(
        a.size,
        differing,
        int((~right).sum()),
        float(errors[worst]),
        float(apart[counted].max()),
        (index, *map(int, position)),
        (str(a[worst]), str(b[worst])),
        float(allowed[worst]),
    )


def _errors(a: Array, b: Array, allowed: Bound, right: NDArray[np.bool_]) -> Bound:
    """Differences relative to the tolerance: at most 1 if both can be right, infinite if no difference is allowed."""
    with np.errstate(all="ignore"):
        shares = np.abs(a.astype(np.float64) - b.astype(np.float64)) / allowed
    shares = np.where(np.isfinite(shares), shares, np.where(right, 0.0, np.inf))
    return np.where(right, np.minimum(shares, 1.0), shares)


def agreement(
    a: Array, b: Array, tolerance: Tolerance, magnitude: Bound | None = None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the mask of elements that can both be correct, and the mask of those among them that need a flushed
    subnormal."""
    right = tolerance.accepts(a, b, magnitude) | tolerance.accepts(b, a, magnitude)
    none = np.zeros(a.shape, np.bool_)
    if a.dtype.kind != "f" or isinstance(tolerance, Exact):
        return right, none
    bounds = tolerance.bound(a, magnitude), tolerance.bound(b, magnitude)
    with np.errstate(invalid="ignore", over="ignore"):
        wide = a.astype(np.float64), b.astype(np.float64)
        difference = np.abs(wide[0] - wide[1])
    right |= (difference > 0) & np.isfinite(difference) & (difference <= bounds[0] + bounds[1])
    if not tolerance.flush_to_zero or a.dtype.itemsize < 4:
        return right, none
    tiny = float(np.finfo(a.dtype).smallest_normal)
    flushed = (a == 0) & (np.abs(wide[1]) <= tiny + bounds[1]) | (b == 0) & (np.abs(wide[0]) <= tiny + bounds[0])
    return right | flushed, flushed


# ---- pairs -----------------------------------------------------------------------------------------------------------


class Agreement(enum.StrEnum):
    """Agreement of two adapters on a case."""

    AGREE = "agree"
    DISAGREE = "disagree"
    NO_RESULT = "no result"  # one crashed, hung, wrote out of bounds, or differed from itself
    EXPECTED = "expected"  # to disagree, or to have no result
    NOT_SUPPORTED = "not supported"
    UNDECIDED = "undecided"  # they differ where several results are right

    @property
    def is_good(self) -> bool:
        """Whether a run with only such pairs has passed."""
        return self not in (Agreement.DISAGREE, Agreement.NO_RESULT)


@dataclass(frozen=True)
class AdapterPair:
    """One case on two adapters.

    Attributes:
        case: Name of the case.
        adapters: Labels of the two adapters.
        agreement: Whether they agree.
        tolerance: Class of the bound.
        distance: Difference of the results; None if an adapter has no result.
        message: Reason why a result is missing, or a disagreement is accepted.
        kernels: If the results differ too much, the kernels of each adapter, one string per kernel.
    """

    case: str
    adapters: tuple[str, str]
    agreement: Agreement
    tolerance: str = ""
    distance: Distance | None = None
    message: str = ""
    kernels: tuple[tuple[str, ...], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the non-empty fields as JSON; infinity as text, since JSON has no number for it."""
        record = _filled(asdict(self))
        if "distance" in record:
            record["distance"] = _filled(record["distance"])
            infinite = [name for name in _FLOATS if np.isinf(record["distance"].get(name, 0.0))]
            record["distance"] |= dict.fromkeys(infinite, "inf")
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> AdapterPair:
        """Read the result of ``to_json``.

        Raises:
            ValueError: If it is something else.
        """
        return cls(**fields.read_fields(record, _READERS, "case", "adapters", "agreement"))


_FLOATS = ("of_bound", "max_ulp")
"""Fields of a distance that may be infinite."""


def _read_distance(value: Any) -> Distance:
    read = Distance(**fields.read_fields(value, _DISTANCE_READERS, "elements"))
    if read.wrong and not (read.worst and read.values):
        raise ValueError("must say which element is the worst, and its values")
    return read


def _read_labels(value: Any) -> tuple[str, ...]:
    labels = fields.list_of(fields.text)(value)
    if len(labels) != 2:
        raise ValueError(f"must be two labels, got {len(labels)}")
    return labels


_DISTANCE_READERS: Mapping[str, fields.Reader[Any]] = {
    **dict.fromkeys(("elements", "differing", "wrong"), fields.count),
    **dict.fromkeys((*_FLOATS, "allowed"), fields.error),
    "worst": fields.list_of(fields.count),
    "values": fields.list_of(fields.text),
}
_READERS: Mapping[str, fields.Reader[Any]] = {
    **dict.fromkeys(("case", "tolerance", "message"), fields.text),
    "adapters": _read_labels,
    "agreement": fields.member_of(Agreement),
    "distance": _read_distance,
    "kernels": fields.list_of(fields.list_of(fields.text)),
}


def _filled(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value}


def expected_to_disagree(pair: AdapterPair, reason: str) -> AdapterPair:
    """Return the pair, with a disagreement marked as expected."""
    return pair if pair.agreement.is_good else replace(pair, agreement=Agreement.EXPECTED, message=reason)


def outlier(pairs: Iterable[AdapterPair]) -> str:
    """Return the adapter with which no other agrees while these agree among themselves, of one case; "" if there is
    none.

    It takes three adapters; those that reject the case don't count.
    """
    counted = [pair for pair in pairs if pair.agreement not in (Agreement.NOT_SUPPORTED, Agreement.UNDECIDED)]
    for adapter in dict.fromkeys(adapter for pair in counted for adapter in pair.adapters):
        its = [pair for pair in counted if adapter in pair.adapters]
        others = [pair for pair in counted if adapter not in pair.adapters]
        if (
            others
            and all(pair.agreement is Agreement.AGREE for pair in others)
            and not any(pair.agreement is Agreement.AGREE for pair in its)
        ):
            return adapter
    return ""


@dataclass(frozen=True)
class Comparison:
    """Cases compared between adapters.

    Attributes:
        facts: Versions, adapters, list of cases.
        pairs: Pairs of all cases.
        is_complete: Whether the run was completed.
    """

    facts: dict[str, Any]
    pairs: tuple[AdapterPair, ...]
    is_complete: bool = True

    @functools.cached_property
    def by_case(self) -> Mapping[str, tuple[AdapterPair, ...]]:
        """The pairs of each case."""
        pairs_of: dict[str, list[AdapterPair]] = {}
        for pair in self.pairs:
            pairs_of.setdefault(pair.case, []).append(pair)
        return {case: tuple(pairs) for case, pairs in pairs_of.items()}

    @functools.cached_property
    def by_adapters(self) -> Mapping[tuple[str, str], tuple[AdapterPair, ...]]:
        """The pairs of each two adapters."""
        pairs_of: dict[tuple[str, str], list[AdapterPair]] = {}
        for pair in self.pairs:
            pairs_of.setdefault(pair.adapters, []).append(pair)
        return {labels: tuple(pairs) for labels, pairs in pairs_of.items()}

    @property
    def disagreements(self) -> tuple[tuple[str, str, tuple[AdapterPair, ...]], ...]:
        """Cases on which adapters disagree, the adapter that differs from all others ("" if none does), the pairs."""
        return tuple(
            (case, outlier(pairs), pairs)
            for case, pairs in self.by_case.items()
            if not all(pair.agreement.is_good for pair in pairs)
        )
