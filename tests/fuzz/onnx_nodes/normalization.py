"""Normalization layers, ONNX's and onnxruntime's."""

from __future__ import annotations

import numpy as np

from tests.fuzz.onnx_nodes.draw import MICROSOFT, Array, Draw, NodeCase, generator


def _spread(draw: Draw, x: Array) -> Array:
    """The elements, spread: divisions by deviations near 0 make rounding visible."""
    return x if draw.pool else np.asarray(x + draw.array("float32", x.shape, -1.1, 1.3), x.dtype)


def _affine(draw: Draw, dtype: str, shape: tuple[int, ...]) -> Array:
    return draw.array(dtype, shape, -2, 2)


@generator("BatchNormalization")
def batch_normalization(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=2, high_rank=5)
    channels = x.shape[1] if x.ndim > 1 else 1
    dtype = x.dtype.name
    rows = [_affine(draw, dtype, (channels,)) for _ in range(3)]
    variance = draw.array(dtype, (channels,), 0.25, 4)
    training = draw.version >= 14 and draw.chance(0.15)
    options = {"training_mode": 1, "momentum": draw.maybe(0.5)} if training else {}
    return draw.case(
        x, *rows, variance, epsilon=draw.maybe(1e-3), outputs=3 if training else 1, scale=8, length=x.size, **options
    )


@generator("InstanceNormalization")
def instance_normalization(draw: Draw) -> NodeCase:
    x = _spread(draw, draw.main(low_rank=3, high_rank=5, empty=0))
    rows = [_affine(draw, x.dtype.name, (x.shape[1],)) for _ in range(2)]
    return draw.case(x, *rows, epsilon=draw.pick(1e-2, 1e-3), length=x.size, scale=8)


@generator("GroupNormalization")
def group_normalization(draw: Draw) -> NodeCase:
    groups = draw.integer(1, 3)
    channels = groups * draw.integer(1, 3)
    x = draw.array(draw.dtype(0, ("float32", "float16")), (draw.integer(1, 2), channels, *draw.shape(1, 3, empty=0)))
    # Until version 21, scale and bias are per group.
    rows = [_affine(draw, x.dtype.name, (groups if draw.version < 21 else channels,)) for _ in range(2)]
    return draw.case(x, *rows, num_groups=groups, epsilon=draw.pick(1e-2, 1e-3), length=x.size, scale=8)


@generator("LayerNormalization", "RMSNormalization")
def layer_normalization(draw: Draw) -> NodeCase:
    x = _spread(draw, draw.main(low_rank=1, empty=0, among=("float32", "float16", "float64")))
    axis = draw.axis(x.ndim)
    shape = x.shape[axis:]
    scale = _affine(draw, x.dtype.name, shape)
    bias = _affine(draw, x.dtype.name, shape) if draw.chance(0.5) and draw.op_type == "LayerNormalization" else None
    outputs = draw.pick(1, 1, 2, 3) if draw.op_type == "LayerNormalization" else 1
    return draw.case(x, scale, bias, axis=axis, epsilon=draw.pick(1e-2, 1e-3), outputs=outputs, length=x.size, scale=16)


@generator("SimplifiedLayerNormalization")
def simplified(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1, empty=0, among=("float32", "float16"))
    scale = _affine(draw, x.dtype.name, x.shape[-1:])
    return draw.case(x, scale, axis=draw.maybe(-1), epsilon=draw.pick(1e-2, 1e-3), length=x.size, scale=16)


@generator("LayerNormalization", "SimplifiedLayerNormalization", domain=MICROSOFT)
def microsoft_layer_normalization(draw: Draw) -> NodeCase:
    x = _spread(draw, draw.main(low_rank=1, empty=0, among=("float32", "float16")))
    rows = [_affine(draw, x.dtype.name, x.shape[-1:]) for _ in range(2 if draw.op_type == "LayerNormalization" else 1)]
    return draw.case(x, *rows, axis=-1, epsilon=draw.pick(1e-2, 1e-3), length=x.size, scale=16)


@generator("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_normalization(draw: Draw) -> NodeCase:
    dtype = draw.pick("float32", "float32", "float16")
    shape = (draw.integer(1, 2), draw.integer(1, 4), draw.integer(2, 9))
    skip = draw.pick(shape, shape, shape[1:], (1, *shape[1:]))
    rows = [_affine(draw, dtype, shape[-1:]) for _ in range(3)]
    if draw.op_type == "SkipSimplifiedLayerNormalization":
        rows.pop()
    inputs = [draw.tensor(dtype, shape), draw.array(dtype, skip), *rows]
    if draw.chance(0.4):
        inputs.pop()
    # Output 3 is the sum; 1 and 2 are for training only.
    outputs = 4 if draw.chance(0.4) else 1
    return draw.case(*inputs, epsilon=draw.pick(1e-2, 1e-3), outputs=outputs, absent=(1, 2), length=shape[-1], scale=16)


@generator("GroupNorm", "SkipGroupNorm", domain=MICROSOFT)
def group_norm(draw: Draw) -> NodeCase:
    groups = draw.integer(1, 3)
    channels = groups * draw.integer(1, 3)
    shape = (draw.integer(1, 2), draw.integer(1, 4), draw.integer(2, 4), channels)
    x = draw.tensor("float32", shape)
    rows = [_affine(draw, "float32", (channels,)) for _ in range(2)]
    options = {"groups": groups, "activation": draw.pick(0, 1), "channels_last": 1, "epsilon": draw.pick(1e-2, 1e-3)}
    extra = []
    if draw.op_type == "SkipGroupNorm":
        extra = [draw.array("float32", shape), *([draw.array("float32", (channels,))] if draw.chance(0.5) else [])]
    outputs = 2 if extra and draw.chance(0.5) else 1
    return draw.case(x, *rows, *extra, outputs=outputs, length=x.size, scale=16, **options)


@generator("LRN")
def lrn(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=3, high_rank=4, empty=0.02)
    options = {"alpha": draw.maybe(0.1), "beta": draw.maybe(0.5), "bias": draw.maybe(2.0)}
    # onnxruntime refuses even sizes, and the reference computes as many channels as there are batches.
    return draw.case(x, size=draw.pick(1, 3, 5), length=5, **options)


@generator("LpNormalization")
def lp_normalization(draw: Draw) -> NodeCase:
    x = draw.main(low_rank=1)
    return draw.case(x, axis=draw.maybe(draw.axis(x.ndim)), p=draw.maybe(1, 2), length=x.size)


@generator("MeanVarianceNormalization")
def mean_variance(draw: Draw) -> NodeCase:
    x = _spread(draw, draw.main(low_rank=4, high_rank=4, empty=0))
    # The deviation of one element is 0, and what rounding makes of it is divided by 1e-9.
    shape = [max(2, size) for size in x.shape]
    x = x if list(x.shape) == shape else draw.array(x.dtype.name, shape)
    return draw.case(x, axes=draw.maybe([0, 2, 3], [1, 2, 3], [2, 3]), length=x.size, scale=8)
