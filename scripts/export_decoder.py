"""Write an ONNX decoder with random weights and a key-value cache: of GPT-2's architecture, or of Llama's with 4-bit
weights as onnxruntime-genai exports it.

    python scripts/export_decoder.py decoder.onnx
    python scripts/export_decoder.py tiny.onnx --layers 2 --heads 2 --hidden 32 --vocabulary 64 --places 32
    python scripts/export_decoder.py llama.onnx --architecture llama --hidden 64 --head_size 16 --vocabulary 96

A run takes the new tokens, the number of tokens so far, and the caches. It returns the scores of the next token and the
updated caches. Caches have rows for all positions from the start, so every step has the same shapes.

    input_ids              {batch, new}                       INT64
    seqlens_k              {batch}, tokens so far less 1      INT32
    total_sequence_length  {}, most tokens so far             INT32
    past_key.N             {batch, key-value heads, cache, head size}, past_value.N alike; outputs present_key.N, ...
    logits                 {batch, vocabulary}

Llama's products are MatMulNBits, its residual connections part of SkipSimplifiedLayerNormalization.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
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
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads

    @property
    def head_size(self) -> int:
        """Elements of a head."""
        return self.hidden // self.heads

    @property
    def caches(self) -> list[tuple[str, str]]:
        """The names of the inputs and outputs that are caches."""
        return cache_names(self.layers)


@dataclass(frozen=True)
class LlamaSize:
    """The sizes of a decoder, its feed-forward width 2.75 times the hidden one, a multiple of the block size."""

    layers: int = 4
    hidden: int = 512
    head_size: int = 64
    kv_heads: int = 2
    vocabulary: int = 8000
    places: int = 4096
    bits: int = 4
    block: int = 32

    @property
    def heads(self) -> int:
        """Heads of queries."""
        return self.hidden // self.head_size

    @property
    def wide(self) -> int:
        """Width of the feed-forward part."""
        return int(self.hidden * 2.75) // self.block * self.block


def cache_names(layers: int) -> list[tuple[str, str]]:
    """Return the names of the inputs and outputs that are caches."""
    return [(f"past_{part}.{layer}", f"present_{part}.{layer}") for layer in range(layers) for part in ("key", "value")]


class _Writer:
    """Nodes and weights under construction."""

    def __init__(self, seed: int, half: bool = False):
        self.random = np.random.default_rng(seed)
        self.float = np.float16 if half else np.float32
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op_type: str, *inputs: str, name: str, outputs: int = 1, domain: str = "", **attributes: Any) -> str:
        """Add a node, and return its first output, which has its name."""
        names = [name, *("" if index < outputs - 1 else f"{name}.{index}" for index in range(1, outputs))]
        self.nodes.append(helper.make_node(op_type, inputs, names, name=name, domain=domain, **attributes))
        return name

    def known(self, name: str, array: NDArray[np.generic]) -> str:
        """Add an array, and return its name."""
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def attention(self, parts: list[str], size: Size | LlamaSize, layer: int, *tables: str) -> str:
        """Add attention with the caches of a layer, rotary if there are tables of cosines and sines."""
        names = [f"layer.{layer}.attention", f"present_key.{layer}", f"present_value.{layer}"]
        counts = "seqlens_k", "total_sequence_length"
        options = {"do_rotary": 1} if tables else {}
        self.nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [*parts, f"past_key.{layer}", f"past_value.{layer}", *counts, *tables],
                names,
                name=names[0],
                domain=CONTRIBUTED,
                num_heads=size.heads,
                kv_num_heads=size.kv_heads,
                **options,
            )
        )
        return names[0]

    def model(self, size: Size | LlamaSize) -> onnx.ModelProto:
        """Return the model."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.float))
        inputs = [
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "new"]),
            helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, ["batch"]),
            helper.make_tensor_value_info("total_sequence_length", TensorProto.INT32, []),
        ]
        outputs = [helper.make_tensor_value_info("logits", kind, ["batch", size.vocabulary])]
        rows: list[str | int | None] = ["batch", size.kv_heads, "cache", size.head_size]
        for past, present in cache_names(size.layers):
            inputs.append(helper.make_tensor_value_info(past, kind, rows))
            outputs.append(helper.make_tensor_value_info(present, kind, rows))
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.weights)
        sets = [helper.make_opsetid("", 20), helper.make_opsetid(CONTRIBUTED, 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=10)


# ---- GPT-2 -----------------------------------------------------------------------------------------------------------


class _Gpt2Writer(_Writer):
    """Parts of GPT-2."""

    def __init__(self, size: Size, seed: int):
        super().__init__(seed)
        self.size = size

    def weight(self, name: str, *sizes: int, share: float = 1.0) -> str:
        """Add random weights, and return their name."""
        deviation = np.float32(share * self.size.deviation)
        return self.known(name, self.random.standard_normal(sizes, np.float32) * deviation)

    def projection(self, x: str, name: str, width: int, output_width: int, share: float = 1.0) -> str:
        """Multiply rows by a matrix, and add a bias."""
        product = self.node(
            "MatMul", x, self.weight(f"{name}.weight", width, output_width, share=share), name=f"{name}.product"
        )
        return self.node("Add", product, self.weight(f"{name}.bias", output_width), name=name)

    def normalization(self, x: str, name: str) -> str:
        """Normalize rows."""
        width = self.size.hidden
        scale = self.known(f"{name}.scale", np.ones(width, np.float32))
        return self.node("LayerNormalization", x, scale, self.weight(f"{name}.bias", width), name=name, axis=-1)

    def embedded(self) -> str:
        """Add the embeddings of tokens and of their positions, from the first new token on."""
        size = self.size
        words = self.node("Gather", self.weight("words", size.vocabulary, size.hidden), "input_ids", name="words.rows")
        zero, index = self.known("zero", np.array(0)), self.known("one", np.array(1))
        sizes = self.node("Shape", "input_ids", name="sizes")
        new = self.node("Gather", sizes, index, name="new")
        counted = self.node("Range", zero, new, index, name="counted")
        back = self.node("Sub", counted, self.node("Sub", new, index, name="new.less"), name="back")
        last = self.node("Cast", "seqlens_k", name="last.place", to=TensorProto.INT64)
        column = self.node("Unsqueeze", last, self.known("second", np.array([1])), name="last.column")
        places = self.node("Add", column, back, name="places")
        rows = self.node("Gather", self.weight("places.table", size.places, size.hidden), places, name="places.rows")
        return self.node("Add", words, rows, name="embedded")

    def layer(self, x: str, layer: int) -> str:
        """Add attention and a perceptron, each with a residual connection."""
        name, hidden, share = f"layer.{layer}", self.size.hidden, 1 / (2 * self.size.layers) ** 0.5
        normed = self.normalization(x, f"{name}.first")
        parts = [self.projection(normed, f"{name}.{part}", hidden, hidden) for part in ("query", "key", "value")]
        attended = self.projection(self.attention(parts, self.size, layer), f"{name}.output", hidden, hidden, share)
        x = self.node("Add", x, attended, name=f"{name}.residual")
        normed = self.normalization(x, f"{name}.second")
        wide = self.projection(normed, f"{name}.wide", hidden, 4 * hidden)
        active = self.node("Gelu", wide, name=f"{name}.gelu", approximate="tanh")
        narrow = self.projection(active, f"{name}.narrow", 4 * hidden, hidden, share)
        return self.node("Add", x, narrow, name=f"{name}.sum")


def decoder(size: Size, seed: int = 0) -> onnx.ModelProto:
    """Return a decoder of GPT-2's architecture, with weights that a seed decides."""
    writer = _Gpt2Writer(size, seed)
    x = writer.embedded()
    for layer in range(size.layers):
        x = writer.layer(x, layer)
    x = writer.normalization(x, "final")
    last = writer.node("Gather", x, writer.known("last_row", np.array(-1)), name="last", axis=1)
    writer.node("Gemm", last, "words", name="logits", transB=1)
    return writer.model(size)


# ---- Llama -----------------------------------------------------------------------------------------------------------


class _LlamaWriter(_Writer):
    """Parts of Llama."""

    def __init__(self, size: LlamaSize, seed: int, half: bool):
        super().__init__(seed, half)
        self.size = size

    def projection(self, x: str, name: str, width: int, output_width: int) -> str:
        """Multiply rows by a quantized matrix."""
        bits, block = self.size.bits, self.size.block
        blocks = -(-width // block)
        packed = self.random.integers(0, 256, (output_width, blocks, block * bits // 8), np.uint8)
        spread = self.random.uniform(0.5, 1.5, output_width * blocks) * width**-0.5 / (1 << (bits - 2))
        weights = self.known(f"{name}.weight", packed), self.known(f"{name}.scales", spread.astype(self.float))
        settings = {"K": width, "N": output_width, "bits": bits, "block_size": block}
        return self.node("MatMulNBits", x, *weights, name=name, domain=CONTRIBUTED, **settings)

    def normalized(self, name: str, x: str, added: str) -> tuple[str, str]:
        """Return the normalization of a sum, and the sum itself."""
        scale = self.known(f"{name}.scale", np.ones(self.size.hidden, self.float))
        if not added:
            return self.node("SimplifiedLayerNormalization", x, scale, name=name, axis=-1, epsilon=1e-5), x
        kind = "SkipSimplifiedLayerNormalization"
        self.node(kind, x, added, scale, name=name, outputs=4, domain=CONTRIBUTED, epsilon=1e-5)
        return name, f"{name}.3"

    def layer(self, x: str, added: str, layer: int) -> tuple[str, str]:
        """Add attention and a gated perceptron; return the residual stream, and the summand that is due."""
        name, size = f"layer.{layer}", self.size
        normed, x = self.normalized(f"{name}.first", x, added)
        shared = size.kv_heads * size.head_size
        widths = {"query": size.hidden, "key": shared, "value": shared}
        parts = [self.projection(normed, f"{name}.{part}", size.hidden, width) for part, width in widths.items()]
        attended = self.attention(parts, size, layer, "cos", "sin")
        attended = self.projection(attended, f"{name}.output", size.hidden, size.hidden)
        normed, x = self.normalized(f"{name}.second", x, attended)
        gate, up = (self.projection(normed, f"{name}.{part}", size.hidden, size.wide) for part in ("gate", "up"))
        sigmoid = self.node("Sigmoid", gate, name=f"{name}.sigmoid")
        silu = self.node("Mul", gate, sigmoid, name=f"{name}.silu")
        gated = self.node("Mul", silu, up, name=f"{name}.gated")
        return x, self.projection(gated, f"{name}.down", size.wide, size.hidden)


def llama(size: LlamaSize, seed: int = 0, *, half: bool = False) -> onnx.ModelProto:
    """Return a decoder of Llama's architecture, with weights that a seed decides, in float32 or float16."""
    writer = _LlamaWriter(size, seed, half)
    words = writer.random.standard_normal((size.vocabulary, size.hidden)).astype(writer.float)
    angles = np.arange(size.places)[:, None] * 10000.0 ** (-np.arange(0, size.head_size, 2) / size.head_size)
    writer.known("cos", np.cos(angles).astype(writer.float))
    writer.known("sin", np.sin(angles).astype(writer.float))
    x = writer.node("Gather", writer.known("words", words), "input_ids", name="embedded")
    added = ""
    for layer in range(size.layers):
        x, added = writer.layer(x, added, layer)
    normed, _ = writer.normalized("final", x, added)
    last = writer.node("Gather", normed, writer.known("last_row", np.array(-1)), name="last", axis=1)
    writer.projection(last, "logits", size.hidden, size.vocabulary)
    return writer.model(size)


ARCHITECTURES: Mapping[str, tuple[type[Any], Callable[..., onnx.ModelProto]]] = {
    "gpt2": (Size, decoder),
    "llama": (LlamaSize, llama),
}
"""Sizes and builder of each architecture."""


def main() -> None:
    """Write the model of the command line."""
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--architecture", choices=ARCHITECTURES, default="gpt2")
    size_class, build = ARCHITECTURES[first.parse_known_args()[0].architecture]
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form, parents=[first])
    parser.add_argument("path")
    parser.add_argument("--seed", type=int, default=0)
    defaults = vars(size_class())
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    if build is llama:
        parser.add_argument("--half", action="store_true", help="float16 instead of float32")
    options = parser.parse_args()
    size = size_class(**{name: getattr(options, name) for name in defaults})
    model = build(size, options.seed, **({"half": options.half} if build is llama else {}))
    onnx.save(model, options.path)


if __name__ == "__main__":
    main()
