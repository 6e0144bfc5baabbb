"""Write an ONNX decoder of Llama's architecture with random 4- or 8-bit weights, as onnxruntime-genai exports it.

    python scripts/export_llama.py llama.onnx
    python scripts/export_llama.py tiny.onnx --layers 2 --hidden 64 --size 16 --vocabulary 96 --places 64

The products are MatMulNBits; attention is GroupQueryAttention with rotary embedding; residual connections are part of
SkipSimplifiedLayerNormalization. Inputs and outputs are those of scripts/export_decoder.py.
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
    """The sizes of a decoder, its feed-forward width 2.75 times the hidden one, a multiple of the block size."""

    layers: int = 4
    hidden: int = 512
    size: int = 64
    shared: int = 2
    vocabulary: int = 8000
    places: int = 4096
    bits: int = 4
    block: int = 32

    @property
    def heads(self) -> int:
        """Heads of queries."""
        return self.hidden // self.size

    @property
    def wide(self) -> int:
        """Width of the feed-forward part."""
        return int(self.hidden * 2.75) // self.block * self.block


class _Writer:
    """Nodes and weights under construction."""

    def __init__(self, size: Size, seed: int, half: bool):
        self.size, self.random = size, np.random.default_rng(seed)
        self.float = np.float16 if half else np.float32
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op_type: str, *inputs: str, name: str, outputs: int = 1, domain: str = "", **attributes: Any) -> str:
        """Add a node, and return its first output, which has its name."""
        names = [name, *("" if number < outputs - 1 else f"{name}.{number}" for number in range(1, outputs))]
        self.nodes.append(helper.make_node(op_type, inputs, names, name=name, domain=domain, **attributes))
        return name

    def known(self, name: str, array: NDArray[np.generic]) -> str:
        """Add an array, and return its name."""
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def projection(self, x: str, name: str, width: int, output_width: int) -> str:
        """Multiply rows by a quantized matrix."""
        bits, block = self.size.bits, self.size.block
        blocks = -(-width // block)
        packed = self.random.integers(0, 256, (output_width, blocks, block * bits // 8), np.uint8)
        spread = self.random.uniform(0.5, 1.5, output_width * blocks) * width**-0.5 / (1 << (bits - 2))
        weights = self.known(f"{name}.weight", packed), self.known(f"{name}.scales", spread.astype(self.float))
        settings = {"K": width, "N": output_width, "bits": bits, "block_size": block}
        return self.node("MatMulNBits", x, *weights, name=name, domain=CONTRIBUTED, **settings)

    def ones(self, name: str) -> str:
        """Add the scales of a normalization."""
        return self.known(f"{name}.scale", np.ones(self.size.hidden, self.float))


def decoder(size: Size, seed: int = 0, *, half: bool = False) -> onnx.ModelProto:
    """Return a decoder of a size, with weights that a seed decides, in float32 or float16."""
    writer = _Writer(size, seed, half)
    words = writer.random.standard_normal((size.vocabulary, size.hidden)).astype(writer.float)
    angles = np.arange(size.places)[:, None] * 10000.0 ** (-np.arange(0, size.size, 2) / size.size)
    writer.known("cos", np.cos(angles).astype(writer.float))
    writer.known("sin", np.sin(angles).astype(writer.float))
    x = writer.node("Gather", writer.known("words", words), "input_ids", name="embedded")
    added = ""
    for layer in range(size.layers):
        x, added = _layer(writer, f"layer.{layer}", x, added, layer)
    normed, _ = _normalized(writer, "final", x, added)
    last = writer.node("Gather", normed, writer.known("last_row", np.array(-1)), name="last", axis=1)
    writer.projection(last, "logits", size.hidden, size.vocabulary)
    kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "new"]),
        helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, ["batch"]),
        helper.make_tensor_value_info("total_sequence_length", TensorProto.INT32, []),
    ]
    outputs = [helper.make_tensor_value_info("logits", kind, ["batch", size.vocabulary])]
    rows: list[str | int | None] = ["batch", size.shared, "cache", size.size]
    for layer in range(size.layers):
        for part in ("key", "value"):
            inputs.append(helper.make_tensor_value_info(f"past_{part}.{layer}", kind, rows))
            outputs.append(helper.make_tensor_value_info(f"present_{part}.{layer}", kind, rows))
    graph = helper.make_graph(writer.nodes, "decoder", inputs, outputs, writer.weights)
    sets = [helper.make_opsetid("", 20), helper.make_opsetid(CONTRIBUTED, 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def _normalized(writer: _Writer, name: str, x: str, added: str) -> tuple[str, str]:
    """Return x plus what is added, normalized, and the sum itself."""
    scale = writer.ones(name)
    if not added:
        return writer.node("SimplifiedLayerNormalization", x, scale, name=name, axis=-1, epsilon=1e-5), x
    kind = "SkipSimplifiedLayerNormalization"
    writer.node(kind, x, added, scale, name=name, outputs=4, domain=CONTRIBUTED, epsilon=1e-5)
    return name, f"{name}.3"


def _layer(writer: _Writer, name: str, x: str, added: str, layer: int) -> tuple[str, str]:
    """Add attention and a gated perceptron; return the residual stream and what is to be added to it."""
    size = writer.size
    normed, x = _normalized(writer, f"{name}.first", x, added)
    widths = {"query": size.hidden, "key": size.shared * size.size, "value": size.shared * size.size}
    parts = [writer.projection(normed, f"{name}.{part}", size.hidden, width) for part, width in widths.items()]
    pasts = f"past_key.{layer}", f"past_value.{layer}"
    writer.nodes.append(
        helper.make_node(
            "GroupQueryAttention",
            [*parts, *pasts, "seqlens_k", "total_sequence_length", "cos", "sin"],
            [f"{name}.attention", f"present_key.{layer}", f"present_value.{layer}"],
            name=f"{name}.attention",
            domain=CONTRIBUTED,
            num_heads=size.heads,
            kv_num_heads=size.shared,
            do_rotary=1,
        )
    )
    attended = writer.projection(f"{name}.attention", f"{name}.output", size.hidden, size.hidden)
    normed, x = _normalized(writer, f"{name}.second", x, attended)
    gate, up = (writer.projection(normed, f"{name}.{part}", size.hidden, size.wide) for part in ("gate", "up"))
    sigmoid = writer.node("Sigmoid", gate, name=f"{name}.sigmoid")
    silu = writer.node("Mul", gate, sigmoid, name=f"{name}.silu")
    gated = writer.node("Mul", silu, up, name=f"{name}.gated")
    return x, writer.projection(gated, f"{name}.down", size.wide, size.hidden)


def main() -> None:
    """Write the model of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    for name, value in vars(Size()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--half", action="store_true", help="float16 instead of float32")
    options = parser.parse_args()
    size = Size(**{name: getattr(options, name) for name in vars(Size())})
    onnx.save(decoder(size, options.seed, half=options.half), options.path)


if __name__ == "__main__":
    main()
