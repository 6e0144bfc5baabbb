"""The same elements in other shapes and orders: Reshape, Transpose, Expand and their like."""

from __future__ import annotations

import math

import numpy as np

from dmlgpu.catalog.enums import DataType, DepthSpaceOrder
from dmlgpu.frontends.onnx.node import Node, broadcast_to, checked_shape, reshaped, transposed
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions


@operator("Reshape")
def reshape(node: Node) -> Value:
    """See the elements in another shape; 0 keeps a size, -1 stands for what is left."""
    wanted = list(node.host_integers(1)) if node.version >= 5 else list(node.integers("shape") or ())
    shape = node.shape(0)
    if not node.flag("allowzero"):
        if any(size == 0 and number >= len(shape) for number, size in enumerate(wanted)):
            raise node.refusal(f"a size 0 must stand for one of the input, got {wanted} for {list(shape)}")
        wanted = [shape[number] if size == 0 else size for number, size in enumerate(wanted)]
    known = math.prod(size for size in wanted if size != -1)
    if wanted.count(-1) == 1 and known:
        wanted[wanted.index(-1)] = math.prod(shape) // known
    if min(wanted, default=0) < 0 or math.prod(wanted) != math.prod(shape):
        raise node.refusal(f"the new shape must hold {math.prod(shape)} elements, got {wanted}")
    return node.valued(node.tensor(0), wanted)


@operator("Flatten")
def flatten(node: Node) -> Value:
    """See the elements as a matrix."""
    shape = node.shape(0)
    axis = node.integer("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return node.valued(node.tensor(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))


@operator("Squeeze")
def squeeze(node: Node) -> Value:
    """Leave out dimensions of size 1."""
    given = node.host_integers(1) if node.has(1) else node.integers("axes")
    shape = node.shape(0)
    if given is None:
        axes = {axis for axis, size in enumerate(shape) if size == 1}
    else:
        axes = {node.axis(one, len(shape)) for one in given}
    if any(shape[axis] != 1 for axis in axes):
        raise node.refusal(f"dimensions that are left out must have size 1, got axes {sorted(axes)} of {list(shape)}")
    return node.valued(node.tensor(0), [size for axis, size in enumerate(shape) if axis not in axes])


@operator("Unsqueeze")
def unsqueeze(node: Node) -> Value:
    """Put dimensions of size 1 in."""
    given = node.host_integers(1) if node.has(1) else node.integers("axes") or ()
    rank = len(node.shape(0)) + len(given)
    axes = {node.axis(one, rank) for one in given}
    if len(axes) != len(given):
        raise node.refusal(f"axes must differ, got {list(given)}")
    sizes = iter(node.shape(0))
    return node.valued(node.tensor(0), [1 if axis in axes else next(sizes) for axis in range(rank)])


@operator("Transpose")
def transpose(node: Node) -> Value:
    """Put dimensions into another order."""
    x = node.tensor(0)
    order = node.integers("perm") or tuple(reversed(range(len(node.shape(0)))))
    if not node.shape(0):
        return node.valued(x, ())
    order = tuple(node.axis(one, len(x.sizes)) for one in order)
    if sorted(order) != list(range(len(x.sizes))):
        raise node.refusal(f"perm must name every dimension once, got {list(order)}")
    return node.valued(transposed(x, order))


@operator("Expand")
def expand(node: Node) -> Value:
    """Repeat dimensions of size 1."""
    wanted = node.host_integers(1)
    try:
        shape = np.broadcast_shapes(node.shape(0), wanted)
    except ValueError:
        raise node.refusal(f"shape {list(node.shape(0))} must broadcast with {list(wanted)}") from None
    if 0 in shape:
        return node.known(np.zeros(shape, node.data_type(0).numpy))
    return node.valued(broadcast_to(node.tensor(0), shape or (1,)), shape)


@operator("Tile")
def tile(node: Node) -> Value:
    """Repeat the whole along each dimension."""
    repeats = node.host_integers(1, len(node.shape(0)))
    shape = checked_shape(node, [size * count for size, count in zip(node.shape(0), repeats, strict=True)])
    if 0 in shape:
        return node.known(np.zeros(shape, node.data_type(0).numpy))
    return node.valued(dml.tile(node.tensor(0), repeats or (1,)), shape)


@operator("DepthToSpace")
def depth_to_space(node: Node) -> Value:
    """Blocks of channels become height and width."""
    return node.valued(
        functions.depth_to_space1(node.tensor(0), block_size=node.integer("blocksize"), order=_order(node))
    )


def _order(node: Node) -> DepthSpaceOrder:
    first = node.text("mode", "DCR") == "DCR"
    return DepthSpaceOrder.DEPTH_COLUMN_ROW if first else DepthSpaceOrder.COLUMN_ROW_DEPTH


@operator("SpaceToDepth")
def space_to_depth(node: Node) -> Value:
    """Blocks of height and width become channels."""
    return node.valued(
        functions.space_to_depth1(node.tensor(0), block_size=node.integer("blocksize"), order=_order(node))
    )


@operator("ReverseSequence", since=10)
def reverse_sequence(node: Node) -> Value:
    """Turn the beginning of each sequence round, as long as it is."""
    x, batch, time = node.tensor(0), node.integer("batch_axis", 1), node.integer("time_axis")
    batch, time = node.axis(batch, len(x.sizes)), node.axis(time, len(x.sizes))
    if batch == time:
        raise node.refusal(f"batch_axis and time_axis must differ, got {batch}")
    node.check_range(1, 0, x.sizes[time], "sequence_lens")
    count = x.sizes[batch]
    lengths = dml.cast(node.tensor(1), DataType.UINT32)
    lengths = reshaped(lengths, [count if axis == batch else 1 for axis in range(len(x.sizes))])
    lengths = broadcast_to(lengths, [1 if axis == time else size for axis, size in enumerate(x.sizes)])
    return node.valued(functions.reverse_subsequences(x, lengths, axis=time))


@operator("Col2Im", since=18)
def column_to_image(node: Node) -> Value:
    """Add columns of windows up to the picture that they were taken from."""
    node.check_rank(0, 3)
    sizes = node.host_integers(1)
    count = len(sizes)
    blocks = node.host_integers(2, count)
    pads = node.integers("pads", 2 * count) or (0,) * (2 * count)
    x = node.tensor(0)
    if min(blocks, default=1) < 1 or x.sizes[1] % math.prod(blocks):
        raise node.refusal(f"block_shape must divide {x.sizes[1]} rows of columns, got {list(blocks)}")
    channels = x.sizes[1] // math.prod(blocks)
    found = functions.fold(
        x,
        window_sizes=blocks,
        output_sizes=(x.sizes[0], channels, *sizes),
        strides=node.integers("strides", count) or (1,) * count,
        dilations=node.integers("dilations", count) or (1,) * count,
        start_padding=pads[:count],
        end_padding=pads[count:],
    )
    return node.valued(found)
