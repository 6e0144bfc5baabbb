"""What lies between the elements of outputs, kept by every kind of step that writes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dmlgpu.catalog.tensor_desc import TensorDesc, element_offsets
from dmlgpu.compiler.target import Profile
from dmlgpu.conformance.cases.registry import case_by_name
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_over

NAMES = (
    "element_wise_logical_not-uint8-13x3-strided-s0",  # maps
    "activation_softsign-float16-2x32-mixed-s0",
    "activation_hard_swish-float16-3x1x1x4x4x2x4-padded-s0",
    "quantize-float16-uint4-17-slack-ties-s0",
    "quantize-float32-int4-3x33x9x2-near-s0",
    "slice1-int8-3x17-strided-whole-s0",  # copies
    "tile-int16-3x1x8x1x2x2-interleaved-rows-s0",
    "join-float16-17-padded-rows-s0",
    "upsample_2d-float16-11x1x1x1x3-strided-linear-s0",
    "activation_log_softmax-float16-9x13x1x17x2-aligned-special-s0",  # rows
    "reduce-float16-5x65-slack-log_sum_exp-scaled-s0",  # reductions
    "lp_pooling-float16-3x17x2x4x5-strided-whole-s0",
    "average_pooling-float16-3x9x2x1x4-interleaved-owned-s0",
    "gemm-float16-1x17x1-near-bare-s0",  # products
    "gemm-float16-4x33-strided-s0",
    "gemm-float16-15x33x8-slack-special-s0",
    "gemm-float16-32x31-aligned-softmax-s0",
    "quantized_linear_matrix_multiply-int8-int8-int8-3x15x16x5-aligned-single-s0",
    "convolution-float16-1x11x3x4x9-aligned-fused-s0",  # convolutions
    "convolution-float16-15x4x63-strided-backward-s0",
    "quantized_linear_convolution-uint8-uint8-uint8-7x15x8-explicit-s0",
    "cumulative_summation-float16-3x7x4x1x2x7x1x2-aligned-inplace-s0",  # scans
    "top_k-float16-uint32-13x1-strided-inner-s0",  # sorts
    "scatter_nd-uint8-uint64-8x1x15x9-near-outside-s0",  # scatters
    "gru-float16-4x63x8-aligned-s0",  # recurrences
    "multihead_attention1-float16-1x2x17x5-padded-position-s0",  # attention
)


def is_padding(tensor: TensorDesc) -> NDArray[np.bool_]:
    """Which bits of a tensor's bytes belong to no element."""
    bits = tensor.data_type.bits
    first = element_offsets(tensor.sizes, tensor.element_strides).reshape(-1, 1) * bits
    unused = np.ones(8 * tensor.byte_size, bool)
    unused[first + np.arange(bits)] = False
    return unused


def as_bits(content: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.unpackbits(content, bitorder="little")


@pytest.mark.parametrize(
    ("name", "profile"), [*zip(NAMES, itertools.cycle((Profile.CPU, Profile.DISCRETE)), strict=False)]
)
def test_bits_outside_the_elements_stay_unchanged(backend: GpuBackend, name: str, profile: Profile) -> None:
    """The elements are those of kernels that overwrite what is around them. Families of schedules take turns."""
    case = case_by_name(name)
    arrays = [array for array in case.inputs() if array is not None]
    outputs = [slot.tensor for slot in case.desc.outputs if slot.tensor is not None]
    rng = np.random.default_rng(1)
    before = [rng.integers(0, 256, tensor.byte_size, np.uint8) for tensor in outputs]
    target = replace(backend.target.exact, profile=profile)
    expected = run_over(backend, case.desc, arrays, target, before)
    got = run_over(backend, case.desc, arrays, target.with_policies(preserves_padding=True), before)
    padding = [is_padding(tensor) for tensor in outputs]
    assert any(bits.any() for bits in padding)
    for old, want, new, gap in zip(before, expected, got, padding, strict=True):
        np.testing.assert_array_equal(as_bits(new), np.where(gap, as_bits(old), as_bits(want)))
