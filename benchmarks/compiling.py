"""How soon there is a first result: planning, rendering, pipelines, the driver's cache. For starting see starting.py.

    python benchmarks/compiling.py [ADAPTER] [-k PART]

Ratios are times of the slower over those of the quicker. Exits with 1 when a target is missed. Parts that start
processes take minutes; keep the machine idle.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from graphs import build, convolution, tensor
from targets import Call, Part, Result, main

from dmlgpu import Device, OperatorDesc, descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.catalog.enums import MatrixTransform
from dmlgpu.compiler.graph import GraphDesc
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.program import RenderedKernel
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.runtime.wgpu import pipelines

CONVOLUTIONS, DISTINCT = 8, 24


def product(rows: int) -> descs.Gemm:
    """A product of square matrices."""
    square = tensor(1, 1, rows, rows)
    none = MatrixTransform.NONE
    return descs.Gemm(
        a_tensor=square,
        b_tensor=square,
        c_tensor=None,
        output_tensor=square,
        trans_a=none,
        trans_b=none,
        alpha=1.0,
        beta=0.0,
        fused_activation=None,
    )


def process(code: str, *arguments: str, **environment: str) -> Call:
    """A Python process that runs some code, with the folder of this file to import from."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{code}"]

    def run(_: int) -> None:
        subprocess.run([*command, *arguments], env={**os.environ, **environment}, stdout=sys.stderr, check=True)

    return run


def network() -> GraphDesc:
    """Eight convolutions in a row."""
    return build([(convolution(), [n - 1 if n else "x", f"filter {n}"]) for n in range(CONVOLUTIONS)])


COMPILED = """
import compiling, dmlgpu
from dmlgpu.runtime.wgpu import adapters
device = dmlgpu.Device(next(info for info in adapters() if sys.argv[1].lower() in str(info).lower()))
compiled = device.compile_graph(compiling.network())
print(compiled.timings)
"""


def driver_cache(adapter: str) -> Iterator[Result]:
    """Processes that compile a network: with a folder of the driver's cache that is new, or that another has filled."""
    with tempfile.TemporaryDirectory() as root:

        def cold(_: int) -> None:
            process(COMPILED, adapter, DMLGPU_CACHE="off", MESA_SHADER_CACHE_DIR=tempfile.mkdtemp(dir=root))(0)

        warm = process(COMPILED, adapter, DMLGPU_CACHE="off", MESA_SHADER_CACHE_DIR=tempfile.mkdtemp(dir=root))
        name = f"{CONVOLUTIONS} convolutions, first process / second process"
        yield Result(name, ratio(cold, warm, 11, warm=1), at_least=1.5)


def distinct_kernels(target: Target) -> list[RenderedKernel]:
    """Kernels of convolutions, products and softmax of different sizes."""
    kernels: dict[str, RenderedKernel] = {}
    for number in range(DISTINCT):
        rows = tensor(4, 128 + 4 * number)
        softmax = descs.ActivationSoftmax1(input_tensor=rows, output_tensor=rows, axes=(1,))
        for desc in (product(64 + 16 * number), softmax):
            for kernel in compile_operator(desc, target).kernels:
                kernels[kernel.wgsl] = kernel
    return list(kernels.values())


def in_parallel(adapter: str) -> Iterator[Result]:
    """The pipelines of a program, made by one thread and by as many as there are cores."""
    backend: Any = Device(adapter).backend
    kernels, cores = distinct_kernels(backend.target), pipelines.cores()

    def measured(threads: int) -> Call:
        def run(_: int) -> None:
            pipelines.cores = lambda: threads
            backend.pipeline_cache.clear()
            _, new = backend.pipelines.get_all("BENCHMARK", kernels, backend.target.has("immediates"))
            assert len(new) == len(kernels)

        return run

    name = f"{len(kernels)} pipelines by 1 thread / by {cores}"
    yield Result(name, ratio(measured(1), measured(cores)), at_least=1.3 if cores > 1 else None)


def mixed(count: int) -> GraphDesc:
    """A chain of convolutions, products, softmax and element-wise operators."""
    image = tensor(1, 8, 16, 16)
    add = descs.ElementWiseAdd(a_tensor=image, b_tensor=image, output_tensor=image)
    relu = descs.ActivationRelu(input_tensor=image, output_tensor=image)
    exponential = descs.ElementWiseExp(input_tensor=image, output_tensor=image, scale_bias=None)
    softmax = descs.ActivationSoftmax1(input_tensor=image, output_tensor=image, axes=(3,))
    filtered = convolution(image)
    square = product(16)
    matrices = descs.Gemm(
        **{name: getattr(square, name) for name in ("trans_a", "trans_b", "alpha", "beta", "c_tensor")},
        a_tensor=image,
        b_tensor=image,
        output_tensor=image,
        fused_activation=None,
    )
    kinds: Sequence[OperatorDesc] = (filtered, add, relu, exponential, matrices, softmax, add, relu, add, exponential)
    nodes: list[tuple[OperatorDesc, Sequence[int | str]]] = []
    for number in range(count):
        desc = kinds[number % len(kinds)]
        second = {2: [f"input {number}"], 3: [f"input {number}"]}.get(len(desc.inputs), [])
        nodes.append((desc, [number - 1 if number else "x", *second]))
    return build(nodes)


def planning(adapter: str) -> Iterator[Result]:
    """Planning and rendering graphs of 500 and of 5,000 nodes: ten times the nodes, not much more of the time."""
    target = Target(adapter, Profile.CPU)
    small, large = (resolve(mixed(count)) for count in (500, 5000))
    calls = [lambda _, network=network: compile_network(network, target) for network in (large, small)]
    yield Result("planning and rendering 5,000 nodes / 500", ratio(*calls, 11, warm=1), at_most=13)


PARTS: dict[str, Part] = {
    "planning": planning,
    "parallel": in_parallel,
    "cache": driver_cache,
}

if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
