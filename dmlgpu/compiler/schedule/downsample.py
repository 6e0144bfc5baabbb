"""Antialiased downsampling by whole factors: every output element adds up the same pattern of input elements.

One invocation reads what a few neighbouring output elements have in common once, in whole units, and weighs it with
constants.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import Map, Tensor, View
from dmlgpu.compiler.rewrites.packing import pack_tensor, packs_tensor, running_dimension
from dmlgpu.compiler.rewrites.resampling import ANTIALIASED_SUM, FEW_TAPS, ResampledAxis
from dmlgpu.compiler.schedule.launch import item_launch
from dmlgpu.compiler.schedule.steps import ScheduledDownsample, Stencil
from dmlgpu.compiler.schedule.upsample import LONGEST_AXIS
from dmlgpu.compiler.schedule.walk import choose_walk
from dmlgpu.compiler.target import Profile, Target

LANES = 4
ROWS = 4
"""Output elements across memory that an invocation makes on a CPU adapter: neighbours share input elements."""


def find_downsample(step: Map, target: Target) -> ScheduledDownsample | None:
    """Return the step that does what a map does, if it resamples a tensor in memory, antialiased, by a whole factor
    along an axis, and units let it."""
    if step.body.file != ANTIALIASED_SUM or not isinstance(source := step.body.inputs[0][1], Tensor):
        return None
    output = replace(step.output, view=View.COMPUTE)
    (axis,) = dict(step.body.constants)["axes"]
    inner, stencil = running_dimension(output), find_stencil(axis)
    if inner is None or stencil is None or max(source.data_type.bits, output.data_type.bits) > WORD_BITS:
        return None
    is_along = axis.dimension == inner
    if is_along and stencil.step * axis.count > axis.size:
        return None
    if not (packs_tensor(source, inner, LANES) and packs_tensor(output, inner, LANES)):
        return None
    units, packed = pack_tensor(source, inner, LANES), pack_tensor(output, inner, LANES)
    rows = 1 if is_along or target.profile is not Profile.CPU else ROWS
    sizes = (-(-n // rows) if d == axis.dimension else n for d, n in enumerate(packed.sizes))
    walk = choose_walk(replace(packed, sizes=tuple(sizes)))
    launch = item_launch(walk.count, target)
    reason = f"a size shrinks {stencil.step} times: an invocation makes {LANES} x {rows} elements with constant weights"
    return ScheduledDownsample("downsample", launch, packed, source, units, walk, stencil, rows, reason=reason)


def find_stencil(axis: ResampledAxis) -> Stencil | None:
    """Return what every output element of an antialiased axis adds up, if that is exactly the same for all, and few."""
    step = round(1 / axis.scale)
    if np.float32(step) * np.float32(axis.scale) != 1 or 2 * step > FEW_TAPS or axis.count > LONGEST_AXIS:
        return None
    coordinates = axis.coordinates().astype(np.float64)
    start = float(coordinates[0])
    if not np.array_equal(coordinates, start + step * np.arange(axis.count)):
        return None
    places = np.arange(np.floor(start - step) + 1, np.ceil(start + step))
    weights = 1 - np.abs(places - start) / step
    return Stencil(axis.dimension, axis.size, step, int(places[0]), tuple((weights / weights.sum()).tolist()))
