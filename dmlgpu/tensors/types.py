"""Conversion of arguments to data types, numbers and arrays, and the common dtype of operands."""

from __future__ import annotations

import math
import numbers
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import DmlError, InvalidArgument, shown
from dmlgpu.common.symbols import SymbolicNumber

if TYPE_CHECKING:
    from dmlgpu.tensors.strided import TensorBase


TypeLike: TypeAlias = DataType | np.dtype[Any] | type[Any] | str
"""A data type, a NumPy type, or the name of one: ``"float16"``, ``"uint4"``. ``bool`` is stored as UINT8."""

_RANGES = {member: ((0, 15) if member is DataType.UINT4 else (-8, 7)) for member in (DataType.UINT4, DataType.INT4)}


def as_data_type(caller: str, name: str, value: Any) -> DataType:
    """Return the data type that a value stands for.

    Raises:
        InvalidArgument: it stands for none of DirectML's; names caller and argument.
    """
    data_type = value if isinstance(value, DataType) else None
    if isinstance(value, str):
        data_type = DataType.__members__.get(value.upper())
    if data_type is None and not isinstance(value, int):
        try:
            data_type = DataType.from_numpy(value)
        except InvalidArgument:
            data_type = None
    if data_type is None or data_type is DataType.UNKNOWN:
        names = ", ".join(member.name.lower() for member in DataType if member is not DataType.UNKNOWN)
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
    """Return the least and the greatest integer of an integer type."""
    if data_type in _RANGES:
        return _RANGES[data_type]
    info = np.iinfo(data_type.numpy)
    return int(info.min), int(info.max)


def as_number(caller: str, value: Any, data_type: DataType) -> int | float:
    """Return a number as one of a data type.

    Raises:
        InvalidArgument: no number, or an integer type does not hold it.
    """
    if not is_number(value):
        raise InvalidArgument(f"{caller}: a number must be given, got {shown(value, typed=True)}")
    if type(value) is SymbolicNumber and data_type.is_float:
        return value
    if data_type.is_float:
        try:
            return float(value)
        except OverflowError:
            raise InvalidArgument(f"{caller}: a number must be in the range of a float, got {shown(value)}") from None
    low, high = value_range(data_type)
    if isinstance(value, numbers.Integral | np.bool_) and low <= value <= high:
        return value if type(value) is SymbolicNumber else int(value)
    is_integer = isinstance(value, numbers.Integral | np.bool_)
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
    if array.dtype.kind not in "biuf":
        got = f"NumPy type {array.dtype}" if isinstance(values, np.ndarray) else shown(values)
        cure = ""
        if isinstance(values, np.ndarray) and array.dtype.kind == "c":
            cure = f"; {name}.real and {name}.imag are"
        elif array.dtype.name.startswith(("bfloat16", "float8", "float4")):  # of the package ml_dtypes
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
        integral = array.dtype.kind != "f" or bool(np.all(array == np.trunc(array)))
        if not (integral and low <= array.min() and array.max() <= high):
            raise InvalidArgument(f"{caller}: {name} must hold integers between {low} and {high} for {data_type.name}")
    with np.errstate(over="ignore"):
        return array.astype(data_type.numpy), data_type


def unreadable(expected: str, values: Any, error: Exception) -> InvalidArgument:
    """Return the error for another library's array that NumPy cannot read."""
    kind = f"{type(values).__module__.partition('.')[0]}.{type(values).__qualname__}"
    where = f" on {values.device}" if hasattr(values, "device") else ""
    cure = (
        "; bfloat16 is not supported, x.float() converts it" if "bfloat16" in str(getattr(values, "dtype", "")) else ""
    )
    return InvalidArgument(f"{expected}, got a {kind}{where} that NumPy cannot read ({error}){cure}")


def bytes_of(array: NDArray[Any], data_type: DataType) -> NDArray[np.uint8]:
    """Return the bytes of a packed tensor, whole words: the array's own where that is what they are."""
    if array.dtype == data_type.numpy and data_type.bits >= 8 and array.nbytes % 4 == 0:
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return TensorDesc(data_type, array.shape or (1,)).encode(array)


def elements_of(raw: NDArray[np.uint8], data_type: DataType, sizes: tuple[int, ...]) -> NDArray[Any]:
    """Return the elements of a packed tensor by its bytes, of which there may be more: the bytes' own memory where they
    may be written and no element is smaller than a byte."""
    if data_type.bits < 8:
        return TensorDesc(data_type, sizes or (1,)).decode(raw).reshape(sizes)
    elements = raw[: math.prod(sizes) * data_type.bits // 8].view(data_type.numpy).reshape(sizes)
    return elements if elements.flags.writeable else elements.copy()


_SIGNED = {8: DataType.INT8, 16: DataType.INT16, 32: DataType.INT32, 64: DataType.INT64}
_FLOATS = (DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64)


def common_type(a: DataType, b: DataType) -> DataType | None:
    """Return the smallest type that holds all values of two types; None if there is none, or if only one is a float."""
    if a is b:
        return a
    if a.is_float or b.is_float:
        return max(a, b, key=_FLOATS.index) if a.is_float and b.is_float else None
    if min(a.bits, b.bits) < 8:
        return None
    if a.is_signed is b.is_signed:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    return _SIGNED.get(max(signed.bits, 2 * unsigned.bits))


def promoted(caller: str, operands: dict[str, Any]) -> list[Any]:
    """Return tensors in the type that they have together; numbers, and tensors of that type, as they are.

    Args:
        caller: the function that was called, for messages.
        operands: tensors and numbers by name, at least one a tensor.

    Raises:
        InvalidArgument: no common type; names the operands.
    """
    tensors: dict[str, TensorBase] = {
        name: operand for name, operand in operands.items() if hasattr(operand, "data_type")
    }
    first, *others = tensors.values()
    common: DataType | None = first.data_type
    truth = [operand.is_boolean for operand in tensors.values()]
    for other in others:
        common = None if common is None else common_type(common, other.data_type)
    if common is None or (
        any(truth) and not all(truth) and any(operand.data_type is not common for operand in tensors.values())
    ):
        listing = " and ".join(f"{operand.type_name} of {name}" for name, operand in tensors.items())
        floats = [operand.data_type for operand in tensors.values() if operand.data_type.is_float]
        target = floats[0] if floats else first.data_type
        name = next((name for name, operand in tensors.items() if operand.data_type is not target), next(iter(tensors)))
        cure = f"convert one of them, such as {name}.astype('{target.name.lower()}')"
        raise InvalidArgument(f"{caller}: operands must have a common type, got {listing}; {cure}")
    if all(operand.data_type is common for operand in tensors.values()):
        return list(operands.values())
    return [operand.astype(common) if name in tensors else operand for name, operand in operands.items()]
