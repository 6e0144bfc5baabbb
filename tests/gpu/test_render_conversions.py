"""CAST between every pair of types, and float16, to the bit: edges, ties and random bit patterns on every adapter."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import BFLOAT16, DataType, float_limits
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler.target import Float16Encoding
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.fusion import Array, Inputs, assert_same, run_plan

TYPES = [data_type for data_type in (*DataType, BFLOAT16) if data_type is not DataType.UNKNOWN and data_type.bits >= 8]
RANDOM = 100_000
F16, F32, F64 = DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64


def run_cast(backend: GpuBackend, values: Array, data_type: DataType) -> Array:
    inputs = Inputs()
    inputs.add(values)
    output = TensorDesc(data_type, values.shape)
    desc = descs.Cast(input_tensor=inputs.descs[0], output_tensor=output)
    return run_plan(backend, inputs, operators.lower(desc), output)


def expected(values: Array, data_type: DataType) -> Array:
    """NumPy's conversion; from floats to integers, where NumPy leaves much open, Python's exact one, saturated.

    Wider types become bfloat16 by way of float32, as in PyTorch. ml_dtypes did so up to 0.6; 0.7 rounds once.
    """
    with np.errstate(all="ignore"):
        if data_type is BFLOAT16:
            return values.astype(np.float32).astype(data_type.numpy)
        if values.dtype.kind in "iu" or data_type.is_float:
            return values.astype(data_type.numpy)
    limits = np.iinfo(data_type.numpy)

    def convert(value: float) -> int:
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return int(limits.max) if value > 0 else int(limits.min)
        return min(max(int(value), int(limits.min)), int(limits.max))

    return np.array([convert(value) for value in values.tolist()], data_type.numpy)


def samples(source: DataType, target: DataType) -> Array:
    """Random bit patterns, numbers about as large as the target's, edges, and ties of rounding."""
    rng = np.random.default_rng([source, target])
    dtype = source.numpy
    parts = [rng.integers(0, 256, RANDOM * dtype.itemsize, np.uint8).view(dtype)]
    if not source.is_float:
        parts.append(integer_edges(rng, source))
        return np.concatenate(parts)
    magnitudes = 2.0 ** rng.uniform(-4, min(target.bits, 64) + 1, RANDOM // 2)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan]
    with np.errstate(over="ignore"):
        parts.append((magnitudes * rng.choice([-1, 1], magnitudes.size)).astype(dtype))
        parts.append(np.array(special, dtype))
        parts.append(near(np.array([0.5, 1.5, 2.5, 1.0, *powers(), *(-power for power in powers())]), dtype))
        if target.is_float and target.bits < source.bits:
            parts.append(ties(rng, target, dtype))
    return np.concatenate(parts)


def powers() -> list[float]:
    return [2.0**exponent for exponent in (-1074, -149, -126, -24, -14, 7, 8, 15, 16, 31, 32, 63, 64, 127)]


def near(values: Array, dtype: Any) -> Array:
    """The values and their neighbors on both sides."""
    rounded = values.astype(dtype)
    return np.concatenate([rounded, *(np.nextafter(rounded, dtype.type(side)) for side in (-np.inf, np.inf))])


def ties(rng: np.random.Generator, target: DataType, dtype: Any) -> Array:
    """Numbers exactly between two neighbors of a float type, and a hair off."""
    if target.is_reduced_float:
        grid = np.arange(1 << 16, dtype=np.uint16).view(target.numpy)
    else:
        grid = rng.integers(0, 256, 80_000, np.uint8).view(np.float32)
    limits = float_limits(target)
    top = float(limits.max)
    with np.errstate(invalid="ignore"):  # of signaling NaN
        wide = grid.astype(np.float64)
    above = np.nextafter(wide.astype(target.numpy), target.numpy.type(np.inf)).astype(np.float64)
    wide, above = wide[np.isfinite(wide)], above[np.isfinite(wide)]
    middles = np.where(np.isinf(above), top * (1 + 2.0 ** -(limits.nmant + 2)), (wide + above) / 2)
    return near(middles, dtype)


def integer_edges(rng: np.random.Generator, source: DataType) -> Array:
    """Limits of all types, and integers with 25 or 54 leading bits, a hair around what floats can hold."""
    edges = [value for bits in (8, 16, 32, 64) for value in (2**bits, 2 ** (bits - 1), -(2 ** (bits - 1)))]
    for digits in (12, 25, 54):
        leading = rng.integers(2 ** (digits - 1), 2**digits, 200).tolist()
        shifts = rng.integers(0, max(source.bits - digits, 0) + 1, 200).tolist()
        edges += [sign * (number << shift) for number, shift in zip(leading, shifts, strict=True) for sign in (1, -1)]
    limits = np.iinfo(source.numpy)
    numbers = [0, *(edge + off for edge in edges for off in (-1, 0, 1))]
    fitting = [number for number in numbers if limits.min <= number <= limits.max]
    return np.array(fitting, source.numpy)


@pytest.mark.parametrize(
    ("source", "target"), list(itertools.permutations(TYPES, 2)), ids=lambda data_type: data_type.name
)
def test_cast_converts_exactly(backend: GpuBackend, source: DataType, target: DataType) -> None:
    values = samples(source, target)
    assert_same(run_cast(backend, values, target), expected(values, target))


def test_every_half_becomes_the_same_float(backend: GpuBackend) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    assert_same(run_cast(backend, halves, F32), halves.astype(np.float32))
    assert_same(run_cast(backend, halves, F64), halves.astype(np.float64))


def test_a_million_floats_become_the_nearest_float16(backend: GpuBackend) -> None:
    rng = np.random.default_rng(1)
    patterns = rng.integers(0, 1 << 32, 1_000_000, np.uint32)
    patterns[::2] = (patterns[::2] & 0x8FFF_FFFF) + 0x3000_0000  # magnitudes around those of float16
    values = patterns.view(np.float32)
    with np.errstate(over="ignore"):
        assert_same(run_cast(backend, values, F16), values.astype(np.float16))


def test_payloads_of_nan_survive_as_far_as_they_fit(backend: GpuBackend) -> None:
    """A NaN stays one, with its sign and the leading bits of its payload, unless hardware rounds to float16."""
    wide = np.array([0x7FF8_0000_0000_0001, 0xFFF0_0000_0000_0001, 0x7FF4_0123_4567_89AB], np.uint64).view(np.float64)
    narrow = run_cast(backend, wide, F32).view(np.uint32)
    assert [hex(bits) for bits in narrow] == ["0x7fc00000", "0xffc00000", "0x7fe0091a"]
    halves = run_cast(backend, narrow.view(np.float32), F16).view(np.uint16)
    assert np.isnan(halves.view(np.float16)).all()
    if backend.target.float16.encoding is Float16Encoding.SOFTWARE:
        assert [hex(bits) for bits in halves] == ["0x7e00", "0xfe00", "0x7f00"]
