"""``dmlgpu test`` on the numpy adapter."""

from __future__ import annotations

import os

import pytest

from dmlgpu.cli.main import main
from dmlgpu.cli.test import reproduce
from dmlgpu.conformance.outcome import Outcome, Status
from dmlgpu.conformance.records import read_runs
from dmlgpu.conformance.session import Job
from dmlgpu.device.adapters import adapters
from dmlgpu.device.numpy_adapter import NUMPY_ADAPTER
from tests.unit import conformance_suite


@pytest.fixture
def misbehaving(tmp_path, monkeypatch):
    """The suite of that name, for this process and its children."""
    for name, value in conformance_suite.install(tmp_path).items():
        monkeypatch.setenv(name, value)
        for path in value.split(os.pathsep):
            monkeypatch.syspath_prepend(path)


def test_a_list(capsys):
    assert main(["test", "--list", "-k", "argmin-example1"]) == 0
    assert capsys.readouterr().out == "argmin-example1\n"


def test_a_passing_run(tmp_path, capsys):
    path = tmp_path / "run.jsonl"
    assert main(["test", "-a", "numpy", "-k", "argmin-example1", "-o", str(path)]) == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["adapter", "pass"]
    assert row.startswith(str(NUMPY_ADAPTER)) and row.endswith(" 1")
    (run,) = read_runs(path)
    assert [(outcome.case, outcome.status) for outcome in run.outcomes] == [("argmin-example1", Status.PASS)]


def test_a_failing_run(misbehaving, capsys):
    assert main(["test", "-a", "numpy", "--suite", "misbehaving", "-k", "bad-1"]) == 1
    out = capsys.readouterr().out.splitlines()
    number = len(adapters()) - 1
    assert out[:3] == [
        "fail: bad-1",
        "  1 of 2 elements are wrong; the worst, at [1]: expected 4, got 5 from 3; 2 ULP, allowed difference 0 (exact)",
        f"  again: dmlgpu test --suite misbehaving --adapter {number} -k bad-1",
    ]
    assert out[3].split() == ["adapter", "fail"]


def test_a_failure_that_was_expected(misbehaving, tmp_path, capsys):
    path = tmp_path / "known.toml"
    path.write_text('[[expected]]\ncases = "[bg]*-1"\nreason = "told so"\n')
    command = ["test", "-a", "numpy", "--suite", "misbehaving", "-e", str(path)]
    assert main([*command, "-k", "bad-1"]) == 0
    assert "expected fail" in capsys.readouterr().out
    assert main([*command, "-k", "good-1"]) == 1
    assert capsys.readouterr().out.startswith("unexpected pass: good-1\n  a failure was expected: told so\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-k", "no_such_case"], "dmlgpu: no case of the profile 'quick' matches 'no_such_case'\n"),
        (["--profile", "slow"], "dmlgpu: profile must be one of quick, standard, full, got 'slow'\n"),
        (["-e", "missing.toml"], "dmlgpu: missing.toml: No such file or directory\n"),
    ],
)
def test_what_does_not_exist_is_refused(arguments, message, capsys):
    assert main(["test", "-a", "numpy", *arguments]) == 2
    assert capsys.readouterr().err == message


def test_names_are_quoted_in_commands():
    assert reproduce(Outcome("a b", Status.FAIL), Job("operators", 2)) == "dmlgpu test --adapter 2 -k 'a b'"
