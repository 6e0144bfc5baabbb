"""Activations: by themselves on a tensor, or fused onto what another operator computes; the body is the same.

All are computed in float32, halves as well, and rounded to the output's type once. NaN stays NaN where the formula lets
it through: comparisons with it are false. No attribute value is refused: the formula is followed, in float32.
"""

from __future__ import annotations

from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias
from dmlgpu.compiler.operators.elementwise import SCALE_BIAS, ElementWise, scaled
from dmlgpu.compiler.operators.lowering import input_tensor, invalid, output_tensor
from dmlgpu.compiler.plan import Body, Constants, Map, Plan, Source, View, apply, constants
from dmlgpu.compiler.rewrites.sources import IDENTITY, identity


class Activation(ElementWise):
    """An element-wise function of one number, with attributes of its own."""

    folder = "activation"
    portable = True

    @classmethod
    def constants(cls, desc: OperatorDesc) -> Constants:
        tensors = (*desc.input_fields, *desc.output_fields)
        attributes = {name: getattr(desc, name) for name in desc.field_names if name not in tensors}
        return constants(compute=DataType.FLOAT32, **attributes)

    @classmethod
    def fused(cls, desc: Any, source: Source) -> Body:
        """Return the activation of a source, in memory or virtual, as a virtual tensor of the same type and sizes.

        The description's own tensors, if it has any, don't matter.
        """
        values = cls.constants(desc)
        return apply(cls.body(desc), source.data_type, source.sizes, portable=cls.portable, values=values, input=source)

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        body = cls.fused(desc, input_tensor(desc, "input_tensor"))
        return Plan(desc.operator, (Map("map", body, output_tensor(desc)),))


class ActivationElu(Activation):
    """Exponential linear unit; e^x - 1 keeps its digits where x is small."""

    desc = descs.ActivationElu


class ActivationCelu(Activation):
    """Continuously differentiable exponential linear unit. An alpha of 0 gives NaN from 0 on, as 0 * infinity."""

    desc = descs.ActivationCelu


class ActivationScaledElu(Activation):
    """Scaled exponential linear unit, with gamma * (alpha * (e^x - 1)) for the page's gamma * (alpha * e^x - alpha)."""

    desc = descs.ActivationScaledElu


class ActivationHardSigmoid(Activation):
    """A line cut off at 0 and 1."""

    desc = descs.ActivationHardSigmoid


class ActivationIdentity(Activation):
    """By itself a copy of bits, fused nothing at all."""

    desc = descs.ActivationIdentity
    shaders = (IDENTITY,)

    @classmethod
    def fused(cls, desc: Any, source: Source) -> Body:
        return source if isinstance(source, Body) else identity(source)

    @classmethod
    def lower(cls, desc: descs.ActivationIdentity) -> Plan:
        copy = cls.fused(desc, input_tensor(desc, "input_tensor", View.RAW))
        return Plan(desc.operator, (Map("copy", copy, output_tensor(desc)),))


class ActivationLeakyRelu(Activation):
    """Rectified linear unit with a slope below 0."""

    desc = descs.ActivationLeakyRelu


class ActivationLinear(Activation):
    """A line: the same as a ScaleBias."""

    desc = descs.ActivationLinear
    shaders = (SCALE_BIAS,)

    @classmethod
    def fused(cls, desc: Any, source: Source) -> Body:
        return scaled(source, ScaleBias(desc.alpha, desc.beta), source.data_type)


class ActivationParameterizedRelu(ElementWise):
    """Rectified linear unit with a slope below 0 for each element; integer products wrap around."""

    desc = descs.ActivationParameterizedRelu
    folder = "activation"
    portable = True
    operands: ClassVar[dict[str, str]] = {"input": "input_tensor", "slope": "slope_tensor"}


class ActivationParametricSoftplus(Activation):
    """Softplus with scales inside and outside; infinite where the product inside overflows."""

    desc = descs.ActivationParametricSoftplus


class ActivationRelu(Activation):
    """Rectified linear unit."""

    desc = descs.ActivationRelu


class ActivationReluGrad(ElementWise):
    """Gradient of the rectified linear unit: 0 at an input of 0, and of NaN."""

    desc = descs.ActivationReluGrad
    folder = "activation"
    portable = True
    operands: ClassVar[dict[str, str]] = {"input": "input_tensor", "gradient": "input_gradient_tensor"}
    result = "output_gradient_tensor"


class ActivationScaledTanh(Activation):
    """Hyperbolic tangent with scales inside and outside."""

    desc = descs.ActivationScaledTanh


class ActivationSigmoid(Activation):
    """Logistic function, which overflows nowhere."""

    desc = descs.ActivationSigmoid


class ActivationSoftplus(Activation):
    """Softplus with a steepness, which overflows nowhere. A steepness of 0 gives infinity, as log(2) / 0.

    Where steepness * x is infinite the result is x, also for an infinite steepness, as for large ones.
    """

    desc = descs.ActivationSoftplus

    @classmethod
    def check_level(cls, desc: descs.ActivationSoftplus, level: FeatureLevel) -> None:
        """Below 6_4 the steepness is at least 1."""
        if level < FeatureLevel.LEVEL_6_4 and not desc.steepness >= 1:
            raise invalid(desc, "steepness", f"must be at least 1 below feature level 6_4, got {desc.steepness}")


class ActivationSoftsign(Activation):
    """x / (1 + |x|); infinities give NaN, as the formula has it."""

    desc = descs.ActivationSoftsign


class ActivationTanh(Activation):
    """Hyperbolic tangent; infinities give 1 and -1, though the page's formula has NaN at -infinity."""

    desc = descs.ActivationTanh
    shaders = ("elementwise/element_wise_tanh",)


class ActivationThresholdedRelu(Activation):
    """The input above a threshold; NaN is not above it and gives 0."""

    desc = descs.ActivationThresholdedRelu


class ActivationShrink(Activation):
    """Shrinks towards zero; NaN gives 0. Integers are computed in float32 and converted back as CAST does."""

    desc = descs.ActivationShrink


class ActivationGelu(Activation):
    """Gaussian error linear unit; its negative tail keeps its digits. -infinity gives NaN, as infinity * 0."""

    desc = descs.ActivationGelu


class ActivationSwish(Activation):
    """The input times a sigmoid; -infinity gives NaN, as the formula has infinity * 0."""

    desc = descs.ActivationSwish


class ActivationHardSwish(Activation):
    """The input times a line cut off at 0 and 1; -infinity gives NaN, as the formula has infinity * 0."""

    desc = descs.ActivationHardSwish
