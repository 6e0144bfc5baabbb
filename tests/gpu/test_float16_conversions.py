"""Conversions of float16 by the hardware, where an adapter's are exact, against NumPy's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.target import Float16Conversions, Float16Encoding, Profile
from dmlgpu.runtime.wgpu import GpuBackend, float16
from tests.gpu.descriptions import run_desc

F32, F16 = DataType.FLOAT32, DataType.FLOAT16


@pytest.fixture(scope="module")
def exact(backend: GpuBackend) -> frozenset[str]:
    """The conversions that are exact on an adapter."""
    return float16.measure(backend.wgpu_device)


def cast(source: DataType, destination: DataType, count: int) -> descs.Cast:
    return descs.Cast(input_tensor=TensorDesc(source, (count,)), output_tensor=TensorDesc(destination, (count,)))


def test_llvmpipe_converts_exactly(backend: GpuBackend, exact: frozenset[str]) -> None:
    if "llvmpipe" in backend.info.name:
        assert {"unpack", "pack"} <= exact


@pytest.mark.parametrize("encoding", Float16Encoding)
def test_exact_conversions_are_those_of_numpy(
    backend: GpuBackend, exact: frozenset[str], encoding: Float16Encoding
) -> None:
    """On numbers that are not those of the measurement: every float32 with 8 random low bits in steps."""
    if encoding is not Float16Encoding.SOFTWARE and encoding not in exact:
        pytest.skip(f"{encoding} is not exact here")
    rng = np.random.default_rng(7)
    bits = np.arange(0, 1 << 32, 1 << 14, np.uint32) + rng.integers(0, 1 << 14, 1 << 18, np.uint32)
    floats = np.concatenate([bits.view(np.float32), np.float32([65519.99, 65520, 2.0**-25, 2.0**-24 * 1.5])])
    halves = Float16Conversions("unpack" in exact, encoding)
    target = replace(backend.target.exact, profile=Profile.DISCRETE, float16=halves)
    (encoded,) = run_desc(backend, cast(F32, F16, floats.size), [floats], target)
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(encoded, floats.astype(np.float16))
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    (decoded,) = run_desc(backend, cast(F16, F32, every.size), [every], target)
    np.testing.assert_array_equal(decoded, every.astype(np.float32))


def test_rounding_towards_zero_is_found(backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    truncated = "pack2x16float(vec2<f32>(bitcast<f32>(floats[place] & 0xffffe000u), 0.0))"
    monkeypatch.setattr(float16, "_BY_F16", ("", truncated))
    monkeypatch.setattr(float16, "_WITHOUT_F16", ("", truncated))
    assert "f16" not in float16.measure(backend.wgpu_device)
