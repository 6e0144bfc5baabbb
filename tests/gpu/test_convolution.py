"""Convolutions by schedules that an adapter would not choose, on shapes that each has to treat in its own way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from dmlgpu import descs, reference
from dmlgpu.catalog.enums import ConvolutionDirection, ConvolutionMode, DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler.target import Profile
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc

F32, F16 = DataType.FLOAT32, DataType.FLOAT16
CPU, GPU = Profile.CPU, Profile.DISCRETE
FORWARD, BACKWARD = ConvolutionDirection.FORWARD, ConvolutionDirection.BACKWARD

SCHEDULES = [("small", CPU), ("register", CPU), ("register-split", GPU), ("shared", GPU)]


@dataclass(frozen=True)
class Shape:
    """A convolution; padding and strides are the same along all dimensions."""

    source: tuple[int, ...]
    outputs: int
    window: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    groups: int = 1
    data_type: DataType = F32
    nhwc: bool = False
    direction: ConvolutionDirection = FORWARD


SHAPES = {
    "3 x 3": Shape((2, 17, 9, 12), 20, (3, 3), padding=1),
    "3 x 3 NHWC": Shape((2, 16, 9, 11), 20, (3, 3), padding=1, nhwc=True),
    "1 x 1": Shape((1, 32, 6, 10), 36, (1, 1), stride=2),
    "1 x 1 NHWC float16": Shape((2, 36, 6, 6), 17, (1, 1), nhwc=True, data_type=F16),
    "groups of float16": Shape((1, 24, 40), 48, (5,), stride=2, padding=2, groups=3, data_type=F16),
    "3D": Shape((1, 5, 5, 6, 7), 18, (2, 3, 2), padding=1),
    "transposed": Shape((2, 16, 7, 6), 20, (3, 4), stride=2, padding=1, direction=BACKWARD),
    "one position": Shape((1, 64, 3, 3), 40, (3, 3)),
    "stride 2 over several tiles": Shape((3, 8, 25, 27), 36, (3, 3), stride=2, padding=1),
    "stride 2 of whole units": Shape((3, 8, 16, 24), 36, (3, 3), stride=2, padding=1),
}


def described(shape: Shape) -> descs.Convolution:
    batch, channels, *spatial = shape.source
    if shape.direction is FORWARD:
        filters = (shape.outputs, channels // shape.groups)
        positions = (
            (n + 2 * shape.padding - k) // shape.stride + 1 for n, k in zip(spatial, shape.window, strict=True)
        )
    else:
        filters = (channels, shape.outputs // shape.groups)
        positions = (shape.stride * (n - 1) + k - 2 * shape.padding for n, k in zip(spatial, shape.window, strict=True))

    def image(*sizes: int) -> TensorDesc:
        _, channels, height, width = sizes if shape.nhwc else (0, 0, 0, 0)
        strides = (channels * height * width, 1, channels * width, channels) if shape.nhwc else None
        return TensorDesc(shape.data_type, sizes, strides)

    def each(value: int) -> tuple[int, ...]:
        return (value,) * len(spatial)

    return descs.Convolution(
        input_tensor=image(*shape.source),
        filter_tensor=TensorDesc(shape.data_type, (*filters, *shape.window)),
        bias_tensor=TensorDesc(shape.data_type, (1, shape.outputs, *each(1))),
        output_tensor=image(batch, shape.outputs, *positions),
        mode=ConvolutionMode.CONVOLUTION,
        direction=shape.direction,
        strides=each(shape.stride),
        dilations=each(1),
        start_padding=each(shape.padding),
        end_padding=each(shape.padding),
        output_padding=each(0),
        group_count=shape.groups,
        fused_activation=descs.ActivationRelu(),
    )


def small_integers(desc: Any) -> list[Any]:
    """Elements with which every sum is exact, also in float16."""
    rng = np.random.default_rng(1)
    tensors = (slot.tensor for slot in desc.inputs)
    return [rng.integers(-2, 3, tensor.sizes).astype(tensor.data_type.numpy) for tensor in tensors]


@pytest.mark.parametrize(("schedule", "profile"), SCHEDULES, ids=[name for name, _ in SCHEDULES])
@pytest.mark.parametrize("name", SHAPES)
def test_schedules_of_products(backend: GpuBackend, name: str, schedule: str, profile: Profile) -> None:
    desc = described(SHAPES[name])
    operators.check(desc)
    arrays = small_integers(desc)
    target = replace(backend.target.exact, profile=profile).with_overrides(schedule=schedule)
    (got,) = run_desc(backend, desc, arrays, target)
    (want,) = reference.evaluate(desc, arrays)
    np.testing.assert_array_equal(got, want)
