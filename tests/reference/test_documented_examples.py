"""Examples of DirectML's pages, from the catalog."""

import numpy as np
import pytest

from dmlgpu import descs, enums, reference
from dmlgpu.catalog import loader
from dmlgpu.catalog.tensor_desc import TensorDesc

OF_ANOTHER_OPERATOR = {("ELEMENT_WISE_BIT_XOR", 1)}
"""Examples on the wrong page: BIT_XOR's shows BIT_NOT."""


def examples():
    for name in sorted(reference.implemented()):
        for index, example in enumerate(loader.operator(name).examples, start=1):
            if (name, index) in OF_ANOTHER_OPERATOR:
                continue
            yield pytest.param(name, example, id=f"{name.lower()}-example{index}")


def tensor(entry):
    desc = TensorDesc(enums.DataType[entry["type"]], entry["sizes"], entry["strides"])
    return desc, np.array(entry["values"], desc.data_type.numpy).reshape(desc.sizes)


def tensors(entry):
    """Return the value of a field, and its array or arrays."""
    if not isinstance(entry, list):
        desc, array = tensor(entry)
        return desc, [array]
    pairs = [tensor(text) for text in entry]
    return tuple(desc for desc, _ in pairs), [array for _, array in pairs]


def attribute(kind, value):
    if kind == "DML_TENSOR_DATA_TYPE":
        return enums.DataType[value.removeprefix(kind + "_")]
    if value is None:  # not given because not used
        return 0.0
    if kind.startswith("DML_"):
        camel = kind.removeprefix("DML_").title().replace("_", "")
        return getattr(enums, camel)[value.removeprefix(kind + "_")]
    return value


@pytest.mark.parametrize(("name", "example"), list(examples()))
def test_the_reference_computes_the_results_on_the_page(name, example):
    entries = example["tensors"] | example.get("corrected", {})
    attributes = entries.pop("attributes", example["attributes"])
    fields, inputs, expected = {}, [], []
    for field in loader.operator(name).python_fields:
        if field.name in entries:
            fields[field.python_name], arrays = tensors(entries[field.name])
            (inputs if field.kind == "input" else expected).extend(arrays)
        elif field.kind in ("input", "output"):
            (inputs if field.kind == "input" else expected).append(None)
        elif field.name in attributes:
            fields[field.python_name] = attribute(field.type, attributes[field.name])
    for result, array in zip(reference.evaluate(descs.by_name(name)(**fields), inputs), expected, strict=True):
        if array is not None:
            assert result.dtype == array.dtype
            np.testing.assert_array_equal(result, array)


def test_operators_whose_pages_have_examples_have_examples():
    assert {case.values[0] for case in examples()} >= {
        "GATHER_ND1", "GATHER_ND", "SCATTER_ELEMENTS", "SLICE1", "SLICE", "ARGMIN", "ARGMAX", "REDUCE",
    }  # fmt: skip
