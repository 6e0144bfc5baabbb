"""``evaluate`` with inputs by name and a device by name; ``TensorDesc.of``."""

from __future__ import annotations

import numpy as np
import pytest

from dmlgpu import DataType, InvalidArgument, TensorDesc, descs, evaluate
from tests.unit.device_objects import raises

ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)
PLAIN = TensorDesc.of(ARRAY)
SUBTRACT = descs.ElementWiseSubtract(a_tensor=PLAIN, b_tensor=PLAIN, output_tensor=PLAIN)
JOIN = descs.Join(input_tensors=(PLAIN, PLAIN), output_tensor=TensorDesc(DataType.FLOAT32, (4, 3)), axis=0)


def test_inputs_by_name() -> None:
    for names in (("a", "b"), ("b_tensor", "a_tensor")):
        inputs = dict(zip(names, (ARRAY * 3, ARRAY), strict=True))
        (result,) = evaluate(SUBTRACT, inputs, "numpy")
        assert np.array_equal(result, ARRAY * 2 if names[0] == "a" else ARRAY * -2)
    (joined,) = evaluate(JOIN, {"inputs": [ARRAY, ARRAY + 1]}, device="numpy")
    assert np.array_equal(joined, np.concatenate([ARRAY, ARRAY + 1]))


def test_absent_tensors_may_be_omitted() -> None:
    square = TensorDesc(DataType.FLOAT32, (2, 2))
    gemm = descs.Gemm(
        a_tensor=PLAIN,
        b_tensor=PLAIN,
        output_tensor=square,
        trans_a=0,  # type: ignore[arg-type]
        trans_b=1,  # type: ignore[arg-type]
        alpha=1.0,
        beta=0.0,
    )
    for inputs in ({"a": ARRAY, "b": ARRAY}, [ARRAY, ARRAY], [ARRAY, ARRAY, None]):
        (result,) = evaluate(gemm, inputs, "numpy")
        assert np.array_equal(result, ARRAY @ ARRAY.T)
    labels = "a_tensor (input 0), b_tensor (input 1), c_tensor (input 2)"
    with raises(InvalidArgument, f"GEMM: inputs must be 3 arrays ({labels}), got 1"):
        evaluate(gemm, [ARRAY], "numpy")


def test_wrong_names() -> None:
    with raises(InvalidArgument, "ELEMENT_WISE_SUBTRACT: inputs must name only a, b, got 'c'"):
        evaluate(SUBTRACT, {"a": ARRAY, "c": ARRAY}, "numpy")
    with raises(InvalidArgument, "ELEMENT_WISE_SUBTRACT: b_tensor (input 1) must be an array, got NoneType"):
        evaluate(SUBTRACT, {"a": ARRAY}, "numpy")
    with raises(InvalidArgument, "JOIN: input_tensors must be 2 arrays, got 1"):
        evaluate(JOIN, {"inputs": [ARRAY]}, "numpy")
    with raises(InvalidArgument, "JOIN: input_tensors must be a sequence of arrays, got NoneType"):
        evaluate(JOIN, {}, "numpy")


@pytest.mark.parametrize(
    ("array", "data_type", "expected"),
    [
        (np.zeros((2, 3), np.int8), None, TensorDesc(DataType.INT8, (2, 3))),
        (np.zeros((2, 3), bool), None, TensorDesc(DataType.UINT8, (2, 3))),
        (np.float32(1), None, TensorDesc(DataType.FLOAT32, (1,))),
        (np.zeros(5, np.uint8), DataType.UINT4, TensorDesc(DataType.UINT4, (5,))),
        (np.zeros((4, 2), np.float16).T, None, TensorDesc(DataType.FLOAT16, (2, 4))),
    ],
)
def test_the_tensor_of_an_array(array: object, data_type: DataType | None, expected: TensorDesc) -> None:
    assert TensorDesc.of(array, data_type) == expected


def test_fields_without_tensor() -> None:
    with raises(InvalidArgument, "TensorDesc.of: array must be of a type of DirectML's, got complex128"):
        TensorDesc.of(np.zeros(2, complex))
    with raises(InvalidArgument, "TensorDesc.of: array must be a NumPy array, got [1]"):
        TensorDesc.of([1])
