"""Attention that streams over the keys and never holds a row of scores.

A workgroup takes a tile of rows and iterates over blocks of keys. Its invocations share the scores of a block, compute
the running maximum of each row, store the weights in workgroup memory, and then share the columns of the weighted sum;
earlier sums are rescaled to the new maximum. For few rows, on a CPU adapter, invocations share heads instead of keys,
and collect the scores in workgroup memory.

On GPUs, both products read slabs in workgroup memory: scores those of queries and keys, 16 elements of a head at a
time, weighted sums those of weights and values. While one slab is multiplied, the next one is loaded. Operands are read
in their own type, each key once for all heads that share it, and once for 64 rows; float16 is converted on the way.
Maxima and sums of rows are combined by subgroups, or through workgroup memory.

Where GPUs have matrix units, they compute both products of float16 (``cooperative_attention``).

Few rows wait for keys and values: on GPUs, each is read once, straight to registers, with many loads in flight. Some
invocations share a key; the weights of a block go through workgroup memory; then all share the values.

CPU adapters are faster by rows: an invocation holds some rows and their weighted sums in registers, and iterates over
single keys, without workgroup memory. Invocations of a subgroup take rows of the same head, and broadcast the keys and
values that they read. If a head has few rows, they share the units of each key instead, and add up its score.

Queries and keys are read as in a matrix product, by rows in units of four along the head, as values always are.
Operands in other layouts are copied to a temporary tensor if they are read often enough. If rows are few, or keys
exceed the driver's limit on iterations, the keys are split into parts, each with its weighted sum, its maximum and its
sum of weights; a map merges them.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.cards import card_of
from dmlgpu.compiler.plan import Attend, Body, Map, PlanTensor, RegisterValue, Source, constants, element
from dmlgpu.compiler.rewrites.packing import UNIT, pack_source, pack_tensor
from dmlgpu.compiler.rewrites.sources import as_type, cast
from dmlgpu.compiler.schedule.cooperative_attention import (
    MatrixTile,
    cooperative_attention,
    fills_attention,
    fits_attention,
    matrix_tile,
    packs_along,
)
from dmlgpu.compiler.schedule.gemm_choice import power_of_two
from dmlgpu.compiler.schedule.launch import LOCKSTEP, Launch, fold, shuffling_lanes
from dmlgpu.compiler.schedule.operands import pack_output
from dmlgpu.compiler.schedule.registry import CPU, GPUS, Condition, Schedule, at_most, choose, no, register
from dmlgpu.compiler.schedule.scheduling import StepProblem, schedule_step
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.products import AttentionTile, Operand, OperandLayout, ScheduledAttend
from dmlgpu.compiler.target import Target

FLOAT32 = DataType.FLOAT32
MERGE = "attention/merge"


@schedule_step.register
def _attend(step: Attend, target: Target) -> ScheduledSteps:
    tile = choose(ATTENTION_SCHEDULES, AttentionProblem(step, target))
    if isinstance(tile, MatrixTile):
        return cooperative_attention(step, tile, target)
    return _AttentionScheduler(step, tile, target).steps()


# ---- tiles and parts

LITTLE_WORK = 1 << 18
"""Maximum multiplications for which the tile that compiles fastest is good enough."""

BUSY, BUSY_IN_SLABS = 8, 2048
"""Workgroups that keep a CPU adapter busy; groups of four rows, in slabs, that keep a GPU busy."""

MIN_BLOCKS = 4
"""Minimum number of blocks of a part that is worth a workgroup."""

MIN_KEYS, MAX_KEYS = 64, 1024
"""Minimum keys of a part that is worth an invocation by rows; maximum keys whose values a row sums sequentially."""


class AttentionProblem(StepProblem[Attend]):
    """Attention and its target."""

    @property
    def units(self) -> int:
        """Units of four columns of the output."""
        return -(-self.step.output.sizes[-1] // UNIT)


MAX_UNITS, MAX_HELD, LITTLE_HELD = 32, 64, 16
"""Maximum units of a head, and of all rows of an invocation, held in registers: source and compile time grow with them;
the latter for little work."""

COSTS_BY_ROWS = {4: 1.0, 2: 1.2, 1: 1.4}
"""Cost of a row by the number of rows per invocation, relative to four; measured on lavapipe for heads of 64."""

SHARED_ROWS = 2
"""Rows of an invocation if sizes vary: one kernel serves all numbers of rows. It compiles in a third of the time of
one with four."""

FEW_ROWS_OF_HEAD = 4
"""Maximum rows of a head for which invocations share its keys; of more, each takes its own rows."""

MAX_UNITS_AT_ONCE = 8
"""Units of keys and values that an invocation reads in a turn of the loop; with more, the loop outgrows the CPU's cache
of instructions, and compiles longer. Measured on lavapipe for heads of 128: 145 ns for a key with 32, 89 with 16."""


def _tile_by_lanes(problem: AttentionProblem) -> AttentionTile | Condition:
    """Return the tile of few rows, whose keys and values the invocations of a subgroup read in the order of memory."""
    attention, target = problem.step, problem.target
    head, operands = attention.query.sizes[-1], (attention.query, attention.key, attention.value)
    few = at_most(attention.rows, FEW_ROWS_OF_HEAD, "rows")
    if not few:
        return few
    if head % UNIT or max(head // UNIT, problem.units) > MAX_UNITS or not all(map(packs_along, operands)):
        return no("no heads of at most {} whole units of {}", MAX_UNITS, UNIT)
    if not target.has("subgroup"):
        return no("there are no subgroups to add up scores")
    lanes = min(LOCKSTEP, target.subgroup_lanes)
    dots, units = -(-head // (UNIT * lanes)), -(-problem.units // lanes)
    at_once = 1 if _is_little(attention, problem.units) else max(1, MAX_UNITS_AT_ONCE // (dots + units))
    rows = next(rows for rows in range(1, FEW_ROWS_OF_HEAD + 1) if attention.rows <= rows)
    return AttentionTile(rows, 1, units, lanes, 1, dots, keys=1 << (at_once.bit_length() - 1))


def _tile_by_rows(problem: AttentionProblem) -> AttentionTile | Condition:
    """Return the tile of an invocation that takes whole rows, if heads allow it, and if invocations of a subgroup that
    read the same data can broadcast it."""
    attention, units, target = problem.step, problem.units, problem.target
    head, little = attention.query.sizes[-1], _is_little(attention, units)
    units_of_head, max_held = max(-(-head // UNIT), units), LITTLE_HELD if little else MAX_HELD
    in_units = all(packs_along(source) for source in (attention.query, attention.key))
    if head % UNIT or units_of_head > MAX_UNITS:
        return no("heads of {} elements, not at most {} whole units of {}", head, MAX_UNITS, UNIT)
    if (little or attention.rows == 1) and not in_units:
        return no("queries and keys are not in units of {}", UNIT)

    fitting = [rows for rows in COSTS_BY_ROWS if rows * units_of_head <= max_held]
    if not fitting or not target.has("subgroup"):
        return no("an invocation cannot hold a head, or there are no subgroups to broadcast keys")

    def cost(rows: int) -> float:
        return -(-attention.rows // (LOCKSTEP * rows)) * rows * COSTS_BY_ROWS[rows]

    if target.policies.varying and attention.rows > LOCKSTEP:
        fitting = [rows for rows in fitting if rows <= SHARED_ROWS][:1] or fitting
    rows = fitting[0] if len(fitting) == 1 else min(fitting, key=cost)
    return AttentionTile(rows, 1, units, 1, LOCKSTEP, head // UNIT, sharing=min(LOCKSTEP, target.subgroup_lanes))


def _is_little(attention: Attend, units: int) -> bool:
    """Return whether there is so little work that compile time dominates."""
    return attention.batches * attention.rows * attention.keys * 8 * units <= LITTLE_WORK


def _tile_in_blocks(problem: AttentionProblem) -> AttentionTile:
    """Return a tile with much work for each of eight invocations, which run in lockstep."""
    attention, units = problem.step, problem.units
    if _is_little(attention, units):
        return AttentionTile(min(2, attention.rows), 1, min(-(-units // 8), 2), 8, 1)
    rows = min(16, power_of_two(attention.rows))
    across = 4 if attention.rows > rows else 8
    key_units = min(4, power_of_two(-(-attention.keys // (UNIT * across))))
    tile = AttentionTile(rows, key_units, min(-(-units // across), 4), across, 8 // across)
    return _with_dots(attention, tile)


MAX_DOTS = 8
"""Number of units of a head that an invocation holds of each row."""

MAX_PRODUCTS = 256
"""Maximum keys of a block times rows for which parts of their products fit into workgroup memory."""


def _with_dots(attention: Attend, tile: AttentionTile) -> AttentionTile:
    """Return the tile with invocations that share heads, if rows are so few that keys are not copied: accesses of
    adjacent invocations are coalesced then, instead of one element in each of many rows."""
    head = attention.query.sizes[-1]
    in_units = packs_along(attention.query) and packs_along(attention.key)
    dots = head // (UNIT * tile.across)
    if attention.rows > min(tile.rows, UNIT) or not in_units or head % (UNIT * tile.across) or dots > MAX_DOTS:
        return tile
    return replace(tile, key_units=min(tile.key_units, MAX_PRODUCTS // (UNIT * tile.across * tile.rows)), dots=dots)


LITTLE_WORK_ON_GPU = 1 << 22
"""Maximum multiplications of queries and keys for which loops, which compile fast, are good enough."""

FEW_ROWS = 32
"""Maximum rows for which a workgroup takes 16 of them instead of 64, most of which would be empty."""

DEPTH = 16
"""Number of elements of a head in a slab."""

MAX_SLAB_UNITS = 2
"""Maximum units of the output in registers of an invocation; workgroups share wider heads and repeat their scores."""


MAX_STREAMED_ROWS, ROWS_OF_TILE = 8, 4
"""Rows up to which keys are streamed, and rows that a workgroup has registers for; several workgroups read the same
keys, all but the first one from a cache."""

STREAMING = 256
"""Invocations of such a workgroup, and keys of its blocks."""

FILLED = 4
"""Workgroups per core that keep it busy, each in another phase. Measured on an H100: with two, one query of 32 heads of
128 reads 4,096 keys at two thirds of the copy rate."""


def _tile_streamed(problem: AttentionProblem) -> AttentionTile | Condition:
    """Return the tile of few rows, if keys are many, and heads are multiples of 16 elements."""
    attention, target = problem.step, problem.target
    few = at_most(attention.rows, MAX_STREAMED_ROWS, "rows")
    if not few:
        return few
    head, across = attention.query.sizes[-1], power_of_two(problem.units)
    quads, slices = head // UNIT, STREAMING // across
    many = attention.keys >= STREAMING <= target.max_workgroup_invocations
    if not many or head % (UNIT * UNIT) or not UNIT <= slices <= AttentionTile.most_slices:
        return no("{} keys and heads of {}, not {} keys and multiples of 16", attention.keys, head, STREAMING)
    lanes = 2 * UNIT if quads % (2 * UNIT) == 0 else UNIT
    narrow = isinstance(attention.key, PlanTensor) and attention.key.data_type.bits < FLOAT32.bits
    steps = next(steps for steps in ((4, 2, 1) if narrow else (2, 1)) if quads // lanes % steps == 0)
    rows = -(-attention.rows // -(-attention.rows // ROWS_OF_TILE))
    needed = 4 * UNIT * (rows * (quads + STREAMING // 2) + STREAMING + AttentionTile.most_slices + 1)
    room = at_most(needed, target.max_workgroup_storage, "bytes of workgroup memory")
    return AttentionTile(rows, 1, 1, across, slices, lanes=lanes, steps=steps) if room else room


def _tile_in_slabs(problem: AttentionProblem) -> AttentionTile:
    """Return a tile of 16 invocations by 16, or by four for few rows, each with four rows."""
    attention, target = problem.step, problem.target
    units = min(MAX_SLAB_UNITS, power_of_two(-(-problem.units // DEPTH)))
    few = attention.rows <= FEW_ROWS
    rows = max(attention.rows, UNIT * UNIT)
    little = attention.batches * rows * attention.keys * attention.query.sizes[-1] <= LITTLE_WORK_ON_GPU
    down = UNIT if few and not little else DEPTH
    tile = AttentionTile(UNIT, 1, units, DEPTH, down, depth=DEPTH, written_out=not little)
    while tile.down > 1 and not _fits(tile, attention, target):
        tile = replace(tile, down=tile.down // 2)
    return tile


def _fits(tile: AttentionTile, attention: Attend, target: Target) -> bool:
    """Return whether an adapter has room for a pair of each slab, and for the number of visible keys."""
    needed = 2 * 4 * UNIT * tile.depth * (tile.down + tile.across) + (0 if attention.visible is None else 4 * UNIT)
    return tile.workgroup <= target.max_workgroup_invocations and needed <= target.max_workgroup_storage


ATTENTION_SCHEDULES: tuple[Schedule[AttentionProblem, AttentionTile | MatrixTile], ...] = register(
    Schedule(
        "attention",
        "cooperative",
        lambda problem: matrix_tile(problem.step, problem.target),
        "matrix units multiply its numbers",
        lambda problem: fits_attention(problem.step, problem.target),
        lambda problem: fills_attention(problem.step, problem.target),
        profiles=GPUS,
    ),
    Schedule("attention", "lanes", _tile_by_lanes, "few rows: a subgroup shares the units of a key", profiles=CPU),
    Schedule("attention", "rows", _tile_by_rows, "an invocation takes rows, and holds their heads", profiles=CPU),
    Schedule("attention", "streamed", _tile_streamed, "few rows: keys and values are read once", profiles=GPUS),
    Schedule("attention", "slabs", _tile_in_slabs, "two products of slabs in workgroup memory", profiles=GPUS),
    Schedule("attention", "blocks", _tile_in_blocks, "much work for each of eight invocations in step"),
)
"""Tiles of attention, in the order in which they are tried."""


def _share(attention: Attend, tile: AttentionTile, target: Target) -> int:
    """Return the number of keys of each part: at most what the loop limit allows, and few enough to keep the adapter
    busy."""
    units = -(-attention.output.sizes[-1] // UNIT)
    groups = math.prod(tile.groups(attention.rows, units)) * attention.batches
    blocks = -(-attention.keys // tile.block)
    busy = BUSY_IN_SLABS // tile.down if tile.depth else BUSY
    if tile.is_streamed:
        busy = FILLED * card_of(target).cores
    min_blocks = MIN_KEYS // tile.block if tile.by_rows or tile.keys else 1 if tile.is_streamed else MIN_BLOCKS
    parts = max(1, min(-(-busy // groups), blocks // min_blocks))
    if tile.keys or ((tile.depth or tile.is_streamed) and target.keeps_digits):
        parts = max(parts, -(-attention.keys // MAX_KEYS))
    share = -(-blocks // parts)
    if target.loop_limit is not None:
        share = min(share, max(1, (target.loop_limit // 2) // _iterations(attention, tile)))
    return share * tile.block


def _iterations(attention: Attend, tile: AttentionTile) -> int:
    """Return the number of iterations of all loops over a block."""
    if tile.by_rows or tile.keys or tile.is_streamed:
        return tile.block
    if tile.depth:
        return attention.query.sizes[-1] + tile.block + 2 * tile.across
    scores = tile.block + UNIT * tile.key_units * (1 + tile.across) if tile.dots else attention.query.sizes[-1]
    return 1 + scores + tile.block + 2 * UNIT * tile.key_units + tile.across


# ---- steps

MIN_REUSE = 4
"""Minimum number of reads of an operand that justifies repacking."""


class _AttentionScheduler:
    """The kernels of one attention."""

    def __init__(self, attention: Attend, tile: AttentionTile, target: Target):
        self.attention, self.tile, self.target = attention, tile, target
        self.before = ScheduledSteps()

    def steps(self) -> ScheduledSteps:
        """Return all kernels."""
        attention, output = self.attention, self.attention.output
        share = _share(attention, self.tile, self.target)
        parts = -(-attention.keys // share)
        if parts == 1:
            return self._kernels(self._epilogue(output), output, parts, share)
        units = -(-output.sizes[-1] // UNIT)
        sizes = (*output.sizes[:-1], UNIT * (units + 1))
        partials = PlanTensor.temporary("parts", FLOAT32, (parts, *sizes))
        each = replace(partials, sizes=sizes, strides=partials.strides[1:])
        merge = Map("merge of parts", _merged(partials, output), output)
        return self._kernels(self._epilogue(each), partials, parts, share) + schedule_step(merge, self.target)

    def _epilogue(self, output: PlanTensor) -> Body:
        """Return the step that stores a row's columns."""
        held = RegisterValue.product(FLOAT32, output.sizes)
        return cast(held, output.data_type)

    def _kernels(self, epilogue: Body, output: PlanTensor, parts: int, share: int) -> ScheduledSteps:
        attention, tile = self.attention, self.tile
        row_tiles, column_tiles = tile.groups(attention.rows, -(-attention.output.sizes[-1] // UNIT))
        blocks = -(-attention.keys // tile.block)
        if tile.depth or tile.by_rows or tile.keys or tile.is_streamed:
            once = tile.by_rows or tile.keys
            query = _along(self._in_units(attention.query, "queries", 1 if once else blocks * column_tiles))
            key = _along(self._in_units(attention.key, "keys", row_tiles * column_tiles))
        elif tile.dots:
            query, key = (
                _along(pack_source(source, len(source.sizes) - 1, UNIT)) for source in (attention.query, attention.key)
            )
        else:
            query = self._operand(attention.query, "queries", tile.rows % UNIT == 0, blocks * column_tiles)
            key = self._operand(attention.key, "keys", True, row_tiles * column_tiles)
        value = self._in_units(attention.value, "values", row_tiles)
        epilogue, output = pack_output(epilogue, output)
        units = value.sizes[-1]
        down, across = tile.groups(attention.rows, units)
        total = across * down * attention.batches * parts
        kernel = ScheduledAttend(
            f"attention{' in parts' if parts > 1 else ''}",
            Launch(
                tile.workgroup,
                1,
                fold(total, self.target),
                total,
                shuffling_lanes(self.target) if tile.depth or tile.is_streamed else 0,
            ),
            output,
            query,
            key,
            value,
            attention.score,
            attention.visible,
            epilogue,
            attention.is_plain,
            tile,
            attention.query.sizes[-1],
            units,
            parts,
            share,
            reason=self._why(parts),
        )
        return self.before + ScheduledSteps((kernel,))

    def _why(self, parts: int) -> str:
        """Return the reason for the tile and the parts."""
        tile = self.tile
        rows = f"{tile.down * tile.rows} rows"
        if tile.is_streamed:
            reason = (
                f"few rows: a workgroup takes {tile.rows}, reads {tile.block} keys at a time straight to registers, "
                f"{tile.lanes} invocations to a key, and then their values"
            )
        elif tile.keys:
            reason = f"few rows: {tile.across} invocations share the units of a key, and read {tile.keys} keys at once"
        elif tile.by_rows:
            reason = (
                f"a workgroup takes {rows}, each invocation {tile.rows} of them, and goes through the keys one by one"
            )
        else:
            reason = f"a workgroup takes {rows} and goes through the keys in blocks of {tile.block}"
        busy = "to keep the adapter busy, or within the driver's limit on iterations"
        return reason + (f"; the keys are split into {parts} parts {busy}" if parts > 1 else "")

    def _operand(self, source: Source, what: str, in_units: bool, reuse: int) -> Operand:
        """Return queries or keys: element by element, or repacked in units of four rows or keys."""
        batch, own, size = source.sizes[:2], source.sizes[2:-1], source.sizes[-1]
        if not in_units or reuse < MIN_REUSE:
            return Operand(source, OperandLayout.SINGLE, batch, own, True)
        count = -(-math.prod(own) // UNIT) * UNIT
        room = PlanTensor.temporary(what, FLOAT32, (*batch, size, count))
        strides = (*room.strides[:2], *packed_strides(own), count)
        self._lay_out(source, replace(room, sizes=source.sizes, strides=strides), what)
        return Operand(pack_tensor(room, 3, UNIT), OperandLayout.ACROSS, batch, (count,), False)

    def _in_units(self, source: Source, what: str, reuse: int) -> Source:
        """Return queries, keys or values in units of four along the head, repacked if they have another layout, or if
        they would be converted repeatedly."""
        last = len(source.sizes) - 1
        converts = (self.tile.depth > 0 or self.tile.is_streamed) and self.target.float16.decodes
        is_plain = isinstance(source, PlanTensor) and (source.data_type is FLOAT32 or converts)
        if packs_along(source) and (is_plain or reuse < MIN_REUSE):
            return pack_source(source, last, UNIT)
        *outer, size = source.sizes
        room = PlanTensor.temporary(what, FLOAT32, (*outer, -(-size // UNIT) * UNIT))
        self._lay_out(source, replace(room, sizes=source.sizes), what)
        return pack_tensor(room, last, UNIT)

    def _lay_out(self, source: Source, room: PlanTensor, what: str) -> None:
        """Copy an operand in float32, in another layout; elements of its padding are undefined."""
        body = as_type(source, FLOAT32) if isinstance(source, PlanTensor) else cast(source, FLOAT32)
        copied = schedule_step(Map(f"lay out {what}", body, room), self.target)
        self.before += copied.because(f"workgroups read {what} repeatedly, faster from float32 units of four")


def _along(source: Source) -> Operand:
    """Return queries or keys that are in units of four along the head."""
    last = len(source.sizes) - 1
    return Operand(source, OperandLayout.ALONG, source.sizes[:2], source.sizes[2:last], True)


def _merged(partials: PlanTensor, output: PlanTensor) -> Body:
    """Return the combined rows of all parts."""
    values = constants(parts=partials.sizes[0], top=partials.sizes[-1] - UNIT)
    return element(MERGE, output.data_type, output.sizes, portable=True, values=values, partials=partials)
