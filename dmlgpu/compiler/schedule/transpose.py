"""Transposed copies: where memory runs along another dimension than in the source, square tiles go through registers.

Read element by element such a copy touches a cache line per element; a tile of units reads and writes whole units.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dmlgpu.compiler.plan import Body, Tensor, View
from dmlgpu.compiler.rewrites.packing import pack_tensor, packs_tensor, running_dimension
from dmlgpu.compiler.rewrites.sources import is_identity
from dmlgpu.compiler.schedule.launch import item_launch
from dmlgpu.compiler.schedule.steps import ScheduledTranspose, TileDigit
from dmlgpu.compiler.target import Target

BLOCK = 8
"""Tiles along each side of the square of tiles that neighbouring invocations handle."""

_LANES = {8: 4, 16: 4, 32: 4, 64: 2}


def find_transpose(label: str, body: Body, output: Tensor, target: Target) -> ScheduledTranspose | None:
    """Return the copy as tiles, if it is a plain one whose two running dimensions differ and divide into tiles."""
    if not is_identity(body) or not isinstance(source := body.inputs[0][1], Tensor) or source.view is not View.RAW:
        return None
    lanes = _LANES.get(output.data_type.bits)
    inner, outer = running_dimension(output), running_dimension(source)
    if lanes is None or inner is None or outer is None or inner == outer:
        return None
    if not packs_tensor(source, outer, lanes) or not packs_tensor(output, inner, lanes):
        return None
    tiles = {d: size // lanes if d in (inner, outer) else size for d, size in enumerate(output.sizes)}
    launch = item_launch(math.prod(tiles.values()), target)
    packed = replace(pack_tensor(output, inner, lanes), view=View.RAW)
    source, digits = pack_tensor(source, outer, lanes), _digits(tiles, outer, inner)
    reason = f"a plain copy from memory along dimension {outer} to memory along {inner}: square tiles in registers"
    return ScheduledTranspose(label, launch, packed, source, outer, inner, digits, reason=reason)


def _digits(tiles: dict[int, int], outer: int, inner: int) -> tuple[TileDigit, ...]:
    """Squares of tiles first, so that neighbours share cache lines on both sides; then the rest.

    The next neighbours write side by side and read rows apart: lines that are written in pieces cost more than lines
    that are read so, above all where rows lie powers of two apart and compete for the same places of a cache.
    """
    near = {d: _largest_power_of_two(tiles[d], BLOCK) for d in (outer, inner)}
    digits = [TileDigit(d, near[d], 1) for d in (inner, outer)]
    digits += [TileDigit(d, tiles[d] // near[d], near[d]) for d in (outer, inner)]
    digits += [TileDigit(d, tiles[d], 1) for d in sorted(tiles, reverse=True) if d not in (outer, inner)]
    return tuple(digit for digit in digits if digit.count > 1)


def _largest_power_of_two(number: int, most: int) -> int:
    """Return the largest power of two up to ``most`` that divides a number."""
    return min(number & -number, most)
