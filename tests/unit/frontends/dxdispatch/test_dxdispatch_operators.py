"""Operators in DxDispatch models: the meaning of descriptions, with full error messages."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from dmlgpu import descs
from dmlgpu.catalog import operator as schema_of
from dmlgpu.catalog.enums import (
    AxisDirection,
    ConvolutionDirection,
    ConvolutionMode,
    DataType,
    ExecutionFlags,
    RandomGeneratorType,
)
from dmlgpu.catalog.operator_desc import ScaleBias, Size2D
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import ModelError
from dmlgpu.frontends import dxdispatch
from tests.unit.frontends.dxdispatch.dxdispatch_models import (
    broken,
    complaint,
    load_operator,
    subtraction,
    tensor,
    values,
)


def test_long_and_short_forms_describe_the_same() -> None:
    long = load_operator(
        Type="DML_OPERATOR_ELEMENT_WISE_IDENTITY",
        Desc={
            "InputTensor": {
                "Type": "DML_TENSOR_TYPE_BUFFER",
                "Desc": {
                    "DataType": "DML_TENSOR_DATA_TYPE_FLOAT16",
                    "Flags": "DML_TENSOR_FLAG_NONE",
                    "DimensionCount": 2,
                    "Sizes": [2, 3],
                    "Strides": [3, 1],
                    "TotalTensorSizeInBytes": 12,
                    "GuaranteedBaseOffsetAlignment": 32,
                },
            },
            "OutputTensor": {"Type": "BUFFER", **tensor(2, 3, data_type="FLOAT16", Strides=None)},
            "ScaleBias": {"Scale": 2, "Bias": "-inf"},
        },
    )
    assert long == descs.ElementWiseIdentity(
        input_tensor=TensorDesc(
            DataType.FLOAT16, (2, 3), (3, 1), total_tensor_size_in_bytes=12, guaranteed_base_offset_alignment=32
        ),
        output_tensor=TensorDesc(DataType.FLOAT16, (2, 3)),
        scale_bias=ScaleBias(2.0, -math.inf),
    )
    fields = {
        "InputTensor": tensor(2, 3, data_type="FLOAT16", Strides=[3, 1], GuaranteedBaseOffsetAlignment=32),
        "OutputTensor": tensor(2, 3, data_type="FLOAT16", TotalTensorSizeInBytes=0, Flags=[]),
        "ScaleBias": {"Scale": 2.0, "Bias": "-Inf"},
    }
    assert load_operator(type="ELEMENT_WISE_IDENTITY", desc=fields) == long
    assert load_operator(type="ELEMENT_WISE_IDENTITY", **fields) == long


def test_total_size_is_worked_out_from_strides() -> None:
    desc = load_operator(
        type="ELEMENT_WISE_IDENTITY", InputTensor=tensor(2, 3, Strides=[8, 1]), OutputTensor=tensor(2, 3)
    )
    assert isinstance(desc, descs.ElementWiseIdentity)
    assert (desc.input_tensor.byte_size, desc.output_tensor.byte_size) == (44, 24)


@pytest.mark.parametrize("count", [{}, {"AxisCount": 2}])
def test_counts_may_be_left_out(count: dict[str, int]) -> None:
    desc = load_operator(
        type="ARGMIN",
        desc={
            "InputTensor": tensor(2, 3),
            "OutputTensor": tensor(1, 1, data_type="UINT32"),
            "Axes": [0, 1],
            "AxisDirection": "DECREASING",
            **count,
        },
    )
    assert isinstance(desc, descs.Argmin)
    assert (desc.axes, desc.axis_direction) == ((0, 1), AxisDirection.DECREASING)


def test_alias_and_signed_arrays_and_arrays_of_tensors() -> None:
    scatter = load_operator(
        type="SCATTER",
        desc={
            "InputTensor": tensor(3),
            "IndicesTensor": tensor(2, data_type="INT64"),
            "UpdatesTensor": tensor(2),
            "OutputTensor": tensor(3),
            "Axis": 0,
        },
    )
    assert scatter.operator == "SCATTER_ELEMENTS"
    window = {"InputWindowOffsets": [0], "InputWindowSizes": [3], "InputWindowStrides": [-2], "DimensionCount": 1}
    mirrored = load_operator(type="SLICE1", desc={"InputTensor": tensor(3), "OutputTensor": tensor(2), **window})
    assert isinstance(mirrored, descs.Slice1)
    assert mirrored.input_window_strides == (-2,)
    joined = load_operator(
        type="JOIN",
        desc={"InputCount": 2, "InputTensors": [tensor(3), tensor(1)], "OutputTensor": tensor(4), "Axis": 0},
    )
    assert isinstance(joined, descs.Join)
    assert [joined_tensor.sizes for joined_tensor in joined.input_tensors] == [(3,), (1,)]


@pytest.mark.parametrize(
    "activation",
    [{"Type": "ACTIVATION_ELU", "Alpha": 0.5}, {"type": "DML_OPERATOR_ACTIVATION_ELU", "desc": {"Alpha": 0.5}}],
)
def test_fused_activations_have_no_tensors(activation: dict[str, Any]) -> None:
    desc = load_operator(
        type="CONVOLUTION",
        desc={
            "InputTensor": tensor(1, 1, 3, 3),
            "FilterTensor": tensor(1, 1, 2, 2),
            "OutputTensor": tensor(1, 1, 2, 2),
            "Mode": "DML_CONVOLUTION_MODE_CROSS_CORRELATION",
            "Direction": "FORWARD",
            "DimensionCount": 2,
            **{name: [0, 0] for name in ("StartPadding", "EndPadding", "OutputPadding")},
            **{name: [1, 1] for name in ("Strides", "Dilations")},
            "GroupCount": 1,
            "FusedActivation": activation,
        },
    )
    assert isinstance(desc, descs.Convolution)
    assert (desc.mode, desc.direction) == (ConvolutionMode.CROSS_CORRELATION, ConvolutionDirection.FORWARD)
    assert desc.bias_tensor is None
    assert desc.fused_activation == descs.ActivationElu(alpha=0.5)


def test_an_operator_with_a_field_named_type() -> None:
    fields = {
        "InputStateTensor": tensor(6, data_type="UINT32"),
        "OutputTensor": tensor(4, data_type="UINT32"),
        "Type": "DML_RANDOM_GENERATOR_TYPE_PHILOX_4X32_10",
    }
    desc = load_operator(Type="DML_OPERATOR_RANDOM_GENERATOR", Desc=fields)
    assert isinstance(desc, descs.RandomGenerator)
    assert desc.type is RandomGeneratorType.PHILOX_4X32_10


def test_sizes_of_images() -> None:
    desc = load_operator(
        type="UPSAMPLE_2D",
        desc={
            "InputTensor": tensor(1, 1, 2, 2),
            "OutputTensor": tensor(1, 1, 4, 6),
            "ScaleSize": {"Width": 3, "Height": 2},
            "InterpolationMode": "LINEAR",
        },
    )
    assert isinstance(desc, descs.Upsample2d)
    assert desc.scale_size == Size2D(3, 2)


@pytest.mark.parametrize(
    ("data_type", "union", "expected"),
    [
        ("FLOAT16", {"UInt16": 0x3E00}, 1.5),
        ("FLOAT16", 1.5, 1.5),
        ("FLOAT32", {"Float32": "-inf"}, -math.inf),
        ("UINT8", {"UInt8": 255}, 255),
        ("INT64", {"Int64": -(2**63)}, -(2**63)),
        ("INT64", -5, -5),
    ],
)
def test_scalar_unions(data_type: str, union: Any, expected: float) -> None:
    desc = load_operator(
        type="FILL_VALUE_CONSTANT",
        desc={"OutputTensor": tensor(4, data_type=data_type), "ValueDataType": data_type, "Value": union},
    )
    assert isinstance(desc, descs.FillValueConstant)
    assert desc.value == expected
    assert type(desc.value) is type(expected)


@pytest.mark.parametrize(
    ("union", "path", "reason"),
    [
        ({"Int8": 3}, ".Value.Int8", "a DML_SCALAR_UNION that holds UINT8 has no key 'Int8'; did you mean 'UInt8'?"),
        ({}, ".Value.UInt8", "a DML_SCALAR_UNION that holds UINT8 needs the key 'UInt8'"),
        (-1, ".Value", "must be an integer from 0 to 255, got -1"),
    ],
)
def test_bad_scalar_unions(union: Any, path: str, reason: str) -> None:
    desc = {"OutputTensor": tensor(4, data_type="UINT8"), "ValueDataType": "UINT8", "Value": union}
    model = {
        "resources": {},
        "dispatchables": {"x": {"type": "FILL_VALUE_CONSTANT", "desc": desc}},
        "commands": [],
    }
    assert complaint(model) == f"$.dispatchables.x.desc{path}: {reason}"


def test_every_enumeration_of_every_operator_can_be_parsed() -> None:
    """Each operator is parsed from JSON derived from the catalog, so names, kinds and counts all have a parser."""
    plain: dict[str, Any] = {
        "TENSOR": tensor(1, 1, 1, 1),
        "UINT": 1,
        "INT": -1,
        "FLOAT": 1.5,
        "BOOL": True,
        "SCALE_BIAS": {"Scale": 1, "Bias": 0},
        "SIZE_2D": {"Width": 1, "Height": 1},
        "SCALAR_UNION": 1,
        "OPERATOR_DESC": {"Type": "ACTIVATION_RELU"},
        "DML_TENSOR_DATA_TYPE": "INT32",
    }
    for cls in descs.all_descs():
        schema = schema_of(cls.operator)
        fields = {}
        for field in schema.fields:
            value = plain.get(field.type)
            if value is None:
                value = next(iter(getattr(dxdispatch.operators.enums, _class_of(field.type)).__members__))
            fields[field.name] = [value] if field.is_array else value
        assert load_operator(type=cls.operator, desc=fields).operator == cls.operator


def _class_of(type_name: str) -> str:
    return "".join(word.capitalize() for word in type_name.removeprefix("DML_").split("_"))


def test_execution_flags_and_compile_type() -> None:
    model = subtraction()
    dispatchable = model["dispatchables"]["subtract"]
    for flags, expected in (
        ("NONE", ExecutionFlags.NONE),
        ("DML_EXECUTION_FLAG_DESCRIPTORS_VOLATILE", ExecutionFlags.DESCRIPTORS_VOLATILE),
        (["NONE"], ExecutionFlags.NONE),
        (
            ["DISABLE_META_COMMANDS", "DML_EXECUTION_FLAG_ALLOW_HALF_PRECISION_COMPUTATION", "DISABLE_META_COMMANDS"],
            ExecutionFlags.DISABLE_META_COMMANDS | ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION,
        ),
    ):
        dispatchable["executionFlags"] = flags
        assert dxdispatch.load(model).dispatchables["subtract"].flags == expected
    for compile_type in ("DmlCompileOp", "DmlCompileGraph"):
        dispatchable["dmlCompileType"] = compile_type
        dxdispatch.load(model)


def test_a_field_is_needed_although_descriptions_have_a_usual_value() -> None:
    described = {"DataType": "FLOAT32", "Sizes": [4]}
    with pytest.raises(ModelError, match="ACTIVATION_ELU needs the field 'Alpha'"):
        load_operator(Type="ACTIVATION_ELU", Desc={"InputTensor": described, "OutputTensor": described})


DESC = "$.dispatchables.subtract.desc"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda desc: desc.pop("BTensor"),
            f"{DESC}.BTensor: ELEMENT_WISE_SUBTRACT needs the field 'BTensor'",
        ),
        (
            lambda desc: desc.update(aTensor=1),
            f"{DESC}.aTensor: ELEMENT_WISE_SUBTRACT has no key 'aTensor'; did you mean 'ATensor'?",
        ),
        (lambda desc: desc.update(ATensor=None), f"{DESC}.ATensor: must be an object, got null"),
        (
            lambda desc: desc["ATensor"].pop("DataType"),
            f"{DESC}.ATensor.DataType: a tensor description needs the key 'DataType'",
        ),
        (
            lambda desc: desc["ATensor"].update(Sizes=[3, -1]),
            f"{DESC}.ATensor.Sizes[1]: must be an integer from 0 to 4294967295, got -1",
        ),
        (
            lambda desc: desc["ATensor"].update(Strides=[3, 1]),
            f"{DESC}.ATensor.Strides: must have 1 entries, the length of 'Sizes', got 2",
        ),
        (
            lambda desc: desc["ATensor"].update(DimensionCount=4),
            f"{DESC}.ATensor.DimensionCount: must be 1, the length of 'Sizes', got 4",
        ),
        (lambda desc: desc["ATensor"].update(Type="INVALID"), f"{DESC}.ATensor.Type: must be BUFFER, got INVALID"),
        (
            lambda desc: desc["ATensor"].update(Flags=["OWNED_BY_DM"]),
            f"{DESC}.ATensor.Flags[0]: 'OWNED_BY_DM' is not a value of DML_TENSOR_FLAG; did you mean 'OWNED_BY_DML'?",
        ),
        (
            lambda desc: desc.update(ATensor={"Type": "BUFFER", "Desc": tensor(3, Stride=[1])}),
            f"{DESC}.ATensor.Desc.Stride: a buffer tensor description has no key 'Stride'; did you mean 'Strides'?",
        ),
    ],
)
def test_bad_descriptions(change: Callable[[dict[str, Any]], object], text: str) -> None:
    assert broken(lambda model: change(model["dispatchables"]["subtract"]["desc"])) == text


def test_wrong_counts_are_rejected() -> None:
    fields = {
        "InputTensor": tensor(2, 3),
        "OutputTensor": tensor(1, 3),
        "Function": "SUM",
        "AxisCount": 2,
        "Axes": [0],
    }
    model = {"resources": {}, "dispatchables": {"x": {"type": "REDUCE", "desc": fields}}, "commands": []}
    assert complaint(model) == "$.dispatchables.x.desc.AxisCount: must be 1, the length of 'Axes', got 2"
    fields |= {"AxisCount": 1, "Function": "DML_REDUCE_FUNCTION_SUMM"}
    assert (
        complaint(model) == "$.dispatchables.x.desc.Function: "
        "'DML_REDUCE_FUNCTION_SUMM' is not a value of DML_REDUCE_FUNCTION; did you mean 'SUM'?"
    )


def test_fused_activations_take_no_tensors() -> None:
    fields = {name: tensor(3) for name in ("ATensor", "BTensor", "OutputTensor")}
    fields["FusedActivation"] = {"Type": "ACTIVATION_ELU", "InputTensor": tensor(3), "Alpha": 1}
    model = {"resources": {}, "dispatchables": {"x": {"type": "ELEMENT_WISE_ADD1", "desc": fields}}, "commands": []}
    assert complaint(model) == (
        "$.dispatchables.x.desc.FusedActivation.InputTensor: "
        "a fused ACTIVATION_ELU has no key 'InputTensor'; known keys are 'Type' or 'Alpha'"
    )


@pytest.mark.parametrize("depth", [1, 2000])
def test_nothing_is_fused_into_what_is_fused(depth: int) -> None:
    activation: dict[str, Any] = {"Type": "ACTIVATION_RELU"}
    for _ in range(depth + 1):
        activation = {"Type": "GEMM", "FusedActivation": activation}
    model = {"resources": {}, "dispatchables": {"x": {"type": "GEMM", **activation}}, "commands": []}
    del model["dispatchables"]["x"]["Type"]
    model["dispatchables"]["x"] |= dict.fromkeys(("ATensor", "BTensor", "OutputTensor"), tensor(1, 1, 2, 2))
    model["dispatchables"]["x"] |= {"TransA": "NONE", "TransB": "NONE", "Alpha": 1, "Beta": 0}
    inner = model["dispatchables"]["x"]["FusedActivation"]
    inner |= {"TransA": "NONE", "TransB": "NONE", "Alpha": 1, "Beta": 0}
    assert complaint(model) == (
        "$.dispatchables.x.FusedActivation.FusedActivation: "
        "GEMM is fused into an operator, so nothing can be fused into it"
    )


def test_tensors_of_many_dimensions_are_rejected_at_once() -> None:
    many = tensor(*[2**32 - 1] * 100_000)
    model = {"type": "ELEMENT_WISE_IDENTITY", "InputTensor": many, "OutputTensor": many}
    start = time.process_time()
    assert complaint({"resources": {}, "dispatchables": {"x": model}, "commands": []}) == (
        "$.dispatchables.x.InputTensor.Sizes: must have at most 8 entries, got 100000"
    )
    assert time.process_time() - start < 5


@pytest.mark.slow
def test_a_name_like_many_is_looked_for_shortly() -> None:
    resources = {f"{'x' * 50}{index}": values(1) for index in range(5000)}
    start = time.process_time()
    model = {"resources": resources, "dispatchables": {}, "commands": [{"type": "print", "resource": "x" * 50}]}
    assert complaint(model).startswith(f"$.commands[0].resource: the model has no resource '{'x' * 50}'; did you mean")
    assert time.process_time() - start < 20
