"""The type that operands of different types have together, by the table of the Python array API standard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument

if TYPE_CHECKING:
    from dmlgpu.tensors.strided import TensorBase

_SIGNED = {8: DataType.INT8, 16: DataType.INT16, 32: DataType.INT32, 64: DataType.INT64}
_FLOATS = (DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64)


def common_type(a: DataType, b: DataType) -> DataType | None:
    """Return the smallest type that holds all numbers of two; None where there is none, or where one is of integers
    and the other of floats."""
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
