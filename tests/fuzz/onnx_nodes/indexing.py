"""Gathers and scatters; boxes that are chosen."""

from __future__ import annotations

import numpy as np

from tests.fuzz.onnx_nodes.draw import Array, Draw, NodeCase, generator


def _indices(draw: Draw, shape: tuple[int, ...], size: int) -> Array:
    """Indices into a dimension; those out of range are left open, and negative ones came with version 11."""
    low = -size if draw.version >= 11 and draw.chance(0.4) else 0
    dtype = draw.pick("int64", "int32")
    return draw.array(dtype, shape, low, size - 1) if size else np.zeros((0,), dtype)


@generator("Gather")
def gather(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1)
    axis = draw.axis(x.ndim) if draw.version >= 11 else draw.integer(0, x.ndim - 1)
    indices = _indices(draw, draw.shape(0, 3), x.shape[axis])
    return draw.case(x, indices, axis=axis if axis or draw.chance(0.5) else None, exact=True)


@generator("GatherElements")
def gather_elements(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1)
    axis = draw.axis(x.ndim)
    shape = [draw.integer(min(1, size), size) for size in x.shape]
    shape[axis] = draw.integer(1, 6) if x.shape[axis] else 0
    low = -x.shape[axis] if draw.chance(0.4) else 0
    indices = draw.array(draw.pick("int64", "int32"), shape, low, max(0, x.shape[axis] - 1))
    return draw.case(x, indices, axis=axis, exact=True)


def _tuples(draw: Draw, x: Array, batch: int, *, unique: bool) -> Array | None:
    """Index tuples into the dimensions after the batch ones."""
    depth = draw.integer(1, x.ndim - batch)
    sizes = x.shape[batch : batch + depth]
    if 0 in sizes:
        return None
    shape = draw.shape(0, 2, most=4)
    lead = (*x.shape[:batch], *shape)
    count = int(np.prod(lead))
    total = int(np.prod(sizes))
    if unique:
        count = min(count, total)
        lead = (count,)
        flat = draw.numbers.permutation(total)[:count]
    else:
        flat = draw.numbers.integers(0, total, count)
    tuples = np.stack(np.unravel_index(flat, sizes), -1).reshape(*lead, depth).astype("int64")
    if draw.version >= 11 and draw.chance(0.3):
        tuples -= np.array(sizes) * draw.numbers.integers(0, 2, tuples.shape)
    return tuples


@generator("GatherND")
def gather_nd(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1)
    batch = draw.integer(0, min(1, x.ndim - 1)) if draw.version >= 12 else 0
    tuples = _tuples(draw, x, batch, unique=False)
    if tuples is None:
        x = draw.array(x.dtype.name, (2, 3))
        tuples = np.array([[0], [1]]) if batch else np.array([[1, 2]])
    return draw.case(
        x, tuples, batch_dims=batch if batch or (draw.chance(0.3) and draw.version >= 12) else None, exact=True
    )


@generator("ScatterND")
def scatter_nd(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1, empty=0.02)
    modes = ("none", *(("add", "mul") if draw.version >= 16 else ()), *(("max", "min") if draw.version >= 18 else ()))
    mode = draw.pick(*modes)
    # Without a reduction, an element must be written once only.
    tuples = _tuples(draw, x, 0, unique=mode == "none" or x.dtype == bool)
    if tuples is None:
        tuples = np.zeros((0, 1), "int64")
    shape = tuples.shape[:-1] + x.shape[tuples.shape[-1] :]
    updates = draw.tensor(x.dtype.name, shape, -2, 2)
    attribute = None if mode == "none" and (draw.version < 16 or draw.chance(0.5)) else mode
    return draw.case(x, tuples, updates, reduction=attribute, exact=mode not in ("mul", "add"), scale=32)


@generator("ScatterElements", "Scatter")
def scatter_elements(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1, empty=0.02)
    axis = draw.axis(x.ndim) if draw.version >= 11 else draw.integer(0, x.ndim - 1)
    modes = ("none", *(("add", "mul") if draw.version >= 16 else ()), *(("max", "min") if draw.version >= 18 else ()))
    mode = draw.pick(*modes)
    shape = [draw.integer(min(1, size), size) for size in x.shape]
    if draw.chance(0.04):
        shape[axis] = 0
    size = x.shape[axis]
    if mode == "none" or x.dtype == bool:
        # An element must be written once only.
        keys = draw.numbers.random(tuple(size if at == axis % x.ndim else n for at, n in enumerate(shape)))
        indices = np.argsort(keys, axis)
        indices = np.take(indices, range(shape[axis]), axis)
    else:
        indices = draw.numbers.integers(0, max(1, size), shape)
    indices = indices.reshape(shape).astype(draw.pick("int64", "int32"))
    if draw.version >= 11 and draw.chance(0.3):
        indices -= (size * draw.numbers.integers(0, 2, shape)).astype(indices.dtype)
    updates = draw.tensor(x.dtype.name, shape, -2, 2)
    attribute = None if mode == "none" and (draw.version < 16 or draw.chance(0.5)) else mode
    return draw.case(x, indices, updates, axis=axis, reduction=attribute, exact=mode not in ("mul", "add"), scale=32)


@generator("TensorScatter")
def tensor_scatter(draw: Draw) -> NodeCase:
    rank = draw.integer(3, 4)
    shape = [draw.integer(1, 4) for _ in range(rank)]
    axis = draw.integer(1, rank - 1)
    update = list(shape)
    update[axis] = draw.integer(1, shape[axis])
    mode = draw.maybe("linear", "circular")
    most = shape[axis] - 1 if mode == "circular" else shape[axis] - update[axis]
    starts = draw.array("int64", (shape[0],), 0, most) if draw.chance(0.8) else None
    dtype = draw.dtype()
    given_axis = axis - rank if draw.chance(0.5) else axis
    return draw.case(
        draw.tensor(dtype, shape), draw.array(dtype, update), starts, axis=given_axis, mode=mode, exact=True
    )


@generator("NonMaxSuppression")
def suppression(draw: Draw) -> NodeCase:
    batches, classes, boxes = draw.integer(1, 2), draw.integer(1, 2), 0 if draw.chance(0.05) else draw.integer(1, 8)
    corners = draw.array("float32", (batches, boxes, 2), 0, 1)
    sizes = draw.array("float32", (batches, boxes, 2), 0.1, 1)
    center = draw.maybe(0, 1)
    rows = np.concatenate([corners, sizes if center else corners + sizes], -1)
    # Equal scores have no order; overlaps near the threshold depend on rounding.
    scores = draw.numbers.permutation(batches * classes * boxes).reshape(batches, classes, boxes)
    scores = (scores / max(1, scores.size)).astype("float32")
    limits = [
        np.array([draw.integer(0, 5)], "int64"),
        np.array([draw.pick(0.0, 0.3137, 0.7137)], "float32"),
        np.array([draw.pick(-1.0, 0.2217, 0.9)], "float32"),
    ]
    return draw.case(rows, scores, *limits[: draw.integer(1, 3)], center_point_box=center)
