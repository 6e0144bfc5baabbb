"""Windows of an image laid out as columns, and columns added up to an image again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.operators.lowering import (
    Lowering,
    check_padded,
    check_sizes,
    input_tensor,
    invalid,
    output_tensor,
)
from dmlgpu.compiler.plan import Map, Plan, Reduce, Reduction, Tensor, View
from dmlgpu.compiler.plan.windows import Windows, positions_of, sizes_of, windows_over
from dmlgpu.compiler.rewrites.windows import covering, taken
from dmlgpu.compiler.target import Target

LEAD = 2
"""Batch and channel come before the spatial dimensions."""

SUM = Reduction("reduction/reduce_sum_float", DataType.FLOAT32, 2, portable=True)


def _windows(desc: Any, spatial: tuple[int, ...]) -> Windows:
    """Return how the window slides over the image."""
    return windows_over(
        spatial,
        size=desc.window_sizes,
        strides=desc.strides,
        dilations=desc.dilations,
        start=desc.start_padding,
        end=desc.end_padding,
    )


def _check(desc: Any, image: str) -> None:
    """Raise InvalidDescription unless attributes fit the image's spatial dimensions and the window has a position."""
    count = getattr(desc, image).dimension_count - LEAD
    for field in ("window_sizes", "strides", "dilations", "start_padding", "end_padding"):
        values = getattr(desc, field)
        if len(values) != count:
            reason = f"must have one entry per spatial dimension of {image} ({count}), got {len(values)}"
            raise invalid(desc, field, reason)
        for number, value in enumerate(values):
            if value < 1 and not field.endswith("padding"):
                raise invalid(desc, f"{field}[{number}]", f"must be at least 1, got {value}")
    for number, axis in enumerate(_windows(desc, getattr(desc, image).sizes[LEAD:])):
        if axis.positions < 1:
            padded = axis.spatial + desc.start_padding[number] + desc.end_padding[number]
            reason = f"must reach no further than the padded image ({padded}), but it reaches over {axis.reach}"
            raise invalid(desc, f"window_sizes[{number}]", reason)
    sizes = getattr(desc, image).sizes[LEAD:]
    check_padded(desc, [sum(ends) for ends in zip(sizes, desc.start_padding, desc.end_padding, strict=True)])


def _columns(tensor: Tensor, windows: Windows) -> Tensor:
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
    """What the window sees at each position, as a column; 0 in the padding. Moved bit by bit."""

    desc = descs.Unfold
    shaders = ("window/taken",)

    @classmethod
    def output_sizes(cls, desc: descs.Unfold) -> Mapping[str, tuple[int, ...]]:
        """{N, C * places, positions}."""
        (batch, channels, *spatial) = desc.input_tensor.sizes
        windows = _windows(desc, tuple(spatial))
        rows, columns = math.prod(sizes_of(windows)), math.prod(positions_of(windows))
        return {"output_tensor": (batch, channels * rows, columns)}

    @classmethod
    def check(cls, desc: descs.Unfold) -> None:
        _check(desc, "input_tensor")
        expected = cls.output_sizes(desc)["output_tensor"]
        check_sizes(desc, "output_tensor", expected, "batch, channels * places of the window, positions")

    @classmethod
    def lower(cls, desc: descs.Unfold, target: Target) -> Plan:
        """One map over the columns seen as positions and places."""
        windows = _windows(desc, desc.input_tensor.sizes[LEAD:])
        seen = taken(input_tensor(desc, "input_tensor", View.RAW), windows)
        return Plan(desc.operator, (Map("unfold", seen, _columns(output_tensor(desc), windows)),))


class Fold(Lowering):
    """Each element of the image is the sum, in float32, of what the columns hold for it; what they hold for the padding
    is dropped."""

    desc = descs.Fold
    shaders = ("window/covering",)

    @classmethod
    def check(cls, desc: descs.Fold) -> None:
        _check(desc, "output_tensor")
        (batch, channels, *spatial) = desc.output_tensor.sizes
        windows = _windows(desc, tuple(spatial))
        expected = (batch, channels * math.prod(sizes_of(windows)), math.prod(positions_of(windows)))
        check_sizes(desc, "input_tensor", expected, "batch, channels * places of the window, positions")

    @classmethod
    def lower(cls, desc: descs.Fold, target: Target) -> Plan:
        """A reduction over the positions that may cover an element."""
        windows, output = _windows(desc, desc.output_tensor.sizes[LEAD:]), output_tensor(desc)
        shares = covering(_columns(input_tensor(desc, "input_tensor"), windows), windows, placed=True)
        axes = tuple(range(output.rank, shares.rank))
        ones, zeros = (1,) * len(axes), (0,) * len(axes)
        given = replace(output, sizes=output.sizes + ones, strides=output.strides + zeros)
        return Plan(desc.operator, (Reduce("", SUM, shares, axes, given),))
