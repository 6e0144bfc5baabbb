"""Adapters compared with each other: agreements and outliers."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from dmlgpu.common.errors import counted
from dmlgpu.conformance.drivers.pairwise import AdapterPair, Agreement, Comparison
from dmlgpu.conformance.running.outcome import error_text


@dataclass(frozen=True)
class PairCounts:
    """Comparison of two adapters.

    Attributes:
        adapters: Labels.
        pairs: One per case.
    """

    adapters: tuple[str, str]
    pairs: tuple[AdapterPair, ...]

    @cached_property
    def counts(self) -> Mapping[Agreement, int]:
        """Number of cases by agreement."""
        return Counter(pair.agreement for pair in self.pairs)

    @property
    def same_bits(self) -> int:
        """Number of cases with identical bits."""
        return sum(pair.distance is not None and not pair.distance.differing for pair in self.pairs)

    @property
    def of_bound(self) -> float | None:
        """Largest difference relative to the tolerance; None if nothing was compared."""
        return max((pair.distance.of_bound for pair in self.pairs if pair.distance is not None), default=None)


@dataclass(frozen=True)
class Disagreement:
    """A case on which adapters disagree.

    Attributes:
        case: Name.
        outlier: The adapter that differs from the others, which agree; else empty.
        pairs: Pairs that disagree, or have no result.
        command: Compares all of them again.
    """

    case: str
    outlier: str
    pairs: tuple[AdapterPair, ...]
    command: str

    @property
    def kernels(self) -> tuple[str, ...]:
        """Kernels that ran, one text per group of adapters that ran the same ones."""
        return kernels_of(self.pairs)


@dataclass(frozen=True)
class PairReport:
    """Tables of a comparison.

    Attributes:
        comparison: The comparison.
    """

    comparison: Comparison

    @property
    def agreements(self) -> tuple[Agreement, ...]:
        """Agreements that occur, in the order of ``Agreement``."""
        return tuple(
            agreement for agreement in Agreement if any(pair.agreement is agreement for pair in self.comparison.pairs)
        )

    @property
    def rows(self) -> tuple[PairCounts, ...]:
        """One row per pair of adapters."""
        return tuple(PairCounts(adapters, pairs) for adapters, pairs in self.comparison.by_adapters.items())

    @property
    def alone(self) -> Mapping[str, int]:
        """Number of cases on which an adapter alone differs, per adapter."""
        counts = Counter(dispute.outlier for dispute in self.disagreements)
        return {label: counts[label] for label in self.comparison.facts["adapters"]}

    @cached_property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """Disagreements by name of the case."""
        disputes = (
            Disagreement(
                case, outlier, tuple(pair for pair in pairs if not pair.agreement.is_good), self._command(case)
            )
            for case, outlier, pairs in self.comparison.disagreements
        )
        return tuple(sorted(disputes, key=lambda dispute: dispute.case))

    def _command(self, case: str) -> str:
        return shlex.join([*self.comparison.facts["command"], "-k", case])


def kernels_of(pairs: Iterable[AdapterPair]) -> tuple[str, ...]:
    """Return the kernels that ran on the adapters of some pairs, one text per group that ran the same ones."""
    by_adapter = {
        label: kernels for pair in pairs for label, kernels in zip(pair.adapters, pair.kernels, strict=False) if kernels
    }
    by_kernels: dict[tuple[str, ...], list[str]] = {}
    for label, kernels in by_adapter.items():
        by_kernels.setdefault(kernels, []).append(label)
    return tuple(f"{', '.join(labels)} ran as: {'; '.join(kernels)}" for kernels, labels in by_kernels.items())


def difference(pair: AdapterPair) -> str:
    """Return the adapters that differ with their distance, or the reason why there is no result."""
    if pair.distance is None or not pair.distance.wrong:
        return pair.message or str(pair.agreement)
    apart = pair.distance
    output, *position = apart.worst
    return (
        f"{apart.wrong:,} of {counted(apart.elements, 'element')}; the worst, at {position} of output {output}: "
        f"{' and '.join(apart.values)}; "
        f"{error_text(apart.of_bound, apart.max_ulp, apart.allowed, pair.tolerance)}"
    )
