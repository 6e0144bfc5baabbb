"""Products by cooperative matrices, the matrix units of GPUs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dmlgpu.compiler.plan import Body, Source, Space
from dmlgpu.compiler.rewrites.packing import UNIT
from dmlgpu.compiler.schedule.steps.base import KernelStep
from dmlgpu.compiler.schedule.steps.packed_products import IntegerProduct, PackedOperand
from dmlgpu.compiler.schedule.steps.products import Operand, OperandLayout
from dmlgpu.compiler.target import Matrices

ACROSS = 2
"""Number of subgroups along rows and columns of a workgroup's tile."""

SUBGROUPS = ACROSS * ACROSS
"""Number of subgroups that share a workgroup's tile."""

PADDING = 8
"""Elements between the rows of a slab, so that they begin in different banks of workgroup memory."""

LONG_LINE = 16
"""Elements of the lines of matrices that need it: shorter lines, one after the other, begin in different banks too."""


def tile_of(matrices: Matrices) -> tuple[int, int]:
    """Return the rows and columns of a workgroup's tile."""
    return ACROSS * matrices.block * matrices.rows, ACROSS * matrices.block * matrices.columns


def stride_of(line: int) -> int:
    """Return the elements from one line of a matrix in workgroup memory to the next."""
    return line + (PADDING if line >= LONG_LINE else 0)


@dataclass(frozen=True)
class Slab:
    """Steps of an operand in workgroup memory, matrix by matrix.

    Each matrix is an array, and loads name its first element: what Dawn checks about a load is constant then, and the
    index of the matrix, which Dawn limits, does not hide from drivers that the address is aligned. A matrix may be
    anywhere in the slab if the slab is one array; RADV loads it 4 bytes at a time then.

    Attributes:
        own: Rows or columns of the operand.
        depth: Steps.
        own_side, step_side: Those of a matrix.
        steps_adjacent: Whether the steps of a row or column are adjacent; if not, rows or columns of a step are.
        inner_fastest: Whether adjacent invocations read along the steps, not along rows or columns.
        width: Elements that an invocation brings, along the same dimension: 4 or 1.
        gathers: Whether it brings four steps instead, each read by itself: windows whose channels are not adjacent.
    """

    own: int
    depth: int
    own_side: int
    step_side: int
    steps_adjacent: bool
    inner_fastest: bool
    width: int
    gathers: bool = False

    @classmethod
    def of(cls, operand: Operand, own: int, depth: int, *, own_side: int, matrices: Matrices) -> Slab:
        """Return the slab of an operand."""
        turns, sizes = matrices.turns, (own, depth, own_side, matrices.steps)
        if operand.layout is OperandLayout.SEEN:
            in_units = operand.source.lanes == UNIT
            return cls(*sizes, in_units or turns, in_units, UNIT, gathers=not in_units)
        along = operand.layout is OperandLayout.ALONG or operand.fetch.inner_fastest
        return cls(*sizes, along or turns, along, 1 if operand.layout is OperandLayout.SINGLE else UNIT)

    @property
    def stride(self) -> int:
        """Elements from one line of a matrix to the next."""
        return stride_of(self.step_side if self.steps_adjacent else self.own_side)

    @property
    def matrix_size(self) -> int:
        """Elements of a matrix."""
        return (self.own_side if self.steps_adjacent else self.step_side) * self.stride

    @property
    def matrices(self) -> int:
        """Number of matrices; those of the steps of a row or column are adjacent."""
        return self.own // self.own_side * self.across

    @property
    def across(self) -> int:
        """Number of matrices along the steps."""
        return self.depth // self.step_side

    @property
    def tasks(self) -> int:
        """Reads that fill the slab."""
        return self.own * self.depth // self.width

    def places(self, workgroup: int) -> int:
        """Rows or columns of the operand to which an invocation returns, if adjacent ones read along these."""
        return math.lcm(self.own, workgroup) // workgroup


@dataclass(frozen=True)
class ScheduledCooperative(KernelStep):
    """A product with sums of float32. Operands have the type of the matrices in workgroup memory.

    Attributes:
        space: in elements. Slabs are of steps along the last inner dimension.
        a, b: the operands, ACROSS, ALONG, SINGLE or SEEN.
        epilogue, output: packed in units of four along the last dimension, or not at all.
        slabs: of both operands.
        matrices: the adapter's.
        edges: whether the last tiles of rows and columns, and the last slab of steps, may be partial.
        parts, share: number of parts of each sum, and the taps of each, or the steps if sums are over one dimension.
        across, subgroups: number of subgroups along the rows and columns of a tile, and in all.
    """

    across: ClassVar[int] = ACROSS
    subgroups: ClassVar[int] = SUBGROUPS

    space: Space
    a: Operand
    b: Operand
    epilogue: Body
    slabs: tuple[Slab, Slab]
    matrices: Matrices
    edges: tuple[bool, bool, bool]
    parts: int
    share: int

    template = "schedules/gemm_cooperative"


@dataclass(frozen=True)
class ScheduledCooperativeIntegers(IntegerProduct, KernelStep):
    """A product of 8-bit integers with sums of 32 bits.

    Attributes:
        space: in elements.
        a, b: the operands, as those of ``ScheduledPackedContract``.
        epilogue, output, matrices: as in ``ScheduledCooperative``.
        words_per_slab: words of each row and column in workgroup memory.
        parts, share: number of parts of each sum, and the words of each.
        across, subgroups, padding: as in ``ScheduledCooperative``; the padding is in words.
    """

    across: ClassVar[int] = ACROSS
    subgroups: ClassVar[int] = SUBGROUPS
    padding: ClassVar[int] = PADDING // 2

    space: Space
    a: Operand
    b: Operand
    a_integers: PackedOperand
    b_integers: PackedOperand
    epilogue: Body
    matrices: Matrices
    words_per_slab: int
    parts: int
    share: int

    template = "schedules/gemm_cooperative_integers"

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a workgroup's tile."""
        return tile_of(self.matrices)

    @property
    def is_unsigned(self) -> bool:
        """False: all matrices are of signed integers."""
        return False


@dataclass(frozen=True)
class ScheduledCooperativeAttend(KernelStep):
    """Attention with scores and sums of float32: rows of queries stream over blocks of keys. Operands and weights have
    the type of the matrices in workgroup memory.

    Attributes:
        query, key: ALONG; their own dimensions are rows and keys.
        value: in units of four along the last dimension.
        score, visible: as in ``plan.Attend``.
        epilogue, output: packed in units of four along the last dimension, or not at all.
        is_plain: scores depend only on the product.
        matrices: the adapter's.
        down: matrices along the rows of a subgroup.
        across: subgroups that share rows; each has its part of the keys of a block, and of the columns of all values.
        block: keys of a block.
        head, columns: elements of a query or key, and of a value.
        splits_keys: whether subgroups that share rows have all columns instead, of the values of their keys.
        tolerance: distance by which a score may exceed the one that weights are relative to.
    """

    padding: ClassVar[int] = PADDING
    tolerance: ClassVar[int] = 8

    query: Operand
    key: Operand
    value: Source
    score: Body
    visible: Body | None
    epilogue: Body
    is_plain: bool
    matrices: Matrices
    down: int
    across: int
    block: int
    head: int
    columns: int
    splits_keys: bool

    template = "schedules/attention_cooperative"

    @property
    def own_rows(self) -> int:
        """Rows of a subgroup."""
        return self.down * self.matrices.rows

    @property
    def tile_rows(self) -> int:
        """Rows of a workgroup."""
        return SUBGROUPS // self.across * self.own_rows

    @property
    def sharing(self) -> int:
        """Invocations that share the scores of a row."""
        return self.launch.workgroup // self.tile_rows

    @property
    def turns(self) -> bool:
        """Whether the keys of a column of the values are adjacent in workgroup memory."""
        return self.matrices.turns
