"""Frames: a tensor set into a larger one, element ``c`` at ``start + step * c``; what lies around it is made up.

Index arithmetic is what such a kernel costs, and units of several elements are what it gains, so that dimensions are
merged as far as they may be, and rows whose frame is a whole number of units are cut into units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dmlgpu.compiler.plan import Tensor
from dmlgpu.compiler.rewrites.collapse import merge_tensor, mergeable
from dmlgpu.compiler.rewrites.packing import WIDEST_UNIT_BITS, running_dimension


@dataclass(frozen=True)
class Frame:
    """A tensor and the one that it is set into, of equal rank.

    Attributes:
        start: where its first element lies.
        step: elements from one neighbour to the next; negative where it lies mirrored.
    """

    input: Tensor
    output: Tensor
    start: tuple[int, ...]
    step: tuple[int, ...]

    def is_framed(self, dimension: int) -> bool:
        """Return whether input and output coordinates differ along a dimension."""
        same_size = self.input.sizes[dimension] == self.output.sizes[dimension]
        return not same_size or self.start[dimension] != 0 or self.step[dimension] != 1

    @property
    def follows(self) -> tuple[int | None, ...]:
        """The dimensions along which coordinates are the same, None for the others."""
        return tuple(None if self.is_framed(d) else d for d in range(self.output.rank))


def merge_frame(frame: Frame, *, whole_rows: bool) -> Frame:
    """Return the frame with as few dimensions as may be, its rows cut into units where that lets them be packed.

    Args:
        frame: what is merged.
        whole_rows: whether the frame treats rows as it treats single elements (a constant border does, a mirror does
            not): then a framed dimension takes in those behind it.
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
    """Return which neighbouring dimensions may be merged: those of equal mark."""
    marks = [0]
    for dimension in range(1, frame.output.rank):
        outer = dimension - 1
        open_to_rows = not frame.is_framed(outer) or (whole_rows and frame.step[outer] == 1)
        marks.append(marks[outer] + int(frame.is_framed(dimension) or not open_to_rows))
    return marks


def _cut_into_units(frame: Frame) -> Frame:
    """Return the elements along the dimension that memory runs along as a dimension of their own, as many as are
    framed alike."""
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


def _cut(tensor: Tensor, dimension: int, unit: int) -> Tensor:
    """Return a tensor with a dimension of stride 1 in two, the inner one of so many elements."""
    sizes, strides = tensor.sizes, tensor.strides
    return replace(
        tensor,
        sizes=(*sizes[:dimension], sizes[dimension] // unit, unit, *sizes[dimension + 1 :]),
        strides=(*strides[:dimension], unit, 1, *strides[dimension + 1 :]),
    )
