"""Reductions of segments of a tensor, and their gradients, by PyTorch's operators on indices."""

from __future__ import annotations

import math
from typing import Any

import torch

from dmlgpu.frontends.torch.operators.registry import composes

_IDENTITIES = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_SCATTERED = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}


class _Segments:
    """Segments of a tensor along an axis: the axes before it are a batch, which has segments of its own.

    Args:
        data: The tensor.
        axis: The axis.
        lengths, offsets: Lengths of the segments, or their first positions and the end of the last one.

    Attributes:
        count: Number of segments.
        ids: Segment of each element; `count` for elements outside of all.
        lengths: Lengths of segments, with the rank of `data`.
    """

    def __init__(
        self, data: torch.Tensor, axis: int, lengths: torch.Tensor | None, offsets: torch.Tensor | None
    ) -> None:
        if offsets is None:
            assert lengths is not None
            offsets = torch.nn.functional.pad(lengths.cumsum(-1), (1, 0))
        self._axis, self.count = axis, offsets.shape[-1] - 1
        positions = torch.arange(data.shape[axis], device=data.device).expand(data.shape[: axis + 1])
        ids = torch.searchsorted(offsets.to(torch.int64).contiguous(), positions.contiguous(), right=True) - 1
        rest = (1,) * (data.dim() - axis - 1)
        self.ids = torch.where(ids < 0, self.count, ids).reshape(*ids.shape, *rest).expand(data.shape)
        self.lengths = offsets.diff(dim=-1).reshape(*offsets.shape[:-1], self.count, *rest)

    def reduce(self, data: torch.Tensor, reduction: str, start: float) -> torch.Tensor:
        """Return the sum, prod, amin or amax of each segment and a number."""
        sizes = (*data.shape[: self._axis], self.count + 1, *data.shape[self._axis + 1 :])
        result = data.new_full(sizes, start).scatter_reduce(self._axis, self.ids, data, reduction)
        return result.narrow(self._axis, 0, self.count)

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """Return the value of its segment for each element, 0 outside of all segments."""
        padding = (0, 0) * (values.dim() - self._axis - 1) + (0, 1)
        return torch.nn.functional.pad(values, padding).gather(self._axis, self.ids)


def _start(reduce: str, initial: Any) -> float:
    return _IDENTITIES[reduce] if initial is None else float(initial)


@composes("segment_reduce")
def segment_reduce(
    data: torch.Tensor,
    reduce: str,
    *,
    lengths: torch.Tensor | None = None,
    indices: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> torch.Tensor:
    """Return the sum, mean, prod, max or min of each segment. Lengths are not checked, since this would read them."""
    segments = _Segments(data, axis % data.dim(), lengths, offsets)
    result = segments.reduce(data, _SCATTERED[reduce], _start(reduce, initial))
    if reduce != "mean":
        return result
    empty = math.nan if initial is None else float(initial)
    return torch.where(segments.lengths > 0, result / segments.lengths.clamp(min=1), empty)


@composes("_segment_reduce_backward")
def segment_reduce_backward(
    grad: torch.Tensor,
    output: torch.Tensor,
    data: torch.Tensor,
    reduce: str,
    *,
    lengths: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    axis: int = 0,
    initial: Any = None,
) -> torch.Tensor:
    """Return the gradient of the data of `segment_reduce`; elements that are equal to a maximum share it."""
    segments = _Segments(data, axis % data.dim(), lengths, offsets)
    if reduce == "sum":
        return segments.spread(grad)
    if reduce == "mean":
        return segments.spread(grad / segments.lengths.clamp(min=1))
    if reduce == "prod":
        return segments.spread(grad) * _others(segments, output, data, _start(reduce, initial))
    is_chosen = (data == segments.spread(output)) | data.isnan()
    counts = segments.reduce(is_chosen.to(data.dtype), "sum", 0.0)
    return torch.where(is_chosen, segments.spread(grad / counts.clamp(min=1)), 0.0)


def _others(segments: _Segments, output: torch.Tensor, data: torch.Tensor, start: float) -> torch.Tensor:
    """Return for each element the product of the start and the other elements of its segment.

    Elements that are 0 or NaN cannot be divided by.
    """
    is_zero, is_nan = data == 0, data.isnan()
    is_special = is_zero | is_nan
    plain = segments.spread(segments.reduce(torch.where(is_special, 1.0, data), "prod", start))
    zeros, nans = (segments.spread(segments.reduce(mask.to(data.dtype), "sum", 0.0)) for mask in (is_zero, is_nan))
    product = torch.where(zeros - is_zero.to(data.dtype) > 0, 0.0 * plain, plain)
    product = torch.where(nans - is_nan.to(data.dtype) > 0, math.nan, product)
    return torch.where(is_special, product, segments.spread(output) / torch.where(is_special, 1.0, data))
