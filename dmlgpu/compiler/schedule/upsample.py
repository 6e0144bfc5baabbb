"""Upsampling by whole factors: every input element stands for a fixed pattern of output elements.

One invocation reads a unit of neighbours once and writes all between them, in whole units, with constant weights.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dmlgpu.compiler.plan import Map, Tensor, View
from dmlgpu.compiler.rewrites.packing import pack_tensor, packs_tensor, running_dimension
from dmlgpu.compiler.rewrites.resampling import LINEAR, NEAREST, ResampledAxis, Rounding
from dmlgpu.compiler.schedule.launch import item_launch
from dmlgpu.compiler.schedule.steps import Pattern, ScheduledUpsample, Tap
from dmlgpu.compiler.schedule.walk import choose_walk
from dmlgpu.compiler.target import Target

LANES = 4
LARGEST_FACTOR = 4
"""Units that an invocation writes in a row; more would only make the shader longer."""

LONGEST_AXIS = 1 << 16
"""Output elements whose coordinates are worth looking at."""


def find_upsample(step: Map, target: Target) -> ScheduledUpsample | None:
    """Return the step that does what a map does, if it resamples a float tensor in memory by whole factors along one or
    two axes, and units let it."""
    body = step.body
    output = replace(step.output, view=View.RAW if body.moves else View.COMPUTE)
    if body.file not in (NEAREST, LINEAR) or not isinstance(source := body.inputs[0][1], Tensor):
        return None
    if body.file == LINEAR and not (source.data_type.is_float and output.data_type.is_float):
        return None
    values = dict(body.constants)
    rounding = Rounding(values["increasing"]) if body.file == NEAREST else None
    axes, inner = values["axes"], running_dimension(output)
    patterns = {axis.dimension: pattern for axis in axes if (pattern := find_pattern(axis, rounding)) is not None}
    if inner is None or inner not in patterns or len(patterns) < len(axes) or len(axes) > 2:
        return None
    if not (packs_tensor(source, inner, LANES) and packs_tensor(output, inner, LANES)):
        return None
    columns = patterns.pop(inner)
    rows = next(iter(patterns.values()), None)
    units, packed = pack_tensor(source, inner, LANES), pack_tensor(output, inner, LANES)
    walk = choose_walk(replace(packed, sizes=units.sizes))
    launch, factors = item_launch(walk.count, target), " x ".join(str(each.factor) for each in (rows, columns) if each)
    reason = f"sizes grow {factors} times: an invocation reads a unit once and writes all that lies between"
    return ScheduledUpsample("upsample", launch, packed, source, units, walk, columns, rows, reason=reason)


def find_pattern(axis: ResampledAxis, rounding: Rounding | None = None) -> Pattern | None:
    """Return the pattern of an axis, if it repeats exactly for every input element and reaches to the next ones at
    most."""
    factor = axis.count // axis.size
    if factor * axis.size != axis.count or factor > LARGEST_FACTOR or axis.count > LONGEST_AXIS:
        return None
    middle = axis.size // 2
    offsets = axis.coordinates()[middle * factor :][:factor].astype(np.float64) - middle
    offsets = offsets if rounding is None else rounding.of(offsets)
    taps = tuple(Tap(int(low), float(share)) for low, share in zip(np.floor(offsets), offsets % 1, strict=True))
    pattern = Pattern(axis.dimension, axis.size, taps)
    number, tap = np.divmod(np.arange(axis.count), factor)
    repeated = np.clip(number + offsets[tap], 0, axis.size - 1)
    is_near = pattern.neighbours[0] >= -1 and pattern.neighbours[-1] <= 1
    return pattern if is_near and np.array_equal(repeated, axis.places(rounding)) else None
