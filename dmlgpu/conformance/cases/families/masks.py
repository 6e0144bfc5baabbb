"""Cases of the operators that choose between two values by place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.conformance.cases.case import Arrays, Case
from dmlgpu.conformance.cases.contents import any_bits, mixed
from dmlgpu.conformance.cases.indices import IndexingCases, draw_indices
from dmlgpu.conformance.cases.keys import PLAIN, Key, Types
from dmlgpu.conformance.cases.layouts import Layout
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors
from dmlgpu.conformance.cases.tolerance import EXACT

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
            found = draw_indices(contents, index_type, np.array(key.sizes[axis]), lines, key.variant)
            return found, any_bits(contents, data_type, values.sizes)

        desc = descs.OneHot(indices_tensor=indices, values_tensor=values, output_tensor=output, axis=axis)
        return Case(name, desc, fill)


class _MatrixCases(OperatorCases):
    """Matrices of any type, one or a stack of them."""

    standard_count = 40
    type_fields = ("OutputTensor",)


def _matrix_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Two to four sizes made of any number of them."""
    if len(sizes) < 2:
        return (1, *sizes)
    return sizes if len(sizes) <= 4 else (math.prod(sizes[:-3]), *sizes[-3:])


def _bound(rng: np.random.Generator, sizes: tuple[int, ...], variant: str) -> int:
    """A diagonal in the matrix, or just outside of it, or at the limits of INT32."""
    if variant == LIMITS and rng.integers(2):
        return int(rng.choice([-(1 << 31), (1 << 31) - 1]))
    return int(rng.integers(-sizes[-2] - 1, sizes[-1] + 2))


def _number(rng: np.random.Generator, data_type: DataType) -> Any:
    return mixed(rng, data_type, (1,))[0].item()


@cases(descs.DiagonalMatrix1)
class DiagonalMatrix1Cases(_MatrixCases):
    """DIAGONAL_MATRIX1."""

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, ABSENT, INVERTED, LIMITS)

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
class DiagonalMatrixCases(_MatrixCases):
    """DIAGONAL_MATRIX: numbers of which other types only hold a part."""

    standard_count = 30

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, LIMITS)

    def allowed_variants(self, types: Types, layout: Layout) -> tuple[str, ...]:
        """There is no input to hand over."""
        return self.variants(types)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        (data_type,), sizes = key.types, _matrix_sizes(key.sizes)
        (output,) = draw_tensors(key, rng, (data_type, sizes, True))
        desc = descs.DiagonalMatrix(
            output_tensor=output, offset=_bound(rng, sizes, key.variant), value=_number(rng, DataType.FLOAT32)
        )
        return Case(name, desc, lambda contents: (), EXACT)
