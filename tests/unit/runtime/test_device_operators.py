"""Creating and compiling operators, feature levels, flags, names."""

import gc

import pytest

from dmlgpu import (
    DataType,
    Device,
    ExecutionFlags,
    FeatureLevel,
    InvalidArgument,
    InvalidDescription,
    OperatorNotImplemented,
    OutOfMemory,
    TensorDesc,
    descs,
)
from tests.unit.device_objects import FLOATS, Objects, identity, raises, subtract


@pytest.fixture
def device():
    return Device("numpy")


def test_an_operator_that_is_not_implemented(device, unregister):
    unregister("ELEMENT_WISE_IDENTITY")
    message = "ELEMENT_WISE_IDENTITY: dmlgpu does not implement this operator yet (see `dmlgpu ops`)"
    with raises(OperatorNotImplemented, message):
        device.create_operator(identity())


def test_create_takes_a_description(device):
    with raises(InvalidArgument, "create_operator: desc must be an OperatorDesc, got str"):
        device.create_operator("GATHER_ND1")


def test_an_invalid_description_names_operator_and_field(device):
    wrong = descs.ElementWiseIdentity(
        input_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 2, 0)),
        output_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 2, 1)),
    )
    with pytest.raises(InvalidDescription, match=r"^ELEMENT_WISE_IDENTITY: input_tensor.sizes"):
        device.create_operator(wrong)
    device.create_operator(identity())


def test_relations_beyond_the_catalog_are_checked(device):
    desc = descs.GatherNd1(
        input_tensor=TensorDesc(DataType.FLOAT32, (1, 2, 3)),
        indices_tensor=TensorDesc(DataType.UINT32, (1, 2, 4)),
        output_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 2)),
        input_dimension_count=3,
        indices_dimension_count=3,
        batch_dimension_count=1,
    )
    with pytest.raises(InvalidDescription, match=r"^GATHER_ND1: indices_tensor.sizes\[-1\] "):
        device.create_operator(desc)


@pytest.mark.parametrize(
    ("level", "desc"),
    [
        (FeatureLevel.LEVEL_4_1, identity(TensorDesc(DataType.FLOAT64, (1, 1, 2, 8)))),
        (FeatureLevel.LEVEL_3_0, descs.ElementWiseIdentity(input_tensor=FLOATS, output_tensor=FLOATS)),
    ],
)
def test_a_low_feature_level_accepts_its_own_operators(level, desc):
    low = Device("numpy", feature_level=level)
    assert low.feature_level is level
    desc = desc.replace(output_tensor=desc.input_tensor)
    low.create_operator(desc)


def test_a_low_level_rejects_later_operators():
    low = Device("numpy", feature_level=FeatureLevel.LEVEL_1_0)
    desc = descs.ElementWiseDifferenceSquare(a_tensor=FLOATS, b_tensor=FLOATS, output_tensor=FLOATS)
    with raises(
        InvalidDescription,
        "ELEMENT_WISE_DIFFERENCE_SQUARE: feature_level must be at least 3_1, which introduced the operator, got 1_0",
    ):
        low.create_operator(desc)


def test_a_low_level_rejects_later_types_and_ranks():
    low = Device("numpy", feature_level=FeatureLevel.LEVEL_2_0)
    integers = TensorDesc(DataType.INT64, (1, 1, 2, 8))
    with pytest.raises(InvalidDescription, match=r"^ELEMENT_WISE_IDENTITY: input_tensor.data_type .* level 2_0"):
        low.create_operator(descs.ElementWiseIdentity(input_tensor=integers, output_tensor=integers))
    deep = TensorDesc(DataType.FLOAT32, (1,) * 8)
    with pytest.raises(InvalidDescription, match=r"^ELEMENT_WISE_IDENTITY: input_tensor.* level 2_0"):
        low.create_operator(descs.ElementWiseIdentity(input_tensor=deep, output_tensor=deep))


def test_feature_level_of_a_device():
    with raises(
        InvalidArgument,
        f"Device: feature_level must be a member of FeatureLevel ({', '.join(FeatureLevel.__members__)}), "
        "got 7 of type int",
    ):
        Device("numpy", feature_level=7)


def test_flags(device):
    operator = device.create_operator(identity())
    both = ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION | ExecutionFlags.DISABLE_META_COMMANDS
    assert device.compile_operator(operator, both).flags is both
    assert device.compile_operator(operator, 4).flags is ExecutionFlags.DESCRIPTORS_VOLATILE
    for wrong in (8, -1, "NONE", True):
        with raises(
            InvalidArgument,
            "compile_operator: flags must be a combination of ExecutionFlags (NONE, ALLOW_HALF_PRECISION_COMPUTATION, "
            f"DISABLE_META_COMMANDS, DESCRIPTORS_VOLATILE), got {wrong!r} of type {type(wrong).__name__}",
        ):
            device.compile_operator(operator, wrong)


def test_options_reach_the_executor():
    objects = Objects()
    option_lists = []
    compile_operator = objects.backend.compile
    objects.backend.compile = lambda *options: option_lists.append(options[1:]) or compile_operator(*options)
    objects.compiled()
    objects.compiled(flags=ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION)
    operator = objects.device.create_operator(identity())
    objects.device.compile_operator(operator, preserve_padding=True)
    assert option_lists == [(False, False), (True, False), (False, True)]


def test_compile_takes_an_operator_of_this_device(device):
    with raises(InvalidArgument, "compile_operator: operator must be an Operator, got ElementWiseIdentity"):
        device.compile_operator(identity())
    other = Device("numpy")
    other.name = "other"
    adapter = device.adapter
    with raises(
        InvalidArgument,
        "compile_operator: operator, ELEMENT_WISE_IDENTITY, belongs to another device "
        f"(device 'other' on '{adapter}') than device on '{adapter}'; objects of two devices cannot be mixed",
    ):
        device.compile_operator(other.create_operator(identity()))


def test_names_and_private_data(device):
    operator = device.create_operator(identity())
    assert (operator.name, repr(operator)) == (None, "<ELEMENT_WISE_IDENTITY>")
    operator.name = "paint"
    assert repr(operator) == "<ELEMENT_WISE_IDENTITY 'paint'>"
    assert device.compile_operator(operator).name == "paint"
    assert operator.device is device
    operator.set_private_data("owner", [1])
    assert operator.get_private_data("owner") == [1]
    operator.set_private_data("owner", None)
    assert operator.get_private_data("owner") is None


def test_eviction_changes_nothing(device):
    operator = device.create_operator(identity())
    compiled = device.compile_operator(operator)
    device.evict([operator, compiled, device.create_operator_initializer([compiled]), device.create_buffer(4)])
    device.make_resident([compiled])
    with raises(InvalidArgument, "evict: objects[1] must be an operator, an initializer or a buffer, got CommandList"):
        device.evict([compiled, device.create_command_list()])


def test_two_operators_of_one_description_are_initialized_apart():
    objects = Objects()
    first, second = objects.compiled(subtract()), objects.compiled(subtract())
    objects.initialize(first)
    assert first.is_initialized
    assert not second.is_initialized


@pytest.mark.slow
def test_memory_budget():
    device = Device("numpy", memory_budget=1000)
    buffer = device.create_buffer(600)
    with raises(
        OutOfMemory,
        "buffer 'second': 404 bytes exceed the memory budget of 1,000 bytes, of which 600 are in use",
    ):
        device.create_buffer(404, "second")
    buffer.release()
    buffer.release()
    second = device.create_buffer(1000)
    del second
    gc.collect()
    device.create_buffer(1000)
