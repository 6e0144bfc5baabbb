"""Conversion of arguments to data types, numbers and arrays, and the common dtype of operands."""

from __future__ import annotations

import math
import numbers
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import BFLOAT16, DataType, as_elements, data_type_named, holds_numbers
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import DmlError, InvalidArgument, shown
from dmlgpu.compiler.sizes.arithmetic import is_symbolic

TypeLike: TypeAlias = DataType | np.dtype[Any] | type[Any] | str
"""A data type, a NumPy type, or the name of one: ``"float16"``, ``"bfloat16"``. ``bool`` is stored as UINT8."""

_RANGES = {member: ((0, 15) if member is DataType.UINT4 else (-8, 7)) for member in (DataType.UINT4, DataType.INT4)}


def as_data_type(caller: str, name: str, value: Any) -> DataType:
    """Return the data type that a value stands for.

    Raises:
        InvalidArgument: it stands for none of DirectML's; names caller and argument.
    """
    data_type = value if isinstance(value, DataType) else None
    if isinstance(value, str):
        data_type = data_type_named(value.upper())
    if data_type is None and not isinstance(value, int):
        try:
            data_type = DataType.from_numpy(value)
        except InvalidArgument:
            data_type = None
    if data_type is None or data_type is DataType.UNKNOWN:
        names = ", ".join(member.name.lower() for member in (*DataType, BFLOAT16) if member is not DataType.UNKNOWN)
        raise InvalidArgument(f"{caller}: {name} must be a data type ({names}), got {shown(value)}")
    return data_type


def is_boolean_type(value: Any) -> bool:
    """Return whether a value is the boolean type: ``bool``, NumPy's, or ``"bool"``."""
    if isinstance(value, np.dtype):
        return value == np.bool_
    return value is bool or value is np.bool_ or (isinstance(value, str) and value.lower() == "bool")


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a real number, NumPy's and booleans included."""
    return isinstance(value, numbers.Real | np.bool_)


def value_range(data_type: DataType) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer type."""
    if data_type in _RANGES:
        return _RANGES[data_type]
    info = np.iinfo(data_type.numpy)
    return int(info.min), int(info.max)


def as_number(caller: str, value: Any, data_type: DataType) -> int | float:
    """Return a number converted to a data type.

    Raises:
        InvalidArgument: no number, or an integer type does not hold it.
    """
    if not is_number(value):
        raise InvalidArgument(f"{caller}: a number must be given, got {shown(value, typed=True)}")
    if is_symbolic(value) and data_type.is_float:
        return value
    if isinstance(value, np.bool_):
        value = bool(value)
    if data_type.is_float:
        try:
            return float(value)
        except OverflowError:
            raise InvalidArgument(f"{caller}: a number must be in the range of a float, got {shown(value)}") from None
    low, high = value_range(data_type)
    if isinstance(value, numbers.Integral | np.bool_) and low <= value <= high:
        return value if is_symbolic(value) else int(value)
    is_integer = isinstance(value, numbers.Integral)
    cure = f"; convert the tensor with astype('{'int64' if is_integer else 'float32'}')"
    if ": " in caller or (is_integer and data_type.bits == 64):  # an argument's name, and no tensor
        cure = ""
    raise InvalidArgument(
        f"{caller}: a number for {data_type.name} must be an integer between {low} and {high}, got {shown(value)}{cure}"
    )


def as_array(caller: str, name: str, values: Any, data_type: DataType | None) -> tuple[NDArray[Any], DataType]:
    """Return values as an array of a data type's NumPy dtype, or of bool, and that data type.

    Args:
        caller, name: Names in messages.
        values: Anything that NumPy converts to an array of numbers; Python floats become FLOAT32.
        data_type: Data type of the result; None takes that of the values.

    Raises:
        InvalidArgument: If the values are not numbers, or not representable in the data type.
    """
    try:
        array = np.asarray(values)
    except DmlError:  # a tensor's own reason
        raise
    except Exception as error:  # ragged lists, and whatever a foreign __array__ raises
        if hasattr(values, "__array__"):
            raise unreadable(f"{caller}: {name} must be an array of real numbers", values, error) from None
        array = np.empty(1, object)
    if not holds_numbers(array.dtype):
        got = f"NumPy type {array.dtype}" if isinstance(values, np.ndarray) else shown(values)
        cure = ""
        if isinstance(values, np.ndarray) and array.dtype.kind == "c":
            cure = f"; {name}.real and {name}.imag are"
        elif array.dtype.name.startswith(("float8", "float4")):  # of the package ml_dtypes
            cure = f"; convert it with {name}.astype('float32')"
        raise InvalidArgument(f"{caller}: {name} must be an array of real numbers, got {got}{cure}")
    if array.dtype.kind == "b" and data_type is None:
        return array, DataType.UINT8
    array = array.astype(np.uint8) if array.dtype.kind == "b" else array
    if data_type is None:
        if array.dtype == np.float64 and not hasattr(values, "dtype"):
            array = array.astype(np.float32)
        return array, as_data_type(caller, f"the type of {name}", array.dtype)
    if not data_type.is_float and array.size:
        low, high = value_range(data_type)
        integral = array.dtype.kind in "iu" or bool(np.all(array == np.trunc(array)))
        if not (integral and low <= array.min() and array.max() <= high):
            raise InvalidArgument(f"{caller}: {name} must hold integers between {low} and {high} for {data_type.name}")
    with np.errstate(over="ignore"):
        return as_elements(data_type, array), data_type


def unreadable(expected: str, values: Any, error: Exception) -> InvalidArgument:
    """Return the exception for another library's array that NumPy cannot read."""
    kind = f"{type(values).__module__.partition('.')[0]}.{type(values).__qualname__}"
    where = f" on {values.device}" if hasattr(values, "device") else ""
    cure = "; x.float() converts it" if "bfloat16" in str(getattr(values, "dtype", "")) else ""
    return InvalidArgument(f"{expected}, got a {kind}{where} that NumPy cannot read ({error}){cure}")


def bytes_of(array: NDArray[Any], data_type: DataType) -> NDArray[np.uint8]:
    """Return the bytes of a packed tensor as whole words, without a copy if the array's bytes already are."""
    if array.dtype == data_type.numpy and data_type.bits >= 8 and array.nbytes % 4 == 0:
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return TensorDesc(data_type, array.shape or (1,)).encode(array)


def elements_of(raw: NDArray[np.uint8], data_type: DataType, sizes: tuple[int, ...]) -> NDArray[Any]:
    """Decode the elements of a packed tensor from its bytes, of which there may be more; views the bytes if they are
    writable and elements are not smaller than a byte."""
    if data_type.bits < 8:
        return TensorDesc(data_type, sizes or (1,)).decode(raw).reshape(sizes)
    elements = raw[: math.prod(sizes) * data_type.bits // 8].view(data_type.numpy).reshape(sizes)
    return elements if elements.flags.writeable else elements.copy()


def common_type(a: DataType, b: DataType) -> DataType | None:
    """Return NumPy's common type of two, but FLOAT32 instead of a FLOAT64 that neither is. None for 4-bit types, and
    for UINT64 with a signed integer, since FLOAT32 would round most values. BFLOAT16, which NumPy lacks, is promoted as
    FLOAT16 is, and with that to FLOAT32."""
    if a is b:
        return a
    if min(a.bits, b.bits) < 8:
        return None
    if BFLOAT16 in (a, b):
        other = b if a is BFLOAT16 else a
        common = common_type(DataType.FLOAT16, other)
        return common if common is not DataType.FLOAT16 else DataType.FLOAT32 if other is common else BFLOAT16
    common = DataType.from_numpy(np.result_type(a.numpy, b.numpy))
    if common is not DataType.FLOAT64 or DataType.FLOAT64 in (a, b):
        return common
    return DataType.FLOAT32 if a.is_float or b.is_float else None


ElementType: TypeAlias = DataType | type[bool]
"""Element type in arithmetic: ``bool`` for masks, which are stored as UINT8."""


def promoted(caller: str, operands: dict[str, Any]) -> list[Any]:
    """Return tensors and arrays in the common type of all operands; numbers are returned unchanged.

    Types are NumPy's, see ``common_type``. A mask takes the type of the others. NumPy's numbers have their dtypes; of
    Python's, an int turns masks into INT64, and a float turns masks and integers into FLOAT32.

    Args:
        caller: The function that was called, for messages.
        operands: Tensors, arrays and numbers by name.

    Raises:
        InvalidArgument: If there is no common type; names the operands.
    """
    values = list(operands.values())
    if _are_alike(values):
        return values
    common = common_element_type(caller, operands)
    return [_converted(operand, common) if _is_array(operand) else operand for operand in values]


def _are_alike(operands: list[Any]) -> bool:
    """Return whether operands are tensors of one type, with Python numbers if it is a float, the most frequent case."""
    first = operands[0] if hasattr(operands[0], "data_type") else operands[-1]
    data_type = getattr(first, "data_type", None)
    return data_type is not None and all(
        data_type.is_float
        if type(operand) in (float, int)
        else getattr(operand, "data_type", None) is data_type and operand.is_boolean is first.is_boolean
        for operand in operands
    )


def common_element_type(caller: str, operands: dict[str, Any]) -> ElementType:
    """Return the common type of tensors, arrays and numbers; see ``promoted``."""
    types = {name: _element_type(caller, name, x) for name, x in operands.items() if _is_array(x)}
    common: ElementType | None = bool
    for element_type in types.values():
        common = None if common is None else _joined(common, element_type)
    if common is None:
        raise _without_common_type(caller, types)
    present = [x for x in operands.values() if is_number(x)]
    for number in sorted(present, key=lambda x: not isinstance(x, np.generic)):  # Python's have no type of their own
        common = type_beside(common, number)
    return common


def type_beside(element_type: ElementType, number: Any) -> ElementType:
    """Return the result type of arithmetic between elements and a number."""
    if isinstance(number, bool | np.bool_):
        return element_type
    if isinstance(number, np.number) and number.itemsize <= 8:
        common = _joined(element_type, DataType.from_numpy(number.dtype))
        if common is DataType.FLOAT64 and element_type is not DataType.FLOAT64:
            return DataType.FLOAT32
        if common is not None:
            return common
    is_integer = isinstance(number, numbers.Integral)
    if element_type is bool:
        return DataType.INT64 if is_integer else DataType.FLOAT32
    return element_type if is_integer or element_type.is_float else DataType.FLOAT32


def as_floating(operand: Any) -> Any:
    """Return a tensor or an array of integers or booleans in FLOAT32, other operands as they are."""
    is_floating = not _is_array(operand) or operand.dtype.kind not in "biu"
    return operand if is_floating else _converted(operand, DataType.FLOAT32)


def _is_array(operand: Any) -> bool:
    return hasattr(operand, "data_type") or isinstance(operand, np.ndarray)


def _element_type(caller: str, name: str, operand: Any) -> ElementType:
    """Return the type of a tensor or an array."""
    if operand.dtype == np.bool_:
        return bool
    data_type: DataType | None = getattr(operand, "data_type", None)
    return data_type or as_array(caller, name, operand, None)[1]


def _joined(a: ElementType, b: ElementType) -> ElementType | None:
    if a is bool or b is bool:
        return b if a is bool else a
    return common_type(a, b)


def _converted(operand: Any, element_type: ElementType) -> Any:
    """Return a tensor or an array in a type that holds its elements, itself if it has the type."""
    if not isinstance(operand, np.ndarray):
        return operand.astype(element_type)
    if element_type is bool:
        return operand.astype(bool, copy=False)
    return operand if operand.dtype == element_type.numpy else as_elements(element_type, operand)


def _without_common_type(caller: str, types: dict[str, ElementType]) -> InvalidArgument:
    listing = " and ".join(f"{_name_of(element_type)} of {name}" for name, element_type in types.items())
    first, *_ = types.values()
    name = next(name for name, element_type in types.items() if element_type is not first)
    cure = f"convert one of them, such as {name}.astype('{_name_of(first).lower()}')"
    return InvalidArgument(f"{caller}: operands must have a common type, got {listing}; {cure}")


def _name_of(element_type: ElementType) -> str:
    return "BOOL" if element_type is bool else element_type.name
