"""Rows of transformers: decoders, and models of speech, pictures and text, with random weights."""

from __future__ import annotations

import functools
from typing import Any

from torch_clients.rows import row

TRANSFORMERS = "transformers"

_SIZES = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 95,
}  # fmt: skip

_EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}

DECODERS: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Mistral": {},
    "Qwen3": {"head_dim": 8},
    "Gemma3Text": {"head_dim": 8, "sliding_window": 8},
    "Phi3": {},
    "SmolLM3": {},
    "Olmo2": {},
    "Mixtral": _EXPERTS,
    "GptOss": {**_EXPERTS, "head_dim": 8},
    "Qwen3Moe": {**_EXPERTS, "head_dim": 8},
    "DeepseekV3": {
        "q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
        "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "first_k_dense_replace": 1, "num_key_value_heads": 4,
    },
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "Mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1, "state_size": 8, "chunk_size": 8},
    "Llama4Text": {**_EXPERTS, "head_dim": 8, "intermediate_size_mlp": 32},
}  # fmt: skip
"""Options of configurations besides the sizes, by architecture."""


def language_model(name: str) -> Any:
    """Return a decoder with random weights, on the CPU."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    config = getattr(transformers, f"{name}Config")(**{**_SIZES, **DECODERS[name]})
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def tokens(rows: int = 2, length: int = 7) -> Any:
    """Return token ids on the CPU."""
    import torch  # noqa: PLC0415

    return torch.randint(2, 90, (rows, length), generator=torch.Generator().manual_seed(1))


def _padded(device: str) -> dict[str, Any]:
    import torch  # noqa: PLC0415

    ids, mask = tokens(), torch.ones(2, 7, dtype=torch.int64)
    ids[0, :2] = mask[0, :2] = 0
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}


def _decode(device: str, *, name: str) -> Any:
    import torch  # noqa: PLC0415

    model, inputs = language_model(name).to(device), _padded(device)
    with torch.no_grad():
        logits = model(**inputs).logits[inputs["attention_mask"].bool()]
        return logits, model.generate(**inputs, max_new_tokens=5, do_sample=False)


for _name in DECODERS:
    row(TRANSFORMERS, f"{_name}: logits, and greedy generation with a cache and left padding", TRANSFORMERS)(
        functools.partial(_decode, name=_name)
    )


@row(TRANSFORMERS, "generate: beams, penalties, static cache", TRANSFORMERS)
def generation(device: str) -> Any:
    """Generate in three ways."""
    model, inputs = language_model("Llama").to(device), _padded(device)
    ways: tuple[dict[str, Any], ...] = (
        {"num_beams": 3},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
        {"cache_implementation": "static"},
    )
    return [model.generate(**inputs, max_new_tokens=4, do_sample=False, **way) for way in ways]


@row(TRANSFORMERS, "generate: sampling twice with one seed", TRANSFORMERS)
def sampling(device: str) -> Any:
    """Return whether both outputs are equal."""
    import torch  # noqa: PLC0415

    model, inputs = language_model("Llama").to(device), _padded(device)
    outputs = []
    for _ in range(2):
        torch.manual_seed(3)
        outputs.append(model.generate(**inputs, max_new_tokens=5, do_sample=True, top_k=20, top_p=0.9).tolist())
    return outputs[0] == outputs[1]


def _in_dtype(device: str, *, dtype: str) -> Any:
    import torch  # noqa: PLC0415

    model = language_model("Llama").to(getattr(torch, dtype) if device != "cpu" else torch.float32).to(device)
    with torch.no_grad():
        return model(tokens().to(device)).logits.float()


for _dtype in ("float16", "bfloat16"):
    row(TRANSFORMERS, f"Llama in {_dtype}", TRANSFORMERS, tolerance=2e-2)(functools.partial(_in_dtype, dtype=_dtype))


def _run(device: str, model: Any, **inputs: Any) -> Any:
    """Return the first result of a model."""
    import torch  # noqa: PLC0415

    with torch.no_grad():
        return model.eval().to(device)(**{name: x.to(device) for name, x in inputs.items()})[0]


@row(TRANSFORMERS, "Whisper: generation", TRANSFORMERS)
def whisper(device: str) -> Any:
    """Transcribe features."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    config = transformers.WhisperConfig(
        vocab_size=96, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=50,
        max_target_positions=20, num_mel_bins=8, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, begin_suppress_tokens=None, suppress_tokens=None,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval().to(device)
    features = torch.randn(1, 8, 100).to(device)
    return model.generate(features, max_new_tokens=5, do_sample=False)


@row(TRANSFORMERS, "WhisperFeatureExtractor on the device", TRANSFORMERS, tolerance=1e-3)
def whisper_features(device: str) -> Any:
    """Compute a spectrogram."""
    import numpy as np  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    sound = np.random.default_rng(0).standard_normal(16000).astype(np.float32)
    extractor = transformers.WhisperFeatureExtractor()
    return extractor(sound, sampling_rate=16000, return_tensors="pt", device=device)["input_features"]


@row(TRANSFORMERS, "T5: generation", TRANSFORMERS)
def t5(device: str) -> Any:
    """Translate."""
    import transformers  # noqa: PLC0415

    config = transformers.T5Config(
        vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(config).eval().to(device)
    return model.generate(tokens().to(device), max_new_tokens=5, do_sample=False)


_ENCODER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_PICTURE = {**_ENCODER, "image_size": 16, "patch_size": 8}


@row(TRANSFORMERS, "CLIP: text and picture", TRANSFORMERS)
def clip(device: str) -> Any:
    """Compare sentences and pictures."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    text = {**_ENCODER, "vocab_size": 96, "eos_token_id": 95, "pad_token_id": 0, "bos_token_id": 1}
    model = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=_PICTURE, projection_dim=16))
    return _run(device, model, input_ids=tokens(), pixel_values=torch.randn(3, 3, 16, 16))


def _encode(device: str, *, name: str, options: dict[str, Any]) -> Any:
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    config = getattr(transformers, f"{name}Config")(**options)
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config)
    inputs = {"pixel_values": torch.randn(2, 3, 16, 16)} if "image_size" in options else {"input_ids": tokens()}
    return _run(device, model, **inputs)


_TEXT = {**_ENCODER, "vocab_size": 96, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 95}

for _name, _options in {
    "ViT": _PICTURE,
    "Dinov2": _PICTURE,
    "Bert": _TEXT,
    "ModernBert": {**_TEXT, "cls_token_id": 1, "sep_token_id": 2, "local_attention": 4},
}.items():
    row(TRANSFORMERS, _name, TRANSFORMERS)(functools.partial(_encode, name=_name, options=_options))


@row(TRANSFORMERS, "DETR", TRANSFORMERS, tolerance=1e-3)
def detr(device: str) -> Any:
    """Detect objects, with a ResNet."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    config = transformers.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, d_model=32,
        encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
        decoder_ffn_dim=64, num_queries=5,
    )  # fmt: skip
    return _run(device, transformers.DetrForObjectDetection(config), pixel_values=torch.randn(1, 3, 32, 32))


@row(TRANSFORMERS, "wav2vec2 with CTC, backward", TRANSFORMERS, tolerance=1e-3)
def wav2vec2(device: str) -> Any:
    """Return the loss and the norm of a gradient."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    config = transformers.Wav2Vec2Config(
        **_ENCODER, vocab_size=32, conv_dim=(16, 16), conv_stride=(5, 4), conv_kernel=(10, 4),
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, num_feat_extract_layers=2, hidden_dropout=0.0,
        attention_dropout=0.0, activation_dropout=0.0, feat_proj_dropout=0.0, layerdrop=0.0, mask_time_prob=0.0,
        final_dropout=0.0, ctc_loss_reduction="mean",
    )  # fmt: skip
    model = transformers.Wav2Vec2ForCTC(config).to(device).train()
    loss = model(torch.randn(2, 800).to(device), labels=torch.randint(1, 30, (2, 4)).to(device)).loss
    loss.backward()
    return loss, model.lm_head.weight.grad.norm()


@row(TRANSFORMERS, "Qwen2.5-VL: pictures", TRANSFORMERS, tolerance=1e-3)
def qwen_pictures(device: str) -> Any:
    """Encode the patches of a picture."""
    import torch  # noqa: PLC0415
    from transformers.models.qwen2_5_vl import configuration_qwen2_5_vl, modeling_qwen2_5_vl  # noqa: PLC0415

    config = configuration_qwen2_5_vl.Qwen2_5_VLVisionConfig(
        depth=2, hidden_size=32, intermediate_size=64, num_heads=4, out_hidden_size=32, fullatt_block_indexes=[1],
        patch_size=4, window_size=16,
    )  # fmt: skip
    model = modeling_qwen2_5_vl.Qwen2_5_VisionTransformerPretrainedModel(config).eval().to(device)
    patches, grid = torch.randn(64, 3 * 2 * 4 * 4), torch.tensor([[1, 8, 8]])
    with torch.no_grad():
        result = model(patches.to(device), grid_thw=grid.to(device))
    return result if isinstance(result, torch.Tensor) else result[0]
