"""RANDOM_GENERATOR: validation and plans."""

from __future__ import annotations

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, RandomGeneratorType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler.operators.inference import complete
from dmlgpu.compiler.target import Target
from tests.schedules import steps_of
from tests.unit.rejections import rejection, table_rejection

UINT32 = DataType.UINT32
ANY = Target("any")


def generator(state=(1, 6), output=(8, 4), after=None, strides=None, state_strides=None):
    return descs.RandomGenerator(
        input_state_tensor=TensorDesc(UINT32, state, state_strides),
        output_tensor=TensorDesc(UINT32, output, strides),
        output_state_tensor=None if after is None else TensorDesc(UINT32, after),
        type=RandomGeneratorType.PHILOX_4X32_10,
    )


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ((1, 5), "input_state_tensor.sizes must be [1, 6] (four words of counter, two of key), got [1, 5]"),
        ((6, 1), "input_state_tensor.sizes must be [1, 6] (four words of counter, two of key), got [6, 1]"),
        ((2, 3), "input_state_tensor.sizes must be [1, 6] (four words of counter, two of key), got [2, 3]"),
    ],
)
def test_sizes_of_states(state, message):
    assert rejection(generator(state)) == f"RANDOM_GENERATOR: {message}"


def test_states_have_equal_sizes():
    assert table_rejection(generator((6,), after=(5,))) == (
        "RANDOM_GENERATOR: output_state_tensor.sizes must equal input_state_tensor.sizes ([6]), got [5]"
    )


def test_the_output_has_any_sizes():
    for output in ((1,), (3, 5, 7), (1,) * 8):
        operators.check(generator(output=output))
    values = {"input_state_tensor": TensorDesc(UINT32, (1, 6))}
    desc = complete(descs.RandomGenerator, values, sizes={"output_tensor": (3, 5)})
    assert (desc.output_tensor.sizes, desc.output_state_tensor.sizes) == ((3, 5), (1, 6))


def test_one_kernel_without_a_next_state_two_with_one():
    labels = [[step.label for step in steps_of(generator(after=after), ANY)] for after in (None, (1, 6))]
    assert labels == [["generate"], ["generate", "next state"]]


@pytest.mark.parametrize(
    ("output", "strides", "lanes"),
    [
        ((8, 4), None, 4),
        ((8, 4), (20, 1), 4),
        ((2, 3, 4), (12, 1, 3), 1),
        ((8, 4), (1, 8), 4),
        ((10,), None, 2),
        ((3, 5), None, 1),
        ((8, 4), (8, 2), 1),
    ],
)
def test_adjacent_elements_are_written_together(output, strides, lanes):
    (step,) = steps_of(generator(output=output, strides=strides), ANY)
    assert step.lanes == lanes
