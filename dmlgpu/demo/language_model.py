"""A tiny language model with random weights, as onnxruntime-genai exports one: 4-bit weights, a cache, a tokenizer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
BLOCK = 32

_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_SPECIAL = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>")


@dataclass(frozen=True)
class DecoderSizes:
    """Sizes of a decoder with the architecture of Llama.

    Attributes:
        layers, heads, kv_heads, head_size: Sizes of attention.
        feed_forward: Width between the two products of a perceptron.
        vocabulary: Number of tokens.
        context: Rows of the table of rotary angles.
        deviation: Standard deviation of the weights.
    """

    layers: int = 4
    heads: int = 8
    kv_heads: int = 2
    head_size: int = 64
    feed_forward: int = 1408
    vocabulary: int = 8000
    context: int = 2048
    deviation: float = 0.04

    @property
    def hidden(self) -> int:
        """Width of the hidden state."""
        return self.heads * self.head_size


class _Builder:
    """Nodes and weights under construction."""

    def __init__(self, seed: int, deviation: float):
        self._random, self._deviation = np.random.default_rng(seed), deviation
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []

    def node(self, op_type: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> str:
        """Add a node; return the name of its first output."""
        self.nodes.append(helper.make_node(op_type, inputs, outputs, outputs[0], domain=domain, **attributes))
        return outputs[0]

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """Add an initializer; return its name."""
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def random(self, name: str, *sizes: int) -> str:
        """Add random weights; return their name."""
        return self.constant(name, self._random.standard_normal(sizes, np.float32) * np.float32(self._deviation))

    def product(self, x: str, name: str, inner: int, outer: int) -> str:
        """Multiply rows by a matrix of 4-bit weights; return the name of the product."""
        blocks = -(-inner // BLOCK)
        packed = self._random.integers(0, 256, (outer, blocks, BLOCK // 2), np.uint8)
        scales = self._random.uniform(0.5, 1.0, (outer, blocks)).astype(np.float32)
        scales *= np.float32(self._deviation / 4.6)  # the deviation of uniform 4-bit integers
        inputs = [x, self.constant(f"{name}.qweight", packed), self.constant(f"{name}.scales", scales.reshape(-1))]
        sizes = {"K": inner, "N": outer, "bits": 4, "block_size": BLOCK}
        return self.node("MatMulNBits", inputs, [name], MICROSOFT, **sizes)


def decoder(sizes: DecoderSizes, seed: int = 0) -> ModelProto:
    """Return a decoder with random weights.

    Args:
        sizes: Its sizes.
        seed: Seed of the weights.
    """
    builder = _Builder(seed, sizes.deviation)
    _add_lengths(builder)
    half = sizes.head_size // 2
    angles = np.outer(np.arange(sizes.context), 10000.0 ** (-np.arange(half) / half))
    builder.constant("cos_cache", np.cos(angles).astype(np.float32))
    builder.constant("sin_cache", np.sin(angles).astype(np.float32))
    hidden = builder.node(
        "Gather", [builder.random("embedding", sizes.vocabulary, sizes.hidden), "input_ids"], ["embedded"]
    )
    normed = builder.node(
        "SimplifiedLayerNormalization",
        [hidden, _scale(builder, "first", sizes)],
        ["first.normed"],
        axis=-1,
        epsilon=1e-5,
    )
    for layer in range(sizes.layers):
        hidden, normed = _add_layer(builder, sizes, layer, hidden, normed)
    builder.product(normed, "logits", sizes.hidden, sizes.vocabulary)
    return _model(builder, sizes)


def _add_lengths(builder: _Builder) -> None:
    """Add the lengths of sequences, computed from the attention mask."""
    axis = builder.constant("one", np.array([1], np.int64))
    builder.node("ReduceSum", ["attention_mask", axis], ["lengths"], keepdims=0)
    builder.node("Sub", ["lengths", "one"], ["lengths.less"])
    builder.node("Cast", ["lengths.less"], ["seqlens_k"], to=TensorProto.INT32)
    builder.node("Shape", ["attention_mask"], ["mask.shape"])
    builder.node("Gather", ["mask.shape", builder.constant("index", np.array(1, np.int64))], ["mask.columns"], axis=0)
    builder.node("Cast", ["mask.columns"], ["total_sequence_length"], to=TensorProto.INT32)


def _scale(builder: _Builder, name: str, sizes: DecoderSizes) -> str:
    return builder.constant(f"{name}.scale", np.ones(sizes.hidden, np.float32))


def _add_layer(builder: _Builder, sizes: DecoderSizes, layer: int, hidden: str, normed: str) -> tuple[str, str]:
    """Add attention and a perceptron; return the hidden state and its normalization."""
    name = f"layers.{layer}"
    widths = {"q": sizes.heads, "k": sizes.kv_heads, "v": sizes.kv_heads}
    parts = [
        builder.product(normed, f"{name}.{part}", sizes.hidden, count * sizes.head_size)
        for part, count in widths.items()
    ]
    caches = [f"past_key_values.{layer}.key", f"past_key_values.{layer}.value"]
    attended = builder.node(
        "GroupQueryAttention",
        [*parts, *caches, "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache"],
        [f"{name}.attention", f"present.{layer}.key", f"present.{layer}.value"],
        MICROSOFT,
        num_heads=sizes.heads,
        kv_num_heads=sizes.kv_heads,
        do_rotary=1,
    )
    output = builder.product(attended, f"{name}.output", sizes.hidden, sizes.hidden)
    hidden, normed = _add_normalization(builder, sizes, f"{name}.post", hidden, output)
    gate = builder.product(normed, f"{name}.gate", sizes.hidden, sizes.feed_forward)
    up = builder.product(normed, f"{name}.up", sizes.hidden, sizes.feed_forward)
    sigmoid = builder.node("Sigmoid", [gate], [f"{name}.sigmoid"])
    active = builder.node("Mul", [gate, sigmoid], [f"{name}.active"])
    gated = builder.node("Mul", [active, up], [f"{name}.gated"])
    down = builder.product(gated, f"{name}.down", sizes.feed_forward, sizes.hidden)
    return _add_normalization(builder, sizes, f"{name}.next", hidden, down)


def _add_normalization(builder: _Builder, sizes: DecoderSizes, name: str, hidden: str, x: str) -> tuple[str, str]:
    """Add a sum and its normalization; return both."""
    total = f"{name}.sum"
    normed = builder.node(
        "SkipSimplifiedLayerNormalization",
        [hidden, x, _scale(builder, name, sizes)],
        [f"{name}.normed", "", "", total],
        MICROSOFT,
        epsilon=1e-5,
    )
    return total, normed


def _model(builder: _Builder, sizes: DecoderSizes) -> ModelProto:
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "new"]),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"]),
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "new", sizes.vocabulary])]
    for layer in range(sizes.layers):
        for part in ("key", "value"):
            for infos, name, rows in ((inputs, "past_key_values", "past"), (outputs, "present", "total")):
                shape: list[str | int | None] = ["batch", sizes.kv_heads, rows, sizes.head_size]
                infos.append(helper.make_tensor_value_info(f"{name}.{layer}.{part}", TensorProto.FLOAT, shape))
    graph = helper.make_graph(builder.nodes, "decoder", inputs, outputs, builder.weights)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def write(folder: Path, sizes: DecoderSizes, seed: int = 0) -> None:
    """Write a folder as onnxruntime-genai does: network, weights, configuration, tokenizer.

    Args:
        folder: Created if it does not exist.
        sizes: Sizes of the model.
        seed: Seed of the weights.

    Raises:
        OSError: If a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(
        decoder(sizes, seed),
        folder / "model.onnx",
        save_as_external_data=True,
        location="model.onnx.data",
        size_threshold=1024,
    )
    decoder_settings = {
        "filename": "model.onnx",
        "head_size": sizes.head_size,
        "hidden_size": sizes.hidden,
        "num_attention_heads": sizes.heads,
        "num_hidden_layers": sizes.layers,
        "num_key_value_heads": sizes.kv_heads,
    }
    model = {
        "type": "llama",
        "context_length": sizes.context,
        "vocab_size": sizes.vocabulary,
        "eos_token_id": 0,
        "decoder": decoder_settings,
    }
    (folder / "genai_config.json").write_text(json.dumps({"model": model}, indent=2))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": _TEMPLATE}, indent=2))
    tokenizer(sizes.vocabulary).save(str(folder / "tokenizer.json"))


def tokenizer(vocabulary: int) -> Any:
    """Return a byte-level tokenizer whose tokens beyond the bytes are syllables.

    Args:
        vocabulary: Number of tokens, at least 260: the special tokens and the bytes.
    """
    import tokenizers  # noqa: PLC0415 - an extra

    characters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    names = [*_SPECIAL, *characters]
    merges: list[tuple[str, str]] = []
    letters = "aeioubcdfghklmnprstvwyz"
    ends = [f"\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}{letter}" for letter in letters]
    pairs = [("\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}", letter) for letter in letters]
    pairs += [(left, right) for left in letters for right in letters]
    syllables = [left + right for left, right in pairs[len(letters) :]]
    pairs += [(start, letter) for start in ends for letter in letters]
    pairs += [(left, right) for left in syllables for right in syllables]
    for left, right in pairs[: max(vocabulary - len(names), 0)]:
        merges.append((left, right))
    names += [left + right for left, right in merges]
    model = tokenizers.models.BPE({name: token for token, name in enumerate(dict.fromkeys(names))}, merges)
    result = tokenizers.Tokenizer(model)
    result.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    result.decoder = tokenizers.decoders.ByteLevel()
    result.add_special_tokens(list(_SPECIAL))
    return result
