"""Rows of ComfyUI, from a clone that ``--comfyui`` names."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torch_clients.rows import Skipped, row

_WORKER = Path(__file__).with_name("comfyui_worker.py")


def _run(part: str, device: str) -> Any:
    """Return the tensors of a part of ``comfyui_worker.py``, in a process of ComfyUI that is started as by its users.

    The process runs in the clone's environment ``.venv``, if there is one, which imports this checkout of dmlgpu.
    """
    import torch  # noqa: PLC0415

    folder = os.environ.get("DMLGPU_COMFYUI")
    if folder is None:
        raise Skipped("pass --comfyui FOLDER")
    own = Path(folder, ".venv", "Scripts" if os.name == "nt" else "bin", "python")
    runner = ["-m", "dmlgpu.frontends.torch"] if device == "dml" else []
    with tempfile.TemporaryDirectory() as results:
        path = Path(results) / "results.pt"
        option = "--directml" if device == "dml" else "--cpu"
        command = [str(own) if own.exists() else sys.executable, *runner, str(_WORKER), option]
        environment = {**os.environ, "COMFYUI_RESULTS": str(path), "COMFYUI_PART": part}
        done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"ComfyUI ended with {done.returncode}: {done.stderr[-300:]}")
        return torch.load(path)


@row(
    "ComfyUI",
    "Stable Diffusion 1.5 with few layers, `--directml`: euler, euler_ancestral, lcm, dpmpp_2m, dpmpp_2m_sde",
    tolerance=2e-2,
)
def samplers(device: str) -> Any:
    """Sample and decode, in float16 on the device."""
    return _run("samplers", device)


@row("ComfyUI", "LoRA, img2img with a mask, inpainting, VAE in tiles", tolerance=2e-2)
def edits(device: str) -> Any:
    """Change part of a picture, in float16 on the device."""
    return _run("edits", device)


@row(
    "ComfyUI",
    "SDXL, ControlNet, SD3, Flux, Flux 2, Chroma, AuraFlow, HiDream, Hunyuan-DiT, Z-Image, Qwen-Image, OmniGen2, "
    "Stable Cascade: a step with few layers",
)
def pictures(device: str) -> Any:
    """Run models of pictures."""
    return _run("pictures", device)


@row(
    "ComfyUI",
    "Stable Video Diffusion, Wan, LTX-Video, HunyuanVideo, Cosmos, ACE-Step, Hunyuan3D: a step with few layers",
)
def videos(device: str) -> Any:
    """Run models of video, music and 3D."""
    return _run("videos", device)


@row("ComfyUI", "TAESD, VAEs of Wan 2.1, Wan 2.2 and Stable Audio, CLIP vision, T5, vision of Qwen2.5-VL: few layers")
def parts(device: str) -> Any:
    """Run autoencoders and encoders."""
    return _run("parts", device)
