"""Operators that make one number of what a sliding window sees, their gradients, and the inverse of max pooling.

Each is a reduction over virtual windows (kernels/windows.py), however large these are, between maps over positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dmlgpu import descs
from dmlgpu.enums import DataType
from dmlgpu.kernels.reduce import Reduction, canonical_steps
from dmlgpu.kernels.scatter import Scattering, scatter_steps
from dmlgpu.kernels.windows import Sizes, Windows, covering, positions_of, sizes_of, taken, windows_over, within
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.operators.lowering import Lowering, check_sizes, input_tensor, invalid, output_tensor
from dmlgpu.operators.parameters import DIFFERENCE, check_per_channel, difference, no_zero_point, per_channel
from dmlgpu.operators.quantization import limits
from dmlgpu.plan import Body, Element, Map, Plan, Source, Step, Tensor, View, apply, constants, element
from dmlgpu.target import Target
from dmlgpu.tensor import packed_strides

FLOAT32, INT32, UINT32 = DataType.FLOAT32, DataType.INT32, DataType.UINT32
LEAD = 2
"""Batch and channel come before the spatial dimensions."""

AVERAGE = "pooling/average"
SUM = Reduction("reduction/reduce_sum_float", FLOAT32, 2, portable=True)


# ---- windows of a description


def _windows(desc: Any, spatial: Sizes) -> Windows:
    """How the window slides over an input; without dilations they are 1."""
    dilations = getattr(desc, "dilations", (1,) * len(desc.window_size))
    return windows_over(
        spatial,
        size=desc.window_size,
        strides=desc.strides,
        dilations=dilations,
        start=desc.start_padding,
        end=desc.end_padding,
    )


class _Pooling(Lowering):
    """What all share. {N, C, spatial..}; every position of the window must see at least one element of the input, as
    onnxruntime demands too (the pages are silent).

    Class attributes:
        whole, pooled: the fields of the tensors before and after pooling.
    """

    whole: ClassVar[str] = "input_tensor"
    pooled: ClassVar[str] = "output_tensor"

    @classmethod
    def windows(cls, desc: Any) -> Windows:
        """How the window slides."""
        return _windows(desc, getattr(desc, cls.whole).sizes[LEAD:])

    @classmethod
    def check(cls, desc: Any) -> None:
        whole = getattr(desc, cls.whole)
        for field in ("strides", "window_size", "dilations", "start_padding", "end_padding"):
            _check_attribute(desc, field, whole.dimension_count - LEAD, cls.whole)
        windows = cls.windows(desc)
        for number, axis in enumerate(windows):
            _check_axis(desc, cls.whole, number, axis.positions, axis.reach)
        expected = whole.sizes[:LEAD] + positions_of(windows)
        check_sizes(desc, cls.pooled, expected, f"what {cls.whole}, window_size, strides and padding give")
        for number, axis in enumerate(windows):
            empty = next((position for position in range(axis.positions) if not axis.inside(position)), None)
            if empty is not None:
                where = f"start_padding[{number}], end_padding[{number}]"
                reason = f"must leave every window an element of the input, but at position {empty} there is none"
                raise invalid(desc, where, reason)


def _check_attribute(desc: Any, field: str, count: int, whole: str) -> None:
    """One entry per spatial dimension; sizes and steps are at least 1."""
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


class _Undilated(Lowering):
    """An older operator without dilations: they are 1."""

    newer: ClassVar[type[OperatorDesc]]

    @classmethod
    def upgrade(cls, desc: Any) -> OperatorDesc:
        return cls.newer(**desc.values, dilations=(1,) * len(desc.window_size))


# ---- parts of plans


@dataclass(frozen=True)
class _Pooled:
    """A reduction of every window into a temporary tensor.

    Attributes:
        result: one number per position.
        steps: of the plan.
    """

    result: Tensor
    steps: tuple[Step, ...]


def _reduced(reduction: Reduction, seen: Body, data_type: DataType, axes: int, target: Target) -> _Pooled:
    """What the window sees, reduced over its places."""
    sizes = seen.sizes[: len(seen.sizes) - axes]
    result = Tensor.temporary("reduced", data_type, sizes)
    return _Pooled(result, canonical_steps(reduction, seen, _last(seen, axes), _with_places(result, axes), target))


def _last(seen: Body, axes: int) -> Sizes:
    return tuple(range(seen.rank - axes, seen.rank))


def _with_places(tensor: Tensor, axes: int) -> Tensor:
    """A tensor over positions with one place of the window each."""
    return replace(tensor, sizes=tensor.sizes + (1,) * axes, strides=tensor.strides + (0,) * axes)


def _indices(tensor: Tensor) -> Tensor:
    return replace(tensor, view=View.INDEX)


# ---- averages


def _divisor(desc: Any, windows: Windows, divided: str) -> dict[str, Any]:
    """Constants of a body that divides: by all places of the window, or by those on the input."""
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
    """Sums over what counts; no two neighbours need count alike."""
    values = constants(**_divisor(desc, windows, "output"))
    return element(AVERAGE, data_type, sums.sizes, portable=True, values=values, sums=sums)


class AveragePooling1(_Pooling):
    """Sums in float32 that keep their rounding errors, divided once."""

    desc = descs.AveragePooling1
    shaders = (AVERAGE, "window/taken")

    @classmethod
    def lower(cls, desc: descs.AveragePooling1, target: Target) -> Plan:
        windows, output = cls.windows(desc), output_tensor(desc)
        sums = _reduced(SUM, taken(input_tensor(desc, "input_tensor"), windows), FLOAT32, len(windows), target)
        body = _average(desc, sums.result, windows, output.data_type)
        return Plan(desc.operator, (*sums.steps, Map("average", body, output)))


class AveragePooling(_Undilated):
    """AVERAGE_POOLING1 without dilations."""

    desc = descs.AveragePooling
    newer = descs.AveragePooling1


class AveragePoolingGrad(_Pooling):
    """Each element of the output's gradient adds up its shares of the positions whose windows see it."""

    desc = descs.AveragePoolingGrad
    whole = "output_gradient_tensor"
    pooled = "input_gradient_tensor"

    @classmethod
    def lower(cls, desc: descs.AveragePoolingGrad, target: Target) -> Plan:
        """A reduction over the positions that may cover an element."""
        windows, gradient = cls.windows(desc), input_tensor(desc, "input_gradient_tensor")
        shape = covering(gradient, windows)
        values = constants(**_divisor(desc, windows, "gradient"))
        inputs = (("gradient", gradient),)
        shares = Element(cls.shaders[0], FLOAT32, shape.sizes, inputs, values, portable=True, follows=shape.follows)
        return _gathered(desc, shares, len(windows), "output_gradient_tensor", target)


def _gathered(desc: OperatorDesc, shares: Body, axes: int, field: str, target: Target) -> Plan:
    """The plan that adds up the shares of every element."""
    output = _with_places(output_tensor(desc, field), axes)
    steps = canonical_steps(SUM, shares, _last(shares, axes), output, target)
    return Plan(desc.operator, steps)


# ---- norms


class LpPooling1(_Pooling):
    """(sum of |x|^p)^(1/p), in float32. Padding adds 0. The absolute value is taken for odd p too, as onnxruntime does
    (the page prints none). A p of 0 is refused.

    Norms of p = 1 and 2 neither overflow nor underflow before their result does; powers of higher ones may.
    """

    desc = descs.LpPooling1
    shaders = ("pooling/power", "pooling/root", "reduction/reduce_l1_float", "reduction/reduce_l2", "window/taken")

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
    def lower(cls, desc: descs.LpPooling1, target: Target) -> Plan:
        """One reduction for p = 1 and 2; else sums of powers, and a map that takes the root."""
        windows, output = cls.windows(desc), output_tensor(desc)
        seen, axes = taken(input_tensor(desc, "input_tensor"), windows), len(windows)
        if desc.p in cls.norms:
            given = _with_places(output, axes)
            steps = canonical_steps(cls.norms[desc.p], seen, _last(seen, axes), given, target)
            return Plan(desc.operator, steps)
        values = constants(p=desc.p)
        powers = apply(cls.shaders[0], FLOAT32, seen.sizes, portable=True, values=values, input=seen)
        sums = _reduced(SUM, powers, FLOAT32, axes, target)
        root = apply(cls.shaders[1], output.data_type, output.sizes, portable=True, values=values, input=sums.result)
        return Plan(desc.operator, (*sums.steps, Map("root", root, output)))


class LpPooling(_Undilated):
    """LP_POOLING1 without dilations."""

    desc = descs.LpPooling
    newer = descs.LpPooling1


# ---- maxima


def _chosen(source: Tensor, windows: Windows, target: Target) -> _Pooled:
    """The place of the window that each position chooses: of the largest element, the first of equal ones.

    The reduction compares ranks, in which padding comes after all numbers.
    """
    wide = source.data_type.bits == 64
    rank = apply(
        "pooling/rank",
        DataType.UINT64 if wide else UINT32,
        source.sizes[:LEAD] + positions_of(windows) + sizes_of(windows),
        portable=True,
        input=taken(source, windows),
        inside=within(source.sizes[:LEAD], windows),
    )
    values = constants(order="ascending", decreasing=False)
    file, lanes = ("reduction/argmin_wide", 4) if wide else ("reduction/argmin", 2)
    reduction = Reduction(file, UINT32, lanes, portable=True, constants=values, ordered=True)
    return _reduced(reduction, rank, UINT32, len(windows), target)


def _choosing(windows: Windows) -> dict[str, Any]:
    return {"lead": LEAD, "axes": windows, "count": math.prod(sizes_of(windows))}


class MaxPooling2(_Pooling):
    """The largest element, moved bit by bit, and its number in the whole input, row by row.

    Of equal elements the first in the window is taken; 0 and -0 are equal. Padding is never chosen, nor is NaN where
    there is a number (the page is silent; onnxruntime's maximum skips NaN too).
    """

    desc = descs.MaxPooling2
    shaders = ("pooling/max_pooling2", "pooling/max_pooling2_indices", "pooling/rank", "window/taken", "window/within")

    @classmethod
    def check(cls, desc: Any) -> None:
        super().check(desc)
        if getattr(desc, "output_indices_tensor", None) is not None:
            check_sizes(desc, "output_indices_tensor", desc.output_tensor.sizes, "output_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.MaxPooling2, target: Target) -> Plan:
        """Places first; a map takes the elements there, another numbers them."""
        windows, output = cls.windows(desc), output_tensor(desc)
        chosen = _chosen(input_tensor(desc, "input_tensor"), windows, target)
        inputs = {"input": input_tensor(desc, "input_tensor", View.RAW), "places": _indices(chosen.result)}
        values = constants(**_choosing(windows))
        body = element(cls.shaders[0], output.data_type, output.sizes, portable=False, values=values, **inputs)
        steps: list[Step] = [*chosen.steps, Map("maximum", body, output)]
        if desc.output_indices_tensor is not None:
            steps.append(cls._numbers(desc, chosen.result, windows))
        return Plan(desc.operator, tuple(steps))

    @classmethod
    def _numbers(cls, desc: descs.MaxPooling2, places: Tensor, windows: Windows) -> Map:
        output = output_tensor(desc, "output_indices_tensor")
        values = constants(**_choosing(windows), steps=packed_strides(desc.input_tensor.sizes))
        numbers = element(cls.shaders[1], UINT32, output.sizes, values=values, places=places)
        body = apply("elementwise/cast", output.data_type, output.sizes, portable=True, input=numbers)
        return Map("indices", body, output)


class MaxPooling1(_Undilated):
    """MAX_POOLING2 without dilations."""

    desc = descs.MaxPooling1
    newer = descs.MaxPooling2


class MaxPooling(Lowering):
    """MAX_POOLING1 without indices."""

    desc = descs.MaxPooling
    newer = descs.MaxPooling1


class MaxPoolingGrad(_Pooling):
    """Each element of the output's gradient adds up the gradients of the positions that chose it, as MAX_POOLING2
    chooses."""

    desc = descs.MaxPoolingGrad
    shaders = ("pooling/max_pooling_grad", "pooling/rank", "window/taken", "window/within")
    pooled = "input_gradient_tensor"

    @classmethod
    def check(cls, desc: Any) -> None:
        super().check(desc)
        check_sizes(desc, "output_gradient_tensor", desc.input_tensor.sizes, "input_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.MaxPoolingGrad, target: Target) -> Plan:
        """Places first; then a reduction over the positions that may cover an element."""
        windows, gradient = cls.windows(desc), input_tensor(desc, "input_gradient_tensor")
        chosen = _chosen(input_tensor(desc, "input_tensor"), windows, target)
        shape, axes = covering(gradient, windows), len(windows)
        inputs = {"gradient": gradient, "places": _indices(chosen.result)}
        values = constants(**_choosing(windows))
        shares = element(cls.shaders[0], FLOAT32, shape.sizes, portable=True, values=values, **inputs)
        output = _with_places(output_tensor(desc, "output_gradient_tensor"), axes)
        steps = canonical_steps(SUM, shares, _last(shares, axes), output, target)
        return Plan(desc.operator, (*chosen.steps, *steps))


class MaxUnpooling(Lowering):
    """0, then every element at the place that its index names, counted row by row over the whole output.

    Where the page is silent: an index beyond the output is dropped. Of several elements for one place any wins; on a
    deterministic device the last in row-major order does.
    """

    desc = descs.MaxUnpooling
    shaders = ("pooling/max_unpooling", "layout/zero")

    @classmethod
    def check(cls, desc: descs.MaxUnpooling) -> None:
        check_sizes(desc, "indices_tensor", desc.input_tensor.sizes, "input_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.MaxUnpooling, target: Target) -> Plan:
        output = output_tensor(desc, view=View.RAW)
        updates = input_tensor(desc, "input_tensor", View.RAW)
        indices = input_tensor(desc, "indices_tensor", View.INDEX)
        values = constants(count=math.prod(output.sizes), steps=packed_strides(output.sizes))
        scattering = Scattering(cls.shaders[0], updates, indices, output, values, (None,) * updates.rank)
        clear = Map("clear", Element("layout/zero", output.data_type, output.sizes), output_tensor(desc))
        steps = scatter_steps(scattering, target)
        return Plan(desc.operator, (clear, *steps))


# ---- quantised averages


class QuantizedLinearAveragePooling(_Pooling):
    """clamp(round(average * scale of the input / scale of the output) + zero point of the output).

    The sum of the elements less their zero point is exact, in INT32; average and quotient are computed in float32, one
    step after the other, rounded to an integer once, halves to even, and the zero point added in integers (the page is
    silent).
    A missing zero point is 0. Scales and zero points come one for all or one per channel.
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
    def lower(cls, desc: descs.QuantizedLinearAveragePooling, target: Target) -> Plan:
        windows, output = cls.windows(desc), output_tensor(desc)
        source = input_tensor(desc, "input_tensor")
        zero = _parameter(desc, "input_zero_point_tensor", source.sizes)
        differences = difference(source, zero, INT32)
        reduction = Reduction("reduction/reduce_sum", INT32, 1, portable=False)
        sums = _reduced(reduction, taken(differences, windows), INT32, len(windows), target)
        average = _average(desc, sums.result, windows, FLOAT32)
        low, high = limits(output.data_type)
        body = apply(
            cls.shaders[0],
            output.data_type,
            output.sizes,
            portable=True,
            values=constants(compute=FLOAT32, low=low, high=high),
            average=average,
            input_scale=_parameter(desc, "input_scale_tensor", output.sizes),
            scale=_parameter(desc, "output_scale_tensor", output.sizes),
            zero_point=_parameter(desc, "output_zero_point_tensor", output.sizes),
        )
        return Plan(desc.operator, (*sums.steps, Map("quantize", body, output)))


def _parameter(desc: Any, field: str, sizes: Sizes) -> Source:
    """A scale or zero point repeated over a tensor with channels; a zero where there is none."""
    return no_zero_point(sizes) if getattr(desc, field) is None else per_channel(input_tensor(desc, field), sizes)
