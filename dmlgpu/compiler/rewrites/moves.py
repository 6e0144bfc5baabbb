"""Moves: the parts of an operator's result that are nothing but elements of its inputs, as pairs of views.

A move is a coordinate space and two affine maps out of it: where each of its elements lies in the input, and where in
the output. Both are views that tensors in memory bear (sizes, strides, offset), so that a move is one strided copy, and
no copy at all where the consumer of the output reads the view instead, or the producer of the input writes through it.

    SLICE1           the output's coordinates; in the input they start at the window and take its strides
    SPLIT, JOIN      the coordinates of one piece; in the larger tensor they start where the piece begins
    PADDING1         the coordinates of the input; in the output they start after the padding
    TILE             each repeated dimension in two, repetitions and elements; repetitions do not move in the input
    SPACE_TO_DEPTH1  blocks and elements within them apart; each side joins these digits in its own order
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dmlgpu.compiler.plan import Affine, AffineView, Map, Tensor
from dmlgpu.compiler.rewrites.sources import identity


@dataclass(frozen=True)
class Move:
    """Elements of an output that are elements of an input.

    Attributes:
        sizes: of the coordinate space.
        source: where an element lies in the input.
        destination: where it lies in the output. No two elements lie at one place.
        input, output: the tensors' flat numbers.
    """

    sizes: tuple[int, ...]
    source: Affine
    destination: Affine
    input: int = 0
    output: int = 0

    @property
    def reverse(self) -> Move:
        """The move back, from the output to the input."""
        return Move(self.sizes, self.destination, self.source, self.output, self.input)


def copy(move: Move, source: Tensor, output: Tensor, *, label: str = "copy", keeps_neighbours: bool = False) -> Map:
    """Return the step that carries a move out.

    Args:
        move: what is moved.
        source, output: the whole tensors.
        label: of the step.
        keeps_neighbours: whether other steps write the rest of the output.
    """
    moved = AffineView(source, move.sizes, move.source)
    return Map(label, identity(moved), move.destination.of(output, move.sizes), keeps_neighbours)


def result_view(move: Move, source: Tensor, sizes: tuple[int, ...]) -> Tensor | None:
    """Return the output of a move as nothing but a view of its input, in the output's own dimensions.

    This is what a graph reads instead of the copy. ``result_view(move.reverse, output, input_sizes)`` is what it
    writes through, where the input of the move is all that its producer computes.

    Args:
        move: what is moved.
        source: the input as it lies in memory.
        sizes: of the output.

    Returns:
        None where the move does not fill the output, or where no strides along the output's dimensions say it.
    """
    if any(move.destination.start) or math.prod(move.sizes) != math.prod(sizes):
        return None
    digits = move.source.of(source, move.sizes)
    strides = [_joined_stride(row, digits) for row in move.destination.steps]
    if any(stride is None for stride in strides):
        return None
    return replace(digits, sizes=sizes, strides=tuple(stride for stride in strides if stride is not None))


def _joined_stride(weights: Sequence[int], digits: Tensor) -> int | None:
    """Return the stride of the coordinate that digits of these weights make up; None where they do not lie evenly."""
    moving = [d for d, weight in enumerate(weights) if weight and digits.sizes[d] > 1]
    if not moving:
        return 0
    unit = min(moving, key=lambda d: weights[d])  # what fills a dimension counts it one by one: its weight is 1
    even = all(digits.strides[d] == digits.strides[unit] * weights[d] for d in moving)
    return digits.strides[unit] if even else None
