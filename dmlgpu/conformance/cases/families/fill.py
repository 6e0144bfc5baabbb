"""Cases of the operators that fill a tensor: with constants, sequences, diagonals, one-hot rows, random numbers."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, RandomGeneratorType
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.contents import any_bits, mixed, numbers, specials
from dmlgpu.conformance.cases.families.arithmetic import SPECIAL, VariedCases
from dmlgpu.conformance.cases.families.indexing import IndexingCases, draw_indices
from dmlgpu.conformance.cases.keys import PLAIN, Key, Types
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors
from dmlgpu.conformance.cases.tolerance import EXACT, Accumulated, Bound


class _FillCases(VariedCases):
    """A tensor and a few numbers of its type."""

    type_fields = ("OutputTensor",)

    def allowed_variants(self, types: Types, layout: TensorLayout) -> tuple[str, ...]:
        """Exclude variants that own or share an input: there is none."""
        return self.variants(types)

    def number(self, key: Key, rng: np.random.Generator) -> Any:
        """Return a number of the tensor's type."""
        data_type = key.types[0]
        choices = specials(data_type) if key.variant == SPECIAL else numbers(rng, data_type, (9,))
        return choices[rng.integers(choices.size)].item()


def _no_inputs(contents: np.random.Generator) -> Arrays:
    return ()


@cases(descs.FillValueConstant)
class FillValueConstantCases(_FillCases):
    """FILL_VALUE_CONSTANT."""

    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, SPECIAL)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        (output,) = draw_tensors(key, rng, (key.types[0], key.sizes, True))
        desc = descs.FillValueConstant(output_tensor=output, value_data_type=key.types[0], value=self.number(key, rng))
        return Case(name, desc, _no_inputs, EXACT)


@cases(descs.FillValueSequence)
class FillValueSequenceCases(_FillCases):
    """FILL_VALUE_SEQUENCE: places and products of floats are rounded, and the sum."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        (data_type,) = key.types
        (output,) = draw_tensors(key, rng, (data_type, key.sizes, True))
        start, delta = self.number(key, rng), self.number(key, rng)
        desc = descs.FillValueSequence(
            output_tensor=output, value_data_type=data_type, value_start=start, value_delta=delta
        )
        if not data_type.is_float:
            return Case(name, desc, _no_inputs, EXACT)

        def magnitude(inputs: Arrays) -> Bound:
            places = np.arange(math.prod(key.sizes), dtype=np.float64).reshape(key.sizes)
            return abs(start) + np.abs(delta * places)

        return Case(name, desc, _no_inputs, Accumulated(2), magnitude=magnitude)


# ---- values chosen by place ------------------------------------------------------------------------------------------


ABSENT = "absent"  # no input
INVERTED = "inverted"  # the band begins where it ends, or after
LIMITS = "limits"  # bounds at the limits of INT32


@cases(descs.OneHot)
class OneHotCases(IndexingCases):
    """ONE_HOT: values along any dimension, among others that are not used."""

    type_fields = ("ValuesTensor", "IndicesTensor")
    standard_count = 40

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        rank = len(key.sizes)
        axis = int(rng.integers(rank))
        lines = (*key.sizes[:axis], 1, *key.sizes[axis + 1 :])
        values_sizes = rng.integers(1, 3, rank)
        values_sizes[rng.integers(rank)] = rng.integers(2, 4)
        data_type, index_type = key.types
        indices, values, output = draw_tensors(
            key, rng, (index_type, lines, False), (data_type, values_sizes, False), (data_type, key.sizes, True)
        )

        def fill(contents: np.random.Generator) -> Arrays:
            places = draw_indices(contents, index_type, np.array(key.sizes[axis]), lines, key.variant)
            return places, any_bits(contents, data_type, values.sizes)

        desc = descs.OneHot(indices_tensor=indices, values_tensor=values, output_tensor=output, axis=axis)
        return Case(name, desc, fill)


class _DiagonalCases(OperatorCases):
    """Matrices of any type, one or a stack of them."""

    standard_count = 40
    type_fields = ("OutputTensor",)


def _matrix_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Two to four sizes made of any number of them."""
    if len(sizes) < 2:
        return (1, *sizes)
    return sizes if len(sizes) <= 4 else (math.prod(sizes[:-3]), *sizes[-3:])


def _bound(rng: np.random.Generator, sizes: tuple[int, ...], variant: str) -> int:
    """Return a diagonal in the matrix, or just outside of it, or at the limits of INT32."""
    if variant == LIMITS and rng.integers(2):
        return int(rng.choice([-(1 << 31), (1 << 31) - 1]))
    return int(rng.integers(-sizes[-2] - 1, sizes[-1] + 2))


def _number(rng: np.random.Generator, data_type: DataType) -> Any:
    return mixed(rng, data_type, (1,))[0].item()


@cases(descs.DiagonalMatrix1)
class DiagonalMatrix1Cases(_DiagonalCases):
    """DIAGONAL_MATRIX1."""

    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, ABSENT, INVERTED, LIMITS)
    added_keys: ClassVar[tuple[Key, ...]] = (Key((DataType.FLOAT32,), (5, 7), TensorLayout.PACKED, PLAIN, 15),)
    """A diagonal of -1.0, which Mesa takes for a negated boolean."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        (data_type,), sizes = key.types, _matrix_sizes(key.sizes)
        source, output = draw_tensors(key, rng, (data_type, sizes, False), (data_type, sizes, True))
        bounds = sorted((_bound(rng, sizes, key.variant), _bound(rng, sizes, key.variant)))
        if key.variant == INVERTED:
            bounds.reverse()
        absent = key.variant == ABSENT
        desc = descs.DiagonalMatrix1(
            input_tensor=None if absent else source,
            output_tensor=output,
            value_data_type=data_type,
            value=_number(rng, data_type),
            diagonal_fill_begin=bounds[0],
            diagonal_fill_end=bounds[1],
        )
        return Case(name, desc, lambda contents: (None if absent else any_bits(contents, data_type, sizes),))


@cases(descs.DiagonalMatrix)
class DiagonalMatrixCases(_DiagonalCases):
    """DIAGONAL_MATRIX: numbers of which other types only hold a part."""

    standard_count = 30
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, LIMITS)

    def allowed_variants(self, types: Types, layout: TensorLayout) -> tuple[str, ...]:
        """Exclude variants that own an input: there is none."""
        return self.variants(types)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        (data_type,), sizes = key.types, _matrix_sizes(key.sizes)
        (output,) = draw_tensors(key, rng, (data_type, sizes, True))
        desc = descs.DiagonalMatrix(
            output_tensor=output, offset=_bound(rng, sizes, key.variant), value=_number(rng, DataType.FLOAT32)
        )
        return Case(name, desc, lambda contents: (), EXACT)


# ---- random numbers: the same bits on every adapter ------------------------------------------------------------------


STATELESS = "stateless"  # without the next state
CARRY = "carry"  # the counter runs over within the output

UINT32 = DataType.UINT32


@cases(descs.RandomGenerator)
class RandomGeneratorCases(OperatorCases):
    """RANDOM_GENERATOR. The sizes of a key are the output's; the states have as many dimensions."""

    standard_count = 30
    long_sizes = ((1_000_003,), (10_000_000,))
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, STATELESS, CARRY)

    @property
    def types(self) -> tuple[Types, ...]:
        """The output's; there is one only."""
        return ((UINT32,),)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        states = (1,) * (len(key.sizes) - 1) + (6,)
        before, output, after = draw_tensors(
            key, rng, (UINT32, states, False), (UINT32, key.sizes, True), (UINT32, states, True)
        )
        fields: dict[str, Any] = {"type": RandomGeneratorType.PHILOX_4X32_10, "input_state_tensor": before}
        fields |= {"output_tensor": output, "output_state_tensor": None if key.variant == STATELESS else after}
        return Case(
            name, descs.RandomGenerator(**fields), lambda contents: _state(contents, key.variant, states), EXACT
        )


def _state(contents: np.random.Generator, variant: str, sizes: tuple[int, ...]) -> Arrays:
    """Draw random words; for CARRY, some of the lowest are all ones, so that the carry of the next block or the one
    after goes far."""
    words: Array = contents.integers(0, 1 << 32, 6, np.uint32)
    if variant == CARRY:
        full = int(contents.integers(1, 5))
        words[:full] = 0xFFFFFFFF
        words[0] -= np.uint32(contents.integers(3))
    return (words.reshape(sizes),)
