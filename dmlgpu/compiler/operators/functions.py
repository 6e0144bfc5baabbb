"""Element-wise functions of analysis: exponentials, logarithms, trigonometry, the error function, powers.

All are computed in float32, halves as well, and rounded to the output's type once. Domains, infinities, signed zeros
and NaN are C's and NumPy's. A ScaleBias is applied in float32, as a rounded step of its own.
"""

from __future__ import annotations

from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.compiler.operators.elementwise import Binary, ElementWise
from dmlgpu.compiler.operators.lowering import invalid
from dmlgpu.compiler.plan import Constants, constants


class Function(ElementWise):
    """A function whose body works on float32."""

    portable = True


class ElementWiseAcos(Function):
    """Arc cosine."""

    desc = descs.ElementWiseAcos


class ElementWiseAsin(Function):
    """Arc sine."""

    desc = descs.ElementWiseAsin


class ElementWiseAtan(Function):
    """Arc tangent."""

    desc = descs.ElementWiseAtan


class ElementWiseAtanYx(Binary):
    """Arc tangent of a / b in the right quadrant.

    The page leaves open what it is where both are 0: by the signs of the zeros, as C's atan2, so 0, -0, pi or -pi.
    """

    desc = descs.ElementWiseAtanYx
    portable = True


class ElementWiseCos(Function):
    """Cosine."""

    desc = descs.ElementWiseCos


class ElementWiseSin(Function):
    """Sine."""

    desc = descs.ElementWiseSin


class ElementWiseTan(Function):
    """Tangent."""

    desc = descs.ElementWiseTan


class ElementWiseExp(Function):
    """Exponential."""

    desc = descs.ElementWiseExp


class ElementWiseLog(Function):
    """Natural logarithm; negative numbers give NaN, both zeros -infinity."""

    desc = descs.ElementWiseLog


class ElementWiseErf(Function):
    """Error function."""

    desc = descs.ElementWiseErf


class ElementWiseSinh(Function):
    """Hyperbolic sine."""

    desc = descs.ElementWiseSinh


class ElementWiseCosh(Function):
    """Hyperbolic cosine."""

    desc = descs.ElementWiseCosh


class ElementWiseTanh(Function):
    """Hyperbolic tangent."""

    desc = descs.ElementWiseTanh


class ElementWiseAsinh(Function):
    """Inverse hyperbolic sine."""

    desc = descs.ElementWiseAsinh


class ElementWiseAcosh(Function):
    """Inverse hyperbolic cosine."""

    desc = descs.ElementWiseAcosh


class ElementWiseAtanh(Function):
    """Inverse hyperbolic tangent."""

    desc = descs.ElementWiseAtanh


class ElementWisePow(Function):
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
        """Return the type to compute in, and that of what an exponent loses there."""
        return constants(compute=DataType.FLOAT32, signed=DataType.INT32)

    @classmethod
    def body(cls, desc: descs.ElementWisePow) -> str:
        general, wide_exponent, integers = cls.shaders
        base, exponent = desc.input_tensor.data_type, desc.exponent_tensor.data_type
        if exponent.is_float or (base.is_float and exponent.bits < 32):
            return general
        return wide_exponent if base.is_float else integers


class ElementWiseConstantPow(Function):
    """Power with one exponent for all elements; the exponent 2 is a product, which is rounded correctly."""

    desc = descs.ElementWiseConstantPow
    shaders = ("elementwise/element_wise_constant_pow", "elementwise/element_wise_square")

    @classmethod
    def constants(cls, desc: Any) -> Constants:
        return constants(compute=DataType.FLOAT32, exponent=desc.exponent)

    @classmethod
    def body(cls, desc: descs.ElementWiseConstantPow) -> str:
        power, square = cls.shaders
        return square if desc.exponent == 2 else power
