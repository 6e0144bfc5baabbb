"""Element-wise arithmetic and elementary functions: sums, extremes, rounding, exponentials, trigonometry, powers.

Integers wrap around; floats follow the formula in IEEE arithmetic, rounded once. Functions are computed in
float32, half precision as well, and rounded to the output's type once; domains, infinities, signed zeros and NaN are
those of C and NumPy. A ScaleBias is applied in float32, as a rounded step of its own.
"""

from __future__ import annotations

from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, FeatureLevel, RoundingMode
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler.operators.elementwise import ADD, CLIP, Binary, ElementWise, activated, scaled
from dmlgpu.compiler.operators.lowering import Lowering, converted, input_tensor, invalid, output_tensor
from dmlgpu.compiler.plan import Body, Constants, Map, Plan, Source, apply, constants


class _Scalable(ElementWise):
    """With a ScaleBias float16 comes as float32, and so it does without one: the body sees one type."""

    portable = True


# ---- sums, products, quotients


Binary.rows(
    {
        descs.ElementWiseAdd: "a + b",
        descs.ElementWiseSubtract: "a - b",
        descs.ElementWiseMultiply: "a * b",
        descs.ElementWiseDifferenceSquare: "(a - b) * (a - b)",
        descs.ElementWiseDivide: (
            "a / b. Integers are cut towards zero. An integer divided by zero gives all ones (-1, or the largest "
            "unsigned number); the smallest integer divided by -1 wraps to itself (the page is silent; this is "
            "Direct3D's rule)."
        ),
        descs.ElementWiseModulusTruncate: (
            "a - b * trunc(a / b), exact, with the sign of a, as C's fmod. By zero all ones remain of integers, NaN "
            "of floats (the page is silent)."
        ),
        descs.ElementWiseModulusFloor: (
            "a - b * floor(a / b), with the sign of b, as NumPy's mod. By zero all ones remain of integers, NaN of "
            "floats (the page is silent). By infinity a remains where the signs agree, else the divisor."
        ),
        descs.ElementWiseMean: (
            "(a + b) / 2, correctly rounded also where the sum of floats would overflow. The sum of integers wraps, "
            "and its half is cut towards zero (the page is silent)."
        ),
        descs.ElementWiseMin: (
            "The smaller element. NaN wins over numbers, and -0 over 0 (the page is silent; so does ONNX for NaN)."
        ),
        descs.ElementWiseMax: (
            "The larger element. NaN wins over numbers, and 0 over -0 (the page is silent; so does ONNX for NaN)."
        ),
    }
)


class ElementWiseAdd1(Lowering):
    """ADD, then a fused activation. The sum is rounded to the tensor's type before it, as a store would."""

    desc = descs.ElementWiseAdd1
    shaders = (ADD,)

    @classmethod
    def lower(cls, desc: descs.ElementWiseAdd1) -> Plan:
        output = output_tensor(desc)
        a, b = input_tensor(desc, "a_tensor"), input_tensor(desc, "b_tensor")
        total = apply(cls.shaders[0], output.data_type, output.sizes, a=a, b=b)
        return Plan(desc.operator, (Map("map", activated(total, desc.fused_activation), output),))


_Scalable.rows(
    {
        descs.ElementWiseRecip: "1 / x",
        descs.ElementWiseSqrt: "The square root: of negative numbers NaN, of -0 itself.",
        descs.ElementWiseAbs: (
            "|x|. The smallest integer has no opposite in its type and is unchanged (the page is silent)."
        ),
        descs.ElementWiseCeil: "The smallest integer that is not below x.",
        descs.ElementWiseFloor: "The largest integer that is not above x.",
    }
)


# ---- signs


ElementWise.rows(
    {
        descs.ElementWiseSign: "-1, 0 or 1; both zeros and NaN give 0, by the page's formula.",
        descs.ElementWiseNegate: (
            "-x; flips the sign of zeros as well. The smallest integer is unchanged (the page is silent)."
        ),
    }
)


# ---- extremes


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
        before = source if desc.scale_bias is None else scaled(source, desc.scale_bias)
        return apply(CLIP, source.data_type, source.sizes, values=values, input=before)


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
    """Return the bounds ``min`` and ``max`` as numbers of the tensor's data type."""
    return constants(min=converted(desc.min, data_type), max=converted(desc.max, data_type))


# ---- rounding


class ElementWiseRound(ElementWise):
    """The nearest integer, with ties to even or away from zero, or the integer part.

    TOWARD_INFINITY rounds to nearest with ties away from zero; it is no ceiling (the page of the enumeration).
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


class FloatFunction(ElementWise):
    """A function whose body computes in float32."""

    portable = True


FloatFunction.rows(
    {
        descs.ElementWiseAcos: "Arc cosine.",
        descs.ElementWiseAsin: "Arc sine.",
        descs.ElementWiseAtan: "Arc tangent.",
        descs.ElementWiseCos: "Cosine.",
        descs.ElementWiseSin: "Sine.",
        descs.ElementWiseTan: "Tangent.",
        descs.ElementWiseExp: "Exponential.",
        descs.ElementWiseLog: "Natural logarithm; negative numbers give NaN, both zeros -infinity.",
        descs.ElementWiseErf: "Error function.",
        descs.ElementWiseSinh: "Hyperbolic sine.",
        descs.ElementWiseCosh: "Hyperbolic cosine.",
        descs.ElementWiseTanh: "Hyperbolic tangent.",
        descs.ElementWiseAsinh: "Inverse hyperbolic sine.",
        descs.ElementWiseAcosh: "Inverse hyperbolic cosine.",
        descs.ElementWiseAtanh: "Inverse hyperbolic tangent.",
    }
)


class ElementWiseAtanYx(Binary):
    """Arc tangent of a / b in the right quadrant.

    The page leaves open the result if both are 0: by the signs of the zeros, as C's atan2, so 0, -0, pi or -pi.
    """

    desc = descs.ElementWiseAtanYx
    portable = True


class ElementWisePow(FloatFunction):
    """Power of two tensors, of any pair of types.

    Where the page is silent:

    - integers to the power of integers wrap around, as in MULTIPLY; a negative exponent gives the integer part of the
      reciprocal power, which for a base of 0 is all ones, as in DIVIDE;
    - an integer to the power of a float is computed in float32 and converted back as CAST does: truncated, saturated,
      NaN to 0;
    - a float to the power of an integer takes the integer exactly, its parity included, also beyond 2**24.
    """

    desc = descs.ElementWisePow
    shaders = (
        "elementwise/element_wise_pow",
        "elementwise/element_wise_pow_wide_exponent",
        "elementwise/element_wise_pow_integers",
    )
    operands: ClassVar[dict[str, str]] = {"input": "input_tensor", "exponent": "exponent_tensor"}

    @classmethod
    def check_level(cls, desc: descs.ElementWisePow, level: FeatureLevel) -> None:
        """Below 3_0 the exponent has the input's type."""
        base, exponent = desc.input_tensor.data_type, desc.exponent_tensor.data_type
        if level < FeatureLevel.LEVEL_3_0 and base is not exponent:
            raise invalid(
                desc,
                "exponent_tensor.data_type",
                f"must be input_tensor.data_type ({base.name}) below feature level 3_0, got {exponent.name}",
            )

    @classmethod
    def constants(cls, desc: descs.ElementWisePow) -> Constants:
        """Return the data type to compute in, and the data type of an exponent's remainder in it."""
        return constants(compute=DataType.FLOAT32, signed=DataType.INT32)

    @classmethod
    def body(cls, desc: descs.ElementWisePow) -> str:
        general, wide_exponent, integers = cls.shaders
        base, exponent = desc.input_tensor.data_type, desc.exponent_tensor.data_type
        if exponent.is_float or (base.is_float and exponent.bits < 32):
            return general
        return wide_exponent if base.is_float else integers


class ElementWiseConstantPow(FloatFunction):
    """Power with one exponent for all elements; the exponent 2 is a product, which is rounded correctly."""

    desc = descs.ElementWiseConstantPow
    shaders = ("elementwise/element_wise_constant_pow", "elementwise/element_wise_square")

    @classmethod
    def constants(cls, desc: Any) -> Constants:
        return () if desc.exponent == 2 else constants(compute=DataType.FLOAT32, exponent=desc.exponent)

    @classmethod
    def body(cls, desc: descs.ElementWiseConstantPow) -> str:
        power, square = cls.shaders
        return square if desc.exponent == 2 else power
