"""Parts of tensors, and tensors of parts: Concat, Split, Slice, Pad."""

from __future__ import annotations

import numpy as np

from dmlgpu.catalog.enums import DataType, PaddingMode
from dmlgpu.frontends.onnx.node import Array, Node, broadcast_to, checked_shape, reshaped, slice_range, split_sizes
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import directmlx as dml
from dmlgpu.tensors.graphs import functions


@operator("Concat")
def concat(node: Node) -> Value:
    """Join tensors along an axis; those without elements add nothing, and may have another rank."""
    values = [node.value(number) for number in range(len(node))]
    rank = len(values[0].shape)
    axis = node.axis(node.integer("axis", 1), rank)
    others = {value.shape[:axis] + value.shape[axis + 1 :] for value in values if len(value.shape) == rank}
    if len(others) > 1:
        listed = ", ".join(str(list(value.shape)) for value in values)
        raise node.refusal(f"inputs must have equal sizes but for axis {axis}, got {listed}")
    parts = [node.expression(value) for value in values if not value.is_empty]
    return node.valued(parts[0] if len(parts) == 1 else dml.join(parts, axis))


@operator("Split")
def split(node: Node) -> list[Value]:
    """Cut a tensor into pieces along an axis."""
    shape = node.shape(0)
    axis = node.axis(node.integer("axis"), len(shape))
    sizes = split_sizes(node, shape[axis])
    present = iter(dml.split(node.tensor(0), axis, [one for one in sizes if one]))
    empty = np.zeros((*shape[:axis], 0, *shape[axis + 1 :]), node.data_type(0).numpy)
    return [node.valued(next(present)) if size else node.known(empty) for size in sizes]


@operator("Slice")
def slice_(node: Node) -> Value:
    """Take ranges along axes, with steps forwards or backwards."""
    shape = node.shape(0)
    if node.version >= 10 and any(node.value(number).array is None for number in (1, 2)):
        return _slice_on_device(node)
    if node.version < 10:
        starts, ends, axes, steps = node.integers("starts"), node.integers("ends"), node.integers("axes"), None
    else:
        starts = node.host_integers(1)
        ends = node.host_integers(2, len(starts))
        axes = node.host_integers(3, len(starts)) if node.has(3) else None
        steps = node.host_integers(4, len(starts)) if node.has(4) else None
    if starts is None or ends is None:
        raise node.refusal("starts and ends must be given")
    axes = tuple(range(len(starts))) if axes is None else axes
    if not len(starts) == len(ends) == len(axes):
        raise node.refusal(f"starts, ends and axes must be as many, got {len(starts)}, {len(ends)} and {len(axes)}")
    axes = node.axes(axes, len(shape))
    steps = (1,) * len(starts) if steps is None else steps
    ranges = [range(size) for size in shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step == 0:
            raise node.refusal("steps must not be 0")
        ranges[axis] = slice_range(shape[axis], start, end, step)
    result = tuple(map(len, ranges))
    if 0 in result:
        return node.known(np.zeros(result, node.data_type(0).numpy))
    if all(one == range(size) for one, size in zip(ranges, shape, strict=True)):
        return node.valued(node.tensor(0), shape)
    first = [min(one[0], one[-1]) for one in ranges]
    extents = [abs(one[-1] - one[0]) + 1 for one in ranges]
    return node.valued(dml.slice(node.tensor(0), first, extents, [one.step if len(one) > 1 else 1 for one in ranges]))


def _slice_on_device(node: Node) -> Value:
    """Take ranges that begin where the device says: only their lengths are known, and decide what is compiled."""
    shape = node.shape(0)
    node.check_rank(1, 1)
    (count,) = node.shape(1)
    if node.shape(2) != (count,):
        raise node.refusal(f"ends must be as many as starts, got shapes {[count]} and {list(node.shape(2))}")
    axes = node.axes(node.host_integers(3, count) if node.has(3) else range(count), len(shape))
    steps = node.host_integers(4, count) if node.has(4) else (1,) * count
    if 0 in steps:
        raise node.refusal("steps must not be 0")

    def lengths(starts: Array, ends: Array) -> tuple[int, ...]:
        ranges = zip(axes, starts.tolist(), ends.tolist(), steps, strict=True)
        return tuple(len(slice_range(shape[axis], start, end, step)) for axis, start, end, step in ranges)

    found = node.decided((1, 2), lengths)
    result = list(shape)
    for axis, length in zip(axes, found, strict=True):
        result[axis] = length
    if 0 in result:
        return node.known(np.zeros(result, node.data_type(0).numpy))
    # Clipped first, or a start far beyond the end becomes one within when it is cast.
    starts = dml.cast(dml.clip(node.tensor(1), -(2**31), 2**31 - 1), DataType.INT32)
    x = node.tensor(0)
    for number, (axis, length, step) in enumerate(zip(axes, found, steps, strict=True)):
        size = shape[axis]
        if length == size:
            if step < 0:
                strides = [-1 if dimension == axis else 1 for dimension in range(len(shape))]
                x = dml.slice(x, (0,) * len(shape), x.sizes, strides)
            continue
        first = dml.slice(starts, (number,), (1,))
        zero = node.constant([0], DataType.INT32)
        first = dml.clip(dml.if_(dml.less_than(first, zero), first + size, first), 0, size - 1)
        places = dml.fill_value_sequence(node.builder, (length,), DataType.INT32, 0, step)
        places = dml.add(places, broadcast_to(first, (length,)))
        indices = reshaped(places, (*(1,) * (len(shape) - 1), length))
        x = functions.gather(x, indices, axis=axis, index_dimensions=1)
    return node.valued(x, result)


_MODES = {
    "constant": PaddingMode.CONSTANT,
    "edge": PaddingMode.EDGE,
    "reflect": PaddingMode.REFLECTION,
    "wrap": PaddingMode.WRAP,
}


@operator("Pad")
def pad(node: Node) -> Value:
    """Put elements around; negative counts cut off."""
    shape = node.shape(0)
    pads = node.host_integers(1) if node.version >= 11 else node.integers("pads") or ()
    axes = node.axes(node.host_integers(3) if node.has(3) else range(len(shape)), len(shape))
    before, behind = [0] * len(shape), [0] * len(shape)
    if len(pads) != 2 * len(axes):
        raise node.refusal(f"pads must have {2 * len(axes)} numbers, got {len(pads)}")
    for number, axis in enumerate(axes):
        before[axis], behind[axis] = pads[number], pads[number + len(axes)]
    filler = node.number("value") if node.version < 11 else 0
    if node.has(2) and node.value(2).shape in ((), (1,)):
        filler = node.host(2).reshape(-1)[0].item()
        filler = int(filler) if isinstance(filler, bool) else filler
    mode = _MODES.get(node.text("mode", "constant"))
    if mode is None:
        raise node.refusal(f"mode must be one of {', '.join(_MODES)}, got {node.text('mode')!r}")
    cut = [max(-one, 0) for one in before], [max(-one, 0) for one in behind]
    start, end = [max(one, 0) for one in before], [max(one, 0) for one in behind]
    kept = [size - one - other for size, one, other in zip(shape, *cut, strict=True)]
    result = checked_shape(node, [one + first + last for one, first, last in zip(kept, start, end, strict=True)])
    if 0 in result:
        return node.known(np.zeros(result, node.data_type(0).numpy))
    if min(kept, default=1) < 1:
        if mode is not PaddingMode.CONSTANT or min(kept) < 0:
            raise node.refusal(f"pads must leave elements to repeat, got {list(pads)} for shape {list(shape)}")
        return node.valued(dml.fill_value_constant(node.builder, result, node.data_type(0), filler))
    x = node.tensor(0)
    if any((*cut[0], *cut[1])):
        x = dml.slice(x, cut[0], kept)
    if not any((*start, *end)):
        return node.valued(x, x.sizes if shape else shape)
    return node.valued(
        functions.padding1(x, padding_mode=mode, padding_value=filler, start_padding=start, end_padding=end)
    )
