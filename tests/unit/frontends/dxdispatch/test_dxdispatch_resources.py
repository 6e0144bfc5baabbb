"""Resources of DxDispatch models: initial values of every kind and files, with full error messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlgpu.catalog.enums import (
    DataType,
)
from dmlgpu.frontends import dxdispatch
from tests.unit.frontends.dxdispatch.dxdispatch_models import complaint, load_resource, values


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for files: the current directory, in which models that are not files look."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


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
        result = resource.values.make()
        assert result.dtype == data_type.name.lower()
        np.testing.assert_array_equal(result, expected)
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
    # 1 + 2^-11 + 2^-40 lies just above the midpoint of two float16 numbers; rounded to float32 first, it would be the
    # midpoint.
    assert load_resource(**values(1 + 2**-11 + 2**-40, data_type="FLOAT16")).values.make()[0] == 1 + 2**-10
    np.testing.assert_array_equal(
        load_resource(**values(65520, -1e6, data_type="FLOAT16")).values.make(), [np.inf, -np.inf]
    )


def test_sequences_add_up_in_their_type() -> None:
    expected, value = [], np.float32(1)
    for _ in range(40):
        expected.append(value)
        value = np.float32(value + np.float32(0.4))
    result = load_resource(
        initialValuesDataType="FLOAT32", initialValues={"valueCount": 40, "valueStart": 1, "valueDelta": 0.4}
    ).values.make()
    np.testing.assert_array_equal(result, np.array(expected))
    assert result[-1] != np.float32(1 + 39 * 0.4), "the rounding of each step must be seen"
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
    resources = dxdispatch.load(file, allow_paths=True).resources
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
            {"initialValues": "deferred", "sizeInBytes": 8},
            ".sizeInBytes",
            "a deferred resource has no key 'sizeInBytes'; known keys are 'type', 'initialValues' or"
            " 'initialValuesDataType'",
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
            "a resource initialized by 'value' needs the key 'initialValuesDataType'",
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
            "is for resources whose initial values are an image",
        ),
        (values(1, type="texture"), ".type", "resources of type 'texture' are not supported, only 'buffer'"),
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
            "an initializer needs the key 'valueDelta'",
        ),
        (
            {"initialValuesDataType": "INT8", "initialValues": {"valueCount": 2, "value": 1, "valueDelta": 1}},
            ".initialValues.valueDelta",
            "an initializer with 'value' has no key 'valueDelta'; did you mean 'value'?",
        ),
        (
            {"initialValues": [{"type": "INT4", "value": 1}]},
            ".initialValues[0].type",
            "INT4 cannot be in a list of mixed types",
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
        ("a.dat", b"1234", None, "the raw file {file!r} has no type: initialValuesDataType must be given"),
        ("a.npy", b"123456", None, "{file!r} is not a .npy file of numbers: "),
        ("a.npy", np.zeros(2), "INT8", "{file!r} holds FLOAT64, but initialValuesDataType is INT8"),
        ("a.npy", np.zeros(2, complex), None, "{file!r}: NumPy type complex128 has no DirectML data type"),
        ("a.npy", np.array(["x"], object), None, "{file!r} is not a .npy file of numbers: "),
        ("a.png", b"", "FLOAT32", "'a.png' is not a PNG or JPEG image: "),
        (
            "a.png",
            b"",
            "INT8",
            "images become FLOAT32 or FLOAT16: initialValuesDataType must name one of them, got INT8",
        ),
    ],
)
def test_bad_files(folder: Path, name: str, content: Any, data_type: str | None, reason: str) -> None:
    file = folder / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        np.save(file, content)
    resource: dict[str, Any] = {"initialValues": {"sourcePath": str(file)}}
    resource |= {} if data_type is None else {"initialValuesDataType": data_type}
    text = complaint({"resources": {"X": resource}, "dispatchables": {}, "commands": []})
    expected = f"$.resources.X.initialValues.sourcePath: {reason.format(file=str(file))}"
    assert text.startswith(expected) if expected.endswith(": ") else text == expected


def npy(shape: str, data_type: str = "<f4", version: int = 1, data: bytes = b"") -> bytes:
    """A .npy file with a header of any kind."""
    text = f"{{'descr': {data_type!r}, 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 * version, "little") + text + data


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (npy("(1099511627776,)"), "has sizes outside 0 to 4294967295"),
        (npy("(1048576, 1048576)"), "declares 4,398,046,511,104 bytes of elements, but holds 0"),
        (npy("(1048576, 1048576)", version=2), "declares 4,398,046,511,104 bytes of elements, but holds 0"),
        (npy("(4,)", data=bytes(15)), "declares 16 bytes of elements, but holds 15"),
        (npy("(0, 9223372036854775808)"), "has sizes outside 0 to 4294967295"),
        (npy("(-1,)", data=bytes(16)), "has sizes outside 0 to 4294967295"),
        (npy("(True,)", data=bytes(4)), "has sizes outside 0 to 4294967295"),
        (npy("(9,)", "|V4294967295"), "is not a .npy file of numbers: "),
        (npy("(" * 4000), "is not a .npy file of numbers: "),
        (npy("(1,)", version=3), "is not a .npy file of numbers: "),
        (b"PK\3\4" + bytes(100), "is not a .npy file of numbers: "),
    ],
)
def test_array_files_shorter_than_their_headers_announce(folder: Path, content: bytes, reason: str) -> None:
    (folder / "a.npy").write_bytes(content)
    resource = {"initialValues": {"sourcePath": "a.npy"}}
    text = complaint({"resources": {"X": resource}, "dispatchables": {}, "commands": []})
    assert text.startswith(f"$.resources.X.initialValues.sourcePath: {str(folder / 'a.npy')!r} {reason}")
