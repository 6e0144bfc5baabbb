"""Python's operators on tensors with NumPy's meaning, and functions of two operands that they share with ``ops``."""

from __future__ import annotations

import functools
import math
import numbers
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import BFLOAT16, DataType, ReduceFunction, as_elements
from dmlgpu.catalog.operator_desc import OperatorDesc, ScaleBias
from dmlgpu.common.errors import DmlError, InvalidArgument
from dmlgpu.compiler.sizes.arithmetic import is_symbolic
from dmlgpu.tensors.array_like import as_operand
from dmlgpu.tensors.execution import call_op
from dmlgpu.tensors.memory import NodeMemory, current_caller
from dmlgpu.tensors.types import as_floating, as_number, is_number, promoted, value_range

if TYPE_CHECKING:
    from dmlgpu.tensors.tensor import Tensor


def _pairing(symbol: str, kind: str, swapped: bool = False) -> Any:
    """Return the method for a Python operator that is an operator of DirectML, by the name of its description."""

    def method(self: Arithmetic, other: Any) -> Any:
        try:
            return self._pair(symbol, getattr(descs, kind), other, swapped)
        except DmlError as error:
            raise error.concise() from error.__cause__

    return method


def _composed(function: Callable[..., Any], *options: Any) -> tuple[Any, Any]:
    """Return the method for a Python operator that a function composes of DirectML's operators, and the reflected
    method."""

    def method(self: Arithmetic, other: Any, is_swapped: bool = False) -> Any:
        try:
            return function(self, *options, other, is_swapped)
        except DmlError as error:
            raise error.concise() from error.__cause__

    def swapped(self: Arithmetic, other: Any) -> Any:
        return method(self, other, True)

    return method, swapped


def _updating(symbol: str, function: Callable[[Any, Any], Any]) -> Any:
    """Return the method for an in-place operator, whose result must have the type and sizes of the tensor."""

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

    Shapes broadcast and dtypes are promoted as in NumPy, with float32 instead of float64. A Python number takes the
    tensor's dtype, but a float makes float32 of integers and masks, and an int makes int64 of masks. An array is copied
    to the tensor's device. Comparisons return masks: bool tensors, 0 or 1 of UINT8. `+`, `*` and `@` of masks are
    logical, `-` of them raises; `~` inverts masks, and the bits of integers.

    `/` is true division, in float32 for integers. `//` and `%` round towards minus infinity; integers divided by 0 give
    0. Integers to a negative power raise if the host knows the exponent.
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
        """Whether DirectMLX's rules hold, which convert no operands; see ``Graph``."""
        return (
            isinstance(self.buffer, NodeMemory)
            and self.buffer.graph.rules == "directmlx"
            and current_caller.get() is None
        )

    def _pair(self, symbol: str, kind: type[OperatorDesc], other: Any, swapped: bool = False) -> Any:
        """Apply an operator on a and b."""
        other = self._readable(f"a {symbol} b", other)
        if other is None:
            return NotImplemented
        if self._is_strict:
            scale_bias = self._scale_bias(symbol, other, swapped)
            if scale_bias is not None:
                return self._operator(
                    f"a {symbol} b", descs.ElementWiseIdentity, input_tensor=self, scale_bias=scale_bias
                )
            return self._operator(f"a {symbol} b", kind, **_named(*self._ordered(other, swapped)))
        return combined(f"a {symbol} b", kind, *self._ordered(other, swapped))

    def _readable(self, caller: str, other: Any) -> Any:
        """Return an operand, lists and foreign arrays as arrays, lists in the tensor's float type; None for others."""
        if isinstance(other, Arithmetic | np.ndarray) or is_number(other):
            return other
        array = as_operand(caller, "b", other)
        if not isinstance(array, np.ndarray):
            return None
        is_listed = isinstance(other, list | tuple) and self.data_type.is_float and array.dtype.kind in "iuf"
        return as_elements(self.data_type, array) if is_listed else array

    def _scale_bias(self, symbol: str, number: Any, swapped: bool) -> ScaleBias | None:
        """Return the scale and bias that a number as an operand of ``+ - * /`` becomes in DirectMLX; None for tensors,
        exact integers, division by zero and numbers that depend on sizes."""
        is_exact = not self.data_type.is_float and isinstance(number, numbers.Integral)
        if not is_number(number) or is_symbolic(number) or is_exact:
            return None
        if symbol == "+":
            return ScaleBias(1, number)
        if symbol == "-":
            return ScaleBias(-1, number) if swapped else ScaleBias(1, -number)
        if symbol == "*":
            return ScaleBias(number, 0)
        return ScaleBias(1 / number, 0) if symbol == "/" and not swapped and number != 0 else None

    def _ordered(self, other: Any, swapped: bool) -> tuple[Any, Any]:
        return (other, self) if swapped else (self, other)

    def _composed_with(
        self, symbol: str, strict_kind: type[OperatorDesc], function: Callable[..., Any], other: Any, swapped: bool
    ) -> Any:
        """Apply a function of two operands; DirectML's operator if DirectMLX's rules hold."""
        if self._is_strict:
            return self._pair(symbol, strict_kind, other, swapped)
        other = self._readable(f"a {symbol} b", other)
        return NotImplemented if other is None else function(f"a {symbol} b", *self._ordered(other, swapped))

    def _divided(self, other: Any, swapped: bool) -> Any:
        kind = descs.ElementWiseDivide
        return self._composed_with("/", kind, functools.partial(combined_as_floats, kind=kind), other, swapped)

    def _floored(self, other: Any, swapped: bool) -> Any:
        if self._is_strict:
            result = self._pair("//", descs.ElementWiseDivide, other, swapped)
            if result is NotImplemented or not self.data_type.is_float:
                return result
            return self._operator("a // b", descs.ElementWiseFloor, input_tensor=result)
        return self._composed_with("//", descs.ElementWiseDivide, floor_quotient, other, swapped)

    def _remainder(self, other: Any, swapped: bool) -> Any:
        return self._composed_with("%", descs.ElementWiseModulusTruncate, remainder, other, swapped)

    def _quotient_and_remainder(self, other: Any, swapped: bool) -> Any:
        first = self._floored(other, swapped)
        return first if first is NotImplemented else (first, self._remainder(other, swapped))

    def _raised(self, other: Any, swapped: bool) -> Any:
        if not self._is_strict:
            return self._composed_with("**", descs.ElementWisePow, raised, other, swapped)
        if isinstance(other, numbers.Real) and not swapped:
            exponent = as_number("a ** b", other, DataType.FLOAT32)
            return self._operator("a ** b", descs.ElementWiseConstantPow, input_tensor=self, exponent=exponent)
        if not (isinstance(other, Arithmetic | np.ndarray) or is_number(other)):
            return NotImplemented
        base, exponent = self._ordered(other, swapped)
        return self._operator("a ** b", descs.ElementWisePow, input_tensor=base, exponent_tensor=exponent)

    __add__ = __radd__ = _pairing("+", "ElementWiseAdd")
    __sub__ = _pairing("-", "ElementWiseSubtract")
    __rsub__ = _pairing("-", "ElementWiseSubtract", swapped=True)
    __mul__ = __rmul__ = _pairing("*", "ElementWiseMultiply")
    __truediv__, __rtruediv__ = _composed(_divided)
    __floordiv__, __rfloordiv__ = _composed(_floored)
    __mod__, __rmod__ = _composed(_remainder)
    __divmod__, __rdivmod__ = _composed(_quotient_and_remainder)
    __pow__, __rpow__ = _composed(_raised)

    def __neg__(self) -> Any:
        if self._is_strict or (self.data_type.is_signed and self.data_type is not DataType.FLOAT64):
            return self._operator("-a", descs.ElementWiseNegate, input_tensor=self)
        if self.is_boolean:
            raise InvalidArgument("-a: a must not be a mask; ~a inverts it, a.astype('int64') makes integers")
        return self._pair("-", descs.ElementWiseSubtract, 0, True)

    def __pos__(self) -> Any:
        if self.is_boolean and not self._is_strict:
            raise InvalidArgument("+a: a must not be a mask; a.astype('int64') makes integers")
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
        kind = descs.ElementWiseBitShiftLeft if symbol == "<<" else descs.ElementWiseBitShiftRight
        return self._composed_with(symbol, kind, functools.partial(shifted, kind=kind), other, swapped)

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
        if not self._is_strict:
            check_integers("~a", "a", self.data_type)
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
    BFLOAT16: DataType.UINT16,
    DataType.FLOAT32: DataType.UINT32,
}
"""The unsigned type of the same width, to read the bits of numbers."""


_OF_MASKS = {"ELEMENT_WISE_ADD": "ElementWiseLogicalOr", "ELEMENT_WISE_MULTIPLY": "ElementWiseLogicalAnd"}
"""Logical operators that replace elementwise ones on masks."""


def _named(a: Any, b: Any) -> dict[str, Any]:
    return {"a_tensor": a, "b_tensor": b}


def _applied(caller: str, kind: type[OperatorDesc], a: Any, b: Any) -> Any:
    """Apply an operator to operands of one type."""
    return call_op(kind, _named(a, b), caller=caller)[0]


def combined(caller: str, kind: type[OperatorDesc], a: Any, b: Any) -> Any:
    """Apply an operator to two tensors, arrays or numbers in their common type; for masks, NumPy's logical sums and
    products.

    Raises:
        InvalidArgument: If there is no common type, a number is not one of it, or masks are subtracted.
    """
    a, b = promoted(caller, {"a": a, "b": b})
    if kind.operator.startswith("ELEMENT_WISE_LOGICAL_"):
        a, b = _comparable(a, b) if is_number(b) else _comparable(b, a)[::-1]
    if _tensor_of(a, b).is_boolean:
        if kind is descs.ElementWiseSubtract:
            raise InvalidArgument(
                f"{caller}: a and b must not both be masks; a ^ b (logical_xor) is where they differ, "
                "a.astype('int64') makes integers"
            )
        kind = getattr(descs, _OF_MASKS[kind.operator]) if kind.operator in _OF_MASKS else kind
    if kind.operator.startswith("ELEMENT_WISE_BIT_"):
        check_integers(caller, "a and b", _tensor_of(a, b).data_type)
    return call_op(kind, _named(a, b), caller=caller)[0]


def check_integers(caller: str, names: str, data_type: DataType) -> None:
    """Raise unless the operands of a bitwise operator are integers or masks.

    Raises:
        InvalidArgument: If they are of floats.
    """
    if data_type.is_float:
        raise InvalidArgument(
            f"{caller}: {names} must be of integers, got {data_type.name}; astype('int32') converts values, "
            "reinterpret(sizes, dtype='uint32') reads bits"
        )


def _comparable(tensor: Any, number: Any) -> tuple[Any, Any]:
    """Return a tensor and a number, or others that compare alike if the tensor's integers do not include the number."""
    is_integer = isinstance(number, numbers.Integral)
    if not is_integer or tensor.data_type.is_float:
        return tensor, number
    low, high = value_range(tensor.data_type)
    if low <= number <= high:
        return tensor, number
    return (tensor * 0, 1) if number > high else (tensor * 0 + 1, 0)


def _tensor_of(a: Any, b: Any) -> Any:
    """Return the first operand that is a tensor; at least one is."""
    return a if isinstance(a, Arithmetic) else b


def promoted_numbers(caller: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Return two operands in their common type, arrays as tensors, masks as INT8, in which NumPy computes with them."""
    a, b = promoted(caller, {"a": a, "b": b})
    tensor = _tensor_of(a, b)
    a, b = (tensor._beside(x) if isinstance(x, np.ndarray) else x for x in (a, b))
    return (as_integers(a), as_integers(b)) if tensor.is_boolean else (a, b)


def as_integers(operand: Any) -> Any:
    """Return a mask as INT8, a boolean as an integer."""
    return int(operand) if is_number(operand) else operand.astype("int8")


def combined_as_floats(caller: str, a: Any, b: Any, *, kind: type[OperatorDesc]) -> Any:
    """Apply a floating-point operator, in FLOAT32 for integers and masks."""
    a, b = promoted(caller, {"a": a, "b": b})
    return _applied(caller, kind, as_floating(a), as_floating(b))


def floor_quotient(caller: str, a: Any, b: Any) -> Any:
    """Return the quotient of each pair of elements, rounded down; 0 of integers divided by 0."""
    a, b = promoted_numbers(caller, a, b)
    data_type = _tensor_of(a, b).data_type
    if not data_type.is_float:
        return _floor_quotient_of_integers(caller, a, b)
    if not data_type.is_reduced_float:
        return _floor_quotient_of_floats(caller, a, b)
    with np.errstate(over="ignore"):
        wide = [float(as_elements(data_type, x)) if is_number(x) else x.astype("float32") for x in (a, b)]
    return _floor_quotient_of_floats(caller, *wide).astype(data_type)


def _floor_quotient_of_floats(caller: str, a: Any, b: Any) -> Any:
    """Divide after subtracting the exact remainder, as Python and NumPy do: the quotient may round up to the next
    integer."""
    rest = _applied(caller, descs.ElementWiseModulusTruncate, a, b)
    quotient = (a - rest) / b
    quotient = quotient._chosen(_applied(caller, descs.ElementWiseModulusFloor, a, b) == rest, quotient - 1.0)
    floor = quotient._operator(caller, descs.ElementWiseFloor, input_tensor=quotient)
    floor = floor._chosen(quotient - floor <= 0.5, floor + 1.0)
    rounded = _applied(caller, descs.ElementWiseDivide, a, b)
    result = (rounded * 0.0)._chosen(floor == 0, floor)  # of the quotient's sign
    is_zero = b == 0
    if isinstance(is_zero, Arithmetic):
        result = rounded._chosen(is_zero, result)
    elif is_zero:
        result = rounded
    # Rounded once more: gradients end at an operator that is constant almost everywhere.
    return result._operator(caller, descs.ElementWiseFloor, input_tensor=result)


def _floor_quotient_of_integers(caller: str, a: Any, b: Any) -> Any:
    """Divide, and subtract 1 if the division rounded up: then the truncated and the floored remainder differ."""
    result = _applied(caller, descs.ElementWiseDivide, a, b)
    if result.data_type.is_signed:
        down = _applied(caller, descs.ElementWiseModulusFloor, a, b)
        is_rounded_up = down != _applied(caller, descs.ElementWiseModulusTruncate, a, b)
        result = result - is_rounded_up.astype(result.data_type)
    return _zero_by_zero(result, b)


def _zero_by_zero(result: Any, divisor: Any) -> Any:
    """Return integer quotients or remainders with 0 for divisors of 0, for which DirectML returns all ones."""
    if isinstance(divisor, Arithmetic):
        return result._chosen(divisor != 0, 0)
    return result if divisor else result * 0


def remainder(caller: str, a: Any, b: Any, *, kind: type[OperatorDesc] | None = None) -> Any:
    """Return the remainder of each division, by default with the divisor's sign; 0 of integers divided by 0."""
    a, b = promoted_numbers(caller, a, b)
    result = _applied(caller, descs.ElementWiseModulusFloor if kind is None else kind, a, b)
    return result if result.data_type.is_float else _zero_by_zero(result, b)


def raised(caller: str, base: Any, exponent: Any) -> Any:
    """Return a base to the power of an exponent for each pair of elements; see ``power`` for integers.

    Raises:
        InvalidArgument: If the host knows a negative exponent of integers.
    """
    check_exponents(caller, base, exponent)
    base, exponent = promoted_numbers(caller, base, exponent)
    if not _tensor_of(base, exponent).data_type.is_float:
        return power(caller, base, exponent)
    if is_number(exponent):
        exponent = as_number(caller, exponent, base.data_type)
        return base._operator(caller, descs.ElementWiseConstantPow, input_tensor=base, exponent=exponent)
    return _powers(caller, base, exponent)


def check_exponents(caller: str, base: Any, exponent: Any) -> None:
    """Raise if integers are raised to negative integers that the host knows.

    Raises:
        InvalidArgument: If they are.
    """
    if isinstance(exponent, Arithmetic) or not (_is_whole(base) and _is_whole(exponent)):
        return
    minimum = np.min(exponent, initial=0) if isinstance(exponent, np.ndarray) else exponent
    if minimum < 0:
        raise InvalidArgument(
            f"{caller}: exponents of integers must not be negative, got {minimum}; convert the base with "
            "astype('float32')"
        )


def _is_whole(operand: Any) -> bool:
    return operand.dtype.kind in "biu" if hasattr(operand, "dtype") else isinstance(operand, numbers.Integral)


def _powers(caller: str, base: Any, exponent: Any) -> Any:
    return call_op(descs.ElementWisePow, {"input_tensor": base, "exponent_tensor": exponent}, caller=caller)[0]


def power(caller: str, base: Any, exponent: Any) -> Any:
    """Return integers to the power of integers of their type.

    A negative exponent in a tensor gives the integer part of the real result, and 0 for the base 0: all results are 0
    but those of 1 and -1.
    """
    tensor = _tensor_of(base, exponent)
    if tensor.data_type.bits < 64:
        result = _powers(caller, base, exponent)
    elif is_number(exponent):
        return _power_by_squares(base, int(as_number(caller, exponent, tensor.data_type)))
    else:
        base, exponent = (tensor._beside(x, tensor.data_type) for x in (base, exponent))
        result = _powers_by_squares(base, exponent)
    if not (isinstance(exponent, Arithmetic) and tensor.data_type.is_signed):
        return result
    is_unit = (base == 1) | (base == -1)
    return result._chosen((exponent >= 0) | is_unit, 0)


def _power_by_squares(base: Any, exponent: int) -> Any:
    """Return integers to the power of a number, a product of squares for the bits of the number."""
    square, product = base, None
    while exponent:
        if exponent & 1:
            product = square if product is None else product * square
        exponent >>= 1
        square = square * square if exponent else square
    return base * 0 + 1 if product is None else product._same()


def _powers_by_squares(base: Any, exponent: Any) -> Any:
    """Return integers of 64 bits to the power of integers, by squares.

    From 64 on, powers of even bases are 0, their lower 64 bits. Exponents of odd ones count modulo 64, since powers of
    all but 1 and -1 overflow.
    """
    product: Any = None
    square = base
    for bit in range(6):
        is_set = (exponent & (1 << bit)) != 0
        factor = square._chosen(is_set, 1)
        product = factor if product is None else product * factor
        square = square * square
    return product._chosen(((base & 1) != 0) | (exponent < 64), 0)


def shifted(caller: str, a: Any, b: Any, *, kind: type[OperatorDesc]) -> Any:
    """Return integers shifted left or right by any number of bits; DirectML shifts unsigned integers, by less than
    their width.

    Shifted right, negative numbers are inverted before and after, so that their sign is repeated.

    Raises:
        InvalidArgument: If an operand is not of integers.
    """
    a, b = promoted_numbers(caller, a, b)
    data_type = _tensor_of(a, b).data_type
    check_integers(caller, "a and b", data_type)
    beside = _tensor_of(a, b)._beside
    a, b = (beside(as_number(caller, x, data_type) if is_number(x) else x, data_type) for x in (a, b))
    unsigned = UNSIGNED.get(data_type, data_type)
    by = b._same(unsigned)
    is_arithmetic = data_type.is_signed and kind is descs.ElementWiseBitShiftRight
    flips = -(a < 0).astype(data_type) if is_arithmetic else a
    bits = ((a ^ flips) if is_arithmetic else a)._same(unsigned)
    moved = _applied(caller, kind, bits, by)
    result = moved._chosen(by < data_type.bits, 0)._same(data_type)
    return result ^ flips if is_arithmetic else result


def wrapped(x: Tensor, data_type: DataType) -> Tensor:
    """Return integers truncated to a narrower type."""
    low, high = value_range(data_type)
    span = high - low + 1
    return ((x - low) % span + low).astype(data_type)


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
