"""Operators on sliding windows: averages, norms, largest elements, columns; their gradients and inverses.

Each is a reduction over virtual windows (rewrites/windows.py), however large these are, between maps over positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.operators.lowering import (
    Lowering,
    check_padded,
    check_positive,
    check_sizes,
    input_tensor,
    invalid,
    output_tensor,
    windows_of,
)
from dmlgpu.compiler.operators.quantization import (
    DIFFERENCE,
    check_per_channel,
    difference,
    limits,
    no_zero_point,
    per_channel,
)
from dmlgpu.compiler.plan import (
    Body,
    Element,
    Map,
    Plan,
    PlanTensor,
    Pool,
    Reduction,
    RegisterValue,
    Scatter,
    Source,
    View,
    apply,
    constants,
    element,
    in_float32,
    portable,
)
from dmlgpu.compiler.plan.windows import Sizes, Windows, positions_of, sizes_of
from dmlgpu.compiler.rewrites.sources import cast
from dmlgpu.compiler.rewrites.windows import (
    MAX_POOLING,
    covering,
    largest_places,
    place_values,
    reduced,
    taken,
    taken_from_places,
    temporary,
)

FLOAT32, INT32, UINT32 = DataType.FLOAT32, DataType.INT32, DataType.UINT32
SAFE_POWER_OF_HALVES = 5
"""Exponent up to which powers of float16 numbers, and their sums, are normal numbers of float32."""
LEAD = 2
"""Number of dimensions before the spatial ones: batch and channel."""

MAX_PLACES = 1 << 20
"""Maximum elements of a window that is larger than the input; larger ones would iterate mostly over padding."""

AVERAGE, SHARE = "pooling/average", "pooling/share"
SUM = Reduction("reduction/reduce_sum_float", FLOAT32, 2, portable=True)


# ---- windows of a description


class Pooling(Lowering):
    """Base of all. Tensors are {N, C, spatial..}; every position of the window must see at least one element of the
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
        """Return the windows of a description."""
        return windows_of(desc, getattr(desc, cls.whole).sizes[LEAD:], desc.window_size)

    @classmethod
    def pooled_sizes(cls, desc: Any) -> Sizes:
        """Return batch, channels, and the number of positions of the window."""
        whole: Sizes = getattr(desc, cls.whole).sizes
        return whole[:LEAD] + positions_of(cls.windows(desc))

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, Sizes]:
        """Return no sizes for a gradient: several inputs have the same pooled sizes."""
        return {cls.pooled: cls.pooled_sizes(desc)} if cls.pooled in desc.output_fields else {}

    @classmethod
    def check(cls, desc: Any) -> None:
        windows = _checked_windows(desc, cls.whole, "window_size", "input")
        _check_places(desc, cls.whole, getattr(desc, cls.whole).sizes[LEAD:])
        expected = cls.pooled_sizes(desc)
        check_sizes(desc, cls.pooled, expected, f"what {cls.whole}, window_size, strides and padding give")
        for index, axis in enumerate(windows):
            if axis.first_empty is not None:
                where = f"start_padding[{index}], end_padding[{index}]"
                reason = "must leave every window an element of the input, but at position"
                raise invalid(desc, where, f"{reason} {axis.first_empty} there is none")


def _checked_windows(desc: Any, whole: str, size: str, padded: str) -> Windows:
    """Return windows over the spatial dimensions of a tensor, whose sizes another field has; check that they fit."""
    check_positive(desc, *(field for field in (size, "strides", "dilations") if hasattr(desc, field)))
    spatial = getattr(desc, whole).sizes[LEAD:]
    windows = windows_of(desc, spatial, getattr(desc, size))
    for index, axis in enumerate(windows):
        if axis.positions < 1:
            extent = axis.spatial + desc.start_padding[index] + desc.end_padding[index]
            reason = f"must reach no further than the padded {padded} ({extent}), but it reaches over {axis.reach}"
            raise invalid(desc, f"{size}[{index}]", reason)
    check_padded(desc, spatial)
    return windows


def _check_places(desc: Any, whole: str, spatial: Sizes) -> None:
    """Raise InvalidDescription for a window that is large only because of its padding, which kernels iterate over."""
    size, limit = math.prod(desc.window_size), max(MAX_PLACES, math.prod(spatial))
    if size > limit:
        reason = f"must have at most {limit} elements, {MAX_PLACES} or as many as {whole} has in space, got {size}"
        raise invalid(desc, "window_size", reason)


class Undilated(Lowering):
    """An older operator without dilations, which are 1."""

    newer: ClassVar[type[OperatorDesc]]

    @classmethod
    def upgrade(cls, desc: Any) -> OperatorDesc:
        return cls.newer(**desc.values, dilations=(1,) * len(desc.window_size))


# ---- parts of plans


# ---- averages


def _divisor(desc: Any, windows: Windows, divided: str) -> dict[str, Any]:
    """Return the constants of a body that divides by the size of the window, or its part on the input."""
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


def _average(desc: Any, sums: PlanTensor, windows: Windows, data_type: DataType) -> Body:
    """Return sums divided by element counts, which may differ between positions."""
    values = constants(**_divisor(desc, windows, "output"))
    return element(AVERAGE, data_type, sums.sizes, portable=True, values=values, sums=sums)


class AveragePooling1(Pooling):
    """Float32 sums with compensated rounding errors, divided once."""

    desc = descs.AveragePooling1
    shaders = (AVERAGE, SHARE, "window/taken")

    @classmethod
    def lower(cls, desc: descs.AveragePooling1) -> Plan:
        windows, output = cls.windows(desc), output_tensor(desc)
        seen, axes = taken(input_tensor(desc, "input_tensor"), windows), len(windows)
        divisor = _divisor(desc, windows, "output")
        # Float16 would be reduced word by word, which is slower than dividing the sums afterwards.
        if not divisor["counted"] and output.data_type is FLOAT32:
            mean = reduced(SUM, seen, output, axes)
            held = RegisterValue.product(FLOAT32, mean.output.sizes)
            share = apply(
                SHARE, output.data_type, held.sizes, portable=True, values=constants(count=divisor["count"]), input=held
            )
            return Plan(desc.operator, (replace(mean, epilogue=share),))
        sums = temporary(seen, FLOAT32, axes)
        average = Map("average", _average(desc, sums, windows, output.data_type), output)
        return Plan(desc.operator, (reduced(SUM, seen, sums, axes), average))


Undilated.older(descs.AveragePooling, descs.AveragePooling1, "AVERAGE_POOLING1 without dilations.")


class AveragePoolingGrad(Pooling):
    """Each element of the output's gradient is the sum of its shares of all windows that contain it."""

    desc = descs.AveragePoolingGrad
    whole = "output_gradient_tensor"
    pooled = "input_gradient_tensor"

    @classmethod
    def lower(cls, desc: descs.AveragePoolingGrad) -> Plan:
        """Lower to a reduction over the positions that may cover an element."""
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
    (the page prints none). A p of 0 is rejected.

    No norm overflows or underflows before its result does: squares are taken in units that fit, and for p from 3 on
    elements are divided by the largest one of their window first, but for float16 up to the 5th power, which float32
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
        check_positive(desc, "p")

    @classmethod
    def lower(cls, desc: descs.LpPooling1) -> Plan:
        """Lower to one reduction for p = 1 and 2; else to the largest elements if needed, sums of powers, and their
        roots."""
        windows, output = cls.windows(desc), output_tensor(desc)
        seen, axes = taken(input_tensor(desc, "input_tensor"), windows), len(windows)
        if desc.p in cls.norms:
            return Plan(desc.operator, (reduced(cls.norms[desc.p], seen, output, axes),))
        power, root, size, maximum, *_ = cls.shaders
        is_safe = output.data_type is DataType.FLOAT16 and desc.p <= SAFE_POWER_OF_HALVES
        values, steps = constants(p=desc.p, scaled=not is_safe), []
        scale: dict[str, PlanTensor] = {}
        repeated_scale: dict[str, PlanTensor] = {}
        if not is_safe:
            largest = temporary(seen, FLOAT32, axes)
            sizes = in_float32(size, seen.sizes, input=seen)
            steps.append(reduced(Reduction(maximum, FLOAT32, 1, portable=True), sizes, largest, axes))
            scale = {"largest": largest}
            strides = largest.strides + (0,) * axes
            repeated_scale = {"largest": replace(largest, sizes=seen.sizes, strides=strides)}
        powers = in_float32(power, seen.sizes, values=values, input=seen, **repeated_scale)
        sums = temporary(seen, FLOAT32, axes)
        roots = portable(root, output, values=values, input=sums, **scale)
        return Plan(desc.operator, (*steps, reduced(SUM, powers, sums, axes), Map("root", roots, output)))


Undilated.older(descs.LpPooling, descs.LpPooling1, "LP_POOLING1 without dilations.")


# ---- quantized averages


class QuantizedLinearAveragePooling(Pooling):
    """clamp(round(average * scale of the input / scale of the output) + zero point of the output).

    The sum of the elements less their zero point is exact, in INT32; average and quotient are computed in float32, step
    by step, rounded once to an integer with ties to even, and the zero point is added in integers (the page is silent).
    So a product of average and scale beyond float32 is infinite and saturates; NaN counts as 0, as in all quantization.
    A missing zero point is 0. Scales and zero points are per tensor or per channel.
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
        body = portable(
            cls.shaders[0],
            output,
            values=constants(compute=FLOAT32, low=low, high=high),
            average=_average(desc, sums, windows, FLOAT32),
            input_scale=_parameter(desc, "input_scale_tensor", output.sizes),
            scale=_parameter(desc, "output_scale_tensor", output.sizes),
            zero_point=_parameter(desc, "output_zero_point_tensor", output.sizes),
        )
        return Plan(desc.operator, (total, Map("quantize", body, output)))


def _parameter(desc: Any, field: str, sizes: Sizes) -> Source:
    """Broadcast a scale or zero point over a tensor with channels; an absent one is 0."""
    return no_zero_point(sizes) if getattr(desc, field) is None else per_channel(input_tensor(desc, field), sizes)


class MaxPooling2(Pooling):
    """The largest element, copied bit for bit, and its row-major index in the whole input.

    Of equal elements the first in the window is taken; 0 and -0 are equal. Padding is never chosen, nor is NaN where
    there is a number (the page is silent; onnxruntime's maximum skips NaN too).
    """

    desc = descs.MaxPooling2
    shaders = (
        MAX_POOLING,
        "pooling/max_pooling2_indices",
        "pooling/max_tile",
        "pooling/rank",
        "window/taken",
        "window/within",
    )

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, Sizes]:
        """Return the sizes of elements and of their indices, which MAX_POOLING does not have."""
        fields = [field for field in desc.output_fields if getattr(desc, field) is not None]
        return dict.fromkeys(fields, cls.pooled_sizes(desc))

    @classmethod
    def check(cls, desc: Any) -> None:
        super().check(desc)
        if getattr(desc, "output_indices_tensor", None) is not None:
            check_sizes(desc, "output_indices_tensor", desc.output_tensor.sizes, "output_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.MaxPooling2) -> Plan:
        """Lower to a pool if only the elements are requested; else to the positions, then a map that reads the elements
        at these positions, and another one that computes the indices."""
        pool = Pool("", input_tensor(desc, "input_tensor"), cls.windows(desc), output_tensor(desc))
        if desc.output_indices_tensor is None:
            return Plan(desc.operator, (pool,))
        finding, places = largest_places(pool.input, pool.windows)
        numbers = cls._numbers(desc, replace(places, view=View.COMPUTE), pool.windows)
        return Plan(desc.operator, (finding, taken_from_places(pool, places), numbers))

    @classmethod
    def _numbers(cls, desc: descs.MaxPooling2, places: PlanTensor, windows: Windows) -> Map:
        output = output_tensor(desc, "output_indices_tensor")
        values = constants(**place_values(windows), steps=packed_strides(desc.input_tensor.sizes))
        numbers = element(cls.shaders[1], UINT32, output.sizes, values=values, places=places)
        return Map("indices", cast(numbers, output.data_type), output)


Undilated.older(descs.MaxPooling1, descs.MaxPooling2, "MAX_POOLING2 without dilations.")


Lowering.older(descs.MaxPooling, descs.MaxPooling1, "MAX_POOLING1 without indices.")


class MaxPoolingGrad(Pooling):
    """Each element of the output's gradient is the sum of the gradients of the positions whose maximum it is, by the
    rules of MAX_POOLING2."""

    desc = descs.MaxPoolingGrad
    shaders = ("pooling/max_pooling_grad", "pooling/rank", "window/taken", "window/within")
    pooled = "input_gradient_tensor"

    @classmethod
    def lower(cls, desc: descs.MaxPoolingGrad) -> Plan:
        """Lower to the indices, then a reduction over the positions that may cover an element."""
        windows, gradient = cls.windows(desc), input_tensor(desc, "input_gradient_tensor")
        finding, places = largest_places(input_tensor(desc, "input_tensor"), windows)
        inputs = {"gradient": gradient, "places": places}
        values = constants(**place_values(windows))
        sizes = covering(gradient, windows).sizes
        shares = element(cls.shaders[0], FLOAT32, sizes, portable=True, values=values, **inputs)
        output = output_tensor(desc, "output_gradient_tensor")
        return Plan(desc.operator, (finding, reduced(SUM, shares, output, len(windows))))


class MaxUnpooling(Lowering):
    """Zeros, with every element at its row-major index in the whole output.

    Where the page is silent: an index beyond the output is dropped. Of several elements for one place any wins; on a
    deterministic device the last in row-major order does.
    """

    desc = descs.MaxUnpooling
    shaders = ("pooling/max_unpooling", "layout/zero")

    @classmethod
    def check(cls, desc: descs.MaxUnpooling) -> None:
        check_sizes(desc, "indices_tensor", desc.input_tensor.sizes, "input_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.MaxUnpooling) -> Plan:
        output = output_tensor(desc, view=View.RAW)
        updates = input_tensor(desc, "input_tensor", View.RAW)
        indices = input_tensor(desc, "indices_tensor", View.INDEX)
        values = constants(count=math.prod(output.sizes), steps=packed_strides(output.sizes))
        nowhere = (None,) * updates.rank
        scatter = Scatter("scatter", cls.shaders[0], updates, (("indices", indices),), output, values, nowhere)
        clear = Map("clear", Element("layout/zero", output.data_type, output.sizes), output_tensor(desc))
        return Plan(desc.operator, (clear, scatter))


# ---- columns


def _columns(tensor: PlanTensor, windows: Windows) -> PlanTensor:
    """View {N, C * places, positions} as {N, C, positions.., places..}."""
    batch, channels, block = tensor.strides
    places, positions = sizes_of(windows), positions_of(windows)
    count = math.prod(places)
    return replace(
        tensor,
        sizes=(tensor.sizes[0], tensor.sizes[1] // count, *positions, *places),
        strides=(
            batch,
            channels * count,
            *(block * step for step in packed_strides(positions)),
            *(channels * step for step in packed_strides(places)),
        ),
    )


class Unfold(Lowering):
    """The elements of the window at each position, as a column; 0 in the padding. Copied bit for bit."""

    desc = descs.Unfold
    shaders = ("window/taken",)

    @classmethod
    def output_sizes(cls, desc: descs.Unfold) -> Mapping[str, tuple[int, ...]]:
        """{N, C * places, positions}."""
        (batch, channels, *spatial) = desc.input_tensor.sizes
        windows = windows_of(desc, tuple(spatial), desc.window_sizes)
        rows, columns = math.prod(sizes_of(windows)), math.prod(positions_of(windows))
        return {"output_tensor": (batch, channels * rows, columns)}

    @classmethod
    def check(cls, desc: descs.Unfold) -> None:
        _checked_windows(desc, "input_tensor", "window_sizes", "image")
        cls.check_output(desc, "batch, channels * places of the window, positions")

    @classmethod
    def lower(cls, desc: descs.Unfold) -> Plan:
        """Lower to one map over the columns, viewed as window positions and elements within a window."""
        windows = windows_of(desc, desc.input_tensor.sizes[LEAD:], desc.window_sizes)
        seen = taken(input_tensor(desc, "input_tensor", View.RAW), windows)
        return Plan(desc.operator, (Map("unfold", seen, _columns(output_tensor(desc), windows)),))


class Fold(Lowering):
    """Each element of the image is the sum, in float32, of its elements in the columns; elements of the padding are
    dropped."""

    desc = descs.Fold
    shaders = ("window/covering",)

    @classmethod
    def check(cls, desc: descs.Fold) -> None:
        windows = _checked_windows(desc, "output_tensor", "window_sizes", "image")
        batch, channels, *_ = desc.output_tensor.sizes
        expected = (batch, channels * math.prod(sizes_of(windows)), math.prod(positions_of(windows)))
        check_sizes(desc, "input_tensor", expected, "batch, channels * places of the window, positions")

    @classmethod
    def lower(cls, desc: descs.Fold) -> Plan:
        """Lower to a reduction over the positions that may cover an element."""
        windows = windows_of(desc, desc.output_tensor.sizes[LEAD:], desc.window_sizes)
        output = output_tensor(desc)
        shares = covering(_columns(input_tensor(desc, "input_tensor"), windows), windows, placed=True)
        return Plan(desc.operator, (reduced(SUM, shares, output, shares.rank - output.rank),))
