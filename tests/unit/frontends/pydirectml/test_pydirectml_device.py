"""PyDirectML's devices, graphs, bindings and results."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.frontends import pydirectml as dml
from dmlgpu.frontends.pydirectml import device as device_module
from dmlgpu.runtime import adapters

F32, F16, U32, U8 = (getattr(dml.TensorDataType, name) for name in ("FLOAT32", "FLOAT16", "UINT32", "UINT8"))
OWNED, NONE = dml.TensorFlags.OWNED_BY_DML, dml.ExecutionFlags.NONE


@pytest.fixture(autouse=True)
def numpy_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")


@pytest.fixture
def device() -> dml.Device:
    return dml.Device()


@pytest.fixture
def builder(device: dml.Device) -> dml.GraphBuilder:
    return dml.GraphBuilder(device)


def inputs(builder: dml.GraphBuilder, *descs: dml.TensorDesc) -> Iterator[dml.Expression]:
    for index, desc in enumerate(descs):
        yield dml.input_tensor(builder, index, desc)


def row(*values: float, kind: Any = np.float32) -> np.ndarray:
    return np.array(values, kind)


# ---- devices ---------------------------------------------------------------------------------------------------------


def test_devices() -> None:
    assert repr(dml.Device()) == repr(dml.Device(use_gpu=1, use_debug_layer=None)) == "dml.Device on GPU"
    assert repr(dml.Device(False, True)) == "dml.Device on CPU"


@pytest.mark.parametrize(
    ("use_gpu", "named", "taken"),
    [(True, "", None), (False, "", "software"), (False, "numpy", None), (True, "numpy", None)],
)
def test_adapter_of_a_device(monkeypatch: pytest.MonkeyPatch, use_gpu: bool, named: str, taken: Any) -> None:
    numpy = dmlgpu.Device("numpy").adapter
    known = [
        AdapterInfo("card", "Vulkan", "discrete", "vendor", "1"),
        AdapterInfo("pipe", "OpenGL", "cpu", "vendor", "1"),
        AdapterInfo("pipe", "Vulkan", "cpu", "vendor", "1"),
        numpy,
    ]
    infos: list[Any] = []
    monkeypatch.setattr(device_module, "Computer", infos.append)
    monkeypatch.setattr(device_module, "adapters", lambda: known)
    monkeypatch.setenv("DMLGPU_ADAPTER", named)
    dml.Device(use_gpu)
    assert infos == [known[2] if taken else None]
    known[:3] = []
    dml.Device(use_gpu)
    assert infos[1:] == [numpy if taken else None]


def test_no_adapter_has_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_ADAPTER", "no such adapter")
    monkeypatch.setattr(adapters, "_gpu", lambda: None)
    with pytest.raises(
        RuntimeError, match=r"^no adapter matches 'no such adapter': .*; available adapters:\n"
    ) as caught:
        dml.Device()
    assert isinstance(caught.value, dmlgpu.AdapterNotFound)


def test_flags_of_execution(device: dml.Device, builder: dml.GraphBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[int] = []
    compile_graph = dmlgpu.Graph.compile

    def recording(graph: Any, outputs: Any, flags: Any) -> Any:
        passed.append(int(flags))
        return compile_graph(graph, outputs, flags)

    monkeypatch.setattr(dmlgpu.Graph, "compile", recording)
    (x,) = inputs(builder, dml.TensorDesc(F32, [2]))
    y = dml.activation_relu(x)
    for flags in (*dml.ExecutionFlags, dml.ExecutionFlags(7)):
        model = builder.build(flags, [y])
        assert passed.pop() == int(flags)
        assert np.array(device.compute(model, [dml.Binding(x, [-1, 2])], [y])[0]).tolist() == [0, 2]


# ---- computing -------------------------------------------------------------------------------------------------------


def test_inputs_come_by_their_index(device: dml.Device, builder: dml.GraphBuilder) -> None:
    desc = dml.TensorDesc(F32, [2])
    b, a = dml.input_tensor(builder, 1, desc), dml.input_tensor(builder, 0, desc)
    y = a - b
    model = builder.build(NONE, [y])
    (result,) = device.compute(model, [dml.Binding(a, [5, 7]), dml.Binding(b, [1, 2])], [y])
    assert np.array(result).tolist() == [4, 5]


def test_an_index_may_be_taken_twice(device: dml.Device, builder: dml.GraphBuilder) -> None:
    packed, other = dml.TensorDesc(F32, [2, 2]), dml.TensorDesc(F32, [2, 2], [1, 2])
    x, transposed = dml.input_tensor(builder, 0, packed), dml.input_tensor(builder, 0, other)
    y = x - transposed
    model = builder.build(NONE, [y])
    (result,) = device.compute(model, [dml.Binding(x, [[1, 2], [5, 9]]), None], [y])
    assert np.array(result).tolist() == [[0, -3], [3, 0]]


def test_inputs_that_no_output_needs_are_not_bound(device: dml.Device, builder: dml.GraphBuilder) -> None:
    x, unused = inputs(builder, dml.TensorDesc(F32, [2]), dml.TensorDesc(F32, OWNED, [3]))
    y = x + x
    model = builder.build(NONE, [y])
    for second in (None, dml.Binding(unused, [1, 2, 3])):
        assert np.array(device.compute(model, [dml.Binding(x, [1, 2]), second], [y])[0]).tolist() == [2, 4]


def test_outputs_that_are_not_requested(device: dml.Device, builder: dml.GraphBuilder) -> None:
    (x,) = inputs(builder, dml.TensorDesc(F32, [2]))
    outputs = [x + 1.0, x * 2.0, x - 3.0]
    model = builder.build(NONE, outputs)
    binding = dml.Binding(x, [1, 2])
    result = device.compute(model, [binding], [outputs[0], None, outputs[2]])
    assert [np.array(output).tolist() for output in result] == [[2, 3], [-2, -1]]
    assert device.compute(model, [binding], [None] * 3) == []


def test_a_model_is_of_the_graph_when_it_was_built(device: dml.Device, builder: dml.GraphBuilder) -> None:
    weight, x = inputs(builder, dml.TensorDesc(F32, OWNED, [2]), dml.TensorDesc(F32, [2]))
    y = x * weight
    model = builder.build(NONE, [y])
    later = dml.input_tensor(builder, 2, dml.TensorDesc(F32, [2]))
    y2 = y + later
    bindings = [dml.Binding(weight, [2, 3]), dml.Binding(x, [1, 1])]
    assert np.array(device.compute(model, bindings, [y])[0]).tolist() == [2, 3]
    # Changed weights initialize the model again.
    for values in ([4, 5], [4, 5], [6, 7]):
        bindings[0] = dml.Binding(weight, values)
        assert np.array(device.compute(model, bindings, [y])[0]).tolist() == values
    more = builder.build(NONE, [y2])
    result = device.compute(more, [*bindings, dml.Binding(later, [10, 20])], [y2])
    assert np.array(result[0]).tolist() == [16, 27]


def test_weights_stay_on_the_device(
    device: dml.Device, builder: dml.GraphBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    initialized: list[Any] = []

    class Counted(device_module.Execution):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            initialized.append(self)

    monkeypatch.setattr(device_module, "Execution", Counted)
    weight, x = inputs(builder, dml.TensorDesc(F32, OWNED, [2]), dml.TensorDesc(F32, [2]))
    y = x * weight
    model = builder.build(NONE, [y])
    bindings = [dml.Binding(weight, [2, 3]), dml.Binding(x, [1, 1])]
    device.compute(model, bindings, [y])
    device.compute(model, [dml.Binding(weight, [2, 3]), dml.Binding(x, [9, 9])], [y])
    assert len(initialized) == 1
    device.compute(model, [dml.Binding(weight, [2, 4]), dml.Binding(x, [9, 9])], [y])
    assert len(initialized) == 2


def test_threads_compute_the_same_model(device: dml.Device, builder: dml.GraphBuilder) -> None:
    (x,) = inputs(builder, dml.TensorDesc(F32, [64]))
    y = x * 2.0
    model = builder.build(NONE, [y])

    def compute(number: int) -> bool:
        (result,) = device.compute(model, [dml.Binding(x, np.full(64, number))], [y])
        return bool((np.array(result) == 2 * number).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(compute, range(40)))


def test_data_lie_as_the_description_says(device: dml.Device, builder: dml.GraphBuilder) -> None:
    sizes = [1, 2, 2, 3]
    interleaved = dml.TensorDesc(F32, sizes, dml.TensorPolicy.interleaved_channel)
    gaps = dml.TensorDesc(F32, dml.TensorFlags.NONE, sizes, [24, 12, 4, 1], 96, 16)
    a, b = inputs(builder, interleaved, gaps)
    y = a + b
    model = builder.build(NONE, [y])
    values = np.arange(12, dtype=np.float32).reshape(sizes)
    held = np.full((1, 2, 3, 4), np.nan, np.float32)  # of 24 elements; the last row and column are gaps
    held[:, :, :2, :3] = 100 * values
    (result,) = device.compute(model, [dml.Binding(a, values.transpose(0, 2, 3, 1)), dml.Binding(b, held)], [y])
    np.testing.assert_array_equal(np.array(result), 101 * values)


def test_results_are_seen_by_their_strides(device: dml.Device, builder: dml.GraphBuilder) -> None:
    (x,) = inputs(builder, dml.TensorDesc(F32, [1, 2, 3]))
    y = dml.reinterpret(dml.activation_identity(x), F32, [3, 2, 2], [1, 0, 3])
    model = builder.build(NONE, [y])
    (result,) = device.compute(model, [dml.Binding(x, np.arange(6))], [y])
    np.testing.assert_array_equal(np.array(result), [[[0, 3], [0, 3]], [[1, 4], [1, 4]], [[2, 5], [2, 5]]])


@pytest.mark.parametrize(
    ("kind", "data", "seen"),
    [
        (F32, row(1, 2, 3), np.float32),
        (F32, np.array([1, 2, 3]), np.float32),
        (F16, row(1, 2, 3, kind=np.float16), np.float16),
        (U32, row(1, 2, 3, kind=np.uint32), np.float32),
        (U32, row(1, 2, 3, kind=np.uint32).view(np.float32), np.float32),
        (dml.TensorDataType.INT64, row(1, 2, 3, kind=np.int64), np.int64),
        (U8, row(1, 2, 3, kind=np.uint8), np.uint8),
    ],
)
def test_types_of_data(device: dml.Device, builder: dml.GraphBuilder, kind: Any, data: np.ndarray, seen: Any) -> None:
    (x,) = inputs(builder, dml.TensorDesc(kind, [3]))
    y = dml.join([x, x], 0)
    model = builder.build(NONE, [y])
    result = np.array(device.compute(model, [dml.Binding(x, data)], [y])[0])
    assert result.dtype == seen
    own = result.view(np.uint32) if kind is U32 else result
    assert own.tolist() == [1, 2, 3, 1, 2, 3]


def test_bindings_copy_their_data(device: dml.Device, builder: dml.GraphBuilder) -> None:
    (x,) = inputs(builder, dml.TensorDesc(F32, [2]))
    y, data = x + 0.0, row(1, 2)
    model, binding = builder.build(NONE, [y]), dml.Binding(x, data)
    data[:] = 9
    assert np.array(device.compute(model, [binding], [y])[0]).tolist() == [1, 2]


def test_bindings_serve_other_graphs_with_such_an_input(device: dml.Device) -> None:
    builders = dml.GraphBuilder(device), dml.GraphBuilder(device)
    x, other = (dml.input_tensor(builder, 0, dml.TensorDesc(F32, [2])) for builder in builders)
    y = other * 2.0
    result = device.compute(builders[1].build(NONE, [y]), [dml.Binding(x, [1, 2])], [y])
    assert np.array(result[0]).tolist() == [2, 4]


def test_arrays_as_tensor_data() -> None:
    data = dml.TensorData(np.arange(6).reshape(2, 3).T)
    copied = np.array(data)
    assert (copied.dtype, type(copied)) == (np.float32, np.ndarray)
    np.testing.assert_array_equal(copied, [[0, 3], [1, 4], [2, 5]])
    view = memoryview(data)
    assert (view.format, view.shape, view.strides) == ("f", (3, 2), (8, 4))
    assert struct.unpack("6f", data) == (0, 3, 1, 4, 2, 5)
    np.testing.assert_array_equal(np.frombuffer(data, np.float32), [0, 3, 1, 4, 2, 5])
    for array in (np.exp(data), data + 1, np.transpose(data), np.concatenate([data, data])):
        assert type(array) is np.ndarray
    assert isinstance(np.sum(data), np.float32)
    assert "TensorData object at" in repr(data) == str(data)


def test_features_that_the_adapter_lacks_raise_a_runtime_error(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = dml.GraphBuilder(dml.Device())
    (x,) = inputs(builder, dml.TensorDesc(F32, [2]))
    y = x + 1.0

    def reject(*_: object, **__: object) -> None:
        raise dmlgpu.NotSupported("ELEMENT_WISE_ADD1: the adapter cannot")

    monkeypatch.setattr(dmlgpu.Graph, "compile", reject)
    with pytest.raises(RuntimeError, match=r"^ELEMENT_WISE_ADD1: the adapter cannot$") as caught:
        builder.build(NONE, [y])
    assert isinstance(caught.value, dmlgpu.NotSupported)
