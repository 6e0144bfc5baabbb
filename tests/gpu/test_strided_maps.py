"""Maps of which an invocation takes several units, a workgroup apart, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.schedule import map as map_schedules
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Profile
from dmlgpu.runtime.executor import Range, Resources
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc
from tests.schedules import steps_of

ITEMS = {DataType.FLOAT16: 2, DataType.UINT8: 4, DataType.INT16: 2, DataType.INT64: 2, DataType.FLOAT32: 1}


@pytest.fixture(autouse=True)
def _tiny_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_schedules, "FULL_CARD", 16)


@pytest.mark.parametrize("specialized", [True, False], ids=["specialized", "parameters"])
@pytest.mark.parametrize("data_type", ITEMS, ids=str)
@pytest.mark.parametrize("sizes", [(8, 1024), (3, 1412), (1, 260)], ids=str)
def test_sums_are_those_of_numpy(
    backend: GpuBackend, data_type: DataType, sizes: tuple[int, ...], specialized: bool
) -> None:
    target = replace(backend.target.exact, profile=Profile.DISCRETE).with_policies(specialized=specialized)
    tensor = TensorDesc(data_type, sizes)
    desc = descs.ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
    assert steps_of(desc, target)[0].launch.items_per_invocation == ITEMS[data_type]
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 100, sizes).astype(data_type.numpy) for _ in range(2))
    (result,) = run_desc(backend, desc, [a, b], target)
    np.testing.assert_array_equal(result, a + b)


def test_rows_are_broadcast(backend: GpuBackend) -> None:
    target = replace(backend.target.exact, profile=Profile.DISCRETE)
    sizes = (12, 516)
    tensor = TensorDesc(DataType.UINT8, sizes)
    row = TensorDesc(DataType.UINT8, sizes, strides=(0, 1))
    desc = descs.ElementWiseAdd(a_tensor=tensor, b_tensor=row, output_tensor=tensor)
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 256, sizes, np.uint8), rng.integers(0, 256, sizes[1:], np.uint8)
    (result,) = run_desc(backend, desc, [a, np.broadcast_to(b, sizes)], target)
    np.testing.assert_array_equal(result, a + b)


def test_results_may_replace_an_operand(backend: GpuBackend) -> None:
    target = replace(backend.target.exact, profile=Profile.DISCRETE)
    tensor = TensorDesc(DataType.UINT8, (5, 1000))
    desc = descs.ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 256, (5, 1000), np.uint8) for _ in range(2))
    first, second = (Range(backend.create_buffer(a.size, "operand"), 0, a.size) for _ in range(2))
    backend.write(first.buffer, 0, a.ravel())
    backend.write(second.buffer, 0, b.ravel())
    executable = backend.prepare(compile_operator(desc, target))
    assert backend.wait(backend.submit(executable.bind(Resources((first, second), (first,)))))
    np.testing.assert_array_equal(backend.read(first.buffer, 0, a.size).reshape(a.shape), a + b)
    for operand in (first, second):
        backend.destroy_buffer(operand.buffer)
