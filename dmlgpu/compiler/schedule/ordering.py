"""Sorting and scattering.

The first elements of every line along an axis in sorted order, or all of them, are records of rank and position.

    sort -> merge -> merge -> ...                                        all elements: tiles, then ever longer runs
    sort (best) -> sort -> merge ... -> candidates -> sort -> merge ...  few of many elements

If few of many are requested, most of them are never sorted: a line is divided into groups, the best record of each
group is found, and these are sorted. The first k elements of the line lie in the first k groups in that order, whose
records are sorted then. Every loop is short for any length of a line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS, packed_strides
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import Element, Map, PlanTensor, Scatter, Sort, View, record_lanes
from dmlgpu.compiler.rewrites.collapse import merge_dimensions
from dmlgpu.compiler.rewrites.packing import (
    UNIT,
    WIDEST_UNIT_BITS,
    pack_source,
    pack_tensor,
    packs_source,
    packs_tensor,
)
from dmlgpu.compiler.schedule.launch import (
    NARROWEST,
    Launch,
    Walk,
    choose_walk,
    fold,
    item_launch,
    loop_launch,
    map_launch,
    shuffling_lanes,
)
from dmlgpu.compiler.schedule.registry import GPUS, Condition, Schedule, at_least, choose, no, only_if, register
from dmlgpu.compiler.schedule.scheduling import StepProblem, schedule_step
from dmlgpu.compiler.schedule.steps.base import KernelStep, ScheduledSteps
from dmlgpu.compiler.schedule.steps.ordering import (
    ScatterSchedule,
    ScheduledCandidates,
    ScheduledMerge,
    ScheduledScatter,
    ScheduledSort,
    SortSchedule,
)
from dmlgpu.compiler.target import Target

SHARE = 16
"""Records of a merged run per invocation: enough to amortize the preceding bisection."""


class SortProblem(StepProblem[Sort]):
    """Lines to be sorted, and their target."""

    @property
    def length(self) -> int:
        """Number of elements of a line."""
        return self.step.source.sizes[self.step.axis]

    @property
    def count(self) -> int:
        """Number of requested elements of a line."""
        return self.step.output.sizes[-1]

    @property
    def group(self) -> int:
        """Elements of a group; 1 if all elements are sorted at once."""
        tile = choose_tile(self.length, self.step.source.data_type, self.target)[1]
        return choose_group(self.length, self.count, tile)


def _best_first(problem: SortProblem) -> ScheduledSteps | Condition:
    """Return the kernels that sort the groups of a line with the best records."""
    length, count, chain, group = problem.length, problem.count, _SortChain(problem), problem.group
    if group == 1:
        return no("{:,} of {:,} elements are too many", count, length)
    chain.find_best(group)
    chain.sort(_as_line(chain.last), count)
    chain.sort(chain.candidates(group), count)
    why = f"{count:,} of {length:,} elements are requested: the best of groups of {group} are found first"
    return chain.stored().because(why)


def _in_tiles(problem: SortProblem) -> ScheduledSteps:
    """Return the kernels that sort whole lines."""
    chain = _SortChain(problem)
    chain.sort(chain.source, problem.count)
    return chain.stored().because(f"{problem.length:,} elements in a line, sorted in tiles that are merged two by two")


SORT_SCHEDULES: tuple[Schedule[SortProblem, ScheduledSteps], ...] = register(
    Schedule(
        "sort",
        "best-first",
        _best_first,
        "few of many elements: most of them are never sorted",
    ),
    Schedule("sort", "tiles", _in_tiles, "tiles are sorted in registers or workgroups, and merged"),
)
"""Schedules of sorting, in the order in which they are tried."""


@schedule_step.register
def _sort(step: Sort, target: Target) -> ScheduledSteps:
    problem = SortProblem(step, target)
    if problem.length > MAX_IN_LINE:
        raise NotSupported(f"sorts axes of at most {MAX_IN_LINE:,} elements, got {problem.length:,}")
    return choose(SORT_SCHEDULES, problem)


class _SortChain:
    """Chain of kernels, each of which reads the records of the previous one."""

    def __init__(self, problem: SortProblem):
        self.step, self.target = problem.step, problem.target
        self.source, self.decreasing = lines(self.step.source, self.step.axis), self.step.decreasing
        self.steps: list[KernelStep] = []
        self.last = self.source

    def stored(self) -> ScheduledSteps:
        """Return the kernels, the last of which writes the output."""
        *before, last = self.steps
        return ScheduledSteps((*before, replace(last, output=replace(last.output, binding=self.step.output.binding))))

    def _records(self, *sizes: int) -> PlanTensor:
        """Allocate the records of the next kernel."""
        lanes = record_lanes(self.source.data_type)
        self.last = PlanTensor.temporary("records", DataType.UINT32, sizes, view=View.RAW, lanes=lanes)
        return self.last

    def _add_sort(self, label: str, source: PlanTensor, output: PlanTensor, schedule: SortSchedule, width: int) -> None:
        walk, of_records = _walk(source, output, schedule, width), source is not self.source
        launch = _launch(walk, schedule, width, self.target)
        pairs = network(width, output.sizes[-1]) if schedule is SortSchedule.REGISTERS else ()
        self.steps.append(
            ScheduledSort(label, launch, output, source, schedule, walk, width, self.decreasing, of_records, pairs)
        )

    def find_best(self, group: int) -> None:
        """Add the first record of every group."""
        *before, length = self.source.sizes
        output = self._records(*before, -(-length // group), 1)
        self._add_sort(f"best of {group}", self.source, output, SortSchedule.BEST, group)

    def candidates(self, group: int) -> PlanTensor:
        """Add the records of all elements of the selected groups."""
        best = _as_line(self.last)
        *before, count = best.sizes
        output = self._records(*before, count * group)
        walk = choose_walk(output)
        launch = item_launch(walk.count, self.target)
        self.steps.append(
            ScheduledCandidates(f"groups of {group}", launch, output, self.source, best, walk, group, self.decreasing)
        )
        return output

    def sort(self, source: PlanTensor, count: int) -> None:
        """Add the first records of every line as one run."""
        *before, length = source.sizes
        schedule, width = choose_tile(length, self.source.data_type, self.target)
        output = self._records(*before, -(-length // width), min(width, count))
        self._add_sort(f"tiles of {width} in {schedule}", source, output, schedule, width)
        while self.last.sizes[-2] > 1:
            self._merge(count)

    def _merge(self, count: int) -> None:
        """Add a merge that leaves half as many runs."""
        source = self.last
        *before, runs, length = source.sizes
        output = _flat(self._records(*before, -(-runs // 2), min(2 * length, count)))
        lines_, merged, length_of_merged = output.sizes
        launch = loop_launch(lines_ * merged * -(-length_of_merged // SHARE), self.target)
        self.steps.append(ScheduledMerge(f"merge to {length_of_merged}", launch, output, _flat(source), SHARE))


def _walk(source: PlanTensor, output: PlanTensor, schedule: SortSchedule, width: int) -> Walk:
    """Return the walk over the parts of all lines, in the source's memory order."""
    *before, parts, _ = output.sizes
    *strides, stride = source.strides
    apart = stride if schedule is SortSchedule.BEST else stride * width
    return choose_walk(replace(output, sizes=(*before, parts, 1), strides=(*strides, apart, 1)))


def _launch(walk: Walk, schedule: SortSchedule, width: int, target: Target) -> Launch:
    if schedule not in (SortSchedule.WORKGROUP, SortSchedule.SUBGROUPS):
        return loop_launch(walk.count, target)
    is_held = schedule is SortSchedule.SUBGROUPS
    workgroup = max(width // RECORDS_HELD, min(width, NARROWEST)) if is_held else width // 2
    workgroup = min(workgroup, 256, target.max_workgroup_invocations)
    return Launch(workgroup, 1, fold(walk.count, target), walk.count, shuffling_lanes(target) if is_held else 0)


def lines(source: PlanTensor, axis: int) -> PlanTensor:
    """Return the tensor with its axis last and the other dimensions merged where possible, in their order."""
    others = [dimension for dimension in range(source.rank) if dimension != axis]
    sizes, (strides,) = merge_dimensions(
        [source.sizes[dimension] for dimension in others], [source.strides[dimension] for dimension in others]
    )
    return replace(source, sizes=(*sizes, source.sizes[axis]), strides=(*strides, source.strides[axis]))


def _as_line(records: PlanTensor) -> PlanTensor:
    """Return the runs of a line concatenated."""
    *before, runs, length = records.sizes
    return _resized(records, *before, runs * length)


def _flat(records: PlanTensor) -> PlanTensor:
    """Return all lines concatenated along one dimension."""
    *before, runs, length = records.sizes
    return _resized(records, math.prod(before), runs, length)


def _resized(records: PlanTensor, *sizes: int) -> PlanTensor:
    return replace(records, sizes=sizes, strides=packed_strides(sizes))


# ---- choices

MAX_IN_LINE = (1 << 31) - 1
"""Maximum number of positions: they are compared as signed numbers, and the highest marks records past the end."""

REGISTERS = 32
"""Maximum words of the records that one invocation sorts in registers. Twice as many take drivers long to compile."""

MAX_IN_WORKGROUP = 1024
"""Maximum number of records that one workgroup sorts."""

RECORDS_HELD = 4
"""Number of records per invocation of such a workgroup, if it holds them in registers."""

MAX_IN_GROUP = 1024
"""Maximum elements that one invocation scans."""

WORTH_IT = 2
"""Factor by which selecting groups first must reduce the number of records to sort."""


def choose_tile(length: int, data_type: DataType, target: Target) -> tuple[SortSchedule, int]:
    """Return the schedule of the tiles of a line, and their size."""
    problem = SortTileProblem(length, record_lanes(data_type), target)
    schedule = choose(SORT_TILE_SCHEDULES, problem)
    return schedule, problem.in_registers if schedule is SortSchedule.REGISTERS else problem.in_workgroup


@dataclass(frozen=True)
class SortTileProblem:
    """The records of a line, which are sorted tile by tile.

    Attributes:
        length: Number of records.
        lanes: Words of a record.
    """

    length: int
    lanes: int
    target: Target
    label: str = ""

    @property
    def in_registers(self) -> int:
        """Records of a tile in the registers of one invocation."""
        return min(self.length, REGISTERS // self.lanes)

    @property
    def in_workgroup(self) -> int:
        """Records of a tile of a workgroup."""
        room = min(MAX_IN_WORKGROUP, _power_of_two(self.target.max_workgroup_storage // (4 * self.lanes)))
        return min(1 << (self.length - 1).bit_length(), room)


def _exceeds_registers(problem: SortTileProblem) -> Condition:
    return at_least(problem.length * problem.lanes, REGISTERS + 1, "words in a line")


SORT_TILE_SCHEDULES: tuple[Schedule[SortTileProblem, SortSchedule], ...] = register(
    Schedule(
        "sort-tile",
        "subgroups",
        lambda problem: SortSchedule.SUBGROUPS,
        "workgroups hold a tile in registers, and exchange records by subgroup operations",
        fits=lambda problem: (
            only_if(shuffling_lanes(problem.target), "no subgroups that exchange values")
            and _exceeds_registers(problem)
        ),
        profiles=GPUS,
    ),
    Schedule(
        "sort-tile",
        "workgroup",
        lambda problem: SortSchedule.WORKGROUP,
        "workgroups sort a tile in their memory",
        fits=_exceeds_registers,
        profiles=GPUS,
    ),
    Schedule(
        "sort-tile", "registers", lambda problem: SortSchedule.REGISTERS, "an invocation sorts a tile in its registers"
    ),
)
"""Schedules of the tiles of a line, in the order in which they are tried."""


def choose_group(length: int, count: int, tile: int) -> int:
    """Return the number of elements of a group; 1 if all elements are sorted at once.

    Groups of g elements leave ``length / g`` records and then ``count * g`` to sort: few if both are about equal.
    """
    group = min(_power_of_two(math.isqrt(length // count)), MAX_IN_GROUP)
    left = length / group + count * group
    return group if length > tile and left * WORTH_IT <= length else 1


def _power_of_two(number: int) -> int:
    """Round a number down to a power of two."""
    return 1 << (number.bit_length() - 1)


# ---- networks


def network(width: int, count: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs that Batcher's merge exchange compares, without those that the first ``count`` places do not
    need.

    Knuth, The Art of Computer Programming, volume 3, algorithm 5.2.2M.
    """
    needed = set(range(count))
    pairs = []
    for low, high in reversed(list(_merge_exchange(width))):
        if low in needed or high in needed:
            needed |= {low, high}
            pairs.append((low, high))
    return tuple(reversed(pairs))


def _merge_exchange(width: int) -> Iterator[tuple[int, int]]:
    """Return all pairs, for any width."""
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


MAX_UPDATES, MIN_WORKGROUPS = 16, 32
"""Updates per invocation on CPU adapters, which wait for their positions together, and the workgroups that keep
CPUs busy."""


def _stored_at_once(problem: StepProblem[Scatter]) -> ScheduledSteps:
    """Return a single kernel."""
    step, target = problem.step, problem.target
    why = "no two elements go to one place" if step.distinct else "of elements that go to one place any one may win"
    return _scatter_kernel(step, step.label, ScatterSchedule.STORE, target).because(why)


def _marked(problem: StepProblem[Scatter]) -> ScheduledSteps:
    """Return the kernels that mark the last update of each element and store it."""
    step, target = problem.step, problem.target
    marks = PlanTensor.temporary("marks", DataType.UINT32, step.output.sizes)
    clear = Map("clear marks", Element("layout/zero", DataType.UINT32, marks.sizes), marks)
    marked = replace(step, inputs=(*step.inputs, ("marks", marks)))
    steps = (
        schedule_step(clear, target)
        + _scatter_kernel(replace(step, output=marks), "mark", ScatterSchedule.MARK, target)
        + _scatter_kernel(marked, f"{step.label} marked", ScatterSchedule.STORE_MARKED, target)
    )
    return steps.because("a deterministic device: the last element of a place wins, and is marked first")


SCATTER_SCHEDULES: tuple[Schedule[StepProblem[Scatter], ScheduledSteps], ...] = register(
    Schedule(
        "scatter",
        "store",
        _stored_at_once,
        "places that are distinct, or of whose elements any one may win: one kernel",
        fits=lambda problem: only_if(
            problem.step.distinct or not problem.target.policies.deterministic,
            "on a deterministic device, the last of several elements of a place wins",
        ),
    ),
    Schedule("scatter", "mark", _marked, "deterministic devices: the last update of each element is marked first"),
)
"""Schedules of scatters, in the order in which they are tried."""


@schedule_step.register
def _scatter(step: Scatter, target: Target) -> ScheduledSteps:
    return schedule_scatter(_packed_scatter(step), target)


def schedule_scatter(step: Scatter, target: Target) -> ScheduledSteps:
    """Return the kernels of a scatter in the units that it has."""
    return choose(SCATTER_SCHEDULES, StepProblem(step, target))


def appends(step: Scatter, target: Target) -> bool:
    """Return whether one kernel computes the elements of a source and scatters them: it stores whole words."""
    is_narrow = step.source.data_type.bits <= WORD_BITS
    stores = step.distinct or not target.policies.deterministic
    packed = _packed_scatter(step)
    return stores and is_narrow and packed.output.unit_bits * _in_word(packed) >= WORD_BITS


def _in_word(step: Scatter) -> int:
    """Return the number of adjacent elements of a computed source that lie in one word of the output; 1 if these may
    lie in several words."""
    last, lanes = len(step.source.sizes) - 1, WORD_BITS // step.output.unit_bits
    if lanes <= 1 or last < 0 or isinstance(step.source, PlanTensor) or step.source.sizes[last] % lanes:
        return 1
    followed = step.follows[last]
    return lanes if followed is not None and packs_tensor(step.output, followed, lanes) else 1


def _scatter_kernel(step: Scatter, label: str, schedule: ScatterSchedule, target: Target) -> ScheduledSteps:
    words = _in_word(step)
    launch = _scatter_launch(math.prod(step.source.sizes) // words, target)
    updates = (step.output, step.file, step.source, step.inputs)
    run = None if words > 1 else _followed_run(step, launch.items_per_invocation)
    return ScheduledSteps((ScheduledScatter(label, launch, *updates, schedule, step.constants, run, words),))


def _scatter_launch(total: int, target: Target) -> Launch:
    """Return one invocation per few updates; on CPU adapters for more than in maps if there are many."""
    launch = map_launch(total, target)
    groups = -(-total // (launch.workgroup * MAX_UPDATES))
    if target.needs_many_invocations or groups < MIN_WORKGROUPS:
        return launch
    return replace(launch, items_per_invocation=MAX_UPDATES, grid=fold(groups, target))


def _followed_run(step: Scatter, updates: int) -> tuple[int, int] | None:
    """Return the dimensions of source and output along which runs of ``updates`` elements are always contiguous, if one
    index determines the position of a run."""
    sizes = step.source.sizes
    inner = max((dimension for dimension in range(len(sizes)) if sizes[dimension] > 1), default=0)
    followed = step.follows[inner]
    return None if updates == 1 or followed is None or sizes[inner] % updates else (inner, followed)


def _packed_scatter(step: Scatter) -> Scatter:
    """Return the scatter in the widest units that source and output have along a common dimension."""
    for dimension, followed in enumerate(step.follows):
        lanes = WIDEST_UNIT_BITS // step.output.data_type.bits
        if not isinstance(step.source, PlanTensor):
            lanes = min(lanes, UNIT)
        while followed is not None and step.output.sizes[followed] > 1 and lanes > 1:
            if packs_source(step.source, dimension, lanes) and packs_tensor(step.output, followed, lanes):
                source, output = pack_source(step.source, dimension, lanes), pack_tensor(step.output, followed, lanes)
                return replace(step, source=source, output=output)
            lanes //= 2
    return step
