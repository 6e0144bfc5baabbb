"""The time of a kernel on a GPU: a model of its bytes, instructions, registers, workgroups, barriers and waits.

A kernel takes as long as the slowest of these, and a launch on top:

| limit | time |
|---|---|
| memory | bytes read and written once, at the memory's rate; those that a cache still holds at the cache's rate |
| cache | bytes that workgroups load, at the rate of the cache of all cores, and of one core for its workgroups |
| arithmetic | instructions of the workgroups of the busiest core |
| workgroup memory | bytes that these load from it |
| latency | instructions, waits and barriers of one invocation, as often as a core has to start workgroups |

``tests/unit/compiler/schedule/test_cost.py`` checks the estimates of a tile against compiled kernels. Clocks
under load, bank conflicts, broadcasts within a wave, and the overlap of kernels are not modeled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dmlgpu.compiler.cards import GpuCard
from dmlgpu.compiler.rewrites.packing import UNIT
from dmlgpu.compiler.schedule.steps.products import ProductTile
from dmlgpu.compiler.sizes.arithmetic import largest, smallest
from dmlgpu.compiler.target import Matrices

LOADED = 64
"""Bytes per cycle that a core loads from its caches."""

BARRIER = 300
"""Cycles from the last store to workgroup memory before a barrier to the first value loaded after it (an estimate)."""

WORD = 4


@dataclass(frozen=True)
class Work:
    """Work of a kernel. Numbers per invocation include all iterations of its loops.

    Attributes:
        groups, workgroup: Workgroups, and invocations of each.
        moved: Bytes that it reads and writes, each once.
        cached: The part of ``moved`` that earlier kernels of the same program wrote, if a cache holds it.
        loaded: Bytes that all workgroups load and store, each as often as it is used by another workgroup.
        multiply_adds: Float32 multiply-adds per invocation.
        half, dot: Instructions that do two multiply-adds of float16, and four of 8-bit integers.
        integers: Multiply-adds of 32-bit integers.
        matrix: Multiply-adds of float16 matrices, those of a subgroup shared by its invocations.
        vector: Other vector instructions per invocation.
        others: Scalar instructions, and those of memory.
        shared_moved: Bytes per invocation from workgroup memory.
        waits: Loads per invocation of which each is issued after the one before it arrived.
        barriers: Per invocation.
        registers: Per invocation.
        shared: Bytes of workgroup memory of a workgroup.
        exposed: Share of the latency that adds to the time: while a core waits, few other workgroups load.
    """

    groups: int
    workgroup: int
    moved: float
    cached: float = 0
    loaded: float = 0
    multiply_adds: float = 0
    half: float = 0
    dot: float = 0
    integers: float = 0
    matrix: float = 0
    vector: float = 0
    others: float = 0
    shared_moved: float = 0
    waits: float = 1
    barriers: float = 0
    registers: int = 32
    shared: int = 0
    exposed: float = 0

    @property
    def multiply_add_share(self) -> float:
        """Share of multiply-adds in all instructions."""
        return self.products / (self.products + self.vector + self.others)

    @property
    def products(self) -> float:
        """Multiply-add instructions."""
        return self.multiply_adds + self.half + self.dot + self.integers


@dataclass(frozen=True)
class Estimate:
    """An estimated time.

    Attributes:
        launch: Seconds of the launch.
        parts: Seconds by limit, as in the module's table.
        stalled: Seconds of exposed latency.
    """

    launch: float
    parts: Mapping[str, float]
    stalled: float = 0.0

    @property
    def seconds(self) -> Any:
        """The time; symbolic for symbolic work."""
        return largest(*self.parts.values()) + self.launch + self.stalled

    @property
    def limit(self) -> str:
        """The limit that takes longest: a name of ``parts``, or ``launch``."""
        times = {**self.parts, "launch": self.launch}
        return max(times, key=lambda name: times[name])


def resident(work: Work, card: GpuCard) -> int:
    """Return the number of workgroups that a core holds at a time, at least one."""
    waves = -(-work.workgroup // card.wave)
    by_registers = card.simds * card.waves_by_registers(work.registers) // waves
    by_memory = int(card.shared // work.shared) if work.shared else by_registers
    return max(1, min(by_registers, by_memory))


def rounds(groups: int, at_once: int, card: GpuCard) -> Any:
    """Return the number of rounds of workgroups, whole if the number of cores is known.

    Args:
        groups, at_once: Workgroups, and those that all cores hold at a time.
        card: The card.
    """
    return largest(1.0, groups / at_once) if card.is_generic else -(-groups // at_once)


def estimate(work: Work, card: GpuCard) -> Estimate:
    """Return the time of a kernel on a card."""
    busiest = rounds(work.groups, card.cores, card)
    starts = rounds(work.groups, card.cores * resident(work, card), card)
    products = work.multiply_adds + work.half * 2 / card.half + work.dot * 4 / card.dot + work.integers / card.integer
    products += work.matrix / (card.matrix or 1)  # a driver may offer what the card's documents do not have
    slots = (products + work.vector + (work.others if card.counts_all else 0)) / card.issue
    instructions = work.products + work.vector + work.others
    # A wave issues an instruction in one or more cycles; waves that barriers keep together issue one after the other.
    alone = max(instructions * card.wave * card.simds / card.lanes, work.workgroup * slots / card.lanes)
    alone = (alone + work.barriers * BARRIER) / card.clock
    by_cores = busiest * work.loaded / work.groups / (LOADED * card.clock)
    parts = {
        "memory": (work.moved - work.cached) / card.memory + work.cached / card.cache_rate,
        "cache": largest(work.loaded / card.l2_rate, by_cores),
        "arithmetic": busiest * work.workgroup * slots / card.lanes / card.clock,
        "workgroup memory": busiest * work.workgroup * work.shared_moved / card.shared_rate / card.clock,
        # Loads of the next slab are in flight while this one is multiplied, and others' while a group waits.
        "latency": starts * (card.latency + largest(work.waits * card.latency, alone)),
    }
    return Estimate(card.launch, parts, work.exposed * parts["latency"])


NOT_HIDDEN = 0.05
"""Share of all parts that is added to the cost of a choice: of choices with the same limit, the one with less work is
better."""


def cost_of(works: Iterable[Work], card: GpuCard) -> Any:
    """Return the cost of a sequence of kernels, to compare choices: their seconds, and a little for all parts."""
    estimates = [estimate(work, card) for work in works]
    return sum(each.seconds + NOT_HIDDEN * sum(each.parts.values()) for each in estimates)


# ---- products in slabs of workgroup memory

PAIR_VECTOR, PAIR_SCALAR, PAIR_WAITS, PAIR_FETCHES = 20, 17, 36, 8
"""Instructions per pair of slabs besides multiply-adds and loads from workgroup memory, of which the waits are none on
GPUs that wait by themselves: as compiled for navi31."""

AROUND, AROUND_OUTPUT = 60, 4
"""Instructions before and after the loop, and for each output of an invocation."""

SPARE_REGISTERS = 24
"""Registers besides sums and two steps of operands: addresses, and elements on the way to workgroup memory."""

_HELD = 2
"""Slabs in workgroup memory: one is filled while the other is multiplied."""


def tile_registers(tile: ProductTile) -> int:
    """Return the estimated registers of an invocation that multiplies a tile: sums, two steps of operands, others."""
    columns = tile.units * UNIT
    return tile.rows * columns + 2 * (tile.rows + columns) + SPARE_REGISTERS


def slab_bytes(tile: ProductTile) -> int:
    """Return the bytes of workgroup memory of a tile's slabs."""
    return _HELD * WORD * tile.depth * (tile.across * tile.units * UNIT + tile.down * tile.rows)


def slab_loop(tile: ProductTile) -> Work:
    """Return the work of one invocation's loop over a pair of slabs, by its instruction listing."""
    columns, steps = tile.units * UNIT, _HELD * tile.depth
    return Work(
        1,
        tile.workgroup,
        0,
        multiply_adds=steps * tile.rows * columns,
        vector=PAIR_VECTOR,
        others=steps * (tile.rows + columns) // UNIT + PAIR_FETCHES + PAIR_SCALAR + PAIR_WAITS,
        registers=tile_registers(tile),
        shared=slab_bytes(tile),
    )


def slab_work(
    size: tuple[int, int, int, int],
    tile: ProductTile,
    parts: int,
    card: GpuCard,
    *,
    element: int = WORD,
    moved: float | None = None,
    packed: int = 1,
) -> Work:
    """Return the kernel of a product in slabs.

    Args:
        size: Batch, rows, columns and inner size of the product.
        tile: Tile of a workgroup, with a depth.
        parts: Parts into which sums are split.
        card: Its caches decide which elements are read again.
        element: Bytes of an element of the operands and the result.
        moved: Bytes of operands and result; those of matrices by default.
        packed: Products of an instruction: two of float16, four of 8-bit integers in words along the inner dimension.
    """
    batch, rows, columns, inner = size
    across, down = tile.groups(rows, columns)
    groups = across * down * batch * parts
    wide, high = tile.across * tile.units * UNIT, tile.down * tile.rows
    share = -(-inner // parts)
    pairs = -(-share // (_HELD * tile.depth * (packed if packed == UNIT else 1)))
    outputs = batch * parts * rows * columns * WORD
    once = batch * inner * (rows + columns) * element + outputs if moved is None else moved
    loads = groups * share * (wide + high) * element
    loop = slab_loop(tile)
    products = pairs * loop.multiply_adds
    around = AROUND + AROUND_OUTPUT * tile.rows * tile.units * UNIT
    shape = Work(groups, tile.workgroup, 0, registers=loop.registers, shared=loop.shared)
    at_once = card.cores * resident(shape, card)
    # Concurrent workgroups share rows and columns of the operands; data larger than the cache are read again
    # by later ones.
    in_row = smallest(across, at_once)
    in_column = smallest(-(-at_once // in_row), down * batch * parts)
    panels = in_row * wide * -(-in_column // down) + in_column * high
    again = -(-groups // at_once) * panels * share * element + outputs
    fits = once <= card.cache
    return Work(
        groups,
        tile.workgroup,
        once if fits else largest(once, smallest(again, loads)),
        loaded=loads + outputs,
        multiply_adds=products if packed == 1 else 0,
        half=products / 2 if packed == 2 else 0,
        dot=products if packed == UNIT else 0,
        vector=pairs * loop.vector + around / 2,
        others=pairs * (loop.others - PAIR_WAITS) + around / 2,
        shared_moved=pairs * _HELD * tile.depth * (tile.rows + tile.units * UNIT) * WORD,
        waits=pairs,
        barriers=2 * pairs,
        registers=loop.registers,
        shared=loop.shared,
    )


FETCHED, FETCHED_UNIT = 8, 14
"""Instructions of an iteration of such a product, and for each unit of four elements that an invocation brings, as
compiled for navi31."""


def matrix_work(
    size: tuple[int, int, int, int],
    matrices: Matrices,
    parts: int,
    *,
    depth: int,
    moved: float | None = None,
) -> Work:
    """Return the kernel of a product on matrix units, of four subgroups, two along rows and columns.

    Args:
        size: Batch, rows, columns and inner size of the product.
        matrices: The matrix units; ``block`` is that of the kernel.
        parts: Parts into which sums are split.
        depth: Steps of a slab.
        moved: Bytes of operands and result; those of matrices by default.
    """
    batch, rows, columns, inner = size
    element = WORD if matrices.component == "f32" else 2  # slabs of 8-bit integers have twice as many steps
    high, wide = 2 * matrices.block * matrices.rows, 2 * matrices.block * matrices.columns
    workgroup, side = 4 * matrices.lanes, matrices.block * (matrices.rows + matrices.columns)
    groups = batch * -(-rows // high) * -(-columns // wide) * parts
    slabs = -(-inner // (parts * depth))
    fetched = depth * (high + wide) / UNIT / workgroup
    outputs = batch * parts * rows * columns * (WORD if parts > 1 else element)
    loads = groups * slabs * depth * (high + wide) * element
    once = batch * inner * (rows + columns) * element + outputs if moved is None else moved
    around = AROUND + AROUND_OUTPUT * high * wide / workgroup
    return Work(
        groups,
        workgroup,
        once,
        loaded=loads + outputs,
        matrix=slabs * depth * high * wide / workgroup,
        vector=slabs * (FETCHED + FETCHED_UNIT * fetched) + around,
        others=slabs * depth / matrices.steps * (matrices.block**2 + 2 * side / matrices.rows),
        shared_moved=slabs * depth * 4 * side * element / workgroup,
        waits=slabs,
        barriers=2 * slabs,
        registers=SPARE_REGISTERS + (high * wide // 4 + matrices.steps * side) // matrices.lanes,
        shared=element * depth * (high + wide) + WORD * 4 * matrices.rows * matrices.columns,
    )


TURN_OTHERS = 12
"""Instructions of an iteration of such a product besides multiply-adds and loads."""


def stream_work(
    size: tuple[int, int, int, int],
    tile: ProductTile,
    parts: int,
    steps: int,
    *,
    element: int = WORD,
    moved: float | None = None,
) -> Work:
    """Return the kernel of a product of few rows, whose columns are read once.

    Args:
        size: Batch, rows, columns and inner size of the product.
        tile: Tile of a workgroup, with a depth and slices.
        parts: Parts into which sums are split.
        steps: Fours of steps whose loads are in flight at a time.
        element: Bytes of an element of the operands.
        moved: Bytes of operands and result; those of matrices by default.
    """
    batch, rows, columns, inner = size
    across, down = tile.groups(rows, columns)
    groups = across * down * batch * parts
    share = -(-inner // parts)
    quads = -(-share // (UNIT * tile.slices))
    turns, slabs, rounds = -(-quads // steps), -(-share // tile.depth), (tile.slices - 1).bit_length()
    stored = -(-share * tile.rows // (UNIT * tile.workgroup))
    once = batch * inner * (rows + columns) * element + batch * parts * rows * columns * WORD
    moved = once if moved is None else moved
    around = AROUND + tile.rows * (AROUND_OUTPUT * UNIT + 2 * rounds)
    return Work(
        groups,
        tile.workgroup,
        moved,
        loaded=moved + (groups * share * tile.rows + (down - 1) * batch * inner * columns) * element,
        multiply_adds=quads * UNIT * UNIT * tile.rows,
        vector=turns * TURN_OTHERS / 2 + around / 2,
        others=turns * TURN_OTHERS / 2 + around / 2 + quads * (UNIT + tile.rows) + 3 * stored,
        shared_moved=UNIT * WORD * (quads * tile.rows + stored + tile.rows),
        waits=turns + 1,
        barriers=2 * (slabs + rounds),
        exposed=1,  # measured on an H100: 34 us, 23 us at its copy rate
        registers=UNIT * (tile.rows + 1) + UNIT * UNIT * steps * element // WORD + UNIT + SPARE_REGISTERS,
        shared=UNIT * tile.depth * tile.rows,
    )


def merge_work(outputs: int, parts: int, card: GpuCard, element: int = WORD) -> Work:
    """Return the kernel that adds the parts of sums."""
    partials = outputs * parts * WORD
    moved = outputs * (parts * WORD + element)
    return Work(
        -(-outputs // (256 * UNIT)),
        256,
        moved,
        cached=partials if partials <= card.cache else 0,
        loaded=moved,
        vector=UNIT * parts + 15,
        others=parts + 15,
        registers=24 + UNIT * parts // 2,
    )
