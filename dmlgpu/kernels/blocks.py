"""Gathers of blocks: on a CPU adapter an invocation that copies a whole block looks up only once where it lies."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlgpu.plan import Body, Lookup, Tensor
from dmlgpu.target import Profile, Target

SHORTEST_BLOCK, LONGEST_BLOCK = 32, 1024
"""Units of a block below which looking up once gains nothing, and above which looking up costs nothing."""

FEWEST_BLOCKS = 256
"""Blocks that keep all threads and lanes of an adapter busy."""

WORD_BITS = 32


@dataclass(frozen=True)
class Blocks:
    """Blocks along a dimension of the output.

    Attributes:
        dimension: of the output, along which a block lies.
        followed: the dimension of the input that moves with it one to one.
    """

    dimension: int
    followed: int


def find_blocks(body: Body, output: Tensor, target: Target) -> Blocks | None:
    """The blocks that a body already packed moves as a whole; None where copying them so does not pay."""
    if target.profile is not Profile.CPU or not isinstance(body, Lookup) or output.unit_bits < WORD_BITS:
        return None
    wide = [dimension for dimension in range(output.rank) if output.sizes[dimension] > 1]
    inner = min(wide, key=lambda dimension: output.strides[dimension], default=0)
    followed, units = body.follows[0][inner], output.sizes[inner]
    if followed is None or not SHORTEST_BLOCK <= units <= LONGEST_BLOCK:
        return None
    return Blocks(inner, followed) if math.prod(output.sizes) // units >= FEWEST_BLOCKS else None
