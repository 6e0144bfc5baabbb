"""Random graphs of operators, which compute integers, and floats that hold integers exactly.

A name spells the type, the number of nodes, and a seed, from which all else is drawn: ``graph-float32-12-s3``.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, replace

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.graph.description import (
    ConstantNode,
    GraphDesc,
    InputEdge,
    IntermediateEdge,
    OperatorNode,
    OutputEdge,
)
from dmlgpu.conformance.cases.case import Array
from dmlgpu.conformance.suites.dispatch_generator import LARGEST, Dispatch, DispatchGenerator, Sizes, Value
from dmlgpu.conformance.suites.graph_draft import Example
from dmlgpu.conformance.suites.programs import Location

SOURCES: tuple[Sizes, ...] = ((4, 8), (8, 4), (12, 12), (1, 8))
"""Sizes of the tensors that a graph starts from: the first three are its inputs, the last one is a constant."""
MOST_NODES = 500


@dataclass(frozen=True)
class Key:
    """What names a graph."""

    data_type: DataType
    nodes: int
    seed: int

    def __str__(self) -> str:
        return f"graph-{self.data_type.name.lower()}-{self.nodes}-s{self.seed}"

    @classmethod
    def parse(cls, name: str) -> Key:
        """The key that a name spells.

        Raises:
            InvalidArgument: when it spells none.
        """
        found = re.fullmatch(r"graph-(\w+)-(\d{1,3})-s(\d{1,9})", name)
        types = {data_type.name.lower(): data_type for data_type in LARGEST}
        if found is not None and found[1] in types:
            key = cls(types[found[1]], int(found[2]), int(found[3]))
            if str(key) == name and 1 <= key.nodes <= MOST_NODES:
                return key
        raise InvalidArgument(f"{name!r} names no graph, such as graph-float32-12-s0, of up to {MOST_NODES} nodes")


def example(key: Key) -> Example:
    """The graph of a key. Where a value lies is its number: sources first, then nodes, in order."""
    rng = np.random.default_rng(zlib.crc32(str(key).encode()))
    sources = [Value(Location(1 + number), sizes, 3) for number, sizes in enumerate(SOURCES)]
    generator = DispatchGenerator(key.data_type, rng, Location(0), list(sources), element_wise=3)
    dispatches = []
    for number in range(key.nodes):
        dispatch = generator.draw()
        dispatches.append(dispatch)
        found = Value(Location(1 + len(SOURCES) + number), dispatch.sizes, dispatch.most)
        generator.values.append(found)
        if rng.random() < 0.3:
            generator.values.append(_reinterpreted(found))
    dtype = key.data_type.numpy
    data: list[Array] = [rng.integers(0, 4, 4).astype(np.uint32)]
    data += [rng.integers(-3, 4, rows * columns).astype(dtype) for rows, columns in SOURCES]
    return Example(_graph(dispatches, data[-1], rng, str(key)), tuple(data[:-1]))


def _reinterpreted(value: Value) -> Value:
    """The same bytes as a matrix of other sizes: the edge between says so."""
    rows, columns = value.sizes
    return replace(value, sizes=(rows * columns // 4, 4) if rows * columns % 4 == 0 else (columns, rows))


def _graph(dispatches: list[Dispatch], constant: Array, rng: np.random.Generator, name: str) -> GraphDesc:
    """The graph of some dispatches; what none of them reads is an output, and some of what one reads."""
    first = 1 + len(SOURCES)
    into: list[InputEdge] = []
    inner: list[IntermediateEdge] = []
    for number, dispatch in enumerate(dispatches):
        read = [value.location for value in dispatch.reads]
        for position, location in enumerate(read if dispatch.indices is None else [*read, dispatch.indices]):
            if location.buffer >= first:
                inner.append(IntermediateEdge(location.buffer - first, 0, number, position))
            elif location.buffer == first - 1:
                inner.append(IntermediateEdge(len(dispatches), 0, number, position))
            else:
                into.append(InputEdge(location.buffer, number, position))
    read_nodes = {edge.from_node for edge in inner}
    ends = [number for number in range(len(dispatches)) if number not in read_nodes or rng.random() < 0.15]
    nodes = [OperatorNode(dispatch.desc, f"{number}") for number, dispatch in enumerate(dispatches)]
    outputs = tuple(OutputEdge(node, 0, number) for number, node in enumerate(ends))
    return GraphDesc(
        first - 1,
        len(ends),
        (*nodes, ConstantNode(constant.tobytes(), "constant")),
        tuple(into),
        tuple(inner),
        outputs,
        name,
    )
