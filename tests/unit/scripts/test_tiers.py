"""Which tests scripts/test runs, and which it leaves to --all: each test is in one of the tiers, samples are stable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.gpu.usable import identifier, usable_adapters
from tests.tiers import FAST, SAMPLE, SHARES, Tier, describe, needlessly_slow, select


@dataclass(frozen=True)
class FakeItem:
    """A test as far as the selection looks at it."""

    nodeid: str
    slow: bool = False

    @property
    def name(self) -> str:
        return self.nodeid.rpartition("::")[2]

    def get_closest_marker(self, name: str) -> Any:
        return name if name == "slow" and self.slow else None


UNIT = [FakeItem("tests/unit/ops/test_a.py::test_fast"), FakeItem("tests/unit/ops/test_a.py::test_slow", slow=True)]
DOCS = [FakeItem("tests/docs/test_pages.py::test_links")]
OTHERS = [FakeItem("tests/fuzz/test_fuzz.py::test_x"), FakeItem("tests/packaging/test_wheel.py::test_y")]


def on_adapter(adapter: str, module: str = "test_b", count: int = 100) -> list[FakeItem]:
    return [FakeItem(f"tests/gpu/{module}.py::test_c[{adapter}-{index}]") for index in range(count)]


def selected(items: Any, tier: Tier | None, *, sampled: bool = True) -> list[Any]:
    return select(items, tier, sampled=sampled)


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> str:
    """The first adapter of the machine, as tests' ids name it."""
    adapters = usable_adapters()
    if not adapters:
        pytest.skip("no adapter on which a device can be created")
    return identifier(adapters[0])


def test_slow_tests_and_those_of_other_folders_are_left_to_the_rest() -> None:
    items = [*UNIT, *DOCS, *OTHERS]
    assert selected(items, Tier.QUICK) == [UNIT[0], *DOCS]
    assert selected(items, Tier.REST) == [UNIT[1], *OTHERS]
    assert selected(items, None) == items


def test_a_sample_of_every_module_runs_on_the_first_adapter(first: str) -> None:
    items = [*on_adapter(first), *on_adapter(first, "test_few", 2), *on_adapter("Another-one")]
    quick = selected(items, Tier.QUICK)
    assert len(quick) == -(-100 // SAMPLE) + 1
    assert all(first in item.nodeid for item in quick)
    assert quick == selected(list(reversed(items)), Tier.QUICK)[::-1]
    assert {*quick, *selected(items, Tier.REST)} == set(items)
    assert not {*quick} & {*selected(items, Tier.REST)}


@pytest.mark.parametrize("word", SHARES)
def test_other_adapters_take_a_share_unless_everything_is_asked_for(word: str) -> None:
    items = [*on_adapter(f"Some-{word}"), *on_adapter(f"Some-{word}", "test_few", 2)]
    assert len(selected(items, None)) == -(-100 // SHARES[word]) + 1
    assert selected(items, None, sampled=False) == items


def test_omitted_tests_are_counted_by_folder() -> None:
    text = describe([*OTHERS, *on_adapter("A", count=1200)], Tier.QUICK)
    assert text == "omitted: 1 of tests/fuzz, 1,200 of tests/gpu, 1 of tests/packaging (scripts/test --all)"
    assert describe([], Tier.REST).startswith("omitted: nothing")


def test_functions_that_are_marked_slow_but_fast() -> None:
    def report(name: str, seconds: float, *markers: str) -> pytest.TestReport:
        keywords = dict.fromkeys(markers, 1)
        return pytest.TestReport(f"a.py::{name}", ("a.py", 1, name), keywords, "passed", None, "call", duration=seconds)

    part = 0.7 * FAST
    reports = [
        *(report("test_fast", part), report("test_marked[1]", part, "slow"), report("test_other", part, "slow")),
        *(report("test_marked[2]", part, "slow"), report("test_slow", 2 * FAST, "slow")),
    ]
    assert needlessly_slow(reports) == ["a.py::test_other"]
