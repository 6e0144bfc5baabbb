"""Operators that resample a tensor along any of its dimensions, and their gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import AxisDirection, DataType, InterpolationMode
from dmlgpu.catalog.tensor_desc import MAX_ELEMENTS
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, input_tensor, invalid, output_tensor
from dmlgpu.compiler.plan import Body, Map, Plan, PlanTensor, Reduce, Reduction, Step, View, portable
from dmlgpu.compiler.rewrites.resampling import (
    ANTIALIASED,
    ANTIALIASED_SUM,
    ANTIALIASED_TILE,
    GRADIENT,
    LARGEST,
    LINEAR,
    NEAREST,
    SMALLEST,
    ResampledAxis,
    Rounding,
    antialiased,
    by_reduction,
    gradient,
    linear,
    nearest,
)
from dmlgpu.compiler.rewrites.sources import identity
from dmlgpu.compiler.sizes.arithmetic import computed

FLOAT32 = DataType.FLOAT32
ROUNDED = "resampling/rounded"
SUM = Reduction("reduction/reduce_sum_float", FLOAT32, 2, portable=True)

CENTER = 0.5
"""Offset of the center of a pixel from its start."""


# ---- fields


def _check_numbers(desc: Any) -> None:
    """Raise InvalidDescription unless all dimensions have scales and offsets that give finite coordinates."""
    for name in ("scales", "input_pixel_offsets", "output_pixel_offsets"):
        for index, value in enumerate(getattr(desc, name, ())):
            if name == "scales" and not SMALLEST <= value <= LARGEST:
                raise invalid(desc, f"{name}[{index}]", f"must be a positive normal float, got {value}")
            if not abs(value) <= LARGEST:
                raise invalid(desc, f"{name}[{index}]", f"must be a finite float, got {value}")


def _rounding(desc: Any) -> Rounding | None:
    """Return the nearest-neighbor rounding; None for linear interpolation."""
    if desc.interpolation_mode is InterpolationMode.LINEAR:
        return None
    return Rounding(desc.rounding_direction is AxisDirection.INCREASING)


def _axes(desc: Any, sizes: tuple[int, ...], counts: tuple[int, ...]) -> tuple[ResampledAxis, ...]:
    """Return the dimensions that are resampled."""
    numbers = zip(sizes, counts, desc.scales, desc.input_pixel_offsets, desc.output_pixel_offsets, strict=True)
    axes = (ResampledAxis.of(dimension, *values) for dimension, values in enumerate(numbers))
    return tuple(axis for axis in axes if not axis.moves_nothing(_rounding(desc)))


def _rounded_up(desc: Any) -> dict[str, Any]:
    """Return values of the newer fields with which nearest neighbor rounds ties up: shifted half a pixel, rounded
    down."""
    lower = CENTER if desc.interpolation_mode is InterpolationMode.NEAREST_NEIGHBOR else 0.0
    rank = len(desc.scales)
    offsets = getattr(desc, "input_pixel_offsets", (CENTER,) * rank)
    return {
        "interpolation_mode": desc.interpolation_mode,
        "rounding_direction": AxisDirection.DECREASING,
        "scales": desc.scales,
        "input_pixel_offsets": tuple(float(np.float32(offset) - np.float32(lower)) for offset in offsets),
        "output_pixel_offsets": getattr(desc, "output_pixel_offsets", (-CENTER,) * rank),
    }


# ---- plans

_Pass: TypeAlias = Callable[[PlanTensor], Body]
"""Function from the result of the previous pass to a body of the same rank, or with a last dimension of taps to sum."""


@dataclass
class _Passes:
    """Builder of a plan that resamples axis by axis, in float32.

    Attributes:
        result: Result of the last pass.
    """

    result: PlanTensor
    steps: list[Step] = field(default_factory=list)

    def run(self, work: _Pass, output: PlanTensor | None = None) -> None:
        """Add a pass into the output, or into a temporary tensor."""
        body, rank = work(self.result), self.result.rank
        result = output or PlanTensor.temporary("pass", FLOAT32, body.sizes[:rank])
        if body.rank == rank:
            self.steps.append(Map("resample", replace(body, data_type=result.data_type), result))
        else:
            sums = replace(result, sizes=(*result.sizes, 1), strides=(*result.strides, 0))
            self.steps.append(Reduce("", SUM, body, (rank,), sums))
        self.result = result


def _in_passes(operator: str, source: PlanTensor, works: Sequence[_Pass], output: PlanTensor) -> Plan:
    """Return the plan of some passes; integers are rounded after the last one."""
    passes = _Passes(source)
    for work in works[:-1]:
        passes.run(work)
    if output.data_type.is_float:
        passes.run(works[-1], output)
    else:
        passes.run(works[-1])
        body = portable(ROUNDED, output, input=passes.result)
        passes.steps.append(Map("round", body, output))
    return Plan(operator, tuple(passes.steps))


def _copied(desc: Any, source: PlanTensor, output: PlanTensor) -> Plan:
    """Return the plan of a copy, for descriptions that resample no axis."""
    return Plan(desc.operator, (Map("copy", identity(replace(source, view=View.RAW)), output),))


def _interpolated(desc: Any, axes: Sequence[ResampledAxis], rounding: Rounding | None) -> Plan:
    """Return the plan without antialiasing."""
    source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
    if not axes:
        return _copied(desc, source, output)
    if rounding is None:
        return _in_passes(desc.operator, source, [functools.partial(linear, axes=axes)], output)
    source, output = replace(source, view=View.RAW), replace(output, view=View.RAW)
    return Plan(desc.operator, (Map("resample", nearest(source, axes, rounding), output),))


_MAX_EXACT = 1 << 24
"""Integers up to this are exact in float32."""


def scaled_size(size: int, scale: float) -> int:
    """Return a size times a scale, plain or symbolic, rounded down; at most 2^32.

    In float32, as onnxruntime computes it: 10 elements by 0.7 are 7, though 0.7 is a little less than that in float32.
    """
    if type(scale) is float and scale.is_integer() and scale > 0 and size * int(scale) <= _MAX_EXACT:
        return size * int(scale)
    extent: int = computed(_scaled_size, size, scale)
    return extent


def _scaled_size(size: int, scale: float) -> int:
    """Return ``scaled_size`` of plain numbers."""
    with np.errstate(over="ignore"):
        extent = float(np.float32(size) * np.float32(scale))
    return int(min(extent, MAX_ELEMENTS + 1))


# ---- operators


class Resample3(Lowering):
    """Where the pages are silent:

    - Coordinates are computed in float32, each step of (o - OutputPixelOffset) / Scale - InputPixelOffset rounded, as
      onnxruntime does; every adapter finds the same elements.
    - Antialiased is ONNX's antialiasing of linear interpolation, with its default of exclude_outside (0), which is how
      onnxruntime's DirectML provider names it: a triangle of width max(1, 1 / Scale) to either side, also for
      1 < 1 / Scale <= 2 (the page starts at 1 / Scale > 2), its weights normalized. Positions beyond an edge take the
      edge's element, as without antialiasing. NEAREST_NEIGHBOR ignores it.
    - Linear interpolation sums in float32. Integers are rounded half to even.
    - Elements of weight 0 add nothing, even if they are infinite or NaN.
    - Scales must be positive. Scales and offsets with more than 2^30 pairs of input and output elements along an axis
      are rejected. NEAREST_NEIGHBOR moves elements bit by bit.
    """

    desc = descs.Resample3
    shaders = (NEAREST, LINEAR, ANTIALIASED, ANTIALIASED_SUM, ANTIALIASED_TILE, ROUNDED)

    @classmethod
    def default_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        """Return the input's sizes, scaled and rounded down, as in ONNX."""
        scaled = zip(desc.input_tensor.sizes, desc.scales, strict=True)
        return {"output_tensor": tuple(scaled_size(size, scale) for size, scale in scaled)}

    @classmethod
    def check(cls, desc: descs.Resample3) -> None:
        _check_numbers(desc)

    @classmethod
    def lower(cls, desc: descs.Resample3) -> Plan:
        """Lower to one map; if antialiased, to a pass per axis that shrinks, and linear interpolation along the
        others."""
        rounding = _rounding(desc)
        axes = _axes(desc, desc.input_tensor.sizes, desc.output_tensor.sizes)
        is_antialiased = desc.antialiased and rounding is None
        shrinking = [axis for axis in axes if is_antialiased and axis.scale < 1]
        if shrinking:  # along the others, triangles are two elements wide
            works: list[_Pass] = [functools.partial(antialiased, axis=axis) for axis in by_reduction(shrinking)]
            if others := [axis for axis in axes if axis.scale >= 1]:
                works.append(functools.partial(linear, axes=others))
            return _in_passes(desc.operator, input_tensor(desc, "input_tensor"), works, output_tensor(desc))
        return _interpolated(desc, axes, rounding)


Lowering.older(descs.Resample2, descs.Resample3, "RESAMPLE3 without antialiasing.", antialiased=False)


class _RoundedUp(Lowering):
    """RESAMPLE3 without antialiasing, with ties rounded up."""

    newer = descs.Resample3

    @classmethod
    def upgrade(cls, desc: Any) -> descs.Resample3:
        return descs.Resample3(
            input_tensor=desc.input_tensor, output_tensor=desc.output_tensor, antialiased=False, **_rounded_up(desc)
        )


_RoundedUp.rows(
    {
        descs.Resample1: (
            "RESAMPLE3 without antialiasing; nearest neighbor is floor(x + 0.5), as in public users of DirectML. "
            "The page of RESAMPLE2 lowers OutputPixelOffsets instead, which is the same only at a scale of 1, and the "
            "example printed for RESAMPLE_GRAD rounds ties down."
        ),
        descs.Resample: "RESAMPLE1 with the middle of pixels at whole coordinates: offsets of 0.5 and -0.5.",
    }
)


class Upsample2d(Lowering):
    """RESAMPLE along height and width: NEAREST_NEIGHBOR repeats elements, LINEAR interpolates between pixel centers
    (whose position the page does not specify) and repeats the edges."""

    desc = descs.Upsample2d
    shaders = (NEAREST, LINEAR)

    @classmethod
    def output_sizes(cls, desc: descs.Upsample2d) -> Mapping[str, tuple[int, ...]]:
        *lead, height, width = desc.input_tensor.sizes
        return {"output_tensor": (*lead, height * desc.scale_size.height, width * desc.scale_size.width)}

    @classmethod
    def check(cls, desc: descs.Upsample2d) -> None:
        for name in ("width", "height"):
            if getattr(desc.scale_size, name) < 1:
                raise invalid(desc, f"scale_size.{name}", f"must be at least 1, got {getattr(desc.scale_size, name)}")
        expected = cls.output_sizes(desc)["output_tensor"]
        check_sizes(desc, "output_tensor", expected, "height and width multiplied by scale_size")

    @classmethod
    def lower(cls, desc: descs.Upsample2d) -> Plan:
        rank = desc.input_tensor.dimension_count
        is_linear = desc.interpolation_mode is InterpolationMode.LINEAR
        center = CENTER if is_linear else 0.0
        axes = tuple(
            ResampledAxis.of(dimension, size, size * scale, float(scale), center, -center)
            for dimension, size, scale in zip(
                (rank - 2, rank - 1),
                desc.input_tensor.sizes[-2:],
                (desc.scale_size.height, desc.scale_size.width),
                strict=True,
            )
            if scale > 1
        )
        return _interpolated(desc, axes, None if is_linear else Rounding(increasing=False))


class ResampleGrad1(Lowering):
    """Every element is the weighted sum of the gradients of all output elements that used it in RESAMPLE2: along one
    axis after the other, in float32. Coordinates, rounding and clamping are those of RESAMPLE2. Scales and offsets with
    more than 2^30 pairs of input and output elements along an axis are rejected."""

    desc = descs.ResampleGrad1
    shaders = (GRADIENT,)

    @classmethod
    def check(cls, desc: descs.ResampleGrad1) -> None:
        """Check as RESAMPLE2 does, whose input has the output gradient's sizes."""
        _check_numbers(desc)

    @classmethod
    def lower(cls, desc: descs.ResampleGrad1) -> Plan:
        """Lower to a pass per axis, ordered by the number of remaining elements; to a copy if no axis is resampled."""
        source, output = input_tensor(desc, "input_gradient_tensor"), output_tensor(desc, "output_gradient_tensor")
        axes, rounding = _axes(desc, output.sizes, source.sizes), _rounding(desc)
        if not axes:
            return _copied(desc, source, output)
        works = [functools.partial(gradient, axis=axis, rounding=rounding) for axis in reversed(by_reduction(axes))]
        return _in_passes(desc.operator, source, works, output)


class ResampleGrad(Lowering):
    """The gradient of RESAMPLE1, in which nearest neighbor rounds ties up as well."""

    desc = descs.ResampleGrad
    newer = descs.ResampleGrad1

    @classmethod
    def upgrade(cls, desc: descs.ResampleGrad) -> descs.ResampleGrad1:
        return descs.ResampleGrad1(
            input_gradient_tensor=desc.input_gradient_tensor,
            output_gradient_tensor=desc.output_gradient_tensor,
            **_rounded_up(desc),
        )
