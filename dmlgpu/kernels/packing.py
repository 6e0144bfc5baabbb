"""Packing: consecutive elements on the output's dimension of stride 1 become one unit, wherever the whole tree allows.

It is a rewrite of descriptions before rendering: bodies stay scalar, sizes and strides count units afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from dmlgpu.kernels.sources import nodes
from dmlgpu.plan import Body, BodyKind, Source, Tensor, View

WIDEST_UNIT_BITS = 128

SomeTensor = TypeVar("SomeTensor", bound=Tensor)


def pack(body: Body, output: Tensor) -> tuple[Body, Tensor]:
    """A tree and its output packed as widely as every tensor of it lets through; unchanged where none does."""
    dimension = running_dimension(output)
    packed = None if dimension is None else pack_along(body, output, dimension)
    return (body, output) if packed is None else packed


def pack_along(body: Body, output: Tensor, dimension: int) -> tuple[Body, Tensor] | None:
    """As ``pack``, along a given dimension; None where some tensor lets no units through."""
    for lanes in _candidates(body, output):
        if packs_tensor(output, dimension, lanes) and _packs(body, dimension, lanes, {}):
            return _pack_body(body, dimension, lanes, {}), pack_tensor(output, dimension, lanes)
    return None


def _candidates(body: Body, output: Tensor) -> Sequence[int]:
    """Lanes to try, widest first."""
    bits = output.data_type.bits
    if body.moves:
        return [
            lanes for lanes in (WIDEST_UNIT_BITS // bits, 64 // bits, 32 // bits, 16 // bits, 8 // bits) if lanes > 1
        ]
    computed = (source for source in nodes(body) if isinstance(source, Body) or source.view is not View.INDEX)
    return () if any(source.data_type.bits == 64 for source in computed) else (4, 2)


def running_dimension(tensor: Tensor) -> int | None:
    """The dimension along which neighbours in memory lie."""
    return next((d for d in range(tensor.rank) if tensor.strides[d] == 1 and tensor.sizes[d] > 1), None)


def packs_tensor(tensor: Tensor, dimension: int, lanes: int) -> bool:
    """Whether every run of so many elements along a dimension is one aligned unit in memory."""
    others = (s for d, s in enumerate(tensor.strides) if d != dimension and tensor.sizes[d] > 1)
    return (
        tensor.strides[dimension] == 1
        and tensor.sizes[dimension] % lanes == 0
        and tensor.offset % lanes == 0
        and all(stride % lanes == 0 for stride in others)
    )


def _is_splat(tensor: Tensor, dimension: int) -> bool:
    """Whether all lanes of a unit read one element (a broadcast operand of arithmetic)."""
    return tensor.strides[dimension] == 0 and tensor.view is View.COMPUTE


def _follow(body: Body, position: int, dimension: int) -> int | None:
    return dimension if body.kind is BodyKind.APPLY else body.follows[position][dimension]


def _packs(body: Body, dimension: int, lanes: int, memo: dict[tuple[int, int], bool]) -> bool:
    key = (id(body), dimension)
    if key not in memo:
        memo[key] = _packs_uncached(body, dimension, lanes, memo)
    return memo[key]


def _packs_uncached(body: Body, dimension: int, lanes: int, memo: dict[tuple[int, int], bool]) -> bool:
    if body.sizes[dimension] % lanes or not _packs_view(body, dimension, lanes):
        return False
    for position, (_, source) in enumerate(body.inputs):
        if isinstance(source, Tensor) and source.view is View.INDEX:
            continue
        followed = _follow(body, position, dimension)
        if followed is None:
            return False
        if isinstance(source, Body):
            if not _packs(source, followed, lanes, memo):
                return False
        elif not _is_splat(source, followed) and not packs_tensor(source, followed, lanes):
            return False
    return True


def _packs_view(body: Body, dimension: int, lanes: int) -> bool:
    """Whether an affine body reads whole units: it starts at one and moves from one to another."""
    followed = _follow(body, 0, dimension) if body.start else None
    return followed is None or all(
        step % lanes == 0 for step in (body.start[followed], *_others(body.steps[followed], dimension))
    )


def _others(values: Sequence[int], dimension: int) -> tuple[int, ...]:
    """The values of all other dimensions."""
    return (*values[:dimension], *values[dimension + 1 :])


def packs_source(source: Source, dimension: int, lanes: int) -> bool:
    """Whether a source, in memory or virtual, can be read in units of so many elements along a dimension."""
    if isinstance(source, Body):
        return _packs(source, dimension, lanes, {})
    return _is_splat(source, dimension) or packs_tensor(source, dimension, lanes)


def pack_source(source: Source, dimension: int, lanes: int) -> Source:
    """The source in such units."""
    return _pack_source(source, dimension, lanes, {})


def pack_tensor(tensor: SomeTensor, dimension: int, lanes: int) -> SomeTensor:
    """The tensor in units of so many elements along a dimension."""
    sizes = tuple(n // lanes if d == dimension else n for d, n in enumerate(tensor.sizes))
    if _is_splat(tensor, dimension):
        return replace(tensor, sizes=sizes, lanes=-lanes)
    # Dimensions of size 1 may have any stride; what is rounded away there is never multiplied by anything but 0.
    strides = tuple(s if d == dimension else s // lanes for d, s in enumerate(tensor.strides))
    return replace(tensor, sizes=sizes, strides=strides, offset=tensor.offset // lanes, lanes=lanes)


_Packed = dict[tuple[int, int], Source]
"""Sources already packed, by identity and dimension, so that shared ones stay shared."""


def _pack_body(body: Body, dimension: int, lanes: int, memo: _Packed) -> Body:
    inputs = tuple(
        (name, _pack_source(source, _follow(body, position, dimension), lanes, memo))
        for position, (name, source) in enumerate(body.inputs)
    )
    sizes = tuple(n // lanes if d == dimension else n for d, n in enumerate(body.sizes))
    packed = replace(body, inputs=inputs, sizes=sizes, lanes=lanes)
    return _pack_view(packed, dimension, lanes) if body.start else packed


def _pack_view(body: Body, dimension: int, lanes: int) -> Body:
    """An affine body's start and steps along the dimension that it follows, in units."""
    followed = _follow(body, 0, dimension)
    start = tuple(s // lanes if d == followed else s for d, s in enumerate(body.start))
    steps = tuple(
        tuple(s if c == dimension else s // lanes for c, s in enumerate(row)) if d == followed else row
        for d, row in enumerate(body.steps)
    )
    return replace(body, start=start, steps=steps)


def _pack_source(source: Source, dimension: int | None, lanes: int, memo: _Packed) -> Source:
    if isinstance(source, Tensor) and source.view is View.INDEX:
        return source
    assert dimension is not None
    key = (id(source), dimension)
    if key not in memo:
        if isinstance(source, Body):
            memo[key] = _pack_body(source, dimension, lanes, memo)
        else:
            memo[key] = pack_tensor(source, dimension, lanes)
    return memo[key]
