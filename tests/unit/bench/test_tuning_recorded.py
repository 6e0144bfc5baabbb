"""The built-in choices are within 15 % of the fastest ones, by what ``dmlgpu tune --record`` measured on drivers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dmlgpu.bench.tuning import TuningRecording, questions_of
from dmlgpu.compiler.target import Profile, Target

FILES = sorted((Path(__file__).parents[2] / "data" / "tuning").glob("*.json"))
MAX_EXCESS = 1.15


def recorded(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))


def test_there_are_recordings() -> None:
    assert "lavapipe" in {file.stem for file in FILES}
    assert all(len(recorded(file)["recordings"]) >= 8 for file in FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_built_in_choice_is_nearly_the_fastest(file: Path) -> None:
    content = recorded(file)
    target = Target(content["adapter"], Profile(content["profile"]), frozenset(content["features"]))
    slower, unknown = {}, []
    for record in content["recordings"]:
        recording = TuningRecording.from_json(record)
        built_in, *_ = questions_of(recording.workload(), target, recording.other_answers).get(
            recording.question, ("not asked",)
        )
        if built_in not in recording.ratios:
            unknown.append(f"{recording.question}: {built_in}")
        elif recording.excess(built_in) > MAX_EXCESS:
            slower[f"{recording.question}: {built_in}"] = recording.excess(built_in)
    assert slower == {}
    assert unknown == [], "choices have changed: write the file again by dmlgpu tune --record"


def test_an_excess_is_counted_from_the_fastest() -> None:
    recording = TuningRecording("GEMM", {}, "float32", "product", {}, {"a": 1.0, "b": 0.8, "c": 2.0})
    assert [recording.excess(choice) for choice in "abc"] == [1.25, 1.0, 2.5]
