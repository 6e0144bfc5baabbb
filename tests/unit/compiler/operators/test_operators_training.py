"""ADAM_OPTIMIZER: validation and plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlgpu import TensorDesc
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler import operators
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.target import Target
from tests.optimizers import adam
from tests.schedules import steps_of
from tests.unit.rejections import rejection


def test_a_valid_step_is_accepted():
    operators.check(adam(1e-8))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta1": 1.5}, "ADAM_OPTIMIZER: beta1 must be from 0 to 1, got 1.5"),
        ({"beta2": -0.5}, "ADAM_OPTIMIZER: beta2 must be from 0 to 1, got -0.5"),
        (
            {"training_step_tensor": TensorDesc(DataType.UINT32, (1, 1, 1, 2))},
            "ADAM_OPTIMIZER: training_step_tensor.sizes must be [1, 1, 1, 1] (a scalar), got [1, 1, 1, 2]",
        ),
    ],
)
def test_rejections(changes, message):
    assert rejection(replace(adam(1e-8), **changes)) == message


def test_no_output_is_written_before_all_inputs_were_read():
    roles = [step.output.binding.role for step in steps_of(adam(1e-8), Target("any"))]
    assert roles == [Role.TEMPORARY, Role.TEMPORARY, Role.OUTPUT, Role.OUTPUT, Role.OUTPUT]
