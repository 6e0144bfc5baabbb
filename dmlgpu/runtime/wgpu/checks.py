"""Bounds checks: which kernels are compiled without those that wgpu adds to shaders.

wgpu clamps every index of an array that it cannot prove to be in bounds, and counts the iterations of every loop to end
it after 2^64. The clamps keep drivers from using constant offsets of workgroup memory, the counters from unrolling. The
kernels of dmlgpu need neither, on two grounds:

- Arrays in workgroup, private and function memory, vectors and constant arrays are indexed by numbers of invocations
  and counters of loops, which templates limit to the declared sizes, and in one place by the exponent of a float, which
  its type limits. Contents of tensors and parameters of dispatches index none.
  ``tests/unit/runtime/wgpu/test_unchecked_kernels.py`` lists every index that is not a constant, with the reason why it
  is in bounds. All loops count to a limit.
- Buffers are indexed by offsets that follow from sizes and strides, checked against the bound range before a dispatch,
  and by contents of index tensors, which kernels compare with the size (``x_index``). If one of these has an error, the
  hardware limits the access: Vulkan's robustBufferAccess2, which wgpu enables where drivers have it. wgpu-native does
  not report it, so a kernel measures it, and adapters without it keep all checks.

Kernels keep the bounds of loops where ``KernelStep.keeps_loop_bounds`` says so. Shaders of the user keep all checks.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import wgpu
from numpy.typing import NDArray

from dmlgpu.runtime.wgpu.libraries import library_of
from dmlgpu.runtime.wgpu.measured import contents_after

LIMITED: Final = "limited"
"""Name of the fact that the hardware limits buffer accesses to the bound range."""

_GUARD = 0x5AFE5AFE
_WORDS = 64  # of the bound range, and past its end
_BOUND_BYTES = 4 * _WORDS

_KERNEL = """
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> vectors: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> results: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) me: u32) {
    let place = results[me] + me;
    results[64u + me] = words[place];
    results[128u + me] = vectors[place / 4u][place % 4u];
    words[place] = 1u;
    vectors[place / 4u] = vec4<u32>(1u);
}
"""


def measure(device: wgpu.GPUDevice) -> frozenset[str]:
    """Return whether accesses past the end of a bound range read zeros and write nothing, in a kernel without checks.

    They stay within the buffer, so the measurement is harmless on adapters without limits.
    """
    *accessed, results = _after_accesses(device)
    is_intact = all((buffer[_WORDS:] == _GUARD).all() for buffer in accessed)
    reads_zeros = not results[_WORDS:].any()
    return frozenset({LIMITED} if is_intact and reads_zeros else ())


def _after_accesses(device: wgpu.GPUDevice) -> list[NDArray[np.uint32]]:
    """Return the words of the kernel's buffers after it has accessed the words past the end of the bound range of
    the first two."""
    module = library_of(device).create_unchecked_module(device, "accesses of buffers", _KERNEL, bounds_loops=False)
    guarded, places = np.full(2 * _WORDS, _GUARD, np.uint32), np.full(3 * _WORDS, _WORDS, np.uint32)
    bound_bytes = (_BOUND_BYTES, _BOUND_BYTES, places.nbytes)
    return contents_after(device, module, (guarded, guarded, places), bound_bytes=bound_bytes)
