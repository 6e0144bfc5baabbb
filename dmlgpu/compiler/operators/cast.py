"""CAST."""

from __future__ import annotations

from dmlgpu.catalog import descs
from dmlgpu.compiler.operators.elementwise import ElementWise
from dmlgpu.compiler.operators.lowering import input_tensor, output_tensor
from dmlgpu.compiler.plan import Map, Plan, View
from dmlgpu.compiler.rewrites.sources import identity


class Cast(ElementWise):
    """Converts between all types on every adapter: 64-bit operands are words, converted by integer arithmetic.

    Where the page is silent: floats truncate and saturate, NaN gives 0, integers wrap, rounding is to nearest, ties to
    even.
    """

    desc = descs.Cast
    portable = True

    @classmethod
    def lower(cls, desc: descs.Cast) -> Plan:
        if desc.input_tensor.data_type is not desc.output_tensor.data_type:
            return super().lower(desc)
        copy = identity(input_tensor(desc, "input_tensor", View.RAW))
        return Plan(desc.operator, (Map("copy", copy, output_tensor(desc)),))
