"""Cases of the random numbers: the same bits on every adapter."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, RandomGeneratorType
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.keys import PLAIN, Key, Types
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors
from dmlgpu.conformance.cases.tolerance import EXACT

STATELESS = "stateless"  # without the next state
CARRY = "carry"  # the counter runs over within the output

UINT32 = DataType.UINT32


@cases(descs.RandomGenerator)
class RandomGeneratorCases(OperatorCases):
    """RANDOM_GENERATOR. The sizes of a key are the output's; the states have as many dimensions."""

    standard_count = 30
    long_sizes = ((1_000_003,), (10_000_000,))

    @property
    def types(self) -> tuple[Types, ...]:
        """The output's; there is one only."""
        return ((UINT32,),)

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, STATELESS, CARRY)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        states = (1,) * (len(key.sizes) - 1) + (6,)
        given, output, after = draw_tensors(
            key, rng, (UINT32, states, False), (UINT32, key.sizes, True), (UINT32, states, True)
        )
        fields: dict[str, Any] = {"type": RandomGeneratorType.PHILOX_4X32_10, "input_state_tensor": given}
        fields |= {"output_tensor": output, "output_state_tensor": None if key.variant == STATELESS else after}
        return Case(
            name, descs.RandomGenerator(**fields), lambda contents: _state(contents, key.variant, states), EXACT
        )


def _state(contents: np.random.Generator, variant: str, sizes: tuple[int, ...]) -> Arrays:
    """Random words; for CARRY some of the lowest are full, so that the next block or the one after carries far."""
    words: Array = contents.integers(0, 1 << 32, 6, np.uint32)
    if variant == CARRY:
        full = int(contents.integers(1, 5))
        words[:full] = 0xFFFFFFFF
        words[0] -= np.uint32(contents.integers(3))
    return (words.reshape(sizes),)
