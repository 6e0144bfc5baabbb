"""The first elements of every line along an axis in sorted order, or all of them.

Elements are sorted as *records*: their rank, an unsigned number that compares as they do, and their place on the axis.
No two records are equal, so the result depends neither on the order of invocations nor on a sort being stable.

    Sort -> Merge -> Merge -> ...                                        all elements: tiles, then ever longer runs
    Sort (best) -> Sort -> Merge ... -> Candidates -> Sort -> Merge ...  few of many elements

Where few of many are asked for, most of them are never sorted: a line is seen as groups, the best record of each group
is found, and these are sorted. The first k elements of the line lie in the k groups whose best come first; what those
groups hold is sorted then. Every loop is short, whatever the length of a line.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dmlgpu.enums import DataType
from dmlgpu.kernels.collapse import merge_dimensions
from dmlgpu.plan import Role, Step, Tensor, View
from dmlgpu.target import Profile, Target
from dmlgpu.tensor import packed_strides

# ---- steps: records are tensors of two or four words per unit


class SortSchedule(enum.StrEnum):
    """What an invocation or a workgroup does with its part of a line."""

    BEST = "best"  # one invocation finds the first record of a group, whose elements are spread evenly over the line
    REGISTERS = "registers"  # one invocation sorts a tile by a network
    WORKGROUP = "workgroup"  # one workgroup sorts a tile by a bitonic network


@dataclass(frozen=True)
class Sort(Step):
    """Sorts the parts of every line, each for itself.

    Attributes:
        source: elements or records, lines along the last dimension.
        output: records; the dimensions of ``source`` but the last, the parts of a line, the records kept of each.
        schedule: how.
        width: elements of a part.
        decreasing: the largest element comes first.
    """

    source: Tensor
    output: Tensor
    schedule: SortSchedule
    width: int
    decreasing: bool

    @property
    def of_records(self) -> bool:
        """Whether the source consists of records."""
        return self.source.binding.role is Role.TEMPORARY


@dataclass(frozen=True)
class Candidates(Step):
    """Makes records of all elements of the groups that some records come from.

    Attributes:
        source: elements, lines along the last dimension.
        best: records of different groups, lines along the last dimension.
        output: records; ``group`` of them for each of ``best``.
        group: elements of a group.
        decreasing: the largest element comes first.
    """

    source: Tensor
    best: Tensor
    output: Tensor
    group: int
    decreasing: bool


@dataclass(frozen=True)
class Merge(Step):
    """Merges neighbouring runs of records two by two, and cuts what comes of it.

    Attributes:
        source, output: records; lines, runs of a line, records of a run.
    """

    source: Tensor
    output: Tensor


# ---- plans


def sort_steps(
    source: Tensor, axis: int, count: int, decreasing: bool, target: Target
) -> tuple[tuple[Step, ...], Tensor]:
    """The steps that find the first ``count`` elements along an axis (of ``MOST_IN_LINE`` at most) in sorted order.

    Returns:
        The steps, and the places of the elements: a UINT32 tensor with the source's sizes, but ``count`` along the
        axis.
    """
    length = source.sizes[axis]
    chain = _Chain(lines(source, axis), decreasing, target)
    group = choose_group(length, count, choose_tile(length, source.data_type, target)[1])
    if group == 1:
        chain.sort(chain.source, count)
    else:
        chain.find_best(group)
        chain.sort(_as_line(chain.last), count)
        chain.sort(chain.candidates(group), count)
    sizes = tuple(count if dimension == axis else size for dimension, size in enumerate(source.sizes))
    return tuple(chain.steps), _places(chain.last, sizes, axis)


class _Chain:
    """Steps of which each reads the records of the one before."""

    def __init__(self, source: Tensor, decreasing: bool, target: Target):
        self.source, self.decreasing, self.target = source, decreasing, target
        self.steps: list[Step] = []
        self.last = source

    def _records(self, *sizes: int) -> Tensor:
        """Make room for the records of the next step."""
        lanes = record_lanes(self.source.data_type)
        self.last = Tensor.temporary("records", DataType.UINT32, sizes, view=View.RAW, lanes=lanes)
        return self.last

    def find_best(self, group: int) -> None:
        """The first record of every group."""
        *before, length = self.source.sizes
        output = self._records(*before, -(-length // group), 1)
        label = f"best of {group}"
        self.steps.append(Sort(label, self.source, output, SortSchedule.BEST, group, self.decreasing))

    def candidates(self, group: int) -> Tensor:
        """The records of all elements of the groups whose best were found."""
        best = _as_line(self.last)
        *before, count = best.sizes
        output = self._records(*before, count * group)
        label = f"groups of {group}"
        self.steps.append(Candidates(label, self.source, best, output, group, self.decreasing))
        return output

    def sort(self, source: Tensor, count: int) -> None:
        """The first records of every line, as one run."""
        *before, length = source.sizes
        schedule, width = choose_tile(length, self.source.data_type, self.target)
        output = self._records(*before, -(-length // width), min(width, count))
        label = f"tiles of {width} in {schedule}"
        self.steps.append(Sort(label, source, output, schedule, width, self.decreasing))
        while self.last.sizes[-2] > 1:
            self._merge(count)

    def _merge(self, count: int) -> None:
        """Half as many runs."""
        given = self.last
        *before, runs, length = given.sizes
        output = self._records(*before, -(-runs // 2), min(2 * length, count))
        self.steps.append(Merge(f"merge to {output.sizes[-1]}", _flat(given), _flat(output)))


def lines(source: Tensor, axis: int) -> Tensor:
    """The tensor with its axis last and the other dimensions merged where possible, in their order."""
    others = [dimension for dimension in range(source.rank) if dimension != axis]
    sizes, (strides,) = merge_dimensions(
        [source.sizes[dimension] for dimension in others], [source.strides[dimension] for dimension in others]
    )
    return replace(source, sizes=(*sizes, source.sizes[axis]), strides=(*strides, source.strides[axis]))


def _as_line(records: Tensor) -> Tensor:
    """The runs of a line one after the other."""
    *before, runs, length = records.sizes
    return _resized(records, *before, runs * length)


def _flat(records: Tensor) -> Tensor:
    """All lines along one dimension."""
    *before, runs, length = records.sizes
    return _resized(records, math.prod(before), runs, length)


def _resized(records: Tensor, *sizes: int) -> Tensor:
    return replace(records, sizes=sizes, strides=packed_strides(sizes))


def _places(records: Tensor, sizes: tuple[int, ...], axis: int) -> Tensor:
    """The places in records whose lines consist of one run, under other dimensions with the lines along an axis."""
    lanes, length = records.lanes, sizes[axis]
    others = packed_strides([1 if dimension == axis else size for dimension, size in enumerate(sizes)])
    strides = tuple(lanes if dimension == axis else lanes * length * one for dimension, one in enumerate(others))
    return Tensor(records.binding, DataType.UINT32, sizes, strides, View.INDEX, offset=lanes // 2)


# ---- choices


def record_lanes(data_type: DataType) -> int:
    """Words of a record: the rank in one or two, then the place; where there are four, one is unused."""
    return 4 if data_type.bits == 64 else 2


MOST_IN_LINE = (1 << 31) - 1
"""Places are compared as signed numbers, and the highest one stands for what lies beyond the end."""

REGISTERS = 32
"""Words of the records that one invocation sorts without touching memory. Drivers compile twice as many for long."""

MOST_IN_WORKGROUP = 1024
"""Records that one workgroup sorts."""

MOST_IN_GROUP = 1024
"""Elements that one invocation looks through."""

WORTH_IT = 2
"""Looking for groups first must leave so many times fewer records to sort."""


def choose_tile(length: int, data_type: DataType, target: Target) -> tuple[SortSchedule, int]:
    """How the tiles of a line are sorted, and how many elements they have."""
    lanes = record_lanes(data_type)
    if target.profile is Profile.CPU or length * lanes <= REGISTERS:
        return SortSchedule.REGISTERS, min(length, REGISTERS // lanes)
    room = min(MOST_IN_WORKGROUP, _power_of_two(target.max_workgroup_storage // (4 * lanes)))
    return SortSchedule.WORKGROUP, min(1 << (length - 1).bit_length(), room)


def choose_group(length: int, count: int, tile: int) -> int:
    """Elements of a group; 1 where all elements are sorted at once.

    Groups of g elements leave ``length / g`` records and then ``count * g`` to sort: few where both are about equal.
    """
    group = min(_power_of_two(math.isqrt(length // count)), MOST_IN_GROUP)
    left = length / group + count * group
    return group if length > tile and left * WORTH_IT <= length else 1


def _power_of_two(number: int) -> int:
    """The largest power of two up to a number."""
    return 1 << (number.bit_length() - 1)


# ---- networks


def network(width: int, kept: int) -> tuple[tuple[int, int], ...]:
    """The pairs that Batcher's merge exchange puts in order, without those that the first ``kept`` places do not need.

    Knuth, The Art of Computer Programming, volume 3, algorithm 5.2.2M.
    """
    needed = set(range(kept))
    pairs = []
    for low, high in reversed(list(_merge_exchange(width))):
        if low in needed or high in needed:
            needed |= {low, high}
            pairs.append((low, high))
    return tuple(reversed(pairs))


def _merge_exchange(width: int) -> Iterator[tuple[int, int]]:
    """All pairs, for any width."""
    part = 1
    while part < width:
        distance = part
        while distance:
            for first in range(distance % part, width - distance, 2 * distance):
                for low in range(first, min(first + distance, width - distance)):
                    if low // (2 * part) == (low + distance) // (2 * part):
                        yield low, low + distance
            distance //= 2
        part *= 2
