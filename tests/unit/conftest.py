"""Fixtures that unit tests share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dmlgpu.operators.lowering import _LOWERINGS
from dmlgpu.reference.registry import _FUNCTIONS
from tests.unit.device_objects import Objects


@pytest.fixture
def unregister(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Takes an operator's lowering and reference away for one test, as if dmlgpu did not implement it."""

    def take_away(operator: str) -> None:
        for registry in (_LOWERINGS, _FUNCTIONS):
            monkeypatch.delitem(registry, operator)

    return take_away


@pytest.fixture
def objects() -> Objects:
    """A device over a bookkeeping executor whose operators need no resources of their own."""
    return Objects()


@pytest.fixture
def hungry() -> Objects:
    """A device over a bookkeeping executor whose operators need temporary and persistent resources."""
    return Objects(temporary_size=512, persistent_size=256)
