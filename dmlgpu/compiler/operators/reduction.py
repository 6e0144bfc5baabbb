"""Operators that combine elements along axes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler.operators.lowering import Lowering, check_axes, check_sizes, input_tensor, output_tensor
from dmlgpu.compiler.plan import Plan, Reduction, constants
from dmlgpu.compiler.plan.steps import reductions


class _AlongAxes(Lowering):
    """What all reductions share. Unsorted axes are taken as a set; none at all and repeated ones are refused (the pages
    are silent)."""

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        sizes = desc.input_tensor.sizes
        return {"output_tensor": tuple(1 if axis in desc.axes else size for axis, size in enumerate(sizes))}

    @classmethod
    def check(cls, desc: Any) -> None:
        check_axes(desc)
        check_sizes(
            desc, "output_tensor", cls.output_sizes(desc)["output_tensor"], "input_tensor.sizes with 1 along axes"
        )

    @classmethod
    def plan(cls, desc: Any, reduction: Reduction) -> Plan:
        """Return the plan of a reduction."""
        source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        return Plan(desc.operator, (reductions.Reduce("", reduction, source, tuple(desc.axes), output),))


def _extremum(desc: descs.Argmin | descs.Argmax, order: str) -> Reduction:
    """Return the reduction that finds the first element in an order; 64-bit elements need ranks of two words."""
    decreasing = desc.axis_direction is AxisDirection.DECREASING
    values = constants(order=order, decreasing=decreasing)
    if desc.input_tensor.data_type.bits == 64:
        return Reduction("reduction/argmin_wide", DataType.UINT32, 4, portable=True, constants=values, ordered=True)
    return Reduction("reduction/argmin", DataType.UINT32, 2, portable=True, constants=values, ordered=True)


class Argmin(_AlongAxes):
    """NaN is skipped; a row of nothing but NaN gives its first number, DECREASING its last (the page is silent)."""

    desc = descs.Argmin
    shaders = ("reduction/argmin", "reduction/argmin_wide")

    @classmethod
    def lower(cls, desc: descs.Argmin) -> Plan:
        return cls.plan(desc, _extremum(desc, "ascending"))


class Argmax(_AlongAxes):
    """ARGMIN in descending order; NaN is skipped there too."""

    desc = descs.Argmax
    shaders = Argmin.shaders

    @classmethod
    def lower(cls, desc: descs.Argmax) -> Plan:
        return cls.plan(desc, _extremum(desc, "descending"))


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
    ReduceFunction.L1: "reduction/reduce_l1",
    ReduceFunction.MAX: "reduction/reduce_max",
    ReduceFunction.MIN: "reduction/reduce_min",
    ReduceFunction.MULTIPLY: "reduction/reduce_multiply",
    ReduceFunction.SUM: "reduction/reduce_sum",
    ReduceFunction.SUM_SQUARE: "reduction/reduce_sum_square",
}


class Reduce(_AlongAxes):
    """All functions, of elements along any set of axes. Where the page is silent:

    Floats are computed in float32 and rounded once to the output's type. Sums (SUM, AVERAGE, L1, L2, SUM_SQUARE,
    LOG_SUM, LOG_SUM_EXP) keep the rounding error of every addition, whatever the length of a row; SUM is infinite or
    NaN where its partial sums exceed float32. The other functions neither overflow nor underflow before their result
    does: AVERAGE and LOG_SUM add large numbers in larger units, L2 and SUM_SQUARE square in units that fit, LOG_SUM_EXP
    shifts by the largest element so far, MULTIPLY takes exponents apart from significands.

    Near a sum of 1, LOG_SUM is as far off as the sum is: up to 2^-47 times the sum of absolute values over the sum.

    NaN makes every result NaN but those of ARGMIN and ARGMAX. MIN and MAX take -0 for smaller than 0. LOG_SUM of a
    negative sum is NaN; LOG_SUM_EXP of nothing but negative infinity is negative infinity.

    Integers wrap around, also |x| of the smallest one (L1).
    """

    desc = descs.Reduce
    shaders = tuple(dict.fromkeys([*(reduction.file for reduction in _FLOATS.values()), *_INTEGERS.values()]))

    @classmethod
    def upgrade(cls, desc: descs.Reduce) -> OperatorDesc | None:
        """ARGMIN and ARGMAX have operators of their own since 3_0."""
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
