"""Antialiased downsampling by any factor: elements beside each other at one coordinate have their weights in common.

On a CPU adapter an invocation finds them once for several elements. Whole factors need none of that
(``schedule/downsample.py``): their weights are constants.
"""

from __future__ import annotations

from dataclasses import replace

from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import Map, Tensor, View, constants, element
from dmlgpu.compiler.rewrites.packing import UNIT, pack_tensor, packs_tensor, running_dimension
from dmlgpu.compiler.rewrites.resampling import ANTIALIASED_SUM, ANTIALIASED_TILE
from dmlgpu.compiler.schedule.launch import light_tile_launch
from dmlgpu.compiler.schedule.steps import Steps
from dmlgpu.compiler.schedule.tiles import tiles, unchanged
from dmlgpu.compiler.target import Profile, Target

UNITS, SINGLE = 2, 4
"""Units of elements that an invocation makes, or single ones: in a row, or in rows where the axis is the last one."""


def find_antialiased(step: Map, target: Target) -> Steps | None:
    """Return the kernel that does what a map does, if it resamples a tensor in memory, antialiased, and words let
    it."""
    if step.body.file != ANTIALIASED_SUM or not isinstance(source := step.body.inputs[0][1], Tensor):
        return None
    output, last = replace(step.output, view=View.COMPUTE), step.output.rank - 1
    values = dict(step.body.constants)
    (axis,) = values["axes"]
    is_word = max(source.data_type.bits, output.data_type.bits) <= WORD_BITS == output.data_type.bits
    if target.profile is not Profile.CPU or not is_word or running_dimension(output) != last:
        return None
    along, units = last, SINGLE
    if axis.dimension == last:
        along = max((dimension for dimension in range(last) if output.sizes[dimension] > 1), default=last)
    elif packs_tensor(source, last, UNIT) and packs_tensor(output, last, UNIT):
        source, units = pack_tensor(source, last, UNIT), UNITS
    if along == axis.dimension or output.sizes[along] < units * source.lanes:
        return None
    values |= {"along": along, "units": units}
    data_type, sizes = step.body.data_type, output.sizes
    body = element(ANTIALIASED_TILE, data_type, sizes, portable=True, values=constants(**values), input=source)
    tile = tuple(units * source.lanes if d == along else 1 for d in range(output.rank))
    epilogue = unchanged(output.data_type, sizes)
    steps = tiles(step.label, body, tile, epilogue, output, target=target, launch=light_tile_launch)
    return steps.because(f"an invocation finds weights once for {units * source.lanes} elements at one coordinate")
