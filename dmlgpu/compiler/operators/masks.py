"""Operators that choose between two values by place: diagonals, one place in each line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.operators.bits import as_bits
from dmlgpu.compiler.operators.fill import FILL, PLACE, places
from dmlgpu.compiler.operators.indices import check_axis, check_single_along_axis, merged_around_axis
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, input_tensor, invalid, output_tensor
from dmlgpu.compiler.operators.scalars import converted, words_of
from dmlgpu.compiler.plan import Body, Map, Plan, Source, Tensor, View, apply, constants, element
from dmlgpu.compiler.rewrites.collapse import merge_dimensions
from dmlgpu.compiler.target import Target

MINUS_ONE = 0xBF800000
"""The word of the float32 number -1."""


class OneHot(Lowering):
    """Fills lines along an axis with an off value and puts the on value where an index says.

    Where the page is silent: an index below -n leaves its line off, as one past the end does. The values are taken as
    bits.
    """

    desc = descs.OneHot
    shaders = ("indexing/one_hot", "indexing/found", PLACE)

    @classmethod
    def check(cls, desc: descs.OneHot) -> None:
        check_axis(desc, "indices_tensor")
        check_single_along_axis(desc, "indices_tensor", "output_tensor")
        if desc.values_tensor.element_count < 2:
            sizes = list(desc.values_tensor.sizes)
            raise invalid(desc, "values_tensor.sizes", f"must hold at least two elements (off and on), got {sizes}")

    @classmethod
    def lower(cls, desc: descs.OneHot, target: Target) -> Plan:
        """One map, on bits, in units of several elements where the output has them."""
        indices = input_tensor(desc, "indices_tensor", View.INDEX)
        axis, (output, indices) = merged_around_axis(desc.axis, as_bits(output_tensor(desc)), indices)
        indices = replace(
            indices,
            sizes=output.sizes,
            strides=tuple(0 if d == axis else stride for d, stride in enumerate(indices.strides)),
        )
        steps = tuple(int(dimension == axis) for dimension in range(output.rank))
        off, on = (_splat(as_bits(input_tensor(desc, "values_tensor")), number, output) for number in (0, 1))
        body = apply(
            cls.shaders[0],
            output.data_type,
            output.sizes,
            portable=True,
            place=places(output.sizes, steps),
            found=element(
                cls.shaders[1],
                DataType.UINT32,
                output.sizes,
                values=constants(size=output.sizes[axis]),
                indices=indices,
            ),
            on=on,
            off=off,
        )
        return Plan(desc.operator, (Map("one hot", body, output),))


def _splat(values: Tensor, number: int, output: Tensor) -> Tensor:
    """Repeat element 0 or 1 of a tensor, in row-major order, over the output."""
    running = max(dimension for dimension, size in enumerate(values.sizes) if size > 1)
    offset = values.offset + number * values.strides[running]
    return replace(values, sizes=output.sizes, strides=(0,) * output.rank, offset=offset)


class DiagonalMatrix1(Lowering):
    """Writes a value into a band of diagonals, or everywhere but into a band, over an input or over zeros.

    The values are taken as bits. An input has the output's sizes (the page only implies it).
    """

    desc = descs.DiagonalMatrix1
    shaders = ("indexing/diagonal_matrix1", PLACE, FILL)

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        """The input's, where there is one; DIAGONAL_MATRIX has none."""
        given = getattr(desc, "input_tensor", None)
        return {} if given is None else {"output_tensor": given.sizes}

    @classmethod
    def check(cls, desc: Any) -> None:
        for field, sizes in cls.output_sizes(desc).items():
            check_sizes(desc, field, sizes, "input_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.DiagonalMatrix1, target: Target) -> Plan:
        height, width = desc.output_tensor.sizes[-2:]
        begin, end = desc.diagonal_fill_begin, desc.diagonal_fill_end
        first, last = (min(max(bound, 1 - height), width) for bound in sorted((begin, end)))
        output = as_bits(output_tensor(desc))
        given = output if desc.input_tensor is None else as_bits(input_tensor(desc, "input_tensor"))
        steps = (0,) * (output.rank - 2) + (-1, 1)
        sizes, strides = merge_dimensions(output.sizes, output.strides, given.strides, steps)
        output = replace(output, sizes=sizes, strides=strides[0])
        value = _constant(words_of(desc.value, desc.value_data_type), output)
        rest: Source = replace(given, sizes=sizes, strides=strides[1])
        if desc.input_tensor is None:
            rest = _constant(words_of(0, desc.value_data_type), output)
        inside, outside = (value, rest) if begin <= end else (rest, value)
        body = apply(
            cls.shaders[0],
            output.data_type,
            sizes,
            portable=True,
            values=constants(first=first, count=last - first),
            place=places(output.sizes, strides[2]),
            inside=inside,
            outside=outside,
        )
        return Plan(desc.operator, (Map("diagonal", body, output),))


def _constant(words: tuple[int, ...], output: Tensor) -> Body:
    """Return a virtual tensor that has the same bits everywhere, for a choice between it and another one.

    Mesa takes a choice between the words of -1.0 and 0.0 for the negative of a truth value, which is -0.0 and not 0.0.
    """
    values = constants(words=words, hidden=MINUS_ONE in words)
    return apply(FILL, output.data_type, output.sizes, portable=True, values=values)


class DiagonalMatrix(Lowering):
    """DIAGONAL_MATRIX1 with one diagonal over zeros.

    The value is a float32, converted to the output's type as CAST converts (the page: it may be truncated).
    """

    desc = descs.DiagonalMatrix
    newer = descs.DiagonalMatrix1

    @classmethod
    def upgrade(cls, desc: descs.DiagonalMatrix) -> descs.DiagonalMatrix1:
        data_type = desc.output_tensor.data_type
        return descs.DiagonalMatrix1(
            input_tensor=None,
            output_tensor=desc.output_tensor,
            value_data_type=data_type,
            value=converted(converted(desc.value, DataType.FLOAT32), data_type),
            diagonal_fill_begin=desc.offset,
            diagonal_fill_end=desc.offset + 1,
        )
