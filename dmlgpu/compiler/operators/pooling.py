"""Operators that average or take norms over what a sliding window sees, and what ``max_pooling`` shares with them.

Each is a reduction over virtual windows (kernels/windows.py), however large these are, between maps over positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler.operators.lowering import Lowering, check_padded, check_sizes, input_tensor, invalid, output_tensor
from dmlgpu.compiler.operators.parameters import DIFFERENCE, check_per_channel, difference, no_zero_point, per_channel
from dmlgpu.compiler.operators.quantization import limits
from dmlgpu.compiler.plan import Body, Element, Map, Plan, Reduction, Source, Tensor, apply, constants, element
from dmlgpu.compiler.plan.windows import Sizes, Windows, positions_of, sizes_of, windows_over
from dmlgpu.compiler.rewrites.windows import covering, reduced, taken, temporary

FLOAT32, INT32, UINT32 = DataType.FLOAT32, DataType.INT32, DataType.UINT32
SAFE_POWER_OF_HALVES = 5
"""The 5th powers of all halves, and their sums, are normal numbers of float32."""
LEAD = 2
"""Batch and channel come before the spatial dimensions."""

MOST_PLACES = 1 << 20
"""Elements that a window may have although the input has fewer: beyond them a description asks for work without end
on nothing but padding."""

AVERAGE = "pooling/average"
SUM = Reduction("reduction/reduce_sum_float", FLOAT32, 2, portable=True)


# ---- windows of a description


def _windows(desc: Any, spatial: Sizes) -> Windows:
    """Return how the window slides over an input; without dilations they are 1."""
    dilations = getattr(desc, "dilations", (1,) * len(desc.window_size))
    return windows_over(
        spatial,
        size=desc.window_size,
        strides=desc.strides,
        dilations=dilations,
        start=desc.start_padding,
        end=desc.end_padding,
    )


class Pooling(Lowering):
    """What all share. Tensors are {N, C, spatial..}; every position of the window must see at least one element of the
    input, as onnxruntime demands too (the pages are silent). A window of more than 2^20 elements must not have more
    than the input has in its spatial dimensions.

    Class attributes:
        whole, pooled: the fields of the tensors before and after pooling.
    """

    folder = "pooling"
    whole: ClassVar[str] = "input_tensor"
    pooled: ClassVar[str] = "output_tensor"

    @classmethod
    def windows(cls, desc: Any) -> Windows:
        """Return how the window slides."""
        return _windows(desc, getattr(desc, cls.whole).sizes[LEAD:])

    @classmethod
    def pooled_sizes(cls, desc: Any) -> Sizes:
        """Return batch, channels, and how many positions the window has."""
        whole: Sizes = getattr(desc, cls.whole).sizes
        return whole[:LEAD] + positions_of(cls.windows(desc))

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, Sizes]:
        """None for a gradient: several inputs have the pooled sizes."""
        return {cls.pooled: cls.pooled_sizes(desc)} if cls.pooled in desc.output_fields else {}

    @classmethod
    def check(cls, desc: Any) -> None:
        whole = getattr(desc, cls.whole)
        for field in ("strides", "window_size", "dilations", "start_padding", "end_padding"):
            _check_attribute(desc, field, whole.dimension_count - LEAD, cls.whole)
        windows = cls.windows(desc)
        for number, axis in enumerate(windows):
            _check_axis(desc, cls.whole, number, axis.positions, axis.reach)
        check_padded(
            desc, [axis.spatial + axis.start + end for axis, end in zip(windows, desc.end_padding, strict=True)]
        )
        _check_places(desc, cls.whole, whole.sizes[LEAD:])
        expected = cls.pooled_sizes(desc)
        check_sizes(desc, cls.pooled, expected, f"what {cls.whole}, window_size, strides and padding give")
        for number, axis in enumerate(windows):
            if axis.first_empty is not None:
                where = f"start_padding[{number}], end_padding[{number}]"
                reason = "must leave every window an element of the input, but at position"
                raise invalid(desc, where, f"{reason} {axis.first_empty} there is none")


def _check_attribute(desc: Any, field: str, count: int, whole: str) -> None:
    """Raise InvalidDescription unless there is one entry per spatial dimension, and sizes and steps are at least 1."""
    values = getattr(desc, field, None)
    if values is None:
        return
    if len(values) != count:
        reason = f"must have one entry per spatial dimension of {whole} ({count}), got {len(values)}"
        raise invalid(desc, field, reason)
    for number, value in enumerate(values):
        if value < 1 and not field.endswith("padding"):
            raise invalid(desc, f"{field}[{number}]", f"must be at least 1, got {value}")


def _check_axis(desc: Any, whole: str, number: int, positions: int, reach: int) -> None:
    if positions < 1:
        size = getattr(desc, whole).sizes[LEAD + number]
        padded = size + desc.start_padding[number] + desc.end_padding[number]
        reason = f"must reach no further than the padded input ({padded}), but it reaches over {reach}"
        raise invalid(desc, f"window_size[{number}]", reason)


def _check_places(desc: Any, whole: str, spatial: Sizes) -> None:
    """Raise InvalidDescription for a window that is large for its padding alone, all of which is walked through."""
    places, most = math.prod(desc.window_size), max(MOST_PLACES, math.prod(spatial))
    if places > most:
        reason = f"must have at most {most} elements, {MOST_PLACES} or as many as {whole} has in space, got {places}"
        raise invalid(desc, "window_size", reason)


class Undilated(Lowering):
    """An older operator without dilations: they are 1."""

    newer: ClassVar[type[OperatorDesc]]

    @classmethod
    def upgrade(cls, desc: Any) -> OperatorDesc:
        return cls.newer(**desc.values, dilations=(1,) * len(desc.window_size))


# ---- parts of plans


# ---- averages


def _divisor(desc: Any, windows: Windows, divided: str) -> dict[str, Any]:
    """Return the constants of a body that divides: by all places of the window, or by those on the input."""
    counted = not desc.include_padding and any(
        len(axis.inside(position)) < axis.size for axis in windows for position in (0, axis.positions - 1)
    )
    return {
        "lead": LEAD,
        "axes": windows,
        "counted": counted,
        "count": math.prod(sizes_of(windows)),
        "divided": divided,
    }


def _average(desc: Any, sums: Tensor, windows: Windows, data_type: DataType) -> Body:
    """Return sums divided by what counts, which may differ from position to position."""
    values = constants(**_divisor(desc, windows, "output"))
    return element(AVERAGE, data_type, sums.sizes, portable=True, values=values, sums=sums)


class AveragePooling1(Pooling):
    """Sums in float32 that keep their rounding errors, divided once."""

    desc = descs.AveragePooling1
    shaders = (AVERAGE, "window/taken")

    @classmethod
    def lower(cls, desc: descs.AveragePooling1) -> Plan:
        windows, output = cls.windows(desc), output_tensor(desc)
        seen, axes = taken(input_tensor(desc, "input_tensor"), windows), len(windows)
        sums = temporary(seen, FLOAT32, axes)
        average = Map("average", _average(desc, sums, windows, output.data_type), output)
        return Plan(desc.operator, (reduced(SUM, seen, sums, axes), average))


class AveragePooling(Undilated):
    """AVERAGE_POOLING1 without dilations."""

    desc = descs.AveragePooling
    newer = descs.AveragePooling1


class AveragePoolingGrad(Pooling):
    """Each element of the output's gradient adds up its shares of the positions whose windows see it."""

    desc = descs.AveragePoolingGrad
    whole = "output_gradient_tensor"
    pooled = "input_gradient_tensor"

    @classmethod
    def lower(cls, desc: descs.AveragePoolingGrad) -> Plan:
        """A reduction over the positions that may cover an element."""
        windows, gradient = cls.windows(desc), input_tensor(desc, "input_gradient_tensor")
        shape = covering(gradient, windows)
        values = constants(**_divisor(desc, windows, "gradient"))
        inputs = (("gradient", gradient),)
        shares = Element(cls.shaders[0], FLOAT32, shape.sizes, inputs, values, portable=True, follows=shape.follows)
        output = output_tensor(desc, "output_gradient_tensor")
        return Plan(desc.operator, (reduced(SUM, shares, output, len(windows)),))


# ---- norms


class LpPooling1(Pooling):
    """(sum of |x|^p)^(1/p), in float32. Padding adds 0. The absolute value is taken for odd p too, as onnxruntime does
    (the page prints none). A p of 0 is refused.

    No norm overflows or underflows before its result does: squares are taken in units that fit, and for p from 3 on
    elements are divided by the largest one of their window first, but for halves up to the 5th power, which float32
    holds.
    """

    desc = descs.LpPooling1
    shaders = (
        "pooling/power",
        "pooling/root",
        "elementwise/element_wise_abs",
        "reduction/reduce_max",
        "reduction/reduce_l1_float",
        "reduction/reduce_l2",
        "window/taken",
    )

    norms: ClassVar[Mapping[int, Reduction]] = {
        1: Reduction("reduction/reduce_l1_float", FLOAT32, 2, portable=True),
        2: Reduction("reduction/reduce_l2", FLOAT32, 4, portable=True),
    }

    @classmethod
    def check(cls, desc: Any) -> None:
        super().check(desc)
        if desc.p < 1:
            raise invalid(desc, "p", f"must be at least 1, got {desc.p}")

    @classmethod
    def lower(cls, desc: descs.LpPooling1) -> Plan:
        """One reduction for p = 1 and 2; else the largest elements where needed, sums of powers, and their roots."""
        windows, output = cls.windows(desc), output_tensor(desc)
        seen, axes = taken(input_tensor(desc, "input_tensor"), windows), len(windows)
        if desc.p in cls.norms:
            return Plan(desc.operator, (reduced(cls.norms[desc.p], seen, output, axes),))
        power, root, size, maximum, *_ = cls.shaders
        is_safe = output.data_type is DataType.FLOAT16 and desc.p <= SAFE_POWER_OF_HALVES
        values, steps = constants(p=desc.p, scaled=not is_safe), []
        scale: dict[str, Tensor] = {}
        repeated_scale: dict[str, Tensor] = {}
        if not is_safe:
            largest = temporary(seen, FLOAT32, axes)
            sizes = apply(size, FLOAT32, seen.sizes, portable=True, input=seen)
            steps.append(reduced(Reduction(maximum, FLOAT32, 1, portable=True), sizes, largest, axes))
            scale = {"largest": largest}
            strides = largest.strides + (0,) * axes
            repeated_scale = {"largest": replace(largest, sizes=seen.sizes, strides=strides)}
        powers = apply(power, FLOAT32, seen.sizes, portable=True, values=values, input=seen, **repeated_scale)
        sums = temporary(seen, FLOAT32, axes)
        roots = apply(root, output.data_type, output.sizes, portable=True, values=values, input=sums, **scale)
        return Plan(desc.operator, (*steps, reduced(SUM, powers, sums, axes), Map("root", roots, output)))


class LpPooling(Undilated):
    """LP_POOLING1 without dilations."""

    desc = descs.LpPooling
    newer = descs.LpPooling1


# ---- quantised averages


class QuantizedLinearAveragePooling(Pooling):
    """clamp(round(average * scale of the input / scale of the output) + zero point of the output).

    The sum of the elements less their zero point is exact, in INT32; average and quotient are computed in float32, one
    step after the other, rounded to an integer once, halves to even, and the zero point added in integers (the page is
    silent). So a product of average and scale beyond float32 is infinite and saturates; NaN counts as 0, as in all
    quantization. A missing zero point is 0. Scales and zero points come one for all or one per channel.
    """

    desc = descs.QuantizedLinearAveragePooling
    shaders = ("pooling/quantized_linear_average_pooling", AVERAGE, DIFFERENCE, "window/taken")
    parameters: ClassVar[tuple[str, ...]] = (
        "input_scale_tensor",
        "input_zero_point_tensor",
        "output_scale_tensor",
        "output_zero_point_tensor",
    )

    @classmethod
    def check(cls, desc: Any) -> None:
        super().check(desc)
        for field in cls.parameters:
            check_per_channel(desc, field, desc.input_tensor.sizes[1])

    @classmethod
    def lower(cls, desc: descs.QuantizedLinearAveragePooling) -> Plan:
        windows, output = cls.windows(desc), output_tensor(desc)
        source = input_tensor(desc, "input_tensor")
        zero = _parameter(desc, "input_zero_point_tensor", source.sizes)
        seen, axes = taken(difference(source, zero, INT32), windows), len(windows)
        sums = temporary(seen, INT32, axes)
        total = reduced(Reduction("reduction/reduce_sum", INT32, 1, portable=False), seen, sums, axes)
        low, high = limits(output.data_type)
        body = apply(
            cls.shaders[0],
            output.data_type,
            output.sizes,
            portable=True,
            values=constants(compute=FLOAT32, low=low, high=high),
            average=_average(desc, sums, windows, FLOAT32),
            input_scale=_parameter(desc, "input_scale_tensor", output.sizes),
            scale=_parameter(desc, "output_scale_tensor", output.sizes),
            zero_point=_parameter(desc, "output_zero_point_tensor", output.sizes),
        )
        return Plan(desc.operator, (total, Map("quantize", body, output)))


def _parameter(desc: Any, field: str, sizes: Sizes) -> Source:
    """Repeat a scale or zero point over a tensor with channels; 0 where there is none."""
    return no_zero_point(sizes) if getattr(desc, field) is None else per_channel(input_tensor(desc, field), sizes)
