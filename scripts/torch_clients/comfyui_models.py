"""Models of ComfyUI with few layers and random weights, of its own classes.

Each function returns a model, its arguments, and keyword arguments. ``comfyui_worker.py`` runs them in a process of
ComfyUI.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

Model = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]

PICTURES: list[Callable[[], Model]] = []
VIDEOS: list[Callable[[], Model]] = []
PARTS: list[Callable[[], Model]] = []

_TEXT = 48
"""Width of the text that models see, seven tokens long."""


def _in(group: list[Callable[[], Model]]) -> Callable[[Callable[[], Model]], Callable[[], Model]]:
    def add(function: Callable[[], Model]) -> Callable[[], Model]:
        group.append(function)
        return function

    return add


def _class(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"comfy.{module}"), name)


def _operations() -> Any:
    return importlib.import_module("comfy.ops").disable_weight_init


def _model(module: str, name: str, **config: Any) -> Any:
    return _class(module, name)(**config, operations=_operations())


def _random(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(1))


def _times(value: float, count: int = 1) -> torch.Tensor:
    return torch.full((count,), value)


def fill(model: torch.nn.Module) -> torch.nn.Module:
    """Give a model random weights, the same each time, that keep the magnitude of activations."""
    generator = torch.Generator().manual_seed(0)
    for name, value in model.state_dict().items():
        if not value.dtype.is_floating_point:
            continue
        random = torch.randn(value.shape, generator=generator)
        if value.dim() > 1:
            value.copy_(random / max(1, value[0].numel()) ** 0.5)
        else:  # scales of normalizations, and biases
            value.copy_(random * 0.1 + name.endswith(("weight", "scale", "gamma")))
    return model.eval()


class Calls(torch.nn.Module):
    """A model whose results are those of several of its methods.

    Args:
        model: The model.
        methods: Names of methods, each called with the argument at its place.
    """

    def __init__(self, model: torch.nn.Module, *methods: str):
        super().__init__()
        self.model, self.methods = model, methods

    def forward(self, *args: Any) -> list[Any]:
        """Call the methods."""
        return [getattr(self.model, method)(arg) for method, arg in zip(self.methods, args, strict=True)]


# ---- pictures --------------------------------------------------------------------------------------------------------


def _unet(**config: Any) -> Any:
    default = {
        "image_size": 32, "in_channels": 4, "model_channels": 64, "out_channels": 4, "num_res_blocks": [1, 1],
        "dropout": 0, "channel_mult": (1, 2), "num_head_channels": 32, "use_spatial_transformer": True,
        "transformer_depth": [0, 1], "transformer_depth_output": [0, 0, 1, 1], "transformer_depth_middle": 1,
        "context_dim": _TEXT, "use_linear_in_transformer": True, "num_classes": "sequential", "adm_in_channels": 64,
    }  # fmt: skip
    return _model("ldm.modules.diffusionmodules.openaimodel", "UNetModel", **{**default, **config})


@_in(PICTURES)
def sdxl() -> Model:
    """Return the UNet of SDXL."""
    return _unet(), (_random(2, 4, 16, 16), _times(500, 2), _random(2, 7, _TEXT)), {"y": _random(2, 64)}


@_in(PICTURES)
def controlnet() -> Model:
    """Return a ControlNet of Stable Diffusion 1.5."""
    model = _model(
        "cldm.cldm", "ControlNet", image_size=32, in_channels=4, model_channels=64, hint_channels=3,
        num_res_blocks=[1, 1], dropout=0, channel_mult=(1, 2), num_heads=4, use_spatial_transformer=True,
        transformer_depth=[1, 1], transformer_depth_middle=1, context_dim=_TEXT, use_linear_in_transformer=False,
    )  # fmt: skip
    return model, (_random(2, 4, 16, 16), _random(2, 3, 128, 128), _times(500, 2), _random(2, 7, _TEXT)), {}


@_in(PICTURES)
def sd3() -> Model:
    """Return the transformer of SD3."""
    model = _model(
        "ldm.modules.diffusionmodules.mmdit", "OpenAISignatureMMDITWrapper", input_size=None, patch_size=2,
        in_channels=16, depth=2, adm_in_channels=64, pos_embed_scaling_factor=None, pos_embed_max_size=16,
        num_patches=256, qk_norm="rms", x_block_self_attn=True, x_block_self_attn_layers=[0], context_size=_TEXT,
        context_embedder_config={
            "target": "torch.nn.Linear", "params": {"in_features": _TEXT, "out_features": 128}
        },
    )  # fmt: skip
    return model, (_random(2, 16, 8, 8), _times(0.5, 2)), {"context": _random(2, 7, _TEXT), "y": _random(2, 64)}


@_in(PICTURES)
def flux() -> Model:
    """Return Flux, which computes rotary embeddings in float64, with a reference picture."""
    model = _model(
        "ldm.flux.model", "Flux", in_channels=16, out_channels=16, vec_in_dim=64, context_in_dim=_TEXT, hidden_size=64,
        mlp_ratio=4, num_heads=2, depth=2, depth_single_blocks=2, axes_dim=[8, 12, 12], theta=10000, patch_size=2,
        qkv_bias=True, guidance_embed=True,
    )  # fmt: skip
    keywords = {"y": _random(1, 64), "guidance": _times(3.5), "ref_latents": [_random(1, 16, 4, 4)]}
    return model, (_random(1, 16, 8, 8), _times(0.5), _random(1, 7, _TEXT)), keywords


@_in(PICTURES)
def flux2() -> Model:
    """Return Flux 2."""
    model = _model(
        "ldm.flux.model", "Flux", in_channels=128, out_channels=128, vec_in_dim=None, context_in_dim=_TEXT,
        hidden_size=64, mlp_ratio=3, num_heads=2, depth=2, depth_single_blocks=2, axes_dim=[8, 8, 8, 8], theta=2000,
        patch_size=1, qkv_bias=False, guidance_embed=True, global_modulation=True, mlp_silu_act=True, ops_bias=False,
    )  # fmt: skip
    return model, (_random(1, 128, 4, 4), _times(0.5), _random(1, 7, _TEXT)), {"guidance": _times(3.5)}


@_in(PICTURES)
def chroma() -> Model:
    """Return Chroma."""
    model = _model(
        "ldm.chroma.model", "Chroma", in_channels=64, out_channels=64, context_in_dim=_TEXT, hidden_size=64,
        mlp_ratio=4, num_heads=2, depth=1, depth_single_blocks=1, axes_dim=[8, 12, 12], theta=10000, patch_size=2,
        qkv_bias=True, in_dim=64, out_dim=64, hidden_dim=64, n_layers=2,
    )  # fmt: skip
    return model, (_random(1, 16, 8, 8), _times(0.5), _random(1, 7, _TEXT), _times(0)), {}


@_in(PICTURES)
def aura() -> Model:
    """Return AuraFlow."""
    model = _model(
        "ldm.aura.mmdit", "MMDiT", in_channels=4, out_channels=4, patch_size=2, dim=512, n_layers=2, n_double_layers=1,
        n_heads=2, cond_seq_dim=_TEXT, max_seq=64,
    )  # fmt: skip
    return model, (_random(1, 4, 8, 8), _times(0.5), _random(1, 7, _TEXT)), {}


@_in(PICTURES)
def hidream() -> Model:
    """Return HiDream, a mixture of experts."""
    model = _model(
        "ldm.hidream.model", "HiDreamImageTransformer2DModel", patch_size=2, in_channels=16, out_channels=16,
        num_layers=1, num_single_layers=1, attention_head_dim=32, num_attention_heads=2, caption_channels=[_TEXT, 40],
        text_emb_dim=64, axes_dims_rope=(16, 8, 8), max_resolution=(16, 16), llama_layers=[0, 1],
    )  # fmt: skip
    arguments = _random(1, 16, 8, 8), _times(500), _random(1, 64), _random(1, 6, _TEXT), _random(1, 2, 5, 40)
    return model, arguments, {}


@_in(PICTURES)
def hunyuan_dit() -> Model:
    """Return Hunyuan-DiT."""
    model = _model(
        "ldm.hydit.models", "HunYuanDiT", input_size=16, in_channels=4, hidden_size=128, depth=2, num_heads=2,
        text_states_dim=_TEXT, text_states_dim_t5=40, text_len=7, text_len_t5=6, size_cond=True, use_style_cond=True,
    )  # fmt: skip
    keywords = {
        "text_embedding_mask": torch.ones(1, 7), "encoder_hidden_states_t5": _random(1, 6, 40),
        "text_embedding_mask_t5": torch.ones(1, 6), "image_meta_size": torch.ones(1, 6),
        "style": torch.zeros(1, dtype=torch.long),
    }  # fmt: skip
    return model, (_random(1, 4, 16, 16), _times(500), _random(1, 7, _TEXT)), keywords


@_in(PICTURES)
def z_image() -> Model:
    """Return Z-Image, of Lumina's class."""
    model = _model(
        "ldm.lumina.model", "NextDiT", patch_size=2, in_channels=16, dim=256, n_layers=2, n_refiner_layers=1, n_heads=2,
        n_kv_heads=2, multiple_of=32, ffn_dim_multiplier=8 / 3, qk_norm=True, cap_feat_dim=_TEXT,
        axes_dims=[32, 48, 48], axes_lens=[64, 32, 32], z_image_modulation=True, time_scale=1000.0,
        pad_tokens_multiple=32, rope_theta=256.0,
    )  # fmt: skip
    return model, (_random(1, 16, 8, 8), _times(0.5), _random(1, 7, _TEXT), 7), {}


@_in(PICTURES)
def qwen_image() -> Model:
    """Return Qwen-Image, with a reference picture."""
    model = _model(
        "ldm.qwen_image.model", "QwenImageTransformer2DModel", patch_size=2, in_channels=64, num_layers=2,
        attention_head_dim=32, num_attention_heads=2, joint_attention_dim=_TEXT, axes_dims_rope=(8, 12, 12),
    )  # fmt: skip
    arguments = _random(1, 16, 1, 8, 8), _times(0.5), _random(1, 7, _TEXT)
    return model, arguments, {"ref_latents": [_random(1, 16, 1, 4, 4)]}


@_in(PICTURES)
def omnigen2() -> Model:
    """Return OmniGen2."""
    model = _model(
        "ldm.omnigen.omnigen2", "OmniGen2Transformer2DModel", patch_size=2, in_channels=16, hidden_size=96,
        num_layers=2, num_refiner_layers=1, num_attention_heads=2, num_kv_heads=1, multiple_of=32,
        axes_dim_rope=(16, 16, 16), axes_lens=(64, 32, 32), text_feat_dim=_TEXT,
    )  # fmt: skip
    return model, (_random(1, 16, 8, 8), _times(0.5), _random(1, 7, _TEXT), 7), {}


@_in(PICTURES)
def cascade() -> Model:
    """Return stage C of Stable Cascade."""
    model = _model(
        "ldm.cascade.stage_c", "StageC", c_cond=64, c_hidden=[64, 64], nhead=[2, 2], blocks=[[1, 1], [1, 1]],
        c_clip_text=_TEXT, c_clip_text_pooled=40, c_clip_img=32,
    )  # fmt: skip
    arguments = _random(1, 16, 8, 8), _times(0.5), _random(1, 7, _TEXT), _random(1, 1, 40), _random(1, 1, 32)
    return model, arguments, {}


# ---- video, audio and 3D ---------------------------------------------------------------------------------------------


@_in(VIDEOS)
def svd() -> Model:
    """Return the UNet of Stable Video Diffusion."""
    model = _unet(
        use_temporal_attention=True, use_temporal_resblock=True, extra_ff_mix_layer=True,
        video_kernel_size=[3, 1, 1], merge_strategy="learned_with_images",
    )  # fmt: skip
    keywords = {"y": _random(3, 64), "num_video_frames": 3, "image_only_indicator": torch.zeros(1, 3)}
    return model, (_random(3, 4, 16, 16), _times(1, 3), _random(3, 1, _TEXT)), keywords


@_in(VIDEOS)
def wan() -> Model:
    """Return Wan, from a picture."""
    model = _model(
        "ldm.wan.model", "WanModel", model_type="i2v", in_dim=16, dim=96, ffn_dim=128, freq_dim=64, text_dim=_TEXT,
        out_dim=16, num_heads=2, num_layers=2,
    )  # fmt: skip
    arguments = _random(1, 16, 2, 8, 8), _times(500), _random(1, 7, _TEXT)
    return model, arguments, {"clip_fea": _random(1, 5, 1280)}


@_in(VIDEOS)
def ltxv() -> Model:
    """Return LTX-Video."""
    model = _model(
        "ldm.lightricks.model", "LTXVModel", in_channels=16, cross_attention_dim=64, attention_head_dim=32,
        num_attention_heads=2, caption_channels=_TEXT, num_layers=2,
    )  # fmt: skip
    return model, (_random(1, 16, 2, 4, 4), _times(0.5), _random(1, 7, _TEXT), torch.ones(1, 7)), {}


@_in(VIDEOS)
def hunyuan_video() -> Model:
    """Return HunyuanVideo."""
    model = _model(
        "ldm.hunyuan_video.model", "HunyuanVideo", in_channels=16, out_channels=16, vec_in_dim=32,
        context_in_dim=_TEXT, hidden_size=96, mlp_ratio=4.0, num_heads=3, depth=1, depth_single_blocks=1,
        axes_dim=[8, 12, 12], theta=256, patch_size=[1, 2, 2], qkv_bias=True, guidance_embed=True, byt5=False,
        meanflow=False, use_cond_type_embedding=False, vision_in_dim=None,
    )  # fmt: skip
    arguments = _random(1, 16, 2, 8, 8), _times(0.5), _random(1, 7, _TEXT)
    return model, arguments, {"y": _random(1, 32), "guidance": _times(6)}


@_in(VIDEOS)
def cosmos() -> Model:
    """Return Cosmos-Predict2."""
    model = _model(
        "ldm.cosmos.predict2", "MiniTrainDIT", max_img_h=32, max_img_w=32, max_frames=8, in_channels=16,
        out_channels=16, patch_spatial=2, patch_temporal=1, model_channels=128, num_blocks=2, num_heads=4,
        crossattn_emb_channels=_TEXT, pos_emb_cls="rope3d", use_adaln_lora=True, adaln_lora_dim=32,
    )  # fmt: skip
    arguments = _random(1, 16, 2, 8, 8), _times(0.5), _random(1, 7, _TEXT)
    return model, arguments, {"padding_mask": torch.zeros(1, 1, 8, 8)}


@_in(VIDEOS)
def ace_step() -> Model:
    """Return ACE-Step, which makes music."""
    model = _model(
        "ldm.ace.model", "ACEStepTransformer2DModel", num_layers=2, inner_dim=64, attention_head_dim=32,
        num_attention_heads=2, text_embedding_dim=_TEXT, ssl_latent_dims=[32, 32], speaker_embedding_dim=16,
    )  # fmt: skip
    keywords = {
        "context": _random(1, 7, _TEXT), "lyric_token_idx": torch.arange(6)[None], "speaker_embeds": _random(1, 16)
    }  # fmt: skip
    return model, (_random(1, 8, 16, 20), _times(0.5)), keywords


@_in(VIDEOS)
def hunyuan_3d() -> Model:
    """Return Hunyuan3D."""
    model = _model(
        "ldm.hunyuan3d.model", "Hunyuan3Dv2", in_channels=16, context_in_dim=_TEXT, hidden_size=64, num_heads=2,
        depth=1, depth_single_blocks=1,
    )  # fmt: skip
    return model, (_random(1, 16, 32), _times(0.5), _random(1, 7, _TEXT)), {}


# ---- autoencoders and encoders of text and pictures ------------------------------------------------------------------


@_in(PARTS)
def taesd() -> Model:
    """Return TAESD, of previews."""
    return Calls(_class("taesd.taesd", "TAESD")(), "decode", "encode"), (_random(1, 4, 8, 8), _random(1, 3, 32, 32)), {}


@_in(PARTS)
def wan_vae() -> Model:
    """Return the autoencoder of Wan 2.1, also Qwen-Image's."""
    model = _class("ldm.wan.vae", "WanVAE")(
        dim=16, z_dim=4, dim_mult=[1, 2], num_res_blocks=1, temperal_downsample=[True]
    )
    return Calls(model, "decode", "encode"), (_random(1, 4, 2, 8, 8), _random(1, 3, 5, 16, 16)), {}


@_in(PARTS)
def wan22_vae() -> Model:
    """Return the autoencoder of Wan 2.2."""
    model = _class("ldm.wan.vae2_2", "WanVAE")(
        dim=16, dec_dim=16, z_dim=48, dim_mult=[1, 2, 4, 4], num_res_blocks=2, temperal_downsample=[False, True, True]
    )
    return Calls(model, "decode"), (_random(1, 48, 2, 4, 4),), {}


@_in(PARTS)
def audio_vae() -> Model:
    """Return the autoencoder of Stable Audio; its encoder without the draw."""
    model = _class("ldm.audio.autoencoder", "AudioOobleckVAE")(channels=8, latent_dim=4, c_mults=[1, 2], strides=[2, 4])
    return Calls(model, "decode", "encoder"), (_random(1, 4, 16), _random(1, 2, 128)), {}


@_in(PARTS)
def clip_vision() -> Model:
    """Return CLIP's encoder of pictures."""
    config = {
        "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128,
        "hidden_act": "gelu", "image_size": 28, "patch_size": 14, "num_channels": 3, "projection_dim": 32,
        "model_type": "clip_vision_model",
    }  # fmt: skip
    model = _class("clip_model", "CLIPVisionModelProjection")(config, torch.float32, "cpu", _operations())
    return model, (_random(1, 3, 28, 28),), {"intermediate_output": -2}


@_in(PARTS)
def t5() -> Model:
    """Return the text encoder T5."""
    config = {
        "d_ff": 128, "d_kv": 32, "d_model": 64, "dense_act_fn": "gelu_pytorch_tanh", "is_gated_act": True,
        "num_heads": 2, "num_layers": 2, "vocab_size": 100, "model_type": "t5",
    }  # fmt: skip
    model = _class("text_encoders.t5", "T5")(config, torch.float32, "cpu", _operations())
    return model, (torch.arange(9)[None],), {"attention_mask": torch.ones(1, 9)}


@_in(PARTS)
def qwen_vl() -> Model:
    """Return the vision encoder of Qwen2.5-VL."""
    model = _class("text_encoders.qwen_vl", "Qwen2VLVisionTransformer")(
        hidden_size=64, output_hidden_size=_TEXT, intermediate_size=128, num_heads=2, num_layers=2, device="cpu",
        dtype=torch.float32, ops=_operations(),
    )  # fmt: skip
    return model, (_random(64, 3 * 2 * 14 * 14),), {"image_grid_thw": torch.tensor([[1, 8, 8]])}
