"""Resampling that is faster than element by element.

- Upsampling by whole factors: every input element determines a fixed pattern of output elements. An invocation reads a
  unit of adjacent elements once and writes all outputs between them, in whole units, with constant weights.
- Antialiased downsampling by whole factors: every output element sums the same pattern of input elements. An invocation
  reads the inputs shared by a few adjacent output elements once, in whole units.
- Other antialiased downsampling: elements of a row at one coordinate have the same weights. An invocation of a CPU
  adapter computes them once for several elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import Element, Map, PlanTensor, Reduce, Step, View, constants, element
from dmlgpu.compiler.rewrites.packing import UNIT, pack_tensor, packs_tensor, running_dimension
from dmlgpu.compiler.rewrites.resampling import (
    ANTIALIASED,
    ANTIALIASED_SUM,
    ANTIALIASED_TILE,
    LINEAR,
    NEAREST,
    ResampledAxis,
    Rounding,
    antialiased_sum,
    by_reduction,
    linear,
)
from dmlgpu.compiler.schedule.launch import choose_walk, item_launch, light_tile_launch
from dmlgpu.compiler.schedule.registry import Condition, no
from dmlgpu.compiler.schedule.scheduling import plain_steps
from dmlgpu.compiler.schedule.steps.base import ScheduledSteps
from dmlgpu.compiler.schedule.steps.maps import Pattern, ScheduledDownsample, ScheduledUpsample, Stencil, Tap
from dmlgpu.compiler.schedule.tiles import tiles, unchanged
from dmlgpu.compiler.sizes.arithmetic import decided
from dmlgpu.compiler.target import Target

MAX_AXES = 2
"""Maximum axes along which one kernel interpolates: shaders for more are too long."""

FEW_TAPS = 9
"""Maximum elements under a triangle that a map sums: a reduction of so few is slower."""

LANES = 4
LARGEST_FACTOR = 4
"""Maximum units that an invocation writes in a row; more would only make the shader longer."""

LONGEST_AXIS = 1 << 16
"""Maximum number of output elements whose coordinates are enumerated."""

NOT_ANTIALIASED = no("it is no antialiased resampling of a tensor")
NOT_RESAMPLED = no("it does not resample a tensor")
NO_UNITS = no("rows are no whole units of {} elements", LANES)


@plain_steps.register
def _passes(step: Map, target: Target) -> Sequence[Step]:
    """Schedule linear interpolation along many axes in passes of a few axes."""
    axes = dict(step.body.constants)["axes"] if step.body.file == LINEAR else ()
    if len(axes) <= MAX_AXES:
        return (step,)
    (_, source), *_ = step.body.inputs
    axes = by_reduction(axes)
    first = linear(source, axes[:MAX_AXES])
    result = PlanTensor.temporary("pass", DataType.FLOAT32, first.sizes)
    others = replace(linear(result, axes[MAX_AXES:]), data_type=step.body.data_type)
    return (Map(step.label, first, result), *_passes(replace(step, body=others), target))


@plain_steps.register
def _few_taps(step: Reduce, target: Target) -> Sequence[Step]:
    """Schedule antialiasing as a map, if few elements lie under a triangle."""
    terms, output = step.source, step.output
    if not (isinstance(terms, Element) and terms.file == ANTIALIASED and terms.sizes[-1] <= FEW_TAPS):
        return (step,)
    output = replace(output, sizes=output.sizes[:-1], strides=output.strides[:-1])
    return (Map("resample", replace(antialiased_sum(terms), data_type=output.data_type), output),)


def find_upsample(step: Map, target: Target) -> ScheduledUpsample | Condition:
    """Return a step equivalent to a map, if it resamples a float tensor in memory by whole factors along one or two
    axes, and units allow it."""
    body = step.body
    output = replace(step.output, view=View.RAW if body.moves else View.COMPUTE)
    if body.file not in (NEAREST, LINEAR) or not isinstance(source := body.inputs[0][1], PlanTensor):
        return NOT_RESAMPLED
    if body.file == LINEAR and not (source.data_type.is_float and output.data_type.is_float):
        return no("it interpolates integers")
    values = dict(body.constants)
    rounding = Rounding(values["increasing"]) if body.file == NEAREST else None
    axes, inner = values["axes"], running_dimension(output)
    patterns = {axis.dimension: pattern for axis in axes if (pattern := find_pattern(axis, rounding)) is not None}
    if inner is None or inner not in patterns or len(patterns) < len(axes) or len(axes) > 2:
        return no("sizes do not grow by whole factors up to {} along rows and at most one other axis", LARGEST_FACTOR)
    if not (packs_tensor(source, inner, LANES) and packs_tensor(output, inner, LANES)):
        return NO_UNITS
    columns = patterns.pop(inner)
    rows = next(iter(patterns.values()), None)
    units, packed = pack_tensor(source, inner, LANES), pack_tensor(output, inner, LANES)
    split = target.needs_many_invocations and columns.factor > 1
    written = tuple(packed.sizes[d] if split and d == inner else size for d, size in enumerate(units.sizes))
    walk = choose_walk(replace(packed, sizes=written))
    launch, factors = item_launch(walk.count, target), " x ".join(str(each.factor) for each in (rows, columns) if each)
    share = "a unit of each row that lies" if split else "all that lies"
    reason = f"sizes grow {factors} times: an invocation reads a unit and writes {share} between"
    return ScheduledUpsample("upsample", launch, packed, source, units, walk, columns, rows, split, reason=reason)


def find_pattern(axis: ResampledAxis, rounding: Rounding | None = None) -> Pattern | None:
    """Return the pattern of an axis, if it repeats exactly for every input element and reads at most the adjacent
    ones."""
    factor = axis.count // axis.size
    if factor * axis.size != axis.count or factor > LARGEST_FACTOR or axis.count > LONGEST_AXIS:
        return None
    taps = decided(_taps, rounding, *axis.numbers)
    return None if taps is None else Pattern(axis.dimension, axis.size, taps)


def _taps(rounding: Rounding | None, *numbers: int) -> tuple[Tap, ...] | None:
    """Return the taps of ``find_pattern`` for an axis that grows by a whole factor."""
    axis = ResampledAxis(0, *numbers)
    factor, middle = axis.count // axis.size, axis.size // 2
    offsets = axis.coordinates()[middle * factor :][:factor].astype(np.float64) - middle
    offsets = offsets if rounding is None else rounding.of(offsets)
    taps = tuple(Tap(int(low), float(share)) for low, share in zip(np.floor(offsets), offsets % 1, strict=True))
    pattern = Pattern(0, axis.size, taps)
    coarse, tap = np.divmod(np.arange(axis.count), factor)
    repeated = np.clip(coarse + offsets[tap], 0, axis.size - 1)
    is_near = pattern.neighbors[0] >= -1 and pattern.neighbors[-1] <= 1
    return taps if is_near and np.array_equal(repeated, axis.places(rounding)) else None


ROWS = 4
"""Output elements across memory that an invocation computes on a CPU adapter: adjacent ones share input elements."""


def find_downsample(step: Map, target: Target) -> ScheduledDownsample | Condition:
    """Return a step equivalent to a map, if it resamples a tensor in memory, antialiased, by a whole factor along an
    axis, and units allow it."""
    if step.body.file != ANTIALIASED_SUM or not isinstance(source := step.body.inputs[0][1], PlanTensor):
        return NOT_ANTIALIASED
    output = replace(step.output, view=View.COMPUTE)
    (axis,) = dict(step.body.constants)["axes"]
    inner, stencil = running_dimension(output), find_stencil(axis)
    if inner is None or stencil is None or max(source.data_type.bits, output.data_type.bits) > WORD_BITS:
        return no("the size does not shrink by a whole factor up to {}", FEW_TAPS // 2)
    is_along = axis.dimension == inner
    if is_along and stencil.step * axis.count > axis.size:
        return no("the last elements of a row have another pattern")
    if not (packs_tensor(source, inner, LANES) and packs_tensor(output, inner, LANES)):
        return NO_UNITS
    units, packed = pack_tensor(source, inner, LANES), pack_tensor(output, inner, LANES)
    rows = 1 if is_along or target.needs_many_invocations else ROWS
    sizes = (-(-n // rows) if d == axis.dimension else n for d, n in enumerate(packed.sizes))
    walk = choose_walk(replace(packed, sizes=tuple(sizes)))
    launch = item_launch(walk.count, target)
    reason = f"a size shrinks {stencil.step} times: an invocation makes {LANES} x {rows} elements with constant weights"
    return ScheduledDownsample("downsample", launch, packed, source, units, walk, stencil, rows, reason=reason)


def find_stencil(axis: ResampledAxis) -> Stencil | None:
    """Return the stencil of an antialiased axis if all output elements have the same one and it is small, else None."""
    step, first, weights = decided(_stencil, *axis.numbers)
    return Stencil(axis.dimension, axis.size, step, first, weights) if weights else None


def _stencil(*numbers: int) -> tuple[int, int, tuple[float, ...]]:
    """Return step, first element and weights of the stencil of an axis; no weights if it has none."""
    axis = ResampledAxis(0, *numbers)
    step = round(1 / axis.scale)
    if np.float32(step) * np.float32(axis.scale) != 1 or 2 * step > FEW_TAPS or axis.count > LONGEST_AXIS:
        return step, 0, ()
    coordinates = axis.coordinates().astype(np.float64)
    start = float(coordinates[0])
    if not np.array_equal(coordinates, start + step * np.arange(axis.count)):
        return step, 0, ()
    places = np.arange(np.floor(start - step) + 1, np.ceil(start + step))
    weights = 1 - np.abs(places - start) / step
    return step, int(places[0]), tuple((weights / weights.sum()).tolist())


UNITS, SINGLE = 2, 4
"""Number of units, or single elements, per invocation: in a row, or in rows if the axis is the last one."""


def find_antialiased(step: Map, target: Target) -> ScheduledSteps | Condition:
    """Return a kernel equivalent to a map, if it resamples a tensor in memory, antialiased, and words allow it."""
    if step.body.file != ANTIALIASED_SUM or not isinstance(source := step.body.inputs[0][1], PlanTensor):
        return NOT_ANTIALIASED
    output, last = replace(step.output, view=View.COMPUTE), step.output.rank - 1
    values = dict(step.body.constants)
    (axis,) = values["axes"]
    is_word = max(source.data_type.bits, output.data_type.bits) <= WORD_BITS == output.data_type.bits
    if not is_word or running_dimension(output) != last:
        return no("rows are no contiguous words")
    along, units = last, SINGLE
    if axis.dimension == last:
        along = max((dimension for dimension in range(last) if output.sizes[dimension] > 1), default=last)
    elif packs_tensor(source, last, UNIT) and packs_tensor(output, last, UNIT):
        source, units = pack_tensor(source, last, UNIT), UNITS
    if along == axis.dimension or output.sizes[along] < units * source.lanes:
        return no("fewer than {} elements have the same weights", units * source.lanes)
    values |= {"along": along, "units": units}
    data_type, sizes = step.body.data_type, output.sizes
    body = element(ANTIALIASED_TILE, data_type, sizes, portable=True, values=constants(**values), input=source)
    tile = tuple(units * source.lanes if d == along else 1 for d in range(output.rank))
    epilogue = unchanged(output.data_type, sizes)
    steps = tiles(step.label, body, tile, epilogue, output, target=target, launch=light_tile_launch)
    return steps.because(f"an invocation finds weights once for {units * source.lanes} elements at one coordinate")
