"""Row of ComfyUI, from a clone that ``--comfyui`` names."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torch_clients.rows import Skipped, row

_WORKER = Path(__file__).with_name("comfyui_worker.py")


@row(
    "ComfyUI",
    "Stable Diffusion 1.5 with few layers, `--directml`: euler, euler_ancestral, lcm, dpmpp_2m_sde",
    tolerance=2e-2,
)
def stable_diffusion(device: str) -> Any:
    """Sample and decode in a process of ComfyUI, started as its users do."""
    import torch  # noqa: PLC0415

    folder = os.environ.get("DMLGPU_COMFYUI")
    if folder is None:
        raise Skipped("pass --comfyui FOLDER")
    runner = ["-m", "dmlgpu.frontends.torch"] if device == "dml" else []
    with tempfile.TemporaryDirectory() as results:
        path = Path(results) / "results.pt"
        option = "--directml" if device == "dml" else "--cpu"
        command = [sys.executable, *runner, str(_WORKER), option]
        environment = {**os.environ, "COMFYUI_RESULTS": str(path)}
        done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"ComfyUI ended with {done.returncode}: {done.stderr[-300:]}")
        return torch.load(path)
