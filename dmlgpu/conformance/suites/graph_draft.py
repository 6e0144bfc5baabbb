"""Graphs with contents: what a case of the suite ``graphs`` is made of."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.conformance.cases.case import Array
from dmlgpu.tensors.graphs import functions
from dmlgpu.tensors.graphs.expression import Expression
from dmlgpu.tensors.graphs.graph import Graph

Sizes = tuple[int, ...]
Types = tuple[DataType, ...]

FLOATS: Types = (DataType.FLOAT32, DataType.FLOAT16)
WORDS: Types = (*FLOATS, DataType.INT32)
BYTES: Types = (DataType.UINT8, DataType.INT8)
SIGNED: Types = (*WORDS, DataType.INT8)
ALL: Types = (*WORDS, *BYTES)
"""The types of pairs and patterns: one of each kind that kernels treat alike."""

SUMMED: Types = (*WORDS, DataType.UINT32, DataType.INT64, DataType.UINT64)
NUMBERS: Types = (*SUMMED, *BYTES, DataType.INT16, DataType.UINT16)
EVERY: Types = (*NUMBERS, DataType.FLOAT64)
"""What producers and consumers are for, if casts lie between them: 8, 16, 32 and 64 bits of each kind."""

FRACTION = 8
"""Floats are multiples of 1 / FRACTION, so that sums of products of a few of them are exact in float32."""


def most_of(data_type: DataType) -> int:
    """Return the largest number that a tensor holds: in halves so much that sums of products have to be rounded."""
    return 8 if data_type is DataType.FLOAT16 else 3


@dataclass(frozen=True)
class Example:
    """A graph and what it is given.

    Attributes:
        graph: the graph.
        inputs: the elements of its inputs, as they lie in memory, one-dimensional.
    """

    graph: GraphDesc
    inputs: tuple[Array, ...]


class Draft:
    """A graph under construction whose inputs have contents; all of them are drawn from its name.

    Args:
        name: of the case.
        data_type: of the tensors, where nothing else is said.
        sizes: of the tensor between producer and consumer: four dimensions.
        policy: how what operators write lies in memory, as for ``Graph``.
    """

    def __init__(self, name: str, data_type: DataType, sizes: Sizes, policy: str = "default"):
        self.data_type, self.sizes = data_type, sizes
        self.graph = Graph(name=name, policy=policy)
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self._inputs: list[Array] = []

    def input(
        self,
        sizes: Sequence[int] | None = None,
        data_type: DataType | None = None,
        *,
        low: int | None = None,
        high: int | None = None,
        strides: Sequence[int] | None = None,
        owned: bool = False,
    ) -> Expression:
        """Add an input: integers from ``low`` to ``high`` (``most_of``), and for floats the multiples of 1 / FRACTION
        between."""
        kind = data_type or self.data_type
        whole = tuple(sizes or self.sizes)
        desc = whole if strides is None else TensorDesc(kind, whole, tuple(strides))
        made = self.graph.input(desc, kind, owned=owned)
        self._inputs.append(made.desc.encode(self.contents(made.sizes, made.data_type, low, high)))
        return made

    def constant(
        self,
        sizes: Sequence[int],
        data_type: DataType | None = None,
        *,
        low: int | None = None,
        high: int | None = None,
    ) -> Expression:
        """Add data that are known when the graph is compiled, of the same kind."""
        kind = data_type or self.data_type
        return self.graph.constant(self.contents(tuple(sizes), kind, low, high), kind)

    def given(
        self, values: Sequence[float], data_type: DataType | None = None, sizes: Sizes | None = None
    ) -> Expression:
        """Add data of these values."""
        kind = data_type or self.data_type
        return self.graph.constant(np.array(values).astype(kind.numpy).reshape(sizes or (len(values),)), kind)

    def normalized(self, x: Expression) -> Expression:
        """Add a BATCH_NORMALIZATION with known statistics, per channel."""
        sizes = (1, x.sizes[1], 1, 1)
        mean, scale, bias = (self.constant(sizes) for _ in range(3))
        variance = self.constant(sizes, low=1, high=4)
        return functions.batch_normalization(x, mean, variance, scale, bias, spatial=True, epsilon=0.125)

    def contents(self, sizes: Sizes, data_type: DataType, low: int | None, high: int | None) -> Array:
        """Draw the elements of a tensor."""
        low, high = -most_of(data_type) if low is None else low, most_of(data_type) if high is None else high
        if data_type.is_float:
            return (self.rng.integers(low * FRACTION, high * FRACTION + 1, sizes) / FRACTION).astype(data_type.numpy)
        return self.rng.integers(low if data_type.is_signed else 0, high + 1, sizes).astype(data_type.numpy)

    def example(self, outputs: Sequence[Expression]) -> Example:
        """Return the graph of these outputs, with what it is given."""
        return Example(self.graph.desc(outputs), tuple(self._inputs))
