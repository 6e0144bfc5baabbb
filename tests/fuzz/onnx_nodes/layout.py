"""Operators that move elements: shapes, slices, pieces, padding, repetition, creation."""

from __future__ import annotations

import math

import numpy as np
import onnx

from tests.fuzz.onnx_nodes.draw import FLOATS, INTEGERS, Draw, NodeCase, generator, integers


@generator("Reshape")
def reshape(draw: Draw) -> NodeCase:
    x = draw.main(high_rank=5)
    sizes: list[int] = []
    left = x.size
    while left > 1 and len(sizes) < 5:
        factor = draw.pick(*(number for number in range(1, left + 1) if left % number == 0))
        sizes.append(factor)
        left //= factor
    if left > 1 or x.size == 0 or draw.chance(0.2):
        sizes = list(draw.rng.sample(x.shape, x.ndim))
    allow = draw.maybe(0, 1) if draw.version >= 14 and 0 in sizes else None
    if x.size and draw.chance(0.3) and sizes:
        sizes[draw.rng.randrange(len(sizes))] = -1
    if draw.chance(0.2) and 0 not in x.shape:
        sizes = [0 if at < x.ndim and size == x.shape[at] else size for at, size in enumerate(sizes)]
    return draw.case(x, np.array(sizes, "int64"), allowzero=allow, exact=True)


@generator("Transpose")
def transpose(draw: Draw) -> NodeCase:
    x = draw.main(high_rank=6)
    order = draw.rng.sample(range(x.ndim), x.ndim)
    return draw.case(x, perm=order if x.ndim and draw.chance(0.8) else None, exact=True)


@generator("Flatten")
def flatten(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1)
    axis = draw.integer(-x.ndim if draw.version >= 11 else 0, x.ndim)
    return draw.case(x, axis=draw.maybe(axis, probability=0.7) if axis or x.ndim else 0, exact=True)


@generator("Squeeze", "Unsqueeze")
def squeeze(draw: Draw) -> NodeCase:
    x = draw.main(high_rank=4)
    negative = draw.version >= 11
    if draw.op_type == "Squeeze":
        if draw.chance(0.6):
            x = draw.tensor(x.dtype.name, [1 if draw.chance(0.5) else size for size in x.shape])
        ones = [
            axis - (x.ndim if negative and draw.chance(0.3) else 0) for axis, size in enumerate(x.shape) if size == 1
        ]
        axes = draw.sample(ones, 1, len(ones)) if ones and draw.chance(0.7) else None
    else:
        added = draw.integer(1, 2)
        axes = draw.sample(range(x.ndim + added), added, added)
        axes = [axis - (x.ndim + added if negative and draw.chance(0.3) else 0) for axis in axes]
    if draw.version < 13:
        return draw.case(x, axes=axes, exact=True)
    return draw.case(x, None if axes is None else integers(*axes), exact=True)


@generator("Expand")
def expand(draw: Draw) -> NodeCase:
    x = draw.main()
    shape = [draw.integer(1, 3) if size == 1 else draw.pick(size, 1) for size in x.shape]
    shape = [draw.integer(1, 3) for _ in range(draw.integer(0, 2))] + shape
    return draw.case(x, np.array(shape, "int64"), exact=True)


@generator("Tile")
def tile(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1)
    repeats = [0 if draw.chance(0.03) else draw.integer(1, 3) for _ in x.shape]
    return draw.case(x, integers(*repeats), exact=True)


@generator("Slice")
def slices(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1, high_rank=5)
    axes = draw.sample(range(x.ndim), 1, x.ndim)
    steps = [draw.pick(1, 1, 1, 2, 3, -1, -2) if draw.version >= 10 else 1 for _ in axes]
    starts, ends = [], []
    for axis, step in zip(axes, steps, strict=True):
        size = x.shape[axis]
        first, last = sorted((draw.integer(-size - 1, size + 1), draw.integer(-size - 1, size + 1)))
        if draw.chance(0.3):
            last = 2**31 - 1 if draw.chance(0.5) else 2**63 - 1
        if step < 0:
            first, last = (last, first) if draw.chance(0.7) else (size, -(2**31))
        starts.append(first)
        ends.append(last)
    axes = [axis - (x.ndim if draw.version >= 10 and draw.chance(0.3) else 0) for axis in axes]
    if draw.version < 10:
        return draw.case(x, starts=starts, ends=ends, axes=axes, exact=True)
    dtype = draw.pick("int64", "int64", "int32")
    limits = np.iinfo(dtype)
    rows = [np.array(np.clip(row, limits.min, limits.max), dtype) for row in (starts, ends, axes, steps)]
    if all(step == 1 for step in steps) and draw.chance(0.5):
        rows.pop()
        if sorted(axes) == axes == list(range(len(axes))) and draw.chance(0.5):
            rows.pop()
    return draw.case(x, *rows, exact=True)


@generator("Split")
def split(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1)
    axis = draw.axis(x.ndim) if draw.version >= 11 else draw.integer(0, x.ndim - 1)
    size = x.shape[axis]
    count = draw.integer(1, max(1, min(size, 3)))
    if draw.chance(0.5) or size % count:
        cuts = sorted(draw.integer(0, size) for _ in range(count - 1))
        sizes = np.diff([0, *cuts, size])
        if draw.version < 13:
            return draw.case(x, split=list(map(int, sizes)), axis=axis, outputs=count, exact=True)
        return draw.case(x, sizes.astype("int64"), axis=axis, outputs=count, exact=True)
    return draw.case(x, axis=axis, num_outputs=count if draw.version >= 18 else None, outputs=count, exact=True)


@generator("Concat")
def concat(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1)
    axis = draw.axis(x.ndim) if draw.version >= 11 else draw.integer(0, x.ndim - 1)
    others = []
    for _ in range(draw.integer(0, 3)):
        shape = list(x.shape)
        shape[axis] = draw.integer(0 if draw.chance(0.1) else 1, 4)
        others.append(x if draw.chance(0.1) else draw.tensor(x.dtype.name, shape))
    inputs = [x, *others]
    draw.rng.shuffle(inputs)
    return draw.case(*inputs, axis=axis, exact=True)


@generator("Pad")
def pad(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1, empty=0.02)
    mode = draw.pick("constant", "constant", "reflect", "edge", *(("wrap",) if draw.version >= 19 else ()))
    if not x.size:
        mode = "constant"
    axes = draw.sample(range(x.ndim), 1, x.ndim) if draw.version >= 18 and draw.chance(0.4) else list(range(x.ndim))
    # Reflection beyond the other end, and cropping together with padding from what is cropped, are left open.
    most = [x.shape[axis] - 1 if mode == "reflect" else x.shape[axis] if mode == "wrap" else 3 for axis in axes]
    pads = [draw.integer(0, min(3, limit)) for limit in most * 2]
    if mode == "constant" and draw.chance(0.2):
        at = draw.rng.randrange(len(pads))
        pads[at] = -draw.integer(0, x.shape[axes[at % len(axes)]])
    if draw.version < 11:
        return draw.case(x, mode=mode, pads=pads, value=draw.maybe(1.5), exact=True)
    value = draw.array(x.dtype.name, (), -3, 3) if mode == "constant" and draw.chance(0.6) else None
    axes_input = integers(*(axis - (x.ndim if draw.chance(0.3) else 0) for axis in axes))
    return draw.case(
        x, integers(*pads), value, axes_input if axes != list(range(x.ndim)) else None, mode=mode, exact=True
    )


@generator("CenterCropPad")
def center_crop_pad(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1, empty=0)
    axes = draw.sample(range(x.ndim), 1, x.ndim)
    shape = [draw.integer(1, 6) for _ in axes]
    return draw.case(
        x, integers(*shape), axes=[axis - (x.ndim if draw.chance(0.3) else 0) for axis in axes], exact=True
    )


@generator("DepthToSpace", "SpaceToDepth")
def depth_space(draw: Draw) -> NodeCase:
    block = draw.integer(1, 3)
    n, c, h, w = (draw.integer(1, 3) for _ in range(4))
    dtype = draw.dtype()
    if draw.op_type == "SpaceToDepth":
        return draw.case(draw.tensor(dtype, (n, c, h * block, w * block)), blocksize=block, exact=True)
    mode = draw.maybe("DCR", "CRD") if draw.version >= 11 else None
    return draw.case(draw.tensor(dtype, (n, c * block * block, h, w)), blocksize=block, mode=mode, exact=True)


@generator("Trilu")
def trilu(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=2)
    k = np.array(draw.integer(-4, 4), "int64") if draw.chance(0.7) else None
    return draw.case(x, k, upper=draw.maybe(0, 1), exact=True)


@generator("EyeLike")
def eye_like(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=2, high_rank=2)
    target = draw.maybe(onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL, onnx.TensorProto.FLOAT16)
    return draw.case(x, dtype=target, k=draw.maybe(-2, -1, 0, 1, 2), exact=True)


@generator("Shape", "Size")
def shape_of(draw: Draw) -> NodeCase:
    x = draw.main(high_rank=6)
    ends = {}
    if draw.op_type == "Shape" and draw.version >= 15:
        ends = {"start": draw.maybe(draw.integer(-4, 4)), "end": draw.maybe(draw.integer(-4, 4))}
    return draw.case(x, **ends)


@generator("ConstantOfShape")
def constant_of_shape(draw: Draw) -> NodeCase:
    value = draw.array(draw.pick(*FLOATS, *INTEGERS, "bool"), (1,))
    tensor = onnx.numpy_helper.from_array(value) if draw.chance(0.7) else None
    return draw.case(np.array(draw.shape(), "int64"), value=tensor, exact=True)


@generator("Range")
def ranges(draw: Draw) -> NodeCase:
    dtype = draw.dtype()
    step = draw.pick(1, 2, 3, -1, -2) * (0.25 if dtype in FLOATS and draw.chance(0.5) else 1)
    start, count = draw.integer(-5, 5), draw.integer(0, 9)
    # The end is put between elements: rounding decides the count otherwise.
    limit = start + step * count - (step / 2 if dtype in FLOATS else 0)
    if count == 0:
        limit = start - step
    return draw.case(*(np.array(number, dtype) for number in (start, limit, step)))


@generator("OneHot")
def one_hot(draw: Draw) -> NodeCase:
    depth = draw.integer(1, 6)
    kind = draw.pick("int64", "int32", "float32", "uint8")
    # Indices out of range give rows of the off value.
    low = -depth - 1 if kind not in ("uint8",) else 0
    indices = np.asarray(draw.array("int64", draw.shape(1, 3), low, depth), kind)
    values = draw.array(draw.dtype("T3"), (2,))
    count = np.array(depth, draw.pick("int64", "int32", "float32"))
    return draw.case(
        indices,
        count.reshape(1) if draw.chance(0.5) else count,
        values,
        axis=draw.maybe(draw.axis(indices.ndim + 1)),
        # The reference adds differences of the values.
    )


@generator("Compress")
def compress(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1)
    axis = draw.axis(x.ndim) if draw.chance(0.6) else None
    size = x.size if axis is None else x.shape[axis]
    return draw.case(x, draw.array("bool", (draw.integer(min(1, size), size),)), axis=axis, exact=True)


@generator("ReverseSequence")
def reverse_sequence(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=2, empty=0)
    batch = draw.integer(0, 1)
    lengths = draw.array("int64", (x.shape[batch],), 1, x.shape[1 - batch])
    return draw.case(x, lengths, batch_axis=batch, time_axis=1 - batch, exact=True)


@generator("Col2Im")
def col2im(draw: Draw) -> NodeCase:
    n, c = draw.integer(1, 2), draw.integer(1, 2)
    rank = draw.integer(1, 3)
    image, block = [draw.integer(3, 6) for _ in range(rank)], [draw.integer(1, 3) for _ in range(rank)]
    strides, dilations = [draw.integer(1, 2) for _ in range(rank)], [1] * rank
    pads = [draw.integer(0, 1) for _ in range(2 * rank)]
    counts = [
        (image[at] + pads[at] + pads[rank + at] - dilations[at] * (block[at] - 1) - 1) // strides[at] + 1
        for at in range(rank)
    ]
    x = draw.tensor(draw.dtype(0, FLOATS), (n, c * math.prod(block), math.prod(counts)))
    return draw.case(
        x,
        integers(*image),
        integers(*block),
        strides=strides,
        dilations=dilations,
        pads=pads,
        length=math.prod(block),
        scale=8,
    )
