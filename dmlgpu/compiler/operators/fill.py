"""Operators that fill a tensor from a few numbers: constants, sequences, diagonals, one-hot lines, random numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.operators.indexing import check_single_along_axis, merged_around_axis
from dmlgpu.compiler.operators.lowering import (
    Lowering,
    check_axis,
    check_sizes,
    converted,
    everywhere,
    input_tensor,
    invalid,
    output_tensor,
    words_of,
)
from dmlgpu.compiler.plan import Body, Element, Map, Plan, PlanTensor, Source, View, apply, constants, element, portable
from dmlgpu.compiler.rewrites.collapse import merge_dimensions
from dmlgpu.compiler.rewrites.sources import as_bits

FLOAT32 = DataType.FLOAT32

FILL = "fill/fill_value_constant"
PLACE = "fill/place"


def places(sizes: tuple[int, ...], steps: tuple[int, ...]) -> Body:
    """Return a virtual tensor that increases by ``steps`` along each dimension, modulo 2^32."""
    return Element(PLACE, DataType.UINT32, sizes, constants=constants(steps=steps))


class FillValueConstant(Lowering):
    """The same number in every element, as bits: on every adapter, in every type."""

    desc = descs.FillValueConstant

    @classmethod
    def lower(cls, desc: descs.FillValueConstant) -> Plan:
        output = as_bits(output_tensor(desc))
        values = constants(words=words_of(desc.value, desc.value_data_type), hidden=False)
        body = portable(cls.shaders[0], output, values=values)
        return Plan(desc.operator, (Map("fill", body, output),))


class FillValueSequence(Lowering):
    """start + delta * index, in row-major order for any strides. Floats are computed in float32 and rounded to the
    tensor's type; integers wrap (the page is silent), so a sequence of unsigned numbers may decrease."""

    desc = descs.FillValueSequence
    shaders = ("fill/fill_value_sequence", PLACE)

    @classmethod
    def lower(cls, desc: descs.FillValueSequence) -> Plan:
        """Lower to one map over the indices of the elements."""
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
    """Return a number in the tensor's type; integers are reduced modulo their width later."""
    return converted(number, data_type) if data_type.is_float else int(number)


MINUS_ONE = 0xBF800000
"""Bits of the float32 number -1."""


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
    def lower(cls, desc: descs.OneHot) -> Plan:
        """Lower to one map on bits, in units of several elements if the output has them."""
        indices = input_tensor(desc, "indices_tensor", View.INDEX)
        axis, (output, indices) = merged_around_axis(desc.axis, as_bits(output_tensor(desc)), indices)
        indices = replace(
            indices,
            sizes=output.sizes,
            strides=tuple(0 if d == axis else stride for d, stride in enumerate(indices.strides)),
        )
        steps = tuple(int(dimension == axis) for dimension in range(output.rank))
        values = as_bits(input_tensor(desc, "values_tensor"))
        running = max(dimension for dimension, size in enumerate(values.sizes) if size > 1)
        off, on = (everywhere(values, output.sizes, index * values.strides[running]) for index in (0, 1))
        body = portable(
            cls.shaders[0],
            output,
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


class DiagonalMatrix1(Lowering):
    """Writes a value into a band of diagonals, or everywhere but into a band, over an input or over zeros.

    The values are taken as bits. An input has the output's sizes (the page only implies it).
    """

    desc = descs.DiagonalMatrix1
    shaders = ("indexing/diagonal_matrix1", PLACE, FILL)

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        """Return the input's sizes; DIAGONAL_MATRIX has no input."""
        source = getattr(desc, "input_tensor", None)
        return {} if source is None else {"output_tensor": source.sizes}

    @classmethod
    def check(cls, desc: Any) -> None:
        for field, sizes in cls.output_sizes(desc).items():
            check_sizes(desc, field, sizes, "input_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.DiagonalMatrix1) -> Plan:
        height, width = desc.output_tensor.sizes[-2:]
        begin, end = desc.diagonal_fill_begin, desc.diagonal_fill_end
        first, last = (min(max(bound, 1 - height), width) for bound in sorted((begin, end)))
        output = as_bits(output_tensor(desc))
        source = output if desc.input_tensor is None else as_bits(input_tensor(desc, "input_tensor"))
        steps = (0,) * (output.rank - 2) + (-1, 1)
        sizes, strides = merge_dimensions(output.sizes, output.strides, source.strides, steps)
        output = replace(output, sizes=sizes, strides=strides[0])
        value = _constant_bits(words_of(desc.value, desc.value_data_type), output)
        rest: Source = replace(source, sizes=sizes, strides=strides[1])
        if desc.input_tensor is None:
            rest = _constant_bits(words_of(0, desc.value_data_type), output)
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


def _constant_bits(words: tuple[int, ...], output: PlanTensor) -> Body:
    """Return a virtual tensor with the same bits in every element, for a choice between it and another one.

    Mesa takes a choice between the words of -1.0 and 0.0 for the negative of a boolean, which is -0.0 and not 0.0.
    """
    values = constants(words=words, hidden=MINUS_ONE in words)
    return portable(FILL, output, values=values)


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


STATE_WORDS = 6
"""Number of words of the state: four of the counter, the lowest first, and two of the key."""
BLOCK_WORDS = 4


class RandomGenerator(Lowering):
    """Philox 4x32-10: element i, in row-major order for any strides, is word i mod 4 of block i div 4.

    The page does not specify which word of the counter is the lowest, nor the order of blocks and their words. As in
    the published algorithm (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3") word 0 is the lowest, block k
    belongs to counter + k, and words keep their order. The counter advances by the number of blocks modulo 2^128,
    including a last block that is only partly used. All of it is integer arithmetic: the same stream on every adapter.
    """

    desc = descs.RandomGenerator
    shaders = ("random/random_generator", "random/next_state", PLACE)

    @classmethod
    def check(cls, desc: descs.RandomGenerator) -> None:
        state = (1,) * (desc.input_state_tensor.dimension_count - 1) + (STATE_WORDS,)
        check_sizes(desc, "input_state_tensor", state, "four words of counter, two of key")

    @classmethod
    def lower(cls, desc: descs.RandomGenerator) -> Plan:
        """Lower to a map over the elements, and one over the words of the next state if the description has that
        output."""
        steps = [Map("generate", *cls._elements(desc))]
        if desc.output_state_tensor is not None:
            steps.append(Map("next state", *cls._next_state(desc)))
        return Plan(desc.operator, tuple(steps))

    @classmethod
    def _elements(cls, desc: descs.RandomGenerator) -> tuple[Body, PlanTensor]:
        output = output_tensor(desc)
        sizes, (strides, steps) = merge_dimensions(output.sizes, output.strides, packed_strides(output.sizes))
        output = replace(output, sizes=sizes, strides=strides)
        inputs: dict[str, Source] = {"place": places(output.sizes, steps), **cls._state(desc, sizes)}
        follows = (tuple(range(len(sizes))),) * len(inputs)
        values = constants(steps=steps)
        body = Element(cls.shaders[0], DataType.UINT32, sizes, tuple(inputs.items()), values, follows=follows)
        return body, output

    @classmethod
    def _next_state(cls, desc: descs.RandomGenerator) -> tuple[Body, PlanTensor]:
        output = output_tensor(desc, "output_state_tensor")
        words = cls._state(desc, output.sizes)
        blocks = -(-math.prod(desc.output_tensor.sizes) // BLOCK_WORDS)
        values = constants(blocks=blocks)
        return element(cls.shaders[1], DataType.UINT32, output.sizes, portable=False, values=values, **words), output

    @classmethod
    def _state(cls, desc: descs.RandomGenerator, sizes: tuple[int, ...]) -> dict[str, PlanTensor]:
        """Return the words of the state, each as a tensor that repeats it."""
        state = input_tensor(desc, "input_state_tensor")
        return {f"state{word}": everywhere(state, sizes, word * state.strides[-1]) for word in range(STATE_WORDS)}
