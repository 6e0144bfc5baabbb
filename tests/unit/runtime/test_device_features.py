"""What a device says about itself."""

import pytest

from dmlgpu import (
    DataType,
    Device,
    FeatureLevel,
    FeatureLevels,
    FeatureLevelsQuery,
    InvalidArgument,
    NotSupported,
    OperatorSupport,
    OperatorSupportQuery,
    TensorDataTypeSupportQuery,
    TensorDesc,
    descs,
)
from dmlgpu.catalog import operator
from dmlgpu.catalog.minimal import minimal_examples
from dmlgpu.compiler import operators
from dmlgpu.runtime.numpy.backend import NumPyBackend
from tests.unit.device_objects import raises


class Without64Bits(NumPyBackend):
    """An adapter that subtracts no 64-bit integers."""

    def check(self, desc):
        super().check(desc)
        if desc.operator == "ELEMENT_WISE_SUBTRACT" and desc.a_tensor.data_type is DataType.INT64:
            raise NotSupported("ELEMENT_WISE_SUBTRACT on INT64 needs the adapter feature shader-int64, which 'X' lacks")


REASON = "ELEMENT_WISE_SUBTRACT on INT64 needs the adapter feature shader-int64, which 'X' lacks"


@pytest.fixture
def device():
    return Device("numpy")


@pytest.fixture
def poor():
    return Device.from_backend(Without64Bits())


@pytest.mark.parametrize("name", sorted(operators.implemented()))
@pytest.mark.parametrize("level", [FeatureLevel.LEVEL_1_0, FeatureLevel.LEVEL_3_0, FeatureLevel.LEVEL_6_4])
def test_every_operator_can_be_asked_about_every_type(name, level):
    """A minimal example is a valid description for each type that the tables list, on any executor."""
    low = Device("numpy", feature_level=level)
    schema = operator(name)
    for tensor, support in schema.support_at(level).items():
        for data_type in support.types:
            if tensor == "QuantizationTensors" and not data_type.is_float:
                continue  # the type of a zero point, which the one tensor of a minimal example is not
            query = OperatorSupportQuery(name, {schema.field(tensor).python_name: data_type})
            answer = low.check_feature_support(query)
            # Parts of an operator may still be missing: REDUCE has only some of its functions.
            assert answer.is_supported or "does not implement" in answer.reason, (tensor, data_type)


def test_minimal_examples_cover_each_value_of_a_deciding_attribute():
    functions = {desc.function for desc in minimal_examples(operator("REDUCE"), {}, FeatureLevel.LEVEL_6_4)}
    assert len(functions) == 12


def test_feature_levels(device):
    low = Device("numpy", feature_level=FeatureLevel.LEVEL_3_1)
    query = FeatureLevelsQuery([FeatureLevel.LEVEL_2_0, FeatureLevel.LEVEL_6_4, FeatureLevel.LEVEL_3_0])
    assert low.check_feature_support(query) == FeatureLevels(FeatureLevel.LEVEL_3_0)
    assert device.check_feature_support(query) == FeatureLevels(FeatureLevel.LEVEL_6_4)
    above = FeatureLevelsQuery([FeatureLevel.LEVEL_5_0])
    assert low.check_feature_support(above) == FeatureLevels(None)
    with raises(InvalidArgument, "FeatureLevelsQuery: requested_feature_levels must not be empty"):
        device.check_feature_support(FeatureLevelsQuery([]))
    levels = ", ".join(FeatureLevel.__members__)
    with raises(
        InvalidArgument,
        f"FeatureLevelsQuery: requested_feature_levels[0] must be a member of FeatureLevel ({levels}), "
        "got 7 of type int",
    ):
        device.check_feature_support(FeatureLevelsQuery([7]))


@pytest.mark.parametrize("data_type", [kind for kind in DataType if kind.bits > 4])
def test_numpy_computes_every_type(device, data_type):
    answer = device.check_feature_support(TensorDataTypeSupportQuery(data_type))
    assert (answer.is_supported, answer.refused) == (True, {})


def test_one_rejecting_operator_is_enough(poor):
    answer = poor.check_feature_support(TensorDataTypeSupportQuery(DataType.INT64))
    assert not answer.is_supported
    assert answer.refused == {"ELEMENT_WISE_SUBTRACT": REASON}
    assert poor.check_feature_support(TensorDataTypeSupportQuery(DataType.INT32)).is_supported


def test_a_type_that_the_level_does_not_know():
    low = Device("numpy", feature_level=FeatureLevel.LEVEL_1_0)
    assert not low.check_feature_support(TensorDataTypeSupportQuery(DataType.FLOAT64)).is_supported
    with raises(
        InvalidArgument, "TensorDataTypeSupportQuery: data_type must be a DataType other than UNKNOWN, got 'FLOAT32'"
    ):
        low.check_feature_support(TensorDataTypeSupportQuery("FLOAT32"))


def test_support_of_an_operator(poor):
    def ask(**types):
        return poor.check_feature_support(OperatorSupportQuery("element_wise_subtract", types))

    assert ask(a_tensor=DataType.INT32) == OperatorSupport(True)
    assert ask(output_tensor=DataType.INT64) == OperatorSupport(False, REASON)
    assert not ask(a_tensor=DataType.INT32, b_tensor=DataType.FLOAT32).is_supported
    with raises(
        InvalidArgument,
        "OperatorSupportQuery: ELEMENT_WISE_SUBTRACT has no tensor 'input', only a_tensor, b_tensor, output_tensor",
    ):
        ask(input=DataType.INT32)


def test_support_of_an_operator_that_is_not_implemented(device, unregister):
    unregister("SLICE1")
    answer = device.check_feature_support(OperatorSupportQuery("SLICE1"))
    assert answer == OperatorSupport(False, "SLICE1: dmlgpu does not implement this operator yet (see `dmlgpu ops`)")


def test_support_of_a_later_operator():
    low = Device("numpy", feature_level=FeatureLevel.LEVEL_2_0)
    assert low.check_feature_support(OperatorSupportQuery("SLICE1")) == OperatorSupport(
        False, "SLICE1: needs feature level 2_1, the device behaves as 2_0"
    )


def test_support_of_a_description(poor):
    longs = TensorDesc(DataType.INT64, (1, 1, 2, 2))
    desc = descs.ElementWiseSubtract(a_tensor=longs, b_tensor=longs, output_tensor=longs)
    assert poor.check_feature_support(OperatorSupportQuery(desc)) == OperatorSupport(False, REASON)


def test_unknown_queries(device):
    with raises(
        InvalidArgument,
        "check_feature_support: query must be a FeatureLevelsQuery, a TensorDataTypeSupportQuery or an "
        "OperatorSupportQuery, got int",
    ):
        device.check_feature_support(1)
