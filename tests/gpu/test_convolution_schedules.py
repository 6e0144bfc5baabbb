"""Convolutions by the schedules made for some of them, by name, at and near the sizes of their tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dmlgpu import descs
from dmlgpu.catalog.enums import ConvolutionDirection, ConvolutionMode, DataType, TensorFlags
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.target import Profile
from dmlgpu.conformance.cases.families.convolution import transformed_magnitude
from dmlgpu.conformance.cases.tolerance import Accumulated, Tolerance, Transformed
from dmlgpu.conformance.running.outcome import compare
from dmlgpu.reference import evaluate
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc

Array = NDArray[Any]

F32, F16 = DataType.FLOAT32, DataType.FLOAT16


@dataclass(frozen=True)
class Shape:
    """A convolution; one number stands for all spatial dimensions.

    Attributes:
        spatial, window: sizes.
        last: an order of the dimensions in memory with the channels last.
        apart: elements between neighbors.
    """

    spatial: tuple[int, ...]
    window: tuple[int, ...]
    batch: int = 1
    groups: int = 1
    channels: int = 1
    outputs: int = 1
    start: int = 0
    end: int = 0
    stride: int = 1
    dilation: int = 1
    data_type: DataType = F32
    last: bool = False
    apart: int = 1
    owned: bool = False
    backward: bool = False
    flipped: bool = False
    bias: bool = False

    @property
    def positions(self) -> tuple[int, ...]:
        """Sizes of the output: those of a transposed convolution if it is ``backward``."""
        if self.backward:
            return tuple(
                self.stride * (n - 1) + self.dilation * (k - 1) + 1 - self.start - self.end
                for n, k in zip(self.spatial, self.window, strict=True)
            )
        return tuple(
            (n + self.start + self.end - self.dilation * (k - 1) - 1) // self.stride + 1
            for n, k in zip(self.spatial, self.window, strict=True)
        )


DEPTHWISE = {
    "whole tiles": Shape((8, 16), (3, 3), groups=3, start=1, end=1),
    "near misses": Shape((9, 13), (3, 3), batch=2, groups=3, start=1, end=1),
    "one element": Shape((1, 1), (3, 3), groups=2, start=1, end=1),
    "narrow": Shape((7, 3), (1, 3), groups=2, outputs=3, end=1),
    "several outputs, bias": Shape((6, 8), (3, 3), groups=4, outputs=2, start=1, bias=True),
    "steps": Shape((11, 16), (3, 5), groups=2, start=2, end=3, stride=2),
    "steps of four": Shape((9, 16), (4, 4), groups=2, stride=4),
    "gaps": Shape((12, 12), (3, 3), groups=2, start=2, end=2, dilation=2),
    "wide padding": Shape((4, 4), (2, 2), groups=2, start=7, end=6),
    "no padding": Shape((8, 8), (3, 3), groups=3),
    "halves": Shape((8, 8), (3, 3), groups=3, start=1, end=1, data_type=F16),
    "odd float16": Shape((5, 7), (3, 3), groups=3, start=1, end=1, data_type=F16),
    "channels last": Shape((8, 12), (3, 3), batch=2, groups=5, start=1, end=1, last=True),
    "odd float16, channels last": Shape((5, 7), (3, 3), groups=3, start=1, end=1, data_type=F16, last=True),
    "padded rows": Shape((6, 8), (3, 3), groups=3, start=1, end=1, apart=2),
    "one dimension": Shape((37,), (5,), groups=3, start=2, end=2),
    "three dimensions": Shape((3, 5, 8), (2, 3, 3), groups=2, start=1, end=1),
    "a large window": Shape((20, 20), (13, 11), groups=2, start=6, end=5),
    "transposed": Shape((5, 6), (3, 3), groups=3, start=1, end=1, backward=True),
    "flipped": Shape((8, 8), (3, 3), groups=2, start=1, end=1, flipped=True),
    "many rows": Shape((40, 16), (5, 5), groups=3, start=2, end=2, owned=True),
    "many rows, one unit across": Shape((20, 12), (3, 3), groups=3, start=1, end=1),
    "many rows, steps": Shape((41, 13), (5, 3), groups=2, outputs=2, start=2, end=1, stride=2, bias=True),
    "many rows, steps longer than the window": Shape((38, 12), (2, 3), groups=2, stride=3),
    "many rows of odd float16": Shape((19, 7), (7, 3), groups=3, start=3, end=3, data_type=F16),
}

ON_GPUS = ("whole tiles", "near misses", "odd float16", "channels last")
"""Those that are run again in the tiles that GPUs get."""

WINOGRAD = {
    "whole tiles": Shape((8, 8), (3, 3), channels=4, outputs=8, start=1, end=1),
    "near misses": Shape((9, 13), (3, 3), batch=2, channels=3, outputs=5, start=1, end=1, bias=True),
    "smaller than a tile": Shape((1, 3), (3, 3), channels=2, outputs=1, start=1, end=1),
    "no padding": Shape((10, 11), (3, 3), channels=5, outputs=6),
    "wide padding": Shape((4, 4), (3, 3), channels=2, outputs=4, start=5, end=6),
    "groups": Shape((8, 12), (3, 3), batch=3, groups=2, channels=4, outputs=3, start=1, end=1),
    "many channels": Shape((5, 6), (3, 3), channels=40, outputs=4, start=1, end=1),
    "halves": Shape((8, 8), (3, 3), channels=8, outputs=4, start=1, end=1, data_type=F16),
    "odd float16": Shape((5, 7), (3, 3), channels=3, outputs=3, start=1, end=1, data_type=F16),
    "channels last": Shape((8, 9), (3, 3), channels=4, outputs=6, start=1, end=1, last=True),
    "padded rows": Shape((6, 8), (3, 3), channels=3, outputs=4, start=1, end=1, apart=2),
    "filter handed over": Shape((8, 8), (3, 3), channels=4, outputs=5, start=1, end=1, owned=True),
    "transposed": Shape((6, 6), (3, 3), channels=3, outputs=4, start=1, end=1, backward=True),
    "flipped": Shape((6, 6), (3, 3), channels=3, outputs=4, start=1, end=1, flipped=True),
}


def describe(shape: Shape) -> descs.Convolution:
    channels, outputs = shape.groups * shape.channels, shape.groups * shape.outputs
    first, second = (channels, shape.outputs) if shape.backward else (outputs, shape.channels)
    dimensions = len(shape.spatial)
    return descs.Convolution(
        input_tensor=image(shape, (shape.batch, channels, *shape.spatial)),
        filter_tensor=TensorDesc(
            shape.data_type,
            (first, second, *shape.window),
            flags=TensorFlags.OWNED_BY_DML if shape.owned else TensorFlags.NONE,
        ),
        bias_tensor=TensorDesc(shape.data_type, (1, outputs, *(1,) * dimensions)) if shape.bias else None,
        output_tensor=image(shape, (shape.batch, outputs, *shape.positions)),
        mode=ConvolutionMode.CONVOLUTION if shape.flipped else ConvolutionMode.CROSS_CORRELATION,
        direction=ConvolutionDirection.BACKWARD if shape.backward else ConvolutionDirection.FORWARD,
        strides=(shape.stride,) * dimensions,
        dilations=(shape.dilation,) * dimensions,
        start_padding=(shape.start,) * dimensions,
        end_padding=(shape.end,) * dimensions,
        output_padding=(0,) * dimensions,
        group_count=shape.groups,
    )


def image(shape: Shape, sizes: tuple[int, ...]) -> TensorDesc:
    """A tensor laid out as the shape says."""
    order = (0, *range(2, len(sizes)), 1) if shape.last else tuple(range(len(sizes)))
    strides, stride = [0] * len(sizes), shape.apart
    for dimension in reversed(order):
        strides[dimension] = stride
        stride *= sizes[dimension]
    return TensorDesc(shape.data_type, sizes, tuple(strides))


def drawn(desc: descs.Convolution) -> list[Array]:
    """Random inputs."""
    rng = np.random.default_rng(1)
    tensors = [slot.tensor for slot in desc.inputs if slot.tensor is not None]
    return [rng.uniform(-1, 1, tensor.sizes).astype(tensor.data_type.numpy) for tensor in tensors]


def computed(
    backend: GpuBackend,
    shape: Shape,
    schedule: str,
    profile: Profile,
    inputs: Sequence[Array],
    *,
    without: frozenset[str] = frozenset(),
    varies: bool = False,
) -> Array:
    target = replace(backend.target.exact, profile=profile).with_overrides(schedule=schedule)
    target = replace(target, features=target.features - without)
    target = target.varying if varies else target
    (got,) = run_desc(backend, describe(shape), inputs, target)
    return got


def expected(desc: descs.Convolution, inputs: Sequence[Array]) -> Array:
    (want,) = evaluate(desc, [*inputs, *[None] * (len(desc.inputs) - len(inputs))])
    return want


def check(want: Array, got: Array, tolerance: Tolerance, magnitude: NDArray[np.float64]) -> None:
    verdict = compare(want, got, tolerance, magnitude)
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize(
    ("name", "profile"),
    [*((name, Profile.CPU) for name in DEPTHWISE), *((name, Profile.DISCRETE) for name in ON_GPUS)],
)
def test_depthwise(backend: GpuBackend, name: str, profile: Profile) -> None:
    shape = DEPTHWISE[name]
    desc = describe(shape)
    inputs = drawn(desc)
    got = computed(backend, shape, "depthwise", profile, inputs)
    magnitude = expected(desc, [np.abs(array).astype(np.float32) for array in inputs]).astype(np.float64)
    check(expected(desc, inputs), got, Accumulated(int(np.prod(shape.window)) + shape.bias), magnitude)


def magnitude_of(shape: Shape, tile: int, source: Array, filters: Array) -> NDArray[np.float64]:
    """What the absolute values come to, through all transforms; the filter as for a forward cross-correlation."""
    before = 2 - shape.start if shape.backward else shape.start
    images = source.reshape(shape.batch, shape.groups, shape.channels, *shape.spatial)
    return transformed_magnitude(images, filters, tile, start=(before, before), positions=shape.positions)


def forward_filters(shape: Shape, filters: Array) -> Array:
    """{groups, outputs, channels, 3, 3} of a forward cross-correlation; which way a window lies is of no account."""
    if shape.backward:
        return filters.reshape(shape.groups, shape.channels, shape.outputs, 3, 3).swapaxes(1, 2)[..., ::-1, ::-1]
    grouped = filters.reshape(shape.groups, shape.outputs, shape.channels, 3, 3)
    return grouped[..., ::-1, ::-1] if shape.flipped else grouped


SMALLER = ("whole tiles", "near misses", "smaller than a tile", "odd float16")
"""Those that are run with tiles of 2 x 2 as well: only matrices differ."""


@pytest.mark.parametrize(
    ("name", "tile", "profile"),
    [
        *((name, 4, Profile.CPU) for name in WINOGRAD),
        *((name, 2, Profile.CPU) for name in SMALLER),
        ("near misses", 4, Profile.DISCRETE),
        ("groups", 2, Profile.DISCRETE),
    ],
)
def test_winograd(backend: GpuBackend, name: str, tile: int, profile: Profile) -> None:
    shape = WINOGRAD[name]
    desc = describe(shape)
    inputs = drawn(desc)
    got = computed(backend, shape, f"winograd-{tile}", profile, inputs)
    source, filters, *bias = (array.astype(np.float64) for array in inputs)
    magnitude = magnitude_of(shape, tile, source, forward_filters(shape, filters))
    check(expected(desc, inputs), got, Transformed(shape.channels), magnitude + sum(map(np.abs, bias)))


MAX_SPREAD = 3
"""Norm of a patch relative to the sum of the norms of a window's pixels, beyond which an output is summed directly."""


def marked_outputs(shape: Shape, tile: int, source: Array) -> NDArray[np.bool_]:
    """The outputs whose windows are too small relative to their patches: {batch, channels, positions..}."""
    before = 2 - shape.start if shape.backward else shape.start
    images = source.astype(np.float64).reshape(shape.batch, shape.groups, shape.channels, *shape.spatial)
    norms = np.pad(np.sqrt((images**2).sum(2)), ((0, 0), (0, 0), (before, 20), (before, 20)))
    height, width = shape.positions
    marks = np.zeros((shape.batch, shape.groups, shape.outputs, height, width), bool)
    for row, column in np.ndindex(height, width):
        top, left = row - row % tile, column - column % tile
        patch = norms[..., top : top + tile + 2, left : left + tile + 2]
        window = norms[..., row : row + 3, column : column + 3]
        spread = np.sqrt((patch**2).sum((-1, -2))) > MAX_SPREAD * window.sum((-1, -2))
        marks[..., row, column] = spread[..., None]
    return marks.reshape(shape.batch, -1, height, width)


WIDE_RANGE = {
    **{name: WINOGRAD[name] for name in WINOGRAD if name != "smaller than a tile"},
    "four tiles side by side": Shape((12, 16), (3, 3), channels=4, outputs=8, start=1, end=1),
    "side by side, float16, groups": Shape(
        (9, 16), (3, 3), batch=2, groups=2, channels=3, outputs=4, start=1, end=1, data_type=F16
    ),
}


@pytest.mark.parametrize(
    ("name", "tile", "profile", "share", "varies"),
    [
        *((name, 4, Profile.CPU, 0.3, False) for name in WIDE_RANGE),
        *((name, 4, Profile.DISCRETE, 0.3, False) for name in ("groups", "odd float16", "four tiles side by side")),
        ("four tiles side by side", 4, Profile.CPU, 0.02, False),
        ("four tiles side by side", 2, Profile.CPU, 0.3, False),
        ("near misses", 4, Profile.DISCRETE, 0.02, False),
        ("near misses", 4, Profile.DISCRETE, 0.02, True),
        ("near misses", 2, Profile.CPU, 0.3, False),
        ("groups", 2, Profile.DISCRETE, 0.3, False),
        ("groups", 4, Profile.DISCRETE, 0.3, True),
    ],
)
def test_winograd_bounds_errors_of_a_wide_range(
    backend: GpuBackend, name: str, tile: int, profile: Profile, share: float, *, varies: bool
) -> None:
    """Outputs that do not see the large elements of their patches are as exact as direct sums."""
    shape = WIDE_RANGE[name]
    desc = describe(shape)
    inputs = drawn(desc)
    is_large = np.random.default_rng(2).random(inputs[0].shape[-2:]) < share
    is_large[-1, 0] = True
    inputs[0] = np.where(is_large, inputs[0] * (1e3 if shape.data_type is F16 else 1e7), inputs[0]).astype(
        inputs[0].dtype
    )
    marked = marked_outputs(shape, tile, inputs[0])
    assert marked.any()
    # CPU adapters without 64-bit integers transform four tiles side by side.
    without = frozenset({"shader-int64"} if "side by side" in name else {})
    got = computed(backend, shape, f"winograd-{tile}", profile, inputs, without=without, varies=varies)
    want = expected(desc, inputs)
    direct = expected(desc, [np.abs(array).astype(np.float32) for array in inputs]).astype(np.float64)
    terms = Accumulated(9 * shape.channels + shape.bias)
    check(want[marked], got[marked], terms, direct[marked])
    source, filters, *bias = (array.astype(np.float64) for array in inputs)
    magnitude = magnitude_of(shape, tile, source, forward_filters(shape, filters)) + sum(map(np.abs, bias))
    check(want[~marked], got[~marked], Transformed(shape.channels), magnitude[~marked])


@pytest.mark.parametrize(
    ("schedule", "shape"),
    [
        pytest.param("depthwise", Shape((8, 8), (3, 3), channels=2, outputs=2), id="two channels"),
        pytest.param("winograd-2", Shape((8, 8), (3, 3), stride=2), id="steps"),
        pytest.param("winograd-4", Shape((8, 8), (3, 2)), id="another window"),
        pytest.param("winograd-4", Shape((8, 8), (3, 3), dilation=2), id="gaps"),
        pytest.param("winograd-2", Shape((8,), (3,)), id="one dimension"),
    ],
)
def test_unsuitable_convolutions_are_rejected(backend: GpuBackend, schedule: str, shape: Shape) -> None:
    desc = describe(shape)
    with pytest.raises(InvalidArgument, match=schedule):
        run_desc(backend, desc, drawn(desc), backend.target.exact.with_overrides(schedule=schedule))
