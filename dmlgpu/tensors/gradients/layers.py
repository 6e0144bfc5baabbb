"""Gradient rules of reductions, products, convolution, pooling, normalization and attention."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dmlgpu.catalog.enums import (
    AxisDirection,
    ConvolutionDirection,
    ConvolutionMode,
    InterpolationMode,
    MatrixTransform,
    ReduceFunction,
)
from dmlgpu.tensors import directml
from dmlgpu.tensors.calls import filled
from dmlgpu.tensors.gradients.rules import (
    Gradients,
    decomposed,
    mean,
    named,
    rule,
    times,
    to_rows,
    total,
    truth,
    where,
)

# ---- along axes ------------------------------------------------------------------------------------------------------


def _others_product(x: Any, axes: Sequence[int]) -> Any:
    """Return the product of the other elements along axes for each element."""
    rows, back = to_rows(x, axes)
    before, after = (
        directml.cumulative_product(rows, axis=1, axis_direction=direction, has_exclusive_product=True)
        for direction in (AxisDirection.INCREASING, AxisDirection.DECREASING)
    )
    return back(before * after)


@rule("REDUCE", wide=True)
def _reduce(record: Any, gradient: Any) -> Gradients:
    x, y, axes, function = record["input_tensor"], record.result(), record.desc.axes, record.desc.function
    is_rounded = record.desc.output_tensor.data_type is not y.data_type
    y, gradient = (part.reshape(record.desc.output_tensor.sizes) for part in (y, gradient))
    count = math.prod(x.sizes[axis] for axis in axes)

    def of_extreme() -> Any:
        chosen = truth(x == y, x)
        return gradient * chosen / total(chosen, axes)

    def of_norm() -> Any:
        norm = directml.reduce(x, function=function, axes=axes) if is_rounded else y
        return where(norm > 0, gradient * x / norm, 0.0)

    computes: dict[ReduceFunction, Callable[[], Any]] = {
        ReduceFunction.AVERAGE: lambda: (gradient * (1 / count)).broadcast_to(x.sizes),
        ReduceFunction.L1: lambda: gradient * directml.element_wise_sign(x),
        ReduceFunction.L2: of_norm,
        ReduceFunction.LOG_SUM: lambda: (gradient / total(x, axes)).broadcast_to(x.sizes),
        ReduceFunction.LOG_SUM_EXP: lambda: gradient * directml.activation_softmax1(x, axes=axes),
        ReduceFunction.MAX: of_extreme,
        ReduceFunction.MIN: of_extreme,
        ReduceFunction.MULTIPLY: lambda: gradient * _others_product(x, axes),
        ReduceFunction.SUM: lambda: gradient.broadcast_to(x.sizes),
        ReduceFunction.SUM_SQUARE: lambda: gradient * x * 2.0,
    }
    return {"input_tensor": computes[function]}


@rule("CUMULATIVE_SUMMATION")
def _running_sum(record: Any, gradient: Any) -> Gradients:
    desc = record.desc
    is_increasing = desc.axis_direction is AxisDirection.INCREASING
    back = AxisDirection.DECREASING if is_increasing else AxisDirection.INCREASING
    options = {"axis": desc.axis, "axis_direction": back, "has_exclusive_sum": desc.has_exclusive_sum}
    return {"input_tensor": lambda: directml.cumulative_summation(gradient, **options)}


@rule("TOP_K", "TOP_K1")
def _top_k(record: Any, gradient: Any, _: Any) -> Gradients:
    def compute() -> Any:
        zeros = filled(gradient, record["input_tensor"].sizes)
        return directml.scatter_elements(zeros, record.result(1), gradient, axis=record.desc.axis)

    return {"input_tensor": compute}


@rule("ACTIVATION_SOFTMAX", "ACTIVATION_SOFTMAX1", wide=True)
def _softmax(record: Any, gradient: Any) -> Gradients:
    y = record.result()
    return {"input_tensor": lambda: y * (gradient - total(gradient * y, _softmax_axes(record)))}


@rule("ACTIVATION_LOG_SOFTMAX", "ACTIVATION_LOG_SOFTMAX1", wide=True)
def _log_softmax(record: Any, gradient: Any) -> Gradients:
    axes = _softmax_axes(record)
    return {"input_tensor": lambda: gradient - directml.element_wise_exp(record.result()) * total(gradient, axes)}


def _softmax_axes(record: Any) -> Sequence[int]:
    return getattr(record.desc, "axes", None) or (record["input_tensor"].ndim - 1,)


# ---- products --------------------------------------------------------------------------------------------------------


@rule("GEMM")
def _gemm(record: Any, gradient: Any) -> Gradients:
    a, b, desc = record["a_tensor"], record["b_tensor"], record.desc
    turned, plain = MatrixTransform.TRANSPOSE, MatrixTransform.NONE
    a_turned, b_turned = desc.trans_a is turned, desc.trans_b is turned

    def product(left: Any, right: Any, trans_a: bool, trans_b: bool) -> Any:
        ways = {"trans_a": turned if trans_a else plain, "trans_b": turned if trans_b else plain}
        return directml.gemm(left, right, **ways, alpha=desc.alpha, beta=0.0)

    return {
        "a_tensor": lambda: (
            product(b, gradient, b_turned, True) if a_turned else product(gradient, b, False, not b_turned)
        ),
        "b_tensor": lambda: (
            product(gradient, a, True, a_turned) if b_turned else product(a, gradient, not a_turned, False)
        ),
        "c_tensor": lambda: times(gradient, desc.beta),
    }


@rule("CONVOLUTION")
def _convolution(record: Any, gradient: Any) -> Gradients:
    desc, x, filters = record.desc, record["input_tensor"], record["filter_tensor"]
    is_forward = desc.direction is ConvolutionDirection.FORWARD
    steps = named(desc, "strides", "dilations", "start_padding", "end_padding", "group_count", "mode")
    spatial = tuple(slice(size) for size in x.sizes[2:])

    def of_input() -> Any:
        if not is_forward:
            result = directml.convolution(gradient, filters, direction=ConvolutionDirection.FORWARD, **steps)
            return result[(slice(None), slice(None), *spatial)]
        reached = [
            stride * (count - 1) + dilation * (window - 1) + 1 - start - end
            for stride, count, dilation, window, start, end in zip(
                desc.strides, gradient.sizes[2:], desc.dilations, filters.sizes[2:], desc.start_padding,
                desc.end_padding, strict=True,
            )
        ]  # fmt: skip
        missing = tuple(size - reach for size, reach in zip(x.sizes[2:], reached, strict=True))
        return directml.convolution(
            gradient, filters, direction=ConvolutionDirection.BACKWARD, output_padding=missing, **steps
        )

    image, small = (x, gradient) if is_forward else (gradient, x)
    return {
        "input_tensor": of_input,
        "filter_tensor": lambda: filter_gradient(image, small, filters.sizes, **steps),
        "bias_tensor": lambda: gradient,
    }


def filter_gradient(
    image: Any,
    small: Any,
    sizes: Sequence[int],
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    start_padding: Sequence[int],
    end_padding: Sequence[int],
    group_count: int,
    mode: ConvolutionMode = ConvolutionMode.CROSS_CORRELATION,
) -> Any:
    """Return the gradient of filters: the convolution of images by gradients with channels and batch exchanged, and
    strides and dilations exchanged."""
    batch, channels = image.sizes[:2]
    rank = image.ndim - 2
    spatial = range(3, 3 + rank)
    grouped = image.reshape(batch, group_count, channels // group_count, *image.sizes[2:]).transpose(2, 1, 0, *spatial)
    result = directml.convolution(
        grouped.reshape(channels // group_count, group_count * batch, *image.sizes[2:]),
        small.transpose(1, 0, *range(2, 2 + rank)),
        strides=dilations,
        dilations=strides,
        start_padding=start_padding,
        end_padding=end_padding,
        group_count=group_count,
    )
    result = result.transpose(1, 0, *range(2, 2 + rank))
    result = result[(slice(None), slice(None), *(slice(size) for size in sizes[2:]))]
    return result.flip(tuple(range(2, 2 + rank))) if mode is ConvolutionMode.CONVOLUTION else result


# ---- pooling, pictures -----------------------------------------------------------------------------------------------

_WINDOW = "strides", "window_size", "start_padding", "end_padding"


@rule("AVERAGE_POOLING", "AVERAGE_POOLING1")
def _average_pooling(record: Any, gradient: Any) -> Gradients:
    options = named(record.desc, *_WINDOW, "include_padding")
    return {"input_tensor": lambda: _average_pooling_grad(record, gradient, options)}


def _average_pooling_grad(record: Any, gradient: Any, options: Mapping[str, Any]) -> Any:
    if any(dilation != 1 for dilation in getattr(record.desc, "dilations", ())):
        raise record.rejection(" with dilations")
    return directml.average_pooling_grad(gradient, **options, output_sizes=record["input_tensor"].sizes)


@rule("LP_POOLING", "LP_POOLING1", wide=True)
def _lp_pooling(record: Any, gradient: Any) -> Gradients:
    x, y, p = record["input_tensor"], record.result(), record.desc.p
    count = math.prod(record.desc.window_size)

    def compute() -> Any:
        shares = where(y > 0, gradient * y ** float(1 - p), 0.0) * float(count)
        spread = _average_pooling_grad(record, shares, {**named(record.desc, *_WINDOW), "include_padding": True})
        return spread * directml.element_wise_sign(x) * abs(x) ** float(p - 1)

    return {"input_tensor": compute}


@rule("MAX_POOLING", "MAX_POOLING1", "MAX_POOLING2")
def _max_pooling(record: Any, gradient: Any, _: Any = None) -> Gradients:
    options = named(record.desc, *_WINDOW)
    options["dilations"] = getattr(record.desc, "dilations", (1,) * len(record.desc.strides))
    return {"input_tensor": lambda: directml.max_pooling_grad(record["input_tensor"], gradient, **options)}


@rule("AVERAGE_POOLING_GRAD")
def _average_pooling_grad_rule(record: Any, gradient: Any) -> Gradients:
    options = named(record.desc, *_WINDOW, "include_padding")
    return {"input_gradient_tensor": lambda: directml.average_pooling(gradient, **options)}


@rule("RESAMPLE", "RESAMPLE1", "RESAMPLE2", "RESAMPLE3")
def _resample(record: Any, gradient: Any) -> Gradients:
    desc, rank = record.desc, gradient.ndim
    options = named(desc, "interpolation_mode", "scales")
    options["input_pixel_offsets"] = getattr(desc, "input_pixel_offsets", (0.5,) * rank)
    options["output_pixel_offsets"] = getattr(desc, "output_pixel_offsets", (-0.5,) * rank)
    grad = directml.resample_grad
    if hasattr(desc, "rounding_direction"):
        grad, options["rounding_direction"] = directml.resample_grad1, desc.rounding_direction
    if getattr(desc, "antialiased", False):
        raise record.rejection(" with antialiasing")
    return {"input_tensor": lambda: grad(gradient, **options, output_sizes=record["input_tensor"].sizes)}


@rule("UPSAMPLE_2D")
def _upsample(record: Any, gradient: Any) -> Gradients:
    if record.desc.interpolation_mode is not InterpolationMode.NEAREST_NEIGHBOR:
        raise record.rejection(" with linear interpolation")
    batch, channels, height, width = record["input_tensor"].sizes
    down, across = gradient.sizes[-2] // height, gradient.sizes[-1] // width
    blocks = gradient.reshape(batch * channels, height, down, width, across)
    return {"input_tensor": lambda: total(blocks, (2, 4)).reshape(batch, channels, height, width)}


@rule("ROI_ALIGN1")
def _roi_align(record: Any, gradient: Any) -> Gradients:
    names = (
        "reduction_function", "interpolation_mode", "spatial_scale_x", "spatial_scale_y", "input_pixel_offset",
        "output_pixel_offset", "minimum_samples_per_output", "maximum_samples_per_output", "align_regions_to_corners",
    )  # fmt: skip
    fields = ("roi_tensor", "batch_indices_tensor")

    def compute() -> Any:
        x = record["input_tensor"]
        is_mean = record.desc.reduction_function is ReduceFunction.AVERAGE
        options = {**named(record.desc, *names), "output_sizes": x.sizes}
        operands = [record[field] for field in fields]
        return directml.roi_align_grad(gradient, *operands, None if is_mean else x, **options).output_gradient

    def rejected() -> Any:
        raise record.rejection(" for its regions")

    return {"input_tensor": compute, "roi_tensor": rejected}


# ---- normalization ---------------------------------------------------------------------------------------------------


@rule("MEAN_VARIANCE_NORMALIZATION", "MEAN_VARIANCE_NORMALIZATION1", "MEAN_VARIANCE_NORMALIZATION2", wide=True)
def _mean_variance_normalization(record: Any, gradient: Any) -> Gradients:
    desc, x, scale = record.desc, record["input_tensor"], record["scale_tensor"]
    axes = getattr(desc, "axes", None)
    if axes is None:
        axes = (1, 2, 3) if desc.cross_channel else (2, 3)
    use_mean = getattr(desc, "use_mean", True)
    use_variance = desc.use_variance if hasattr(desc, "use_variance") else desc.normalize_variance

    @functools.cache
    def normalized() -> tuple[Any, Any]:
        """Return the normalized elements and the reciprocal of the standard deviation."""
        centered = x - mean(x, axes) if use_mean else x
        if not use_variance:
            return centered, 1.0
        inverse = (mean(centered * centered, axes) + desc.epsilon) ** -0.5
        return centered * inverse, inverse

    def of_input() -> Any:
        values, inverse = normalized()
        scaled = gradient if scale is None else gradient * scale
        result = scaled - mean(scaled, axes) if use_mean else scaled
        return (result - values * mean(scaled * values, axes)) * inverse if use_variance else result

    return {
        "input_tensor": of_input,
        "scale_tensor": lambda: gradient * normalized()[0],
        "bias_tensor": lambda: gradient,
    }


@rule("BATCH_NORMALIZATION", wide=True)
def _batch_normalization(record: Any, gradient: Any) -> Gradients:
    x, mean, variance, scale = (record[f"{name}_tensor"] for name in ("input", "mean", "variance", "scale"))
    epsilon = record.desc.epsilon

    def inverse() -> Any:
        return (variance + epsilon) ** -0.5

    return {
        "input_tensor": lambda: gradient * (scale * inverse()),
        "mean_tensor": lambda: -(gradient * (scale * inverse())),
        "variance_tensor": lambda: gradient * (x - mean) * (scale * inverse() ** 3.0) * -0.5,
        "scale_tensor": lambda: gradient * (x - mean) * inverse(),
        "bias_tensor": lambda: gradient,
    }


@rule("BATCH_NORMALIZATION_TRAINING", wide=True)
def _batch_normalization_training(record: Any, gradient: Any, of_mean: Any, of_variance: Any) -> Gradients:
    x, scale, mean, variance = record["input_tensor"], record["scale_tensor"], record.result(1), record.result(2)
    count = x.size // scale.size

    @functools.cache
    def gradients() -> Any:
        passed = filled(x, x.sizes) if gradient is None else gradient
        return directml.batch_normalization_training_grad(x, passed, mean, variance, scale, epsilon=record.desc.epsilon)

    def of_input() -> Any:
        result = gradients().output_gradient
        if of_mean is not None:
            result = result + of_mean * (1 / count)
        return result if of_variance is None else result + (x - mean) * of_variance * (2 / count)

    return {
        "input_tensor": of_input,
        "scale_tensor": lambda: gradients().output_scale_gradient,
        "bias_tensor": lambda: gradients().output_bias_gradient,
        "fused_add_tensor": lambda: gradient,
    }


@rule("LOCAL_RESPONSE_NORMALIZATION")
def _local_response_normalization(record: Any, gradient: Any) -> Gradients:
    options = named(record.desc, "cross_channel", "local_size", "alpha", "beta", "bias")
    compute = directml.local_response_normalization_grad
    return {"input_tensor": lambda: compute(record["input_tensor"], gradient, **options)}


@rule("LP_NORMALIZATION", wide=True)
def _lp_normalization(record: Any, gradient: Any) -> Gradients:
    desc = record.desc
    function = ReduceFunction.L1 if desc.p == 1 else ReduceFunction.L2

    def normalized(x: Any) -> list[Any]:
        norm = directml.reduce(x, function=function, axes=(desc.axis,))
        return [x / directml.element_wise_max(norm, float(desc.epsilon))]

    return decomposed(record, ["input_tensor"], normalized, [gradient])


# ---- attention -------------------------------------------------------------------------------------------------------


@rule("MULTIHEAD_ATTENTION")
def _attention(record: Any, gradient: Any, *others: Any) -> Gradients:
    """Differentiate attention as products and a softmax."""
    fields = ["query_tensor", "key_tensor", "value_tensor", "relative_position_bias_tensor"]
    extra = [field for field in record.kind.input_fields if record[field] is not None and field not in fields]
    if extra or any(other is not None for other in others) or any(record[field] is None for field in fields[:3]):
        names = ", ".join(extra) or "other outputs"
        raise record.rejection(f" with {names}; only query, key, value and relative_position_bias have one")
    desc = record.desc
    fields = [field for field in fields if record[field] is not None]

    def by_head(x: Any) -> Any:
        batch, rows, size = x.sizes[-3:]
        return x.reshape(batch, rows, desc.head_count, size // desc.head_count).transpose(0, 2, 1, 3)

    def attention(query: Any, key: Any, value: Any, bias: Any = None) -> list[Any]:
        scores = (by_head(query) @ by_head(key).transpose(0, 1, 3, 2)) * desc.scale
        if bias is not None:
            scores = scores + bias.reshape(bias.sizes[-4:])
        weights = directml.activation_softmax1(scores, axes=(3,))
        return [(weights @ by_head(value)).transpose(0, 2, 1, 3).reshape(gradient.sizes)]

    return decomposed(record, fields, attention, [gradient])
