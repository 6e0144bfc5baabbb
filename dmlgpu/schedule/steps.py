"""The steps of a schedule, all kinds of them: each is one kernel, with every choice that its text follows."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from dmlgpu.enums import DataType
from dmlgpu.kernels.packing import UNIT
from dmlgpu.plan import Binding, Body, Constants, Held, Scanning, Sizes, Source, Space, Stage, Tensor
from dmlgpu.schedule.launch import Launch
from dmlgpu.schedule.walk import Walk
from dmlgpu.target import Target


@dataclass(frozen=True)
class Scheduled:
    """A step whose text is decided; each kind is a subclass.

    Attributes:
        label: the schedule and what is special about it, for profilers and messages.
        launch: the shape of the dispatch.
        output: what it writes.
    """

    label: str
    launch: Launch
    output: Tensor

    @property
    def lanes(self) -> int:
        """Elements of a unit, which labels show."""
        return self.output.lanes


@dataclass(frozen=True)
class ScheduledRepeat:
    """Scheduled steps that are executed in turn, again and again (see ``plan.Repeat``)."""

    steps: tuple[Scheduled, ...]
    turns: int
    advances: tuple[tuple[Binding, int], ...]


AnyScheduled = Scheduled | ScheduledRepeat


@dataclass(frozen=True)
class Steps:
    """Scheduled steps, in order.

    Attributes:
        steps: executed at each dispatch.
        initialization: executed once, when the operator is initialised: they read inputs that are OWNED_BY_DML and
            write persistent tensors, where ``steps`` find them.
    """

    steps: tuple[AnyScheduled, ...] = ()
    initialization: tuple[Scheduled, ...] = ()

    def __add__(self, other: Steps) -> Steps:
        return Steps(self.steps + other.steps, self.initialization + other.initialization)

    @property
    def as_initialization(self) -> Steps:
        """The same steps, executed once."""
        assert all(isinstance(step, Scheduled) for step in self.steps)
        return Steps((), self.steps + self.initialization)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Schedule:
    """How a plan is computed on a target: kernels in order, every choice made.

    Attributes:
        operator: DirectML's operator name, for labels and messages.
        target: what the schedule is for.
        steps, initialization: as for ``Steps``.
    """

    operator: str
    target: Target
    steps: tuple[AnyScheduled, ...]
    initialization: tuple[Scheduled, ...] = ()


# ---- maps


@dataclass(frozen=True)
class ScheduledMap(Scheduled):
    """Every unit of the output by itself.

    Attributes:
        body: packed as the output is.
        walk: the order of the units.
        costly: as for ``plan.Map``.
    """

    body: Body
    walk: Walk
    costly: bool = False


@dataclass(frozen=True)
class ScheduledBlocks(Scheduled):
    """Blocks of units along a dimension that an invocation looks up once.

    Attributes:
        body: a ``Lookup``.
        walk: over the blocks.
        dimension: of the output, along which a block lies.
        followed: the dimension of the input that moves with it one to one.
    """

    body: Body
    walk: Walk
    dimension: int
    followed: int


@dataclass(frozen=True)
class ScheduledRuns(Scheduled):
    """Runs of units along a dimension, of which an invocation reads once what is the same for all.

    Attributes:
        walk: over the runs.
        axis: the dimension.
    """

    body: Body
    walk: Walk
    axis: int


@dataclass(frozen=True)
class TileDigit:
    """Part of a coordinate that comes out of a running number: ``coordinate += number % count * scale``."""

    dimension: int
    count: int
    scale: int


@dataclass(frozen=True)
class ScheduledTranspose(Scheduled):
    """A copy by square tiles in registers.

    Attributes:
        source, output: in units along the dimension in which each lies in memory.
        source_dimension, output_dimension: these dimensions.
        digits: how the number of a tile gives its coordinates, fastest first.
    """

    source: Tensor
    source_dimension: int
    output_dimension: int
    digits: tuple[TileDigit, ...]


@dataclass(frozen=True)
class Tap:
    """Where one of the output elements of an input element lies.

    Attributes:
        low: the lower of its neighbours, relative to the input element.
        share: the weight of the upper one.
    """

    low: int
    share: float

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Those with a weight."""
        return (self.low, self.low + 1) if self.share else (self.low,)


@dataclass(frozen=True)
class Pattern:
    """The output elements of every input element along one axis, clamped at the edges.

    Attributes:
        dimension: of the tensors.
        size: elements of the input.
        taps: one per output element of an input element.
    """

    dimension: int
    size: int
    taps: tuple[Tap, ...]

    @property
    def factor(self) -> int:
        """Output elements per input element."""
        return len(self.taps)

    @property
    def neighbours(self) -> tuple[int, ...]:
        """All that are read, relative to the input element."""
        return tuple(sorted({place for tap in self.taps for place in tap.neighbours}))


@dataclass(frozen=True)
class ScheduledUpsample(Scheduled):
    """Upsampling by whole factors along the dimension in which neighbours lie in memory, and perhaps along another: raw
    tensors by moving bits, others by interpolation.

    Attributes:
        source: single elements of the input.
        units: the same in units.
        output: in units.
        walk: over the units of the input.
        columns, rows: how both dimensions are resampled; rows may be None.
    """

    source: Tensor
    units: Tensor
    walk: Walk
    columns: Pattern
    rows: Pattern | None


# ---- reductions


class ReduceSchedule(enum.StrEnum):
    """How the invocations share the work of a reduction."""

    SERIAL = "serial"  # one invocation per output element
    TREE = "tree"  # one workgroup per output element
    PARTIAL = "partial"  # many invocations per output element, each leaving one accumulator in a temporary tensor


@dataclass(frozen=True)
class ScheduledReduce(Scheduled):
    """A reduction of the rows of the source.

    Attributes:
        file: the shader with ``acc_t``, ``lift``, ``merge`` and ``finish``.
        element: type of the reduced elements.
        source: what is reduced, or (``of_partials``) a PARTIAL step's accumulators, along their last dimension.
        axes: the reduced dimensions of the source, the last ones.
        output: has size 1 along the axes; for a PARTIAL step the accumulators, one more dimension at the end.
        walk: over the rows; over those that invocations walk side by side where ``across`` is given.
        portable: as for ``Body``.
        across: the kept dimension along which neighbours in memory lie (SERIAL and PARTIAL): an invocation walks
            ``width`` rows of units side by side, and the lanes of a packed source belong to neighbouring rows; those
            of the output too where it is packed alike. None: an invocation walks one row, to which all lanes belong.
        together: PARTIAL: how many neighbouring invocations share a run of units, stepping side by side; 0: all of a
            row's.
    """

    file: str
    element: DataType
    source: Source
    axes: tuple[int, ...]
    schedule: ReduceSchedule
    walk: Walk
    of_partials: bool = False
    constants: Constants = ()
    portable: bool = False
    across: int | None = None
    width: int = 1
    together: int = 0

    @property
    def lanes(self) -> int:
        return 1 if self.of_partials else self.source.lanes


@dataclass(frozen=True)
class ScheduledRows(Scheduled):
    """Rows reduced in stages, and each of their elements computed, all in one kernel.

    Attributes:
        stages: the reductions, in order.
        source: what is reduced; a row lies along ``axes``, its last dimensions.
        body: computes an element.
        output: its units are whole words.
        schedule: SERIAL or TREE.
        walk: over the rows.
        across: the lanes of a unit belong to neighbouring rows, not to one (SERIAL only).
        held: units of a row that each invocation of a workgroup keeps in registers; 0 where they are read again.
    """

    stages: tuple[Stage, ...]
    source: Tensor
    axes: tuple[int, ...]
    body: Body
    schedule: ReduceSchedule
    walk: Walk
    across: bool = False
    held: int = 0

    @property
    def units(self) -> int:
        """Units of a row."""
        return math.prod(self.output.sizes[axis] for axis in self.axes)


# ---- scans


class ScanSchedule(enum.StrEnum):
    """Who takes a block."""

    SERIAL = "serial"  # one invocation, from one end to the other
    TREE = "tree"  # one workgroup, tile by tile


@dataclass(frozen=True)
class ScheduledScan(Scheduled):
    """A walk over the lines of the source, each in blocks, merging element after element (see shaders/scanning).

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
        walk: over the lines.
        length: units of a block; the last one may be shorter or empty.
        held: units of a block that each invocation of a workgroup holds at once.
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
    schedule: ScanSchedule
    walk: Walk
    length: int
    held: int
    blocks: int
    advance: str
    starts: Tensor | None = None
    of_totals: bool = False
    across: bool = False
    constants: Constants = ()

    @property
    def lanes(self) -> int:
        return 1 if self.of_totals else self.source.lanes

    @property
    def lines(self) -> int:
        """How many lines there are; packed ones across count as one."""
        return math.prod(size for axis, size in enumerate(self.source.sizes) if axis not in self.axes)

    @property
    def units(self) -> int:
        """Units of a line."""
        return math.prod(self.source.sizes[axis] for axis in self.axes)


# ---- orders: records are tensors of two or four words per unit


class SortSchedule(enum.StrEnum):
    """What an invocation or a workgroup does with its part of a line."""

    BEST = "best"  # one invocation finds the first record of a group, whose elements are spread evenly over the line
    REGISTERS = "registers"  # one invocation sorts a tile by a network
    WORKGROUP = "workgroup"  # one workgroup sorts a tile by a bitonic network


@dataclass(frozen=True)
class ScheduledSort(Scheduled):
    """The parts of every line sorted, each for itself.

    Attributes:
        source: elements or (``of_records``) records, lines along the last dimension.
        output: records; the dimensions of ``source`` but the last, the parts of a line, the records kept of each.
        schedule: how.
        walk: over the parts.
        width: elements of a part.
        decreasing: the largest element comes first.
        network: REGISTERS: the pairs of places that are put in order, one after the other.
    """

    source: Tensor
    schedule: SortSchedule
    walk: Walk
    width: int
    decreasing: bool
    of_records: bool
    network: tuple[tuple[int, int], ...] = ()

    @property
    def lanes(self) -> int:
        return 1


@dataclass(frozen=True)
class ScheduledCandidates(Scheduled):
    """Records of all elements of the groups that some records come from.

    Attributes:
        source: elements, lines along the last dimension.
        best: records of different groups, lines along the last dimension.
        output: records; ``group`` of them for each of ``best``.
        walk: over the output.
        group: elements of a group.
        decreasing: the largest element comes first.
    """

    source: Tensor
    best: Tensor
    walk: Walk
    group: int
    decreasing: bool

    @property
    def lanes(self) -> int:
        return 1


@dataclass(frozen=True)
class ScheduledMerge(Scheduled):
    """Neighbouring runs of records merged two by two, and what comes of it cut.

    Attributes:
        source, output: records; lines, runs of a line, records of a run.
        share: records of a merged run that one invocation takes.
    """

    source: Tensor
    share: int

    @property
    def lanes(self) -> int:
        return 1


# ---- scatters


class ScatterSchedule(enum.StrEnum):
    """What a scatter does at the place its body computes."""

    STORE = "store"  # any one of several updates of a place wins
    MARK = "mark"  # leave the number of the last update, in row-major order, of each place (plus one) in the output
    STORE_MARKED = "store_marked"  # store where the marks name this update


@dataclass(frozen=True)
class ScheduledScatter(Scheduled):
    """Every unit of the source at the place that the shader computes (see ``plan.Scatter``).

    For MARK the output is a packed UINT32 tensor; STORE_MARKED reads it as the input ``marks``.
    """

    file: str
    source: Tensor
    inputs: tuple[tuple[str, Tensor], ...]
    schedule: ScatterSchedule
    constants: Constants = ()

    @property
    def lanes(self) -> int:
        return self.source.lanes


# ---- products


class ProductSchedule(enum.StrEnum):
    """How the invocations share the work of a product."""

    SMALL = "small"
    REGISTER = "register"
    SHARED = "shared"


@dataclass(frozen=True)
class ProductTile:
    """What a workgroup computes.

    Attributes:
        rows, units: outputs of one invocation: rows by units of four columns.
        across, down: invocations of a workgroup along columns and rows.
        depth: steps along the inner dimension that are in workgroup memory at a time (``shared``).
    """

    rows: int = 1
    units: int = 1
    across: int = 1
    down: int = 1
    depth: int = 0

    @property
    def workgroup(self) -> int:
        """Invocations of a workgroup."""
        return self.across * self.down

    def groups(self, rows: int, columns: int) -> tuple[int, int]:
        """Workgroups along columns and rows of one product."""
        return -(-columns // (self.across * self.units * UNIT)), -(-rows // (self.down * self.rows))


class Form(enum.StrEnum):
    """How a kernel reads an operand."""

    ACROSS = "across"  # units along the last of its own dimensions: rows of a, columns of b
    ALONG = "along"  # units along the last inner dimension
    SINGLE = "single"  # elements


@dataclass(frozen=True)
class Operand:
    """An operand as a kernel reads it.

    Attributes:
        source: packed as the form says.
        batch, own: sizes in elements of its batch dimensions and of its own ones (rows or columns).
        own_first: whether its own dimensions come before the inner ones.
    """

    source: Source
    form: Form
    batch: Sizes
    own: Sizes
    own_first: bool

    @property
    def own_at(self) -> int:
        """Its first own dimension."""
        return len(self.batch) if self.own_first else len(self.source.sizes) - len(self.own)

    @property
    def inner_at(self) -> int:
        """Its first inner dimension."""
        return len(self.batch) + len(self.own) * self.own_first


@dataclass(frozen=True)
class ScheduledContract(Scheduled):
    """Sums of products in tiles, and what is made of them.

    Attributes:
        space: in elements.
        a, b: the operands.
        accumulator: type of the sums.
        epilogue, output: packed in units of four along the last dimension, or not at all. With parts the output has one
            more dimension, the first.
        schedule: REGISTER or SHARED.
        tile: what a workgroup computes.
        parts: into how many the sums are split, along the first inner dimension.
        share: steps along the first inner dimension of each part.
        chunk: steps along the first inner dimension after which a sum is added to a total; 0 for never.
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


@dataclass(frozen=True)
class ScheduledTiles(Scheduled):
    """The output tile by tile: an invocation computes several neighbouring elements from what it reads only once.

    The body defines ``fn tile(at: output_at) -> array<tile_s, n>``: the numbers, in the type that the body has, of all
    elements of the tile whose first element is at ``at``, row by row. Sizes and coordinates count elements, also where
    output and epilogue are packed. Elements beyond the edge of the output are computed and dropped.

    Attributes:
        body: computes the numbers of a tile.
        tile: elements along each dimension of the output.
        epilogue: an element-wise tree over the output's sizes with a leaf ``Held.product`` that stands for the number;
            packed in units of four along the last dimension like the output, or not at all.
        walk: over the tiles.
    """

    body: Body
    tile: Sizes
    epilogue: Body
    walk: Walk

    @property
    def count(self) -> int:
        """Elements of a tile."""
        return math.prod(self.tile)

    @property
    def units(self) -> Sizes:
        """Units of the output along each dimension of a tile."""
        return (*self.tile[:-1], self.tile[-1] // self.output.lanes)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The dimensions that tiles do not divide, and the output's size along each."""
        sizes = enumerate(zip(self.output.sizes, self.units, strict=True))
        return tuple((dimension, size) for dimension, (size, units) in sizes if size % units)

    def places(self) -> Iterator[Sizes]:
        """Yield where each unit of a tile lies in it."""
        return itertools.product(*map(range, self.units))


@dataclass(frozen=True)
class AttentionTile:
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
class ScheduledAttend(Scheduled):
    """Attention: rows of queries stream over blocks of keys.

    Attributes:
        query, key: operands whose own dimensions are rows and keys.
        value: in units of four along the last dimension.
        score, visible: as in ``plan.Attend``.
        epilogue, output: packed in units of four along the last dimension, or not at all. With parts the output has one
            more dimension, the first, and one more unit at the end of each row: its top and its mass.
        is_plain: scores depend on nothing but the product.
        tile: what a workgroup computes.
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
    is_plain: bool
    tile: AttentionTile
    units: int
    parts: int
    share: int


@dataclass(frozen=True)
class ScheduledRecurrence(Scheduled):
    """A step in time of recurrent networks.

    Attributes:
        hidden: the hidden state before, over (1, direction, sequence, element): in units where ``along``.
        weights: over (gate, direction, element, element before), in units of elements or, where ``along``, of those
            before, or not at all.
        sums: the gates whose sums are computed, and what stands for each among the leaves of ``states``.
        states: element-wise trees over (1, direction, sequence, element).
        output: over (state, direction, sequence, element).
        along: units lie along what is summed up.
        rows: sequences that an invocation takes.
        groups, tiles: of how many sequences, and of how many elements, invocations and workgroups take care.
        chunk: products that are added up one after the other.
    """

    hidden: Tensor
    weights: Tensor
    sums: tuple[tuple[int, Held], ...]
    states: tuple[Body, ...]
    along: bool
    rows: int
    groups: int
    tiles: int
    chunk: int

    @property
    def lanes(self) -> int:
        return self.weights.lanes
