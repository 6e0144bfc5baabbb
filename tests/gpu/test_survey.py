"""A survey of each adapter: a case, and an operator."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from dmlgpu.bench.ceilings import CachedCeilings
from dmlgpu.cli import survey
from dmlgpu.cli.survey_file import NAME, read_survey
from dmlgpu.cli.test import ConformanceRequest
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.adapters import adapters
from tests.unit.bench.bench_fakes import CEILINGS


def test_a_survey_tests_and_measures(adapter: AdapterInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = survey.survey_parts
    parts = ("conformance", "ceilings", "benchmark", "predictions")
    monkeypatch.setattr(survey, "survey_parts", lambda folder: [part for part in whole(folder) if part.name in parts])
    monkeypatch.setattr(survey, "ConformanceRequest", partial(ConformanceRequest, patterns=("argmin-example1",)))
    monkeypatch.setattr(survey, "ceilings_of", lambda child: CEILINGS)  # takes a minute on CPU adapters
    monkeypatch.setattr(survey, "known_ceilings", lambda info, measure, load: CachedCeilings(measure(), 0.0))
    monkeypatch.setattr(survey, "SUITE", "quick:ELEMENT_WISE_ADD")
    survey.survey(tmp_path, (str(adapters().index(adapter)),), (), 400.0)
    content = read_survey(tmp_path / NAME)
    assert [part["why"] for part in content.facts["parts"]][:-1] == ["", "", ""]
    (tested,), (measured,) = content.runs, content.measured
    assert [outcome.status for outcome in tested.outcomes] == ["pass"]
    assert tested.facts["adapter"]["name"] == adapter.name
    assert tested.exercised is not None and tested.exercised.kernels >= 1
    (addition,) = measured.measurements
    assert addition.check == "right" and addition.share
