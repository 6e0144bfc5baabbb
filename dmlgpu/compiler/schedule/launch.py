"""Number and size of workgroups, and the order in which a kernel visits the units of its output."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import PlanTensor
from dmlgpu.compiler.schedule.registry import by_profile
from dmlgpu.compiler.sizes.arithmetic import is_many
from dmlgpu.compiler.target import Target


@dataclass(frozen=True)
class Launch:
    """The shape of a dispatch.

    Attributes:
        workgroup: invocations of a workgroup.
        items_per_invocation: work items of one invocation: consecutive ones, ``lockstep`` items apart, or a workgroup
            apart if ``strided``.
        grid: workgroups along x, y, z; the index of a workgroup is x + y * grid[0].
        total: number of work items; indices from there on do nothing.
        subgroup: the minimum subgroup size, if the invocations of a workgroup exchange values by subgroup operations; 0
            if they only do so through workgroup memory.
        strided: whether invocations side by side take items side by side, several times.
        in_loop: whether an invocation takes its items in a loop, which compiles faster than one by one.
        lockstep: invocations of a CPU adapter that are numbered by subgroup and lane and take adjacent items, several
            times; 0 if each takes consecutive items.
    """

    workgroup: int
    items_per_invocation: int
    grid: tuple[int, int, int]
    total: int
    subgroup: int = 0
    strided: bool = False
    in_loop: bool = False
    lockstep: int = 0

    @property
    def is_full(self) -> bool:
        """Whether every invocation of the grid has all its items."""
        return self.grid[0] * self.grid[1] * self.workgroup * self.items_per_invocation == self.total


def fold(groups: int, target: Target) -> tuple[int, int, int]:
    """Return a two-dimensional grid of at least a number of workgroups.

    Raises:
        NotSupported: when not even two dimensions hold them.
    """
    limit = target.max_workgroups_per_dimension
    rows = -(-groups // limit)
    if rows > limit:
        raise NotSupported(f"{groups} workgroups exceed what {target.name!r} dispatches at once ({limit} x {limit})")
    return -(-groups // rows), rows, 1


@dataclass(frozen=True)
class LaunchSizes:
    """Sizes by which launches differ.

    Attributes:
        adjacent: Adjacent items per invocation of a map.
        item, loop, tile: Maximum invocations of a workgroup, by kind of launch.
    """

    adjacent: int
    item: int
    loop: int
    tile: int


_SIZES = by_profile(cpu=LaunchSizes(4, 64, 8, 32), gpus=LaunchSizes(1, 256, 64, 64))


def _in_workgroups(workgroup: int, total: int, target: Target, items: int = 1, strided: bool = False) -> Launch:
    """Return one invocation per some items, in workgroups of a size, or the largest that the adapter has."""
    workgroup = min(workgroup, target.max_workgroup_invocations)
    grid = fold(-(-total // (workgroup * items)), target)
    has_lanes = target.has("subgroup") and target.subgroup_lanes >= LOCKSTEP and workgroup % LOCKSTEP == 0
    lockstep = LOCKSTEP if target.moves_doubles and has_lanes else 0
    return Launch(workgroup, items, grid, total, strided=strided, lockstep=lockstep)


LOCKSTEP = 8
"""Invocations that llvmpipe runs in lockstep. SwiftShader has four, and additions in this order take 1.1 times as long
there."""


def map_launch(total: int, target: Target) -> Launch:
    """Return one invocation per few items: several on CPU adapters, one on GPUs."""
    return _in_workgroups(256, total, target, _SIZES[target.profile].adjacent)


FULL_CARD = 1 << 18
"""Invocations that the largest GPUs hold at once."""


def strided_launch(total: int, items: int, target: Target) -> Launch:
    """Return one invocation for several items, a workgroup apart."""
    return _in_workgroups(256, total, target, items, strided=True)


def item_launch(total: int, target: Target) -> Launch:
    """Return one invocation per item, on all adapters."""
    return _in_workgroups(_SIZES[target.profile].item, total, target)


def loop_launch(total: int, target: Target) -> Launch:
    """Return one invocation per item for bodies with loops, in small workgroups on CPU adapters, which run a workgroup
    in lockstep."""
    return _in_workgroups(_SIZES[target.profile].loop, total, target)


def tile_launch(total: int, target: Target) -> Launch:
    """Return one invocation per item for bodies that use many registers."""
    return _in_workgroups(_SIZES[target.profile].tile, total, target)


def light_tile_launch(total: int, target: Target) -> Launch:
    """Return one invocation per item for tiles that use few registers, in workgroups as large as those of maps."""
    return _in_workgroups(256, total, target)


NARROWEST = 32
"""Invocations below which a workgroup leaves lanes of a GPU idle."""


def shuffling_lanes(target: Target) -> int:
    """Return the minimum subgroup size if workgroups should exchange values by subgroup operations; else 0.

    On CPU adapters, one invocation takes a row, or one subgroup.
    """
    return target.subgroup_lanes if target.has("subgroup") and target.needs_many_invocations else 0


def row_launch(rows: int, units: int, target: Target) -> Launch:
    """Return one workgroup per row of ``units``, no larger than the row needs.

    If subgroups exchange values, every invocation has a unit, because a lane without a value would need a neutral one.
    """
    limit, subgroup = min(256, target.max_workgroup_invocations), shuffling_lanes(target)
    needed = limit if units >= limit else 1 << ((units.bit_length() - 1) if subgroup else (units - 1).bit_length())
    return Launch(max(NARROWEST, needed), 1, fold(rows, target), rows, subgroup)


SPARSE = 4
"""Ratio of span to units from which walking by words costs more than storing each unit with compare-exchange."""


@dataclass(frozen=True)
class Digit:
    """One coordinate of a running index: divide by ``stride``, keep the remainder for the next digit."""

    dimension: int
    size: int
    stride: int
    checked: bool = False


@dataclass(frozen=True)
class Walk:
    """Order in which the units of a tensor are visited.

    Attributes:
        digits: outermost first; dimensions of size 1 have stride 0 and coordinate 0.
        count: number of values of the running index, gaps included.
        gaps: whether a remainder above 0 after the last digit is a gap.
        by_words: the running index counts units in memory, and one invocation owns each 32-bit word.
        exchange: units share words with others' units: store them with compare-exchange.
        word, first: by words, the word in which the tensor begins, and the units in it before its first.
        keeps_neighbors: by words, bits that belong to no unit of the tensor are preserved.
    """

    digits: tuple[Digit, ...]
    count: int
    gaps: bool = False
    by_words: bool = False
    exchange: bool = False
    word: int = 0
    first: int = 0
    keeps_neighbors: bool = False

    @property
    def reason(self) -> str:
        """Reason why it does not simply go from unit to unit, for explanations; empty if it does."""
        if self.by_words:
            return "elements share 32-bit words, each of which one invocation owns"
        if self.exchange:
            return "elements share 32-bit words with others far apart, and are stored by compare-exchange"
        return ""

    def items(self, output: PlanTensor) -> int:
        """Return the work items of the walk over a tensor: words, or units."""
        return -(-(self.first + self.count) * output.unit_bits // WORD_BITS) if self.by_words else self.count


def choose_walk(output: PlanTensor, keeps_neighbors: bool = False, walked: Collection[int] = ()) -> Walk:
    """Return the order in which the units of an output are computed: units of whole words in stride order without gaps,
    smaller ones by the words that contain them, if that is cheap.

    Args:
        output: The output.
        keeps_neighbors: Whether bits between its units belong to other steps and must be preserved.
        walked: Dimensions of units of whole words that get a digit even if their size is 1.
    """
    if output.unit_bits >= WORD_BITS:
        return _dense(output, walked=walked)
    nested = _nested(output)
    if nested is None or nested.count > SPARSE * math.prod(output.sizes):
        return _dense(output, exchange=True)
    word, first = divmod(output.offset, WORD_BITS // output.unit_bits)
    return replace(nested, word=word, first=first, keeps_neighbors=keeps_neighbors)


def _ordered(output: PlanTensor, walked: Collection[int] = ()) -> tuple[list[int], tuple[Digit, ...]]:
    """Return the dimensions by stride, largest first, and the digits of the others of size 1."""
    wide = [d for d in range(output.rank) if d in walked or is_many(output.sizes[d])]
    digits = tuple(Digit(d, 1, 0) for d in range(output.rank) if d not in wide)
    wide.sort(key=lambda d: -output.strides[d])
    return wide, digits


def _dense(output: PlanTensor, exchange: bool = False, walked: Collection[int] = ()) -> Walk:
    wide, digits = _ordered(output, walked)
    stride, inner = 1, []
    for dimension in reversed(wide):
        inner.append(Digit(dimension, output.sizes[dimension], stride))
        stride *= output.sizes[dimension]
    return Walk(digits + tuple(reversed(inner)), stride, exchange=exchange)


def _nested(output: PlanTensor) -> Walk | None:
    """Return the walk over memory; None if a stride lies within the span of the smaller ones."""
    wide, digits = _ordered(output)
    nested: list[Digit] = []
    reach, gaps = 1, False
    for dimension in reversed(wide):
        size, stride = output.sizes[dimension], output.strides[dimension]
        if stride < reach:
            return None
        if nested:
            inner = nested[-1]
            overruns = stride > inner.stride * inner.size
            nested[-1] = Digit(inner.dimension, inner.size, inner.stride, checked=overruns)
        else:
            gaps = stride > 1
        nested.append(Digit(dimension, size, stride))
        reach += (size - 1) * stride
    return Walk(digits + tuple(reversed(nested)), reach, gaps, by_words=True)
