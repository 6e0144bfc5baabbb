"""Packing: consecutive elements on the output's dimension of stride 1 become one unit, if the whole tree allows it.

It is a rewrite of descriptions before rendering: bodies stay scalar, sizes and strides count units afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dmlgpu.compiler.plan import Affine, AffineView, Body, PlanTensor, RegisterValue, Role, Source, View, only_moves
from dmlgpu.compiler.rewrites.sources import AnySource, nodes
from dmlgpu.compiler.sizes.arithmetic import is_many

WIDEST_UNIT_BITS = 128

PAIR_BYTES = 2 * WIDEST_UNIT_BITS // 8

UNIT = 4
"""Number of adjacent, contiguous numbers that kernels compute on at once."""


@dataclass(frozen=True)
class PackedTensor(PlanTensor):
    """A tensor whose elements are units.

    Attributes:
        lanes: elements of a unit, along the dimension of stride 1. Sizes, strides and offset count units.
        broadcast: all lanes of a unit are one element in memory; strides and offset count elements.
        paired: units are read and written two at a time, the first of them at an even index.
    """

    broadcast: bool = False
    paired: bool = False

    __hash__ = PlanTensor.__hash__

    @property
    def unit_bits(self) -> int:
        """Bits that one load or store moves."""
        return self.data_type.bits if self.broadcast else super().unit_bits


def is_paired(source: Source) -> bool:
    """Return whether a source is a tensor in memory whose units are read and written two at a time."""
    return isinstance(source, PackedTensor) and source.paired


def pack(body: Body, output: PlanTensor) -> tuple[Body, PlanTensor]:
    """Return a tree and its output in the widest units that every tensor allows; unchanged if there are none."""
    dimension = running_dimension(output)
    packed = None if dimension is None else pack_along(body, output, dimension)
    return (body, output) if packed is None else packed


def pack_along(body: Body, output: PlanTensor, dimension: int) -> tuple[Body, PlanTensor] | None:
    """Pack as ``pack`` does, along a certain dimension; None if some tensor does not allow it."""
    for lanes in _candidates(body, output):
        if packs_tensor(output, dimension, lanes) and packs_source(body, dimension, lanes):
            return pack_source(body, dimension, lanes), pack_tensor(output, dimension, lanes)
    return None


def _candidates(body: Body, output: PlanTensor) -> Sequence[int]:
    """Return the lane counts to try, widest first."""
    bits = output.data_type.bits
    if body.moves:
        return [
            lanes for lanes in (WIDEST_UNIT_BITS // bits, 64 // bits, 32 // bits, 16 // bits, 8 // bits) if lanes > 1
        ]
    return 4, 2


def running_dimension(tensor: PlanTensor) -> int | None:
    """Return the dimension that is contiguous in memory, or None."""
    return next((d for d in range(tensor.rank) if tensor.strides[d] == 1 and is_many(tensor.sizes[d])), None)


def packs_tensor(tensor: PlanTensor, dimension: int, lanes: int) -> bool:
    """Return whether every run of ``lanes`` elements along a dimension is one aligned unit in memory."""
    others = (s for d, s in enumerate(tensor.strides) if d != dimension and is_many(tensor.sizes[d]))
    return (
        tensor.strides[dimension] == 1
        and tensor.sizes[dimension] % lanes == 0
        and tensor.offset % lanes == 0
        and all(stride % lanes == 0 for stride in others)
    )


def in_pairs(source: AnySource) -> AnySource:
    """Return a packed source in pairs of units along its last dimension, if its memory is aligned to pairs.

    Inputs and outputs begin at any multiple of 16 bytes; temporary tensors of plans are aligned to larger ones.
    """
    if not isinstance(source, PackedTensor) or (source.unit_bits, source.lanes) != (WIDEST_UNIT_BITS, UNIT):
        return source
    begins_whole = source.binding.role in (Role.TEMPORARY, Role.PERSISTENT) and source.binding.offset % PAIR_BYTES == 0
    if not begins_whole or source.view is not View.COMPUTE or not packs_tensor(source, source.rank - 1, 2):
        return source
    return replace(source, paired=True)


def _is_splat(source: PlanTensor | RegisterValue, dimension: int) -> bool:
    """Return whether all lanes of a unit are one element (a broadcast operand of arithmetic)."""
    if isinstance(source, RegisterValue):
        return dimension in source.repeated
    return source.strides[dimension] == 0 and source.view is View.COMPUTE


def packs_source(source: Source, dimension: int, lanes: int) -> bool:
    """Return whether a source, in memory or virtual, can be read in units of ``lanes`` elements along a dimension.

    A tree with 64-bit arithmetic cannot: it represents such elements as pairs of words, of which WGSL has no vectors.
    """
    if not only_moves(source) and any(map(_is_computed_wide, nodes(source))):
        return False
    memo: dict[tuple[int, int], bool] = {}

    def packs(source: Source, dimension: int) -> bool:
        key = (id(source), dimension)
        if key not in memo:
            memo[key] = _packs_node(source, dimension, lanes, packs)
        return memo[key]

    return packs(source, dimension)


def _is_computed_wide(source: Source) -> bool:
    """Return whether kernels compute on a source's elements in 64 bits."""
    return source.data_type.bits == 64 and not (isinstance(source, PlanTensor) and source.view is View.INDEX)


def _packs_node(source: Source, dimension: int, lanes: int, packs: Callable[[Source, int], bool]) -> bool:
    match source:
        case PlanTensor():
            return _is_splat(source, dimension) or packs_tensor(source, dimension, lanes)
        case RegisterValue():
            return _is_splat(source, dimension) or source.sizes[dimension] % lanes == 0
        case AffineView():
            followed = source.affine.follows[dimension]
            whole = followed is not None and _starts_whole_units(source.affine, followed, dimension, lanes)
            return source.sizes[dimension] % lanes == 0 and whole and packs(source.source, followed or 0)
    if source.sizes[dimension] % lanes:
        return False
    for position, child in enumerate(source.children):
        if isinstance(child, PlanTensor) and child.view is View.INDEX:
            continue
        followed = source.follow(position, dimension)
        if followed is None or not packs(child, followed):
            return False
    return True


def _starts_whole_units(affine: Affine, followed: int, dimension: int, lanes: int) -> bool:
    """Return whether a view starts at a unit and moves from one to another."""
    others = (step for column, step in enumerate(affine.steps[followed]) if column != dimension)
    return all(step % lanes == 0 for step in (affine.start[followed], *others))


def pack_tensor(tensor: PlanTensor, dimension: int, lanes: int) -> PackedTensor:
    """Return the tensor in units of ``lanes`` elements along a dimension."""
    sizes = tuple(n // lanes if d == dimension else n for d, n in enumerate(tensor.sizes))
    packed = PackedTensor(**{**vars(tensor), "sizes": sizes, "lanes": lanes})
    if _is_splat(tensor, dimension):
        return replace(packed, broadcast=True)
    # Dimensions of size 1 may have any stride, which is multiplied only by 0, so rounding it is harmless.
    strides = tuple(s if d == dimension else s // lanes for d, s in enumerate(tensor.strides))
    return replace(packed, strides=strides, offset=tensor.offset // lanes)


def pack_source(source: AnySource, dimension: int, lanes: int) -> AnySource:
    """Return the source in units of ``lanes`` elements; shared parts stay shared."""
    memo: dict[tuple[int, int], Source] = {}

    def pack(source: Source, dimension: int | None) -> Source:
        if isinstance(source, PlanTensor) and source.view is View.INDEX:
            return source
        assert dimension is not None
        key = (id(source), dimension)
        if key not in memo:
            memo[key] = _pack_node(source, dimension, lanes, pack)
        return memo[key]

    return pack(source, dimension)  # type: ignore[return-value]


def _pack_node(source: Source, dimension: int, lanes: int, pack: Callable[[Source, int | None], Source]) -> Source:
    sizes = tuple(n // lanes if d == dimension else n for d, n in enumerate(source.sizes))
    match source:
        case PlanTensor():
            return pack_tensor(source, dimension, lanes)
        case RegisterValue():
            return replace(source, sizes=sizes, lanes=lanes)
        case AffineView():
            followed = source.affine.follows[dimension]
            packed = source.over([pack(source.source, followed)])
            return replace(
                packed, sizes=sizes, affine=_in_units(source.affine, followed, dimension, lanes), lanes=lanes
            )
    children = [pack(child, source.follow(position, dimension)) for position, child in enumerate(source.children)]
    return replace(source.over(children), sizes=sizes, lanes=lanes, packed=dimension)


def _in_units(affine: Affine, followed: int | None, dimension: int, lanes: int) -> Affine:
    """Return the map of a view of units: start and steps along the dimension that it follows are divided."""
    start = tuple(s // lanes if d == followed else s for d, s in enumerate(affine.start))
    steps = tuple(
        tuple(s if c == dimension else s // lanes for c, s in enumerate(row)) if d == followed else row
        for d, row in enumerate(affine.steps)
    )
    return Affine(start, steps)
