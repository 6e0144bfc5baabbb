"""Reuse of tiles for products of other sizes."""

from __future__ import annotations

import pytest

from dmlgpu.compiler.schedule.gemm_choice import SPARED, Shape, _register_costs, choose, serves
from dmlgpu.compiler.schedule.tiles import tile_columns
from dmlgpu.compiler.target import Profile, Target

TARGET = Target("CPU", Profile.CPU, frozenset({"subgroup"}), subgroup_lanes=8)


@pytest.mark.parametrize(
    ("known", "other", "expected"),
    [
        (Shape(1, 64, 64, 64), Shape(1, 64, 64, 96), True),  # the same tile
        (Shape(1, 3, 200, 50), Shape(1, 2, 200, 50), True),  # little work: half of the time would be gained at most
        (Shape(1, 3, 200, 50), Shape(1, 512, 512, 512), False),  # a tile of 3 rows
        (Shape(1, 48, 864, 512), Shape(1, 40, 864, 512), True),  # an eighth more, of a millisecond
        (Shape(1, 48, 8640, 512), Shape(1, 40, 8640, 512), False),  # an eighth more, of ten
        (Shape(1, 48, 8640, 512), Shape(1, 104, 8640, 512), True),  # tiles that are about as good
        (Shape(1, 64, 64, 64), Shape(1, 4, 8, 1 << 14), False),  # sums in parts
        (Shape(1, 40, 60, 2880), Shape(1, 48, 60, 2880), True),  # other numbers of parts
        (Shape(1, 20, 360, 120, single=True), Shape(1, 20, 360, 120), False),  # it reads single elements
    ],
    ids=str,
)
def test_tiles_that_are_reused(known: Shape, other: Shape, expected: bool) -> None:
    assert serves(choose(known, TARGET), TARGET, "", *vars(other).values()) is expected


def test_sizes_that_vary_share_a_tile_of_little_work() -> None:
    shapes = [Shape(1, rows, 360, 120) for rows in (20, 25, 33, 40, 120)]
    assert len({choose(shape, TARGET).tile for shape in shapes}) > 1
    assert len({choose(shape, TARGET.varying).tile for shape in shapes}) == 1


def test_much_work_has_its_best_tile_even_if_sizes_vary() -> None:
    for shape in (Shape(1, 512, 512, 512), Shape(1, 480, 1200, 480), Shape(1, 24, 4096, 1024)):
        assert choose(shape, TARGET.varying) == choose(shape, TARGET)


def test_a_requested_schedule_ignores_cost() -> None:
    known, other = Shape(1, 3, 200, 50), Shape(1, 2, 200, 50)
    choice = choose(known, TARGET, "register")
    assert serves(choice, TARGET, "", *vars(other).values())
    assert not serves(choice, TARGET, "register", *vars(other).values())


@pytest.mark.parametrize("rows", [24, 40, 120])
def test_a_shared_tile_loses_the_time_of_few_multiplications(rows: int) -> None:
    most, target = 0.0, TARGET.varying
    for columns in range(64, 4096, 64):
        shape = Shape(1, rows, columns, 256)
        costs = _register_costs(shape, target)
        best = min(costs.values())
        lost = costs[choose(shape, target).tile] / best - 1
        assert lost <= max(0.1, SPARED / shape.work)
        most = max(most, lost)
    assert most > 0.1, "some shapes have so little work that they take a tile that is more than a tenth slower"


def test_tiles_of_depthwise_convolutions_have_two_units_if_sizes_vary() -> None:
    assert [tile_columns(count, TARGET) for count in (3, 12, 25, 30)] == [3, 4, 4, 8]
    assert [tile_columns(count, TARGET.varying) for count in (3, 12, 25, 30)] == [3, 8, 8, 8]
