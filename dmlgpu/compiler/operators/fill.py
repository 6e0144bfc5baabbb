"""Operators that fill a tensor from a few numbers."""

from __future__ import annotations

from dataclasses import replace

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.operators.bits import as_bits
from dmlgpu.compiler.operators.lowering import Lowering, output_tensor
from dmlgpu.compiler.operators.scalars import converted, words_of
from dmlgpu.compiler.plan import Body, Element, Map, Plan, apply, constants
from dmlgpu.compiler.rewrites.collapse import merge_dimensions

FLOAT32 = DataType.FLOAT32

FILL = "fill/fill_value_constant"
PLACE = "fill/place"


def places(sizes: tuple[int, ...], steps: tuple[int, ...]) -> Body:
    """Return a virtual tensor of these sizes that counts up by so much along each dimension, modulo 2^32."""
    return Element(PLACE, DataType.UINT32, sizes, constants=constants(steps=steps))


class FillValueConstant(Lowering):
    """One number everywhere, as bits: on every adapter, in every type."""

    desc = descs.FillValueConstant

    @classmethod
    def lower(cls, desc: descs.FillValueConstant) -> Plan:
        output = as_bits(output_tensor(desc))
        values = constants(words=words_of(desc.value, desc.value_data_type), hidden=False)
        body = apply(cls.shaders[0], output.data_type, output.sizes, portable=True, values=values)
        return Plan(desc.operator, (Map("fill", body, output),))


class FillValueSequence(Lowering):
    """start + delta * place, in row-major order whatever the strides. Floats are computed in float32 and rounded to the
    tensor's type; integers wrap (the page is silent), so that a sequence of unsigned numbers may fall."""

    desc = descs.FillValueSequence
    shaders = ("fill/fill_value_sequence", PLACE)

    @classmethod
    def lower(cls, desc: descs.FillValueSequence) -> Plan:
        """One map over the places of the elements."""
        output = output_tensor(desc)
        sizes, (strides, steps) = merge_dimensions(output.sizes, output.strides, packed_strides(output.sizes))
        output = replace(output, sizes=sizes, strides=strides)
        if not output.data_type.is_float:
            output = as_bits(output)
        start, delta = (_number(number, desc.value_data_type) for number in (desc.value_start, desc.value_delta))
        numbers = constants(compute=FLOAT32, start=start, delta=delta)
        body = apply(
            cls.shaders[0], output.data_type, sizes, portable=True, values=numbers, place=places(output.sizes, steps)
        )
        return Plan(desc.operator, (Map("fill", body, output),))


def _number(number: float, data_type: DataType) -> int | float:
    """Return a number in the tensor's type; integers stay as they are and are taken modulo their width later."""
    return converted(number, data_type) if data_type.is_float else int(number)
