"""Random numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.operators.fill import PLACE, places
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, everywhere, input_tensor, output_tensor
from dmlgpu.compiler.plan import Body, Element, Map, Plan, Source, Tensor, constants, element
from dmlgpu.compiler.rewrites.collapse import merge_dimensions
from dmlgpu.compiler.target import Target

STATE_WORDS = 6
"""Words of the state: four of the counter, the lowest first, two of the key."""
BLOCK_WORDS = 4


class RandomGenerator(Lowering):
    """Philox 4x32-10: element i, in row-major order whatever the strides, is word i mod 4 of block i div 4.

    The page leaves open which word of the counter is the lowest, and in which order blocks and their words come. As in
    the published algorithm (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3") word 0 is the lowest, block k
    belongs to counter + k, and words keep their order. The counter moves on by the number of blocks, the last one whole
    even where only a part of it is used, modulo 2^128. All of it is integer arithmetic: the same stream everywhere.
    """

    desc = descs.RandomGenerator
    shaders = ("random/random_generator", "random/next_state", PLACE)

    @classmethod
    def output_sizes(cls, desc: descs.RandomGenerator) -> Mapping[str, tuple[int, ...]]:
        """The states have equal sizes; the output has any."""
        return {"output_state_tensor": desc.input_state_tensor.sizes}

    @classmethod
    def check(cls, desc: descs.RandomGenerator) -> None:
        state = (1,) * (desc.input_state_tensor.dimension_count - 1) + (STATE_WORDS,)
        check_sizes(desc, "input_state_tensor", state, "four words of counter, two of key")
        if desc.output_state_tensor is not None:
            check_sizes(desc, "output_state_tensor", state, "input_state_tensor.sizes")

    @classmethod
    def lower(cls, desc: descs.RandomGenerator, target: Target) -> Plan:
        """One map over the elements; one over the words of the next state, if it is asked for."""
        steps = [Map("generate", *cls._elements(desc))]
        if desc.output_state_tensor is not None:
            steps.append(Map("next state", *cls._next_state(desc)))
        return Plan(desc.operator, tuple(steps))

    @classmethod
    def _elements(cls, desc: descs.RandomGenerator) -> tuple[Body, Tensor]:
        output = output_tensor(desc)
        sizes, (strides, steps) = merge_dimensions(output.sizes, output.strides, packed_strides(output.sizes))
        output = replace(output, sizes=sizes, strides=strides)
        inputs: dict[str, Source] = {"place": places(output.sizes, steps), **cls._state(desc, sizes)}
        follows = (tuple(range(len(sizes))),) * len(inputs)
        values = constants(steps=steps)
        body = Element(cls.shaders[0], DataType.UINT32, sizes, tuple(inputs.items()), values, follows=follows)
        return body, output

    @classmethod
    def _next_state(cls, desc: descs.RandomGenerator) -> tuple[Body, Tensor]:
        output = output_tensor(desc, "output_state_tensor")
        words = cls._state(desc, output.sizes)
        blocks = -(-math.prod(desc.output_tensor.sizes) // BLOCK_WORDS)
        values = constants(blocks=blocks)
        return element(cls.shaders[1], DataType.UINT32, output.sizes, portable=False, values=values, **words), output

    @classmethod
    def _state(cls, desc: descs.RandomGenerator, sizes: tuple[int, ...]) -> dict[str, Tensor]:
        """Return the words of the state, each a tensor of those sizes that repeats it."""
        state = input_tensor(desc, "input_state_tensor")
        return {f"state{word}": everywhere(state, sizes, word * state.strides[-1]) for word in range(STATE_WORDS)}
