"""Ways for a tensor to lie in memory, as generators of strides, and sizes that sit on the edges of fast paths."""

from __future__ import annotations

import bisect
import enum
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.overlap import has_overlap
from dmlgpu.catalog.tensor_desc import TensorDesc, buffer_size, packed_strides

EDGE_SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65)
"""Extents at and one off the widths that packing, alignment and workgroups care about, and primes."""


class TensorLayout(enum.StrEnum):
    """Memory layout of a tensor."""

    PACKED = "packed"  # no strides given
    EXPLICIT = "explicit"  # the packed strides, written out
    PERMUTED = "permuted"  # packed in another order of dimensions
    ALIGNED = "aligned"  # rows padded to a multiple of 4 elements
    NEAR = "near"  # rows padded to one element off a multiple of 4
    PADDED = "padded"  # random gaps at every level, random order of dimensions
    STRIDED = "strided"  # gaps between neighboring elements as well
    INTERLEAVED = "interleaved"  # strides that do not nest, without overlap
    BROADCAST = "broadcast"  # stride 0 somewhere (inputs only; outputs are permuted)
    SLACK = "slack"  # packed, with a total size larger than needed
    MIXED = "mixed"  # each tensor draws its own


def draw_tensor(
    data_type: DataType, sizes: Sequence[int], layout: TensorLayout, rng: np.random.Generator, *, output: bool = False
) -> TensorDesc:
    """Return a tensor description with the given layout. Outputs never get strides that overlap."""
    sizes = tuple(sizes)
    if layout is TensorLayout.MIXED:
        layout = list(TensorLayout)[rng.integers(len(TensorLayout) - 1)]
    if layout is TensorLayout.BROADCAST and output:
        layout = TensorLayout.PERMUTED
    if layout is TensorLayout.SLACK:
        total = buffer_size(data_type, sizes) + 4 * int(rng.integers(1, 12))
        return TensorDesc(data_type, sizes, total_tensor_size_in_bytes=total)
    return TensorDesc(data_type, sizes, strides(sizes, layout, rng))


def strides(sizes: Sequence[int], layout: TensorLayout, rng: np.random.Generator) -> tuple[int, ...] | None:
    """Strides in elements for a layout; None if the layout gives none (PACKED, SLACK, MIXED)."""
    maker = _MAKERS.get(layout)
    return None if maker is None else maker(sizes, rng)


def _nested(
    sizes: Sequence[int],
    order: Sequence[int] | np.ndarray,
    *,
    pitch: int = 1,
    off: int = 0,
    gaps: Sequence[int] | np.ndarray | None = None,
    first: int = 1,
) -> tuple[int, ...]:
    """Strides for dimensions laid out in ``order``, innermost first.

    Above the innermost each is rounded up to a multiple of ``pitch`` (then moved by ``off``) and widened by its gap.
    """
    result = [0] * len(sizes)
    reach = first
    for level, dimension in enumerate(order):
        if level == 1:
            reach = max(reach, -(-reach // pitch) * pitch + off)
        result[dimension] = reach + (int(gaps[level]) if gaps is not None and level else 0)
        reach = result[dimension] * sizes[dimension]
    return tuple(result)


def _interleaved(sizes: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    """Strides of two dimensions that reach into each other without meeting; the others lie around them.

    Where the sizes allow none, or chance finds none, the dimensions are padded.
    """
    wide = [dimension for dimension, size in enumerate(sizes) if size > 1]
    if len(wide) >= 2:
        a, b = (int(d) for d in rng.permutation(wide)[:2])
        for _ in range(32):
            p, q = int(rng.integers(2, 2 * sizes[b] + 1)), int(rng.integers(2, 2 * sizes[a] + 1))
            entangled = p < q * (sizes[b] - 1) + 1 and q < p * (sizes[a] - 1) + 1
            if entangled and not has_overlap((sizes[a], sizes[b]), (p, q)):
                return _around(sizes, {a: p, b: q})
    return _nested(sizes, rng.permutation(len(sizes)), gaps=rng.integers(1, 4, len(sizes)), first=2)


def _around(sizes: Sequence[int], fixed: dict[int, int]) -> tuple[int, ...]:
    """Strides where ``fixed`` holds some dimensions' and the others lie above the span of those."""
    reach = 1 + sum((sizes[dimension] - 1) * stride for dimension, stride in fixed.items())
    result = dict(fixed)
    for dimension in reversed(range(len(sizes))):
        if dimension not in fixed:
            result[dimension] = reach
            reach *= sizes[dimension]
    return tuple(result[dimension] for dimension in range(len(sizes)))


def _broadcast(sizes: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    """Stride 0 in some dimensions (one with more than one element, if there is one), the others packed."""
    repeated = rng.integers(0, 3, len(sizes)) == 0
    wide = [dimension for dimension, size in enumerate(sizes) if size > 1]
    repeated[rng.choice(wide or range(len(sizes)))] = True
    stored = packed_strides([1 if again else size for size, again in zip(sizes, repeated, strict=True)])
    return tuple(0 if again else stride for stride, again in zip(stored, repeated, strict=True))


def _permuted(sizes: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    return _nested(sizes, rng.permutation(len(sizes)))


def _aligned(sizes: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    return _nested(sizes, range(len(sizes))[::-1], pitch=4)


def _near(sizes: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    return _nested(sizes, range(len(sizes))[::-1], pitch=4, off=1 if rng.integers(2) else -1)


def _padded(sizes: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    gaps = rng.integers(0, 4, len(sizes))
    return _nested(sizes, rng.permutation(len(sizes)), gaps=gaps, first=int(rng.integers(1, 3)))


def _strided(sizes: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
    step = int(rng.integers(2, 4))
    return tuple(step * stride for stride in packed_strides(sizes))


_MAKERS: Mapping[TensorLayout, Callable[[Sequence[int], np.random.Generator], tuple[int, ...]]] = {
    TensorLayout.EXPLICIT: lambda sizes, rng: packed_strides(sizes),
    TensorLayout.PERMUTED: _permuted,
    TensorLayout.ALIGNED: _aligned,
    TensorLayout.NEAR: _near,
    TensorLayout.PADDED: _padded,
    TensorLayout.STRIDED: _strided,
    TensorLayout.INTERLEAVED: _interleaved,
    TensorLayout.BROADCAST: _broadcast,
}


def draw_sizes(rng: np.random.Generator, rank: int, most: int = 4096) -> tuple[int, ...]:
    """Draw random sizes from ``EDGE_SIZES`` with at most ``most`` elements; inner dimensions get the large ones
    first."""
    sizes: list[int] = []
    for left in range(rank, 0, -1):
        room = most // math.prod(sizes)
        cap = max(2, round(room ** (1.5 / left)))
        choices = bisect.bisect_right(EDGE_SIZES, min(cap, room))
        sizes.append(EDGE_SIZES[rng.integers(choices)])
    if rng.integers(4) == 0:
        rng.shuffle(sizes)
    return tuple(reversed(sizes))
