"""Elements moved: joined, reversed, rolled, repeated, padded, rearranged into and out of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dmlgpu import ops
from dmlgpu.catalog.enums import PaddingMode
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS
from dmlgpu.frontends.torch.operators.reductions import axes_of, zeros_of
from dmlgpu.frontends.torch.operators.registry import Promotion, aten
from dmlgpu.frontends.torch.operators.scattering import combined
from dmlgpu.ops import directml
from dmlgpu.ops.creation import diagonals
from dmlgpu.ops.shape import joined, tiled
from dmlgpu.tensors.gradients.moving import into_slice

# ---- joined ----------------------------------------------------------------------------------------------------------


@aten("cat", promotes=Promotion.DEFAULT, operands=("tensors",))
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Join tensors; PyTorch accepts and ignores tensors of shape (0,)."""
    rank = max(x.ndim for x in tensors)
    parts = [x for x in tensors if x.sizes != (0,) or rank == 1]
    if not parts or rank == 0:
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    is_boolean = parts[0].is_boolean
    return joined([part._same(boolean=False) for part in parts], axes_of(parts[0], dim)[0])._same(boolean=is_boolean)


@aten("stack", promotes=Promotion.DEFAULT, operands=("tensors",))
def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    axis = dim % (tensors[0].ndim + 1)
    return cat([x.expand_dims(axis) for x in tensors], axis)


# ---- reversed, rolled, repeated --------------------------------------------------------------------------------------


@aten("flip")
def flip(x: Any, dims: Sequence[int]) -> Any:
    axes = [axis % max(x.ndim, 1) for axis in dims]
    return x.flip(axes)._same(boolean=x.is_boolean) if axes and x.ndim else x


@aten("roll")
def roll(x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    if not x.ndim or not x.size:
        return x
    return ops.roll(x, tuple(shifts), tuple(axis % x.ndim for axis in dims) or None)


@aten("repeat")
def repeat(x: Any, repeats: Sequence[int]) -> Any:
    """Repeat a tensor as a whole along each axis: one copy of a broadcast view if its rank allows."""
    rank = len(repeats)
    sizes = (1,) * (rank - x.ndim) + x.sizes
    shape = tuple(count * size for count, size in zip(repeats, sizes, strict=True))
    if 0 in shape:
        return x._nothing(shape)
    pairs = [pair for count, size in zip(repeats, sizes, strict=True) for pair in ((count, 1), (1, size))]
    axes = [(count, size) for count, size in pairs if count * size != 1]
    if len(axes) > MAX_DIMENSIONS:
        return tiled(x, "repeats", tuple(repeats))
    view = x.reshape(tuple(size for _, size in axes))
    return view.broadcast_to(tuple(count * size for count, size in axes)).copy()._renamed(shape)


# ---- padded ----------------------------------------------------------------------------------------------------------


def _pairs(x: Any, padding: Sequence[int]) -> list[tuple[int, int]]:
    """Return the padding before and after each axis; PyTorch lists it from the last axis on."""
    pairs = list(zip(padding[::2], padding[1::2], strict=True))[::-1]
    return [(0, 0)] * (x.ndim - len(pairs)) + pairs


def _cropped(x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
    """Return a tensor without the elements that negative padding removes."""
    if all(before >= 0 and after >= 0 for before, after in pairs):
        return x
    ends = zip(pairs, x.sizes, strict=True)
    return x[tuple(slice(max(-before, 0), size + min(after, 0)) for (before, after), size in ends)]


def _padded(x: Any, padding: Sequence[int], mode: PaddingMode, value: Any = 0) -> Any:
    """Pad; negative padding removes elements, after the others have been repeated."""
    pairs = _pairs(x, padding)
    positive = [(max(before, 0), max(after, 0)) for before, after in pairs]
    is_boolean = x.is_boolean
    result = x._same(boolean=False)
    if any(map(any, positive)):
        result = ops.pad(result, positive, mode, value)
    result = _cropped(result, [(min(before, 0), min(after, 0)) for before, after in pairs])
    return result._same(boolean=is_boolean)


@aten("constant_pad_nd")
def constant_pad(x: Any, pad: Sequence[int], value: Any = 0) -> Any:
    if x.ndim == 0 or not pad:
        return x
    return _padded(x, pad, PaddingMode.CONSTANT, value if x.data_type.is_float else int(value))


_RANKS = 1, 2, 3


@aten(*(f"reflection_pad{rank}d" for rank in _RANKS))
def reflection_pad(x: Any, padding: Sequence[int]) -> Any:
    return _padded(x, padding, PaddingMode.REFLECTION)


@aten(*(f"replication_pad{rank}d" for rank in _RANKS))
def replication_pad(x: Any, padding: Sequence[int]) -> Any:
    return _padded(x, padding, PaddingMode.EDGE)


def _unpadded(gradient: Any, axis: int, size: int, before: int, after: int, is_mirrored: bool) -> Any:
    """Return the gradient of a tensor padded along an axis: the sum over its elements and their repetitions."""

    def part(begin: int, end: int) -> Any:
        return gradient[(*[slice(None)] * axis, slice(begin, end))]

    def placed(values: Any, begin: int) -> Any:
        widths = [(0, 0)] * values.ndim
        widths[axis] = (begin, size - begin - values.sizes[axis])
        return ops.pad(values, widths) if any(widths[axis]) else values

    count = gradient.sizes[axis]
    result = placed(part(max(before, 0), count - max(after, 0)), max(-before, 0))
    if before > 0:
        first = part(0, before)
        edge = placed(first.flip(axis), 1) if is_mirrored else placed(ops.sum(first, axis, keepdims=True), 0)
        result = result + edge
    if after > 0:
        last = part(count - after, count)
        begin = size - 1 - after if is_mirrored else size - 1
        result = result + placed(last.flip(axis) if is_mirrored else ops.sum(last, axis, keepdims=True), begin)
    return result


def _pad_backward(gradient: Any, x: Any, padding: Sequence[int], is_mirrored: bool) -> Any:
    for axis, (before, after) in enumerate(_pairs(x, padding)):
        if before or after:
            gradient = _unpadded(gradient, axis, x.sizes[axis], before, after, is_mirrored)
    return gradient


@aten(*(f"reflection_pad{rank}d_backward" for rank in _RANKS))
def reflection_pad_backward(gradient: Any, x: Any, padding: Sequence[int]) -> Any:
    return _pad_backward(gradient, x, padding, True)


@aten(*(f"replication_pad{rank}d_backward" for rank in _RANKS))
def replication_pad_backward(gradient: Any, x: Any, padding: Sequence[int]) -> Any:
    return _pad_backward(gradient, x, padding, False)


# ---- slices of gradients ---------------------------------------------------------------------------------------------


@aten("slice_backward")
def slice_backward(gradient: Any, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Any:
    sizes = tuple(input_sizes)
    if not gradient.size:
        return zeros_of(gradient, sizes)
    axis, rank = dim % len(sizes), len(sizes)
    begin = start + sizes[axis] if start < 0 else start
    window, offsets, steps = list(sizes), [0] * rank, [1] * rank
    window[axis], offsets[axis], steps[axis] = (gradient.sizes[axis] - 1) * step + 1, begin, step
    return into_slice(gradient, sizes, offsets, window, steps)


@aten("select_backward")
def select_backward(gradient: Any, input_sizes: Sequence[int], dim: int, index: int) -> Any:
    axis = dim % len(input_sizes)
    begin = index % input_sizes[axis] if input_sizes[axis] else 0
    return slice_backward(gradient.expand_dims(axis), input_sizes, axis, begin, begin + 1, 1)


@aten("unfold_backward")
def unfold_backward(gradient: Any, input_sizes: Sequence[int], dim: int, size: int, step: int) -> Any:
    """Add windows where they came from."""
    sizes = tuple(input_sizes) or (1,)
    target = zeros_of(gradient, sizes)
    if not gradient.size:
        return target.reshape(tuple(input_sizes))
    axis = dim % len(sizes)
    count = gradient.sizes[axis] if input_sizes else 1
    rank = gradient.ndim - 1
    windows = gradient.transpose(*range(axis + 1), rank, *range(axis + 1, rank)) if input_sizes else gradient
    updates = windows.reshape((*sizes[:axis], count * size, *sizes[axis + 1 :]))
    starts = ops.arange(count, dtype="int32", device=gradient.device).reshape(count, 1) * step
    places = (starts + ops.arange(size, dtype="int32", device=gradient.device)).reshape(
        (1,) * axis + (count * size,) + (1,) * (len(sizes) - axis - 1)
    )
    return combined(target, axis, places, updates, "sum").reshape(tuple(input_sizes))


# ---- blocks ----------------------------------------------------------------------------------------------------------


@aten("pixel_shuffle")
def pixel_shuffle(x: Any, upscale_factor: int) -> Any:
    *batch, channels, height, width = x.sizes
    factor = upscale_factor
    lead = len(batch)
    blocks = x.reshape((*batch, channels // factor**2, factor, factor, height, width))
    order = [*range(lead + 1), lead + 3, lead + 1, lead + 4, lead + 2]
    return blocks.transpose(*order).reshape((*batch, channels // factor**2, height * factor, width * factor))


@aten("pixel_unshuffle")
def pixel_unshuffle(x: Any, downscale_factor: int) -> Any:
    *batch, channels, height, width = x.sizes
    factor = downscale_factor
    lead = len(batch)
    blocks = x.reshape((*batch, channels, height // factor, factor, width // factor, factor))
    order = [*range(lead + 1), lead + 2, lead + 4, lead + 1, lead + 3]
    return blocks.transpose(*order).reshape((*batch, channels * factor**2, height // factor, width // factor))


@aten("channel_shuffle")
def channel_shuffle(x: Any, groups: int) -> Any:
    batch, channels, *rest = x.sizes
    blocks = x.reshape((batch, groups, channels // groups, *rest))
    return blocks.transpose(0, 2, 1, *range(3, blocks.ndim)).reshape(x.sizes)


def _window(kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]) -> Any:
    return {
        "window_sizes": tuple(kernel),
        "strides": tuple(stride),
        "dilations": tuple(dilation),
        "start_padding": tuple(padding),
        "end_padding": tuple(padding),
    }


@aten("im2col")
def im2col(
    x: Any, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Any:
    is_batch = x.ndim == 4
    images = x if is_batch else x.expand_dims(0)
    if not x.size:
        count = _columns(images.sizes[2:], kernel_size, dilation, padding, stride)
        sizes = (images.sizes[0], images.sizes[1] * kernel_size[0] * kernel_size[1], count)
        return x._nothing(sizes if is_batch else sizes[1:])
    columns = directml.unfold(images, **_window(kernel_size, dilation, padding, stride))
    return columns if is_batch else columns.reshape(columns.sizes[1:])


def _columns(sizes: Sequence[int], *window: Sequence[int]) -> int:
    count = 1
    for size, kernel, dilation, padding, stride in zip(sizes, *window, strict=True):
        count *= (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    return count


@aten("col2im")
def col2im(
    x: Any,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Any:
    is_batch = x.ndim == 3
    columns = x if is_batch else x.expand_dims(0)
    sizes = (columns.sizes[0], columns.sizes[1] // (kernel_size[0] * kernel_size[1]), *output_size)
    if not x.size:
        return zeros_of(x, sizes if is_batch else sizes[1:])
    images = directml.fold(columns, output_sizes=sizes, **_window(kernel_size, dilation, padding, stride))
    return images if is_batch else images.reshape(images.sizes[1:])


@aten("diag_embed", fused=True)
def diag_embed(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Return matrices in two axes, with the elements of the last axis of `x` on a diagonal, and zeros elsewhere."""
    rank, length, skipped = x.ndim + 1, x.sizes[-1], abs(offset)
    row, column = dim1 % rank, dim2 % rank
    size = length + skipped
    sizes = (*x.sizes[:-1], size, size)
    if not length:
        matrices = zeros_of(x, sizes)
    else:
        gaps = zeros_of(x, (*x.sizes[:-1], skipped))
        rows = cat((x, gaps) if offset > 0 else (gaps, x), -1) if skipped else x
        mask = diagonals((size, size), x.device) == offset
        matrices = directml.element_wise_if(
            mask.broadcast_to(sizes), rows.expand_dims(-1).broadcast_to(sizes), False if x.is_boolean else 0
        )
    return ops.moveaxis(matrices, (-2, -1), (row, column))
