"""DirectMLX's functions under its names, in snake_case: the newest version of each operator, with defaults.

    from dmlgpu import directmlx as dml

    y = dml.max_pooling(dml.activation_relu(dml.convolution(x, filter, bias)), (2, 2), strides=(2, 2)).output

Each is a function of ``ops.directml``, with DirectMLX's parameters in DirectMLX's order; the other parameters are
keywords as there. Activations are fused by description: ``convolution(...,
fused_activation=descs.ActivationRelu())``. Graphs follow DirectMLX's rules by default; see ``Graph``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from dmlgpu.catalog.enums import AxisDirection, InterpolationMode
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias
from dmlgpu.tensors import directml
from dmlgpu.tensors.calls import Array, Operand
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike

_ELEMENT_WISE = """
abs acos acosh asin asinh atan atan_yx atanh bit_and bit_count bit_not bit_or bit_shift_left bit_shift_right bit_xor
ceil cos cosh dequantize_linear difference_square divide erf exp floor identity is_nan log logical_and logical_not
logical_or logical_xor max mean min modulus_floor modulus_truncate multiply negate quantize_linear recip sign sin sinh
sqrt subtract tan tanh
"""
"""Names of ELEMENT_WISE operators without that beginning."""

_SAME = """
activation_celu activation_elu activation_gelu activation_hard_sigmoid activation_identity activation_leaky_relu
activation_parameterized_relu activation_parametric_softplus activation_relu activation_scaled_elu
activation_scaled_tanh activation_shrink activation_sigmoid activation_softplus activation_softsign activation_tanh
activation_thresholded_relu batch_normalization batch_normalization_grad batch_normalization_training
batch_normalization_training_grad convolution convolution_integer cumulative_product cumulative_summation dequantize
gather gather_elements gemm gru local_response_normalization quantized_linear_convolution reverse_subsequences
roi_align_grad scatter_elements scatter_nd upsample_2d value_scale_2d
"""
"""Names of the operators themselves."""

_OTHERS = {
    "clip_grad": "element_wise_clip_grad1",
    "equals": "element_wise_logical_equals",
    "gather_nd": "gather_nd1",
    "greater_than": "element_wise_logical_greater_than",
    "greater_than_or_equal": "element_wise_logical_greater_than_or_equal",
    "if_": "element_wise_if",
    "less_than": "element_wise_logical_less_than",
    "less_than_or_equal": "element_wise_logical_less_than_or_equal",
    "mean_variance_normalization": "mean_variance_normalization2",
    "non_zero_coordinates": "nonzero_coordinates",
    "resample_grad": "resample_grad1",
    "roi_align": "roi_align1",
}
"""Operators by other names."""

_WINDOW = "input, window_size, strides, start_padding, end_padding, dilations"

_POSITIONAL = {
    "activation_linear": ("activation_linear", "input, alpha, beta"),
    "average_pooling": ("average_pooling1", f"{_WINDOW}, include_padding=False"),
    "cast": ("cast", "input, data_type: output_type"),
    "clip": ("element_wise_clip1", "input, min, max, scale_bias"),
    "depth_to_space": ("depth_to_space1", "input, block_size, order"),
    "fill_value_constant": (
        "fill_value_constant",
        "graph, sizes: output_sizes, data_type: value_data_type, value",
    ),
    "fill_value_sequence": (
        "fill_value_sequence",
        "graph, sizes: output_sizes, data_type: value_data_type, start: value_start, delta: value_delta",
    ),
    "is_infinity": ("element_wise_is_infinity", "input, mode: infinity_mode"),
    "join": ("join", "inputs, axis"),
    "max_pooling": ("max_pooling2", f"{_WINDOW}, output_indices=False"),
    "padding": ("padding1", "input, mode: padding_mode, value: padding_value, start_padding, end_padding"),
    "random_generator": ("random_generator", "input_state, sizes: output_sizes, output_state"),
    "reduce": ("reduce", "input, function, axes, output_type"),
    "round": ("element_wise_round", "input, mode: rounding_mode"),
    "slice": (
        "slice1",
        "input, offsets: input_window_offsets, sizes: input_window_sizes, strides: input_window_strides",
    ),
    "slice_grad": (
        "slice_grad",
        "input_gradient, output_sizes, offsets: input_window_offsets, sizes: input_window_sizes, "
        "strides: input_window_strides",
    ),
    "space_to_depth": ("space_to_depth1", "input, block_size, order"),
    "threshold": ("element_wise_threshold", "input, min, scale_bias"),
    "tile": ("tile", "input, repeats"),
    "top_k": ("top_k1", "input, axis, k, axis_direction=AxisDirection.DECREASING"),
}
"""Operators whose parameters come by position: the function, and its parameters, ``name: name there`` if these differ.

DirectMLX's ``top_k`` puts the size ``k`` on the last dimension; here it is on the axis.
"""

_DEFAULTS = {"False": False, "AxisDirection.DECREASING": AxisDirection.DECREASING}

_NAMES = {
    **{name: f"element_wise_{name}" for name in _ELEMENT_WISE.split()},
    **{name: name for name in _SAME.split()},
    **_OTHERS,
}


def _positional(name: str, stem: str, listed: str) -> Callable[..., Any]:
    """Return a function with the listed parameters in order, then those that are left, by keyword."""
    function = getattr(directml, stem)
    original = inspect.signature(function)
    left = dict(original.parameters)
    parameters, targets = [], {}
    for entry in listed.split(", "):
        text, _, default = entry.partition("=")
        own, _, target = text.partition(": ")
        parameter = left.pop(target or own).replace(name=own, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters.append(parameter.replace(default=_DEFAULTS[default]) if default else parameter)
        targets[own] = target or own
    is_required = False
    for place, parameter in reversed(list(enumerate(parameters))):  # what stands before a required one is required, too
        is_required = is_required or parameter.default is inspect.Parameter.empty
        if is_required:
            parameters[place] = parameter.replace(default=inspect.Parameter.empty)
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in left.values()]
    signature = original.replace(parameters=[*parameters, *keywords])

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return function(**{targets.get(own, own): value for own, value in bound.arguments.items()})

    call.__name__ = call.__qualname__ = name
    call.__doc__ = function.__doc__
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = getattr(directml, _NAMES[name])
    elif name in _POSITIONAL:
        value = _positional(name, *_POSITIONAL[name])
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, value)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_POSITIONAL})


# ---- more than another order of parameters ---------------------------------------------------------------------------


def add(a: Operand, b: Operand, fused_activation: OperatorDesc | str | None = None) -> Array:
    """ELEMENT_WISE_ADD, or with an activation ELEMENT_WISE_ADD1."""
    if fused_activation is None:
        return directml.element_wise_add(a, b)
    return directml.element_wise_add1(a, b, fused_activation=fused_activation)


def pow(input: Operand, exponent: Operand, scale_bias: ScaleBias | None = None) -> Array:
    """ELEMENT_WISE_POW, or with a number ELEMENT_WISE_CONSTANT_POW."""
    if isinstance(exponent, int | float):
        return directml.element_wise_constant_pow(input, exponent=exponent, scale_bias=scale_bias)
    return directml.element_wise_pow(input, exponent, scale_bias=scale_bias)


def activation_softmax(input: Operand, axes: Sequence[int] | None = None) -> Array:
    """ACTIVATION_SOFTMAX1 over axes; without them ACTIVATION_SOFTMAX."""
    return directml.activation_softmax(input) if axes is None else directml.activation_softmax1(input, axes=axes)


def activation_log_softmax(input: Operand, axes: Sequence[int] | None = None) -> Array:
    """ACTIVATION_LOG_SOFTMAX1 over axes; without them ACTIVATION_LOG_SOFTMAX."""
    if axes is None:
        return directml.activation_log_softmax(input)
    return directml.activation_log_softmax1(input, axes=axes)


def activation_hardmax(input: Operand, axes: Sequence[int] | None = None) -> Array:
    """ACTIVATION_HARDMAX1 over axes; without them ACTIVATION_HARDMAX."""
    return directml.activation_hardmax(input) if axes is None else directml.activation_hardmax1(input, axes=axes)


def split(input: Any, axis: int, sizes: Sequence[int]) -> tuple[Array, ...]:
    """SPLIT into pieces with these sizes along an axis."""
    before, after = input.shape[:axis], input.shape[axis + 1 :]
    return directml.split(input, axis=axis, output_sizes=[(*before, size, *after) for size in sizes])


def one_hot(indices: Any, values: Operand, output_length: int, axis: int) -> Array:
    """ONE_HOT: along an axis of that length, ``values[1]`` where an index says and ``values[0]`` elsewhere."""
    sizes = (*indices.shape[:axis], output_length, *indices.shape[axis + 1 :])
    return directml.one_hot(indices, values, axis=axis, output_sizes=sizes)


def reinterpret(
    input: Tensor, data_type: TypeLike, sizes: Sequence[int], strides: Sequence[int] | None = None
) -> Tensor:
    """Return the same bytes with another type, sizes and strides; see ``Tensor.reinterpret``."""
    return input.reinterpret(sizes, strides, data_type)


def resample(
    input: Any,
    output_sizes: Sequence[int] | None,
    mode: InterpolationMode,
    rounding_direction: AxisDirection = AxisDirection.INCREASING,
    scales: Sequence[float] | None = None,
    input_pixel_offsets: Sequence[float] | None = None,
    output_pixel_offsets: Sequence[float] | None = None,
    antialiased: bool = False,
) -> Array:
    """RESAMPLE3 to sizes, or by scales where these are given; pixels lie at their centres unless offsets say otherwise.

    NEAREST_NEIGHBOR takes the nearest element where no input offsets are given, of two equally near ones the first for
    INCREASING, else the second. (DirectMLX's offsets of 0.5 round up or down instead.)
    """
    if input_pixel_offsets is None and mode is InterpolationMode.NEAREST_NEIGHBOR:
        half = 1.0 if rounding_direction is AxisDirection.INCREASING else 0.0
        input_pixel_offsets = (half,) * input.ndim
    return directml.resample3(
        input,
        interpolation_mode=mode,
        rounding_direction=rounding_direction,
        scales=scales,
        input_pixel_offsets=input_pixel_offsets,
        output_pixel_offsets=output_pixel_offsets,
        antialiased=antialiased,
        output_sizes=output_sizes,
    )
