"""``dmlgpu survey``: it keeps to its time, continues, says what it did not run, and tells nothing about anybody."""

from __future__ import annotations

import getpass
import gzip
import json
import os
import platform
import re
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

from dmlgpu.bench import predicting
from dmlgpu.bench.choosing import of_operator
from dmlgpu.bench.predicting import Prediction, prediction_facts
from dmlgpu.bench.records import Measurement
from dmlgpu.bench.records import facts as bench_facts
from dmlgpu.cli import devices, report, survey, survey_file
from dmlgpu.cli.main import INTERRUPTED, OK
from dmlgpu.cli.survey import PartResult, survey_parts
from dmlgpu.cli.survey_file import NAME, read_survey, without_personal_data, write_survey
from dmlgpu.cli.test import ConformanceRequest
from dmlgpu.common.errors import ModelError
from dmlgpu.compiler.cards import find_card
from dmlgpu.conformance.drivers.discovery import LocatedAdapter
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.bench.bench_fakes import CEILINGS
from tests.unit.cli.cli_process import run_here
from tests.unit.conformance.report_runs import CRASHED, GOOD, REFUSED, run

CASES = ("argmin-example1", "cast-float32-int64-7x7x11-interleaved-s0", "cast-uint16-float64-63-interleaved-s0")


class Worker:
    """A worker whose cases pass at once."""

    def __init__(self, job, notes=None):
        self.job, self.notes = job, notes

    def interrupt(self):
        pass

    def close(self):
        pass


@pytest.fixture
def ran(monkeypatch):
    """A survey of three cases, which pass without a child, and nothing else; the names of cases that ran."""
    names = []

    def pass_case(worker, name):
        names.append(name)
        return Outcome(name, Status.PASS, "exact", 0.0)

    monkeypatch.setattr(survey, "ConformanceRequest", partial(ConformanceRequest, patterns=CASES, workers=1))
    monkeypatch.setattr(survey, "WorkerProcess", Worker)
    monkeypatch.setattr(survey, "run_repeatedly", pass_case)
    whole = survey.survey_parts
    monkeypatch.setattr(
        survey, "survey_parts", lambda folder: [part for part in whole(folder) if part.name == "conformance"]
    )
    return names


def outcomes(folder):
    """The names of the cases of a survey with one run."""
    (recorded,) = read_survey(folder / NAME).runs
    return sorted(outcome.case for outcome in recorded.outcomes)


def test_a_survey_continues_after_an_interruption(ran, tmp_path, monkeypatch):
    passing = survey.run_repeatedly

    def interrupt_second(worker, name):
        if len(ran) == 1:
            raise KeyboardInterrupt
        return passing(worker, name)

    monkeypatch.setattr(survey, "run_repeatedly", interrupt_second)
    first = run_here("survey", "-a", "numpy", "-o", tmp_path)
    assert first.returncode == INTERRUPTED
    assert re.search("^conformance on numpy: 1 of 3 in .* s: interrupted$", first.stdout, re.MULTILINE)
    assert outcomes(tmp_path) == ran and len(ran) == 1
    assert list(read_survey(tmp_path / NAME).not_run) == ["conformance on numpy: 1 of 3, interrupted"]
    monkeypatch.setattr(survey, "run_repeatedly", passing)
    again = run_here("survey", "-a", "numpy", "-o", tmp_path)
    assert again.returncode == OK and "Not run" not in again.stdout
    assert sorted(ran) == list(CASES) == outcomes(tmp_path)
    assert run_here("survey", "-a", "numpy", "-o", tmp_path).returncode == OK
    assert len(ran) == len(CASES)


def test_each_quick_case_runs_once(ran, tmp_path, monkeypatch):
    """The default suite contains the cases of ``driver``, which is a part of its own."""
    monkeypatch.setattr(survey, "ConformanceRequest", partial(ConformanceRequest, workers=1))
    monkeypatch.setattr(survey, "survey_parts", lambda folder: survey_parts(folder)[:2])
    finished = run_here("survey", "-a", "numpy", "-o", tmp_path)
    assert finished.returncode == OK and "Not run" not in finished.stdout
    assert sorted(ran) == sorted(ConformanceRequest().names)
    driver, conformance = read_survey(tmp_path / NAME).runs
    assert (driver.facts["suite"], conformance.facts["suite"]) == ("driver", "dmlgpu")
    assert driver.is_complete and conformance.is_complete
    assert driver.facts["cases"] + conformance.facts["cases"] == len(ran)


def test_parts_are_selected(ran, tmp_path, monkeypatch):
    monkeypatch.setattr(survey, "survey_parts", survey_parts)
    finished = run_here("survey", "-a", "numpy", "-o", tmp_path, "--part", "conformance", "--part", "predictions")
    assert finished.returncode == OK
    parts = [part["part"] for part in read_survey(tmp_path / NAME).facts["parts"]]
    assert parts == ["conformance", "predictions"]
    assert [part.name for part in survey_parts(tmp_path)] == list(survey.PARTS)
    wrong = run_here("survey", "-o", tmp_path, "--part", "everything")
    assert wrong.returncode == 2
    assert "--part must be one of driver, conformance, ceilings, benchmark, language model, predi" in wrong.stderr


def test_pages_are_surveyed_once(ran, tmp_path, monkeypatch):
    page = replace(NUMPY_ADAPTER, name="phone", backend="Browser")
    located = (LocatedAdapter(NUMPY_ADAPTER, 0, label="numpy"), LocatedAdapter(page, 7, label="page of --drivers all"))
    monkeypatch.setattr(survey, "choose_adapters", lambda requested, drivers: located)
    monkeypatch.setattr(devices, "wait_for_pages", lambda count: [page])
    monkeypatch.setattr(devices, "process_adapters", lambda: (LocatedAdapter(page, 1, label="phone Browser"),))
    assert run_here("survey", "-o", tmp_path, "--browser").returncode == OK
    labels = [adapter["label"] for adapter in read_survey(tmp_path / NAME).facts["adapters"]]
    assert labels == ["phone Browser"]


def test_a_survey_records_what_kernels_used(ran, tmp_path, monkeypatch):
    """Unless it continues an earlier run, whose kernels it does not know."""
    used = {"kernels": {"a": ["exp", "f32"]}, "avoided": []}

    def note(worker, name):
        if worker.notes is not None:
            worker.notes.add(used)
        return Outcome(name, Status.PASS, "exact", 0.0)

    monkeypatch.setattr(survey, "run_repeatedly", note)
    for _ in range(2):  # the second writes nothing again
        assert run_here("survey", "-a", "numpy", "-o", tmp_path).returncode == OK
        (recorded,) = read_survey(tmp_path / NAME).runs
        assert recorded.exercised.used == {"exp": 1, "f32": 1}


def test_a_survey_of_another_version_starts_over(ran, tmp_path, monkeypatch):
    run_here("survey", "-a", "numpy", "-o", tmp_path)
    real = survey.facts
    monkeypatch.setattr(survey, "facts", lambda *args, **more: {**real(*args, **more), "shaders": "others"})
    run_here("survey", "-a", "numpy", "-o", tmp_path)
    assert sorted(ran) == sorted(2 * CASES)
    assert outcomes(tmp_path) == list(CASES)


def test_results_after_the_deadline_do_not_count(ran, tmp_path, monkeypatch):
    """They may be those of workers that the deadline has killed."""
    late = []

    class Stopped(Worker):
        def interrupt(self):
            late.append(self.job.suite)

    def crash_late(worker, name):
        while not late:
            time.sleep(0.01)
        return replace(CRASHED, case=name)

    monkeypatch.setattr(survey, "WorkerProcess", Stopped)
    monkeypatch.setattr(survey, "run_repeatedly", crash_late)
    finished = run_here("survey", "-a", "numpy", "-o", tmp_path, "--budget", "4")  # enough to reach the workers
    assert finished.returncode == OK and late
    assert re.search("^conformance on numpy: 0 of 3 in .* s: the time was up$", finished.stdout, re.MULTILINE)
    assert "The same command continues." in finished.stdout
    assert not read_survey(tmp_path / NAME).runs


def test_parts_that_do_not_fit_are_listed(tmp_path):
    finished = run_here("survey", "-a", "numpy", "-o", tmp_path, "--budget", "0")
    assert finished.returncode == OK
    parts = {part["part"]: part for part in read_survey(tmp_path / NAME).facts["parts"]}
    assert {"conformance", "ceilings", "benchmark", "language model", "predictions"} <= parts.keys()
    assert parts["conformance"]["why"] == parts["benchmark"]["why"] == "the time was up"
    assert all(part["why"] or part["part"] == "ceilings" for part in parts.values())  # those may be known
    assert parts["conformance"]["total"] > 1000
    assert "no card of this name" in parts["predictions"]["why"]
    run_here("report", tmp_path / NAME, "-o", tmp_path / "report.md")  # has no run


def test_times_are_shared_by_the_parts_that_follow(tmp_path, monkeypatch):
    """What a part leaves is for the others."""
    deadlines = []

    def take(state, adapter, deadline, result):
        deadlines.append(deadline - time.monotonic())

    monkeypatch.setattr(survey, "survey_parts", lambda folder: [survey.SurveyPart(name, 1, take) for name in "abcd"])
    survey.survey(tmp_path, ("numpy",), (), 100.0)
    assert deadlines == pytest.approx([25, 100 / 3, 50, 100], abs=5)


def test_a_survey_of_the_reference_measures(tmp_path, monkeypatch):
    """Only the ceilings are invented: they take seconds."""
    monkeypatch.setattr(survey, "ConformanceRequest", partial(ConformanceRequest, patterns=CASES[:1], workers=1))
    monkeypatch.setattr(survey, "ceilings_of", lambda child: CEILINGS)
    monkeypatch.setattr(survey, "known_ceilings", lambda info, measure, load: survey_cached(measure()))
    monkeypatch.setattr(survey, "SUITE", "quick:ELEMENT_WISE_ADD")
    whole = survey.survey_parts
    parts = ("conformance", "ceilings", "benchmark")
    monkeypatch.setattr(survey, "survey_parts", lambda folder: [part for part in whole(folder) if part.name in parts])
    finished = run_here("survey", "-a", "numpy", "-o", tmp_path, "--budget", "300")
    assert "Not run" not in finished.stdout
    content = read_survey(tmp_path / NAME)
    (measured,) = content.measured
    (addition,) = measured.measurements
    assert (addition.operator, addition.check) == ("ELEMENT_WISE_ADD", "right")
    assert addition.share and measured.ceilings("numpy") == CEILINGS
    assert outcomes(tmp_path) == [CASES[0]] and content.runs[0].is_complete
    tells_nothing(gzip.decompress((tmp_path / NAME).read_bytes()).decode(), tmp_path)


def survey_cached(ceilings):
    """Ceilings as the cache gives them."""
    from dmlgpu.bench.ceilings import CachedCeilings

    return CachedCeilings(ceilings, 0.0)


def tells_nothing(text, *folders):
    """Check that a text has no folder, and no name of the user or the computer."""
    for folder in (Path.home(), Path.cwd(), Path(survey.__file__).parent, *folders):
        assert str(folder) == "/" or str(folder) not in text
    for word in survey_file.personal_words():
        assert f'"{word}"' not in text and f"/{word}" not in text
    assert os.path.sep + "usr" not in text


def test_no_personal_data(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "jroe")
    monkeypatch.setattr(platform, "node", lambda: "Roes-Laptop.example.org")
    monkeypatch.setattr(Path, "home", lambda: Path("/Users/Jane Roe"))
    value = {
        "environment": {"VK_DRIVER_FILES": "/Users/Jane Roe/my drivers/nvidia_icd.json"},
        "problems": [
            "C:\\Users\\jroe\\driver.dll and \\\\roes-laptop\\share\\x.json: not found",
            "/home/jroe: no such folder; ~/vulkan/icd.d is empty",
            "file:///home/jroe/a/b.txt, see https://github.com/gfx-rs/wgpu/issues/9489",
            "File /home/other/site-packages/wgpu/_api.py, line 3, by JROE on roes-laptop.example.org",
        ],
        "case": "roes-laptop-float32",
        "message": "1 of 4 elements is wrong; 3 GB/s / 5 (layout/slice_grad, schedules/map)",
        "seconds": [0.5, None, True],
    }
    clean = without_personal_data(value)
    text = json.dumps(clean, ensure_ascii=False).lower().replace(clean["case"], "")
    for word in ("jroe", "jane", "roe", "laptop", "users", "home", "other", "site-packages", "example.org"):
        assert word not in text, text
    assert clean["environment"]["VK_DRIVER_FILES"].endswith("nvidia_icd.json")
    assert "driver.dll" in clean["problems"][0] and "_api.py, line 3" in clean["problems"][3]
    assert clean["problems"][2] == "file://b.txt, see https://github.com/gfx-rs/wgpu/issues/9489"
    unchanged = ("case", "message", "seconds")
    assert {name: clean[name] for name in unchanged} == {name: value[name] for name in unchanged}


def card(name):
    return LocatedAdapter(replace(NUMPY_ADAPTER, name=name, backend="Vulkan", vendor=name.split()[0]), 0, label=name)


def records_of(recorded):
    """The records of a run, as its file has them."""
    cases = [{"record": "case", **outcome.to_json()} for outcome in recorded.outcomes]
    header = {**recorded.facts, "cases": len(cases)}
    return [{"record": "run", **header}, *cases, {"record": "end"}]


def write_card(path, adapter, cases, seconds):
    """Write an invented survey of a card: cases, one measurement, and a prediction of half of its time."""
    info = {name: value for name, value in asdict(adapter.info).items() if name != "name"}
    measurement = Measurement("add", "ELEMENT_WISE_ADD", adapter.label, check="right", seconds=(seconds,) * 3)
    benchmark = [
        {"record": "bench", **bench_facts([adapter], {adapter.label: CEILINGS}, (), {})},
        {"record": "measurement", **measurement.to_json()},
        {"record": "end"},
    ]
    prediction = Prediction("add", "ELEMENT_WISE_ADD", adapter.label, seconds=seconds / 2)
    predictions = [{"record": "predicted", **prediction_facts(find_card("H100"), ())}, prediction.to_json()]
    parts = [asdict(PartResult("language model", adapter.label, why="tokenizers not installed"))]
    write_survey(
        path,
        {"adapters": [], "parts": parts},
        {
            "conformance": [records_of(run(*cases, name=adapter.info.name, **info))],
            "benchmark": [benchmark],
            "predictions": {adapter.label: predictions},
        },
    )


def test_surveys_of_two_cards_merge(tmp_path):
    passed = replace(REFUSED, status=Status.PASS, message="", missing="")
    write_card(tmp_path / "a.json.gz", card("Acme 1"), (GOOD, REFUSED), 0.002)
    write_card(tmp_path / "b.json.gz", card("Bolt 2"), (GOOD, passed), 0.004)
    files = [tmp_path / "a.json.gz", tmp_path / "b.json.gz"]
    report.report(files, tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert "| operator | cases | Acme | Bolt | example |" in lines
    assert "| `cast` | 1 | not supported | pass | `cast-c` |" in lines
    assert not any(line.startswith("| `argmin` | 1 | pass") for line in lines)
    assert "| copy rate, GB/s | 1 | 1 |" in lines
    assert "| add | 2 ms | 4 ms |" in lines
    assert "- a.json.gz: language model on Acme 1: 0 of 1, tokenizers not installed" in lines
    assert any("| add | Acme 1 | 2 ms ± 0.0 % " in line and "| 1 ms |" in line for line in lines)
    report.report(files, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<td>2 ms</td><td>4 ms</td>" in page and "predicted 1 ms" in page
    assert '<td class="refused">not supported</td><td class="good">pass</td>' in page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: {**content, "format": 2}, "must be 1, got 2"),
        (lambda content: {**content, "conformance": [{}]}, "'conformance'"),
        (lambda content: {**content, "parts": [{"part": "x"}]}, "'done' is missing|'adapter' is missing"),
        (lambda content: {**content, "benchmark": [[{"record": "run"}]]}, "was not written by `dmlgpu bench -o`"),
        (lambda content: [], "was not written by `dmlgpu survey`"),
    ],
)
def test_malformed_surveys_are_rejected(tmp_path, change, message):
    path = tmp_path / "a.json.gz"
    write_card(path, card("Acme 1"), (GOOD,), 0.002)
    content = json.loads(gzip.decompress(path.read_bytes()))
    path.write_bytes(gzip.compress(json.dumps(change(content)).encode()))
    with pytest.raises(ModelError, match=message):
        read_survey(path)


def test_truncated_surveys_are_rejected(tmp_path):
    path = tmp_path / "a.json.gz"
    write_card(path, card("Acme 1"), (GOOD,), 0.002)
    whole = path.read_bytes()
    for broken in (whole[:-20], whole[:40] + b"\xff\xff" + whole[42:], gzip.compress(b"\xff")):
        path.write_bytes(broken)
        finished = run_here("report", path, "-o", tmp_path / "report.md")
        assert finished.returncode != OK and "is not a survey" in finished.stderr


def test_uncompressed_surveys_are_read(tmp_path):
    write_card(tmp_path / "a.json.gz", card("Acme 1"), (GOOD,), 0.002)
    (tmp_path / "a.json").write_bytes(gzip.decompress((tmp_path / "a.json.gz").read_bytes()))
    assert survey_file.is_survey_file(tmp_path / "a.json")
    assert read_survey(tmp_path / "a.json") == read_survey(tmp_path / "a.json.gz")


def test_times_on_a_described_card_are_predicted(tmp_path, monkeypatch):
    monkeypatch.setattr(predicting, "missing_parts", lambda: ("RADV",))  # which takes seconds
    info = replace(NUMPY_ADAPTER, name="NVIDIA H100 80GB HBM3", backend="Vulkan", kind="discrete", vendor="NVIDIA")
    state, result = survey.Survey(tmp_path), PartResult("predictions", "h100")
    workloads = of_operator("ELEMENT_WISE_ADD", [{"elements": 1 << 24}])
    survey._run_predictions(workloads, state, LocatedAdapter(info, 0, label="h100"), time.monotonic() + 300, result)
    header, predicted = state.predictions["h100"]
    assert (result.done, result.why, header["card"]["name"]) == (1, "", "H100")
    assert predicted["seconds"] == pytest.approx(3 * 4 * (1 << 24) / 3e12, rel=0.4)  # it moves 201 MB at about 3 TB/s
