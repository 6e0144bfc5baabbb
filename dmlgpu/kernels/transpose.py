"""Transposed copies: where memory runs along another dimension than in the source, square tiles go through registers.

Read element by element such a copy touches a cache line per element; a tile of units reads and writes whole units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dmlgpu.kernels.packing import pack_tensor, packs_tensor, running_dimension
from dmlgpu.kernels.sources import is_identity
from dmlgpu.plan import Body, Tensor, View

BLOCK = 8
"""Tiles along each side of the square of tiles that neighbouring invocations handle."""

_LANES = {8: 4, 16: 4, 32: 4, 64: 2}


@dataclass(frozen=True)
class Digit:
    """Part of a coordinate that comes out of a running number: ``coordinate += number % count * scale``."""

    dimension: int
    count: int
    scale: int


@dataclass(frozen=True)
class Transpose:
    """A copy in square tiles.

    Attributes:
        source, output: packed along the dimensions that memory runs along in each.
        source_dimension, output_dimension: these dimensions.
        lanes: elements along a side of a tile.
        digits: how the number of a tile gives its coordinates, fastest first.
        count: how many tiles.
    """

    source: Tensor
    output: Tensor
    source_dimension: int
    output_dimension: int
    lanes: int
    digits: tuple[Digit, ...]
    count: int


def find_transpose(body: Body, output: Tensor) -> Transpose | None:
    """The copy as tiles, if it is a plain one whose two running dimensions differ and divide into tiles."""
    if not is_identity(body) or not isinstance(source := body.inputs[0][1], Tensor) or source.view is not View.RAW:
        return None
    lanes = _LANES.get(output.data_type.bits)
    inner, outer = running_dimension(output), running_dimension(source)
    if lanes is None or inner is None or outer is None or inner == outer:
        return None
    if not packs_tensor(source, outer, lanes) or not packs_tensor(output, inner, lanes):
        return None
    tiles = {d: size // lanes if d in (inner, outer) else size for d, size in enumerate(output.sizes)}
    count = 1
    for size in tiles.values():
        count *= size
    packed = replace(pack_tensor(output, inner, lanes), view=View.RAW)
    return Transpose(
        pack_tensor(source, outer, lanes), packed, outer, inner, lanes, _digits(tiles, outer, inner), count
    )


def _digits(tiles: dict[int, int], outer: int, inner: int) -> tuple[Digit, ...]:
    """Squares of tiles first, so that neighbours share cache lines on both sides; then the rest."""
    near = {d: _largest_power_of_two(tiles[d], BLOCK) for d in (outer, inner)}
    digits = [Digit(d, near[d], 1) for d in (outer, inner)]
    digits += [Digit(d, tiles[d] // near[d], near[d]) for d in (outer, inner)]
    digits += [Digit(d, tiles[d], 1) for d in sorted(tiles, reverse=True) if d not in (outer, inner)]
    return tuple(digit for digit in digits if digit.count > 1)


def _largest_power_of_two(number: int, most: int) -> int:
    """The largest power of two up to ``most`` that divides a number."""
    return min(number & -number, most)
