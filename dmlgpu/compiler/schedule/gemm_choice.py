"""Choice of schedule and tile of a matrix product: a pure function of the product's shape and the target.

| name | what an invocation computes | for |
|---|---|---|
| ``small`` | one output, straight from both operands | little work; a row by columns that lie in one piece |
| ``register`` | a tile of outputs, straight from memory | CPU adapters; few rows or columns on GPUs |
| ``streamed`` | all rows of four columns, a slice of each sum; rows in workgroup memory | few rows on GPUs |
| ``shared`` | a tile of outputs, from slabs of both operands in workgroup memory | GPUs |
| ``packed`` | the same of 8-bit integers, four products per instruction | GPUs |

Each also comes as ``...-split``: several invocations share the products of one output, each leaving its sum in a
temporary tensor, and a second kernel adds them up. That is for few outputs with long sums, and for sums that would
take more iterations than the driver allows. ``gemm.PRODUCT_SCHEDULES`` lists the ten with the other schedules of
products. They are chosen here, by plain numbers: that another shape gives the same choice is the only guard on symbolic
sizes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.cards import card_of
from dmlgpu.compiler.plan import Space
from dmlgpu.compiler.rewrites.packing import UNIT
from dmlgpu.compiler.schedule.cost import WORD, cost_of, merge_work, slab_bytes, slab_work, stream_work
from dmlgpu.compiler.schedule.registry import (
    GPUS,
    TUNED,
    YES,
    Condition,
    Rejection,
    Schedule,
    at_least,
    at_most,
    by_profile,
    only_if,
)
from dmlgpu.compiler.schedule.steps.products import ProductSchedule, ProductTile
from dmlgpu.compiler.sizes.arithmetic import decided
from dmlgpu.compiler.target import MIN_LANES, Target

CHUNK = 1024
"""Number of products that are summed sequentially."""

SPLIT = "-split"
NAMES = tuple(schedule + suffix for suffix in ("", SPLIT) for schedule in ProductSchedule)
"""Names of the schedules in tiles, with sums in one and in several parts."""


@dataclass(frozen=True)
class Shape:
    """Number and sizes of matrix products: ``rows`` x ``inner`` by ``inner`` x ``columns``.

    Attributes:
        along: whether both operands can be read in units along the inner dimension.
        taps: elements of a row of the windows that the columns are, and that are read a row at once; else 0.
        packs: whether both operands are 8-bit integers that can be multiplied as words of four.
        block: words of a block whose sum is scaled, of quantized operands; else 0.
        streams: whether columns can be read in units of four, either way, and sums have fours of steps.
        element: bytes of an element of the columns.
        single: whether kernels read and write single elements, as all sizes allow.
    """

    batch: int
    rows: int
    columns: int
    inner: int
    along: bool = False
    taps: int = 0
    packs: bool = False
    streams: bool = False
    element: int = WORD
    block: int = 0
    single: bool = False

    @classmethod
    def of(cls, space: Space, **more: Any) -> Shape:
        """Return the shape of a product over these groups of dimensions, with ``more`` of its fields."""
        batch, rows, columns, inner = map(math.prod, (space.batch, space.rows, space.columns, space.inner))
        return cls(batch, rows, columns, inner, **more)

    @property
    def outputs(self) -> int:
        """Number of elements of all results."""
        return self.batch * self.rows * self.columns

    @property
    def work(self) -> int:
        """Number of multiplications."""
        return self.outputs * self.inner


@dataclass(frozen=True)
class ProductChoice:
    """A schedule, its tile, and the number of parts into which sums are split.

    Attributes:
        shape: the shape for which it was chosen, for explanations.
        reason: reason of the choice, for explanations.
    """

    schedule: ProductSchedule
    tile: ProductTile
    parts: int = 1
    shape: Shape = field(default=Shape(1, 1, 1, 1), compare=False)
    reason: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """Name, one of ``NAMES``."""
        return self.schedule + (SPLIT if self.parts > 1 else "")

    @property
    def text(self) -> str:
        """Text of the whole choice, in the format of tuned choices."""
        parts = f" in {self.parts} parts" if self.parts > 1 else ""
        slices = f" of {self.tile.slices} slices" if self.tile.slices > 1 else ""
        return f"{self.schedule} {self.tile.rows}x{self.tile.units}{slices}{parts}"


NARROW = 16
"""Rows or columns below which a tile in workgroup memory would be mostly empty."""

MIN_STEPS = 256
"""Minimum steps along the inner dimension of a part that is worth an invocation."""

MAX_PARTS = 64

FILLED = 2
"""Workgroups per core that keep a GPU busy."""


CLEARLY_CHEAPER, WORTH_SPLITTING = 0.98, 0.9
"""Maximum share of the cost at which another tile in workgroup memory is preferred to a larger one, and a product is
split: estimates are not more accurate."""


def choose(shape: Shape, target: Target, name: str = "") -> ProductChoice:
    """Return the schedule for a product.

    Args:
        shape: of the product.
        target: the choice depends on its profile and limits.
        name: overrides the choice: one of ``NAMES``.

    Raises:
        InvalidArgument: for the name of a schedule that does not fit.
    """
    return decided(_chosen, target, name, *vars(shape).values(), accepts=serves)


def _chosen(target: Target, name: str, *fields: Any) -> ProductChoice:
    """Return the choice for a shape whose fields are plain numbers."""
    shape = Shape(*fields)
    if not name:
        chosen = (
            " along" * shape.along
            + " of bytes" * shape.packs
            + (f" in blocks of {shape.block} words" if shape.block else "")
            + (f" by windows {shape.taps} across" if shape.taps else "")
        )
        question = f"product {shape.batch}x{shape.rows}x{shape.columns}x{shape.inner}{chosen}"
        answer = target.overrides.tuned.answer(question, lambda: tuple(alternatives(shape, target)))
        tuned = alternatives(shape, target).get(answer) if answer else None
        if tuned is not None:
            return replace(tuned, reason=TUNED)
    return _built_in(shape, target, name)


NEARLY_BEST = 1.1
"""Maximum ratio to the best tile's cost at which a compiled tile is reused: estimates are not more accurate."""

SPARED = 1 << 23
"""Multiplications whose time a run may lose so that shapes share a kernel: half a millisecond on two cores, which take
half a second to compile another."""

COMMON_TILES = ((16, 2), (32, 2), (32, 1), (8, 4))
"""Rows and units of the tiles that most shapes share, if sizes vary; the one that drivers compile fastest is first."""

GROWTH = 8
"""Ratio of the work of later shapes to that of the first one, whose tile should serve them."""


def tolerance_of(shape: Shape, growth: int = 1) -> float:
    """Return the maximum ratio to the best tile's cost at which shapes share a tile, also if work grows."""
    return max(NEARLY_BEST, 1 + SPARED / (growth * shape.work))


def serves(choice: ProductChoice, target: Target, name: str, *fields: Any) -> bool:
    """Return whether a product may reuse the existing kernel of another shape: its tile must be about as good as the
    best one, or not much worse if there is little work."""
    best, shape = _chosen(target, name, *fields), Shape(*fields)
    if choice.shape.single != shape.single:
        return False
    if choice == best:
        return True
    is_split = choice.parts == best.parts or min(choice.parts, best.parts) > 1
    is_alike = choice.schedule == best.schedule == ProductSchedule.REGISTER and is_split
    is_alike = is_alike and choice.parts >= -(-shape.inner // longest(target))
    if name or not is_alike or best != _built_in(shape, target):
        return False
    cost = _REGISTERS[target.profile].cost(choice.tile, shape, target)
    return cost <= tolerance_of(shape) * min(_register_costs(shape, target).values())


@functools.lru_cache(maxsize=4096)  # of some numbers each
def _built_in(shape: Shape, target: Target, name: str = "") -> ProductChoice:
    """Return the choice that does not depend on tuning."""
    objections = []
    for tiled in TILED:
        if name.removesuffix(SPLIT) in ("", tiled.name):
            tile = tiled.attempt(ShapeProblem(shape, target), is_named=bool(name))
            if not isinstance(tile, Rejection):
                return _in_parts(tiled, tile, shape, target, name)
            objections.append(str(tile.condition))
    raise InvalidArgument(f"the schedule {name or tiled.name!r} does not fit this product: {objections[-1]}")


def _in_parts(
    tiled: Schedule[ShapeProblem, ProductTile], tile: ProductTile, shape: Shape, target: Target, name: str
) -> ProductChoice:
    """Return the choice of a schedule and its tile, with the number of parts of each sum."""
    schedule, reason = ProductSchedule(tiled.name), tiled.reason
    card = card_of(target)
    reason += "" if schedule not in _IN_SLABS or card.is_generic else f"; in tiles for the {card.name}"
    needed = -(-shape.inner // longest(target))
    if schedule is ProductSchedule.STREAMED and target.keeps_digits:
        needed = max(needed, -(-shape.inner // (CHUNK * tile.slices)))
    if name.endswith(SPLIT):
        return ProductChoice(schedule, tile, max(needed, _most_parts(shape), 2), shape, reason)
    stays_whole = name or f"{tiled.full_name}{SPLIT}" in target.overrides.excluded or shape.single
    useful = 1 if stays_whole else _useful_parts(shape, schedule, tile, target)
    if needed > 1:
        reason += f"; the driver stops an invocation before it has summed {shape.inner:,} products"
    elif useful > 1:
        reason += f"; {shape.outputs:,} outputs leave the adapter idle unless {useful} invocations share their sums"
    return ProductChoice(schedule, tile, max(needed, useful), shape, reason)


TOO_SLOW = 2.0
"""Ratio to the best tile's cost from which a tile is not an alternative."""

MAX_SMALL = 1 << 18
"""Maximum multiplications for which the schedule ``small`` is an alternative."""


def alternatives(shape: Shape, target: Target) -> dict[str, ProductChoice]:
    """Return the choices that may be fastest by their descriptions, the built-in one first."""
    chosen, problem = _built_in(shape, target), ShapeProblem(shape, target)
    choices = {chosen.text: chosen}
    fitting = (tiled for tiled in TILED if target.profile in tiled.profiles and tiled.fits(problem))
    tiles = ((ProductSchedule(tiled.name), tile) for tiled in fitting for tile in _TILES[tiled.name](shape, target))
    for schedule, tile in tiles:
        min_parts = -(-shape.inner // longest(target))
        useful = max(min_parts, _useful_parts(shape, schedule, tile, target))
        for parts in sorted({min_parts, useful, min(2 * useful, max(min_parts, _most_parts(shape)))}):
            choice = ProductChoice(schedule, tile, parts, shape)
            choices.setdefault(choice.text, choice)
    return choices


def _promising(shape: Shape, target: Target) -> list[ProductTile]:
    """Return the register tiles that are estimated to be among the fastest."""
    costs = _register_costs(shape, target)
    return [tile for tile, cost in costs.items() if cost <= TOO_SLOW * min(costs.values())]


def longest(target: Target) -> int:
    """Return the steps along the inner dimension that one invocation may take."""
    return 1 << 20 if target.loop_limit is None else target.loop_limit // 2


@dataclass(frozen=True)
class ShapeProblem:
    """The shape of a product, and the target."""

    shape: Shape
    target: Target
    label: str = ""


def _is_little(problem: ShapeProblem) -> Condition:
    """Return whether a product has little work, or reads its columns once in any case: one row by columns that lie in
    one piece, on CPU adapters."""
    shape, target = problem.shape, problem.target
    if shape.rows == 1 and shape.along and not target.needs_many_invocations:
        return YES
    return at_most(shape.work, _REGISTERS[target.profile].little, "multiplications")


def _has_few_rows(problem: ShapeProblem) -> Condition:
    """Return whether a product waits for its columns, and they are long enough for slices."""
    few = at_most(problem.shape.rows, FEW_ROWS, "rows")
    return few and at_least(problem.shape.inner, MIN_STREAMED, "steps along the inner dimension")


def _can_be_streamed(problem: ShapeProblem) -> Condition:
    return only_if(problem.shape.streams, "its columns have no units of four")


def _can_be_packed(problem: ShapeProblem) -> Condition:
    has_words = only_if(problem.target.multiplies_words, "the adapter multiplies no words of four integers")
    return only_if(problem.shape.packs, "its operands are not 8-bit integers") and has_words


def _fills_tiles(problem: ShapeProblem) -> Condition:
    """Return whether tiles of a workgroup would not be mostly empty."""
    return at_least(min(problem.shape.rows, problem.shape.columns), NARROW, "rows or columns")


def _useful_parts(shape: Shape, schedule: ProductSchedule, tile: ProductTile, target: Target) -> int:
    """Return the number of parts that fill the adapter if there are too few outputs."""
    busy = _REGISTERS[target.profile]
    if schedule is ProductSchedule.SMALL:
        return _filling(busy.busy_alone, shape.outputs, shape)
    across, down = tile.groups(shape.rows, shape.columns)
    at_hand = across * down * shape.batch
    if busy.busy_groups:
        return _filling(busy.busy_groups, at_hand, shape)
    cores = card_of(target).cores
    if schedule is ProductSchedule.STREAMED:
        return min(_stream_parts(tile, shape, target), key=lambda parts: _stream_cost(tile, shape, parts, target))
    useful = _filling(FILLED * cores, at_hand, shape)
    if schedule not in _IN_SLABS or useful == 1:
        return useful
    best, cost = 1, _slab_cost(schedule, tile, shape, 1, target)
    for parts in (_filling(cores, at_hand, shape), useful):
        parts_cost = _slab_cost(schedule, tile, shape, parts, target)
        if parts_cost < (WORTH_SPLITTING if best == 1 else CLEARLY_CHEAPER) * cost:
            best, cost = parts, parts_cost
    return best


def _filling(groups: int, at_hand: int, shape: Shape) -> int:
    """Return the number of parts of sums for a total number of workgroups or invocations."""
    return max(1, min(groups // at_hand, _most_parts(shape)))


def _most_parts(shape: Shape) -> int:
    """Return the number of parts that are long enough to be worth an invocation each."""
    return max(1, min(shape.inner // MIN_STEPS, MAX_PARTS))


FEW_ROWS = 16
"""Rows up to which a product waits for its columns; beyond, multiplications take longer than these."""

WIDE = 5
"""Elements of a row of windows beyond which there are no registers for 16 rows of each."""

Costs: TypeAlias = Mapping[tuple[int, int], float]
"""Cost of a multiplication by rows and units of columns of a tile, relative to one tile."""


@dataclass(frozen=True)
class _Registers:
    """Register tiles of a kind of adapter, and the work that keeps it busy.

    Attributes:
        invocations: invocations of a workgroup.
        groups: workgroups that keep the adapter busy.
        little: maximum multiplications for which the schedule that compiles fastest is good enough.
        busy_alone, busy_groups: invocations, and workgroups of tiles, below which sums are split; workgroups are those
            of the card if they are 0.
        costs: cost of a multiplication if each invocation reads all its operands.
        shared_costs: the same if invocations broadcast the rows to each other.
        window_costs, wide_window_costs: the same if columns are windows that are read row by row; empty if they never
            are.
        fetching: additional cost of the first use of an element of a column, by units of a tile: long contiguous reads
            are fastest. It is included if few rows are multiplied by a column.
    """

    invocations: int
    groups: int
    little: int
    busy_alone: int
    busy_groups: int
    costs: Costs
    shared_costs: Costs = field(default_factory=dict)
    window_costs: Costs = field(default_factory=dict)
    wide_window_costs: Costs = field(default_factory=dict)
    fetching: Mapping[int, float] = field(default_factory=dict)

    def tiles(self, shape: Shape, target: Target) -> Iterator[ProductTile]:
        """Yield the tiles with a known cost."""
        for rows, units in {**self.costs, **self.shared_costs, **self.window_costs}:
            tile = self.tile(rows, units, shape)
            if (rows, units) in self._costs(tile, shape, target):
                yield tile

    def tile(self, rows: int, units: int, shape: Shape) -> ProductTile:
        """Place invocations along the columns first, so that all read the same rows at once."""
        across = min(power_of_two(-(-shape.columns // (units * UNIT))), self.invocations)
        down = min(self.invocations // across, power_of_two(-(-shape.rows // rows)))
        return ProductTile(rows, units, across, down)

    def cost(self, tile: ProductTile, shape: Shape, target: Target) -> float:
        """Return the time for a product, empty parts of tiles and idle cores included."""
        across, down = tile.groups(shape.rows, shape.columns)
        idle = max(1.0, self.groups / (across * down * shape.batch * _most_parts(shape)))
        multiplying = tile.covered(shape.rows, shape.columns) * self._costs(tile, shape, target)[tile.rows, tile.units]
        waits = shape.rows <= FEW_ROWS and not shape.taps
        return (multiplying + waits * shape.columns * self.fetching.get(tile.units, 0.0)) * idle

    def _costs(self, tile: ProductTile, shape: Shape, target: Target) -> Costs:
        if shape.taps and self.window_costs:
            return self.wide_window_costs if shape.taps > WIDE else self.window_costs
        return self.shared_costs if broadcasts(tile, target) else self.costs


def broadcasts(tile: ProductTile, target: Target) -> bool:
    """Return whether the invocations of a workgroup, all in the same rows, broadcast these to each other.

    CPU adapters, which run them in lockstep, otherwise load the same numbers once for each.
    """
    units = tile.rows // UNIT
    in_step = target.runs_in_lockstep and target.has("subgroup")
    return in_step and tile.depth == 0 and tile.down == 1 and tile.across >= MIN_LANES and units > 0


def _costs(text: str) -> Costs:
    """Return the costs of a text: ``8x4 1.0`` for 8 rows and 4 units."""
    entries = (entry.replace("x", " ").split() for entry in text.split(","))
    return {(int(rows), int(units)): float(cost) for rows, units, cost in entries}


_ON_CPU = _Registers(
    invocations=8,
    groups=4,
    little=1 << 13,
    busy_alone=256,
    busy_groups=16,
    costs=_costs(
        "8x4 1, 8x2 1.49, 8x1 1.87, 4x4 1.5, 4x2 1.74, 4x1 2.2, 2x4 2.35, 2x2 2.8, 2x1 3.5, 1x4 3.3, 1x2 3.6, 1x1 5.2"
    ),
    shared_costs=_costs(
        "32x2 0.55, 32x1 0.62, 24x2 0.62, 20x2 0.65, 16x2 0.61, 16x1 0.95, 12x2 1, "
        "8x4 0.78, 8x2 1.08, 8x1 1.3, 4x4 1.41, 4x2 1.38, 4x1 1.84"
    ),
    window_costs=_costs("16x1 1, 12x1 1.3, 8x2 1.3, 8x1 1.6, 4x2 2, 4x1 2.7, 2x2 4.5, 1x4 5.5"),
    wide_window_costs=_costs("8x1 1, 12x1 1.05, 4x2 1.2, 4x1 1.4, 16x1 1.4, 8x2 1.5, 2x2 2.9, 1x4 4.9"),
    fetching={4: 10.0, 2: 17.0, 1: 24.0},
)
"""Measured on lavapipe for 512 x 512 x 512, and for windows of 3 x 3 in steps of 2 and of 5 x 5, for wide ones
of 7 x 7 in steps of 2, and for 4 to 16 rows by 1024 x 1024."""


def _loads(rows: int, units: int) -> float:
    """Return the cost of a multiplication in a tile by the numbers that it loads, each as expensive as eight
    products."""
    return 1 + 8 * (rows + units * UNIT) / (rows * units * UNIT)


_LOADS = {(rows, units): _loads(rows, units) for rows in (8, 4, 2, 1) for units in (2, 1)}
_REGISTERS = by_profile(
    cpu=_ON_CPU, gpus=_Registers(64, 256, little=1 << 16, busy_alone=1 << 14, busy_groups=0, costs=_LOADS)
)


def _in_registers(problem: ShapeProblem) -> ProductTile:
    """Return the tile with the lowest estimated time; if sizes vary, a common one that is not much slower."""
    costs = _register_costs(problem.shape, problem.target)
    best = min(costs, key=costs.__getitem__)
    if not problem.target.policies.varying:
        return best
    limit = tolerance_of(problem.shape, GROWTH) * costs[best]
    serving = {(tile.rows, tile.units): tile for tile, cost in costs.items() if cost <= limit}
    return next((serving[size] for size in COMMON_TILES if size in serving), best)


@functools.lru_cache(maxsize=256)  # a dozen tiles each
def _register_costs(shape: Shape, target: Target) -> Mapping[ProductTile, float]:
    """Return the estimated time of each tile."""
    kind = _REGISTERS[target.profile]
    return {tile: kind.cost(tile, shape, target) for tile in kind.tiles(shape, target)}


def expected_cost(shape: Shape, target: Target) -> float:
    """Return the estimated time of a product, to compare products of one size and schedule."""
    choice = _built_in(shape, target)
    if choice.schedule is ProductSchedule.REGISTER:
        return _REGISTERS[target.profile].cost(choice.tile, shape, target)
    if choice.schedule in _IN_SLABS:
        return _slab_cost(choice.schedule, choice.tile, shape, choice.parts, target)
    return choice.tile.covered(shape.rows, shape.columns)


SHARED_TILES = ((4, 1), (8, 1), (4, 2), (8, 2))
"""Rows and units of tiles in workgroup memory, the smallest first."""

BLOCK_TILES = ((4, 1), (8, 1), (4, 2))
"""Rows and units of tiles of quantized operands, which have a sum of a block and a total for each output."""

LONG = 256
"""Steps from which on slabs of the smallest tile have 16 steps, so that all invocations fetch; below, the longer text
takes longer to compile than it saves."""


_IN_SLABS = (ProductSchedule.SHARED, ProductSchedule.PACKED)


def _shared(problem: ShapeProblem) -> ProductTile:
    return _in_slabs(ProductSchedule.SHARED, problem)


def _packed(problem: ShapeProblem) -> ProductTile:
    return _in_slabs(ProductSchedule.PACKED, problem)


def _in_slabs(schedule: ProductSchedule, problem: ShapeProblem) -> ProductTile:
    """Return the tile with the lowest estimated time: the largest one without parts, unless others are clearly
    faster."""
    shape, target = problem.shape, problem.target
    tiles = _TILES[schedule](shape, target)
    best = tiles[-1]
    cost, best_is_split = _slab_cost(schedule, best, shape, 1, target), False
    for tile in reversed(tiles[:-1]):
        tile_cost = _slab_cost(schedule, tile, shape, 1, target)
        if tile_cost < CLEARLY_CHEAPER * cost:
            best, cost = tile, tile_cost
    for tile in tiles:
        parts = _useful_parts(shape, schedule, tile, target)
        if parts > 1:
            tile_cost = _slab_cost(schedule, tile, shape, parts, target)
            if tile_cost < (CLEARLY_CHEAPER if best_is_split else WORTH_SPLITTING) * cost:
                best, cost, best_is_split = tile, tile_cost, True
    return best


def _slab_cost(schedule: ProductSchedule, tile: ProductTile, shape: Shape, parts: int, target: Target) -> float:
    """Return the cost of a product on the target's card: large tiles multiply more per load, small ones occupy more
    cores, and sums in parts take a second kernel."""
    card = card_of(target)
    size, packed = (shape.batch, shape.rows, shape.columns, shape.inner), schedule is ProductSchedule.PACKED
    works = [slab_work(size, tile, parts, card, element=1 if packed else WORD, packed=UNIT if packed else 1)]
    works += [merge_work(shape.outputs, parts, card)] if parts > 1 else []
    cost: float = cost_of(works, card)
    return cost


def _shared_tiles(shape: Shape, target: Target) -> list[ProductTile]:
    """Return the tiles whose slabs workgroup memory has room for, and whose sums registers have room for; the smallest
    one goes everywhere."""
    side = 16 if target.max_workgroup_invocations >= 256 else 8
    small = 16 if shape.inner >= LONG else 8
    tiles = [ProductTile(rows, units, side, side, small if rows * units == 4 else 8) for rows, units in SHARED_TILES]
    two_levels = target.keeps_digits and shape.inner > CHUNK
    return [
        tile
        for tile in tiles
        if slab_bytes(tile) <= target.max_workgroup_storage and not (two_levels and tile.rows * tile.units == 16)
    ]


def _packed_tiles(shape: Shape, target: Target) -> list[ProductTile]:
    """Return the tiles whose slabs in words, and sums of rows and columns, fit in workgroup memory; the smallest fits
    everywhere. Blocks are slabs, or end with a pair of them; they need no sums."""
    side = 16 if target.max_workgroup_invocations >= 256 else 8
    small = 16 if shape.inner >= LONG else 8
    tiles = []
    for rows, units in BLOCK_TILES if shape.block else SHARED_TILES:
        vectors = side * (units + rows // UNIT)
        depths = (small, 8, 4) if shape.block else (small,) if rows * units == 4 else (8, 4)
        for depth in depths:
            if shape.block and shape.block != depth and shape.block % (2 * depth) != 0:
                continue
            if 4 * UNIT * vectors * (2 * depth + (shape.block == 0)) <= target.max_workgroup_storage:
                tiles.append(ProductTile(rows, units, side, side, depth))
                break
    return tiles


MIN_STREAMED = 64
"""Minimum steps for which a product of few rows reads columns in slices."""

MAX_STREAM_ROWS = 8
"""Rows of a workgroup, whose sums fit in registers next to the columns in flight; with more, two read the same
columns, the second one from a cache."""

_STREAM_ACROSS = (32, 16, 8)
"""Units of columns of a workgroup: 128 contiguous bytes of float32 at least."""

_STREAMING = 256
"""Invocations of a workgroup. Measured on an H100: 8 rows by 4096 x 4096 read columns at two thirds of the copy rate,
with 512 as well."""

_STREAM_BYTES, _MAX_STREAM_UNITS = 64, 512
"""Bytes of rows in workgroup memory per invocation, and units of four steps of one, beyond which fewer workgroups would
fit."""


def stream_steps(shape: Shape) -> int:
    """Return the number of groups of four steps in flight per invocation: loads of narrow elements have fewer bytes."""
    return 2 if shape.element >= WORD else 4


def _stream_tiles(shape: Shape, target: Target) -> list[ProductTile]:
    """Return the tiles of all rows, the widest first: with few columns side by side, more slices share their steps."""
    rows = -(-shape.rows // -(-shape.rows // MAX_STREAM_ROWS))
    turn, invocations = UNIT * stream_steps(shape), min(_STREAMING, target.max_workgroup_invocations)
    widest = min(power_of_two(-(-shape.columns // UNIT)), _STREAM_ACROSS[0])
    tiles = []
    for across in dict.fromkeys(min(across, widest) for across in _STREAM_ACROSS):
        slices = invocations // across
        while slices > 1 and slices * turn > shape.inner:
            slices //= 2
        whole = slices * turn // UNIT
        room = min(_STREAM_BYTES * invocations, target.max_workgroup_storage) // (WORD * UNIT * rows)
        needed = -(-shape.inner // (UNIT * whole))
        units = min(needed, max(1, min(room, _MAX_STREAM_UNITS) // whole)) * whole
        tiles.append(ProductTile(rows, 1, across, 1, UNIT * max(units, across * slices // 2), slices))
    return tiles


def _stream_parts(tile: ProductTile, shape: Shape, target: Target) -> list[int]:
    """Return numbers of parts that fill the cores of a card once, twice or four times, or not at all."""
    across, down = tile.groups(shape.rows, shape.columns)
    fillings = (_filling(times * card_of(target).cores, across * down * shape.batch, shape) for times in (1, 2, 4))
    return sorted({1, *fillings})


def _stream_cost(tile: ProductTile, shape: Shape, parts: int, target: Target) -> float:
    """Return the cost of a product of few rows on the target's card."""
    card, size = card_of(target), (shape.batch, shape.rows, shape.columns, shape.inner)
    works = [stream_work(size, tile, parts, stream_steps(shape), element=shape.element)]
    works += [merge_work(shape.outputs, parts, card)] if parts > 1 else []
    cost: float = cost_of(works, card)
    return cost


def _streamed(problem: ShapeProblem) -> ProductTile:
    """Return the tile with the lowest estimated time, in its best number of parts."""
    shape, target = problem.shape, problem.target

    def cost(tile: ProductTile) -> float:
        return min(_stream_cost(tile, shape, parts, target) for parts in _stream_parts(tile, shape, target))

    return min(_stream_tiles(shape, target), key=cost)


TILED: tuple[Schedule[ShapeProblem, ProductTile], ...] = (
    Schedule(
        "product", "small", lambda _: ProductTile(), "little work, or one row by columns in one piece", pays=_is_little
    ),
    Schedule(
        "product", "streamed", _streamed, "few rows: each column is read once", _can_be_streamed, _has_few_rows, GPUS
    ),
    Schedule(
        "product", "packed", _packed, "integers: four products per instruction", _can_be_packed, _fills_tiles, GPUS
    ),
    Schedule("product", "shared", _shared, "tiles in workgroup memory", pays=_fills_tiles, profiles=GPUS),
    Schedule("product", "register", _in_registers, "tiles in registers: for CPU adapters, and few rows or columns"),
)
"""Schedules of products in tiles, in order; the first that fits and pays is chosen."""

_TILES: Mapping[str, Callable[[Shape, Target], list[ProductTile]]] = {
    ProductSchedule.SMALL: lambda shape, target: [ProductTile()] if shape.work <= MAX_SMALL else [],
    ProductSchedule.REGISTER: _promising,
    ProductSchedule.SHARED: _shared_tiles,
    ProductSchedule.PACKED: _packed_tiles,
    ProductSchedule.STREAMED: lambda shape, target: _stream_tiles(shape, target) if shape.rows <= FEW_ROWS else [],
}
"""Tiles that may be fastest, by schedule."""


def power_of_two(number: int) -> int:
    """Round a number up to a power of two."""
    return 1 << (number - 1).bit_length()
