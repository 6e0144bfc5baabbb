"""Files of tuned choices: they are loaded unchanged; broken files and those of other adapters are ignored with a
warning."""

from __future__ import annotations

import json
import pickle
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from dmlgpu.bench import tuning
from dmlgpu.bench.ratios import Ratio
from dmlgpu.bench.tuning import TuningFinding
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.target import UNTUNED, AdapterInfo, Overrides, Target, Tuned
from dmlgpu.compiler.tuned_files import TunedFileWarning, read_tuned, tuned_file, tuned_folder, tuned_for

CARD = AdapterInfo("Card 7 (rev. A)", "Vulkan", "discrete", "maker", "driver 1.2")
PRODUCT = "product 1x64x64x64"
FASTER = Ratio(0.5, 0.45, 0.55, 11, 0.5, 1.0)


def finding(question: str = PRODUCT, answer: str = "register 8x2", built_in: str = "register 8x4") -> TuningFinding:
    return TuningFinding(question, built_in, answer, FASTER, {built_in: 1.0, answer: 0.5})


def test_choices_are_loaded_only_for_their_adapter(tmp_path: Path) -> None:
    tuning.save_choices(CARD, [finding()], tmp_path)
    assert tuned_for(CARD, tmp_path) == Tuned(((PRODUCT, "register 8x2"),))
    for name in ("name", "backend", "vendor", "driver"):
        assert tuned_for(replace(CARD, **{name: "other"}), tmp_path) == UNTUNED
    assert tuning.load_choices(CARD, tmp_path).ratios == {PRODUCT: 0.5}


def test_later_choices_replace_earlier_ones_and_built_in_ones_are_not_stored(tmp_path: Path) -> None:
    tuning.save_choices(CARD, [finding(), finding("other"), finding("third")], tmp_path)
    tuning.save_choices(CARD, [finding(answer="small 1x1"), finding("other", "register 8x4")], tmp_path)
    assert tuned_for(CARD, tmp_path) == Tuned.of({PRODUCT: "small 1x1", "third": "register 8x2"})


def test_the_variable_names_another_folder_or_disables_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_TUNED", str(tmp_path))
    tuning.save_choices(CARD, [finding()])
    assert tuned_folder() == tmp_path and tuned_for(CARD) != UNTUNED
    monkeypatch.setenv("DMLGPU_TUNED", "off")
    assert tuned_for(CARD) == UNTUNED


@pytest.mark.usefixtures("homeless")
def test_without_a_home_only_the_folder_of_the_variable_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DMLGPU_TUNED", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tuned_for(CARD) == UNTUNED
    with pytest.raises(FileNotFoundError, match="no folder for caches"):
        tuning.save_choices(CARD, [finding()])
    monkeypatch.setenv("DMLGPU_TUNED", str(tmp_path))
    tuning.save_choices(CARD, [finding()])
    assert tuned_for(CARD) != UNTUNED


def said(path: Path) -> str:
    """Return the only warning about a file."""
    with pytest.warns(TunedFileWarning) as caught:
        assert tuned_for(CARD, path.parent) == UNTUNED
    (warning,) = caught
    return str(warning.message).replace(str(path), "FILE")


NO_FILE = "FILE is no file of tuned choices"
BROKEN = {
    "empty": ("", f"{NO_FILE} (JSONDecodeError: Expecting value: line 1 column 1 (char 0))"),
    "a list": ("[]", f"{NO_FILE} (TypeError: list indices must be integers or slices, not str)"),
    "another format": ('{"format": 99}', "FILE has format 99 of tuned choices, which must be 1"),
    "no choices": ('{"format": 1, "adapter": {}}', f"{NO_FILE} (KeyError: 'choices')"),
    "no text": (
        '{"format": 1, "adapter": {}, "choices": {"a": {"choice": 1}}}',
        f"{NO_FILE} (ValueError: names and values must be strings)",
    ),
    "too long": (" " * 101, f"{NO_FILE}: it has more than 100 bytes"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_ignored_with_a_warning(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content, expected = BROKEN[name]
    path = tuned_file(CARD, tmp_path)
    path.write_text(content, encoding="utf-8")
    if name == "too long":
        monkeypatch.setattr("dmlgpu.compiler.tuned_files.MAX_BYTES", 100)
    assert said(path) == f"{expected}; it is ignored"
    assert tuning.load_choices(CARD, tmp_path).answers == {}
    monkeypatch.undo()
    tuning.save_choices(CARD, [finding()], tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tuned_for(CARD, tmp_path) != UNTUNED


def test_unclosed_brackets_are_invalid(tmp_path: Path) -> None:
    path = tuned_file(CARD, tmp_path)
    path.write_text("[" * 100_000, encoding="utf-8")
    assert said(path).startswith(NO_FILE)


def test_a_renamed_file_of_another_adapter_is_ignored_with_a_warning(tmp_path: Path) -> None:
    other = replace(CARD, driver="driver 2")
    tuning.save_choices(other, [finding()], tmp_path)
    path = tuned_file(CARD, tmp_path)
    tuned_file(other, tmp_path).rename(path)
    assert said(path) == "FILE has choices for the driver 'driver 2', which must be 'driver 1.2'; it is ignored"


def test_a_shared_file_is_accepted_on_the_same_adapter_and_rejected_elsewhere(tmp_path: Path) -> None:
    mine, theirs, shared = tmp_path / "mine", tmp_path / "theirs", tmp_path / "shared.json"
    tuning.write_choices(shared, tuning.save_choices(CARD, [finding()], mine))
    tuning.save_choices(CARD, [finding(answer="small 1x1"), finding("other")], theirs)
    tuning.import_choices(CARD, shared, theirs)
    assert tuned_for(CARD, theirs) == Tuned.of({PRODUCT: "register 8x2", "other": "register 8x2"})
    with pytest.raises(InvalidArgument, match="choices for the device"):
        tuning.import_choices(replace(CARD, name="Card 8"), shared, theirs)


def test_clearing_removes_choices(tmp_path: Path) -> None:
    tuning.save_choices(CARD, [finding()], tmp_path)
    (tmp_path / "broken.json").write_text("{}")
    assert [(content is None, bool(why)) for _, content, why in tuning.list_choices(tmp_path)] == [
        (True, True),
        (False, False),
    ]
    assert (tuning.clear_choices(CARD, tmp_path), tuning.clear_choices(CARD, tmp_path)) == (True, False)
    assert tuned_for(CARD, tmp_path) == UNTUNED


def test_a_file_has_its_format_version_and_adapter(tmp_path: Path) -> None:
    tuning.save_choices(CARD, [finding()], tmp_path)
    record = json.loads(tuned_file(CARD, tmp_path).read_text(encoding="utf-8"))
    assert record["format"] == 1 and record["adapter"]["driver"] == "driver 1.2"
    assert read_tuned(tuned_file(CARD, tmp_path)).version == record["dmlgpu"]


def test_targets_with_equal_choices_are_equal_and_others_are_not() -> None:
    target, same, other = (
        Target("card", overrides=Overrides(tuned=Tuned.of({"q": answer}))) for answer in ("a", "a", "b")
    )
    assert target == same and hash(target) == hash(same) and target != other and target != Target("card")
    assert pickle.loads(pickle.dumps(target)) == target
    assert target.overrides.tuned.answer("q", tuple) == "a" and target.overrides.tuned.answer("r", tuple) == ""


# ---- measured rates

CEILINGS = {"copy": 450e9, "launch": 4e-6, "multiply_add": 12e12}


def test_measured_rates_are_stored_with_the_choices(tmp_path: Path) -> None:
    tuning.save_choices(CARD, [], tmp_path, ceilings=CEILINGS)
    tuning.save_choices(CARD, [finding()], tmp_path)
    tuned = tuned_for(CARD, tmp_path)
    assert dict(tuned.ceilings) == CEILINGS
    assert tuned.answers == ((PRODUCT, "register 8x2"),)
    assert tuned.with_answers({}) == Tuned.of({}, CEILINGS) != UNTUNED
    assert hash(tuned.with_answers({})) != hash(UNTUNED)


@pytest.mark.parametrize("rate", [0, -1.0, "fast", float("nan")])
def test_invalid_measured_rates_are_rejected(tmp_path: Path, rate: object) -> None:
    tuning.save_choices(CARD, [finding()], tmp_path, ceilings=CEILINGS)
    path = tuned_file(CARD, tmp_path)
    record = json.loads(path.read_text())
    record["ceilings"]["copy"] = rate
    path.write_text(json.dumps(record))
    with pytest.raises(InvalidArgument, match="is no file of tuned choices"):
        read_tuned(path)
