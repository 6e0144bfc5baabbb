"""Keys of steps that differ only in their bindings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from dmlgpu import DataType
from dmlgpu.compiler.plan import Allocation, Map, PlanBinding, PlanTensor, Role
from dmlgpu.compiler.plan.parts import signature
from dmlgpu.compiler.rewrites.sources import identity


@dataclass(frozen=True)
class Part:
    """A part of a step."""

    value: Any
    other: Any = None


def tensor(binding: PlanBinding, size: int = 8) -> PlanTensor:
    return PlanTensor(binding, DataType.FLOAT32, (size,), (1,))


FIRST, SECOND, THIRD = (PlanBinding(Role.INPUT, index) for index in range(3))


def test_keys_ignore_bindings_and_list_them_in_order() -> None:
    memory = PlanBinding(Role.TEMPORARY, Allocation("memory"), 64)
    first, bound = signature(Map("copy", identity(tensor(FIRST)), tensor(memory)))
    other, others = signature(Map("copy", identity(tensor(THIRD)), tensor(SECOND)))
    assert first == other
    assert dict(zip(bound, others, strict=True)) == {FIRST: THIRD, memory: SECOND}


def test_repeated_bindings_change_the_key() -> None:
    twice, _ = signature((tensor(FIRST), tensor(FIRST)))
    assert twice == signature((tensor(SECOND), tensor(SECOND)))[0]
    assert twice != signature((tensor(FIRST), tensor(SECOND)))[0]
    assert signature((tensor(FIRST), tensor(SECOND)))[0] == signature((tensor(THIRD), tensor(FIRST)))[0]


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (0.0, -0.0),
        (1, 1.0),
        (1, True),
        (0, False),
        (0, None),
        ("1", 1),
        ("a", b"a"),
        (DataType.FLOAT32, int(DataType.FLOAT32)),
        ((1, 2), (1, (2,))),
        (((1,), 2), (1, (2,))),
        (Part(1), Part(2)),
        (Part((1,), 2), Part(1, (2,))),
        (Map("copy", identity(tensor(FIRST)), tensor(SECOND)), Map("copy", identity(tensor(FIRST, 4)), tensor(SECOND))),
    ],
    ids=str,
)
def test_every_other_difference_changes_the_key(value: Any, other: Any) -> None:
    assert signature(Part(value))[0] != signature(Part(other))[0]


def test_equal_values_are_the_same() -> None:
    for make in (lambda: Part((0.5, float("nan"), "x", None)), lambda: Part(Part(b"y"), (DataType.INT8, 3))):
        assert signature(make())[0] == signature(make())[0]


def test_sharing_changes_the_key() -> None:
    shared = Part(1)
    assert signature((shared, shared))[0] != signature((Part(1), Part(1)))[0]
    assert signature((shared, shared, Part(1)))[0] != signature((shared, Part(1), shared))[0]


@pytest.mark.parametrize(
    "unknown", [[1], {1: 2}, frozenset({0.0}), 1j, object()], ids=lambda value: type(value).__name__
)
def test_incomparable_parts_have_no_key(unknown: object) -> None:
    assert signature(Part(unknown)) == (None, ())


def test_a_deep_step_has_a_key() -> None:
    deep: Any = None
    for _ in range(5000):
        deep = Part(deep, deep)
    deep_signature, _ = signature(deep)
    assert isinstance(deep_signature, tuple)
    assert len(deep_signature) < 20000
