"""Keys, which name cases; few keys that cover the properties of many; and the profiles that choose among cases."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.conformance.cases.layouts import TensorLayout

Types = tuple[DataType, ...]
Sizes = tuple[int, ...]
SizesList = tuple[Sizes, ...]

PLAIN = ""
"""Variant: nothing special."""
OWNED = "owned"
"""Variant: one input is OWNED_BY_DML."""
INPLACE = "inplace"
"""Variant: the output shares an input's buffer."""


@dataclass(frozen=True)
class Key:
    """Parameters that identify a case.

    Attributes:
        types: Data types, in a fixed order per operator.
        sizes: Sizes of the (first) input.
        layout: Memory layout of the tensors.
        variant: Special property, or empty.
        seed: Distinguishes cases that are equal otherwise.
    """

    types: Types
    sizes: Sizes
    layout: TensorLayout
    variant: str = PLAIN
    seed: int = 0

    def __str__(self) -> str:
        parts = [*(t.name.lower() for t in self.types), "x".join(map(str, self.sizes)), self.layout.value]
        return "-".join([*parts, *([self.variant] if self.variant else []), f"s{self.seed}"])


@dataclass(frozen=True)
class Combination:
    """The properties that a key combines, before sizes are drawn."""

    types: Types
    layout: TensorLayout
    variant: str
    rank: int


def covering(combinations: Sequence[Combination], candidates: int) -> Iterator[Combination]:
    """Yield the combinations in an order whose beginnings cover as many pairs of properties as few of them can.

    Greedy: of some candidates, always the one with most properties (types, layout, variant, rank), then pairs of
    them, not met before. Seeded, so the order never changes.
    """
    rng = np.random.default_rng(len(combinations))
    order = [combinations[i] for i in rng.permutation(len(combinations))]
    bits: dict[object, int] = {}
    remaining: list[tuple[Combination, int, int]] = []
    met = 0
    while order or remaining:
        fresh, order = order[: candidates - len(remaining)], order[candidates - len(remaining) :]
        remaining += [(combination, *_coverage(combination, bits)) for combination in fresh]
        # A property is worth more than all pairs of a combination.
        scores = [100 * (single & ~met).bit_count() + (pairs & ~met).bit_count() for _, single, pairs in remaining]
        chosen, single, pairs = remaining.pop(scores.index(max(scores)))
        met |= single | pairs
        yield chosen


def _coverage(combination: Combination, bits: dict[object, int]) -> tuple[int, int]:
    """Return the properties of a combination, and the pairs of them, as bits; ``bits`` numbers those met so far."""
    properties = [
        *enumerate(combination.types),
        ("layout", combination.layout),
        ("variant", combination.variant),
        ("rank", combination.rank),
    ]
    pairs = itertools.combinations(properties, 2)
    single, double = (sum(1 << bits.setdefault(item, len(bits)) for item in items) for items in (properties, pairs))
    return single, double


# ---- profiles --------------------------------------------------------------------------------------------------------


PROFILES = ("quick", "standard", "full")
"""Profiles, each a superset of the previous one: listed cases, a covering selection, every combination."""

QUICK = Path(__file__).with_name("quick.txt")
"""Names of cases, a line each, as ``scripts/choose_quick.py`` chose them."""

QUICK_FAULTS = Path(__file__).with_name("quick_faults.txt")
"""Names of cases that detect faults in shaders (``--suite mutants``) or render branches of templates, unlike all of the
chosen cases."""

QUICK_GPU = Path(__file__).with_name("quick_gpu.txt")
"""Names of quick cases that, under the schedules for GPUs, have all templates of schedules that quick cases have, and
each with all its barriers, atomics and subgroup operations."""


@functools.cache  # bounded: without arguments
def gpu_sample() -> frozenset[str]:
    """Return the names of the quick cases that CPU adapters also run under the schedules for GPUs."""
    return frozenset(QUICK_GPU.read_text(encoding="utf-8").split())


@functools.cache
def quick_names() -> Mapping[str, tuple[str, ...]]:
    """Return the names of the quick cases by the operator's stem."""
    names_by_stem: dict[str, list[str]] = {}
    for path in (QUICK, QUICK_FAULTS):
        for name in path.read_text(encoding="utf-8").split():
            names_by_stem.setdefault(name.partition("-")[0], []).append(name)
    return {stem: tuple(names) for stem, names in names_by_stem.items()}
