"""Adam with factors of 0, which drivers drop where they know them."""

from __future__ import annotations

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc

SPECIAL = np.array([[[[np.nan, np.inf, -np.inf, 2.0]]]], np.float32)
NOTHING = [np.nan, np.nan, np.nan, 0.0]
"""0 times these."""


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_a_factor_of_0_makes_nan_of_infinities(backend: GpuBackend, beta: float) -> None:
    """A beta of 0 multiplies the moments, one of 1 the gradient."""
    tensor, step = TensorDesc(DataType.FLOAT32, SPECIAL.shape), TensorDesc(DataType.UINT32, (1, 1, 1, 1))
    inputs = ("input_parameters_tensor", "input_first_moment_tensor", "input_second_moment_tensor", "gradient_tensor")
    outputs = ("output_parameters_tensor", "output_first_moment_tensor", "output_second_moment_tensor")
    desc = descs.AdamOptimizer(
        **dict.fromkeys((*inputs, *outputs), tensor),
        training_step_tensor=step,
        learning_rate=0.5,
        beta1=beta,
        beta2=beta,
        epsilon=1e-8,
    )
    zeros = np.zeros_like(SPECIAL)
    moment, gradient = (SPECIAL, zeros) if beta == 0 else (zeros, SPECIAL)
    arrays = [zeros, moment, moment, gradient, np.ones((1, 1, 1, 1), np.uint32)]
    _, first, second = run_desc(backend, desc, arrays, backend.target.exact)
    np.testing.assert_array_equal(first.ravel(), NOTHING)
    np.testing.assert_array_equal(second.ravel(), NOTHING)
