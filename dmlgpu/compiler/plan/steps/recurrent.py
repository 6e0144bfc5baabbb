"""Recurrent layers: what is computed for each time step, and the memory that time steps share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.plan.sources import Body
from dmlgpu.compiler.plan.steps.base import Step
from dmlgpu.compiler.plan.steps.products import Recurrence
from dmlgpu.compiler.plan.tensors import Binding, Sizes, Tensor

WORDS = 4
"""What is bound starts at multiples of so many words."""


@dataclass(frozen=True)
class Series:
    """A temporary tensor with a block of (part, direction, sequence, element) for each of some time steps."""

    binding: Binding
    data_type: DataType
    sizes: Sizes

    @classmethod
    def temporary(cls, label: str, data_type: DataType, sizes: Sizes) -> Series:
        """Return a series in new memory."""
        return cls(Tensor.temporary(label, data_type, sizes).binding, data_type, sizes)

    @property
    def block(self) -> int:
        """Words of a block."""
        return -(-packed_strides(self.sizes)[0] * self.sizes[0] // WORDS) * WORDS

    def at(self, step: int) -> Tensor:
        """Return a view of one block."""
        binding = replace(self.binding, offset=4 * self.block * step)
        return Tensor(binding, self.data_type, self.sizes, packed_strides(self.sizes))

    def during(self, first: int, steps: int, direction: int, *, reverse: bool = False) -> Tensor:
        """View some steps, in order or the last one first, over (step, sequence, element)."""
        _, apart, *strides = packed_strides(self.sizes)
        start = (first + steps - 1 if reverse else first) * self.block + direction * apart
        stride = -self.block if reverse else self.block
        sizes = (steps, *self.sizes[2:])
        return Tensor(self.binding, self.data_type, sizes, (stride, *strides), offset=start)


def parts_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors that lie along the first dimension."""
    sizes, stride = (1, *tensor.sizes[1:]), tensor.strides[0]
    return tuple(replace(tensor, sizes=sizes, offset=tensor.offset + part * stride) for part in range(tensor.sizes[0]))


@dataclass(frozen=True)
class RecurrentLayer(Step):
    """Computes the states of a recurrent layer, time step after time step.

    Temporary tensors are in the order of execution: a backward direction starts at the end of the longest possible
    sequence, and a sequence that is shorter keeps its initial states until its own end is reached.

    Attributes:
        backward: of each direction, whether it starts at the end.
        input: over (1, time step, sequence, element).
        weights: over (1, direction, row of a gate, element of the input).
        sums: per direction what becomes of the products of inputs and weights, over (time step, sequence, row of a
            gate) with a leaf ``Held.product``.
        recurrence: the recurrent weights, over (gate, direction, element, element before).
        initial: the states before the first time step, over (1, direction, sequence, element).
        lengths: of each sequence; None where all last.
        cells: the first of some directions, and the kernels of their first time step.
        inputs: the sums of each time step, gate after gate.
        states: the states before the first time step, and after each.
        lasts: which sequences last at each time step; None where all do.
        output: the hidden states, over (time step, direction, sequence, element); None where they are not asked for.
        singles: the label and the output of each state after the last time step; None likewise.
    """

    backward: tuple[bool, ...]
    input: Tensor
    weights: Tensor
    sums: tuple[Body, ...]
    recurrence: Tensor
    initial: tuple[Body, ...]
    lengths: Tensor | None
    cells: tuple[tuple[int, tuple[Recurrence, ...]], ...]
    inputs: Series
    states: Series
    lasts: Series | None
    output: Tensor | None
    singles: tuple[tuple[str, Tensor | None], ...]

    @property
    def time_steps(self) -> int:
        """Time steps of the longest possible sequence."""
        return self.input.sizes[1]
