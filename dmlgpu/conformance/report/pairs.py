"""Adapters compared with each other: which agree, and who differs from the others on what."""

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
    """The comparison of two adapters.

    Attributes:
        adapters: their labels.
        pairs: one per case.
    """

    adapters: tuple[str, str]
    pairs: tuple[AdapterPair, ...]

    @cached_property
    def counts(self) -> Mapping[Agreement, int]:
        """How many cases came out how."""
        return Counter(pair.agreement for pair in self.pairs)

    @property
    def same_bits(self) -> int:
        """On how many cases there is no difference at all."""
        return sum(pair.distance is not None and not pair.distance.differing for pair in self.pairs)

    @property
    def of_bound(self) -> float | None:
        """The largest difference, in units of what is allowed; None where nothing was compared."""
        return max((pair.distance.of_bound for pair in self.pairs if pair.distance is not None), default=None)


@dataclass(frozen=True)
class Disagreement:
    """A case on which adapters do not agree.

    Attributes:
        case: its name.
        outlier: the adapter that differs from the others, which agree; empty where there is none such.
        pairs: those that disagree, or have no result.
        command: compares all of them again.
    """

    case: str
    outlier: str
    pairs: tuple[AdapterPair, ...]
    command: str

    @property
    def kernels(self) -> tuple[str, ...]:
        """What ran, a text for the adapters that ran the same."""
        return kernels_of(self.pairs)


@dataclass(frozen=True)
class PairReport:
    """A comparison as tables.

    Attributes:
        comparison: what was compared.
    """

    comparison: Comparison

    @property
    def agreements(self) -> tuple[Agreement, ...]:
        """The agreements that occur, in the order of ``Agreement``."""
        return tuple(
            agreement for agreement in Agreement if any(pair.agreement is agreement for pair in self.comparison.pairs)
        )

    @property
    def rows(self) -> tuple[PairCounts, ...]:
        """One per two adapters."""
        return tuple(PairCounts(adapters, pairs) for adapters, pairs in self.comparison.by_adapters.items())

    @property
    def alone(self) -> Mapping[str, int]:
        """Per adapter, on how many cases it alone differs from the others."""
        counts = Counter(dispute.outlier for dispute in self.disagreements)
        return {label: counts[label] for label in self.comparison.facts["adapters"]}

    @cached_property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """By the case's name."""
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
    """What ran on the adapters of some pairs of a case, as far as these say it: a text for those that ran the same."""
    by_adapter = {
        label: kernels for pair in pairs for label, kernels in zip(pair.adapters, pair.kernels, strict=False) if kernels
    }
    by_kernels: dict[tuple[str, ...], list[str]] = {}
    for label, kernels in by_adapter.items():
        by_kernels.setdefault(kernels, []).append(label)
    return tuple(f"{', '.join(labels)} ran as: {'; '.join(kernels)}" for kernels, labels in by_kernels.items())


def difference(pair: AdapterPair) -> str:
    """Who differs from whom by how much, or why there is no result."""
    if pair.distance is None or not pair.distance.wrong:
        return pair.message or str(pair.agreement)
    apart = pair.distance
    output, *position = apart.worst
    return (
        f"{apart.wrong:,} of {counted(apart.elements, 'element')}; the worst, at {position} of output {output}: "
        f"{' and '.join(apart.values)}; "
        f"{error_text(apart.of_bound, apart.max_ulp, apart.allowed, pair.tolerance)}"
    )
