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
from dmlgpu.catalog.functions import DIRECTMLX_NAMES, DIRECTMLX_PARAMETERS, listed_parameters
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias
from dmlgpu.tensors import directml
from dmlgpu.tensors.calls import Array, Operand
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike

_DEFAULTS = {"False": False, "AxisDirection.DECREASING": AxisDirection.DECREASING}


def _positional(name: str, stem: str, listed: str) -> Callable[..., Any]:
    """Return a function with the listed parameters by position and the others by keyword."""
    function = getattr(directml, stem)
    original = inspect.signature(function)
    left = dict(original.parameters)
    parameters, targets = [], {}
    for own, target, default in listed_parameters(listed):
        parameter = left.pop(target).replace(name=own, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters.append(parameter.replace(default=_DEFAULTS[default]) if default else parameter)
        targets[own] = target
    is_required = False
    for place, parameter in reversed(list(enumerate(parameters))):  # parameters before a required one are required, too
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
    if name in DIRECTMLX_NAMES:
        value = getattr(directml, DIRECTMLX_NAMES[name])
    elif name in DIRECTMLX_PARAMETERS:
        value = _positional(name, *DIRECTMLX_PARAMETERS[name])
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, value)


def __dir__() -> list[str]:
    return sorted({*globals(), *DIRECTMLX_NAMES, *DIRECTMLX_PARAMETERS})


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
    """ONE_HOT: along an axis of that length, ``values[1]`` at each index and ``values[0]`` elsewhere."""
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
    """RESAMPLE3 to sizes, or by scales if they are passed; pixels are sampled at their centers by default.

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
