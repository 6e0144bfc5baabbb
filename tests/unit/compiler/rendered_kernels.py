"""Script that prints the rendered kernels of some graphs and operators, one per line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from dmlgpu import DataType, TensorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.graph import GraphDesc
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.cases.registry import case_by_name, case_names
from dmlgpu.conformance.suites.graphs import example
from tests.unit.graph_examples import add, attention, chain, convolution, exponential, product, relu

TARGETS = [Target("test", profile, frozenset({"immediates", "shader-int64"})) for profile in Profile]
IMAGE = TensorDesc(DataType.FLOAT32, (1, 8, 16, 16))
CASES = 25


def graphs() -> Iterator[GraphDesc]:
    """Yield random graphs, and some that fuse."""
    for name in ("graph-float32-30-s1", "graph-int32-30-s2", "graph-float16-20-s3"):
        yield example(name).graph
    yield attention(1, 2, 64, 64, 16)
    yield chain(convolution(IMAGE), add(IMAGE), relu(IMAGE), exponential(IMAGE), product(IMAGE), add(IMAGE))


def programs() -> Iterator[Program]:
    """Yield programs of graphs for each target, and of a sample of quick cases."""
    for target in TARGETS:
        for graph in graphs():
            yield compile_network(resolve(graph), target).program
    names = case_names("quick")
    for name in names[:: len(names) // CASES]:
        try:
            yield compile_operator(case_by_name(name).desc, TARGETS[0])
        except NotSupported:
            continue


if __name__ == "__main__":
    for program in programs():
        for kernel in (*program.initialization, *program.kernels):
            text = hashlib.sha256(kernel.wgsl.encode()).hexdigest()
            print(program.operator, kernel.label, text, kernel.grid, kernel.slots, kernel.bindings)
