"""Sample in ComfyUI, in the folder of its clone, with random weights in the format of Stable Diffusion 1.5.

The UNet has 320 channels and one resolution, text encoder and VAE their usual layers, or fewer. Started by
``with_comfyui.py`` with ComfyUI's own options. Writes latents and pictures to the file COMFYUI_RESULTS.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

SAMPLERS = ("euler", "normal"), ("euler_ancestral", "normal"), ("lcm", "normal"), ("dpmpp_2m_sde", "karras")


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


def main() -> None:
    """Load a checkpoint, sample and decode."""
    sys.path.insert(0, os.getcwd())
    import comfy.options  # noqa: PLC0415

    comfy.options.enable_args_parsing()
    import comfy.sd  # noqa: PLC0415
    import nodes  # noqa: PLC0415
    import torch  # noqa: PLC0415
    from safetensors.torch import save_file  # noqa: PLC0415

    results = []
    with torch.inference_mode(), tempfile.TemporaryDirectory() as folder:
        save_file(checkpoint(), f"{folder}/model.safetensors")
        model, clip, vae, _ = comfy.sd.load_checkpoint_guess_config(f"{folder}/model.safetensors")
        (positive,), (negative,) = (nodes.CLIPTextEncode().encode(clip, text) for text in ("a red cat", ""))
        (latent,) = nodes.EmptyLatentImage().generate(64, 64)
        for sampler, scheduler in SAMPLERS:
            (sampled,) = nodes.KSampler().sample(model, 1, 2, 4.0, sampler, scheduler, positive, negative, latent)
            (image,) = nodes.VAEDecode().decode(vae, sampled)
            results += [sampled["samples"].cpu(), image.cpu()]
    torch.save(results, os.environ["COMFYUI_RESULTS"])


if __name__ == "__main__":
    main()
