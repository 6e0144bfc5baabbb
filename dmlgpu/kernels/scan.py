"""Scans: what a line adds up to before or up to each of its elements.

A line is short enough for one invocation or one workgroup, or it is cut into blocks of equal length. Then three kernels
follow each other: what each block adds up to, what comes before each block (a scan of these totals, which may itself be
long), and the blocks, each from its start on. Totals only read, and every element is written by the invocation that
read it, so that the output may lie in the input's place.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace

from dmlgpu.enums import DataType
from dmlgpu.kernels.collapse import merge_dimensions
from dmlgpu.kernels.grid import Launch, row_launch
from dmlgpu.kernels.packing import pack_tensor, packs_tensor
from dmlgpu.plan import Constants, Source, Step, Tensor
from dmlgpu.target import Profile, Target

STORE = "schedules/scan_store"
"""What is done with each element: its accumulator finished and stored at its place in the output."""

TOTAL = "schedules/scan_total"
"""What is done with each element: nothing but merging it."""


class ScanSchedule(enum.StrEnum):
    """Who takes a block."""

    SERIAL = "serial"  # one invocation, from one end to the other
    TREE = "tree"  # one workgroup, tile by tile


@dataclass(frozen=True)
class Scanning:
    """A scan as an operator describes it.

    Attributes:
        file: the shader with ``acc_t``, ``start``, ``lift``, ``merge`` (commutative, too) and ``finish``.
        accumulator, lanes: type and count of the numbers that an accumulator consists of.
        portable: as for ``plan.Body``.
        exclusive: an element's result leaves the element itself out.
        decreasing: lines begin at their last element.
    """

    file: str
    accumulator: DataType
    lanes: int
    portable: bool
    exclusive: bool = False
    decreasing: bool = False


@dataclass(frozen=True)
class Scan(Step):
    """Walks the lines of the source, each in blocks, merging element after element (see shaders/scanning).

    All tensors have one rank of at least 2. Lines lie along ``axes``, the last dimensions, in row-major order; blocks
    have numbers in the order in which a line is walked.

    Attributes:
        scanning: what is merged.
        element: type of the scanned elements.
        source: what is scanned. Tensors may be packed, along lines or (``across``) over neighbouring ones.
        axes: the dimensions along which a line lies.
        output: of the source's sizes and packed alike; or (TOTAL) the accumulators of all blocks: all lines along
            the first dimension, blocks along the last one; or what ``advance`` takes it for.
        schedule: SERIAL or TREE.
        length: units of a block; the last one may be shorter or empty.
        blocks: how many blocks a line consists of.
        advance: the file that says what is done with each unit.
        starts: the accumulators of everything before each block; None where there is but one.
        of_totals: the elements are accumulators already.
        across: the lanes of a unit belong to neighbouring lines (SERIAL only).
        constants: values for ``advance``.
    """

    scanning: Scanning
    element: DataType
    source: Source
    axes: tuple[int, ...]
    output: Tensor
    schedule: ScanSchedule
    length: int
    blocks: int
    advance: str = STORE
    starts: Tensor | None = None
    of_totals: bool = False
    across: bool = False
    constants: Constants = ()

    @property
    def line_sizes(self) -> tuple[int, ...]:
        """Sizes of the source, 1 along the lines."""
        return tuple(1 if axis in self.axes else size for axis, size in enumerate(self.source.sizes))

    @property
    def lines(self) -> int:
        """How many lines there are; packed ones across count as one."""
        return math.prod(self.line_sizes)

    @property
    def units(self) -> int:
        """Units of a line."""
        return math.prod(self.source.sizes[axis] for axis in self.axes)


def scan_steps(scanning: Scanning, source: Tensor, axis: int, output: Tensor, target: Target) -> tuple[Scan, ...]:
    """The steps that scan a tensor in memory along an axis."""
    source, output = canonical(source, axis, output)
    axis = source.rank - 1
    schedule = choose_schedule(source, output, target)
    source, output, across = _pack(source, output, schedule)
    lines, units = math.prod(source.sizes[:axis]), source.sizes[axis]
    length = block_length(lines, units, schedule, target)
    whole = Scan(
        "", scanning, source.data_type, source, (axis,), output, schedule, length, -(-units // length), across=across
    )
    return blocked(whole, target)


def canonical(source: Tensor, axis: int, output: Tensor) -> tuple[Tensor, Tensor]:
    """The same lines with merged dimensions: those across lines, in the order of the output's memory, then the axis."""
    across = [dimension for dimension in range(source.rank) if dimension != axis]
    across.sort(key=lambda dimension: -output.strides[dimension])
    sizes, *strides = (
        tuple(values[dimension] for dimension in across) for values in (source.sizes, source.strides, output.strides)
    )
    merged, (source_strides, output_strides) = merge_dimensions(sizes or (1,), *(given or (0,) for given in strides))
    sizes = (*merged, source.sizes[axis])
    return (
        replace(source, sizes=sizes, strides=(*source_strides, source.strides[axis])),
        replace(output, sizes=sizes, strides=(*output_strides, output.strides[axis])),
    )


def _pack(source: Tensor, output: Tensor, schedule: ScanSchedule) -> tuple[Tensor, Tensor, bool]:
    """Both tensors in units along the lines, or else, for invocations that take whole blocks, across them."""
    axis = source.rank - 1
    dimensions = (axis, axis - 1) if schedule is ScanSchedule.SERIAL else (axis,)
    for dimension in dimensions if source.data_type.bits < 64 else ():
        for lanes in (4, 2):
            if packs_tensor(source, dimension, lanes) and packs_tensor(output, dimension, lanes):
                packed = pack_tensor(source, dimension, lanes), pack_tensor(output, dimension, lanes)
                return *packed, dimension != axis
    return source, output, False


# ---- blocks


def blocked(whole: Scan, target: Target) -> tuple[Scan, ...]:
    """Return a scan as it is where a line is one block; else totals of the blocks, their scan, and the scan from there
    on."""
    if whole.blocks == 1:
        return (replace(whole, label=_label(whole)),)
    totals = block_totals(whole)
    first = replace(whole, output=totals, advance=TOTAL, constants=())
    before = blocked(_scan_of_totals(whole, totals, target), target)
    last = replace(whole, starts=totals)
    return replace(first, label=f"totals {_label(first)}"), *before, replace(last, label=f"from {_label(last)}")


def _label(step: Scan) -> str:
    """The schedule, and what is special about it."""
    parts = [step.schedule.value, "across" if step.across else "", "of totals" if step.of_totals else ""]
    return " ".join(part for part in parts if part)


def block_totals(whole: Scan) -> Tensor:
    """The accumulators of the blocks: lines along the first dimension, side by side, blocks along the last one."""
    lines = whole.lines * (abs(whole.source.lanes) if whole.across else 1)
    between = (1,) * (len(whole.source.sizes) - 2)
    return Tensor.temporary(
        "totals of blocks",
        whole.scanning.accumulator,
        (lines, *between, whole.blocks),
        (1, *between, lines),
        lanes=whole.scanning.lanes,
    )


def _scan_of_totals(whole: Scan, totals: Tensor, target: Target) -> Scan:
    """Puts what lies before each block in the place of what the block adds up to."""
    scanning = replace(whole.scanning, exclusive=True, decreasing=False)
    near = totals.strides[-1] <= NEAR
    schedule = _schedule(whole.blocks, near, target)
    length = block_length(totals.sizes[0], whole.blocks, schedule, target)
    return Scan(
        "",
        scanning,
        whole.element,
        totals,
        (totals.rank - 1,),
        totals,
        schedule,
        length,
        -(-whole.blocks // length),
        of_totals=True,
    )


# ---- choices

LONGEST_WALK = 16384
"""Units that one invocation walks at most."""
WORKGROUPS = 4096
"""Workgroups that fill a GPU."""
SERIAL_ON_GPU = 32
"""Longest line along memory that one invocation walks on a GPU."""
NEAR = 8
"""Elements between neighbours of a line up to which the invocations of a workgroup share cache lines along it."""
UNITS_HELD = 4
"""Units of a tile that each invocation of a workgroup holds, at most."""
NARROWEST = 32
"""Invocations below which a workgroup leaves lanes of a GPU idle."""
MOST_TILES = 8
"""Tiles of a line that a workgroup takes one by one, rather than have the line cut."""


@dataclass(frozen=True)
class _Cut:
    """When lines that invocations walk are cut into blocks.

    Attributes:
        enough: lines that fill an adapter without.
        in_flight: blocks that fill it.
        shortest_line, shortest_block: units from which on it pays.
    """

    enough: int
    in_flight: int
    shortest_line: int
    shortest_block: int


_ON_CPU = _Cut(enough=64, in_flight=1024, shortest_line=2048, shortest_block=512)
_ON_GPU = _Cut(enough=16384, in_flight=32768, shortest_line=256, shortest_block=64)


def choose_schedule(source: Tensor, output: Tensor, target: Target) -> ScanSchedule:
    """A workgroup per block for lines that run along memory, on GPUs; else an invocation per block."""
    return _schedule(source.sizes[-1], max(source.strides[-1], output.strides[-1]) <= NEAR, target)


def _schedule(count: int, near: bool, target: Target) -> ScanSchedule:
    shared = target.profile is not Profile.CPU and near and count > SERIAL_ON_GPU
    return ScanSchedule.TREE if shared else ScanSchedule.SERIAL


def block_length(lines: int, units: int, schedule: ScanSchedule, target: Target) -> int:
    """Units of a block: a line as a whole, or less where lines are long or few."""
    if schedule is ScanSchedule.TREE:
        return _tree_length(lines, units, target)
    cut = _ON_CPU if target.profile is Profile.CPU else _ON_GPU
    wanted = -(-units // _longest_walk(target))
    if lines < cut.enough and units >= cut.shortest_line:
        wanted = max(wanted, min(units // cut.shortest_block, cut.in_flight // lines))
    return -(-units // wanted)


def _longest_walk(target: Target) -> int:
    """A few such walks stay below the iterations at which an invocation is stopped."""
    return LONGEST_WALK if target.loop_limit is None else min(LONGEST_WALK, target.loop_limit // 4)


def _tree_length(lines: int, units: int, target: Target) -> int:
    tile = tree_launch(1, LONGEST_WALK, target).workgroup * UNITS_HELD
    tiles = -(-units // tile)
    if tiles <= MOST_TILES:
        return units
    wanted = max(min(tiles, WORKGROUPS // lines), -(-units // LONGEST_WALK // UNITS_HELD), 1)
    return tile * -(-tiles // wanted)


def units_held(length: int) -> int:
    """Units of a block of so many that each invocation of a workgroup holds at once."""
    return min(UNITS_HELD, -(-length // NARROWEST))


def tree_launch(blocks: int, length: int, target: Target) -> Launch:
    """One workgroup per block of so many units, no larger than a block needs."""
    return row_launch(blocks, -(-length // units_held(length)), target)
