"""Programs of networks that were planned on symbols equal compiled ones."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.program import KernelSource, Program, RenderedKernel
from dmlgpu.compiler.program_cache import ProgramFiles
from dmlgpu.compiler.sizes.arithmetic import Recording, hint_of
from dmlgpu.compiler.sizes.networks import RecordedNetwork, kinds, program_of, structure_of
from dmlgpu.compiler.sizes.programs import PlannedNetwork, RecordedStep, recorded_steps
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.compiler.wgsl import templates
from dmlgpu.conformance.suites.graphs import GraphPair, GraphSuite
from dmlgpu.runtime.device import Device
from dmlgpu.tensors.graphs.graph import Graph
from tests.kernel_sources import with_values

SHAPES = [(2, 4, 6, 8), (4, 4, 6, 12), (2, 8, 10, 16), (5, 3, 7, 9), (2, 4, 6, 24)]
FEATURES = frozenset({"shader-int64", "shader-f16", "immediates"})
TARGETS = {
    "cpu": Target("CPU", Profile.CPU, FEATURES).varying,
    "gpu": Target("GPU", Profile.DISCRETE, frozenset({"shader-f16"})).varying,
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


class Compiler:
    """Compiles networks, of which those are noted that do not follow from others."""

    def __init__(self) -> None:
        recorded_steps.clear()
        kinds.clear()
        self.compiled: list[Network] = []

    def program(self, network: Network, target: Target) -> Program:
        program = program_of(network, target)
        if program is None:
            self.compiled.append(network)
            program = compile_network(network, target).program
        return program


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add guards that patterns omit: whether a size is 1, and whether another tile would be slightly better."""
    monkeypatch.setattr(Recording, "is_many", lambda self, size: size > 1)
    monkeypatch.setitem(templates.environment().tests, "many", lambda size: size > 1)
    result_of = Recording.result_of

    def exactly(self: Recording, function: Any, operands: Any, accepts: Any) -> Any:
        return result_of(self, function, operands, None)

    monkeypatch.setattr(Recording, "result_of", exactly)


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
def test_programs_that_follow_equal_compiled_ones(index: int, pair: GraphPair) -> None:
    target, compiler = [*TARGETS.values()][index % 2], Compiler()
    structures = set()
    for each in networks(pair):
        structures.add(structure_of(each)[0])
        expected = compile_network(each, target).program
        assert with_literals(compiler.program(each, target)) == with_literals(expected)
    assert len(compiler.compiled) == len(structures), "of each kind, the first one is compiled"


def convolutions(count: int) -> list[Network]:
    """Return networks of a convolution and RELU that differ only in their sizes."""
    pair = GraphPair.parse("pair-convolution-relu-float32-plain")
    assert pair is not None
    return [network(pair, (2, 4, 6 + index % 7, 8 + index)) for index in range(count)]


def test_a_hundred_shapes_take_few_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    recordings: list[Recording] = []
    record = Recording.replay
    monkeypatch.setattr(Recording, "replay", lambda self, results: (recordings.append(self), record(self, results))[1])
    compiler, target = Compiler(), TARGETS["cpu"]
    shapes = convolutions(100)
    programs = [compiler.program(each, target) for each in shapes]
    assert len(compiler.compiled) == 1
    assert len(recordings) < 60
    del recordings[:]
    assert [compiler.program(each, target) for each in shapes[1:]] == programs[1:]
    assert not recordings


@pytest.mark.parametrize(("varying", "stored"), [(True, "lanes"), (False, "unit")])
def test_few_activations_of_sizes_that_vary_are_read_one_by_one(*, varying: bool, stored: str) -> None:
    graph = Graph(Device("numpy"))
    product = graph.input((48, 24)) @ graph.input((24, 20))  # multiples of four
    target = TARGETS["cpu"].with_policies(varying=varying)
    (kernel,) = compile_network(resolve(graph.desc([product])), target).program.kernels
    assert f"schedules/gemm_keep_{stored}" in kernel.shaders


@pytest.mark.usefixtures("exact")
def test_integers_that_differ_become_symbols() -> None:
    pair = GraphPair.parse("pair-convolution-relu-float32-plain")
    assert pair is not None
    compiler, target = Compiler(), TARGETS["cpu"]
    for shape in [(2, 4, 8, 8), (2, 4, 8, 12), (2, 4, 12, 12), (2, 4, 12, 20), (4, 4, 12, 20), (4, 8, 12, 20)]:
        each = network(pair, shape)
        expected = compile_network(each, target).program
        assert with_literals(compiler.program(each, target)) == with_literals(expected)
    assert len(compiler.compiled) == 1


@pytest.mark.parametrize("mutant", ["guards", "values"])
def test_tests_notice_mutants(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without guards, or with exchanged symbols, programs differ from compiled ones, or replays fail."""
    if mutant == "guards":
        monkeypatch.setattr(Recording, "decide", lambda self, function, *operands: function(*map(hint_of, operands)))
    else:
        monkeypatch.setattr(PlannedNetwork, "program", exchanged(PlannedNetwork.program))
    compiler, target = Compiler(), TARGETS["cpu"]
    different = 0
    for each in convolutions(12):
        expected = compile_network(each, target).program
        different += with_literals(compiler.program(each, target)) != with_literals(expected)
    assert different > 0 or len(compiler.compiled) > 1


def exchanged(program: Any) -> Any:
    return lambda self, values: program(self, [*reversed(values)])


def test_specialized_targets_compile() -> None:
    compiler = Compiler()
    for each in convolutions(3):
        compiler.program(each, Target("CPU"))
    assert len(compiler.compiled) == 3


def test_unsupported_networks_raise() -> None:
    compiler = Compiler()
    few = Target("few", Profile.CPU, max_storage_buffers=1).general
    for each in convolutions(3):
        with pytest.raises(NotSupported, match="buffers"):
            compiler.program(each, few)
    assert isinstance(compiler.program(convolutions(1)[0], TARGETS["gpu"]), Program)


def test_plans_whose_steps_are_not_supported_for_other_sizes_give_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller compiles such a network with plain numbers, and the compiler names the node."""
    compiler = Compiler()
    shapes = convolutions(4)
    for each in shapes[:3]:
        compiler.program(each, TARGETS["cpu"])

    def reject(*_: Any) -> Any:
        raise NotSupported("too large")

    monkeypatch.setattr(PlannedNetwork, "program", reject)
    assert program_of(shapes[3], TARGETS["cpu"]) is None


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramFiles:
    """Files in which recorded networks store their plans."""
    files = ProgramFiles(tmp_path, "1")
    monkeypatch.setattr(RecordedNetwork, "program", functools.partialmethod(RecordedNetwork.program, files=files))
    return files


def fail(*_: Any) -> Any:
    raise AssertionError("planned or recorded")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("index", "pair"), list(enumerate(pairs())), ids=str)
def test_the_next_process_reads_plans(index: int, pair: GraphPair, monkeypatch: pytest.MonkeyPatch) -> None:
    target, compiler = [*TARGETS.values()][index % 2], Compiler()
    shapes = networks(pair, SHAPES[:3])
    expected = [compiler.program(each, target) for each in shapes]
    compiler = Compiler()
    monkeypatch.setattr(PlannedNetwork, "__init__", fail)
    monkeypatch.setattr(RecordedStep, "_record", fail)
    assert [compiler.program(each, target) for each in shapes] == expected


@pytest.mark.usefixtures("files")
def test_plans_from_files_serve_sizes_that_no_process_had(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, target = Compiler(), TARGETS["cpu"]
    shapes = convolutions(40)
    for each in shapes[:2]:
        compiler.program(each, target)
    compiler = Compiler()
    monkeypatch.setattr(PlannedNetwork, "__init__", fail)
    programs = [compiler.program(each, target) for each in shapes[:1] + shapes[2:]]
    assert len(compiler.compiled) == 1
    monkeypatch.undo()
    compiler = Compiler()
    assert programs == [compiler.program(each, target) for each in shapes[:1] + shapes[2:]]


PROCESS = """
import functools, pathlib, sys
from dmlgpu.compiler.program_cache import ProgramFiles
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.sizes.networks import RecordedNetwork, program_of
from dmlgpu.compiler.sizes.programs import PlannedNetwork
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.suites.graphs import GraphPair
files = ProgramFiles(pathlib.Path(sys.argv[1]), "1")
RecordedNetwork.program = functools.partialmethod(RecordedNetwork.program, files=files)
plan, planned = PlannedNetwork.__init__, []
PlannedNetwork.__init__ = lambda *arguments: (planned.append(arguments), plan(*arguments))[1]
pair = GraphPair.parse("pair-convolution-relu-float32-plain")
target = Target("CPU", Profile.CPU, frozenset({"shader-int64", "shader-f16", "immediates"})).varying
for columns in (8, 9, 12):
    program_of(resolve(pair.example((2, 4, 6, columns)).graph), target)
print(len(planned))
"""


@pytest.mark.slow
def test_names_of_plans_do_not_depend_on_the_process(tmp_path: Path) -> None:
    planned = [
        subprocess.run(
            [sys.executable, "-c", PROCESS, str(tmp_path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert planned == ["1\n", "0\n"]
