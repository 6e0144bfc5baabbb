"""Correctly rounded float32 quotients and square roots: the methods of an adapter, measured by a kernel.

WGSL allows 2.5 ULP, and any quotient by a divisor beyond 2^126: NVIDIA's driver multiplies by reciprocals, which are 0
there. If its ``fma`` is exact, it corrects them (``shaders/lib/divide``). If one of a few thousand results of both ways
differs from NumPy's, kernels use integer arithmetic.
"""

from __future__ import annotations

import numpy as np
import wgpu
from numpy.typing import NDArray

from dmlgpu.compiler.target import Division
from dmlgpu.runtime.wgpu.measured import contents_after

_KERNEL = """
@group(0) @binding(0) var<storage, read_write> pairs: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read_write> results: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> params: Params;
struct Params {{ zero: u32 }}
fn opaque_zero() -> u32 {{ return params.zero; }}
fn quotient(a: f32, b: f32) -> f32 {{ return {quotient}; }}
fn root(x: f32) -> f32 {{ return {root}; }}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let a = pairs[id.x + opaque_zero()].x;
    let b = pairs[id.x].y;
    results[id.x] = vec4<f32>(quotient(a, b), quotient(a, 1.1), quotient(3.0, b), root(abs(a)));
}}
"""
_OPERATIONS = {
    Division.NATIVE: ("a / opaque(b)", "sqrt(x)"),
    Division.FUSED: ("divide_f32_fused(a, b)", "sqrt_f32_fused(x)"),
}
_PAIRS = 1 << 13
_SPECIAL = (0.0, -0.0, 1.0, 3.0, 1e-38, 8e37, 1.7e38, 3.4e38, np.inf, -np.inf, np.nan)
_TINY = float(np.finfo(np.float32).tiny)


def measure(device: wgpu.GPUDevice) -> frozenset[str]:
    """Return the divisions by which all quotients and square roots of a sample are rounded correctly on a device.

    Results of subnormal numbers, and subnormal results, do not count: an adapter may flush them to 0.
    """
    pairs = sample()
    with np.errstate(all="ignore"):
        a, b = pairs.T
        expected = np.stack([a / b, a / np.float32(1.1), np.float32(3) / b, np.sqrt(np.abs(a))], axis=1)
    counts = ~(_is_subnormal(expected) | _is_subnormal(pairs).any(axis=1, keepdims=True))
    computed = {division: _computed(device, division, pairs) for division in _OPERATIONS}
    return frozenset(
        str(division)
        for division, results in computed.items()
        if np.array_equal(results[counts], expected[counts], equal_nan=True)
    )


def sample() -> NDArray[np.float32]:
    """Return pairs of numbers: special values, nearly equal ones, and random bits."""
    rng = np.random.default_rng(1)
    special = np.array([(a, b) for a in _SPECIAL for b in _SPECIAL], np.float32)
    near = (1 + rng.random((_PAIRS // 2, 2))).astype(np.float32)
    bits = rng.integers(0, 1 << 32, (_PAIRS // 2, 2), np.uint32).view(np.float32)
    pairs = np.concatenate([special, near, bits])
    return np.concatenate([pairs, np.ones((-len(pairs) % 64, 2), np.float32)])


def _is_subnormal(numbers: NDArray[np.float32]) -> NDArray[np.bool_]:
    return (numbers != 0) & (np.abs(numbers) < _TINY)


def _computed(device: wgpu.GPUDevice, division: Division, pairs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the quotient of each pair, also with either number as a constant, and the square root.

    Of constants, NVIDIA's driver does not compute ``fma`` in one step.
    """
    # Only for the measurement: adapters are listed without the compiler.
    from dmlgpu.compiler.wgsl import library  # noqa: PLC0415

    quotient, root = _OPERATIONS[division]
    text = _KERNEL.format(quotient=quotient, root=root)
    functions = library.text_of(library.with_needs(library.mentioned(text)))
    module = device.create_shader_module(code=functions + text)
    contents = (pairs, np.zeros((len(pairs), 4), np.float32), np.zeros(4, np.uint32))
    words = contents_after(device, module, contents, workgroups=(len(pairs) // 64,))
    return words[1].view(np.float32).reshape(-1, 4)
