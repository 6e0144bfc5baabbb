"""The part of a network with a mixture of experts: a router, and gated products of the experts that it selects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dmlgpu.frontends.generation.gguf.architectures import Experts
from dmlgpu.frontends.generation.gguf.weights import PACKINGS, packed, words
from dmlgpu.frontends.onnx.operators import DMLGPU

if TYPE_CHECKING:
    from dmlgpu.frontends.generation.gguf.network import NetworkWriter

_MIN_SUM = 2.0**-14
"""Minimum of the sum by which weights are divided, as in llama.cpp."""


def mixture(writer: NetworkWriter, experts: Experts, layer: int, x: str) -> str:
    """Return the weighted sum of the experts that each token selects, and of the one that all tokens use."""
    prefix, name, hidden = f"blk.{layer}", f"layers.{layer}.experts", writer.config.hidden
    indices, weights = _selected(writer, experts, layer, x)
    tokens, of_group, places = f"{name}.tokens", f"{name}.of_group", f"{name}.places"
    rows, factors = x, writer.node("Unsqueeze", [weights, writer.integers(-1)], f"{name}.factors")
    if experts.weighs_inputs:  # each expert of a token has a row of its own
        indices = writer.node("Unsqueeze", [indices, writer.integers(-1)], f"{name}.of_rows")
        rows = writer.node("Unsqueeze", [rows, writer.integers(-2)], f"{name}.by_expert")
        rows = writer.node("Mul", [rows, factors], f"{name}.weighted")
    writer.node_of("GroupByExpert", [indices], [tokens, of_group, places], DMLGPU, experts=experts.count)
    rows = writer.node("Reshape", [rows, writer.integers(-1, hidden)], f"{name}.rows")
    rows = writer.node("Gather", [rows, tokens], f"{name}.grouped")
    sizes = experts.count, experts.inner, hidden
    up = _product(writer, rows, of_group, f"{prefix}.ffn_up_exps", sizes)
    if writer.config.traits.squares_relu:
        gated = writer.squared(up, name)
    else:
        gated = writer.gated(_product(writer, rows, of_group, f"{prefix}.ffn_gate_exps", sizes), up, name)
    sizes = experts.count, hidden, experts.inner
    result = _product(writer, gated, of_group, f"{prefix}.ffn_down_exps", sizes)
    result = writer.node("Reshape", [result, writer.integers(-1, hidden)], f"{name}.computed")
    result = writer.node("Gather", [result, places], f"{name}.ordered")
    if experts.weighs_inputs:
        result = writer.node("ReduceSum", [result, writer.integers(-3, -2)], f"{name}.sum", keepdims=0)
    else:
        result = writer.node("Mul", [result, factors], f"{name}.weighted")
        result = writer.node("ReduceSum", [result, writer.integers(-2)], f"{name}.sum", keepdims=0)
    if not writer.has(f"{prefix}.ffn_down_shexp.weight"):
        return result
    shared = writer.perceptron(layer, x, experts.shared_inner, "_shexp")
    gate_name = f"{prefix}.ffn_gate_inp_shexp"
    if writer.has(f"{gate_name}.weight"):
        if len(writer.file.tensors[f"{gate_name}.weight"].shape) == 1:
            column = writer.vector(f"{gate_name}.weight", hidden)
            column = writer.node("Unsqueeze", [column, writer.integers(-1)], f"{name}.column")
            score = writer.node("MatMul", [x, column], f"{name}.score")
        else:
            score = writer.product(x, gate_name, 1, hidden, f"{name}.score")
        factor = writer.node("Sigmoid", [score], f"{name}.shared_factor")
        shared = writer.node("Mul", [shared, factor], f"{name}.shared")
    return writer.node("Add", [result, shared], f"{name}.total")


def _selected(writer: NetworkWriter, experts: Experts, layer: int, x: str) -> tuple[str, str]:
    """Return the indices of the experts that tokens select, and their weights, {batch, new, used}."""
    name = f"layers.{layer}.router"
    scores = writer.product(x, f"blk.{layer}.ffn_gate_inp", experts.count, writer.config.hidden, f"{name}.scores")
    if experts.has_sigmoids and not experts.weighs_inputs:
        return _selected_by_sigmoids(writer, experts, layer, scores)
    if not experts.normalizes and not experts.weighs_inputs:
        scores = writer.node("Softmax", [scores], f"{name}.probabilities", axis=-1)
    weights, indices = f"{name}.values", f"{name}.indices"
    writer.node_of("TopK", [scores, writer.integers(experts.used)], [weights, indices], axis=-1)
    if experts.normalizes:  # a softmax of the selected scores is that of all scores, divided by its sum
        weights = writer.node("Softmax", [weights], f"{name}.weights", axis=-1)
    if experts.weighs_inputs:
        weights = writer.node("Sigmoid", [weights], f"{name}.weights")
    return indices, writer.scaled(weights, experts.scale, f"{name}.scaled")


def _selected_by_sigmoids(writer: NetworkWriter, experts: Experts, layer: int, scores: str) -> tuple[str, str]:
    """Return the indices of the experts with the largest sigmoids, to which a bias is added for this choice, and their
    weights without it."""
    name, bias = f"layers.{layer}.router", f"blk.{layer}.exp_probs_b.bias"
    sigmoids = writer.node("Sigmoid", [scores], f"{name}.sigmoids")
    ranked = sigmoids
    if writer.has(bias):
        ranked = writer.node("Add", [sigmoids, writer.vector(bias, experts.count)], f"{name}.ranked")
    indices = f"{name}.indices"
    writer.node_of("TopK", [ranked, writer.integers(experts.used)], [f"{name}.values", indices], axis=-1)
    weights = writer.node("GatherElements", [sigmoids, indices], f"{name}.weights", axis=-1)
    if experts.normalizes:
        total = writer.node("ReduceSum", [weights, writer.integers(-1)], f"{name}.sum")
        total = writer.node("Max", [total, writer.scalar(_MIN_SUM)], f"{name}.divisor")
        weights = writer.node("Div", [weights, total], f"{name}.normalized")
    return indices, writer.scaled(weights, experts.scale, f"{name}.scaled")


def _product(writer: NetworkWriter, rows: str, of_group: str, tensor_name: str, sizes: tuple[int, int, int]) -> str:
    """Multiply groups of rows by the matrices {rows, inner} of their experts, and add biases if the file has them."""
    tensor = writer.tensor(f"{tensor_name}.weight", *sizes)
    output = f"{tensor_name}.output"
    if tensor.kind in PACKINGS:
        weight = packed(tensor, writer.dtype)
        codes = writer.weight(f"{tensor.name}.codes", words(weight.codes))
        inputs = [rows, of_group, codes, writer.weight(f"{tensor.name}.scales", weight.scales)]
        if weight.zero_points is not None:
            inputs.append(writer.weight(f"{tensor.name}.zero_points", weight.zero_points))
        options: dict[str, Any] = {"bits": weight.bits, "block_size": weight.block}
        if weight.is_e2m1:
            options["values"] = "e2m1"
        result = writer.node("ExpertMatMulNBits", inputs, output, DMLGPU, **options)
    else:
        matrices = writer.node("Gather", [writer.floats(tensor), of_group], f"{output}.matrices")
        matrices = writer.as_activations(matrices, tensor, f"{output}.cast")
        columns = writer.node("Transpose", [matrices], f"{output}.columns", perm=[0, 2, 1])
        result = writer.node("MatMul", [rows, columns], output)
    if writer.has(f"{tensor_name}.bias"):
        bias = writer.tensor(f"{tensor_name}.bias", *sizes[:2])
        added = writer.node("Gather", [writer.floats(bias), of_group], f"{output}.bias")
        added = writer.as_activations(added, bias, f"{output}.bias.cast")
        added = writer.node("Unsqueeze", [added, writer.integers(1)], f"{output}.bias.rows")
        result = writer.node("Add", [result, added], f"{output}.biased")
    return result
