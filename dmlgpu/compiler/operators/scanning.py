"""Operators that carry something along lines: running sums and products, places of what is not zero."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import AxisDirection, DataType, FeatureLevel
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, input_tensor, invalid, output_tensor
from dmlgpu.compiler.plan import Compact, Plan, Scan, Scanning, View, constants


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
    def plan(cls, desc: Any, scanning: Scanning) -> Plan:
        """Return the plan of a scan."""
        scanning = replace(scanning, decreasing=desc.axis_direction is AxisDirection.DECREASING)
        source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        return Plan(desc.operator, (Scan("", scanning, source, desc.axis, output),))


class CumulativeSummation(_Cumulative):
    """Floats are added in float32 with their rounding errors kept, whatever the length of a line; integers wrap around.

    The page is silent on that, and on zeros: as the formula starts from 0, a line that begins with -0 begins with +0.
    Long lines are added up in blocks; one of these may overflow where the running sum, just below the limit, does not.
    """

    desc = descs.CumulativeSummation
    shaders = ("scanning/cumulative_summation", "scanning/cumulative_summation_float")

    @classmethod
    def lower(cls, desc: descs.CumulativeSummation) -> Plan:
        data_type, exclusive = desc.input_tensor.data_type, desc.has_exclusive_sum
        if data_type.is_float:
            return cls.plan(desc, Scanning(cls.shaders[1], DataType.FLOAT32, 2, True, exclusive))
        return cls.plan(desc, Scanning(cls.shaders[0], data_type, 1, False, exclusive))


class CumulativeProduct(_Cumulative):
    """Floats are multiplied with their rounding errors kept and their exponents apart; integers wrap around.

    The page is silent on that. So a product that leaves the range of float32 on the way comes back exactly, where its
    later factors allow.
    """

    desc = descs.CumulativeProduct
    shaders = ("scanning/cumulative_product", "scanning/cumulative_product_float")

    @classmethod
    def lower(cls, desc: descs.CumulativeProduct) -> Plan:
        data_type, exclusive = desc.input_tensor.data_type, desc.has_exclusive_product
        if data_type.is_float:
            return cls.plan(desc, Scanning(cls.shaders[1], DataType.FLOAT32, 4, True, exclusive))
        return cls.plan(desc, Scanning(cls.shaders[0], data_type, 1, False, exclusive))


class NonzeroCoordinates(Lowering):
    """A running count of what is not zero gives each element its row.

    Floats are told from zero by their bits: -0 is zero, subnormals and NaN (on which the page is silent) are not.
    Rows beyond the count, which the page leaves undefined, are filled with 0 here.
    """

    desc = descs.NonzeroCoordinates
    shaders = ("scanning/nonzero_coordinates", "scanning/is_nonzero", "scanning/cumulative_summation")

    @classmethod
    def usual_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        """A count, and one coordinate per dimension of the input."""
        sizes = desc.input_tensor.sizes
        return {"output_count_tensor": (1,), "output_coordinates_tensor": (math.prod(sizes), len(sizes))}

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
    def lower(cls, desc: descs.NonzeroCoordinates) -> Plan:
        """Counts per block, their scan, and a walk that writes every row; the count is what comes before a last, empty
        block."""
        output = output_tensor(desc, "output_coordinates_tensor")
        compact = Compact(
            "",
            input_tensor(desc, "input_tensor"),
            "scanning/is_nonzero",
            "scanning/nonzero_coordinates",
            constants(digits=_digits(desc)),
            replace(output, sizes=output.sizes[-2:], strides=output.strides[-2:]),
            output_tensor(desc, "output_count_tensor", View.RAW),
        )
        return Plan(desc.operator, (compact,))


def _digits(desc: descs.NonzeroCoordinates) -> tuple[tuple[int, int], ...]:
    """Size and step of each coordinate that is asked for, in the number of an element."""
    sizes = desc.input_tensor.sizes
    wanted = desc.output_coordinates_tensor.sizes[-1]
    return tuple(zip(sizes, packed_strides(sizes), strict=True))[-wanted:]
