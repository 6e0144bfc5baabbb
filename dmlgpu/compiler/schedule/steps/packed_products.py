"""Products of integers of 8 bits and less, four at a time."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from dmlgpu.compiler.plan import Source, Space
from dmlgpu.compiler.rewrites.packing import UNIT
from dmlgpu.compiler.schedule.steps.products import Operand, ScheduledContract
from dmlgpu.compiler.schedule.steps.quantized import QuantizedColumns


@dataclass(frozen=True)
class PackedOperand:
    """Conversion of the bits of an operand to numbers.

    Attributes:
        signed: whether integers have a sign.
        zero_point: is subtracted from each; over the dimensions of the operand, the same along the inner ones; None if
            it is 0.
    """

    signed: bool
    zero_point: Source | None


class IntegerProduct:
    """Base of kernels that multiply 8-bit integers in words of four steps.

    Attributes:
        a_integers, b_integers: the numbers that the bits of the operands stand for.
    """

    space: Space
    a: Operand
    b: Operand
    a_integers: PackedOperand
    b_integers: PackedOperand

    @property
    def words(self) -> int:
        """Number of words of the inner dimensions of a row or column."""
        return -(-math.prod(self.space.inner) // UNIT)

    @property
    def is_unsigned(self) -> bool:
        """Whether words are multiplied as unsigned integers; else unsigned ones become signed by subtraction of the
        middle of their range."""
        return not self.a_integers.signed and not self.b_integers.signed

    def middle(self, integers: PackedOperand) -> int:
        """Return the number that is subtracted from an operand's integers before they are multiplied."""
        return 0 if integers.signed or self.is_unsigned else 128

    def is_shifted(self, integers: PackedOperand) -> bool:
        """Return whether the multiplied integers differ from the operand's numbers, so that sums of the other
        operand's integers correct the products."""
        return integers.zero_point is not None or self.middle(integers) != 0

    def operands(self) -> tuple[tuple[str, Operand, PackedOperand], ...]:
        """Return name, operand and integers of both operands."""
        return ("a", self.a, self.a_integers), ("b", self.b, self.b_integers)

    @property
    def summed(self) -> list[str]:
        """Names of the operands whose integers are summed to correct the products."""
        others = (("a", self.b_integers), ("b", self.a_integers))
        return [name for name, other in others if self.is_shifted(other)]


@dataclass(frozen=True)
class ScheduledPackedContract(IntegerProduct, ScheduledContract):
    """Sums of products of 8-bit integers: words of four along the inner dimension in workgroup memory and in registers,
    multiplied by ``dot4I8Packed`` or ``dot4U8Packed``.

    Sources of both operands are bits: words of four elements (ALONG, ACROSS), or single elements. The depth of the
    tile, ``share`` and ``whole`` count words; ``chunk`` is 0.
    """

    a_integers: PackedOperand = PackedOperand(True, None)
    b_integers: PackedOperand = PackedOperand(True, None)

    kind = "contract"


@dataclass(frozen=True, kw_only=True)
class ScheduledBlockContract(ScheduledContract):
    """Sums of products of rows and columns in integers, blocks of which share scales: words of four along the inner
    dimension, as in ``ScheduledPackedContract``; the sum of a block is scaled and added to a total in float32.

    Sources of both operands are words: of four bytes (ALONG), or of eight nibbles of columns, two words of four.

    Attributes:
        scale: of the rows, over (batch.., rows.., blocks, elements of a block).
        columns: the columns.
    """

    scale: Source
    columns: QuantizedColumns

    template = "schedules/gemm_blocks"
    kind = "contract"

    @property
    def words(self) -> int:
        """Number of words of the inner dimensions of a row or column."""
        return math.prod(self.space.inner) // UNIT

    @functools.cached_property  # a size that a template names once
    def block(self) -> int:
        """Number of words of a block."""
        return self.space.inner[-1] // UNIT
