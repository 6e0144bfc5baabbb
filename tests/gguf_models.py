"""Tiny GGUF files for tests: those of random models of transformers, and of random blocks of every quantization."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, MODEL_ARCH_NAMES, GGMLQuantizationType
from numpy.typing import NDArray
from onnx import TensorProto

from dmlgpu.frontends.generation.language_model import LanguageModel

ARCHES = {name: arch for arch, name in MODEL_ARCH_NAMES.items()}
HALVES = {
    GGMLQuantizationType.Q4_1: (0, 2),
    GGMLQuantizationType.Q5_1: (0, 2),
    GGMLQuantizationType.Q4_K: (0, 2),
    GGMLQuantizationType.Q5_K: (0, 2),
    GGMLQuantizationType.Q6_K: (208,),
    GGMLQuantizationType.Q2_K: (80, 82),
    GGMLQuantizationType.Q3_K: (108,),
    GGMLQuantizationType.TQ1_0: (52,),
    GGMLQuantizationType.TQ2_0: (64,),
    GGMLQuantizationType.IQ1_M: (),
    GGMLQuantizationType.MXFP4: (),
    GGMLQuantizationType.NVFP4: (),
    GGMLQuantizationType.Q8_K: (),
}
"""Bytes of the float16 numbers of a block; 0 for other quantizations."""


ADJACENT = ("llama", "granite", "granitemoe", "smollm3")
"""Architectures whose rotary embeddings rotate adjacent elements in files."""


def random_blocks(kind: GGMLQuantizationType, rows: int, inner: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return random blocks {rows, bytes}, whose float16 numbers are positive and small."""
    random = np.random.default_rng(seed)
    elements, size = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows, inner // elements, size), dtype=np.uint8)
    for at in HALVES.get(kind, (0,)):
        halves = random.uniform(0.5, 1, (rows, inner // elements, 1)).astype(np.float16)
        blocks[..., at : at + 2] = halves.view(np.uint8)
    if kind is GGMLQuantizationType.IQ1_M:  # the halves of a byte of the scale's float16 are in four words
        blocks[..., 49::2] = blocks[..., 49::2] & 15 | np.array([0x00, 0x70, 0xA0, 0x30], np.uint8)
    if kind is GGMLQuantizationType.MXFP4:
        blocks[..., 0] = random.integers(118, 130, blocks.shape[:-1])
    if kind is GGMLQuantizationType.Q8_K:
        scales = random.uniform(0.5, 1, (*blocks.shape[:-1], 1)).astype(np.float32)
        blocks[..., :4] = scales.view(np.uint8)
    return blocks.reshape(rows, -1)


def permuted(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    """Return rows of queries or keys in the order of files of Llama: pairs of the rotary embedding are adjacent."""
    halves = weight.reshape(heads, 2, -1, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)


def write_transformers(
    path: Path,
    model: Any,
    arch: str,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, NDArray[np.float32]] | None = None,
    *,
    experts: GGMLQuantizationType = GGMLQuantizationType.F32,
) -> None:
    """Write a model of transformers as a GGUF file with weights in float32, as llama.cpp's converter does.

    Args:
        path: The file.
        model: The model.
        arch: Architecture in the file.
        metadata: Further metadata, without the prefix of the architecture.
        tensors: Further tensors.
        experts: Quantization of the matrices of experts.
    """
    config = model.config
    writer = gguf.GGUFWriter(path, arch)
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(getattr(config, "intermediate_size_mlp", config.intermediate_size))
    add_experts(writer, config)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    writer.add_rope_dimension_count(int(head_size * rope.get("partial_rotary_factor", 1)))
    add_metadata(writer, arch, metadata or {})
    for name, array in (tensors or {}).items():
        writer.add_tensor(name, array)
    names = gguf.get_tensor_name_map(ARCHES[arch], config.num_hidden_layers)
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = parameter.detach().numpy().astype(np.float32)
        if arch in ADJACENT and ".q_proj." in name:
            array = permuted(array, config.num_attention_heads)
        if arch in ADJACENT and ".k_proj." in name:
            array = permuted(array, config.num_key_value_heads)
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            array = array + 1
        if ".experts." in name or name.endswith("sinks"):
            for tensor, part in expert_tensors(name, array, arch=arch):
                if experts is not GGMLQuantizationType.F32 and tensor.endswith("_exps.weight"):
                    writer.add_tensor(tensor, gguf.quants.quantize(part, experts), raw_dtype=experts)
                else:
                    writer.add_tensor(tensor, part)
            continue
        if name.endswith("shared_expert_gate.weight"):
            array = array[0]
        known = name.replace("block_sparse_moe.router", "mlp.router")  # the converter renames that of Granite
        writer.add_tensor(names.get_name(known, try_suffixes=(".weight", ".bias")), array)
    close(writer)


def add_metadata(writer: gguf.GGUFWriter, arch: str, metadata: Mapping[str, Any]) -> None:
    """Add metadata, whose names lack the prefix of the architecture."""
    add = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32, list: writer.add_array}
    for key, value in metadata.items():
        add[type(value)](f"{arch}.{key}", value)


def add_experts(writer: gguf.GGUFWriter, config: Any) -> None:
    """Add the metadata of a mixture of experts, if a configuration describes one."""
    count = getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None)
    if count:
        writer.add_expert_count(count)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if hasattr(config, "intermediate_size_mlp"):  # experts and other perceptrons have names of their own in Llama 4
        writer.add_expert_feed_forward_length(config.intermediate_size)
    for name, add in (
        ("moe_intermediate_size", writer.add_expert_feed_forward_length),
        ("shared_expert_intermediate_size", writer.add_expert_shared_feed_forward_length),
    ):
        if getattr(config, name, None):
            add(getattr(config, name))


def expert_tensors(name: str, array: NDArray[np.float32], *, arch: str) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Return tensors of a file for the experts' matrices and biases, or the sinks, of a layer.

    Args:
        name: Name in transformers.
        array: Elements.
        arch: Architecture. Matrices of GPT-OSS and Llama 4 are transposed; in those of GPT-OSS, rows of gates and of
            the other factors alternate.
    """
    prefix, last = f"blk.{name.split('.')[2]}", name.rpartition(".")[2]
    if last == "sinks":
        yield f"{prefix}.attn_sinks.weight", array
        return
    kind = "bias" if last.endswith("_bias") else "weight"
    if arch in ("gpt-oss", "llama4") and kind == "weight":
        array = np.ascontiguousarray(array.swapaxes(1, 2))
    if last.startswith("down"):
        yield f"{prefix}.ffn_down_exps.{kind}", array
        return
    if last == "up_proj":
        yield f"{prefix}.ffn_up_exps.{kind}", array
        return
    half = array.shape[1] // 2
    parts = (array[:, ::2], array[:, 1::2]) if arch == "gpt-oss" else (array[:, :half], array[:, half:])
    for part, values in zip(("gate", "up"), parts, strict=True):
        yield f"{prefix}.ffn_{part}_exps.{kind}", np.ascontiguousarray(values)


def write_quantized(
    path: Path,
    arch: str,
    kinds: Mapping[str, GGMLQuantizationType],
    *,
    layers: int = 2,
    tied: bool = False,
    context: int = 64,
    tokens: int = 48,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a model with random weights: hidden size 256, heads of 64, an inner size of 256.

    Args:
        path: The file.
        arch: Its architecture.
        kinds: Quantization of matrices by the last part of their name (``attn_q``); F32 for others.
        layers: Number of layers.
        tied: Whether logits come from the embeddings.
        context: Number of positions.
        tokens: Size of the vocabulary.
        metadata: Further metadata, without the prefix of the architecture.
    """
    hidden, inner, heads, shared, size = 256, 256, 4, 2, 64
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(context)
    writer.add_block_count(layers)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(shared)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_layer_norm_rms_eps(1e-5)
    add_metadata(writer, arch, metadata or {})
    random = np.random.default_rng(5)

    def matrix(name: str, rows: int, columns: int) -> None:
        kind = kinds.get(name.split(".")[-2], GGMLQuantizationType.F32)
        values = random.standard_normal((rows, columns), np.float32) * np.float32(1.5 / columns**0.5)
        if kind in (GGMLQuantizationType.F32, GGMLQuantizationType.F16):
            writer.add_tensor(name, values.astype(np.float16 if kind is GGMLQuantizationType.F16 else np.float32))
        elif kind.name.endswith("_K") or kind.name.startswith("IQ"):
            writer.add_tensor(name, scaled_blocks(kind, rows, columns, len(name)), raw_dtype=kind)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def vector(name: str, count: int, middle: float = 1.0) -> None:
        writer.add_tensor(name, (middle + 0.2 * random.standard_normal(count)).astype(np.float32))

    matrix("token_embd.weight", tokens, hidden)
    vector("output_norm.weight", hidden)
    if not tied:
        matrix("output.weight", tokens, hidden)
    for layer in range(layers):
        prefix = f"blk.{layer}"
        widths = {"q": heads * size, "k": shared * size, "v": shared * size}
        if arch == "phi3":
            matrix(f"{prefix}.attn_qkv.weight", sum(widths.values()), hidden)
        for part, width in widths.items() if arch != "phi3" else ():
            matrix(f"{prefix}.attn_{part}.weight", width, hidden)
            if arch == "qwen2":
                vector(f"{prefix}.attn_{part}.bias", width, 0)
        matrix(f"{prefix}.attn_output.weight", hidden, heads * size)
        if arch != "phi3":
            matrix(f"{prefix}.ffn_gate.weight", inner, hidden)
        matrix(f"{prefix}.ffn_up.weight", (2 if arch == "phi3" else 1) * inner, hidden)
        matrix(f"{prefix}.ffn_down.weight", hidden, inner)
        for name in ("attn_norm", "ffn_norm"):
            vector(f"{prefix}.{name}.weight", hidden)
        for name in ("post_attention_norm", "post_ffw_norm") if arch in ("gemma2", "gemma3") else ():
            vector(f"{prefix}.{name}.weight", hidden)
        for name in ("attn_q_norm", "attn_k_norm") if arch in ("qwen3", "gemma3") else ():
            vector(f"{prefix}.{name}.weight", size)
    close(writer)


def scaled_blocks(kind: GGMLQuantizationType, rows: int, columns: int, seed: int) -> NDArray[np.uint8]:
    """Return random blocks of a K or IQ quantization whose elements have the deviation of a matrix's."""
    blocks = random_blocks(kind, rows, columns, seed)
    halves = blocks.reshape(rows, -1, GGML_QUANT_SIZES[kind][1])
    factor = np.float16(1 / (columns**0.5 * gguf.quants.dequantize(blocks, kind).std()))
    for at in HALVES.get(kind, (0,)):
        half = np.ascontiguousarray(halves[..., at : at + 2]).view(np.float16) * factor
        halves[..., at : at + 2] = half.view(np.uint8)
    return blocks


class NumpyDecoder:
    """A decoder on the weights that the package gguf dequantizes, without a cache.

    Args:
        path: The file.
        block: Elements of a head that share a scale if keys and values are rounded to 8 bits; None if they are not.
    """

    def __init__(self, path: Path, block: int | None = None):
        self.block = block
        reader = gguf.GGUFReader(path)
        self.metadata = {name: field.contents() for name, field in reader.fields.items()}
        self.arch = self.metadata["general.architecture"]
        self.weights = {
            tensor.name: np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type)).astype(np.float64)
            for tensor in reader.tensors
        }

    def logits(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the logits {tokens, vocabulary} of a sequence."""
        is_gemma, count = self.arch.startswith("gemma"), self.metadata[f"{self.arch}.block_count"]
        embeddings = self.weights["token_embd.weight"]
        x = embeddings[tokens] * (embeddings.shape[1] ** 0.5 if is_gemma else 1)
        for layer in range(count):
            part = self.attention(layer, self.norm(x, f"blk.{layer}.attn_norm"))
            x = x + self.norm(part, f"blk.{layer}.post_attention_norm")
            normed = self.norm(x, f"blk.{layer}.ffn_norm")
            gate, up = self.gate_and_up(layer, normed)
            if is_gemma:
                active = 0.5 * gate * (1 + np.tanh((2 / np.pi) ** 0.5 * (gate + 0.044715 * gate**3)))
            else:
                active = gate / (1 + np.exp(-gate))
            part = self.product(active * up, f"blk.{layer}.ffn_down")
            x = x + self.norm(part, f"blk.{layer}.post_ffw_norm")
        x = self.norm(x, "output_norm")
        scores = self.product(x, "output" if "output.weight" in self.weights else "token_embd")
        return 30 * np.tanh(scores / 30) if self.arch == "gemma2" else scores

    def product(self, x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        """Multiply by a matrix, and add its bias."""
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)

    def norm(self, x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        """Normalize rows if there is a weight for it."""
        weight = self.weights.get(f"{name}.weight")
        return x if weight is None else x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight

    def gate_and_up(self, layer: int, x: NDArray[np.float64]) -> Sequence[NDArray[np.float64]]:
        """Return both factors of the gated product."""
        if self.arch == "phi3":
            return np.split(self.product(x, f"blk.{layer}.ffn_up"), 2, axis=-1)
        return [self.product(x, f"blk.{layer}.ffn_{part}") for part in ("gate", "up")]

    def attention(self, layer: int, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return causal attention of a layer."""
        heads, shared = (self.metadata[f"{self.arch}.attention.head_count{suffix}"] for suffix in ("", "_kv"))
        size, prefix = self.metadata[f"{self.arch}.attention.key_length"], f"blk.{layer}.attn"
        if self.arch == "phi3":
            parts = np.split(self.product(x, f"{prefix}_qkv"), [heads * size, (heads + shared) * size], axis=-1)
        else:
            parts = [self.product(x, f"{prefix}_{part}") for part in "qkv"]
        q, k, v = (part.reshape(len(x), -1, size) for part in parts)
        q, k = self.norm(q, f"{prefix}_q_norm"), self.norm(k, f"{prefix}_k_norm")
        window = self.metadata.get(f"{self.arch}.attention.sliding_window", 0)
        is_local = window and (layer + 1) % {"gemma2": 2, "gemma3": 6}.get(self.arch, layer + 2)
        base = self.metadata.get(f"{self.arch}.rope.freq_base", 10000.0)
        base = 10000.0 if self.arch == "gemma3" and is_local else base
        q, k = self.rotated(q, base), self.rotated(k, base)
        k, v = self.stored(k), self.stored(v)
        k, v = (np.repeat(part, heads // shared, axis=1) for part in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / size**0.5
        if self.arch == "gemma2":
            scores = 50 * np.tanh(scores / 50)
        behind = np.arange(len(x))[:, None] - np.arange(len(x))
        seen = (behind >= 0) & (behind < window if is_local else True)
        scores = np.exp(np.where(seen, scores, -np.inf) - scores.max(-1, keepdims=True))
        weights = scores / scores.sum(-1, keepdims=True)
        return self.product(np.einsum("hqk,khd->qhd", weights, v).reshape(len(x), -1), f"{prefix}_output")

    def stored(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return keys or values {tokens, heads, size} as a cache holds them."""
        if self.block is None:
            return x
        blocks = x.reshape(*x.shape[:2], -1, self.block)
        scale = np.abs(blocks).max(-1, keepdims=True) / 127
        return (np.rint(blocks / scale) * scale).reshape(x.shape)

    def rotated(self, x: NDArray[np.float64], base: float) -> NDArray[np.float64]:
        """Rotate pairs of elements of heads."""
        pairs = x.shape[-1] // 2
        angles = np.arange(len(x))[:, None, None] * base ** -(np.arange(pairs) / pairs)
        adjacent = self.arch == "llama"
        first, second = (x[..., ::2], x[..., 1::2]) if adjacent else (x[..., :pairs], x[..., pairs:])
        both = first * np.cos(angles) - second * np.sin(angles), first * np.sin(angles) + second * np.cos(angles)
        return np.stack(both, -1).reshape(x.shape) if adjacent else np.concatenate(both, -1)


def network_inputs(model: LanguageModel, tokens: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Inputs of a network for a prompt."""
    config, rows = model.config, 32
    element = model.network.graph.input[2].type.tensor_type.elem_type  # type: ignore[union-attr]
    dtype = np.float16 if element == TensorProto.FLOAT16 else np.float32
    mask = (np.arange(rows) < len(tokens)).astype(np.int64)[None]
    cache = np.zeros((1, config.kv_heads, rows, config.head_size), dtype)
    caches = {f"past_key_values.{n}.{part}": cache for n in range(config.layers) for part in ("key", "value")}
    return {"input_ids": tokens[None], "attention_mask": mask, **caches}


def close(writer: gguf.GGUFWriter) -> None:
    """Write a file and close it."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
