"""Element-wise operators that copy or convert, as text."""

from __future__ import annotations

import re

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.target import Target

F16, F32, F64, I64 = DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64, DataType.INT64
WIDE = Target("Wide GPU", features=frozenset({"shader-int64", "shader-f64", "shader-f16"}))


def text_of(desc: OperatorDesc, label: str) -> str:
    """Return the source of the only kernel, and check its label."""
    (kernel,) = compiler.compile_operator(desc, WIDE).kernels
    assert kernel.label == f"{desc.operator.lower()} {label}"
    return kernel.wgsl


@pytest.mark.parametrize(("data_type", "lanes"), [(F64, 2), (F32, 4), (F16, 8)])
def test_unchanged_elements_are_copied_bit_by_bit(data_type: DataType, lanes: int) -> None:
    """No numeric type is used for elements; units of memory may be copied as u64."""
    tensor = TensorDesc(data_type, (2, 8))
    for desc_class, label in ((descs.ElementWiseIdentity, "copy"), (descs.Cast, "copy")):
        text = text_of(desc_class(input_tensor=tensor, output_tensor=tensor), f"{label} x{lanes}")
        assert not re.search(r"\b(f16|f32|f64|i64)\b", text)


def test_cast_converts_64_bits_as_words_on_every_adapter() -> None:
    desc = descs.Cast(input_tensor=TensorDesc(I64, (2, 4)), output_tensor=TensorDesc(F32, (2, 4)))
    assert not re.search(r"\bi64\b|\bu64\(", text_of(desc, "map"))
