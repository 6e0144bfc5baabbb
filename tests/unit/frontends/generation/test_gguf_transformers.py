"""Greedy generation from GGUF files, against transformers' own models with the same random weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("gguf", reason="GGUF files need the package gguf")
torch: Any = pytest.importorskip("torch", reason="expected tokens come from transformers, which needs torch")
pytest.importorskip("transformers", reason="expected tokens come from transformers")

from gguf import quants  # noqa: E402
from gguf.constants import GGMLQuantizationType  # noqa: E402

from dmlgpu.frontends.generation import gguf  # noqa: E402
from dmlgpu.frontends.generation.generator import Generator  # noqa: E402
from dmlgpu.frontends.generation.language_model import LanguageModel  # noqa: E402
from dmlgpu.frontends.onnx.model import read  # noqa: E402
from dmlgpu.frontends.onnx.session import Session  # noqa: E402
from dmlgpu.runtime.device import as_device  # noqa: E402
from tests import gguf_states  # noqa: E402
from tests.gguf_models import write_transformers  # noqa: E402

SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "attn_implementation": "eager",
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = {"attention.sliding_window": 8}


@dataclass(frozen=True)
class Case:
    """A model of transformers, and how its file describes it.

    Attributes:
        model: Prefix of transformers' classes.
        arch: Architecture in the file.
        options: Further settings of the model.
        metadata: Further metadata of the file.
    """

    model: str
    arch: str
    options: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8}
CAPS = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
CASES = {
    "llama": Case("Llama", "llama"),
    "llama with biases": Case("Llama", "llama", {"attention_bias": True, "mlp_bias": True}),
    "mistral": Case("Mistral", "llama", {"sliding_window": 8, "head_dim": 32}, WINDOW),
    "qwen2": Case("Qwen2", "qwen2", {"tie_word_embeddings": True}),
    "qwen3": Case("Qwen3", "qwen3", {"head_dim": 32}),
    "phi3": Case("Phi3", "phi3", {"sliding_window": 8}, WINDOW),
    "gemma": Case("Gemma", "gemma", {"head_dim": 32, "num_key_value_heads": 1}),
    "gemma2": Case(
        "Gemma2", "gemma2", {**GEMMA, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}, {**WINDOW, **CAPS}
    ),
    "gemma3": Case("Gemma3Text", "gemma3", {**GEMMA, "num_hidden_layers": 6}, WINDOW),
}

EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3}
OSS_ROPE = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 10000.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
}
MIXTURES = {
    "mixtral": Case("Mixtral", "llama", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2moe": Case(
        "Qwen2Moe", "qwen2moe", {**EXPERTS, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48}
    ),
    "qwen3moe": Case(
        "Qwen3Moe", "qwen3moe", {**EXPERTS, "moe_intermediate_size": 32, "head_dim": 32, "norm_topk_prob": True}
    ),
    "olmoe": Case("Olmoe", "olmoe", EXPERTS),
    "gpt-oss": Case(
        "GptOss",
        "gpt-oss",
        {
            "num_local_experts": 8,
            "num_experts_per_tok": 3,
            "head_dim": 32,
            "sliding_window": 8,
            "rope_parameters": OSS_ROPE,
        },
        {**WINDOW, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64},
    ),
    "llama4": Case(
        "Llama4Text",
        "llama4",
        {
            "intermediate_size_mlp": 80,
            "num_hidden_layers": 4,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "interleave_moe_layer_step": 2,
            "attention_chunk_size": 8,
            "floor_scale": 16,
            "attn_scale": 0.5,
        },
        {"attention.sliding_window": 8, "attention.temperature_length": 16, "attention.temperature_scale": 0.5},
    ),
}
"""Mixtures of experts."""
GRANITE = {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2, "logits_scaling": 4.0}
SCALES = {"embedding_scale": 3.0, "residual_scale": 0.5, "attention.scale": 0.2, "logit_scale": 4.0}
VARIANTS = {
    "olmo2": Case("Olmo2", "olmo2"),
    "smollm3": Case("SmolLM3", "smollm3", {"num_hidden_layers": 4}),
    "granite": Case("Granite", "granite", GRANITE, SCALES),
    "granitemoe": Case(
        "GraniteMoe", "granitemoe", {**GRANITE, "num_local_experts": 4, "num_experts_per_tok": 2}, SCALES
    ),
}
"""Small differences: norms after layers, layers without rotary embedding, factors."""
HYBRID = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 12, "mamba_n_groups": 2, "mamba_d_conv": 4}
STATES = {
    "mamba2": Case(
        "Mamba2", "mamba2", {"num_heads": 8, "head_dim": 16, "state_size": 12, "n_groups": 2, "num_hidden_layers": 3}
    ),
    "granitehybrid": Case(
        "GraniteMoeHybrid",
        "granitehybrid",
        {
            **GRANITE,
            **HYBRID,
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 48,
        },
        SCALES,
    ),
    "granitehybrid without experts": Case(
        "GraniteMoeHybrid",
        "granitehybrid",
        {
            **HYBRID,
            "layer_types": ["full_attention", "linear_attention"],
            "position_embedding_type": "rope",
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "shared_intermediate_size": 96,
            "attention_multiplier": 0.25,
        },
    ),
    "nemotron_h": Case(
        "NemotronH",
        "nemotron_h",
        {
            "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention"],
            "head_dim": 32,
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "ssm_state_size": 12,
            "n_groups": 2,
            "time_step_min": 1e-30,  # a limit that files do not have
        },
    ),
    "nemotron_h_moe": Case(
        "NemotronH",
        "nemotron_h_moe",
        {
            "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"],
            "head_dim": 32,
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "ssm_state_size": 12,
            "n_groups": 2,
            "time_step_min": 1e-30,  # a limit that files do not have
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "moe_shared_expert_intermediate_size": 48,
            "routed_scaling_factor": 2.5,
        },
    ),
    "falcon-h1": Case(
        "FalconH1",
        "falcon-h1",
        {
            **HYBRID,
            "mamba_d_ssm": 96,
            "mamba_d_head": 12,
            "key_multiplier": 0.5,
            "lm_head_multiplier": 2.0,
            "embedding_multiplier": 3.0,
            "mlp_multipliers": [1.5, 0.75],
            "ssm_multipliers": [0.5, 1.5, 1.25, 0.75, 1.1],
            "attention_in_multiplier": 1.25,
            "attention_out_multiplier": 0.75,
            "ssm_in_multiplier": 1.5,
            "ssm_out_multiplier": 0.5,
        },
    ),
    "lfm2": Case(
        "Lfm2",
        "lfm2",
        {
            "num_hidden_layers": 3,
            "layer_types": ["conv", "full_attention", "conv"],
            "block_auto_adjust_ff_dim": False,
        },
    ),
    "lfm2moe": Case(
        "Lfm2Moe",
        "lfm2moe",
        {
            **EXPERTS,
            "num_hidden_layers": 3,
            "layer_types": ["conv", "full_attention", "conv"],
            "moe_intermediate_size": 32,
            "num_dense_layers": 1,
        },
    ),
}
"""Layers with states."""
CASES |= MIXTURES | VARIANTS | STATES
QUICK = (
    "gpt-oss",
    "granitemoe",
    "smollm3",
    "olmo2",
    "llama4",
    "nemotron_h",
    "falcon-h1",
    "granitehybrid",
    "lfm2moe",
    "nemotron_h_moe",
)
"""Cases of logits that are not marked slow."""

LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 10000.0,
}
FACTORS = [[1.0 + 0.1 * n for n in range(8)], [1.0 + 0.5 * n for n in range(8)]]
LONG = {
    "rope_type": "longrope",
    "short_factor": FACTORS[0],
    "long_factor": FACTORS[1],
    "original_max_position_embeddings": 64,
    "rope_theta": 10000.0,
}
BY_LAYER = {
    "full_attention": {**LINEAR, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
ORIGINAL = {"rope.scaling.original_context_length": 64}
ROTARIES = {
    "linear": Case(
        "Llama", "llama", {"rope_parameters": LINEAR}, {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    ),
    "yarn": Case(
        "Qwen2",
        "qwen2",
        {"rope_parameters": YARN},
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, **ORIGINAL},
    ),
    "llama3": Case("Llama", "llama", {"rope_parameters": LLAMA3}),
    "longrope": Case(
        "Phi3",
        "phi3",
        {"rope_parameters": LONG, "original_max_position_embeddings": 64},
        {**ORIGINAL, "rope.scaling.attn_factor": float(np.sqrt(1 + np.log(256 / 64) / np.log(64)))},
    ),
    "gemma3": Case(
        "Gemma3Text",
        "gemma3",
        {**GEMMA, "num_hidden_layers": 6, "rope_parameters": BY_LAYER},
        {**WINDOW, "rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    ),
    "partial": Case("Phi3", "phi3", {"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}}),
}


def model_of(case: Case) -> Any:
    """A model of transformers with random weights, larger ones than at the beginning of training."""
    transformers = transformers_package()
    torch.manual_seed(1)
    config = getattr(transformers, f"{case.model}Config")(**{**SIZES, **case.options})
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    random = np.random.default_rng(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            deviation = 0.2 if parameter.ndim == 1 else 0.02 if "embed_tokens" in name else 0.25
            parameter.add_(torch.from_numpy(deviation * random.standard_normal(parameter.shape).astype(np.float32)))
        for name, buffer in model.named_buffers():
            if name.endswith(("expert_bias", "correction_bias")):
                buffer.add_(torch.from_numpy(0.2 * random.standard_normal(buffer.shape).astype(np.float32)))
    return model


def write_case(path: Path, model: Any, case: Case) -> None:
    """Write the file of a model."""
    write = gguf_states.write_states if case.arch in gguf_states.STATES else write_transformers
    write(path, model, case.arch, case.metadata)


def transformers_package() -> Any:
    """The package transformers, without torchvision if that does not fit torch."""
    try:
        import torchvision  # type: ignore[import-untyped]  # noqa: F401
    except (ImportError, RuntimeError):
        from transformers import utils  # type: ignore[import-untyped]
        from transformers.utils import import_utils  # type: ignore[import-untyped]

        for module in (utils, import_utils):
            module.is_torchvision_available = lambda: False
    import transformers

    return transformers


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_greedy_tokens(name: str, tmp_path: Path) -> None:
    case, path = CASES[name], tmp_path / "model.gguf"
    model = model_of(case)
    write_case(path, model, case)
    prompt = np.random.default_rng(0).integers(3, 96, 20).tolist()
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=100, do_sample=False)[0, 20:].tolist()
    assert len(set(expected)) > 5
    generator = Generator.load(path, "numpy", context=128)
    assert list(generator.generate_tokens(prompt, max_tokens=100)) == expected


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in (*MIXTURES, *VARIANTS, *STATES)],
)
def test_logits(name: str, tmp_path: Path) -> None:
    """A token selects experts one by one; 40 tokens are grouped by expert."""
    case, path = CASES[name], tmp_path / "model.gguf"
    model = model_of(case)
    write_case(path, model, case)
    for count in (1, 40):
        tokens = np.random.default_rng(0).integers(3, 96, (1, count))
        with torch.no_grad():
            expected = model(torch.tensor(tokens)).logits.numpy()
        result = logits_of(gguf.read(path), tokens)
        np.testing.assert_allclose(result, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_floats_of_4_bits(tmp_path: Path) -> None:
    """Experts of GPT-OSS in MXFP4, against transformers with the weights that the package gguf dequantizes."""
    case, path = MIXTURES["gpt-oss"], tmp_path / "model.gguf"
    model, kind = model_of(case), GGMLQuantizationType.MXFP4
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("gate_up_proj", "down_proj")):  # {experts, inner, rows}
                blocks = quants.quantize(np.ascontiguousarray(parameter.numpy().swapaxes(1, 2)), kind)
                parameter.copy_(torch.from_numpy(quants.dequantize(blocks, kind)).swapaxes(1, 2))
    write_transformers(path, model, case.arch, case.metadata, experts=kind)
    (stored,) = [row for row in gguf.stored_weights(path) if row.kind == "MXFP4"]
    assert stored.device_bytes * 8 == 5 * stored.elements
    for count in (1, 40):
        tokens = np.random.default_rng(0).integers(3, 96, (1, count))
        with torch.no_grad():
            expected = model(torch.tensor(tokens)).logits.numpy()
        result = logits_of(gguf.read(path), tokens)
        np.testing.assert_allclose(result, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def logits_of(language: LanguageModel, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
    """The logits of tokens, with caches of 64 rows."""
    session = Session(read(language.network, external=language.weights), as_device("test", "numpy"))
    config = language.config
    cache = np.ones((1, config.kv_heads, 64, config.head_size), np.float32)
    inputs: dict[str, NDArray[Any]] = {
        "input_ids": tokens,
        "attention_mask": (np.arange(64) < tokens.size).astype(np.int64)[None],
        "position_ids": np.arange(tokens.size)[None],
        "past_length": np.zeros(1, np.int32),
        "new_length": np.full(1, tokens.size, np.int32),
    }
    for info in session.inputs:
        if info.name.startswith("past_"):
            inputs.setdefault(
                info.name, cache if "key_values" in info.name else np.ones((1, *info.shape[1:]), np.float32)
            )
    inputs = {info.name: inputs[info.name] for info in session.inputs}
    return session.run(inputs, ["logits"])["logits"]


@pytest.mark.parametrize("name", ROTARIES)
def test_rotary_embeddings(name: str, tmp_path: Path) -> None:
    case, path = ROTARIES[name], tmp_path / "model.gguf"
    model = model_of(case)
    tensors = {}
    if name == "llama3":
        plain = 10000.0 ** -(np.arange(8) / 8)
        tensors["rope_freqs.weight"] = (plain / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)
        assert tensors["rope_freqs.weight"].std() > 1
    if name == "longrope":
        tensors = {f"rope_factors_{kind}.weight": np.float32(FACTORS[n]) for n, kind in enumerate(("short", "long"))}
    write_transformers(path, model, case.arch, case.metadata, tensors)
    for count in (40, 120):  # factors of LongRoPE depend on the length
        language = gguf.read(path, context=64 if count < 64 else 256)
        session = Session(read(language.network, external=language.weights), as_device("test", "numpy"))
        tokens = np.random.default_rng(0).integers(3, 96, (1, count))
        with torch.no_grad():
            expected = model(torch.tensor(tokens)).logits.numpy()
        mask = (np.arange(128) < count).astype(np.int64)[None]
        caches = {info.name: np.zeros((1, 2, 128, 16), np.float32) for info in session.inputs if "past" in info.name}
        if count < 64:
            mask, caches = mask[:, :64], {cache: rows[:, :, :64] for cache, rows in caches.items()}
        result = session.run({"input_ids": tokens, "attention_mask": mask, **caches}, ["logits"])["logits"]
        np.testing.assert_allclose(result, expected, rtol=0, atol=2e-5 * np.abs(expected).max())
