"""Operators that combine elements along axes: reductions, running sums and products, sorted order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import AxisDirection, DataType, FeatureLevel, ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.operators.lowering import (
    Lowering,
    check_axes,
    check_axis,
    check_sizes,
    input_tensor,
    invalid,
    output_tensor,
)
from dmlgpu.compiler.plan import (
    Compact,
    Map,
    Plan,
    PlanTensor,
    Reduce,
    Reduction,
    Scan,
    Scanning,
    Sort,
    View,
    constants,
    element,
    record_lanes,
)
from dmlgpu.compiler.rewrites.sources import cast


class _AlongAxes(Lowering):
    """Base of all reductions. Unsorted axes are taken as a set; none at all and repeated ones are rejected (the pages
    are silent)."""

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        sizes = desc.input_tensor.sizes
        return {"output_tensor": tuple(1 if axis in desc.axes else size for axis, size in enumerate(sizes))}

    @classmethod
    def check(cls, desc: Any) -> None:
        check_axes(desc)
        cls.check_output(desc, "input_tensor.sizes with 1 along axes")

    @classmethod
    def plan(cls, desc: Any, reduction: Reduction) -> Plan:
        """Return the plan of a reduction."""
        source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        return Plan(desc.operator, (Reduce("", reduction, source, tuple(desc.axes), output),))


class _Extremum(_AlongAxes):
    """Base of operators that find the first element in an order; ranks of 64-bit elements take two words."""

    shaders = ("reduction/argmin", "reduction/argmin_wide")
    order: ClassVar[str]

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        is_wide = desc.input_tensor.data_type.bits == 64
        values = constants(order=cls.order, decreasing=desc.axis_direction is AxisDirection.DECREASING)
        file, lanes = cls.shaders[is_wide], 4 if is_wide else 2
        return cls.plan(desc, Reduction(file, DataType.UINT32, lanes, portable=True, constants=values, ordered=True))


class Argmin(_Extremum):
    """NaN is skipped; a row with only NaN gives its first index, DECREASING its last (the page is silent)."""

    desc = descs.Argmin
    order = "ascending"


class Argmax(_Extremum):
    """ARGMIN in descending order, which skips NaN too."""

    desc = descs.Argmax
    order = "descending"


_NEWER: Mapping[ReduceFunction, type[descs.Argmin | descs.Argmax]] = {
    ReduceFunction.ARGMIN: descs.Argmin,
    ReduceFunction.ARGMAX: descs.Argmax,
}


def _float_reduction(name: str, lanes: int, accumulator: DataType = DataType.FLOAT32) -> Reduction:
    return Reduction(f"reduction/reduce_{name}", accumulator, lanes, portable=True)


_FLOATS: Mapping[ReduceFunction, Reduction] = {
    ReduceFunction.AVERAGE: _float_reduction("average", 4),
    ReduceFunction.L1: _float_reduction("l1_float", 2),
    ReduceFunction.L2: _float_reduction("l2", 4),
    ReduceFunction.LOG_SUM: _float_reduction("log_sum", 4),
    ReduceFunction.LOG_SUM_EXP: _float_reduction("log_sum_exp", 4),
    ReduceFunction.MAX: _float_reduction("max", 1),
    ReduceFunction.MIN: _float_reduction("min", 1),
    ReduceFunction.MULTIPLY: _float_reduction("multiply_float", 4, DataType.UINT32),
    ReduceFunction.SUM: _float_reduction("sum_float", 2),
    ReduceFunction.SUM_SQUARE: _float_reduction("sum_square_float", 4),
}

_INTEGERS: Mapping[ReduceFunction, str] = {
    ReduceFunction[name.upper()]: f"reduction/reduce_{name}"
    for name in ("l1", "max", "min", "multiply", "sum", "sum_square")
}


class ReduceOperator(_AlongAxes):
    """All functions, of elements along any set of axes. Where the page is silent:

    Floats are computed in float32 and rounded once to the output's type. Sums (SUM, AVERAGE, L1, L2, SUM_SQUARE,
    LOG_SUM, LOG_SUM_EXP) are compensated for the rounding error of every addition, for rows of any length; SUM is
    infinite or NaN if its partial sums exceed float32. The other functions overflow or underflow only if their result
    does: AVERAGE and LOG_SUM add large numbers in larger units, L2 and SUM_SQUARE square in units that fit, LOG_SUM_EXP
    shifts by the running maximum, MULTIPLY separates exponents from significands.

    Near a sum of 1, LOG_SUM has the error of the sum: up to 2^-47 times the sum of absolute values over the sum.

    NaN makes every result NaN but those of ARGMIN and ARGMAX. MIN and MAX take -0 for smaller than 0. LOG_SUM of a
    negative sum is NaN; LOG_SUM_EXP of only negative infinity is negative infinity.

    Integers wrap around, also |x| of the smallest one (L1).
    """

    desc = descs.Reduce
    shaders = tuple(dict.fromkeys([*(reduction.file for reduction in _FLOATS.values()), *_INTEGERS.values()]))

    @classmethod
    def upgrade(cls, desc: descs.Reduce) -> OperatorDesc | None:
        """Since 3_0, ARGMIN and ARGMAX are separate operators."""
        if desc.function not in _NEWER:
            return None
        return _NEWER[desc.function](
            input_tensor=desc.input_tensor,
            output_tensor=desc.output_tensor,
            axes=desc.axes,
            axis_direction=AxisDirection.INCREASING,
        )

    @classmethod
    def lower(cls, desc: descs.Reduce) -> Plan:
        data_type = desc.input_tensor.data_type
        if data_type.is_float:
            return cls.plan(desc, _of_floats(desc))
        return cls.plan(desc, _of_integers(desc.function, data_type))


def _of_floats(desc: descs.Reduce) -> Reduction:
    """Return the reduction of floats; FLOAT16 is computed in float32 too."""
    reduction = _FLOATS[desc.function]
    if desc.function is not ReduceFunction.AVERAGE:
        return reduction
    terms = math.prod(desc.input_tensor.sizes[axis] for axis in desc.axes)
    return replace(reduction, constants=constants(terms=terms))


def _of_integers(function: ReduceFunction, data_type: DataType) -> Reduction:
    """Return the reduction of integers; narrow ones are accumulated in 32 bits."""
    file = _INTEGERS[function]
    if function is ReduceFunction.L1 and not data_type.is_signed:
        file = _INTEGERS[ReduceFunction.SUM]
    wide = data_type if data_type.bits >= 32 else DataType.INT32 if data_type.is_signed else DataType.UINT32
    return Reduction(file, wide, 1, portable=False)


class _Cumulative(Lowering):
    """Base of running sums and products."""

    lanes: ClassVar[int]
    exclusive: ClassVar[str]

    @classmethod
    def check(cls, desc: Any) -> None:
        check_axis(desc, "input_tensor")

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        data_type, exclusive = desc.input_tensor.data_type, getattr(desc, cls.exclusive)
        integers, floats = cls.shaders
        scanning = (
            Scanning(floats, DataType.FLOAT32, cls.lanes, True, exclusive)
            if data_type.is_float
            else Scanning(integers, data_type, 1, False, exclusive)
        )
        scanning = replace(scanning, decreasing=desc.axis_direction is AxisDirection.DECREASING)
        source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        return Plan(desc.operator, (Scan("", scanning, source, desc.axis, output),))


class CumulativeSummation(_Cumulative):
    """Floats are summed in float32 with compensation, for lines of any length; integers wrap around.

    The page is silent on that, and on zeros: because the formula starts from 0, a line that begins with -0 begins with
    +0. Long lines are summed in blocks; a block may overflow although the running sum, just below the limit, does not.
    """

    desc = descs.CumulativeSummation
    shaders = ("scanning/cumulative_summation", "scanning/cumulative_summation_float")
    lanes = 2
    exclusive = "has_exclusive_sum"


class CumulativeProduct(_Cumulative):
    """Floats are multiplied with compensated rounding errors and separate exponents; integers wrap around.

    The page is silent on that. So a product that temporarily leaves the range of float32 is exact again once later
    factors bring it back.
    """

    desc = descs.CumulativeProduct
    shaders = ("scanning/cumulative_product", "scanning/cumulative_product_float")
    lanes = 4
    exclusive = "has_exclusive_product"


class NonzeroCoordinates(Lowering):
    """A running count of nonzero elements gives each element its row.

    Floats are compared with zero by their bits: -0 is zero, subnormals and NaN (on which the page is silent) are not.
    Rows beyond the count, which the page leaves undefined, are filled with 0 here.
    """

    desc = descs.NonzeroCoordinates
    shaders = ("scanning/nonzero_coordinates", "scanning/is_nonzero", "scanning/cumulative_summation")

    @classmethod
    def default_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        """Check that the count is single, and rows have one coordinate per dimension of the input."""
        sizes = desc.input_tensor.sizes
        return {"output_count_tensor": (1,), "output_coordinates_tensor": (math.prod(sizes), len(sizes))}

    @classmethod
    def output_sizes(cls, desc: descs.NonzeroCoordinates) -> Mapping[str, tuple[int, ...]]:
        """Return a single count and one row per element; the caller chooses the number of coordinates."""
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
        count, rank = sizes["output_coordinates_tensor"][-1], desc.input_tensor.dimension_count
        fewest = rank - next((d for d, size in enumerate(desc.input_tensor.sizes) if size > 1), rank)
        if not fewest <= count <= rank:
            raise invalid(
                desc,
                "output_coordinates_tensor.sizes[-1]",
                f"must be between input_tensor's dimension count without leading 1s ({fewest}) and with them ({rank}),"
                f" got {count}",
            )

    @classmethod
    def check_level(cls, desc: descs.NonzeroCoordinates, level: FeatureLevel) -> None:
        """Below 4_0 all three tensors have the same dimension count."""
        rank = desc.input_tensor.dimension_count
        for field in ("output_count_tensor", "output_coordinates_tensor"):
            count = getattr(desc, field).dimension_count
            if level < FeatureLevel.LEVEL_4_0 and count != rank:
                raise invalid(
                    desc,
                    f"{field}.dimension_count",
                    f"must be input_tensor's dimension count ({rank}) below feature level 4_0, got {count}",
                )

    @classmethod
    def lower(cls, desc: descs.NonzeroCoordinates) -> Plan:
        """Lower to counts per block, their scan, and a kernel that writes every row; the total is the scan's result for
        an extra, empty block."""
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
    """Size and stride of each requested coordinate, in the flat index of an element."""
    sizes = desc.input_tensor.sizes
    count = desc.output_coordinates_tensor.sizes[-1]
    return tuple(zip(sizes, packed_strides(sizes), strict=True))[-count:]


class TopK1(Lowering):
    """Sorts by bits, exactly and deterministically; values keep their bits, the payload of a NaN too.

    The page does not specify the following: K may be the whole axis, which sorts it. NaN, of either sign, is larger
    than all numbers: it comes first for DECREASING, last for INCREASING (as in NumPy's and PyTorch's sorting and ONNX's
    reference; onnxruntime's order is undefined then). NaNs are equal among each other, as are both zeros; of equal
    elements the one with the lower index comes first, in both directions.
    """

    desc = descs.TopK1
    shaders = ("sorting/top_k1", "sorting/record", "sorting/record_wide")

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        sizes = tuple(desc.k if d == desc.axis else size for d, size in enumerate(desc.input_tensor.sizes))
        return {"output_value_tensor": sizes, "output_index_tensor": sizes}

    @classmethod
    def check(cls, desc: Any) -> None:
        check_axis(desc, "input_tensor")
        length = desc.input_tensor.sizes[desc.axis]
        if not 1 <= desc.k <= length:
            raise invalid(desc, "k", f"must be from 1 to input_tensor.sizes[{desc.axis}] ({length}), got {desc.k}")
        for field, sizes in cls.output_sizes(desc).items():
            check_sizes(desc, field, sizes, "input_tensor.sizes with k along the axis")

    @classmethod
    def lower(cls, desc: descs.TopK1) -> Plan:
        """Lower to a sort of records of rank and index, then copies of the indices and of the elements there."""
        source, decreasing = input_tensor(desc, "input_tensor"), desc.axis_direction is AxisDirection.DECREASING
        others = (size for dimension, size in enumerate(source.sizes) if dimension != desc.axis)
        lanes = record_lanes(source.data_type)
        records = PlanTensor.temporary("sorted", DataType.UINT32, (*others, desc.k), view=View.RAW, lanes=lanes)
        places = _places(records, output_tensor(desc, "output_value_tensor").sizes, desc.axis)
        sort = Sort("", source, desc.axis, decreasing, records)
        return Plan(desc.operator, (sort, _values(desc, places), _indices(desc, places)))


def _places(records: PlanTensor, sizes: tuple[int, ...], axis: int) -> PlanTensor:
    """Return the indices in records, which have the axis last, over dimensions of other sizes."""
    lanes, length = records.lanes, sizes[axis]
    others = packed_strides([1 if dimension == axis else size for dimension, size in enumerate(sizes)])
    strides = tuple(lanes if dimension == axis else lanes * length * stride for dimension, stride in enumerate(others))
    return PlanTensor(records.binding, DataType.UINT32, sizes, strides, View.INDEX, offset=lanes // 2)


def _values(desc: descs.TopK1, places: PlanTensor) -> Map:
    """Return the map that copies the elements at the indices."""
    source, output = input_tensor(desc, "input_tensor", View.RAW), output_tensor(desc, "output_value_tensor")
    values = constants(axis=desc.axis)
    body = element(TopK1.shaders[0], output.data_type, output.sizes, values=values, input=source, places=places)
    return Map("values", body, output)


def _indices(desc: descs.TopK1, places: PlanTensor) -> Map:
    """Return the map that converts the indices to the data type of the index tensor."""
    output = output_tensor(desc, "output_index_tensor")
    source = PlanTensor(places.binding, places.data_type, places.sizes, places.strides, offset=places.offset)
    return Map("indices", cast(source, output.data_type), output)


Lowering.older(descs.TopK, descs.TopK1, "TOP_K1 with the largest first.", axis_direction=AxisDirection.DECREASING)
