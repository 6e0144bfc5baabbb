"""How kernels for an adapter divide."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.target import DIVISION_VARIABLE, AdapterInfo, Division, Profile, Target
from dmlgpu.runtime.wgpu import division

CARD = AdapterInfo("Card", "Vulkan", "discrete", "maker", "driver 1")
GPU = Target("Card", Profile.DISCRETE)


@pytest.fixture(autouse=True)
def unmeasured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (DIVISION_VARIABLE, "DMLGPU_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr(division.FACTS, "cached", {})


@pytest.mark.parametrize(
    ("exact", "expected"),
    [
        ({"native", "fused"}, Division.NATIVE),
        ({"fused"}, Division.FUSED),
        (set(), Division.SOFTWARE),
    ],
)
def test_gpus_are_measured_and_cpus_are_not(exact: set[str], expected: Division) -> None:
    assert division.known_division(CARD, GPU) is None
    division.FACTS.cached[str(CARD)] = frozenset(exact)
    assert division.known_division(CARD, GPU) is expected
    assert division.known_division(CARD, replace(GPU, profile=Profile.CPU)) is Division.NATIVE


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
@pytest.mark.parametrize("name", Division)
def test_the_environment_overrides_it(name: str, profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIVISION_VARIABLE, name)
    assert division.known_division(CARD, replace(GPU, profile=profile)) is Division(name)


def test_an_unknown_division_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIVISION_VARIABLE, "fast")
    with pytest.raises(InvalidArgument) as caught:
        division.known_division(CARD, GPU)
    assert str(caught.value) == "DMLGPU_DIVISION must be one of software, fused, native, got 'fast'"
