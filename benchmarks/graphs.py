"""Compiled graphs and attention against their parts: chains of element-wise operators, residual blocks, single
operators in place of attention, tiny nodes that run again. They compare one workload with another, which no suite does.

    python benchmarks/graphs.py [ADAPTER] [-k PART]

Ratios are times of the graph divided by those of the alternative. The exit code is 1 if a target is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

import rerun
from targets import Call, Part, Result, main

from dmlgpu import DataType, Device, OperatorDesc, ScaleBias, TensorDesc, descs
from dmlgpu.bench.prepared import PreparedOperator
from dmlgpu.bench.ratios import ratio
from dmlgpu.bench.workload import Contents, Workload
from dmlgpu.catalog.enums import (
    ConvolutionDirection,
    ConvolutionMode,
    MatrixTransform,
    MultiheadAttentionMaskType,
    TensorFlags,
)
from dmlgpu.compiler.graph import GraphDesc, InputEdge, IntermediateEdge, OperatorNode, OutputEdge

ELEMENTS = 1 << 22
CHANNELS, SIDE, CONVOLUTIONS = 64, 56, 8
HEADS, ROWS, SIZE = 8, 256, 64
FILTERS = {number + 1: Contents(scale=1 / 24) for number in range(CONVOLUTIONS)}
"""Of the networks' inputs, small enough that numbers stay of one size from layer to layer."""


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


def prepared(
    device: Device, desc: OperatorDesc | GraphDesc, contents: Mapping[int, Contents] | None = None
) -> PreparedOperator:
    """An operator or a graph on random numbers, ready to run."""
    return PreparedOperator(device, Workload("benchmark", "", desc, contents=contents or {}), checked=False)


def kernels_of(prepared_operator: PreparedOperator) -> int:
    """How many kernels something has."""
    return prepared_operator.readiness.counts.kernels


def element_wise(adapter: str) -> Iterator[Result]:
    """A chain of ten operators on 4M elements: at most 1.3 times one of them."""
    device, whole = Device(adapter), tensor(ELEMENTS)
    add = descs.ElementWiseAdd(a_tensor=whole, b_tensor=whole, output_tensor=whole)
    multiply = descs.ElementWiseMultiply(a_tensor=whole, b_tensor=whole, output_tensor=whole)
    relu = descs.ActivationRelu(input_tensor=whole, output_tensor=whole)
    clip = descs.ElementWiseClip(input_tensor=whole, output_tensor=whole, scale_bias=None, min=-4.0, max=4.0)
    kinds = [add, multiply, relu, clip, add, multiply, relu, clip, add, relu]
    nodes = [
        (desc, [number - 1 if number else "x", *(["y"] if len(desc.inputs) == 2 else [])])
        for number, desc in enumerate(kinds)
    ]
    chain, single = prepared(device, build(nodes)), prepared(device, add)
    name = f"chain of 10, {kernels_of(chain)} kernels / one ADD, 4M float32"
    yield Result(name, ratio(chain.run, single.run), at_most=1.3)


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


def residual_graphs() -> tuple[GraphDesc, GraphDesc]:
    """Eight convolutions with relu and residual adds, and the convolutions alone, both of an image and filters."""
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
    return build(nodes), build(plain)


def residual_network(adapter: str) -> Iterator[Result]:
    """Eight convolutions with relu and residual adds: at most 1.02 times the convolutions alone."""
    device = Device(adapter)
    whole, alone = (prepared(device, graph, FILTERS) for graph in residual_graphs())
    name = f"{CONVOLUTIONS} convolutions with relu and adds, {kernels_of(whole)} kernels / without"
    yield Result(name, ratio(whole.run, alone.run), at_most=1.02)


def product(a: TensorDesc, b: TensorDesc, output: TensorDesc, transform: MatrixTransform, alpha: float) -> descs.Gemm:
    """A product of matrices, the second maybe transposed, times a number."""
    return descs.Gemm(a_tensor=a, b_tensor=b, output_tensor=output, trans_b=transform, alpha=alpha)


def multihead_attention(heads: int, queries: int, keys: int, size: int) -> descs.MultiheadAttention1:
    """Attention of one sequence, its heads side by side in each row."""
    width = heads * size
    return descs.MultiheadAttention1(
        query_tensor=tensor(1, queries, width),
        key_tensor=tensor(1, keys, width),
        value_tensor=tensor(1, keys, width),
        output_tensor=tensor(1, queries, width),
        scale=size**-0.5,
        mask_filter_value=-10000.0,
        query_head_count=heads,
        key_value_head_count=heads,
        mask_type=MultiheadAttentionMaskType.NONE,
    )


def single_operators(device: Device, heads: int, queries: int, keys: int, size: int) -> Call:
    """GEMM, softmax and GEMM, each run and waited for by itself, on tensors with a head after the other."""
    query, key, scores = tensor(heads, queries, size), tensor(heads, keys, size), tensor(heads, queries, keys)
    calls = [
        prepared(device, operator).run
        for operator in (
            product(query, key, scores, MatrixTransform.TRANSPOSE, size**-0.5),
            descs.ActivationSoftmax1(input_tensor=scores, output_tensor=scores, axes=(2,)),
            product(scores, key, query, MatrixTransform.NONE, 1.0),
        )
    ]
    return lambda number: [call(number) for call in calls]


def attention(adapter: str) -> Iterator[Result]:
    """MULTIHEAD_ATTENTION1: 8 heads x 256 x 64 no slower than its single operators one after the other; then scale,
    mask and softmax between two products in a graph: as fast as that."""
    device = Device(adapter)
    shapes = {
        "8 heads x 256 x 64": (HEADS, ROWS, ROWS, SIZE),
        "one query on 4,096 keys": (HEADS, 1, 4096, SIZE),
        "1 head x 2,048 x 64": (1, 2048, 2048, SIZE),
    }
    for number, (name, shape) in enumerate(shapes.items()):
        measured = ratio(single_operators(device, *shape), prepared(device, multihead_attention(*shape)).run)
        yield Result(f"single operators / attention, {name}", measured, at_least=None if number else 1.0)
    rows, scores = tensor(1, HEADS, ROWS, SIZE), tensor(1, HEADS, ROWS, ROWS)
    mask = TensorDesc(DataType.FLOAT32, scores.sizes, (0, 0, ROWS, 1))
    scale = descs.ElementWiseIdentity(input_tensor=scores, output_tensor=scores, scale_bias=ScaleBias(SIZE**-0.5, 0.0))
    nodes: list[tuple[OperatorDesc, Sequence[int | str]]] = [
        (product(rows, rows, scores, MatrixTransform.TRANSPOSE, 1.0), ["query", "key"]),
        (scale, [0]),
        (descs.ElementWiseAdd(a_tensor=scores, b_tensor=mask, output_tensor=scores), [1, "mask"]),
        (descs.ActivationSoftmax1(input_tensor=scores, output_tensor=scores, axes=(3,)), [2]),
        (product(scores, rows, rows, MatrixTransform.NONE, 1.0), [3, "value"]),
    ]
    chain = prepared(device, build(nodes), {2: Contents(constant=0.0)})
    name = f"{kernels_of(chain)} kernels of two products / attention, {HEADS} x {ROWS} x {SIZE}"
    fused = prepared(device, multihead_attention(HEADS, ROWS, ROWS, SIZE))
    yield Result(name, ratio(chain.run, fused.run), at_most=1.1)


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
