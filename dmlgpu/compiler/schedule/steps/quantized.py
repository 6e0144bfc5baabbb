"""Products with quantized columns, and dequantization of columns to memory."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace

from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import PAIR, Body, Constants, PlanTensor, Product, Source, Space
from dmlgpu.compiler.rewrites.packing import UNIT, PackedTensor, pack_tensor
from dmlgpu.compiler.schedule.launch import Walk
from dmlgpu.compiler.schedule.steps.base import KernelStep
from dmlgpu.compiler.schedule.steps.products import ProductTile


class QuantizedSchedule(enum.StrEnum):
    """Distribution of the work of a product with quantized columns among invocations."""

    COLUMNS = "columns"  # adjacent invocations take adjacent columns
    LANES = "lanes"  # adjacent invocations share the sums of a column


@dataclass(frozen=True)
class QuantizedColumns:
    """Columns in integers of 4 or 8 bits: (integer - zero point) * scale, blocks of which share both.

    Attributes:
        words: over (batch.., blocks, units of a block, columns..), the bits of the integers.
        bits: of an integer.
        signed: the integers are.
        scale: likewise, but with elements of a block instead of units; the same for all elements of a block.
        zero_point: likewise; None if it is the same for all columns.
        known: the zero point if it is.
        is_e2m1: integers stand for twice the floats of 4 bits that have as many floats between them and 0.
        selection: numbers of the matrices that batches read, over the batch dimensions up to the one of these matrices,
            and one more; None if each batch reads its own.
    """

    words: PackedTensor
    bits: int
    signed: bool
    scale: PlanTensor
    zero_point: PlanTensor | None
    known: int = 0
    is_e2m1: bool = False
    selection: PlanTensor | None = None

    @property
    def middle(self) -> int:
        """Number that is subtracted from unsigned integers to make them signed."""
        return 0 if self.signed else 1 << (self.bits - 1)

    @property
    def is_centered(self) -> bool:
        """Whether signed integers need no further correction by a zero point."""
        return self.zero_point is None and self.known == self.middle

    @property
    def words_of_unit(self) -> int:
        """Number of words that are read at once."""
        return self.words.unit_bits // WORD_BITS

    @property
    def in_word(self) -> int:
        """Number of integers of a word."""
        return WORD_BITS // self.bits

    def in_words(self, inner: int) -> PackedTensor:
        """Return the bits in units of one word, by the dimension of the units."""
        words, count = self.words, self.words_of_unit
        sizes = tuple(size * count if at == inner else size for at, size in enumerate(words.sizes))
        strides = tuple(stride if at == inner else stride * count for at, stride in enumerate(words.strides))
        return replace(words, sizes=sizes, strides=strides, offset=words.offset * count, lanes=self.in_word)


_READS = (("words", "b.words"), ("scale", "b.scale"), ("zero", "b.zero_point"))
_SELECTION = (("selection", "b.selection"),)


@dataclass(frozen=True)
class QuantizedRows:
    """Rows in 8-bit integers: integer * scale, blocks of which share a scale.

    Attributes:
        words: over (batch.., rows.., blocks, units of a block), the bits of the integers.
        scale: likewise, but with elements of a block instead of units; the same for all elements of a block.
    """

    words: PackedTensor
    scale: Source

    @property
    def words_of_unit(self) -> int:
        """Number of words that are read at once."""
        return self.words.unit_bits // WORD_BITS


@dataclass(frozen=True)
class NormalizedRows:
    """How a kernel normalizes the rows of a product, whose squares it sums as it reads them.

    Attributes:
        gain: multiplies the rows, in their units; None for none.
        count: elements of a row.
        epsilon: is added to the mean of the squares.
    """

    gain: PackedTensor | None
    count: int
    epsilon: float

    @classmethod
    def of(cls, product: Product) -> NormalizedRows | None:
        """Return the normalization of a product, whose rows have units of four; None if it has none."""
        norm = product.norm
        if norm is None:
            return None
        gain = None if norm.gain is None else pack_tensor(norm.gain, norm.gain.rank - 1, UNIT)
        return cls(gain, math.prod(product.space.inner), norm.epsilon)


ADJACENT = 2
"""Adjacent columns that an invocation stores at once: two float16 share a word, which only one invocation may write."""


@dataclass(frozen=True)
class ScheduledColumns(KernelStep):
    """A part of a product that stores a range of its columns, two adjacent ones at once, from their sums and those of
    their partners.

    Attributes:
        epilogue: as in ``plan.ColumnRange``, over units of two columns.
        rows, columns: dimensions of its space, as in ``plan.ColumnRange``.
        file: shader that computes the place of an element (see ``plan.Scatter``); empty if the output has its
            coordinates.
        inputs, constants: of this shader.
    """

    epilogue: Body
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    file: str = ""
    inputs: tuple[tuple[str, PlanTensor], ...] = ()
    constants: Constants = ()

    template = "schedules/quantized_range"
    reads = (("finish", "epilogue"),)
    sums = len(PAIR)


@dataclass(frozen=True)
class ScheduledQuantizedProduct(KernelStep):
    """A product of few rows with quantized columns, which reads their words once and never stores them as floats.

    Attributes:
        space: in elements; the inner dimensions are the blocks of a column and the elements of a block.
        a: the rows, in units of four along the last inner dimension or element by element; or quantized ones, whose
            words are multiplied by words of the columns (LANES).
        b: the columns.
        epilogue: as in ``plan.Contract``.
        schedule: how the work is shared.
        rows: of an invocation; the last ones may lie past the edge.
        columns: of the output, of an invocation.
        sums: of an element of the output: of one column, or of two, for a ``PairedContract``.
        across, down: invocations that share columns (LANES) or take neighboring ones (COLUMNS), and groups of them.
        sharing: invocations of a subgroup that broadcast elements of rows to each other (COLUMNS), or add their sums
            without workgroup memory (LANES); 1 for none.
        norm: how rows are normalized (LANES); None for rows as they are.
        apart: columns between those of an output; 0 for half of all columns.
        ranges, starts: what stores ranges of columns, and the first one of each (LANES); none if the epilogue does.
    """

    space: Space
    a: Source | QuantizedRows
    b: QuantizedColumns
    epilogue: Body
    schedule: QuantizedSchedule
    rows: int
    columns: int
    sums: int
    across: int
    down: int
    sharing: int
    norm: NormalizedRows | None = None
    apart: int = 0
    ranges: tuple[ScheduledColumns, ...] = ()
    starts: tuple[int, ...] = ()

    @property
    def template(self) -> str:
        return f"schedules/quantized_{self.schedule}"

    @property
    def distance(self) -> int:
        """Columns from the adjacent ones of an invocation to its other ones: their partners, unless these are adjacent
        as well."""
        return ADJACENT if self.apart == 1 else self.apart

    @property
    def ends(self) -> tuple[int, ...]:
        """The column after the last one of each range."""
        return (*self.starts[1:], self.sums * math.prod(self.space.columns))

    @property
    def reads(self) -> tuple[tuple[str, str], ...]:
        is_quantized = isinstance(self.a, QuantizedRows)
        rows = (("a", "a.words"), ("a_scale", "a.scale")) if is_quantized else (("a", "a"),)
        gain = () if self.norm is None else (("gain", "norm.gain"),)
        finish = () if self.ranges else (("finish", "epilogue"),)
        return (*finish, *rows, *gain, *_READS, *_SELECTION)


@dataclass(frozen=True)
class QuantizedPanels:
    """Quantized columns in panels, which belong to an invocation or a workgroup: words of a panel are adjacent, those
    of the next inner step follow.

    Attributes:
        words: over (batch.., panels, blocks, words of a block, units of a lane, lanes, 1), in units of columns.
        bits: of an integer.
        scale: likewise, without the dimension of words.
        zero_point: like scales; None if it is the same for all columns.
        signs: bits of a word to invert, so that integers of 4 bits have no sign and those of 8 bits have one.
        center: number subtracted from integers, in addition to the zero point, once these bits are inverted.
    """

    words: PackedTensor
    bits: int
    scale: PackedTensor
    zero_point: PackedTensor | None
    signs: int
    center: int

    @property
    def in_word(self) -> int:
        """Number of integers of a word."""
        return WORD_BITS // self.bits


@dataclass(frozen=True)
class ScheduledPanels(KernelStep):
    """A product with quantized columns in panels, for CPU adapters: an invocation has a panel.

    Attributes:
        space: in elements; the inner dimensions are the blocks of a column and the elements of a block.
        a: the rows, in units of four along the last inner dimension.
        b: the columns.
        epilogue: as in ``plan.Contract``.
        tile: rows of an invocation, and its units of four columns; the last rows may lie past the edge.
        words: of a column, in a turn of the loop.
        sums: of an element of the output: of one column, or of two, for a ``PairedContract``.
        sharing: invocations of a subgroup that broadcast units of rows to each other; 1 for none.
        dequantizes: columns are dequantized before rows multiply them; else the sums are scaled.
    """

    space: Space
    a: Source
    b: QuantizedPanels
    epilogue: Body
    tile: ProductTile
    words: int
    sums: int
    sharing: int
    dequantizes: bool

    template = "schedules/quantized_panels"
    reads = (("finish", "epilogue"), ("a", "a"), *_READS)


@dataclass(frozen=True)
class ScheduledDequantize(KernelStep):
    """Dequantization to memory that is contiguous across columns: an invocation turns a unit of words of each of four
    columns into as many units of four floats as there are integers in it.

    Attributes:
        b: the columns, over the dimensions of the output.
        walk: over units of four columns and units of words.
        inner: dimension along which the integers of a word lie.
        column: dimension along which the output is contiguous.
    """

    b: QuantizedColumns
    walk: Walk
    inner: int
    column: int

    template = "schedules/dequantize"
    reads = _READS
