"""Operators that compare or choose: truth values are 1 and 0 in the output's type, and anything but 0 is true."""

from __future__ import annotations

from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import IsInfinityMode
from dmlgpu.compiler.operators.bits import as_bits
from dmlgpu.compiler.operators.elementwise import Binary, ElementWise
from dmlgpu.compiler.operators.lowering import Lowering, input_tensor, output_tensor
from dmlgpu.compiler.plan import Constants, Map, Plan, apply, constants


class ElementWiseLogicalAnd(Binary):
    """Whether both elements are true."""

    desc = descs.ElementWiseLogicalAnd


class ElementWiseLogicalOr(Binary):
    """Whether one of the elements is true."""

    desc = descs.ElementWiseLogicalOr


class ElementWiseLogicalXor(Binary):
    """Whether exactly one of the elements is true."""

    desc = descs.ElementWiseLogicalXor


class ElementWiseLogicalNot(ElementWise):
    """Whether the element is 0."""

    desc = descs.ElementWiseLogicalNot


class ElementWiseLogicalEquals(Binary):
    """Whether the elements are equal. Both zeros are; NaN is equal to nothing."""

    desc = descs.ElementWiseLogicalEquals


class ElementWiseLogicalGreaterThan(Binary):
    """a > b; false where one of them is NaN."""

    desc = descs.ElementWiseLogicalGreaterThan


class ElementWiseLogicalLessThan(Binary):
    """a < b; false where one of them is NaN."""

    desc = descs.ElementWiseLogicalLessThan


class ElementWiseLogicalGreaterThanOrEqual(Binary):
    """a >= b; false where one of them is NaN."""

    desc = descs.ElementWiseLogicalGreaterThanOrEqual


class ElementWiseLogicalLessThanOrEqual(Binary):
    """a <= b; false where one of them is NaN."""

    desc = descs.ElementWiseLogicalLessThanOrEqual


class ElementWiseIsNan(ElementWise):
    """Whether the element is NaN, by its bits."""

    desc = descs.ElementWiseIsNan


class ElementWiseIsInfinity(ElementWise):
    """Whether the element is an infinity of a sign that is sought, by its bits."""

    desc = descs.ElementWiseIsInfinity

    @classmethod
    def constants(cls, desc: descs.ElementWiseIsInfinity) -> Constants:
        functions = {
            IsInfinityMode.EITHER: "is_infinity",
            IsInfinityMode.POSITIVE: "is_positive_infinity",
            IsInfinityMode.NEGATIVE: "is_negative_infinity",
        }
        return constants(sought=functions[desc.infinity_mode])


class ElementWiseIf(Lowering):
    """Picks from a where the condition is true, else from b.

    Elements are bits of their width, so that every type works on every adapter and NaN keeps its payload.
    """

    desc = descs.ElementWiseIf
    folder = "elementwise"

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        output = as_bits(output_tensor(desc))
        body = apply(
            cls.shaders[0],
            output.data_type,
            output.sizes,
            portable=True,
            condition=input_tensor(desc, "condition_tensor"),
            a=as_bits(input_tensor(desc, "a_tensor")),
            b=as_bits(input_tensor(desc, "b_tensor")),
        )
        return Plan(desc.operator, (Map("choose", body, output),))
