"""Attention: planning an ``Attend`` step, which streams over the keys and never holds a row of scores.

What is computed is an ``Attention``: for each head that keys and values share, groups of query rows,

    score[row, key] = score(query[row] . key[key])
    output[row] = sum over keys of e^(score[row, key] - top[row]) * value[key] / sum over keys of e^(score - top[row])

A workgroup takes a tile of rows and goes through the keys block by block. Its invocations share the scores of a block,
agree on the largest one of each row so far, leave the weights in workgroup memory, and then share the columns of the
weighted sum; what was summed before is scaled down to the new top. Two barriers a block are few enough for any adapter.

Queries and keys are read as in a matrix product, values in units of four along the head. Operands that do not lie so
are laid out anew in a temporary tensor if they are read often enough. Where rows are few, or keys are more than the
driver's limit on iterations allows, the keys are split into parts, each leaving its weighted sum, its top and its mass
of weights; a map merges them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dmlgpu.enums import DataType
from dmlgpu.kernels.gemm import CONVERT, Form, Operand, pack_output
from dmlgpu.kernels.gemm_schedules import UNIT
from dmlgpu.kernels.packing import pack_source, pack_tensor, packs_source
from dmlgpu.kernels.sources import identity
from dmlgpu.plan import Body, Held, Map, Source, Step, Tensor, View, apply, constants, element
from dmlgpu.target import Profile, Target
from dmlgpu.tensor import packed_strides

FLOAT32 = DataType.FLOAT32
MERGE = "attention/merge"


@dataclass(frozen=True)
class Attention:
    """What is computed (see the module).

    Attributes:
        query: {batch, shared heads, heads that share one, rows, head size}.
        key, value: {batch, shared heads, keys, head size} and {batch, shared heads, keys, value head size}.
        score: an element-wise tree over {batch, shared heads, heads that share one, rows, keys} with a leaf ``Held``,
            which stands for the product of a query and a key.
        visible: how many keys, from the first on, a row sees, over the query's sizes but the last and ascending along
            the rows; None: all.
        output: {batch, shared heads, heads that share one, rows, value head size}.
    """

    query: Source
    key: Source
    value: Source
    score: Body
    visible: Body | None
    output: Tensor

    @property
    def rows(self) -> int:
        """Query rows of one shared head."""
        return self.output.sizes[2] * self.output.sizes[3]

    @property
    def keys(self) -> int:
        """Keys of one shared head."""
        return self.key.sizes[2]

    @property
    def batches(self) -> int:
        """Shared heads in all."""
        return self.output.sizes[0] * self.output.sizes[1]

    @property
    def is_plain(self) -> bool:
        """Whether scores depend on nothing but the product."""
        return self.visible is None and len(self.score.inputs) == 1 and isinstance(self.score.inputs[0][1], Held)


@dataclass(frozen=True)
class Tile:
    """What a workgroup computes.

    Attributes:
        rows, key_units: scores of one invocation in a block, the keys in units of four.
        units: units of four columns of the output, of one invocation.
        across, down: invocations of a workgroup along keys (and columns), and along rows.
    """

    rows: int
    key_units: int
    units: int
    across: int
    down: int

    @property
    def workgroup(self) -> int:
        """Invocations of a workgroup."""
        return self.across * self.down

    @property
    def block(self) -> int:
        """Keys of a block."""
        return self.across * self.key_units * UNIT

    def groups(self, rows: int, units: int) -> tuple[int, int]:
        """Workgroups along the rows and along the columns of one shared head."""
        return -(-rows // (self.down * self.rows)), -(-units // (self.across * self.units))


@dataclass(frozen=True)
class Attend(Step):
    """Attention under a tile, and what is made of each row.

    Attributes:
        query, key: operands whose own dimensions are rows and keys.
        value: in units of four along the last dimension.
        score, visible: as in ``Attention``.
        epilogue, output: packed in units of four along the last dimension, or not at all. With parts the output has one
            more dimension, the first, and one more unit at the end of each row: its top and its mass.
        units: of a row of the values.
        parts: into how many the keys are split.
        share: keys of each part, in whole blocks.
    """

    query: Operand
    key: Operand
    value: Source
    score: Body
    visible: Body | None
    epilogue: Body
    output: Tensor
    is_plain: bool
    tile: Tile
    units: int
    parts: int
    share: int


def attention_steps(attention: Attention, target: Target) -> tuple[Step, ...]:
    """The steps that compute attention.

    Args:
        attention: what is computed.
        target: the adapter.
    """
    return _Planner(attention, target).steps()


# ---- tiles and parts

LITTLE_WORK = 1 << 18
"""Multiplications up to which the tile that compiles fastest is good enough."""

BUSY_ON_CPU, BUSY_ON_GPU = 8, 128
"""Workgroups that keep an adapter busy."""

FEWEST_BLOCKS = 4
"""Blocks that make a part worth a workgroup."""


def choose_tile(attention: Attention, target: Target) -> Tile:
    """The tile that suits an adapter and the sizes."""
    units = -(-attention.output.sizes[-1] // UNIT)
    return (_tile_on_cpu if target.profile is Profile.CPU else _tile_on_gpu)(attention, units)


def _tile_on_cpu(attention: Attention, units: int) -> Tile:
    """Much work for each of eight invocations, which run in step."""
    if attention.batches * attention.rows * attention.keys * 8 * units <= LITTLE_WORK:
        return Tile(min(2, attention.rows), 1, min(-(-units // 8), 2), 8, 1)
    rows = min(16, _power_of_two(attention.rows))
    across = 4 if attention.rows > rows else 8
    key_units = min(4, _power_of_two(-(-attention.keys // (UNIT * across))))
    return Tile(rows, key_units, min(-(-units // across), 4), across, 8 // across)


def _tile_on_gpu(attention: Attention, units: int) -> Tile:
    """Few rows and keys for each of many invocations."""
    rows = min(4, _power_of_two(attention.rows))
    down = min(8, _power_of_two(-(-attention.rows // rows)))
    across = 16 if down > 1 else 64
    return Tile(rows, 1, min(-(-units // across), 4), across, down)


def _power_of_two(number: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << (number - 1).bit_length()


def _share(attention: Attention, tile: Tile, target: Target) -> int:
    """Keys of each part: as many as the loop limit allows, and few enough to keep the adapter busy."""
    units = -(-attention.output.sizes[-1] // UNIT)
    head = attention.query.sizes[-1]
    groups = math.prod(tile.groups(attention.rows, units)) * attention.batches
    blocks = -(-attention.keys // tile.block)
    wanted = -(-(BUSY_ON_CPU if target.profile is Profile.CPU else BUSY_ON_GPU) // groups)
    parts = max(1, min(wanted, blocks // FEWEST_BLOCKS))
    share = -(-blocks // parts)
    if target.loop_limit is not None:
        iterations = 1 + head + tile.block + 2 * UNIT * tile.key_units + tile.across
        share = min(share, max(1, (target.loop_limit // 2) // iterations))
    return share * tile.block


# ---- steps

LEAST_REUSE = 4
"""Times that an operand is read, from which on laying it out anew pays."""


class _Planner:
    """The steps of one attention."""

    def __init__(self, attention: Attention, target: Target):
        self.attention, self.target = attention, target
        self.tile = choose_tile(attention, target)
        self.before: list[Step] = []

    def steps(self) -> tuple[Step, ...]:
        """All steps."""
        attention, tile = self.attention, self.tile
        share = _share(attention, tile, self.target)
        parts = -(-attention.keys // share)
        if parts == 1:
            last = [self._attend(self._epilogue(attention.output), attention.output, parts, share)]
        else:
            units = -(-attention.output.sizes[-1] // UNIT)
            sizes = (*attention.output.sizes[:-1], UNIT * (units + 1))
            partials = Tensor.temporary("parts", FLOAT32, (parts, *sizes))
            each = replace(partials, sizes=sizes, strides=partials.strides[1:])
            merged = Map("merge of parts", _merged(partials, attention.output), attention.output)
            last = [self._attend(self._epilogue(each), partials, parts, share), merged]
        return (*self.before, *last)

    def _epilogue(self, output: Tensor) -> Body:
        """A row's columns as they are stored."""
        held = Held.product(FLOAT32, output.sizes)
        return apply(CONVERT, output.data_type, output.sizes, portable=True, input=held)

    def _attend(self, epilogue: Body, output: Tensor, parts: int, share: int) -> Step:
        attention, tile = self.attention, self.tile
        row_tiles, column_tiles = tile.groups(attention.rows, -(-attention.output.sizes[-1] // UNIT))
        blocks = -(-attention.keys // tile.block)
        query = self._operand(attention.query, "queries", tile.rows % UNIT == 0, blocks * column_tiles)
        key = self._operand(attention.key, "keys", True, row_tiles * column_tiles)
        value = self._value(row_tiles)
        epilogue, output = pack_output(epilogue, output)
        return Attend(
            f"attention{' in parts' if parts > 1 else ''}",
            query,
            key,
            value,
            attention.score,
            attention.visible,
            epilogue,
            output,
            attention.is_plain,
            tile,
            value.sizes[-1],
            parts,
            share,
        )

    def _operand(self, source: Source, what: str, in_units: bool, reuse: int) -> Operand:
        """Queries or keys: element by element, or laid out anew in units of four rows or keys."""
        batch, own, size = source.sizes[:2], source.sizes[2:-1], source.sizes[-1]
        if not in_units or reuse < LEAST_REUSE:
            return Operand(source, Form.SINGLE, batch, own, True)
        count = -(-math.prod(own) // UNIT) * UNIT
        place = Tensor.temporary(what, FLOAT32, (*batch, size, count))
        strides = (*place.strides[:2], *packed_strides(own), count)
        self._lay_out(source, replace(place, sizes=source.sizes, strides=strides), what)
        return Operand(pack_tensor(place, 3, UNIT), Form.ACROSS, batch, (count,), False)

    def _value(self, reuse: int) -> Source:
        """The values, laid out anew if they do not lie in units, or if they would be converted again and again."""
        source, last = self.attention.value, 3
        is_plain = isinstance(source, Tensor) and source.data_type is FLOAT32
        fits = source.sizes[last] % UNIT == 0 and packs_source(source, last, UNIT)
        if fits and (is_plain or reuse < LEAST_REUSE):
            return pack_source(source, last, UNIT)
        *outer, size = source.sizes
        place = Tensor.temporary("values", FLOAT32, (*outer, -(-size // UNIT) * UNIT))
        self._lay_out(source, replace(place, sizes=source.sizes), "values")
        return pack_tensor(place, last, UNIT)

    def _lay_out(self, source: Source, place: Tensor, what: str) -> None:
        """Write an operand to another place, in float32. What lies between is of no account, and never stored."""
        if isinstance(source, Tensor) and source.data_type is FLOAT32:
            body: Body = identity(replace(source, view=View.RAW))
        else:
            body = apply(CONVERT, FLOAT32, place.sizes, portable=True, input=source)
        self.before.append(Map(f"lay out {what}", body, place))


def _merged(partials: Tensor, output: Tensor) -> Body:
    """The rows of all parts together."""
    values = constants(parts=partials.sizes[0], top=partials.sizes[-1] - UNIT)
    return element(MERGE, output.data_type, output.sizes, portable=True, values=values, partials=partials)
