"""Operators that carry something along lines: running sums and products, places of what is not zero."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dmlgpu import descs
from dmlgpu.enums import AxisDirection, DataType, FeatureLevel
from dmlgpu.kernels.collapse import merge_dimensions
from dmlgpu.kernels.packing import pack_tensor, packs_tensor
from dmlgpu.kernels.scan import Scan, Scanning, block_length, blocked, choose_schedule, scan_steps
from dmlgpu.kernels.sources import identity
from dmlgpu.operators.lowering import Lowering, check_sizes, input_tensor, invalid, output_tensor
from dmlgpu.plan import Map, Plan, Tensor, View, apply, constants
from dmlgpu.target import Target
from dmlgpu.tensor import packed_strides


class _Cumulative(Lowering):
    """What running sums and products share."""

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        return {"output_tensor": desc.input_tensor.sizes}

    @classmethod
    def check(cls, desc: Any) -> None:
        rank = desc.input_tensor.dimension_count
        if desc.axis >= rank:
            raise invalid(desc, "axis", f"must be below input_tensor's dimension count ({rank}), got {desc.axis}")
        check_sizes(desc, "output_tensor", desc.input_tensor.sizes, "input_tensor.sizes")

    @classmethod
    def plan(cls, desc: Any, scanning: Scanning, target: Target) -> Plan:
        """Return the plan of a scan."""
        scanning = replace(scanning, decreasing=desc.axis_direction is AxisDirection.DECREASING)
        source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        steps = scan_steps(scanning, source, desc.axis, output, target)
        return Plan(desc.operator, steps)


class CumulativeSummation(_Cumulative):
    """Floats are added in float32 with their rounding errors kept, whatever the length of a line; integers wrap around.

    The page is silent on that, and on zeros: as the formula starts from 0, a line that begins with -0 begins with +0.
    Long lines are added up in blocks; one of these may overflow where the running sum, just below the limit, does not.
    """

    desc = descs.CumulativeSummation
    shaders = ("scanning/cumulative_summation", "scanning/cumulative_summation_float")

    @classmethod
    def lower(cls, desc: descs.CumulativeSummation, target: Target) -> Plan:
        data_type, exclusive = desc.input_tensor.data_type, desc.has_exclusive_sum
        if data_type.is_float:
            return cls.plan(desc, Scanning(cls.shaders[1], DataType.FLOAT32, 2, True, exclusive), target)
        return cls.plan(desc, Scanning(cls.shaders[0], data_type, 1, False, exclusive), target)


class CumulativeProduct(_Cumulative):
    """Floats are multiplied with their rounding errors kept and their exponents apart; integers wrap around.

    The page is silent on that. So a product that leaves the range of float32 on the way comes back exactly, where its
    later factors allow.
    """

    desc = descs.CumulativeProduct
    shaders = ("scanning/cumulative_product", "scanning/cumulative_product_float")

    @classmethod
    def lower(cls, desc: descs.CumulativeProduct, target: Target) -> Plan:
        data_type, exclusive = desc.input_tensor.data_type, desc.has_exclusive_product
        if data_type.is_float:
            return cls.plan(desc, Scanning(cls.shaders[1], DataType.FLOAT32, 4, True, exclusive), target)
        return cls.plan(desc, Scanning(cls.shaders[0], data_type, 1, False, exclusive), target)


class NonzeroCoordinates(Lowering):
    """A running count of what is not zero gives each element its row.

    Floats are told from zero by their bits: -0 is zero, subnormals and NaN (on which the page is silent) are not.
    Rows beyond the count, which the page leaves undefined, are filled with 0 here.
    """

    desc = descs.NonzeroCoordinates
    shaders = ("scanning/nonzero_coordinates", "scanning/is_nonzero", "scanning/cumulative_summation")

    @classmethod
    def output_sizes(cls, desc: descs.NonzeroCoordinates) -> Mapping[str, tuple[int, ...]]:
        """A single count; as many rows as elements. How many coordinates a row has, the caller chooses."""
        coordinates = desc.output_coordinates_tensor
        count = math.prod(desc.input_tensor.sizes)
        return {
            "output_count_tensor": (1,) * desc.output_count_tensor.dimension_count,
            "output_coordinates_tensor": (1,) * (coordinates.dimension_count - 2) + (count, coordinates.sizes[-1]),
        }

    @classmethod
    def check(cls, desc: descs.NonzeroCoordinates) -> None:
        sizes = cls.output_sizes(desc)
        check_sizes(desc, "output_count_tensor", sizes["output_count_tensor"], "one count")
        why = "leading 1s, input_tensor's elements, coordinates"
        check_sizes(desc, "output_coordinates_tensor", sizes["output_coordinates_tensor"], why)
        given, rank = sizes["output_coordinates_tensor"][-1], desc.input_tensor.dimension_count
        fewest = rank - next((d for d, size in enumerate(desc.input_tensor.sizes) if size > 1), rank)
        if not fewest <= given <= rank:
            raise invalid(
                desc,
                "output_coordinates_tensor.sizes[-1]",
                f"must be between input_tensor's dimension count without leading 1s ({fewest}) and with them ({rank}),"
                f" got {given}",
            )

    @classmethod
    def check_level(cls, desc: descs.NonzeroCoordinates, level: FeatureLevel) -> None:
        """Below 4_0 all three tensors have one dimension count."""
        rank = desc.input_tensor.dimension_count
        for field in ("output_count_tensor", "output_coordinates_tensor"):
            given = getattr(desc, field).dimension_count
            if level < FeatureLevel.LEVEL_4_0 and given != rank:
                raise invalid(
                    desc,
                    f"{field}.dimension_count",
                    f"must be input_tensor's dimension count ({rank}) below feature level 4_0, got {given}",
                )

    @classmethod
    def lower(cls, desc: descs.NonzeroCoordinates, target: Target) -> Plan:
        """Counts per block, their scan, and a walk that writes every row; the count is what comes before a last, empty
        block."""
        source = input_tensor(desc, "input_tensor")
        scan = _compaction(desc, source, target)
        steps = blocked(scan, target)
        total = steps[0].output
        count = output_tensor(desc, "output_count_tensor", View.RAW)
        last = replace(
            total, sizes=count.sizes, strides=packed_strides(count.sizes), view=View.RAW, offset=total.units - 1
        )
        return Plan(desc.operator, (*steps, Map("count", identity(last), count)))


def _compaction(desc: descs.NonzeroCoordinates, source: Tensor, target: Target) -> Scan:
    """Return the scan over all elements as one line, with an empty block after the last one."""
    sizes, (strides,) = merge_dimensions(source.sizes, source.strides)
    line = replace(source, sizes=(1, *sizes), strides=(0, *strides))
    axes, last = tuple(range(1, line.rank)), line.rank - 1
    schedule = choose_schedule(line, line, target)
    lanes = next((lanes for lanes in (4, 2) if packs_tensor(line, last, lanes)), 1)
    line = pack_tensor(line, last, lanes) if lanes > 1 else line
    found = replace(apply("scanning/is_nonzero", DataType.UINT32, line.sizes, input=line), lanes=lanes)
    units = math.prod(line.sizes)
    length = block_length(1, units, schedule, target)
    return Scan(
        "",
        Scanning("scanning/cumulative_summation", DataType.UINT32, 1, portable=False),
        DataType.UINT32,
        found,
        axes,
        _rows(desc, line.rank),
        schedule,
        length,
        -(-units // length) + 1,
        advance="scanning/nonzero_coordinates",
        constants=constants(digits=_digits(desc)),
    )


def _rows(desc: descs.NonzeroCoordinates, rank: int) -> Tensor:
    """Return the coordinates with as many leading 1s as a rank asks for."""
    output = output_tensor(desc, "output_coordinates_tensor")
    ones = rank - 2
    return replace(output, sizes=(1,) * ones + output.sizes[-2:], strides=(0,) * ones + output.strides[-2:])


def _digits(desc: descs.NonzeroCoordinates) -> tuple[tuple[int, int], ...]:
    """Size and step of each coordinate that is asked for, in the number of an element."""
    sizes = desc.input_tensor.sizes
    wanted = desc.output_coordinates_tensor.sizes[-1]
    return tuple(zip(sizes, packed_strides(sizes), strict=True))[-wanted:]
