"""Write an ONNX decoder with random weights and a key-value cache, with GPT-2's architecture and, by default, its size.

    python scripts/export_decoder.py decoder.onnx
    python scripts/export_decoder.py tiny.onnx --layers 2 --heads 2 --hidden 32 --vocabulary 64 --places 32

A run takes the new tokens, the number of tokens so far, and the caches. It returns the scores of the next token and the
updated caches. Caches have rows for all positions from the start, so every step has the same shapes.

    input_ids              {batch, new}                       INT64
    seqlens_k              {batch}, tokens so far less 1      INT32
    total_sequence_length  {}, most tokens so far             INT32
    past_key.N             {batch, heads, cache, hidden / heads}, past_value.N alike; outputs present_key.N, ...
    logits                 {batch, vocabulary}
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

CONTRIBUTED = "com.microsoft"


@dataclass(frozen=True)
class Size:
    """The sizes of a decoder, and how far its weights lie apart; those of GPT-2, the smallest one, by default."""

    layers: int = 12
    heads: int = 12
    hidden: int = 768
    vocabulary: int = 50257
    places: int = 1024
    deviation: float = 0.02

    @property
    def caches(self) -> list[tuple[str, str]]:
        """The names of the inputs and outputs that are caches."""
        return [
            (f"past_{part}.{layer}", f"present_{part}.{layer}")
            for layer in range(self.layers)
            for part in ("key", "value")
        ]


class _Writer:
    """Nodes and weights under construction."""

    def __init__(self, seed: int, deviation: float):
        self.random, self.deviation = np.random.default_rng(seed), deviation
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op_type: str, *inputs: str, name: str, domain: str = "", **attributes: Any) -> str:
        """Add a node of one output, and return the output's name, the node's own."""
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, domain=domain, **attributes))
        return name

    def weight(self, name: str, *sizes: int, share: float = 1.0) -> str:
        """Add random weights, and return their name."""
        return self.known(name, self.random.standard_normal(sizes, np.float32) * np.float32(share * self.deviation))

    def known(self, name: str, array: NDArray[np.generic]) -> str:
        """Add numbers, and return their name."""
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def projection(self, x: str, name: str, width: int, output_width: int, share: float = 1.0) -> str:
        """Multiply rows by a matrix, and add a bias."""
        product = self.node(
            "MatMul", x, self.weight(f"{name}.weight", width, output_width, share=share), name=f"{name}.product"
        )
        return self.node("Add", product, self.weight(f"{name}.bias", output_width), name=name)

    def normalization(self, x: str, name: str, width: int) -> str:
        """Normalise rows."""
        scale = self.known(f"{name}.scale", np.ones(width, np.float32))
        return self.node("LayerNormalization", x, scale, self.weight(f"{name}.bias", width), name=name, axis=-1)


def decoder(size: Size, seed: int = 0) -> onnx.ModelProto:
    """Return a decoder of a size, with weights that a seed decides."""
    writer = _Writer(seed, size.deviation)
    x = _embedded(writer, size)
    for layer in range(size.layers):
        x = _layer(writer, size, f"layer.{layer}", x, layer)
    x = writer.normalization(x, "final", size.hidden)
    last = writer.node("Gather", x, writer.known("last_row", np.array(-1)), name="last", axis=1)
    writer.node("Gemm", last, "words", name="logits", transB=1)
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "new"]),
        helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, ["batch"]),
        helper.make_tensor_value_info("total_sequence_length", TensorProto.INT32, []),
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", size.vocabulary])]
    rows: list[str | int | None] = ["batch", size.heads, "cache", size.hidden // size.heads]
    for past, present in size.caches:
        inputs.append(helper.make_tensor_value_info(past, TensorProto.FLOAT, rows))
        outputs.append(helper.make_tensor_value_info(present, TensorProto.FLOAT, rows))
    graph = helper.make_graph(writer.nodes, "decoder", inputs, outputs, writer.weights)
    sets = [helper.make_opsetid("", 20), helper.make_opsetid(CONTRIBUTED, 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def _embedded(writer: _Writer, size: Size) -> str:
    """Return the sum of the embeddings of tokens and of their positions, from the first new token on."""
    words = writer.node("Gather", writer.weight("words", size.vocabulary, size.hidden), "input_ids", name="words.rows")
    zero, index = writer.known("zero", np.array(0)), writer.known("one", np.array(1))
    sizes = writer.node("Shape", "input_ids", name="sizes")
    new = writer.node("Gather", sizes, index, name="new")
    counted = writer.node("Range", zero, new, index, name="counted")
    back = writer.node("Sub", counted, writer.node("Sub", new, index, name="new.less"), name="back")
    last = writer.node("Cast", "seqlens_k", name="last.place", to=TensorProto.INT64)
    column = writer.node("Unsqueeze", last, writer.known("second", np.array([1])), name="last.column")
    places = writer.node("Add", column, back, name="places")
    rows = writer.node("Gather", writer.weight("places.table", size.places, size.hidden), places, name="places.rows")
    return writer.node("Add", words, rows, name="embedded")


def _layer(writer: _Writer, size: Size, name: str, x: str, layer: int) -> str:
    """Add attention and a perceptron, each with a residual connection."""
    hidden, share = size.hidden, 1 / (2 * size.layers) ** 0.5
    normed = writer.normalization(x, f"{name}.first", hidden)
    parts = [writer.projection(normed, f"{name}.{part}", hidden, hidden) for part in ("query", "key", "value")]
    writer.nodes.append(
        helper.make_node(
            "GroupQueryAttention",
            [*parts, f"past_key.{layer}", f"past_value.{layer}", "seqlens_k", "total_sequence_length"],
            [f"{name}.attention", f"present_key.{layer}", f"present_value.{layer}"],
            name=f"{name}.attention",
            domain=CONTRIBUTED,
            num_heads=size.heads,
            kv_num_heads=size.heads,
        )
    )
    attended = writer.projection(f"{name}.attention", f"{name}.output", hidden, hidden, share)
    x = writer.node("Add", x, attended, name=f"{name}.residual")
    normed = writer.normalization(x, f"{name}.second", hidden)
    wide = writer.projection(normed, f"{name}.wide", hidden, 4 * hidden)
    active = writer.node("Gelu", wide, name=f"{name}.gelu", approximate="tanh")
    narrow = writer.projection(active, f"{name}.narrow", 4 * hidden, hidden, share)
    return writer.node("Add", x, narrow, name=f"{name}.sum")


def main() -> None:
    """Write the model of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    for name, value in vars(Size()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    size = Size(**{name: getattr(options, name) for name in vars(Size())})
    model = decoder(size, options.seed)
    onnx.checker.check_model(model)
    onnx.save(model, options.path)


if __name__ == "__main__":
    main()
