"""Caches of 8 bits on every adapter, under both families of schedules, against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper

from dmlgpu import Device
from dmlgpu.compiler.target import Profile
from dmlgpu.demo.language_model import DecoderSizes
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.onnx import Session, load
from dmlgpu.runtime.wgpu import GpuBackend
from tests.language_models import folder_of, prompt_of

BATCH, HEADS, SHARED, ROWS, SIZE = 2, 4, 2, 40, 32
CACHES = ("past_key", "past_value", "key_scale", "value_scale")

Arrays = list[NDArray[Any]]


@pytest.fixture(params=[Profile.CPU, Profile.DISCRETE])
def scheduled(backend: GpuBackend, request: pytest.FixtureRequest) -> Iterator[Device]:
    """A device whose target has a profile."""
    target = backend.target
    try:
        backend.target = backend.binder.context.target = replace(target, profile=request.param)
        yield Device.from_backend(backend)
    finally:
        backend.target = backend.binder.context.target = target


def model(kind: int, blocks: int, **attributes: Any) -> ModelProto:
    """One GroupQueryAttention with caches of INT8, whose heads have a number of scales."""
    cache, scale = [BATCH, SHARED, ROWS, SIZE], [BATCH, SHARED, ROWS, blocks]
    inputs = {"query": (kind, [BATCH, "new", HEADS * SIZE])}
    inputs |= {name: (kind, [BATCH, "new", SHARED * SIZE]) for name in ("key", "value")}
    caches = dict(zip(CACHES, [(TensorProto.INT8, cache)] * 2 + [(TensorProto.FLOAT, scale)] * 2, strict=True))
    numbers = {"seqlens_k": (TensorProto.INT32, [BATCH]), "total": (TensorProto.INT32, [])}
    names = ["query", "key", "value", *CACHES[:2], "seqlens_k", "total", *[""] * 5, *CACHES[2:]]
    outputs = {"output": inputs["query"], **{f"{name}.after": info for name, info in caches.items()}}
    node = helper.make_node(
        "GroupQueryAttention",
        names,
        ["output", *(f"{name}.after" for name in CACHES[:2]), "", *(f"{name}.after" for name in CACHES[2:])],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=SHARED,
        **attributes,
    )
    infos = [
        [helper.make_tensor_value_info(name, element, sizes) for name, (element, sizes) in declared.items()]
        for declared in (inputs | caches | numbers, outputs)
    ]
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "cache", *infos), opset_imports=versions)


def simulated(new: Arrays, caches: Arrays, past: NDArray[Any], softcap: float) -> tuple[NDArray[Any], Arrays]:
    """Return the output, and the caches afterwards: codes of keys and values, then their scales."""
    query, *rows = (array.astype(np.float32) for array in new)
    caches = [cache.copy() for cache in caches]
    count = query.shape[1]
    for part, x in enumerate(rows):
        heads = x.reshape(BATCH, count, SHARED, SIZE).swapaxes(1, 2)
        scale = np.abs(heads.reshape(*heads.shape[:3], caches[2].shape[3], -1)).max(-1) * np.float32(1 / 127)
        factors = np.repeat(scale, SIZE // scale.shape[3], axis=3)
        codes = np.rint(np.divide(heads, factors, out=np.zeros_like(heads), where=factors > 0))
        for sequence, start in enumerate(past):
            caches[part][sequence, :, start : start + count] = codes[sequence]
            caches[2 + part][sequence, :, start : start + count] = scale[sequence]
    keys, values = (
        np.repeat(
            caches[part] * np.repeat(caches[2 + part].astype(np.float64), SIZE // caches[2].shape[3], axis=3),
            HEADS // SHARED,
            axis=1,
        )
        for part in range(2)
    )
    query = query.astype(np.float64)
    scores = query.reshape(BATCH, count, HEADS, SIZE).swapaxes(1, 2) @ keys.swapaxes(-1, -2) / SIZE**0.5
    scores = softcap * np.tanh(scores / softcap) if softcap else scores
    last = past[:, None, None, None] + np.arange(count)[:, None]
    weights = np.exp(np.where(np.arange(ROWS) <= last, scores, -np.inf))
    output = (weights / weights.sum(-1, keepdims=True)) @ values
    return output.swapaxes(1, 2).reshape(BATCH, count, HEADS * SIZE), caches


def bound(proto: ModelProto, device: Device, caches: Arrays) -> Session:
    session = load(proto, device)
    for name, array in zip(CACHES, caches, strict=True):
        session.bind(name, array, updated_by=f"{name}.after")
    return session


@pytest.mark.parametrize(
    ("kind", "softcap", "blocks"),
    [
        ("float32", 0.0, 1),
        ("float16", 0.0, 1),
        ("float32", 2.0, 1),
        ("float32", 0.0, 2),
        ("float16", 0.0, 4),
        ("float16", 2.0, 4),
    ],
)
def test_attention_sees_the_rounded_rows_of_a_cache(scheduled: Device, kind: str, softcap: float, blocks: int) -> None:
    sizes = (BATCH, SHARED, ROWS)
    caches: Arrays = [np.zeros((*sizes, SIZE), np.int8)] * 2 + [np.zeros((*sizes, blocks), np.float32)] * 2
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    session = bound(model(element, blocks, softcap=softcap), scheduled, caches)
    past = np.array([3, 0])
    for step, count in enumerate((9, 1, 1)):
        rng = np.random.default_rng(step)
        new = [rng.standard_normal((BATCH, count, width * SIZE)).astype(kind) for width in (HEADS, SHARED, SHARED)]
        new[2][0, 0] = 0  # a scale of 0
        inputs = dict(zip(("query", "key", "value"), new, strict=True))
        last = (past + count - 1).astype(np.int32)
        total = np.array(last.max() + 1, np.int32)
        result = session.run(inputs | {"seqlens_k": last, "total": total})["output"]
        expected, caches = simulated(new, caches, past, softcap)
        tolerance = 2e-3 if kind == "float16" else 1e-5
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)
        past = past + count
    for name, cache in zip(CACHES, caches, strict=True):
        np.testing.assert_allclose(session.bound[name].numpy(), cache, rtol=1e-6, atol=1e-29)
    if not softcap:  # attention dequantizes keys and values while it reads them
        labels = [label for label, *_ in session.profile(inputs | {"seqlens_k": last, "total": total}).kernels]
        assert any("attention" in label for label in labels)
        assert not any(" dequantize " in label or " cast " in label for label in labels)


SIZES = DecoderSizes(
    layers=1, heads=2, kv_heads=1, head_size=16, feed_forward=64, vocabulary=320, context=48, deviation=0.3
)


@pytest.mark.slow
@pytest.mark.parametrize(("block", "row_bytes"), [(None, 16 + 4), (8, 16 + 8)])
def test_generated_tokens_equal_those_of_the_reference(
    scheduled: Device, tmp_path: Path, block: int | None, row_bytes: int
) -> None:
    folder, prompt = folder_of(tmp_path, SIZES), prompt_of(20)
    generator = Generator.load(folder, scheduled, cache_dtype="int8", cache_block=block)
    reference = Generator.load(folder, "numpy", cache_dtype="int8", cache_block=block)
    assert list(generator.generate_tokens(prompt, max_tokens=12)) == list(
        reference.generate_tokens(prompt, max_tokens=12)
    )
    assert generator.memory.caches * 64 == Generator.load(folder, "numpy").memory.caches * row_bytes
