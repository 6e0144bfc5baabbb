"""The suite of graphs: compiled with all passes, under the schedules for CPUs and for GPUs, and with none, and compared
with the reference, node by node.

Names are of four kinds:

- ``pair-convolution-residual-float32-odd``: a producer and what reads it (``graph_steps``), by
  the type of the tensor between them; the last word says what is special (``GraphVariant``).
- ``cast-input-sum-uint8-int64-float16-plain``: casts before and after a step (``graph_casts``).
- ``pattern-attention-float16-plain``: graphs that passes look for as a whole (``graph_patterns``).
- ``graph-float32-12-s3``: random graphs (``RandomGraph``), by their type, the number of their nodes, and a seed.

Fused and unfused kernels have the same tolerance on every adapter: results are bitwise equal if every node is exact,
else their error is at most the sum of the errors of the nodes (see ``graph_bounds``).
"""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
import re
import time
import zlib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

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
from dmlgpu.compiler.graph.passes import PASSES
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.target import Profile
from dmlgpu.conformance.cases.case import Array
from dmlgpu.conformance.cases.keys import PROFILES
from dmlgpu.conformance.cases.tolerance import Bound, GivenBound
from dmlgpu.conformance.drivers.pairwise import Allowance
from dmlgpu.conformance.running.outcome import Outcome, Verdict, compare
from dmlgpu.conformance.running.runner import POISON, digest, kernels_of, run_graph
from dmlgpu.conformance.suites.chains import LARGEST, Dispatch, DispatchGenerator, LiveTensor, Sizes
from dmlgpu.conformance.suites.graph_bounds import output_bounds
from dmlgpu.conformance.suites.graph_casts import INPUT, Casts, all_casts
from dmlgpu.conformance.suites.graph_patterns import PATTERNS, QUICK_PATTERNS
from dmlgpu.conformance.suites.graph_steps import ALL, CONSUMERS, PRODUCERS, Draft, Example
from dmlgpu.conformance.suites.programs import Location
from dmlgpu.conformance.suites.registry import Suite
from dmlgpu.runtime.device import Device

SIZES, ODD_SIZES = (2, 4, 6, 8), (1, 3, 5, 7)
"""Sizes of the tensor between producer and consumer: whole units of four elements, and none."""


class GraphVariant(enum.StrEnum):
    """Variant of a pair or a pattern."""

    PLAIN = "plain"
    ODD = "odd"  # sizes that no vector divides
    INTERLEAVED = "interleaved"  # what operators write has its channels innermost
    TAPPED = "tapped"  # the tensor between the two is an output of the graph, too


@dataclass(frozen=True)
class GraphPair:
    """Key of a pair or, without consumer, of a pattern."""

    producer: str
    consumer: str | None
    data_type: DataType
    variant: GraphVariant

    def __str__(self) -> str:
        kind = ("pattern", self.producer) if self.consumer is None else ("pair", self.producer, self.consumer)
        return "-".join((*kind, self.data_type.name.lower(), self.variant))

    @classmethod
    def parse(cls, name: str) -> GraphPair | None:
        """Return the pair or pattern that a name spells, if it spells one."""
        kind, *parts = name.split("-")
        known = {"pair": _all_pairs, "pattern": _all_patterns}.get(kind)
        return None if known is None or len(parts) < 3 else known().get(name)

    def example(self, sizes: tuple[int, ...] = ()) -> Example:
        """Return the graph and its inputs, by default with the sizes of its variant."""
        sizes = sizes or (ODD_SIZES if self.variant is GraphVariant.ODD else SIZES)
        policy = "interleaved_channel" if self.variant is GraphVariant.INTERLEAVED else "default"
        draft = Draft(str(self), self.data_type, sizes, policy)
        if self.consumer is None:
            return draft.example(PATTERNS[self.producer][0](draft))
        produced = PRODUCERS[self.producer][0](draft)
        read = CONSUMERS[self.consumer][0](draft, produced)
        return draft.example([read, produced] if self.variant is GraphVariant.TAPPED else [read])


@functools.cache
def _all_pairs() -> dict[str, GraphPair]:
    """Return all pairs by their names."""
    pairs = (
        GraphPair(producer, consumer, data_type, variant)
        for (producer, (_, made_types)), (consumer, (_, read)) in itertools.product(
            PRODUCERS.items(), CONSUMERS.items()
        )
        for data_type in ALL
        if data_type in made_types and data_type in read
        for variant in GraphVariant
    )
    return {str(pair): pair for pair in pairs}


@functools.cache
def _all_patterns() -> dict[str, GraphPair]:
    """Return all patterns by their names."""
    pairs = (
        GraphPair(pattern, None, data_type, variant)
        for pattern, (_, types) in PATTERNS.items()
        for data_type in types
        for variant in GraphVariant
        if variant is not GraphVariant.TAPPED
    )
    return {str(pair): pair for pair in pairs}


Named = TypeVar("Named", GraphPair, Casts)


def _one_each(cases: Iterable[Named], kind: Callable[[Named], Hashable]) -> list[str]:
    """Return a name of each kind; all types and variants are met, randomly."""
    names: dict[Hashable, list[str]] = {}
    for case in cases:
        names.setdefault(kind(case), []).append(str(case))
    return [min(group, key=lambda name: zlib.crc32(name.encode())) for group in names.values()]


QUICK = (
    "pair-convolution-residual-float32-odd",
    "pair-product-cast-float32-interleaved",
    "pair-addition-sum-float16-tapped",
    "pair-softmax-scale_bias-float16-plain",
    "pair-repeated_product-shifted_pair-float32-odd",
    "pair-transpose-product_of_transpose-float32-plain",
    "pair-scaled_product-join-float16-plain",
    "pair-gather-residual-float32-odd",
    "pair-convolution-padding-float32-plain",
    *QUICK_PATTERNS,
    "pair-nearest_resampling-join_of_channels-int8-plain",
    "pair-tile-join_of_channels-int8-odd",
    "cast-input-sum-uint8-int64-float32-plain",
    "cast-input-sum_square_of_rows-float32-uint64-uint8-long",
    "cast-input-argmin_of_columns-float32-int64-uint64-plain",
    "cast-input-softmax-uint16-float32-float64-plain",
    "cast-depthwise-square-float16-int64-int16-plain",
)
"""A few pairs, patterns and casts, each pass at work in some of them."""


def _kind_of_casts(casts: Casts) -> Hashable:
    """Return a step and the type that it takes; or a producer and the type that it makes."""
    return (casts.step, casts.second) if casts.producer == INPUT else (casts.producer, casts.first)


class GraphSuite(Suite):
    """Pairs of operators, patterns, casts, and random graphs of every type; more of all in the larger profiles."""

    profiles = PROFILES

    def names(self, profile: str) -> tuple[str, ...]:
        lengths = {
            "quick": {16: 2},
            "standard": {6: 4, 16: 6, 60: 2},
            "full": {6: 60, 16: 60, 60: 20, 300: 2},
        }[profile]
        drawn = [(nodes, seed) for nodes, count in lengths.items() for seed in range(count)]
        random = tuple(str(RandomGraph(kind, *numbers)) for numbers in drawn for kind in LARGEST)
        match profile:
            case "quick":
                return (*QUICK, *random)
            case "standard":
                patterns = [name for name, pair in _all_patterns().items() if pair.variant is GraphVariant.PLAIN]
                pairs = _one_each(_all_pairs().values(), lambda pair: (pair.producer, pair.consumer))
                casts = _one_each(all_casts().values(), _kind_of_casts)
                return tuple(dict.fromkeys((*QUICK, *pairs, *patterns, *casts, *random)))
        return (*_all_pairs(), *_all_patterns(), *all_casts(), *random)

    def has(self, name: str) -> bool:
        try:
            return _named(name) is not None or RandomGraph.parse(name) is not None
        except InvalidArgument:
            return False

    def run(self, name: str, device: Device) -> Outcome:
        """Compare the outputs with all passes, under both families of schedules, and those without passes, with the
        reference."""
        start = time.perf_counter()
        expected = GraphExpectation.of(name)
        verdicts = _labeled("fused", expected.verdicts(device, ())) + _labeled(
            "compiled without passes", expected.verdicts(device, PASSES)
        )
        if device.adapter.backend != "NumPy":
            with _other_schedules(device) as profile:
                verdicts += _labeled(f"fused, {profile} schedules", expected.verdicts(device, ()))
        worst = max(verdicts, key=lambda verdict: (not verdict.ok, verdict.wrong, verdict.of_bound))
        if worst.ok:
            ran = dict.fromkeys(kernel for verdict in verdicts for kernel in verdict.kernels)
            worst = replace(worst, digest=digest(expected.outputs), kernels=tuple(ran))
        return Outcome.of_verdict(name, str(WITHIN), worst, time.perf_counter() - start)

    def outputs(self, name: str, device: Device, poison: int) -> tuple[Array, ...]:
        """Return the outputs of a device, in memory filled with ``poison``."""
        return _execute(example(name), device, (), poison).outputs

    def allowance(self, name: str) -> Allowance:
        """Return the allowed distance of the outputs from the true ones."""
        graph_example = example(name)
        return Allowance(WITHIN, lambda: output_bounds(resolve(graph_example.graph), graph_example.inputs))


def _labeled(how: str, verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return verdicts that say which output of which compilation is wrong."""
    return [
        replace(verdict, problem="" if verdict.ok else f"output {index}, {how}")
        for index, verdict in enumerate(verdicts)
    ]


@contextlib.contextmanager
def _other_schedules(device: Device) -> Iterator[Profile]:
    """Let a device compile under the schedules for the other kind of adapters."""
    target = device.backend.target
    profile = Profile.DISCRETE if target.profile is Profile.CPU else Profile.CPU
    device.backend.target = replace(target, profile=profile)
    try:
        yield profile
    finally:
        device.backend.target = target


WITHIN = GivenBound()


@dataclass(frozen=True)
class GraphExpectation:
    """A graph and its expected outputs.

    Attributes:
        example: The graph and its inputs.
        outputs: What the reference computes node by node.
        bounds: Allowed difference of each element.
    """

    example: Example
    outputs: tuple[Array, ...]
    bounds: tuple[Bound, ...]

    @classmethod
    def of(cls, name: str) -> GraphExpectation:
        """Return the expectation for the graph of a case."""
        return cls.of_example(example(name))

    @classmethod
    def of_example(cls, graph_example: Example) -> GraphExpectation:
        """Return the expectation for a graph."""
        bounds = output_bounds(resolve(graph_example.graph), graph_example.inputs)
        return cls(graph_example, _execute(graph_example, Device("numpy"), ()).outputs, bounds)

    def verdicts(self, device: Device, disabled: Collection[str]) -> list[Verdict]:
        """Compare the outputs of a device, compiled without some passes; return a verdict per output."""
        ran = _execute(self.example, device, disabled, POISON)
        compared = zip(self.outputs, ran.outputs, self.bounds, strict=True)
        return [
            replace(compare(expected, got, WITHIN, bound), kernels=ran.kernels) for expected, got, bound in compared
        ]


def example(name: str) -> Example:
    """Return the graph of a case and its inputs.

    Raises:
        InvalidArgument: If the name spells none.
    """
    named = _named(name)
    return random_example(RandomGraph.parse(name)) if named is None else named.example()


def _named(name: str) -> GraphPair | Casts | None:
    """Return the pair, pattern or casts that a name spells, if it spells one."""
    return GraphPair.parse(name) or Casts.parse(name)


@dataclass(frozen=True)
class _GraphExecution:
    """Outputs of a device, and the kernels that computed them (``Outcome.kernels``)."""

    outputs: tuple[Array, ...]
    kernels: tuple[str, ...]


def _execute(graph_example: Example, device: Device, disabled: Collection[str], poison: int = 0) -> _GraphExecution:
    compiled = device.compile_graph(graph_example.graph, disabled_passes=disabled)
    with np.errstate(all="ignore"):  # the numpy adapter, on halves that overflow
        return _GraphExecution(run_graph(compiled, graph_example.inputs, poison), kernels_of(compiled))


# ---- random graphs of integers, and of floats that hold integers exactly ---------------------------------------------


SOURCES: tuple[Sizes, ...] = ((4, 8), (8, 4), (12, 12), (1, 8))
"""Sizes of the tensors that a graph starts from: the first three are its inputs, the last one is a constant."""
MAX_NODES = 500


@dataclass(frozen=True)
class RandomGraph:
    """Key of a graph."""

    data_type: DataType
    nodes: int
    seed: int

    def __str__(self) -> str:
        return f"graph-{self.data_type.name.lower()}-{self.nodes}-s{self.seed}"

    @classmethod
    def parse(cls, name: str) -> RandomGraph:
        """Return the key that a name spells.

        Raises:
            InvalidArgument: If it spells none.
        """
        match = re.fullmatch(r"graph-(\w+)-(\d{1,3})-s(\d{1,9})", name)
        types = {data_type.name.lower(): data_type for data_type in LARGEST}
        if match is not None and match[1] in types:
            key = cls(types[match[1]], int(match[2]), int(match[3]))
            if str(key) == name and 1 <= key.nodes <= MAX_NODES:
                return key
        raise InvalidArgument(f"{name!r} names no graph, such as graph-float32-12-s0, of up to {MAX_NODES} nodes")


def random_example(key: RandomGraph) -> Example:
    """Return the graph of a key. Where a value lies is its number: sources first, then nodes, in order."""
    rng = np.random.default_rng(zlib.crc32(str(key).encode()))
    sources = [LiveTensor(Location(1 + index), sizes, 3) for index, sizes in enumerate(SOURCES)]
    generator = DispatchGenerator(key.data_type, rng, Location(0), list(sources), element_wise=3)
    dispatches = []
    for index in range(key.nodes):
        dispatch = generator.draw()
        dispatches.append(dispatch)
        result = LiveTensor(Location(1 + len(SOURCES) + index), dispatch.sizes, dispatch.most)
        generator.values.append(result)
        if rng.random() < 0.3:
            generator.values.append(_reinterpreted(result))
    dtype = key.data_type.numpy
    data: list[Array] = [rng.integers(0, 4, 4).astype(np.uint32)]
    data += [rng.integers(-3, 4, rows * columns).astype(dtype) for rows, columns in SOURCES]
    return Example(_graph(dispatches, data[-1], rng, str(key)), tuple(data[:-1]))


def _reinterpreted(value: LiveTensor) -> LiveTensor:
    """Read the same bytes as a matrix of other sizes, specified by the edge."""
    rows, columns = value.sizes
    return replace(value, sizes=(rows * columns // 4, 4) if rows * columns % 4 == 0 else (columns, rows))


def _graph(dispatches: list[Dispatch], constant: Array, rng: np.random.Generator, name: str) -> GraphDesc:
    """Return the graph of some dispatches; its outputs are all unread values, and some that are read."""
    first = 1 + len(SOURCES)
    into: list[InputEdge] = []
    inner: list[IntermediateEdge] = []
    for index, dispatch in enumerate(dispatches):
        read = [value.location for value in dispatch.reads]
        for position, location in enumerate(read if dispatch.indices is None else [*read, dispatch.indices]):
            if location.buffer >= first:
                inner.append(IntermediateEdge(location.buffer - first, 0, index, position))
            elif location.buffer == first - 1:
                inner.append(IntermediateEdge(len(dispatches), 0, index, position))
            else:
                into.append(InputEdge(location.buffer, index, position))
    read_nodes = {edge.from_node for edge in inner}
    ends = [index for index in range(len(dispatches)) if index not in read_nodes or rng.random() < 0.15]
    nodes = [OperatorNode(dispatch.desc, f"{index}") for index, dispatch in enumerate(dispatches)]
    outputs = tuple(OutputEdge(node, 0, index) for index, node in enumerate(ends))
    return GraphDesc(
        first - 1,
        len(ends),
        (*nodes, ConstantNode(constant.tobytes(), "constant")),
        tuple(into),
        tuple(inner),
        outputs,
        name,
    )
