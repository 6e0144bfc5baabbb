"""Compiled graphs against their parts: chains of element-wise operators, residual blocks, attention, tiny nodes that
run again.

    python benchmarks/graphs.py [ADAPTER] [-k PART]

Ratios are times of the graph over those of what it is compared with. Exits with 1 when a target is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np
import rerun
from attention import HEADS, ROWS, SIZE
from attention import fused as multihead_attention
from harness import Bench, Call, Part, Result, main, open_backend
from numpy.typing import NDArray

from dmlgpu import DataType, OperatorDesc, ScaleBias, TensorDesc, descs
from dmlgpu.bench.ratios import ratio
from dmlgpu.enums import ConvolutionDirection, ConvolutionMode, MatrixTransform, TensorFlags
from dmlgpu.graph import GraphDesc, InputEdge, IntermediateEdge, OperatorNode, OutputEdge
from dmlgpu.graph.compiler import compile_network
from dmlgpu.graph.resolve import resolve

ELEMENTS = 1 << 22
CHANNELS, SIDE, CONVOLUTIONS = 64, 56, 8


def tensor(*sizes: int) -> TensorDesc:
    return TensorDesc(DataType.FLOAT32, sizes)


def build(nodes: Sequence[tuple[OperatorDesc, Sequence[int | str]]]) -> GraphDesc:
    """A graph of operators, each with what it reads: numbers of nodes and names of inputs; the last is its output."""
    names = list(dict.fromkeys(source for _, reads in nodes for source in reads if isinstance(source, str)))
    into, inner = [], []
    for number, (_, reads) in enumerate(nodes):
        for position, source in enumerate(reads):
            if isinstance(source, str):
                into.append(InputEdge(names.index(source), number, position))
            else:
                inner.append(IntermediateEdge(source, 0, number, position))
    operators = tuple(OperatorNode(desc) for desc, _ in nodes)
    return GraphDesc(len(names), 1, operators, tuple(into), tuple(inner), (OutputEdge(len(nodes) - 1, 0, 0),))


def graph_call(bench: Bench, graph: GraphDesc, inputs: Sequence[NDArray[np.float32]]) -> tuple[Call, int]:
    """A graph as a call, and how many kernels it has."""
    compiled = compile_network(resolve(graph), bench.backend.target)
    sizes = [one.byte_size for one in compiled.network.output_tensors]
    return bench.program(compiled.program, inputs, sizes), len(compiled.program.kernels)


def element_wise(adapter: str) -> Iterator[Result]:
    """A chain of ten operators on 4M elements: at most 1.3 times one of them."""
    bench, whole = Bench(open_backend(adapter)), tensor(ELEMENTS)
    add = descs.ElementWiseAdd(a_tensor=whole, b_tensor=whole, output_tensor=whole)
    multiply = descs.ElementWiseMultiply(a_tensor=whole, b_tensor=whole, output_tensor=whole)
    relu = descs.ActivationRelu(input_tensor=whole, output_tensor=whole)
    clip = descs.ElementWiseClip(input_tensor=whole, output_tensor=whole, scale_bias=None, min=-4.0, max=4.0)
    kinds = [add, multiply, relu, clip, add, multiply, relu, clip, add, relu]
    nodes = [
        (desc, [number - 1 if number else "x", *(["y"] if len(desc.inputs) == 2 else [])])
        for number, desc in enumerate(kinds)
    ]
    values = [np.random.default_rng(seed).standard_normal(ELEMENTS, np.float32) for seed in (1, 2)]
    chain, kernels = graph_call(bench, build(nodes), values)
    one = bench.operator(add, *values)
    yield Result(f"chain of 10, {kernels} kernels / one ADD, 4M float32", ratio(chain, one), at_most=1.3)


def convolution(image: TensorDesc | None = None) -> descs.Convolution:
    """One of the network's convolutions, or one of another image."""
    image = image or tensor(1, CHANNELS, SIDE, SIDE)
    channels = image.sizes[1]
    return descs.Convolution(
        input_tensor=image,
        filter_tensor=TensorDesc(DataType.FLOAT32, (channels, channels, 3, 3), flags=TensorFlags.OWNED_BY_DML),
        bias_tensor=None,
        output_tensor=image,
        mode=ConvolutionMode.CROSS_CORRELATION,
        direction=ConvolutionDirection.FORWARD,
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(1, 1),
        end_padding=(1, 1),
        output_padding=(0, 0),
        group_count=1,
        fused_activation=None,
    )


def residual_graphs() -> tuple[GraphDesc, GraphDesc, list[NDArray[np.float32]]]:
    """Eight convolutions with relu and residual adds, the convolutions alone, and image and filters for both."""
    image = tensor(1, CHANNELS, SIDE, SIDE)
    relu = descs.ActivationRelu(input_tensor=image, output_tensor=image)
    add = descs.ElementWiseAdd(a_tensor=image, b_tensor=image, output_tensor=image)
    nodes: list[tuple[OperatorDesc, Sequence[int | str]]] = []
    plain: list[tuple[OperatorDesc, Sequence[int | str]]] = []
    last: int | str = "x"
    for number in range(CONVOLUTIONS):
        plain.append((convolution(), [number - 1 if number else "x", f"filter {number}"]))
        if number % 2 == 0:
            skip = last
        nodes.append((convolution(), [last, f"filter {number}"]))
        if number % 2:
            nodes.append((add, [len(nodes) - 1, skip]))
        nodes.append((relu, [len(nodes) - 1]))
        last = len(nodes) - 1
    rng = np.random.default_rng(1)
    filters = [rng.standard_normal((CHANNELS, CHANNELS, 3, 3), np.float32) / 24 for _ in range(CONVOLUTIONS)]
    return build(nodes), build(plain), [rng.standard_normal((1, CHANNELS, SIDE, SIDE), np.float32), *filters]


def residual_network(adapter: str) -> Iterator[Result]:
    """Eight convolutions with relu and residual adds: at most 1.02 times the convolutions alone."""
    bench = Bench(open_backend(adapter))
    network, plain, inputs = residual_graphs()
    whole, kernels = graph_call(bench, network, inputs)
    alone, _ = graph_call(bench, plain, inputs)
    name = f"{CONVOLUTIONS} convolutions with relu and adds, {kernels} kernels / without"
    yield Result(name, ratio(whole, alone), at_most=1.02)


def attention(adapter: str) -> Iterator[Result]:
    """Scale, mask and softmax between two products: as fast as MULTIHEAD_ATTENTION."""
    bench = Bench(open_backend(adapter))
    rows, scores = tensor(1, HEADS, ROWS, SIZE), tensor(1, HEADS, ROWS, ROWS)
    mask = TensorDesc(DataType.FLOAT32, scores.sizes, (0, 0, ROWS, 1))

    def product(a: TensorDesc, b: TensorDesc, output: TensorDesc, transform: MatrixTransform) -> descs.Gemm:
        return descs.Gemm(
            a_tensor=a,
            b_tensor=b,
            c_tensor=None,
            output_tensor=output,
            trans_a=MatrixTransform.NONE,
            trans_b=transform,
            alpha=1.0,
            beta=0.0,
            fused_activation=None,
        )

    scale = descs.ElementWiseIdentity(input_tensor=scores, output_tensor=scores, scale_bias=ScaleBias(SIZE**-0.5, 0.0))
    nodes: list[tuple[OperatorDesc, Sequence[int | str]]] = [
        (product(rows, rows, scores, MatrixTransform.TRANSPOSE), ["query", "key"]),
        (scale, [0]),
        (descs.ElementWiseAdd(a_tensor=scores, b_tensor=mask, output_tensor=scores), [1, "mask"]),
        (descs.ActivationSoftmax1(input_tensor=scores, output_tensor=scores, axes=(3,)), [2]),
        (product(scores, rows, rows, MatrixTransform.NONE), [3, "value"]),
    ]
    rng = np.random.default_rng(1)
    query, key, value = (rng.standard_normal((1, HEADS, ROWS, SIZE), np.float32) for _ in range(3))
    inputs = [query, key, np.zeros((ROWS, ROWS), np.float32), value]
    call, kernels = graph_call(bench, build(nodes), inputs)
    name = f"{kernels} kernels of two products / attention, {HEADS} x {ROWS} x {SIZE}"
    yield Result(name, ratio(call, multihead_attention(bench, HEADS, ROWS, ROWS, SIZE)), at_most=1.1)


PARTS: dict[str, Part] = {
    "element-wise": element_wise,
    "network": residual_network,
    "attention": attention,
    "tiny nodes": rerun.tiny_nodes,
    "python": rerun.python_share,
    "overlap": rerun.overlap,
}

if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS))
