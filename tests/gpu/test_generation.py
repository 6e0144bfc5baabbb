"""Generation on every adapter, against onnxruntime, and sampling against the adapter ``numpy``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Device
from dmlgpu.compiler.sizes.programs import PlannedNetwork
from dmlgpu.compiler.target import AdapterInfo, Profile
from dmlgpu.demo.language_model import DecoderSizes
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.generation.sampling import SamplingOptions
from dmlgpu.frontends.onnx import recorded as recorded_runs
from dmlgpu.frontends.onnx.session import Session
from dmlgpu.ops import memory_info
from dmlgpu.runtime.wgpu import GpuBackend, queue
from tests.language_models import Expected, folder_of, prompt_of
from tests.recorded_logits import recorded_logits

SIZES = DecoderSizes(
    layers=1, heads=2, kv_heads=1, head_size=16, feed_forward=64, vocabulary=320, context=48, deviation=0.5
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("model"), SIZES)


def test_tokens_equal_onnxruntimes_and_those_of_the_reference(device: Device, folder: Path) -> None:
    generator, expected = Generator.load(folder, device), Expected(folder, SIZES)
    prompt = prompt_of(20)
    assert list(generator.generate_tokens(prompt, max_tokens=24)) == expected.tokens(prompt, 24)
    longer = [*prompt, *expected.tokens(prompt, 5), 17]
    assert list(generator.generate_tokens(longer, max_tokens=8)) == expected.tokens(longer, 8)
    assert generator.statistics.reused_tokens == 25
    options = SamplingOptions(0.8, top_k=20, top_p=0.9, repetition_penalty=1.1, seed=1)
    tokens = list(generator.generate_tokens(prompt, max_tokens=12, options=options))
    reference = Generator.load(folder, "numpy")
    assert tokens == list(reference.generate_tokens(prompt, max_tokens=12, options=options))


def test_prompts_of_other_lengths_and_contexts_share_translation_and_kernels(
    adapter: AdapterInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = replace(SIZES, context=320)
    folder, device = folder_of(tmp_path, sizes), Device(adapter, specialize="auto")
    expected, recorded = Expected(folder, sizes), []
    record_stage, record_plan = recorded_runs.recorded_stage, PlannedNetwork.__init__

    def counted(*arguments: Any) -> Any:
        recorded.append("stage")
        return record_stage(*arguments)

    def counted_plan(self: PlannedNetwork, *arguments: Any) -> None:
        recorded.append("plan")
        record_plan(self, *arguments)

    monkeypatch.setattr(recorded_runs, "recorded_stage", counted)
    monkeypatch.setattr(PlannedNetwork, "__init__", counted_plan)
    kernels = []
    for context in (300, 320):
        generator = Generator.load(folder, device, context=context)
        for length in (20, 12, 120, 1):
            before, translated = device.pipeline_cache.info.misses, len(recorded)
            prompt = prompt_of(length)
            assert list(generator.generate_tokens(prompt, max_tokens=3)) == expected.tokens(prompt, 3)
            kernels.append(device.pipeline_cache.info.misses - before)
            # A token is a prompt of length 1.
            assert recorded[translated:] == (["stage", "plan"] if length == 20 else []), length
    first, *others = kernels[:4]
    assert sum(others) < first / 2, kernels
    assert sum(kernels[4:]) <= 1, kernels  # attention may split the keys of another context


def test_tokens_after_the_second_repeat_its_run(device: Device, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator, prompt, runs = Generator.load(folder, device), prompt_of(3), []
    run = Session.run_tensors

    def counted(self: Session, inputs: Mapping[str, Any], names: Sequence[str]) -> Any:
        runs.append(inputs)
        return run(self, inputs, names)

    monkeypatch.setattr(Session, "run_tensors", counted)
    expected = Expected(folder, SIZES).tokens(prompt, 9)
    for _ in range(2):
        assert list(generator.generate_tokens(prompt, max_tokens=9)) == expected
    assert len(expected) > 3
    assert len(runs) == 4


def test_a_repeated_run_and_the_read_of_its_token_are_one_submission(
    device: Device, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(device.backend, GpuBackend):
        pytest.skip("has no submissions")
    monkeypatch.setattr(queue, "BATCH", 1)
    tokens = Generator.load(folder, device).generate_tokens(prompt_of(3))
    submitted = []
    for _ in range(8):
        next(tokens)
        submitted.append(device.backend.queue.submitted)
    assert np.diff(submitted[3:]).tolist() == [1] * 4


@pytest.mark.parametrize(("deviation", "dtype"), [(0.5, np.float16), (5e4, np.float32)])
def test_caches_of_gpus_are_float16_if_the_weights_are_small(
    deviation: float, dtype: type[np.generic], backend: GpuBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path, replace(SIZES, deviation=deviation))
    for profile, cache_dtype, expected in (
        (Profile.DISCRETE, None, dtype),
        (Profile.DISCRETE, "float32", np.float32),
        (Profile.CPU, None, np.float32),
    ):
        monkeypatch.setattr(backend, "target", replace(backend.target, profile=profile))
        generator = Generator.load(folder, Device.from_backend(backend), cache_dtype=cache_dtype, context=32)
        row = SIZES.layers * 2 * SIZES.kv_heads * SIZES.head_size
        assert generator.memory.caches == 32 * row * np.dtype(expected).itemsize


def test_a_layer_of_a_token_has_nine_kernels_on_gpus(
    backend: GpuBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four products with weights, two of which add residuals, and SwiGLU, which larger products compute; two norms; one
    kernel that rotates and casts queries, keys and values, and writes both caches; attention."""
    monkeypatch.setattr(backend, "target", replace(backend.target, profile=Profile.DISCRETE))
    counts = []
    for layers in (1, 3):
        folder = folder_of(tmp_path, replace(SIZES, layers=layers))
        tokens = Generator.load(folder, Device.from_backend(backend), context=32).generate_tokens(prompt_of(3))
        for _ in range(3):
            next(tokens)
        with dmlgpu.profile() as times:
            next(tokens)
        counts.append(len(times.kernels))
    assert counts[1] - counts[0] == 2 * 9


def test_kernels_of_a_token_outside_of_layers(
    backend: GpuBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of embeddings, cosines and sines are gathered by inputs as they are, in one kernel, and so is the last row,
    in a kernel that counts the tokens so far; no kernel converts tokens, counts positions or normalizes rows that are
    not selected."""
    target = replace(backend.target, profile=Profile.DISCRETE, max_storage_buffers=8)
    monkeypatch.setattr(backend, "target", target)
    folder = folder_of(tmp_path, replace(SIZES, layers=2))
    tokens = Generator.load(folder, Device.from_backend(backend), context=32).generate_tokens(prompt_of(3))
    for _ in range(3):
        next(tokens)
    with dmlgpu.profile() as times:
        next(tokens)
    names = [kernel[0] for kernel in times.kernels]
    assert [name for name in names if "gather" in name] == [
        "embedded gather gather and 2 more",
        "layers.1.next.sum.selected.rows gather_nd1 gather and 1 more",
    ]
    first, second = ([name for name in names if name.startswith(f"layers.{layer}.")] for layer in (0, 1))
    assert len(first) == len(second) - 1  # but for the gather
    others = [name for name in names if name not in (*first, *second)]
    assert [name.split()[0] for name in others] == ["embedded", "first.normed", "logits", "step.best.wide"]


def test_caches_of_float16_change_logits_by_their_rounding(device: Device, folder: Path) -> None:
    prompt = prompt_of(20)
    generator = Generator.load(folder, device, cache_dtype="float16")
    assert generator.memory.caches == Generator.load(folder, device, cache_dtype="float32").memory.caches // 2
    with recorded_logits() as logits:
        list(generator.generate_tokens(prompt, max_tokens=1))
    (expected,) = Expected(folder, SIZES).logits(prompt, 1)
    differences = np.abs(logits[0][0] - expected)
    assert 0 < differences.max() < 5e-3 * np.abs(expected).max()


@pytest.mark.slow
def test_integer_activations_give_the_logits_of_the_reference(device: Device, folder: Path) -> None:
    """A quotient near a tie may be rounded to either side; floats differ by 6 % of the largest logit."""
    prompt = prompt_of(20)
    with recorded_logits() as logits:
        for place in (device, "numpy"):
            generator = Generator.load(folder, place, activation_dtype="int8", cache_dtype="float32")
            list(generator.generate_tokens(prompt, max_tokens=4))
    for result, expected in zip(logits[:4], logits[4:], strict=True):
        assert np.abs(result - expected).max() < 5e-3 * np.abs(expected).max()


def test_weights_may_be_larger_than_a_binding(adapter: AdapterInfo, folder: Path) -> None:
    backend = GpuBackend(adapter)
    backend.target = replace(backend.target, max_binding_size=8192)
    backend.binder.context.target = backend.target
    generator = Generator.load(folder, Device.from_backend(backend))
    assert generator.memory.largest_weight > 8192
    prompt = prompt_of(3)
    assert list(generator.generate_tokens(prompt, max_tokens=6)) == Expected(folder, SIZES).tokens(prompt, 6)


def test_chunks_of_all_sizes_share_weights_on_gpus(adapter: AdapterInfo, folder: Path) -> None:
    backend = GpuBackend(adapter)
    backend.target = backend.binder.context.target = replace(backend.target, profile=Profile.DISCRETE)
    device = Device.from_backend(backend)
    generator, used = Generator.load(folder, device), []
    for length in (1, 11, 40):
        list(generator.generate_tokens(prompt_of(length), max_tokens=2))
        memory = memory_info(device)
        used.append(memory.allocated - memory.unused)
    assert used[0] > generator.memory.weights > 4 * (used[2] - used[0])
