"""GPUs described by public figures, for the cost model: ``cards.toml``, and the card of a target."""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from typing import Any

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.target import Profile, Target

STREAMED = 0.9
"""Share of the published rate of a memory that a copy reaches: an estimate, replaced by a measured copy rate."""

MEASURED = ("copy", "multiply_add", "launch")
"""Names of rates that replace published figures: bytes and operations per second, and seconds (``bench.ceilings``)."""

_KIB, _MIB, _GIGA, _NANO, _MICRO = 1 << 10, 1 << 20, 1e9, 1e-9, 1e-6
_UNITS = {
    "clock": _GIGA,
    **dict.fromkeys(("memory", "l2_rate", "l3_rate"), _GIGA),
    **dict.fromkeys(("registers", "shared"), _KIB),
    **dict.fromkeys(("l2", "l3"), _MIB),
    "latency": _NANO,
    "launch": _MICRO,
}
"""Units of the numbers in the file."""


@dataclass(frozen=True)
class GpuCard:
    """A GPU. A core is a compute unit, streaming multiprocessor, Xe core, GPU core, or part of an Adreno.

    Attributes:
        name: Name, part of the adapter's name.
        source: Source of the figures.
        cores: Number of cores.
        clock: Cycles per second.
        memory: Bytes per second of the memory that a copy reaches.
        l2, l2_rate: Bytes of the cache of all cores, and bytes per second that it delivers.
        simds, lanes: SIMD units of a core, and float32 multiply-adds per cycle of all of them.
        wave: Invocations that run in lockstep.
        registers, step: Bytes of vector registers of a core; registers per lane are allocated in multiples of ``step``.
        waves: Largest number of waves on a SIMD unit.
        shared, shared_rate: Bytes of workgroup memory of a core, and bytes per cycle that it delivers.
        half, dot, integer: Multiply-adds per cycle of float16, packed int8 and 32-bit integers, divided by those of
            float32.
        matrix: The same of float16 matrices with float32 sums; 0 if there are no matrix units.
        issue: Share of the issue slots that kernels of multiply-adds only fill.
        counts_all: Whether all instructions share the issue slots of multiply-adds, not only vector instructions.
        latency: Seconds of a load from memory.
        launch: Seconds that a dispatch adds to those before it.
        l3, l3_rate: A cache after ``l2``; zeros if there is none.
        kind: ``discrete`` or ``integrated``.
        family: RADV's name of the GPU's family; empty if it is not an AMD GPU.
    """

    name: str
    source: str
    cores: int
    clock: float
    memory: float
    l2: float
    l2_rate: float
    simds: int
    lanes: int
    wave: int
    registers: float
    step: int
    waves: int
    shared: float
    shared_rate: float
    half: float
    dot: float
    integer: float
    matrix: float
    counts_all: bool
    latency: float
    launch: float
    l3: float = 0
    l3_rate: float = 0
    issue: float = 1
    kind: str = "discrete"
    family: str = ""

    @property
    def is_generic(self) -> bool:
        """Whether the card represents cards without an entry; its number of cores is not that of a real one."""
        return self.name in _GENERIC.values()

    @property
    def multiply_adds(self) -> float:
        """Float32 multiply-adds per second."""
        return self.cores * self.lanes * self.clock

    @property
    def cache(self) -> float:
        """Bytes of the last cache before memory."""
        return self.l3 or self.l2

    @property
    def cache_rate(self) -> float:
        """Bytes per second of the last cache before memory."""
        return self.l3_rate or self.l2_rate

    def waves_by_registers(self, registers: int) -> int:
        """Return the waves that fit on a SIMD unit; 0 if a wave has more registers than there are.

        Args:
            registers: Registers per lane.
        """
        allocated = -(-max(registers, 1) // self.step) * self.step
        return min(self.waves, int(self.registers / self.simds / (4 * self.wave * allocated)))

    def measured(self, ceilings: Mapping[str, float]) -> GpuCard:
        """Return the card with rates that were measured on it.

        Args:
            ceilings: Rates by name, one of ``MEASURED``; missing rates are the published ones.
        """
        rate = ceilings.get("multiply_add", 0.0) / 2
        return replace(
            self,
            memory=ceilings.get("copy") or self.memory,
            clock=rate / (self.cores * self.lanes) if rate else self.clock,
            issue=1 if rate else self.issue,
            launch=ceilings.get("launch") or self.launch,
        )


@functools.cache
def cards() -> Mapping[str, GpuCard]:
    """Return the cards of the file by name, without the generic ones."""
    return {name: card for name, card in _all().items() if name not in _GENERIC.values()}


@functools.cache
def _all() -> Mapping[str, GpuCard]:
    text = (files("dmlgpu.compiler") / "cards.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    read = (_read(record, content["architecture"][record["architecture"]]) for record in content["card"])
    return {card.name: card for card in read}


def _read(record: Mapping[str, Any], architecture: Mapping[str, Any]) -> GpuCard:
    values = {**architecture, **record}
    values["source"] = "; ".join(dict.fromkeys((record["source"], architecture["source"])))
    values["memory"] *= STREAMED
    names = {field.name for field in fields(GpuCard)}
    return GpuCard(**{name: value * _UNITS.get(name, 1) for name, value in values.items() if name in names})


_GENERIC = {Profile.DISCRETE: "a discrete GPU", Profile.INTEGRATED: "an integrated GPU"}


def find_card(name: str) -> GpuCard:
    """Return a card by its name, ignoring case; a part of the name is enough if only one card has it.

    Raises:
        InvalidArgument: If there is none; the message names the nearest and lists all.
    """
    described = {card_name.lower(): card for card_name, card in cards().items()}
    text = " ".join(name.lower().split())
    matches = [card for card_name, card in described.items() if text and text in card_name]
    if text in described or len(matches) == 1:
        return described.get(text) or matches[0]
    nearest = difflib.get_close_matches(text, described, 1, 0.0) if text else []
    hint = f"; the nearest is {described[nearest[0]].name!r}" if nearest else ""
    raise InvalidArgument(f"no card is named {name!r}{hint}; there are {', '.join(cards())}")


def card_of(target: Target) -> GpuCard:
    """Return the card of a target: the one whose name is part of the adapter's name, or whose family RADV names there,
    or else a generic one of the profile; with measured rates, if ``dmlgpu tune`` stored them."""
    card = _card_named(target.name, target.profile)
    return card.measured(dict(target.overrides.tuned.ceilings)) if target.overrides.tuned.ceilings else card


_MARKS = re.compile(r"\((?:r|tm)\)", re.IGNORECASE)
_VARIANTS = r"\b(?!\s+(?:gre|laptop|max|mobile|pro|super|ti|ultra|xt|xtx)\b)"
"""Suffixes that may not follow a card's name, since they denote another card."""


@functools.lru_cache(maxsize=64)
def _card_named(adapter: str, profile: Profile) -> GpuCard:
    text = " ".join(_MARKS.sub("", adapter).lower().split())
    described = cards().values()
    same = (card for card in described if re.search(rf"\b{re.escape(card.name.lower())}{_VARIANTS}", text))
    relatives = (card for card in described if card.family and f"radv {card.family}" in text)
    return next(same, None) or next(relatives, None) or _all()[_GENERIC.get(profile, "a discrete GPU")]
