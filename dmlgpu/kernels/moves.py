"""Moves: the parts of an operator's result that are nothing but elements of its inputs, as pairs of views.

A move is a coordinate space and two affine maps out of it: where each of its elements lies in the input, and where in
the output. Both are views that tensors in memory bear (sizes, strides, offset), so that a move is one strided copy, and
no copy at all where the consumer of the output reads the view instead, or the producer of the input writes through it.

    SLICE1           the output's coordinates; in the input they start at the window and take its strides
    SPLIT, JOIN      the coordinates of one piece; in the larger tensor they start where the piece begins
    PADDING1         the coordinates of the input; in the output they start after the padding
    TILE             each repeated dimension in two, repetitions and places; repetitions do not move in the input
    SPACE_TO_DEPTH1  blocks and places within them apart; each side joins these digits in its own order
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dmlgpu.kernels.sources import SLICE, diagonal, view
from dmlgpu.plan import Body, Map, Tensor


@dataclass(frozen=True)
class Affine:
    """An affine map from a coordinate space to a tensor: coordinate ``c`` is at ``start + steps * c``.

    Attributes:
        start: per dimension of the tensor.
        steps: a row per dimension of the tensor, a column per dimension of the space.
    """

    start: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]

    @classmethod
    def box(cls, start: Sequence[int], strides: Sequence[int] | None = None) -> Affine:
        """The map of a space with the tensor's dimensions: a box from ``start`` on, with gaps where strides are given.

        Args:
            start: the coordinates of its first element.
            strides: places between neighbours, not 0; negative ones mirror a dimension.
        """
        return cls(tuple(start), diagonal((1,) * len(start) if strides is None else strides))

    @classmethod
    def digits(cls, space: Mapping[str, int], dimensions: Sequence[Sequence[str]]) -> Affine:
        """The map of a space whose coordinates are digits of the tensor's.

        Args:
            space: the named dimensions of the space and their sizes, in order.
            dimensions: per dimension of the tensor, the digits that make up its coordinate, the highest first. A digit
                that no dimension names does not move in the tensor: it repeats.
        """
        rows = []
        for names in dimensions:
            weights = {name: math.prod(space[lower] for lower in names[n + 1 :]) for n, name in enumerate(names)}
            rows.append(tuple(weights.get(name, 0) for name in space))
        return cls((0,) * len(rows), tuple(rows))

    @property
    def follows(self) -> tuple[int | None, ...]:
        """For each dimension of the space, which of the tensor's moves one to one with it, if one does."""
        columns = zip(*self.steps, strict=True)
        moved = ([(row, step) for row, step in enumerate(column) if step] for column in columns)
        return tuple(steps[0][0] if len(steps) == 1 and steps[0][1] == 1 else None for steps in moved)


@dataclass(frozen=True)
class Move:
    """Elements of an output that are elements of an input.

    Attributes:
        sizes: of the coordinate space.
        source: where an element lies in the input.
        place: where it lies in the output. No two elements lie at one place.
        input, output: the tensors' flat numbers.
    """

    sizes: tuple[int, ...]
    source: Affine
    place: Affine
    input: int = 0
    output: int = 0

    @property
    def reverse(self) -> Move:
        """The move back, from the output to the input."""
        return Move(self.sizes, self.place, self.source, self.output, self.input)


def copy(move: Move, source: Tensor, output: Tensor, *, label: str = "copy", keeps: bool = False) -> Map:
    """The step that carries a move out.

    Args:
        move: what is moved.
        source, output: the whole tensors.
        label: of the step.
        keeps: whether other steps write the rest of the output.
    """
    inputs = (("input", source),)
    start, steps = move.source.start, move.source.steps
    follows = (move.source.follows,)
    body = Body(SLICE, source.data_type, move.sizes, inputs, follows=follows, start=start, steps=steps)
    return Map(label, body, seen(output, move.sizes, move.place), keeps)


def seen(tensor: Tensor, sizes: tuple[int, ...], affine: Affine) -> Tensor:
    """A tensor in memory as a coordinate space sees it: other sizes, strides and offset, the same elements."""
    return view(tensor, sizes, affine.start, affine.steps)


def result_view(move: Move, source: Tensor, sizes: tuple[int, ...]) -> Tensor | None:
    """The output of a move as nothing but a view of its input, in the output's own dimensions.

    This is what a graph reads in place of the copy. ``result_view(move.reverse, output, input_sizes)`` is what it
    writes through, where the input of the move is all that its producer computes.

    Args:
        move: what is moved.
        source: the input as it lies in memory.
        sizes: of the output.

    Returns:
        None where the move does not fill the output, or where no strides along the output's dimensions say it.
    """
    if any(move.place.start) or math.prod(move.sizes) != math.prod(sizes):
        return None
    digits = seen(source, move.sizes, move.source)
    strides = [_joined_stride(row, digits) for row in move.place.steps]
    if any(stride is None for stride in strides):
        return None
    return replace(digits, sizes=sizes, strides=tuple(stride for stride in strides if stride is not None))


def _joined_stride(weights: Sequence[int], digits: Tensor) -> int | None:
    """The stride of the coordinate that digits of these weights make up; None where they do not lie evenly."""
    moving = [d for d, weight in enumerate(weights) if weight and digits.sizes[d] > 1]
    if not moving:
        return 0
    unit = min(moving, key=lambda d: weights[d])  # what fills a dimension counts it one by one: its weight is 1
    even = all(digits.strides[d] == digits.strides[unit] * weights[d] for d in moving)
    return digits.strides[unit] if even else None
