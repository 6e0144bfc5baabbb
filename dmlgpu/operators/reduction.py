"""Operators that combine elements along axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmlgpu import descs
from dmlgpu.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.errors import OperatorNotImplemented
from dmlgpu.kernels.reduce import Reduction, reduce_steps
from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.operators.lowering import Lowering, check_axes, check_sizes, input_tensor, output_tensor
from dmlgpu.plan import Plan, constants
from dmlgpu.target import Target


class _AlongAxes(Lowering):
    """What all reductions share. Unsorted axes are taken as a set; none at all and repeated ones are refused (the pages
    are silent)."""

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        """The input's sizes, 1 along the axes."""
        sizes = desc.input_tensor.sizes
        return {"output_tensor": tuple(1 if axis in desc.axes else size for axis, size in enumerate(sizes))}

    @classmethod
    def check(cls, desc: Any) -> None:
        """Axes and output sizes."""
        check_axes(desc)
        check_sizes(
            desc, "output_tensor", cls.output_sizes(desc)["output_tensor"], "input_tensor.sizes with 1 along axes"
        )

    @classmethod
    def plan(cls, desc: Any, reduction: Reduction, target: Target) -> Plan:
        """The plan of a reduction."""
        source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        steps, temporaries = reduce_steps(reduction, source, desc.axes, output, target)
        return Plan(desc.operator, steps, temporaries)


def _extremum(desc: descs.Argmin | descs.Argmax, order: str) -> Reduction:
    """Finds the element that comes first in an order; 64-bit elements need ranks of two words."""
    decreasing = desc.axis_direction is AxisDirection.DECREASING
    values = constants(order=order, decreasing=decreasing)
    if desc.input_tensor.data_type.bits == 64:
        return Reduction("reduction/argmin_wide", DataType.UINT32, 4, words=True, constants=values)
    return Reduction("reduction/argmin", DataType.UINT32, 2, words=True, constants=values)


class Argmin(_AlongAxes):
    """NaN is skipped; a row of nothing but NaN gives its first number, DECREASING its last (the page is silent)."""

    desc = descs.Argmin
    shaders = ("reduction/argmin", "reduction/argmin_wide")

    @classmethod
    def lower(cls, desc: descs.Argmin, target: Target) -> Plan:
        """The smallest element first."""
        return cls.plan(desc, _extremum(desc, "ascending"), target)


class Argmax(_AlongAxes):
    """ARGMIN in descending order; NaN is skipped there too."""

    desc = descs.Argmax
    shaders = Argmin.shaders

    @classmethod
    def lower(cls, desc: descs.Argmax, target: Target) -> Plan:
        """The largest element first."""
        return cls.plan(desc, _extremum(desc, "descending"), target)


class Reduce(_AlongAxes):
    """SUM: floats in float32 with their rounding errors kept, whatever the length of a row; integers wrap around.

    The other functions but ARGMIN and ARGMAX are refused by name as not implemented yet.
    """

    desc = descs.Reduce
    shaders = ("reduction/reduce_sum", "reduction/reduce_sum_float")

    @classmethod
    def check(cls, desc: descs.Reduce) -> None:
        """Axes, output sizes, and a function that is implemented."""
        if desc.function not in (ReduceFunction.SUM, ReduceFunction.ARGMIN, ReduceFunction.ARGMAX):
            raise OperatorNotImplemented(f"REDUCE with function {desc.function.name}")
        super().check(desc)

    @classmethod
    def upgrade(cls, desc: descs.Reduce) -> OperatorDesc | None:
        """ARGMIN and ARGMAX have operators of their own since 3_0."""
        newer = {ReduceFunction.ARGMIN: descs.Argmin, ReduceFunction.ARGMAX: descs.Argmax}.get(desc.function)
        if newer is None:
            return None
        return newer(
            input_tensor=desc.input_tensor,
            output_tensor=desc.output_tensor,
            axes=desc.axes,
            axis_direction=AxisDirection.INCREASING,
        )

    @classmethod
    def lower(cls, desc: descs.Reduce, target: Target) -> Plan:
        """A sum."""
        data_type = desc.input_tensor.data_type
        if data_type.is_float:
            return cls.plan(desc, Reduction("reduction/reduce_sum_float", DataType.FLOAT32, 2, words=True), target)
        return cls.plan(desc, Reduction("reduction/reduce_sum", data_type, 1, words=False), target)
