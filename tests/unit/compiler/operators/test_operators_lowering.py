"""The registry of lowerings: implemented operators, missing ones, and shader files."""

from __future__ import annotations

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import OperatorNotImplemented
from dmlgpu.compiler import operators
from dmlgpu.compiler.wgsl import templates

TENSOR = TensorDesc(DataType.FLOAT32, (2, 4))
IDENTITY = descs.ElementWiseIdentity(input_tensor=TENSOR, output_tensor=TENSOR)


@pytest.mark.parametrize(
    "action",
    [operators.check, operators.upgrade, operators.lower],
    ids=["check", "upgrade", "lower"],
)
def test_an_operator_without_lowering_is_named(action, unregister):
    unregister("ELEMENT_WISE_IDENTITY")
    with pytest.raises(OperatorNotImplemented) as caught:
        action(IDENTITY)
    assert str(caught.value) == "ELEMENT_WISE_IDENTITY: dmlgpu does not implement this operator yet (see `dmlgpu ops`)"


def test_the_seed_operators_are_implemented():
    assert operators.implemented() >= {
        "GATHER_ND1",
        "GATHER_ND",
        "SCATTER_ELEMENTS",
        "SLICE1",
        "SLICE",
        "ARGMIN",
        "ARGMAX",
        "ELEMENT_WISE_IDENTITY",
        "ELEMENT_WISE_SUBTRACT",
        "ELEMENT_WISE_MULTIPLY",
        "ELEMENT_WISE_DIFFERENCE_SQUARE",
        "CAST",
        "REDUCE",
    }


@pytest.mark.parametrize("operator", sorted(operators.implemented()))
def test_shader_files_exist(operator):
    assert all(templates.exists(file) for file in operators.shader_files(operator))


def test_the_newest_operator_of_a_line_is_not_upgraded():
    assert operators.upgrade(IDENTITY) is IDENTITY
