"""Which schedule computes a matrix product, and in what tiles: a pure function of the product's shape and the target.

| name | what an invocation computes | for |
|---|---|---|
| ``small`` | one output, straight from both operands | little work; a row by columns that lie in one piece |
| ``register`` | a tile of outputs, straight from memory | CPU adapters; few rows or columns on GPUs |
| ``shared`` | a tile of outputs, from slabs of both operands in workgroup memory | GPUs |

Each also comes as ``...-split``: several invocations share the products of one output, each leaving its sum in a
temporary tensor, and a second kernel adds them up. That is for few outputs with long sums, and for sums that would
take more iterations than the driver allows. ``Target.schedule`` names one of the six to override the choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dmlgpu.errors import InvalidArgument
from dmlgpu.kernels.packing import UNIT
from dmlgpu.plan import Space
from dmlgpu.schedule.steps import ProductSchedule, ProductTile
from dmlgpu.target import Profile, Target

SPLIT = "-split"
NAMES = tuple(schedule + suffix for suffix in ("", SPLIT) for schedule in ProductSchedule)
"""The names that ``Target.schedule`` may have."""


@dataclass(frozen=True)
class Shape:
    """How many products there are, of matrices how large: ``rows`` x ``inner`` by ``inner`` x ``columns``.

    Attributes:
        along: whether both operands can be read in units along the inner dimension.
    """

    batch: int
    rows: int
    columns: int
    inner: int
    along: bool = False

    @classmethod
    def of(cls, space: Space, *, along: bool = False) -> Shape:
        """Return the shape of a product over these groups of dimensions."""
        batch, rows, columns, inner = map(math.prod, (space.batch, space.rows, space.columns, space.inner))
        return cls(batch, rows, columns, inner, along)

    @property
    def outputs(self) -> int:
        """Elements of all results."""
        return self.batch * self.rows * self.columns

    @property
    def work(self) -> int:
        """Multiplications."""
        return self.outputs * self.inner


@dataclass(frozen=True)
class Choice:
    """A schedule, its tile, and into how many parts sums are split (1: not at all).

    Attributes:
        reason: why these, for people.
    """

    schedule: ProductSchedule
    tile: ProductTile
    parts: int = 1
    reason: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """As in ``NAMES``."""
        return self.schedule + (SPLIT if self.parts > 1 else "")


LITTLE_WORK, LITTLE_WORK_ON_CPU = 1 << 16, 1 << 13
"""Multiplications up to which the schedule that compiles fastest is good enough."""

NARROW = 16
"""Rows or columns below which a tile in workgroup memory would be mostly empty."""

FEWEST_STEPS = 256
"""Steps along the inner dimension that make a part worth an invocation."""

MOST_PARTS = 64


def choose(shape: Shape, target: Target, name: str = "") -> Choice:
    """Return the schedule for a product.

    Args:
        shape: of the product.
        target: decides by its profile and its limits; its ``schedule`` overrides the choice.
        name: overrides both.

    Raises:
        InvalidArgument: for a name that is not in ``NAMES``.
    """
    name = name or target.schedule
    if name and name not in NAMES:
        raise InvalidArgument(f"matrix products have no schedule {name!r}; there are {', '.join(NAMES)}")
    if name:
        schedule, reason = ProductSchedule(name.removesuffix(SPLIT)), f"{name!r} is asked for"
    else:
        schedule, reason = _suited(shape, target)
    tile = _TILES[schedule](shape, target)
    needed = -(-shape.inner // longest(target))
    if name.endswith(SPLIT):
        return Choice(schedule, tile, max(needed, _most_parts(shape), 2), reason)
    wanted = 1 if name else _useful_parts(shape, schedule, tile, target)
    if needed > 1:
        reason += f"; the driver stops an invocation before it has added up {shape.inner:,} products"
    elif wanted > 1:
        reason += f"; {shape.outputs:,} outputs leave the adapter idle unless {wanted} invocations share their sums"
    return Choice(schedule, tile, max(needed, wanted), reason)


def longest(target: Target) -> int:
    """Return the steps along the inner dimension that one invocation may take."""
    return 1 << 20 if target.loop_limit is None else target.loop_limit // 2


def _suited(shape: Shape, target: Target) -> tuple[ProductSchedule, str]:
    """Return the schedule that suits a product, and why."""
    on_cpu = target.profile is Profile.CPU
    little = LITTLE_WORK_ON_CPU if on_cpu else LITTLE_WORK
    if shape.work <= little:
        return ProductSchedule.SMALL, f"{shape.work:,} multiplications are little work (at most {little:,})"
    if on_cpu and shape.rows == 1 and shape.along:
        return ProductSchedule.SMALL, "one row by columns that lie in one piece, on a processor"
    if on_cpu:
        return ProductSchedule.REGISTER, "processors are fastest with tiles in registers"
    if min(shape.rows, shape.columns) < NARROW:
        return (
            ProductSchedule.REGISTER,
            f"fewer than {NARROW} rows or columns: tiles of a workgroup would be mostly empty",
        )
    return ProductSchedule.SHARED, f"a GPU, and at least {NARROW} rows and columns: tiles in workgroup memory"


def _useful_parts(shape: Shape, schedule: ProductSchedule, tile: ProductTile, target: Target) -> int:
    """Return the parts that fill the adapter where there are too few outputs to do so."""
    if schedule is ProductSchedule.SMALL:
        filled, at_hand = (256 if target.profile is Profile.CPU else 1 << 14), shape.outputs
    else:
        across, down = tile.groups(shape.rows, shape.columns)
        filled, at_hand = (16 if target.profile is Profile.CPU else 128), across * down * shape.batch
    return max(1, min(filled // at_hand, _most_parts(shape)))


def _most_parts(shape: Shape) -> int:
    """Return the parts that are long enough to be worth an invocation each."""
    return max(1, min(shape.inner // FEWEST_STEPS, MOST_PARTS))


def _single(shape: Shape, target: Target) -> ProductTile:
    return ProductTile()


@dataclass(frozen=True)
class _Registers:
    """What tiles in registers may be like on a kind of adapter.

    Attributes:
        invocations: of a workgroup.
        groups: workgroups that keep the adapter busy.
        costs: what a multiplication costs in tiles of so many rows and units, measured on lavapipe for 512 x 512 x 512,
            in terms of one tile.
    """

    invocations: int
    groups: int
    costs: Mapping[tuple[int, int], float]

    def tile(self, rows: int, units: int, shape: Shape) -> ProductTile:
        """Invocations lie side by side as far as there are columns: then all read the same rows at once."""
        across = _power_of_two(-(-shape.columns // (units * UNIT)), self.invocations)
        return ProductTile(
            rows, units, across, min(self.invocations // across, _power_of_two(-(-shape.rows // rows), 64))
        )

    def cost(self, tile: ProductTile, shape: Shape) -> float:
        """Return the time for a product, empty parts of tiles and idle processors included."""
        across, down = tile.groups(shape.rows, shape.columns)
        idle = max(1.0, self.groups / (across * down * shape.batch * _most_parts(shape)))
        return tile.covered(shape.rows, shape.columns) * idle * self.costs[tile.rows, tile.units]


_COSTS = {
    (8, 4): 1.0,
    (8, 2): 1.35,
    (8, 1): 1.7,
    (4, 4): 1.6,
    (4, 2): 1.7,
    (4, 1): 2.1,
    (2, 4): 2.4,
    (2, 2): 2.6,
    (2, 1): 3.0,
    (1, 4): 3.8,
    (1, 2): 4.9,
    (1, 1): 5.0,
}
_ON_CPU = _Registers(8, 16, _COSTS)
_ON_CPU_AT_LENGTH = replace(_ON_CPU, costs={(16, 4): 0.82, (16, 2): 0.93, **_COSTS})
_ON_GPU = _Registers(64, 256, {size: cost for size, cost in _COSTS.items() if size[1] <= 2})

MUCH_WORK = 1 << 26
"""Multiplications from which on it pays to compile the largest tiles."""


def _in_registers(shape: Shape, target: Target) -> ProductTile:
    """Return the tile that promises to be fastest."""
    on_cpu = _ON_CPU if shape.work < MUCH_WORK else _ON_CPU_AT_LENGTH
    kind = on_cpu if target.profile is Profile.CPU else _ON_GPU
    tiles = (kind.tile(rows, units, shape) for rows, units in kind.costs)
    return min(tiles, key=lambda tile: kind.cost(tile, shape))


MANY_GROUPS = 256
"""Workgroups from which on large tiles leave no processor idle."""


def _in_workgroup_memory(shape: Shape, target: Target) -> ProductTile:
    """Eight by eight outputs per invocation where enough workgroups are left, else four by four."""
    side = 16 if target.max_workgroup_invocations >= 256 else 8
    large, small = ProductTile(8, 2, side, side, 16), ProductTile(4, 1, side, side, 16)
    across, down = large.groups(shape.rows, shape.columns)
    fits = 4 * UNIT * large.depth * side * (large.units + large.rows // UNIT) <= target.max_workgroup_storage
    return large if fits and across * down * shape.batch >= MANY_GROUPS else small


_TILES = {
    ProductSchedule.SMALL: _single,
    ProductSchedule.REGISTER: _in_registers,
    ProductSchedule.SHARED: _in_workgroup_memory,
}


def _power_of_two(number: int, most: int) -> int:
    """Return the smallest power of two that is not below a number, at most ``most``."""
    return min(1 << (number - 1).bit_length(), most)
