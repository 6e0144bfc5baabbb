"""Upsampling by whole factors: every input element stands for a fixed pattern of output elements.

One invocation reads a unit of neighbours once and writes all between them, in whole units, with constant weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dmlgpu.kernels.packing import pack_tensor, packs_tensor, running_dimension
from dmlgpu.kernels.resampling import Axis, Rounding
from dmlgpu.plan import Step, Tensor

LANES = 4
LARGEST_FACTOR = 4
"""Units that an invocation writes in a row; more would only make the shader longer."""

LONGEST_AXIS = 1 << 16
"""Output elements whose coordinates are worth looking at."""


@dataclass(frozen=True)
class Tap:
    """Where one of the output elements of an input element lies.

    Attributes:
        low: the lower of its neighbours, relative to the input element.
        share: the weight of the upper one.
    """

    low: int
    share: float

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Those with a weight."""
        return (self.low, self.low + 1) if self.share else (self.low,)


@dataclass(frozen=True)
class Pattern:
    """The output elements of every input element along one axis, clamped at the edges.

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
        """Output elements per input element."""
        return len(self.taps)

    @property
    def neighbours(self) -> tuple[int, ...]:
        """All that are read, relative to the input element."""
        return tuple(sorted({place for tap in self.taps for place in tap.neighbours}))


@dataclass(frozen=True)
class Upsample(Step):
    """Upsamples along the dimension in which neighbours lie in memory, and perhaps along another: raw tensors by moving
    bits, others by interpolation.

    Attributes:
        source: single elements of the input.
        units: the same in units.
        output: in units.
        columns, rows: how both dimensions are resampled; rows may be None.
    """

    source: Tensor
    units: Tensor
    output: Tensor
    columns: Pattern
    rows: Pattern | None


def find_upsample(
    source: Tensor, output: Tensor, axes: Sequence[Axis], rounding: Rounding | None = None
) -> Upsample | None:
    """The step that resamples along some axes; None where it does not fit.

    Args:
        rounding: of nearest neighbour; None for linear interpolation.
    """
    inner = running_dimension(output)
    patterns = {axis.dimension: found for axis in axes if (found := find_pattern(axis, rounding)) is not None}
    if inner not in patterns or len(patterns) < len(axes) or len(axes) > 2:
        return None
    if not (packs_tensor(source, inner, LANES) and packs_tensor(output, inner, LANES)):
        return None
    columns = patterns.pop(inner)
    rows = next(iter(patterns.values()), None)
    units, made = pack_tensor(source, inner, LANES), pack_tensor(output, inner, LANES)
    return Upsample("upsample", source, units, made, columns, rows)


def find_pattern(axis: Axis, rounding: Rounding | None = None) -> Pattern | None:
    """The pattern of an axis, if it repeats exactly for every input element and reaches to the next ones at most."""
    factor = axis.count // axis.size
    if factor * axis.size != axis.count or factor > LARGEST_FACTOR or axis.count > LONGEST_AXIS:
        return None
    middle = axis.size // 2
    offsets = axis.coordinates()[middle * factor :][:factor].astype(np.float64) - middle
    offsets = offsets if rounding is None else rounding.of(offsets)
    taps = tuple(Tap(int(low), float(share)) for low, share in zip(np.floor(offsets), offsets % 1, strict=True))
    pattern = Pattern(axis.dimension, axis.size, taps)
    number, place = np.divmod(np.arange(axis.count), factor)
    repeated = np.clip(number + offsets[place], 0, axis.size - 1)
    is_near = pattern.neighbours[0] >= -1 and pattern.neighbours[-1] <= 1
    return pattern if is_near and np.array_equal(repeated, axis.places(rounding)) else None
