"""Programs of networks from patterns equal compiled ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dmlgpu.common import symbols
from dmlgpu.common.errors import NotSupported
from dmlgpu.common.symbols import Recording, hint_of
from dmlgpu.compiler.graph import patterns, structures
from dmlgpu.compiler.graph.compiler import CompiledGraph, compile_network
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.graph.patterns import NetworkPatterns
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.program import KernelSource, Program, RenderedKernel
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.compiler.wgsl import templates
from dmlgpu.conformance.suites.graphs import GraphPair, GraphSuite
from tests.kernel_sources import with_values

SHAPES = [(2, 4, 6, 8), (4, 4, 6, 12), (2, 8, 10, 16), (5, 3, 7, 9), (2, 4, 6, 24)]
FEATURES = frozenset({"shader-int64", "shader-f16", "immediates"})
TARGETS = {
    "cpu": Target("CPU", Profile.CPU, FEATURES).general,
    "gpu": Target("GPU", Profile.DISCRETE, frozenset({"shader-f16"})).general,
}


def pairs() -> Iterator[GraphPair]:
    """Yield pairs and patterns of the suite of graphs: every producer, consumer and pattern once."""
    names: set[tuple[str, str | None]] = set()
    seen: set[str | None] = set()
    for name in GraphSuite().names("full"):
        pair = GraphPair.parse(name)
        if pair is None or {pair.producer, pair.consumer} <= seen or (pair.producer, pair.consumer) in names:
            continue
        seen |= {pair.producer, pair.consumer}
        names.add((pair.producer, pair.consumer))
        yield pair


def network(pair: GraphPair, sizes: tuple[int, ...]) -> Network:
    """Return the network of a pair on a tensor of some sizes."""
    return resolve(pair.example(sizes).graph)


def networks(pair: GraphPair, shapes: Sequence[tuple[int, ...]] = SHAPES) -> list[Network]:
    """Return the networks of all shapes of a pair."""
    built = []
    for shape in shapes:
        try:
            built.append(network(pair, shape))
        except Exception:  # some need even sizes
            continue
    return built


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Network]:
    """Networks that were compiled without a pattern."""
    calls: list[Network] = []

    def compile_noted(network: Network, target: Target, disabled: Collection[str] = ()) -> CompiledGraph:
        calls.append(network)
        return compile_network(network, target, disabled)

    monkeypatch.setattr(patterns, "compile_network", compile_noted)
    return calls


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add guards that patterns omit: whether a size is 1, and whether another tile would be slightly better."""
    monkeypatch.setattr(symbols, "is_many", lambda size: size > 1)
    monkeypatch.setitem(templates.environment().tests, "many", lambda size: size > 1)
    decided = symbols.decided

    def decided_exactly(function: Any, *operands: Any, accepts: Any = None) -> Any:
        return decided(function, *operands)

    monkeypatch.setattr(symbols, "decided", decided_exactly)


def with_literals(program: Program) -> Program:
    """Return a program whose sources have literals in place of parameters."""
    executed, initial = (
        tuple(replace(kernel, source=literal_source(kernel), parameters=()) for kernel in kernels)
        for kernels in (program.kernels, program.initialization)
    )
    return replace(program, kernels=executed, initialization=initial)


def literal_source(kernel: RenderedKernel) -> KernelSource:
    interface = kernel.source.interface
    assert interface is not None
    return replace(kernel.source, body=with_values(kernel), interface=replace(interface, sizes=0, divisors=()))


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize(("index", "pair"), list(enumerate(pairs())), ids=str)
def test_programs_from_patterns_equal_compiled_ones(index: int, pair: GraphPair, compiled: list[Network]) -> None:
    target = [*TARGETS.values()][index % 2]
    known = NetworkPatterns()
    kinds: dict[Any, set[tuple[int, ...]]] = {}
    for each in networks(pair):
        structure, integers = structures.structure_of(each)
        kinds.setdefault(structure.kind, set()).add(tuple(integers))
        expected = compile_network(each, target).program
        assert with_literals(known.program(each, target)) == with_literals(expected)
    # Of each kind, the first one is compiled, and is again while no other was seen.
    assert len(compiled) <= sum(len(shapes) == 1 for shapes in kinds.values()) + len(kinds)


def convolutions(count: int) -> list[Network]:
    """Return networks of a convolution and RELU that differ only in their sizes."""
    pair = GraphPair.parse("pair-convolution-relu-float32-plain")
    assert pair is not None
    return [network(pair, (2, 4, 6 + index % 7, 8 + index)) for index in range(count)]


def test_a_hundred_shapes_take_few_recordings(monkeypatch: pytest.MonkeyPatch, compiled: list[Network]) -> None:
    recordings: list[Recording] = []
    record = Recording.replay
    monkeypatch.setattr(Recording, "replay", lambda self, results: (recordings.append(self), record(self, results))[1])
    known, target = NetworkPatterns(), TARGETS["cpu"]
    shapes = convolutions(100)
    programs = [known.program(each, target) for each in shapes]
    assert len(compiled) == 1
    assert len(recordings) < 60
    del recordings[:]
    assert [known.program(each, target) for each in shapes[1:]] == programs[1:]
    assert not recordings


@pytest.mark.usefixtures("exact")
def test_integers_that_differ_become_symbols(compiled: list[Network]) -> None:
    pair = GraphPair.parse("pair-convolution-relu-float32-plain")
    assert pair is not None
    known, target = NetworkPatterns(), TARGETS["cpu"]
    for shape in [(2, 4, 8, 8), (2, 4, 8, 12), (2, 4, 12, 12), (2, 4, 12, 20), (4, 4, 12, 20), (4, 8, 12, 20)]:
        each = network(pair, shape)
        expected = compile_network(each, target).program
        assert with_literals(known.program(each, target)) == with_literals(expected)
    assert len(compiled) == 1


@pytest.mark.parametrize("mutant", ["guards", "values"])
def test_tests_notice_mutants(mutant: str, monkeypatch: pytest.MonkeyPatch, compiled: list[Network]) -> None:
    """Without guards, or with exchanged symbols, programs differ from compiled ones, or replays fail."""
    if mutant == "guards":
        monkeypatch.setattr(
            Recording, "decide", lambda self, text, function, *operands: function(*map(hint_of, operands))
        )
    else:
        monkeypatch.setattr(patterns.NetworkPattern, "program", exchanged(patterns.NetworkPattern.program))
    known, target = NetworkPatterns(), TARGETS["cpu"]
    different = 0
    for each in convolutions(12):
        expected = compile_network(each, target).program
        different += with_literals(known.program(each, target)) != with_literals(expected)
    assert different > 0 or len(compiled) > 1


def exchanged(program: Any) -> Any:
    return lambda self, values: program(self, [*reversed(values)])


def test_specialized_targets_compile(compiled: list[Network]) -> None:
    shapes = convolutions(3)
    for each in shapes:
        NetworkPatterns().program(each, Target("CPU"))
    assert len(compiled) == 3


def test_unsupported_networks_raise() -> None:
    known = NetworkPatterns()
    few = Target("few", Profile.CPU, max_storage_buffers=1).general
    for each in convolutions(3):
        with pytest.raises(NotSupported, match="buffers"):
            known.program(each, few)
    assert isinstance(known.program(convolutions(1)[0], TARGETS["gpu"]), Program)
