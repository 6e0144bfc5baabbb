"""Tiny GGUF files for tests: those of random models of transformers, and of random blocks of every quantization."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, MODEL_ARCH, MODEL_ARCH_NAMES, GGMLQuantizationType
from numpy.typing import NDArray

ARCHES = {name: arch for arch, name in MODEL_ARCH_NAMES.items()}
HALVES = {
    GGMLQuantizationType.Q4_1: (0, 2),
    GGMLQuantizationType.Q5_1: (0, 2),
    GGMLQuantizationType.Q4_K: (0, 2),
    GGMLQuantizationType.Q5_K: (0, 2),
    GGMLQuantizationType.Q6_K: (208,),
    GGMLQuantizationType.Q2_K: (80, 82),
    GGMLQuantizationType.Q3_K: (108,),
}
"""Bytes of the float16 numbers of a block; 0 for other quantizations."""


def random_blocks(kind: GGMLQuantizationType, rows: int, inner: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return random blocks {rows, bytes}, whose float16 numbers are positive and small."""
    random = np.random.default_rng(seed)
    elements, size = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows, inner // elements, size), dtype=np.uint8)
    for at in HALVES.get(kind, (0,)):
        halves = random.uniform(0.5, 1, (rows, inner // elements, 1)).astype(np.float16)
        blocks[..., at : at + 2] = halves.view(np.uint8)
    return blocks.reshape(rows, -1)


def permuted(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    """Return rows of queries or keys in the order of files of Llama: pairs of the rotary embedding are adjacent."""
    halves = weight.reshape(heads, 2, -1, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)


def write_transformers(path: Path, model: Any, arch: str, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a model of transformers as a GGUF file with weights in float32, as llama.cpp's converter does.

    Args:
        path: The file.
        model: The model.
        arch: Architecture in the file.
        metadata: Further metadata, without the prefix of the architecture.
    """
    config = model.config
    writer = gguf.GGUFWriter(path, arch)
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    writer.add_rope_dimension_count(int(head_size * rope.get("partial_rotary_factor", 1)))
    for key, value in (metadata or {}).items():
        add = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32, list: writer.add_array}
        add[type(value)](f"{arch}.{key}", value)
    names = gguf.get_tensor_name_map(ARCHES[arch], config.num_hidden_layers)
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = parameter.detach().numpy().astype(np.float32)
        if arch == "llama" and ".q_proj." in name:
            array = permuted(array, config.num_attention_heads)
        if arch == "llama" and ".k_proj." in name:
            array = permuted(array, config.num_key_value_heads)
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            array = array + 1
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), array)
    _close(writer)


def _close(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
