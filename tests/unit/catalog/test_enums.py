"""The enumerations in Python against those of the header."""

import numpy as np
import pytest

from dmlgpu import enums
from dmlgpu.catalog import class_name, constants, enumerations
from dmlgpu.catalog.enums import DataType, FeatureLevel
from dmlgpu.catalog.tensor_desc import (
    MAX_DIMENSIONS,
    MAX_DIMENSIONS_BELOW_3_0,
    PERSISTENT_ALIGNMENT,
    TEMPORARY_ALIGNMENT,
    TENSOR_ALIGNMENT,
)
from dmlgpu.common.errors import InvalidArgument

PYTHON_NAMES = {"TENSOR_DATA_TYPE": "DataType"}
WITHOUT_CLASS = {"OPERATOR_TYPE"}  # the description classes stand for it


@pytest.mark.parametrize("name", sorted(set(enumerations()) - WITHOUT_CLASS))
def test_members_and_values_are_the_headers(name):
    members = getattr(enums, PYTHON_NAMES.get(name, class_name(name))).__members__
    values = {member.removeprefix("LEVEL_"): value.value for member, value in members.items()}
    assert values == dict(enumerations()[name].values)


def test_every_enumeration_in_python_is_in_the_header():
    expected = {PYTHON_NAMES.get(name, class_name(name)) for name in set(enumerations()) - WITHOUT_CLASS}
    in_python = {
        name for name, value in vars(enums).items() if isinstance(value, type) and value.__module__ == enums.__name__
    }
    assert in_python == expected


def test_constants_are_the_headers():
    assert dict(constants()) == {
        "DML_TENSOR_DIMENSION_COUNT_MAX": MAX_DIMENSIONS_BELOW_3_0,
        "DML_TENSOR_DIMENSION_COUNT_MAX1": MAX_DIMENSIONS,
        "DML_TEMPORARY_BUFFER_ALIGNMENT": TEMPORARY_ALIGNMENT,
        "DML_PERSISTENT_BUFFER_ALIGNMENT": PERSISTENT_ALIGNMENT,
        "DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT": TENSOR_ALIGNMENT,
    }
    assert (MAX_DIMENSIONS_BELOW_3_0, MAX_DIMENSIONS, TENSOR_ALIGNMENT, TEMPORARY_ALIGNMENT) == (5, 8, 16, 256)


WIDTHS = [
    ("FLOAT64", 64, np.float64),
    ("FLOAT32", 32, np.float32),
    ("FLOAT16", 16, np.float16),
    ("INT64", 64, np.int64),
    ("INT32", 32, np.int32),
    ("INT16", 16, np.int16),
    ("INT8", 8, np.int8),
    ("INT4", 4, np.int8),
    ("UINT64", 64, np.uint64),
    ("UINT32", 32, np.uint32),
    ("UINT16", 16, np.uint16),
    ("UINT8", 8, np.uint8),
    ("UINT4", 4, np.uint8),
]


@pytest.mark.parametrize(("name", "bits", "dtype"), WIDTHS)
def test_data_type_widths(name, bits, dtype):
    data_type = DataType[name]
    assert data_type.bits == bits
    assert data_type.numpy == dtype
    assert data_type.is_float == (name[0] == "F")
    assert data_type.is_signed == (name[0] != "U")


def test_every_data_type_is_in_the_table():
    assert {name for name, _, _ in WIDTHS} | {"UNKNOWN"} == set(DataType.__members__)


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, bits, dtype in WIDTHS if bits >= 8])
def test_numpy_types_map_back(name, dtype):
    assert DataType.from_numpy(dtype) is DataType[name]


def test_unknown_has_no_element():
    assert DataType.UNKNOWN.bits == 0
    with pytest.raises(InvalidArgument, match=r"^DataType.UNKNOWN has no NumPy equivalent$"):
        _ = DataType.UNKNOWN.numpy


@pytest.mark.parametrize("dtype", [np.bool_, np.complex64, "U3", "M8[s]"])
def test_numpy_types_without_counterpart(dtype):
    with pytest.raises(InvalidArgument, match=r"has no DirectML data type$"):
        DataType.from_numpy(dtype)


def test_level_labels():
    assert FeatureLevel.from_label("5_2") is FeatureLevel.LEVEL_5_2
    assert FeatureLevel.LEVEL_5_2.label == "5_2"
    assert FeatureLevel.LEVEL_5_2 == 0x5200
