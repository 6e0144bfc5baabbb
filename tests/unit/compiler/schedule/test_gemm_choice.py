"""Reuse of tiles for products of other sizes."""

from __future__ import annotations

import pytest

from dmlgpu.compiler.schedule.gemm_choice import Shape, choose, serves
from dmlgpu.compiler.target import Profile, Target

TARGET = Target("CPU", Profile.CPU, frozenset({"subgroup"}), subgroup_lanes=8)


@pytest.mark.parametrize(
    ("known", "other", "expected"),
    [
        (Shape(1, 64, 64, 64), Shape(1, 64, 64, 96), True),  # the same tile
        (Shape(1, 3, 200, 50), Shape(1, 2, 200, 50), True),  # little work: half of the time would be gained at most
        (Shape(1, 3, 200, 50), Shape(1, 512, 512, 512), False),  # a tile of 3 rows
        (Shape(1, 48, 864, 512), Shape(1, 40, 864, 512), False),  # an eighth more than the best tile costs
        (Shape(1, 48, 864, 512), Shape(1, 104, 864, 512), True),  # tiles that are about as good
        (Shape(1, 64, 64, 64), Shape(1, 4, 8, 1 << 14), False),  # sums in parts
    ],
    ids=str,
)
def test_tiles_that_are_reused(known: Shape, other: Shape, expected: bool) -> None:
    assert serves(choose(known, TARGET), TARGET, "", *vars(other).values()) is expected


def test_a_requested_schedule_ignores_cost() -> None:
    known, other = Shape(1, 3, 200, 50), Shape(1, 2, 200, 50)
    choice = choose(known, TARGET, "register")
    assert serves(choice, TARGET, "", *vars(other).values())
    assert not serves(choice, TARGET, "register", *vars(other).values())
