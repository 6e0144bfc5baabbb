"""Subgroups: whether those of a GPU meet the assumptions of kernels, measured by a kernel.

Kernels are correct for subgroups of every size from ``Target.subgroup_lanes`` on, and number the invocations of a
workgroup by subgroup and lane. WGSL does not say that this gives each invocation a number of its own below the
workgroup's size, because drivers need not fill subgroups. GPUs whose driver does not, or whose shuffles are wrong,
combine values in workgroup memory.
"""

from __future__ import annotations

import os
from typing import Final

import numpy as np
import wgpu
from numpy.typing import NDArray

from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.compiler.target import MIN_LANES, SUBGROUPS_VARIABLE, AdapterInfo, Profile, SubgroupPolicy, Target
from dmlgpu.runtime.wgpu.measured import MeasuredFacts, contents_after
from dmlgpu.runtime.wgpu.waiting import without_signals

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


def has_full_subgroups(info: AdapterInfo, target: Target) -> bool | None:
    """Return whether kernels for an adapter use its subgroups; None if this must be measured first.

    CPU adapters are not measured: only llvmpipe and SwiftShader are known, whose subgroups are full.

    Raises:
        InvalidArgument: If the environment variable has an unknown value.
    """
    name = os.environ.get(SUBGROUPS_VARIABLE, "").strip().lower() or SubgroupPolicy.AUTO
    if name not in list(SubgroupPolicy):
        raise InvalidArgument(f"{SUBGROUPS_VARIABLE} must be one of {', '.join(SubgroupPolicy)}, got {shown(name)}")
    if name == SubgroupPolicy.NEVER:
        return False
    if name == SubgroupPolicy.ALWAYS or target.profile is Profile.CPU or not target.has("subgroup"):
        return True
    facts = FACTS.known(info)
    return None if facts is None else FULL in facts


def measured_subgroups(device: wgpu.GPUDevice, info: AdapterInfo) -> bool:
    """Measure whether kernels can use the subgroups of a device, and cache the result for the adapter and its driver.

    If the kernel fails, they do not until the next process tries again.
    """
    return FULL in FACTS.measured(device, info)


def measure(device: wgpu.GPUDevice) -> frozenset[str]:
    """Return whether subgroups are full, and shuffles correct, in workgroups of all sizes."""
    numbered = without_signals(lambda: [_numbered(device, workgroup) for workgroup in _WORKGROUPS])
    is_full = all(
        np.array_equal(np.sort(numbers), np.arange(numbers.size)) and is_exact.all() for numbers, is_exact in numbered
    )
    return frozenset({FULL} if is_full else ())


def _numbered(device: wgpu.GPUDevice, workgroup: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the subgroup indices of a workgroup's invocations, and whether each shuffled correctly."""
    shuffles = "\n".join(_SHUFFLE.format(distance=distance) for distance in _DISTANCES if distance < workgroup)
    code = _KERNEL.format(workgroup=workgroup, fewest=MIN_LANES, shuffles=shuffles)
    module = device.create_shader_module(code=code)
    (words,) = contents_after(device, module, (np.zeros(2 * workgroup, np.uint32),))
    results = words.reshape(-1, 2)
    return results[:, 0], results[:, 1]


FACTS: Final = MeasuredFacts("subgroups", measure)
"""Cached facts: whether subgroups of adapters are full."""
