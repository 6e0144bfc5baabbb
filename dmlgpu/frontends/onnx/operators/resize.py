"""Resize and Upsample."""

from __future__ import annotations

from dmlgpu.builder import functions
from dmlgpu.enums import AxisDirection, InterpolationMode
from dmlgpu.frontends.onnx.node import Node, reshaped
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Shape, Value

_OFFSETS: dict[str, tuple[float, float]] = {
    "half_pixel": (0.5, -0.5),
    "half_pixel_symmetric": (0.5, -0.5),
    "asymmetric": (0.0, 0.0),
    "tf_half_pixel_for_nn": (0.0, -0.5),
}
"""Offsets of the input's and the output's pixels: x_in = (x_out - output_offset) / scale - input_offset."""


_NEAREST: dict[str, tuple[float, AxisDirection]] = {
    "round_prefer_floor": (0.5, AxisDirection.INCREASING),
    "round_prefer_ceil": (-0.5, AxisDirection.DECREASING),
    "floor": (0.0, AxisDirection.DECREASING),
    "ceil": (0.0, AxisDirection.INCREASING),
}
"""What is added to the input's offset, and where coordinates are rounded: up for INCREASING, else down."""


def _wanted(node: Node) -> tuple[Shape, list[float]]:
    """Return sizes and scales of the output, one per dimension."""
    shape = node.shape(0)
    axes = [node.axis(one, len(shape)) for one in node.integers("axes") or range(len(shape))]
    place = 1 if node.op_type == "Upsample" or node.version < 11 else 2
    sizes, scales = list(shape), [1.0] * len(shape)
    if node.has(3) and node.shape(3) != (0,):
        given = node.host_integers(3)
        ratios = [want / shape[axis] for axis, want in zip(axes, given, strict=True)]
        policy = node.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            ratios = [ratio] * len(ratios)
            given = tuple(int(shape[axis] * ratio + 0.5) for axis in axes)
        for axis, want, ratio in zip(axes, given, ratios, strict=True):
            sizes[axis], scales[axis] = want, ratio
        return tuple(sizes), scales
    numbers = node.numbers("scales") or tuple(float(one) for one in node.host(place).reshape(-1))
    for axis, scale in zip(axes, numbers, strict=True):
        sizes[axis], scales[axis] = int(shape[axis] * scale), scale
    return tuple(sizes), scales


@operator("Resize", "Upsample")
def resize(node: Node) -> Value:
    """Resample to other sizes, nearest or linear."""
    mode = node.text("mode", "nearest")
    modes = {"nearest": InterpolationMode.NEAREST_NEIGHBOR, "linear": InterpolationMode.LINEAR}
    if mode not in modes:
        raise node.refusal(f"mode {mode!r} is not supported")
    for name in ("antialias", "exclude_outside"):
        if node.flag(name):
            raise node.refusal(f"{name} is not supported")
    old = node.op_type == "Upsample" or node.version < 11
    how = "asymmetric" if old else node.text("coordinate_transformation_mode", "half_pixel")
    x, (sizes, scales) = node.tensor(0), _wanted(node)
    shape = x.sizes
    if how == "align_corners":
        scales = [
            (size * scale - 1) / (size - 1) if size > 1 and new > 1 else 1.0
            for size, new, scale in zip(shape, sizes, scales, strict=True)
        ]
        how = "asymmetric"
    if how == "pytorch_half_pixel" and all(new > 1 or size == 1 for size, new in zip(shape, sizes, strict=True)):
        how = "half_pixel"
    if how not in _OFFSETS or (
        how == "half_pixel_symmetric"
        and any(int(size * scale) != size * scale for size, scale in zip(shape, scales, strict=True))
    ):
        raise node.refusal(f"coordinate_transformation_mode {how!r} is not supported")
    before, behind = _OFFSETS[how]
    direction = AxisDirection.INCREASING
    if mode == "nearest":
        shift, direction = _NEAREST["floor" if old else node.text("nearest_mode", "round_prefer_floor")]
        before += shift
    squeezed = [number for number, size in enumerate(shape) if size != 1 or sizes[number] != 1]
    kept = squeezed or [0]
    if len(kept) > 4:
        raise node.refusal(f"at most 4 dimensions larger than 1 are supported, got shape {list(shape)}")
    found = functions.resample3(
        reshaped(x, [shape[number] for number in kept]),
        interpolation_mode=modes[mode],
        rounding_direction=direction,
        scales=[scales[number] for number in kept],
        input_pixel_offsets=[before] * len(kept),
        output_pixel_offsets=[behind] * len(kept),
        output_sizes=[sizes[number] for number in kept],
    )
    return node.valued(found, sizes)
