"""Activations, applied to a tensor or fused into another operator, and softmax of rows.

All are computed in float32, float16 as well, and rounded to the output's type once. NaN stays NaN where the formula
lets it through: comparisons with it are false. No attribute value is rejected: the formula is followed, in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias
from dmlgpu.compiler.operators.elementwise import SCALE_BIAS, ElementWise, scaled
from dmlgpu.compiler.operators.lowering import Lowering, check_axes, input_tensor, invalid, output_tensor
from dmlgpu.compiler.plan import (
    Body,
    Constants,
    Element,
    Map,
    Plan,
    PlanTensor,
    Reduce,
    Reduction,
    Rows,
    Source,
    Stage,
    View,
    apply,
    constants,
    repeated,
    row_sizes,
)
from dmlgpu.compiler.plan.reductions import rows
from dmlgpu.compiler.rewrites.collapse import merge_tensor, row_groups
from dmlgpu.compiler.rewrites.sources import HARDMAX, HARDMAX_FLAT, IDENTITY, identity


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


Activation.rows(
    {
        descs.ActivationElu: "Exponential linear unit; e^x - 1 keeps its digits where x is small.",
        descs.ActivationCelu: (
            "Continuously differentiable exponential linear unit. An alpha of 0 gives NaN from 0 on, as 0 * infinity."
        ),
        descs.ActivationScaledElu: (
            "Scaled exponential linear unit, with gamma * (alpha * (e^x - 1)) for the page's gamma * (alpha * e^x - "
            "alpha)."
        ),
        descs.ActivationHardSigmoid: "A line cut off at 0 and 1.",
        descs.ActivationLeakyRelu: "Rectified linear unit with a slope below 0.",
        descs.ActivationParametricSoftplus: (
            "Softplus with scales inside and outside; infinite where the product inside overflows."
        ),
        descs.ActivationRelu: "Rectified linear unit.",
        descs.ActivationScaledTanh: "Hyperbolic tangent with scales inside and outside.",
        descs.ActivationSigmoid: "Logistic function, which overflows nowhere.",
        descs.ActivationSoftsign: "x / (1 + |x|); infinities give NaN, as the formula has it.",
        descs.ActivationThresholdedRelu: "The input above a threshold; NaN is not above it and gives 0.",
        descs.ActivationShrink: (
            "Shrinks towards zero; NaN gives 0. Integers are computed in float32 and converted back as CAST does."
        ),
        descs.ActivationGelu: (
            "Gaussian error linear unit; its negative tail keeps its digits. -infinity gives NaN, as infinity * 0."
        ),
        descs.ActivationSwish: "The input times a sigmoid; -infinity gives NaN, as the formula has infinity * 0.",
        descs.ActivationHardSwish: (
            "The input times a line cut off at 0 and 1; -infinity gives NaN, as the formula has infinity * 0."
        ),
    }
)


class ActivationIdentity(Activation):
    """A copy of bits as an operator, and no code at all if fused."""

    desc = descs.ActivationIdentity
    shaders = (IDENTITY,)

    @classmethod
    def fused(cls, desc: Any, source: Source) -> Body:
        return source if isinstance(source, Body) else identity(source)

    @classmethod
    def lower(cls, desc: descs.ActivationIdentity) -> Plan:
        copy = cls.fused(desc, input_tensor(desc, "input_tensor", View.RAW))
        return Plan(desc.operator, (Map("copy", copy, output_tensor(desc)),))


class ActivationLinear(Activation):
    """Linear function, the same as a ScaleBias."""

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


class ActivationReluGrad(ElementWise):
    """Gradient of the rectified linear unit: 0 at an input of 0, and of NaN."""

    desc = descs.ActivationReluGrad
    folder = "activation"
    portable = True
    operands: ClassVar[dict[str, str]] = {"input": "input_tensor", "gradient": "input_gradient_tensor"}
    result = "output_gradient_tensor"


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


class ActivationTanh(Activation):
    """Hyperbolic tangent; infinities give 1 and -1, though the page's formula has NaN at -infinity."""

    desc = descs.ActivationTanh
    shaders = ("elementwise/element_wise_tanh",)


class _WithAxes(Lowering):
    """Base of the operators with axes. Unsorted axes are taken as a set; none at all and repeated ones are rejected
    (the pages are silent)."""

    @classmethod
    def check(cls, desc: Any) -> None:
        check_axes(desc)


class _Stable(_WithAxes):
    """Rows are shifted by their largest element, so that nothing overflows; sums are compensated, for rows of any
    length.

    Other cases follow from the formula in IEEE arithmetic: a row with NaN or positive infinity, or with only negative
    infinity, becomes NaN (as in onnxruntime and SciPy); negative infinity among finite numbers is a weight of 0.
    """

    stages: ClassVar[tuple[Stage, ...]]

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        """Lower to one kernel if rows are short enough, else to reductions and a map."""
        source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        return Plan(desc.operator, (cls.of_rows(source, desc.axes, output),))

    @classmethod
    def of_rows(cls, source: PlanTensor, axes: Sequence[int], output: PlanTensor) -> Rows:
        """Return the step for a tensor whose rows lie along axes."""

        def body(data_type: DataType, sources: Mapping[str, Source]) -> Body:
            return apply(cls.shaders[0], data_type, source.sizes, portable=True, values=(), **sources)

        return rows(cls.stages, body, source, axes, output)


_MAXIMUM = Stage("maximum", "softmax/maximum", 1)


class ActivationSoftmax1(_Stable):
    """e^(x - maximum) divided by its sum along the axes, in float32."""

    desc = descs.ActivationSoftmax1
    shaders = (
        "softmax/activation_softmax1",
        "softmax/maximum",
        "softmax/exponential",
        "softmax/total",
        "softmax/weights",
    )
    stages = (_MAXIMUM, Stage("total", "softmax/total", 2, "softmax/exponential"))


class ActivationLogSoftmax1(_Stable):
    """x - maximum - log(sum of e^(x - maximum)), in float32; precise also where the result is near 0."""

    desc = descs.ActivationLogSoftmax1
    shaders = ("softmax/activation_log_softmax1", "softmax/maximum", "softmax/exponential", "softmax/log_total")
    stages = (_MAXIMUM, Stage("log_total", "softmax/log_total", 2, "softmax/exponential"))


class ActivationHardmax1(_WithAxes):
    """1 at the first largest element along the axes in row-major order, 0 elsewhere.

    NaN is skipped, as in ARGMAX; a row with only NaN has its 1 at the start (the page is silent).
    """

    desc = descs.ActivationHardmax1
    shaders = (HARDMAX, "reduction/argmin", HARDMAX_FLAT)

    @classmethod
    def lower(cls, desc: descs.ActivationHardmax1) -> Plan:
        """Lower to ARGMAX and a map that compares indices without reading the input again."""
        source, output = input_tensor(desc, "input_tensor"), output_tensor(desc)
        across, along = row_groups(source.sizes, sorted(desc.axes), [source, output])
        source, output = merge_tensor(source, across + along), merge_tensor(output, across + along)
        axes = tuple(range(len(across), source.rank))
        first = PlanTensor.temporary("first", DataType.UINT32, row_sizes(source.sizes, axes))
        order = constants(order="descending", decreasing=False)
        argmax = Reduction("reduction/argmin", DataType.UINT32, 2, portable=True, constants=order, ordered=True)
        body = Element(
            HARDMAX,
            output.data_type,
            output.sizes,
            (("first", repeated(first, output.sizes)),),
            constants(sizes=output.sizes, axes=axes),
            portable=True,
            follows=(tuple(range(output.rank)),),
        )
        return Plan(desc.operator, (Reduce("", argmax, source, axes, first), Map("map", body, output)))


class _OfRows(Lowering):
    """Older operators: rows lie along the last dimension, and at most one other is larger than 1."""

    newer: ClassVar[type[OperatorDesc]]

    @classmethod
    def check(cls, desc: Any) -> None:
        sizes = desc.input_tensor.sizes
        if any(size > 1 for size in sizes[:-2]):
            raise invalid(
                desc,
                "input_tensor.sizes",
                f"must have 1 in all dimensions but the last two ({cls.newer.operator} takes any), got {list(sizes)}",
            )

    @classmethod
    def upgrade(cls, desc: Any) -> OperatorDesc:
        return cls.newer(**desc.values, axes=(desc.input_tensor.dimension_count - 1,))


class ActivationSoftmax(_OfRows):
    """SOFTMAX1 along the last axis."""

    desc = descs.ActivationSoftmax
    newer = descs.ActivationSoftmax1


_OfRows.older(descs.ActivationLogSoftmax, descs.ActivationLogSoftmax1, "LOG_SOFTMAX1 along the last axis.")


_OfRows.older(descs.ActivationHardmax, descs.ActivationHardmax1, "HARDMAX1 along the last axis.")
