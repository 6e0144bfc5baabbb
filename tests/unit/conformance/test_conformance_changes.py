"""What changed between two runs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from dmlgpu.cli.main import main
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.conformance.report.changes import ChangeKind, changes, pairs
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.records import RecordedRun, facts, write_run
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

GOOD = Outcome("a", Status.PASS, of_bound=0.5, digest="11")
BAD = replace(GOOD, status=Status.FAIL, of_bound=4.5)
REFUSED = Outcome("a", Status.NOT_SUPPORTED)


def run(*outcomes, suite="dmlgpu", **facts_of_adapter) -> RecordedRun:
    return RecordedRun(
        {
            **facts(NUMPY_ADAPTER, suite, "quick", "", tuple(outcome.case for outcome in outcomes)),
            "adapter": asdict(replace(NUMPY_ADAPTER, **facts_of_adapter)),
        },
        outcomes,
    )


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (GOOD, GOOD, []),
        (GOOD, BAD, [ChangeKind.REGRESSION]),
        (GOOD, REFUSED, [ChangeKind.REGRESSION]),
        (replace(BAD, status=Status.EXPECTED_FAIL), replace(BAD, status=Status.CRASH), [ChangeKind.REGRESSION]),
        (REFUSED, GOOD, [ChangeKind.CHANGED]),
        (BAD, GOOD, [ChangeKind.REPAIRED]),
        (BAD, replace(BAD, status=Status.CRASH), [ChangeKind.CHANGED]),
        (GOOD, replace(GOOD, of_bound=0.75), [ChangeKind.LESS_ACCURATE]),
        (GOOD, replace(GOOD, of_bound=0.25), [ChangeKind.MORE_ACCURATE]),
        (GOOD, replace(GOOD, digest="12"), [ChangeKind.OTHER_BITS]),
    ],
)
def test_kinds(before, after, kinds):
    assert [change.kind for change in changes(run(before), run(after))] == kinds


def test_regressions_come_first_and_missing_cases_are_seen():
    b, c, d = (replace(GOOD, case=name) for name in "bcd")
    differences = changes(run(BAD, b, c), run(GOOD, replace(b, status=Status.FAIL), d))
    assert [(change.kind.value, change.case) for change in differences] == [
        ("regression", "b"),
        ("missing", "c"),
        ("repaired", "a"),
        ("new", "d"),
    ]


def test_single_runs_of_different_adapters_are_compared():
    old, new = run(name="this"), run(name="that")
    assert pairs([old], [new]) == ((old, new),)


def test_of_several_runs_those_of_one_adapter_are_compared():
    old, new = [run(name="this"), run(name="that")], [run(name="that"), run(name="other")]
    assert pairs(old, new) == ((old[1], new[0]),)


def test_adapters_with_several_drivers_are_paired_by_these():
    old = [run(driver="22"), run(driver="25"), run(suite="accuracy")]
    new = [run(suite="accuracy"), run(driver="25"), run(driver="26")]
    assert pairs(old, new) == ((old[2], new[0]), (old[1], new[1]), (old[0], new[2]))


def test_files_without_a_common_adapter_are_rejected():
    with pytest.raises(InvalidArgument) as error:
        pairs([run(name="this")], [run(name="that"), run(name="other")])
    assert str(error.value) == "the files have no adapter in common: NumPy: this and NumPy: that, NumPy: other"


def write(path, *outcomes, names=("numpy",)):
    with path.open("w") as file:
        for name in names:
            list(write_run(file, run(name=name).facts, outcomes))
    return str(path)


def test_runs_of_different_selections_are_compared_on_common_cases(tmp_path, capsys):
    b, c = (replace(GOOD, case=name) for name in "bc")
    before, after = run(GOOD, b), run(BAD, c)
    after.facts["pattern"] = "c"
    assert [(change.kind, change.case) for change in changes(before, after)] == [(ChangeKind.REGRESSION, "a")]
    files = []
    for recorded in (before, after):
        files.append(tmp_path / f"{len(files)}.jsonl")
        with files[-1].open("w") as file:
            list(write_run(file, recorded.facts, recorded.outcomes))
    assert main(["compare", *map(str, files)]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "different selections (quick; quick, -k c), compared on 1 case: 1 regression"


def test_several_regressions_are_many():
    assert [ChangeKind.REGRESSION.counted(2), ChangeKind.MISSING.counted(2)] == ["2 regressions", "2 missing"]


def test_the_command(tmp_path, capsys):
    before = write(tmp_path / "before.jsonl", GOOD, replace(GOOD, case="b"))
    after = write(tmp_path / "after.jsonl", BAD, replace(GOOD, case="b"))
    assert main(["compare", before, after]) == 1
    assert capsys.readouterr().out.splitlines() == [
        str(NUMPY_ADAPTER),
        "change      case  before                       after",
        "regression  a     pass, 50 % of the tolerance  fail, 450 % of the tolerance",
        "2 cases: 1 regression",
    ]
    assert main(["compare", after, before]) == 0
    assert main(["compare", before, before]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 cases: nothing changed"


def test_the_command_in_json(tmp_path, capsys):
    before = write(tmp_path / "before.jsonl", GOOD, replace(GOOD, case="b"))
    after = write(tmp_path / "after.jsonl", BAD, replace(GOOD, case="b"))
    assert main(["compare", before, after, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    (pair,) = document["pairs"]
    assert (document["worse"], document["missing"], pair["before"]["adapter"]) == (True, [], str(NUMPY_ADAPTER))
    ((kind, case, old, new),) = [change.values() for change in pair["changes"]]
    assert (kind, case, old["of_bound"], new["of_bound"]) == ("regression", "a", 0.5, 4.5)
    assert main(["compare", after, before, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["worse"] is False


def test_the_command_in_json_misses_adapters(tmp_path, capsys):
    before = write(tmp_path / "before.jsonl", GOOD, names=("this", "that"))
    after = write(tmp_path / "after.jsonl", GOOD, names=("that",))
    assert main(["compare", before, after, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [run["adapter"] for run in document["missing"]] == [str(replace(NUMPY_ADAPTER, name="this"))]
    assert [pair["changes"] for pair in document["pairs"]] == [[]]
    assert document["worse"] is True


def test_the_command_misses_adapters(tmp_path, capsys):
    before = write(tmp_path / "before.jsonl", GOOD, names=("this", "that"))
    after = write(tmp_path / "after.jsonl", GOOD, names=("that",))
    assert main(["compare", before, after]) == 1
    assert capsys.readouterr().out.splitlines() == [
        str(replace(NUMPY_ADAPTER, name="that")),
        "1 case: nothing changed",
        str(replace(NUMPY_ADAPTER, name="this")),
        "missing: 1 case of dmlgpu was not run",
    ]
    assert main(["compare", after, before]) == 0
