"""Gradient rules of operators that move elements: slices, joins, padding, gathers and scatters."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dmlgpu.catalog.enums import (
    PaddingMode,
)
from dmlgpu.tensors import directml
from dmlgpu.tensors.calls import filled, widened
from dmlgpu.tensors.gradients.rules import (
    Gradients,
    named,
    rule,
    to_rows,
    total,
    truth,
)

# ---- elements moved --------------------------------------------------------------------------------------------------


def into_slice(
    x: Any, sizes: Sequence[int], offsets: Sequence[int], window: Sequence[int], strides: Sequence[int]
) -> Any:
    """Return zeros of these sizes, and the elements of a tensor where a slice would read them."""
    return directml.slice_grad(
        x,
        input_window_offsets=tuple(offsets),
        input_window_sizes=tuple(window),
        input_window_strides=tuple(strides),
        output_sizes=tuple(sizes),
    )


@rule("SLICE")
def _slice(record: Any, gradient: Any) -> Gradients:
    desc, sizes = record.desc, record["input_tensor"].sizes
    window = [(size - 1) * stride + 1 for size, stride in zip(desc.sizes, desc.strides, strict=True)]
    return {"input_tensor": lambda: into_slice(gradient, sizes, desc.offsets, window, desc.strides)}


@rule("SLICE1")
def _slice1(record: Any, gradient: Any) -> Gradients:
    desc, sizes = record.desc, record["input_tensor"].sizes
    window = (desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides)
    return {"input_tensor": lambda: into_slice(gradient, sizes, *window)}


@rule("SLICE_GRAD")
def _slice_grad(record: Any, gradient: Any) -> Gradients:
    names = ("input_window_offsets", "input_window_sizes", "input_window_strides")
    return {"input_gradient_tensor": lambda: directml.slice1(gradient, **named(record.desc, *names))}


@rule("JOIN")
def _join(record: Any, gradient: Any) -> Gradients:
    axis, parts, begin = record.desc.axis, [], 0
    for tensor in record["input_tensors"]:
        place = (*[slice(None)] * axis, slice(begin, begin + tensor.sizes[axis]))
        parts.append(functools.partial(gradient.__getitem__, place))
        begin += tensor.sizes[axis]
    return {"input_tensors": parts}


@rule("SPLIT")
def _split(record: Any, *gradients: Any) -> Gradients:
    def compute() -> Any:
        parts = [
            filled(record["input_tensor"], output.sizes) if gradient is None else gradient
            for gradient, output in zip(gradients, record.outputs, strict=True)
        ]
        return directml.join(parts, axis=record.desc.axis)

    return {"input_tensor": compute}


@rule("TILE", wide=True)
def _tile(record: Any, gradient: Any) -> Gradients:
    def compute() -> Any:
        result = gradient
        for axis, (size, repeats) in enumerate(zip(record["input_tensor"].sizes, record.desc.repeats, strict=True)):
            if repeats > 1:
                before, after = result.sizes[:axis], result.sizes[axis + 1 :]
                blocks = result.reshape(math.prod(before), repeats, size * math.prod(after))
                result = total(blocks, (1,)).reshape(*before, size, *after)
        return result

    return {"input_tensor": compute}


@rule("PADDING", "PADDING1")
def _padding(record: Any, gradient: Any) -> Gradients:
    desc, sizes = record.desc, record["input_tensor"].sizes

    def compute() -> Any:
        if desc.padding_mode is PaddingMode.CONSTANT:
            places = zip(desc.start_padding, sizes, strict=True)
            return gradient[tuple(slice(start, start + size) for start, size in places)]
        result = widened(gradient)
        for axis, size in enumerate(sizes):
            count = result.sizes[axis]
            if count != size:
                places = _PADDED[desc.padding_mode](np.arange(count) - desc.start_padding[axis], size)
                matrix = gradient._beside(np.eye(size, dtype=result.dtype)[places])
                rows, back = to_rows(result, (axis,))
                result = back(rows @ matrix)
        return result

    return {"input_tensor": compute}


def _mirrored(places: Any, size: int) -> Any:
    period = max(2 * (size - 1), 1)
    return np.where(places % period >= size, period - places % period, places % period)


_PADDED: dict[PaddingMode, Callable[[Any, int], Any]] = {
    PaddingMode.EDGE: lambda places, size: np.clip(places, 0, size - 1),
    PaddingMode.REFLECTION: _mirrored,
    PaddingMode.SYMMETRIC: lambda places, size: np.where(
        places % (2 * size) >= size, 2 * size - 1 - places % (2 * size), places % (2 * size)
    ),
    PaddingMode.WRAP: lambda places, size: places % size,
}
"""Source indices of padded positions, counted from the first element, by mode."""


@rule("SPACE_TO_DEPTH", "SPACE_TO_DEPTH1", "DEPTH_TO_SPACE", "DEPTH_TO_SPACE1")
def _space_and_depth(record: Any, gradient: Any) -> Gradients:
    name = record.kind.operator.lower()
    first, _, last = name.removesuffix("1").split("_")
    back = getattr(directml, f"{last}_to_{first}{name.removeprefix(f'{first}_to_{last}')}")
    options = {name: value for name, value in vars(record.desc).items() if name in ("block_size", "order")}
    return {"input_tensor": lambda: back(gradient, **options)}


_FOLDING = "window_sizes", "strides", "dilations", "start_padding", "end_padding"


@rule("UNFOLD")
def _unfold(record: Any, gradient: Any) -> Gradients:
    options = {**named(record.desc, *_FOLDING), "output_sizes": record["input_tensor"].sizes}
    return {"input_tensor": lambda: directml.fold(gradient, **options)}


@rule("FOLD")
def _fold(record: Any, gradient: Any) -> Gradients:
    return {"input_tensor": lambda: directml.unfold(gradient, **named(record.desc, *_FOLDING))}


@rule("REVERSE_SUBSEQUENCES")
def _reverse_subsequences(record: Any, gradient: Any) -> Gradients:
    lengths, axis = record["sequence_lengths_tensor"], record.desc.axis
    return {"input_tensor": lambda: directml.reverse_subsequences(gradient, lengths, axis=axis)}


# ---- gathered and scattered ------------------------------------------------------------------------------------------


def _scattered(indices: Any, gradient: Any, extent: int) -> Any:
    """Scatter rows {batch, count, size} into {batch, extent, size} by indices {batch, count}; rows with equal indices
    are summed. Computed as a product with a matrix of zeros and ones."""
    off_on = gradient._beside(np.array([[[0, 1]]], gradient.dtype))
    batch, count = indices.sizes
    marks = directml.one_hot(indices.reshape(batch, count, 1), off_on, axis=2, output_sizes=(batch, count, extent))
    return marks.transpose(0, 2, 1) @ gradient


@rule("GATHER")
def _gather(record: Any, gradient: Any) -> Gradients:
    sizes, axis = record["input_tensor"].sizes, record.desc.axis
    outer, inner = math.prod(sizes[:axis]), math.prod(sizes[axis + 1 :])
    indices = record["indices_tensor"].reshape(1, -1)

    def compute() -> Any:
        rows = gradient.reshape(outer, indices.size, inner).transpose(1, 0, 2).reshape(1, indices.size, outer * inner)
        total = _scattered(indices, rows, sizes[axis])
        return total.reshape(sizes[axis], outer, inner).transpose(1, 0, 2).reshape(sizes)

    return {"input_tensor": compute}


@rule("GATHER_ELEMENTS")
def _gather_elements(record: Any, gradient: Any) -> Gradients:
    x, axis = record["input_tensor"], record.desc.axis

    def compute() -> Any:
        indices, _ = to_rows(record["indices_tensor"], (axis,))
        rows, _ = to_rows(gradient, (axis,))
        _, back = to_rows(x, (axis,))
        return back(_scattered(indices, rows.expand_dims(2), x.sizes[axis]).squeeze(2))

    return {"input_tensor": compute}


@rule("GATHER_ND", "GATHER_ND1")
def _gather_nd(record: Any, gradient: Any) -> Gradients:
    desc, x = record.desc, record["input_tensor"]
    sizes = x.sizes[x.ndim - desc.input_dimension_count :]
    indices = record["indices_tensor"]
    tuples = indices.reshape(indices.sizes[indices.ndim - desc.indices_dimension_count :])
    leading = getattr(desc, "batch_dimension_count", 0)
    length = tuples.sizes[-1]
    batch, extents = math.prod(sizes[:leading]), sizes[leading : leading + length]

    def compute() -> Any:
        flat = tuples.reshape(batch, -1, length)
        place: Any = None
        for index, extent in enumerate(extents):
            part = flat[:, :, index].copy()
            if part.data_type.is_signed:
                part = part + truth(part < 0, part) * extent
            place = part if place is None else place * extent + part
        rows = gradient.reshape(batch, flat.sizes[1], -1)
        return _scattered(place, rows, math.prod(extents)).reshape(x.sizes)

    return {"input_tensor": compute}


@rule("SCATTER_ELEMENTS")
def _scatter_elements(record: Any, gradient: Any) -> Gradients:
    indices, axis = record["indices_tensor"], record.desc.axis
    zeros = functools.partial(filled, gradient, indices.sizes)
    return {
        "input_tensor": lambda: directml.scatter_elements(gradient, indices, zeros(), axis=axis),
        "updates_tensor": lambda: directml.gather_elements(gradient, indices, axis=axis),
    }


@rule("SCATTER_ND")
def _scatter_nd(record: Any, gradient: Any) -> Gradients:
    indices, updates = record["indices_tensor"], record["updates_tensor"]
    counts = named(record.desc, "input_dimension_count", "indices_dimension_count")
    zeros = functools.partial(filled, gradient, updates.sizes)
    return {
        "input_tensor": lambda: directml.scatter_nd(gradient, indices, zeros(), **counts),
        "updates_tensor": lambda: directml.gather_nd(gradient, indices, **counts).reshape(updates.sizes),
    }
