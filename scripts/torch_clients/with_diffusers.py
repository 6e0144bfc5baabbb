"""Rows of diffusers: Stable Diffusion with its schedulers and options, and newer transformers, with random weights."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch_clients.rows import row

DIFFUSERS = "diffusers"

SCHEDULERS: dict[str, dict[str, Any]] = {
    "DDIM": {}, "EulerDiscrete": {}, "EulerAncestralDiscrete": {}, "DPMSolverMultistep": {},
    "DPMSolverMultistep with Karras sigmas and SDE": {"algorithm_type": "sde-dpmsolver++", "use_karras_sigmas": True},
    "DPMSolverSinglestep": {}, "UniPCMultistep": {}, "LMSDiscrete": {}, "DDPM": {}, "LCM": {}, "HeunDiscrete": {},
    "KDPM2AncestralDiscrete": {}, "DEISMultistep": {}, "TCD": {}, "PNDM": {"skip_prk_steps": True},
    "DPMSolverSDE": {"noise_sampler_seed": 0},
}  # fmt: skip
"""Options by scheduler, whose first word is the name of the class."""

_PACKAGES = DIFFUSERS, "transformers"


def pipeline(kind: str = "StableDiffusionPipeline", scheduler: str = "DDIM", channels: int = 4) -> Any:
    """Return a pipeline of Stable Diffusion on the CPU."""
    import diffusers  # noqa: PLC0415
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    torch.manual_seed(0)
    down, up = ("DownBlock2D", "CrossAttnDownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
    unet = diffusers.UNet2DConditionModel(
        block_out_channels=(8, 16), layers_per_block=1, sample_size=8, in_channels=channels, out_channels=4,
        down_block_types=down, up_block_types=up, cross_attention_dim=32, norm_num_groups=2,
    )  # fmt: skip
    vae = diffusers.AutoencoderKL(
        block_out_channels=[8, 16], down_block_types=["DownEncoderBlock2D"] * 2, latent_channels=4, norm_num_groups=2,
        up_block_types=["UpDecoderBlock2D"] * 2,
    )  # fmt: skip
    text = transformers.CLIPTextModel(
        transformers.CLIPTextConfig(
            vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
        )
    )
    schedule = getattr(diffusers, f"{scheduler.split(maxsplit=1)[0]}Scheduler")(
        beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, **SCHEDULERS[scheduler]
    )
    parts = {"unet": unet, "vae": vae, "text_encoder": text, "tokenizer": None, "scheduler": schedule}
    chosen = getattr(diffusers, kind)(
        **parts, safety_checker=None, feature_extractor=None, requires_safety_checker=False
    )
    chosen.set_progress_bar_config(disable=True)
    return chosen


def _generate(pipe: Any, device: str, steps: int = 4, **inputs: Any) -> Any:
    """Return pictures from embeddings of a prompt, drawn with a generator of the CPU."""
    import torch  # noqa: PLC0415

    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(2, 1, 7, 32, generator=generator).to(next(pipe.unet.parameters()).dtype).to(device)
    return pipe(
        prompt_embeds=embeddings[0], negative_prompt_embeds=embeddings[1], num_inference_steps=steps, output_type="np",
        generator=generator, **inputs,
    ).images  # fmt: skip


def _schedule(device: str, *, scheduler: str) -> Any:
    with _noise_of_cpu() if scheduler == "DPMSolverSDE" else contextlib.nullcontext():
        return _generate(pipeline(scheduler=scheduler).to(device), device)


@contextlib.contextmanager
def _noise_of_cpu() -> Iterator[None]:
    """Draw the noise of DPMSolverSDE on the CPU: it takes no generator, and numbers of devices differ."""
    from diffusers.schedulers import scheduling_dpmsolver_sde as module  # noqa: PLC0415

    original = module.BrownianTreeNoiseSampler

    class Sampler(original):  # type: ignore[misc, valid-type]
        def __init__(self, x: Any, *options: Any):
            super().__init__(x.cpu(), *options)
            self.device = x.device

        def __call__(self, *sigmas: Any) -> Any:
            return super().__call__(*(sigma.cpu() for sigma in sigmas)).to(self.device)

    module.BrownianTreeNoiseSampler = Sampler
    try:
        yield
    finally:
        module.BrownianTreeNoiseSampler = original


for _name in SCHEDULERS:
    row(DIFFUSERS, f"Stable Diffusion, {_name}", *_PACKAGES, *(["torchsde"] if _name == "DPMSolverSDE" else []))(
        functools.partial(_schedule, scheduler=_name)
    )


@row(DIFFUSERS, "img2img", *_PACKAGES)
def image_to_image(device: str) -> Any:
    """Change a picture."""
    import torch  # noqa: PLC0415

    pipe = pipeline("StableDiffusionImg2ImgPipeline").to(device)
    return _generate(pipe, device, image=torch.rand(1, 3, 16, 16).to(device), strength=0.7)


@row(DIFFUSERS, "inpaint", *_PACKAGES)
def inpaint(device: str) -> Any:
    """Fill a mask."""
    import torch  # noqa: PLC0415

    pipe, mask = pipeline("StableDiffusionInpaintPipeline").to(device), torch.zeros(1, 1, 16, 16)
    mask[..., :8] = 1
    image = torch.rand(1, 3, 16, 16)
    return _generate(pipe, device, image=image.to(device), mask_image=mask.to(device), height=16, width=16)


def _with(device: str, *, change: Callable[[Any, str], Any]) -> Any:
    pipe = pipeline()
    change(pipe, device)
    return _generate(pipe, "cpu" if "offload" in str(getattr(change, "__name__", "")) else device)


def _slicing(pipe: Any, device: str) -> None:
    pipe.to(device)
    pipe.enable_attention_slicing()
    pipe.vae.enable_slicing()
    pipe.vae.enable_tiling()


def _channels_last(pipe: Any, device: str) -> None:
    import torch  # noqa: PLC0415

    pipe.to(device)
    pipe.unet.to(memory_format=torch.channels_last)


def _freeu(pipe: Any, device: str) -> None:
    pipe.to(device)
    pipe.enable_freeu(s1=0.9, s2=0.2, b1=1.2, b2=1.4)


def _offload(pipe: Any, device: str) -> None:
    if device != "cpu":
        pipe.enable_model_cpu_offload(device=device)


def _sequential_offload(pipe: Any, device: str) -> None:
    if device != "cpu":
        pipe.enable_sequential_cpu_offload(device=device)


def _compiled(pipe: Any, device: str) -> None:
    import torch  # noqa: PLC0415

    pipe.to(device)
    if device != "cpu":
        pipe.unet = torch.compile(pipe.unet, backend="dmlgpu")


for _words, _change, _more in (
    ("attention slicing, VAE slicing and tiling", _slicing, ()),
    ("channels_last", _channels_last, ()),
    ("FreeU (complex numbers)", _freeu, ()),
    ("enable_model_cpu_offload", _offload, ("accelerate",)),
    ("enable_sequential_cpu_offload", _sequential_offload, ("accelerate",)),
    ("torch.compile of the UNet", _compiled, ()),
):
    row(DIFFUSERS, _words, *_PACKAGES, *_more)(functools.partial(_with, change=_change))


def _in_dtype(device: str, *, dtype: str) -> Any:
    import torch  # noqa: PLC0415

    pipe = pipeline().to(device, torch.float32 if device == "cpu" else getattr(torch, dtype))
    return _generate(pipe, device)


for _dtype in ("float16", "bfloat16"):
    row(DIFFUSERS, f"Stable Diffusion in {_dtype}", *_PACKAGES, tolerance=5e-2)(
        functools.partial(_in_dtype, dtype=_dtype)
    )


@row(DIFFUSERS, 'generator=torch.Generator("dml")', *_PACKAGES)
def generator(device: str) -> Any:
    """Return whether two pictures of one seed are equal."""
    import torch  # noqa: PLC0415

    pipe, embeddings = pipeline().to(device), torch.randn(2, 1, 7, 32).to(device)
    images = [
        pipe(
            prompt_embeds=embeddings[0], negative_prompt_embeds=embeddings[1], num_inference_steps=2, output_type="np",
            generator=torch.Generator(device).manual_seed(5),
        ).images
        for _ in range(2)
    ]  # fmt: skip
    return bool((images[0] == images[1]).all())


def _denoise(device: str, *, name: str, options: dict[str, Any], inputs: dict[str, tuple[int, ...] | float]) -> Any:
    import diffusers  # noqa: PLC0415
    import torch  # noqa: PLC0415

    torch.manual_seed(0)
    model = getattr(diffusers, name)(**options).eval()
    arguments = {
        key: torch.randn(value).to(device) if isinstance(value, tuple) else value for key, value in inputs.items()
    }
    for key in ("timestep", "guidance"):
        if key in arguments:
            arguments[key] = torch.tensor([arguments[key]]).to(device)
    with torch.no_grad():
        return model.to(device)(**arguments, return_dict=False)[0]


_ATTENTION = {"attention_head_dim": 8, "num_attention_heads": 4}

for _name, _options, _inputs in (
    (
        "SD3Transformer2DModel",
        {**_ATTENTION, "sample_size": 8, "patch_size": 1, "in_channels": 4, "num_layers": 1, "joint_attention_dim": 32,
         "caption_projection_dim": 32, "pooled_projection_dim": 16, "out_channels": 4},
        {"hidden_states": (1, 4, 8, 8), "encoder_hidden_states": (1, 5, 32), "pooled_projections": (1, 16),
         "timestep": 10.0},
    ),
    (
        "WanTransformer3DModel",
        {"attention_head_dim": 12, "num_attention_heads": 2, "patch_size": (1, 2, 2), "in_channels": 4,
         "out_channels": 4, "text_dim": 16, "freq_dim": 32, "ffn_dim": 32, "num_layers": 1, "rope_max_seq_len": 32},
        {"hidden_states": (1, 4, 2, 8, 8), "encoder_hidden_states": (1, 5, 16), "timestep": 10.0},
    ),
    (
        "FluxTransformer2DModel",
        {**_ATTENTION, "attention_head_dim": 16, "num_attention_heads": 2, "in_channels": 4, "num_layers": 1,
         "num_single_layers": 1, "joint_attention_dim": 32, "pooled_projection_dim": 16, "axes_dims_rope": (4, 4, 8)},
        {"hidden_states": (1, 16, 4), "encoder_hidden_states": (1, 5, 32), "pooled_projections": (1, 16),
         "img_ids": (16, 3), "txt_ids": (5, 3), "timestep": 0.5},
    ),
    (
        "QwenImageTransformer2DModel",
        {"attention_head_dim": 16, "num_attention_heads": 2, "patch_size": 2, "in_channels": 16, "out_channels": 4,
         "num_layers": 1, "joint_attention_dim": 16, "axes_dims_rope": (8, 4, 4)},
        {"hidden_states": (1, 16, 16), "encoder_hidden_states": (1, 5, 16), "timestep": 0.5,
         "img_shapes": [(1, 4, 4)], "encoder_hidden_states_mask": None},
    ),
):  # fmt: skip
    row(DIFFUSERS, _name, DIFFUSERS)(functools.partial(_denoise, name=_name, options=_options, inputs=_inputs))
