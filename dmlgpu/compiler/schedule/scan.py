"""Exclusive and inclusive scans of lines.

A line is short enough for one invocation or one workgroup, or it is split into blocks of equal length. Then three
kernels follow each other: the total of each block, the scan of these totals (which may itself be long), and the scan of
each block from its start value. The kernel of totals only reads, and every element is written by the invocation that
read it, or by the adjacent one that got its result from it, so the output may alias the input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.plan import Compact, Constants, Map, PlanTensor, Scan, Scanning, Source, View, apply, row_sizes
from dmlgpu.compiler.rewrites.collapse import merge_dimensions
from dmlgpu.compiler.rewrites.packing import WIDEST_UNIT_BITS, pack_tensor, packs_tensor
from dmlgpu.compiler.rewrites.sources import identity
from dmlgpu.compiler.schedule.launch import NARROWEST, Launch, choose_walk, loop_launch, row_launch
from dmlgpu.compiler.schedule.registry import GPUS, Schedule, at_least, at_most, by_profile, choose, register
from dmlgpu.compiler.schedule.scheduling import schedule_step
from dmlgpu.compiler.schedule.splitting import piece, pieces, tightened
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.reductions import TOTAL, ScanSchedule, ScheduledScan
from dmlgpu.compiler.target import Target

STORE = "schedules/scan_store"
"""Shader for each element: it finishes the accumulator and stores it."""


@schedule_step.register
def _scan(step: Scan, target: Target) -> ScheduledSteps:
    source, output = canonical(step.source, step.axis, step.output)
    axis = source.rank - 1
    schedule = choose_schedule(source, output, target)
    source, output, across = _pack(source, output, schedule)
    lines, units = math.prod(source.sizes[:axis]), source.sizes[axis]
    length = block_length(lines, units, schedule, target)
    bytes_of_unit = max(tensor.unit_bits * abs(tensor.strides[axis]) for tensor in (source, output)) // 8
    if units * bytes_of_unit > target.max_binding_size:  # pieces of lines, of whole blocks, are bound then
        length = max(min(length, target.max_binding_size // (2 * bytes_of_unit)), 1)
    blocked = _BlockedScan(
        step.scanning, source.data_type, source, (axis,), output, schedule, length, -(-units // length), across=across
    )
    return _in_blocks(blocked, target).because(_why(lines, units, blocked))


def _why(lines: int, units: int, scan: _BlockedScan) -> str:
    """Return the reason for the schedule."""
    who = "an invocation" if scan.schedule is ScanSchedule.SERIAL else "a workgroup"
    cut = f"cut into {scan.blocks} blocks, whose totals are scanned first" if scan.blocks > 1 else "walked as a whole"
    return f"{lines:,} lines of {units:,} units, {cut}, each by {who}"


@schedule_step.register
def _compact(step: Compact, target: Target) -> ScheduledSteps:
    """Return a running count over all elements as one line, with an empty block at the end, whose result is the
    total."""
    sizes, (strides,) = merge_dimensions(step.source.sizes, step.source.strides)
    line = replace(step.source, sizes=(1, *sizes), strides=(0, *strides))
    axes, last, ones = tuple(range(1, line.rank)), line.rank - 1, line.rank - 2
    schedule = choose_schedule(line, line, target)
    lanes = next((lanes for lanes in (4, 2) if line.data_type.bits < 64 and packs_tensor(line, last, lanes)), 1)
    line = pack_tensor(line, last, lanes) if lanes > 1 else line
    units = math.prod(line.sizes)
    length = block_length(1, units, schedule, target)
    whole = _BlockedScan(
        Scanning("scanning/cumulative_summation", DataType.UINT32, 1, portable=False),
        DataType.UINT32,
        replace(apply(step.predicate, DataType.UINT32, line.sizes, input=line), lanes=lanes),
        axes,
        replace(step.output, sizes=(1,) * ones + step.output.sizes, strides=(0,) * ones + step.output.strides),
        schedule,
        length,
        -(-units // length) + 1,
        advance=step.advance,
        constants=step.constants,
    )
    totals = _block_totals(whole)
    sizes, end = step.count.sizes, totals.units - 1
    count = replace(totals, sizes=sizes, strides=packed_strides(sizes), view=View.RAW, offset=end)
    steps = _in_blocks(whole, target, totals) + schedule_step(Map("count", identity(count), step.count), target)
    return steps.because(_why(1, units, whole))


def canonical(source: PlanTensor, axis: int, output: PlanTensor) -> tuple[PlanTensor, PlanTensor]:
    """Return the lines with merged dimensions: those across lines, in the order of the output's memory, then the
    axis."""
    across = [dimension for dimension in range(source.rank) if dimension != axis]
    across.sort(key=lambda dimension: -output.strides[dimension])
    sizes, *strides = (
        tuple(values[dimension] for dimension in across) for values in (source.sizes, source.strides, output.strides)
    )
    merged, (source_strides, output_strides) = merge_dimensions(sizes or (1,), *(group or (0,) for group in strides))
    sizes = (*merged, source.sizes[axis])
    return (
        replace(source, sizes=sizes, strides=(*source_strides, source.strides[axis])),
        replace(output, sizes=sizes, strides=(*output_strides, output.strides[axis])),
    )


def _pack(source: PlanTensor, output: PlanTensor, schedule: ScanSchedule) -> tuple[PlanTensor, PlanTensor, bool]:
    """Return both tensors in units along the lines, or else, for invocations that take whole blocks, across them."""
    axis = source.rank - 1
    dimensions = (axis, axis - 1) if schedule is ScanSchedule.SERIAL else (axis,)
    for dimension in dimensions if source.data_type.bits < 64 else ():
        for lanes in (4, 2):
            if packs_tensor(source, dimension, lanes) and packs_tensor(output, dimension, lanes):
                packed = pack_tensor(source, dimension, lanes), pack_tensor(output, dimension, lanes)
                return *packed, dimension != axis
    return source, output, False


# ---- blocks


@dataclass(frozen=True)
class _BlockedScan:
    """A scan in blocks (see ``ScheduledScan``)."""

    scanning: Scanning
    element: DataType
    source: Source
    axes: tuple[int, ...]
    output: PlanTensor
    schedule: ScanSchedule
    length: int
    blocks: int
    advance: str = STORE
    starts: PlanTensor | None = None
    of_totals: bool = False
    across: bool = False
    constants: Constants = ()

    @property
    def line_sizes(self) -> tuple[int, ...]:
        """Sizes of the source with 1 along the lines."""
        return row_sizes(self.source.sizes, self.axes)

    def scheduled(self, label: str, target: Target) -> ScheduledSteps:
        """Return the kernel, labeled with the schedule and special properties."""
        parts = [label, self.schedule.value, "across" if self.across else "", "of totals" if self.of_totals else ""]
        blocks = math.prod(self.line_sizes) * self.blocks
        is_serial = self.schedule is ScanSchedule.SERIAL
        held = units_held(self.length, self.scanning)
        launch = loop_launch(blocks, target) if is_serial else tree_launch(blocks, self.length, held, target)
        lines = PlanTensor(self.output.binding, DataType.UINT32, self.line_sizes, packed_strides(self.line_sizes))
        label = " ".join(part for part in parts if part)
        walk = choose_walk(lines)
        # A unit of 16 bytes is half of a sector, which GPUs write as a whole.
        halves = self.advance == STORE and self.output.unit_bits == WIDEST_UNIT_BITS
        paired = halves and launch.subgroup > 0 and held % 2 == 0
        return ScheduledSteps((ScheduledScan(label, launch, walk=walk, held=held, paired=paired, **vars(self)),))


def _in_blocks(whole: _BlockedScan, target: Target, totals: PlanTensor | None = None) -> ScheduledSteps:
    """Return a scan unchanged if lines are single blocks; else totals of the blocks, their scan, and the scan of the
    blocks.

    Args:
        totals: output of the totals; a new tensor by default.
    """
    if whole.blocks == 1:
        return whole.scheduled("", target)
    totals = _block_totals(whole) if totals is None else totals
    parts = _pieces(whole, totals, target)
    first = [replace(each, output=own, advance=TOTAL, constants=()) for each, own in parts]
    before = _in_blocks(_scan_of_totals(whole, totals, target), target)
    steps = sum((each.scheduled("totals", target) for each in first), ScheduledSteps()) + before
    return sum((replace(each, starts=own).scheduled("from", target) for each, own in parts), steps)


def _pieces(whole: _BlockedScan, totals: PlanTensor, target: Target) -> list[tuple[_BlockedScan, PlanTensor]]:
    """Return the scans of pieces of the lines, each of as many blocks as a kernel can bind, and the totals of each."""
    if not isinstance(whole.source, PlanTensor) or whole.source.sizes != whole.output.sizes:
        return [(whole, totals)]
    axis, tensors = whole.source.rank - 1, (whole.source, whole.output)
    units = whole.source.sizes[axis]
    cuts = pieces(tensors, axis, whole.length, target)
    if len(cuts) == 1:
        return [(whole, totals)]
    result, block = [], 0
    for start, count in cuts:
        first = units - start - count if whole.scanning.decreasing else start
        source, output = (piece(tensor, (axis, first, count)) for tensor in tensors)
        blocks = -(-count // whole.length)
        starts = replace(totals, sizes=(*totals.sizes[:-1], blocks), offset=totals.offset + block * totals.strides[-1])
        starts = tightened(starts)
        result.append((replace(whole, source=source, output=output, blocks=blocks), starts))
        block += blocks
    return result


def _block_totals(whole: _BlockedScan) -> PlanTensor:
    """Allocate the accumulators of the blocks: adjacent lines along the first dimension, blocks along the last one."""
    lines = math.prod(whole.line_sizes) * (whole.source.lanes if whole.across else 1)
    between = (1,) * (len(whole.source.sizes) - 2)
    return PlanTensor.temporary(
        "totals of blocks",
        whole.scanning.accumulator,
        (lines, *between, whole.blocks),
        (1, *between, lines),
        lanes=whole.scanning.lanes,
    )


def _scan_of_totals(whole: _BlockedScan, totals: PlanTensor, target: Target) -> _BlockedScan:
    """Return the scan that replaces the total of each block by the total of all previous blocks."""
    scanning = replace(whole.scanning, exclusive=True, decreasing=False)
    schedule = choose_schedule(totals, totals, target)
    length = block_length(totals.sizes[0], whole.blocks, schedule, target)
    return _BlockedScan(
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
"""Maximum units per invocation."""
WORKGROUPS = 4096
"""Number of workgroups that fill a GPU."""
SERIAL_ON_GPU = 32
"""Maximum length of a contiguous line for one invocation on a GPU."""
NEAR = 8
"""Maximum stride of a line in elements for which the invocations of a workgroup share cache lines along it."""
UNITS_HELD = 4
"""Maximum units of a tile per invocation of a workgroup."""
NUMBERS_HELD = 8
"""Maximum numbers in the accumulators of these units: each merge is inlined, and SwiftShader crashes on more."""
MAX_TILES = 8
"""Maximum tiles of a line that a workgroup takes sequentially before the line is split."""


@dataclass(frozen=True)
class _Cut:
    """Thresholds from which lines are split into blocks.

    Attributes:
        enough: number of lines that fill an adapter without blocks.
        in_flight: number of blocks that fill it.
        shortest_line, shortest_block: minimum units for which splitting pays.
    """

    enough: int
    in_flight: int
    shortest_line: int
    shortest_block: int


_CUTS = by_profile(
    cpu=_Cut(enough=64, in_flight=1024, shortest_line=2048, shortest_block=512),
    gpus=_Cut(enough=16384, in_flight=32768, shortest_line=256, shortest_block=64),
)


@dataclass(frozen=True)
class ScanProblem:
    """Lines to be scanned, and their target.

    Attributes:
        count: elements of a line.
        stride: distance in memory between adjacent elements.
    """

    count: int
    stride: int
    target: Target
    label: str = ""


SCAN_SCHEDULES: tuple[Schedule[ScanProblem, ScanSchedule], ...] = register(
    Schedule(
        "scan",
        "tree",
        lambda lines: ScanSchedule.TREE,
        "lines that run along memory: a workgroup takes a block tile by tile",
        pays=lambda lines: (
            at_most(lines.stride, NEAR, "elements from one to the next in memory")
            and at_least(lines.count, SERIAL_ON_GPU + 1, "elements of a line")
        ),
        profiles=GPUS,
    ),
    Schedule("scan", "serial", lambda lines: ScanSchedule.SERIAL, "an invocation takes a block"),
)
"""Schedules of scans, in the order in which they are tried."""


def choose_schedule(source: PlanTensor, output: PlanTensor, target: Target) -> ScanSchedule:
    """Return whether an invocation or a workgroup scans a block of a line along the last dimension."""
    stride = max(source.strides[-1], output.strides[-1])
    return choose(SCAN_SCHEDULES, ScanProblem(source.sizes[-1], stride, target))


def block_length(lines: int, units: int, schedule: ScanSchedule, target: Target) -> int:
    """Return the units of a block: a whole line, or less if lines are long or few."""
    if schedule is ScanSchedule.TREE:
        return _tree_length(lines, units, target)
    cut = _CUTS[target.profile]
    limit = target.loop_limit  # which a few loops must not reach
    blocks = -(-units // (LONGEST_WALK if limit is None else min(LONGEST_WALK, limit // 4)))
    if lines < cut.enough and units >= cut.shortest_line:
        blocks = max(blocks, min(units // cut.shortest_block, cut.in_flight // lines))
    return -(-units // blocks)


def _tree_length(lines: int, units: int, target: Target) -> int:
    tile = tree_launch(1, LONGEST_WALK, UNITS_HELD, target).workgroup * UNITS_HELD
    tiles = -(-units // tile)
    if tiles <= MAX_TILES:
        return units
    blocks = max(min(tiles, WORKGROUPS // lines), -(-units // LONGEST_WALK // UNITS_HELD), 1)
    return tile * -(-tiles // blocks)


def units_held(length: int, scanning: Scanning) -> int:
    """Return the units that each invocation of a workgroup holds at once, for a block of ``length`` units."""
    return min(UNITS_HELD, NUMBERS_HELD // scanning.lanes, -(-length // NARROWEST))


def tree_launch(blocks: int, length: int, held: int, target: Target) -> Launch:
    """Return one workgroup per block of ``length`` units, of which each invocation holds ``held``, no larger than a
    block needs."""
    return row_launch(blocks, -(-length // held), target)
