"""Gathers of blocks: on a CPU adapter an invocation that copies a whole block looks up only once where it lies."""

from __future__ import annotations

from dataclasses import replace

from dmlgpu.catalog.tensor_desc import WORD_BITS
from dmlgpu.compiler.plan import Body, Lookup, Tensor, row_sizes
from dmlgpu.compiler.schedule.launch import loop_launch
from dmlgpu.compiler.schedule.steps.maps import ScheduledBlocks
from dmlgpu.compiler.schedule.walk import choose_walk
from dmlgpu.compiler.target import Profile, Target

SHORTEST_BLOCK, LONGEST_BLOCK = 32, 1024
"""Units of a block below which looking up once gains nothing, and above which looking up costs nothing."""

FEWEST_BLOCKS = 256
"""Blocks that keep all threads and lanes of an adapter busy."""


def find_blocks(label: str, body: Body, output: Tensor, target: Target) -> ScheduledBlocks | None:
    """Return the blocks that a body already packed moves as a whole; None where copying them so does not pay."""
    if target.profile is not Profile.CPU or not isinstance(body, Lookup) or output.unit_bits < WORD_BITS:
        return None
    wide = [dimension for dimension in range(output.rank) if output.sizes[dimension] > 1]
    inner = min(wide, key=lambda dimension: output.strides[dimension], default=0)
    followed, units = body.follows[0][inner], output.sizes[inner]
    if followed is None or not SHORTEST_BLOCK <= units <= LONGEST_BLOCK:
        return None
    walk = choose_walk(replace(output, sizes=row_sizes(output.sizes, (inner,))))
    if walk.count < FEWEST_BLOCKS:
        return None
    reason = f"{walk.count:,} blocks of {units} units, on a processor: where a block lies is looked up once"
    launch = loop_launch(walk.count, target)
    return ScheduledBlocks(label, launch, output, body, walk, inner, followed, reason=reason)
