"""PyTorch on its first CUDA device."""

from __future__ import annotations

import torch

from dmlgpu.bench.peers.programs import torch_cpu
from dmlgpu.bench.peers.worker import PeerCall


def versions() -> dict[str, str]:
    """Return the versions of PyTorch and of CUDA.

    Raises:
        ImportError: If this PyTorch finds no device.
    """
    if not torch.cuda.is_available():
        raise ImportError("torch finds no CUDA device")
    return {"cuda": str(torch.version.cuda), **torch_cpu.versions()}


def prepare(call: PeerCall) -> torch_cpu.TorchProgram:
    """Prepare a call on the device.

    Raises:
        NotOffered: If there is no such operator here.
    """
    return torch_cpu.TorchProgram(call, "cuda", torch.cuda.synchronize)
