"""The default device: ``set_default_device``, ``with dmlgpu.device(...)``, compiled functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import dmlgpu
import dmlgpu.array as xp
from dmlgpu import AdapterNotFound, Device, InvalidArgument, Tensor, ops
from dmlgpu.runtime import device as device_module
from tests.unit.device_objects import raises

ARRAY = np.ones((2, 2), np.float32)


@pytest.fixture(autouse=True)
def _defaults() -> Iterator[None]:
    """What a test sets does not outlast it."""
    dmlgpu.set_default_device("numpy")
    yield
    dmlgpu.set_default_device(None)


@pytest.fixture
def other() -> Device:
    """Another device than that of the name ``numpy``."""
    return Device("numpy")


def created() -> set[Any]:
    """Return the devices of the results of creating functions."""
    rng = dmlgpu.random.default_rng(0)
    tensors = [
        Tensor([1.0]),
        Tensor.from_numpy(ARRAY),
        ops.zeros(2),
        ops.arange(2),
        ops.eye(2),
        xp.asarray([1]),
        xp.ones(3),
    ]
    tensors += [
        rng.random(2),
        rng.permutation(3),
        ops.directml.fill_value_constant(value=1.0, value_data_type="float32", output_sizes=(2,)),
    ]
    return {tensor.device for tensor in tensors}


def test_a_block_chooses_for_all_functions(other: Device) -> None:
    outside = dmlgpu.default_device()
    with dmlgpu.device(other) as device:
        assert device is other is dmlgpu.default_device()
        assert created() == {other}
        with dmlgpu.device("numpy"):
            assert created() == {outside}
        assert created() == {other}
    assert created() == {outside}


def test_a_program_chooses(other: Device) -> None:
    dmlgpu.set_default_device(other)
    assert created() == {other}
    with dmlgpu.device("numpy"):
        assert other not in created()
    dmlgpu.set_default_device("numpy")
    assert created() == {device_module.as_device("test", "numpy")}


def test_arrays_are_computed_there(other: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = []
    compile_operator = Device.compile_operator

    def noted(device: Device, *arguments: Any) -> Any:
        devices.append(device)
        return compile_operator(device, *arguments)

    monkeypatch.setattr(Device, "compile_operator", noted)
    desc = dmlgpu.descs.ElementWiseAbs(
        input_tensor=dmlgpu.TensorDesc.of(ARRAY), output_tensor=dmlgpu.TensorDesc.of(ARRAY)
    )
    with dmlgpu.device(other):
        ops.tanh(ARRAY)
        ops.directml.element_wise_abs(ARRAY)
        dmlgpu.evaluate(desc, [ARRAY])
        assert dmlgpu.compile(lambda x: x + 1).operator(ARRAY).device is other
        assert dmlgpu.Graph().device is other
        ops.free_memory()
    assert set(devices) == {other} and len(devices) >= 3


def test_sessions_are_loaded_there(other: Device) -> None:
    helper = pytest.importorskip("onnx.helper")
    value = helper.make_tensor_value_info("x", 1, [2])
    result = helper.make_tensor_value_info("y", 1, [2])
    model = helper.make_model(helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "abs", [value], [result]))
    with dmlgpu.device(other):
        session = dmlgpu.load(model)
    assert session.device is other


def test_a_compiled_function_creates_where_it_runs(other: Device) -> None:
    devices: list[Any] = []

    @dmlgpu.compile
    def step(x: Any) -> Any:
        devices.extend(created())
        return x + Tensor([[1.0, 2.0]])

    np.testing.assert_array_equal(step(Tensor(ARRAY, device=other)).numpy(), ARRAY + np.array([1, 2]))
    assert set(devices) == {other}
    with dmlgpu.device(other):
        assert step.operator(ARRAY).device is other


def test_threads_and_tasks_have_blocks_of_their_own(other: Device) -> None:
    seen: list[Device] = []
    with dmlgpu.device(other):
        thread = threading.Thread(target=lambda: seen.append(dmlgpu.default_device()))
        thread.start()
        thread.join()
    assert seen == [device_module.as_device("test", "numpy")]

    async def task(device: Any) -> Device:
        with dmlgpu.device(device):
            await asyncio.sleep(0)
            return dmlgpu.default_device()

    async def both() -> list[Device]:
        return await asyncio.gather(task(other), task("numpy"))

    # In a thread of its own: tests of Chromium leave an event loop running in theirs.
    with ThreadPoolExecutor() as pool:
        assert pool.submit(asyncio.run, both()).result() == [other, device_module.as_device("test", "numpy")]


def test_names_and_the_default_share_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    dmlgpu.set_default_device(None)
    monkeypatch.setattr(device_module._Default, "by_environment", None)
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")
    count = len(dmlgpu.adapters())
    index = next(index for index in range(count) if dmlgpu.adapters()[index].name == "numpy")
    assert dmlgpu.default_device() is device_module.as_device("test", "numpy")
    np.testing.assert_array_equal((Tensor(ARRAY) + Tensor(ARRAY, device="numpy")).numpy(), 2 * ARRAY)
    for choice in ("numpy", "num", str(index), index, dmlgpu.adapters()[index], None):
        with dmlgpu.device(choice) as device:
            assert device is device_module.as_device("test", "numpy")


def test_a_decorated_function(other: Device) -> None:
    @dmlgpu.device(other)
    def create() -> Tensor:
        return ops.zeros(2)

    assert create().device is other is create().device
    assert ops.zeros(2).device is not other


def test_a_removed_device_is_created_again() -> None:
    device = dmlgpu.default_device()
    device.remove()
    assert dmlgpu.default_device() is not device and dmlgpu.default_device().removed_reason is None


def test_the_block_ends_with_an_exception(other: Device) -> None:
    with pytest.raises(ZeroDivisionError), dmlgpu.device(other):
        _ = 1 / 0
    assert dmlgpu.default_device() is not other


def test_other_devices_of_an_adapter_are_distinguished(other: Device) -> None:
    x, y = Tensor(ARRAY), Tensor(ARRAY, device=other)
    adapter = other.adapter
    second = "another Device object of that adapter, which has memory of its own; x.to(device) copies"
    for text, call in {
        f"a + b: b must be on the device of the other operands, '{adapter}', got one on {second} it": lambda: x + y,
        f"softmax: device must be that of the tensors, '{adapter}', got {second} them": lambda: ops.softmax(
            x, device=other
        ),
        f"<lambda>: b must be on the device of the other arguments, '{adapter}', got one on {second} it": (
            lambda: dmlgpu.compile(lambda a, b: a + b)(x, y)
        ),
    }.items():
        with raises(InvalidArgument, text):
            call()
    np.testing.assert_array_equal((x + y.to(x.device)).numpy(), 2 * ARRAY)


@pytest.mark.parametrize("value", [1.5, b"numpy", [], object(), True])
def test_values_that_are_no_device(value: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^set_default_device: device must be a Device, the name or index of an"):
        dmlgpu.set_default_device(value)
    with pytest.raises(InvalidArgument, match=r"^device: device must be a Device, the name or index of an adapter"):
        dmlgpu.device(value).__enter__()
    with pytest.raises(AdapterNotFound):
        dmlgpu.set_default_device("no such adapter")
