"""Moves: the parts of an operator's result that are copies of elements of its inputs, as pairs of views.

A move is a coordinate space and two affine maps out of it: to the coordinates of the input, and to those of the output.
Both can be strided views (sizes, strides, offset), so a move is one strided copy, or no copy if the consumer of the
output reads the view instead, or the producer of the input writes through it.

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

from dmlgpu.compiler.plan import Affine, AffineView, Map, PlanTensor
from dmlgpu.compiler.rewrites.collapse import merge_tensor, mergeable
from dmlgpu.compiler.rewrites.packing import WIDEST_UNIT_BITS, running_dimension
from dmlgpu.compiler.rewrites.sources import identity


@dataclass(frozen=True)
class Move:
    """Elements of an output that are copies of elements of an input.

    Attributes:
        sizes: of the coordinate space.
        source: map to the coordinates in the input.
        destination: map to the coordinates in the output, which is injective.
        input, output: flat indices of the tensors.
    """

    sizes: tuple[int, ...]
    source: Affine
    destination: Affine
    input: int = 0
    output: int = 0

    @property
    def reverse(self) -> Move:
        """The reverse move, from the output to the input."""
        return Move(self.sizes, self.destination, self.source, self.output, self.input)


def copy(
    move: Move, source: PlanTensor, output: PlanTensor, *, label: str = "copy", keeps_neighbors: bool = False
) -> Map:
    """Return the step that performs a move.

    Args:
        move: the move.
        source, output: the whole tensors.
        label: of the step.
        keeps_neighbors: whether other steps write the rest of the output.
    """
    moved = AffineView(source, move.sizes, move.source)
    return Map(label, identity(moved), move.destination.of(output, move.sizes), keeps_neighbors)


def result_view(move: Move, source: PlanTensor, sizes: tuple[int, ...]) -> PlanTensor | None:
    """Return the output of a move as a view of its input, in the output's own dimensions.

    A graph reads this view instead of the copy. It writes through ``result_view(move.reverse, output, input_sizes)`` if
    the producer of the input computes nothing else.

    Args:
        move: The move.
        source: The input in memory.
        sizes: Sizes of the output.

    Returns:
        The view, or None if the move does not fill the output, or the view is not expressible by strides.
    """
    if any(move.destination.start) or math.prod(move.sizes) != math.prod(sizes):
        return None
    digits = move.source.of(source, move.sizes)
    strides = [_joined_stride(row, digits) for row in move.destination.steps]
    if any(stride is None for stride in strides):
        return None
    return replace(digits, sizes=sizes, strides=tuple(stride for stride in strides if stride is not None))


def _joined_stride(weights: Sequence[int], digits: PlanTensor) -> int | None:
    """Return the stride of the coordinate composed of digits with these weights; None if they are not evenly spaced."""
    moving = [d for d, weight in enumerate(weights) if weight and digits.sizes[d] > 1]
    if not moving:
        return 0
    unit = min(moving, key=lambda d: weights[d])  # a digit that spans a whole dimension has weight 1
    even = all(digits.strides[d] == digits.strides[unit] * weights[d] for d in moving)
    return digits.strides[unit] if even else None


@dataclass(frozen=True)
class Frame:
    """Position of a tensor within another one of equal rank.

    Attributes:
        start: coordinates of its first element.
        step: distance between adjacent elements; negative if mirrored.
    """

    input: PlanTensor
    output: PlanTensor
    start: tuple[int, ...]
    step: tuple[int, ...]

    def is_framed(self, dimension: int) -> bool:
        """Return whether input and output coordinates differ along a dimension."""
        same_size = self.input.sizes[dimension] == self.output.sizes[dimension]
        return not same_size or self.start[dimension] != 0 or self.step[dimension] != 1

    @property
    def follows(self) -> tuple[int | None, ...]:
        """Dimensions along which coordinates are the same, None for the others."""
        return tuple(None if self.is_framed(d) else d for d in range(self.output.rank))


def merge_frame(frame: Frame, *, whole_rows: bool) -> Frame:
    """Return the frame with as few dimensions as possible, and with rows split into units if these can be packed.

    Args:
        frame: The frame.
        whole_rows: Whether the frame treats rows like single elements (a constant border does, a mirror does not): then
            a framed dimension is merged with the following ones.
    """
    groups = mergeable(frame.output.sizes, [frame.input.strides, frame.output.strides], _marks(frame, whole_rows))
    behind = [math.prod(frame.output.sizes[d] for d in group[1:]) for group in groups]
    merged = Frame(
        merge_tensor(frame.input, groups),
        merge_tensor(frame.output, groups),
        tuple(frame.start[group[0]] * size for group, size in zip(groups, behind, strict=True)),
        tuple(frame.step[group[0]] for group in groups),
    )
    return _cut_into_units(merged) if whole_rows else merged


def _marks(frame: Frame, whole_rows: bool) -> list[int]:
    """Return marks of dimensions; adjacent dimensions with equal marks may be merged."""
    marks = [0]
    for dimension in range(1, frame.output.rank):
        outer = dimension - 1
        open_to_rows = not frame.is_framed(outer) or (whole_rows and frame.step[outer] == 1)
        marks.append(marks[outer] + int(frame.is_framed(dimension) or not open_to_rows))
    return marks


def _cut_into_units(frame: Frame) -> Frame:
    """Split the contiguous dimension, so that the inner one has the elements that are framed alike."""
    running = running_dimension(frame.output)
    if running is None or not frame.is_framed(running) or frame.step[running] != 1:
        return frame
    widest = WIDEST_UNIT_BITS // frame.output.data_type.bits
    unit = math.gcd(widest, frame.input.sizes[running], frame.output.sizes[running], frame.start[running])
    if unit == 1 or frame.input.strides[running] != 1:
        return frame
    start = frame.start[running] // unit
    return Frame(
        _cut(frame.input, running, unit),
        _cut(frame.output, running, unit),
        (*frame.start[:running], start, 0, *frame.start[running + 1 :]),
        (*frame.step[:running], 1, 1, *frame.step[running + 1 :]),
    )


def _cut(tensor: PlanTensor, dimension: int, unit: int) -> PlanTensor:
    """Split a dimension of stride 1 of a tensor in two, the inner one of ``unit`` elements."""
    sizes, strides = tensor.sizes, tensor.strides
    return replace(
        tensor,
        sizes=(*sizes[:dimension], sizes[dimension] // unit, unit, *sizes[dimension + 1 :]),
        strides=(*strides[:dimension], unit, 1, *strides[dimension + 1 :]),
    )
