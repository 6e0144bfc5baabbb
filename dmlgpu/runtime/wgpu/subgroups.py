"""Subgroups: whether those of a GPU meet the assumptions of kernels, measured by a kernel.

Kernels are correct for subgroups of every size from ``Target.subgroup_lanes`` on, and number the invocations of a
workgroup by subgroup and lane. WGSL does not say that this gives each invocation a number of its own below the
workgroup's size, because drivers need not fill subgroups. GPUs whose driver does not, or whose shuffles are wrong,
combine values in workgroup memory.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import wgpu
from numpy.typing import NDArray

from dmlgpu.compiler.target import MIN_LANES
from dmlgpu.runtime.wgpu.libraries import library_of
from dmlgpu.runtime.wgpu.measured import contents_after

FULL: Final = "full"
"""Name of the fact that subgroups are full, and shuffles correct."""

_WORKGROUPS = (16, 32, 64, 128, 256)
_DISTANCES = (1, 2, 4, 8, 16, 32, 64)

_KERNEL = """
@group(0) @binding(0) var<storage, read_write> results: array<vec2<u32>>;
@compute @workgroup_size({workgroup})
fn main(@builtin(local_invocation_index) place: u32, @builtin(subgroup_id) subgroup: u32,
        @builtin(subgroup_invocation_id) lane: u32, @builtin(subgroup_size) lanes: u32) {{
    let me = subgroup * lanes + lane;
    let size = min(lanes, {workgroup}u);
    let value = vec2<f32>(f32(me), f32(me * 3u));
    var is_exact = lanes >= {fewest}u && (lanes & (lanes - 1u)) == 0u;
{shuffles}
    is_exact = is_exact && subgroupBroadcastFirst(me) == me - lane;
    is_exact = is_exact && subgroupShuffle(me, size - 1u - subgroup % size) == me - lane + size - 1u - subgroup % size;
    results[place] = vec2<u32>(me, select(0u, 1u, is_exact));
}}
"""
_SHUFFLE = """    if (size > {distance}u) {{
        let other = subgroupShuffleXor(value, {distance}u);
        is_exact = is_exact && other.x == f32(me ^ {distance}u) && other.y == f32((me ^ {distance}u) * 3u);
    }}"""


def measure(device: wgpu.GPUDevice) -> frozenset[str]:
    """Return whether subgroups are full, and shuffles correct, in workgroups of all sizes."""
    numbered = [_numbered(device, workgroup) for workgroup in _WORKGROUPS]
    is_full = all(
        np.array_equal(np.sort(numbers), np.arange(numbers.size)) and is_exact.all() for numbers, is_exact in numbered
    )
    return frozenset({FULL} if is_full else ())


def _numbered(device: wgpu.GPUDevice, workgroup: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the subgroup indices of a workgroup's invocations, and whether each shuffled correctly."""
    shuffles = "\n".join(_SHUFFLE.format(distance=distance) for distance in _DISTANCES if distance < workgroup)
    code = _KERNEL.format(workgroup=workgroup, fewest=MIN_LANES, shuffles=shuffles)
    module = library_of(device).create_module(device, "subgroups", code)
    (words,) = contents_after(device, module, (np.zeros(2 * workgroup, np.uint32),))
    results = words.reshape(-1, 2)
    return results[:, 0], results[:, 1]
