"""bfloat16, which DirectML lacks: arrays of ml_dtypes, tensors, descriptions and graphs."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DataType, Graph, Tensor, TensorDesc, descs, ops
from dmlgpu.catalog.enums import BFLOAT16
from dmlgpu.common.errors import InvalidArgument, InvalidDescription
from dmlgpu.tensors.types import common_type

ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy's bfloat16 is not installed")

DTYPE = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 9)).astype(DTYPE)
Y = RNG.standard_normal((6, 9)).astype(DTYPE)


def test_the_data_type_is_none_of_directml() -> None:
    assert BFLOAT16 not in list(DataType) and "BFLOAT16" not in DataType.__members__
    assert BFLOAT16.bits == 16 and BFLOAT16.is_float and BFLOAT16.is_signed and BFLOAT16.numpy == DTYPE
    assert DataType.from_numpy(DTYPE) is BFLOAT16 is copy.deepcopy(pickle.loads(pickle.dumps(BFLOAT16)))
    with pytest.raises(ValueError, match="65537 is not a valid DataType"):
        DataType(65537)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "divide": lambda x, y: x / y,
    "matmul": lambda x, y: x @ y.T,
    "a number": lambda x, _: x * 0.5 - 2,
    "maximum": np.maximum,
    "slices": lambda x, _: x[1::2, ::-1],
    "sum": lambda x, _: x.sum(1),
    "mean": lambda x, _: x.mean(0),
    "max": lambda x, _: x.max(),
    "comparison": lambda x, y: x > y,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_float32_rounded_once(name: str) -> None:
    function = FUNCTIONS[name]
    expected = function(X.astype(np.float32), Y.astype(np.float32))
    result = function(Tensor(X), Tensor(Y)).numpy()
    if name == "comparison":
        np.testing.assert_array_equal(result, expected)
        return
    assert result.dtype == DTYPE
    np.testing.assert_allclose(result.astype(np.float32), expected, rtol=2**-8, atol=1e-5)


ROUNDED_TWICE = {
    "int32": [16842753, -16842753],
    "int64": [16842753, 2**40 + 2**32 + 1],
    "float64": [1 + 2**-8 + 2**-40, 1 + 3 * 2**-8 - 2**-40],
}
"""Numbers that are ties of bfloat16 once they are rounded to float32."""

BY_FLOAT32 = {"int32": [2.0**24, -(2.0**24)], "int64": [2.0**24, 2.0**40], "float64": [1.0, 1.015625]}


def constant_of(x: np.ndarray) -> Any:
    graph = Graph()
    return graph.evaluate([graph.constant(x, dtype="bfloat16") + 0], [])[0]


def sum_of(y: Any, number: float) -> Any:
    return y * 2 + number


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "a list": lambda x: Tensor(x.tolist(), "bfloat16"),
    "an array": lambda x: Tensor(x, "bfloat16"),
    "a cast": lambda x: Tensor(x).astype("bfloat16"),
    "full": lambda x: ops.concat([ops.full((1,), number, dtype="bfloat16") for number in x.tolist()]),
    "an operand": lambda x: ops.concat([Tensor([0.0], "bfloat16") + number for number in x.tolist()]),
    "an operand that is a list": lambda x: Tensor([0.0, 0.0], "bfloat16") + x.tolist(),
    "where": lambda x: ops.concat([ops.where(Tensor([0.0], "bfloat16") == 0, i, -0.0) for i in x.tolist()]).astype(
        "bfloat16"
    ),
    "a compiled function": lambda x: ops.concat(
        [dmlgpu.compile(sum_of)(Tensor([0.0], "bfloat16"), number) for number in x.tolist()]
    ),
    "a constant of a graph": constant_of,
}


@pytest.mark.parametrize("kind", ROUNDED_TWICE)
@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions_are_rounded_to_float32_first(name: str, kind: str) -> None:
    """As PyTorch's are. ml_dtypes does so up to version 0.6, and rounds once from 0.7 on."""
    assert CONVERSIONS[name](np.array(ROUNDED_TWICE[kind], kind)).tolist() == BY_FLOAT32[kind]


def test_functions_take_and_return_arrays() -> None:
    result = ops.softmax(X, axis=1)
    assert isinstance(result, np.ndarray) and result.dtype == DTYPE
    np.testing.assert_allclose(result.astype(np.float32).sum(1), 1, atol=2**-6)
    assert ops.nan_to_num(Tensor(np.array([np.nan, np.inf], DTYPE))).tolist() == [0, float(ml_dtypes.finfo(DTYPE).max)]
    assert (Tensor([7.0, -7.0], "bfloat16") // 0.5).tolist() == [14, -14]


def test_tensors() -> None:
    x = Tensor([1, 2.5, 1 / 3], "bfloat16")
    assert x.type_name == "BFLOAT16" and x.nbytes == 6 and x.dtype == DTYPE
    assert x.tolist() == [1, 2.5, 0.333984375] and x[2].item() == 0.333984375
    assert x.astype("float32").astype(DTYPE).tolist() == x.tolist()
    assert x.reinterpret((3,), None, DataType.UINT16).tolist() == [0x3F80, 0x4020, 0x3EAB]
    assert pickle.loads(pickle.dumps(x)).tolist() == x.tolist()
    x[1] = 0.1
    assert x.tolist()[1] == 0.10009765625
    for dtype, function in (("bfloat16", ops.zeros), (DTYPE, ops.ones)):
        assert function((2,), dtype=dtype).dtype == DTYPE
    draws = dmlgpu.random.default_rng(0).random(4000, "bfloat16").numpy().astype(np.float32)
    assert draws.min() >= 0 and draws.max() < 1 and abs(draws.mean() - 0.5) < 0.02


def test_safetensors(tmp_path: Path) -> None:
    files = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    path = tmp_path / "model.safetensors"
    files.save_file({"x": Tensor(X).numpy()}, path)
    content = path.read_bytes()
    assert b'"dtype":"BF16"' in content and content.endswith(X.tobytes())
    loaded = Tensor(files.load_file(path)["x"])
    assert loaded.data_type is BFLOAT16 and loaded.numpy().tobytes() == X.tobytes()


def test_promotion_follows_float16() -> None:
    for other in DataType:
        if other.bits < 8 or other is DataType.FLOAT16:
            continue
        expected = common_type(DataType.FLOAT16, other)
        expected = BFLOAT16 if expected is DataType.FLOAT16 else expected
        assert common_type(BFLOAT16, other) is common_type(other, BFLOAT16) is expected
    assert common_type(BFLOAT16, DataType.FLOAT16) is DataType.FLOAT32
    assert common_type(BFLOAT16, BFLOAT16) is BFLOAT16


def test_graphs_and_gradients() -> None:
    graph = Graph()
    x = graph.input(X.shape, "bfloat16")
    y = x + graph.constant(Y)
    (result,) = graph.evaluate([y * 0.5], [X])
    rounded = (X.astype(np.float32) + Y.astype(np.float32)).astype(DTYPE).astype(np.float32)
    assert result.dtype == DTYPE
    np.testing.assert_array_equal(result, (rounded * 0.5).astype(DTYPE))
    compiled = dmlgpu.compile(lambda x: ops.relu(x @ x.T) + 1)
    np.testing.assert_array_equal(compiled(Tensor(X)).numpy(), (ops.relu(Tensor(X) @ Tensor(X).T) + 1).numpy())
    value, gradient = dmlgpu.value_and_grad(lambda x: (x * x).sum())(Tensor(X))
    assert value.dtype == gradient.dtype == DTYPE
    np.testing.assert_array_equal(gradient.numpy(), (2 * X.astype(np.float32)).astype(DTYPE))


def test_descriptions_take_it_where_they_take_float16() -> None:
    tensor, mask = TensorDesc(BFLOAT16, X.shape), TensorDesc(DataType.UINT8, X.shape)
    desc = descs.ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
    (result,) = dmlgpu.evaluate(desc, [X, Y])
    np.testing.assert_array_equal(result, (X.astype(np.float32) + Y.astype(np.float32)).astype(DTYPE))
    (inverted,) = dmlgpu.evaluate(descs.ElementWiseBitNot(input_tensor=tensor, output_tensor=tensor), [X])
    np.testing.assert_array_equal(inverted.view(np.uint16), ~X.view(np.uint16))
    count = descs.ElementWiseBitCount(input_tensor=tensor, output_tensor=mask)
    np.testing.assert_array_equal(dmlgpu.evaluate(count, [X])[0], np.bitwise_count(X.view(np.uint16)))
    with pytest.raises(InvalidDescription, match=r"got BFLOAT16"):
        dmlgpu.evaluate(descs.ElementWiseBitShiftLeft(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor), [X, Y])
    with pytest.raises(InvalidDescription, match=r"output_tensor.data_type"):
        dmlgpu.evaluate(descs.ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=mask), [X, Y])


def test_rejections() -> None:
    with pytest.raises(InvalidArgument, match=r"dtype must be a data type \(float32, .*, bfloat16\), got 'bfloat17'"):
        Tensor([1], "bfloat17")
    with pytest.raises(InvalidArgument, match=r"got NumPy type float8_e4m3fn; convert it with"):
        Tensor(np.zeros(2, ml_dtypes.float8_e4m3fn))
