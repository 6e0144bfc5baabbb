"""GGUF files of random models of transformers whose layers have states, as llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.gguf_models import ARCHES, add_experts, add_metadata, close, expert_tensors, permuted


def write_states(path: Path, model: Any, arch: str, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a model of transformers as a GGUF file with weights in float32.

    Args:
        path: The file.
        model: The model.
        arch: Architecture in the file, one of ``STATES``.
        metadata: Further metadata, without the prefix of the architecture.
    """
    writer = gguf.GGUFWriter(path, arch)
    STATES[arch](writer, model.config)
    add_metadata(writer, arch, metadata or {})
    for name, array in state_tensors(model, arch):
        writer.add_tensor(name, array)
    close(writer)


def _add_mamba2(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_context_length(2**20)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)
    _add_states(writer, config.conv_kernel, config.num_heads * config.head_dim, config.state_size, config.num_heads)
    writer.add_ssm_group_count(config.n_groups)


def _add_states(writer: gguf.GGUFWriter, taps: int, inner: int, entries: int, heads: int) -> None:
    writer.add_ssm_conv_kernel(taps)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(entries)
    writer.add_ssm_time_step_rank(heads)


def _add_attention(writer: gguf.GGUFWriter, config: Any, epsilon: float, layers: Sequence[bool]) -> None:
    """Add the sizes of a hybrid model, of whose layers some have attention."""
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv([config.num_key_value_heads if attends else 0 for attends in layers])
    writer.add_layer_norm_rms_eps(epsilon)


def _add_granite(writer: gguf.GGUFWriter, config: Any) -> None:
    _add_attention(writer, config, config.rms_norm_eps, [kind == "full_attention" for kind in config.layers_block_type])
    writer.add_feed_forward_length(config.intermediate_size)
    add_experts(writer, config)
    writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    inner = config.mamba_n_heads * config.mamba_d_head
    _add_states(writer, config.mamba_d_conv, inner, config.mamba_d_state, config.mamba_n_heads)
    writer.add_ssm_group_count(config.mamba_n_groups)
    writer.add_rope_scaling_finetuned(config.position_embedding_type == "rope")


def _add_nemotron(writer: gguf.GGUFWriter, config: Any) -> None:
    kinds = config.layers_block_type
    _add_attention(writer, config, config.layer_norm_epsilon, [kind == "full_attention" for kind in kinds])
    writer.add_feed_forward_length([config.intermediate_size if kind == "mlp" else 0 for kind in kinds])
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    inner = config.mamba_num_heads * config.mamba_head_dim
    _add_states(writer, config.conv_kernel, inner, config.ssm_state_size, config.mamba_num_heads)
    writer.add_ssm_group_count(config.n_groups)


def _add_nemotron_moe(writer: gguf.GGUFWriter, config: Any) -> None:
    _add_nemotron(writer, config)
    add_experts(writer, config)
    writer.add_expert_shared_feed_forward_length(config.moe_shared_expert_intermediate_size)
    writer.add_expert_weights_norm(config.norm_topk_prob)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def _add_falcon(writer: gguf.GGUFWriter, config: Any) -> None:
    _add_attention(writer, config, config.rms_norm_eps, [True] * config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    _add_states(writer, config.mamba_d_conv, config.mamba_d_ssm, config.mamba_d_state, config.mamba_n_heads)
    writer.add_ssm_group_count(config.mamba_n_groups)


def _add_lfm2(writer: gguf.GGUFWriter, config: Any) -> None:
    _add_attention(writer, config, config.norm_eps, [kind == "full_attention" for kind in config.layer_types])
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_shortconv_l_cache(config.conv_L_cache)


def _add_lfm2_moe(writer: gguf.GGUFWriter, config: Any) -> None:
    _add_lfm2(writer, config)
    add_experts(writer, config)
    writer.add_leading_dense_block_count(config.num_dense_layers)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


STATES: Mapping[str, Callable[[gguf.GGUFWriter, Any], None]] = {
    "mamba2": _add_mamba2,
    "granitehybrid": _add_granite,
    "nemotron_h": _add_nemotron,
    "nemotron_h_moe": _add_nemotron_moe,
    "falcon-h1": _add_falcon,
    "lfm2": _add_lfm2,
    "lfm2moe": _add_lfm2_moe,
}
"""Functions that add the sizes of models with states, by architecture."""


def state_tensors(model: Any, arch: str) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Return the tensors of a file for a model."""
    config = model.config
    names = gguf.get_tensor_name_map(ARCHES[arch], config.num_hidden_layers)
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = converted(config, arch, name, parameter.detach().numpy().astype(np.float32))
        prefix = f"blk.{'.'.join(name.split('.')[2:3])}"
        if ".experts." in name:
            yield from expert_tensors(name, array, arch=arch)
        elif "shared_mlp.input_linear" in name:
            suffix = "_shexp" if config.num_local_experts else ""
            for part, values in zip(("gate", "up"), np.split(array, 2), strict=True):
                yield f"{prefix}.ffn_{part}{suffix}.weight", values
        elif "shared_mlp.output_linear" in name and not config.num_local_experts:
            yield f"{prefix}.ffn_down.weight", array
        else:
            known = name.replace("block_sparse_moe.router", "mlp.router").replace(".dt_bias", ".dt_proj.bias")
            if arch.startswith("nemotron_h"):
                known = known.replace("model.", "backbone.")
            known = known.replace("e_score_correction_bias", "e_score_correction.bias")
            known = known.replace("expert_bias", "expert_bias.bias")
            yield names.get_name(known, try_suffixes=(".weight", ".bias")) or known, array


def converted(config: Any, arch: str, name: str, array: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a parameter as files have it."""
    if arch == "falcon-h1":
        array = multiplied(config, name, array)
    if arch == "granitehybrid" and (".q_proj." in name or ".k_proj." in name):
        heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads
        return permuted(array, heads)
    if name.endswith(("conv1d.weight", "conv.conv.weight")):
        return array[:, 0]
    if name.endswith(("A_log", ".D")):
        return (-np.exp(array) if name.endswith("A_log") else array)[:, None]
    if name.endswith(("mixer.norm.weight", "mamba.norm.weight")):
        return array.reshape(config.n_groups if hasattr(config, "n_groups") else config.mamba_n_groups, -1)
    return array


def multiplied(config: Any, name: str, array: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a tensor of Falcon-H1 with the factor that files include."""
    factors = {
        "down_proj": config.mlp_multipliers[1],
        "gate_proj": config.mlp_multipliers[0],
        "k_proj": config.key_multiplier * config.attention_in_multiplier,
        "q_proj": config.attention_in_multiplier,
        "v_proj": config.attention_in_multiplier,
        "o_proj": config.attention_out_multiplier,
        "out_proj": config.ssm_out_multiplier,
        "lm_head": config.lm_head_multiplier,
        "embed_tokens": config.embedding_multiplier,
    }
    kind = name.split(".")[-2]
    if kind == "in_proj":
        shared = config.mamba_n_groups * config.mamba_d_state
        sizes = [config.mamba_d_ssm, config.mamba_d_ssm, shared, shared, config.mamba_n_heads]
        return array * np.repeat(config.ssm_multipliers, sizes)[:, None].astype(np.float32) * config.ssm_in_multiplier
    return array * np.float32(factors.get(kind, 1))
