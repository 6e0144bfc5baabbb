"""onnxruntime's WebGPU provider, on its first device. onnxruntime computes operators that it lacks on the CPU."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import onnxruntime
import onnxruntime_ep_webgpu

from dmlgpu.bench.peers.programs import onnxruntime_cpu
from dmlgpu.bench.peers.worker import PeerCall

os.environ.setdefault("ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER", "1")

NAME = "WebGpuExecutionProvider"


def versions() -> dict[str, str]:
    """Return the provider's version and that of onnxruntime."""
    return {"onnxruntime-ep-webgpu": version("onnxruntime-ep-webgpu"), **onnxruntime_cpu.versions()}


def prepare(call: PeerCall) -> onnxruntime_cpu.OnnxruntimeSession:
    """Prepare a call on the provider's first device."""
    return onnxruntime_cpu.OnnxruntimeSession(call, devices())


@functools.cache
def devices() -> Sequence[Any]:
    """Return the provider's devices. Its library may be registered only once.

    Raises:
        RuntimeError: If it has none.
    """
    onnxruntime.register_execution_provider_library("webgpu", onnxruntime_ep_webgpu.get_library_path())
    offered = [device for device in onnxruntime.get_ep_devices() if device.ep_name == NAME]
    if not offered:
        raise RuntimeError("the provider finds no adapter")
    return offered
