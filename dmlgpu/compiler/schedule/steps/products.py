"""Matrix products, tiles of outputs, attention, recurrent time steps."""

from __future__ import annotations

import enum
import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Body, PlanTensor, RegisterValue, Sizes, Source, Space
from dmlgpu.compiler.plan.windows import WindowAxis, Windows
from dmlgpu.compiler.rewrites.packing import UNIT, is_paired
from dmlgpu.compiler.rewrites.sources import is_plain, leaves
from dmlgpu.compiler.schedule.launch import Walk
from dmlgpu.compiler.schedule.steps.base import KernelStep


class ProductSchedule(enum.StrEnum):
    """Distribution of the work of a product among invocations."""

    SMALL = "small"
    REGISTER = "register"
    SHARED = "shared"
    PACKED = "packed"
    STREAMED = "streamed"


@dataclass(frozen=True)
class ProductTile:
    """Tile of outputs of a workgroup.

    Attributes:
        rows, units: outputs of one invocation: rows by units of four columns.
        across, down: invocations of a workgroup along columns and rows.
        depth: steps along the inner dimension that are in workgroup memory at a time: elements (``shared``,
            ``streamed``), or words of four (``packed``).
        slices: invocations that share the steps of an output (``streamed``).
    """

    rows: int = 1
    units: int = 1
    across: int = 1
    down: int = 1
    depth: int = 0
    slices: int = 1

    @property
    def workgroup(self) -> int:
        """Number of invocations of a workgroup."""
        return self.across * self.down * self.slices

    @property
    def width(self) -> int:
        """Number of rows whose elements are one vector."""
        return min(self.rows, UNIT)

    def groups(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the number of workgroups along columns and rows of one product."""
        return -(-columns // (self.across * self.units * UNIT)), -(-rows // (self.down * self.rows))

    def covered(self, rows: int, columns: int) -> int:
        """Return the number of outputs of all invocations for one product, including those beyond its edges."""
        across, down = self.groups(rows, columns)
        return across * down * self.across * self.down * self.rows * self.units * UNIT


class OperandLayout(enum.StrEnum):
    """Kind of units in which a kernel reads an operand."""

    ACROSS = "across"  # units along the last of its own dimensions: rows of a, columns of b
    ALONG = "along"  # units along the last inner dimension
    SINGLE = "single"  # elements
    WINDOW = "window"  # windows, a row at once
    SEEN = "seen"  # windows, element by element


@dataclass(frozen=True)
class Fetch:
    """Layout of an operand in reads of a kernel.

    Attributes:
        steps: along the inner dimension, that are read at once.
        inner_fastest: adjacent invocations read along the inner dimension, not along the operand's own one.
        paired: units are read in pairs.
    """

    steps: int
    inner_fastest: bool
    paired: bool = False


@dataclass(frozen=True)
class Patch:
    """Input elements of the windows of a tile along an axis.

    The tile that starts at position p sees element ``e`` (counted from the first of its first window) at
    ``p * stride - start + e`` of the input.

    Attributes:
        axis: windows along the axis.
        tile: positions of a tile.
        lanes: elements of a unit, which is read at once.
        paired: units are read two at a time, the first of them at an even index.
        checked: all units are checked, so that no size needs a kernel of its own.
    """

    axis: WindowAxis
    tile: int
    lanes: int = 1
    paired: bool = False
    checked: bool = False

    def element(self, position: int, tap: int) -> int:
        """Return the input element of a tap of the window at a position of the tile."""
        return position * self.axis.stride + tap * self.axis.dilation

    @functools.cached_property
    def seen(self) -> tuple[int, ...]:
        """All elements of the windows."""
        taps, positions = range(self.axis.size), range(self.tile)
        return tuple(sorted({self.element(position, tap) for position in positions for tap in taps}))

    @property
    def step(self) -> int:
        """Distance in units between the patches of adjacent tiles."""
        return self.tile * self.axis.stride // self.lanes

    @functools.cached_property
    def units(self) -> tuple[int, ...]:
        """Units that are read, relative to the unit of the tile's first position times its stride."""
        needed = {self._unit(element) for element in self.seen}
        return tuple(sorted(needed | {unit ^ 1 for unit in needed} if self.paired else needed))

    @property
    def reads(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the reads: the first unit, and the indices in ``units`` of all units read at once."""
        together = 2 if self.paired else 1
        for index, unit in list(enumerate(self.units))[::together]:
            yield unit, tuple(range(index, index + together))

    def _unit(self, element: int) -> int:
        return (element - self.axis.start) // self.lanes

    def is_checked(self, unit: int) -> bool:
        """Return whether a unit may lie outside the input for some tile.

        Beyond the unit where a tile begins, units are checked together, so that fewer sizes need kernels of their own:
        those of a tile if the last tile is cut off, and those that the next tile reads as well.
        """
        if self.checked:
            return True
        if unit <= 0:
            return unit < 0 or self._leaves(unit)
        return self._leaves(self.units[-1]) and (unit >= self.step or self._leaves(self.step - 1))

    def _leaves(self, unit: int) -> bool:
        """Return whether a unit of the last tile lies beyond the input."""
        last = (-(-self.axis.positions // self.tile) - 1) * self.step
        return last + unit >= self.axis.spatial // self.lanes

    def place(self, element: int) -> tuple[int, int]:
        """Return the index in ``units`` of the unit that holds an element, and the element's lane in it."""
        return self.units.index(self._unit(element)), (element - self.axis.start) % self.lanes

    def uses(self, element: int) -> Iterator[tuple[int, int]]:
        """Return the positions of the tile and the taps of the window at an element."""
        for position in range(self.tile):
            for tap in range(self.axis.size):
                if self.element(position, tap) == element:
                    yield position, tap


@dataclass(frozen=True)
class Operand:
    """An operand in the form that a kernel reads.

    Attributes:
        source: packed as the layout says.
        batch, own: sizes in elements of its batch dimensions and of its own ones (rows or columns).
        own_first: whether its own dimensions come before the inner ones.
        windows: of a WINDOW or SEEN, whose source is the input that they slide over, {batch, groups, channels,
            spatial..}; of a WINDOW all but that along the last dimension.
        window: of a WINDOW, the elements of four positions along the last dimension.
    """

    source: Source
    layout: OperandLayout
    batch: Sizes
    own: Sizes
    own_first: bool
    windows: Windows = ()
    window: Patch | None = None

    @property
    def own_at(self) -> int:
        """First own dimension."""
        return len(self.batch) if self.own_first else len(self.source.sizes) - len(self.own)

    @property
    def inner_at(self) -> int:
        """First inner dimension."""
        return len(self.batch) + len(self.own) * self.own_first

    @property
    def inner(self) -> int:
        """Number of inner dimensions: one, if they are contiguous and read as one."""
        if self.layout in (OperandLayout.WINDOW, OperandLayout.SEEN):
            return len(self.source.sizes) - 2
        return len(self.source.sizes) - len(self.batch) - len(self.own)

    @property
    def fetch(self) -> Fetch:
        """Distribution of reads among invocations: adjacent invocations read adjacent elements in memory."""
        if self.window is not None:
            return Fetch(self.window.axis.size, False)
        if self.layout is OperandLayout.SINGLE:
            last_inner = self.inner_at + self.inner - 1
            return Fetch(1, isinstance(self.source, PlanTensor) and self.source.strides[last_inner] == 1)
        return Fetch(
            UNIT if self.layout is OperandLayout.ALONG else 1,
            self.layout is OperandLayout.ALONG,
            is_paired(self.source),
        )


@dataclass(frozen=True)
class ScheduledContract(KernelStep):
    """Sums of products in tiles, with an epilogue.

    Attributes:
        space: in elements.
        a, b: the operands.
        accumulator: type of the sums.
        epilogue, output: packed in units of four along the last dimension, or not at all. With parts the output has one
            more dimension, the first.
        schedule: REGISTER, SHARED or STREAMED.
        tile: tile of a workgroup.
        parts: number of parts of the sums, along the first inner dimension.
        share: steps along the first inner dimension of each part.
        chunk: steps along the first inner dimension after which a sum is added to a total; 0 for never.
        sharing: invocations that share the units of the rows of an iteration: each reads some, and broadcasts them to
            its subgroup (REGISTER).
        interleaved: rows, along the last of their dimensions, whose outputs are adjacent in memory, followed by those
            of the next column; 1 if columns are adjacent.
        steps: along the last inner dimension, in one iteration of the loop (REGISTER); fours of steps there (STREAMED).
        adjacent: units of columns of an invocation are adjacent, not a tile apart, so that they can be read and written
            in pairs (REGISTER).
        whole: all sums are of whole slabs, in pairs (SHARED), or of whole iterations (STREAMED): no step needs a check.
        in_float16: products are multiplied and, within a turn of the loop, summed in float16 (SHARED).
        apart: columns between the lanes of a unit of columns: 1, or as many as a workgroup has units, so that adjacent
            invocations read and write adjacent elements (SHARED).
        in_memory: sums are elements of arrays, there is one loop over all inner dimensions, and no compiler unrolls
            the one that writes outputs (REGISTER). CPU adapters have too few registers for the sums, and compile
            arrays faster than a variable for each.
    """

    space: Space
    a: Operand
    b: Operand
    accumulator: DataType
    epilogue: Body
    schedule: ProductSchedule
    tile: ProductTile
    parts: int
    share: int
    chunk: int
    sharing: int = 1
    interleaved: int = 1
    steps: int = 1
    adjacent: bool = False
    whole: bool = False
    in_float16: bool = False
    apart: int = 1
    in_memory: bool = False

    piece: ClassVar[int] = 2
    """Number of adjacent steps in workgroup memory, of an operand in units along the inner dimension (SHARED): with
    four, the eight rows of a tile take 16 registers more, with one, compilers that do not join loads make twice as
    many."""

    @property
    def template(self) -> str:
        return f"schedules/gemm_{self.schedule}"

    @property
    def keeps_loop_bounds(self) -> bool:
        return self.schedule in (ProductSchedule.REGISTER, ProductSchedule.STREAMED)


@dataclass(frozen=True)
class ScheduledFloatPanels(KernelStep):
    """A product of few rows with columns in panels, for CPU adapters: a workgroup has a panel.

    Attributes:
        space: in elements, with one inner dimension.
        a: the rows, in units of four along the inner dimension.
        b: the columns, over (panels, inner, units of columns).
        epilogue: as in ``plan.Contract``; packed in units like those of ``b``, as the output is, or not at all.
        tile: rows of an invocation, the last of which may lie past the edge, and its columns in units of four.
    """

    space: Space
    a: Source
    b: PlanTensor
    epilogue: Body
    tile: ProductTile

    template = "schedules/gemm_panels"
    reads = (("finish", "epilogue"), ("a", "a"), ("b", "b"))


@dataclass(frozen=True)
class ScheduledTiles(KernelStep):
    """The output tile by tile: an invocation computes several adjacent elements from operands that it reads only once.

    The body defines ``fn tile(at: output_at) -> array<tile_s, n>``: the numbers, in the type that the body has, of all
    elements of the tile whose first element is at ``at``, row by row. Sizes and coordinates count elements, also where
    output and epilogue are packed. Elements beyond the edge of the output are computed and dropped.

    If an invocation computes a tile of each of several rows, ``tile`` returns nothing and calls ``keep_row`` with the
    place and the numbers of each, or ``keep_start`` with the first numbers along the last dimension only.

    Attributes:
        body: computes the numbers of a tile.
        tile: elements along each dimension of the output.
        epilogue: an element-wise tree over the output's sizes with a leaf ``RegisterValue.product`` that stands for the
            number; packed in units of four along the last dimension like the output, or not at all.
        walk: over the tiles, or groups of rows of them.
        rows: rows, along the last dimension but one, that an invocation computes one after another; 0 if it does not.
        checked: the edges of all tiles are checked, so that no size needs a kernel of its own.
    """

    body: Body
    tile: Sizes
    epilogue: Body
    walk: Walk
    rows: int = 0
    checked: bool = False

    template = "schedules/tiles"

    @property
    def row_at(self) -> int:
        """Dimension of rows."""
        return len(self.tile) - 2

    @property
    def count(self) -> int:
        """Number of elements of a tile."""
        return math.prod(self.tile)

    @property
    def units(self) -> Sizes:
        """Number of units of the output along each dimension of a tile."""
        return (*self.tile[:-1], self.tile[-1] // self.output.lanes)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Dimensions that tiles may not divide evenly, and the output's size along each."""
        counts = list(self.units)
        if self.rows:
            counts[self.row_at] = self.rows
        return tuple(
            (dimension, size)
            for dimension, (size, count) in enumerate(zip(self.output.sizes, counts, strict=True))
            if count > 1 and (self.checked or size % count)
        )

    @property
    def held(self) -> tuple[PlanTensor, ...]:
        """Inputs of the epilogue that are constant along all dimensions of a tile."""
        row = self.row_at if self.rows else None
        along = [dimension for dimension, size in enumerate(self.tile) if size > 1 or dimension == row]
        tensors = dict.fromkeys(leaves(self.epilogue)) if is_plain(self.epilogue) else ()
        return tuple(tensor for tensor in tensors if not any(tensor.strides[dimension] for dimension in along))

    def offsets(self) -> Iterator[Sizes]:
        """Yield the coordinates of each unit within a tile."""
        return itertools.product(*map(range, self.units))


@dataclass(frozen=True)
class AttentionTile:
    """Tile of a workgroup.

    Attributes:
        rows, key_units: scores of one invocation in a block, the keys in units of four.
        units: units of four columns of the output, of one invocation.
        across, down: invocations of a workgroup along keys (and columns), and along rows.
        dots: units of four of queries and keys that an invocation multiplies for each key of a block, if invocations
            of a row share heads instead of keys; else 0.
        keys: keys that the invocations of a subgroup, ``across``, read at once if they share their units; else 0.
        sharing: invocations of a subgroup that broadcast units of keys and values to each other, if they take rows of
            the same head; else 1.
        depth: elements of a head that slabs of queries and keys in workgroup memory hold; 0 if there are none.
        written_out: what is done with each step of a slab is written out, not in loops: faster, but text that takes
            long to compile.
        lanes: invocations that share a key, if keys and values are streamed from memory to registers; else 0. Then
            ``across`` invocations have a unit of the output each, and ``down`` slices share the keys.
        steps: units of each key that an invocation has in flight, if keys are streamed.
        values_at_once: units of values that it has in flight then.
        most_slices: slices of a workgroup at most; as many groups of keys look for the largest score.
    """

    values_at_once: ClassVar[int] = 8
    most_slices: ClassVar[int] = 16

    rows: int
    key_units: int
    units: int
    across: int
    down: int
    dots: int = 0
    keys: int = 0
    sharing: int = 1
    depth: int = 0
    written_out: bool = False
    lanes: int = 0
    steps: int = 1

    @property
    def is_streamed(self) -> bool:
        """Whether keys and values are read once, directly to registers."""
        return self.lanes > 0

    @property
    def by_rows(self) -> bool:
        """Whether an invocation takes whole rows, with the whole head and all keys sequentially."""
        return self.across == 1

    @property
    def workgroup(self) -> int:
        """Number of invocations of a workgroup."""
        return self.across * self.down

    @property
    def width(self) -> int:
        """Number of rows whose elements are one vector."""
        return min(self.rows, UNIT)

    @property
    def block(self) -> int:
        """Number of keys of a block."""
        if self.keys:
            return self.keys
        return self.workgroup if self.is_streamed else self.across * self.key_units * UNIT

    def groups(self, rows: int, units: int) -> tuple[int, int]:
        """Return the number of workgroups along the rows and along the columns of one shared head."""
        if self.is_streamed:
            return -(-rows // self.rows), 1
        return -(-rows // (self.down * self.rows)), -(-units // (self.across * self.units))


@dataclass(frozen=True)
class ScheduledAttend(KernelStep):
    """Attention: rows of queries stream over blocks of keys.

    Attributes:
        query, key: operands whose own dimensions are rows and keys.
        value: in units of four along the last dimension.
        score, visible: as in ``plan.Attend``.
        epilogue, output: packed in units of four along the last dimension, or not at all. With parts the output has one
            more dimension, the first, and one more unit at the end of each row: its top and its mass.
        is_plain: scores depend only on the product.
        tile: of a workgroup.
        head: elements of a query or key.
        units: of a row of the values.
        parts: number of parts of the keys.
        share: keys of each part, in whole blocks.
    """

    query: Operand
    key: Operand
    value: Source
    score: Body
    visible: Body | None
    epilogue: Body
    is_plain: bool
    tile: AttentionTile
    head: int
    units: int
    parts: int
    share: int

    @property
    def template(self) -> str:
        if self.tile.depth:
            return "schedules/attention_slabs"
        if self.tile.is_streamed:
            return "schedules/attention_streamed"
        if self.tile.keys:
            return "schedules/attention_lanes"
        return "schedules/attention_rows" if self.tile.by_rows else "schedules/attention"


@dataclass(frozen=True)
class ScheduledRecurrence(KernelStep):
    """A time step of recurrent networks.

    Attributes:
        hidden: the previous hidden state, over (1, direction, sequence, element): in units if ``along``, and if there
            are parts and its memory allows it.
        weights: over (gate, direction, element, previous element), in units of elements or, if ``along``, of previous
            elements, or not in units.
        sums: the gates whose sums are computed, and the leaf of ``states`` for each.
        states: element-wise trees over (1, direction, sequence, element).
        output: over (state, direction, sequence, element).
        along: units lie along the summed dimension.
        rows: sequences per invocation.
        groups, tiles: workgroups along the sequences and along the units of a state.
        chunk: products that are summed sequentially.
        parts: invocations that divide the products of a unit among them; 1 if none.
        across: units of a workgroup, if there are parts.
    """

    hidden: PlanTensor
    weights: PlanTensor
    sums: tuple[tuple[int, RegisterValue], ...]
    states: tuple[Body, ...]
    along: bool
    rows: int
    groups: int
    tiles: int
    chunk: int
    parts: int = 1
    across: int = 1

    reads = (("hidden", "hidden"), ("weights", "weights"))

    @property
    def template(self) -> str:
        return "schedules/recurrence_split" if self.parts > 1 else "schedules/recurrence"

    @property
    def lanes(self) -> int:
        return self.weights.lanes

    @property
    def units(self) -> int:
        """Number of units, or elements, of a state."""
        return self.weights.sizes[2]

    @property
    def steps(self) -> int:
        """Number of units, or elements, of the previous state that are summed."""
        return self.hidden.sizes[3]
