"""Kernels under a limit so low that their grids get a second dimension, which only huge tensors reach otherwise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dmlgpu import Device
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Profile
from dmlgpu.conformance.cases.registry import case_by_name
from dmlgpu.conformance.running.runner import grids, run_case, with_folded_grids
from dmlgpu.runtime.wgpu import GpuBackend

CASES = (
    "element_wise_add-float32-63x129-packed-s0",  # a map
    "element_wise_add-float16-33x257-permuted-s0",  # in blocks that share words
    "reduce-float32-33x129-packed-s0",
    "cumulative_summation-float32-65x1025-packed-s0",
    "activation_softmax1-float32-65x129-packed-inner-s0",
    "top_k1-float32-uint32-17x129-packed-inner-s0",
    "gemm-float32-65x65x33-packed-s0",
)


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
def test_the_second_dimension_of_a_grid_counts(backend: GpuBackend, profile: Profile) -> None:
    if backend.info.backend == "OpenGL":
        pytest.skip("the same text of the same kernels as on Vulkan, and slow to compile")
    device = Device(backend.info)
    plain = replace(device.backend.target, profile=profile)
    folded = 0
    try:
        for name in CASES:
            case = case_by_name(name)
            target = device.backend.target = with_folded_grids(case.desc, plain.exact)
            with np.errstate(all="ignore"):
                verdict = run_case(case, device)
            assert verdict.ok, f"{name}: {verdict}"
            folded += any(rows > 1 for _, rows, _ in grids(compile_operator(case.desc, target.exact)))
    finally:
        device.remove()
    assert folded == len(CASES)
