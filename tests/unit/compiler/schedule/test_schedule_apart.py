"""Products on GPUs whose columns are read one by one: adjacent invocations take adjacent columns."""

from __future__ import annotations

from typing import Any

import pytest

from dmlgpu.bench.choosing import of_operator
from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.schedule.steps.products import ProductSchedule, ScheduledContract
from dmlgpu.compiler.target import Overrides, Profile, Target
from dmlgpu.compiler.wgsl.render import render
from tests.kernel_sources import with_values
from tests.schedules import scheduled, steps_of

F32, F16 = DataType.FLOAT32, DataType.FLOAT16
GPU, CPU = (Target("x", profile, overrides=Overrides(schedule="shared")) for profile in (Profile.DISCRETE, Profile.CPU))

IMAGES = {"batch": 4, "channels": 64, "filters": 64, "height": 56, "width": 56, "stride": 2}
ODD = {"m": 256, "k": 256, "n": 257}


def product(operator: str, data_type: DataType, target: Target, **sizes: int) -> ScheduledContract:
    *_, step = (
        step for step in steps_of(described(operator, data_type, sizes), target) if isinstance(step, ScheduledContract)
    )
    assert step.schedule is ProductSchedule.SHARED
    return step


def described(operator: str, data_type: DataType, sizes: dict[str, int]) -> Any:
    (workload,) = of_operator(operator, [sizes], [data_type])
    return workload.desc


@pytest.mark.parametrize(("operator", "sizes"), [("CONVOLUTION", IMAGES), ("GEMM", ODD)])
def test_columns_that_are_read_one_by_one(operator: str, sizes: dict[str, int]) -> None:
    step = product(operator, F32, GPU, **sizes)
    assert step.apart == step.tile.across * step.tile.units > 1
    assert step.output.lanes == 1


@pytest.mark.parametrize(
    ("operator", "data_type", "target", "sizes"),
    [
        ("GEMM", F32, GPU, {**ODD, "n": 256}),  # units are read
        ("GEMM", F32, CPU, ODD),
        ("CONVOLUTION", F32, CPU, IMAGES),
        ("CONVOLUTION", F16, GPU, IMAGES),  # units of half words are stored at once
    ],
)
def test_columns_of_other_products_are_adjacent_in_units(
    operator: str, data_type: DataType, target: Target, sizes: dict[str, int]
) -> None:
    assert product(operator, data_type, target, **sizes).apart == 1


def test_reads_and_writes_agree_on_the_columns_of_a_unit() -> None:
    apart = product("CONVOLUTION", F32, GPU, **IMAGES).apart
    text = with_values(render(scheduled(described("CONVOLUTION", F32, IMAGES), GPU)).kernels[-1])
    for lane in range(4):
        place = f"/ {apart}u * {4 * apart}u + %s % {apart}u + {lane * apart}u"
        assert f"starts[{lane}] = b_start(batch, min(unit {place.replace('%s', 'unit')}, " in text
        assert f"keep_one(part, batch, row, column {place.replace('%s', 'column')}, sums.{'xyzw'[lane]});" in text
