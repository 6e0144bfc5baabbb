"""Cases of the operators that cut tensors apart and put them together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.families.layout import ROWS, MovingCases, moving_case
from dmlgpu.conformance.cases.keys import PLAIN, Key, Types
from dmlgpu.conformance.cases.layouts import Layout
from dmlgpu.conformance.cases.operator_cases import cases, draw_tensors

SLIM = "slim"  # many pieces of few elements, so that small types meet within words
ONE = "one"  # a single piece: a copy
MOST_PIECES = 12


class _PiecesCases(MovingCases):
    """Pieces along any axis, along the first one (whole rows), slim ones, a single one."""

    def variants(self, types: Types) -> tuple[str, ...]:
        return (PLAIN, ROWS, SLIM, ONE)

    def axis(self, key: Key, rng: np.random.Generator) -> int:
        """The axis along which the pieces lie."""
        return 0 if key.variant == ROWS else int(rng.integers(len(key.sizes)))

    def tensors(
        self, key: Key, rng: np.random.Generator, axis: int, pieces: list[int], output: bool
    ) -> tuple[TensorDesc, tuple[TensorDesc, ...]]:
        """The whole and its pieces, which are outputs or inputs."""

        def sizes(extent: int) -> list[int]:
            return [extent if dimension == axis else size for dimension, size in enumerate(key.sizes)]

        extents = [(key.types[0], sizes(piece), output) for piece in pieces]
        whole, *parts = draw_tensors(key, rng, (key.types[0], sizes(sum(pieces)), not output), *extents)
        return whole, tuple(parts)


@cases(descs.Split)
class SplitCases(_PiecesCases):
    """SPLIT."""

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        axis = self.axis(key, rng)
        pieces = _cut(key, rng, key.sizes[axis])
        source, outputs = self.tensors(key, rng, axis, pieces, True)
        return moving_case(name, descs.Split(input_tensor=source, output_tensors=outputs, axis=axis))


def _cut(key: Key, rng: np.random.Generator, extent: int) -> list[int]:
    """An extent in pieces."""
    if key.variant == ONE:
        return [extent]
    pieces: list[int] = []
    while extent and len(pieces) < MOST_PIECES - 1:
        pieces.append(min(int(rng.integers(1, 4 if key.variant == SLIM else 17)), extent))
        extent -= pieces[-1]
    return [*pieces, extent] if extent else pieces


@cases(descs.Join)
class JoinCases(_PiecesCases):
    """JOIN; the key has the sizes of its first input."""

    def standard_keys(self) -> Iterator[Key]:
        """Also rows of bytes that fill no whole words, or begin within blocks of words."""
        yield from super().standard_keys()
        yield Key((DataType.INT8,), (2, 63), Layout.ALIGNED)
        yield Key((DataType.INT8,), (8, 45), Layout.ALIGNED)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        axis = self.axis(key, rng)
        pieces = [key.sizes[axis]]
        if key.variant != ONE:
            count = int(rng.integers(1, MOST_PIECES if key.variant == SLIM else 5))
            most = 4 if key.variant == SLIM else 2 * key.sizes[axis] + 2
            pieces += [int(size) for size in rng.integers(1, most, count)]
        output, inputs = self.tensors(key, rng, axis, pieces, False)
        return moving_case(name, descs.Join(input_tensors=inputs, output_tensor=output, axis=axis))
