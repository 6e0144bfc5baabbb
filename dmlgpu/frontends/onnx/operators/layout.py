"""Shapes and orders of dimensions; parts of tensors: Reshape, Transpose, Concat, Split, Slice, Pad and their like."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dmlgpu.catalog.enums import DataType, DepthSpaceOrder, PaddingMode
from dmlgpu.frontends.onnx.expressions import broadcast_shapes, broadcast_to, reshaped, transposed
from dmlgpu.frontends.onnx.node import Array, OnnxNode, checked_shape, slice_extent, slice_range, split_sizes
from dmlgpu.frontends.onnx.registry import Steps, operator
from dmlgpu.frontends.onnx.values import OnnxValue
from dmlgpu.tensors import directml
from dmlgpu.tensors import directmlx as dml


@operator("Reshape", host=(1,))
def reshape(node: OnnxNode) -> OnnxValue:
    """Reinterpret the elements in another shape; 0 keeps a size, -1 is inferred."""
    sizes = list(node.host_integers(1)) if node.version >= 5 else list(node.integers("shape") or ())
    shape = node.shape(0)
    if not node.flag("allowzero"):
        if any(size == 0 and index >= len(shape) for index, size in enumerate(sizes)):
            raise node.rejection(f"a size 0 must copy a dimension of the input, got {sizes} for {list(shape)}")
        sizes = [shape[index] if size == 0 else size for index, size in enumerate(sizes)]
    product = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and product:
        sizes[sizes.index(-1)] = math.prod(shape) // product
    if any(size < 0 for size in sizes) or math.prod(sizes) != math.prod(shape):
        raise node.rejection(f"the new shape must hold {math.prod(shape)} elements, got {sizes}")
    return node.valued(node.tensor(0), sizes)


@operator("Flatten")
def flatten(node: OnnxNode) -> OnnxValue:
    """Reinterpret the elements as a matrix."""
    shape = node.shape(0)
    axis = node.integer("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return node.valued(node.tensor(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))


@operator("Squeeze", host=(1,))
def squeeze(node: OnnxNode) -> OnnxValue:
    """Remove dimensions of size 1."""
    listed = node.host_integers(1) if node.has(1) else node.integers("axes")
    shape = node.shape(0)
    if listed is None:
        axes = {axis for axis, size in enumerate(shape) if size == 1}
    else:
        axes = {node.axis(axis, len(shape)) for axis in listed}
    if any(shape[axis] != 1 for axis in axes):
        raise node.rejection(f"squeezed dimensions must have size 1, got axes {sorted(axes)} of {list(shape)}")
    return node.valued(node.tensor(0), [size for axis, size in enumerate(shape) if axis not in axes])


@operator("Unsqueeze", host=(1,))
def unsqueeze(node: OnnxNode) -> OnnxValue:
    """Insert dimensions of size 1."""
    listed = node.host_integers(1) if node.has(1) else node.integers("axes") or ()
    rank = len(node.shape(0)) + len(listed)
    axes = {node.axis(axis, rank) for axis in listed}
    if len(axes) != len(listed):
        raise node.rejection(f"axes must differ, got {list(listed)}")
    sizes = iter(node.shape(0))
    return node.valued(node.tensor(0), [1 if axis in axes else next(sizes) for axis in range(rank)])


@operator("Transpose")
def transpose(node: OnnxNode) -> OnnxValue:
    """Permute dimensions."""
    x = node.tensor(0)
    order = node.integers("perm") or tuple(reversed(range(len(node.shape(0)))))
    if not node.shape(0):
        return node.valued(x, ())
    order = tuple(node.axis(axis, len(x.sizes)) for axis in order)
    if sorted(order) != list(range(len(x.sizes))):
        raise node.rejection(f"perm must name every dimension once, got {list(order)}")
    return node.valued(transposed(x, order))


@operator("Expand", host=(1,))
def expand(node: OnnxNode) -> OnnxValue:
    """Repeat dimensions of size 1."""
    requested = node.host_integers(1)
    try:
        shape = broadcast_shapes(node.shape(0), requested)
    except ValueError:
        raise node.rejection(f"shape {list(node.shape(0))} must broadcast with {list(requested)}") from None
    if 0 in shape:
        return node.known(np.zeros(shape, node.data_type(0).numpy))
    return node.valued(broadcast_to(node.tensor(0), shape or (1,)), shape)


@operator("Tile", host=(1,))
def tile(node: OnnxNode) -> OnnxValue:
    """Repeat the tensor along each dimension."""
    repeats = node.host_integers(1, len(node.shape(0)))
    shape = checked_shape(node, [size * count for size, count in zip(node.shape(0), repeats, strict=True)])
    if 0 in shape:
        return node.known(np.zeros(shape, node.data_type(0).numpy))
    return node.valued(dml.tile(node.tensor(0), repeats or (1,)), shape)


@operator("DepthToSpace")
def depth_to_space(node: OnnxNode) -> OnnxValue:
    """Blocks of channels become height and width."""
    return node.valued(
        directml.depth_to_space1(node.tensor(0), block_size=node.integer("blocksize"), order=_order(node))
    )


def _order(node: OnnxNode) -> DepthSpaceOrder:
    first = node.text("mode", "DCR") == "DCR"
    return DepthSpaceOrder.DEPTH_COLUMN_ROW if first else DepthSpaceOrder.COLUMN_ROW_DEPTH


@operator("SpaceToDepth")
def space_to_depth(node: OnnxNode) -> OnnxValue:
    """Blocks of height and width become channels."""
    return node.valued(
        directml.space_to_depth1(node.tensor(0), block_size=node.integer("blocksize"), order=_order(node))
    )


@operator("ReverseSequence", since=10)
def reverse_sequence(node: OnnxNode) -> OnnxValue:
    """Reverse the first elements of each sequence, as many as its length."""
    x, batch, time = node.tensor(0), node.integer("batch_axis", 1), node.integer("time_axis")
    batch, time = node.axis(batch, len(x.sizes)), node.axis(time, len(x.sizes))
    if batch == time:
        raise node.rejection(f"batch_axis and time_axis must differ, got {batch}")
    node.check_range(1, 0, x.sizes[time], "sequence_lens")
    count = x.sizes[batch]
    lengths = dml.cast(node.tensor(1), DataType.UINT32)
    lengths = reshaped(lengths, [count if axis == batch else 1 for axis in range(len(x.sizes))])
    lengths = broadcast_to(lengths, [1 if axis == time else size for axis, size in enumerate(x.sizes)])
    return node.valued(directml.reverse_subsequences(x, lengths, axis=time))


@operator("Col2Im", since=18, host=(1, 2))
def column_to_image(node: OnnxNode) -> OnnxValue:
    """Sum columns of windows into the image that they were taken from."""
    node.check_rank(0, 3)
    sizes = node.host_integers(1)
    count = len(sizes)
    blocks = node.host_integers(2, count)
    pads = node.integers("pads", 2 * count) or (0,) * (2 * count)
    x = node.tensor(0)
    if min(blocks, default=1) < 1 or x.sizes[1] % math.prod(blocks):
        raise node.rejection(f"block_shape must divide {x.sizes[1]} rows of columns, got {list(blocks)}")
    channels = x.sizes[1] // math.prod(blocks)
    picture = directml.fold(
        x,
        window_sizes=blocks,
        output_sizes=(x.sizes[0], channels, *sizes),
        strides=node.integers("strides", count) or (1,) * count,
        dilations=node.integers("dilations", count) or (1,) * count,
        start_padding=pads[:count],
        end_padding=pads[count:],
    )
    return node.valued(picture)


@operator("Concat")
def concat(node: OnnxNode) -> OnnxValue:
    """Concatenate tensors along an axis; empty ones add nothing, and may have another rank."""
    values = [node.value(index) for index in range(len(node))]
    rank = len(values[0].shape)
    axis = node.axis(node.integer("axis", 1), rank)
    others = [value.shape[:axis] + value.shape[axis + 1 :] for value in values if len(value.shape) == rank]
    if any(other != others[0] for other in others):
        listed = ", ".join(str(list(value.shape)) for value in values)
        raise node.rejection(f"inputs must have equal sizes but for axis {axis}, got {listed}")
    parts = [node.expression(value) for value in values if not value.is_empty]
    return node.valued(parts[0] if len(parts) == 1 else dml.join(parts, axis))


@operator("Split", host=(1,))
def split(node: OnnxNode) -> list[OnnxValue]:
    """Split a tensor into pieces along an axis."""
    shape = node.shape(0)
    axis = node.axis(node.integer("axis"), len(shape))
    sizes = split_sizes(node, shape[axis])
    present = iter(dml.split(node.tensor(0), axis, [size for size in sizes if size]))
    empty = (*shape[:axis], 0, *shape[axis + 1 :])
    return [
        node.valued(next(present)) if size else node.known(np.zeros(empty, node.data_type(0).numpy)) for size in sizes
    ]


@operator("Slice", host=(3, 4))
def slice_(node: OnnxNode) -> Steps | OnnxValue:
    """Take ranges along axes, with steps forwards or backwards."""
    shape = node.shape(0)
    if node.version >= 10 and any(node.value(index).array is None for index in (1, 2)):
        return _slice_on_device(node)
    if node.version < 10:
        starts, ends, axes, steps = node.integers("starts"), node.integers("ends"), node.integers("axes"), None
    else:
        starts = node.host_integers(1)
        ends = node.host_integers(2, len(starts))
        axes = node.host_integers(3, len(starts)) if node.has(3) else None
        steps = node.host_integers(4, len(starts)) if node.has(4) else None
    if starts is None or ends is None:
        raise node.rejection("starts and ends must be given")
    axes = tuple(range(len(starts))) if axes is None else axes
    if not len(starts) == len(ends) == len(axes):
        raise node.rejection(
            f"starts, ends and axes must have equal lengths, got {len(starts)}, {len(ends)} and {len(axes)}"
        )
    axes = node.axes(axes, len(shape))
    steps = (1,) * len(starts) if steps is None else steps
    result, first, extents, strides = list(shape), [0] * len(shape), list(shape), [1] * len(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step == 0:
            raise node.rejection("steps must not be 0")
        begin, count = slice_extent(shape[axis], start, end, step)
        reach = (count - 1) * abs(step)
        result[axis], extents[axis] = count, reach + 1
        first[axis] = begin if step > 0 else begin - reach
        strides[axis] = step if count > 1 else 1
    if 0 in result:
        return node.known(np.zeros(result, node.data_type(0).numpy))
    if all(stride == 1 and count == size for stride, count, size in zip(strides, result, shape, strict=True)):
        return node.valued(node.tensor(0), shape)
    return node.valued(dml.slice(node.tensor(0), first, extents, strides))


def _slice_on_device(node: OnnxNode) -> Steps:
    """Slice with starts that stay on the device: the host reads only the lengths, which select the graph."""
    shape = node.shape(0)
    node.check_rank(1, 1)
    (count,) = node.shape(1)
    if node.shape(2) != (count,):
        raise node.rejection(f"ends must have the length of starts, got shapes {[count]} and {list(node.shape(2))}")
    axes = node.axes(node.host_integers(3, count) if node.has(3) else range(count), len(shape))
    steps = node.host_integers(4, count) if node.has(4) else (1,) * count
    if 0 in steps:
        raise node.rejection("steps must not be 0")

    known_lengths = yield node.decided((1, 2), _lengths, *(shape[axis] for axis in axes), *steps)
    result = list(shape)
    for axis, length in zip(axes, known_lengths, strict=True):
        result[axis] = length
    if 0 in result:
        return node.known(np.zeros(result, node.data_type(0).numpy))
    # Clip first: casting could wrap a start far beyond the end into the dimension.
    starts = dml.cast(dml.clip(node.tensor(1), -(2**31), 2**31 - 1), DataType.INT32)
    x = node.tensor(0)
    for index, (axis, length, step) in enumerate(zip(axes, known_lengths, steps, strict=True)):
        size = shape[axis]
        if length == size:
            if step < 0:
                strides = [-1 if dimension == axis else 1 for dimension in range(len(shape))]
                x = dml.slice(x, (0,) * len(shape), x.sizes, strides)
            continue
        first = dml.slice(starts, (index,), (1,))
        zero = node.constant([0], DataType.INT32)
        from_end = dml.add(first, node.size(size, DataType.INT32))
        first = dml.max(dml.if_(dml.less_than(first, zero), from_end, first), zero)
        first = dml.min(first, node.size(size - 1, DataType.INT32))
        positions = dml.fill_value_sequence(node.builder, (length,), DataType.INT32, 0, step)
        positions = dml.add(positions, broadcast_to(first, (length,)))
        indices = reshaped(positions, (*(1,) * (len(shape) - 1), length))
        x = directml.gather(x, indices, axis=axis, index_dimensions=1)
    return node.valued(x, result)


def _lengths(starts: Array, ends: Array, *sizes_and_steps: int) -> tuple[int, ...]:
    """Return how many elements slices take, given the sizes of their axes and the steps."""
    sizes, steps = sizes_and_steps[: starts.size], sizes_and_steps[starts.size :]
    ranges = zip(sizes, starts.tolist(), ends.tolist(), steps, strict=True)
    return tuple(len(slice_range(size, start, end, step)) for size, start, end, step in ranges)


_PADDING_MODES = {
    "constant": PaddingMode.CONSTANT,
    "edge": PaddingMode.EDGE,
    "reflect": PaddingMode.REFLECTION,
    "wrap": PaddingMode.WRAP,
}


def _read_by_pad(node: OnnxNode) -> Sequence[int]:
    """Return the inputs read on the host: pads, axes, and the fill value if it is a scalar."""
    return (1, 2, 3) if node.has(2) and node.value(2).shape in ((), (1,)) else (1, 3)


@operator("Pad", host=_read_by_pad)
def pad(node: OnnxNode) -> OnnxValue:
    """Pad with elements; negative counts crop."""
    shape = node.shape(0)
    pads = node.host_integers(1) if node.version >= 11 else node.integers("pads") or ()
    axes = node.axes(node.host_integers(3) if node.has(3) else range(len(shape)), len(shape))
    before, behind = [0] * len(shape), [0] * len(shape)
    if len(pads) != 2 * len(axes):
        raise node.rejection(f"pads must have {2 * len(axes)} numbers, got {len(pads)}")
    for index, axis in enumerate(axes):
        before[axis], behind[axis] = pads[index], pads[index + len(axes)]
    filler = node.number("value") if node.version < 11 else 0
    if node.has(2) and node.value(2).shape in ((), (1,)):
        filler = node.host(2).reshape(-1)[0].item()
        filler = int(filler) if isinstance(filler, bool) else filler
    mode = _PADDING_MODES.get(node.text("mode", "constant"))
    if mode is None:
        raise node.rejection(f"mode must be one of {', '.join(_PADDING_MODES)}, got {node.text('mode')!r}")
    cut = [max(-count, 0) for count in before], [max(-count, 0) for count in behind]
    start, end = [max(count, 0) for count in before], [max(count, 0) for count in behind]
    remaining = [size - first - last for size, first, last in zip(shape, *cut, strict=True)]
    result = checked_shape(node, [size + first + last for size, first, last in zip(remaining, start, end, strict=True)])
    if 0 in result:
        return node.known(np.zeros(result, node.data_type(0).numpy))
    if min(remaining, default=1) < 1:
        if mode is not PaddingMode.CONSTANT or min(remaining) < 0:
            raise node.rejection(f"pads must leave elements to repeat, got {list(pads)} for shape {list(shape)}")
        return node.valued(dml.fill_value_constant(node.builder, result, node.data_type(0), filler))
    x = node.tensor(0)
    if any((*cut[0], *cut[1])):
        x = dml.slice(x, cut[0], remaining)
    if not any((*start, *end)):
        return node.valued(x, x.sizes if shape else shape)
    return node.valued(
        directml.padding1(x, padding_mode=mode, padding_value=filler, start_padding=start, end_padding=end)
    )
