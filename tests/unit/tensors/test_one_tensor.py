"""The same functions and operators on arrays, on tensors of a device, on nodes of a graph and while tracing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DataType, Device, Graph, InvalidArgument, InvalidState, Tensor, descs, directmlx, ops
from dmlgpu.compiler.graph.description import ConstantNode

X = np.linspace(-2, 3, 24, dtype=np.float32).reshape(2, 3, 4)
ROW = np.array([1, -2, 0.5, 4], np.float32)
MATRIX = np.linspace(0, 1, 20, dtype=np.float32).reshape(4, 5)
COUNTS = np.arange(-6, 6, dtype=np.int32).reshape(3, 4)

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "add": (lambda x, row: x + row, (X, ROW)),
    "reversed subtract": (lambda x: 3 - x, (X,)),
    "integer arithmetic": (lambda x: (x // 2) * 3 - x % 4, (COUNTS,)),
    "shifts": (lambda x: (x << 2) >> 1, (COUNTS,)),
    "power of integers": (lambda x: x ** np.int32(3), (COUNTS,)),
    "promotion": (lambda x, y: x + y.astype("float32"), (X[0], COUNTS)),
    "comparison": (lambda x: ops.where(x > 0, x, x * 2), (X,)),
    "inverted comparison": (lambda x: ops.where(~(x > 0), x, x * 2), (X,)),
    "product": (lambda x, y: x @ y, (X, MATRIX)),
    "slice": (lambda x: x[:, 1:, ::2] * 2, (X,)),
    "backwards": (lambda x: x[:, ::-1] + 1, (X,)),
    "integer index": (lambda x: x[1, :, 2] + 1, (X,)),
    "new axis": (lambda x: x[..., None].squeeze(-1) + 1, (X,)),
    "transposed": (lambda x: x.T * 2, (X,)),
    "reshape": (lambda x: x.reshape(6, 4) @ np.ones((4, 2), np.float32), (X,)),
    "softmax": (lambda x: ops.softmax(x, axis=1), (X,)),
    "layer_norm": (lambda x, row: ops.layer_norm(x, weight=row, bias=row), (X, ROW)),
    "gelu": (lambda x: ops.gelu(x), (X,)),  # noqa: PLW0108 - a function of the test's
    "mean": (lambda x: ops.mean(x, axis=(0, -1)), (X,)),
    "operator": (lambda x: ops.directml.activation_relu(x), (X,)),  # noqa: PLW0108
    "activation by name": (lambda x: ops.directml.element_wise_add1(x, x, fused_activation="relu"), (X,)),
}


def on_device(function: Callable[..., Any], arrays: tuple[np.ndarray, ...], device: Device) -> np.ndarray:
    result: np.ndarray = function(*(Tensor(array, device=device) for array in arrays)).numpy()
    return result


@pytest.fixture(scope="module")
def device() -> Device:
    return Device("numpy")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_tensors_is_one_of_a_graphs_nodes_and_of_a_trace(name: str, device: Device) -> None:
    function, arrays = FUNCTIONS[name]
    expected = on_device(function, arrays, device)
    graph = Graph(device, rules="numpy")
    output = function(*(graph.input(array.shape, array.dtype) for array in arrays))
    assert isinstance(output, Tensor) and output.graph is graph
    assert (output.shape, output.dtype) == (expected.shape, expected.dtype)
    (result,) = graph.evaluate([output], arrays)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    traced = dmlgpu.compile(function)(*(Tensor(array, device=device) for array in arrays))
    np.testing.assert_allclose(traced.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "gelu", "mean", "operator", "activation by name"])
def test_functions_take_arrays_and_nodes_of_any_graph(name: str, device: Device) -> None:
    function, arrays = FUNCTIONS[name]
    expected = on_device(function, arrays, device)
    graph = Graph(device)  # with DirectMLX's rules, which are not those of functions of `ops`
    (result,) = graph.evaluate([function(*(graph.input(array.shape) for array in arrays))], arrays)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_booleans_of_a_graph_are_booleans(device: Device) -> None:
    graph = Graph(device, rules="numpy")
    x = graph.input((3,))
    mask = x > 0
    assert mask.dtype == bool and (~mask).dtype == bool
    results = graph.evaluate([mask, ~mask], [np.array([1, 0, -1], np.float32)])
    assert [array.dtype for array in results] == [bool, bool]
    assert results[0].tolist() == [True, False, False] and results[1].tolist() == [False, True, True]
    strict = Graph(device)
    assert (strict.input((3,)) > 0).data_type is DataType.UINT8 and not (strict.input((3,)) > 0).is_boolean


def test_arrays_and_tensors_next_to_nodes_become_constants(device: Device) -> None:
    graph = Graph(device, rules="numpy")
    x = graph.input((2, 2))
    mask = np.array([[True, False], [False, True]])
    outputs = [x + np.eye(2, dtype=np.float32), ops.where(mask, x, 0), x * Tensor([2, 3], "float32", device=device)]
    constants = [node for node in graph.desc(outputs).nodes if isinstance(node, ConstantNode)]
    assert len(constants) == 4
    results = graph.evaluate(outputs, [np.ones((2, 2), np.float32)])
    assert [array.tolist() for array in results] == [[[2, 1], [1, 2]], [[1, 0], [0, 1]], [[2, 3], [2, 3]]]


def test_types_are_given_by_any_name(device: Device) -> None:
    graph = Graph("numpy")
    for dtype in ("float16", np.float16, np.dtype("float16"), DataType.FLOAT16):
        assert graph.input((2,), dtype).data_type is DataType.FLOAT16
        assert graph.input((2,), dtype=dtype).dtype == np.float16
        assert graph.constant([1, 2], dtype=dtype).data_type is DataType.FLOAT16
        assert Tensor([1, 2], dtype=dtype, device=device).dtype == np.float16
        assert Tensor([1, 2], device=device).astype(dtype).dtype == np.float16
        assert graph.input((4,), "uint16").reinterpret((4,), dtype=dtype).dtype == np.float16
    assert graph.constant([True, False]).dtype == bool


def test_a_node_has_no_elements_and_no_memory_of_a_device(device: Device) -> None:
    graph = Graph(device, name="small")
    x = graph.input((2,), name="x")
    for ask in (x.numpy, x.tolist, lambda: np.asarray(x), lambda: float(x[0])):
        with pytest.raises(InvalidState, match=r"a tensor of graph 'small' has no elements before the graph runs"):
            ask()
    assert x.graph is graph and x.origin.kind == "input"
    tensor = Tensor([1], device=device)
    assert tensor.graph is None and tensor.origin is None
    with pytest.raises(TypeError, match="unhashable type: 'Tensor'"):
        hash(tensor)
    with pytest.raises(InvalidArgument, match="outputs\\[0\\] belongs to a device"):
        graph.compile([tensor])
    with pytest.raises(InvalidArgument, match="fill_value_constant: graph must be a Graph or None, got int"):
        ops.directml.fill_value_constant(value=1, value_data_type="int32", output_sizes=(1,), graph=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="activation_relu: device must be that of the graph"):
        ops.directml.activation_relu(x, device=Device("numpy"))


def test_directmlx_has_parameters_in_its_order(device: Device) -> None:
    values = np.array([[3, 1, 2]], np.float32)
    assert directmlx.slice(values, (0, 1), (1, 2), device=device).tolist() == [[1, 2]]
    assert directmlx.cast(values, "int32", device=device).dtype == np.int32
    assert directmlx.top_k(values, 1, 2, device=device).output_value.tolist() == [[3, 2]]
    assert directmlx.clip(values, min=2, max=3, device=device).tolist() == [[3, 2, 2]]
    with pytest.raises(TypeError, match="missing a required argument: 'sizes'"):
        directmlx.slice(values, (0, 1))
    graph = Graph(device)
    filled = directmlx.fill_value_constant(graph, (2, 2), DataType.INT32, 7, name="sevens")
    assert graph.evaluate([filled])[0].tolist() == [[7, 7], [7, 7]]
    assert graph.nodes[0].name == "sevens" and isinstance(graph.nodes[0].desc, descs.FillValueConstant)
    assert {"exp", "reduce", "max_pooling", "gemm"} <= set(dir(directmlx))
