"""Nodes with empty inputs: their results are empty, or sums over no elements.

An empty result is known once its shape is, which ONNX infers. If products are summed over a dimension of size 0, that
dimension becomes one element, 0, and the operator's function computes the rest: bias, states, activation. The few other
operators that have results without inputs, such as reductions, are in ``_RULES``. All others are evaluated by ONNX's
reference if all inputs are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
from onnx import helper

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS, MAX_ELEMENTS
from dmlgpu.frontends.onnx.node import OnnxNode
from dmlgpu.frontends.onnx.operators import ML
from dmlgpu.frontends.onnx.signatures import formal_inputs, inferred, schema_of
from dmlgpu.frontends.onnx.spatial import window_of
from dmlgpu.frontends.onnx.tensor_proto import numpy_type
from dmlgpu.frontends.onnx.values import NeedsHost, OnnxValue, Shape

_MICROSOFT = "com.microsoft"
_MAX_READ = 1024
_MAX_RESULTS = 2**26
"""Limit of plausible results without inputs."""

Outputs = list[tuple[DataType, int, Shape] | None]


def compute(node: OnnxNode) -> Generator[NeedsHost, Any, list[OnnxValue | None] | None]:
    """Return the outputs of a node with empty inputs; None if its function computes them."""
    rule = _RULES.get((node.proto.domain, node.op_type))
    if rule is not None:
        result = rule(node)
        if result is not None:
            return result
    values = [value for value in node.inputs if value is not None]
    outputs = _shapes(node)
    if None in outputs:  # sizes, scales or axes decide
        yield NeedsHost([value for value in values if len(value.shape) <= 1 and math.prod(value.shape) <= _MAX_READ])
        outputs = _shapes(node)
    if (None in outputs and _has_absurd_sizes(node)) or any(
        output is not None and _is_huge(output[2]) for output in outputs
    ):
        raise node.rejection(f"sizes of at most {_MAX_RESULTS} elements together are computed from tensors without any")
    empties = [output for output in outputs if output is not None and 0 in output[2]]
    if empties and len(empties) == len(outputs):
        arrays = [np.zeros(shape, numpy_type(data_type, coded)) for data_type, coded, shape in empties]
        return _known_outputs(node, arrays)
    return _reference(node, outputs) if all(value.array is not None for value in values) else None


def has_empty_inputs(node: OnnxNode) -> bool:
    """Return whether inputs are empty; for Resize only its data, since an empty region or list of sizes counts as
    absent."""
    inputs = node.inputs[:1] if node.op_type in ("Resize", "Upsample") else node.inputs
    return any(value is not None and value.is_empty for value in inputs)


def filled(node: OnnxNode) -> OnnxNode:
    """Return a node with one element, 0, along a dimension of size 0 that is summed over; other nodes unchanged."""
    summed = _SUMMED.get((node.proto.domain, node.op_type))
    if summed is None or not any(value is not None and value.is_empty for value in node.inputs):
        return node
    places, zero_points = summed(node)
    inputs = list(node.inputs)
    for index, axis in places:
        value = node.value(index)
        shape = list(value.shape)
        dimension = max(axis, -len(shape))  # the row of a vector on the right of a product is its only dimension
        if not -len(shape) <= dimension < len(shape) or shape[dimension] != 0:
            return node
        shape[dimension] = 1
        inputs[index] = OnnxValue(tuple(shape), value.data_type, value.coded, np.zeros(shape, value.data_type.numpy))
    for index in zero_points:
        if node.has(index):  # else the element would not represent 0
            value = node.value(index)
            zeros = np.zeros(value.shape, value.data_type.numpy)
            inputs[index] = OnnxValue(value.shape, value.data_type, value.coded, zeros)
    return node.replaced(inputs)


def with_a_row(node: OnnxNode) -> OnnxNode | None:
    """Return a node of ai.onnx.ml whose inputs without rows have one of zeros; None for other nodes.

    Except for the row, its outputs have the shapes of the node's.
    """
    if node.proto.domain != ML:
        return None
    inputs = [
        OnnxValue.of_array(np.zeros((1, *value.shape[1:]), value.data_type.numpy))
        if value is not None and value.shape[:1] == (0,)
        else value
        for value in node.inputs
    ]
    return node.replaced(inputs)


def without_rows(node: OnnxNode, values: Sequence[OnnxValue | None]) -> list[OnnxValue | None]:
    """Remove the row from the outputs of a node ``with_a_row``."""
    return [
        None if value is None else node.known(np.zeros((0, *value.shape[1:]), value.data_type.numpy))
        for value in values
    ]


def _is_huge(shape: Shape) -> bool:
    """Return whether a result is too large for NumPy."""
    return math.prod(shape) > _MAX_RESULTS or math.prod(size for size in shape if size) > MAX_ELEMENTS


def _has_absurd_sizes(node: OnnxNode) -> bool:
    """Return whether a few integers, as sizes or paddings, would make a result that exceeds any memory.

    Only INT64 inputs count: biases, zero points and data have other types.
    """
    return any(
        value is not None and formal.types == {"tensor(int64)"} and _is_absurd(value)
        for value, formal in formal_inputs(node)
    )


def _is_absurd(value: OnnxValue) -> bool:
    if value.array is None or not 0 < value.array.size <= 2 * MAX_DIMENSIONS:
        return False
    return math.prod(abs(int(element)) + 1 for element in value.array.reshape(-1)) > _MAX_RESULTS


def _shapes(node: OnnxNode) -> Outputs:
    """Return types and shapes of the outputs that have names, as far as they are known."""
    if node.op_type in ("AveragePool", "LpPool", "MaxPool") and node.flag("ceil_mode"):
        return _pooled(node)
    analog = _ANALOGS.get(node.op_type)
    if analog is None or schema_of(node.proto.domain, node.op_type, node.version):
        return inferred(node)
    further = _FURTHER.get(node.op_type, lambda node: [])
    outputs = dict(enumerate([analog(node), *further(node)]))
    return [outputs.get(index) for index, name in enumerate(node.proto.output) if name]


def _pooled(node: OnnxNode) -> Outputs:
    """Return types and shapes of pooling that rounds up. ONNX's inference counts windows that begin in the padding."""
    spatial = node.shape(0)[2:]
    counts = window_of(node, node.integers("kernel_shape") or (), spatial).outputs(spatial, ceil=True)
    shape = (*node.shape(0)[:2], *counts)
    types = (node.data_type(0), DataType.INT64)
    return [(data_type, False, shape) for data_type, name in zip(types, node.proto.output, strict=False) if name]


def _known_outputs(node: OnnxNode, arrays: Sequence[np.ndarray]) -> list[OnnxValue | None]:
    """Return the outputs of a node, those without a name as None.

    Args:
        node: The node.
        arrays: The elements of those that have names.
    """
    rest = iter(arrays)
    return [node.known(next(rest)) if name else None for name in node.proto.output]


def _reference(node: OnnxNode, outputs: Outputs) -> list[OnnxValue | None] | None:
    """Return the result of ONNX's reference for known inputs; None if it does not support the case.

    It sums narrow integers in wide ones; results are cast to the types of ``outputs``, if known.
    """
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - slow to import, and few models need it

    pairs = zip(node.proto.input, node.inputs, strict=True)
    values = {name: value for name, value in pairs if value is not None}
    feeds = {name: value.host_array for name, value in values.items()}
    inputs = [helper.make_tensor_value_info(name, value.element, value.shape) for name, value in values.items()]
    ends = [helper.make_empty_tensor_value_info(name) for name in node.proto.output if name]
    graph = helper.make_graph([node.proto], "node", inputs, ends)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.proto.domain, node.version)])
    try:
        results = [np.asarray(result) for result in ReferenceEvaluator(model).run(None, feeds)]
    except Exception:  # the reference does not support the case; the operator rejects it by name
        return None
    typed = [
        result if output is None else result.astype(numpy_type(*output[:2]), copy=False)
        for result, output in zip(results, outputs, strict=True)
    ]
    return _known_outputs(node, typed)


# ---- results of operators without elements


def _without_updates(node: OnnxNode) -> list[OnnxValue | None] | None:
    """Return the data of a scatter unchanged."""
    return [node.value(0)] if node.value(1).is_empty and not node.value(0).is_empty else None


def _without_boxes(node: OnnxNode) -> list[OnnxValue | None] | None:
    """Return no boxes of NonMaxSuppression."""
    return [node.known(np.zeros((0, 3), np.int64))] if node.value(0).is_empty or node.value(1).is_empty else None


def _without_values(node: OnnxNode) -> list[OnnxValue | None] | None:
    """Return no elements of Unique."""
    if node.attribute("axis") is not None:
        return None
    nothing = node.known(np.zeros(0, np.int64))
    results: list[OnnxValue | None] = [node.known(np.zeros(0, node.data_type(0).numpy)), *[nothing] * 3]
    return results[: len(node.proto.output)]


def _without_range(node: OnnxNode) -> list[OnnxValue | None]:
    """Return no elements of DynamicQuantizeLinear; the scale is 1, as for zeros in onnxruntime."""
    return [
        node.known(np.zeros(node.shape(0), np.uint8)),
        node.known(np.array(1, np.float32)),
        node.known(np.array(0, np.uint8)),
    ]


def _without_steps(node: OnnxNode) -> list[OnnxValue | None] | None:
    """Return the initial states of a recurrent layer, or 0."""
    node.check_rank(0, 3)
    node.check_rank(2, 3)
    steps, batch, _ = node.shape(0)
    directions, hidden = node.shape(2)[0], node.shape(2)[2]
    if steps or node.flag("layout") or not batch:
        return None
    data_type = node.data_type(0).numpy
    zeros = node.known(np.zeros((directions, batch, hidden), data_type))
    states = [node.value(index) if node.has(index) else zeros for index in (5, 6)]
    results: list[OnnxValue | None] = [node.known(np.zeros((0, directions, batch, hidden), data_type)), *states]
    return results[: len(node.proto.output)]


def _without_words(node: OnnxNode) -> list[OnnxValue | None] | None:
    """Return no embeddings of EmbedLayerNormalization, and 0 words per sequence."""
    if not node.value(0).is_empty or len(node.shape(2)) != 2:
        return None
    embedded = node.known(np.zeros((*node.shape(0), node.shape(2)[1]), node.data_type(2).numpy))
    words = node.known(np.zeros(node.shape(0)[:1], np.int32))
    results: list[OnnxValue | None] = [embedded, words, embedded]
    return results[: len(node.proto.output)]


def _outside(node: OnnxNode) -> list[OnnxValue | None] | None:
    """Return 0 for samples and regions of an image without elements."""
    outputs = _shapes(node)
    if not node.value(0).is_empty or outputs[0] is None or node.text("padding_mode", "zeros") != "zeros":
        return None
    return [node.known(np.zeros(outputs[0][2], node.data_type(0).numpy))]


_REDUCED = {
    "BatchNormalization": math.nan,
    "GlobalAveragePool": math.nan,
    "ReduceLogSum": -math.inf,
    "ReduceLogSumExp": -math.inf,
    "ReduceMax": -math.inf,
    "ReduceMean": math.nan,
    "ReduceMin": math.inf,
    "ReduceProd": 1.0,
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSum", "ReduceSumSquare"), 0.0),
}
"""Results of reductions over no elements; integers saturate, and their mean is 0, as in onnxruntime."""


def _reduced(node: OnnxNode) -> list[OnnxValue | None] | None:
    """Return the defined results of reductions, and batch statistics, over no elements."""
    if not node.value(0).is_empty:  # the axes are empty, not the data
        return None
    results: list[OnnxValue | None] = []
    for output in _shapes(node):
        if output is None:
            return None
        data_type, coded, shape = output
        value: float = _REDUCED[node.op_type]
        if not data_type.is_float and not coded and not math.isfinite(value):
            limits = np.iinfo(data_type.numpy)
            value = 0 if math.isnan(value) else int(limits.max if value > 0 else limits.min)
        results.append(node.known(np.full(shape, value, numpy_type(data_type, coded))))
    return results


_RULES: dict[tuple[str, str], Callable[[OnnxNode], list[OnnxValue | None] | None]] = {
    **{("", name): _without_updates for name in ("Scatter", "ScatterElements", "ScatterND", "TensorScatter")},
    **{("", name): _without_steps for name in ("RNN", "GRU", "LSTM")},
    **{("", name): _reduced for name in _REDUCED},
    **{("", name): _outside for name in ("GridSample", "MaxRoiPool")},
    ("", "NonMaxSuppression"): _without_boxes,
    ("", "DynamicQuantizeLinear"): _without_range,
    ("", "Unique"): _without_values,
    (_MICROSOFT, "EmbedLayerNormalization"): _without_words,
}

Sums = tuple[Sequence[tuple[int, int]], Sequence[int]]
"""Inputs with the dimension that products are summed over, and indices of zero points."""


def _sums(*places: tuple[int, int], zero_points: Sequence[int] = ()) -> Callable[[OnnxNode], Sums]:
    return lambda node: (places, zero_points)


def _gemm_sums(node: OnnxNode, left: int = 0, right: int = 1, zero_points: Sequence[int] = ()) -> Sums:
    return ((left, 0 if node.flag("transA") else 1), (right, 1 if node.flag("transB") else 0)), zero_points


def _matmul_sums(node: OnnxNode) -> Sums:
    # With more than two dimensions, transBatch moves the first one in front of the last one.
    left, right = (
        (0 if len(node.shape(index)) > 2 and node.flag(f"transBatch{letter}") else -2)
        for index, letter in enumerate("AB")
    )
    return ((0, left if node.flag("transA") else -1), (1, -1 if node.flag("transB") else right)), ()


def _conv_sums(node: OnnxNode) -> Sums:
    return ((0, -1 if node.flag("channels_last") else 1), (3, 1)), (2, 5)


_SUMMED: dict[tuple[str, str], Callable[[OnnxNode], Sums]] = {
    ("", "MatMul"): _sums((0, -1), (1, -2)),
    ("", "Gemm"): _gemm_sums,
    ("", "MatMulInteger"): _sums((0, -1), (1, -2), zero_points=(2, 3)),
    ("", "QLinearMatMul"): _sums((0, -1), (3, -2), zero_points=(2, 5)),
    ("", "Conv"): _sums((0, 1), (1, 1)),
    ("", "ConvTranspose"): _sums((0, 1), (1, 0)),
    ("", "ConvInteger"): _sums((0, 1), (1, 1), zero_points=(2, 3)),
    ("", "QLinearConv"): _sums((0, 1), (3, 1), zero_points=(2, 5)),
    ("", "DeformConv"): _sums((0, 1), (1, 1)),
    **{("", name): _sums((0, 2), (1, 2)) for name in ("RNN", "GRU", "LSTM")},
    (_MICROSOFT, "Attention"): _sums((0, 2), (1, 0)),
    (_MICROSOFT, "DynamicQuantizeMatMul"): _sums((0, -1), (1, -2), zero_points=(3,)),
    (_MICROSOFT, "FusedConv"): _sums((0, 1), (1, 1)),
    (_MICROSOFT, "FusedGemm"): _gemm_sums,
    (_MICROSOFT, "FusedMatMul"): _matmul_sums,
    (_MICROSOFT, "FusedMatMulActivation"): _matmul_sums,
    (_MICROSOFT, "MatMulIntegerToFloat"): _sums((0, -1), (1, -2), zero_points=(4, 5)),
    (_MICROSOFT, "MultiHeadAttention"): _sums((1, 1), (2, 1)),
    (_MICROSOFT, "NhwcConv"): _sums((0, 3), (1, 3)),
    (_MICROSOFT, "QLinearConv"): _conv_sums,
    (_MICROSOFT, "QGemm"): lambda node: _gemm_sums(node, 0, 3, (2, 5)),
    (_MICROSOFT, "TransposeMatMul"): _matmul_sums,
}

# ---- shapes of onnxruntime's operators, which ONNX does not infer

Analog = Callable[[OnnxNode], "tuple[DataType, int, Shape] | None"]


def _as(op_type: str, *numbers: int, typed: int | DataType | None = None) -> Analog:
    """Infer the type and shape of a node's first output by another ONNX operator on some of its inputs.

    Args:
        op_type: The operator.
        numbers: Indices of the inputs, in that operator's order.
        typed: Index of the input with the output's type, or the type; defaults to the operator's.
    """

    def analog(node: OnnxNode) -> tuple[DataType, int, Shape] | None:
        output = inferred(node, op_type, [node.value(index) for index in numbers])[0]
        if output is None or typed is None:
            return output
        data_type = typed if isinstance(typed, DataType) else node.data_type(typed) if node.has(typed) else None
        return data_type or DataType.FLOAT32, 0, output[2]

    return analog


def _matmul(node: OnnxNode) -> tuple[DataType, int, Shape] | None:
    shapes = [node.shape(0), node.shape(1)]
    for index, letter in enumerate("AB"):
        if node.flag(f"transBatch{letter}"):
            shapes[index] = (*shapes[index][1:-1], shapes[index][0], *shapes[index][-1:])
        if node.flag(f"trans{letter}"):
            shapes[index] = (*shapes[index][:-2], *shapes[index][:-3:-1])
    return inferred(node, "MatMul", [OnnxValue(shape, node.data_type(0)) for shape in shapes])[0]


def _spatial(op_type: str, count: int) -> Analog:
    """Infer the output of an operator on images whose channels may come last; those of NhwcConv and its filters do.

    Args:
        op_type: The operator of ONNX.
        count: Number of its inputs; others are omitted.
    """

    def analog(node: OnnxNode) -> tuple[DataType, int, Shape] | None:
        turned = [0, 1] if node.op_type == "NhwcConv" else [0] * node.flag("channels_last")
        inputs: list[OnnxValue | None] = list(node.inputs[:count])
        for index in turned:
            node.check_rank(index, 3, 4, 5)
            first, *sizes, channels = node.shape(index)
            inputs[index] = OnnxValue((first, channels, *sizes), node.data_type(index))
        output = inferred(node, op_type, inputs)[0]
        if output is None or not turned:
            return output
        first, channels, *sizes = output[2]
        return output[0], 0, (first, *sizes, channels)

    return analog


def _gathered(node: OnnxNode) -> tuple[DataType, bool, Shape]:
    shape = list(node.shape(0))
    axis = node.axis(node.integer("gather_axis"), len(shape))
    if node.data_type(0) is DataType.UINT8 and node.integer("bits", 4) == 4:  # two per byte
        shape[-1] *= 2
    return node.data_type(2), False, (*shape[:axis], *node.shape(1), *shape[axis + 1 :])


def _split_in_two(node: OnnxNode) -> tuple[DataType, bool, Shape]:
    *sizes, last = node.shape(0) or (0,)
    return node.data_type(0), False, (*sizes, last // 2)


def _attention(node: OnnxNode) -> tuple[DataType, bool, Shape]:
    node.check_rank(0, 3)
    node.check_rank(1, 2)
    hidden = (node.integers("qkv_hidden_sizes", 3) or (0, 0, node.shape(1)[1] // 3))[2]
    return node.data_type(0), False, (*node.shape(0)[:2], hidden)


def _fused_present(node: OnnxNode) -> Outputs:
    """Infer the present of Attention: all keys and values in one tensor."""
    batch, rows, _ = node.shape(0)
    heads, past = max(node.integer("num_heads"), 1), 0
    if node.has(4):
        node.check_rank(4, 5)
        past = node.shape(4)[3]
    size = (node.integers("qkv_hidden_sizes", 3) or (node.shape(1)[1] // 3,))[0] // heads
    return [(node.data_type(0), False, (2, batch, heads, past + rows, size))]


def _present(node: OnnxNode) -> Outputs:
    """Infer the present of MultiHeadAttention: all keys and values."""
    heads = max(node.integer("num_heads"), 1)
    outputs: Outputs = []
    for new, past in ((1, 6), (2, 7)):
        if not node.has(new) or len(node.shape(new)) != 3:
            return []
        batch, rows, width = node.shape(new)
        before = 0
        if node.has(past):
            node.check_rank(past, 4)
            before = node.shape(past)[2]
        outputs.append((node.data_type(0), False, (batch, heads, before + rows, width // heads)))
    return outputs


def _sum_of_skips(node: OnnxNode) -> Outputs:
    return [None, None, (node.data_type(0), False, node.shape(0))]


_FURTHER: dict[str, Callable[[OnnxNode], Outputs]] = {
    "Attention": _fused_present,
    "MultiHeadAttention": _present,
    "SkipLayerNormalization": _sum_of_skips,
    "SkipSimplifiedLayerNormalization": _sum_of_skips,
}
"""Analogs of outputs from the second one on."""

_ANALOGS: dict[str, Analog] = {
    **{
        name: _as("Identity", 0)
        for name in [
            "BiasGelu",
            "FastGelu",
            "Gelu",
            "GroupNorm",
            "LayerNormalization",
            "QLinearLeakyRelu",
            "QLinearSigmoid",
            "QLinearSoftmax",
            "QuickGelu",
            "RotaryEmbedding",
            "SimplifiedLayerNormalization",
            "SkipGroupNorm",
            "SkipLayerNormalization",
            "SkipSimplifiedLayerNormalization",
        ]
    },
    "Attention": _attention,
    "BiasAdd": _as("Add", 0, 2),
    "BiasSplitGelu": _split_in_two,
    "DequantizeLinear": _as("Identity", 0, typed=1),
    "DynamicQuantizeMatMul": _as("MatMul", 0, 1, typed=DataType.FLOAT32),
    "FusedConv": _as("Conv", 0, 1),
    "FusedGemm": _as("Gemm", 0, 1),
    "FusedMatMul": _matmul,
    "FusedMatMulActivation": _matmul,
    "GatherBlockQuantized": _gathered,
    "MatMulIntegerToFloat": _as("MatMul", 0, 1, typed=2),
    "MatMulNBits": lambda node: (node.data_type(0), False, (*node.shape(0)[:-1], node.integer("N"))),
    "MultiHeadAttention": lambda node: (
        (node.data_type(0), False, (*node.shape(0)[:2], node.shape(2)[2]))
        if node.has(2) and len(node.shape(2)) == 3
        else None
    ),
    "NhwcConv": _spatial("Conv", 3),
    "QGemm": _as("Gemm", 0, 3, typed=8),
    "QLinearAdd": _as("Add", 0, 3),
    "QLinearAveragePool": _spatial("AveragePool", 1),
    "QLinearConv": _spatial("QLinearConv", 9),
    "QLinearGlobalAveragePool": _spatial("GlobalAveragePool", 1),
    "QLinearMul": _as("Mul", 0, 3),
    "QLinearWhere": _as("Where", 0, 1, 4),
    "QuantizeLinear": lambda node: (node.data_type(2) if node.has(2) else DataType.UINT8, False, node.shape(0)),
    "TransposeMatMul": _matmul,
}
