"""Moves: the parts of an operator's result that are copies of elements of its inputs, as pairs of views.

A move is a coordinate space and two affine maps out of it: to the coordinates of the input, and to those of the output.
Both can be strided views (sizes, strides, offset), so a move is one strided copy.

    SLICE1           the output's coordinates; in the input they start at the window and take its strides
    SPLIT, JOIN      the coordinates of one piece; in the larger tensor they start where the piece begins
    TILE             each repeated dimension in two, repetitions and elements; repetitions do not move in the input
    SPACE_TO_DEPTH1  blocks and elements within them apart; each side joins these digits in its own order
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlgpu.compiler.plan import Affine, AffineView, Map, PlanTensor
from dmlgpu.compiler.rewrites.collapse import merge_tensor, mergeable
from dmlgpu.compiler.rewrites.packing import WIDEST_UNIT_BITS, running_dimension
from dmlgpu.compiler.rewrites.sources import identity, split


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
        split(frame.input, running, unit),
        split(frame.output, running, unit),
        (*frame.start[:running], start, 0, *frame.start[running + 1 :]),
        (*frame.step[:running], 1, 1, *frame.step[running + 1 :]),
    )
