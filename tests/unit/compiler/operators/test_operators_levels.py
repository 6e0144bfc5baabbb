"""Attribute values that only later feature levels allow."""

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.compiler import operators
from tests.unit.rejections import rejection

FLOAT = TensorDesc(DataType.FLOAT32, (1, 1, 2, 3))
HALF = TensorDesc(DataType.FLOAT16, (1, 1, 2, 3))


def test_a_steepness_below_1_needs_6_4() -> None:
    desc = descs.ActivationSoftplus(input_tensor=FLOAT, output_tensor=FLOAT, steepness=0.5)
    operators.check(desc, FeatureLevel.LEVEL_6_4)
    assert (
        rejection(desc, FeatureLevel.LEVEL_6_3)
        == "ACTIVATION_SOFTPLUS: steepness must be at least 1 below feature level 6_4, got 0.5"
    )


def test_an_exponent_of_another_type_needs_3_0() -> None:
    desc = descs.ElementWisePow(input_tensor=FLOAT, exponent_tensor=HALF, output_tensor=FLOAT)
    operators.check(desc, FeatureLevel.LEVEL_3_0)
    assert rejection(desc, FeatureLevel.LEVEL_2_1) == (
        "ELEMENT_WISE_POW: exponent_tensor.data_type must be input_tensor.data_type (FLOAT32) below feature level 3_0, "
        "got FLOAT16"
    )
