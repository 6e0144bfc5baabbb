"""Element-wise arithmetic. Integers wrap around; floats are what the formula in IEEE arithmetic gives, rounded once."""

from __future__ import annotations

from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, RoundingMode
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler.operators.elementwise import Binary, ElementWise, scaled
from dmlgpu.compiler.operators.fused import activated
from dmlgpu.compiler.operators.lowering import Lowering, input_tensor, output_tensor
from dmlgpu.compiler.operators.scalars import converted
from dmlgpu.compiler.plan import Body, Constants, Map, Plan, Source, apply, constants


class _Scalable(ElementWise):
    """With a ScaleBias halves come as float32; so they do without one, that the body sees one type."""

    portable = True


# ---- sums, products, quotients


class ElementWiseAdd(Binary):
    """a + b"""

    desc = descs.ElementWiseAdd


class ElementWiseAdd1(Lowering):
    """ADD, then a fused activation. The sum is rounded to the tensor's type before it, as a store would."""

    desc = descs.ElementWiseAdd1
    shaders = ElementWiseAdd.shaders

    @classmethod
    def lower(cls, desc: descs.ElementWiseAdd1) -> Plan:
        output = output_tensor(desc)
        a, b = input_tensor(desc, "a_tensor"), input_tensor(desc, "b_tensor")
        total = apply(cls.shaders[0], output.data_type, output.sizes, a=a, b=b)
        return Plan(desc.operator, (Map("map", activated(total, desc.fused_activation), output),))


class ElementWiseSubtract(Binary):
    """a - b"""

    desc = descs.ElementWiseSubtract


class ElementWiseMultiply(Binary):
    """a * b"""

    desc = descs.ElementWiseMultiply


class ElementWiseDifferenceSquare(Binary):
    """(a - b) * (a - b)"""

    desc = descs.ElementWiseDifferenceSquare


class ElementWiseDivide(Binary):
    """a / b. Integers are cut towards zero.

    An integer divided by zero gives all ones (-1, or the largest unsigned number); the smallest integer divided by -1
    wraps to itself (the page is silent; this is Direct3D's rule).
    """

    desc = descs.ElementWiseDivide


class ElementWiseModulusTruncate(Binary):
    """a - b * trunc(a / b), exact, with the sign of a, as C's fmod.

    By zero all ones remain of integers, NaN of floats (the page is silent).
    """

    desc = descs.ElementWiseModulusTruncate


class ElementWiseModulusFloor(Binary):
    """a - b * floor(a / b), with the sign of b, as NumPy's mod.

    By zero all ones remain of integers, NaN of floats (the page is silent). By infinity a remains where the signs
    agree, else the divisor.
    """

    desc = descs.ElementWiseModulusFloor


class ElementWiseMean(Binary):
    """(a + b) / 2, correctly rounded also where the sum of floats would overflow.

    The sum of integers wraps, and its half is cut towards zero (the page is silent).
    """

    desc = descs.ElementWiseMean


class ElementWiseRecip(_Scalable):
    """1 / x"""

    desc = descs.ElementWiseRecip


class ElementWiseSqrt(_Scalable):
    """The square root: of negative numbers NaN, of -0 itself."""

    desc = descs.ElementWiseSqrt


# ---- signs


class ElementWiseAbs(_Scalable):
    """|x|. The smallest integer has no opposite in its type and stays what it is (the page is silent)."""

    desc = descs.ElementWiseAbs


class ElementWiseSign(ElementWise):
    """-1, 0 or 1; both zeros and NaN give 0, by the page's formula."""

    desc = descs.ElementWiseSign


class ElementWiseNegate(ElementWise):
    """-x; turns round the sign of zeros as well. The smallest integer stays what it is (the page is silent)."""

    desc = descs.ElementWiseNegate


# ---- extremes


class ElementWiseMin(Binary):
    """The smaller element. NaN wins over numbers, and -0 over 0 (the page is silent; so does ONNX for NaN)."""

    desc = descs.ElementWiseMin


class ElementWiseMax(Binary):
    """The larger element. NaN wins over numbers, and 0 over -0 (the page is silent; so does ONNX for NaN)."""

    desc = descs.ElementWiseMax


class _Bounded(ElementWise):
    """With two bounds of the tensor's type."""

    @classmethod
    def constants(cls, desc: Any) -> Constants:
        return _bounds(desc, getattr(desc, cls.result).data_type)


class _BoundedByFloats(ElementWise):
    """With bounds given as float32, which are cast to the tensor's type first, as CAST does (the pages are silent)."""

    newer: ClassVar[type[OperatorDesc]]

    @classmethod
    def upgrade(cls, desc: Any) -> OperatorDesc:
        data_type = getattr(desc, cls.result).data_type
        bounds = dict(_bounds(desc, data_type))
        return cls.newer(**{**desc.values, **bounds, "min_max_data_type": data_type})


class ElementWiseClip1(_Bounded, _Scalable):
    """max(min, min(x, max)), with bounds of the tensor's type.

    So the lower bound wins where it lies above the upper one. NaN stays NaN; a bound of NaN makes everything NaN.
    """

    desc = descs.ElementWiseClip1


class ElementWiseClip(_BoundedByFloats):
    """CLIP1 with bounds given as float32: cast to the tensor's type first, as CAST does."""

    desc = descs.ElementWiseClip
    newer = descs.ElementWiseClip1

    @classmethod
    def fused(cls, desc: descs.ElementWiseClip, source: Source) -> Body:
        """Return the elements of a source clipped after its ScaleBias, for operators that take CLIP as activation."""
        values = _bounds(desc, source.data_type)
        given = source if desc.scale_bias is None else scaled(source, desc.scale_bias)
        return apply(ElementWiseClip1.shaders[0], source.data_type, source.sizes, values=values, input=given)


class ElementWiseClipGrad1(_Bounded):
    """0 where x <= min or x >= max, else the gradient: so also where x is NaN."""

    desc = descs.ElementWiseClipGrad1
    operands: ClassVar[dict[str, str]] = {"input": "input_tensor", "gradient": "input_gradient_tensor"}
    result = "output_gradient_tensor"


class ElementWiseClipGrad(_BoundedByFloats):
    """CLIP_GRAD1 with bounds given as float32: cast to the tensor's type first, as CLIP's are (the page is silent)."""

    desc = descs.ElementWiseClipGrad
    newer = descs.ElementWiseClipGrad1
    result = "output_gradient_tensor"


class ElementWiseThreshold(_Scalable):
    """max(x, min); NaN stays NaN. The bound is cast to the tensor's type first, as CLIP's are (the page is silent)."""

    desc = descs.ElementWiseThreshold

    @classmethod
    def constants(cls, desc: descs.ElementWiseThreshold) -> Constants:
        return constants(min=converted(desc.min, desc.output_tensor.data_type))


def _bounds(desc: Any, data_type: DataType) -> Constants:
    """Return the bounds ``min`` and ``max``, as numbers of the tensor's type."""
    return constants(min=converted(desc.min, data_type), max=converted(desc.max, data_type))


# ---- rounding


class ElementWiseCeil(_Scalable):
    """The smallest integer that is not below x."""

    desc = descs.ElementWiseCeil


class ElementWiseFloor(_Scalable):
    """The largest integer that is not above x."""

    desc = descs.ElementWiseFloor


class ElementWiseRound(ElementWise):
    """The nearest integer, halves to even or away from zero, or the integer part.

    TOWARD_INFINITY moves halves only, away from zero: it is no ceiling (the page of the enumeration).
    """

    desc = descs.ElementWiseRound

    @classmethod
    def constants(cls, desc: descs.ElementWiseRound) -> Constants:
        functions = {
            RoundingMode.HALVES_TO_NEAREST_EVEN: "round_half_even",
            RoundingMode.TOWARD_ZERO: "truncate",
            RoundingMode.TOWARD_INFINITY: "round_half_away",
        }
        return constants(rounding=functions[desc.rounding_mode])
