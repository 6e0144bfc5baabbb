"""Networks of GGUF files on every adapter, against a NumPy decoder on the package gguf's dequantization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gguf", reason="GGUF files need the package gguf")

from gguf.constants import GGMLQuantizationType as Kind

from dmlgpu.compiler.sizes.programs import PlannedNetwork
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.frontends.generation import gguf
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.onnx.model import read
from dmlgpu.frontends.onnx.session import Session
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gguf_models import NumpyDecoder, network_inputs, write_quantized

KINDS = {
    "token_embd": Kind.Q4_K,
    "attn_q": Kind.Q5_K,
    "attn_k": Kind.Q8_0,
    "attn_v": Kind.Q6_K,
    "attn_output": Kind.Q4_0,
    "ffn_gate": Kind.F16,
    "ffn_down": Kind.BF16,
}


@pytest.mark.slow
def test_quantizations(backend: GpuBackend, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_quantized(path, "qwen3", KINDS, layers=1, tied=True)
    model, tokens = gguf.read(path), np.arange(5)
    session = Session(read(model.network, external=model.weights), Device.from_backend(backend))
    result = session.run(network_inputs(model, tokens), ["logits"])["logits"][0]
    expected = NumpyDecoder(path).logits(tokens)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_one_plan_serves_prompts_and_tokens(
    adapter: AdapterInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quantized embeddings are dequantized in blocks, whose sizes are split and merged."""
    path, plans = tmp_path / "model.gguf", []
    write_quantized(path, "llama", dict.fromkeys(KINDS, Kind.Q4_1), layers=1, tied=True)
    plan = PlannedNetwork.__init__

    def counted(self: PlannedNetwork, *arguments: Any) -> None:
        plans.append(self)
        plan(self, *arguments)

    monkeypatch.setattr(PlannedNetwork, "__init__", counted)
    generator = Generator.load(path, Device(adapter, specialize="auto"))
    for length in (20, 12, 1):
        assert len(list(generator.generate_tokens(list(range(1, length + 1)), max_tokens=3))) == 3
    assert len(plans) == 1
