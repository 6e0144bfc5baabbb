"""Convolutions, pooling, and what looks at regions of pictures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.onnx_nodes.draw import FLOATS, MICROSOFT, Array, Draw, NodeCase, generator


def window(draw: Draw, rank: int, *, dilated: bool = True, pools: bool = False) -> dict[str, Any]:
    """Attributes of a sliding window that fits into sizes of at least 5."""
    kernel = [draw.integer(1, 3) for _ in range(rank)]
    dilations = [draw.integer(1, 2) for _ in range(rank)] if dilated and draw.chance(0.3) else None
    auto = draw.maybe("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", probability=0.25)
    pads = [draw.integer(0, kernel[at % rank] - 1) for at in range(2 * rank)] if auto in (None, "NOTSET") else None
    strides = [draw.integer(1, 3) for _ in range(rank)]
    if auto in ("SAME_UPPER", "SAME_LOWER") and pools:
        # ONNX's formula pads by negative counts where strides are wider than windows, and so does onnxruntime; its
        # DirectML provider, and dmlgpu, pad by nothing then.
        strides = [min(pair) for pair in zip(strides, kernel, strict=True)]
        # onnxruntime pads as if there were no dilations, the reference on other sides.
        dilations = None
    return {
        "kernel_shape": kernel,
        "dilations": dilations,
        "auto_pad": auto,
        "pads": pads if draw.chance(0.6) else None,
        "strides": strides if draw.chance(0.6) else None,
    }


def picture(draw: Draw, rank: int, channels: int, dtype: str, **limits: Any) -> Array:
    """A batch of pictures, large enough for windows."""
    batch = 0 if draw.chance(0.03) else draw.integer(1, 2)
    shape = (batch, channels, *(draw.integer(5, 9) for _ in range(rank)))
    return draw.tensor(dtype, shape, **limits)


@generator("Conv")
def conv(draw: Draw) -> NodeCase:
    # onnxruntime has NhwcConv for two dimensions.
    rank = 2 if draw.op_type == "NhwcConv" else draw.pick(1, 2, 2, 2, 3)
    groups = draw.pick(1, 1, 1, 2, 3)
    channels, filters = groups * draw.integer(1, 3), groups * draw.integer(1, 3)
    options = window(draw, rank)
    dtype = draw.dtype()
    x = picture(draw, rank, channels, dtype)
    weight = draw.array(dtype, (filters, channels // groups, *options["kernel_shape"]), -2, 2)
    bias = draw.array(dtype, (filters,)) if draw.chance(0.5) else None
    if draw.chance(0.4):
        options["kernel_shape"] = None
    group = groups if groups > 1 or draw.chance(0.3) else None
    return draw.case(x, weight, bias, group=group, length=weight[0].size, scale=16, **options)


@generator("FusedConv", "NhwcConv", domain=MICROSOFT)
def fused_conv(draw: Draw) -> NodeCase:
    case = conv(draw)
    x, weight = case.inputs[0], case.inputs[1]
    assert x is not None and weight is not None
    case.inputs = [None if array is None else np.asarray(array, "float32") for array in case.inputs]
    if draw.op_type == "NhwcConv":
        case.inputs[0], case.inputs[1] = (np.moveaxis(np.asarray(a, "float32"), 1, -1) for a in (x, weight))
    else:
        name, parameters = draw.pick(
            ("Relu", None),
            ("Tanh", None),
            ("Sigmoid", None),
            ("LeakyRelu", [0.1]),
            ("Clip", [-1.0, 2.0]),
            ("HardSigmoid", [0.2, 0.5]),
        )
        case.attributes |= {"activation": name} | ({"activation_params": parameters} if parameters else {})
    return case


@generator("ConvTranspose")
def conv_transpose(draw: Draw) -> NodeCase:
    rank = draw.pick(1, 2, 2, 3)
    groups = draw.pick(1, 1, 2)
    channels, filters = groups * draw.integer(1, 2), draw.integer(1, 2)
    dtype = draw.dtype()
    x = draw.tensor(dtype, (draw.integer(1, 2), channels, *(draw.integer(2, 4) for _ in range(rank))))
    kernel = [draw.integer(1, 3) for _ in range(rank)]
    strides = [draw.integer(1, 3) for _ in range(rank)]
    dilations = [draw.integer(1, 2) for _ in range(rank)] if draw.chance(0.3) else [1] * rank
    options: dict[str, Any] = {"strides": strides, "dilations": dilations}
    choice = draw.integer(0, 3)
    if choice == 1:
        options["pads"] = [draw.integer(0, 1) if kernel[at % rank] > 1 else 0 for at in range(2 * rank)]
    elif choice == 2:
        options["auto_pad"] = draw.pick("SAME_UPPER", "SAME_LOWER", "VALID")
        # onnxruntime gives results that are smaller than ONNX demands where strides are wider than filters.
        if any(
            dilation * (width - 1) < stride - 1
            for width, stride, dilation in zip(kernel, strides, dilations, strict=True)
        ):
            options["strides"] = [1] * rank
    elif choice == 3:
        sizes = [
            (size - 1) * stride + dilation * (width - 1) + 1
            for size, stride, dilation, width in zip(x.shape[2:], strides, dilations, kernel, strict=True)
        ]
        options["output_shape"] = [size - draw.integer(0, min(1, size - 1)) for size in sizes]
    if choice < 2 and draw.chance(0.4):
        options["output_padding"] = [
            draw.integer(0, max(0, max(stride, dilation) - 1))
            for stride, dilation in zip(strides, dilations, strict=True)
        ]
    weight = draw.array(dtype, (channels, filters, *kernel), -2, 2)
    bias = draw.array(dtype, (groups * filters,)) if draw.chance(0.5) else None
    length = channels * math.prod(kernel)
    return draw.case(x, weight, bias, group=groups if groups > 1 else None, length=length, scale=16, **options)


@generator("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def dynamic_pads(draw: Draw) -> NodeCase:
    x = draw.tensor("float32", (1, 2, *(draw.integer(2, 4) for _ in range(2))))
    weight = draw.array("float32", (2, draw.integer(1, 2), 3, 3))
    pads = draw.array("int64", (4,), 0, 1)
    bias = draw.array("float32", (weight.shape[1],)) if draw.chance(0.5) else None
    return draw.case(x, weight, pads, bias, strides=[draw.integer(1, 2)] * 2, length=18, scale=16)


@generator("DeformConv")
def deform_conv(draw: Draw) -> NodeCase:
    options = window(draw, 2)
    options.pop("auto_pad")
    kernel, pads = options["kernel_shape"], options["pads"] or [0] * 4
    dtype = draw.dtype(0, ("float32", "float16"))
    x = draw.tensor(dtype, (draw.integer(1, 2), 2, draw.integer(5, 7), draw.integer(5, 7)))
    strides, dilations = options["strides"] or [1, 1], options["dilations"] or [1, 1]
    sizes = [
        (x.shape[2 + at] + pads[at] + pads[2 + at] - dilations[at] * (kernel[at] - 1) - 1) // strides[at] + 1
        for at in (0, 1)
    ]
    offset = draw.array(dtype, (len(x), 2 * math.prod(kernel), *sizes), -1.5, 1.5)
    weight = draw.array(dtype, (2, 2, *kernel))
    bias = draw.array(dtype, (2,)) if draw.chance(0.5) else None
    mask = draw.array(dtype, (len(x), math.prod(kernel), *sizes), 0, 1) if draw.chance(0.5) else None
    return draw.case(x, weight, offset, bias, mask, length=weight[0].size, scale=32, **(options | {"pads": pads}))


@generator("MaxPool", "AveragePool", "LpPool")
def pool(draw: Draw) -> NodeCase:
    rank = draw.pick(1, 2, 2, 2, 3)
    name, version = draw.op_type, draw.version
    dilated = version >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[name]
    options = window(draw, rank, dilated=dilated, pools=True)
    if version >= {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[name]:
        options["ceil_mode"] = draw.maybe(0, 1)
    x = picture(draw, rank, draw.integer(1, 3), draw.dtype())
    outputs = 1
    if name == "MaxPool":
        options["storage_order"] = draw.maybe(0, 1, probability=0.2) if version >= 8 else None
        outputs = draw.integer(1, 2) if version >= 8 else 1
    elif name == "AveragePool":
        options["count_include_pad"] = draw.maybe(0, 1)
    else:
        options["p"] = draw.maybe(1, 2, 3)
    return draw.case(
        x, outputs=outputs, length=math.prod(options["kernel_shape"]), exact=name == "MaxPool", scale=16, **options
    )


@generator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=3, high_rank=5, empty=0)
    p = draw.maybe(1, 2, 3) if draw.op_type == "GlobalLpPool" else None
    return draw.case(x, p=p, length=math.prod(x.shape[2:]), exact=draw.op_type == "GlobalMaxPool", scale=16)


@generator("MaxUnpool")
def max_unpool(draw: Draw) -> NodeCase:
    n, c, h, w = (draw.integer(1, 3) for _ in range(4))
    dtype = draw.dtype(0, FLOATS)
    # Every element of the output is written at most once.
    places = np.stack([draw.numbers.permutation(4 * h * w)[: h * w] for _ in range(n * c)])
    places += (np.arange(n * c) * 4 * h * w)[:, None]
    x = draw.tensor(dtype, (n, c, h, w))
    shape = np.array([n, c, 2 * h, 2 * w]) if draw.chance(0.4) else None
    return draw.case(x, places.reshape(x.shape), shape, kernel_shape=[2, 2], strides=[2, 2], exact=True)


@generator("MaxRoiPool")
def max_roi_pool(draw: Draw) -> NodeCase:
    x = draw.tensor(draw.dtype(), (draw.integer(1, 2), 2, draw.integer(4, 7), draw.integer(4, 7)))
    rows = []
    for _ in range(draw.integer(1, 3)):
        left, top = draw.integer(0, 3), draw.integer(0, 3)
        rows.append([draw.integer(0, len(x) - 1), left, top, left + draw.integer(0, 3), top + draw.integer(0, 3)])
    shape = [draw.integer(1, 3), draw.integer(1, 3)]
    return draw.case(x, np.array(rows, x.dtype), pooled_shape=shape, spatial_scale=draw.maybe(0.5, 1.0), exact=True)


@generator("RoiAlign")
def roi_align(draw: Draw) -> NodeCase:
    dtype = draw.dtype(0, ("float32", "float16"))
    x = draw.tensor(dtype, (draw.integer(1, 2), 2, draw.integer(4, 7), draw.integer(4, 7)))
    count = 0 if draw.chance(0.05) else draw.integer(1, 3)
    corners = draw.array("float32", (count, 2), 0, 4)
    rows = np.concatenate([corners, corners + draw.array("float32", (count, 2), 0 if draw.chance(0.2) else 0.5, 4)], 1)
    batches = draw.array("int64", (count,), 0, len(x) - 1)
    mode = draw.maybe("half_pixel", "output_half_pixel") if draw.version >= 16 else None
    return draw.case(
        x,
        rows.astype(dtype),
        batches,
        coordinate_transformation_mode=mode,
        mode=draw.maybe("avg", "max"),
        output_height=draw.maybe(1, 2, 3),
        output_width=draw.maybe(1, 2, 3),
        sampling_ratio=draw.maybe(0, 1, 2),
        spatial_scale=draw.maybe(0.5, 1.0),
        scale=8,
    )


@generator("GridSample")
def grid_sample(draw: Draw) -> NodeCase:
    rank = draw.pick(2, 2, 3) if draw.version >= 20 else 2
    dtype = draw.dtype(0, ("float32", "float16"))
    x = draw.tensor(dtype, (draw.integer(1, 2), draw.integer(1, 2), *(draw.integer(2, 5) for _ in range(rank))))
    # Not at multiples of 1/8, where rounding decides which neighbor is nearest.
    grid = draw.array("float32", (len(x), *(draw.integer(1, 4) for _ in range(rank)), rank), -1.3, 1.3)
    grid = np.asarray(np.clip(grid + 0.0137, -1.4, 1.4), draw.pick("float32", dtype) if draw.version < 20 else dtype)
    newer = draw.version >= 20
    # Cubic interpolation in three dimensions is not defined.
    mode = draw.maybe(
        *(("linear", "nearest") if newer else ("bilinear", "nearest", "bicubic")),
        *(("cubic",) if newer and rank == 2 else ()),
    )
    return draw.case(
        x,
        grid.astype(dtype),
        mode=mode,
        padding_mode=draw.maybe("zeros", "border", "reflection"),
        align_corners=draw.maybe(0, 1),
        scale=16,
    )


@generator("AffineGrid")
def affine_grid(draw: Draw) -> NodeCase:
    rank = draw.integer(2, 3)
    batch = draw.integer(1, 2)
    theta = draw.tensor(draw.dtype(0, ("float32", "float16")), (batch, rank, rank + 1))
    size = np.array([batch, draw.integer(1, 3), *(draw.integer(1, 5) for _ in range(rank))])
    return draw.case(theta, size, align_corners=draw.maybe(0, 1), scale=16)


@generator("Resize")
def resize(draw: Draw) -> NodeCase:
    if draw.version < 10:
        return draw.case()
    version = draw.version
    dtype = draw.dtype(0, ("float32", "float32", "float16", "uint8", "int8", "int32"))
    rank = draw.integer(1, 4) if draw.chance(0.3) else 4
    lead = max(0, rank - 2)
    x = draw.tensor(
        dtype, [draw.integer(1, 2) for _ in range(lead)] + [draw.integer(1, 6) for _ in range(rank - lead)], 0, 9
    )
    mode = draw.pick("nearest", "linear", *(("cubic",) if version >= 11 and rank == 4 else ()))
    scales = [1.0] * lead + [draw.pick(0.5, 0.6, 1.0, 1.5, 2.0, 2.57, 0.34) for _ in range(rank - lead)]
    # No dimension becomes 0.
    scales = [
        max(scale, 1.01 / size) if size > 1 else max(scale, 1.0) for scale, size in zip(scales, x.shape, strict=True)
    ]
    if version == 10:
        return draw.case(x, np.array(scales, "float32"), mode=mode, scale=16, slack=int(dtype not in FLOATS))
    modes = ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_crop_and_resize"]
    modes += ["half_pixel_symmetric"] if version >= 19 else []
    coordinates = draw.maybe(*modes)
    region = None
    if coordinates == "tf_crop_and_resize":
        starts = [0.0] * lead + [draw.pick(0.0, 0.13, 0.41) for _ in range(rank - lead)]
        # Whether a place on the border is outside depends on rounding: none is.
        region = np.array(starts + [1.0] * lead + [draw.pick(0.63, 0.97, 1.31) for _ in range(rank - lead)], "float32")
    options: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": coordinates,
        "nearest_mode": draw.maybe("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        if mode == "nearest"
        else None,
        "cubic_coeff_a": draw.maybe(-0.5, -0.75) if mode == "cubic" else None,
        "extrapolation_value": draw.maybe(0.0, 2.5),
        "exclude_outside": draw.maybe(0, 1, probability=0.3) if mode == "cubic" else None,
    }
    axes = None
    if version >= 18:
        options["antialias"] = draw.maybe(0, 1, probability=0.3) if mode != "nearest" else None
        if draw.chance(0.2) and region is None:
            axes = list(range(lead, rank))
            options["axes"] = axes
            scales = scales[lead:]
    empty = np.zeros(0, "float32")
    slack = int(dtype not in FLOATS)
    if draw.chance(0.5):
        sizes = [draw.integer(1, 9) if axes is not None or at >= lead else x.shape[at] for at in range(len(scales))]
        options["keep_aspect_ratio_policy"] = (
            draw.maybe("stretch", "not_larger", "not_smaller", probability=0.2) if version >= 18 else None
        )
        none = None if version >= 13 else empty
        return draw.case(
            x, region if region is not None else none, none, np.array(sizes), scale=16, slack=slack, **options
        )
    return draw.case(
        x,
        region if region is not None or version >= 13 else empty,
        np.array(scales, "float32"),
        scale=16,
        slack=slack,
        **options,
    )


@generator("Upsample")
def upsample(draw: Draw) -> NodeCase:
    dtype = draw.dtype(0, ("float32", "float32", "float16"))
    x = draw.tensor(dtype, (1, draw.integer(1, 2), draw.integer(1, 4), draw.integer(1, 4)))
    scales = [1.0, 1.0, draw.pick(1.0, 2.0, 1.5), draw.pick(1.0, 2.0, 3.0)]
    mode = draw.maybe("nearest", "linear")
    if draw.version < 9:
        return draw.case(x, scales=scales, mode=mode, scale=8)
    return draw.case(x, np.array(scales, "float32"), mode=mode, scale=8)
