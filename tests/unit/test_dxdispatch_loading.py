"""DxDispatch models: what is read, and the whole text of each complaint."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlgpu import descs
from dmlgpu.enums import (
    AxisDirection,
    ConvolutionDirection,
    ConvolutionMode,
    DataType,
    ExecutionFlags,
    RandomGeneratorType,
    TensorFlags,
)
from dmlgpu.errors import ModelError
from dmlgpu.frontends import dxdispatch
from dmlgpu.frontends.dxdispatch.model import Dispatch, Print, WriteFile
from dmlgpu.operator_desc import OperatorDesc, ScaleBias, Size2D
from dmlgpu.tensor import TensorDesc

MODELS = Path(__file__).parent.parent / "data" / "dxdispatch"


def tensor(*sizes: int, data_type: str = "FLOAT32", **more: Any) -> dict[str, Any]:
    return {"DataType": data_type, "Sizes": list(sizes), **more}


def values(*elements: Any, data_type: str = "FLOAT32", **more: Any) -> dict[str, Any]:
    return {"initialValuesDataType": data_type, "initialValues": list(elements), **more}


def subtraction() -> dict[str, Any]:
    """A small valid model; tests break one place of it."""
    return {
        "resources": {"A": values(1, 2, 3), "B": values(5, 8, -5), "my out": values(0, 0, 0)},
        "dispatchables": {
            "subtract": {
                "type": "ELEMENT_WISE_SUBTRACT",
                "desc": {"ATensor": tensor(3), "BTensor": tensor(3), "OutputTensor": tensor(3)},
            }
        },
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "subtract",
                "bindings": {"ATensor": "A", "BTensor": "B", "OutputTensor": "my out"},
            },
            {"type": "print", "resource": "my out"},
            {"type": "writeFile", "resource": "my out", "targetPath": "out.npy"},
        ],
    }


def load_resource(**resource: Any) -> Any:
    model = {"resources": {"X": resource}, "dispatchables": {}, "commands": []}
    return dxdispatch.load(model).resources["X"]


def load_operator(**dispatchable: Any) -> OperatorDesc:
    """The description behind a dispatchable without owned tensors."""
    return (
        dxdispatch.load({"resources": {}, "dispatchables": {"x": dispatchable}, "commands": []}).dispatchables["x"].desc
    )


def complaint(model: Any) -> str:
    with pytest.raises(ModelError) as caught:
        dxdispatch.load(model)
    assert str(caught.value).startswith(caught.value.path)
    return str(caught.value)


def broken(change: Callable[[dict[str, Any]], object]) -> str:
    """The complaint about the small model after a change."""
    model = copy.deepcopy(subtraction())
    change(model)
    return complaint(model)


# -- text -----------------------------------------------------------------------------------------------------------


def write(folder: Path, text: str) -> Path:
    file = folder / "model.json"
    file.write_text(text, encoding="utf-8")
    return file


def test_comments_and_trailing_commas_are_skipped_but_not_in_strings(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """// first
        { "resources": { "a // b /* c */ ,]": /* 1 */ { "initialValuesDataType": "INT8", "initialValues": [1, 2,], } },
          "dispatchables": { }, // none
          "commands": [ ], }""",
    )
    assert list(dxdispatch.load(file).resources) == ["a // b /* c */ ,]"]


def test_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(subtraction()).encode())
    assert list(dxdispatch.load(str(file)).dispatchables) == ["subtract"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{\n  "resources": {\n    "A" 1\n', "line 3, column 9: malformed JSON: Expecting ':' delimiter"),
        ("", "line 1, column 1: malformed JSON: Expecting value"),
        ("[1, , 2]", "line 1, column 5: malformed JSON: Expecting value"),
        ("{,}", "line 1, column 2: malformed JSON: Expecting property name enclosed in double quotes"),
        ("{}\n x", "line 2, column 2: malformed JSON: Extra data"),
        ('{"a": 1 /* b', "line 1, column 9: malformed JSON: this comment is not closed"),
        ('// c\n{"a": NaN}', 'line 2, column 7: malformed JSON: NaN is not a JSON value, write "nan"'),
        ('{"a": -Infinity}', 'line 1, column 7: malformed JSON: -Infinity is not a JSON value, write "-inf"'),
        ("[" * 100_000, "malformed JSON: nested too deeply"),
    ],
)
def test_malformed_json_is_located(tmp_path: Path, text: str, reason: str) -> None:
    file = write(tmp_path, text)
    assert complaint(file) == f"{file}: {reason}"


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_bytes(b'{"\xff": 1}')
    assert complaint(file) == f"{file}: is not UTF-8 text: byte 2 is 0xff"


def test_duplicate_keys_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path, '{"resources": {"A": 1, "A": 2}, "dispatchables": {}, "commands": []}')
    assert complaint(file) == "$.resources.A: this key is given more than once"


def test_missing_model() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        dxdispatch.load("nowhere/model.json")
    assert isinstance(caught.value, ModelError)
    assert str(caught.value) == f"{Path('nowhere/model.json')}: there is no such model file"


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    assert complaint(tmp_path).startswith(f"{tmp_path}: the model file cannot be read: ")


# -- resources ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "DML_TENSOR_DATA_TYPE_"])
@pytest.mark.parametrize("data_type", [member for member in DataType if member.bits >= 8])
def test_array_constant_and_sequence_of_every_type(data_type: DataType, prefix: str) -> None:
    name = prefix + data_type.name
    for initial, expected in (
        ([3, 0, 100], [3, 0, 100]),
        ({"valueCount": 3, "value": 7}, [7, 7, 7]),
        ({"valueCount": 4, "valueStart": 2, "valueDelta": 3}, [2, 5, 8, 11]),
    ):
        resource = load_resource(initialValuesDataType=name, initialValues=initial)
        made = resource.values.make()
        assert made.dtype == data_type.name.lower()
        np.testing.assert_array_equal(made, expected)
        assert resource.size == len(expected) * data_type.bits // 8
        assert resource.to_bytes().tobytes()[: resource.size] == np.array(expected, data_type.name.lower()).tobytes()
        assert resource.to_bytes().size % 4 == 0


@pytest.mark.parametrize("data_type", ["FLOAT16", "FLOAT32", "FLOAT64"])
def test_special_values_in_any_case(data_type: str) -> None:
    elements = load_resource(
        **values("nan", "NaN", "inf", "Inf", "-inf", "-INF", -0.0, data_type=data_type)
    ).values.make()
    assert np.isnan(elements[:2]).all()
    np.testing.assert_array_equal(elements[2:6], [np.inf, np.inf, -np.inf, -np.inf])
    assert np.signbit(elements[6])
    constant = load_resource(initialValuesDataType=data_type, initialValues={"valueCount": 2, "value": "-inf"})
    np.testing.assert_array_equal(constant.values.make(), [-np.inf, -np.inf])


def test_floats_are_rounded_once() -> None:
    # 1 + 2^-11 + 2^-40 lies just above the middle of two halves; by way of float32 it would be the middle itself.
    assert load_resource(**values(1 + 2**-11 + 2**-40, data_type="FLOAT16")).values.make()[0] == 1 + 2**-10
    np.testing.assert_array_equal(
        load_resource(**values(65520, -1e6, data_type="FLOAT16")).values.make(), [np.inf, -np.inf]
    )


def test_sequences_add_up_in_their_type() -> None:
    expected, value = [], np.float32(1)
    for _ in range(40):
        expected.append(value)
        value = np.float32(value + np.float32(0.4))
    made = load_resource(
        initialValuesDataType="FLOAT32", initialValues={"valueCount": 40, "valueStart": 1, "valueDelta": 0.4}
    ).values.make()
    np.testing.assert_array_equal(made, np.array(expected))
    assert made[-1] != np.float32(1 + 39 * 0.4), "the rounding of each step must be seen"
    wrapped = load_resource(
        initialValuesDataType="UINT8", initialValues={"valueCount": 3, "valueStart": 200, "valueDelta": 50}
    )
    np.testing.assert_array_equal(wrapped.values.make(), [200, 250, 44])


def test_four_bit_values_are_packed_low_nibble_first() -> None:
    signed = load_resource(**values(1, -1, 7, data_type="INT4"))
    assert signed.to_bytes().tolist() == [0xF1, 0x07, 0, 0]
    unsigned = load_resource(initialValuesDataType="UINT4", initialValues={"valueCount": 3, "value": 9})
    assert (unsigned.to_bytes().tolist(), unsigned.size, unsigned.element_count) == ([0x99, 0x09, 0, 0], 2, 3)


def test_list_of_mixed_types() -> None:
    resource = load_resource(
        initialValuesDataType="UNKNOWN",
        initialValues=[
            {"type": "FLOAT32", "value": -4.5},
            {"name": "count", "type": "DML_TENSOR_DATA_TYPE_UINT8", "value": 15},
            {"type": "INT16", "value": -3},
            {"type": "FLOAT32", "value": "inf"},
        ],
    )
    expected = np.float32(-4.5).tobytes() + b"\x0f" + np.int16(-3).tobytes() + np.float32("inf").tobytes()
    assert resource.to_bytes().tobytes() == expected + b"\0"
    assert (resource.size, resource.allocated_size) == (11, 12)


def test_size_and_offset() -> None:
    resource = load_resource(**values(1, 2, sizeInBytes=22, initialValuesOffsetInBytes=4), type="buffer")
    np.testing.assert_array_equal(resource.to_bytes().view(np.float32), [0, 1, 2, 0, 0, 0])
    assert (resource.size, resource.allocated_size, resource.element_count) == (22, 24, 3)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    np.save(tmp_path / "models" / "big.NPY", np.asfortranarray(np.arange(6).reshape(2, 3).astype(">i2")))
    (tmp_path / "models" / "big.NPY.npy").rename(tmp_path / "models" / "big.NPY")
    np.save(tmp_path / "flags.npy", np.array([True, False]))
    (tmp_path / "models" / "raw.dat").write_bytes(np.array([1.5, 2.5], np.float16).tobytes())
    model = {
        "resources": {
            "big": {"initialValues": {"sourcePath": "big.NPY"}},
            "flags": {"initialValues": {"sourcePath": "flags.npy"}, "initialValuesDataType": "UINT8"},
            "raw": {"initialValues": {"sourcePath": "raw.dat"}, "initialValuesDataType": "FLOAT16"},
        },
        "dispatchables": {},
        "commands": [],
    }
    file = tmp_path / "models" / "model.json"
    file.write_text(json.dumps(model))
    monkeypatch.chdir(tmp_path)  # flags.npy is not in the model's folder, so it is looked up here.
    resources = dxdispatch.load(file).resources
    assert [resource.data_type for resource in resources.values()] == [DataType.INT16, DataType.UINT8, DataType.FLOAT16]
    np.testing.assert_array_equal(resources["big"].values.make(), [0, 1, 2, 3, 4, 5])
    assert resources["big"].values.make().dtype == np.dtype("=i2")
    assert resources["big"].values.sizes == (2, 3)
    np.testing.assert_array_equal(resources["flags"].values.make(), [1, 0])
    np.testing.assert_array_equal(resources["raw"].values.make(), [1.5, 2.5])


@pytest.mark.parametrize(
    ("resource", "path", "reason"),
    [
        (7, "", "must be an object, got 7"),
        ({}, ".initialValues", "a resource needs the key 'initialValues'"),
        (
            {"initialValues": "deferred"},
            ".initialValues",
            "deferred resources are for ONNX dispatchables, which are not offered",
        ),
        ({"initialValues": None}, ".initialValues", "must be an array or an object, got null"),
        (
            {"initialValues": {"count": 3}},
            ".initialValues",
            "must have one of the keys 'value', 'valueStart' and 'sourcePath'",
        ),
        (
            {"initialValues": {"value": 3, "valueCount": 1}},
            ".initialValuesDataType",
            "a resource initialised by 'value' needs the key 'initialValuesDataType'",
        ),
        (
            {"initialValues": [1]},
            ".initialValues[0]",
            "must be an object with 'type' and 'value', as initialValuesDataType is not given or UNKNOWN",
        ),
        (values(), ".initialValues", "must hold at least one value"),
        (values(1, True), ".initialValues[1]", "must be a number or one of 'nan', 'inf', '-inf', got true"),
        (values(1, "cat"), ".initialValues[1]", "must be a number or one of 'nan', 'inf', '-inf', got 'cat'"),
        (values(0, 1.0, data_type="INT8"), ".initialValues[1]", "must be an integer from -128 to 127, got 1.0"),
        (values(0, 128, data_type="INT8"), ".initialValues[1]", "must be an integer from -128 to 127, got 128"),
        (values(0, 16, data_type="UINT4"), ".initialValues[1]", "must be an integer from 0 to 15, got 16"),
        (
            values("nan", data_type="INT32"),
            ".initialValues[0]",
            "must be an integer from -2147483648 to 2147483647, got 'nan'",
        ),
        (
            values(0, 2**64, data_type="UINT64"),
            ".initialValues[1]",
            "must be an integer from 0 to 18446744073709551615, got 18446744073709551616",
        ),
        (
            values(1, data_type="FLOAT31"),
            ".initialValuesDataType",
            "'FLOAT31' is not a value of DML_TENSOR_DATA_TYPE; did you mean 'FLOAT32'?",
        ),
        (
            values(1, 2, 3, sizeInBytes=8),
            ".sizeInBytes",
            "must be at least 12, the end of the initial values (12 bytes), got 8",
        ),
        (
            values(1, 2, sizeInBytes=8, initialValuesOffsetInBytes=4),
            ".sizeInBytes",
            "must be at least 12, the end of the initial values (8 bytes at offset 4), got 8",
        ),
        (values(1, sizeInByte=4), ".sizeInByte", "a resource has no key 'sizeInByte'; did you mean 'sizeInBytes'?"),
        (
            values(1, resampleSize=[1, 3, 8, 8]),
            ".resampleSize",
            "images are not offered; give the pixels as a .npy file",
        ),
        (values(1, type="texture"), ".type", "resources of type 'texture' are not offered, only 'buffer'"),
        (
            {"initialValues": {"sourcePath": "missing.npy"}},
            ".initialValues.sourcePath",
            "there is no file 'missing.npy'",
        ),
        (
            {"initialValuesDataType": "INT8", "initialValues": {"valueCount": 0, "value": 1}},
            ".initialValues.valueCount",
            "must be an integer from 1 to 4294967295, got 0",
        ),
        (
            {"initialValuesDataType": "INT8", "initialValues": {"valueCount": 2, "valueStart": 1}},
            ".initialValues.valueDelta",
            "an initialiser needs the key 'valueDelta'",
        ),
        (
            {"initialValuesDataType": "INT8", "initialValues": {"valueCount": 2, "value": 1, "valueDelta": 1}},
            ".initialValues.valueDelta",
            "an initialiser with 'value' has no key 'valueDelta'; did you mean 'value'?",
        ),
        (
            {"initialValues": [{"type": "INT4", "value": 1}]},
            ".initialValues[0].type",
            "INT4 cannot stand in a list of mixed types",
        ),
        (
            {"initialValues": [{"type": "INT8", "value": 1, "nmae": "x"}]},
            ".initialValues[0].nmae",
            "an element of a list has no key 'nmae'; did you mean 'name'?",
        ),
    ],
)
def test_bad_resources(resource: Any, path: str, reason: str) -> None:
    model = {"resources": {"X": resource}, "dispatchables": {}, "commands": []}
    assert complaint(model) == f"$.resources.X{path}: {reason}"


def test_missing_files_are_file_not_found_errors_too() -> None:
    with pytest.raises(FileNotFoundError, match=r"^\$\.resources\.X\.initialValues\.sourcePath: there is no file"):
        load_resource(initialValues={"sourcePath": "missing.npy"})


@pytest.mark.parametrize(
    ("name", "content", "data_type", "reason"),
    [
        ("a.dat", b"12345", "FLOAT32", "{file!r} has 5 bytes, not a multiple of the 4 bytes of a FLOAT32"),
        ("a.dat", b"1234", None, "the raw file {file!r} says nothing of its type: initialValuesDataType must be given"),
        ("a.npy", b"123456", None, "{file!r} is not a .npy file of numbers: "),
        ("a.npy", np.zeros(2), "INT8", "{file!r} holds FLOAT64, but initialValuesDataType is INT8"),
        ("a.npy", np.zeros(2, complex), None, "{file!r}: NumPy type complex128 has no DirectML data type"),
        ("a.npy", np.array(["x"], object), None, "{file!r} is not a .npy file of numbers: "),
        ("a.png", b"", "FLOAT32", "images are not offered; give the pixels of 'a.png' as a .npy file"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: Any, data_type: str | None, reason: str) -> None:
    file = tmp_path / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        np.save(file, content)
    resource: dict[str, Any] = {"initialValues": {"sourcePath": str(file)}}
    resource |= {} if data_type is None else {"initialValuesDataType": data_type}
    text = complaint({"resources": {"X": resource}, "dispatchables": {}, "commands": []})
    expected = f"$.resources.X.initialValues.sourcePath: {reason.format(file=str(file))}"
    assert text.startswith(expected) if expected.endswith(": ") else text == expected


# -- operators ------------------------------------------------------------------------------------------------------


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
    assert [one.sizes for one in joined.input_tensors] == [(3,), (1,)]


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
    ("data_type", "given", "expected"),
    [
        ("FLOAT16", {"UInt16": 0x3E00}, 1.5),
        ("FLOAT16", 1.5, 1.5),
        ("FLOAT32", {"Float32": "-inf"}, -math.inf),
        ("UINT8", {"UInt8": 255}, 255),
        ("INT64", {"Int64": -(2**63)}, -(2**63)),
        ("INT64", -5, -5),
    ],
)
def test_scalar_unions(data_type: str, given: Any, expected: float) -> None:
    desc = load_operator(
        type="FILL_VALUE_CONSTANT",
        desc={"OutputTensor": tensor(4, data_type=data_type), "ValueDataType": data_type, "Value": given},
    )
    assert isinstance(desc, descs.FillValueConstant)
    assert desc.value == expected
    assert type(desc.value) is type(expected)


@pytest.mark.parametrize(
    ("given", "path", "reason"),
    [
        ({"Int8": 3}, ".Value.Int8", "a DML_SCALAR_UNION that holds UINT8 has no key 'Int8'; did you mean 'UInt8'?"),
        ({}, ".Value.UInt8", "a DML_SCALAR_UNION that holds UINT8 needs the key 'UInt8'"),
        (-1, ".Value", "must be an integer from 0 to 255, got -1"),
    ],
)
def test_bad_scalar_unions(given: Any, path: str, reason: str) -> None:
    desc = {"OutputTensor": tensor(4, data_type="UINT8"), "ValueDataType": "UINT8", "Value": given}
    model = {
        "resources": {},
        "dispatchables": {"x": {"type": "FILL_VALUE_CONSTANT", "desc": desc}},
        "commands": [],
    }
    assert complaint(model) == f"$.dispatchables.x.desc{path}: {reason}"


def test_every_enumeration_of_every_operator_can_be_parsed() -> None:
    """Each operator is described from JSON that the catalog implies: names, kinds and counts all have a parser."""
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
        schema = dxdispatch.loading.operator(cls.operator)
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
    for given, expected in (
        ("NONE", ExecutionFlags.NONE),
        ("DML_EXECUTION_FLAG_DESCRIPTORS_VOLATILE", ExecutionFlags.DESCRIPTORS_VOLATILE),
        (["NONE"], ExecutionFlags.NONE),
        (
            ["DISABLE_META_COMMANDS", "DML_EXECUTION_FLAG_ALLOW_HALF_PRECISION_COMPUTATION", "DISABLE_META_COMMANDS"],
            ExecutionFlags.DISABLE_META_COMMANDS | ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION,
        ),
    ):
        dispatchable["executionFlags"] = given
        assert dxdispatch.load(model).dispatchables["subtract"].flags == expected
    for compile_type in ("DmlCompileOp", "DmlCompileGraph"):
        dispatchable["dmlCompileType"] = compile_type
        dxdispatch.load(model)


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


def test_wrong_counts_are_refused() -> None:
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


# -- dispatchables, bindings, commands ------------------------------------------------------------------------------


def test_what_the_small_model_says() -> None:
    model = dxdispatch.load(subtraction())
    dispatch, printed, written = model.commands
    assert isinstance(dispatch, Dispatch) and isinstance(printed, Print) and isinstance(written, WriteFile)
    first, second = dispatch.inputs
    assert first is not None and second is not None
    assert (first.buffer, first.offset, first.size, second.buffer) == ("A", 0, 12, "B")
    assert (printed.resource, printed.verbose) == ("my out", False)
    assert (written.target, written.dimensions) == (Path("out.npy"), None)


def test_offsets_counts_and_arrays() -> None:
    model = {
        "resources": {
            "A": values(*range(16)),
            "B": values(1),
            "mixed": {"initialValues": [{"type": "FLOAT32", "value": 1}] * 8},
            "Out": values(*[0] * 6),
        },
        "dispatchables": {
            "join": {
                "type": "JOIN",
                "desc": {
                    "InputTensors": [tensor(3), tensor(1), tensor(2)],
                    "OutputTensor": tensor(6),
                    "Axis": 0,
                },
            }
        },
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "join",
                "threadGroupCount": [2, 1, 1],
                "bindings": {
                    "InputTensors": [
                        {"name": "A", "elementCount": 5, "elementOffset": 4, "format": "R32_FLOAT", "shape": [3]},
                        "B",
                        {"name": "mixed", "elementSizeInBytes": 8, "elementOffset": 2},
                    ],
                    "OutputTensor": ["Out"],
                },
            }
        ],
    }
    (dispatch,) = dxdispatch.load(model).commands
    assert isinstance(dispatch, Dispatch)
    ranges = [(bound.buffer, bound.offset, bound.size) for bound in dispatch.inputs + dispatch.outputs if bound]
    assert ranges == [("A", 16, 20), ("B", 0, 4), ("mixed", 16, 8), ("Out", 0, 24)]


def test_owned_tensors_are_bound_by_the_dispatchable() -> None:
    model = subtraction()
    dispatchable = model["dispatchables"]["subtract"]
    dispatchable["desc"]["BTensor"]["Flags"] = "DML_TENSOR_FLAG_OWNED_BY_DML"
    dispatchable["bindings"] = {"BTensor": "B"}
    del model["commands"][0]["bindings"]["BTensor"]
    loaded = dxdispatch.load(model)
    nothing, owned = loaded.dispatchables["subtract"].initial_inputs
    assert nothing is None and owned is not None
    assert (owned.buffer, owned.tensor.flags) == ("B", TensorFlags.OWNED_BY_DML)
    dispatch = loaded.commands[0]
    assert isinstance(dispatch, Dispatch)
    assert dispatch.inputs[1] is None

    model["commands"][0]["bindings"]["BTensor"] = "B"
    assert complaint(model) == (
        "$.commands[0].bindings.BTensor: "
        "BTensor has the flag OWNED_BY_DML: the dispatchable binds it, not the dispatch command"
    )
    del dispatchable["bindings"]
    assert complaint(model) == (
        "$.dispatchables.subtract.bindings.BTensor: "
        "BTensor needs a resource at initialisation, as it has the flag OWNED_BY_DML, but none is bound"
    )
    dispatchable["bindings"] = {"BTensor": "B", "ATensor": "A"}
    assert complaint(model) == (
        "$.dispatchables.subtract.bindings.ATensor: "
        "ATensor lacks the flag OWNED_BY_DML: the dispatch command binds it, not the dispatchable"
    )


def bind(**bindings: Any) -> Callable[[dict[str, Any]], object]:
    return lambda model: model["commands"][0]["bindings"].update(bindings)


BOUND = "$.commands[0].bindings"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda model: model.pop("resources"), "$.resources: a model needs the key 'resources'"),
        (lambda model: model.update(command=[]), "$.command: a model has no key 'command'; did you mean 'commands'?"),
        (lambda model: model.update(commands={}), "$.commands: must be an array, got an object"),
        (lambda model: model.update(resources=[]), "$.resources: must be an object, got an array of 0"),
        (
            lambda model: model["dispatchables"].update(shade={"type": "HLSL", "sourcePath": "a.hlsl"}),
            "$.dispatchables.shade.type: "
            "dispatchables of type 'HLSL' (HLSL shaders) are not offered, only DirectML operators",
        ),
        (
            lambda model: model["dispatchables"].update(net={"type": "onnx", "sourcePath": "a.onnx"}),
            "$.dispatchables.net.type: "
            "dispatchables of type 'onnx' (ONNX models) are not offered, only DirectML operators",
        ),
        (
            lambda model: model["dispatchables"].update(g={"type": "dmlSerializedGraph", "sourcePath": "a.bin"}),
            "$.dispatchables.g.type: dispatchables of type 'dmlSerializedGraph' (serialised DirectML graphs) are not "
            "offered, only DirectML operators",
        ),
        (
            lambda model: model["dispatchables"]["subtract"].update(type="DML_OPERATOR_ELEMENTWISE_SUBTRACT"),
            "$.dispatchables.subtract.type: "
            "DirectML has no operator 'ELEMENTWISE_SUBTRACT'; did you mean 'ELEMENT_WISE_SUBTRACT'?",
        ),
        (
            lambda model: model["dispatchables"]["subtract"].pop("type"),
            "$.dispatchables.subtract.type: a dispatchable needs the key 'type'",
        ),
        (
            lambda model: model["dispatchables"]["subtract"].update(executionFlag="NONE"),
            "$.dispatchables.subtract.executionFlag: "
            "an operator given by type and desc has no key 'executionFlag'; did you mean 'executionFlags'?",
        ),
        (
            lambda model: model["dispatchables"]["subtract"].update(dmlCompileType="Graph"),
            "$.dispatchables.subtract.dmlCompileType: must be 'DmlCompileOp' or 'DmlCompileGraph', got 'Graph'",
        ),
        (
            lambda model: model["commands"][0].update(type="wait"),
            "$.commands[0].type: commands of type 'wait' are not offered, only 'dispatch', 'print' and 'writeFile'",
        ),
        (
            lambda model: model["commands"][0].update(dispatchable="substract"),
            "$.commands[0].dispatchable: the model has no dispatchable 'substract'; did you mean 'subtract'?",
        ),
        (
            lambda model: model["commands"][0].pop("bindings"),
            "$.commands[0].bindings: a dispatch command needs the key 'bindings'",
        ),
        (
            lambda model: model["commands"][0].update(threadGroupCount=[1, 1]),
            "$.commands[0].threadGroupCount: must be three integers, got an array of 2",
        ),
        (
            lambda model: model["commands"][1].update(resource="out"),
            "$.commands[1].resource: the model has no resource 'out'; did you mean 'my out'?",
        ),
        (
            lambda model: model["commands"][1].update(verbose=1),
            "$.commands[1].verbose: must be true or false, got 1",
        ),
        (
            lambda model: model["commands"][2].update(targetPath="a/../../b.npy"),
            "$.commands[2].targetPath: must lie below the output directory, got 'a/../../b.npy'",
        ),
        (
            lambda model: model["commands"][2].update(targetPath="b.PNG"),
            "$.commands[2].targetPath: images are not offered; write a .npy file",
        ),
        (
            lambda model: model["commands"][2].update(targetPath=""),
            "$.commands[2].targetPath: must name a file, got an empty path",
        ),
        (
            lambda model: model["commands"][2].update(dimensions=[2, 2]),
            "$.commands[2].dimensions: must multiply to the 3 elements of 'my out', got 4",
        ),
        (bind(ATensor="C"), f"{BOUND}.ATensor: the model has no resource 'C'"),
        (bind(ATensor=None), f"{BOUND}.ATensor: ATensor needs a resource, but none is bound"),
        (bind(ATensor=["A", "B"]), f"{BOUND}.ATensor: ATensor has 1 tensor, got 2 resources"),
        (
            bind(InputTensor="A"),
            f"{BOUND}.InputTensor: ELEMENT_WISE_SUBTRACT has no such tensor to bind here: 'InputTensor'; "
            "did you mean 'OutputTensor'?",
        ),
        (
            bind(ATensor={"name": "A", "elementOffset": 1}),
            f"{BOUND}.ATensor: ATensor needs 12 bytes from byte 4 on, but resource 'A' has 12 bytes",
        ),
        (
            bind(ATensor={"name": "A", "elementCount": 2}),
            f"{BOUND}.ATensor: gives ATensor 8 bytes, but it takes 12",
        ),
        (
            bind(ATensor={"name": "A", "elementOfset": 0}),
            f"{BOUND}.ATensor.elementOfset: a binding has no key 'elementOfset'; did you mean 'elementOffset'?",
        ),
        (
            bind(ATensor={"elementOffset": 0}),
            f"{BOUND}.ATensor.name: a binding needs the key 'name'",
        ),
    ],
)
def test_bad_models(change: Callable[[dict[str, Any]], object], text: str) -> None:
    assert broken(change) == text


def test_paths_quote_what_is_no_identifier() -> None:
    assert broken(lambda model: model["resources"].update({"my out": 1})) == (
        '$.resources["my out"]: must be an object, got 1'
    )


def test_an_element_size_is_needed_for_offsets_into_mixed_types() -> None:
    model = subtraction()
    model["resources"]["A"] = {"initialValues": [{"type": "FLOAT32", "value": 1}] * 8}
    model["commands"][0]["bindings"]["ATensor"] = {"name": "A", "elementOffset": 4}
    assert complaint(model) == (
        "$.commands[0].bindings.ATensor: "
        "elementSizeInBytes must be given, as resource 'A' holds mixed types and has no element size"
    )


def test_every_key_of_the_published_schema_is_accepted() -> None:
    """The keys and spellings of DxDispatch's models/_schema.json that concern DirectML operators, all at once."""
    model = {
        "$schema": "./_schema.json",
        "resources": {
            "A": {
                "type": "buffer",
                "initialValues": {"valueCount": 3, "valueStart": "-inf", "valueDelta": 1},
                "initialValuesDataType": "DML_TENSOR_DATA_TYPE_FLOAT32",
                "initialValuesOffsetInBytes": 0,
                "sizeInBytes": 64,
            },
            "B": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 3, "value": "nan"}},
            "C": {
                "initialValuesDataType": "DML_TENSOR_DATA_TYPE_UNKNOWN",
                "initialValues": [{"name": "n", "type": "DML_TENSOR_DATA_TYPE_UINT64", "value": 1}] * 2,
            },
        },
        "dispatchables": {
            "copy": {
                "type": "DML_OPERATOR_ELEMENT_WISE_IDENTITY",
                "desc": {"InputTensor": tensor(3), "OutputTensor": tensor(3)},
                "executionFlags": ["NONE", "DML_EXECUTION_FLAG_DISABLE_META_COMMANDS"],
            }
        },
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "copy",
                "bindings": {
                    "InputTensor": {
                        "name": "A",
                        "format": "DXGI_FORMAT_R32_FLOAT",
                        "elementCount": 3,
                        "elementSizeInBytes": 4,
                        "elementOffset": 4,
                        "counter": "C",
                        "shape": [3],
                    },
                    "OutputTensor": [{"name": "B"}],
                },
                "threadGroupCount": [1, 1, 1],
            },
            {"type": "print", "resource": "B", "verbose": True},
        ],
    }
    loaded = dxdispatch.load(model)
    dispatch = loaded.commands[0]
    assert isinstance(dispatch, Dispatch)
    assert dispatch.inputs[0] is not None and dispatch.inputs[0].offset == 16
    assert [resource.size for resource in loaded.resources.values()] == [64, 12, 16]


def test_optional_tensors() -> None:
    state, out = tensor(6, data_type="UINT32"), tensor(4, data_type="UINT32")
    model: dict[str, Any] = {
        "resources": {name: values(*[0] * 6, data_type="UINT32") for name in ("state", "out", "next")},
        "dispatchables": {
            "random": {
                "type": "RANDOM_GENERATOR",
                "desc": {
                    "InputStateTensor": state,
                    "OutputTensor": out,
                    "OutputStateTensor": None,
                    "Type": "PHILOX_4X32_10",
                },
            }
        },
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "random",
                "bindings": {"InputStateTensor": "state", "OutputTensor": "out"},
            }
        ],
    }
    (dispatch,) = dxdispatch.load(model).commands
    assert isinstance(dispatch, Dispatch)
    assert [bound and bound.buffer for bound in dispatch.outputs] == ["out", None]
    model["commands"][0]["bindings"]["OutputStateTensor"] = "next"
    assert complaint(model) == (
        "$.commands[0].bindings.OutputStateTensor: "
        "the description leaves out the optional tensor OutputStateTensor, so nothing can be bound to it"
    )


@pytest.mark.parametrize("name", sorted(path.name for path in MODELS.glob("*.json")))
def test_shipped_models_load(name: str) -> None:
    model = dxdispatch.load(MODELS / name)
    assert model.commands
    assert model.source == MODELS / name
