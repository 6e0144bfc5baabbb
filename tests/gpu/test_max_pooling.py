"""Maximum pooling by tiles of positions: which element wins, and its bits, as the formula has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.schedule.steps.products import ScheduledTiles
from dmlgpu.compiler.target import Profile
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc
from tests.schedules import steps_of

# sizes, window, strides, dilations, padding before and after
SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "2 x 2 in units": ((1, 3, 16, 16), (2, 2), (2, 2), (1, 1), (0, 0), (0, 0)),
    "apart, in units, padded": ((1, 2, 7, 20), (3, 3), (3, 4), (1, 1), (2, 1), (1, 2)),
    "apart, in a row": ((2, 1, 21), (3,), (3,), (1,), (2,), (0,)),
    "apart, three dimensions": ((1, 2, 5, 6, 8), (2, 2, 2), (2, 2, 3), (1, 1, 1), (1, 0, 1), (0, 1, 1)),
    "large, apart": ((1, 2, 8, 16), (4, 4), (4, 4), (1, 1), (0, 0), (0, 0)),
    "padded": ((2, 1, 9, 13), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
    "overlapping, dilated": ((1, 2, 10, 12), (3, 2), (1, 1), (2, 3), (2, 0), (1, 3)),
    "three dimensions": ((1, 2, 5, 6, 8), (2, 3, 3), (2, 1, 1), (1, 1, 1), (1, 0, 1), (0, 1, 1)),
    "rows in a loop": ((1, 1, 24, 31), (20, 30), (1, 2), (1, 1), (3, 2), (0, 2)),
}
TYPES = [DataType.FLOAT16, DataType.INT32, DataType.UINT32, DataType.INT8, DataType.UINT16]
CASES = [
    *((name, DataType.FLOAT32) for name in SHAPES),
    *((name, data_type) for name in ("padded", "2 x 2 in units") for data_type in TYPES),
]
NOT_TILED_ON_GPU = {("rows in a loop", DataType.FLOAT32)} | {
    ("padded", data_type) for data_type in (DataType.FLOAT16, DataType.INT8, DataType.UINT16)
}
"""Large windows, and elements that share words with those of other tiles."""


def description(name: str, data_type: DataType) -> descs.MaxPooling2:
    sizes, window, strides, dilations, start, end = SHAPES[name]
    spatial = zip(sizes[2:], window, strides, dilations, start, end, strict=True)
    positions = [(n + a + b - (w - 1) * d - 1) // s + 1 for n, w, s, d, a, b in spatial]
    return descs.MaxPooling2(
        input_tensor=TensorDesc(data_type, sizes),
        output_tensor=TensorDesc(data_type, (*sizes[:2], *positions)),
        strides=strides,
        window_size=window,
        start_padding=start,
        end_padding=end,
        dilations=dilations,
    )


def numbers(data_type: DataType, sizes: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Few different ones, so that there are ties: of floats zeros of both signs, and NaN of several bits; of integers
    the smallest and the largest."""
    kind = np.dtype(data_type.numpy)
    if data_type.is_float:
        values = np.array([0.0, -0.0, 1.5, -2.0, np.nan, -np.nan, -np.inf, 1e-7], kind)
    else:
        ends = np.iinfo(kind)
        values = np.array([ends.min, ends.min + 1, ends.max, 1, 2], kind)
    return np.random.default_rng(1).choice(values, sizes)


def largest(x: np.ndarray[Any, Any], desc: descs.MaxPooling2) -> np.ndarray[Any, Any]:
    """Window by window: the first of the largest numbers that are no NaN, or else the first NaN."""
    result = np.empty(desc.output_tensor.sizes, x.dtype)
    axes = (desc.window_size, desc.strides, desc.dilations, desc.start_padding, desc.input_tensor.sizes[2:])
    for at in np.ndindex(result.shape):
        places = [
            [p for p in (at[2 + axis] * s - a + k * d for k in range(w)) if 0 <= p < n]
            for axis, (w, s, d, a, n) in enumerate(zip(*axes, strict=True))
        ]
        seen = x[at[0], at[1]][np.ix_(*places)].ravel()
        real = seen[~np.isnan(seen)] if x.dtype.kind == "f" else seen
        result[at] = real[np.argmax(real)] if len(real) else seen[0]
    return result


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
@pytest.mark.parametrize(("name", "data_type"), CASES, ids=lambda part: str(getattr(part, "name", part)))
def test_the_bits_of_the_first_of_the_largest(
    backend: GpuBackend, name: str, data_type: DataType, profile: Profile
) -> None:
    desc = description(name, data_type)
    target = replace(backend.target.exact, profile=profile)
    is_tiled = profile is Profile.CPU or (name, data_type) not in NOT_TILED_ON_GPU
    assert ([type(step) for step in steps_of(desc, target)] == [ScheduledTiles]) is is_tiled
    x = numbers(data_type, desc.input_tensor.sizes)
    (got,) = run_desc(backend, desc, [x], target)
    bits = f"u{x.itemsize}"
    np.testing.assert_array_equal(got.view(bits), largest(x, desc).view(bits))
