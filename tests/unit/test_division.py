"""Which adapters divide by their own operations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.target import DIVISION_VARIABLE, AdapterInfo, Profile, Target
from dmlgpu.runtime.wgpu import division

CARD = AdapterInfo("Card", "Vulkan", "discrete", "maker", "driver 1")
GPU = Target("Card", Profile.DISCRETE)


@pytest.fixture(autouse=True)
def unmeasured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (DIVISION_VARIABLE, "DMLGPU_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr(division.FACTS, "_known", {})


def test_gpus_are_measured_and_cpus_are_not() -> None:
    assert division.is_exact(CARD, GPU) is None
    division.FACTS._known[str(CARD)] = frozenset({division.EXACT})
    assert division.is_exact(CARD, GPU) is True
    division.FACTS._known[str(CARD)] = frozenset()
    assert division.is_exact(CARD, GPU) is False
    assert division.is_exact(CARD, replace(GPU, profile=Profile.CPU)) is True


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
@pytest.mark.parametrize(("value", "expected"), [("native", True), ("software", False)])
def test_the_environment_overrides_it(
    value: str, expected: bool, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIVISION_VARIABLE, value)
    assert division.is_exact(CARD, replace(GPU, profile=profile)) is expected


def test_an_unknown_division_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIVISION_VARIABLE, "fast")
    with pytest.raises(InvalidArgument) as caught:
        division.is_exact(CARD, GPU)
    assert str(caught.value) == "DMLGPU_DIVISION must be one of software, native, got 'fast'"
