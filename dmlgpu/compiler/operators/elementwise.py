"""Element-wise operators: identity, casts, bits, comparisons, choices; fused activations; their common base.

The families that build on this: ``arithmetic`` and ``activation``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, FeatureLevel, IsInfinityMode
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias
from dmlgpu.common.errors import InvalidDescription
from dmlgpu.compiler.operators.lowering import Lowering, input_tensor, invalid, lowering, output_tensor
from dmlgpu.compiler.plan import Body, Constants, Map, Plan, PlanTensor, Source, View, apply, constants, portable
from dmlgpu.compiler.rewrites.sources import IDENTITY, identity

SCALE_BIAS = "elementwise/scale_bias"
ADD, MULTIPLY = "elementwise/element_wise_add", "elementwise/element_wise_multiply"
CLIP = "elementwise/element_wise_clip1"


class ElementWise(Lowering):
    """An operator whose every output element depends on the input elements at the same coordinates.

    Class attributes:
        portable: as for ``plan.Body``: the body takes float16 as f32 and 64-bit integers as pairs of words. Bodies of
            typed expressions leave it False; bodies that call library functions on f32 set it.
        operands: field of each of the body's inputs, by the name that the body uses.
        result: field of the output.
    """

    folder = "elementwise"
    portable: ClassVar[bool] = False
    operands: ClassVar[dict[str, str]] = {"input": "input_tensor"}
    result: ClassVar[str] = "output_tensor"

    @classmethod
    def constants(cls, desc: Any) -> Constants:
        """Values for the body's template."""
        return ()

    @classmethod
    def body(cls, desc: Any) -> str:
        """Return the shader file, which may depend on the description."""
        return cls.shaders[0]

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        """Lower to one map over the operator's own body; a ScaleBias is a virtual tensor before it."""
        output = getattr(desc, cls.result)
        inputs: dict[str, Source] = {name: input_tensor(desc, field) for name, field in cls.operands.items()}
        scale_bias = getattr(desc, "scale_bias", None)
        if scale_bias is not None:
            inputs["input"] = scaled(inputs["input"], scale_bias)
        values = cls.constants(desc)
        body = apply(cls.body(desc), output.data_type, output.sizes, portable=cls.portable, values=values, **inputs)
        return Plan(desc.operator, (Map("map", body, output_tensor(desc, cls.result)),))


class Binary(ElementWise):
    """An element-wise operator on a pair of tensors."""

    operands: ClassVar[dict[str, str]] = {"a": "a_tensor", "b": "b_tensor"}


def scaled(source: Source, scale_bias: ScaleBias, data_type: DataType | None = None) -> Body:
    """Return a tensor with ``x * scale + bias`` for each element.

    Float16 becomes float32, so that it is rounded once, at the end; integers are computed in float32 and converted
    back as CAST does (the pages are silent). With a ``data_type`` the result is rounded or converted to that.
    """
    source_type = source.data_type
    is_double = source_type is DataType.FLOAT64
    result = data_type or (DataType.FLOAT32 if source_type.is_reduced_float else source_type)
    values = constants(
        compute=DataType.FLOAT64 if is_double else DataType.FLOAT32,
        scale=float(scale_bias.scale),
        bias=float(scale_bias.bias),
    )
    return apply(SCALE_BIAS, result, source.sizes, portable=not is_double, values=values, input=source)


class ElementWiseIdentity(Lowering):
    """A copy of bits unless there is a ScaleBias."""

    desc = descs.ElementWiseIdentity
    shaders = (IDENTITY, SCALE_BIAS)

    @classmethod
    def lower(cls, desc: descs.ElementWiseIdentity) -> Plan:
        """Lower to one map: a copy of raw units, or the scaled values."""
        output = output_tensor(desc)
        if desc.scale_bias is None:
            copy = identity(input_tensor(desc, "input_tensor", View.RAW))
            return Plan(desc.operator, (Map("copy", copy, output),))
        body = scaled(input_tensor(desc, "input_tensor"), desc.scale_bias, output.data_type)
        return Plan(desc.operator, (Map("scale", body, output),))


def activated(body: Body, activation: OperatorDesc | None) -> Body:
    """Return a body followed by an activation, if there is one. The result is that of two separate operators: the
    body's value is rounded to its type before the activation."""
    if activation is None:
        return body
    operator: Any = lowering(activation.operator)
    return operator.fused(activation, body)


def check_activation_level(desc: Any, level: FeatureLevel) -> None:
    """Raise InvalidDescription for attribute values of a fused activation that only later levels allow."""
    inner = desc.fused_activation
    if inner is not None:
        try:
            lowering(inner.operator).check_level(inner, level)
        except InvalidDescription as error:
            raise invalid(desc, f"fused_activation.{error.field}", error.reason) from None


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


_UNSIGNED = {8: DataType.UINT8, 16: DataType.UINT16, 32: DataType.UINT32, 64: DataType.UINT64}


def as_bits(tensor: PlanTensor) -> PlanTensor:
    """Return the same elements as unsigned integers of their width."""
    return replace(tensor, data_type=_UNSIGNED[tensor.data_type.bits])


class _Bitwise(Lowering):
    """Elements are unsigned integers of their width, those of 64 bits pairs of words: the same on every adapter."""

    folder = "elementwise"
    operands: ClassVar[dict[str, str]] = {"a": "a_tensor", "b": "b_tensor"}

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        output = as_bits(output_tensor(desc))
        inputs: dict[str, Any] = {name: as_bits(input_tensor(desc, field)) for name, field in cls.operands.items()}
        body = portable(cls.shaders[0], output, **inputs)
        return Plan(desc.operator, (Map("map", body, output),))


_Bitwise.rows(
    {
        descs.ElementWiseBitAnd: "a & b",
        descs.ElementWiseBitOr: "a | b",
        descs.ElementWiseBitXor: "a ^ b",
        descs.ElementWiseBitShiftLeft: (
            "a << b, cut to the element's width. Where the page is silent, Direct3D's rule: the count is taken modulo "
            "32, for elements of 64 bits modulo 64, so that narrower ones lose all their bits to counts from their "
            "width to 31."
        ),
        descs.ElementWiseBitShiftRight: "a >> b with zeros shifted in. Counts as in SHIFT_LEFT.",
    }
)


class ElementWiseBitNot(_Bitwise):
    """~x"""

    desc = descs.ElementWiseBitNot
    operands: ClassVar[dict[str, str]] = {"input": "input_tensor"}


class ElementWiseBitCount(_Bitwise):
    """Number of bits that are 1."""

    desc = descs.ElementWiseBitCount
    operands: ClassVar[dict[str, str]] = {"input": "input_tensor"}


Binary.rows(
    {
        descs.ElementWiseLogicalAnd: "Whether both elements are true.",
        descs.ElementWiseLogicalOr: "Whether one of the elements is true.",
        descs.ElementWiseLogicalXor: "Whether exactly one of the elements is true.",
        descs.ElementWiseLogicalEquals: "Whether the elements are equal. Both zeros are; NaN is equal to nothing.",
        descs.ElementWiseLogicalGreaterThan: "a > b; false if either is NaN.",
        descs.ElementWiseLogicalLessThan: "a < b; false if either is NaN.",
        descs.ElementWiseLogicalGreaterThanOrEqual: "a >= b; false if either is NaN.",
        descs.ElementWiseLogicalLessThanOrEqual: "a <= b; false if either is NaN.",
    }
)


ElementWise.rows(
    {
        descs.ElementWiseLogicalNot: "Whether the element is 0.",
        descs.ElementWiseIsNan: "Whether the element is NaN, by its bits.",
    }
)


class ElementWiseIsInfinity(ElementWise):
    """Whether the element is an infinity of a requested sign, by its bits."""

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

    Elements are bits of their width, so that every type works on every adapter and NaN keeps its payload. The pass
    ``element-wise`` makes numbers of them.
    """

    desc = descs.ElementWiseIf
    folder = "elementwise"

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        output = as_bits(output_tensor(desc))
        body = portable(
            cls.shaders[0],
            output,
            condition=input_tensor(desc, "condition_tensor"),
            a=as_bits(input_tensor(desc, "a_tensor")),
            b=as_bits(input_tensor(desc, "b_tensor")),
        )
        return Plan(desc.operator, (Map("choose", body, output),))
