"""Maps, and special kernels of copies, gathers, long runs, upsampling and downsampling."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlgpu.catalog.tensor_desc import WORD_BITS, packed_strides
from dmlgpu.compiler.plan import Body, PlanTensor, View
from dmlgpu.compiler.rewrites.packing import running_dimension
from dmlgpu.compiler.rewrites.sources import is_identity
from dmlgpu.compiler.schedule.launch import Walk
from dmlgpu.compiler.schedule.steps.base import KernelStep

WORDS = 4
"""Number of words that an invocation copies at once if the units of a word are contiguous."""


@dataclass(frozen=True)
class ScheduledMap(KernelStep):
    """Every unit of the output independently.

    Attributes:
        body: packed like the output.
        walk: the order of the units.
        costly: the body is long, or loops.
        run: of a copy of bytes, walked by words: the dimension along which those of a word lie side by side in both
            tensors.
        words: those that an invocation copies at once along the run.
        least_copy: bytes from which a plain copy is one between buffers, or None: never (see ``Target``).
    """

    body: Body
    walk: Walk
    costly: bool = False
    run: int | None = None
    words: int = WORDS
    least_copy: int | None = None

    reads = (("element", "body"),)

    @property
    def template(self) -> str:
        return "schedules/map" if self.run is None else "schedules/map_words"

    @property
    def atomic(self) -> bool:
        return self.walk.exchange

    @property
    def copied(self) -> PlanTensor | None:
        """Tensor whose units, contiguous in memory, are copied to the output's, if they are whole words and the step
        does nothing else; else None."""
        if not is_identity(self.body) or self.output.unit_bits % WORD_BITS:
            return None
        source = self.body.inputs[0][1]
        if not isinstance(source, PlanTensor) or source.binding == self.output.binding:
            return None
        output, raw = self.output, source.view is View.RAW and self.output.view is View.RAW
        alike = (source.data_type, source.sizes, source.lanes) == (output.data_type, output.sizes, output.lanes)
        return source if raw and alike and _is_dense(source) and _is_dense(output) else None

    @property
    def prefers_copy(self) -> bool:
        size = math.prod(self.output.sizes) * self.output.unit_bits // 8
        return self.least_copy is not None and size >= self.least_copy


def _is_dense(tensor: PlanTensor) -> bool:
    """Return whether units are contiguous in memory, in order."""
    packed = packed_strides(tensor.sizes)
    return all(tensor.sizes[d] == 1 or tensor.strides[d] == packed[d] for d in range(tensor.rank))


@dataclass(frozen=True)
class ScheduledWordRows(KernelStep):
    """A copy of units below a word, in rows that share no words.

    Attributes:
        body: copies from a tensor in which the units of a row lie side by side as well.
        walk: over ``words`` words of a row at a time.
        run: the dimension along which a row lies.
        first: the unit in which a row begins, of those of its first word, or block.
        keeps_neighbors: as for ``plan.Map``.
        wide: rows have blocks of ``words`` words of their own, which are written as such, with 64-bit integers.
        words: those that an invocation copies at once.
    """

    body: Body
    walk: Walk
    run: int
    first: int
    keeps_neighbors: bool
    wide: bool = False
    words: int = WORDS

    atomic = False

    @property
    def template(self) -> str:
        return "schedules/map_wide_rows" if self.wide else "schedules/map_rows"

    @property
    def reads(self) -> tuple[tuple[str, str], ...]:
        return () if self.wide else (("element", "body"),)


@dataclass(frozen=True)
class ScheduledBlocks(KernelStep):
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

    template = "schedules/map_blocks"
    reads = (("element", "body"),)

    @property
    def units(self) -> int:
        """Number of units of a block."""
        return self.output.sizes[self.dimension]


@dataclass(frozen=True)
class ScheduledRuns(KernelStep):
    """Runs of units along a dimension, for which an invocation reads constant operands once.

    Attributes:
        walk: over the runs.
        axis: the dimension.
        fixed: the tensors that are read once for a run, by name.
    """

    body: Body
    walk: Walk
    axis: int
    fixed: tuple[tuple[str, PlanTensor], ...] = ()

    template = "schedules/map_runs"


@dataclass(frozen=True)
class TileDigit:
    """Part of a coordinate in a running index: ``coordinate += number % count * scale``."""

    dimension: int
    count: int
    scale: int


@dataclass(frozen=True)
class ScheduledTranspose(KernelStep):
    """A copy by square tiles in registers.

    Attributes:
        source, output: in units along the dimension in which each lies in memory.
        source_dimension, output_dimension: these dimensions.
        digits: digits of the coordinates in the index of a tile, fastest first.
    """

    source: PlanTensor
    source_dimension: int
    output_dimension: int
    digits: tuple[TileDigit, ...]

    template = "schedules/transpose"
    reads = (("input", "source"),)


@dataclass(frozen=True)
class ScheduledInterleave(KernelStep):
    """A copy between planes and groups, of an element of each plane, that follow each other in memory.

    Attributes:
        source, output: in units; the one with groups has them side by side along ``dimension``, and size 1 along
            ``planes``.
        walk: over the units of one plane.
        dimension: along which a plane lies in memory.
        planes: the dimension of planes.
        count: planes.
        splits: groups become planes, not planes groups.
    """

    source: PlanTensor
    walk: Walk
    dimension: int
    planes: int
    count: int
    splits: bool

    template = "schedules/map_interleave"
    reads = (("input", "source"),)


@dataclass(frozen=True)
class Tap:
    """Position of an output element relative to its input element.

    Attributes:
        low: the lower of the two interpolated elements, relative to the input element.
        share: the weight of the upper one.
    """

    low: int
    share: float

    @property
    def neighbors(self) -> tuple[int, ...]:
        """Elements with a nonzero weight."""
        return (self.low, self.low + 1) if self.share else (self.low,)


@dataclass(frozen=True)
class Pattern:
    """Output elements of every input element along one axis, clamped at the edges.

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
        """Number of output elements per input element."""
        return len(self.taps)

    @property
    def neighbors(self) -> tuple[int, ...]:
        """Elements that are read, relative to the input element."""
        return tuple(sorted({each for tap in self.taps for each in tap.neighbors}))


@dataclass(frozen=True)
class ScheduledUpsample(KernelStep):
    """Upsampling by whole factors along the contiguous dimension, and optionally along another one: raw tensors by
    moving bits, others by interpolation.

    Attributes:
        source: single elements of the input.
        units: the same in units.
        output: in units.
        walk: over the units of the input; if ``split``, over those of the output along the contiguous dimension.
        columns, rows: resampling of both dimensions; rows may be None.
        split: an invocation writes one unit in each row, so that adjacent invocations write adjacent units.
    """

    source: PlanTensor
    units: PlanTensor
    walk: Walk
    columns: Pattern
    rows: Pattern | None
    split: bool = False

    template = "schedules/upsample"
    reads = (("units", "units"), ("source", "source"))


@dataclass(frozen=True)
class Stencil:
    """Input elements that every output element sums along one axis, clamped at the edges.

    Attributes:
        dimension: of the tensors.
        size: elements of the input.
        step: input elements from one output element to the next.
        first: the first input element of output element 0, before clamping.
        weights: of this element and the following ones.
    """

    dimension: int
    size: int
    step: int
    first: int
    weights: tuple[float, ...]

    def taps(self, index: int) -> tuple[int, ...]:
        """Return the input elements of an output element, relative to those of element 0."""
        first = index * self.step + self.first
        return tuple(range(first, first + len(self.weights)))


@dataclass(frozen=True)
class ScheduledDownsample(KernelStep):
    """Weighted sums along one axis with the same stencil for every output element.

    Attributes:
        source: single elements of the input.
        units: the same in units.
        output: in units.
        walk: over the units of the output, ``rows`` elements across memory at a time.
        stencil: offsets and weights of the input elements.
        rows: output elements that an invocation computes along the axis if units lie across it; else 1.
    """

    source: PlanTensor
    units: PlanTensor
    walk: Walk
    stencil: Stencil
    rows: int

    template = "schedules/downsample"
    reads = (("units", "units"),)

    @property
    def is_along(self) -> bool:
        """Whether the summed elements are contiguous in memory."""
        return running_dimension(self.output) == self.stencil.dimension
