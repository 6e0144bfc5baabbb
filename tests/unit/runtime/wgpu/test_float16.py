"""Conversions of float16: numbers of the measurement, and the text of kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import (
    SOFTWARE_FLOAT16,
    AdapterInfo,
    Float16Conversions,
    Float16Encoding,
    Profile,
    Target,
)
from dmlgpu.runtime.wgpu import float16

CARD = AdapterInfo("Card", "Vulkan", "discrete", "maker", "driver 1")
GPU = Target("Card", Profile.DISCRETE, frozenset({"shader-f16"}))


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
