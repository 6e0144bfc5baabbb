"""Descriptions of optimizers for tests."""

from __future__ import annotations

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc

RATE, BETA1, BETA2 = 0.0625, 0.875, 0.9375  # exact in float32
SIZES = (1, 1, 3, 5)


def adam(epsilon: float) -> descs.AdamOptimizer:
    tensor = TensorDesc(DataType.FLOAT32, SIZES)
    return descs.AdamOptimizer(
        input_parameters_tensor=tensor,
        input_first_moment_tensor=tensor,
        input_second_moment_tensor=tensor,
        gradient_tensor=tensor,
        training_step_tensor=TensorDesc(DataType.UINT32, (1, 1, 1, 1)),
        output_parameters_tensor=tensor,
        output_first_moment_tensor=tensor,
        output_second_moment_tensor=tensor,
        learning_rate=RATE,
        beta1=BETA1,
        beta2=BETA2,
        epsilon=epsilon,
    )
