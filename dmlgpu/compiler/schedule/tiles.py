"""Tiles: kernels whose invocations compute several neighbouring elements from what they read only once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.plan import Body, RegisterValue, Sizes, Tensor, apply
from dmlgpu.compiler.rewrites.packing import UNIT, in_pairs, pack_source, pack_tensor, packs_source, packs_tensor
from dmlgpu.compiler.rewrites.sources import CONVERT
from dmlgpu.compiler.schedule.launch import Launch, tile_launch
from dmlgpu.compiler.schedule.steps import ScheduledTiles, Steps
from dmlgpu.compiler.schedule.walk import Walk, choose_walk
from dmlgpu.compiler.target import Target


def tiles(
    label: str,
    body: Body,
    tile: Sizes,
    epilogue: Body,
    output: Tensor,
    *,
    target: Target,
    launch: Callable[[int, Target], Launch] = tile_launch,
    first: int | None = None,
) -> Steps:
    """Return the kernel, packed where tile, output and epilogue allow (see ``ScheduledTiles``).

    Args:
        label, body, tile, epilogue, output: of the kernel.
        target: the adapter.
        launch: from so many tiles to a launch.
        first: the dimension along which neighbouring invocations lie; None for that of neighbours in memory.
    """
    last = output.rank - 1
    if tile[last] % UNIT == 0 and packs_tensor(output, last, UNIT) and packs_source(epilogue, last, UNIT):
        epilogue, output = pack_source(epilogue, last, UNIT), pack_tensor(output, last, UNIT)
        if target.moves_doubles and tile[last] % (2 * UNIT) == 0:
            output = in_pairs(output)
    walk = _walk(tile, output, first)
    return Steps((ScheduledTiles(label, launch(walk.count, target), output, body, tile, epilogue, walk),))


def _walk(tile: Sizes, output: Tensor, first: int | None) -> Walk:
    """Return the order of the tiles: neighbours along the first dimension side by side, then neighbours in memory."""
    units = (*tile[:-1], tile[-1] // output.lanes)
    sizes = tuple(-(-size // count) for size, count in zip(output.sizes, units, strict=True))
    strides = tuple(
        0 if dimension == first else stride * count
        for dimension, (stride, count) in enumerate(zip(output.strides, units, strict=True))
    )
    return choose_walk(replace(output, data_type=DataType.UINT32, sizes=sizes, strides=strides, offset=0, lanes=1))


def unchanged(data_type: DataType, sizes: Sizes) -> Body:
    """Return the epilogue that stores the numbers as they are."""
    return apply(CONVERT, data_type, sizes, portable=True, input=RegisterValue.product(data_type, sizes))
