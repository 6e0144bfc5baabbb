"""Products of few rows on GPUs read their columns once: conditions, tiles, parts and estimated time."""

from __future__ import annotations

import pytest

from dmlgpu import descs
from dmlgpu.bench.predicting import target_of_card
from dmlgpu.catalog.enums import DataType, MatrixTransform
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler.cards import find_card
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.schedule.cost import stream_work
from dmlgpu.compiler.schedule.gemm_choice import Shape, choose
from dmlgpu.compiler.schedule.steps.products import OperandLayout, ProductSchedule, ProductTile, ScheduledContract
from dmlgpu.compiler.target import Profile, Target

CPU, GPU = Target("CPU"), Target("GPU", Profile.DISCRETE)
F32, F16 = DataType.FLOAT32, DataType.FLOAT16
ALONG, ACROSS, SINGLE = OperandLayout.ALONG, OperandLayout.ACROSS, OperandLayout.SINGLE


def contract(
    rows: int,
    columns: int,
    inner: int,
    *,
    trans_a: int = 0,
    trans_b: int = 0,
    data_type: DataType = F32,
    target: Target = GPU,
) -> ScheduledContract:
    """Return the kernel of a product."""
    desc = descs.Gemm(
        a_tensor=TensorDesc(data_type, (inner, rows) if trans_a else (rows, inner)),
        b_tensor=TensorDesc(data_type, (columns, inner) if trans_b else (inner, columns)),
        output_tensor=TensorDesc(data_type, (rows, columns)),
        trans_a=MatrixTransform(trans_a),
        trans_b=MatrixTransform(trans_b),
    )
    steps = schedule(operators.lower(desc), target).steps
    return next(step for step in steps if isinstance(step, ScheduledContract))


@pytest.mark.parametrize(
    ("sizes", "trans_a", "trans_b", "layouts"),
    [
        ((8, 4096, 4096), 0, 0, (ALONG, ACROSS)),
        ((8, 4096, 4096), 0, 1, (ALONG, ALONG)),
        ((16, 4096, 4096), 1, 0, (SINGLE, ACROSS)),
        ((1, 1001, 1024), 0, 1, (ALONG, ALONG)),
    ],
)
def test_few_rows_are_streamed(
    sizes: tuple[int, int, int], trans_a: int, trans_b: int, layouts: tuple[OperandLayout, OperandLayout]
) -> None:
    step = contract(*sizes, trans_a=trans_a, trans_b=trans_b)
    assert (step.schedule, step.a.layout, step.b.layout) == (ProductSchedule.STREAMED, *layouts)


@pytest.mark.parametrize(
    ("sizes", "trans_b", "target", "name"),
    [
        ((17, 4096, 4096), 0, GPU, "shared"),  # more rows
        ((8, 4096, 4096), 1, CPU, "register"),
        ((8, 4096, 60), 0, GPU, "register"),  # short sums
        ((8, 4098, 4096), 0, GPU, "register"),  # no units of columns
        ((8, 4096, 4095), 0, GPU, "register"),  # no fours of steps
    ],
)
def test_other_products_are_not_streamed(sizes: tuple[int, int, int], trans_b: int, target: Target, name: str) -> None:
    assert contract(*sizes, trans_b=trans_b, target=target).schedule == name


def test_narrow_elements_have_more_loads_in_flight() -> None:
    assert [contract(8, 4096, 4096, data_type=kind).steps for kind in (F32, F16)] == [2, 4]


@pytest.mark.parametrize("card", ["H100", "RX 7900 XTX", "RX 7600", "Arc A770"])
@pytest.mark.parametrize("rows", range(1, 17))
def test_tiles_fit_and_fill_the_card(rows: int, card: str) -> None:
    """A workgroup has all rows, or half of more than eight, and room to add the sums of half its slices."""
    described = find_card(card)
    step = contract(rows, 4096, 4096, target=target_of_card(described))
    tile = step.tile
    assert tile.rows * -(-rows // 8) - rows in (0, 1)
    assert tile.rows * tile.depth * 4 <= 64 * tile.workgroup <= 32768
    assert tile.depth % (4 * step.steps * tile.slices) == 0
    assert tile.depth // 4 >= tile.across * tile.slices // 2
    assert step.launch.total * tile.workgroup * 4 * step.steps * 16 >= described.memory * described.latency


def test_sums_are_whole_if_iterations_divide_them() -> None:
    assert contract(8, 4096, 4096).whole
    assert not contract(8, 4096, 4100).whole


def test_a_slice_of_exact_devices_sums_no_more_than_a_chunk() -> None:
    choice = choose(Shape(1, 1, 1 << 20, 1 << 16, streams=True), GPU.with_policies(precise=True))
    assert choice.schedule is ProductSchedule.STREAMED
    assert (1 << 16) // choice.parts // choice.tile.slices <= 1024


def test_the_work_of_a_product_of_few_rows() -> None:
    """8 x 1024 by 1024 x 256 in two parts: 512 steps of 8 slices are 64 each, 16 fours, two at a time."""
    tile = ProductTile(8, 1, 32, 1, 512, 8)
    work = stream_work((1, 8, 256, 1024), tile, 2, 2)
    assert (work.groups, work.workgroup) == (4, 256)
    assert work.multiply_adds == 64 * 8 * 4
    assert work.waits == 8 + 1
    assert work.barriers == 2 * (1 + 3)
    assert work.moved == 4 * (1024 * (8 + 256) + 2 * 8 * 256)
    assert work.loaded == work.moved + 4 * 512 * 8 * 4
