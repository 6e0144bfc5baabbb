"""Regions of interest: pooled, sampled, and the gradients. Coordinates of samples in float32, all else in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import InterpolationMode, ReduceFunction
from dmlgpu.reference.registry import Array, claim, reference

# ---- pooling


@reference(descs.RoiPooling)
def roi_pooling(desc: descs.RoiPooling, input_tensor: Array, roi_tensor: Array) -> Array:
    """The largest element of every bin."""
    output = np.zeros(desc.output_tensor.sizes, input_tensor.dtype)
    height, width = input_tensor.shape[2:]
    for index, region in enumerate(roi_tensor.reshape(-1, 5).astype(np.float32)):
        if not -1 < region[0] < len(input_tensor):
            continue
        x1, y1, x2, y2 = (_rounded(corner * np.float32(desc.spatial_scale)) for corner in region[1:])
        plane = input_tensor[int(region[0])]
        for row, column in np.ndindex(desc.pooled_size.height, desc.pooled_size.width):
            rows = _bin(y1, y2, row, desc.pooled_size.height, height)
            columns = _bin(x1, x2, column, desc.pooled_size.width, width)
            seen = plane[:, rows, columns].reshape(len(plane), -1)
            if seen.shape[1]:
                worth = np.where(np.isnan(seen), -np.inf, seen.astype(np.float64))
                first = (np.isnan(seen) < (worth == worth.max(1, keepdims=True))).argmax(1)
                output[index, :, row, column] = np.take_along_axis(seen, first[:, None], 1)[:, 0]
    return output


def _rounded(number: np.float32) -> int:
    """Round ties away from zero; the result has at most 30 bits, and is 0 for NaN."""
    if np.isnan(number):
        return 0
    return int(np.clip(np.copysign(np.floor(np.abs(np.float64(number)) + 0.5), number), -(2**30) + 1, 2**30 - 1))


def _bin(near: int, far: int, index: int, bins: int, size: int) -> slice:
    """Return the elements of one of the bins between two corners."""
    count = max(far - near, 0) + 1
    first = near + index * count // bins
    end = near + -(-(index + 1) * count // bins)
    return slice(min(max(first, 0), size), min(max(end, 0), size))


# ---- sampling


@dataclass(frozen=True)
class _RegionAxis:
    """Samples of a region along one axis: {output elements, samples per element}.

    Attributes:
        fraction: Positions in the region.
        inside: Whether they are on the input.
        low, high: Adjacent elements.
        rest: Weight of the higher one.
    """

    fraction: Array
    inside: Array
    low: Array
    high: Array
    rest: Array


def _axis(desc: Any, near: Any, far: Any, size: int, outputs: int) -> _RegionAxis:
    """Return the samples between two ends, in their own dtype."""
    real = near.dtype.type
    fewest, most = max(desc.minimum_samples_per_output, 1), desc.maximum_samples_per_output
    span = far - near
    samples = int(np.clip(np.ceil(span / real(outputs)), fewest, most)) if np.isfinite(span) else fewest
    claim("samples", outputs, samples, each=64)
    intervals = real(outputs * samples - (1 if desc.align_regions_to_corners else 0))
    sample = np.arange(outputs * samples).astype(real) - real(desc.output_pixel_offset)
    if not np.isfinite(span):
        x = fraction = np.full_like(sample, np.nan)
    elif intervals == 0:
        x, fraction = near + real(0.5) * span + 0 * sample, np.full_like(sample, 0.5)
    else:
        x, fraction = near + sample * _normal(span / intervals), sample / intervals
    if desc.align_regions_to_corners and intervals:
        x = np.where(sample == intervals, far, x)
    x = x - real(desc.input_pixel_offset)
    inset = 1 if desc.align_regions_to_corners else 0
    inside = (inset - 1 <= x) & (x <= size - inset)
    within = np.clip(np.where(inside, x, 0).astype(np.float64), 0, size - 1)
    if desc.interpolation_mode is InterpolationMode.LINEAR:
        low, high = np.floor(within), np.ceil(within)
    else:
        low = high = np.ceil(within - 0.5)
    rest = np.where(high > low, within - low, 0)
    shaped = (array.reshape(outputs, samples) for array in (fraction, inside, low, high, rest))
    fraction, inside, low, high, rest = shaped
    return _RegionAxis(fraction.astype(np.float64), inside, low.astype(np.int64), high.astype(np.int64), rest)


def _normal(number: Any) -> Any:
    """Replace a number too small to be normal by 0: adapters may flush it."""
    return number if abs(number) >= np.finfo(number.dtype).smallest_normal else number * 0


@dataclass(frozen=True)
class _InputRegion:
    """A region of a batch.

    Attributes:
        index, batch: Indices of the region, and of its batch in the input.
        y, x: Its samples along both axes.
    """

    index: int
    batch: int
    y: _RegionAxis
    x: _RegionAxis

    @property
    def corners(self) -> list[tuple[Array, Array, Array]]:
        """Yield row, column and weight of the four elements around each sample: {rows, samples, columns, samples}."""
        y, x = self.y, self.x
        rows = ((y.low, 1 - y.rest), (y.high, y.rest))
        columns = ((x.low, 1 - x.rest), (x.high, x.rest))
        return [
            (*np.broadcast_arrays(row[:, :, None, None], column[None, None]), np.multiply.outer(above, beside))
            for row, above in rows
            for column, beside in columns
        ]

    @property
    def inside(self) -> Array:
        """Return a mask of the samples that lie on the input."""
        claim("samples of a region", self.y.inside.size, self.x.inside.size, each=256)
        return np.logical_and.outer(self.y.inside, self.x.inside)

    def values(self, image: Array, outside: float) -> Array:
        """Interpolate {batch, channels, height, width} at the samples: {channels, rows, samples, columns, samples}."""
        plane = image[self.batch].astype(np.float64)
        claim("samples of a region", len(plane), self.y.inside.size, self.x.inside.size, each=128)
        total = sum(plane[:, row, column] * weight for row, column, weight in self.corners)
        return np.where(self.inside, total, outside)


def _regions(desc: Any, roi: Array, batches: Array, spatial: tuple[int, ...], outputs: tuple[int, ...]) -> Any:
    """Return the regions of a batch of an input."""
    real = np.result_type(roi.dtype, np.float32)
    scale = np.array([desc.spatial_scale_x, desc.spatial_scale_y] * 2, real)
    for index, (region, batch) in enumerate(zip(roi.reshape(-1, 4), batches.ravel(), strict=True)):
        x1, y1, x2, y2 = region.astype(real) * scale
        y = _axis(desc, y1, y2, spatial[2], outputs[2])
        x = _axis(desc, x1, x2, spatial[3], outputs[3])
        yield _InputRegion(index, int(batch), y, x) if batch < spatial[0] else None


@reference(descs.RoiAlign1)
def roi_align1(desc: descs.RoiAlign1, input_tensor: Array, roi_tensor: Array, batch_indices_tensor: Array) -> Array:
    """The mean or the maximum of every output element's samples."""
    sizes, outside = desc.output_tensor.sizes, desc.out_of_bounds_input_value
    output = np.full(sizes, outside, np.float64)
    for region in _regions(desc, roi_tensor, batch_indices_tensor, input_tensor.shape, sizes):
        if region is not None:
            values = region.values(input_tensor, outside)
            maximum = desc.reduction_function is ReduceFunction.MAX
            output[region.index] = values.max((2, 4)) if maximum else values.mean((2, 4))
    return output.astype(input_tensor.dtype)


@reference(descs.RoiAlign)
def roi_align(desc: descs.RoiAlign, input_tensor: Array, roi_tensor: Array, batch_indices_tensor: Array) -> Array:
    """ROI_ALIGN1 with pixels at their centers."""
    fields: dict[str, Any] = {name: getattr(desc, name) for name in desc.field_names}
    newer = descs.RoiAlign1(**fields, input_pixel_offset=0.5, output_pixel_offset=-0.5, align_regions_to_corners=False)
    return roi_align1(newer, input_tensor, roi_tensor, batch_indices_tensor)


# ---- gradients


@reference(descs.RoiAlignGrad)
def roi_align_grad(
    desc: descs.RoiAlignGrad,
    input_tensor: Array | None,
    input_gradient_tensor: Array,
    roi_tensor: Array,
    batch_indices_tensor: Array,
) -> tuple[Array | None, ...]:
    """Gradients of the input and of the regions."""
    whole = desc.output_gradient_tensor or desc.input_tensor
    assert whole is not None
    gradient = input_gradient_tensor.astype(np.float64)
    to_input, to_regions = np.zeros(whole.sizes), np.zeros((len(gradient), 4))
    for region in _regions(desc, roi_tensor, batch_indices_tensor, whole.sizes, gradient.shape):
        if region is None:
            continue
        shares = _shares(desc, region, input_tensor) * gradient[region.index][:, :, None, :, None]
        for row, column, weight in region.corners:
            every_channel = np.arange(whole.sizes[1])[:, None, None, None, None]
            np.add.at(to_input[region.batch], (every_channel, row, column), shares * weight)
        if desc.output_roi_gradient_tensor is not None and desc.interpolation_mode is InterpolationMode.LINEAR:
            assert input_tensor is not None
            to_regions[region.index] = _moved(desc, region, input_tensor[region.batch].astype(np.float64), shares)
    gradients = (desc.output_gradient_tensor, to_input), (desc.output_roi_gradient_tensor, to_regions)
    return tuple(
        None if tensor is None else array.reshape(tensor.sizes).astype(input_gradient_tensor.dtype)
        for tensor, array in gradients
    )


def _shares(desc: descs.RoiAlignGrad, region: _InputRegion, image: Array | None) -> Array:
    """Return each sample's share of its output element's gradient: {channels or 1, rows, samples, columns, samples}."""
    if desc.reduction_function is ReduceFunction.AVERAGE:
        return np.asarray(region.inside[None] / (region.inside.shape[1] * region.inside.shape[3]))
    assert image is not None
    values = np.moveaxis(region.values(image, 0.0), 3, 2)  # {channels, rows, columns, samples, samples}
    flat = values.reshape(*values.shape[:3], -1)
    missing = np.isnan(flat)
    winner = np.where(missing.any(-1), missing.argmax(-1), flat.argmax(-1))
    won = (np.arange(flat.shape[-1]) == winner[..., None]).reshape(values.shape)
    return np.asarray(np.moveaxis(won, 2, 3) & region.inside, np.float64)


def _moved(desc: descs.RoiAlignGrad, region: _InputRegion, plane: Array, shares: Array) -> Array:
    """Return the gradients of x1, y1, x2, y2: slopes of the input times the derivatives of the samples' positions."""
    (row, column, _), (_, right, _), (below, _, _), _ = region.corners
    top_left, top_right = plane[:, row, column], plane[:, row, right]
    bottom_left, bottom_right = plane[:, below, column], plane[:, below, right]
    y_rest, x_rest = region.y.rest[:, :, None, None], region.x.rest
    along_x = (1 - y_rest) * (top_right - top_left) + y_rest * (bottom_right - bottom_left)
    along_y = (1 - x_rest) * (bottom_left - top_left) + x_rest * (bottom_right - top_right)
    y_fraction, x_fraction = region.y.fraction[:, :, None, None], region.x.fraction
    moves = (
        desc.spatial_scale_x * along_x * (1 - x_fraction),
        desc.spatial_scale_y * along_y * (1 - y_fraction),
        desc.spatial_scale_x * along_x * x_fraction,
        desc.spatial_scale_y * along_y * y_fraction,
    )
    return np.array([(shares * move).sum() for move in moves])
