"""The whole life cycle on the adapter that is always there; expected values by hand."""

import numpy as np
import pytest

import dmlgpu
from dmlgpu import BufferBinding, DataType, InvalidArgument, TensorDesc
from tests.life_cycle import OWNED, LifeCycle, bound, compile_operator, initialization, record, row, subtract
from tests.unit.device_objects import raises

GAPPED = TensorDesc(DataType.FLOAT32, (1, 1, 1, 4), strides=(8, 8, 8, 2))


@pytest.fixture(scope="module")
def device():
    return dmlgpu.Device("numpy")


class TestLifeCycle(LifeCycle):
    """On the ``numpy`` adapter."""


def test_nothing_outside_the_output_is_written(device):
    compiled = compile_operator(device, subtract(output=GAPPED))
    sources, target = [device.create_buffer(16), device.create_buffer(16)], device.create_buffer(96)
    sources[0].write(row(5, 6, 7, 8))
    target.write(bytes([0xAB] * 96))
    table = bound(device, compiled, sources, [BufferBinding(target, 32)])
    device.queue.execute([record(device, initialization(device, compiled), (compiled, table))])
    written = target.read()
    assert GAPPED.byte_size == 28
    assert written[32:60].view(np.float32)[::2].tolist() == [5, 6, 7, 8]
    assert set(written[:32]) == set(written[60:]) == {0xAB}


def test_evaluate(device):
    (result,) = dmlgpu.evaluate(subtract(GAPPED, OWNED, GAPPED), [row(1, 2, 3, 4), row(4, 3, 2, 1)], device)
    assert result.dtype == np.float32
    assert result.tolist() == row(-3, -1, 1, 3).tolist()


def test_evaluate_takes_one_array_per_input(device):
    with raises(
        InvalidArgument,
        "ELEMENT_WISE_SUBTRACT: inputs must be 2 arrays (a_tensor (input 0), b_tensor (input 1)), got 1",
    ):
        dmlgpu.evaluate(subtract(), [row(1, 2, 3, 4)], device)


@pytest.mark.parametrize(
    ("wrong", "got"),
    [
        (row(1, 2, 3), "float32 with shape (1, 1, 1, 3)"),
        (np.zeros(4, np.float32), "float32 with shape (4,)"),
        (row(1, 2, 3, 4).astype(np.float64), "float64 with shape (1, 1, 1, 4); pass array.astype(np.float32)"),
    ],
)
def test_evaluate_converts_nothing(device, wrong, got):
    with raises(
        InvalidArgument,
        f"ELEMENT_WISE_SUBTRACT: b_tensor (input 1) must be an array of float32 with shape (1, 1, 1, 4), got {got}",
    ):
        dmlgpu.evaluate(subtract(), [row(1, 2, 3, 4), wrong], device)


def test_evaluate_misses_an_array(device):
    with raises(InvalidArgument, "ELEMENT_WISE_SUBTRACT: b_tensor (input 1) must be an array, got NoneType"):
        dmlgpu.evaluate(subtract(), [row(1, 2, 3, 4), None], device)
