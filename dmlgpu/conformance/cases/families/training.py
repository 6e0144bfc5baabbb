"""Cases of Adam."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.conformance.cases.case import Arrays, Case
from dmlgpu.conformance.cases.contents import numbers
from dmlgpu.conformance.cases.keys import PLAIN, Key
from dmlgpu.conformance.cases.operator_cases import OperatorCases, cases, draw_tensors
from dmlgpu.conformance.cases.tolerance import Accumulated, Bound

LATE = "late"  # a large step, at which the bias is gone
EXTREME = "extreme"  # betas of 0, no epsilon


@cases(descs.AdamOptimizer)
class AdamOptimizerCases(OperatorCases):
    """ADAM_OPTIMIZER: early and late steps, of all types of a step; in place."""

    standard_count = 40
    type_fields = ("GradientTensor", "TrainingStepTensor")
    variant_names: ClassVar[tuple[str, ...]] = (PLAIN, LATE, EXTREME)

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        data_type, step_type = key.types
        *sources, x, m, v = draw_tensors(
            key, rng, *[(data_type, key.sizes, False)] * 4, *[(data_type, key.sizes, True)] * 3
        )
        desc = descs.AdamOptimizer(
            input_parameters_tensor=sources[0],
            input_first_moment_tensor=sources[1],
            input_second_moment_tensor=sources[2],
            gradient_tensor=sources[3],
            training_step_tensor=TensorDesc(step_type, (1,) * len(key.sizes)),
            output_parameters_tensor=x,
            output_first_moment_tensor=m,
            output_second_moment_tensor=v,
            learning_rate=float(rng.choice([0.001, 0.1, 2.0])),
            beta1=0.0 if key.variant == EXTREME else float(rng.choice([0.9, 0.5])),
            beta2=0.0 if key.variant == EXTREME else float(rng.choice([0.999, 0.9])),
            epsilon=0.0 if key.variant == EXTREME else float(rng.choice([1e-8, 1e-3])),
        )
        step = int(rng.integers(500, 2000)) if key.variant == LATE else int(rng.integers(1, 20))

        def fill(contents: np.random.Generator) -> Arrays:
            parameters, first, second, gradient = (numbers(contents, data_type, key.sizes) for _ in range(4))
            scalar = np.full((1,) * len(key.sizes), step, step_type.numpy)
            # Far from 0, where an epsilon of 0 would ask for the quotient of two tiny numbers.
            return parameters, first, np.abs(second) + data_type.numpy.type(0.25), gradient, scalar

        return Case(name, desc, fill, Accumulated(8), magnitude=lambda inputs: _magnitudes(desc, inputs))


def _magnitudes(desc: descs.AdamOptimizer, inputs: Arrays) -> tuple[Bound, ...]:
    """Return sums of absolute values: of the parameters and their change, and of the parts of the moments."""
    parameters, first, second, gradient, step = (
        np.abs(array.astype(np.float64)) for array in inputs if array is not None
    )
    total = desc.beta1 * first + (1 - desc.beta1) * gradient
    squares = desc.beta2 * second + (1 - desc.beta2) * gradient**2
    count = step.ravel()[0]
    correction = np.sqrt(1 - desc.beta2**count) / (1 - desc.beta1**count)
    change = desc.learning_rate * correction * total / (np.sqrt(squares) + desc.epsilon)
    return parameters + 4 * change, total, squares
