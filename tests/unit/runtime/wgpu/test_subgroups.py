"""Which adapters use subgroup operations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.target import SUBGROUPS_VARIABLE, AdapterInfo, Profile, Target
from dmlgpu.runtime.wgpu import subgroups

CARD = AdapterInfo("Card", "Vulkan", "discrete", "maker", "driver 1")
GPU = Target("Card", Profile.DISCRETE, frozenset({"subgroup"}))


@pytest.fixture(autouse=True)
def unmeasured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (SUBGROUPS_VARIABLE, "DMLGPU_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr(subgroups.FACTS, "cached", {})


def test_gpus_use_subgroups_that_are_full() -> None:
    assert subgroups.has_full_subgroups(CARD, GPU) is None
    subgroups.FACTS.cached[str(CARD)] = frozenset({subgroups.FULL})
    assert subgroups.has_full_subgroups(CARD, GPU) is True
    subgroups.FACTS.cached[str(CARD)] = frozenset()
    assert subgroups.has_full_subgroups(CARD, GPU) is False


@pytest.mark.parametrize("target", [replace(GPU, profile=Profile.CPU), replace(GPU, features=frozenset())])
def test_other_adapters_are_not_measured(target: Target) -> None:
    assert subgroups.has_full_subgroups(CARD, target) is True


@pytest.mark.parametrize(("value", "expected"), [("always", True), ("never", False)])
def test_the_environment_overrides_the_measurement(value: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    subgroups.FACTS.cached[str(CARD)] = frozenset() if expected else frozenset({subgroups.FULL})
    monkeypatch.setenv(SUBGROUPS_VARIABLE, value)
    assert subgroups.has_full_subgroups(CARD, GPU) is expected


def test_an_unknown_policy_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUBGROUPS_VARIABLE, "off")
    with pytest.raises(InvalidArgument) as caught:
        subgroups.has_full_subgroups(CARD, GPU)
    assert str(caught.value) == "DMLGPU_SUBGROUPS must be one of auto, always, never, got 'off'"
