"""Small graphs and their parts, as the tests of graphs share them."""

from __future__ import annotations

from dmlgpu import DataType, Graph, OperatorDesc, ScaleBias, TensorDesc, descs
from dmlgpu.catalog.enums import ConvolutionDirection, ConvolutionMode, MatrixTransform, QuantizationType
from dmlgpu.compiler.graph import ConstantNode, GraphDesc, InputEdge, IntermediateEdge, OperatorNode, OutputEdge
from dmlgpu.ops import directml

FLOATS = TensorDesc(DataType.FLOAT32, (1, 2, 4, 4))
"""A tensor of 128 bytes."""


def relu(tensor: TensorDesc = FLOATS) -> OperatorDesc:
    """ACTIVATION_RELU."""
    return descs.ActivationRelu(input_tensor=tensor, output_tensor=tensor)


def exponential(tensor: TensorDesc = FLOATS) -> OperatorDesc:
    """ELEMENT_WISE_EXP, which is expensive."""
    return descs.ElementWiseExp(input_tensor=tensor, output_tensor=tensor, scale_bias=None)


def add(a: TensorDesc = FLOATS, b: TensorDesc | None = None, output: TensorDesc | None = None) -> OperatorDesc:
    """ELEMENT_WISE_ADD."""
    return descs.ElementWiseAdd(a_tensor=a, b_tensor=b or a, output_tensor=output or a)


def identity(source: TensorDesc, output: TensorDesc | None = None) -> OperatorDesc:
    """ELEMENT_WISE_IDENTITY: a copy."""
    return descs.ElementWiseIdentity(input_tensor=source, output_tensor=output or source, scale_bias=None)


def convolution(tensor: TensorDesc = FLOATS, filters: TensorDesc | None = None) -> OperatorDesc:
    """CONVOLUTION, 3 x 3, as many outputs as channels."""
    channels = tensor.sizes[1]
    return descs.Convolution(
        input_tensor=tensor,
        filter_tensor=filters or TensorDesc(tensor.data_type, (channels, channels, 3, 3)),
        bias_tensor=None,
        output_tensor=tensor,
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


def product(tensor: TensorDesc = FLOATS) -> OperatorDesc:
    """GEMM of two tensors of square matrices."""
    return matrices(tensor, tensor, tensor, MatrixTransform.NONE)


def attention(batch: int, heads: int, rows: int, keys: int, size: int) -> GraphDesc:
    """Scale, mask and softmax between two products; inputs are query, key, mask and value."""

    def tensor(*sizes: int) -> TensorDesc:
        return TensorDesc(DataType.FLOAT32, (batch, heads, *sizes))

    scores = tensor(rows, keys)
    mask = TensorDesc(DataType.FLOAT32, scores.sizes, (0, 0, keys, 1))
    operators = (
        matrices(tensor(rows, size), tensor(keys, size), scores, MatrixTransform.TRANSPOSE),
        descs.ElementWiseIdentity(input_tensor=scores, output_tensor=scores, scale_bias=ScaleBias(size**-0.5, 0.0)),
        add(scores, mask, scores),
        descs.ActivationSoftmax1(input_tensor=scores, output_tensor=scores, axes=(3,)),
        matrices(scores, tensor(keys, size), tensor(rows, size), MatrixTransform.NONE),
    )
    return chain(*operators)


def attention_of_quantized_caches(kind: DataType, blocks: int, queries: int = 1) -> GraphDesc:
    """Attention of queries of a type, whose keys and values are integers with a number of scales per head."""
    graph, sizes = Graph(), (1, 2, 64, 32)
    keys, values = (
        directml.cast(
            directml.dequantize(
                graph.input(sizes, DataType.INT8),
                (graph.input((*sizes[:3], blocks)),),
                quantization_type=QuantizationType.SCALE,
            ),
            output_type=kind,
        )
        for _ in range(2)
    )
    results = directml.multihead_attention1(
        graph.input((1, queries, 128), kind),
        None,
        None,
        past_key=keys,
        past_value=values,
        scale=0.125,
        mask_filter_value=-10000.0,
        query_head_count=4,
        key_value_head_count=2,
    )
    return graph.desc([results.output])


def matrices(a: TensorDesc, b: TensorDesc, output: TensorDesc, transform: MatrixTransform) -> OperatorDesc:
    """GEMM, the second operand transposed or not."""
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


def chain(*operators: OperatorDesc) -> GraphDesc:
    """Return a graph of operators in a row: each reads the one before as its first input.

    Further inputs are inputs of the graph, numbered in order.
    """
    inputs, inner = [InputEdge(0, 0, 0)], []
    for number, desc in enumerate(operators):
        if number:
            inner.append(IntermediateEdge(number - 1, 0, number, 0))
        for position in range(1, len(desc.inputs)):
            if desc.inputs[position].tensor is not None:
                inputs.append(InputEdge(len(inputs), number, position))
    nodes = tuple(OperatorNode(desc, f"{desc.stem}{number}") for number, desc in enumerate(operators))
    outputs = (OutputEdge(len(nodes) - 1, 0, 0),)
    return GraphDesc(len(inputs), 1, nodes, tuple(inputs), tuple(inner), outputs, "chain")


__all__ = [
    "FLOATS",
    "ConstantNode",
    "GraphDesc",
    "InputEdge",
    "IntermediateEdge",
    "OperatorNode",
    "OutputEdge",
    "add",
    "attention",
    "attention_of_quantized_caches",
    "chain",
    "convolution",
    "exponential",
    "identity",
    "product",
    "relu",
]
