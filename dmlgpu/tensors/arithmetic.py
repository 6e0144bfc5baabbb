"""Python's operators on tensors, with NumPy's meaning, and functions of integers composed of DirectML's operators."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias
from dmlgpu.common.errors import DmlError, InvalidArgument
from dmlgpu.common.symbols import SymbolicNumber
from dmlgpu.tensors.array_like import as_operand
from dmlgpu.tensors.memory import NodeMemory, current_caller
from dmlgpu.tensors.types import as_number, is_number, promoted, value_range

if TYPE_CHECKING:
    from dmlgpu.tensors.tensor import Tensor


def _pairing(symbol: str, kind: str, swapped: bool = False) -> Any:
    """Return the method of an operator on a and b that is one of DirectML's, by the name of its description."""

    def method(self: Arithmetic, other: Any) -> Any:
        try:
            return self._pair(symbol, getattr(descs, kind), other, swapped)
        except DmlError as error:
            raise error.concise() from error.__cause__

    return method


def _composed(function: Callable[..., Any], *options: Any) -> tuple[Any, Any]:
    """Return the methods of an operator on a and b, and on b and a, that a function composes of DirectML's."""

    def method(self: Arithmetic, other: Any, is_swapped: bool = False) -> Any:
        try:
            return function(self, *options, other, is_swapped)
        except DmlError as error:
            raise error.concise() from error.__cause__

    def swapped(self: Arithmetic, other: Any) -> Any:
        return method(self, other, True)

    return method, swapped


def _updating(symbol: str, function: Callable[[Any, Any], Any]) -> Any:
    """Return the method of an operator in place: another tensor of the same type and sizes takes the name."""

    def method(self: Any, other: Any) -> Any:
        result = function(self, other)
        if result is not NotImplemented and (result.dtype, result.sizes) != (self.dtype, self.sizes):
            raise InvalidArgument(
                f"a {symbol} b: the result must have the type and sizes of a, {self.type_name} {list(self.sizes)}, got "
                f"{result.type_name} {list(result.sizes)}; write a = a {symbol[:-1]} b"
            )
        return result

    return method


class Arithmetic:
    """Operators of `Tensor`.

    Shapes broadcast as in NumPy. Two integer dtypes, and two float dtypes, are promoted to a common one; a number takes
    the tensor's dtype; an array is copied to the tensor's device. Comparisons return bool tensors, 0 or 1 of
    UINT8; `~` inverts those, and the bits of integers.

    `/` is true division, for floating-point dtypes only; `//` and `%` round towards minus infinity.
    """

    __slots__ = ()

    data_type: DataType
    is_boolean: bool
    buffer: Any

    def _operator(self, caller: str, kind: type[OperatorDesc], **values: Any) -> Any:
        raise NotImplementedError

    def _same(self) -> Any:
        raise NotImplementedError

    @property
    def _is_strict(self) -> bool:
        """Whether DirectMLX's rules hold, in which operators take what they are given; see ``Graph``."""
        return (
            isinstance(self.buffer, NodeMemory)
            and self.buffer.graph.rules == "directmlx"
            and current_caller.get() is None
        )

    def _pair(self, symbol: str, kind: type[OperatorDesc], other: Any, swapped: bool = False) -> Any:
        """Apply an operator on a and b."""
        if not (isinstance(other, Arithmetic | np.ndarray) or is_number(other)):
            other = self._array_beside(f"a {symbol} b", other)
            if other is None:
                return NotImplemented
        if self._is_strict:
            scale_bias = self._scale_bias(symbol, other, swapped)
            if scale_bias is not None:
                return self._operator(
                    f"a {symbol} b", descs.ElementWiseIdentity, input_tensor=self, scale_bias=scale_bias
                )
        first, second = self._alike(f"a {symbol} b", other, swapped)
        return self._operator(f"a {symbol} b", kind, a_tensor=first, b_tensor=second)

    def _array_beside(self, caller: str, other: Any) -> Any:
        """Return a list or a foreign array as an array, a list in the tensor's floating-point type; None for others."""
        array = as_operand(caller, "b", other)
        if not isinstance(array, np.ndarray):
            return None
        is_listed = isinstance(other, list | tuple) and self.data_type.is_float and array.dtype.kind in "iuf"
        return array.astype(self.data_type.numpy) if is_listed else array

    def _scale_bias(self, symbol: str, number: Any, swapped: bool) -> ScaleBias | None:
        """Return the scale and bias that a number as an operand of ``+ - * /`` becomes in DirectMLX; None for tensors,
        exact integers, division by zero and numbers that depend on sizes."""
        is_exact = not self.data_type.is_float and isinstance(number, numbers.Integral)
        if not is_number(number) or type(number) is SymbolicNumber or is_exact:
            return None
        if symbol == "+":
            return ScaleBias(1, number)
        if symbol == "-":
            return ScaleBias(-1, number) if swapped else ScaleBias(1, -number)
        if symbol == "*":
            return ScaleBias(number, 0)
        return ScaleBias(1 / number, 0) if symbol == "/" and not swapped and number != 0 else None

    def _alike(self, caller: str, other: Any, swapped: bool) -> Any:
        """Return the operands in their order, in one type."""
        first, second = (other, self) if swapped else (self, other)
        if isinstance(other, Arithmetic) and other.data_type is not self.data_type and not self._is_strict:
            return promoted(caller, {"a": first, "b": second})
        return first, second

    def _divided(self, other: Any, swapped: bool) -> Any:
        is_float = self.data_type.is_float or (isinstance(other, Arithmetic) and other.data_type.is_float)
        if not is_float and not self._is_strict:
            raise InvalidArgument(
                f"a / b: a and b must be of a floating-point type, got {self.data_type.name}; "
                "a // b divides integers, a.astype('float32') converts them"
            )
        return self._pair("/", descs.ElementWiseDivide, other, swapped)

    def _floored(self, other: Any, swapped: bool) -> Any:
        """Divide and round down: signed integers that the division truncates up, those whose remainder by truncation is
        not the one by rounding down, less 1."""
        if self.data_type.is_float:
            quotient = self._pair("//", descs.ElementWiseDivide, other, swapped)
            if quotient is NotImplemented:
                return quotient
            return self._operator("a // b", descs.ElementWiseFloor, input_tensor=quotient)
        quotient = self._pair("//", descs.ElementWiseDivide, other, swapped)
        if quotient is NotImplemented or not quotient.data_type.is_signed:
            return quotient
        down = self._pair("//", descs.ElementWiseModulusFloor, other, swapped)
        return quotient - (down != self._pair("//", descs.ElementWiseModulusTruncate, other, swapped)).astype(
            quotient.data_type
        )

    def _remainder(self, other: Any, swapped: bool) -> Any:
        kind = descs.ElementWiseModulusTruncate if self._is_strict else descs.ElementWiseModulusFloor
        return self._pair("%", kind, other, swapped)

    def _raised(self, other: Any, swapped: bool) -> Any:
        if isinstance(other, numbers.Real) and not swapped and (self.data_type.is_float or self._is_strict):
            exponent = as_number("a ** b", other, DataType.FLOAT32 if self._is_strict else self.data_type)
            return self._operator("a ** b", descs.ElementWiseConstantPow, input_tensor=self, exponent=exponent)
        if not (isinstance(other, Arithmetic | np.ndarray) or is_number(other)):
            return NotImplemented
        first, second = self._alike("a ** b", other, swapped)
        if not self._is_strict and any(
            getattr(operand, "data_type", None) in (DataType.INT64, DataType.UINT64) for operand in (first, second)
        ):
            return power(*self._alike("a ** b", self._tensor("a ** b", other), swapped))
        return self._operator("a ** b", descs.ElementWisePow, input_tensor=first, exponent_tensor=second)

    __add__ = __radd__ = _pairing("+", "ElementWiseAdd")
    __sub__ = _pairing("-", "ElementWiseSubtract")
    __rsub__ = _pairing("-", "ElementWiseSubtract", swapped=True)
    __mul__ = __rmul__ = _pairing("*", "ElementWiseMultiply")
    __truediv__, __rtruediv__ = _composed(_divided)
    __floordiv__, __rfloordiv__ = _composed(_floored)
    __mod__, __rmod__ = _composed(_remainder)
    __pow__, __rpow__ = _composed(_raised)

    def __neg__(self) -> Any:
        if self._is_strict or (self.data_type.is_signed and self.data_type is not DataType.FLOAT64):
            return self._operator("-a", descs.ElementWiseNegate, input_tensor=self)
        return self._pair("-", descs.ElementWiseSubtract, 0, True)

    def __pos__(self) -> Any:
        return self._same()

    def __abs__(self) -> Any:
        if not self.data_type.is_signed and not self._is_strict:
            return self._same()
        return self._operator("abs(a)", descs.ElementWiseAbs, input_tensor=self)

    __iadd__ = _updating("+=", operator.add)
    __isub__ = _updating("-=", operator.sub)
    __imul__ = _updating("*=", operator.mul)
    __itruediv__ = _updating("/=", operator.truediv)
    __ifloordiv__ = _updating("//=", operator.floordiv)
    __imod__ = _updating("%=", operator.mod)
    __ipow__ = _updating("**=", operator.pow)
    __iand__ = _updating("&=", operator.and_)
    __ior__ = _updating("|=", operator.or_)
    __ixor__ = _updating("^=", operator.xor)
    __ilshift__ = _updating("<<=", operator.lshift)
    __irshift__ = _updating(">>=", operator.rshift)

    # ---- bits -------------------------------------------------------------------------------------------------------

    def _shifted(self, symbol: str, other: Any, swapped: bool) -> Any:
        caller = f"a {symbol} b"
        kind = descs.ElementWiseBitShiftLeft if symbol == "<<" else descs.ElementWiseBitShiftRight
        if not (isinstance(other, Arithmetic | np.ndarray) or is_number(other)):
            return NotImplemented
        if self._is_strict:
            return self._pair(symbol, kind, other, swapped)
        first, second = self._alike(caller, self._tensor(caller, other), swapped)
        if first.data_type.is_float:
            raise InvalidArgument(
                f"{caller}: a and b must be of integers, got {first.type_name}; a.astype('int32') converts them"
            )
        return shifted(caller, kind, first, second)

    def _tensor(self, caller: str, other: Any) -> Any:
        """Return an operand as a tensor, a number as one of this type."""
        if isinstance(other, Arithmetic):
            return other
        if isinstance(other, np.ndarray):
            return self._beside(other)
        return self._beside(as_number(caller, other, self.data_type), self.data_type)

    def _beside(self, other: Any, dtype: Any = None) -> Any:
        raise NotImplementedError

    __and__ = __rand__ = _pairing("&", "ElementWiseBitAnd")
    __or__ = __ror__ = _pairing("|", "ElementWiseBitOr")
    __xor__ = __rxor__ = _pairing("^", "ElementWiseBitXor")
    __lshift__, __rlshift__ = _composed(_shifted, "<<")
    __rshift__, __rrshift__ = _composed(_shifted, ">>")

    def __invert__(self) -> Any:
        if self.is_boolean:
            return self._operator("~a", descs.ElementWiseLogicalNot, input_tensor=self)
        return self._operator("~a", descs.ElementWiseBitNot, input_tensor=self)

    # ---- comparisons ------------------------------------------------------------------------------------------------

    def __hash__(self) -> int:
        if not isinstance(self.buffer, NodeMemory):
            raise TypeError(f"unhashable type: {type(self).__name__!r}")
        return id(self)

    __eq__ = _pairing("==", "ElementWiseLogicalEquals")
    __lt__ = _pairing("<", "ElementWiseLogicalLessThan")
    __le__ = _pairing("<=", "ElementWiseLogicalLessThanOrEqual")
    __gt__ = _pairing(">", "ElementWiseLogicalGreaterThan")
    __ge__ = _pairing(">=", "ElementWiseLogicalGreaterThanOrEqual")

    def __ne__(self, other: object) -> Any:
        equal = self._pair("!=", descs.ElementWiseLogicalEquals, other)
        if equal is NotImplemented:
            return equal
        return self._operator("a != b", descs.ElementWiseLogicalNot, input_tensor=equal)


UNSIGNED = {
    DataType.INT8: DataType.UINT8,
    DataType.INT16: DataType.UINT16,
    DataType.INT32: DataType.UINT32,
    DataType.INT64: DataType.UINT64,
    DataType.FLOAT16: DataType.UINT16,
    DataType.FLOAT32: DataType.UINT32,
}
"""The type of as many bits, to read a number's bits."""


def shifted(caller: str, kind: type[OperatorDesc], a: Tensor, b: Tensor) -> Tensor:
    """Return integers with their bits moved up or down, also by as many as they have and more; DirectML moves those of
    unsigned ones, by fewer.

    Moved down, negative numbers are inverted before and after, so that their sign comes in from above.
    """
    data_type = a.data_type
    unsigned = UNSIGNED.get(data_type, data_type)
    by = b._same(unsigned)
    is_arithmetic = data_type.is_signed and kind is descs.ElementWiseBitShiftRight
    flips = -(a < 0).astype(data_type) if is_arithmetic else a
    bits = ((a ^ flips) if is_arithmetic else a)._same(unsigned)
    moved = a._operator(caller, kind, a_tensor=bits, b_tensor=by)
    result = moved._chosen(by < data_type.bits, 0)._same(data_type)
    return result ^ flips if is_arithmetic else result


def power(a: Tensor, b: Tensor) -> Tensor:
    """Return integers to the power of integers that are not negative, by squares: exponents count modulo 64, since
    higher powers of all but 0, 1 and -1 overflow."""
    product: Tensor | None = None
    square = a
    for bit in range(6):
        is_set = (b & (1 << bit)) != 0
        factor = square._chosen(is_set, 1)
        product = factor if product is None else product * factor
        square = square * square
    assert product is not None
    return product._chosen((a != 0) | (b == 0), 0)


def wrapped(x: Tensor, data_type: DataType) -> Tensor:
    """Return integers in a narrower type, without the bits that it lacks."""
    low, high = value_range(data_type)
    span = high - low + 1
    result: Tensor = ((x - low) % span + low).astype(data_type)
    return result


def total(caller: str, x: Tensor, function: ReduceFunction, axes: tuple[int, ...]) -> Tensor:
    """Return sums or products of numbers along axes, which stay with size 1, in their own type; DirectML's reductions
    have none of 8 and 16 bits."""
    data_type = x.data_type
    narrow = (
        not data_type.is_float and data_type.bits < 32 and function in (ReduceFunction.SUM, ReduceFunction.MULTIPLY)
    )
    wide = x.astype(DataType.INT32 if data_type.is_signed else DataType.UINT32) if narrow else x
    result = x._operator(caller, descs.Reduce, input_tensor=wide, function=function, axes=axes)
    return wrapped(result, data_type) if narrow else result


def matrix_product(caller: str, a: Tensor, b: Tensor) -> Tensor:
    """Return the product of stacks of matrices of integers, which GEMM does not take."""
    stack = a.sizes[:-2]
    count = math.prod(stack)
    left, right = (matrix.reshape(count, *matrix.sizes[-2:]) for matrix in (a, b))
    products: Any = left.expand_dims(3) * right.expand_dims(1)
    return total(caller, products, ReduceFunction.SUM, (2,))._renamed((*stack, a.sizes[-2], b.sizes[-1]))
