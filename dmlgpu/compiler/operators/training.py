"""Operators for training: one step of an optimizer."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, everywhere, input_tensor, invalid, output_tensor
from dmlgpu.compiler.plan import Body, Map, Plan, PlanTensor, Source, apply, constants, in_float32

FLOAT32 = DataType.FLOAT32


class AdamOptimizer(Lowering):
    """Moments and parameters in float32, each output rounded once; the parameters take the moments as they were before
    that.

    The step is used as given, and counts from 1 (a step of 0 gives NaN, as the formula does); it may be UINT32 or a
    float (the page says both). Epsilon is added outside the correction of the bias. A beta of 0 multiplies too: an
    infinite moment becomes NaN, and NaN stays. One of 1 divides 0 by 0. Betas outside 0 to 1 are rejected. The moments
    pass through temporary tensors, so that every output may lie on any input.
    """

    desc = descs.AdamOptimizer
    shaders = ("training/adam_optimizer", "training/moment")

    @classmethod
    def check(cls, desc: descs.AdamOptimizer) -> None:
        ones = (1,) * desc.training_step_tensor.dimension_count
        check_sizes(desc, "training_step_tensor", ones, "a scalar")
        for field in ("beta1", "beta2"):
            if not 0 <= getattr(desc, field) <= 1:
                raise invalid(desc, field, f"must be from 0 to 1, got {getattr(desc, field)}")

    @classmethod
    def lower(cls, desc: descs.AdamOptimizer) -> Plan:
        """Lower to both moments in temporary tensors, the parameters, then copies of the moments into their outputs."""
        gradient = input_tensor(desc, "gradient_tensor")
        sizes, moments, steps = gradient.sizes, [], []
        for name, beta in (("first", desc.beta1), ("second", desc.beta2)):
            moment = PlanTensor.temporary(f"{name} moment", FLOAT32, sizes)
            before = input_tensor(desc, f"input_{name}_moment_tensor")
            steps.append(Map(f"{name} moment", _moment(before, gradient, beta, squared=name == "second"), moment))
            moments.append(moment)
        parameters = output_tensor(desc, "output_parameters_tensor")
        steps.append(Map("parameters", cls._parameters(desc, moments, parameters.data_type), parameters))
        for name, moment in zip(("first", "second"), moments, strict=True):
            output = output_tensor(desc, f"output_{name}_moment_tensor")
            body = apply("elementwise/cast", output.data_type, sizes, portable=True, input=moment)
            steps.append(Map(f"store {name} moment", body, output))
        return Plan(desc.operator, tuple(steps))

    @classmethod
    def _parameters(cls, desc: descs.AdamOptimizer, moments: list[PlanTensor], data_type: DataType) -> Body:
        with np.errstate(divide="ignore"):  # -0 for a beta of 1, so that 1 - beta^step is 0 rather than -0
            logarithms = [-abs(float(np.log(np.float64(np.float32(beta))))) for beta in (desc.beta1, desc.beta2)]
        values = constants(
            compute=FLOAT32,
            learning_rate=desc.learning_rate,
            epsilon=desc.epsilon,
            log_beta1=logarithms[0],
            log_beta2=logarithms[1],
        )
        sizes = moments[0].sizes
        inputs: dict[str, Any] = {
            "parameters": input_tensor(desc, "input_parameters_tensor"),
            "first": moments[0],
            "second": moments[1],
            "step": everywhere(input_tensor(desc, "training_step_tensor"), sizes),
        }
        return apply(cls.shaders[0], data_type, sizes, portable=True, values=values, **inputs)


def _moment(moment: Source, gradient: Source, beta: float, *, squared: bool) -> Body:
    """Return the running mean of the gradient, or of its square."""
    exact = float(np.float32(beta))
    values = constants(compute=FLOAT32, beta=exact, rest=1 - exact, squared=squared)
    return in_float32("training/moment", moment.sizes, values=values, moment=moment, gradient=gradient)
