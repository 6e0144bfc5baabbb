"""Element-wise operators and CAST."""

from __future__ import annotations

from dmlgpu import descs
from dmlgpu.enums import DataType
from dmlgpu.kernels.sources import IDENTITY, identity
from dmlgpu.operators.lowering import Lowering, input_tensor, output_tensor
from dmlgpu.plan import Body, Map, Plan, View, apply, constants
from dmlgpu.target import Target

SCALE_BIAS = "elementwise/scale_bias"


class ElementWiseIdentity(Lowering):
    """Moves bits, unless a ScaleBias makes it compute.

    Integers with a ScaleBias are computed in float32 and converted back as CAST does (the page is silent).
    """

    desc = descs.ElementWiseIdentity
    shaders = (IDENTITY, SCALE_BIAS)

    @classmethod
    def lower(cls, desc: descs.ElementWiseIdentity, target: Target) -> Plan:
        """One map: a copy of raw units, or the scaled values."""
        output = output_tensor(desc)
        body = identity(input_tensor(desc, "input_tensor", View.RAW)) if desc.scale_bias is None else _scaled(desc)
        return Plan(desc.operator, (Map("copy" if desc.scale_bias is None else "scale", body, output),))


def _scaled(desc: descs.ElementWiseIdentity) -> Body:
    assert desc.scale_bias is not None
    output = desc.output_tensor
    is_double = output.data_type is DataType.FLOAT64
    values = constants(
        compute=DataType.FLOAT64 if is_double else DataType.FLOAT32,
        scale=float(desc.scale_bias.scale),
        bias=float(desc.scale_bias.bias),
    )
    source = input_tensor(desc, "input_tensor")
    return apply(SCALE_BIAS, output.data_type, output.sizes, words=not is_double, values=values, input=source)


class _Binary(Lowering):
    """An element-wise operator on a pair of tensors of the output's type."""

    @classmethod
    def lower(cls, desc: descs.ElementWiseSubtract, target: Target) -> Plan:
        """One map over the operator's own body."""
        output = desc.output_tensor
        a, b = input_tensor(desc, "a_tensor"), input_tensor(desc, "b_tensor")
        body = apply(cls.shaders[0], output.data_type, output.sizes, a=a, b=b)
        return Plan(desc.operator, (Map("map", body, output_tensor(desc)),))


class ElementWiseSubtract(_Binary):
    """Integers wrap around."""

    desc = descs.ElementWiseSubtract
    shaders = ("elementwise/element_wise_subtract",)


class ElementWiseMultiply(_Binary):
    """Integers wrap around."""

    desc = descs.ElementWiseMultiply
    shaders = ("elementwise/element_wise_multiply",)


class ElementWiseDifferenceSquare(_Binary):
    """Integers wrap around."""

    desc = descs.ElementWiseDifferenceSquare
    shaders = ("elementwise/element_wise_difference_square",)


class Cast(Lowering):
    """Converts between all types on every adapter: 64-bit operands are words, converted by integer arithmetic.

    Where the page is silent: floats truncate and saturate, NaN gives 0, integers wrap, rounding is to nearest, ties to
    even.
    """

    desc = descs.Cast
    shaders = ("elementwise/cast",)

    @classmethod
    def lower(cls, desc: descs.Cast, target: Target) -> Plan:
        """One map; a copy where the types are equal."""
        output = desc.output_tensor
        if desc.input_tensor.data_type is output.data_type:
            body = identity(input_tensor(desc, "input_tensor", View.RAW))
        else:
            source = input_tensor(desc, "input_tensor")
            body = apply(cls.shaders[0], output.data_type, output.sizes, words=True, input=source)
        return Plan(desc.operator, (Map("map", body, output_tensor(desc)),))
