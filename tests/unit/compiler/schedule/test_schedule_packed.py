"""Products of 8-bit integers that multiply words of four."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler import operators
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.schedule.steps.packed_products import ScheduledPackedContract
from dmlgpu.compiler.target import Profile, Target

GPU = Target("GPU", Profile.DISCRETE)
INT8, UINT8 = DataType.INT8, DataType.UINT8


def product(rows: int, columns: int, a: DataType = INT8, b: DataType = UINT8) -> descs.MatrixMultiplyInteger:
    """Return a product of integers over 64 steps."""
    sizes = ((rows, 64), (64, columns), (rows, columns))
    operands = (TensorDesc(kind, (1, 1, *each)) for kind, each in zip((a, b, DataType.INT32), sizes, strict=True))
    return descs.MatrixMultiplyInteger(**dict(zip(("a_tensor", "b_tensor", "output_tensor"), operands, strict=True)))


def is_packed(desc: descs.MatrixMultiplyInteger | descs.Gemm, target: Target) -> bool:
    return any(isinstance(step, ScheduledPackedContract) for step in schedule(operators.lower(desc), target).steps)


@pytest.mark.parametrize("types", [(INT8, INT8), (INT8, UINT8), (UINT8, INT8), (UINT8, UINT8)])
def test_gpus_multiply_words_of_all_types(types: tuple[DataType, DataType]) -> None:
    assert is_packed(product(64, 64, *types), GPU)
    assert is_packed(product(64, 64, *types), replace(GPU, profile=Profile.INTEGRATED))


def test_other_products_and_adapters_keep_their_schedules() -> None:
    assert not is_packed(product(8, 64), GPU)
    assert not is_packed(product(64, 8), GPU)
    assert not is_packed(product(64, 64), replace(GPU, profile=Profile.CPU))
    assert not is_packed(product(64, 64), replace(GPU, multiplies_words=False))
    square = TensorDesc(DataType.FLOAT32, (1, 1, 64, 64))
    assert not is_packed(descs.Gemm(a_tensor=square, b_tensor=square, output_tensor=square), GPU)
