"""Which conversions of float16 kernels of an adapter use, and their text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import (
    FLOAT16_VARIABLE,
    SOFTWARE_FLOAT16,
    AdapterInfo,
    Float16Conversions,
    Float16Encoding,
    Profile,
    Target,
)
from dmlgpu.compiler.tuned_files import identity
from dmlgpu.runtime.wgpu import float16

CARD = AdapterInfo("Card", "Vulkan", "discrete", "maker", "driver 1")
GPU = Target("Card", Profile.DISCRETE, frozenset({"shader-f16"}))


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which conversions are kept."""
    monkeypatch.delenv(FLOAT16_VARIABLE, raising=False)
    monkeypatch.delenv("DMLGPU_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.setattr(float16.FACTS, "cached", {})
    return tmp_path / "dmlgpu" / "float16"


def keep(exact: list[str], info: AdapterInfo = CARD, **changes: object) -> None:
    path = float16.FACTS.file(CARD)
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"format": 1, "adapter": identity(info), "float16": exact} | changes))


@pytest.mark.parametrize(
    ("exact", "features", "expected"),
    [
        (["unpack", "pack", "f16"], {"shader-f16"}, Float16Conversions(True, Float16Encoding.PACK)),
        (["unpack", "f16"], {"shader-f16"}, Float16Conversions(True, Float16Encoding.F16)),
        (["unpack", "f16"], set(), Float16Conversions(True)),
        (["f16"], {"shader-f16"}, Float16Conversions(False, Float16Encoding.F16)),
        ([], {"shader-f16"}, SOFTWARE_FLOAT16),
    ],
)
def test_the_fastest_exact_conversions_are_used(
    exact: list[str], features: set[str], expected: Float16Conversions
) -> None:
    keep(exact)
    assert float16.known_conversions(CARD, replace(GPU, features=frozenset(features))) == expected


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 1}'])
def test_conversions_are_measured_without_a_valid_file(content: str) -> None:
    assert float16.known_conversions(CARD, GPU) is None
    keep([])
    path = float16.FACTS.file(CARD)
    assert path is not None
    path.write_text(content)
    assert float16.known_conversions(CARD, GPU) is None


def test_conversions_are_measured_again_for_another_driver_or_format(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(["unpack"], replace(CARD, driver="driver 2"))
    assert float16.known_conversions(CARD, GPU) is None
    keep(["unpack"], format=2)
    assert float16.known_conversions(CARD, GPU) is None
    keep(["unpack"])
    monkeypatch.setenv("DMLGPU_CACHE", "off")
    assert float16.known_conversions(CARD, GPU) is None


def test_cpu_adapters_convert_in_software() -> None:
    keep(["unpack", "pack"])
    assert float16.known_conversions(CARD, replace(GPU, profile=Profile.CPU)) == SOFTWARE_FLOAT16


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("software", SOFTWARE_FLOAT16),
        ("pack", Float16Conversions(True, Float16Encoding.PACK)),
        ("f16", Float16Conversions(True, Float16Encoding.F16)),
    ],
)
def test_the_environment_overrides_measured_conversions(
    value: str, expected: Float16Conversions, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep([])
    monkeypatch.setenv(FLOAT16_VARIABLE, value)
    assert float16.known_conversions(CARD, GPU) == expected


def test_an_unknown_encoding_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FLOAT16_VARIABLE, "fast")
    with pytest.raises(InvalidArgument) as caught:
        float16.known_conversions(CARD, GPU)
    assert str(caught.value) == "DMLGPU_FLOAT16 must be one of software, pack, f16, got 'fast'"


def test_the_measurement_has_every_number_and_every_tie() -> None:
    critical = float16.critical_floats()
    finite = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    assert np.isin(finite, critical).all() and np.isin(-finite, critical).all()
    middles = (finite[:-1] + finite[1:]) / 2  # exact in float32
    for number in (middles, np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(1e9))):
        assert np.isin(number, critical).all()
    assert np.isin(np.float32([65520, np.inf, -np.inf]), critical).all() and np.isnan(critical).any()


@pytest.mark.parametrize(
    ("conversions", "expected", "unexpected"),
    [
        (SOFTWARE_FLOAT16, ["0x477ff000u"], ["unpack2x16float", "pack2x16float", "enable f16"]),
        (Float16Conversions(True), ["unpack2x16float", "0x477ff000u"], ["enable f16", " pack2x16float"]),
        (
            Float16Conversions(True, Float16Encoding.PACK),
            ["pack2x16float(vec2<f32>(x, 0.0))"],
            ["0x477ff000u", "enable f16"],
        ),
        (Float16Conversions(True, Float16Encoding.F16), ["enable f16;", "f32(f16(x))"], ["0x477ff000u"]),
    ],
)
def test_kernels_call_the_conversions_of_the_target(
    conversions: Float16Conversions, expected: list[str], unexpected: list[str]
) -> None:
    tensor = TensorDesc(DataType.FLOAT16, (64,))
    desc = descs.ElementWiseSqrt(input_tensor=tensor, output_tensor=tensor)
    (kernel,) = compile_operator(desc, replace(GPU.exact, float16=conversions)).kernels
    assert all(text in kernel.wgsl for text in expected)
    assert not any(text in kernel.wgsl for text in unexpected)
    assert kernel.wgsl.count("fn f32_of_half(") == kernel.wgsl.count("fn half_of_f32(") == 1
