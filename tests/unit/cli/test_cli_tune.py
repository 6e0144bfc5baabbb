"""``dmlgpu tune``: stored choices are listed, shared, imported and deleted; failures print a message."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from dmlgpu.bench import tuning
from dmlgpu.bench.ceilings import CachedCeilings, Ceilings
from dmlgpu.cli import tune
from dmlgpu.compiler.target import AdapterInfo, Profile, Target
from dmlgpu.compiler.tuned_files import tuned_file, tuned_for
from tests.unit.cli.cli_process import dmlgpu, run_here
from tests.unit.compiler.test_tuned_files import CARD, PRODUCT, finding


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of tuned choices, on a machine whose only adapter is CARD."""

    def chosen(requested: str | None) -> AdapterInfo:
        return CARD

    monkeypatch.setattr(tune, "choose_adapter", chosen)
    monkeypatch.setenv("DMLGPU_TUNED", str(tmp_path))
    return tmp_path


def test_stored_choices_are_listed_with_their_gain(folder: Path) -> None:
    assert run_here("tune", "--list").stdout == f"there are no tuned choices in {folder}\n"
    tuning.save_choices(CARD, [finding()])
    (folder / "broken.json").write_text("{}")
    lines = run_here("tune", "--list").stdout.splitlines()
    assert lines[:2] == [
        str(folder / "broken.json"),
        f"  not used: {folder / 'broken.json'} is no file of tuned choices (KeyError: 'format')",
    ]
    assert lines[2] == str(tuned_file(CARD)) and "Card 7" in lines[3]
    assert lines[-1].split() == [*PRODUCT.split(), "register", "8x2", "0.50"]


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
def test_the_rates_of_gpus_are_measured(folder: Path, monkeypatch: pytest.MonkeyPatch, profile: Profile) -> None:
    """They replace those of the table in the cost model, also while choices are measured."""
    targets = []
    measured = CachedCeilings(Ceilings(450e9, 12e12, 4e-6, 1e-3, "gpu"), 0.0)
    monkeypatch.setattr(tune, "Device", mock.Mock())
    monkeypatch.setattr(tune, "_target", lambda info: Target(info.name, profile))
    monkeypatch.setattr(tune, "known_ceilings", lambda *_: measured)
    monkeypatch.setattr(tune, "_findings", lambda workloads, device, target, budget: targets.append(target) or [])
    tune.tune([], None, 1.0)
    expected = {} if profile is Profile.CPU else {"copy": 450e9, "launch": 4e-6, "multiply_add": 12e12}
    assert dict(targets[0].overrides.tuned.ceilings) == expected
    assert dict(tuned_for(CARD).ceilings) == expected


def test_choices_are_shared_forgotten_and_taken(folder: Path) -> None:
    tuning.save_choices(CARD, [finding()])
    shared = folder / "for others" / "card.json"
    assert run_here("tune", "--share", shared).stdout == f"{CARD}: choices written: 1\n"
    assert run_here("tune", "--clear").stdout == f"{CARD}: choices deleted\n"
    refused = run_here("tune", "--share", shared)
    assert (refused.returncode, refused.stderr) == (
        2,
        f"dmlgpu: there are no tuned choices for {CARD}; run dmlgpu tune first\n",
    )
    assert run_here("tune", "--take", shared).returncode == 0
    assert tuning.load_choices(CARD).answers == {PRODUCT: "register 8x2"}


def test_files_of_other_adapters_are_rejected(folder: Path) -> None:
    tuning.write_choices(
        folder / "other.json", tuning.save_choices(replace(CARD, driver="2"), [finding()], folder / "other")
    )
    refused = run_here("tune", "--take", folder / "other.json")
    assert refused.returncode == 2
    assert refused.stderr.endswith("has choices for the driver '2', which must be 'driver 1.2'\n")
    assert tuning.load_choices(CARD).answers == {}


def test_the_reference_has_nothing_to_tune() -> None:
    refused = run_here("tune", "GEMM", "--adapter", "numpy")
    assert refused.returncode == 1 and "so there is nothing to tune" in refused.stderr


@pytest.mark.usefixtures("folder", "homeless")
def test_choices_that_cannot_be_stored_are_not_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DMLGPU_TUNED")
    monkeypatch.setattr(tune, "_target", lambda info: Target(info.name))
    with pytest.raises(FileNotFoundError, match="no folder for caches"):
        tune.tune([], None, 1.0)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("more", [["--clear"], ["GEMM"], ["-s", "m=64"], ["--share", "x.json"]])
def test_listing_goes_alone(more: list[str]) -> None:
    refused = run_here("tune", "--list", *more)
    assert refused.returncode == 2 and "can be combined with --adapter only" in refused.stderr


def test_a_broken_file_is_one_sentence_on_standard_error(tmp_path: Path) -> None:
    """The warning is printed as other messages of the command line, without a place in the code."""
    setup = """
import warnings, dmlgpu.cli.main as m
from dmlgpu.compiler.tuned_files import TunedFileWarning
m.verb = lambda name: type("App", (), dict(app=staticmethod(lambda **_: warnings.warn("broken", TunedFileWarning))))
"""
    assert dmlgpu("anything", setup=setup).stderr == "dmlgpu: broken\n"
