"""Operators that move blocks between height and width and channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DepthSpaceOrder
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, invalid
from dmlgpu.compiler.operators.moving import Moving
from dmlgpu.compiler.rewrites.moves import Affine, Move

_SPACE = (("batch",), ("channel",), ("row", "down"), ("column", "across"))
"""The digits of each dimension on the side of space: a block's row or column, then that within the block."""

_CHANNELS = {
    DepthSpaceOrder.DEPTH_COLUMN_ROW: ("down", "across", "channel"),
    DepthSpaceOrder.COLUMN_ROW_DEPTH: ("channel", "down", "across"),
}
"""The digits of a channel on the side of depth."""

_OLDER_ORDER = {"order": DepthSpaceOrder.DEPTH_COLUMN_ROW}
"""The order of the operators that have no such field."""


class SpaceToDepth1(Moving):
    """Blocks of height and width become channels.

    The output's sizes are {N, C * BlockSize * BlockSize, H / BlockSize, W / BlockSize}, as the page's examples have
    them (its text gives those of the other direction). The page is silent on blocks of size 0; they are refused.
    """

    desc = descs.SpaceToDepth1

    @classmethod
    def output_sizes(cls, desc: descs.SpaceToDepth | descs.SpaceToDepth1) -> Mapping[str, tuple[int, ...]]:
        (batch, channels, height, width), block = desc.input_tensor.sizes, desc.block_size
        return {"output_tensor": (batch, channels * block * block, height // block, width // block)}

    @classmethod
    def check(cls, desc: descs.SpaceToDepth | descs.SpaceToDepth1) -> None:
        _check_divides(desc, (2, 3), desc.block_size, "block_size")
        check_sizes(desc, "output_tensor", cls.output_sizes(desc)["output_tensor"], "blocks become channels")

    @classmethod
    def moves(cls, desc: descs.SpaceToDepth1) -> tuple[Move, ...]:
        channels = _CHANNELS[desc.order]
        space = _digits(desc.input_tensor.sizes, desc.block_size, ("batch", *channels, "row", "column"))
        depth = (("batch",), channels, ("row",), ("column",))
        return (Move(tuple(space.values()), Affine.digits(space, _SPACE), Affine.digits(space, depth)),)


class SpaceToDepth(Lowering):
    """SPACE_TO_DEPTH1 in the order DEPTH_COLUMN_ROW."""

    desc = descs.SpaceToDepth
    newer = descs.SpaceToDepth1
    filled = _OLDER_ORDER


class DepthToSpace1(Moving):
    """Channels become blocks of height and width. The page is silent on blocks of size 0; they are refused."""

    desc = descs.DepthToSpace1

    @classmethod
    def output_sizes(cls, desc: descs.DepthToSpace | descs.DepthToSpace1) -> Mapping[str, tuple[int, ...]]:
        (batch, channels, height, width), block = desc.input_tensor.sizes, desc.block_size
        return {"output_tensor": (batch, channels // (block * block), height * block, width * block)}

    @classmethod
    def check(cls, desc: descs.DepthToSpace | descs.DepthToSpace1) -> None:
        _check_divides(desc, (1,), desc.block_size * desc.block_size, "block_size * block_size")
        check_sizes(desc, "output_tensor", cls.output_sizes(desc)["output_tensor"], "channels become blocks")

    @classmethod
    def moves(cls, desc: descs.DepthToSpace1) -> tuple[Move, ...]:
        space = _digits(desc.output_tensor.sizes, desc.block_size, [digit for digits in _SPACE for digit in digits])
        depth = (("batch",), _CHANNELS[desc.order], ("row",), ("column",))
        return (Move(tuple(space.values()), Affine.digits(space, depth), Affine.digits(space, _SPACE)),)


class DepthToSpace(Lowering):
    """DEPTH_TO_SPACE1 in the order DEPTH_COLUMN_ROW."""

    desc = descs.DepthToSpace
    newer = descs.DepthToSpace1
    filled = _OLDER_ORDER


def _digits(sizes: tuple[int, ...], block: int, order: Sequence[str]) -> dict[str, int]:
    """Return the count of each digit, in an order, from the sizes of the tensor with height and width."""
    batch, channels, height, width = sizes
    counts = {"batch": batch, "channel": channels, "down": block, "across": block}
    counts |= {"row": height // block, "column": width // block}
    return {digit: counts[digit] for digit in order}


def _check_divides(
    desc: descs.SpaceToDepth | descs.SpaceToDepth1 | descs.DepthToSpace | descs.DepthToSpace1,
    axes: tuple[int, ...],
    divisor: int,
    name: str,
) -> None:
    """Raise InvalidDescription unless blocks are not empty and sizes of the input divide by what they take."""
    if desc.block_size < 1:
        raise invalid(desc, "block_size", f"must be at least 1, got {desc.block_size}")
    for axis in axes:
        size = desc.input_tensor.sizes[axis]
        if size % divisor:
            raise invalid(desc, f"input_tensor.sizes[{axis}]", f"must be a multiple of {name} ({divisor}), got {size}")
