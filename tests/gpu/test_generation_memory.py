"""Device memory of language models, counted by the allocator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from dmlgpu.frontends.generation import decoding
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.runtime.wgpu.buffers import Allocator, GpuBuffer
from tests.gguf_models import NumpyDecoder, write_quantized

pytest.importorskip("tokenizers")

_MATRICES = ("token_embd", "output", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Bytes of buffers by label: those at present, and the most so far."""
    bytes_by_label: dict[str, list[int]] = {}
    create, destroy = Allocator.create, Allocator._destroy

    def count(buffer: GpuBuffer, change: int) -> None:
        counts = bytes_by_label.setdefault(buffer.label, [0, 0])
        counts[0] += change
        counts[1] = max(counts)

    def created(self: Allocator, size: int, label: str, charged: bool = True) -> GpuBuffer:
        buffer = create(self, size, label, charged)
        count(buffer, size)
        return buffer

    def destroyed(self: Allocator, buffer: GpuBuffer) -> None:
        count(buffer, 0 if buffer.destroyed else -buffer.size)
        destroy(self, buffer)

    monkeypatch.setattr(Allocator, "create", created)
    monkeypatch.setattr(Allocator, "_destroy", destroyed)
    return bytes_by_label


@pytest.mark.parametrize("kind", [GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q5_1], ids=lambda kind: kind.name)
def test_weights_take_the_memory_that_was_promised(
    kind: GGMLQuantizationType, backend: GpuBackend, tmp_path: Path, counted: dict[str, list[int]]
) -> None:
    """Steps and chunks share weights, the embeddings and the product with them too, and one at a time exists twice
    while it is laid out."""
    path = tmp_path / "model.gguf"
    write_quantized(path, "llama", dict.fromkeys(_MATRICES, kind), layers=1, tied=True, tokens=4096)
    generator, prompt = Generator.load(path, Device.from_backend(backend)), [5, 9, 30, 8]
    tokens = list(generator.generate_tokens(prompt, max_tokens=3))
    expected = NumpyDecoder(path).logits(np.array([*prompt, *tokens[:-1]]))[len(prompt) - 1 :].argmax(1)
    assert tokens == expected.tolist()
    now, peak = counted["weight"]
    assert now == pytest.approx(generator.memory.weights, rel=0.05)
    assert peak <= now + generator.memory.largest_weight


def test_caches_grow_in_blocks_and_exist_once(
    backend: GpuBackend, tmp_path: Path, counted: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.gguf"
    kinds = dict.fromkeys(_MATRICES, GGMLQuantizationType.Q8_0)
    write_quantized(path, "llama", kinds, layers=1, context=128)
    device, prompt = Device.from_backend(backend), [5, 9, 30, 8, 41]
    expected = list(Generator.load(path, device).generate_tokens(prompt, max_tokens=40))
    monkeypatch.setattr(decoding, "SMALLEST_CACHE", 16)
    labels = "Tensor", "zeros", "take"  # caches before and after they grow, and other tensors
    before = sum(counted[label][0] for label in labels if label in counted)
    generator = Generator.load(path, device)
    steps, rows = generator.generate_tokens(prompt, max_tokens=40), []
    for index, token in enumerate(steps):
        assert token == expected[index]
        rows.append(generator._decoding._capacity)  # type: ignore[attr-defined]
    assert [*np.unique(rows)] == [16, 32, 64]
    row_bytes = generator.memory.caches // generator.context
    assert row_bytes == 2 * 2 * 64 * 4
    after = sum(counted[label][0] for label in labels if label in counted)
    assert after - before < 1.5 * 64 * row_bytes
