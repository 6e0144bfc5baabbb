"""Run a part of ComfyUI, in the folder of its clone, with random weights.

Started by ``with_comfyui.py`` with ComfyUI's own options. COMFYUI_PART names a function of ``_PARTS``, whose tensors
are written to the file COMFYUI_RESULTS. Checkpoints have the format of Stable Diffusion 1.5: the UNet has 320 channels
and one resolution, text encoder and VAE their usual layers.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

SAMPLERS = (
    ("euler", "normal"), ("euler_ancestral", "normal"), ("lcm", "normal"), ("dpmpp_2m", "karras"),
    ("dpmpp_2m_sde", "karras"),
)  # fmt: skip


def checkpoint() -> dict[str, Any]:
    """Return float16 weights by their names in checkpoints."""
    import comfy.ops  # noqa: PLC0415
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415
    from comfy.ldm.models.autoencoder import AutoencoderKL  # noqa: PLC0415
    from comfy.ldm.modules.diffusionmodules.openaimodel import UNetModel  # noqa: PLC0415

    torch.manual_seed(0)
    unet = UNetModel(
        image_size=32, in_channels=4, model_channels=320, out_channels=4, num_res_blocks=[1], dropout=0,
        channel_mult=(1,), num_heads=8, use_spatial_transformer=True, transformer_depth=[1],
        transformer_depth_output=[1, 1], transformer_depth_middle=1, context_dim=768, use_linear_in_transformer=False,
        operations=comfy.ops.disable_weight_init,
    )  # fmt: skip
    vae = AutoencoderKL(
        ddconfig={
            "double_z": True, "z_channels": 4, "resolution": 256, "in_channels": 3, "out_ch": 3, "ch": 128,
            "ch_mult": [1, 2, 4, 4], "num_res_blocks": 2, "attn_resolutions": [], "dropout": 0.0,
        },
        embed_dim=4,
    )  # fmt: skip
    text = transformers.CLIPTextModel(
        transformers.CLIPTextConfig(
            hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12
        )
    )
    prefixes = {
        "model.diffusion_model.": unet,
        "first_stage_model.": vae,
        "cond_stage_model.transformer.text_model.": text,
    }
    weights = {}
    for prefix, model in prefixes.items():
        for name, value in model.state_dict().items():
            if not value.dtype.is_floating_point:
                continue
            key = prefix + name.removeprefix("text_model.")
            random = torch.randn(value.shape)
            if value.dim() > 1:
                random /= value[0].numel() ** 0.5
            else:  # scales of normalizations, and biases
                random = random * 0.02 + name.endswith("weight")
            weights[key] = random.half()
    return weights


def lora(weights: dict[str, Any]) -> dict[str, Any]:
    """Return float16 weights of a LoRA of attention and feed-forward layers of the UNet."""
    import torch  # noqa: PLC0415

    prefix, result = "model.diffusion_model.", {}
    for name, weight in weights.items():
        if name.startswith(prefix) and name.endswith(("attn2.to_k.weight", "attn2.to_out.0.weight", "ff.net.2.weight")):
            key = "lora_unet_" + name.removeprefix(prefix).removesuffix(".weight").replace(".", "_")
            result[f"{key}.lora_down.weight"] = torch.randn(4, weight.shape[1]).half() / weight.shape[1] ** 0.5
            result[f"{key}.lora_up.weight"] = torch.randn(weight.shape[0], 4).half() / 2
            result[f"{key}.alpha"] = torch.tensor(4.0)
    return result


def _load(weights: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return model, text encoder and VAE of a checkpoint."""
    import comfy.sd  # noqa: PLC0415
    from safetensors.torch import save_file  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        save_file(weights, f"{folder}/model.safetensors")
        model, clip, vae, _ = comfy.sd.load_checkpoint_guess_config(f"{folder}/model.safetensors")
    return model, clip, vae


def _texts(clip: Any) -> tuple[Any, Any]:
    import nodes  # noqa: PLC0415

    (positive,), (negative,) = (nodes.CLIPTextEncode().encode(clip, text) for text in ("a (red:1.3) cat", ""))
    return positive, negative


def samplers() -> list[Any]:
    """Sample by several samplers, and decode."""
    import nodes  # noqa: PLC0415

    model, clip, vae = _load(checkpoint())
    positive, negative = _texts(clip)
    (latent,) = nodes.EmptyLatentImage().generate(64, 64)
    results = []
    for sampler, scheduler in SAMPLERS:
        (sampled,) = nodes.KSampler().sample(model, 1, 2, 4.0, sampler, scheduler, positive, negative, latent)
        (image,) = nodes.VAEDecode().decode(vae, sampled)
        results += [sampled["samples"], image]
    return results


def edits() -> list[Any]:
    """Change part of a picture, which a mask selects, by a model with a LoRA; encode and decode in tiles too."""
    import comfy.sd  # noqa: PLC0415
    import nodes  # noqa: PLC0415
    import torch  # noqa: PLC0415

    weights = checkpoint()
    model, clip, vae = _load(weights)
    model, clip = comfy.sd.load_lora_for_models(model, clip, lora(weights), 1.0, 1.0)
    positive, negative = _texts(clip)
    pixels, mask = torch.rand(1, 64, 64, 3), torch.zeros(1, 64, 64)
    mask[:, 16:48, 8:40] = 1
    (latent,) = nodes.VAEEncode().encode(vae, pixels)
    (masked,) = nodes.SetLatentNoiseMask().set_mask(latent, mask)
    (filled,) = nodes.VAEEncodeForInpaint().encode(vae, pixels, mask)
    results = [latent["samples"], filled["samples"]]
    for start, strength in ((masked, 0.7), (filled, 1.0)):
        (sampled,) = nodes.KSampler().sample(
            model, 1, 2, 4.0, "euler", "normal", positive, negative, start, denoise=strength
        )
        (image,) = nodes.VAEDecodeTiled().decode(vae, sampled, tile_size=64, overlap=16)
        results += [sampled["samples"], image]
    (tiled,) = nodes.VAEEncodeTiled().encode(vae, torch.rand(1, 96, 64, 3), tile_size=64, overlap=16)
    return [*results, tiled["samples"]]


def _models(group: str) -> Callable[[], list[Any]]:
    """Return a function that runs models of a group."""

    def run() -> list[Any]:
        import comfy.model_management  # noqa: PLC0415
        import comfyui_models  # noqa: PLC0415
        import torch  # noqa: PLC0415
        from torch.utils import _pytree as tree  # noqa: PLC0415

        device = comfy.model_management.get_torch_device()
        results = []
        for function in getattr(comfyui_models, group):
            model, args, kwargs = function()
            comfyui_models.fill(model).to(device)
            args, kwargs = tree.tree_map_only(torch.Tensor, lambda x: x.to(device), (args, kwargs))
            results.append(tree.tree_map_only(torch.Tensor, lambda x: x.cpu(), model(*args, **kwargs)))
        return results

    return run


_PARTS: dict[str, Callable[[], list[Any]]] = {
    "samplers": samplers, "edits": edits, "pictures": _models("PICTURES"), "videos": _models("VIDEOS"),
    "parts": _models("PARTS"),
}  # fmt: skip


def main() -> None:
    """Run a part, and write its tensors."""
    sys.path.insert(0, os.getcwd())
    import comfy.options  # noqa: PLC0415

    comfy.options.enable_args_parsing()
    import torch  # noqa: PLC0415

    torch.manual_seed(0)
    with torch.inference_mode():
        results = _PARTS[os.environ["COMFYUI_PART"]]()
        results = [x.cpu() if isinstance(x, torch.Tensor) else x for x in results]
    torch.save(results, os.environ["COMFYUI_RESULTS"])


if __name__ == "__main__":
    main()
