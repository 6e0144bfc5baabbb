"""What element-wise operators share, and those that only move or scale: IDENTITY.

The families that build on this: ``arithmetic``, ``comparison``, ``bits``, ``functions``, ``activation``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import ScaleBias
from dmlgpu.compiler.operators.lowering import Lowering, input_tensor, output_tensor
from dmlgpu.compiler.plan import Body, Constants, Map, Plan, Source, View, apply, constants
from dmlgpu.compiler.rewrites.sources import CONVERT, IDENTITY, identity

SCALE_BIAS = "elementwise/scale_bias"
CAST = "elementwise/cast"


class ElementWise(Lowering):
    """An operator whose every output element depends on the input elements at the same coordinates.

    Class attributes:
        portable: as for ``plan.Body``: the body takes halves as f32 and 64-bit integers as pairs of words. Bodies of
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
        """Return the shader file, where it depends on the description."""
        return cls.shaders[0]

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        """One map over the operator's own body; a ScaleBias is a virtual tensor before it."""
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

    Halves become float32, so that they are rounded once, at the end; integers are computed in float32 and converted
    back as CAST does (the pages are silent). With a ``data_type`` the result is rounded or converted to that.
    """
    given = source.data_type
    is_double = given is DataType.FLOAT64
    result = data_type or (DataType.FLOAT32 if given is DataType.FLOAT16 else given)
    values = constants(
        compute=DataType.FLOAT64 if is_double else DataType.FLOAT32,
        scale=float(scale_bias.scale),
        bias=float(scale_bias.bias),
    )
    return apply(SCALE_BIAS, result, source.sizes, portable=not is_double, values=values, input=source)


def cast(source: Source, data_type: DataType) -> Body:
    """Return the elements of a source converted to another type as CAST does."""
    return apply(CONVERT, data_type, source.sizes, portable=True, input=source)


class ElementWiseIdentity(Lowering):
    """Moves bits, unless a ScaleBias makes it compute."""

    desc = descs.ElementWiseIdentity
    shaders = (IDENTITY, SCALE_BIAS)

    @classmethod
    def lower(cls, desc: descs.ElementWiseIdentity) -> Plan:
        """One map: a copy of raw units, or the scaled values."""
        output = output_tensor(desc)
        if desc.scale_bias is None:
            copy = identity(input_tensor(desc, "input_tensor", View.RAW))
            return Plan(desc.operator, (Map("copy", copy, output),))
        body = scaled(input_tensor(desc, "input_tensor"), desc.scale_bias, output.data_type)
        return Plan(desc.operator, (Map("scale", body, output),))
