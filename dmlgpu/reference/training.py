"""One step of Adam."""

from __future__ import annotations

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.reference.elementwise import attribute
from dmlgpu.reference.registry import Array, reference


@reference(descs.AdamOptimizer)
def adam_optimizer(
    desc: descs.AdamOptimizer,
    input_parameters_tensor: Array,
    input_first_moment_tensor: Array,
    input_second_moment_tensor: Array,
    gradient_tensor: Array,
    training_step_tensor: Array,
) -> tuple[Array, Array, Array]:
    """Parameters and moments after a step, in float64."""
    beta1, beta2, rate, epsilon = (
        attribute(value) for value in (desc.beta1, desc.beta2, desc.learning_rate, desc.epsilon)
    )
    wide = (input_parameters_tensor, input_first_moment_tensor, input_second_moment_tensor, gradient_tensor)
    parameters, first, second, gradient = (array.astype(np.float64) for array in wide)
    step = training_step_tensor.astype(np.float64).ravel()[0]
    with np.errstate(all="ignore"):
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient * gradient
        correction = np.sqrt(1 - beta2**step) / (1 - beta1**step)
        parameters = parameters - rate * correction * first / (np.sqrt(second) + epsilon)
        dtype = input_parameters_tensor.dtype
        return parameters.astype(dtype), first.astype(dtype), second.astype(dtype)
