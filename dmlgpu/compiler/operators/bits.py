"""Operators on bits: a tensor's type only says how many an element has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.operators.lowering import Lowering, input_tensor, output_tensor
from dmlgpu.compiler.plan import Map, Plan, Tensor, apply

_UNSIGNED = {8: DataType.UINT8, 16: DataType.UINT16, 32: DataType.UINT32, 64: DataType.UINT64}


def as_bits(tensor: Tensor) -> Tensor:
    """Return the same elements as unsigned integers of their width."""
    return replace(tensor, data_type=_UNSIGNED[tensor.data_type.bits])


class _Bitwise(Lowering):
    """Elements are unsigned integers of their width, those of 64 bits pairs of words: the same on every adapter."""

    folder = "elementwise"
    operands: ClassVar[dict[str, str]] = {"a": "a_tensor", "b": "b_tensor"}

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        output = as_bits(output_tensor(desc))
        inputs: dict[str, Any] = {name: as_bits(input_tensor(desc, field)) for name, field in cls.operands.items()}
        body = apply(cls.shaders[0], output.data_type, output.sizes, portable=True, **inputs)
        return Plan(desc.operator, (Map("map", body, output),))


class ElementWiseBitAnd(_Bitwise):
    """a & b"""

    desc = descs.ElementWiseBitAnd


class ElementWiseBitOr(_Bitwise):
    """a | b"""

    desc = descs.ElementWiseBitOr


class ElementWiseBitXor(_Bitwise):
    """a ^ b"""

    desc = descs.ElementWiseBitXor


class ElementWiseBitNot(_Bitwise):
    """~x"""

    desc = descs.ElementWiseBitNot
    operands: ClassVar[dict[str, str]] = {"input": "input_tensor"}


class ElementWiseBitCount(_Bitwise):
    """How many bits are 1."""

    desc = descs.ElementWiseBitCount
    operands: ClassVar[dict[str, str]] = {"input": "input_tensor"}


class ElementWiseBitShiftLeft(_Bitwise):
    """a << b, cut to the element's width.

    Where the page is silent, Direct3D's rule: the count is taken modulo 32, for elements of 64 bits modulo 64, so that
    narrower ones lose all their bits to counts from their width to 31.
    """

    desc = descs.ElementWiseBitShiftLeft


class ElementWiseBitShiftRight(_Bitwise):
    """a >> b with zeros shifted in. Counts as in SHIFT_LEFT."""

    desc = descs.ElementWiseBitShiftRight
