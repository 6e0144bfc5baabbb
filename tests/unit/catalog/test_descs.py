"""Operator descriptions: created from the catalog, typed, frozen, hashable."""

import copy
import dataclasses
import inspect
import math
import pickle

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.catalog import FieldKind, catalog
from dmlgpu.catalog.enums import AxisDirection, ConvolutionDirection, ConvolutionMode, DataType, ReduceFunction
from dmlgpu.catalog.operator_desc import Entries, TensorSlot
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import InvalidArgument, InvalidDescription
from dmlgpu.ops import directml
from dmlgpu.ops import directml as functions

SMALL = TensorDesc(DataType.FLOAT32, (2, 3))
INDEX = TensorDesc(DataType.UINT32, (2, 1))


def argmin(**changes):
    fields = {
        "input_tensor": SMALL,
        "output_tensor": INDEX,
        "axes": (1,),
        "axis_direction": AxisDirection.INCREASING,
    }
    return descs.Argmin(**fields | changes)


def constant(value, data_type=DataType.FLOAT32):
    return descs.FillValueConstant(output_tensor=TensorDesc(data_type, (4,)), value_data_type=data_type, value=value)


def rejection(build, *args, **kwargs):
    with pytest.raises(InvalidDescription) as caught:
        build(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize("schema", catalog().values(), ids=lambda schema: schema.stem)
def test_each_class_has_the_fields_of_the_catalog(schema):
    cls = descs.by_name(schema.name)
    kinds = {field.python_name: field.kind for field in schema.python_fields}
    assert cls is getattr(descs, schema.class_name)
    assert cls.operator == schema.name
    assert list(cls.field_names) == list(kinds)
    assert list(cls.input_fields) == [name for name, kind in kinds.items() if kind is FieldKind.INPUT]
    assert list(cls.output_fields) == [name for name, kind in kinds.items() if kind is FieldKind.OUTPUT]
    assert all(f"\n        {name}: " in cls.__doc__ for name in kinds)
    assert schema.document in cls.__doc__
    optional = {field.python_name for field in schema.python_fields if field.optional}
    activation = {field.python_name for field in schema.tensor_fields if schema.fusion}
    assert {field.name for field in dataclasses.fields(cls) if field.default is None} == optional | activation


def test_all_descs_are_in_enumeration_order():
    assert [cls.operator for cls in descs.all_descs()] == list(catalog())


def test_by_name_knows_aliases():
    assert descs.by_name("SCATTER") is descs.ScatterElements
    with pytest.raises(InvalidArgument, match=r"^DirectML has no operator 'GATHER_ND2'$"):
        descs.by_name("GATHER_ND2")


def test_values_are_converted_to_their_types():
    desc = argmin(axes=[np.int64(1)], axis_direction=1)
    assert desc.axes == (1,) and type(desc.axes[0]) is int
    assert desc.axis_direction is AxisDirection.DECREASING
    linear = descs.ActivationLinear(alpha=2, beta=np.float32(0.5))
    assert (linear.alpha, linear.beta) == (2.0, 0.5)
    assert type(linear.alpha) is type(linear.beta) is float
    assert type(constant(3).value) is int
    assert type(constant(np.float16(3)).value) is float
    assert descs.ScaleBias(2, 1) == descs.ScaleBias(2.0, 1.0)
    assert argmin(axes=np.array([0, 1])).axes == (0, 1)
    assert math.isnan(descs.ActivationLinear(alpha=math.nan, beta=0).alpha)


WRONG_KINDS = [
    ({"axes": (1.5,)}, "axes[0] must be an integer, got 1.5 of type float"),
    ({"axes": (True,)}, "axes[0] must be an integer, got True of type bool"),
    ({"axes": 1}, "axes must be a sequence of integers, got 1 of type int"),
    ({"axes": "01"}, "axes must be a sequence of integers, got '01' of type str"),
    ({"axes": None}, "axes must be a sequence of integers, got None"),
    ({"input_tensor": (2, 3)}, "input_tensor must be a TensorDesc, got (2, 3) of type tuple"),
    ({"input_tensor": None}, "input_tensor must be a TensorDesc, got None"),
    (
        {"axis_direction": 2},
        "axis_direction must be a member of AxisDirection (INCREASING, DECREASING), got 2 of type int",
    ),
    (
        {"axis_direction": ReduceFunction.ARGMIN},
        "axis_direction must be a member of AxisDirection (INCREASING, DECREASING), got "
        "<ReduceFunction.ARGMIN: 1> of type ReduceFunction",
    ),
    ({"axis": 1}, "axis is not a field; the fields are input_tensor, output_tensor, axes, axis_direction"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG_KINDS)
def test_wrong_types_are_rejected(changes, message):
    assert rejection(argmin, **changes) == f"ARGMIN: {message}"


def test_a_missing_field_is_named():
    assert rejection(descs.Argmin, input_tensor=SMALL) == "ARGMIN: output_tensor is required"


def test_wrong_types_of_other_fields():
    linear = descs.ActivationLinear
    assert rejection(linear, alpha="1", beta=0) == "ACTIVATION_LINEAR: alpha must be a number, got '1' of type str"
    assert rejection(linear, alpha=False, beta=0) == "ACTIVATION_LINEAR: alpha must be a number, got False of type bool"
    message = rejection(linear, alpha=10**400, beta=0)
    assert message == "ACTIVATION_LINEAR: alpha must be a number in the range of a float, got an integer of 1329 bits"
    assert rejection(constant, 10**400, DataType.FLOAT64) == (
        "FILL_VALUE_CONSTANT: value must be a number in the range of a float, got an integer of 1329 bits"
    )
    assert rejection(constant, "3") == "FILL_VALUE_CONSTANT: value must be a number, got '3' of type str"
    assert rejection(descs.ScaleBias, 1, None) == "ScaleBias: bias must be a number, got None"
    assert rejection(descs.Size2D, 1, 2.0) == "Size2D: height must be an integer, got 2.0 of type float"
    join = rejection(descs.Join, input_tensors=[SMALL, 3], output_tensor=SMALL, axis=0)
    assert join == "JOIN: input_tensors[1] must be a TensorDesc, got 3 of type int"
    identity = descs.ElementWiseIdentity
    message = rejection(identity, input_tensor=SMALL, output_tensor=SMALL, scale_bias=(1, 2))
    assert message == "ELEMENT_WISE_IDENTITY: scale_bias must be a ScaleBias, got (1, 2) of type tuple"
    cumulative = {"input_tensor": SMALL, "output_tensor": SMALL, "axis": 0, "axis_direction": 0}
    message = rejection(descs.CumulativeSummation, **cumulative, has_exclusive_sum=1)
    assert message == "CUMULATIVE_SUMMATION: has_exclusive_sum must be a bool, got 1 of type int"
    assert descs.CumulativeSummation(**cumulative, has_exclusive_sum=np.True_).has_exclusive_sum is True


def test_inputs_and_outputs_are_numbered_in_struct_order():
    weight = TensorDesc(DataType.FLOAT32, (1, 1, 3, 3))
    convolution = descs.Convolution(
        input_tensor=weight,
        filter_tensor=weight,
        output_tensor=weight,
        mode=1,
        direction=0,
        strides=[1, 1],
        dilations=[1, 1],
        start_padding=[0, 0],
        end_padding=[0, 0],
        output_padding=[0, 0],
        group_count=1,
    )
    assert convolution.inputs == (
        TensorSlot("input_tensor", None, weight),
        TensorSlot("filter_tensor", None, weight),
        TensorSlot("bias_tensor", None, None),
    )
    assert convolution.outputs == (("output_tensor", None, weight),)
    join = descs.Join(input_tensors=[SMALL, INDEX], output_tensor=SMALL, axis=0)
    assert join.inputs == (("input_tensors", 0, SMALL), ("input_tensors", 1, INDEX))
    assert [slot.label for slot in (*join.inputs, *join.outputs)] == [
        "input_tensors[0]",
        "input_tensors[1]",
        "output_tensor",
    ]


def test_an_activation_may_omit_its_tensors():
    assert descs.ActivationRelu().inputs == (("input_tensor", None, None),)
    assert descs.ActivationRelu(input_tensor=None) == descs.ActivationRelu()
    swish = rejection(descs.ActivationSwish, sigmoid_input_scale=1)
    assert swish == "ACTIVATION_SWISH: input_tensor is required"


def test_names():
    assert argmin().stem == "argmin"
    assert list(argmin().directml_fields) == ["InputTensor", "OutputTensor", "Axes", "AxisDirection"]


def test_descriptions_are_frozen():
    with pytest.raises(
        dataclasses.FrozenInstanceError, match=r"^cannot assign to field 'axes'; use replace\(axes=...\)$"
    ):
        argmin().axes = (0,)
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"^cannot delete field 'axes'$"):
        del argmin().axes


def test_equality_and_hash():
    assert argmin() == argmin(axes=[1]) and hash(argmin()) == hash(argmin(axes=[1]))
    assert argmin() != argmin(axes=[0])
    values = vars(argmin())
    assert argmin() != descs.Argmax(**{name: values[name] for name in descs.Argmax.field_names})
    assert argmin() != "argmin"


@pytest.mark.parametrize(("number", "other"), [(0.0, -0.0), (1, 1.0), (0, -0.0)])
def test_values_that_compute_differently_are_not_equal(number, other):
    assert constant(number) != constant(other)


def test_a_cache_finds_nan_and_tells_zeros_apart():
    assert constant(math.nan) == constant(float("nan")) and hash(constant(math.nan)) == hash(constant(float("nan")))
    biased = [argmin_like(descs.ScaleBias(1, bias)) for bias in (0.0, -0.0)]
    assert biased[0] != biased[1]


def argmin_like(scale_bias):
    return descs.ElementWiseIdentity(input_tensor=SMALL, output_tensor=SMALL, scale_bias=scale_bias)


def test_replace():
    changed = argmin().replace(axes=[0, 1])
    assert changed.axes == (0, 1) and changed.input_tensor is SMALL
    assert dataclasses.replace(argmin(), axes=[0, 1]) == changed
    assert rejection(argmin().replace, axes=3) == "ARGMIN: axes must be a sequence of integers, got 3 of type int"


def test_copies_are_equal():
    desc = argmin()
    assert hash(desc)
    for twin in (copy.copy(desc), copy.deepcopy(desc), pickle.loads(pickle.dumps(desc))):
        assert twin == desc and hash(twin) == hash(desc)
    # A cached hash is only valid in the process that computed it.
    assert set(desc.__getstate__()) == set(desc.field_names)


def test_descriptions_work_with_dataclasses_and_inspect():
    assert dataclasses.is_dataclass(descs.Argmin)
    assert dataclasses.asdict(argmin())["axes"] == (1,)
    parameters = inspect.signature(descs.ElementWiseIdentity).parameters
    assert list(parameters) == ["input_tensor", "output_tensor", "scale_bias"]
    assert parameters["scale_bias"].default is None


def test_repr_shows_all_fields():
    assert repr(descs.ActivationLinear(alpha=1, beta=0.5)) == (
        "ActivationLinear(input_tensor=None, output_tensor=None, alpha=1.0, beta=0.5)"
    )


def test_attributes_with_defaults_may_be_omitted():
    image, filters = TensorDesc(DataType.FLOAT32, (1, 1, 8, 8, 8)), TensorDesc(DataType.FLOAT32, (1, 1, 1, 1, 1))
    short = descs.Convolution(input_tensor=image, filter_tensor=filters, output_tensor=image)
    whole = descs.Convolution(
        input_tensor=image,
        filter_tensor=filters,
        bias_tensor=None,
        output_tensor=image,
        mode=ConvolutionMode.CROSS_CORRELATION,
        direction=ConvolutionDirection.FORWARD,
        strides=(1, 1, 1),
        dilations=(1, 1, 1),
        start_padding=(0, 0, 0),
        end_padding=(0, 0, 0),
        output_padding=(0, 0, 0),
        group_count=1,
        fused_activation=None,
    )
    assert short == whole and pickle.loads(pickle.dumps(short)) == whole
    assert short.replace(strides=(2, 2, 2)).dilations == (1, 1, 1)
    gemm = descs.Gemm(a_tensor=SMALL, b_tensor=SMALL, output_tensor=SMALL)
    assert (gemm.alpha, gemm.beta, gemm.trans_a.name, gemm.trans_b.name) == (1.0, 1.0, "NONE", "NONE")
    window = {"input_tensor": image, "output_tensor": image, "window_size": (3, 3, 3)}
    assert descs.AveragePooling(**window).strides == (1, 1, 1)
    assert descs.Argmin(input_tensor=SMALL, output_tensor=INDEX, axes=(1,)) == argmin()


def test_attributes_without_defaults_are_required():
    with pytest.raises(InvalidDescription, match=r"^ARGMIN: axes is required$"):
        descs.Argmin(input_tensor=SMALL, output_tensor=INDEX)
    with pytest.raises(InvalidDescription, match=r"^AVERAGE_POOLING: window_size is required$"):
        descs.AveragePooling(input_tensor=SMALL, output_tensor=SMALL)
    with pytest.raises(InvalidDescription, match=r"^GEMM: alpha must be a number, got None$"):
        descs.Gemm(a_tensor=SMALL, b_tensor=SMALL, output_tensor=SMALL, alpha=None)


@pytest.mark.parametrize("name", catalog())
def test_functions_have_the_defaults_of_descriptions(name):
    kind = descs.by_name(name)
    for module in (functions, directml):
        parameters = inspect.signature(getattr(module, name.lower())).parameters
        for field in catalog()[name].python_fields:
            if field.kind is FieldKind.ATTRIBUTE and field.python_name in kind.defaults:
                default, signature_default = kind.defaults[field.python_name], parameters[field.python_name].default
                assert signature_default == (None if isinstance(default, Entries) else default), field.python_name
