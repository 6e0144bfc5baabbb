"""Upsampling and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import AxisDirection, InterpolationMode
from dmlgpu.frontends.torch.operators.registry import aten
from dmlgpu.ops import directml
from dmlgpu.ops.interpolation import cubic_weights, resample_coordinates, weighted
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.tensor import Tensor

_LINEAR = {1: "upsample_linear1d", 2: "upsample_bilinear2d", 3: "upsample_trilinear3d"}


def _factors(scales: Sequence[float | None], rank: int) -> list[float | None]:
    """Return the factor of each axis that the caller passed."""
    return [scale if scale is not None and scale > 0 else None for scale in (*scales, *(None,) * (rank - len(scales)))]


def _options(
    kind: str, old: Sequence[int], new: Sequence[int], factors: Sequence[float | None], aligned: bool
) -> dict[str, Any]:
    """Return DirectML's attributes of resampling planes {N * C, ...}."""
    axes = [resample_coordinates(kind, *sizes, aligned) for sizes in zip(old, new, factors, strict=True)]
    scales, before, after = zip((1.0, 0.0, 0.0), *axes, strict=True)
    is_nearest = kind.startswith("nearest")
    return {
        "interpolation_mode": InterpolationMode.NEAREST_NEIGHBOR if is_nearest else InterpolationMode.LINEAR,
        "rounding_direction": AxisDirection.DECREASING,
        "scales": scales,
        "input_pixel_offsets": before,
        "output_pixel_offsets": after,
    }


def _resample(
    kind: str, x: Tensor, output_size: Sequence[int], factors: Sequence[float | None], aligned: bool
) -> Tensor:
    sizes = (*x.sizes[:2], *output_size)
    if 0 in sizes:
        return filled(x, sizes)
    planes = x.reshape(-1, *x.sizes[2:])
    options = _options(kind, x.sizes[2:], output_size, factors, aligned)
    result: Tensor = directml.resample3(planes, **options, output_sizes=(planes.sizes[0], *output_size))
    return result.reshape(sizes)


def _resample_backward(
    kind: str, gradient: Tensor, input_size: Sequence[int], factors: Sequence[float | None], aligned: bool
) -> Tensor:
    if not gradient.size:
        return filled(gradient, tuple(input_size))
    planes = gradient.reshape(-1, *gradient.sizes[2:])
    options = _options(kind, input_size[2:], gradient.sizes[2:], factors, aligned)
    result = directml.resample_grad1(planes, **options, output_sizes=(planes.sizes[0], *input_size[2:]))
    of_input: Tensor = result.reshape(tuple(input_size))
    return of_input


def _enter_nearest(name: str, kind: str, rank: int) -> None:
    """Register a nearest mode and its gradient."""

    @aten(name)
    def forward(x: Tensor, output_size: Sequence[int], *scales: float | None) -> Tensor:
        return _resample(kind, x, output_size, _factors(scales, rank), False)

    @aten(f"{name}_backward")
    def backward(gradient: Tensor, _: Sequence[int], input_size: Sequence[int], *scales: float | None) -> Tensor:
        return _resample_backward(kind, gradient, input_size, _factors(scales, rank), False)


def _enter_linear(name: str, rank: int) -> None:
    """Register a linear mode and its gradient."""

    @aten(name)
    def forward(x: Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None) -> Tensor:
        return _resample("linear", x, output_size, _factors(scales, rank), align_corners)

    @aten(f"{name}_backward")
    def backward(
        gradient: Tensor, _: Sequence[int], input_size: Sequence[int], align_corners: bool, *scales: float | None
    ) -> Tensor:
        return _resample_backward("linear", gradient, input_size, _factors(scales, rank), align_corners)


def _enter_weighted(name: str, weights_of: Callable[..., NDArray[Any]]) -> None:
    """Register a mode that is a product with a matrix of weights along each axis, and its gradient."""

    def along_axes(
        x: Tensor, old: Sequence[int], new: Sequence[int], factors: Sequence[float | None], aligned: bool, back: bool
    ) -> Tensor:
        for axis, sizes in enumerate(zip(old, new, factors, strict=True), 2):
            weights = weights_of(*sizes, aligned)
            x = weighted(x, weights.T if back else weights, axis)
        return x

    @aten(name, wide=True)
    def forward(x: Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None) -> Tensor:
        if not x.size:
            return filled(x, (*x.sizes[:2], *output_size))
        return along_axes(x, x.sizes[2:], output_size, _factors(scales, 2), align_corners, False)

    @aten(f"{name}_backward", wide=True)
    def backward(
        gradient: Tensor, _: Sequence[int], input_size: Sequence[int], align_corners: bool, *scales: float | None
    ) -> Tensor:
        if not gradient.size:
            return filled(gradient, tuple(input_size))
        factors = _factors(scales, 2)
        return along_axes(gradient, input_size[2:], gradient.sizes[2:], factors, align_corners, True)


def _triangle(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.abs(x)
    return np.where(x < 1, (1.5 * x - 2.5) * x * x + 1, np.where(x < 2, ((-0.5 * x + 2.5) * x - 4) * x + 2, 0.0))


def _antialiasing(kernel: Callable[..., NDArray[np.float64]], radius: int) -> Callable[..., NDArray[Any]]:
    """Return the weights of antialiased resampling by a kernel that is 0 beyond its radius."""

    def weights_of(old: int, new: int, factor: float | None, aligned: bool) -> NDArray[Any]:
        scale = old / new if factor is None else 1 / factor
        if aligned:
            scale = (old - 1) / (new - 1) if new > 1 else 0.0
        support, narrowing = radius * max(scale, 1.0), 1 / max(scale, 1.0)
        weights = np.zeros((new, old))
        for index in range(new):
            center = scale * (index + 0.5)
            first, end = max(int(center - support + 0.5), 0), min(int(center + support + 0.5), old)
            values = kernel((np.arange(first, end) - center + 0.5) * narrowing)
            weights[index, first:end] = values / (values.sum() or 1.0)
        return weights

    return weights_of


for _rank in (1, 2, 3):
    _enter_nearest(f"upsample_nearest{_rank}d", "nearest", _rank)
    _enter_nearest(f"_upsample_nearest_exact{_rank}d", "nearest-exact", _rank)
    _enter_linear(_LINEAR[_rank], _rank)
_enter_weighted("upsample_bicubic2d", cubic_weights)
_enter_weighted("_upsample_bilinear2d_aa", _antialiasing(_triangle, 1))
_enter_weighted("_upsample_bicubic2d_aa", _antialiasing(_cubic, 2))
