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
take more iterations than the driver allows. ``Overrides.schedule`` names one of the ten to override the choice.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from dmlgpu.common import symbols
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.cards import card_of
from dmlgpu.compiler.plan import Space
from dmlgpu.compiler.rewrites.packing import UNIT
from dmlgpu.compiler.schedule.cost import WORD, cost_of, merge_work, slab_bytes, slab_work, stream_work
from dmlgpu.compiler.schedule.steps.products import ProductSchedule, ProductTile
from dmlgpu.compiler.target import MIN_LANES, Profile, Target

CHUNK = 1024
"""Number of products that are summed sequentially."""

SPLIT = "-split"
NAMES = tuple(schedule + suffix for suffix in ("", SPLIT) for schedule in ProductSchedule)
"""Values of ``Overrides.schedule``."""


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
        reason: reason of the choice, for explanations.
    """

    schedule: ProductSchedule
    tile: ProductTile
    parts: int = 1
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


LITTLE_WORK, LITTLE_WORK_ON_CPU = 1 << 16, 1 << 13
"""Maximum multiplications for which the schedule that compiles fastest is good enough."""

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
        target: the choice depends on its profile and limits; its ``schedule`` overrides it.
        name: overrides both.

    Raises:
        InvalidArgument: for a name that is not in ``NAMES``, or of a schedule that does not fit.
    """
    return symbols.decided(_chosen, target, name or target.overrides.schedule, *vars(shape).values(), accepts=serves)


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
            return replace(tuned, reason="dmlgpu tune found it fastest on this adapter")
    return _built_in(shape, target, name)


NEARLY_BEST = 1.1
"""Maximum ratio to the best tile's cost at which a compiled tile is reused: estimates are not more accurate."""


def serves(choice: ProductChoice, target: Target, name: str, *fields: Any) -> bool:
    """Return whether a product may reuse the existing kernel of another shape: its tile must be about as good as the
    best one, or not much worse if there is little work."""
    best, shape = _chosen(target, name, *fields), Shape(*fields)
    if choice == best:
        return True
    is_alike = (choice.schedule, choice.parts) == (ProductSchedule.REGISTER, best.parts)
    if name or not is_alike or best != _built_in(shape, target):
        return False
    costs = _register_costs(shape, target)
    ratio = TOO_SLOW if shape.work <= MAX_SMALL else NEARLY_BEST
    return choice.tile in costs and costs[choice.tile] <= ratio * min(costs.values())


@functools.lru_cache(maxsize=4096)  # of some numbers each
def _built_in(shape: Shape, target: Target, name: str = "") -> ProductChoice:
    """Return the choice that does not depend on tuning."""
    if name and name not in NAMES:
        raise InvalidArgument(f"matrix products have no schedule {name!r}; there are {', '.join(NAMES)}")
    if name.removesuffix(SPLIT) == ProductSchedule.PACKED and not shape.packs:
        raise InvalidArgument(f"the schedule {name!r} does not fit this product: its operands are not 8-bit integers")
    if name.removesuffix(SPLIT) == ProductSchedule.STREAMED and not shape.streams:
        raise InvalidArgument(f"the schedule {name!r} does not fit this product: its columns have no units of four")
    if name:
        schedule, reason = ProductSchedule(name.removesuffix(SPLIT)), f"{name!r} is requested"
    else:
        suit = next(suit for suit in PRODUCT_SCHEDULES if suit.fits(shape, target))
        schedule, reason = suit.schedule, suit.reason.format(shape=shape, little=_little(target), few=FEW_ROWS)
        card = card_of(target)
        reason += "" if schedule not in _IN_SLABS or card.is_generic else f"; in tiles for the {card.name}"
    tile = _TILES[schedule](shape, target)
    needed = -(-shape.inner // longest(target))
    if schedule is ProductSchedule.STREAMED and target.keeps_digits:
        needed = max(needed, -(-shape.inner // (CHUNK * tile.slices)))
    if name.endswith(SPLIT):
        return ProductChoice(schedule, tile, max(needed, _most_parts(shape), 2), reason)
    useful = 1 if name else _useful_parts(shape, schedule, tile, target)
    if needed > 1:
        reason += f"; the driver stops an invocation before it has summed {shape.inner:,} products"
    elif useful > 1:
        reason += f"; {shape.outputs:,} outputs leave the adapter idle unless {useful} invocations share their sums"
    return ProductChoice(schedule, tile, max(needed, useful), reason)


TOO_SLOW = 2.0
"""Ratio to the best tile's cost from which a tile is not an alternative."""

MAX_SMALL = 1 << 18
"""Maximum multiplications for which the schedule ``small`` is an alternative."""


def alternatives(shape: Shape, target: Target) -> dict[str, ProductChoice]:
    """Return the choices that may be fastest by their descriptions, the built-in one first.

    On CPU adapters workgroup memory is no faster than other memory, so no choice uses it.
    """
    chosen = _built_in(shape, target)
    choices = {chosen.text: chosen}
    tiles = [
        *((ProductSchedule.SMALL, ProductTile()) for _ in range(shape.work <= MAX_SMALL)),
        *((ProductSchedule.REGISTER, tile) for tile in _promising(shape, target)),
        *((ProductSchedule.SHARED, tile) for tile in _shared_tiles(shape, target) if target.profile is not Profile.CPU),
        *((ProductSchedule.PACKED, tile) for tile in _packed_tiles(shape, target) if _multiplies_words(shape, target)),
        *((ProductSchedule.STREAMED, tile) for tile in _stream_tiles(shape, target) if _streams(shape, target)),
    ]
    for schedule, tile in tiles:
        min_parts = -(-shape.inner // longest(target))
        useful = max(min_parts, _useful_parts(shape, schedule, tile, target))
        for parts in sorted({min_parts, useful, min(2 * useful, max(min_parts, _most_parts(shape)))}):
            choice = ProductChoice(schedule, tile, parts)
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
class Suit:
    """Applicability of a schedule of products.

    Attributes:
        fits: whether a product is of that kind.
        reason: reason of the choice, for explanations; ``{shape}``, ``{little}`` (multiplications) and ``{few}`` (rows)
            are filled in.
    """

    schedule: ProductSchedule
    fits: Callable[[Shape, Target], bool]
    reason: str


def _multiplies_words(shape: Shape, target: Target) -> bool:
    """Return whether an adapter gains from products of words of four integers."""
    return shape.packs and target.multiplies_words and target.profile is not Profile.CPU


def _streams(shape: Shape, target: Target) -> bool:
    """Return whether a product waits for its columns, and they are long enough for slices."""
    few = shape.rows <= FEW_ROWS and shape.inner >= MIN_STREAMED
    return few and shape.streams and target.profile is not Profile.CPU


def _little(target: Target) -> int:
    return LITTLE_WORK_ON_CPU if target.profile is Profile.CPU else LITTLE_WORK


PRODUCT_SCHEDULES = (
    Suit(
        ProductSchedule.SMALL,
        lambda shape, target: shape.work <= _little(target),
        "{shape.work:,} multiplications are little work (at most {little:,})",
    ),
    Suit(
        ProductSchedule.SMALL,
        lambda shape, target: target.profile is Profile.CPU and shape.rows == 1 and shape.along,
        "one row by columns that lie in one piece, on a CPU adapter",
    ),
    Suit(
        ProductSchedule.REGISTER,
        lambda shape, target: target.profile is Profile.CPU,
        "CPU adapters are fastest with tiles in registers",
    ),
    Suit(
        ProductSchedule.STREAMED,
        _streams,
        "a GPU, and at most {few} rows: each column is read once, by invocations that share its steps",
    ),
    Suit(
        ProductSchedule.REGISTER,
        lambda shape, target: min(shape.rows, shape.columns) < NARROW,
        f"fewer than {NARROW} rows or columns: tiles of a workgroup would be mostly empty",
    ),
    Suit(
        ProductSchedule.PACKED,
        _multiplies_words,
        f"a GPU, 8-bit integers, and at least {NARROW} rows and columns: tiles in workgroup memory, four products per "
        "instruction",
    ),
    Suit(
        ProductSchedule.SHARED,
        lambda shape, target: True,
        f"a GPU, and at least {NARROW} rows and columns: tiles in workgroup memory",
    ),
)
"""Schedules of products in order; the first that fits is chosen."""


def _useful_parts(shape: Shape, schedule: ProductSchedule, tile: ProductTile, target: Target) -> int:
    """Return the number of parts that fill the adapter if there are too few outputs."""
    on_cpu, at_hand = target.profile is Profile.CPU, shape.outputs
    if schedule is ProductSchedule.SMALL:
        return _filling(256 if on_cpu else 1 << 14, at_hand, shape)
    across, down = tile.groups(shape.rows, shape.columns)
    at_hand = across * down * shape.batch
    if on_cpu:
        return _filling(16, at_hand, shape)
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
    """Register tiles of a kind of adapter.

    Attributes:
        invocations: invocations of a workgroup.
        groups: workgroups that keep the adapter busy.
        costs: cost of a multiplication if each invocation reads all its operands.
        shared_costs: the same if invocations broadcast the rows to each other.
        window_costs, wide_window_costs: the same if columns are windows that are read row by row; empty if they never
            are.
        fetching: additional cost of the first use of an element of a column, by units of a tile: long contiguous reads
            are fastest. It is included if few rows are multiplied by a column.
    """

    invocations: int
    groups: int
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
        across = _power_of_two(-(-shape.columns // (units * UNIT)), self.invocations)
        return ProductTile(
            rows, units, across, min(self.invocations // across, _power_of_two(-(-shape.rows // rows), 64))
        )

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
    in_step = target.profile is Profile.CPU and target.has("subgroup")
    return in_step and tile.depth == 0 and tile.down == 1 and tile.across >= MIN_LANES and units > 0


_ON_CPU = _Registers(
    invocations=8,
    groups=4,
    costs={
        (8, 4): 1.0,
        (8, 2): 1.49,
        (8, 1): 1.87,
        (4, 4): 1.5,
        (4, 2): 1.74,
        (4, 1): 2.2,
        (2, 4): 2.35,
        (2, 2): 2.8,
        (2, 1): 3.5,
        (1, 4): 3.3,
        (1, 2): 3.6,
        (1, 1): 5.2,
    },
    shared_costs={
        (32, 2): 0.55,
        (32, 1): 0.62,
        (24, 2): 0.62,
        (20, 2): 0.65,
        (16, 2): 0.61,
        (16, 1): 0.95,
        (12, 2): 1.0,
        (8, 4): 0.78,
        (8, 2): 1.08,
        (8, 1): 1.3,
        (4, 4): 1.41,
        (4, 2): 1.38,
        (4, 1): 1.84,
    },
    window_costs={
        (16, 1): 1.0,
        (12, 1): 1.3,
        (8, 2): 1.3,
        (8, 1): 1.6,
        (4, 2): 2.0,
        (4, 1): 2.7,
        (2, 2): 4.5,
        (1, 4): 5.5,
    },
    wide_window_costs={
        (8, 1): 1.0,
        (12, 1): 1.05,
        (4, 2): 1.2,
        (4, 1): 1.4,
        (16, 1): 1.4,
        (8, 2): 1.5,
        (2, 2): 2.9,
        (1, 4): 4.9,
    },
    fetching={4: 10.0, 2: 17.0, 1: 24.0},
)
"""Measured on lavapipe for 512 x 512 x 512, and for windows of 3 x 3 in steps of 2 and of 5 x 5, for wide ones
of 7 x 7 in steps of 2, and for 4 to 16 rows by 1024 x 1024."""


def _loads(rows: int, units: int) -> float:
    """Return the cost of a multiplication in a tile by the numbers that it loads, each as expensive as eight
    products."""
    return 1 + 8 * (rows + units * UNIT) / (rows * units * UNIT)


_ON_GPU = _Registers(64, 256, {(rows, units): _loads(rows, units) for rows in (8, 4, 2, 1) for units in (2, 1)})


def _registers(target: Target) -> _Registers:
    return _ON_CPU if target.profile is Profile.CPU else _ON_GPU


def _in_registers(shape: Shape, target: Target) -> ProductTile:
    """Return the tile with the lowest estimated time."""
    costs = _register_costs(shape, target)
    return min(costs, key=costs.__getitem__)


@functools.lru_cache(maxsize=256)  # a dozen tiles each
def _register_costs(shape: Shape, target: Target) -> Mapping[ProductTile, float]:
    """Return the estimated time of each tile."""
    kind = _registers(target)
    return {tile: kind.cost(tile, shape, target) for tile in kind.tiles(shape, target)}


def expected_cost(shape: Shape, target: Target) -> float:
    """Return the estimated time of a product, to compare products of one size and schedule."""
    choice = _built_in(shape, target)
    if choice.schedule is ProductSchedule.REGISTER:
        return _registers(target).cost(choice.tile, shape, target)
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


def _in_slabs(schedule: ProductSchedule, shape: Shape, target: Target) -> ProductTile:
    """Return the tile with the lowest estimated time: the largest one without parts, unless others are clearly
    faster."""
    tiles = (_shared_tiles if schedule is ProductSchedule.SHARED else _packed_tiles)(shape, target)
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
    widest = _power_of_two(-(-shape.columns // UNIT), _STREAM_ACROSS[0])
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


def _streamed(shape: Shape, target: Target) -> ProductTile:
    """Return the tile with the lowest estimated time, in its best number of parts."""

    def cost(tile: ProductTile) -> float:
        return min(_stream_cost(tile, shape, parts, target) for parts in _stream_parts(tile, shape, target))

    return min(_stream_tiles(shape, target), key=cost)


_TILES: Mapping[ProductSchedule, Callable[[Shape, Target], ProductTile]] = {
    ProductSchedule.SMALL: lambda shape, target: ProductTile(),
    ProductSchedule.REGISTER: _in_registers,
    ProductSchedule.SHARED: functools.partial(_in_slabs, ProductSchedule.SHARED),
    ProductSchedule.PACKED: functools.partial(_in_slabs, ProductSchedule.PACKED),
    ProductSchedule.STREAMED: _streamed,
}


def _power_of_two(number: int, limit: int) -> int:
    """Round a number up to a power of two, at most ``limit``."""
    return min(1 << (number - 1).bit_length(), limit)
