"""Hardware conversions between float16 and float32: which of them are exact on an adapter is measured once and cached.

WGSL leaves the rounding of ``pack2x16float`` and subnormal numbers to the driver. A kernel converts all 65,536 numbers
of float16, and every float32 around which rounding changes: ties, the numbers next to them, overflow, infinities, NaN.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import wgpu
from numpy.typing import NDArray

from dmlgpu.compiler.target import Float16Encoding
from dmlgpu.runtime.wgpu.measured import contents_after

UNPACK: Final = "unpack"
"""Name of the decoding in files; encodings have the names of ``Float16Encoding``."""

_KERNEL = """{enable}
@group(0) @binding(0) var<storage, read_write> floats: array<u32>;
@group(0) @binding(1) var<storage, read_write> packed: array<u32>;
@group(0) @binding(2) var<storage, read_write> rounded: array<u32>;
@group(0) @binding(3) var<storage, read_write> unpacked: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let place = id.x;
    if (place < 65536u) {{ unpacked[place] = bitcast<u32>(unpack2x16float(place).x); }}
    if (place >= arrayLength(&floats)) {{ return; }}
    let x = bitcast<f32>(floats[place]);
    packed[place] = pack2x16float(vec2<f32>(x, 0.0));
    rounded[place] = {rounded};
}}
"""
_BY_F16 = ("enable f16;", "pack2x16float(vec2<f32>(f32(f16(x)), 0.0))")
_WITHOUT_F16 = ("", "0xffffffffu")


def measure(device: wgpu.GPUDevice) -> frozenset[str]:
    """Return the names of the conversions that are exact on a device."""
    floats = critical_floats()
    packed, rounded, unpacked = _converted(device, floats)
    with np.errstate(over="ignore"):
        expected = floats.astype(np.float16)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    results = {
        UNPACK: _equal(unpacked.view(np.float32), halves.astype(np.float32)),
        Float16Encoding.PACK: _is_encoded(packed, expected),
        Float16Encoding.F16: _is_encoded(rounded, expected),
    }
    return frozenset(str(name) for name, is_exact in results.items() if is_exact)


def critical_floats() -> NDArray[np.float32]:
    """Return all float16 numbers, the ties between them, and the float32 numbers next to the ties."""
    halves = np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(np.float64)
    halves[-1] = 65536.0  # the next number, if float16 had another exponent
    middles = ((halves[:-1] + halves[1:]) / 2).astype(np.float32)
    around = [np.nextafter(middles, np.float32(0)), middles, np.nextafter(middles, np.float32(np.inf))]
    special = np.array([65536, 1e10, 3.4e38, np.inf, np.nan, 1e-8, 1e-30, 1e-40, 1e-45], np.float32)
    positive = np.concatenate([halves.astype(np.float32), *around, special])
    return np.concatenate([positive, -positive])


def _is_encoded(words: NDArray[np.uint32], expected: NDArray[np.float16]) -> bool:
    return bool((words < 1 << 16).all()) and _equal(words.astype(np.uint16).view(np.float16), expected)


def _equal(results: NDArray[Any], expected: NDArray[Any]) -> bool:
    """Return whether numbers are bitwise equal, or NaN where NaN is expected."""
    nan = np.isnan(expected)
    bits = np.dtype(f"u{expected.dtype.itemsize}")
    return bool(np.isnan(results[nan]).all() and np.array_equal(results[~nan].view(bits), expected[~nan].view(bits)))


def _converted(device: wgpu.GPUDevice, floats: NDArray[np.float32]) -> list[NDArray[np.uint32]]:
    """Return the kernel's results: packed, rounded by f16, unpacked."""
    enable, rounded = _BY_F16 if "shader-f16" in device.features else _WITHOUT_F16
    module = device.create_shader_module(code=_KERNEL.format(enable=enable, rounded=rounded))
    empty = np.zeros_like(floats)
    unpacked = np.zeros(1 << 16, np.uint32)
    return contents_after(device, module, (floats, empty, empty, unpacked), workgroups=(-(-floats.size // 64),))[1:]
